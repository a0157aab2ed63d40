"""Agents by name: scripted bargainers, a person, or a checkpoint folder of a trained model."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.store.head import read_head
from envs.core.errors import CheckpointError, ConfigError, RunError
from envs.core.registry import Registry, nearest
from envs.data.vocabulary import Vocabulary
from envs.negotiation.game import Agent
from envs.storage.copies import MODEL as CHECKPOINT
from envs.storage.copies import fetched_model
from envs.storage.places import named
from policies.negotiator.settings import KIND
from policies.stored import WEIGHTS, read_words

HUMAN = "human"

agents = Registry("agent", "parley.agents")
agents.register("scripted", "fair-minded scripted bargainer", "envs.negotiation.bargainers:scripted")
agents.register("scripted-tough", "scripted bargainer that holds out", "envs.negotiation.bargainers:scripted_tough")
agents.register(HUMAN, "you, at the terminal", "engine.jobs.person:Person")


def checkpoint_folder(spec: str) -> Path | None:
    """The checkpoint that a name stands for: a checkpoint folder, or a run that holds one; None for anything else."""
    path = fetched_model(spec)
    for folder in (path, path / CHECKPOINT):
        if (folder / WEIGHTS).is_file():
            return folder
    return None


def require_checkpoint(spec: str, option: str, maker: str = "parley train negotiator") -> Path:
    """The checkpoint that a name stands for.

    Args:
        spec: a run or checkpoint folder.
        option: what named it.
        maker: the command that makes such a checkpoint.

    Raises:
        CheckpointError: there is none, with what to do.
    """
    folder = checkpoint_folder(spec)
    if folder is None:
        got, fix = _instead(spec) or (None, "name a run or checkpoint folder")
        fix = fix if fix.startswith("parley") else f"{fix}; {maker} makes one"
        raise CheckpointError(f"{option} needs a checkpoint and there is none", where=spec, got=got, fix=fix)
    return folder


def _instead(spec: str) -> tuple[str, str] | None:
    """What is where a checkpoint was looked for, and what to do about it; None when nothing is there."""
    from engine.jobs.catalogue import find

    path = fetched_model(spec)
    if path.is_file():
        return "a file", "name a run or checkpoint folder"
    if not path.is_dir():
        return None
    inside = [named(weights.parents[1]) for weights in sorted(path.glob(f"*/{CHECKPOINT}/{WEIGHTS}"))]
    fix = f"name one of the runs in it: {', '.join(inside)}" if inside else "name the run of a training"
    try:
        entry = find(read_head(path)["job"])
    except RunError:
        return "a folder that is no run", fix
    job = f"a run of parley {' '.join(entry.words)}"
    if CHECKPOINT in entry.load().files:
        return f"{job} that has not come to its end", f"{shlex.join(['parley', 'resume', spec])} goes on with it"
    return f"{job}, which is no training", fix


def vocabulary_of(spec: str) -> Vocabulary | None:
    """The vocabulary that an agent brings along: a checkpoint's own; None for agents that take any.

    Raises:
        CheckpointError: the checkpoint lacks a part, is damaged or of another kind.
    """
    folder = checkpoint_folder(spec)
    return None if folder is None else read_words(folder, KIND, Vocabulary)


def shared_vocabulary(specs: dict[str, str]) -> Vocabulary:
    """The one vocabulary in which agents can talk.

    Args:
        specs: agents by the option that named them.

    Raises:
        CheckpointError: two checkpoints have different vocabularies, or one lacks a part, is damaged or of another kind.
    """
    found = {option: vocabulary for option, spec in specs.items() if (vocabulary := vocabulary_of(spec)) is not None}
    if not found:
        from envs.negotiation.wording import bargainer_vocabulary

        return bargainer_vocabulary()
    first_option, first = next(iter(found.items()))
    for option, vocabulary in found.items():
        if vocabulary.digest != first.digest:
            raise CheckpointError(
                f"{first_option} and {option} speak different vocabularies",
                where=f"{specs[first_option]} and {specs[option]}",
                got=f"{len(first)} words ({first.digest}) and {len(vocabulary)} words ({vocabulary.digest})",
                fix="use agents trained on the same corpus",
            )
    return first


def require_agents(config: object, options: Sequence[str]) -> Vocabulary:
    """The vocabulary of the checkpoints that some settings name; those after the first may be empty.

    Raises:
        CheckpointError: one of them is not there, or they speak different vocabularies.
    """
    named = {f"--{name}": str(getattr(config, name)) for name in options}
    named = {option: spec for option, spec in named.items() if spec or option == f"--{options[0]}"}
    for option, spec in named.items():
        require_checkpoint(spec, option)
    return shared_vocabulary(named)


def make_agent(spec: str, vocabulary: Vocabulary, temperature: float = 0.5, device: str = "cpu") -> Agent:
    """The agent that a name stands for.

    Args:
        spec: a checkpoint or run folder, a registered name, or `path/file.py:Name` for a factory that takes a vocabulary.
        vocabulary: of the game.
        temperature: of a model's word distribution.
        device: that a model computes on.

    Raises:
        ConfigError: nothing is called that.
        CheckpointError: the checkpoint is damaged or of another kind, or what is called that holds none.
    """
    folder = checkpoint_folder(spec)
    if folder is not None:
        from policies.negotiator.speaker import load_agent

        return load_agent(folder, name=spec, temperature=temperature, device=device)
    if spec in agents or ".py:" in spec:
        factory: Any = agents.get(spec)
        return factory(vocabulary)
    if found := _instead(spec):
        got, fix = found
        raise CheckpointError("there is no checkpoint to make an agent of", where=spec, got=got, fix=fix)
    raise ConfigError(
        f"no agent is called {spec!r}{nearest(spec, agents)}",
        fix=f"name a run or checkpoint folder, one of {', '.join(agents)}, or path/file.py:Name",
    )
