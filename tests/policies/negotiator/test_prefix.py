"""Endings continued from a kept prefix against the networks that read every dialogue as a whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from parley.policies.negotiator.inference import Endings, Prefixes, Tables
from parley.policies.negotiator.model import ROWS, padded
from tests.policies.negotiator.made_up import VOCABULARY, dialogues, negotiator

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
TABLES = Tables(negotiator())


@dataclass(frozen=True)
class Beginnings:
    """Beginnings of dialogues, padded with zeros."""

    contexts: np.ndarray
    tokens: np.ndarray
    lengths: np.ndarray

    def prefixes(self) -> Prefixes:
        return Prefixes(TABLES, self.contexts, self.tokens, self.lengths)

    def only(self, rows: list[int]) -> Beginnings:
        return Beginnings(self.contexts[rows], self.tokens[rows], self.lengths[rows])


def beginnings(size: int, seed: int = 0) -> Beginnings:
    made = dialogues(size, seed, max_turns=5)
    tokens = np.zeros((size, int(made.lengths.max())), dtype=np.int64)
    for i, words in enumerate(made.words):
        tokens[i, : len(words)] = words
    return Beginnings(made.contexts, tokens, made.lengths)


def endings(begun: Beginnings, count: int, seed: int = 0, longest: int = 9) -> Endings:
    """Any words at any place: a network reads markers and ends like every other word."""
    rng = np.random.default_rng(seed)
    prefixes = rng.integers(len(begun.lengths), size=count)
    keeps = rng.integers(begun.lengths[prefixes] + 1)
    # None at all and all that there is are the two ends that a search uses.
    keeps[::5] = 0
    keeps[1::5] = begun.lengths[prefixes[1::5]]
    tokens = rng.integers(len(VOCABULARY), size=(count, longest))
    return Endings(prefixes, keeps, tokens, rng.integers(1, longest + 1, size=count))


def plainly(begun: Beginnings, asked: Endings) -> tuple[Tensor, Tensor]:
    """Language states and item logits by `model.py`, one whole dialogue at a time."""
    states, choices = [], []
    for prefix, keep, tokens, length in zip(asked.prefixes, asked.keeps, asked.tokens, asked.lengths, strict=True):
        whole = torch.from_numpy(np.concatenate([begun.tokens[prefix, :keep], tokens[:length]]))[None]
        model = TABLES.model
        with torch.no_grad():
            context = model.encode_context(torch.from_numpy(begun.contexts[[prefix]]))
            read = model.read(whole, context)
            states.append(read[0, -1])
            choices.append(model.selection_logits(whole, read, torch.tensor([whole.shape[1]]), context)[0])
    return torch.stack(states), torch.stack(choices)


def assert_plain(begun: Beginnings, asked: Endings) -> None:
    prefixes = begun.prefixes()
    states, choices = plainly(begun, asked)
    torch.testing.assert_close(prefixes.states(asked), states, **CLOSE)
    torch.testing.assert_close(prefixes.decide(asked), choices, **CLOSE)


def test_the_made_up_dialogues_differ_enough_to_tell() -> None:
    begun = beginnings(8)
    asked = endings(begun, 60)
    states, choices = plainly(begun, asked)
    for found in (states, choices.flatten(1)):
        distance = torch.cdist(found, found) + 10 * torch.eye(len(found))
        assert float(distance.min()) > 0.01
    assert len(set(asked.keeps.tolist())) > 10


def test_endings_of_many_dialogues_are_those_of_the_networks() -> None:
    begun = beginnings(8)
    assert_plain(begun, endings(begun, 60))


@settings(deadline=None, max_examples=30)
@given(size=st.integers(1, 5), count=st.integers(1, 12), longest=st.integers(1, 6), seed=st.integers(0, 2**31))
def test_any_endings_are_those_of_the_networks(size: int, count: int, longest: int, seed: int) -> None:
    begun = beginnings(size, seed)
    assert_plain(begun, endings(begun, count, seed, longest))


@pytest.mark.parametrize("keep", [0, 1, -1])
@pytest.mark.parametrize("length", [1, 6])
def test_one_ending_of_one_dialogue(keep: int, length: int) -> None:
    begun = beginnings(1, seed=2)
    kept = np.array([int(begun.lengths[0]) if keep < 0 else keep])
    assert_plain(begun, Endings(np.array([0]), kept, np.arange(length)[None] + 6, np.array([length])))


def test_nothing_is_kept_of_any_dialogue() -> None:
    begun = beginnings(3)
    asked = endings(begun, 10)
    assert_plain(begun, Endings(asked.prefixes, np.zeros(10, dtype=np.int64), asked.tokens, asked.lengths))


@pytest.mark.parametrize("replaced", range(5))
def test_one_word_replaced_tells_however_far_it_is_from_the_end(replaced: int) -> None:
    """What a search asks: the same sentence with another word at one place, from the place on."""
    begun = beginnings(1, seed=3)
    sentence = np.array([6, 7, 8, 9, 10, 11])
    prefix = np.append(begun.tokens[0, : begun.lengths[0]], sentence)
    whole = Beginnings(begun.contexts, prefix[None], np.array([len(prefix)]))
    keep = int(begun.lengths[0]) + replaced
    words = np.arange(len(VOCABULARY))
    tokens = np.concatenate([words[:, None], np.tile([*sentence[replaced + 1 :], 4, 2], (len(words), 1))], axis=1)
    same = np.full(len(words), tokens.shape[1])
    asked = Endings(np.zeros(len(words), dtype=np.int64), np.full(len(words), keep), tokens, same)
    assert_plain(whole, asked)
    found = whole.prefixes().decide(asked)
    assert len(torch.unique(found.flatten(1), dim=0)) == len(words)


def test_rough_figures_are_near_and_rough(monkeypatch: pytest.MonkeyPatch) -> None:
    """In groups of several sizes, the last of them small."""
    monkeypatch.setitem(ROWS, torch.bfloat16, 80)
    begun = beginnings(6)
    asked, prefixes = endings(begun, 200), begun.prefixes()
    found, wanted = prefixes.decide(asked, torch.bfloat16), prefixes.decide(asked)
    assert 0 < float((found - wanted).abs().max()) < 0.05 * float(wanted.abs().max())


@given(st.integers(1, 10_000))
def test_products_have_few_shapes_and_little_to_spare(rows: int) -> None:
    assert rows <= padded(rows) <= max(rows + 31, rows * 5 // 4)
    assert padded(rows) == padded(padded(rows))


def test_smaller_products_have_no_more_rows() -> None:
    shapes = [padded(rows) for rows in range(1, ROWS[torch.bfloat16] + 1)]
    assert shapes == sorted(shapes)
    assert len(set(shapes)) < 24


def test_more_endings_than_go_together() -> None:
    begun = beginnings(6)
    asked = endings(begun, 2 * ROWS[torch.float32] + 37)
    prefixes = begun.prefixes()
    rows = np.random.default_rng(0).choice(len(asked), size=80, replace=False)
    states, choices = plainly(begun, asked[rows])
    torch.testing.assert_close(prefixes.states(asked)[torch.from_numpy(rows)], states, **CLOSE)
    torch.testing.assert_close(prefixes.decide(asked)[torch.from_numpy(rows)], choices, **CLOSE)


@settings(deadline=None, max_examples=10)
@given(st.permutations(range(25)))
def test_figures_do_not_depend_on_the_order_of_the_endings(order: list[int]) -> None:
    begun = beginnings(5)
    asked, rows = endings(begun, 25), np.array(order)
    prefixes = begun.prefixes()
    index = torch.from_numpy(rows)
    torch.testing.assert_close(prefixes.states(asked[rows]), prefixes.states(asked)[index], **CLOSE)
    torch.testing.assert_close(prefixes.decide(asked[rows]), prefixes.decide(asked)[index], **CLOSE)


def test_figures_do_not_depend_on_companions() -> None:
    begun = beginnings(5)
    asked = endings(begun, 25)
    together = begun.prefixes()
    states, choices = together.states(asked), together.decide(asked)
    for i in range(25):
        alone = begun.only([int(asked.prefixes[i])]).prefixes()
        one = asked[np.array([i])]
        one = Endings(np.array([0]), one.keeps, one.tokens, one.lengths)
        torch.testing.assert_close(alone.states(one)[0], states[i], **CLOSE)
        torch.testing.assert_close(alone.decide(one)[0], choices[i], **CLOSE)


def test_a_prefix_answers_again_as_it_did_before() -> None:
    begun = beginnings(4)
    asked, others = endings(begun, 20), endings(begun, 20, seed=1)
    prefixes = begun.prefixes()
    states, choices = prefixes.states(asked), prefixes.decide(asked)
    prefixes.states(others)
    prefixes.decide(others)
    assert torch.equal(prefixes.states(asked), states)
    assert torch.equal(prefixes.decide(asked), choices)


def test_what_stands_after_the_end_is_never_read() -> None:
    begun = beginnings(5)
    asked = endings(begun, 25)
    after = np.arange(begun.tokens.shape[1]) >= begun.lengths[:, None]
    garbage = Beginnings(begun.contexts, np.where(after, 9, begun.tokens), begun.lengths)
    after = np.arange(asked.tokens.shape[1]) >= asked.lengths[:, None]
    scrawled = Endings(asked.prefixes, asked.keeps, np.where(after, 7, asked.tokens), asked.lengths)
    assert after.any()
    assert torch.equal(garbage.prefixes().states(scrawled), begun.prefixes().states(asked))
    assert torch.equal(garbage.prefixes().decide(scrawled), begun.prefixes().decide(asked))


def test_equal_endings_are_told_apart_from_others_by_what_is_read() -> None:
    """One of each kind, whatever stands after the end."""
    tokens = np.array([[6, 7, 1], [6, 7, 2], [6, 7, 1], [6, 7, 1], [6, 8, 1]])
    asked = Endings(np.array([0, 0, 1, 0, 0]), np.array([3, 3, 3, 2, 3]), tokens, np.full(5, 2))
    rows, which = asked.distinct()
    assert sorted(rows.tolist()) == [0, 2, 3, 4]
    assert rows[which].tolist() == [0, 0, 2, 3, 4]


def test_what_memory_held_before_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = beginnings(5)
    asked = endings(begun, 25)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    try:
        prefixes = begun.prefixes()
        assert bool(prefixes.decide(asked).isfinite().all())
        assert bool(prefixes.decide(asked, torch.bfloat16).isfinite().all())
    finally:
        torch.use_deterministic_algorithms(False)
