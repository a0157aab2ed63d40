"""Properties of the scenarios and of the game, over any agents and any utterances."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.envs.core.errors import ScenarioError
from parley.envs.core.play import Utterances
from parley.envs.negotiation.dealornodeal_rules import (
    MAX_SELECTIONS,
    complement,
    legal_selections,
    picks_table,
    random_scenario,
    selection_index,
    selection_table,
)
from parley.envs.negotiation.domain import EOS_ID, PAD_ID, SELECTION_ID, UNK_ID, Scenario, Selections, is_pareto_optimal, points
from parley.envs.negotiation.game import NOBODY, OVER, SELECT, SPEAK, NegotiationGame, Rules, play, render_dialogue
from tests.envs.negotiation.agents import VOCABULARY, Babbler, Reader

SHORT = Rules(max_turns=5, max_words=6, max_tokens=64)
TIGHT = Rules(max_turns=20, max_words=6, max_tokens=24)
COMPLEMENTARY = Rules(max_turns=5, max_words=6, max_tokens=64, complementary=True)
YOU_ID, THEM_ID = VOCABULARY.you_id, VOCABULARY.them_id
PER_DIALOGUE = ("authors", "num_tokens", "num_turns", "to_move", "forced", "selections", "num_illegal", "agreed", "points")
COUNT_VECTORS: list[tuple[int, ...]] = [counts for counts in itertools.product(range(1, 5), repeat=3) if 5 <= sum(counts) <= 7]

unhurried = settings(deadline=None)
seeds = st.integers(0, 2**63 - 1)
scenarios = seeds.map(lambda seed: random_scenario(np.random.default_rng(seed)))
count_vectors = st.sampled_from(COUNT_VECTORS)
utterances = st.lists(st.integers(0, len(VOCABULARY) - 1), max_size=9)


def say(game: NegotiationGame, *words: int) -> None:
    tokens = np.full((1, max(len(words), 1)), PAD_ID, dtype=np.int64)
    tokens[0, : len(words)] = words
    game.say(np.zeros(1, dtype=np.int64), Utterances(tokens, np.array([len(words)])))


def choose(game: NegotiationGame, side: int, selection: int) -> None:
    game.choose(side, np.zeros(1, dtype=np.int64), np.array([selection]))


def one_dialogue(rules: Rules = SHORT, seed: int = 0) -> NegotiationGame:
    scenario = Scenario((1, 2, 3), ((1, 3, 1), (4, 0, 2)))
    return NegotiationGame([scenario], [seed], VOCABULARY, rules, first_speakers=[0])


# Scenarios


@unhurried
@given(seeds)
def test_random_scenarios_obey_every_rule_of_the_corpus(seed: int) -> None:
    scenario = random_scenario(np.random.default_rng(seed))
    assert scenario.counts in COUNT_VECTORS
    for values in scenario.values:
        assert all(0 <= value <= 10 for value in values)
        assert sum(count * value for count, value in zip(scenario.counts, values, strict=True)) == 10
    pairs = list(zip(*scenario.values, strict=True))
    assert all(mine + theirs > 0 for mine, theirs in pairs)
    assert any(mine * theirs > 0 for mine, theirs in pairs)


def test_random_scenarios_reach_all_counts_and_favour_none() -> None:
    rng = np.random.default_rng(0)
    drawn: list[tuple[int, ...]] = [random_scenario(rng).counts for _ in range(2800)]
    tally = [drawn.count(counts) for counts in COUNT_VECTORS]
    assert len(tally) == 28
    assert sum(tally) == 2800
    # 100 expected of each, standard deviation 9.8.
    assert min(tally) > 60
    assert max(tally) < 140


@unhurried
@given(scenarios)
def test_contexts_and_swapping_round_trip(scenario: Scenario) -> None:
    assert Scenario.from_contexts(scenario.context(0), scenario.context(1)) == scenario
    assert Scenario.from_contexts(scenario.context(1), scenario.context(0)) == scenario.swapped()
    assert scenario.swapped().swapped() == scenario


@pytest.mark.parametrize(
    ("counts", "mine", "theirs", "rule"),
    [
        ((5, 1, 1), (0, 5, 5), (2, 0, 0), "count is 1..4"),
        ((1, 1, 1), (2, 3, 5), (2, 3, 5), "5..7 items"),
        ((4, 2, 2), (1, 1, 2), (1, 1, 2), "5..7 items"),
        ((1, 2, 3), (1, 3, 2), (4, 0, 2), "10 in total"),
        ((1, 2, 3), (-2, 3, 2), (4, 0, 2), "value is 0..10"),
        ((1, 2, 3), (10, 0, 0), (4, 3, 0), "wanted by someone"),
        ((1, 2, 3), (10, 0, 0), (0, 2, 2), "wanted by both"),
    ],
)
def test_an_illegal_scenario_is_refused_by_the_rule_it_breaks(
    counts: tuple[int, int, int], mine: tuple[int, int, int], theirs: tuple[int, int, int], rule: str
) -> None:
    with pytest.raises(ScenarioError, match=rule):
        Scenario(counts, (mine, theirs))


def test_contexts_with_different_counts_are_refused() -> None:
    with pytest.raises(ScenarioError, match="one scenario"):
        Scenario.from_contexts((1, 1, 2, 3, 3, 1), (2, 1, 2, 1, 3, 2))


# Selections and points


@unhurried
@given(count_vectors)
def test_selections_are_all_allocations_and_two_refusals(counts: tuple[int, int, int]) -> None:
    picks = picks_table(counts)
    allocations = sorted(itertools.product(*(range(count + 1) for count in counts)))
    assert sorted(map(tuple, picks[:-2].tolist())) == allocations
    assert (picks[-2:] == -1).all()
    assert len(picks) == len(selection_table(counts)) <= MAX_SELECTIONS


def test_some_scenario_has_the_most_selections() -> None:
    assert max(len(selection_table(counts)) for counts in COUNT_VECTORS) == MAX_SELECTIONS


def test_stacked_selections_are_the_tables_padded() -> None:
    tables, legal = legal_selections(np.array(COUNT_VECTORS))
    assert tables.shape == (28, MAX_SELECTIONS, 6)
    for counts, table, mask in zip(COUNT_VECTORS, tables, legal, strict=True):
        expected = selection_table((counts[0], counts[1], counts[2]))
        assert mask.tolist() == [True] * len(expected) + [False] * (MAX_SELECTIONS - len(expected))
        assert np.array_equal(table[mask], expected)
        assert not table[~mask].any()


@unhurried
@given(count_vectors, st.data())
def test_complement_is_an_involution_that_takes_the_rest(counts: tuple[int, int, int], data: st.DataObject) -> None:
    picks = picks_table(counts)
    selection = data.draw(st.integers(0, len(picks) - 1))
    other = complement(counts, selection)
    assert complement(counts, other) == selection
    if selection < len(picks) - 2:
        assert (picks[selection] + picks[other]).tolist() == list(counts)
    else:
        assert other == selection


@unhurried
@given(count_vectors, st.data())
def test_selection_index_inverts_the_table(counts: tuple[int, int, int], data: st.DataObject) -> None:
    own = tuple(data.draw(st.integers(0, count)) for count in counts)
    assert tuple(picks_table(counts)[selection_index(counts, own)].tolist()) == own
    with pytest.raises(ScenarioError):
        selection_index(counts, (counts[0] + 1, 0, 0))
    with pytest.raises(ScenarioError):
        selection_index(counts, (-1, -1, -1))


@unhurried
@given(scenarios, st.data())
def test_points_are_earned_only_when_the_allocations_add_up(scenario: Scenario, data: st.DataObject) -> None:
    picks = picks_table(scenario.counts)
    index = st.integers(0, len(picks) - 1)
    # Half of the pairs would fit together; independent ones almost never do.
    first = data.draw(index)
    second = data.draw(st.one_of(index, st.just(complement(scenario.counts, first))))
    agreed, earned = points(scenario, (first, second))
    assert agreed == (first < len(picks) - 2 and second == complement(scenario.counts, first))
    taken = (picks[first], picks[second])
    expected = [int(own @ np.array(values)) for own, values in zip(taken, scenario.values, strict=True)]
    assert list(earned) == (expected if agreed else [0, 0])
    assert all(0 <= side <= 10 for side in earned)


@unhurried
@given(scenarios, st.data())
def test_pareto_optimality_agrees_with_brute_force(scenario: Scenario, data: st.DataObject) -> None:
    own = [data.draw(st.integers(0, count)) for count in scenario.counts]

    def worth(mine: tuple[int, ...] | list[int]) -> tuple[int, int]:
        items = list(zip(mine, scenario.counts, *scenario.values, strict=True))
        return sum(n * v for n, _, v, _ in items), sum((count - n) * v for n, count, _, v in items)

    first, second = worth(own)
    dominated = False
    for mine in itertools.product(*(range(count + 1) for count in scenario.counts)):
        a, b = worth(mine)
        dominated |= (a > first and b >= second) or (a >= first and b > second)
    assert is_pareto_optimal(scenario, (first, second)) is (not dominated)


# The game


@unhurried
@given(
    scenarios,
    seeds,
    st.sampled_from([SHORT, TIGHT]),
    st.lists(utterances, min_size=1, max_size=8),
    st.tuples(st.integers(-2, 45), st.integers(-2, 45)),
)
def test_any_moves_end_within_the_limits_and_the_bounds(
    scenario: Scenario, seed: int, rules: Rules, lines: list[list[int]], chosen: tuple[int, int]
) -> None:
    game = NegotiationGame([scenario], [seed], VOCABULARY, rules)
    num_moves = 0
    while game.phase[0] == SPEAK:
        say(game, *lines[num_moves % len(lines)])
        num_moves += 1
        assert num_moves <= rules.max_turns
        check_transcript(game)
    assert game.phase[0] == SELECT
    assert game.num_turns[0] == num_moves + game.forced[0]
    for side in (0, 1):
        assert game.rows_to_choose(side).tolist() == [0]
        assert not game.points.any(), "points before both have chosen"
        choose(game, side, chosen[side])
    assert game.phase[0] == OVER
    first, second = game.points[0].tolist()
    assert 0 <= first <= 10
    assert 0 <= second <= 10
    assert -10 <= first - second <= 10
    assert game.agreed[0] or first == second == 0


def check_transcript(game: NegotiationGame) -> None:
    """The arrays tell one story: markers, authors and padding agree, and the views differ in the markers alone."""
    length = int(game.num_tokens[0])
    first, second, authors = game.tokens[0, 0], game.tokens[1, 0], game.authors[0]
    markers = np.isin(first, (YOU_ID, THEM_ID))
    assert np.array_equal(first == YOU_ID, second == THEM_ID)
    assert np.array_equal(first == THEM_ID, second == YOU_ID)
    assert np.array_equal(first[~markers], second[~markers])
    assert (first[length:] == PAD_ID).all()
    assert (first[:length] != PAD_ID).all()
    assert (authors[length:] == NOBODY).all()
    assert (authors[markers] == NOBODY).all()
    assert int(markers.sum()) == game.num_turns[0]
    starts = np.flatnonzero(markers)
    for start, stop in zip(starts, [*starts[1:], length], strict=True):
        words = first[start + 1 : stop]
        is_end = np.isin(words, (EOS_ID, SELECTION_ID))
        assert is_end[-1]
        assert not is_end[:-1].any(), "an utterance has one end"
        forced = game.forced[0] and stop == length
        speaker = 0 if first[start] == YOU_ID else 1
        assert (authors[start + 1 : stop - 1] == speaker).all()
        closed_by_game = forced or (words[-1] == EOS_ID and authors[stop - 1] == NOBODY)
        assert authors[stop - 1] == (NOBODY if closed_by_game else speaker)
    assert length <= game.rules.max_tokens


@unhurried
@given(st.lists(st.tuples(scenarios, seeds), min_size=1, max_size=6), st.booleans())
def test_a_batch_plays_as_its_dialogues_would_alone(dialogues: list[tuple[Scenario, int]], complementary: bool) -> None:
    rules = COMPLEMENTARY if complementary else SHORT
    agents = (Babbler(), Babbler())
    batch = play(NegotiationGame([s for s, _ in dialogues], [seed for _, seed in dialogues], VOCABULARY, rules), agents)
    assert (batch.phase == OVER).all()
    for row, (scenario, seed) in enumerate(dialogues):
        alone = play(NegotiationGame([scenario], [seed], VOCABULARY, rules), agents)
        for name in PER_DIALOGUE:
            assert np.array_equal(getattr(alone, name)[0], getattr(batch, name)[row]), name
        assert np.array_equal(alone.tokens[:, 0], batch.tokens[:, row])
        assert render_dialogue(alone, 0) == render_dialogue(batch, row)


@unhurried
@given(scenarios, seeds)
def test_a_seed_is_the_same_as_a_numpy_integer(scenario: Scenario, seed: int) -> None:
    plain = NegotiationGame([scenario], [seed], VOCABULARY, SHORT)
    array = NegotiationGame([scenario], np.array([seed]), VOCABULARY, SHORT)  # type: ignore[arg-type]
    assert np.array_equal(plain.uniforms, array.uniforms)
    assert plain.view(0).generator(0).random() == array.view(0).generator(0).random()


def test_the_sides_draw_from_different_streams() -> None:
    game = one_dialogue()
    assert game.view(0).generator(0).random() != game.view(1).generator(0).random()


def test_first_speakers_are_a_fair_coin_of_the_seed() -> None:
    scenario = one_dialogue().scenarios[0]
    game = NegotiationGame([scenario] * 1000, list(range(1000)), VOCABULARY, SHORT)
    # Standard deviation 15.8.
    assert 420 < game.first_speakers.sum() < 580


def test_only_a_bare_selection_ends_the_dialogue() -> None:
    game = one_dialogue()
    say(game, 6, SELECTION_ID, 7)
    assert game.phase[0] == SPEAK
    assert game.transcript(0) == [(0, ["i", "<selection>"])]
    say(game, SELECTION_ID)
    assert game.phase[0] == SELECT
    assert game.to_move[0] == 1
    assert not game.forced[0]


def test_illegal_tokens_are_dropped_and_counted_against_the_speaker() -> None:
    game = one_dialogue()
    say(game, YOU_ID, 6, PAD_ID, THEM_ID, UNK_ID, EOS_ID)
    say(game, PAD_ID)
    assert game.transcript(0) == [(0, ["i", "<unk>"]), (1, [])]
    assert game.num_illegal[0].tolist() == [3, 1]


def test_an_utterance_is_cut_at_its_first_end_and_at_max_words() -> None:
    game = one_dialogue()
    say(game, 6, 7, EOS_ID, 8, EOS_ID)
    say(game, *[8] * 9)
    assert game.transcript(0) == [(0, ["i", "want"]), (1, ["the"] * SHORT.max_words)]


@pytest.mark.parametrize(
    ("rules", "num_utterances"),
    [
        (Rules(max_turns=3, max_words=6, max_tokens=64), 3),
        (Rules(max_turns=20, max_words=6, max_tokens=20), 2),
        # Two utterances take 16: the third just fits.
        (Rules(max_turns=20, max_words=6, max_tokens=26), 3),
    ],
    ids=["turns", "tokens", "just enough tokens"],
)
def test_a_limit_forces_the_selection_on_the_side_to_move(rules: Rules, num_utterances: int) -> None:
    game = one_dialogue(rules)
    for _ in range(num_utterances):
        assert game.phase[0] == SPEAK
        say(game, *[6] * 6)
    assert game.phase[0] == SELECT
    assert game.forced[0]
    assert game.transcript(0)[-1] == (num_utterances % 2, ["<selection>"])
    assert game.authors[0, game.num_tokens[0] - 1] == NOBODY


def test_under_the_complementary_rule_side_1_chooses_for_both() -> None:
    game = one_dialogue(COMPLEMENTARY)
    say(game, SELECTION_ID)
    assert game.rows_to_choose(0).size == 0
    counts = game.scenarios[0].counts
    choose(game, 1, selection_index(counts, (1, 0, 3)))
    assert game.phase[0] == OVER
    assert picks_table(counts)[game.selections[0]].tolist() == [[0, 2, 0], [1, 0, 3]]
    assert game.points[0].tolist() == [6, 10]
    assert game.is_pareto(0)


def test_a_selection_out_of_range_is_no_agreement() -> None:
    game = one_dialogue()
    say(game, SELECTION_ID)
    choose(game, 0, 37)
    choose(game, 1, -1)
    no_agreement = len(selection_table(game.scenarios[0].counts)) - 2
    assert game.selections[0].tolist() == [no_agreement, no_agreement]
    assert game.illegal_selections[0].tolist() == [True, True]
    assert not game.agreed[0]
    assert not game.is_pareto(0)


# The rendering


def test_the_rendering_hides_what_a_side_may_not_know() -> None:
    game = one_dialogue()
    say(game, 6, 7, EOS_ID)
    say(game, SELECTION_ID)
    choose(game, 1, 0)
    mine = render_dialogue(game, 0, 0)
    assert mine.splitlines() == [
        "item  count  value to you  value to partner",
        "book      1             1                 ?",
        "hat       2             3                 ?",
        "ball      3             1                 ?",
        "",
        "you: i want",
        "partner: <selection>",
    ]
    assert "side 1 chose book 0, hat 0, ball 0" in render_dialogue(game, 0)
    choose(game, 0, len(selection_table(game.scenarios[0].counts)) - 1)
    theirs = render_dialogue(game, 0, 1)
    assert "book      1             4                 1" in theirs
    assert theirs.endswith("you chose book 0, hat 0, ball 0\npartner chose to disconnect\nnot agreed, points: you 0, partner 0")


def test_readers_play_to_the_end() -> None:
    game = one_dialogue(Rules())
    play(game, (Reader(("i want the ball .", "deal .")), Reader((), selection=0)))
    assert game.transcript(0) == [(0, ["i", "want", "the", "ball", "."]), (1, ["<selection>"])]


HALF = ((1, 1, 3), (4, 0, 2), (2.5, 1.5, 2))


def test_a_scenario_with_a_half_point_is_refused_however_it_is_made() -> None:
    counts, mine, theirs = HALF
    contexts = ([number for pair in zip(counts, side, strict=True) for number in pair] for side in (mine, theirs))
    for make in (lambda: Scenario(counts, (mine, theirs)), lambda: Scenario.from_contexts(*map(np.array, contexts))):
        with pytest.raises(ScenarioError, match=r"a scenario has whole numbers(.|\n)*2\.5(.|\n)*halves by 2"):
            make()
    with pytest.raises(ScenarioError, match="a scenario has whole numbers"):
        Scenario((1, 2, math.nan), ((1, 3, 1), (4, 0, 2)))


def test_whole_numbers_of_any_kind_make_the_same_scenario() -> None:
    whole = Scenario((1, 2, 3), ((1, 3, 1), (4, 0, 2)))
    for kind in (float, np.int64, np.float32):
        counts, mine, theirs = (tuple(map(kind, part)) for part in (whole.counts, *whole.values))
        made = Scenario(counts, (mine, theirs))
        assert made == whole
        assert made.key == "1,2,3/1,3,1/4,0,2"
        assert hash(made) == hash(whole)
    with pytest.raises(ScenarioError, match=r"whole numbers(.|\n)*chooser_items(.|\n)*float64"):
        Selections(np.zeros((1, 6), int), np.zeros((1, 3)), np.zeros((1, 3), int), np.zeros(1, int))
