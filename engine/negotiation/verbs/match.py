"""Two agents play N dialogues: `parley selfplay`, and the frame of every attack on the negotiation game.

Dialogues are cut into shards, which workers play (Ray actors, or this process). A worker plays the dialogues of a shard side
by side. The number of a dialogue and the master seed alone decide its scenario and its seed.

The dialogues that are played side by side decide the last digits of a network's figures and so, seldom, a drawn word. So
rows are equal bit for bit if the size of shards is. The chosen size is the same for few workers, up to 15 for 500 dialogues
and 32 for 2,000; the setting `shard_size` fixes it for more.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from traceback import format_exception
from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa

from parley.engine.core.ray import logs
from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.worker import Shard
from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.parts import OK, error_row, ok_row, row_schema
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import NOTHING, Estimate, Row, count
from parley.engine.core.verbs.job import Job, Reporter, Summary
from parley.engine.core.verbs.sharded import RESUME_SAFE, Sharded, ShardedConfig, ended_sessions, run_items, spread
from parley.engine.core.verbs.transcripts import ASSISTANT, SYSTEM, USER, Transcript, TranscriptRule
from parley.engine.negotiation.attacks.settings import DefenceConfig
from parley.engine.negotiation.metrics.attack import DIALOGUE_ITEMS
from parley.engine.negotiation.metrics.dialogues import (
    CHAT_METRICS,
    DEFENCE_METRICS,
    METRICS,
    chat_metrics,
    defence_metrics,
    negotiation_metrics,
)
from parley.engine.negotiation.verbs.agents import (
    NO_JUDGE,
    judge_of,
    make_agent,
    require_judge,
    tell_outcome,
    vocabulary_of,
    who_judges,
    words_of,
)
from parley.engine.negotiation.verbs.defended import defend, defended_row
from parley.engine.negotiation.verbs.fluency import load_judge
from parley.envs.core.config import NonNegativeFloat, NonNegativeInt, NumItems, PositiveInt
from parley.envs.core.errors import ConfigError
from parley.envs.core.play import HUMAN, AgentError, Session, isolate_failures, play_sessions
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.core.storage.uris import is_uri
from parley.envs.corpora.lines import read_lines
from parley.envs.negotiation.agents import BUILT_IN, is_chat_model, require_agent
from parley.envs.negotiation.corpora.catalogue import corpora, find_negotiations, load_corpus
from parley.envs.negotiation.corpora.dealornodeal import parse_scenarios
from parley.envs.negotiation.domain import DEAL_OR_NO_DEAL, ILLEGAL, Scenario, Vocabulary, domain_of, domain_recorded
from parley.envs.negotiation.game import NOBODY, Agent, NegotiationGame, Rules, require_game
from parley.policies.chat.addresses import is_chat_address
from parley.policies.chat.model import ANSWERS_FOLDER, ChatMoves, moves_of
from parley.policies.chat.settings import ChatSeat

RANDOM = "random"
RANDOM_OF = "random:"
"""Prefix of the name of a game."""


def game_of(scenarios: str) -> str:
    """Return the game of the scenarios: "random:interview" names one, a corpus has one; else Deal or No Deal."""
    if scenarios.startswith(RANDOM_OF):
        return scenarios.removeprefix(RANDOM_OF)
    return find_negotiations(scenarios).game if scenarios in corpora or ".py:" in scenarios else DEAL_OR_NO_DEAL


def match_scenarios(config: MatchConfig, game: str) -> dict[str, Scenario]:
    """Return the scenario of each dialogue by its key, "000000" onwards or from the config's first number.

    Args:
        config: the settings of the match.
        game: the game of scenarios that are random or in a file, which name none.

    Raises:
        ConfigError: `scenarios` names neither a game, nor a corpus, nor a file.
        DataError: the file or corpus is missing or broken.
    """
    numbers = range(config.first, config.first + config.dialogues)
    keys = [f"{number:06d}" for number in numbers]
    if config.scenarios == RANDOM or config.scenarios.startswith(RANDOM_OF):
        domain = domain_of(game if config.scenarios == RANDOM else game_of(config.scenarios))
        return {key: domain.random_scenario(stream(config.seed, "scenario", key)) for key in keys}
    path = Path(config.scenarios)
    if path.is_file():
        scenarios, errors = parse_scenarios(read_lines(path), str(path), game)
        if errors:
            raise errors[0]
    else:
        # Corpora list like scenarios side by side: the first 200 of Deal or No Deal have the same items.
        listed = load_corpus(config.scenarios, config.data_root).selfplay
        scenarios = [listed[index] for index in stream(config.seed, "scenario order").permutation(len(listed)).tolist()]
    if not scenarios:
        fix = "name a file of context lines, two a scenario"
        raise ConfigError("there are no scenarios to play", where=config.scenarios, fix=fix)
    return {key: scenarios[number % len(scenarios)] for number, key in zip(numbers, keys, strict=True)}


_CHAT = {move.name: int for move in fields(ChatMoves)}
DIALOGUES = row_schema(
    {
        # The scenario: the number of each item, its points for each side; `domain_recorded` knows the game.
        "counts values_adversary values_target": [int],
        # The dialogue: sides 0 (adversary) and 1 (target), words joined by blanks, `<eos>` left out.
        "first_speaker": int,
        "turns": [{"side": pa.int8(), "words": str}],
        # The outcome: ended_by is the side that said `<selection>`, -1 when a limit did. A selection is tokens of the game, or
        # `<illegal>` alone where it was out of range, which counts as no agreement.
        "agreed forced": bool,
        "ended_by points_adversary points_target": int,
        "selection_adversary selection_target": [str],
        "pareto": bool,
        # Language: turns include `<selection>`; words are the tokens a side wrote itself, `<eos>` and `<selection>`
        # included, forced ones not; nll is their summed negative log likelihood in nats, null when it was not scored.
        "num_turns num_words_adversary num_words_target": int,
        "nll_adversary nll_target": float,
        # The requests of a chat model's part, and its breaches of the form (`ChatMoves`); null for agents of another kind.
        # A lost dialogue has those up to its failure.
        "chat_adversary chat_target": _CHAT,
        # A defended target: the adversary's turns that its filter stopped, and its own turns that refused to end.
        "stopped refused": [int],
    }
)
"""One negotiation dialogue per row."""
OF_DEFENCES = ("stopped", "refused", "kept_out")
"""Columns of dialogues with a defended target and of searches under a filter's limit; null in others."""
_STEP = {"replaced reads decisions": int, "feasible": bool, "points_adversary points_target": int}
_ATTEMPT = {
    # The index of the utterance in `turns`, its kind ("reactive", "preemptive" or "transfer"), and whether its search
    # reached its goal.
    "turn": int,
    "kind": str,
    "accepted": bool,
    # The speaker's sentence before the search, words joined by blanks, `<eos>` left out, and the positions of the
    # words that the search changed.
    "base": str,
    "replaced": [int],
    # Reactive attempts: the target's probability of answering `<selection>` at its temperature, and whether it did.
    "end_probability": float,
    "ended": bool,
    # Language: tokens of the sentence, `<eos>` included; nats of it and of the base sentence in its place under the
    # judge; its least likely token; its special tokens. Likelihoods are null when they were not scored.
    "num_words": int,
    "nll nll_base": float,
    "num_words_base": int,
    "lowest_probability": float,
    "special": int,
    # The path of the search, the unchanged sentence first: words replaced so far, queries so far, whether the end
    # constraint holds, and what both sides would earn if the dialogue ended there.
    "steps": [_STEP],
}
# The number of the fresh adversary, the dialogues of its training so far, and its advantage as an estimate.
EXPLOITED = row_schema({"adversary dialogues": int, "value low high": float, "n": int})
"""One fresh adversary after one budget per row."""
ATTACKS = row_schema(
    {
        # The outcome if the target had to end the dialogue at the first reactive sentence that satisfies the end constraint;
        # where there is none, the outcome of the dialogue as it was played.
        "forced_points_adversary forced_points_target": int,
        "forced_agreed": bool,
        # Candidates in queries to the target, rejected searches included: read, and decided upon.
        "reads decisions": int,
        "attempts": [_ATTEMPT],
        # Candidates left out as too perplexing, without a query; null if the search has no limit.
        "kept_out": int,
    },
    DIALOGUES,
)
"""One attacked negotiation dialogue per row, played live, with the searches for its sentences."""


