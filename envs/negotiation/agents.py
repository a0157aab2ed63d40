"""Agents by name: scripted bargainers, a person, a file of a user's own, a trained model's checkpoint, or a chat model.

An entry names where an agent is made and imports nothing until it is: what computes is in rooms that this one does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isclass
from typing import Any

from parley.envs.core.errors import ConfigError
from parley.envs.core.own_code import takes_messages
from parley.envs.core.registry import Registry, nearest
from parley.envs.core.storage.copies import fetched_model
from parley.envs.core.storage.uris import CHAT_MODELS
from parley.envs.negotiation.game import Agent
from parley.envs.negotiation.own_agent import OwnAgent, called
from parley.envs.negotiation.vocabulary import Vocabulary

HUMAN = "human"
BUILT_IN = ("scripted", "scripted-tough", HUMAN)
"""Agents that compute nothing."""

agents = Registry("agent", "parley.agents")
agents.register("scripted", "fair-minded scripted bargainer", "parley.envs.negotiation.scripted.bargainers:scripted")
agents.register(
    "scripted-tough", "scripted bargainer that holds out", "parley.envs.negotiation.scripted.bargainers:scripted_tough"
)
agents.register(HUMAN, "you, at the terminal", "parley.engine.negotiation.verbs.human_player:Person")

_trained = Registry("trained agent", "parley.trained-agents")
_trained.register("checkpoint", "networks that speak", "parley.policies.negotiator.speaker:load_agent")
_trained.register("chat", "chat models that negotiate by text", "parley.policies.chat.seat:load_negotiator")


def make_agent(
    spec: str, vocabulary: Vocabulary | None = None, temperature: float = 0.5, device: str = "cpu", **chat: Any
) -> Agent:
    """The agent that a name stands for.

    Args:
        spec: a checkpoint or run folder, or a URI of one; a registered name; `path/file.py:Name` (`own_agent.py`); or the
            address of a chat model.
        vocabulary: in whose ids an agent reads and speaks that has none of its own; the scripted bargainers' when not given.
        temperature: of a model's word distribution.
        device: that a model computes on.
        chat: of a chat model, what else `load_negotiator` is given; other agents pass it over.

    Raises:
        ConfigError: nothing is called that, or the file of a user's own makes no agent.
        CheckpointError: the checkpoint is damaged or of another kind.
    """
    if ".py:" not in spec and spec not in agents and not is_chat_model(spec):
        if not fetched_model(spec).is_dir():
            raise ConfigError(
                f"no agent is called {spec!r}{nearest(spec, agents)}",
                fix=f"name a run or checkpoint folder, one of {', '.join(agents)}, or path/file.py:Name",
            )
        load: Callable[..., Agent] = _trained.get("checkpoint")
        return load(spec, name=spec, temperature=temperature, device=device)
    words = _words(vocabulary)
    if is_chat_model(spec):
        seat: Callable[..., Agent] = _trained.get("chat")
        return seat(spec, words, temperature, device, **chat)
    if spec not in BUILT_IN:
        return OwnAgent(spec, agents.get(spec), words)
    make: Callable[[Vocabulary], Agent] = agents.get(spec)
    return make(words)


def as_agent(part: object, vocabulary: Vocabulary | None = None) -> Agent:
    """The agent that Python code hands over: an object, a class or function that makes one, which is called, or a name.

    Args:
        part: with `name`, `vocabulary` and `join`; one with `join` alone is played as a file of a user's own is.
        vocabulary: as in `make_agent`; also given to a class or function that takes one.

    Raises:
        ConfigError: it has no `join`, or nothing is called that.
        CheckpointError: as `make_agent`.
    """
    if isinstance(part, str):
        return make_agent(part, vocabulary)
    words = _words(vocabulary)
    made: Any = called(part, words) if isclass(part) or (callable(part) and not hasattr(part, "join")) else part
    if hasattr(made, "join") and hasattr(made, "name") and hasattr(made, "vocabulary"):
        agent: Agent = made
        return agent
    return OwnAgent(getattr(part, "__name__", type(part).__name__), lambda: made, words)


def _words(vocabulary: Vocabulary | None) -> Vocabulary:
    if vocabulary is not None:
        return vocabulary
    # Imported here because the bargainers' wording tables are not needed by those who bring their own words.
    from parley.envs.negotiation.scripted.wording import bargainer_vocabulary

    return bargainer_vocabulary()


def is_chat_model(spec: str) -> bool:
    """Whether a name stands for a chat model: by the way it begins, or as a user's own.

    That is a class that answers and cannot join, or a function of `messages`.

    Raises:
        ConfigError: a file of a user's own cannot be imported.
    """
    if ".py:" not in spec or spec.startswith(CHAT_MODELS):
        return spec.startswith(CHAT_MODELS)
    named = agents.get(spec)
    answers = isclass(named) and not hasattr(named, "join") and (hasattr(named, "answer") or hasattr(named, "reply"))
    return answers or takes_messages(named)


def require_same_game(agent: Agent, words: Vocabulary) -> None:
    """Checks that an agent plays the game that some words are of; raises a `ConfigError` where it does not."""
    if agent.vocabulary.game != words.game:
        got, fix = f"{agent.vocabulary.game!r}, not {words.game!r}", "name one that was trained on a corpus of that game"
        raise ConfigError("the partner plays another game", where=agent.name, got=got, fix=fix)
