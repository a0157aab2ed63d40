"""White-box attacks on a negotiation agent: `parley attack reactive`, `preemptive`, `ra-pa-da`, `ra-pa-ta` (Cheng et al. 2019).

Matches whose adversary reads its target's networks and searches for what to say. A dialogue is played live; beside its
outcome stands the paper's protocol, in which the target has to end the talk where the attack's constraint holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import numpy as np

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.verbs.job import Reporter, Summary
from parley.engine.negotiation.attacks.settings import FIXED_TURN_KINDS, AttackKind, SearchConfig
from parley.engine.negotiation.attacks.transfer import PAPER_SENTENCE, encode_sentence
from parley.engine.negotiation.metrics.attack import ATTACK_METRICS, attack_metrics
from parley.engine.negotiation.metrics.defences import DEFENCE_METRICS, defence_metrics
from parley.engine.negotiation.verbs.agents import make_agent, require_negotiator, shared_vocabulary
from parley.engine.negotiation.verbs.attack import AttackConfig, AttackJob, TransferSettings, transfer_sentences
from parley.engine.negotiation.verbs.defended import perplexity_filter
from parley.engine.negotiation.verbs.match import MatchConfig, MatchWorker, Roster, seconds_per_dialogue
from parley.engine.negotiation.verbs.rows import ATTACKS
from parley.envs.core.config import check
from parley.envs.core.play import Session
from parley.envs.negotiation.game import Agent, NegotiationGame

if TYPE_CHECKING:
    from parley.engine.negotiation.attacks.adversary import AttackLog, Attempt
    from parley.engine.negotiation.attacks.replacement import ReplacementStep

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
    """A white-box attack: the target and the speaker are checkpoints."""

    target: str = "runs/negotiator"
    """Checkpoint of the attacked agent."""
    speaker: str = "runs/negotiator"
    """Checkpoint that makes the sentences in which words are replaced."""
    surrogate: str = ""
    """Checkpoint that is read in the target's stead (a transferred attack); the target itself when empty."""
    max_turns: int = 20
    """Utterances after which the end of a dialogue is forced."""
    search: SearchConfig = field(default_factory=SearchConfig)
    """How words are searched."""

    @property
    def match(self) -> MatchConfig:
        return replace(super().match, max_turns=self.max_turns)


@dataclass(frozen=True, kw_only=True)
class FixedTurnConfig(WhiteBoxAttackConfig):
    """A white-box attack with one sentence."""

    turn: int = FIXED_TURN
    """Utterances before the attack's sentence, which decides who begins."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "turn", 0 <= self.turn < self.max_turns, "at least 0, below max_turns")


@dataclass(frozen=True, kw_only=True)
class PlugInConfig(WhiteBoxAttackConfig):
    """A white-box attack that says a sentence which won elsewhere where its searches fail."""

    transfer: TransferSettings = field(default_factory=TransferSettings)
    """What is plugged in."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "transfer", self.transfer.turn < self.max_turns, "with a turn below max_turns")


WhiteBoxAttackConfigT = TypeVar("WhiteBoxAttackConfigT", bound=WhiteBoxAttackConfig)


@dataclass(frozen=True)
class SearchRoster(Roster):
    """A match whose adversary searches.

    Args:
        kind: which attack.
        search: how it searches.
        surrogate: who is read in the target's stead; empty for the target.
        turn: utterances before the sentence of a fixed-turn attack.
        sentences: what ra-pa-ta plugs in.
        transfer_turn: utterances that must be behind such a sentence.
    """

    side_by_side: ClassVar[tuple[int, int]] = (4, 25)

    kind: AttackKind
    search: SearchConfig
    surrogate: str = ""
    turn: int = FIXED_TURN
    sentences: tuple[str, ...] = ()
    transfer_turn: int = 0

    def check(self) -> None:
        """As in a match; both sides, who is read and who judges must be models of one vocabulary."""
        require_negotiator(self.config.target, "--target")
        require_negotiator(self.config.adversary, "--speaker")
        others = {"the surrogate": self.surrogate, "the judge": self.config.judge}
        if self.surrogate:
            require_negotiator(self.surrogate, "--surrogate")
        sides = {"the adversary": self.config.adversary, "the target": self.config.target}
        shared_vocabulary(sides | {who: spec for who, spec in others.items() if spec})
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
        # Who minds a limit knows what a filter has kept from the target, too.
        ears = target.ears if limit and isinstance(target, DefendedAgent) else None
        plugged = (sentences, self.transfer_turn)
        adversary = SearchAgent(speaker, read, self.kind, self.search, self.turn, *plugged, fluency=fluency, ears=ears)
        return adversary, target

    def worker(self) -> AttackWorker:
        return AttackWorker(self)


