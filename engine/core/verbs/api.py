"""Verbs of the command line as calls from Python: the same job, the same run folder, the same result.

Which kinds of part a user may add, and what `parley check` says of one of them.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

from parley.engine.core.verbs.catalogue import ENTRIES
from parley.engine.core.verbs.job import Reporter, Result, Silent
from parley.envs.core.config import to_dict, with_values
from parley.envs.core.conformance import Kind, Promise, promises
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import Registry, nearest
from parley.envs.core.storage.copies import local_copy


def run_verb(verb: str, preset: str = "", *, run: str | Path = "", reporter: Reporter | None = None, **settings: Any) -> Result:
    """Runs a job, or goes on with its run; a finished run gives its result again.

    Args:
        verb: as typed after `parley`, such as "selfplay" or "train negotiator".
        preset: its name; the verb's default when empty.
        run: folder or URI; runs/NAME when empty, as on the command line.
        reporter: hears how far the job is; nobody when None.
        settings: of the configuration; "fit__max_epochs=1" is `--set fit.max_epochs=1`. A section may be given whole.

    Returns:
        What the job leaves behind: metrics by name, the run folder, what may come next.

    Raises:
        ConfigError: no such verb, preset or setting, or a value that is not allowed.
        ParleyError: as the job says.
    """
    verbs = {" ".join(entry.words): entry for entry in ENTRIES}
    if verb not in verbs:
        raise ConfigError(f"no job is called {verb!r}{nearest(verb, verbs)}", fix=f"one of {', '.join(verbs)}")
    entry = verbs[verb]
    job = entry.load()
    if preset and preset not in job.presets:
        what = f"{verb} has no preset {preset!r}{nearest(preset, job.presets)}"
        raise ConfigError(what, fix=f"one of {', '.join(job.presets)}")
    config = job.presets[preset]() if preset else next(iter(job.presets.values()))()
    known = list(vars(config))
    if wrong := [name for name in settings if "__" not in name and name not in known]:
        what = f"{verb} has no setting {wrong[0]!r}{nearest(wrong[0], known)}"
        raise ConfigError(what, fix=f"parley settings {verb}")
    values = {name.replace("__", "."): to_dict(value) if is_dataclass(value) else value for name, value in settings.items()}
    config = with_values(config, values, f"run_verb({verb!r})")
    return job.run(config, local_copy(str(run) or f"runs/{job.run_name}"), reporter or Silent())


KINDS = (
    "parley.envs.negotiation.conformance:AGENT",
    "parley.envs.negotiation.conformance:CORPUS",
    "parley.envs.corpora.pairs.corpora:PAIR_CORPUS",
    "parley.envs.ranking.corpora:CANDIDATE_CORPUS",
    "parley.envs.ranking.corpora:PROPOSER",
    "parley.envs.generation.game:REPLY_JUDGE",
    "parley.envs.mutual_friends.conformance:CHAT_CORPUS",
    "parley.envs.mutual_friends.conformance:FRIEND",
    "parley.policies.conformance:RESPONDER",
    "parley.policies.conformance:RANKER",
    "parley.policies.conformance:JUDGE",
    "parley.policies.conformance:CHAT_MODEL",
    "parley.policies.conformance:REPLYING",
    "parley.engine.perturb.catalogue:STRATEGY",
    "parley.engine.perturb.replies.catalogue:REPLY_RULE",
    "parley.engine.ranking.attacks.catalogue:RANK_ATTACK",
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
