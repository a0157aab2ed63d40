"""Self-play: dialogues a second of the batched game against one dialogue and one word at a time.

Both are given the same scenarios and the same draw for each place of each dialogue, so that they must say the same words and
choose the same selections; what they are given is made before either is clocked. Ratios are of one process on one thread;
beside them stands what two processes make of two cores.

What bounds the ratio: choices cost most. "bound_dialogues_per_cpu_s" is how many dialogues a core could decide if it did
nothing but both sides' selection products, at the rate measured in the same run, in bfloat16 where choices are told in it
first. In float32 that bound is near; in bfloat16 the products are a minor share, and what remains is gate functions, which
stay in float32, choices made again, and speaking, whose every product is float32 so that no word changes. "bfloat16" says what
a reading in it costs as a share of float32's, which share of choices it left to float32, and whether that pays.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import torch

from benchmarks.measure import BenchmarkOptions, Clock, Result, gflop_per_s, run
from benchmarks.plain_negotiator import PlainNegotiator, Played, play_plainly
from benchmarks.weights import negotiator, store
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.negotiation.dealornodeal_rules import random_scenario
from parley.envs.negotiation.domain import Vocabulary
from parley.envs.negotiation.game import NegotiationGame, play
from parley.policies.negotiator.model import ROWS, Negotiator
from parley.policies.negotiator.speaker import NegotiatorAgent, load_agent

SEED = 1
NUM_WORKERS = 2
_PATIENCE_S = 300.0
"""After which a worker that has not answered counts as dead."""


@dataclass(frozen=True, kw_only=True)
class Options(BenchmarkOptions):
    """Self-play of a negotiator with itself against a plain loop."""

    checkpoint: Path | None = None
    """Checkpoint folder of the negotiator; one fitted on the spot when not given."""
    batch: int = 1000
    """Dialogues side by side."""
    temperature: float = 0.5
    """Of the word distribution."""

    @property
    def rounds(self) -> int:
        """Batches that ours plays, by turns with the reference."""
        return 4 if self.quick else 16

    @property
    def reference_dialogues(self) -> int:
        """How many dialogues of each batch the reference plays too."""
        return min(40 if self.quick else 60, self.batch)


def deal(indices: range, vocabulary: Vocabulary) -> NegotiationGame:
    """Fresh dialogues; scenario, first speaker and draws follow from the index alone."""
    scenarios = [random_scenario(stream(SEED, "scenario", i)) for i in indices]
    return NegotiationGame(scenarios, [derive_seed(SEED, "dialogue", i) for i in indices], vocabulary)


def same(game: NegotiationGame, row: int, plain: Played) -> bool:
    """Whether both say the same words and end alike."""
    tokens = game.tokens[0, row, : game.num_tokens[row]].tolist()
    ours = (tokens, tuple(game.selections[row].tolist()), tuple(game.points[row].tolist()))
    return ours == (plain.tokens, plain.selections, plain.points)


def measure(options: Options) -> Result:
    """Plays alternately, compares every dialogue, then plays on two processes."""
    model = negotiator(options.checkpoint)
    vocabulary = model.vocabulary
    agent = NegotiatorAgent(model, "ours", options.temperature)
    plain = (PlainNegotiator(model, options.temperature), PlainNegotiator(model, options.temperature))
    # Long enough dialogues for all kernels to be made.
    play(deal(range(options.batch), vocabulary), (agent, agent))
    play_plainly(deal(range(1), vocabulary), 0, plain)
    ours, reference = Clock(), Clock()
    num_ours = num_reference = num_same = num_tokens = num_turns = 0
    for number in range(options.rounds):
        indices = range(number * options.batch, (number + 1) * options.batch)
        dealt = deal(indices, vocabulary)
        with ours.running():
            game = play(dealt, (agent, agent))
        num_ours += len(game)
        num_tokens += int(game.num_tokens.sum())
        num_turns += int(game.num_turns.sum())
        fresh = deal(indices[: options.reference_dialogues], vocabulary)
        with reference.running():
            played = [play_plainly(fresh, row, plain) for row in range(len(fresh))]
        num_reference += len(fresh)
        num_same += sum(same(game, row, result) for row, result in enumerate(played))
    rate, reference_rate = num_ours / ours.cpu_s, num_reference / reference.cpu_s
    wall_rate, workers_rate = num_ours / ours.wall_s, _on_workers(model, options)
    bound = _gflop_per_s(agent) / (num_tokens / num_ours * 2 * selection_gflop(model))
    return Result(
        ratio=rate / reference_rate,
        identical=num_same == num_reference,
        share_of_floor=rate / bound,
        figures={
            "identical_share": num_same / num_reference,
            "dialogues_compared": num_reference,
            "dialogues_per_cpu_s": rate,
            "reference_dialogues_per_cpu_s": reference_rate,
            "two_workers_ratio": workers_rate / (num_reference / reference.wall_s),
            "two_workers_speedup": workers_rate / wall_rate,
            "two_workers_dialogues_per_s": workers_rate,
            "tokens_per_dialogue": num_tokens / num_ours,
            "utterances_per_dialogue": num_turns / num_ours,
            "bound_dialogues_per_cpu_s": bound,
            "bfloat16": agent.tables.screening.facts,
            "batch": options.batch,
            "weights": "fitted here" if options.checkpoint is None else "checkpoint",
        },
    )


def selection_gflop(model: Negotiator) -> float:
    """Operations that the selection network needs for one token of one side, in 1e9; words come from tables."""
    language, selection, attention = (getattr(model.sizes, f"hidden_{name}") for name in ("language", "selection", "attention"))
    directions = 2 * 3 * selection * (language + selection)
    return 2 * (directions + 2 * selection * attention) / 1e9


def _gflop_per_s(agent: NegotiatorAgent) -> float:
    """Return the rate of products of the decision's shape, in the precision that it is made in first, on this thread."""
    dtype = torch.bfloat16 if agent.tables.screening.facts["pays"] else torch.float32
    return gflop_per_s(ROWS[dtype], 384, 512, dtype)


def _on_workers(model: Negotiator, options: Options) -> float:
    """Dialogues a second on the wall of two processes that play at the same time; their start does not count."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(NUM_WORKERS), context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        store(model, Path(folder) / "checkpoint")
        workers = [
            context.Process(target=_work, args=(Path(folder) / "checkpoint", options, number, barrier, results))
            for number in range(NUM_WORKERS)
        ]
        for worker in workers:
            worker.start()
        times = [results.get(timeout=_PATIENCE_S) for _ in workers]
        for worker in workers:
            worker.join()
    seconds = max(end for _, end in times) - min(start for start, _ in times)
    return NUM_WORKERS * options.rounds * options.batch / seconds


def _work(folder: Path, options: Options, number: int, barrier: Barrier, results: Queue[tuple[float, float]]) -> None:
    torch.set_num_threads(1)
    agent = load_agent(folder, temperature=options.temperature)
    firsts = [(number * options.rounds + turn) * options.batch for turn in range(options.rounds)]
    games = [deal(range(first, first + options.batch), agent.vocabulary) for first in firsts]
    play(deal(range(options.batch), agent.vocabulary), (agent, agent))
    barrier.wait(_PATIENCE_S)
    start = time.monotonic()
    for game in games:
        play(game, (agent, agent))
    results.put((start, time.monotonic()))


if __name__ == "__main__":
    run("selfplay", Options, measure)
