"""Lists of several searches that share passes are told what each is told alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.scorers.causal import scorer as scorers
from parley.engine.triggers.scorers.causal import swaps as swap_lists
from parley.engine.triggers.scorers.causal.scorer import DOUBT, CausalScorer
from parley.engine.triggers.scorers.causal.swaps import ReadLoss, ReadPlan, ReadWords, SwapList
from parley.engine.triggers.scorers.scorer import BestInput, Swaps, to_beat
from parley.engine.triggers.searches.attack import RuledScorer
from tests.engine.triggers.made_up import TinyInputModel
from tests.engine.triggers.scorers.causal.test_scorer import (
    LENGTH,
    MODELS,
    NUM_WORDS,
    SIZES,
    MadeUpVictim,
    gpt2,
    llama,
    transformers,
)

LIKELIHOOD = TriggerObjective(kind="likelihood")
TARGETS = [torch.tensor(words) for words in ([7, 9, 5, 11, 2], [8, 2], [4, 6, 2], [2])]
SEARCHES, CANDIDATES = len(TARGETS), 8


def gemma() -> Any:
    config = transformers.Gemma2Config(**SIZES, head_dim=4, attn_logit_softcapping=50.0, layer_types=["full_attention"] * 2)
    return transformers.Gemma2ForCausalLM(config)


class Noted(CausalScorer):
    """Notes of how many lists each pass is, and what its lists are told; passes of several may be made rougher."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.lists, self.noise = list[int](), None

    noise: Callable[[Tensor], Tensor] | None

    def reads(self, reader: Any) -> Callable[[Sequence[ReadPlan]], list[ReadWords]]:
        read = super().reads(reader)

        def noted(texts: Sequence[ReadPlan]) -> list[ReadWords]:
            self.lists.append(len(texts))
            found = read(texts)
            if len(texts) == 1 or self.noise is None:
                return found
            return [ReadWords((nll + self.noise(nll)).clamp_min(0), lead + self.noise(lead), kept) for nll, lead, kept in found]

        return noted


def asked(scorer: CausalScorer, seed: int, *, beaten: bool) -> tuple[list[BestInput], Swaps, Tensor]:
    """Drawn lists, some words twice and some that stand there."""
    generator = torch.Generator().manual_seed(seed)
    words_BN = torch.randint(3, NUM_WORDS, (SEARCHES, LENGTH), generator=generator)
    incumbents = scorer.measure(TARGETS, words_BN)
    positions_BG = torch.randint(LENGTH, (SEARCHES, CANDIDATES), generator=generator)
    words_BG = torch.randint(3, NUM_WORDS, (SEARCHES, CANDIDATES), generator=generator)
    words_BG[:, 0] = words_BN.gather(1, positions_BG[:, :1])[:, 0]
    beat = [to_beat(incumbent.loss) if beaten else torch.inf for incumbent in incumbents]
    return incumbents, Swaps(positions_BG, words_BG), torch.tensor(beat)


def alone(scorer: CausalScorer, incumbents: list[BestInput], swaps: Swaps, beat_B: Tensor) -> tuple[list[int], Tensor]:
    found = [
        scorer.best_swap([incumbent], Swaps(swaps.positions_BG[row, None], swaps.words_BG[row, None]), beat_B[row, None])
        for row, incumbent in enumerate(incumbents)
    ]
    return [int(choice) for choice, _ in found], torch.cat([loss for _, loss in found])


@pytest.mark.parametrize(
    ("kind", "packs", "at_once"), [("likelihood", True, 8), ("likelihood", False, 1), ("greedy", False, 8), ("sample", True, 1)]
)
def test_choices_are_those_of_each_search_alone(monkeypatch: pytest.MonkeyPatch, kind: Any, packs: bool, at_once: int) -> None:
    monkeypatch.setattr(swap_lists, "AT_ONCE", at_once)
    monkeypatch.setattr(swap_lists, "FIRST", 3)
    generator = torch.Generator().manual_seed(2)
    judge = TinyInputModel(
        *(torch.randn(size, generator=generator) for size in ((NUM_WORDS, 6), (6, 8), (8, 8), (8, NUM_WORDS)))
    )
    for seed, model in enumerate([*MODELS.values(), gemma]):
        objective = TriggerObjective(kind=kind, t_out=-2.0, lm_weight=0.3 * (seed % 2), t_in=-1.0, satisfied_weight=0.01)
        scorer = Noted(MadeUpVictim(model()), objective, judge, rows=(128, 10)[seed % 2])
        scorer.packs &= packs
        for beaten in (True, False):
            incumbents, swaps, beat_B = asked(scorer, 2 * seed + beaten, beaten=beaten)
            scorer.lists.clear()
            choice_B, loss_B = scorer.best_swap(incumbents, swaps, beat_B)
            assert max(scorer.lists) > 1
            choices, losses = alone(scorer, incumbents, swaps, beat_B)
            assert choice_B.tolist() == choices
            torch.testing.assert_close(loss_B, losses, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["likelihood", "greedy", "sample"])
