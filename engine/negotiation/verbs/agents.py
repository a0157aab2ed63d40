"""Agents that settings name: their words, and what those must be that learn or are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from parley.engine.core.verbs.checkpoints import _instead, absolute_name, require_checkpoint
from parley.engine.core.verbs.weights import checkpoint_folder
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.core.registry import nearest
from parley.envs.negotiation.agents import HUMAN, agents, is_chat_model
from parley.envs.negotiation.agents import make_agent as agent_of
from parley.envs.negotiation.domain import DEAL_OR_NO_DEAL, domain_of
from parley.envs.negotiation.game import Agent
from parley.envs.negotiation.vocabulary import Vocabulary
from parley.policies.chat.addresses import is_chat_address, is_local
from parley.policies.chat.fluency import require_chat_judge
from parley.policies.core.stored import read_words
from parley.policies.negotiator.settings import KIND

ANY_AGENT = "parley selfplay, play, attack rl, transfer and tactic, train adversary, evaluate exploitability and minmax"
"""Where an agent of any kind can be met."""


def split_names(names: str) -> list[str]:
    """The agents of a setting that names several, between commas."""
    return [name.strip() for name in names.split(",") if name.strip()]


def vocabulary_of(spec: str) -> Vocabulary | None:
    """The vocabulary that an agent brings along: a checkpoint's own; None for agents that take any.

    Raises:
        CheckpointError: the checkpoint lacks a part, is damaged or of another kind.
    """
    folder = checkpoint_folder(spec)
    return None if folder is None else read_words(folder, KIND, Vocabulary)


def words_of(specs: Iterable[str], game: str = DEAL_OR_NO_DEAL) -> Vocabulary:
    """The words of the first of some agents that brings any along; those of a game's scripted agents where none does.

    Raises:
        CheckpointError: a checkpoint lacks a part, is damaged or of another kind.
    """
    found = [vocabulary for spec in specs if spec and (vocabulary := vocabulary_of(spec)) is not None]
    return found[0] if found else domain_of(game).vocabulary()


def require_one_game(specs: Mapping[str, str]) -> None:
    """Checks that agents play one game; those that play any do.

    Args:
        specs: agents by the option that named them; empty for none.

    Raises:
        CheckpointError: two play different games, or a checkpoint lacks a part, is damaged or of another kind.
    """
    found = {option: vocabulary for option, spec in specs.items() if spec and (vocabulary := vocabulary_of(spec)) is not None}
    for option, vocabulary in found.items():
        first_option, first = next(iter(found.items()))
        if vocabulary.game != first.game:
            raise CheckpointError(
                f"{first_option} and {option} play different games",
                where=f"{specs[first_option]} and {specs[option]}",
                got=f"{first.game!r} and {vocabulary.game!r}",
                fix=f"name agents that were trained on corpora of one game, such as of {first.game!r}",
            )


def shared_vocabulary(specs: Mapping[str, str]) -> Vocabulary:
    """The one vocabulary of agents whose weights are learned from each other, or read by each other.

    Args:
        specs: agents by the option that named them.

    Raises:
        CheckpointError: two checkpoints have different vocabularies, or one lacks a part, is damaged or of another kind.
    """
    require_one_game(specs)
    found = {option: vocabulary for option, spec in specs.items() if (vocabulary := vocabulary_of(spec)) is not None}
    for option, vocabulary in found.items():
        first_option, first = next(iter(found.items()))
        if vocabulary.digest != first.digest:
            raise CheckpointError(
                f"{first_option} and {option} speak different vocabularies",
                where=f"{specs[first_option]} and {specs[option]}",
                got=f"{len(first)} words ({first.digest}) and {len(vocabulary)} words ({vocabulary.digest})",
                fix="use agents trained on the same corpus",
            )
    return words_of(specs.values())


def require_learner(start: str, option: str, judge: str) -> Vocabulary:
    """The vocabulary of the checkpoint that a learner starts from.

    Args:
        start: that checkpoint.
        option: what named it.
        judge: the checkpoint that judges fluency; empty for none.

    Raises:
        CheckpointError: one of them is not there, or is damaged.
    """
    if judge:
        require_judge(judge)
        words_of([judge])
    require_negotiator(start, option)
    return words_of([start])


def require_negotiator(spec: str, option: str) -> Path:
    """The checkpoint of a negotiator that Parley trained.

    Args:
        spec: a run or checkpoint folder.
        option: what named it.

    Raises:
        CheckpointError: there is none; an agent of another kind is told which verbs take it.
    """
    if is_weightless(spec):
        own = "an agent of your own"
        searched = "parley attack trigger searches words that break such a chat model; " if is_local(spec) else ""
        raise CheckpointError(
            f"{option} needs a checkpoint of a negotiator that Parley trained: here its weights are read, or learned from",
            where=spec,
            got="a chat model" if is_chat_address(spec) else own if ".py:" in spec else "an agent without weights",
            fix=f"{searched}parley train negotiator makes one; any agent can be met in {ANY_AGENT}",
        )
    return require_checkpoint(spec, option)


def require_judge(spec: str) -> Path | str:
    """The checkpoint of who judges fluency, or the address of a chat model that does.

    Raises:
        CheckpointError: there is neither.
        ConfigError: it is a server or a model of a user's own that tells of no text how likely it is.
    """
    if not is_chat_model(spec):
        return require_negotiator(spec, "--judge")
    require_chat_judge(spec, ", or a negotiator that parley train negotiator makes")
    return spec


def is_weightless(spec: str) -> bool:
    """Whether a name stands for an agent that can be met and no more: one without weights, or a chat model."""
    return ".py:" in spec or spec in agents or is_chat_address(spec)


def weightless_name(spec: str) -> str:
    """The name of such an agent for env runners, which may stand in other folders."""
    return absolute_name(spec) if ".py:" in spec or is_chat_address(spec) else spec


def require_partner(spec: str, option: str) -> None:
    """Checks that a name stands for an agent whom a learner can meet.

    Args:
        spec: any agent.
        option: what named it.

    Raises:
        CheckpointError: there is none, or it is damaged.
        ConfigError: it is a person, or the file of a user's own makes no agent.
    """
    if spec == HUMAN:
        what, fix = "a person cannot be met in thousands of dialogues", "name a run, scripted, hf:FOLDER, or path/file.py:Name"
        raise ConfigError(what, where=option, got=spec, fix=fix)
    if is_weightless(spec):
        make_agent(spec, words_of([]))
    elif checkpoint_folder(spec) is None and (hint := nearest(spec, agents)):
        fix = f"name a run, one of {', '.join(agents)}, or path/file.py:Name"
        raise ConfigError(f"no agent is called {spec!r}{hint}", where=option, fix=fix)
    else:
        vocabulary_of(str(require_checkpoint(spec, option)))


def start_of(named: str, target: str, option: str) -> str:
    """The checkpoint that a learner starts from: the one that is named, or its target's own.

    Args:
        named: by the option; empty for the target's.
        target: whom it learns to play with.
        option: that names another.

    Raises:
        CheckpointError: none is named, and the target has no weights to start from.
    """
    if not named and is_weightless(target):
        raise CheckpointError(
            "the learner cannot start from its target, which has no weights",
            where=target,
            fix=f"name the checkpoint that it starts from with {option}; parley train negotiator makes one",
        )
    return named or target


def make_agent(
    spec: str, vocabulary: Vocabulary | None = None, temperature: float = 0.5, device: str = "cpu", **chat: Any
) -> Agent:
    """The agent that a name stands for, as `parley.envs.negotiation.agents.make_agent`, which is told what is there instead.

    Raises:
        ConfigError: nothing is called that, or the file of a user's own makes no agent.
        CheckpointError: the checkpoint is damaged or of another kind, or what is called that holds none.
    """
    if not is_weightless(spec) and checkpoint_folder(spec) is None and (found := _instead(spec)):
        got, fix = found
        raise CheckpointError("there is no checkpoint to make an agent of", where=spec, got=got, fix=fix)
    return agent_of(spec, vocabulary, temperature, device, **chat)
