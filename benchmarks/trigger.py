"""Gibbs-enum of ours against the same search in the ordinary style, and where our seconds go.

Several restarts are searched in lock-step by the fast scorer, as a worker does; of some of them, in turn, the reference takes
the same step from the same input. A visit is one position of one restart: a gradient where the input changed, a list of
candidates, the best of them. Both sides are clocked in the processor's seconds of one thread. Where the processor multiplies
bfloat16, every visit is also made by the screened search, from the same inputs.

    python -m benchmarks.trigger [--quick] [--checkpoint RUN --lm RUN] [--actors]

    ratio             likelihood: candidates per second of ours over those of the reference
    ratio_sample, ratio_greedy, ratio_io    the other objectives; io weighs the language model
    identical         every visit that both made chose the same word, or left the input alone on both sides; where the reference
                      itself gives two words the same loss to rounding, either is right, and is counted in "ties"
    screened          of each objective: the ratio of the screened search; "agreement", the share of visits whose choice is the
                      exact search's, ties to rounding included; by how many nats the others are worse at most; "same_losses",
                      that wherever they chose alike the losses are equal to the bit
    scaling           with --actors: two processes on two cores over one alone, on the wall
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.measure import BenchmarkOptions, Clock, Result, Spans, run, weight_gflop_per_s
from benchmarks.plain_trigger import PlainTrigger
from benchmarks.trigger_weights import SEED, Networks, networks
from parley.engine.triggers.methods.objective import Kind, TriggerObjective
from parley.engine.triggers.scorers.lstm import half_spaces
from parley.engine.triggers.scorers.lstm.half_spaces import HalfSpaces
from parley.engine.triggers.scorers.lstm.scorer import InputReader, Lookahead, LstmScorer
from parley.engine.triggers.scorers.lstm.seq2seq import Replies, Seq2SeqReader
from parley.engine.triggers.scorers.scorer import BestInput, Swaps, to_beat
from parley.engine.triggers.victims import Seq2SeqVictim
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.vocabulary import EOS_ID, SPECIALS
from parley.policies.core.layers import Weight, has_onednn, multiplies_bfloat16

CANDIDATES = 100
RESTARTS = 16
"""In lock-step; four targets take turns."""
TARGET = 8
"""Words of a target, its end included."""
TIE = 3e-7
"""Losses that differ by this share are equal to rounding: some units in the last place of float32."""
PARTS = ("gradient", "encoder", "decoder", "output", "lm", "rest")


@dataclass(frozen=True, kw_only=True)
class Options(BenchmarkOptions):
    """Trigger search with the fast scorer against the ordinary style."""

    checkpoint: Path | None = None
    """Run of the model; without it and --lm, networks of published size are drawn (trigger_weights.py)."""
    lm: Path | None = None
    """Run of the language model, over the same words."""
    actors: bool = False
    """Also measure two processes against one."""

    def positions(self, length: int) -> list[int]:
        """Which positions of an input are visited, in turn."""
        return [0, length // 3, 2 * length // 3, length - 1] if self.quick else 2 * list(range(length))

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Objectives without the language model."""
        return ("likelihood",) if self.quick else ("likelihood", "sample", "greedy")


@dataclass
class VisitTally:
    """What a search came to."""

    ours: Clock = field(default_factory=Clock)
    reference: Clock = field(default_factory=Clock)
    visits: int = 0
    reference_visits: int = 0
    same_lists: int = 0
    same: int = 0
    ties: int = 0
    different: list[str] = field(default_factory=list)


@dataclass
class ScreenTally:
    """The screened search beside the exact one."""

    clock: Clock = field(default_factory=Clock)
    visits: int = 0
    agree: int = 0
    worse_by: float = 0.0
    same_losses: bool = True

    def compare(self, choices: Tensor, losses: Tensor, exact: Tensor, exact_losses: Tensor) -> Tensor:
        """Note the choices (B,) of a visit and their costs in float32; return which agree."""
        tie_B = (losses - exact_losses).abs() <= TIE * exact_losses
        self.visits += len(choices)
        self.agree += int(((choices == exact) | tie_B).sum())
        self.worse_by = max(self.worse_by, float((losses - exact_losses).max()))
        return choices == exact