def test_passes_that_are_off_by_less_than_the_doubt_change_no_choice(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    monkeypatch.setattr(scorers, "DOUBT", 0.1)
    objective, generator = TriggerObjective(kind=kind, t_out=-2.0), torch.Generator().manual_seed(1)
    scorer = Noted(MadeUpVictim(llama()), objective)
    differently = 0
    for seed in range(12):
        question = asked(scorer, seed, beaten=seed % 2 == 0)
        scorer.noise = lambda of: 0.1 * (2 * torch.rand(of.shape, generator=generator) - 1)
        found, scorer.noise = scorer.best_swap(*question)[0].tolist(), None
        assert found == alone(scorer, *question)[0]
        with monkeypatch.context() as patched:
            patched.setattr(SwapList, "settled", lambda lists, read: (min(read, key=lambda each: each.loss).candidate, 0.0))
            scorer.noise = lambda of: 0.1 * (2 * torch.rand(of.shape, generator=generator) - 1)
            differently += scorer.best_swap(*question)[0].tolist() != found
            scorer.noise = None
    assert differently, "the noise would change choices"


def test_what_shares_a_pass_is_off_by_far_less_than_the_doubt() -> None:
    for model in MODELS.values():
        scorer = Noted(MadeUpVictim(model()), LIKELIHOOD)
        question = asked(scorer, 1, beaten=False)
        found = scorer.best_swap(*question)[1]
        assert float((found - alone(scorer, *question)[1]).abs().max()) < DOUBT / 10


def test_of_candidates_that_are_equally_good_the_first_is_named() -> None:
    victim = MadeUpVictim(llama())
    victim.embedding_VE = victim.embedding_VE.clone()
    victim.embedding_VE[9] = victim.embedding_VE[8]
    scorer = Noted(victim, LIKELIHOOD)
    incumbents = scorer.measure(TARGETS, torch.tensor([[3, 4, 5, 6, 7]] * SEARCHES))
    # A list of nothing but the two, after each other.
    swaps = Swaps(torch.full((SEARCHES, 2), 2), torch.tensor([[9, 8], [8, 9]] * (SEARCHES // 2)))
    found = scorer.best_swap(incumbents, swaps, torch.full((SEARCHES,), torch.inf))[0]
    # Some processors round equal rows of a pass apart: then the one is named that is better alone.
    tried = [torch.tensor([[3, 4, word, 6, 7] for word in pair]) for pair in swaps.words_BG.tolist()]
    alone = [scorer.losses([target] * 2, words) for target, words in zip(TARGETS, tried, strict=True)]
    assert found.tolist() == [int(pair.argmin()) for pair in alone]
    assert scorer.lists == [SEARCHES] + [1] * SEARCHES, "all are open, and read again alone"


def test_a_list_is_settled_where_doubt_changes_nothing() -> None:
    scorer = CausalScorer(MadeUpVictim(gpt2()), LIKELIHOOD)
    (incumbent,) = scorer.measure(TARGETS[:1], torch.tensor([[3, 4, 5, 6, 7]]))
    swaps = SwapList(scorer, incumbent, torch.tensor([0, 1]), torch.tensor([8, 9]), beat=1.0)
    assert swaps.settled([]) == (-1, 1.0)
    assert swaps.settled([ReadLoss(0, 1.1, 1.05, 1.15)]) == (-1, 1.0)
    assert swaps.settled([ReadLoss(0, 1.04, 0.99, 1.09)]) is None
    assert swaps.settled([ReadLoss(0, 0.5, 0.45, 0.55), ReadLoss(1, 0.7, 0.65, 0.75)]) == (0, 0.5)
    assert swaps.settled([ReadLoss(0, 0.5, 0.45, 0.55), ReadLoss(1, 0.58, 0.53, 0.63)]) is None


def test_half_precision_and_long_lists_are_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rough = Noted(MadeUpVictim(llama().to(torch.bfloat16)), LIKELIHOOD)
    rough.best_swap(*asked(rough, 1, beaten=False))
    scorer = Noted(MadeUpVictim(llama()), LIKELIHOOD)
    monkeypatch.setattr(scorers, "SHORT", 0)
    scorer.best_swap(*asked(scorer, 1, beaten=False))
    assert {*rough.lists, *scorer.lists} == {1}


def test_joint_passes_are_smaller_where_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = Noted(MadeUpVictim(llama()), LIKELIHOOD)
    scorer.packs = False
    question = asked(scorer, 1, beaten=False)
    wanted, call = alone(scorer, *question)[0], scorer.reader.read

    def narrow(embedded_BLE: Tensor, before: Any, keep: int) -> Any:
        if len(embedded_BLE) > 9:
            raise torch.OutOfMemoryError("no room")
        return call(embedded_BLE, before, keep)

    monkeypatch.setattr(scorer.reader, "read", narrow)
    assert scorer.best_swap(*question)[0].tolist() == wanted
    assert scorer.pieces.size == 7


class Ruled(MadeUpVictim):
    """Inputs whose third word is odd are not allowed."""

    start_ids = None

    def allows(self, words_RN: Tensor) -> Tensor:
        return words_RN[:, 2] % 2 == 0


def test_what_rules_leave_of_lists_shares_passes_too() -> None:
    victim = Ruled(llama())
    inner = Noted(victim, LIKELIHOOD)
    ruled = RuledScorer(inner, victim)
    incumbents = inner.measure(TARGETS, torch.tensor([[3, 4, 6, 6, 7]] * 2 + [[3, 4, 5, 6, 7]] * 2))
    # Of the last two, which are not allowed themselves, swaps at another place are none either.
    swaps = Swaps(torch.tensor([[2, 2, 0, 2], [2, 1, 2, 2], [0, 1, 3, 4], [1, 2, 2, 0]]), torch.tensor([[9, 8, 4, 10]] * 4))
    beat_B = torch.tensor([torch.inf, 0.0, torch.inf, torch.inf])
    found = ruled.best_swap(incumbents, swaps, beat_B)
    single = [
        ruled.best_swap([each], Swaps(swaps.positions_BG[row, None], swaps.words_BG[row, None]), beat_B[row, None])[0]
        for row, each in enumerate(incumbents)
    ]
    assert found[0].tolist() == [int(choice) for choice in single]
    assert found[0].tolist()[1:] == [-1, 0, 1]
    assert found[1][1:3].tolist() == [0.0, torch.inf]
    assert inner.lists[0] == 3
    assert [ruled.refused(target) for target in TARGETS] == [1, 1, 4, 2]
