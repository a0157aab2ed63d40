"""Attacks on a negotiation agent as matches: `parley attack rl`, `transfer`, `reactive`, `preemptive`, `ra-pa-da`, `ra-pa-ta`.

All are those of Cheng et al. 2019, under the complementary rule. `rl` plays a trained adversary; `transfer` plays an ordinary
speaker that plugs in sentences which won elsewhere. In the white-box attacks the adversary reads the target's networks and
searches its sentences. A dialogue is played live; the row also holds the outcome in the paper's protocol, in which the target
has to end the talk where the attack's constraint holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import numpy as np

from parley.engine.core.runs.documents import CONFIG
from parley.engine.core.runs.remote_sync import fetched_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.verbs.job import Reporter, Summary
from parley.engine.negotiation.attacks.settings import FIXED_TURN_KINDS, AttackKind, SearchConfig
from parley.engine.negotiation.attacks.tactics import (
    PAPER_SENTENCE,
    PAPER_TURN,
    TransferAgent,
    encode_sentence,
    last_sentences,
    unspeakable_words,
)
from parley.engine.negotiation.metrics.attack import ATTACK_METRICS, attack_metrics
from parley.engine.negotiation.metrics.dialogues import DEFENCE_METRICS, defence_metrics
from parley.engine.negotiation.verbs.agents import make_agent, require_negotiator, require_partner, shared_vocabulary
from parley.engine.negotiation.verbs.defended import perplexity_filter
from parley.engine.negotiation.verbs.match import (
    ATTACKS,
    MatchConfig,
    MatchJob,
    MatchWorker,
    OneMatchConfig,
    Roster,
    seconds_per_dialogue,
)
from parley.envs.core.config import Configuration, NonNegativeInt, check, shared
from parley.envs.core.errors import ConfigError, NothingToMeasureError, RunError
from parley.envs.core.play import Session
from parley.envs.negotiation.domain import Vocabulary
from parley.envs.negotiation.game import Agent, NegotiationGame

if TYPE_CHECKING:
    from parley.engine.negotiation.attacks.adversary import AttackLog, Attempt
    from parley.engine.negotiation.attacks.replacement import ReplacementStep


_NAME_ONE = '--set transfer.source=RUN (an attack rl run) or --set "transfer.sentence=TEXT"'
_MAKE_ONE = "parley attack rl makes runs/attack-rl; or --set transfer.source=RUN, or the preset fixed: one sentence for all"
_EMPTY_ONE = "add --set transfer.source= to keep the sentence, or --set transfer.sentence= to keep the source; presets name one"


@dataclass(frozen=True, kw_only=True)
class AttackConfig(OneMatchConfig):
    """Settings of an attack: the target and the speaker of the attacker."""

    target: str = "runs/negotiator"
    """The attacked agent: run or checkpoint folder, or any agent's name."""
    speaker: str = "runs/adversary"
    """Agent of the attacker: the trained adversary (rl), or the agent that sentences are plugged into (transfer)."""

    @property
    def match(self) -> MatchConfig:
        return MatchConfig(adversary=self.speaker, target=self.target, complementary=True, **shared(self, OneMatchConfig)).match


AttackConfigT = TypeVar("AttackConfigT", bound=AttackConfig)


@dataclass(frozen=True, kw_only=True)
class TransferSettings(Configuration):
    """Settings of plugged-in sentences: their source and their turn."""

    topic: ClassVar[str] = "attack transfer"

    source: str = ""
    """Run of an attack whose adversary's last sentences are collected."""
    sentence: str = ""
    """One fixed sentence instead, words separated by blanks."""
    min_advantage: int = 4
    """Points by which a collected sentence's adversary must have won."""
    turn: NonNegativeInt = PAPER_TURN
    """Least number of utterances before the sentence."""

    max_sentences: ClassVar[int] = 100
    """Keep at most this many collected sentences, the most frequent ones.
    Adversaries repeat few sentences, so that no more are worth a try."""


@dataclass(frozen=True, kw_only=True)
class TransferConfig(AttackConfig):
    """Settings of the transfer attack."""

    transfer: TransferSettings = field(default_factory=TransferSettings)
    """Sentences to plug in."""


@dataclass(frozen=True)
class TransferRoster(Roster):
    """A match whose adversary plugs in sentences.

    Args:
        sentences: the sentences to plug in.
        turn: least number of utterances before a sentence.
    """

    sentences: tuple[str, ...]
    turn: int

    def agents(self, device: str = "cpu") -> tuple[Agent, Agent]:
        speaker, target = super().agents(device)
        return TransferAgent(speaker, self.sentences, self.turn), target


