"""Attacks against brute force on tiny cases, their budgets, and that examples do not know of each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.ranking.attacks.attack import (
    AttackMethod,
    EditBeam,
    Gaslite,
    ImportanceGreedy,
    RandomEdits,
    RandomSteps,
    RandomWords,
    SlopeGreedy,
    falling,
)
from parley.engine.ranking.attacks.cases import BY_NAME, AttackOutcome, KeptTags, KnownWords, success_curve, transferred
from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.edit_game import RankGoal
from parley.envs.ranking.groups import CandidateGroup, Context
from parley.policies.ranking.matching.fit import MatcherRanker
from parley.policies.ranking.ranker import Ranker, UnscoredError
from tests.engine.ranking.fakes import Crossed, Odds, Sum, Toy, attack, group
from tests.policies.ranking.matching.made_up import KINDS, matcher

CONTEXT_ONLY = [BY_NAME["context"]]
METHODS: list[AttackMethod] = [ImportanceGreedy(), EditBeam(2), RandomEdits(), SlopeGreedy()]
APPENDING: list[AttackMethod] = [Gaslite(2, 3, 2), RandomSteps(2, 3), RandomWords()]
WORDS = ("n1", "n2", "n3", "v1", "a1", "n7", "n8", "v7", "a7", "the", "is")


def brute_force(ranker: Ranker, of: CandidateGroup, place: int, edits: int) -> float:
    """The highest score of all replies in which so many words at most are context words of their tags."""
    reply = of.candidates[place]
    entering: dict[str, list[str]] = {}
    for word in dict.fromkeys(word for turn in of.context for word in turn if word not in ("the", "is")):
        entering.setdefault(word[0], []).append(word)
    texts: list[Utterance] = [reply]
    for size in range(1, edits + 1):
        for places in combinations(range(len(reply)), size):
            choices = [entering.get(reply[i][0], []) if reply[i] not in ("the", "is") else [] for i in places]
            for words in product(*choices):
                text = list(reply)
                for i, word in zip(places, words, strict=True):
                    text[i] = word
                changed = all(text[i] != reply[i] for i in places)
                # No context word stands there twice; one that the reply had may move.
                if changed and not any(text.count(word) > 1 for word in words):
                    texts.append(tuple(text))
    allowed = [text for text in texts if text == reply or text not in of.candidates]
    return float(max(np.asarray(ranker.score(of.context, allowed))))


def unreachable(method: AttackMethod, ranker: Ranker, of: CandidateGroup, edits: int) -> AttackOutcome:
    """An attack that never succeeds, and so says what is the best that it finds."""
    (outcome,) = attack(ranker, method=method, moves=CONTEXT_ONLY, edits=edits, budget=10_000).run([of], [1])
    assert outcome.status == "failure"
    return outcome


WEIGHTS = st.fixed_dictionaries({word: st.integers(-9, 9).map(float) for word in WORDS})
REPLIES = st.lists(st.sampled_from(("n7", "n8", "v7", "a7", "the", "is", "n1")), min_size=1, max_size=5, unique=True)


@given(weights=WEIGHTS, reply=REPLIES, edits=st.integers(1, 3))
def test_a_wide_beam_finds_what_brute_force_finds(weights: dict[str, float], reply: list[str], edits: int) -> None:
    pairs = {f"{a} {b}": float((len(a) * 7 + ord(a[1]) * ord(b[1])) % 11 - 5) for a in WORDS for b in WORDS}
    ranker = Crossed(weights | pairs | {"top": 1000.0})
    of = group(["top", " ".join(reply)])
    found = unreachable(EditBeam(10_000), ranker, of, edits)
    assert found.score == brute_force(ranker, of, 1, edits)


@given(weights=WEIGHTS, reply=REPLIES, edits=st.integers(1, 3))
def test_greedy_never_beats_brute_force_and_keeps_what_it_gains(
    weights: dict[str, float], reply: list[str], edits: int
) -> None:
    ranker = Sum(weights | {"top": 1000.0})
    of = group(["top", " ".join(reply)])
    found = unreachable(ImportanceGreedy(), ranker, of, edits)
    assert found.score is not None
    assert found.scores[1] <= found.score <= brute_force(ranker, of, 1, edits)
    assert ranker.score((), [found.words]) == [found.score]
    assert [point.margin for point in found.trace] == sorted(point.margin for point in found.trace)


@given(weights=st.lists(st.integers(-9, 9).map(float), min_size=4, max_size=4, unique=True), edits=st.integers(1, 3))
def test_greedy_finds_the_best_where_words_add_up_and_all_may_become_the_same(weights: list[float], edits: int) -> None:
    """One good word for each place: what a word takes away is what it hides, so the order of importance is that of gains."""
    of = group(["top", "n4 v4 a4 b4"], context=("n1 v1 a1 b1",))
    ranker = Sum(
        dict(zip(("n4", "v4", "a4", "b4"), weights, strict=True)) | dict.fromkeys(("n1", "v1", "a1", "b1"), 5.0) | {"top": 99.0}
    )
    for method in (ImportanceGreedy(), SlopeGreedy()):
        assert unreachable(method, ranker, of, edits).score == brute_force(ranker, of, 1, edits)


def test_the_least_edits_that_reach_the_goal_are_found_and_counted() -> None:
    ranker = Sum({"best": 5.0, "n7": -4.0, "v7": 2.0, "n3": 1.0, "v1": 1.0, "n1": 3.0})
    (outcome,) = attack(ranker, moves=CONTEXT_ONLY, edits=2).run([group(["best", "the n7 v7 n9"])], [0])
    assert outcome.status == "success"
    # Four erasures; then n7 by n3, n1 or n2, of the newest turn first; then n9, for erasing it does least harm; not v7.
    assert outcome.words == ("the", "n1", "v7", "n3")
    assert (outcome.queries, outcome.cost, outcome.moves) == (4 + 3 + 1, 2, ("context", "context"))
    assert outcome.edited == (False, True, False, True)
    assert [tuple(point) for point in outcome.trace] == [(5, -2.0, 1), (6, 0.0, 1), (8, 1.0, 2)]
    assert outcome.ranks() == (2.0, 1.0)


def test_a_tie_with_the_best_is_no_success() -> None:
    ranker = Sum({"best": 3.0, "n1": 3.0})
    (outcome,) = attack(ranker, moves=CONTEXT_ONLY, edits=1).run([group(["best", "n7"])], [0])
    assert (outcome.status, outcome.score, outcome.ranks()) == ("failure", 3.0, (2.0, 1.5))


@pytest.mark.parametrize("method", [*METHODS, *APPENDING], ids=lambda method: type(method).__name__)
@pytest.mark.parametrize("kind", ["promote", "demote"])
def test_probabilities_near_0_and_1_are_told_apart(method: AttackMethod, kind: Any) -> None:
    weights = {"top": 16.0, "big": 13.0, "large": -1.0, "huge": -2.0, "n7": -17.0, "v7": -16.0, "n1": 9.0, "n3": 8.0, "v1": 11}
    of = group(["top big", "n7 v7 n8 a7"])
    found = [
        attack(ranker, method=method, goal=RankGoal(kind), moves=[BY_NAME["context"], BY_NAME["synonym"]]).run([of], [0])[0]
        for ranker in (Sum(weights), Odds(weights))
    ]
    plain, odds = (replace(each, scores=(), score=0.0, trace=()) for each in found)
    assert plain == odds
    assert len(found[0].trace) == len(found[1].trace) >= 1
    assert transferred(found, [of, of], RankGoal(kind), Odds(weights)) == [each.status == "success" for each in found]


def test_a_right_reply_is_demoted_by_synonyms_alone() -> None:
    ranker = Sum({"run": 3.0, "big": 2.0, "cat": 9.0, "other": 12.5})
    goal = RankGoal("demote")
    (outcome,) = attack(ranker, goal=goal).run([group(["the big cat run", "other", "none"])], [0])
    assert outcome.status == "success"
    assert outcome.words == ("the", "big", "cat", "go")
    assert set(outcome.moves) == {"synonym"}
    (below,) = attack(ranker, goal=RankGoal("demote", rank=2)).run([group(["the big cat run", "other", "none"])], [0])
    assert below.status == "failure"
    assert below.words == ("the", "large", "cat", "go")


def test_a_right_reply_that_another_right_one_passes_is_not_demoted() -> None:
    of = group(["the big cat run", "right", "wrong"])
    of = replace(of, labels=(True, True, False))
    ranker = Sum({"run": 3.0, "cat": 9.0, "right": 11.0, "wrong": 8.0})
    (held,) = attack(ranker, goal=RankGoal("demote")).run([of], [0])
    assert (held.status, held.words, held.score) == ("failure", ("the", "big", "cat", "go"), 9.0)
    (passed,) = attack(Sum(ranker.weights | {"wrong": 9.5}), goal=RankGoal("demote")).run([of], [0])
    assert passed.status == "success"
    assert transferred([passed], [of], RankGoal("demote"), ranker) == [False]


def test_which_reply_is_edited() -> None:
    of = group(["r", "n7", "n8", "n9"], attackable=(True, True, True, False))
    ranker = Sum({"r": 9.0, "n8": 2.0, "n9": 5.0})
    (best,) = attack(ranker).run([of], [0])
    assert best.index == 2
    drawn = {attack(ranker, goal=RankGoal(target="random")).run([of], [seed])[0].index for seed in range(20)}
    assert drawn == {1, 2}


def test_what_cannot_be_attacked_is_skipped_with_the_reason() -> None:
    reached = group(["n7", "n1"], key="reached")
    none = group(["n7", "n8"], key="none", attackable=(True, False))
    outcomes = attack(Sum({"n1": 1.0})).run([reached, none], [0, 0])
    assert [(each.key, each.status) for each in outcomes] == [("reached", "skipped"), ("none", "skipped")]
    assert "before any edit" in outcomes[0].reason
    assert "no attackable reply" in outcomes[1].reason
    (few,) = attack(Sum({}), goal=RankGoal("demote", rank=2)).run([none], [0])
    assert "fewer other replies" in few.reason


@pytest.mark.parametrize("method", [*METHODS, *APPENDING], ids=lambda method: type(method).__name__)
def test_a_smaller_budget_is_the_beginning_of_a_larger_one(method: AttackMethod) -> None:
    ranker = Crossed({"top": 50.0, "n1": 3.0, "n2": 4.0, "v1": 2.0, "n3": 1.0, "a1": 5.0, "a1 n2": 7.0})
    groups = [group(["top", "the n7 v7 n8 a7"], key=f"test-{i}") for i in range(3)]
    whole = attack(ranker, method=method, budget=300).run(groups, [1, 2, 3])
    for budget in (1, 2, 7, 40, 41, 150):
        asking = Sum(ranker.weights)
        asking.score = lambda *pair, asking=asking: (asking.asked.extend(pair[1]), ranker.score(*pair))[1]  # type: ignore[method-assign,misc]
        cut = attack(asking, method=method, budget=budget).run(groups[:1], [1])
        assert cut[0].queries == min(budget, whole[0].queries)
        assert cut[0].trace == tuple(point for point in whole[0].trace if point.queries <= budget)
        assert len(set(asking.asked) - set(groups[0].candidates)) == cut[0].queries


class Free(Sum):
    is_free = True


@pytest.mark.parametrize("budget", [9, 300])
@pytest.mark.parametrize("method", [*METHODS, *APPENDING], ids=lambda method: type(method).__name__)
def test_the_budget_limits_what_a_ranker_is_asked_and_only_a_free_one_scores_behind_a_success(
    method: AttackMethod, budget: int
) -> None:
    weights = {"top": 6.0, "n1": 3.0, "n2": 4.0, "v1": 2.0, "n3": 1.0, "a1": 5.0}
    of, outcomes = group(["top", "the n7 v7 n8 a7"]), []
    for ranker in (Sum(weights), Free(weights)):
        (outcome,) = attack(ranker, method=method, budget=budget).run([of], [1])
        assert len(ranker.asked) - len(of.candidates) == outcome.num_scored <= budget
        outcomes.append(outcome)
    paid, free = outcomes
    assert paid.num_scored == paid.queries == free.queries <= free.num_scored
    assert replace(free, num_scored=paid.num_scored) == paid


def test_scores_before_any_edit_may_come_from_another_attack_and_are_asked_for_where_they_do_not() -> None:
    weights = {"top": 6.0, "n1": 3.0, "n2": 4.0}
    groups = [group(["top", "n7 v7"], key=f"test-{number}") for number in range(2)]
    whole = attack(Sum(weights)).run(groups, [1, 2])
    again = Sum(weights)
    assert attack(again).run(groups, [1, 2], [np.array(whole[0].scores), None]) == whole
    assert len(again.asked) == sum(outcome.num_scored for outcome in whole) + len(groups[1].candidates)


def test_drafts_behind_a_success_are_scored_by_a_free_ranker_alone() -> None:
    of = group(["top", "n7 v7 a7 n8 n9"])
    scored = [attack(ranker).run([of], [1])[0] for ranker in (Sum({"top": 2.0, "n1": 3.0}), Free({"top": 2.0, "n1": 3.0}))]
    assert [outcome.status for outcome in scored] == ["success"] * 2
    assert scored[1].num_scored > scored[1].queries == scored[0].num_scored


def test_greedy_says_that_it_is_not_exhaustive_and_a_beam_finds_what_it_missed() -> None:
    # "v7" comes first, for without it the score is highest. There "v1" helps a little, and the one edit is spent.
    ranker = Sum({"top": 6.0, "n7": 1.5, "v7": 1.0, "v1": 2.0, "n1": 9.0})
    of = group(["top", "v7 n7"])
    greedy, beam = (
        attack(ranker, method=method, moves=CONTEXT_ONLY, edits=1).run([of], [1])[0]
        for method in (ImportanceGreedy(), EditBeam())
    )
    assert (greedy.status, greedy.words) == ("failure", ("v1", "n7"))
    assert "greedy does not try all" in greedy.reason
    assert (beam.status, beam.words) == ("success", ("v7", "n1"))


@pytest.mark.parametrize("method", [*METHODS, *APPENDING], ids=lambda method: type(method).__name__)
def test_an_example_does_not_know_of_the_others(method: AttackMethod) -> None:
    weights = {"top": 9.0, "n1": 3.0, "n2": 3.0, "v1": 2.0, "n3": 3.0, "a1": 2.0, "n7": 1.0}
    groups = [
        group(["top", reply], key=f"test-{i}") for i, reply in enumerate(("n7 v7", "the n8 n7 a7 v7", "a7", "is", "n9 n7"))
    ]
    alone = [attack(Sum(weights), method=method).run([of], [seed])[0] for seed, of in enumerate(groups)]
    for side_by_side in (1, 2, 64):
        together = attack(Sum(weights, noise=1e-7), method=method, num_side_by_side=side_by_side).run(groups, range(5))
        for first, second in zip(alone, together, strict=True):
            assert (first.status, first.words, first.queries, first.cost) == (
                second.status,
                second.words,
                second.queries,
                second.cost,
            )


def test_examples_in_flight_share_batches_and_others_join_as_they_end() -> None:
    ranker = Sum({"top": 9.0, "n1": 3.0})
    groups = [group(["top", reply], key=f"test-{i}") for i, reply in enumerate(["n7", "n7 n8 n9 v7", "v7", "a7 n7"] * 3)]
    attack(ranker, num_side_by_side=3).run(groups, range(12))
    assert max(ranker.sizes) == 3
    assert 3 in ranker.sizes[2:]


def test_what_is_asked_twice_counts_once() -> None:
    ranker = Sum({"top": 9.0})
    (outcome,) = attack(ranker, moves=[BY_NAME["deletion"]], edits=1).run([group(["top", "n7 v7 a7"])], [0])
    assert outcome.queries == 3
    assert sorted(ranker.asked[2:]) == [("n7", "a7"), ("n7", "v7"), ("v7", "a7")]


class Dies(Sum):
    """Cannot score one word."""

    def score(self, context: Context, candidates: Sequence[Utterance]) -> np.ndarray:
        found = super().score(context, candidates)
        return np.array([np.nan if "n2" in reply else score for reply, score in zip(candidates, found, strict=True)])


def test_a_ranker_that_fails_costs_its_own_example_alone() -> None:
    groups = [
        group(["top", "n7"], context=("n1",), key="fine"),
        group(["top", "n7"], context=("n2 n1",), key="later"),
        group(["top", "n2"], key="at once"),
    ]
    fine, later, at_once = attack(Dies({"n1": 2.0, "top": 1.0}, noise=0.0)).run(groups, [0, 0, 0])
    assert fine.status == "success"
    assert (later.status, at_once.status) == ("error", "error")
    assert "not finite" in later.reason
    assert "nan for candidate 2: 'n2'" in at_once.reason


class NoSlopes:
    def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
        return [0.0] * len(candidates)


class BadSlopes(Sum):
    def slopes(self, context: Context, reply: Utterance, words: Sequence[str]) -> np.ndarray:
        return np.zeros((1, 1))


class Silent(Free):
    """Says nothing of replies with one word, nor of those that are asked about beside them."""

    def score(self, context: Context, candidates: Sequence[Utterance]) -> np.ndarray:
        if any("n2" in reply for reply in candidates):
            raise UnscoredError("no answer (filtered)")
        return super().score(context, candidates)


@pytest.mark.parametrize("method", METHODS[:3], ids=repr)
def test_a_draft_without_a_score_is_no_success_and_the_search_goes_on(method: AttackMethod) -> None:
    weights = {"n1": 0.5, "n2": 9.0, "n3": 3.0, "n9": 1.0, "top": 2.0}
    how: Any = {"method": method, "moves": CONTEXT_ONLY, "edits": 1, "budget": 50}
    of = group(["top", "n9 v9"], context=["n1 n2 n3"])
    (lost,) = attack(Silent(weights), **how).run([of], [1])
    assert lost.num_unscored == 1
    assert (lost.status, lost.words) == ("success", ("n3", "v9"))
    weights |= {"n9": 4.0, "n2": -9.0}
    of = group(["n9 v9", "top"], context=["n2 n3"])
    (lost,) = attack(Silent(weights), goal=RankGoal("demote"), **how).run([of], [1])
    assert (lost.status, lost.num_unscored, lost.words) == ("failure", 1, ("n3", "v9")), "nor is it the lowest there is"


def test_slopes_are_asked_of_rankers_that_give_them() -> None:
    weights = {"top": 9.0, "n1": 3.0, "n2": 8.0, "v1": 4.0}
    (outcome,) = attack(Sum(weights), method=SlopeGreedy(1)).run([group(["top", "n7 v7"])], [0])
    assert (outcome.status, outcome.queries, outcome.num_slopes) == ("success", 2, 2)
    (outcome,) = attack(BadSlopes(weights), method=SlopeGreedy()).run([group(["top", "n7 v7 n8"])], [0])
    assert outcome.status == "error"
    assert "shape (1, 1) for 3 places" in outcome.reason
    with pytest.raises(ConfigError, match="gives no slopes"):
        attack(NoSlopes(), method=SlopeGreedy())


@pytest.mark.parametrize("name", ["edits", "budget", "num_side_by_side"])
def test_numbers_below_one_are_named(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        attack(Sum({}), **{name: 0})


def test_a_constant_ranker_is_never_attacked_with_success() -> None:
    for method in METHODS[:3]:
        (outcome,) = attack(NoSlopes(), method=method).run([group(["n7", "n8", "v7"])], [0])
        assert (outcome.status, outcome.trace) == ("failure", ())


def test_an_empty_reply_and_an_empty_context() -> None:
    ranker = Sum({"top": 1.0, "n1": 2.0})
    empty, nothing = attack(ranker).run([group(["top", ""]), group(["top", "n7"], context=("",), key="test-1")], [0, 0])
    assert (empty.status, empty.words, empty.moves) == ("success", ("n1",), ("insertion",))
    assert (nothing.status, nothing.reason, nothing.queries) == ("failure", ImportanceGreedy.ended, 1)


def test_random_edits_use_up_small_spaces_and_differ_by_seed() -> None:
    ranker = Sum({"top": 9.0})
    outcomes = [
        attack(ranker, method=RandomEdits(), moves=CONTEXT_ONLY, edits=1).run([group(["top", "n7"])], [seed]) for seed in (0, 1)
    ]
    assert [outcome[0].queries for outcome in outcomes] == [3, 3]
    of = group(["top", "n7 n8 n9 v7 a7 the is"])
    orders = []
    for seed in (0, 1):
        asking = Sum({"top": 9.0})
        attack(asking, method=RandomEdits(), budget=30).run([of], [seed])
        orders.append(asking.asked)
    assert orders[0] != orders[1]


def test_an_attack_prints_what_it_is_made_of() -> None:
    made = attack(Sum({}), [KeptTags(Toy()), KnownWords({"n1"})], goal=RankGoal("demote", 2), method=EditBeam(3), edits=2)
    assert repr(made) == (
        "RankAttack(\n"
        "  ranker: Sum\n"
        "  goal: demote the right reply below ranks 1 to 2, the best-scored one\n"
        "  method: EditBeam(beams=3)\n"
        "  moves: synonym\n"
        "  constraints:\n"
        "    AtMostWords(edits=2)\n"
        "    NoOtherCandidate()\n"
        "    KeptTags()\n"
        "    KnownWords()\n"
        "  budget: 500 queries\n"
        "  language: Toy\n"
        "  side by side: 64 examples\n"
        ")"
    )


def test_success_is_read_off_one_trace_at_every_budget() -> None:
    made = [
        AttackOutcome("a", "success", queries=7),
        AttackOutcome("b", "success", queries=90),
        AttackOutcome("c", "failure", queries=100),
        AttackOutcome("d", "skipped"),
        AttackOutcome("e", "error"),
    ]
    found = success_curve(made, budget=120)
    assert [(queries, round(estimate.value, 3), estimate.n) for queries, estimate in found] == [
        (10, 0.333, 3), (50, 0.333, 3), (100, 0.667, 3), (120, 0.667, 3),
    ]  # fmt: skip
    assert success_curve(made[3:], 500)[0][1].n == 0


def test_contexts_of_a_dialogue_are_one_unit_of_a_success_curve() -> None:
    made = [AttackOutcome(str(i), "success" if i < 4 else "failure", queries=5) for i in range(8)]
    ((_, alone),) = success_curve(made, budget=10)
    ((_, together),) = success_curve([*made, AttackOutcome("x", "skipped")], budget=10, dialogues=[0] * 4 + [1] * 4 + [2])
    assert (alone.n, together.n, together.value) == (8, 2, 0.5)
    assert together.high - together.low > 1.4 * (alone.high - alone.low)


def test_edits_are_taken_to_other_rankers() -> None:
    groups = [group(["top", "n7"], key=f"test-{i}") for i in range(2)]
    first = attack(Sum({"top": 2.0, "n1": 3.0}), moves=CONTEXT_ONLY)
    outcomes = first.run(groups, [0, 1])
    untried = replace(outcomes[1], status="skipped")
    assert transferred([outcomes[0], untried], groups, first.goal, Sum({"top": 1.0, "n1": 1.5})) == [True, None]
    assert transferred(outcomes[:1], groups[:1], first.goal, Sum({"top": 1.0, "n1": 1.0})) == [False]
    assert transferred(outcomes[:1], groups[:1], first.goal, Sum({"n7": 1.0})) == [None]
    (dead,) = transferred(outcomes[:1], groups[:1], first.goal, Sum({"n1": float("nan")}))
    assert "not finite" in str(dead)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_matching_models_are_attacked_alike_in_any_company(kind: str, method: AttackMethod) -> None:
    rng = np.random.default_rng(5)

    def said(size: int) -> str:
        return " ".join(f"w{number}" for number in rng.integers(0, 30, size=size))

    groups = [group([said(5), said(4)], context=[said(6), said(4)], key=f"test-{number}") for number in range(12)]
    ranker = MatcherRanker(matcher(kind))
    made = attack(ranker, method=method, budget=60, edits=2)
    together = made.run(groups, range(12))
    alone = [made.run([of], [seed])[0] for seed, of in enumerate(groups)]
    assert [(each.status, each.words, each.queries) for each in together] == [
        (each.status, each.words, each.queries) for each in alone
    ]
    assert {each.status for each in together} >= {"success"}


@given(st.lists(st.integers(-3, 3), max_size=8), st.randoms(use_true_random=False))
def test_equal_values_stay_as_they_stood_whatever_rounding_did(values: list[int], random: Random) -> None:
    noisy = [value + random.uniform(-1e-7, 1e-7) for value in values]
    wanted = sorted(range(len(values)), key=lambda i: (-values[i], i))
    assert falling(noisy, 1e-5) == falling([float(value) for value in values], 0.0) == wanted