def dialogue_row(game: NegotiationGame, row: int, key: str) -> dict[str, Any]:
    """Return a finished dialogue as a row of `DIALOGUES`; likelihoods and the columns of defences stay null."""
    scenario = game.scenarios[row]
    written = game.authors[row]
    table, tokens = scenario.selections.table, scenario.domain.tokens
    adversary, target = (
        [ILLEGAL] if illegal else [tokens[token] for token in table[selection]]
        for selection, illegal in zip(game.selections[row], game.illegal_selections[row], strict=True)
    )
    return ok_row(key, game.seeds[row]) | {
        "counts": list(scenario.counts),
        "values_adversary": list(scenario.values[0]),
        "values_target": list(scenario.values[1]),
        "first_speaker": int(game.first_speakers[row]),
        "turns": [{"side": side, "words": " ".join(words)} for side, words in game.transcript(row)],
        "agreed": bool(game.agreed[row]),
        "forced": bool(game.forced[row]),
        "ended_by": NOBODY if game.forced[row] else int(game.to_move[row]),
        "points_adversary": int(game.points[row, 0]),
        "points_target": int(game.points[row, 1]),
        "selection_adversary": adversary,
        "selection_target": target,
        "pareto": game.is_pareto(row),
        "num_turns": int(game.num_turns[row]),
        "num_words_adversary": int(np.count_nonzero(written == 0)),
        "num_words_target": int(np.count_nonzero(written == 1)),
        **dict.fromkeys(("nll_adversary", "nll_target", "chat_adversary", "chat_target", "stopped", "refused")),
    }


