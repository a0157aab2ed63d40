"""Games to negotiate in: each keeps the promises of `Domain`, and the rules of the job interview."""

from __future__ import annotations

import itertools
import operator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.core.seeds import stream
from parley.envs.negotiation import dealornodeal_rules as rules
from parley.envs.negotiation.dealornodeal import DIVISION
from parley.envs.negotiation.domain import (
    REFUSALS,
    Domain,
    Scenario,
    Vocabulary,
    domain_of,
    domain_recorded,
    domains,
    is_pareto_optimal,
    points,
)
from parley.envs.negotiation.game import NegotiationGame
from parley.envs.negotiation.interview.bargainers import BEST, STARTS
from parley.envs.negotiation.interview.domain import INTERVIEW, Interview

games = st.sampled_from([domain_of(name) for name in domains])
SEEDS = st.integers(0, 2**32)


@given(domain=games, seed=SEEDS)
def test_random_scenarios_are_legal_and_read_back(domain: Domain, seed: int) -> None:
    scenario = domain.random_scenario(stream(seed, "scenario"))
    assert scenario.domain is domain
    assert Scenario.from_contexts(scenario.context(0), scenario.context(1), domain.name) == scenario
    assert Scenario.from_contexts(scenario.context(1), scenario.context(0), domain.name) == scenario.swapped()
    assert max(scenario.context(0)) <= domain.largest
    assert domain_recorded(list(scenario.counts), (list(scenario.values[0]), list(scenario.values[1]))) is domain


