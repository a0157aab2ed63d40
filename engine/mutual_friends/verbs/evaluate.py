"""Bots whose utterances change on their way: `parley evaluate collaboration` (Niu & Bansal 2018, table 8).

Two bots look for their common friend on many scenarios and under several conditions: on normal inputs, and with changed
utterances; control bots put the figures into proportion. A chat's draws come from its scenario alone, so all conditions have
the same scenarios.

A row is one chat under one condition. A worker plays the chats of a shard, all of one condition, in lock-step; new chats join
as others end. A chat in which a bot fails becomes a row with the reason; a resumed run plays it again and keeps the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa

from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.worker import Shard
from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.parts import OK, ok_row, row_schema
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.rows import selected
from parley.engine.core.stats.statistics import Row, finished
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.checkpoints import absolute_name
from parley.engine.core.verbs.job import TABLE_FILE, Job, Reporter, Result, Summary, command_line
from parley.engine.core.verbs.sharded import RESUME_SAFE, Sharded, rows_apart, run_items, spread
from parley.engine.core.verbs.transcripts import ASSISTANT, SYSTEM, USER, Transcript, TranscriptRule
from parley.engine.mutual_friends.channels import ChatKnowledge
from parley.engine.mutual_friends.metrics.chats import (
    CHAT_ITEMS,
    LIE_RATE,
    MODEL,
    RECORDED,
    TRAINED,
    by_condition,
    chat_metrics,
    condition_names,
    describe,
    of,
)
from parley.engine.mutual_friends.metrics.table import (
    allowed_table,
    lies_table,
    lying_table,
    recorded_table,
    slips_table,
    table_8,
    trained_table,
)
from parley.engine.mutual_friends.verbs.agents import MAKER, corpus_of, friends_agents, make_friends_agent
from parley.engine.mutual_friends.verbs.config import (
    BLIND,
    LIAR,
    MIXED,
    RANDOM_LIES,
    SCRIPTED,
    SELECTORS,
    Channels,
    Condition,
    MutualFriendsConfig,
    liars_of,
    located_strategy,
    tells_lies,
)
from parley.engine.mutual_friends.verbs.dynonet import (
    load_heard_judge,
    readings,
    recorded_metrics,
    recorded_models,
    require_heard_judge,
)
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.core.play import AgentError
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.corpora.arrow import data_root
from parley.envs.mutual_friends.compiled import EMBEDDED_FRIENDS, FriendsCorpus, load_friends
from parley.envs.mutual_friends.game import (
    Channel,
    ChatEvent,
    FriendsAgent,
    FriendsChat,
    FriendsRules,
    Lying,
    Mention,
    play_friends,
)
from parley.envs.mutual_friends.scenario import Entity, FriendsScenario, check_schema, random_friends
from parley.envs.mutual_friends.scripted.bots import is_question
from parley.policies.chat.addresses import is_chat_address, short_address
from parley.policies.chat.model import ANSWERS, ANSWERS_FOLDER, NO_REPLIES, ChatTooLongError, NoReplyError

_MENTION = {
    # Category of the entity; its value as said, null if none was said; its value as heard, null if the heard words name
    # none in its place.
    "type said heard": str,
    # Of one that is heard as another: whether the listener next names that one or selects an item that has it; null where
    # the listener does not act any more.
    "believed": bool,
    # Whether the listener next asks something, or names an entity of that category; null where it does not act any more.
    "again": bool,
}
_EVENT = {
    "side": pa.int8(),
    # Words joined by blanks; null in a selection.
    "said heard": str,
    # Index into the table of the side; null in an utterance.
    "selected": int,
    "mentions": [_MENTION],
}
_LYING = dict.fromkeys(Lying._fields, int)
_NO_REPLY = {kind.column: int for kind in NO_REPLIES}
CHATS = row_schema(
    {
        # The condition: the pair of players, and the strategy on their utterances; "normal" for none.
        "pair strategy": str,
        "agents": [str],
        # The scenario: its key, the same in every condition; columns and their categories; both tables; the index of the common
        # friend in each.
        "scenario": str,
        "attributes types": [str],
        "tables": [[[str]]],
        "shared": [int],
        "events": [_EVENT],
        # Whether both sides select the common friend in the end; how often each selects; whether the first selection of the
        # chat is the common friend, null where there is none.
        "agreed": bool,
        "num_selections": [int],
        "first_selection_right": bool,
        # By side, null if it does not count them: moves that were requested again because they could not be read, and moves
        # that could not be read then either.
        "repairs unread": [int],
        # Answers that were cut at the most tokens, and selections that named no friend, where scores chose one then.
        "cut by_scores": [int],
        # Answers that a chat model gave, and those of them that are no reply, by kind. A chat that was lost has them too, its
        # condition and `lying`, as far as it came.
        "answers": [int],
        "no_reply": [_NO_REPLY],
        # By side, null without a liar: `Lying`.
        "lying": [_LYING],
        # Of each side: words of its utterances as they are heard; their summed negative log likelihood in nats, null when it
        # was not scored.
        "num_words": [int],
        "nll": [float],
    }
)
"""One chat per row."""


def chat_transcript(row: Row) -> Transcript:
    """Return a chat as a conversation: the first side is the user, the second one the assistant; each reads what it hears."""
    tables = [
        "\n".join([f"Friends of the {side}:", *(", ".join(friend) for friend in table)])
        for side, table in zip((USER, ASSISTANT), row["tables"], strict=True)
    ]
    messages = [(SYSTEM, "\n\n".join([", ".join(row["attributes"]), *tables]))]
    for event in row["events"]:
        side = int(event["side"])
        text = event["heard"] if event["selected"] is None else f"selects {', '.join(row['tables'][side][event['selected']])}"
        messages.append((ASSISTANT if side else USER, str(text)))
    return Transcript(tuple(messages), scores={"agreed": row["agreed"], "condition": f"{row['pair']}, {row['strategy']}"})


def chat_row(
    key: str, seed: int, condition: tuple[str, str], agents: tuple[str, str], chat: FriendsChat, knowledge: ChatKnowledge
) -> dict[str, Any]:
    """Return a chat as a row of `CHATS`.

    Args:
        key: of the item.
        seed: of the chat.
        condition: pair and strategy.
        agents: names of both sides.
        chat: played to its end.
        knowledge: of names, to link words that the speaker does not mark.
    """
    scenario, pair_strategy = chat.scenario, dict(zip(("pair", "strategy"), condition, strict=True))
    entities = [
        [token.entity for token in knowledge.linked(scenario, event) if isinstance(token, Mention)]
        if event.selected is None
        else []
        for event in chat.events
    ]
    selections = [(event.side, event.selected) for event in chat.events if event.selected is not None]
    return (
        ok_row(key, seed)
        | pair_strategy
        | {
            "agents": list(agents),
            "scenario": chat.key,
            "attributes": [attribute.name for attribute in scenario.attributes],
            "types": [attribute.type for attribute in scenario.attributes],
            "tables": [[list(item) for item in table] for table in scenario.tables],
            "shared": list(scenario.shared),
            "events": [_event(chat, turn, entities) for turn in range(len(chat.events))],
            "agreed": chat.agreed,
            "num_selections": [chat.num_selections(side) for side in (0, 1)],
            "first_selection_right": selections[0][1] == scenario.shared[selections[0][0]] if selections else None,
            "repairs": [slips and slips.repairs for slips in chat.slips],
            "unread": [slips and slips.unread for slips in chat.slips],
            "cut": [slips and slips.cut for slips in chat.slips],
            "by_scores": [slips and slips.by_scores for slips in chat.slips],
            **_answers_of(chat),
            "num_words": [sum(len(event.words) for event in chat.heard if event.side == side) for side in (0, 1)],
            "nll": [None, None],
        }
    )


def _event(chat: FriendsChat, turn: int, entities: list[list[Entity]]) -> dict[str, Any]:
    event, heard = chat.events[turn], chat.heard[turn]
    columns: dict[str, Any] = {"side": event.side, "said": None, "heard": None, "selected": event.selected, "mentions": []}
    if event.selected is not None:
        return columns
    answer = next((at for at in range(turn + 1, len(chat.events)) if chat.events[at].side != event.side), None)
    reaction = None if answer is None else (chat.events[answer], entities[answer])
    columns["mentions"] = [
        _mention(entity, other, chat, reaction) for entity, other in _passed_on(entities[turn], event, heard)
    ]
    return columns | {"said": " ".join(event.words), "heard": " ".join(heard.words)}


def _answers_of(chat: FriendsChat) -> dict[str, Any]:
    """Return the columns with the counts of chat models' answers for each side."""
    return {
        "answers": [slips and slips.answers for slips in chat.slips],
        "no_reply": [slips and {kind.column: getattr(slips, kind.column) for kind in NO_REPLIES} for slips in chat.slips],
        "lying": [lying and lying._asdict() for lying in chat.lying],
    }


