"""Bots that look for common friends, by name: scripted ones, those that only select, trained models and chat models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from parley.engine.core.verbs.checkpoints import require_checkpoint
from parley.engine.core.verbs.weights import checkpoint_folder
from parley.envs.core.errors import ConfigError
from parley.envs.core.own_code import made_by, own_code, own_start, takes_messages
from parley.envs.core.play import agent_errors
from parley.envs.core.registry import Registry
from parley.envs.mutual_friends.compiled import FriendsCorpus
from parley.envs.mutual_friends.events import ChatEvent
from parley.envs.mutual_friends.game import Act, FriendsView
from parley.envs.mutual_friends.play import FriendsAgent, FriendsSession
from parley.envs.mutual_friends.scripted.bots import FriendsBot
from parley.policies.chat.addresses import is_chat_address
from parley.policies.chat.answers import kept_answers
from parley.policies.chat.friend import ChatFriend
from parley.policies.chat.own import OwnChatModel
from parley.policies.chat.seat import ChatSeat, chat_model, require_address
from parley.policies.chat.settings import DEFAULT, ChatAsking
from parley.policies.dynonet.settings import FriendsDecoding

SCRIPTED = "scripted"
MAKER = "parley train dynonet"
"""The command that makes a checkpoint of such a bot."""

friends_agents = Registry("bot that looks for friends", "parley.friends_agents")
friends_agents.register(SCRIPTED, "asks and tells by templates, selects when sure", f"{__name__}:scripted_bot")
_SELECTORS = "parley.engine.mutual_friends.channels.selectors"
friends_agents.register("selector", "selects at random, else what the other selects", f"{_SELECTORS}:selector")
friends_agents.register("blind-selector", "selects at random, whatever the other does", f"{_SELECTORS}:blind_selector")


def make_friends_agent(
    spec: str,
    corpus: FriendsCorpus,
    decoding: FriendsDecoding | None = None,
    device: str = "cpu",
    seat: ChatSeat | None = None,
    answers: Path | None = None,
) -> FriendsAgent:
    """The bot that a name stands for.

    Args:
        spec: a run or checkpoint folder, a registered name, the address of a chat model, or `path/file.py:Name` of a class or
            function that is called with the corpus, or with nothing, and gives a `FriendsAgent` or a chat model.
        corpus: whose names friends have.
        decoding: how a model chooses words; as released when not given.
        device: that a model computes on.
        seat: how a chat model is loaded or asked; as by default when not given.
        answers: folder in which a chat model's answers are kept; None keeps none.

    Raises:
        ConfigError: nothing is called that, or the file of a user's own makes no bot.
        CheckpointError: the checkpoint is damaged or of another kind, or what is called that holds none.
    """
    temperature, seat = (decoding or FriendsDecoding()).temperature, seat or ChatSeat()
    if is_chat_address(spec):
        require_address(spec)
        return ChatFriend(spec, partial(chat_model, spec, seat.on(device), answers=answers), temperature, seat.max_tokens)
    if ".py:" in spec:
        own = OwnFriendsAgent(spec, corpus, seat)
        if own.chat_model is None:
            return own
        return ChatFriend(spec, partial(kept_answers, own.chat_model, answers), temperature, seat.max_tokens)
    if spec in friends_agents:
        agent: FriendsAgent = made_by(friends_agents.get(spec), corpus)
        return agent
    folder = require_checkpoint(spec, "--model", MAKER)
    from parley.policies.dynonet.agent import load_friends_agent

    return load_friends_agent(folder, corpus.linker, device=device, decoding=decoding)


def corpus_of(specs: Sequence[str]) -> str:
    """The corpus that the first model among some bots was fitted to; empty where there is no model."""
    for spec in specs:
        is_run = not (".py:" in spec or spec in friends_agents or is_chat_address(spec))
        folder = checkpoint_folder(spec) if is_run else None
        if folder is not None:
            from parley.policies.dynonet import checkpoints

            return checkpoints.corpus_of(folder)
    return ""


def scripted_bot(corpus: FriendsCorpus) -> FriendsBot:
    """The bot that made the scripted corpora."""
    return FriendsBot(corpus.linker)


class OwnFriendsAgent:
    """What a user's class or function made, as a `FriendsAgent` whose mistakes are told as the user's.

    Args:
        spec: `path/file.py:Name`; also what reports call it.
        corpus: whose names friends have.
        settings: how it is asked, where it is a chat model.

    Attributes:
        chat_model: what was made, where it is a chat model, which does not join by itself.

    Raises:
        ConfigError: the user's code raised, or made something that cannot play.
    """

    def __init__(self, spec: str, corpus: FriendsCorpus, settings: ChatAsking = DEFAULT) -> None:
        self.name = spec
        maker = friends_agents.get(spec)
        if not callable(maker):
            raise ConfigError("this makes no bot", where=spec, got=repr(maker), fix="name a class or a function")
        with own_start(spec):
            self._agent = maker if takes_messages(maker) else made_by(maker, corpus)
        joins, *answers = (callable(getattr(self._agent, name, None)) for name in ("join", "answer", "reply"))
        is_chat_model = takes_messages(maker) or (any(answers) and not joins)
        self.chat_model: OwnChatModel | None = None
        if is_chat_model:
            parts_thinking = settings.thinking == "part"
            self.chat_model = OwnChatModel(spec, self._agent, settings.timeout_s, parts_thinking=parts_thinking)
        else:
            self._require(self._agent, ("join",))

    def join(self, view: FriendsView) -> FriendsSession:
        """Takes a side."""
        with own_code(self.name):
            session = self._agent.join(view)
        self._require(session, ("enter", "hear", "act"))
        return _OwnFriendsSession(session, self.name)

    def _require(self, part: object, methods: Sequence[str]) -> None:
        missing = [name for name in methods if not callable(getattr(part, name, None))]
        if missing:
            what, fix = (
                f"it has no method {' or '.join(missing)}",
                "envs/mutual_friends/play.py says what a bot and its sessions have",
            )
            raise ConfigError(what, where=self.name, got=type(part).__name__, fix=fix)


class _OwnFriendsSession:
    """A user's session."""

    def __init__(self, session: FriendsSession, spec: str) -> None:
        self._session, self._spec = session, spec

    def enter(self, rows: list[int]) -> None:
        with agent_errors(), own_code(self._spec):
            self._session.enter(rows)

    def hear(self, rows: list[int], events: list[ChatEvent]) -> None:
        with agent_errors(), own_code(self._spec):
            self._session.hear(rows, events)

    def act(self, rows: list[int]) -> Sequence[Act]:
        with agent_errors(), own_code(self._spec):
            return self._session.act(rows)
