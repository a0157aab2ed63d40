from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parley.policies.core.fitting.batches import evaluate
from parley.policies.dynonet.batches import SideExamples
from parley.policies.dynonet.graphs import UNK_ID
from parley.policies.dynonet.model import DynoNet, DynoNetFit, by_kind, linked
from parley.policies.dynonet.settings import dynonet_fit
from tests.policies.core.fitting.killed import goes_on, ignore
from tests.policies.dynonet.chats import LINKER, SIZES, VOCABULARY, chats, tiny

FIT = replace(dynonet_fit(), max_epochs=4, decay_epochs=1, patience=9, batch_size=4)


def test_a_fit_learns_and_goes_on_exactly_where_it_was_stopped(tmp_path: Path) -> None:
    examples = SideExamples(chats(8), VOCABULARY, SIZES, LINKER)

    def begun(name: str) -> DynoNetFit:
        return DynoNetFit(DynoNet(VOCABULARY, SIZES), examples, examples, FIT, 3, tmp_path / name, 0.0)

    whole = begun("alone")
    whole.run(ignore)
    losses = [epoch["validation_nll"] for epoch in whole.history]
    assert losses[-1] < 0.95 * losses[0]
    assert [epoch["stage"] for epoch in whole.history] == ["full", "full", "full", "decay"]
    assert goes_on(begun, batch=(2, 2)) == (1, 1)


def test_entities_and_selections_are_measured_apart() -> None:
    model, examples = tiny(), SideExamples(chats(6), VOCABULARY, SIZES, LINKER)
    told, whole = by_kind(model, examples), evaluate(model, examples)
    named = [node for side in examples.sides for _, own in side.turns for node in own.nodes if node >= 0]
    selected = [own for side in examples.sides for _, own in side.turns if own.nodes[1:2] != [-1] and own.words[0] == 3]
    assert told.items.num_targets.sum() == len(selected) > 0
    assert told.entities.num_targets.sum() == len(named) - len(selected) > 0
    plain = SideExamples(chats(6), VOCABULARY, SIZES, LINKER)
    nll = sum(model.nll(plain.batch(np.array([i]))).sum().item() for i in range(len(plain)))
    assert whole.nll_sums.sum() == pytest.approx(nll, abs=1e-3)
    assert told.entities.nll_sums.sum() + told.items.nll_sums.sum() < whole.nll_sums.sum()


def test_all_tokens_and_those_that_are_known_are_measured_by_chat() -> None:
    model, examples = tiny(), SideExamples(chats(6), VOCABULARY, SIZES, LINKER)
    told, whole = by_kind(model, examples), evaluate(model, examples)
    np.testing.assert_array_equal(told.tokens.num_targets, whole.num_targets)
    np.testing.assert_allclose(told.tokens.nll_sums, whole.nll_sums, rtol=1e-5)
    unknown = sum(own.words.count(UNK_ID) for side in examples.sides for _, own in side.turns)
    assert told.known_tokens.num_targets.sum() == told.tokens.num_targets.sum() - unknown < told.tokens.num_targets.sum()
    assert (told.known_tokens.nll_sums <= told.tokens.nll_sums).all()
    assert sorted(told.tokens.units) == sorted([*range(6)] * 2), "both sides of each chat"
    assert told.tokens.units[0] == whole.units[0] == np.argmin(examples.num_targets) // 2, "the shortest side is scored first"


def test_a_linker_finds_what_was_meant() -> None:
    found, meant = linked(chats(6), LINKER)
    assert meant.sum() > 10
    assert 0.8 < found.sum() / meant.sum() <= 1
    assert (found <= meant).all()