class LockstepSearch:
    """Gibbs-enum over restarts in lock-step.

    Args:
        scorer: what measures.
        num_words: V.
    """

    def __init__(self, scorer: LstmScorer, num_words: int) -> None:
        self.scorer = scorer
        special = len(SPECIALS)
        drawn_words = stream(SEED, "trigger targets").integers(special, num_words, size=(4, TARGET - 1))
        targets = [torch.tensor([*words.tolist(), EOS_ID]) for words in drawn_words]
        draws = stream(SEED, "trigger restarts").integers(special, num_words, size=(RESTARTS, scorer.victim.input_length))
        self.incumbents = scorer.measure([targets[i % 4] for i in range(RESTARTS)], torch.from_numpy(draws))
        self.gradients = 0

    def visit(self, position: int) -> tuple[Tensor, Tensor, Tensor]:
        """One visit of every restart: the lists (B, G), the choices (B,) and their losses."""
        positions_B = torch.full((len(self.incumbents),), position)
        slopes_BV = self.scorer.slopes(self.incumbents, positions_B).masked_fill_(~self.scorer.victim.searchable_V, torch.inf)
        lists_BG = (-slopes_BV).topk(CANDIDATES).indices
        beat_B = torch.tensor([to_beat(incumbent.loss) for incumbent in self.incumbents])
        swaps = Swaps(positions_B[:, None].expand(-1, CANDIDATES).contiguous(), lists_BG)
        choice_B, loss_B = self.scorer.best_swap(self.incumbents, swaps, beat_B)
        better = torch.nonzero(choice_B >= 0)[:, 0].tolist()
        if better:
            words_BN = torch.stack([self.incumbents[i].words for i in better])
            words_BN[:, position] = lists_BG[better, choice_B[better]]
            measured = self.scorer.measure([self.incumbents[i].target for i in better], words_BN)
            for i, incumbent in zip(better, measured, strict=True):
                self.incumbents[i] = incumbent
        self.gradients += len(better)
        return lists_BG, choice_B, loss_B

    def screen(
        self, before: list[BestInput], position: int, exact_B: Tensor, exact_losses_B: Tensor, tally: ScreenTally
    ) -> None:
        """Repeat the last visit by the screened search; all stays as the exact one left it."""
        after, gradients, self.incumbents = self.incumbents, self.gradients, list(before)
        self.scorer.screening = True
        with tally.clock.running():
            _, choice_B, loss_B = self.visit(position)
        self.scorer.screening = False
        alike = tally.compare(choice_B, loss_B, exact_B, exact_losses_B).tolist()
        pairs = zip(alike, self.incumbents, after, strict=True)
        tally.same_losses &= all(ours.loss == theirs.loss for same, ours, theirs in pairs if same)
        self.incumbents, self.gradients = after, gradients


def compare(plain: PlainTrigger, incumbent: BestInput, position: int, list_G: Tensor, choice: int, tally: VisitTally) -> None:
    """Time the reference's visit beside ours."""
    with tally.reference.running():
        step = plain.step(incumbent.target, incumbent.words, position, CANDIDATES)
        loss = float(step.loss_G.min())
        word = step.word if loss < to_beat(incumbent.loss) else None
    tally.reference_visits += 1
    tally.same_lists += set(step.list_G.tolist()) == set(list_G.tolist())
    ours = int(list_G[choice]) if choice >= 0 else None
    if ours == word:
        tally.same += 1
        return
    places = [] if ours is None else torch.nonzero(step.list_G == ours).flatten().tolist()
    if places and word is not None and abs(float(step.loss_G[places[0]]) - loss) <= TIE * loss:
        tally.ties += 1
        return
    theirs = f"{word} at {loss:.7f}, ours there {step.loss_G[places].tolist()}"
    tally.different.append(f"position {position}: {ours} against {theirs}, from {incumbent.loss:.7f}")