def transfer_sentences(settings: TransferSettings, words: Vocabulary, reporter: Reporter) -> tuple[str, ...]:
    """Return the sentences of a transfer attack; of a source, those that its speaker can say.

    Args:
        settings: the source of the sentences.
        words: the vocabulary of the speaker.
        reporter: reports progress.

    Raises:
        ConfigError: no source is named, or two (a preset may have named one of them).
        NothingToMeasureError: no dialogue of the source was won by enough points, or the speaker can say no sentence of them.
        RunError: the source is no run.
    """
    if bool(settings.source) == bool(settings.sentence):
        raise ConfigError(
            "the transfer attack needs one source of sentences",
            got=f"source {settings.source!r}, sentence {settings.sentence!r}",
            fix=_EMPTY_ONE if settings.source else _NAME_ONE,
        )
    if settings.sentence:
        sentences = [settings.sentence]
    else:
        source = fetched_run(settings.source)
        if not (source / CONFIG).is_file():
            what = "there is no run here to take sentences from (transfer.source)"
            raise RunError(what, where=settings.source, fix=_MAKE_ONE)
        rows = RunFolder.load(source).rows()
        collected = last_sentences(rows, settings.min_advantage, len(rows))
        sentences = [sentence for sentence in collected if not unspeakable_words(sentence, words)]
        if collected and not sentences:
            raise NothingToMeasureError(
                f"no sentence that won in {settings.source} is in words that the speaker knows",
                got=", ".join(unspeakable_words(collected[0], words)),
                fix="name another speaker, or the run of an attack by an adversary of its corpus",
            )
        if left := len(collected) - len(sentences):
            reporter.say(f"left out: {left} of {len(collected)} sentences, in words that the speaker does not know")
        sentences = sentences[: settings.max_sentences]
    suffix = f", and {len(sentences) - 1} less frequent" if len(sentences) > 1 else ""
    reporter.say(f"to plug in: {sentences[0] if sentences else '(none)'}{suffix}")
    if not sentences:
        points = f"{settings.min_advantage} point{'s' * (settings.min_advantage != 1)}"
        raise NothingToMeasureError(
            f"no dialogue of {settings.source} was won by {points} or more",
            got="no sentence to plug in",
            fix="lower transfer.min_advantage, or name the run of a stronger attack",
        )
    return tuple(sentences)


def transfer_from_rl() -> TransferConfig:
    """Collect the sentences of an RL attack's best dialogues (Cheng et al. 2019, section 4.2)."""
    return TransferConfig(speaker="runs/negotiator", transfer=TransferSettings(source="runs/attack-rl"))


def fixed_sentence() -> TransferConfig:
    """Use the one fixed sentence of the released code, which an RL attack says in section 7.2 of Cheng et al. 2019."""
    return TransferConfig(speaker="runs/negotiator", transfer=TransferSettings(sentence=PAPER_SENTENCE))


def learned() -> AttackConfig:
    """Use an adversary trained with parley train adversary (Cheng et al. 2019, section 4.1)."""
    return AttackConfig()


class AttackJob(MatchJob[AttackConfigT]):
    """A match that is an attack."""

    adversary = "speaker"
    kind: str

    def title(self, match: MatchConfig) -> str:
        return f"{self.kind} attack on {match.target}"


class AttackRL(AttackJob[AttackConfig]):
    """`parley attack rl`."""

    words = ("attack", "rl")
    run_name = "attack-rl"
    config = AttackConfig
    presets = {"cheng2019": learned}
    kind = "RL"

    def roster(self, config: AttackConfig, reporter: Reporter) -> Roster:
        """Check the trained adversary, or any other agent, and return the players."""
        require_partner(config.speaker, "--speaker")
        return super().roster(config, reporter)


class AttackTransfer(AttackJob[TransferConfig]):
    """`parley attack transfer`."""

    words = ("attack", "transfer")
    run_name = "attack-transfer"
    config = TransferConfig
    presets = {"cheng2019": transfer_from_rl, "fixed": fixed_sentence}
    kind = "transfer"

    def roster(self, config: TransferConfig, reporter: Reporter) -> Roster:
        words = Roster(config.match).adversary_words
        return TransferRoster(config.match, transfer_sentences(config.transfer, words, reporter), config.transfer.turn)


ATTACK_RL, ATTACK_TRANSFER = AttackRL(), AttackTransfer()


