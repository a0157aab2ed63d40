"""A screened search in a causal model takes the words that the exact one takes, and tells float32's losses alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from parley.engine.triggers.methods.gcg import Gcg
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.scorers.causal import swaps as screening
from parley.engine.triggers.scorers.causal.scorer import CausalScorer
from parley.engine.triggers.scorers.lstm import scorer as shared
from parley.engine.triggers.scorers.scorer import PlainScorer, Swaps
from parley.engine.triggers.searches.attack import TriggerSearch
from parley.envs.core.errors import ConfigError
from parley.policies.core.layers import multiplies_bfloat16
from tests.engine.triggers.scorers.causal.test_scorer import LENGTH, Both, MadeUpVictim, gpt2, in_stages, llama, outcomes

CPU = torch.device("cpu")
LIKELIHOOD = TriggerObjective(kind="likelihood")
TARGET = torch.tensor([7, 9, 5, 11, 2])
INPUT = torch.tensor([[3, 4, 5, 6, 7]])
needs_bfloat16 = pytest.mark.skipif(not multiplies_bfloat16(CPU), reason="the processor has no products in bfloat16")


@pytest.fixture(autouse=True)
def _unclocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "cost_of_bfloat16", lambda *_: 0.5)


def everywhere(victim: MadeUpVictim) -> Swaps:
    """Every word at every position."""
    words_S = victim.searchable_V.nonzero()[:, 0]
    return Swaps(torch.arange(LENGTH).repeat_interleave(len(words_S))[None], words_S.repeat(LENGTH)[None])


@needs_bfloat16
@pytest.mark.parametrize("method", ["gcg", "gibbs-enum"])
def test_every_step_is_the_exact_one(method: str) -> None:
    victim = MadeUpVictim(llama())
    both = Both(victim, LIKELIHOOD, rows=50, screening=True)
    ours, theirs = outcomes(both, method), outcomes(PlainScorer(victim, LIKELIHOOD), method)
    assert both.asked >= LENGTH
    assert [outcome.words for outcome in ours] == [outcome.words for outcome in theirs]


@needs_bfloat16
def test_what_is_found_does_not_depend_on_searches_beside_or_before() -> None:
    victim = MadeUpVictim(llama())
    together, alone = (outcomes(CausalScorer(victim, LIKELIHOOD, screening=True), "gcg", number) for number in (3, 1))
    found = [{(one.task.key, one.words, one.loss, one.loss_by_sweep) for one in each} for each in (together, alone)]
    assert found[0] == found[1]


@needs_bfloat16
@pytest.mark.parametrize("beat", [torch.inf, 0.0])
def test_float32_reads_a_few_of_a_list(monkeypatch: pytest.MonkeyPatch, beat: float) -> None:
    victim = MadeUpVictim(llama())
    scorer = CausalScorer(victim, LIKELIHOOD, screening=True)
    (incumbent,) = scorer.measure([TARGET], INPUT)
    in_stages(monkeypatch, scorer)
    read, call = list[int](), scorer.reader.read

    def counted(embedded_BLE: Tensor, before: Any, keep: int) -> Any:
        read.append(len(embedded_BLE) * (keep > 1))
        return call(embedded_BLE, before, keep)

    monkeypatch.setattr(scorer.reader, "read", counted)
    choice_B, loss_B = scorer.best_swap([incumbent], everywhere(victim), torch.tensor([beat]))
    assert sum(read) == (0 if beat == 0 else screening.FEW)
    assert (int(choice_B), float(loss_B)) == (-1, 0.0) if beat == 0 else int(choice_B) >= 0


@needs_bfloat16
def test_what_is_told_is_never_rough_and_more_are_read_the_rougher_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    victim = MadeUpVictim(llama())
    scorer, plain = CausalScorer(victim, LIKELIHOOD, screening=True), PlainScorer(victim, LIKELIHOOD)
    (incumbent,) = scorer.measure([TARGET], INPUT)
    swaps, rough = everywhere(victim), scorer.rough
    assert rough is not None
    in_stages(monkeypatch, scorer)
    call, generator, decided = rough.read, torch.Generator().manual_seed(1), list[int]()

    def rougher(embedded_BLE: Tensor, before: Any, keep: int) -> Any:
        logits_BTV, known = call(embedded_BLE, before, keep)
        return logits_BTV + 0.8 * torch.randn(logits_BTV.shape, generator=generator), known

    ends = screening.ScreenedSwapList.ends
    monkeypatch.setattr(rough, "read", rougher)
    monkeypatch.setattr(screening.ScreenedSwapList, "ends", lambda self, piece: (decided.extend(piece), ends(self, piece))[1])
    choice_B, loss_B = scorer.best_swap([incumbent], swaps, torch.tensor([torch.inf]))
    wanted = plain.swap_losses(incumbent, swaps.positions_BG[0], swaps.words_BG[0])
    assert float(loss_B) == pytest.approx(float(wanted[choice_B]), abs=1e-4)
    assert int(choice_B) == int(wanted.argmin())
    assert len(decided) == len(set(decided)) > screening.FEW


def test_what_bfloat16_does_not_help_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="linear layers"):
        CausalScorer(MadeUpVictim(gpt2()), LIKELIHOOD, screening=True)
    with pytest.raises(ConfigError, match="only models in float32"):
        screening.rough_reader(llama().to(torch.bfloat16))
    monkeypatch.setattr(shared, "multiplies_bfloat16", lambda _: False)
    with pytest.raises(ConfigError, match="the processor cannot"):
        TriggerSearch(MadeUpVictim(llama()), Gcg(screening=True))
