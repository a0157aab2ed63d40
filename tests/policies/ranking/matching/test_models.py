"""SMN, DAM and MRFN: equal to the padded networks, whatever stands beside a pair, and their options."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.plain_ranking import PLAIN, PlainBatch, plain_scores
from parley.envs.core.errors import OutOfRangeError
from parley.envs.corpora.pairs.vocabulary import PAD_ID
from parley.policies.ranking.matching.fit import MatcherRanker, build
from parley.policies.ranking.matching.matcher import Matcher
from parley.policies.ranking.matching.settings import DamSizes, MrfnSizes, SmnSizes, dam_small, mrfn_small, smn_small
from tests.policies.ranking.matching.made_up import KINDS, VOCABULARY, matcher, pairs

CPU = torch.device("cpu")


@pytest.mark.parametrize("padding", ["masked", "released"])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_the_padded_network(kind: str, padding: str) -> None:
    model, asked = matcher(kind, padding=padding), pairs(60, seed=3)
    ours, plain = np.concatenate(MatcherRanker(model).score_all(asked)), np.concatenate(plain_scores(model, asked))
    assert plain.std() > 0.01, "the network tells replies apart"
    assert np.abs(ours - plain).max() < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_the_padded_network(kind: str) -> None:
    model, asked = matcher(kind), pairs(8, seed=5)
    flat = [(context, reply) for context, replies in asked for reply in replies]
    labels = torch.arange(len(flat)) % 2 * 1.0
    passes = model(model.reader.read(asked, CPU)), PLAIN[type(model)](model, PlainBatch(model, flat))
    wanted = dict(model.named_parameters())
    losses = [model.loss(each, labels).mean() for each in passes]
    assert float(losses[0].detach()) == pytest.approx(float(losses[1].detach()), abs=1e-5)
    ours, plain = (torch.autograd.grad(loss, list(wanted.values()), retain_graph=True) for loss in losses)
    for name, mine, theirs in zip(wanted, ours, plain, strict=True):
        if name == "embedding.weight":
            mine, theirs = mine[PAD_ID + 1 :], theirs[PAD_ID + 1 :]
        assert torch.allclose(mine, theirs, rtol=1e-4, atol=1e-5), name


@pytest.mark.parametrize("kind", KINDS)
def test_a_score_does_not_depend_on_how_far_a_batch_is_padded(kind: str) -> None:
    model = matcher(kind)
    short = ((("w1", "w2"), ("w3",)), [("w4", "w2")])
    long = (tuple(("w5",) * 11 for _ in range(4)), [("w6",) * 11])
    ranker = MatcherRanker(model)
    (alone,), (beside, _) = ranker.score_all([short]), ranker.score_all([short, long])
    assert np.abs(alone - beside).max() < 1e-7
    changed = {"words": 29, "turns": 10}
    if kind == "mrfn":
        # Its weights do not depend on how much can be read, so that the padded network can be larger too.
        wider = matcher(kind, **changed)
        assert np.abs(plain_scores(wider, [short])[0] - alone).max() < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_padding_reaches_scores_as_released(kind: str) -> None:
    asked = pairs(10)
    masked, released = (
        np.concatenate(MatcherRanker(matcher(kind, padding=padding)).score_all(asked)) for padding in ("masked", "released")
    )
    assert np.abs(masked - released).max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8, deadline=None)
@given(order=st.permutations(range(6)), unknowns=st.sampled_from([0, 2]))
def test_a_score_depends_on_its_own_context_and_reply_alone(kind: str, order: list[int], unknowns: int) -> None:
    ranker = MatcherRanker(matcher(kind, unknowns=unknowns))
    (context, replies), *others = pairs(5, seed=9, candidates=6)
    wanted = [float(ranker.score(context, [reply])[0]) for reply in replies]
    found = ranker.score_all([*others, (context, [replies[i] for i in order])])[-1]
    assert found == pytest.approx([wanted[i] for i in order], abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_candidates_have_equal_scores(kind: str) -> None:
    (context, (first, second, _)), *_ = pairs(1, seed=2)
    scores = MatcherRanker(matcher(kind)).score(context, [first, second, first, second, first])
    assert scores[0] == scores[2] == scores[4]
    assert scores[1] == scores[3] != scores[0]


@pytest.mark.parametrize("padding", ["masked", "released"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_empty_has_a_score(kind: str, padding: str) -> None:
    ranker = MatcherRanker(matcher(kind, padding=padding))
    asked = [((), [("w1",), ()]), (((),), [("w1",), ()]), (((), ("w1",), ()), [("w2",)]), ((("w1",),), [])]
    scores = ranker.score_all(asked)
    assert [len(each) for each in scores] == [2, 2, 1, 0]
    assert np.isfinite(np.concatenate(scores)).all()
    assert scores[0].tolist() == scores[1].tolist(), "no turn is read as an empty one"
    assert ranker.score_all([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_newest_turns_and_the_last_words_are_read(kind: str) -> None:
    ranker = MatcherRanker(matcher(kind))
    turns = tuple((f"w{number}", "w2") for number in range(6))
    reply = tuple(f"w{number}" for number in range(15))
    whole = ranker.score(turns, [reply])
    assert whole.tolist() == ranker.score(turns[-4:], [reply[-11:]]).tolist()
    assert whole.tolist() != ranker.score(turns[-3:], [reply]).tolist()


def test_an_unknown_word_that_the_context_holds_is_seen_where_it_is_told_apart() -> None:
    context = (("w1", "foo"), ("bar", "w2"))
    one, apart = (MatcherRanker(matcher("smn", unknowns=number)) for number in (0, 4))
    same = one.score(context, [("foo", "w3"), ("bar", "w3"), ("baz", "w3")])
    assert same[0] == same[1] == same[2]
    told = apart.score(context, [("foo", "w3"), ("bar", "w3"), ("baz", "w3"), ("qux", "w3")])
    assert len(set(told[:3].tolist())) == 3
    assert told[2] == told[3], "two words that the context lacks are alike"
    # Where more are unknown than are told apart, the others are one.
    few = MatcherRanker(matcher("smn", unknowns=1)).score(context, [("foo",), ("bar",), ("baz",)])
    assert few[1] == few[2] != few[0]


def test_letters_of_unknown_words_are_read_by_mrfn_alone() -> None:
    context, candidates = (("w1", "w2"),), [("ab",), ("cd",)]
    first, second = MatcherRanker(matcher("mrfn", alphabet=9)).score(context, candidates)
    assert first == second, "letters that no word of the vocabulary has are one"
    first, second = MatcherRanker(matcher("mrfn")).score(context, [("w1w",), ("1w1",)])
    assert first != second
    first, second = MatcherRanker(matcher("dam")).score(context, [("w1w",), ("1w1",)])
    assert first == second


def test_dropout_works_in_training_alone() -> None:
    asked = pairs(3)
    for dropout, changes in ((0.5, True), (0.0, False)):
        model = matcher("mrfn", dropout=dropout)
        block = model.reader.read(asked, CPU)
        with torch.no_grad():
            still = model(block)
            model.train()
            assert torch.equal(model(block), still) != changes
            model.eval()
            assert torch.equal(model(block), still)


def test_vectors_that_are_kept_are_not_trained() -> None:
    model = matcher("smn", tuned=False)
    model(model.reader.read(pairs(2), CPU)).sum().backward()
    assert model.embedding.weight.grad is None
    assert model.output.weight.grad is not None
    vectors = np.arange(len(VOCABULARY) * 8, dtype=np.float32).reshape(-1, 8)
    model.take_vectors(vectors)
    assert torch.equal(model.embedding.weight.data[1:], torch.from_numpy(vectors)[1:])
    assert not model.embedding.weight.data[PAD_ID].any()


def test_a_loss_above_its_cap_teaches_nothing() -> None:
    model = matcher("dam")
    log_odds = torch.tensor([[20.0], [1.0]], requires_grad=True)
    loss = model.loss(log_odds, torch.zeros(2), 10.0)
    loss.sum().backward()
    assert loss.tolist() == pytest.approx([10, np.log1p(np.e)])
    assert log_odds.grad is not None
    assert log_odds.grad.flatten().tolist() == pytest.approx([0, 1 / (1 + np.exp(-1))])


def test_mrfn_adds_up_the_losses_of_its_six_views_and_scores_by_their_mean() -> None:
    model = matcher("mrfn")
    log_odds = torch.tensor([[0.0, 1, 2, 3, 4, 5]])
    assert float(model.loss(log_odds, torch.ones(1))) == pytest.approx(sum(np.log1p(np.exp(-i)) for i in range(6)))
    assert float(model.scores(log_odds)) == pytest.approx(np.mean([1 / (1 + np.exp(-i)) for i in range(6)]))


@pytest.mark.parametrize(
    ("sizes", "without_words"),
    [
        (SmnSizes(), 399_204),
        (SmnSizes(gru=100, embed=100), 188_604),
        (DamSizes(), 1_405_793),
        (DamSizes(turns=9), 1_405_217),
        (MrfnSizes(), 3_788_940),
        (smn_small(), 118_604),
        (dam_small(), 174_593),
        (mrfn_small(), 953_976),
    ],
    ids=str,
)
def test_parameters_are_counted_with_and_without_word_vectors(sizes: SmnSizes, without_words: int) -> None:
    counted = build(VOCABULARY, sizes).count()
    assert counted.without_words == without_words
    assert counted.total == without_words + len(VOCABULARY) * sizes.embed


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(OutOfRangeError, match="words"):
        SmnSizes(words=4)
    with pytest.raises(OutOfRangeError, match="heads"):
        MrfnSizes(heads=7)


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_weights_are_of_the_seed(kind: str) -> None:
    def drawn(seed: int) -> Matcher:
        model = build(VOCABULARY, matcher(kind).sizes)
        model.initialise(torch.Generator().manual_seed(seed))
        return model

    first, same, other = drawn(1).state_dict(), drawn(1).state_dict(), drawn(2).state_dict()
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])
    assert all(value.isfinite().all() for value in first.values())