REACTIVE: AttackKind = "reactive"
PREEMPTIVE: AttackKind = "preemptive"
RA_PA_DA: AttackKind = "ra-pa-da"
RA_PA_TA: AttackKind = "ra-pa-ta"
FIXED_TURN = 2
"""Utterances before the sentence of a reactive or preemptive attack in the released code."""
COMBINED_MAX_TURNS = 7
"""Utterances of a combined attack before the end is forced, in the released code."""


@dataclass(frozen=True, kw_only=True)
class WhiteBoxAttackConfig(AttackConfig):
    """Settings of a white-box attack, whose target and speaker are checkpoints."""

    target: str = "runs/negotiator"
    """Checkpoint of the attacked agent."""
    speaker: str = "runs/negotiator"
    """Checkpoint that writes the sentences in which words are replaced."""
    surrogate: str = ""
    """Checkpoint that the attack reads instead of the target (a transferred attack); the target itself when empty."""
    max_turns: int = 20
    """Utterances after which the end of a dialogue is forced."""
    search: SearchConfig = field(default_factory=SearchConfig)
    """Settings of the search for words."""

    @property
    def match(self) -> MatchConfig:
        return replace(super().match, max_turns=self.max_turns)


@dataclass(frozen=True, kw_only=True)
class FixedTurnConfig(WhiteBoxAttackConfig):
    """Settings of a white-box attack with one sentence."""

    turn: int = FIXED_TURN
    """Utterances before the attack's sentence, which decides who begins."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "turn", 0 <= self.turn < self.max_turns, "at least 0, below max_turns")


@dataclass(frozen=True, kw_only=True)
class PlugInConfig(WhiteBoxAttackConfig):
    """Settings of a white-box attack that says a sentence from elsewhere if its searches fail."""

    transfer: TransferSettings = field(default_factory=TransferSettings)
    """Sentences to plug in."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "transfer", self.transfer.turn < self.max_turns, "with a turn below max_turns")


WhiteBoxAttackConfigT = TypeVar("WhiteBoxAttackConfigT", bound=WhiteBoxAttackConfig)


@dataclass(frozen=True)
class SearchRoster(Roster):
    """A match whose adversary searches.

    Args:
        kind: the attack.
        search: the settings of the search.
        surrogate: checkpoint that the attack reads instead of the target; empty for the target.
        turn: utterances before the sentence of a fixed-turn attack.
        sentences: sentences that ra-pa-ta plugs in.
        transfer_turn: least number of utterances before such a sentence.
    """

    side_by_side: ClassVar[tuple[int, int]] = (4, 25)

    kind: AttackKind
    search: SearchConfig
    surrogate: str = ""
    turn: int = FIXED_TURN
    sentences: tuple[str, ...] = ()
    transfer_turn: int = 0

    def check(self) -> None:
        """Check the match, and that both sides, the surrogate and the judge are models of one vocabulary."""
        require_negotiator(self.config.target, "--target")
        require_negotiator(self.config.adversary, "--speaker")
        models = {"the surrogate": self.surrogate, "the judge": self.config.judge}
        if self.surrogate:
            require_negotiator(self.surrogate, "--surrogate")
        sides = {"the adversary": self.config.adversary, "the target": self.config.target}
        shared_vocabulary(sides | {who: spec for who, spec in models.items() if spec})
        super().check()

    def checkpoints(self) -> tuple[str, ...]:
        return (*super().checkpoints(), self.surrogate)

    def agents(self, device: str = "cpu") -> tuple[Agent, Agent]:
        from parley.engine.negotiation.attacks.adversary import SearchAgent
        from parley.engine.negotiation.defences import DefendedAgent
        from parley.policies.negotiator.speaker import NegotiatorAgent

        speaker, target = super().agents(device)
        read = target.agent if isinstance(target, DefendedAgent) else target
        if self.surrogate:
            read = make_agent(self.surrogate, read.vocabulary, self.config.temperature, device)
        assert isinstance(speaker, NegotiatorAgent)
        assert isinstance(read, NegotiatorAgent)
        sentences = [encode_sentence(sentence, speaker.vocabulary) for sentence in self.sentences]
        limit = self.search.max_perplexity
        how = read.vocabulary, device, self.config.chat
        fluency = perplexity_filter(self.config.judge, limit, *how) if limit else None
        # An attack under a limit also knows the words that the filter hides from the target.
        known_filter = target.perplexity_filter if limit and isinstance(target, DefendedAgent) else None
        plugged = (sentences, self.transfer_turn)
        adversary = SearchAgent(
            speaker, read, self.kind, self.search, self.turn, *plugged, fluency=fluency, target_filter=known_filter
        )
        return adversary, target

    def worker(self) -> AttackWorker:
        return AttackWorker(self)


