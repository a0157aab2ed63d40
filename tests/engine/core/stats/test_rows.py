"""Rows that are read in a stream, and columns of numbers: the same rows as a list holds, and none that stays in memory."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from parley.engine.core.stats import rows as rows_module
from parley.engine.core.stats.rows import CHUNK, Columns, Recent, StoredFigures, StoredRows, selected
from parley.engine.core.stats.statistics import NOTHING, finished, lost
from parley.engine.negotiation.metrics.attack import attack_metrics, budget_curves, unchanged_metrics
from parley.engine.ranking.metrics import ranking
from parley.engine.ranking.metrics.ranking import RankedRows, ranking_metrics
from parley.engine.ranking.metrics.searched import SearchedRows, search_metrics
from parley.engine.ranking.verbs.prepared import RANKING
from parley.engine.scan.metrics import AnswerColumns, breaches_table, scan_metrics
from parley.engine.scan.verbs import SCANNED
from parley.engine.triggers.metrics.hits import hits_by_restarts, mean_by_step
from tests.engine.negotiation.metrics.attacks import attacked as attacked_match
from tests.engine.negotiation.metrics.attacks import attempt
from tests.engine.ranking.metrics.ranked_rows import attacked
from tests.engine.ranking.metrics.searched_rows import attacked_context, search

SIZES = (0, 1, CHUNK, CHUNK + 3, 2 * CHUNK)
ROWS = [{"item_key": f"{number:04}", "status": "ok" if number % 5 else "error", "x": number} for number in range(sum(SIZES))]


def stored(parts: Sequence[pa.Table]) -> StoredRows:
    def reader(table: pa.Table) -> Callable[[Sequence[str] | None], pa.Table]:
        return lambda columns: (
            table if columns is None else table.select([name for name in columns if name in table.schema.names])
        )

    return StoredRows([reader(table) for table in parts])


def parts() -> StoredRows:
    ends = np.cumsum(SIZES)
    schema = pa.schema({"item_key": pa.string(), "status": pa.string(), "x": pa.int64()})
    return stored([pa.Table.from_pylist(ROWS[end - size : end], schema) for size, end in zip(SIZES, ends, strict=True)])


@pytest.mark.parametrize("kept", [0, 1 << 20])
def test_they_are_the_rows_of_a_list(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "KEPT_BYTES", kept)
    rows, done = parts(), finished(ROWS)
    for of_run, of_list in ((rows, ROWS), (finished(rows), done), (lost(rows), lost(ROWS))):
        assert list(of_run) == list(of_list)
        assert (len(of_run), bool(of_run)) == (len(of_list), True)
        assert [of_run[index] for index in (0, 7, len(of_list) - 1, -1)] == [of_list[index] for index in (0, 7, -1, -1)]
        assert of_run[:3] == of_list[:3]
        assert of_run[5:300:90] == of_list[5:300:90]
    assert list(selected(finished(rows), "x")) == [{"status": "ok", "x": row["x"]} for row in done]
    with pytest.raises(IndexError):
        rows[len(ROWS)]
    assert not stored([])


def test_columns_hold_all_numbers_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "_BUFFER", 10)
    columns = Columns()
    for number in range(40):
        columns.add("scores", "d", [number / 3] * (number % 4))
        columns.add(("place", number % 2), "i", [number])
    assert columns.get("scores", "d").tolist() == [number / 3 for number in range(40) for _ in range(number % 4)]
    assert columns.get(("place", 1), "i").tolist() == list(range(1, 40, 2))
    assert columns.get("nothing", "b").tolist() == []
    assert columns.get("nothing", "b", 3, 9).tolist() == []
    columns.add("few", "i", np.arange(7))
    columns.add("few", "i", np.arange(7, 9, dtype=np.int64))
    for name, code in (("scores", "d"), ("few", "i")):
        whole = columns.get(name, code)
        for start in range(len(whole) + 2):
            for stop in (0, start - 1, start, start + 1, start + 11, len(whole), None):
                assert columns.get(name, code, start, stop).tolist() == whole[start:stop].tolist()
    figures = StoredFigures(columns, ["scores"])
    assert {name: len(values) for name, values in figures.items()} == {"scores": 60}
    with pytest.raises(KeyError):
        figures["few"]
    assert ("place", 0) in columns
    assert "nothing" not in columns


def ranked(number: int) -> dict[str, Any]:
    return attacked(number, [3.0, 2.0, 1.0] if number % 3 else [1.0, 2.0, 3.0])


def answer(number: int) -> dict[str, Any]:
    prompt, attack = f"p{number // 2:06}", ("none", "play")[number % 2]
    rules = [{"rule": "no code", "broken": number % 7 == 0, "evidence": "a text that a reader sees " * 3}]
    row = {"item_key": f"{prompt}/{attack}/0", "status": "ok", "error": None, "seed": 1, "schema_version": 1}
    row |= {"prompt": prompt, "attack": attack, "repeat": 0, "asked": f"ask {number} " * 9, "reply": f"say {number} " * 9}
    return row | {"kind": "reply", "breach": number % 7 == 0, "rules": rules}


def target(number: int) -> dict[str, Any]:
    restarts = [
        {"restart": restart, "stopped": "", "loss": 1.0, "loss_by_sweep": [3.0, 1.0], "hits": [{"type": "o", "hit": True}]}
        for restart in range(3)
    ]
    return {"item_key": f"{number:06}", "status": "ok", "prompt": None, "restarts": restarts}


def attacked_dialogue(number: int) -> dict[str, Any]:
    return attacked_match((8, 2), attempts=(attempt(),)) | {"item_key": f"{number:06}"}


def attacked_reply(number: int) -> dict[str, Any]:
    searches = [search("smn", method, number % 60 + 1 if number % 3 else None) for method in ("greedy", "random")]
    return attacked_context(number, *searches)


def with_candidates(num: int) -> Callable[[int], dict[str, Any]]:
    """Contexts of many candidates, of which a third is right; ties are many."""

    def row(number: int) -> dict[str, Any]:
        few = ranked(number)
        many = {name: few[name] * num for name in ("candidates", "labels", "kinds")}
        return few | many | {"ranked": [entry | {"scores": entry["scores"] * num} for entry in few["ranked"]]}

    return row


def with_restarts(num: int) -> Callable[[int], dict[str, Any]]:
    """Targets of many restarts, each of which is another sweep longer."""

    def row(number: int) -> dict[str, Any]:
        few = target(number)
        restarts = [
            restart | {"restart": index, "loss_by_sweep": [3.0, 2.0, 1.0][: index + 1]}
            for index, restart in enumerate(few["restarts"] * num)
        ]
        return few | {"restarts": restarts}

    return row


def measure_ranking(rows: Any) -> Any:
    return ranking_metrics(RankedRows(rows))


def measure_scan(rows: Any) -> Any:
    return scan_metrics(AnswerColumns.of(rows)), breaches_table(finished(rows))


def measure_search(rows: Any) -> Any:
    return hits_by_restarts(rows, ["o"]), mean_by_step(rows)


def measure_match(rows: Any) -> Any:
    return attack_metrics(rows, NOTHING) | unchanged_metrics(rows), budget_curves(rows)


def measure_attack(rows: Any) -> Any:
    return search_metrics(SearchedRows(rows), 50)


@pytest.mark.parametrize(
    ("made", "schema", "measure", "most"),
    [
        (ranked, RANKING, measure_ranking, 900),
        (answer, SCANNED, measure_scan, 90),
        (target, None, measure_search, 60),
        (attacked_dialogue, None, measure_match, 340),
        (attacked_reply, None, measure_attack, 280),
    ],
)
def test_no_row_stays_in_memory_as_a_dictionary(
    made: Callable[[int], dict[str, Any]], schema: pa.Schema, measure: Callable[[Any], Any], most: int, monkeypatch: Any
) -> None:
    """Bytes of Python and numpy that a further row takes at the most; its dictionaries alone take some thousands."""
    monkeypatch.setattr(rows_module, "KEPT_BYTES", 0)
    tables = tables_of(made, schema)
    assert measure(stored(tables[:FEW])) == measure([row for table in tables[:FEW] for row in table.to_pylist()])
    a_row = bytes_a_row(tables, measure)
    assert a_row < most, f"{a_row:.0f} bytes a row"


@pytest.mark.parametrize(
    ("made", "schema", "measure", "num_numbers"),
    [(with_candidates, RANKING, measure_ranking, 6 * 27), (with_restarts, None, measure_search, 3 * 27)],
)
def test_further_numbers_of_a_row_take_no_memory(
    made: Any, schema: Any, measure: Any, num_numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores of further candidates lie in a file, losses of further restarts in sums: less than a byte each, not eight."""
    for module, name, value in ((rows_module, "KEPT_BYTES", 0), (rows_module, "_BUFFER", 256), (ranking, "_CONTEXTS", 64)):
        monkeypatch.setattr(module, name, value)
    few, many = (bytes_a_row(tables_of(made(num), schema)[::5], measure, few=1) for num in (1, 10))
    assert (many - few) / num_numbers < 0.6, f"{few:.0f} and {many:.0f} bytes a row"


