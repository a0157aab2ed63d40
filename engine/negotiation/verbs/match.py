"""Two agents play N dialogues: `parley selfplay`, and the evaluation of every attack on the negotiation game.

Dialogues are cut into shards and played by workers (Ray actors, or this process); a worker plays a shard's dialogues side by
side. Each dialogue has its own scenario and seed, by its number and the master seed alone.

What is played side by side decides the last digits of a network's figures, and so, seldom, a word that is drawn: between shards
of 1 and of 100 that was seen in none of 1,000 dialogues of fitted models, and in 3 of 200 long ones of unfitted models. So rows
are the same bit for bit where the size of shards is. It is chosen alike for few workers, up to 15 for 500 dialogues and 32 for
2,000; the setting `shard_size` holds it for more.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from traceback import format_exception
from typing import Any, ClassVar, TypeVar

from parley.engine.core.ray import logs
from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.sharding import Shard
from parley.engine.core.runs.layout import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.runs.schemas import OK, error_row
from parley.engine.core.stats.statistics import NOTHING, Estimate, count
from parley.engine.core.verbs.job import Job, Reporter, Summary
from parley.engine.core.verbs.sharded import RESUME_SAFE, Sharded, ShardedConfig, ended_sessions, spread, work_off
from parley.engine.negotiation.attacks.settings import DefenceConfig
from parley.engine.negotiation.metrics.chat import CHAT_METRICS, chat_metrics
from parley.engine.negotiation.metrics.defences import DEFENCE_METRICS, defence_metrics
from parley.engine.negotiation.metrics.dialogues import METRICS, negotiation_metrics
from parley.engine.negotiation.verbs.agents import make_agent, require_judge, vocabulary_of, words_of
from parley.engine.negotiation.verbs.defended import defend, defended_row
from parley.engine.negotiation.verbs.fluency import load_judge
from parley.engine.negotiation.verbs.human_player import tell_outcome
from parley.engine.negotiation.verbs.judge import NOBODY_JUDGES, judge_of, who_judges
from parley.engine.negotiation.verbs.rows import DIALOGUES, dialogue_row
from parley.engine.negotiation.verbs.scenario_sampling import RANDOM, game_of, match_scenarios, num_distinct
from parley.envs.core.errors import ConfigError
from parley.envs.core.play import AgentError, Session, play_apart, play_sessions
from parley.envs.core.ranges import NonNegativeFloat, NonNegativeInt, NumItems, PositiveInt
from parley.envs.core.seeds import derive_seed
from parley.envs.negotiation.agents import BUILT_IN, HUMAN, is_chat_model
from parley.envs.negotiation.game import Agent, NegotiationGame, Rules, require_game
from parley.envs.negotiation.scenario import Scenario
from parley.envs.negotiation.vocabulary import Vocabulary
from parley.policies.chat.addresses import is_chat_address
from parley.policies.chat.answers import ANSWERS_FOLDER
from parley.policies.chat.negotiator import ChatNegotiator, moves_of
from parley.policies.chat.seat import ChatSeat

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PlayedConfig(ShardedConfig):
    """How many dialogues are played, on what, and who judges their language."""

    dialogues: NumItems = 2000
    """Number of dialogues."""
    chat: ChatSeat = field(default_factory=ChatSeat)
    """How chat models take part."""
    scenarios: str = RANDOM
    """"random" for random legal scenarios of the agents' game, random:GAME for those of a game (parley list), a corpus name for
    its self-play scenarios in turn, or a file of them."""
    judge: str = ""
    """Whose perplexity measures fluency: a checkpoint, or a chat model that gives likelihoods (hf:, gguf:); when empty the
    target (or else its partner), before any reinforcement."""
    temperature: NonNegativeFloat = 0.5
    """Of the models' word distributions; 0 takes the likeliest word."""


@dataclass(frozen=True, kw_only=True)
class OneMatchConfig(PlayedConfig):
    """A match, or an attack that is one."""

    defence: DefenceConfig = field(default_factory=DefenceConfig)
    """What stands around the target."""

    @property
    @abstractmethod
    def match(self) -> MatchConfig:
        """The same as a match, whose judge is found."""


@dataclass(frozen=True, kw_only=True)
class MatchConfig(OneMatchConfig):
    """Who plays whom, on which scenarios."""

    adversary: str
    """Agent on side 0: run or checkpoint folder, registered name, path/file.py:Name, or a chat model (hf:, gguf:, openai:)."""
    target: str
    """Agent on side 1."""
    complementary: bool = False
    """The target alone chooses and the adversary is given the complement (the attacks' rule)."""
    first: NonNegativeInt = 0
    """Number of the first dialogue, which says its scenario and its draws; those before it are left out."""
    max_turns: PositiveInt = 20
    """Utterances after which the end of a dialogue is forced."""
    tactic: str = ""
    """What a chat model on side 0 is told beside the rules."""

    @property
    def match(self) -> MatchConfig:
        return replace(self, judge=judge_of(self.judge, (self.target, self.adversary)))