def dialogue_transcript(row: Row) -> Transcript:
    """Return a negotiation as a conversation: the adversary is the user, the target the assistant."""
    domain = domain_recorded(row["counts"], (row["values_adversary"], row["values_target"]))
    sides = zip(domain.items, row["counts"], row["values_adversary"], row["values_target"], strict=True)
    scenario = [f"{item}: {count}, worth {mine} to the user, {theirs} to the assistant" for item, count, mine, theirs in sides]
    selections = (f"{side} takes {' '.join(row[f'selection_{side}'] or [])}" for side in ("adversary", "target"))
    return Transcript(
        ((SYSTEM, "\n".join(scenario)), *((ASSISTANT if turn["side"] else USER, turn["words"]) for turn in row["turns"])),
        scores={
            "agreed": row["agreed"],
            "advantage": row["points_adversary"] - row["points_target"],
            "points_adversary": row["points_adversary"],
            "points_target": row["points_target"],
        },
        reasons={"agreed": "; ".join(selections)},
    )


logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PlayedConfig(ShardedConfig):
    """Settings of played dialogues: their number, their scenarios and the judge of their language."""

    dialogues: NumItems = 2000
    """Number of dialogues."""
    chat: ChatSeat = field(default_factory=ChatSeat)
    """Settings of chat models."""
    scenarios: str = RANDOM
    """"random" for random legal scenarios of the agents' game, random:GAME for those of a game (parley list), a corpus name for
    its self-play scenarios in an order that the seed draws, or a file of them, in turn."""
    judge: str = ""
    """Judge whose perplexity measures fluency: a checkpoint, or a chat model that gives likelihoods (hf:, gguf:); when empty
    the target (or else its partner), before any reinforcement."""
    temperature: NonNegativeFloat = 0.5
    """Of the models' word distributions; 0 takes the likeliest word."""


@dataclass(frozen=True, kw_only=True)
class OneMatchConfig(PlayedConfig):
    """Settings of one match, such as an attack."""

    defence: DefenceConfig = field(default_factory=DefenceConfig)
    """Defence of the target."""

    @property
    @abstractmethod
    def match(self) -> MatchConfig:
        """The settings as those of a match with its judge."""


@dataclass(frozen=True, kw_only=True)
class MatchConfig(OneMatchConfig):
    """Settings of a match: its agents and its scenarios."""

    adversary: str
    """Agent on side 0: run or checkpoint folder, registered name, path/file.py:Name, or a chat model (hf:, gguf:, openai:)."""
    target: str
    """Agent on side 1."""
    complementary: bool = False
    """The target alone chooses and the adversary is given the complement (the attacks' rule)."""
    first: NonNegativeInt = 0
    """Number of the first dialogue, which decides its scenario and its draws; earlier ones are left out."""
    max_turns: PositiveInt = 20
    """Utterances after which the end of a dialogue is forced."""
    tactic: str = ""
    """Tactic in the prompt of a chat model on side 0, beside the rules."""

    @property
    def match(self) -> MatchConfig:
        return replace(self, judge=judge_of(self.judge, (self.target, self.adversary)))


