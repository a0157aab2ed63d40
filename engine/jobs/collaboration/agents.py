"""Bots that look for common friends, by name: scripted ones, those that only select, or a trained model's checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

from engine.jobs.checkpoints import require_checkpoint
from engine.jobs.weights import checkpoint_folder
from envs.core.errors import ConfigError
from envs.core.own_code import made_by, own_code
from envs.core.registry import Registry
from envs.friends.compiled import FriendsCorpus
from envs.friends.events import ChatEvent
from envs.friends.game import Act, FriendsView
from envs.friends.play import FriendsAgent, FriendsSession
from envs.friends.scripted.bots import FriendsBot
from policies.dynonet.settings import FriendsDecoding

SCRIPTED = "scripted"
MAKER = "parley train dynonet"
"""The command that makes a checkpoint of such a bot."""

friends_agents = Registry("bot that looks for friends", "parley.friends_agents")
friends_agents.register(SCRIPTED, "asks and tells by templates, selects when sure", f"{__name__}:scripted_bot")
_SELECTORS = "engine.collaboration.selectors"
friends_agents.register("selector", "selects at random, else what the other selects", f"{_SELECTORS}:selector")
friends_agents.register("blind-selector", "selects at random, whatever the other does", f"{_SELECTORS}:blind_selector")


def make_friends_agent(
    spec: str, corpus: FriendsCorpus, decoding: FriendsDecoding | None = None, device: str = "cpu"
) -> FriendsAgent:
    """The bot that a name stands for.

    Args:
        spec: a run or checkpoint folder, a registered name, or `path/file.py:Name` of a class or function that is called with
            the corpus, or with nothing, and gives a `FriendsAgent`.
        corpus: whose names friends have.
        decoding: how a model chooses words; as released when not given.
        device: that a model computes on.

    Raises:
        ConfigError: nothing is called that, or the file of a user's own makes no bot.
        CheckpointError: the checkpoint is damaged or of another kind, or what is called that holds none.
    """
    if ".py:" in spec:
        return OwnFriendsAgent(spec, corpus)
    if spec in friends_agents:
        agent: FriendsAgent = made_by(friends_agents.get(spec), corpus)
        return agent
    folder = require_checkpoint(spec, "--model", MAKER)
    from policies.dynonet.agent import load_friends_agent

    return load_friends_agent(folder, corpus.linker, device=device, decoding=decoding)


def corpus_of(specs: Sequence[str]) -> str:
    """The corpus that the first model among some bots was fitted to; empty where there is no model."""
    for spec in specs:
        folder = None if ".py:" in spec or spec in friends_agents else checkpoint_folder(spec)
        if folder is not None:
            from policies.dynonet import checkpoints

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

    Raises:
        ConfigError: the user's code raised, or made something that cannot play.
    """

    def __init__(self, spec: str, corpus: FriendsCorpus) -> None:
        self.name = spec
        maker = friends_agents.get(spec)
        if not callable(maker):
            raise ConfigError("this makes no bot", where=spec, got=repr(maker), fix="name a class or a function")
        with own_code(spec):
            self._agent = made_by(maker, corpus)
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
            what, fix = f"it has no method {' or '.join(missing)}", "envs/friends/play.py says what a bot and its sessions have"
            raise ConfigError(what, where=self.name, got=type(part).__name__, fix=fix)


class _OwnFriendsSession:
    """A user's session."""

    def __init__(self, session: FriendsSession, spec: str) -> None:
        self._session, self._spec = session, spec

    def enter(self, rows: list[int]) -> None:
        with own_code(self._spec):
            self._session.enter(rows)

    def hear(self, rows: list[int], events: list[ChatEvent]) -> None:
        with own_code(self._spec):
            self._session.hear(rows, events)

    def act(self, rows: list[int]) -> Sequence[Act]:
        with own_code(self._spec):
            return self._session.act(rows)
