"""Texts that a GPU reads in one pass are read as group by group, and as a CPU packs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.scorers.causal import swaps as passes
from parley.engine.triggers.scorers.causal import swaps as swap_lists
from parley.engine.triggers.scorers.causal.packed import CausalReader, KeysValues, read_grid, said
from parley.engine.triggers.scorers.causal.scorer import CausalScorer
from parley.engine.triggers.scorers.causal.swaps import ReadPlan, ReadWords, read_texts
from parley.engine.triggers.scorers.scorer import Swaps
from tests.engine.triggers.scorers.causal.test_scorer import LENGTH, MODELS, NUM_WORDS, MadeUpVictim, every_model, llama
from tests.imitated_devices import imitated_devices

REPLY = torch.tensor([7, 9, 5])


def lists(reader: CausalReader, embedding_VE: Tensor) -> list[ReadPlan]:
    """Behind two prompts and none, of one beginning or one for each text."""
    generator = torch.Generator().manual_seed(0)

    def read(ids_L: Sequence[int], *before: KeysValues) -> KeysValues:
        return reader.read(embedding_VE[torch.tensor([ids_L])], before, 1)[1]

    def texts(words: list[int], starts: list[int]) -> Tensor:
        """Like the words up to where they are read."""
        drawn_BL = torch.randint(3, NUM_WORDS, (len(starts), len(words)), generator=generator)
        return torch.tensor(words).where(torch.arange(len(words)) < torch.tensor(starts)[:, None], drawn_BL)

    long, short = read([3, 1, 4, 1, 5]), read([2, 6])
    words, others = [8, 9, 10, 11, 12, 13, 7, 9], [20, 19, 18, 17, 16]
    # As after a first stage: texts that were read up to the last words of a reply.
    seen_BL = texts([14] * 6, [0, 0])
    known = reader.read(embedding_VE[seen_BL[:, :4]], [long], 1)[1]
    return [
        ReadPlan(texts(words, [0, 0, 1, 4, 5]), [0, 0, 1, 4, 5], long, read(words, long), REPLY, False),
        ReadPlan(texts(others, [1, 2]), [1, 2], short, read(others, short), REPLY[:2], True),
        ReadPlan(seen_BL, [4, 4], long, known, REPLY[1:], True),
        ReadPlan(texts(words, [3]), [3], None, read(words), REPLY[:1], False),
    ]


def same(found: Sequence[ReadWords], wanted: Sequence[ReadWords]) -> None:
    for each, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(each[:2], other[:2], rtol=1e-4, atol=1e-5)
        assert len(each.layers()) == len(other.layers())
        for own, expected in zip(each.layers(), other.layers(), strict=True):
            torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-5)


@every_model
@torch.no_grad()
def test_lists_of_all_kinds_share_a_pass(name: str) -> None:
    victim = MadeUpVictim(MODELS[name]())
    reader, embedding_VE = CausalReader(victim.model), victim.embedding_VE
    asked = lists(reader, embedding_VE)
    wanted, packed = (read_texts(reader, asked, embedding_VE, packs=packs) for packs in (False, True))
    same(packed, wanted)

    def grid(texts: Sequence[ReadPlan]) -> list[ReadWords]:
        read = zip(texts, read_grid(reader, texts, embedding_VE), strict=True)
        return [ReadWords(*said(logits_BKV, each.wanted_K), known) for each, (logits_BKV, known) in read]

    attention = victim.model.config._attn_implementation
    same(grid(asked), wanted)
    same([found for each in asked for found in grid([each])], wanted)
    assert victim.model.config._attn_implementation == attention


def chosen(victim: MadeUpVictim, device: str) -> tuple[CausalScorer, list[int], list[float]]:
    """Choices of three searches, two of them from the same input; some have to beat it."""
    victim.model, victim.searchable_V = victim.model.to(device), victim.searchable_V.to(device)
    victim.embedding_VE = victim.embedding_VE.to(device)
    scorer, generator = CausalScorer(victim, TriggerObjective(kind="likelihood")), torch.Generator().manual_seed(3)
    targets = [torch.tensor(reply).to(device) for reply in ([7, 9, 5, 11, 2], [8, 2], [4, 6, 2])]
    incumbents = scorer.measure(targets, torch.tensor([[3, 4, 5, 6, 7]] * 2 + [[8, 9, 10, 11, 12]]).to(device))
    positions_BG = torch.randint(LENGTH, (3, 20), generator=generator).to(device)
    words_BG = torch.randint(3, NUM_WORDS, (3, 20), generator=generator).to(device)
    beat_B = torch.tensor([torch.inf, incumbents[1].loss, torch.inf])
    choice_B, loss_B = scorer.best_swap(incumbents, Swaps(positions_BG, words_BG), beat_B)
    return scorer, choice_B.tolist(), loss_B.tolist()


@pytest.mark.parametrize("at_once", [1, 8])
@every_model
def test_a_gpu_chooses_as_a_cpu(monkeypatch: pytest.MonkeyPatch, name: str, at_once: int) -> None:
    monkeypatch.setattr(swap_lists, "AT_ONCE", at_once)
    monkeypatch.setattr(swap_lists, "FIRST", 3)
    _, *wanted = chosen(MadeUpVictim(MODELS[name]()), "cpu")
    with imitated_devices():
        scorer, *found = chosen(MadeUpVictim(MODELS[name]()), "cuda:0")
    assert scorer.packs
    assert found[0] == wanted[0]
    assert found[1] == pytest.approx(wanted[1], abs=1e-4)


def test_a_gpu_reads_more_candidates_together_but_no_more_logits_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    with imitated_devices():
        scorer, *wanted = chosen(MadeUpVictim(llama()), "cuda:0")
        assert scorer.pieces.size == 1024
        monkeypatch.setattr("parley.engine.triggers.scorers.causal.scorer.LOGITS", 4 * 5 * NUM_WORDS)
        asked, call = list[int](), passes.read_grid

        def noted(reader: Any, texts: Sequence[ReadPlan], embedding_VE: Tensor) -> Any:
            asked.append(sum(len(each.ids_BL) * len(each.wanted_K) for each in texts))
            return call(reader, texts, embedding_VE)

        monkeypatch.setattr(passes, "read_grid", noted)
        _, *found = chosen(MadeUpVictim(llama()), "cuda:0")
    assert max(asked) == 4 * 5
    assert found[0] == wanted[0]