class AttackWorker(MatchWorker):
    """A worker that plays shards of attacked dialogues; its rows have the schema `ATTACKS`."""

    def __init__(self, roster: SearchRoster) -> None:
        super().__init__(roster)
        self.turn = roster.turn if roster.kind in FIXED_TURN_KINDS else None
        self.minds_limit = roster.search.max_perplexity > 0
        # A target is not forced by a search on a surrogate, nor is a defended one, which may not hear the sentence.
        self.forces = not (roster.surrogate or self.config.defence.wanted)

    def first_speakers(self, count: int) -> list[int] | None:
        """Return the side that begins: at a fixed even turn the adversary, at an odd one the target."""
        return None if self.turn is None else [self.turn % 2] * count

    def rows(self, game: NegotiationGame, sessions: tuple[Session, Session], keys: Sequence[str]) -> list[dict[str, Any]]:
        rows = super().rows(game, sessions, keys)
        logs: list[AttackLog] = sessions[0].logs  # type: ignore[attr-defined]  # the adversary is a SearchAgent
        for number, (row, log) in enumerate(zip(rows, logs, strict=True)):
            forced = log.forced_points if self.forces else None
            adversary, target = forced or (row["points_adversary"], row["points_target"])
            row |= {
                "forced_points_adversary": adversary,
                "forced_points_target": target,
                "forced_agreed": row["agreed"] if forced is None else adversary + target > 0,
                "reads": log.reads,
                "decisions": log.decisions,
                "attempts": [_attempt_row(game, number, attempt) for attempt in log.attempts],
                "kept_out": log.kept_out if self.minds_limit else None,
            }
        self._score(game, rows, logs)
        return rows

    def _score(self, game: NegotiationGame, rows: list[dict[str, Any]], logs: Sequence[AttackLog]) -> None:
        """Fill in the judge's likelihoods of the sentences and of their base sentences."""
        attempts = [(row, attempt) for row, log in enumerate(logs) for attempt in log.attempts]
        if self.judge is None or not attempts:
            return
        index, made = [row for row, _ in attempts], [attempt for _, attempt in attempts]
        judged = self.judge.sentences(game, index, made, [attempt.sentence for attempt in made])
        bases = self.judge.sentences(game, index, made, [attempt.base for attempt in made])
        entries = [entry for row in rows for entry in row["attempts"]]
        for entry, sentence, base in zip(entries, judged, bases, strict=True):
            entry |= {"nll": sentence.nats, "nll_base": base.nats, "lowest_probability": sentence.lowest_probability}


def _attempt_row(game: NegotiationGame, row: int, attempt: Attempt) -> dict[str, Any]:
    from parley.engine.negotiation.attacks.candidates import special_words

    transcript = game.transcript(row)
    answers = transcript[attempt.turn + 1 : attempt.turn + 2]
    result = attempt.result
    return {
        "turn": attempt.turn,
        "kind": attempt.kind,
        "accepted": result is not None and result.reached,
        "base": " ".join(game.written(0, attempt.base.tolist())),
        "replaced": attempt.replaced,
        "end_probability": result.end_probability if result and attempt.kind == REACTIVE else None,
        "ended": answers == [(1, ["<selection>"])] and not (game.forced[row] and len(transcript) == attempt.turn + 2),
        "num_words": len(attempt.sentence),
        "nll": None,
        "nll_base": None,
        "num_words_base": len(attempt.base),
        "lowest_probability": None,
        "special": int(np.isin(attempt.sentence, special_words(game.vocabulary)).sum()),
        "steps": [] if attempt.kind != REACTIVE or result is None else list(_step_rows(result.steps)),
    }


def _step_rows(steps: Iterable[ReplacementStep]) -> Iterator[dict[str, Any]]:
    for number, step in enumerate(steps):
        yield {
            "replaced": number,
            "reads": step.reads,
            "decisions": step.decisions,
            "feasible": not step.broken,
            "points_adversary": int(step.points[0]),
            "points_target": int(step.points[1]),
        }


def at_fixed_turn() -> FixedTurnConfig:
    """Use the paper's rule: the position by padding out, then every word; two words, the end as a hard constraint."""
    return FixedTurnConfig()