SIZE, FEW, MANY = 200, 5, 25
"""Rows of a part, and the parts of a small and of a large run."""


def tables_of(made: Callable[[int], dict[str, Any]], schema: pa.Schema) -> list[pa.Table]:
    return [
        pa.Table.from_pylist([made(number) for number in range(part * SIZE, (part + 1) * SIZE)], schema) for part in range(MANY)
    ]


def bytes_a_row(tables: Sequence[pa.Table], measure: Callable[[Any], Any], few: int = FEW) -> float:
    """Return the bytes of Python and numpy that a further row takes at the most."""
    peaks = []
    measure(stored(tables[:1]))  # What is imported and cached once is no memory of rows.
    for num in (few, len(tables)):
        gc.collect()
        tracemalloc.start()
        measure(stored(tables[:num]))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return (peaks[1] - peaks[0]) / ((len(tables) - few) * SIZE)


def test_the_values_used_last_stay_up_to_some_bytes() -> None:
    kept = Recent[str, int](10)
    for number, name in enumerate("abc"):
        kept.put(name, number, 4)
    assert [kept.get(name) for name in "abc"] == [None, 1, 2]
    kept.get("b")
    kept.put("d", 3, 4)
    assert [kept.get(name) for name in "bcd"] == [1, None, 3]
    kept.put("b", 5, 1)
    kept.put("e", 6, 5)
    assert [kept.get(name) for name in "bde"] == [5, 3, 6], "a value put again counts once"
    kept.put("f", 7, 99)
    assert [kept.get(name) for name in "bdef"] == [None, None, None, 7], "the newest stays, however large"
