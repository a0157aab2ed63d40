"""Which kinds of part a user may add, and what `parley check` says of one of them."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from parley.envs.core.conformance import Kind, Promise, promises
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import Registry

KINDS = (
    "parley.envs.negotiation.conformance:AGENT",
    "parley.envs.negotiation.conformance:CORPUS",
    "parley.envs.corpora.pairs.conformance:PAIR_CORPUS",
    "parley.envs.ranking.conformance:CANDIDATE_CORPUS",
    "parley.envs.ranking.conformance:PROPOSER",
    "parley.envs.generation.conformance:REPLY_JUDGE",
    "parley.envs.mutual_friends.conformance:CHAT_CORPUS",
    "parley.envs.mutual_friends.conformance:FRIEND",
    "parley.policies.core.conformance:RESPONDER",
    "parley.policies.core.conformance:RANKER",
    "parley.policies.core.conformance:JUDGE",
    "parley.policies.chat.conformance:CHAT_MODEL",
    "parley.policies.chat.conformance:REPLYING",
    "parley.engine.perturb.conformance:STRATEGY",
    "parley.engine.perturb.replies.conformance:REPLY_RULE",
    "parley.engine.ranking.conformance:RANK_ATTACK",
    "parley.engine.triggers.conformance:VICTIM",
    "parley.engine.triggers.conformance:METHOD",
)
"""Where each kind stands, as "module:NAME"."""


@dataclass(frozen=True)
class Conformance:
    """What a part promises as one kind, and what it keeps.

    Args:
        kind: what it was tested as.
        promises: what came of each test.
    """

    kind: Kind
    promises: list[Promise]

    @property
    def kept(self) -> bool:
        """Whether all of them are."""
        return not any(promise.failure for promise in self.promises)


def check_part(named: str | Any) -> list[Conformance]:
    """Tests a part as every kind that it is of.

    Args:
        named: `path/file.py:Name`, or the class, function or object itself.

    Raises:
        ConfigError: there is no such name, or what it stands for is of no known kind.
    """
    part = Registry("part", "parley.parts").get(named) if isinstance(named, str) else named
    kinds = [_load(target) for target in KINDS]
    fitting = [kind for kind in kinds if kind.fits(part)]
    excluded = {name for kind in fitting for name in kind.excludes}
    fitting = [kind for kind in fitting if kind.name not in excluded]
    if not fitting:
        needs = "; ".join(f"{kind.name}: {', '.join(kind.members)}" for kind in kinds)
        fix = f"give it the members of one: {needs}"
        raise ConfigError("this is of no kind that Parley knows", where=named, got=repr(part), fix=fix)
    return [Conformance(kind, promises(kind, part)) for kind in fitting]


def _load(target: str) -> Kind:
    module, _, name = target.partition(":")
    kind: Kind = getattr(importlib.import_module(module), name)
    return kind