def lost_chat(condition: tuple[str, str], chat: FriendsChat | None = None) -> dict[str, Any]:
    """Return the columns of a lost chat beside its error: its condition, and its answers so far."""
    columns = dict(zip(("pair", "strategy"), condition, strict=True))
    return columns if chat is None else columns | _answers_of(chat)


def _mention(
    entity: Entity | None, other: Entity | None, chat: FriendsChat, reaction: tuple[ChatEvent, list[Entity]] | None
) -> dict[str, Any]:
    """Return one entry of `_MENTION`.

    Args:
        entity: that was said; None where nothing such was.
        other: the entity heard in its place.
        chat: they stand in.
        reaction: the listener's next event, and the entities that it names.
    """
    (kind,) = {mentioned.type for mentioned in (entity, other) if mentioned is not None}
    columns: dict[str, Any] = {"type": kind, "said": entity and entity.value, "heard": other and other.value}
    columns |= {"believed": None, "again": None}
    if reaction is None:
        return columns
    event, named = reaction
    if other not in (None, entity):
        selected = () if event.selected is None else chat.scenario.entities[event.side][event.selected]
        columns["believed"] = other in {*named, *selected}
    return columns | {"again": is_question(event.words) or any(mentioned.type == kind for mentioned in named)}


def _passed_on(entities: list[Entity], event: ChatEvent, heard: ChatEvent) -> Iterator[tuple[Entity | None, Entity | None]]:
    """Yield each entity with the entity heard in its place, then the entities heard in the place of none."""
    names = [token.entity for token in heard.tokens if isinstance(token, Mention)]
    if heard.words == event.words:
        names = entities
    if [mentioned.type for mentioned in names] == [mentioned.type for mentioned in entities]:
        yield from zip(entities, names, strict=True)
        return
    yield from ((entity, entity if entity in names else None) for entity in entities)
    yield from ((None, entity) for entity in names if entity not in entities)


