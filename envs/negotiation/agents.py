"""Agents by name: scripted bargainers, a person, a user's own file, a trained model's checkpoint, or a chat model.

The registry imports an agent's module on first use, because this package does not depend on the packages with models.

A user's own agent, `path/file.py:Name`, is a class or a function. Calling it returns an object with `join(view)`, which returns
an object with `speak(rows)` and `choose(rows)` (`parley.envs.core.play.Session`). It may take a vocabulary as its only
argument, and `speak` may return texts instead of word ids. A call may take `time_limit_s` seconds, an attribute of the agent.
If it raises or takes longer, only that dialogue is lost. Its errors name the user's file.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import isclass
from pathlib import Path
from typing import Any

import numpy as np

from parley.envs.core.errors import ConfigError
from parley.envs.core.play import HUMAN, Session, Utterances, agent_errors
from parley.envs.core.registry import Registry, TimedCalls, is_chat_name, nearest, own_start
from parley.envs.core.storage.copies import fetched_model
from parley.envs.negotiation.domain import Vocabulary
from parley.envs.negotiation.game import Agent, SideView

EXAMPLE = "CONTRIBUTING.md shows an agent that runs"
TIME_LIMIT_S = 60.0
"""Default limit of one call of an agent, in seconds."""


class OwnAgent:
    """The `Agent` of a user's class or function.

    Args:
        spec: `path/file.py:Name`; also its name in reports.
        maker: the class or function of that name.
        vocabulary: the word ids it reads and may speak, unless it has an attribute `vocabulary`.

    Raises:
        ConfigError: the user's code raised, or its result cannot play.
    """

    def __init__(self, spec: str, maker: Any, vocabulary: Vocabulary) -> None:
        self.name = spec
        if not callable(maker):
            raise ConfigError("this makes no agent", where=spec, got=repr(maker), fix=f"name a class or a function; {EXAMPLE}")
        with own_start(spec):
            self._agent = called(maker, vocabulary)
        _require(self._agent, ("join",), "an agent", spec)
        vocabulary_of_agent = getattr(self._agent, "vocabulary", None)
        self.vocabulary: Vocabulary = vocabulary_of_agent if isinstance(vocabulary_of_agent, Vocabulary) else vocabulary
        limit = getattr(self._agent, "time_limit_s", TIME_LIMIT_S)
        if not isinstance(limit, int | float) or not limit > 0:
            raise ConfigError("time_limit_s is a number of seconds above 0", where=spec, got=repr(limit), fix="such as 60")
        self._calls = TimedCalls(spec, float(limit), "mend it, or give the agent an attribute time_limit_s")

    def join(self, view: SideView) -> Session:
        """Join one side of a batch of dialogues.

        Raises:
            AgentError: the user's code raised or took too long; so do `speak` and `choose` of the session.
        """
        with self.guarded_call("join"):
            session = self._agent.join(view)
            _require(session, ("speak", "choose"), "what join returns", self.name)
        return _OwnSession(session, self, view)

    @contextmanager
    def guarded_call(self, what: str) -> Iterator[None]:
        """Run code of the agent in a block, with its time limit and errors."""
        # A successful join does not show that the agent replies.
        with agent_errors(), self._calls.call(what, answers=what != "join"):
            yield


class _OwnSession:
    """A user's session, with checks of type and number of its moves."""

    def __init__(self, session: Session, agent: OwnAgent, view: SideView) -> None:
        self._session, self._agent, self._view = session, agent, view

    def speak(self, rows: np.ndarray) -> Utterances:
        with self._agent.guarded_call("speak"):
            utterances: Any = self._session.speak(rows.copy())
            are_texts = isinstance(utterances, list | tuple) and all(isinstance(text, str) for text in utterances)
            if are_texts and len(utterances) == len(rows):
                return Utterances.of([self._view.encode(text) for text in utterances])
            self._require_utterances(utterances, len(rows))
            return Utterances.of(
                [words[:length] for words, length in zip(utterances.tokens, utterances.lengths.tolist(), strict=True)]
            )

    def choose(self, rows: np.ndarray) -> np.ndarray:
        with self._agent.guarded_call("choose"):
            chosen = np.asarray(self._session.choose(rows.copy()))
            if chosen.shape != rows.shape or not np.issubdtype(chosen.dtype, np.integer):
                fix = "return an array of whole numbers, each an index into view.selections(row)"
                what = "choose gives a whole number for each row"
                raise ConfigError(what, where=self._agent.name, got=_summary(chosen), fix=fix)
        return chosen

    def _require_utterances(self, utterances: Any, count: int) -> None:
        if not isinstance(utterances, Utterances) or not _are_complete(utterances, count):
            got, fix = f"{_summary(utterances)} for {count} rows", "return a list of texts, or Utterances.of([ids of each row])"
            raise ConfigError("speak gives utterances, one for each row", where=self._agent.name, got=got, fix=fix)
        spoken = utterances.tokens[np.arange(utterances.tokens.shape[1]) < utterances.lengths[:, None]]
        size = len(self._view.vocabulary)
        if not (np.issubdtype(spoken.dtype, np.integer) and bool(((spoken >= 0) & (spoken < size)).all())):
            fix = f"give ids from 0 to {size - 1}, or texts"
            raise ConfigError("speak gives ids of its vocabulary", where=self._agent.name, got=_summary(spoken), fix=fix)


