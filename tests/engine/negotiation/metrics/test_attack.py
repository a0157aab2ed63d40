"""The metrics of attacks and their budget curves, on rows small enough to count by hand."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.core.runs.parts import error_row
from parley.engine.core.stats.statistics import NOTHING, count, rate
from parley.engine.negotiation.metrics.attack import ATTACK_METRICS, attack_metrics, budget_curves
from parley.engine.negotiation.metrics.dialogues import METRICS, chat_metrics, defence_metrics, negotiation_metrics
from parley.policies.chat.model import ChatMoves
from tests.engine.negotiation.metrics.attacks import attacked, attempt, step


def values(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {name: estimate.value for name, estimate in attack_metrics(rows, NOTHING).items()}


def gains(rows: list[dict[str, Any]], budget: str) -> dict[int, float]:
    return {limit: estimate.value for limit, estimate in budget_curves(rows)[budget]}


def test_names_are_those_of_the_table_in_its_order_live_ones_first() -> None:
    names = list(ATTACK_METRICS)
    assert list(attack_metrics([], NOTHING)) == names
    assert names[: len(METRICS)] == list(METRICS)
    first_after = names[len(METRICS) :]
    assert [name.startswith("forced_") and name != "forced_end" for name in first_after] == [True] * 6 + [False] * 11
    assert all(metric.title and metric.direction and "\n" not in metric.definition for metric in ATTACK_METRICS.values())
    assert len({metric.title for metric in ATTACK_METRICS.values()}) == len(ATTACK_METRICS)


def test_live_metrics_are_those_of_a_match() -> None:
    rows = [attacked((4, 6), (8, 2), (attempt(),)), attacked((0, 0), (5, 5), (attempt(),)), attacked((7, 3))]
    live = {name: estimate for name, estimate in attack_metrics(rows, NOTHING).items() if name in METRICS}
    assert live == negotiation_metrics(rows)


def test_the_forced_protocol_has_outcomes_of_its_own() -> None:
    found = values([attacked((4, 6), (8, 2), (attempt(),)), attacked((0, 0), (5, 5), (attempt(),)), attacked((7, 3))])
    assert (found["advantage"], found["forced_advantage"]) == (pytest.approx(2 / 3), pytest.approx(10 / 3))
    assert (found["agreement"], found["forced_agreement"]) == (pytest.approx(2 / 3), 1)
    assert (found["par_strict"], found["forced_par_strict"]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert (found["par"], found["forced_par"]) == (pytest.approx(2 / 3), 1)
    assert (found["forced_score_adversary"], found["forced_score_target"]) == (20 / 3, 10 / 3)


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=1, max_size=20))
def test_without_an_accepted_sentence_both_protocols_say_the_same(outcomes: list[tuple[int, int]]) -> None:
    found = attack_metrics([attacked(points) for points in outcomes], NOTHING)
    for name in ("advantage", "par", "par_strict", "agreement", "score_adversary", "score_target"):
        assert found[f"forced_{name}"] == found[name]


def test_shares_of_dialogues_count_each_once() -> None:
    refused, plugged_in = attempt(accepted=False), attempt(kind="transfer", accepted=False)
    rows = [attacked((8, 2), attempts=(refused, attempt())), attacked((3, 7), attempts=(plugged_in,)), attacked((5, 5))]
    found = attack_metrics(rows, NOTHING)
    assert (found["attacked"].value, found["attacked"].n) == (pytest.approx(2 / 3), 3)
    assert (found["accepted"].value, found["accepted"].n) == (pytest.approx(1 / 3), 3)


def test_only_successful_reactive_attempts_can_end_a_dialogue() -> None:
    """Attempts are clustered: two of one dialogue are one unit."""
    two = (attempt(end_probability=0.2, ended=False), attempt(end_probability=0.6))
    others = (attempt(accepted=False, end_probability=0.9), attempt(kind="preemptive", end_probability=None, ended=False))
    rows = [attacked((8, 2), attempts=two, item_key="a"), attacked((8, 2), attempts=(attempt(), *others), item_key="b")]
    found = attack_metrics(rows, NOTHING)
    assert (found["ended_share"].value, found["ended_share"].n) == (pytest.approx(2 / 3), 2)
    assert (found["end_probability"].value, found["end_probability"].n) == (pytest.approx(1.3 / 3), 2)
    assert attack_metrics([attacked((5, 5))], NOTHING)["ended_share"] == NOTHING


def test_a_share_of_none_or_of_all_is_not_certain() -> None:
    said = [{"side": side, "words": "i want the hat"} for side in (0, 1)]
    moves = asdict(ChatMoves())
    seen = {"turns": said, "stopped": [], "chat_adversary": moves}
    rows = [attacked((8, 2), attempts=(attempt(),), item_key=str(number), **seen) for number in range(40)]
    found = attack_metrics(rows, NOTHING) | defence_metrics(rows) | chat_metrics(rows)
    assert found["ended_share"] == rate(40, 40)
    for name in ("unusual_share", "stopped_share", "chat_wordless_adversary"):
        assert found[name] == rate(0, 40), name


def test_perplexities_pool_the_words_of_attack_sentences() -> None:
    rows = [attacked((8, 2), attempts=(attempt(), attempt(nll=20.0, num_words=10, nll_base=3.0, num_words_base=10)))]
    found = values(rows)
    assert found["attack_ppl"] == pytest.approx(math.exp(30 / 15))
    assert found["base_ppl"] == pytest.approx(math.exp(8 / 15))
    assert found["fluency_ppl"] == pytest.approx(math.exp(2)), "that of all that the adversary wrote stays"


def test_unscored_sentences_have_no_perplexity_and_are_not_judged(caplog: pytest.LogCaptureFixture) -> None:
    unscored = attempt(nll=None, nll_base=None, lowest_probability=None, special=1)
    found = attack_metrics([attacked((8, 2), attempts=(unscored,))], NOTHING)
    assert found["attack_ppl"] == found["base_ppl"] == found["unusual_share"] == NOTHING
    broken = attack_metrics([attacked((8, 2), attempts=(attempt(nll=math.nan, lowest_probability=math.nan),))], NOTHING)
    assert math.isnan(broken["attack_ppl"].value)
    assert broken["unusual_share"].value == 1, "what is no likelihood is not taken for a usual one"
    assert "attack_ppl are not finite" in caplog.text


@pytest.mark.parametrize(
    ("special", "lowest", "unusual"), [(0, 0.01, 0), (1, 0.01, 1), (0, 9.9e-5, 1), (0, 1e-4, 0), (2, 1e-9, 1)]
)
def test_a_sentence_is_unusual_by_a_special_or_an_unlikely_token(special: int, lowest: float, unusual: int) -> None:
    rows = [attacked((8, 2), attempts=(attempt(special=special, lowest_probability=lowest),))]
    assert values(rows)["unusual_share"] == unusual


def test_costs_are_means() -> None:
    rows = [
        attacked((8, 2), attempts=(attempt(replaced=[0, 3]), attempt(replaced=[])), reads=900, decisions=50),
        attacked((5, 5), attempts=(attempt(),), reads=100, decisions=0),
        attacked((5, 5), reads=0, decisions=0),
    ]
    found = attack_metrics(rows, count(0.25, 3))
    assert found["replaced_words"].value == 1, "per attempt"
    assert (found["reads"].value, found["decisions"].value) == (pytest.approx(1000 / 3), pytest.approx(50 / 3))
    assert found["seconds"] == count(0.25, 3)


def test_failed_items_are_left_out_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    found = attack_metrics([attacked((8, 2), attempts=(attempt(),)), error_row("d1", 3, "it broke")], NOTHING)
    assert found["forced_advantage"].n == found["attacked"].n == 1
    assert caplog.text.count("1 of 2 dialogues failed") == 1
    assert gains([attacked((8, 2), attempts=(attempt(),)), error_row("d1", 3, "it broke")], "replaced")[1] == 6


PATH = (
    step((1, 9), reads=1, decisions=1, feasible=False),
    step((4, 6), replaced=1, reads=100, decisions=10),
    step((9, 1), replaced=2, reads=200, decisions=30),
)
SHORT = (step((7, 3), reads=1, decisions=1),)
TWO = [attacked((5, 5), attempts=(attempt(steps=list(path)),)) for path in (PATH, SHORT)]


def test_gain_within_a_number_of_words() -> None:
    """A sentence that does not end the dialogue earns nothing, and a search that is over stays where it ended."""
    assert gains(TWO, "replaced") == {0: (0 + 4) / 2, 1: (-2 + 4) / 2, 2: (8 + 4) / 2}
    assert [estimate.n for _, estimate in budget_curves(TWO)["replaced"]] == [2, 2, 2]


def test_gain_within_a_number_of_queries_at_doubling_budgets() -> None:
    """Reads and decisions are queries alike: the steps of the longer search end after 110 and 230 of them."""
    before = dict.fromkeys((1, 2, 4, 8, 16, 32, 64), (0 + 4) / 2)
    assert gains(TWO, "queries") == before | {128: (-2 + 4) / 2, 256: (8 + 4) / 2}


@pytest.mark.parametrize(("most", "budgets"), [(0, [1]), (1, [1]), (2, [1, 2]), (4, [1, 2, 4]), (5, [1, 2, 4, 8])])
@pytest.mark.parametrize("kind", ["reads", "decisions"])
def test_the_largest_budget_pays_for_every_search(kind: str, most: int, budgets: list[int]) -> None:
    rows = [attacked((5, 5), attempts=(attempt(steps=[step((3, 7)), step((8, 2), replaced=1, **{kind: most})]),))]
    assert list(gains(rows, "queries")) == budgets
    assert gains(rows, "queries")[budgets[-1]] == 6


def test_only_the_first_reactive_attempt_of_a_dialogue_counts() -> None:
    first, later = attempt(steps=[step((6, 4))]), attempt(steps=[step((10, 0))])
    before = attempt(kind="preemptive", steps=[])
    assert gains([attacked((5, 5), attempts=(before, first, later))], "replaced") == {0: 2}
    assert budget_curves([attacked((5, 5), attempts=(before,)), attacked((5, 5))]) == {"replaced": [], "queries": []}


@given(st.lists(st.lists(st.tuples(st.integers(0, 10), st.booleans()), min_size=1, max_size=4), min_size=1, max_size=8))
def test_with_room_for_everything_searches_end_where_they_ended(paths: list[list[tuple[int, bool]]]) -> None:
    steps = [
        [step((p, 10 - p), replaced=k, decisions=7 * k, feasible=feasible) for k, (p, feasible) in enumerate(path)]
        for path in paths
    ]
    rows = [attacked((5, 5), attempts=(attempt(steps=path),)) for path in steps]
    last = sum((2 * p - 10) * feasible for path in paths for p, feasible in path[-1:]) / len(paths)
    for curve in budget_curves(rows).values():
        assert curve[-1][1].value == pytest.approx(last)
