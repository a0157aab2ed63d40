"""A worker plays shards of chats in lock-step: chats of one condition side by side, the next ones joining as some end.

A chat in which a bot fails is a row with the reason, which a resumed run plays again; the others are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.sharding import Shard
from parley.engine.core.runs.schemas import OK
from parley.engine.core.verbs.isolate_failures import rows_apart
from parley.engine.core.verbs.sharded import Sharded, spread
from parley.engine.mutual_friends.verbs.agents import make_friends_agent
from parley.engine.mutual_friends.verbs.channels import Channels, liars_of
from parley.engine.mutual_friends.verbs.config import CollaborationConfig, Condition
from parley.engine.mutual_friends.verbs.judge import load_heard_judge
from parley.engine.mutual_friends.verbs.rows import chat_row, lost_chat
from parley.envs.core.play import AgentError
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.mutual_friends.compiled import FriendsCorpus, load_friends
from parley.envs.mutual_friends.events import FriendsChat
from parley.envs.mutual_friends.game import FriendsRules
from parley.envs.mutual_friends.play import Channel, FriendsAgent, play_friends
from parley.envs.mutual_friends.scenario import FriendsScenario, random_friends
from parley.policies.chat.model import ChatTooLongError, NoReplyError

_SIDE_BY_SIDE, _CHATS_SIDE_BY_SIDE = (64, 256), (8, 32)
"""Chats of a shard at least and at most; the same where a chat model takes part, whose chats take long."""
_SHARDS = 32
"""Shards of a run at least, where they are not too small."""


class AskedChat(NamedTuple):
    """A chat to be played."""

    condition: Condition
    number: int
    """Of its scenario, from 0."""


def scenario_key(number: int) -> str:
    """What a scenario is called in every condition."""
    return f"{number:06d}"


def asked_chats(config: CollaborationConfig) -> dict[str, AskedChat]:
    """All chats of a run by their keys, which sort by condition and scenario."""
    return {
        f"{place:02d}-{condition.pair}-{condition.strategy}-{scenario_key(number)}": AskedChat(condition, number)
        for place, condition in enumerate(config.conditions)
        for number in range(config.scenarios)
    }


@dataclass(frozen=True)
class PlayedChats(Sharded[AskedChat]):
    """Chats between bots, made afresh in each worker from the names of bots and corpus.

    Args:
        config: what is asked for, its corpus named and its models by absolute names.
        answers: folder in which answers of chat models are kept.
        tried: what they answered before there was a run, as its file holds it.
    """

    unit = "chats"
    event = "chatted"

    config: CollaborationConfig
    answers: str = ""
    tried: bytes = b""

    @property
    def computes(self) -> bool:
        """Not so of scripted bots alone."""
        return not is_scripted(self.config)

    def seed(self, key: str) -> int:
        """The same in every condition: by the scenario, which the key ends with."""
        return chat_seed(self.config, int(key.rpartition("-")[2]))

    def worker(self) -> ChatWorker:
        return ChatWorker(self.config, Path(self.answers) if self.answers else None)

    def shard_size(self, num_items: int, num_workers: int) -> int:
        """The same for any number of workers that find two shards each."""
        least, most = _CHATS_SIDE_BY_SIDE if self.config.chats else _SIDE_BY_SIDE
        alike = max(least, min(most, num_items // _SHARDS))
        return alike if num_workers <= max(1, num_items // (2 * alike)) else spread(num_items, num_workers, alike)

    def digest(self, rows: Rows) -> Counts:
        return Counter(chats=sum(row["status"] == OK for row in rows))


class ChatWorker:
    """Plays shards of chats and returns their rows.

    Args:
        config: as in `PlayedChats`.
        answers: as there; None keeps none.

    Raises:
        ConfigError: a bot or a strategy is not there.
        CheckpointError: a model is damaged or of another kind.
        DataError: the corpus cannot be read.
    """

    def __init__(self, config: CollaborationConfig, answers: Path | None = None) -> None:
        self.config = config
        self._lost: dict[str, FriendsChat] = {}
        self.corpus: FriendsCorpus = load_friends(config.corpus, config.data_root)
        heard = config.perturb, config.data_root, config.lies, config.device
        channels = Channels(self.corpus, *heard, config.chat, config.decoding.temperature, answers)
        self.knowledge = channels.knowledge
        self.agents: dict[str, FriendsAgent] = {
            spec: make_friends_agent(spec, self.corpus, config.decoding, config.device, config.chat, answers)
            for spec in dict.fromkeys(spec for pair in config.pairs.values() for spec in pair)
        }
        self.judge = load_heard_judge(config.judge, config.device, config.chat) if config.judge else None
        names = dict.fromkeys(condition.hearing for condition in config.conditions)
        called = config.channel_names
        self.channels: dict[str, Channel | None] = {name: channels.named(called.get(name, name)) for name in names}

    def run(self, shard: Shard[AskedChat]) -> list[dict[str, Any]]:
        """One row per chat, by `parley.engine.mutual_friends.verbs.rows.CHATS`."""
        rows = rows_apart(self._played, shard, PlayedChats(self.config).seed)
        for row, asked in zip(rows, shard.items, strict=True):
            if row["status"] != OK:
                row |= lost_chat(asked.condition, self._lost.pop(row["item_key"], None))
        return rows

    def check(self) -> None:
        """Play one chat under each condition; what costs no more than that chat is told by its row.

        Raises:
            AgentError: a bot fails in it, and would in others.
            ScenarioError: a bot breaks a rule of the game.
        """
        for group in _by_condition(list(asked_chats(replace(self.config, scenarios=1)).items())):
            try:
                self.play(group)
            except AgentError as error:
                if not isinstance(error, NoReplyError) and not isinstance(error.__cause__, ChatTooLongError):
                    raise
        self._lost.clear()

    def scenario(self, number: int) -> FriendsScenario:
        """One of the run's scenarios."""
        key = scenario_key(number)
        return random_friends(self.corpus.schema, stream(self.config.seed, "scenario", key), self.config.tables, key)

    def _played(self, shard: Shard[AskedChat]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for group in _by_condition(list(zip(shard.keys, shard.items, strict=True))):
            try:
                rows += self.play(group)
            except AgentError as error:
                error.rows = tuple(len(rows) + row for row in error.rows)
                raise
        return rows

    def play(self, items: Sequence[tuple[str, AskedChat]]) -> list[dict[str, Any]]:
        """The rows of chats of one condition, by key."""
        condition = items[0][1].condition
        config, channel = self.config, self.channels[condition.hearing]
        first, second = (self.agents[spec] for spec in config.pairs[condition.pair])
        seeds = [chat_seed(config, asked.number) for _, asked in items]

        def note_lost(number: int, chat: FriendsChat) -> None:
            self._lost[items[number][0]] = chat

        chats = play_friends(
            [(self.scenario(asked.number), seed) for (_, asked), seed in zip(items, seeds, strict=True)],
            (first, second),
            num_rows=config.side_by_side,
            rules=FriendsRules(max_events=config.max_events),
            channels=(channel, None if condition.one_sided else channel),
            remembers=config.remembers,
            on_lost=note_lost,
        )
        rows = [
            chat_row(key, seed, condition, (first.name, second.name), chat, self.knowledge)
            for (key, _), seed, chat in zip(items, seeds, chats, strict=True)
        ]
        if self.judge is not None:
            for row, nats in zip(rows, self.judge.nats(chats), strict=True):
                row["nll"] = nats
        return rows


def _by_condition(items: Sequence[tuple[str, AskedChat]]) -> list[list[tuple[str, AskedChat]]]:
    return [list(group) for _, group in groupby(items, key=lambda item: item[1].condition)]


def chat_seed(config: CollaborationConfig, number: int) -> int:
    """The seed of the chats on a scenario: the same in every condition, so that they differ by it alone."""
    return derive_seed(config.seed, "chat", scenario_key(number))


def is_scripted(config: CollaborationConfig) -> bool:
    """Whether nobody computes with torch: no bot, no liar, no judge."""
    from parley.engine.mutual_friends.verbs.agents import friends_agents

    if config.judge or liars_of(config.channel_names.values()):
        return False
    return all(spec in friends_agents for pair in config.pairs.values() for spec in pair)
