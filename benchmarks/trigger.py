"""Gibbs-enum of ours against the same search in the ordinary style, and where our seconds go.

Several restarts are searched in lock-step by the fast scorer, as a worker does; of some of them, in turn, the reference takes
the same step from the same input. A visit is one position of one restart: a gradient where the input changed, a list of
candidates, the best of them. Both sides are clocked in the processor's seconds of one thread.

    python -m benchmarks.trigger [--quick] [--checkpoint RUN --lm RUN] [--actors]

    ratio             likelihood: candidates per second of ours over those of the reference
    ratio_sample, ratio_greedy, ratio_io    the other objectives; io weighs the language model
    identical         every visit that both made chose the same word, or left the input alone on both sides; where the reference
                      itself gives two words the same loss to rounding, either is right, and is counted in "ties"
    scaling           with --actors: two processes on two cores over one alone, on the wall
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.measure import Clock, Spans, gflop_per_s, run
from benchmarks.plain_trigger import PlainTrigger
from benchmarks.trigger_weights import PUBLISHED, SEED, SMALL, Networks, networks
from engine.triggers.lstm.half_spaces import HalfSpaces
from engine.triggers.lstm.input import InputReader, Lookahead
from engine.triggers.lstm.scorer import LstmScorer
from engine.triggers.lstm.seq2seq import Replies, Seq2SeqReader
from engine.triggers.objective import Kind, TriggerObjective
from engine.triggers.scorer import Incumbent, Swaps, to_beat
from engine.triggers.victims import Seq2SeqVictim
from envs.core.seeds import stream
from envs.pairs.vocabulary import EOS_ID, SPECIALS

CANDIDATES = 100
TARGET = 8
"""Words of a target, its end included."""
TIE = 3e-7
"""Losses that differ by this share are equal to rounding: some units in the last place of float32."""
PARTS = ("gradient", "encoder", "decoder", "output", "lm", "rest")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Trigger search with the fast scorer against the ordinary style."""

    checkpoint: Path | None = None
    """Run of the model; without it and --lm, networks of published size are drawn (trigger_weights.py)."""
    lm: Path | None = None
    """Run of the language model, over the same words."""
    quick: bool = False
    """Small networks and few visits: below a minute."""
    actors: bool = False
    """Also measure two processes against one."""

    @property
    def restarts(self) -> int:
        """Restarts in lock-step."""
        return 4 if self.quick else 16

    @property
    def sweeps(self) -> int:
        """Sweeps over all positions."""
        return 1 if self.quick else 2

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Objectives without the language model."""
        return ("likelihood", "greedy") if self.quick else ("likelihood", "sample", "greedy")


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


class LockstepSearch:
    """Gibbs-enum over restarts in lock-step.

    Args:
        scorer: what measures.
        num_words: V.
        restarts: how many; four targets take turns.
    """

    def __init__(self, scorer: LstmScorer, num_words: int, restarts: int) -> None:
        self.scorer = scorer
        special = len(SPECIALS)
        said = stream(SEED, "trigger targets").integers(special, num_words, size=(4, TARGET - 1))
        targets = [torch.tensor([*words.tolist(), EOS_ID]) for words in said]
        draws = stream(SEED, "trigger restarts").integers(special, num_words, size=(restarts, scorer.victim.input_length))
        self.incumbents = scorer.measure([targets[i % 4] for i in range(restarts)], torch.from_numpy(draws))
        self.gradients = 0

    def visit(self, position: int) -> tuple[Tensor, Tensor]:
        """One visit of every restart: the lists (B, G) and the choices (B,)."""
        positions_B = torch.full((len(self.incumbents),), position)
        slopes_BV = self.scorer.slopes(self.incumbents, positions_B).masked_fill_(~self.scorer.victim.searchable_V, torch.inf)
        lists_BG = (-slopes_BV).topk(CANDIDATES).indices
        beat_B = torch.tensor([to_beat(incumbent.loss) for incumbent in self.incumbents])
        swaps = Swaps(positions_B[:, None].expand(-1, CANDIDATES).contiguous(), lists_BG)
        choice_B, _ = self.scorer.best_swap(self.incumbents, swaps, beat_B)
        better = torch.nonzero(choice_B >= 0)[:, 0].tolist()
        if better:
            words_BN = torch.stack([self.incumbents[i].words for i in better])
            words_BN[:, position] = lists_BG[better, choice_B[better]]
            measured = self.scorer.measure([self.incumbents[i].target for i in better], words_BN)
            for i, incumbent in zip(better, measured, strict=True):
                self.incumbents[i] = incumbent
        self.gradients += len(better)
        return lists_BG, choice_B


def compare(plain: PlainTrigger, incumbent: Incumbent, position: int, list_G: Tensor, choice: int, found: VisitTally) -> None:
    """The reference's visit beside ours."""
    with found.reference.running():
        step = plain.step(incumbent.target, incumbent.words, position, CANDIDATES)
        loss = float(step.loss_G.min())
        word = step.word if loss < to_beat(incumbent.loss) else None
    found.reference_visits += 1
    found.same_lists += set(step.list_G.tolist()) == set(list_G.tolist())
    ours = int(list_G[choice]) if choice >= 0 else None
    if ours == word:
        found.same += 1
        return
    places = [] if ours is None else torch.nonzero(step.list_G == ours).flatten().tolist()
    if places and word is not None and abs(float(step.loss_G[places[0]]) - loss) <= TIE * loss:
        found.ties += 1
        return
    theirs = f"{word} at {loss:.7f}, ours there {step.loss_G[places].tolist()}"
    found.different.append(f"position {position}: {ours} against {theirs}, from {incumbent.loss:.7f}")