_SIDE_BY_SIDE, _CHATS_SIDE_BY_SIDE = (64, 256), (8, 32)
"""Chats of a shard at least and at most; the same where a chat model takes part, whose chats take long."""
_SHARDS = 32
"""Shards of a run at least, where they are not too small."""


class ChatSpec(NamedTuple):
    """A chat to be played."""

    condition: Condition
    number: int
    """Of its scenario, from 0."""


def scenario_key(number: int) -> str:
    """Return a scenario's key, the same in every condition."""
    return f"{number:06d}"


def planned_chats(config: MutualFriendsConfig) -> dict[str, ChatSpec]:
    """Plan all chats of a run by their keys, which sort by condition and scenario."""
    return {
        f"{line:02d}-{condition.pair}-{condition.strategy}-{scenario_key(number)}": ChatSpec(condition, number)
        for line, condition in enumerate(config.conditions)
        for number in range(config.scenarios)
    }


@dataclass(frozen=True)
class PlayedChats(Sharded[ChatSpec]):
    """Chats between bots, made afresh in each worker from the names of bots and corpus.

    Args:
        config: with a named corpus and absolute names of models.
        answers: folder in which answers of chat models are kept.
        tried: their answers before the run began, as their file holds them.
    """

    unit = "chats"
    event = "chatted"

    config: MutualFriendsConfig
    answers: str = ""
    tried: bytes = b""

    @property
    def computes(self) -> bool:
        """Not so of scripted bots alone."""
        return not is_scripted(self.config)

    def seed(self, key: str) -> int:
        """Return the seed of a scenario, the same in every condition; the key ends with the scenario."""
        return chat_seed(self.config, int(key.rpartition("-")[2]))

    def worker(self) -> ChatWorker:
        return ChatWorker(self.config, Path(self.answers) if self.answers else None)

    def shard_size(self, num_items: int, num_workers: int) -> int:
        """Return the chats of a shard, the same for any number of workers that get two shards each."""
        least, most = _CHATS_SIDE_BY_SIDE if self.config.chats else _SIDE_BY_SIDE
        alike = max(least, min(most, num_items // _SHARDS))
        return alike if num_workers <= max(1, num_items // (2 * alike)) else spread(num_items, num_workers, alike)

    def digest(self, rows: Rows) -> Counts:
        return Counter(chats=sum(row["status"] == OK for row in rows))


class ChatWorker:
    """A worker that plays shards of chats and returns their rows.

    Args:
        config: as in `PlayedChats`.
        answers: as there; None keeps none.

    Raises:
        ConfigError: a bot or a strategy is not there.
        CheckpointError: a model is damaged or of another kind.
        DataError: the corpus cannot be read.
    """

    def __init__(self, config: MutualFriendsConfig, answers: Path | None = None) -> None:
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

    def run(self, shard: Shard[ChatSpec]) -> list[dict[str, Any]]:
        """Play the chats of a shard; one row per chat, by `parley.engine.mutual_friends.verbs.evaluate.CHATS`."""
        rows = rows_apart(self._played, shard, PlayedChats(self.config).seed)
        for row, spec in zip(rows, shard.items, strict=True):
            if row["status"] != OK:
                row |= lost_chat(spec.condition, self._lost.pop(row["item_key"], None))
        return rows

    def check(self) -> None:
        """Play one chat under each condition; errors that cost that chat alone are left to its row.

        Raises:
            AgentError: a bot fails in it, and would in others.
            ScenarioError: a bot breaks a rule of the game.
        """
        for group in _by_condition(list(planned_chats(replace(self.config, scenarios=1)).items())):
            try:
                self.play(group)
            except AgentError as error:
                if not isinstance(error, NoReplyError) and not isinstance(error.__cause__, ChatTooLongError):
                    raise
        self._lost.clear()

    def scenario(self, number: int) -> FriendsScenario:
        """Draw a scenario of the run."""
        key = scenario_key(number)
        return random_friends(self.corpus.schema, stream(self.config.seed, "scenario", key), self.config.tables, key)

    def _played(self, shard: Shard[ChatSpec]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for group in _by_condition(list(zip(shard.keys, shard.items, strict=True))):
            try:
                rows += self.play(group)
            except AgentError as error:
                error.rows = tuple(len(rows) + row for row in error.rows)
                raise
        return rows

    def play(self, items: Sequence[tuple[str, ChatSpec]]) -> list[dict[str, Any]]:
        """Play chats of one condition; return their rows by key."""
        condition = items[0][1].condition
        config, channel = self.config, self.channels[condition.hearing]
        first, second = (self.agents[spec] for spec in config.pairs[condition.pair])
        seeds = [chat_seed(config, chat_spec.number) for _, chat_spec in items]

        def note_lost(number: int, chat: FriendsChat) -> None:
            self._lost[items[number][0]] = chat

        chats = play_friends(
            [(self.scenario(chat_spec.number), seed) for (_, chat_spec), seed in zip(items, seeds, strict=True)],
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


def _by_condition(items: Sequence[tuple[str, ChatSpec]]) -> list[list[tuple[str, ChatSpec]]]:
    return [list(group) for _, group in groupby(items, key=lambda item: item[1].condition)]


def chat_seed(config: MutualFriendsConfig, number: int) -> int:
    """Derive the seed of the chats on a scenario, the same in every condition."""
    return derive_seed(config.seed, "chat", scenario_key(number))


def is_scripted(config: MutualFriendsConfig) -> bool:
    """Return True if no bot, liar or judge computes with torch."""
    if config.judge or liars_of(config.channel_names.values()):
        return False
    return all(spec in friends_agents for pair in config.pairs.values() for spec in pair)


CONDITIONS, PAIRS, ATTRIBUTES = "conditions", "pairs", "attributes"
"""Entries of the summary: pair and strategy of each line of the table, names of pairs, and attributes by category."""


def niu2018() -> MutualFriendsConfig:
    """Play a thousand scenarios under the paper's three strategies, beside its figures (Niu & Bansal 2018, table 8)."""
    return MutualFriendsConfig()


def quick() -> MutualFriendsConfig:
    """Play 100 scenarios for a first look."""
    return MutualFriendsConfig(scenarios=100)


def demo() -> MutualFriendsConfig:
    """Play 30 chats of two scripted bots under each strategy, in seconds, without a model."""
    return MutualFriendsConfig(scenarios=30, controls=False, perturb=PerturbSettings(lexicon="built-in"))


class EvaluateMutualFriends(Job[MutualFriendsConfig, PlayedChats, PlayedChats]):
    """`parley evaluate collaboration`."""

    words = ("evaluate", "collaboration")
    run_name = "collaboration"
    config = MutualFriendsConfig
    presets = {"niu2018": niu2018, "quick": quick, "demo": demo}
    schema = CHATS
    item_metrics = CHAT_ITEMS
    files = (TABLE_FILE, SUMMARY, "rows")
    resume_safe = (*RESUME_SAFE, "side_by_side")

    def transcripts(self, run: RunFolder) -> TranscriptRule:
        return chat_transcript

    def prepare(self, config: MutualFriendsConfig, path: Path, reporter: Reporter) -> PlayedChats:
        config.require_device()
        resolved = located(config)
        for pair, _, chats, _, corpus in readings(resolved):
            reporter.say(f"{pair} reads {len(chats):,} recorded chats of {corpus.name}")
        with TemporaryDirectory() as beside:
            # A run that has begun keeps its answers; a new run has no folder yet.
            begun = path / ANSWERS_FOLDER
            answers = begun if begun.is_dir() else Path(beside)
            worker = ChatWorker(resolved, answers)
            check_schema(worker.corpus.schema, resolved.tables)
            worker.check()
            tried = Path(beside, ANSWERS)
            return PlayedChats(resolved, tried=tried.read_bytes() if tried.is_file() else b"")

    def work(self, run: RunFolder, prepared: PlayedChats, reporter: Reporter) -> PlayedChats:
        answers = run.path / ANSWERS_FOLDER
        if prepared.tried:
            answers.mkdir(exist_ok=True)
            (answers / ANSWERS).write_bytes(prepared.tried)
        prepared = replace(prepared, answers=str(answers), tried=b"")
        run_items(run, prepared, planned_chats(prepared.config), prepared.config, reporter, "playing chats")
        reporter.stage("computing metrics, their intervals and significances", 0, "")
        return prepared

    def measure(self, run: RunFolder, played: PlayedChats) -> Summary:
        config, rows = played.config, run.rows()
        done = selected(finished(rows), "types", "attributes")
        attributes = dict(pair for row in done for pair in zip(row["types"], row["attributes"], strict=True))
        pairs = {pair: name for pair, name in pair_names(run.config, config.trained_runs).items() if pair in config.pairs}
        return Summary(
            f"{pairs[MODEL]} looking for friends",
            f"{config.scenarios:,} scenarios of {config.corpus}, {len(config.conditions)} conditions, a bot remembers what it "
            f"{config.remembers}{'' if config.remembers == 'said' else ' of itself'}, seed {config.seed}"
            f"{f'; perplexity as {config.judge} finds it' if config.judge else ''}.",
            chat_metrics(rows) | recorded_metrics(config),
            {CONDITIONS: list(map(list, by_condition(rows))), PAIRS: pairs, ATTRIBUTES: dict(sorted(attributes.items()))},
        )

    def models(self, config: MutualFriendsConfig) -> dict[str, str]:
        named = {"model": config.model, "partner": config.partner}
        named |= {f"{TRAINED}{i}": run for i, run in enumerate(config.trained_runs, 1)}
        named |= liars_of(config.channel_names.values()) | ({"judge": config.judge} if config.judge else {})
        return {option: spec for option, spec in named.items() if spec not in friends_agents}

    def num_rows(self, config: MutualFriendsConfig, path: Path) -> int:
        return config.scenarios * len(config.conditions)

    def metrics_of(self, config: MutualFriendsConfig) -> list[str] | None:
        if any(".py:" in name for name in config.strategy_names):
            return None
        recorded = [of(kind, pair, config.recorded) for pair in recorded_models(config) for kind in RECORDED]
        return [*condition_names(config.conditions, judged=bool(config.judge)), *recorded]

    def next_commands(self, config: MutualFriendsConfig, path: Path) -> tuple[str, ...]:
        commands = super().next_commands(config, path)
        if not config.chat_liars:
            return commands
        metrics = RunFolder.load(path).metrics()
        for liar in config.chat_liars:
            lie_rate = metrics.get(of(LIE_RATE, MODEL, liar))
            if lie_rate is not None and lie_rate.value > 0:
                lies = replace(config.lies, rate=float(f"{lie_rate.value:.3g}"))
                evaluation = replace(config, strategies=RANDOM_LIES, lies=lies, controls=False, trained="")
                beside = path.with_name(f"{path.name}-as-{liar.removeprefix(LIAR)}")
                commands = (*commands, command_line(self.words, self.presets, evaluation, beside))
        return commands

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        metrics, summary = run.metrics(), run.summary() or {}
        if not metrics:
            return {}
        conditions = [Condition(*condition) for condition in summary[CONDITIONS]]
        pairs: Mapping[str, str] = summary[PAIRS]
        recorded = run.config.get("recorded", "")
        lies = {
            f"Who believes {condition.strategy}": lies_table(metrics, *condition, summary[ATTRIBUTES])
            for condition in conditions
            if condition.pair == MODEL and tells_lies(condition.hearing)
        }
        trained = [condition for condition in conditions if condition.pair.startswith(TRAINED)]
        against = {"Trained against strategies": trained_table(metrics, trained, pairs)} if trained else {}
        return {
            "Completion and turns": table_8(metrics, conditions, pairs, run.config["published"] != "none"),
            **against,
            "Completion by selections allowed": allowed_table(metrics, conditions, pairs),
            **{heading: table for heading, table in lies.items() if table is not None},
            **({"Lies told": lying} if (lying := lying_table(metrics, conditions, pairs)) else {}),
            **({f"Recorded chats of {recorded}": recorded_table(metrics, recorded, pairs)} if recorded else {}),
            **({"Moves that could not be read": slips} if (slips := slips_table(metrics, conditions, pairs)) else {}),
        }

    def present(self, result: Result, run: RunFolder) -> Result:
        legend = {name: describe(name) for name in result.metrics}
        return replace(result, legend=legend, tables=self.tables(run))


def located(config: MutualFriendsConfig) -> MutualFriendsConfig:
    """Resolve corpus, data root and models to names that hold on other machines and in other folders.

    Raises:
        CheckpointError: there is no checkpoint of a name.
    """
    model, partner = (
        absolute_name(spec, option, MAKER) if spec and spec not in friends_agents else spec
        for spec, option in ((config.model, "--model"), (config.partner, "--partner"))
    )
    trained = ",".join(absolute_name(run, "--trained", MAKER) for run in config.trained_runs)
    if config.judge:
        require_heard_judge(config.judge)
        config = replace(config, judge=absolute_name(config.judge))
    heard = ",".join(map(located_strategy, config.channel_names.values())) or config.strategies
    corpus = config.corpus or corpus_of((model, partner)) or EMBEDDED_FRIENDS
    resolved = replace(config, model=model, partner=partner, trained=trained, strategies=heard)
    return replace(resolved, corpus=corpus, data_root=data_root(config.data_root))


def pair_names(config: Mapping[str, object], trained: Sequence[str]) -> dict[str, str]:
    """Return the names of pairs; of runs and files the ends of their paths.

    Args:
        config: as it was asked for.
        trained: the runs of `MutualFriendsConfig.trained_runs`, by which their pairs are numbered.
    """
    model, partner = (_short(str(config[name])) for name in ("model", "partner"))
    beside = f" with {partner}" if config["partner"] not in ("", config["model"]) else ""
    runs = [f"{_short(run.removesuffix(f'/{CHECKPOINT}'))}{beside}" for run in trained]
    return {
        MODEL: f"{model}{beside}",
        **{f"{TRAINED}{i}": run for i, run in enumerate(runs, 1)},
        SCRIPTED: "scripted bots",
        MIXED: f"{model} with a scripted bot",
        SELECTORS: "selectors",
        BLIND: "blind selectors",
    }


def _short(spec: str) -> str:
    return short_address(spec) if is_chat_address(spec) else spec.rstrip("/").rpartition("/")[2]


EVALUATE_MUTUAL_FRIENDS = EvaluateMutualFriends()
