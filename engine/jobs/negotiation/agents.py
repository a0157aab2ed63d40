"""Agents by name: scripted bargainers, a person, or a checkpoint folder of a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.jobs.checkpoints import _instead, require_checkpoint
from engine.jobs.weights import checkpoint_folder
from envs.core.errors import CheckpointError, ConfigError
from envs.core.registry import Registry, nearest
from envs.negotiation.game import Agent
from envs.negotiation.own_agent import OwnAgent
from envs.negotiation.vocabulary import Vocabulary
from policies.negotiator.settings import KIND
from policies.stored import read_words

HUMAN = "human"
BUILT_IN = ("scripted", "scripted-tough", HUMAN)
"""Agents that compute nothing."""
ANY_AGENT = "parley selfplay, parley play, and as --target of parley attack rl and attack transfer"
"""Where an agent of any kind can be named."""

agents = Registry("agent", "parley.agents")
agents.register("scripted", "fair-minded scripted bargainer", "envs.negotiation.scripted.bargainers:scripted")
agents.register("scripted-tough", "scripted bargainer that holds out", "envs.negotiation.scripted.bargainers:scripted_tough")
agents.register(HUMAN, "you, at the terminal", "engine.jobs.negotiation.person:Person")


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
        from envs.negotiation.scripted.wording import bargainer_vocabulary

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
        require_negotiator(spec, option)
    return shared_vocabulary(named)


def require_negotiator(spec: str, option: str) -> Path:
    """The checkpoint of a negotiator that Parley trained.

    Args:
        spec: a run or checkpoint folder.
        option: what named it.

    Raises:
        CheckpointError: there is none; an agent of another kind is told which verbs take it.
    """
    if ".py:" in spec or spec in agents:
        raise CheckpointError(
            f"{option} needs a checkpoint of a negotiator that Parley trained: here its weights are read, or learned from",
            where=spec,
            got="an agent of your own" if ".py:" in spec else "an agent without weights",
            fix=f"parley train negotiator makes one; any agent can play in {ANY_AGENT}",
        )
    return require_checkpoint(spec, option)


def make_agent(spec: str, vocabulary: Vocabulary, temperature: float = 0.5, device: str = "cpu") -> Agent:
    """The agent that a name stands for.

    Args:
        spec: a checkpoint or run folder, a registered name, or `path/file.py:Name` (`own_agent.py`).
        vocabulary: of the game.
        temperature: of a model's word distribution.
        device: that a model computes on.

    Raises:
        ConfigError: nothing is called that, or the file of a user's own makes no agent.
        CheckpointError: the checkpoint is damaged or of another kind, or what is called that holds none.
    """
    folder = checkpoint_folder(spec)
    if folder is not None:
        from policies.negotiator.speaker import load_agent

        return load_agent(folder, name=spec, temperature=temperature, device=device)
    if ".py:" in spec:
        return OwnAgent(spec, agents.get(spec), vocabulary)
    if spec in agents:
        factory: Any = agents.get(spec)
        return factory(vocabulary)
    if found := _instead(spec):
        got, fix = found
        raise CheckpointError("there is no checkpoint to make an agent of", where=spec, got=got, fix=fix)
    raise ConfigError(
        f"no agent is called {spec!r}{nearest(spec, agents)}",
        fix=f"name a run or checkpoint folder, one of {', '.join(agents)}, or path/file.py:Name",
    )