def measure_mode(nets: Networks, objective: TriggerObjective, options: Options) -> dict[str, Any]:
    """Both searches by turns, then the split of ours."""
    lm = nets.lm if objective.lm_weight > 0 else None
    scorer, plain = LstmScorer(Seq2SeqVictim(nets.model, lm), objective), PlainTrigger(nets.model, objective, lm)
    search, found = LockstepSearch(scorer, len(nets.model.vocabulary), options.restarts), VisitTally()
    for number in range(options.sweeps * scorer.victim.input_length):
        position, before = number % scorer.victim.input_length, list(search.incumbents)
        with found.ours.running():
            lists_BG, choice_B = search.visit(position)
        found.visits += options.restarts
        # Every restart in turn, so that the reference meets all targets at all positions.
        row = number % options.restarts
        compare(plain, before[row], position, lists_BG[row], int(choice_B[row]), found)
    rate = found.visits * CANDIDATES / found.ours.cpu_s
    reference_rate = found.reference_visits * CANDIDATES / found.reference.cpu_s
    figures = {
        "ratio": rate / reference_rate,
        "candidates_per_cpu_s": rate,
        "reference_candidates_per_cpu_s": reference_rate,
        "compared": found.reference_visits,
        "same": found.same / found.reference_visits,
        "ties": found.ties,
        "same_lists": found.same_lists / found.reference_visits,
        "different": found.different,
        "gradients_per_visit": search.gradients / found.visits,
        "loss": sum(incumbent.loss for incumbent in search.incumbents) / options.restarts,
    }
    return figures | _split(search, nets, rate)


def _split(search: LockstepSearch, nets: Networks, rate: float) -> dict[str, Any]:
    """Where the seconds of visits go, and what their products would need at the machine's rate."""
    spans, positions = Spans(), (0, search.scorer.victim.input_length // 2, search.scorer.victim.input_length - 1)
    with _clocked(spans):
        for position in positions:
            spans.timed("rest", search.visit)(position)
    whole = sum(spans.seconds.values())
    with FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: _addmm_flop}) as counter:
        for position in positions:
            search.visit(position)
    candidates = len(positions) * len(search.incumbents) * CANDIDATES
    mflop = counter.get_total_flops() / candidates / 1e6
    width = nets.model.sizes.hidden
    machine = gflop_per_s(CANDIDATES, 2 * width, 4 * width, torch.float32)
    return {
        "split": {name: spans.seconds[name] / whole for name in PARTS},
        "mflop": mflop,
        "gemm_share": rate * mflop / 1e3 / machine,
    }


def _addmm_flop(sum_shape: Sequence[int], left: Sequence[int], right: Sequence[int], **_: Any) -> int:
    # What is added in place is not among the operations that torch counts by itself.
    return 2 * left[0] * left[1] * right[1]


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


def measure(options: Options) -> dict[str, Any]:
    """Measures every mode."""
    nets = networks(SMALL if options.quick else PUBLISHED, options.checkpoint, options.lm)
    modes: dict[str, TriggerObjective] = {kind: TriggerObjective(kind=kind, t_out=nets.t_out) for kind in options.kinds}
    modes["io"] = TriggerObjective(kind="sample", t_out=nets.t_out, lm_weight=1.0, t_in=nets.t_in)
    LockstepSearch(LstmScorer(Seq2SeqVictim(nets.model), modes["likelihood"]), len(nets.model.vocabulary), 4).visit(0)
    figures = {name: measure_mode(nets, objective, options) for name, objective in modes.items()}
    ratios = {f"ratio_{name}": figures[name]["ratio"] for name in modes if name != "likelihood"}
    result = {
        "ratio": figures["likelihood"]["ratio"],
        "identical": not any(part["different"] for part in figures.values()),
        "weights": "drawn" if options.checkpoint is None else "checkpoint",
        **ratios,
        **figures,
    }
    return result | (_scaling(options) if options.actors else {})


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
        nets = networks(SMALL if options.quick else PUBLISHED, options.checkpoint, options.lm)
        scorer = LstmScorer(Seq2SeqVictim(nets.model), TriggerObjective(kind="likelihood"))
        _ACTOR.append(LockstepSearch(scorer, len(nets.model.vocabulary), options.restarts))
    search, started, visits = _ACTOR[0], time.perf_counter(), 0
    while time.perf_counter() < started + seconds:
        search.visit(visits % search.scorer.victim.input_length)
        visits += 1
    return visits * options.restarts * CANDIDATES / (time.perf_counter() - started)


if __name__ == "__main__":
    run("trigger", Options, measure)