def measure_mode(nets: Networks, objective: TriggerObjective, options: Options) -> dict[str, Any]:
    """Both searches by turns, then the split of ours."""
    lm = nets.lm if objective.lm_weight > 0 else None
    screens = multiplies_bfloat16(torch.device("cpu"))
    scorer = LstmScorer(Seq2SeqVictim(nets.model, lm), objective, screening=screens)
    scorer.screening, plain = False, PlainTrigger(nets.model, objective, lm)
    search, visits, tally = LockstepSearch(scorer, len(nets.model.vocabulary)), VisitTally(), ScreenTally()
    for number, position in enumerate(options.positions(scorer.victim.input_length)):
        before = list(search.incumbents)
        with visits.ours.running():
            lists_BG, choice_B, loss_B = search.visit(position)
        visits.visits += RESTARTS
        # Every restart in turn, so that the reference meets all targets at all positions.
        row = number % RESTARTS
        compare(plain, before[row], position, lists_BG[row], int(choice_B[row]), visits)
        if screens:
            search.screen(before, position, choice_B, loss_B, tally)
    rate = visits.visits * CANDIDATES / visits.ours.cpu_s
    reference_rate = visits.reference_visits * CANDIDATES / visits.reference.cpu_s
    figures = {
        "ratio": rate / reference_rate,
        "candidates_per_cpu_s": rate,
        "reference_candidates_per_cpu_s": reference_rate,
        "compared": visits.reference_visits,
        "same": visits.same / visits.reference_visits,
        "ties": visits.ties,
        "same_lists": visits.same_lists / visits.reference_visits,
        "different": visits.different,
        "gradients_per_visit": search.gradients / visits.visits,
        "loss": sum(incumbent.loss for incumbent in search.incumbents) / RESTARTS,
    }
    if screens:
        figures["screened"] = {
            "ratio": tally.visits * CANDIDATES / tally.clock.cpu_s / reference_rate,
            "agreement": tally.agree / tally.visits,
            "compared": tally.visits,
            "worse_by_nats": tally.worse_by,
            "same_losses": tally.same_losses,
        }
    return figures | _split(search, nets, rate, options)


