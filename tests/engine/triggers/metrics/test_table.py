"""The table of trigger searches as text, in the layout of the paper."""

from __future__ import annotations

from parley.engine.core.stats.statistics import count, rate
from parley.engine.triggers.metrics.hits import LISTS, MAL, NORMAL, SearchedModel, he2018, published_rates, search_table

MARKDOWN = """\
| model | normal o-greedy | mal o-greedy | mal o-sample-min {k1, k2} | mal o-sample-avg {k1, k2} | mal io-sample-min {k1, k2} \
| mal io-sample-avg {k1, k2} | random o-sample-min {k1, k2} |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| mine | 82.0 | 0.0 | {10.0, 25.0} | – | – | – | – |
| 95 % interval | [73.3, 88.3] | [0.0, 16.1] | {[2.8, 30.1], [11.2, 46.9]} | – | – | – | – |
| published | 82.8 | 0.0 | {16.7, 23.9} | {57.7, 79.2} | {10.2, 15.2} | {49.2, 73.2} | {0.0, 0.0} |
| n | 100 | 20 few | 20 few | – | – | – | – |
"""
LISTED = {
    NORMAL: {"hit_rate.o-greedy": rate(82, 100)},
    MAL: {"hit_rate.o-greedy": rate(0, 20), "hit_rate.o-sample-min-k1": rate(2, 20), "hit_rate.o-sample-min-k2": rate(5, 20)},
}


def test_measured_rates_stand_over_the_published_ones() -> None:
    table = search_table([SearchedModel("mine", LISTED, published_rates("ubuntu", "general"))], "o-greedy")
    text = table.to_markdown()
    assert text.startswith(MARKDOWN)
    assert "Published: He & Glass 2018" in text
    assert "Few: fewer than 30 targets" in text


def test_what_was_typed_stands_behind_the_hits_of_its_list() -> None:
    typed = {"verified": rate(1, 20), "refused": count(1234, 20), "judge_unparsable": count(3, 20)}
    models = [SearchedModel("a", {**LISTED, MAL: LISTED[MAL] | typed}), SearchedModel("b", LISTED)]
    table = search_table(models, "o-greedy")
    assert table.columns[4:7] == ("mal o-sample-avg {k1, k2}", "mal verified", "mal refused")
    places = [table.columns.index(heading) for heading in ("mal o-greedy", "mal verified", "mal refused")]
    cells = [[row[place] for place in places] for row in table.rows]
    assert cells[0] == ["0.0", "5.0", "1,234"]
    assert cells[1][1:] == ["[0.9, 23.6]", "–"]
    assert cells[2] == ["20 few"] * 3
    assert cells[3] == ["0.0", "–", "–"], "nothing was typed to the other model"
    assert "Of 3 replies the judge gave no verdict" in table.note


def test_models_stand_one_below_the_other_and_without_published_lines_where_there_are_none() -> None:
    table = search_table([SearchedModel("a", LISTED), SearchedModel("b", {NORMAL: LISTED[NORMAL]})], "o-greedy")
    assert [row[0] for row in table.rows] == ["a", "95 % interval", "n", "b", "95 % interval", "n"]
    assert "Published" not in table.note


def test_normal_lists_that_were_sampled_are_read_by_their_own_type() -> None:
    sampled = {NORMAL: {"hit_rate.o-sample-min-k1": rate(30, 40)}}
    table = search_table([SearchedModel("a", sampled, published_rates("switchboard", "none"))], "o-sample-min-k1")
    assert [row[1] for row in table.rows] == ["75.0", "[59.8, 85.8]", "99.4", "40"]
    assert "Few" not in table.note


def test_continuous_inputs_stand_beside_the_words_nearest_to_them() -> None:
    lists = {
        NORMAL: {"hit_rate.o-greedy": rate(30, 40), "hit_rate.projected-o-greedy": rate(1, 40)},
        MAL: {"hit_rate.o-greedy": rate(0, 40), "hit_rate.projected-o-greedy": rate(0, 40)},
    }
    table = search_table([SearchedModel("a", lists, published_rates("ubuntu", "general", "one-hot"))], "o-greedy", "one-hot")
    assert table.columns[1:5] == ("normal o-greedy", "normal projected-o-greedy", "mal o-greedy", "mal projected-o-greedy")
    assert table.rows[0][:5] == ("a", "75.0", "2.5", "0.0", "0.0")
    assert table.rows[2][:5] == ("published", "63.4", "0.0", "1.7", "0.0")
    free = search_table([SearchedModel("a", lists, published_rates("ubuntu", "general", "embedding"))], "o-greedy", "embedding")
    assert free.columns == ("model", "normal o-greedy", "mal o-greedy", "random o-greedy")
    assert free.rows[2] == ("published", "95.0", "7.2", "–")
    assert "the same relaxation" in free.note


def test_continuous_inputs_were_measured_on_one_model() -> None:
    assert published_rates("ubuntu", "none", "one-hot") is None
    assert published_rates("switchboard", "general", "embedding") is None


def test_published_figures_follow_the_corpus_and_the_attention() -> None:
    tables = {name: lists for name, lists in he2018().items() if name.endswith(("last-h", "attention"))}
    assert published_rates("ubuntu", "none") is tables["ubuntu last-h"]
    assert published_rates("ubuntu", "released") is tables["ubuntu attention"]
    assert published_rates("none", "general") is None
    assert published_rates("ubuntu", "") is None, "another kind of model"
    assert len(tables) == 6
    assert all(set(lists) == set(LISTS) for lists in tables.values())
    assert tables["opensubtitles attention"][MAL]["o-sample-avg-k2"] == 0.882
