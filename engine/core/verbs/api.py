"""Calls from Python: run a verb of the command line (`run_verb`), or check a part of a user (`check_part`).

A call and the command give the same job, run folder and result. `KINDS` lists the kinds of parts that users may add.
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
    """Run a job, or resume its run; a finished run returns its stored result.

    Args:
        verb: the words after `parley`, such as "selfplay" or "train negotiator".
        preset: name of a preset; the verb's default when empty.
        run: folder or URI of the run; runs/NAME when empty, as on the command line.
        reporter: receives the progress of the job; None for silence.
        settings: settings of the configuration; "fit__max_epochs=1" is `--set fit.max_epochs=1`. A section may be given whole.

    Returns:
        The result of the job: metrics by name, the run folder, the next commands.

    Raises:
        ConfigError: the verb, preset or setting does not exist, or a value is not allowed.
        ParleyError: an error of the job.
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
    setting_names = list(vars(config))
    if wrong := [name for name in settings if "__" not in name and name not in setting_names]:
        what = f"{verb} has no setting {wrong[0]!r}{nearest(wrong[0], setting_names)}"
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
    "parley.envs.secret.conformance:SECRET_PLAYER",
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
"""The kinds of parts, as "module:NAME"."""


@dataclass(frozen=True)
class Conformance:
    """The results of the conformance tests of a part as one kind.

    Args:
        kind: the kind that it was tested as.
        promises: the result of each test.
    """

    kind: Kind
    promises: list[Promise]

    @property
    def kept(self) -> bool:
        """Return whether the part keeps all promises."""
        return not any(promise.failure for promise in self.promises)


def check_part(named: str | Any) -> list[Conformance]:
    """Test a part as every kind that it fits.

    Args:
        named: `path/file.py:Name`, or the class, function or object.

    Raises:
        ConfigError: the name does not exist, or the part fits no known kind.
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