OneMatchConfigT = TypeVar("OneMatchConfigT", bound=OneMatchConfig)
SHARDS = 64
"""Least number of shards of a match, if they are not too small."""


@dataclass(frozen=True)
class Roster(Sharded[Scenario]):
    """The agents of a match, made in each worker from their names; attacks with agents of their own extend it.

    Attributes:
        side_by_side: least and most dialogues of a shard for few workers: fewer cost time, a kill loses more.
        side_by_side_chats: the same with a chat model, whose dialogues take long.

    Args:
        config: the settings of the match.
        answers: folder of the run that stores chat models' answers; None stores none.
    """

    unit = "dialogues"
    event = "played"
    side_by_side: ClassVar[tuple[int, int]] = (16, 250)
    side_by_side_chats: ClassVar[tuple[int, int]] = (8, 32)

    config: MatchConfig
    answers: Path | None = field(default=None, kw_only=True)

    @property
    def computes(self) -> bool:
        """Return False for scripted agents and people without a judge."""
        return bool(self.config.judge) or not {self.config.adversary, self.config.target} <= set(BUILT_IN)

    def seed(self, key: str) -> int:
        return dialogue_seed(self.config.seed, key)

    def worker(self) -> MatchWorker:
        return MatchWorker(self)

    def checkpoints(self) -> tuple[str, ...]:
        named = self.config.adversary, self.config.target, self.config.judge
        return tuple(spec for spec in named if not is_chat_address(spec))

    def shard_size(self, num_items: int, num_workers: int) -> int:
        """Return one size for any number of workers that get two shards each; a person plays one dialogue at a time."""
        if people(self.config):
            return 1
        least, most = self.side_by_side_chats if self.chats else self.side_by_side
        alike = max(least, min(most, num_items // SHARDS))
        return alike if num_workers <= max(1, num_items // (2 * alike)) else spread(num_items, num_workers, alike)

    def digest(self, rows: Rows) -> Counts:
        played = [row for row in rows if row["status"] == OK]
        return Counter(dialogues=len(played), candidates=sum(row.get("reads", 0) for row in played))

    def check(self) -> None:
        """Raise an error before a run is made if agents or scenarios are missing.

        Raises:
            ConfigError: an agent or the scenarios are missing, or an agent cannot play its part.
            CheckpointError: a checkpoint is damaged or of another kind.
            DataError: a file of scenarios or a corpus is missing or broken.
        """
        self.config.require_device()
        # Actors load the agents again; this load only finds errors before there is a run.
        agents = self.agents("cpu" if self.config.workers else self.config.device)
        if self.config.tactic and not is_chat_model(self.config.adversary):
            fix = "name one with --adversary: hf:FOLDER, gguf:FILE, openai:URL#MODEL, or a class of your own"
            raise ConfigError("a tactic needs a chat model", where=self.config.adversary, got="another agent", fix=fix)
        if self.config.judge:
            require_judge(self.config.judge)
        scenarios = list(match_scenarios(self.config, self.game).values())
        for role in ("adversary", "target", "judge"):
            spec = getattr(self.config, role)
            if spec and (words := vocabulary_of(spec)) is not None:
                require_game(words.game, scenarios, f"the {role}", spec)
        if people(self.config) and self.config.workers:
            got = f"{self.config.workers} workers"
            raise ConfigError("a person plays at this terminal, where no worker is", got=got, fix="--workers 0")
        if self.chats and not self.config.workers:
            from parley.policies.chat.negotiator import ChatNegotiator

            for agent in agents:
                speaker = getattr(agent, "speaker", agent)
                _ = speaker.model if isinstance(speaker, ChatNegotiator) else None

    def agents(self, device: str = "cpu") -> tuple[Agent, Agent]:
        """Make the adversary, and the target with its defences; models compute on the device."""
        config, words = self.config, self._words()
        sides = ((config.adversary, config.tactic), (config.target, ""))
        adversary, target = (
            make_agent(spec, words, config.temperature, device, seat=config.chat, tactic=tactic, answers=self.answers)
            for spec, tactic in sides
        )
        return adversary, defend(target, config.defence, config.judge, device, config.chat)

    @property
    def adversary_words(self) -> Vocabulary:
        """Return the words that the adversary can say."""
        return vocabulary_of(self.config.adversary) or self._words()

    @property
    def chats(self) -> bool:
        """Return True if a chat model takes part."""
        return any(map(is_chat_model, (self.config.adversary, self.config.target)))

    @property
    def game(self) -> str:
        """The game of scenarios that name none."""
        return self._words().game

    def _words(self) -> Vocabulary:
        return words_of(self.checkpoints(), game_of(self.config.scenarios))


class MatchWorker:
    """A worker that plays shards of dialogues."""

    def __init__(self, roster: Roster) -> None:
        self.config = roster.config
        self.agents = roster.agents(self.config.device)
        judge, seat = self.config.judge, self.config.chat
        self.judge = load_judge(judge, self.config.device, seat) if judge else None
        self._lost: dict[str, dict[str, Any]] = {}

    def run(self, shard: Shard[Scenario]) -> list[dict[str, Any]]:
        """Play a shard and return one row per dialogue, by the schema of the roster."""
        played, lost = isolate_failures(self._play, list(zip(shard.keys, shard.items, strict=True)))
        rows = {row["item_key"]: row for part in played for row in part}
        for (key, _), error in lost:
            chats = self._lost.pop(key, {})
            rows[key] = error_row(key, dialogue_seed(self.config.seed, key), str(error)) | chats
        if lost:
            error = lost[0][1]
            more = "\n" + "".join(format_exception(error)) if logs.is_debug() else ""
            logger.warning("%d of %d dialogues are lost: %s%s", len(lost), len(shard), error.what, more)
        return [rows[key] for key in shard.keys]

    def _play(self, dialogues: Sequence[tuple[str, Scenario]]) -> list[dict[str, Any]]:
        keys, scenarios = zip(*dialogues, strict=True)
        game = self.deal(keys, scenarios)
        sessions = (self.agents[0].join(game.view(0)), self.agents[1].join(game.view(1)))
        try:
            played = play_sessions(game, sessions)
        except AgentError as error:
            # The answers of an unfinished dialogue count too.
            for row in error.rows or (range(1) if len(keys) == 1 else ()):
                self._lost[keys[row]] = _chat_columns(sessions, len(keys))[row]
            raise
        if seats := people(self.config):
            tell_outcome(played, seats)
        return self.rows(played, sessions, keys)

    def deal(self, keys: Sequence[str], scenarios: Sequence[Scenario]) -> NegotiationGame:
        """Return new dialogues for these keys and scenarios."""
        seeds = [dialogue_seed(self.config.seed, key) for key in keys]
        rules = Rules(max_turns=self.config.max_turns, complementary=self.config.complementary)
        adversary, target = self.agents
        vocabularies = adversary.vocabulary, target.vocabulary
        return NegotiationGame(scenarios, seeds, vocabularies, rules, self.first_speakers(len(seeds)))

    def first_speakers(self, count: int) -> list[int] | None:
        """Return the side that begins each dialogue; None for a fair coin."""
        return None

    def rows(self, game: NegotiationGame, sessions: tuple[Session, Session], keys: Sequence[str]) -> list[dict[str, Any]]:
        """Return the finished dialogues as rows of `DIALOGUES`."""
        rows = [dialogue_row(game, row, key) for row, key in enumerate(keys)]
        rows = [row | chats for row, chats in zip(rows, _chat_columns(sessions, len(rows)), strict=True)]
        if self.config.defence.wanted:
            defence = self.config.defence
            rows = [{**row, **defended_row(sessions[1], number, defence)} for number, row in enumerate(rows)]
        if self.judge is not None:
            for side, name in enumerate(("nll_adversary", "nll_target")):
                for row, nats in zip(rows, self.judge.dialogues(game, side).tolist(), strict=True):
                    row[name] = nats
        return rows


def _chat_columns(sessions: tuple[Session, Session], count: int) -> list[dict[str, Any]]:
    """Return what chat models did in each of `count` dialogues, by column; nothing for a side of another kind."""
    columns: list[dict[str, Any]] = [{} for _ in range(count)]
    for session, name in zip(sessions, ("chat_adversary", "chat_target"), strict=True):
        for row, moves in zip(columns, moves_of(session) or (), strict=False):
            row[name] = asdict(moves)
    return columns


def people(config: MatchConfig) -> list[int]:
    """Return the sides that a person plays at the terminal."""
    return [side for side, agent in enumerate((config.adversary, config.target)) if agent == HUMAN]


def dialogue_seed(seed: int, key: str) -> int:
    """Return the seed of a dialogue, derived from the master seed and its key."""
    return derive_seed(seed, "dialogue", key)


def seconds_per_dialogue(run: RunFolder) -> Estimate:
    """Return the seconds that a worker spent on a dialogue, without its start, over all sessions that ended."""
    played = ended_sessions(run, Roster.event, Roster.unit)
    dialogues = sum(event["dialogues"] for event in played)
    return count(sum(event["busy_s"] for event in played) / dialogues, dialogues) if played else NOTHING


class MatchJob(Job[OneMatchConfigT, Roster, Roster]):
    """A job whose rows are the dialogues of a match; attacks extend it.

    Attributes:
        adversary: the setting that names the agent on side 0.
    """

    adversary: ClassVar[str] = "adversary"
    schema = DIALOGUES
    legend = METRICS | CHAT_METRICS | DEFENCE_METRICS
    files = (SUMMARY, "rows")
    resume_safe = RESUME_SAFE
    item_metrics = DIALOGUE_ITEMS

    @abstractmethod
    def title(self, match: MatchConfig) -> str:
        """Return the heading of the result."""

    def check_names(self, config: OneMatchConfigT) -> None:
        for option in (self.adversary, "target"):
            if not is_uri(spec := getattr(config, option)):
                require_agent(spec)

    def roster(self, config: OneMatchConfigT, reporter: Reporter) -> Roster:
        """Return the players."""
        return Roster(config.match)

    def metrics(self, run: RunFolder) -> dict[str, Estimate]:
        """Return the metrics of a run whose dialogues have all been played."""
        rows = run.rows()
        return negotiation_metrics(rows) | chat_metrics(rows) | defence_metrics(rows)

    def prepare(self, config: OneMatchConfigT, path: Path, reporter: Reporter) -> Roster:
        roster = self.roster(config, reporter)
        roster.check()
        if not roster.config.judge:
            reporter.say(NO_JUDGE)
        return roster

    def work(self, run: RunFolder, prepared: Roster, reporter: Reporter) -> Roster:
        match = prepared.config
        playing = replace(prepared, answers=run.path / ANSWERS_FOLDER) if prepared.chats else prepared
        run_items(run, playing, match_scenarios(match, prepared.game), match, reporter, self.title(match))
        return prepared

    def transcripts(self, run: RunFolder) -> TranscriptRule:
        return dialogue_transcript

    def measure(self, run: RunFolder, roster: Roster) -> Summary:
        match = roster.config
        chooses = "; the target alone chooses" if match.complementary else ""
        scenarios = f"{match.scenarios} scenarios ({len({*match_scenarios(match, roster.game).values()}):,} different)"
        description = f"{match.dialogues} dialogues on {scenarios}, seed {match.seed}{chooses}"
        return Summary(self.title(match), f"{description}; {who_judges(match.judge)}.", self.metrics(run))

    def models(self, config: OneMatchConfigT) -> dict[str, str]:
        match = config.match
        return {self.adversary: match.adversary, "target": match.target, "judge": match.judge}

    def num_rows(self, config: OneMatchConfigT, path: Path) -> int:
        return config.dialogues


def scripted() -> MatchConfig:
    """Play a fair scripted bargainer against a tough one; needs no training."""
    return MatchConfig(adversary="scripted", target="scripted-tough")


class Selfplay(MatchJob[MatchConfig]):
    """`parley selfplay`."""

    words = ("selfplay",)
    run_name = "selfplay"
    config = MatchConfig
    presets = {"scripted": scripted}

    def title(self, match: MatchConfig) -> str:
        return f"{match.adversary} against {'itself' if match.adversary == match.target else match.target}"


SELFPLAY = Selfplay()
