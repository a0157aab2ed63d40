"""Perturbations of dialogues about entities: what is replaced, by what, and what is kept."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.strategies.entities import (
    ConfusingEntity,
    Entities,
    RandomInputs,
    build_confusing,
    build_kept,
    build_random,
    read_entities,
)
from parley.engine.perturb.strategies.texts import FlatContexts
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.corpora.pairs.turns import Utterance

LISTED = "Ann Lee\tname\nAnn\tname\nBob\tname\nNew York\tcity\nYork\tcity\nRome\tcity\nRome\tname\n"
LINE: Utterance = ("ann", "lee", "lives", "in", "new", "york", ",", "not", "york")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "entities.tsv").write_text(LISTED)
    return tmp_path / "entities.tsv"


def confusing(settings: PerturbSettings, words: frozenset[str] | None = None) -> ConfusingEntity:
    return build_confusing(settings, Resources(settings, words))


def outcomes(words: Utterance, strategy: ConfusingEntity | RandomInputs, num: int = 300) -> Counter[Utterance]:
    return Counter(after[0][0] for after in strategy.perturb([((words,),)] * num, range(num)))


def spans(entities: Entities, flat: FlatContexts) -> list[tuple[int, int]]:
    starts, ends, phrases = entities.find(flat)
    assert [entities.forms[i] for i in phrases] == [flat.words[start:end] for start, end in zip(starts, ends, strict=True)]
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def test_the_longest_entity_is_found_from_left_to_right(path: Path) -> None:
    assert spans(read_entities(path), FlatContexts([((LINE,),)])) == [(0, 2), (4, 6), (8, 9)]
    assert spans(read_entities(path), FlatContexts([((("lee", "new", "ann"),),)])) == [(2, 3)]


def test_no_entity_reaches_over_the_end_of_an_utterance(path: Path) -> None:
    flat = FlatContexts([((("new",), ("york", "ann")), ((),)), ((("lee", "bob"),),)])
    assert spans(read_entities(path), flat) == [(1, 2), (2, 3), (4, 5)]


def test_an_entity_gives_way_to_another_of_its_category(path: Path) -> None:
    found = outcomes(("bob", "likes", "new", "york"), confusing(PerturbSettings(entities=path)))
    names, cities = [("ann", "lee"), ("ann",), ("rome",)], [("york",), ("rome",)]
    assert set(found) == {(*name, "likes", *city) for name in names for city in cities}


def test_an_entity_of_two_categories_may_become_one_of_either(path: Path) -> None:
    found = outcomes(("rome",), confusing(PerturbSettings(entities=path)))
    assert set(found) == {("ann", "lee"), ("ann",), ("bob",), ("new", "york"), ("york",)}


def test_only_what_the_partner_knows_comes_in(path: Path, tmp_path: Path) -> None:
    (tmp_path / "partner.txt").write_text("Bob\nYork\n")
    settings = PerturbSettings(entities=path, partner_entities=tmp_path / "partner.txt")
    assert set(outcomes(LINE, confusing(settings))) == {("bob", "lives", "in", "york", ",", "not", "york")}


def test_only_entities_of_known_words_come_in(path: Path) -> None:
    found = outcomes(("ann", "in", "rome"), confusing(PerturbSettings(entities=path), frozenset({"bob", "york", "in"})))
    assert set(found) == {("bob", "in", other) for other in ("york", "bob")}


def test_random_inputs_draw_from_the_common_words_but_for_the_special_ones() -> None:
    resources = Resources(PerturbSettings(), frozenset({"x", "y", "<unk>", "<eot>"}), ["<unk>", "x", "<eot>", "y", "z"])
    found = outcomes(LINE, build_random(PerturbSettings(), resources))
    assert {len(words) for words in found} == {len(LINE)}
    assert {word for words in found for word in words} == {"x", "y"}
    assert len(found) > 100


def test_entities_are_kept(path: Path) -> None:
    settings = PerturbSettings(entities=path)
    found = outcomes(LINE, build_kept(settings, Resources(settings, common=["x", "y"])))
    assert {(*words[:2], *words[4:6], words[8]) for words in found} == {("ann", "lee", "new", "york", "york")}
    assert {word for words in found for word in (*words[2:4], *words[6:8])} == {"x", "y"}


def test_without_entities_or_words_the_error_says_how_to_give_them() -> None:
    for build in (build_confusing, build_kept):
        with pytest.raises(ConfigError, match=r"--set perturb\.entities=FILE"):
            build(PerturbSettings(), Resources(PerturbSettings(), common=["x"]))
    with pytest.raises(ConfigError, match="--model"):
        build_random(PerturbSettings(), Resources(PerturbSettings()))


@pytest.mark.parametrize("line", ["no tab", "\tcategory", "name\t ", "   \tcategory", "Ann\t\tname", "Ann\tann\tname\tmore"])
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "entities.tsv"
    path.write_text(f"Ann\tname\n{line}\n")
    with pytest.raises(DataError, match=r"entities\.tsv:2"):
        read_entities(path)


def test_what_people_write_for_an_entity_is_found_and_no_entity_that_they_may_mean_comes_in(tmp_path: Path) -> None:
    path = tmp_path / "lexicon.txt"
    lines = ["Ann Lee\tannie\tname", "Ann Lee\tlee\tname", "Bob Lee\tlee\tname", "Cleo\tcleo\tname", "Rome\trom\tcity"]
    path.write_text("\n".join(lines))
    found = read_entities(path)
    assert found.categories == {("ann", "lee"): ["name"], ("bob", "lee"): ["name"], ("cleo",): ["name"], ("rome",): ["city"]}
    assert spans(found, FlatContexts([((("annie", "or", "ann", "lee", "in", "rom", "or", "rome"),),)])) == [
        (0, 1),
        (2, 4),
        (5, 6),
        (7, 8),
    ]
    settings = PerturbSettings(entities=path)
    assert set(outcomes(("annie",), confusing(settings))) == {("bob", "lee"), ("cleo",)}
    assert set(outcomes(("lee",), confusing(settings))) == {("cleo",)}
    assert set(outcomes(("rom",), confusing(settings))) == {("rom",)}


def test_a_name_that_people_write_for_another_entity_may_mean_both(tmp_path: Path) -> None:
    path = tmp_path / "lexicon.txt"
    path.write_text("Lee\tname\nBob Lee\tlee\tname\nCleo\tname\n")
    assert set(outcomes(("lee",), confusing(PerturbSettings(entities=path)))) == {("cleo",)}


def test_a_partner_s_unknown_entity_is_named(path: Path, tmp_path: Path) -> None:
    (tmp_path / "partner.txt").write_text("Bob\nCleo\n")
    with pytest.raises(DataError, match=r"partner\.txt:2"):
        confusing(PerturbSettings(entities=path, partner_entities=tmp_path / "partner.txt"))


def test_a_schema_of_mutual_friends_is_read(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({"attributes": [], "values": {"name": ["Ann Lee", "Bob"], "city": ["Rome", "Bob"]}}))
    assert read_entities(path).categories == {("ann", "lee"): ["name"], ("bob",): ["name", "city"], ("rome",): ["city"]}


def test_a_schema_is_told_by_its_content_and_by_its_name_in_any_case(tmp_path: Path) -> None:
    for name in ("SCHEMA.JSON", "schema.txt"):
        (tmp_path / name).write_bytes(b'\xef\xbb\xbf\n{"values": {"city": ["Rome"]}}')
        assert read_entities(tmp_path / name).categories == {("rome",): ["city"]}


@pytest.mark.parametrize("content", ["[]", "{}", "no json", '{"values": [1]}', '{"values": {"name": [1]}}'])
def test_another_json_file_is_an_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "schema.json"
    path.write_text(content)
    with pytest.raises(DataError, match="MutualFriends"):
        read_entities(path)


def test_no_entity_is_found_where_there_are_none() -> None:
    assert spans(Entities({}), FlatContexts([((LINE,),)])) == []