OneMatchConfigT = TypeVar("OneMatchConfigT", bound=OneMatchConfig)
SHARDS = 64
"""Shards of a match at least, where they are not too small."""


@dataclass(frozen=True)
class Roster(Sharded[Scenario]):
    """The agents of a match, made afresh in each worker from their names; attacks with agents of their own extend it.

    Attributes:
        side_by_side: dialogues of a shard for few workers, at least and at most: fewer cost time, more are lost by a kill.
        side_by_side_chats: the same where a chat model takes part, whose dialogues take long.

    Args:
        config: who plays whom.
        answers: folder of the run in which chat models' answers are kept; None keeps none.
    """

    unit = "dialogues"
    event = "played"
    side_by_side: ClassVar[tuple[int, int]] = (16, 250)
    side_by_side_chats: ClassVar[tuple[int, int]] = (8, 32)

    config: MatchConfig
    answers: Path | None = field(default=None, kw_only=True)

    @property
    def computes(self) -> bool:
        """Not so of scripted agents and people that nobody judges."""
        return bool(self.config.judge) or not {self.config.adversary, self.config.target} <= set(BUILT_IN)

    def seed(self, key: str) -> int:
        return dialogue_seed(self.config.seed, key)

    def worker(self) -> MatchWorker:
        return MatchWorker(self)

    def checkpoints(self) -> tuple[str, ...]:
        named = self.config.adversary, self.config.target, self.config.judge
        return tuple(spec for spec in named if not is_chat_address(spec))

    def shard_size(self, num_items: int, num_workers: int) -> int:
        """The same for any number of workers that find two shards each; a person talks to one partner at a time."""
        if people(self.config):
            return 1
        least, most = self.side_by_side_chats if self.chats else self.side_by_side
        alike = max(least, min(most, num_items // SHARDS))
        return alike if num_workers <= max(1, num_items // (2 * alike)) else spread(num_items, num_workers, alike)

    def digest(self, rows: Rows) -> Counts:
        played = [row for row in rows if row["status"] == OK]
        return Counter(dialogues=len(played), candidates=sum(row.get("reads", 0) for row in played))

    def check(self) -> None:
        """Finds out before a run is made whether there are agents and scenarios to play.

        Raises:
            ConfigError: an agent or scenarios are not there, or cannot sit where they are wanted.
            CheckpointError: a checkpoint is damaged or of another kind.
            DataError: a file of scenarios or a corpus is missing or broken.
        """
        self.config.require_device()
        # Actors load what they play with; here it is loaded once, and told before there is a run what is wrong with it.
        agents = self.agents("cpu" if self.config.workers else self.config.device)
        if self.config.tactic and not isinstance(agents[0], ChatNegotiator):
            fix = "name one with --adversary: hf:FOLDER, gguf:FILE, openai:URL#MODEL, or a class of your own"
            raise ConfigError("a tactic is told to a chat model", where=self.config.adversary, got="another agent", fix=fix)
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
        speakers = [getattr(agent, "speaker", agent) for agent in agents]
        if not self.config.workers:
            for speaker in speakers:
                _ = speaker.model if isinstance(speaker, ChatNegotiator) else None

    def agents(self, device: str = "cpu") -> tuple[Agent, Agent]:
        """The adversary and the target, with its defences; models compute on the device."""
        config, words = self.config, self._words()
        told = ((config.adversary, config.tactic), (config.target, ""))
        adversary, target = (
            make_agent(spec, words, config.temperature, device, seat=config.chat, tactic=tactic, answers=self.answers)
            for spec, tactic in told
        )
        return adversary, defend(target, config.defence, config.judge, device, config.chat)

    @property
    def adversary_words(self) -> Vocabulary:
        """What the adversary can say."""
        return vocabulary_of(self.config.adversary) or self._words()

    @property
    def chats(self) -> bool:
        """Whether a chat model takes part."""
        return any(map(is_chat_model, (self.config.adversary, self.config.target)))

    @property
    def game(self) -> str:
        """What is negotiated about, where the scenarios do not say it."""
        return self._words().game

    def _words(self) -> Vocabulary:
        """Of agents that bring none along."""
        return words_of(self.checkpoints(), game_of(self.config.scenarios))


class MatchWorker:
    """Plays shards of dialogues and returns their rows."""

    def __init__(self, roster: Roster) -> None:
        self.config = roster.config
        self.agents = roster.agents(self.config.device)
        judge, seat = self.config.judge, self.config.chat
        self.judge = load_judge(judge, self.config.device, seat) if judge else None
        self._lost: dict[str, dict[str, Any]] = {}

    def run(self, shard: Shard[Scenario]) -> list[dict[str, Any]]:
        """One row per dialogue, by the schema of the roster."""
        played, lost = play_apart(self._play, list(zip(shard.keys, shard.items, strict=True)))
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
            # The answers that were given in a dialogue count, also where it came to no end.
            for row in error.rows or (range(1) if len(keys) == 1 else ()):
                self._lost[keys[row]] = _chat_columns(sessions, len(keys))[row]
            raise
        if seats := people(self.config):
            tell_outcome(played, seats)
        return self.rows(played, sessions, keys)

    def deal(self, keys: Sequence[str], scenarios: Sequence[Scenario]) -> NegotiationGame:
        """Dialogues that have not yet begun."""
        seeds = [dialogue_seed(self.config.seed, key) for key in keys]
        rules = Rules(max_turns=self.config.max_turns, complementary=self.config.complementary)
        adversary, target = self.agents
        vocabularies = adversary.vocabulary, target.vocabulary
        return NegotiationGame(scenarios, seeds, vocabularies, rules, self.first_speakers(len(seeds)))

    def first_speakers(self, count: int) -> list[int] | None:
        """Who begins each dialogue; None for a fair coin."""
        return None

    def rows(self, game: NegotiationGame, sessions: tuple[Session, Session], keys: Sequence[str]) -> list[dict[str, Any]]:
        """The finished dialogues as rows (`parley.engine.negotiation.verbs.rows.DIALOGUES`)."""
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
    """The sides on which a person sits at the terminal."""
    return [side for side, agent in enumerate((config.adversary, config.target)) if agent == HUMAN]


def dialogue_seed(seed: int, key: str) -> int:
    """The seed of a dialogue, by the master seed and its key."""
    return derive_seed(seed, "dialogue", key)


def seconds_per_dialogue(run: RunFolder) -> Estimate:
    """Seconds that a worker spent on a dialogue, its start included, over all sessions that came to their end."""
    played = ended_sessions(run, Roster.event, Roster.unit)
    dialogues = sum(event["dialogues"] for event in played)
    return count(sum(event["seconds"] * event["workers"] for event in played) / dialogues, dialogues) if played else NOTHING


class MatchJob(Job[OneMatchConfigT, Roster, Roster]):
    """A job whose rows are the dialogues of a match; attacks extend it.

    Attributes:
        adversary: the setting that names who plays on side 0.
    """

    adversary: ClassVar[str] = "adversary"
    schema = DIALOGUES
    legend = METRICS | CHAT_METRICS | DEFENCE_METRICS
    files = (SUMMARY, "rows")
    resume_safe = RESUME_SAFE

    @abstractmethod
    def title(self, match: MatchConfig) -> str:
        """Heading of the result."""

    def roster(self, config: OneMatchConfigT, reporter: Reporter) -> Roster:
        """Who plays."""
        return Roster(config.match)

    def metrics(self, run: RunFolder) -> dict[str, Estimate]:
        """The metrics of a run whose dialogues have all been played."""
        rows = run.read_rows().to_pylist()
        return negotiation_metrics(rows) | chat_metrics(rows) | defence_metrics(rows)

    def prepare(self, config: OneMatchConfigT, path: Path, reporter: Reporter) -> Roster:
        roster = self.roster(config, reporter)
        roster.check()
        return roster

    def work(self, run: RunFolder, prepared: Roster, reporter: Reporter) -> Roster:
        match = prepared.config
        if not match.judge:
            reporter.say(NOBODY_JUDGES)
        playing = replace(prepared, answers=run.path / ANSWERS_FOLDER) if prepared.chats else prepared
        work_off(run, playing, match_scenarios(match, prepared.game), match, reporter, self.title(match))
        return prepared

    def measure(self, run: RunFolder, found: Roster) -> Summary:
        match = found.config
        chooses = "; the target alone chooses" if match.complementary else ""
        distinct = num_distinct(match_scenarios(match, found.game))
        description = f"{match.dialogues} dialogues on {match.scenarios} scenarios ({distinct}), seed {match.seed}{chooses}"
        return Summary(self.title(match), f"{description}; {who_judges(match.judge)}.", self.metrics(run))

    def models(self, config: OneMatchConfigT) -> dict[str, str]:
        match = config.match
        return {self.adversary: match.adversary, "target": match.target, "judge": match.judge}

    def num_rows(self, config: OneMatchConfigT, path: Path) -> int:
        return config.dialogues


def scripted() -> MatchConfig:
    """A fair scripted bargainer against a tough one; needs no training."""
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