def _split(search: LockstepSearch, nets: Networks, rate: float, options: Options) -> dict[str, Any]:
    """Where the seconds of visits go, and what their products would need at the machine's rate."""
    length = search.scorer.victim.input_length
    spans, positions = Spans(), [length // 2] if options.quick else [0, length // 2, length - 1]
    with _clocked(spans):
        for position in positions:
            spans.timed("rest", search.visit)(position)
    whole = sum(spans.seconds.values())
    flops = [0.0]
    with _counted(flops), FlopCounterMode(display=False) as counter:
        for position in positions:
            search.visit(position)
    candidates = len(positions) * len(search.incumbents) * CANDIDATES
    mflop = (counter.get_total_flops() + flops[0]) / candidates / 1e6
    width = nets.model.sizes.hidden
    return {
        "split": {name: spans.seconds[name] / whole for name in PARTS},
        "mflop": mflop,
        "gemm_share": rate * mflop / 1e3 / weight_gflop_per_s(CANDIDATES, 2 * width, 4 * width, torch.float32),
    }


@contextmanager
def _counted(flops: list[float]) -> Iterator[None]:
    """Add up the operations of oneDNN's products, which torch does not count."""
    call, multiply = Weight.__call__, half_spaces.product

    def counted(weight: Weight, rows_nI: Tensor) -> Tensor:
        result = call(weight, rows_nI)
        flops[0] += 2 * rows_nI.numel() * result.shape[1] * has_onednn()
        return result

    def counted_once(rows_nI: Tensor, weight_JI: Tensor) -> Tensor:
        flops[0] += 2 * rows_nI.numel() * len(weight_JI) * has_onednn()
        return multiply(rows_nI, weight_JI)

    with patch.object(Weight, "__call__", counted), patch.object(half_spaces, "product", counted_once):
        yield


@contextmanager
def _clocked(spans: Spans) -> Iterator[None]:
    """Clocks the calls that a visit consists of."""
    calls: tuple[tuple[type, str, str], ...] = (
        (LstmScorer, "slopes", "gradient"),
        (LstmScorer, "measure", "gradient"),
        (Seq2SeqReader, "candidates", "encoder"),
        (Replies, "step", "decoder"),
        (HalfSpaces, "bound", "output"),
        (LstmScorer, "_exact", "output"),
        (InputReader, "read", "lm"),
        (InputReader, "lookahead", "lm"),
        (InputReader, "exact", "lm"),
        (Lookahead, "bound", "lm"),
    )
    with ExitStack() as stack:
        for owner, name, part in calls:
            call: Callable[..., Any] = getattr(owner, name)
            stack.enter_context(patch.object(owner, name, spans.timed(part, call)))
        yield


def measure(options: Options) -> Result:
    """Measures every mode."""
    nets = networks(options.checkpoint, options.lm)
    modes: dict[str, TriggerObjective] = {kind: TriggerObjective(kind=kind, t_out=nets.t_out) for kind in options.kinds}
    modes["io"] = TriggerObjective(kind="sample", t_out=nets.t_out, lm_weight=1.0, t_in=nets.t_in)
    figures = {name: measure_mode(nets, objective, options) for name, objective in modes.items()}
    ratios = {f"ratio_{name}": figures[name]["ratio"] for name in modes if name != "likelihood"}
    tallies = [part["screened"] for part in figures.values() if "screened" in part]
    if tallies:
        compared = sum(tally["compared"] for tally in tallies)
        ratios["ratio_screened"] = tallies[0]["ratio"]
        ratios["screened_agreement"] = sum(tally["agreement"] * tally["compared"] for tally in tallies) / compared
        ratios["screened_same_losses"] = all(tally["same_losses"] for tally in tallies)
    result = {
        "weights": "drawn" if options.checkpoint is None else "checkpoint",
        **ratios,
        **figures,
    }
    return Result(
        ratio=figures["likelihood"]["ratio"],
        identical=not any(part["different"] for part in figures.values()),
        share_of_floor=figures["likelihood"]["gemm_share"],
        figures=result | (_scaling(options) if options.actors else {}),
    )


def _scaling(options: Options) -> dict[str, Any]:
    """Candidates per second of one process alone, and of two side by side."""
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        # The first round loads the networks on both sides.
        list(pool.map(_actor, [options] * 2, [1.0] * 2))
        (alone,) = pool.map(_actor, [options], [10.0])
        together = sum(pool.map(_actor, [options] * 2, [10.0] * 2))
    return {"actors_alone_per_s": alone, "actors_together_per_s": together, "scaling": together / alone}


_ACTOR: list[LockstepSearch] = []


def _actor(options: Options, seconds: float) -> float:
    """Candidates per second on the wall of one process that searches for so long."""
    torch.set_num_threads(1)
    if not _ACTOR:
        nets = networks(options.checkpoint, options.lm)
        scorer = LstmScorer(Seq2SeqVictim(nets.model), TriggerObjective(kind="likelihood"))
        _ACTOR.append(LockstepSearch(scorer, len(nets.model.vocabulary)))
    search, started, visits = _ACTOR[0], time.perf_counter(), 0
    while time.perf_counter() < started + seconds:
        search.visit(visits % search.scorer.victim.input_length)
        visits += 1
    return visits * RESTARTS * CANDIDATES / (time.perf_counter() - started)


if __name__ == "__main__":
    run("trigger", Options, measure)