class AttackWorker(MatchWorker):
    """Plays shards of attacked dialogues; rows by `parley.engine.negotiation.verbs.rows.ATTACKS`."""

    def __init__(self, roster: SearchRoster) -> None:
        super().__init__(roster)
        self.turn = roster.turn if roster.kind in FIXED_TURN_KINDS else None
        self.minds_limit = roster.search.max_perplexity > 0
        # Nobody is forced to what was found on another, and no defended target: what it does not hear moves it to nothing.
        self.forces = not (roster.surrogate or self.config.defence.wanted)

    def first_speakers(self, count: int) -> list[int] | None:
        """Who begins: at a fixed turn the adversary speaks, so it begins where that turn is even."""
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
        """Fills in how likely the judge finds the sentences, and those that would have been said."""
        attempts = [(row, attempt) for row, log in enumerate(logs) for attempt in log.attempts]
        if self.judge is None or not attempts:
            return
        index, made = [row for row, _ in attempts], [attempt for _, attempt in attempts]
        said = self.judge.sentences(game, index, made, [attempt.sentence for attempt in made])
        bases = self.judge.sentences(game, index, made, [attempt.base for attempt in made])
        entries = [entry for row in rows for entry in row["attempts"]]
        for entry, own, base in zip(entries, said, bases, strict=True):
            entry |= {"nll": own.nats, "nll_base": base.nats, "lowest_probability": own.lowest_probability}


def _attempt_row(game: NegotiationGame, row: int, attempt: Attempt) -> dict[str, Any]:
    from parley.engine.negotiation.attacks.candidates import special_words

    transcript = game.transcript(row)
    answers = transcript[attempt.turn + 1 : attempt.turn + 2]
    found = attempt.found
    return {
        "turn": attempt.turn,
        "kind": attempt.kind,
        "accepted": found is not None and found.reached,
        "base": " ".join(game.written(0, attempt.base.tolist())),
        "replaced": attempt.replaced,
        "end_probability": found.end_probability if found and attempt.kind == REACTIVE else None,
        "ended": answers == [(1, ["<selection>"])] and not (game.forced[row] and len(transcript) == attempt.turn + 2),
        "num_words": len(attempt.sentence),
        "nll": None,
        "nll_base": None,
        "num_words_base": len(attempt.base),
        "lowest_probability": None,
        "special": int(np.isin(attempt.sentence, special_words(game.vocabulary)).sum()),
        "steps": [] if attempt.kind != REACTIVE or found is None else list(_step_rows(found.steps)),
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
    """The paper's rule: the position by padding out, then every word; two words, the end as a hard constraint."""
    return FixedTurnConfig()


def released() -> FixedTurnConfig:
    """The released code: every word everywhere, special tokens too, its loss with a soft penalty for the end."""
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
    """No scores and no gradient: asks the target's network whether ending is its likeliest answer, and what it would choose.

    Not a black box: a talk shows a sampled answer and cannot be taken back, here each candidate is tried on the same dialogue.
    """
    return FixedTurnConfig(search=SearchConfig(loss="outcome", proposals="random"))


def at_any_turn() -> WhiteBoxAttackConfig:
    """Algorithm 1 of the paper, with the goals and the length of the released code."""
    return WhiteBoxAttackConfig(max_turns=COMBINED_MAX_TURNS, search=SearchConfig(stop_at_goal=True))


def at_any_turn_or_plugged_in() -> PlugInConfig:
    """Algorithm 1 with the released code's fixed sentence where both searches fail."""
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

    def measure(self, run: RunFolder, found: Roster) -> Summary:
        told, surrogate = super().measure(run, found), cast("SearchRoster", found).surrogate
        return replace(told, title=f"{told.title}, searched on {surrogate}") if surrogate else told

    def metrics(self, run: RunFolder) -> dict[str, Estimate]:
        rows = run.read_rows().to_pylist()
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