def test_random_scenarios_are_drawn_from_all_legal_ones() -> None:
    for counts, pairs in rules._legal_scenarios():
        worths = (range(rules.TOTAL_VALUE // count + 1) for count in counts)
        sides = [values for values in itertools.product(*worths) if sum(map(operator.mul, counts, values)) == rules.TOTAL_VALUE]
        assert pairs == tuple(pair for pair in itertools.product(sides, repeat=2) if not rules.problem(counts, pair))


@given(domain=games, seed=SEEDS)
def test_selections_fit_as_the_points_say(domain: Domain, seed: int) -> None:
    scenario = domain.random_scenario(stream(seed, "scenario"))
    legal = scenario.selections
    assert len(legal) <= domain.max_selections
    assert legal.fits[legal.fits].tolist() == list(range(len(legal))), "what fits a fitting selection is the selection"
    best = [0, 0]
    for first in range(len(legal)):
        agreed, (mine, theirs) = points(scenario, (first, int(legal.fits[first])))
        assert agreed == (first < legal.no_agreement)
        swapped = points(scenario.swapped(), (int(legal.fits[first]), first))
        assert swapped == (agreed, (theirs, mine)), "sides are alike"
        best = [max(best[0], mine), max(best[1], theirs)]
        others = [second for second in range(len(legal)) if second != legal.fits[first]]
        assert points(scenario, (first, others[seed % len(others)])) == (False, (0, 0))
    assert best == [domain.best] * 2


@given(domain=games, seed=SEEDS)
def test_many_scenarios_at_once_are_as_one_by_one(domain: Domain, seed: int) -> None:
    played = [domain.random_scenario(stream(seed, i)) for i in range(4)]
    counts = np.array([scenario.counts for scenario in played])
    tables, legal = domain.legal_selections(counts)
    own, other = domain.shares(counts)
    for row, scenario in enumerate(played):
        num = len(scenario.selections)
        assert legal[row].tolist() == [True] * num + [False] * (domain.max_selections - num)
        assert tables[row, :num].tolist() == scenario.selections.table.tolist()
        for held, alone in ((own[row], scenario.selections.chooser_items), (other[row], scenario.selections.other_items)):
            assert held[:num].tolist() == alone.tolist()
            assert not held[num:].any()


@given(domain=games, seed=SEEDS)
def test_deals_are_told_and_read_back(domain: Domain, seed: int) -> None:
    counts = domain.random_scenario(stream(seed, "scenario")).counts
    legal = domain.selections(counts)
    deal = seed % legal.no_agreement
    told = domain.selection_text(counts, deal)
    assert domain.read_selection(counts, " ".join(part.split()[-1] for part in told.split(", "))) == deal
    assert domain.held(counts, [domain.tokens[token] for token in legal.table[deal]]) == tuple(
        legal.chooser_items[deal].tolist()
    )
    assert [domain.selection_text(counts, legal.no_agreement + k) for k in (0, 1)] == ["no agreement", "to disconnect"]
    for refusal in REFUSALS:
        assert domain.held(counts, [domain.tokens[token] for token in domain.refusal_tokens(refusal)]) is None
    for text in ("", "none", "1", "x y z", "40k 50k 20 lima", "9 9 9"):
        assert domain.read_selection(counts, text) is None
    assert domain.question(counts) in domain.answer_form(counts)


def test_an_interview_has_108_deals_that_both_sides_name_alike() -> None:
    legal = INTERVIEW.selections((1,) * 13)
    assert len(legal) == Interview.max_selections == 110
    assert legal.fits.tolist() == list(range(110))
    held = [[int(row[start:stop].sum()) for start, stop in itertools.pairwise(STARTS)] for row in legal.chooser_items]
    assert held[:108] == [[1, 1, 1, 1]] * 108
    assert not legal.chooser_items[108:].any()


@given(seed=SEEDS)
@example(seed=155442)
def test_points_can_be_won_together_in_an_interview(seed: int) -> None:
    scenario = INTERVIEW.random_scenario(stream(seed, "scenario"))
    earned = [points(scenario, (deal, deal))[1] for deal in range(108)]
    assert max(map(sum, earned)) > BEST, "issues differ in weight, so that a trade beats meeting halfway"
    assert any(not is_pareto_optimal(scenario, each) for each in earned)
    assert (BEST, BEST) not in earned, "some issue is opposed"


MINE = (0, 2, 4, 6, 0, 2, 4, 0, 2, 3, 0, 1, 2)
THEIRS = (6, 4, 2, 0, 4, 2, 0, 3, 2, 0, 2, 1, 0)


@pytest.mark.parametrize(
    ("counts", "values", "rule"),
    [
        ((1,) * 12, (MINE, THEIRS), "there are 13 items"),
        ((2, *(1,) * 12), (MINE, THEIRS), "every option is there once"),
        ((1,) * 13, ((1, *MINE[1:]), THEIRS), "the worst option of an issue is worth 0"),
        ((1,) * 13, (MINE, (7, *THEIRS[1:])), "worth 15 in total"),
        ((1,) * 13, (MINE, MINE), "want different options of some issue"),
    ],
)
def test_an_illegal_interview_is_told_by_its_rule(
    counts: tuple[int, ...], values: tuple[tuple[int, ...], tuple[int, ...]], rule: str
) -> None:
    assert Scenario((1,) * 13, (MINE, THEIRS), "interview").key.endswith("2,1,0")
    with pytest.raises(ScenarioError, match=rule) as caught:
        Scenario(counts, values, "interview")
    assert caught.value.fix == INTERVIEW.rule


def test_an_unknown_game_is_told_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="no game is called 'intervew', did you mean 'interview'"):
        Scenario((1,) * 13, (MINE, THEIRS), "intervew")
    with pytest.raises(ScenarioError, match="a scenario of no game"):
        domain_recorded((1, 1), ((1, 1), (1, 1)))


def test_a_vocabulary_keeps_its_game(tmp_path: Path) -> None:
    words = INTERVIEW.vocabulary()
    words.save(tmp_path / "interview.json")
    assert Vocabulary.load(tmp_path / "interview.json") == words
    same_words = Vocabulary(words.words)
    assert same_words.digest != words.digest
    same_words.save(tmp_path / "division.json")
    assert (tmp_path / "division.json").read_text().startswith("["), "the file that there always was"
    assert Vocabulary.load(tmp_path / "division.json").domain is DIVISION


def test_scenarios_of_another_game_are_refused() -> None:
    scenario = INTERVIEW.random_scenario(stream(0, "scenario"))
    with pytest.raises(ConfigError, match="plays another game than the scenarios are of") as caught:
        NegotiationGame([scenario], [1], DIVISION.vocabulary())
    assert caught.value.got == "'dealornodeal', and scenarios of 'interview'"
    assert "scenarios of 'dealornodeal'" in str(caught.value.fix)