def released() -> FixedTurnConfig:
    """Use the released code's rule: every word everywhere, special tokens too, its loss with a soft penalty for the end."""
    return FixedTurnConfig(
        search=SearchConfig(
            loss="released",
            constraint="soft",
            proposals="exhaustive",
            allow_special=True,
            max_replacements=100,
            goal=3,
            stop_at_goal=True,
        )
    )


def decision_based() -> FixedTurnConfig:
    """Ask the target's network, without scores or gradients, if ending is its likeliest answer and what it would choose.

    This is no black box: a real talk shows one sampled answer, here each candidate is tried on the same dialogue.
    """
    return FixedTurnConfig(search=SearchConfig(loss="outcome", proposals="random"))


def at_any_turn() -> WhiteBoxAttackConfig:
    """Run algorithm 1 of the paper, with the goals and the length of the released code."""
    return WhiteBoxAttackConfig(max_turns=COMBINED_MAX_TURNS, search=SearchConfig(stop_at_goal=True))


def at_any_turn_or_plugged_in() -> PlugInConfig:
    """Run algorithm 1 with the released code's fixed sentence where both searches fail."""
    shared = at_any_turn()
    fixed = TransferSettings(sentence=PAPER_SENTENCE)
    return PlugInConfig(max_turns=shared.max_turns, search=shared.search, transfer=fixed)


class WhiteBoxJob(AttackJob[WhiteBoxAttackConfigT]):
    """An attack whose adversary searches."""

    kind: AttackKind
    schema = ATTACKS
    legend = ATTACK_METRICS | DEFENCE_METRICS

    def roster(self, config: WhiteBoxAttackConfigT, reporter: Reporter) -> SearchRoster:
        return SearchRoster(config.match, self.kind, config.search, config.surrogate)

    def models(self, config: WhiteBoxAttackConfigT) -> dict[str, str]:
        return super().models(config) | {"surrogate": config.surrogate}

    def measure(self, run: RunFolder, roster: Roster) -> Summary:
        summary, surrogate = super().measure(run, roster), cast("SearchRoster", roster).surrogate
        return replace(summary, title=f"{summary.title}, searched on {surrogate}") if surrogate else summary

    def metrics(self, run: RunFolder) -> dict[str, Estimate]:
        rows = run.rows()
        return attack_metrics(rows, seconds_per_dialogue(run)) | defence_metrics(rows)


class AttackReactive(WhiteBoxJob[FixedTurnConfig]):
    """`parley attack reactive`."""

    words = ("attack", "reactive")
    run_name = "attack-reactive"
    config = FixedTurnConfig
    presets = {"cheng2019": at_fixed_turn, "released": released, "decision-based": decision_based}
    kind = REACTIVE

    def roster(self, config: FixedTurnConfig, reporter: Reporter) -> SearchRoster:
        return replace(super().roster(config, reporter), turn=config.turn)


class AttackPreemptive(AttackReactive):
    """`parley attack preemptive`."""

    words = ("attack", "preemptive")
    run_name = "attack-preemptive"
    presets = {"cheng2019": at_fixed_turn}
    kind = PREEMPTIVE


class AttackRaPaDa(WhiteBoxJob[WhiteBoxAttackConfig]):
    """`parley attack ra-pa-da`."""

    words = ("attack", "ra-pa-da")
    run_name = "attack-ra-pa-da"
    config = WhiteBoxAttackConfig
    presets = {"cheng2019": at_any_turn}
    kind = RA_PA_DA


class AttackRaPaTa(WhiteBoxJob[PlugInConfig]):
    """`parley attack ra-pa-ta`."""

    words = ("attack", "ra-pa-ta")
    run_name = "attack-ra-pa-ta"
    config = PlugInConfig
    presets = {"cheng2019": at_any_turn_or_plugged_in}
    kind = RA_PA_TA

    def roster(self, config: PlugInConfig, reporter: Reporter) -> SearchRoster:
        roster = super().roster(config, reporter)
        sentences = transfer_sentences(config.transfer, roster.adversary_words, reporter)
        return replace(roster, sentences=sentences, transfer_turn=config.transfer.turn)


ATTACK_REACTIVE, ATTACK_PREEMPTIVE = AttackReactive(), AttackPreemptive()
ATTACK_RA_PA_DA, ATTACK_RA_PA_TA = AttackRaPaDa(), AttackRaPaTa()
JOBS: dict[AttackKind, WhiteBoxJob[Any]] = {
    job.kind: job for job in (ATTACK_REACTIVE, ATTACK_PREEMPTIVE, ATTACK_RA_PA_DA, ATTACK_RA_PA_TA)
}
