"""Training of matching models: that they learn, schedules, fresh negatives, and that a killed one goes on exactly."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch.nn.functional import linear

from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.helpdesk.dialogues import dialogue
from parley.envs.corpora.pairs.tokens import tokenise
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.envs.ranking.groups import CandidateGroup, CandidateKind
from parley.policies.core import layers as products
from parley.policies.ranking.matching.fit import MatcherFit, build, evaluate
from parley.policies.ranking.matching.settings import MatcherFitConfig, dam_small, mrfn_small, smn_small
from tests.policies.core.fitting.killed import Killed, goes_on, ignore, weights
from tests.policies.ranking.matching.made_up import SIZES, VOCABULARY, pairs

FAST = MatcherFitConfig(learning_rate=0.01, batch_size=8, max_epochs=3, patience=3)


def group(key: str, context: tuple[Utterance, ...], candidates: Sequence[Utterance], num_right: int = 1) -> CandidateGroup:
    labels = tuple(place < num_right for place in range(len(candidates)))
    kinds = tuple(CandidateKind.POSITIVE if label else CandidateKind.RANDOM for label in labels)
    return CandidateGroup(key, context, tuple(candidates), labels, kinds, (True,) * len(labels))


def made_up(number: int, seed: int = 0) -> list[CandidateGroup]:
    return [group(f"g-{i}", context, replies) for i, (context, replies) in enumerate(pairs(number, seed))]


def helpdesk(first: int, last: int, candidates: int, most: int = 10_000) -> list[CandidateGroup]:
    """Groups of the right reply and random ones of the same dialogues."""
    dialogues = [[tuple(tokenise(each)) for each in dialogue(i, 0)] for i in range(first, last)]
    replies = sorted({words for each in dialogues for words in each})
    found = []
    for number, turns in enumerate(dialogues):
        for place in range(1, len(turns)):
            others = [each for each in replies if each not in turns]
            drawn = stream(0, "others", first + number, place).choice(len(others), size=candidates - 1, replace=False)
            found.append(group(f"d-{number}-{place}", tuple(turns[:place]), [turns[place], *(others[i] for i in drawn)]))
    return found[:most]


def fit(path: Path, kind: str = "smn", config: MatcherFitConfig = FAST, save_every_s: float = 1e9) -> MatcherFit:
    model = build(VOCABULARY, SIZES[kind])
    return MatcherFit(model, made_up(20), made_up(9, 1), config, 1, path / "state.safetensors", save_every_s)


@pytest.mark.parametrize(
    ("sizes", "epochs", "least"),
    [(smn_small(), 4, 0.3), (dam_small(), 2, 0.25), (mrfn_small(), 2, 0.2)],
    ids=["smn", "dam", "mrfn"],
)
@pytest.mark.slow
def test_the_small_models_learn_which_reply_a_help_desk_gives(sizes: object, epochs: int, least: float, tmp_path: Path) -> None:
    train, validation = helpdesk(0, 100, 2), helpdesk(100, 140, 10, most=60)
    vocabulary = PairVocabulary.build((words for each in train for words in (*each.context, *each.candidates)), None)
    config = MatcherFitConfig(batch_size=32, max_epochs=epochs, patience=epochs)
    training = MatcherFit(build(vocabulary, sizes), train, validation, config, 1, tmp_path / "state")
    untrained = evaluate(training.model, validation)
    model = training.run(ignore)
    assert untrained.recall_at_1 < 0.25
    assert evaluate(model, validation).recall_at_1 > least
    assert not model.training


def test_a_recall_counts_ties_as_chance_decides_them() -> None:
    model = build(VOCABULARY, SIZES["smn"])
    for value in model.parameters():
        value.data.zero_()
    same = [group("a", (("w1",),), [("w1",)] * 10), group("b", (("w1",),), [("w2",)] * 10, num_right=2)]
    figures = evaluate(model, same)
    assert figures.recall_at_1 == pytest.approx((1 / 10 + 2 / 10 / 2) / 2)
    assert figures.loss == pytest.approx(np.log(2))
    none = evaluate(model, [group("c", (("w1",),), [("w1",)] * 3, num_right=0)])
    assert np.isnan(none.recall_at_1)


def test_what_begins_an_epoch_is_told_how_much_of_it_is_made(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    model = build(VOCABULARY, SIZES["mrfn"])

    def begin(epoch: int, batches_done: int) -> None:
        assert not model.training
        told.append((epoch, batches_done))

    def kill(epoch: int, done: int, total: int) -> None:
        if (epoch, done) == (2, 3):
            raise Killed

    for stop in (kill, None):
        args = (model, made_up(20), made_up(9, 1), FAST, 1, tmp_path / "state.safetensors", 0.0)
        training = MatcherFit(*args, begin=begin)
        with suppress(Killed):
            training.run(ignore, stop)
    assert told == [(1, 0), (2, 0), (2, 2), (3, 0)]


@pytest.mark.parametrize("kind", SIZES)
def test_a_killed_training_goes_on_exactly(kind: str, tmp_path: Path) -> None:
    assert goes_on(lambda name: fit(tmp_path / name, kind, save_every_s=0), batch=(2, 3)) == (1, 2)


@pytest.mark.parametrize("kind", SIZES)
def test_bfloat16_is_for_products_and_no_convolution_of_volumes(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_products: set[torch.dtype] = set()
    of_volumes = {torch.float32}

    def product(*arguments: Any) -> torch.Tensor:
        found = linear(*arguments)
        of_products.add(found.dtype)
        return found

    monkeypatch.setattr(products, "linear", product)
    losses = []
    for precision in ("float32", "bfloat16"):
        of_products.clear()
        training = fit(tmp_path / precision, kind, replace(FAST, precision=precision))
        for module in training.model.modules():
            if isinstance(module, torch.nn.Conv3d):
                module.register_forward_hook(lambda _, __, output: of_volumes.add(output.dtype))
        losses.append(training.step(np.arange(4)).bounded)
    assert losses[0] == pytest.approx(losses[1], abs=0.02)
    assert all(torch.isfinite(value).all() for value in training.model.state_dict().values())
    assert torch.bfloat16 in of_products
    assert of_volumes == {torch.float32}


def test_a_batch_holds_about_as_many_pairs_as_asked_for(tmp_path: Path) -> None:
    training = fit(tmp_path, config=replace(FAST, batch_size=9))
    groups = training.groups(np.random.default_rng(0))
    assert sorted(np.concatenate(groups).tolist()) == list(range(20))
    assert [3 * len(each) for each in groups] == [9] * 6 + [6]


@pytest.mark.parametrize("keep", ["best", "last"])
def test_which_epoch_is_kept_is_the_recipe_s(keep: Literal["best", "last"], tmp_path: Path) -> None:
    training = fit(tmp_path, config=replace(FAST, learning_rate=0.5, keep=keep))
    after: list[dict[str, torch.Tensor]] = []
    training.run(lambda _: after.append(weights(training.model)))
    best = [row["best"] for row in training.history]
    assert best[-1] is False
    wanted = after[-1 if keep == "last" else len(best) - 1 - best[::-1].index(True)]
    assert all(torch.equal(value, wanted[name]) for name, value in weights(training.model).items())


def test_the_rate_falls_by_steps(tmp_path: Path) -> None:
    training = fit(tmp_path, config=replace(FAST, decay=0.5, decay_steps=3, max_epochs=1, patience=1))
    rates: list[float] = []
    training.run(ignore, lambda *_: rates.append(training._optimiser.param_groups[0]["lr"]))
    assert rates == [0.01] * 3 + [0.005] * 3 + [0.0025] * 2


def test_values_of_the_gradient_are_clipped_where_asked_for(tmp_path: Path) -> None:
    training = fit(tmp_path, config=replace(FAST, clip=1e-4, clip_by="value"))
    training.step(np.arange(4))
    largest = max(float(value.grad.abs().max()) for value in training.model.parameters() if value.grad is not None)
    assert largest == pytest.approx(1e-4)


def test_fresh_negatives_are_drawn_anew_in_each_epoch(tmp_path: Path) -> None:
    seen: list[tuple[list[int], int]] = []

    def wrong(groups: np.ndarray, seed: int) -> list[Utterance]:
        seen.append((groups.tolist(), seed))
        return [("w9",)] * len(groups)

    config = replace(FAST, fresh_negatives=True, batch_size=10, max_epochs=2)
    model, train = build(VOCABULARY, SIZES["smn"]), [*made_up(9), group("two", (("w1",),), [("w1",), ("w2",), ("w3",)], 2)]
    training = MatcherFit(model, train, made_up(5), config, 1, tmp_path / "state", wrong=wrong)
    pairs_of, labels = training._examples(np.array([9, 0]))
    assert pairs_of[0] == ((("w1",),), (("w1",), ("w2",), ("w9",), ("w9",)))
    assert labels == [True, True, False, False, True, False]
    seen.clear()
    training.run(ignore)
    drawn = [sorted(index for groups, _ in seen[start : start + 3] for index in groups) for start in (0, 3)]
    assert drawn == [[*range(9), 9, 9]] * 2, "each right reply gets one in each epoch"
    assert len({seed for _, seed in seen}) == 6
    with pytest.raises(ConfigError, match="no source"):
        MatcherFit(model, train, made_up(5), config, 1, tmp_path / "other")


def test_vectors_are_what_training_starts_from(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(len(VOCABULARY), 8)).astype(np.float32)
    model = build(VOCABULARY, replace(SIZES["dam"], tuned=False))
    training = MatcherFit(model, made_up(4), made_up(4), replace(FAST, max_epochs=1), 1, tmp_path / "state", vectors=vectors)
    training.run(ignore)
    assert torch.equal(model.embedding.weight.data[1:], torch.from_numpy(vectors)[1:])


def test_the_criterion_is_the_recipe_s(tmp_path: Path) -> None:
    for criterion, wanted in (("recall", "validation_recall_at_1"), ("loss", "validation_loss")):
        training = fit(tmp_path / criterion, config=replace(FAST, criterion=criterion, max_epochs=1))
        training.run(ignore)
        figure = training.history[0][wanted]
        assert training.best_loss == pytest.approx(1 - figure if criterion == "recall" else figure)