def _are_complete(utterances: Utterances, count: int) -> bool:
    """Return True if there are tokens (count, L), and lengths (count,) from 0 to L."""
    tokens, lengths = utterances.tokens, utterances.lengths
    if not (isinstance(tokens, np.ndarray) and isinstance(lengths, np.ndarray) and np.issubdtype(lengths.dtype, np.integer)):
        return False
    if tokens.ndim != 2 or len(tokens) != count or lengths.shape != (count,):
        return False
    return bool(((lengths >= 0) & (lengths <= tokens.shape[1])).all())


def called(maker: Callable[..., Any], vocabulary: Vocabulary) -> Any:
    """Return the result of a class or function; it gets the vocabulary if it takes one or has a required parameter."""
    parameters = inspect.signature(maker).parameters.values()
    given = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    takes = any(
        parameter.kind in given and (parameter.name == "vocabulary" or parameter.default is parameter.empty)
        for parameter in parameters
    )
    return maker(vocabulary) if takes else maker()


def _require(part: object, methods: tuple[str, ...], what: str, spec: str) -> None:
    missing = [name for name in methods if not callable(getattr(part, name, None))]
    if missing:
        fix = f"give it {' and '.join(missing)}; {EXAMPLE}"
        raise ConfigError(f"{what} has no method {' or '.join(missing)}", where=spec, got=_summary(part), fix=fix)


def _summary(part: object) -> str:
    text = repr(part)
    return f"{type(part).__name__} {text if len(text) <= 80 else text[:80] + '...'}"


BUILT_IN = ("scripted", "scripted-tough", HUMAN)
"""Agents without a model."""

agents = Registry("agent", "parley.agents")
agents.register("scripted", "fair-minded scripted bargainer", "parley.envs.negotiation.scripted.bargainers:scripted")
agents.register(
    "scripted-tough", "scripted bargainer that holds out", "parley.envs.negotiation.scripted.bargainers:scripted_tough"
)
agents.register(HUMAN, "you, at the terminal", "parley.engine.negotiation.verbs.agents:Person")

_trained = Registry("trained agent", "parley.trained-agents")
_trained.register("checkpoint", "networks that speak", "parley.policies.negotiator.speaker:load_agent")
_trained.register("chat", "chat models that negotiate by text", "parley.policies.chat.seat:load_negotiator")


def make_agent(
    spec: str,
    vocabulary: Vocabulary | None = None,
    temperature: float = 0.5,
    device: str = "cpu",
    *,
    seat: Any = None,
    tactic: str = "",
    answers: Path | None = None,
) -> Agent:
    """Return the agent of a name.

    Args:
        spec: a checkpoint or run folder, or its URI; a registered name; `path/file.py:Name`; or the address of a chat model.
        vocabulary: the vocabulary of agents without their own; None for that of the scripted bargainers.
        temperature: temperature of a model's word distribution.
        device: device of a model.
        seat: settings of a chat model (`ChatSeat`); other agents ignore it, and what follows.
        tactic: instructions for a chat model.
        answers: folder in which answers of a chat model are kept.

    Raises:
        ConfigError: the name is unknown, or the user's file makes no agent.
        CheckpointError: the checkpoint is damaged or of another kind.
    """
    if require_agent(spec):
        load: Callable[..., Agent] = _trained.get("checkpoint")
        return load(spec, name=spec, temperature=temperature, device=device)
    words = _words(vocabulary)
    if is_chat_model(spec):
        load_chat: Callable[..., Agent] = _trained.get("chat")
        return load_chat(spec, words, temperature, device, tactic=tactic, answers=answers, **({"seat": seat} if seat else {}))
    if spec not in BUILT_IN:
        return OwnAgent(spec, agents.get(spec), words)
    make: Callable[[Vocabulary], Agent] = agents.get(spec)
    return make(words)


def require_agent(spec: str) -> bool:
    """Return whether a name is that of a folder; arguments and errors as of `make_agent`, which looks into it."""
    if ".py:" in spec or spec in agents or is_chat_model(spec):
        return False
    if not fetched_model(spec).is_dir():
        raise ConfigError(
            f"no agent is called {spec!r}{nearest(spec, agents)}",
            fix=f"name a run or checkpoint folder, one of {', '.join(agents)}, or path/file.py:Name",
        )
    return True


def as_agent(part: object, vocabulary: Vocabulary | None = None) -> Agent:
    """Return the agent of an object, a name, or a class or function that makes one.

    Args:
        part: an object with `name`, `vocabulary` and `join`; one with `join` alone is played like a user's own file.
        vocabulary: as in `make_agent`; also an argument for a class or function that takes one.

    Raises:
        ConfigError: the object has no `join`, or the name is unknown.
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
    # Imported here, because callers with their own words do not need the bargainers' wording tables.
    from parley.envs.negotiation.scripted.wording import bargainer_vocabulary

    return bargainer_vocabulary()


is_chat_model = partial(is_chat_name, registry=agents, own="join")
"""Returns whether a name is a chat model."""


def require_same_game(agent: Agent, words: Vocabulary) -> None:
    """Raise a `ConfigError` unless an agent plays the game of a vocabulary."""
    if agent.vocabulary.game != words.game:
        got, fix = f"{agent.vocabulary.game!r}, not {words.game!r}", "name one that was trained on a corpus of that game"
        raise ConfigError("the partner plays another game", where=agent.name, got=got, fix=fix)
