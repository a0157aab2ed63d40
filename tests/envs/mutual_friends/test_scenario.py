"""Tables of friends: what makes a scenario, how they are drawn, schemas that have too few values."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.envs.core.errors import ConfigError, DataError, ScenarioError
from parley.envs.mutual_friends.scenario import (
    Attribute,
    Entity,
    FriendsScenario,
    FriendsSchema,
    ScenarioOptions,
    chat_words,
    check_schema,
    entities_of,
    random_friends,
    read_schema,
)
from tests.envs.mutual_friends.made_up import HOBBY, NAME, SCENARIO, SCHEMA, TOWN

SMALL = ScenarioOptions(max_attributes=3)


def made_of(*sizes: int) -> FriendsSchema:
    attributes = tuple(Attribute(f"Column {i}", f"type{i}") for i in range(len(sizes)))
    return FriendsSchema(attributes, {f"type{i}": tuple(f"v{i}.{k}" for k in range(n)) for i, n in enumerate(sizes)})


def test_the_common_friend_is_found_whatever_its_case() -> None:
    assert SCENARIO.shared == (2, 1)
    assert SCENARIO.entities[1][1][2] == Entity("chess", "hobby")
    assert SCENARIO.entities[1][1][2] is entities_of("hobby")[SCENARIO.tables[1][1][2]], "made once"


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (((("Ada", "Nib"),), (("Ada", "Nib", "Chess"),)), r"3 values[\s\S]*side 0, item 0[\s\S]*2 values"),
        (((("Ada", "Nib", "Chess"),), ()), r"friends that all differ[\s\S]*side 1"),
        (((("Ada", "Nib", "Chess"), ("ada", "Nib", "Chess")),) * 2, r"2 friends, 1 different"),
        (((("Ada", "Nib", "Chess"), ("Ben", "Nib", "Chess")),) * 2, "2 friends in both"),
        (((("Ada", "Nib", "Chess"),), (("Ben", "Nib", "Chess"),)), "0 friends in both"),
    ],
)
def test_a_wrong_scenario_is_named(tables: Any, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        FriendsScenario("x", (NAME, TOWN, HOBBY), tables)


@given(st.integers(0, 2**32), st.sampled_from([SCHEMA, made_of(2, 3, 4, 5), made_of(23, 1, 1), made_of(200, 2, 50, 1000, 3)]))
def test_drawn_scenarios_keep_the_bounds(seed: int, schema: FriendsSchema) -> None:
    options = SMALL if len(schema.attributes) == 3 else ScenarioOptions()
    check_schema(schema, options)
    scenario = random_friends(schema, np.random.default_rng(seed), options, "k")
    sizes = {len(table) for table in scenario.tables}
    assert len(sizes) == 1
    assert sizes <= set(range(5, 13))
    assert len(scenario.attributes) == len(scenario.alphas) in range(3, options.max_attributes + 1)
    known = set(schema.entities())
    assert scenario.mentionable[0] | scenario.mentionable[1] <= known
    for column in range(len(scenario.attributes)):
        used = {item[column] for table in scenario.tables for item in table}
        assert len(used) <= 2 * sizes.copy().pop(), "twice as many values as friends"


def test_a_scenario_depends_on_its_seed_alone() -> None:
    schema = made_of(30, 30, 30, 30)
    first, again, other = (random_friends(schema, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first == again != other


def test_all_numbers_of_friends_and_attributes_are_drawn_and_the_common_friend_stands_anywhere() -> None:
    schema = made_of(*[30] * 5)
    drawn = [random_friends(schema, np.random.default_rng(seed)) for seed in range(300)]
    assert {len(scenario.tables[0]) for scenario in drawn} == set(range(5, 13))
    assert {len(scenario.attributes) for scenario in drawn} == {3, 4}
    assert {alpha for scenario in drawn for alpha in scenario.alphas} == {0.3, 1.0, 3.0}
    assert {scenario.shared[0] for scenario in drawn} == set(range(12))
    as_released = [random_friends(schema, np.random.default_rng(seed), SMALL) for seed in range(20)]
    assert {len(scenario.attributes) for scenario in as_released} == {3}


def test_a_small_alpha_gives_more_friends_the_same_value() -> None:
    schema = made_of(*[40] * 3)
    counts: dict[float, list[int]] = {0.3: [], 1.0: [], 3.0: []}
    for seed in range(300):
        scenario = random_friends(schema, np.random.default_rng(seed), replace(SMALL, min_items=10, max_items=10))
        for column, alpha in enumerate(scenario.alphas):
            counts[alpha].append(len({item[column] for item in scenario.tables[0]}))
    few, some, many = (float(np.mean(counts[alpha])) for alpha in (0.3, 1.0, 3.0))
    assert few < some - 0.5 < many - 1


def test_friends_share_values_as_often_as_dirichlet_distributions_let_them() -> None:
    """Two draws by shares of a symmetric one over K values are equal with probability (1 + alpha) / (1 + alpha K)."""
    num_items, options = 60, replace(SMALL, min_items=60, max_items=60)
    equal: dict[tuple[int, float], list[float]] = {}
    # The last attribute is there for friends to differ.
    schema = made_of(2, 3, 5000)
    for seed in range(250):
        scenario = random_friends(schema, np.random.default_rng(seed), options)
        for (column, num_values), table in product([(0, 2), (1, 3)], scenario.tables):
            squares = sum(num**2 for num in Counter(item[column] for item in table).values())
            pairs = (squares - num_items) / (num_items**2 - num_items)
            equal.setdefault((num_values, scenario.alphas[column]), []).append(pairs)
    assert len(equal) == 6
    for (num_values, alpha), found in equal.items():
        assert abs(np.mean(found) - (1 + alpha) / (1 + alpha * num_values)) < 0.07, (num_values, alpha)


def test_a_schema_with_too_few_values_says_which() -> None:
    with pytest.raises(ConfigError, match=r"too few values[\s\S]*Column 1 1, Column 0 2, Column 2 5: too few for 23"):
        check_schema(made_of(2, 1, 5), SMALL)
    with pytest.raises(ConfigError, match=r"too few attributes[\s\S]*3 attributes for up to 4"):
        check_schema(SCHEMA, ScenarioOptions())
    check_schema(made_of(2, 1, 12), SMALL)


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="max_items"):
        ScenarioOptions(min_items=8, max_items=7)
    with pytest.raises(ConfigError, match="max_attributes"):
        ScenarioOptions(max_attributes=2)


def test_text_becomes_words() -> None:
    assert chat_words("Don\u2019t like AT&T, sorry  ;(") == ("don't", "like", "at", "&", "t", ",", "sorry", ";", "(")
    assert chat_words(" \t") == ()
    assert chat_words("\U0001f600\U0001f601") == ("\U0001f600", "\U0001f601")


def test_a_published_schema_is_read_and_values_listed_twice_stand_once(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    attributes = [{"name": "Hobby", "value_type": "hobby", "unique": False}]
    path.write_text(json.dumps({"attributes": attributes, "values": {"hobby": ["Chess", "Go", "chess"]}}))
    assert read_schema(path) == FriendsSchema((HOBBY,), {"hobby": ("Chess", "Go")})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"attributes": [', r"broken JSON[\s\S]*schema.json:1"),
        ("[]", "not a schema"),
        ('{"attributes": [], "values": []}', "not a schema"),
        ('{"attributes": [{"name": "A"}], "values": {}}', r"no attribute[\s\S]*attributes\[0\]"),
        ('{"attributes": [{"name": "A", "value_type": "a"}], "values": {"b": ["x"]}}', r"no values[\s\S]*'a' of attribute 'A'"),
        ('{"attributes": [], "values": {}}', "needs attributes"),
        ('{"attributes": 3, "values": {}}', "not a list"),
        ('{"attributes": [{"name": "A", "value_type": "a"}], "values": {"a": ["x", 3]}}', r"not a list of texts[\s\S]*'a'"),
    ],
)
def test_a_broken_schema_is_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "schema.json"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        read_schema(path)


def test_a_missing_schema_and_equal_values_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_schema(tmp_path / "none.json")
    with pytest.raises(DataError, match=r"value of 'hobby' stands twice"):
        FriendsSchema((HOBBY,), {"hobby": ("Chess", "chess")})
