"""The table of all benchmarks: fake ones, and a small real one, beside stored figures."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.__main__ import (
    FOLDER,
    REAL_MODELS,
    STORED,
    SpeedRow,
    TableOptions,
    benchmark_names,
    format_sections,
    main,
    make_table,
    measure_one,
    read_sections,
)
from benchmarks.measure import BenchmarkOptions, Result, machine, summary
from parley.envs.core.errors import ConfigError

FAKE = """
import sys
from benchmarks.measure import BenchmarkOptions, Result, run

def measure(options):
    print("a library says something")
    measure.made += 1
    BODY
    return Result(ratio=2.0 * measure.made, identical=True, share_of_floor=0.5 if options.quick else None)

measure.made = 0
if __name__ == "__main__":
    run("NAME", BenchmarkOptions, measure)
"""
ROW = SpeedRow(4.0, 3.5, 5.0, True, 0.25)


def fakes(folder: Path, monkeypatch: pytest.MonkeyPatch, **bodies: str) -> None:
    """Write fake benchmarks as a package that processes find."""
    package = folder / "fakes"
    package.mkdir()
    for name, body in bodies.items():
        (package / f"{name}.py").write_text(FAKE.replace("NAME", name).replace("BODY", body))
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{FOLDER.parent}")


def table(file: Path, row: SpeedRow, *names: str, **options: bool) -> list[str]:
    """Make the table of benchmarks that all measure the same."""
    chosen = TableOptions(names=names or ("one",), quick=True, file=file, **options)
    return make_table(chosen, lambda _: row, ["one", "two"])


def test_benchmarks_on_real_models_are_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    names = benchmark_names(FOLDER)
    assert not REAL_MODELS & set(names)
    assert all((FOLDER / f"{name}.py").is_file() for name in REAL_MODELS)
    monkeypatch.setattr("benchmarks.__main__.REAL_MODELS", REAL_MODELS | {"bootstrap"})
    assert set(names) - set(benchmark_names(FOLDER)) == {"bootstrap"}


def test_a_summary_has_the_medians_and_every_ratio() -> None:
    results = [Result(ratio=ratio, identical=ratio < 4, share_of_floor=ratio / 10, figures={"n": ratio}) for ratio in (1, 5, 2)]
    shown = summary(results)
    assert (shown["ratio"], shown["ratios"], shown["identical"], shown["share_of_floor"]) == (2, [1, 5, 2], False, 0.2)
    assert shown["n"] == 2
    assert summary([Result(ratio=3, identical=True)])["share_of_floor"] is None


def test_stored_sections_are_read_as_they_were_written() -> None:
    other = SpeedRow(1.23, 1.2, 1.3, False, None)
    text = format_sections({})
    assert read_sections(text) == {}
    sections = read_sections(text + "\n## A, quick size\n\nfacts\n\n| x |\n|---|\n| b | 4 | 3.5 | 5 | yes | 0.25 |\n")
    sections["A, quick size"].rows["a"] = other
    assert sections["A, quick size"].rows == {"b": ROW, "a": other}
    assert read_sections(format_sections(sections)) == sections
    assert "| a | 1.23 | 1.2 | 1.3 | NO |  |\n| b | 4 " in format_sections(sections)


def test_the_file_in_the_repository_is_as_the_command_writes_it() -> None:
    text = STORED.read_text(encoding="utf-8")
    sections = read_sections(text)
    assert format_sections(sections) == text
    known = set(benchmark_names(FOLDER))
    assert all(set(section.rows) <= known for section in sections.values())
    assert all(row.identical for section in sections.values() for row in section.rows.values())


def test_a_fall_counts_beyond_the_spread_alone() -> None:
    assert not replace(ROW, ratio=3, highest=3.16).has_lost(ROW)
    assert replace(ROW, ratio=3, highest=3.14).has_lost(ROW)


def test_a_fall_is_printed_and_the_stored_figure_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "speed.md"
    assert table(file, ROW) == []
    slow = SpeedRow(2.0, 1.9, 2.1, True, 0.2)
    (problem,) = table(file, slow, "one", "two")
    assert problem == "one: 2 [1.9, 2.1], stored 4 [3.5, 5]: lost more than a tenth"
    assert "| one | 2 | 1.9 | 2.1 | yes | 0.20 | 4 |" in capsys.readouterr().out
    (section,) = read_sections(file.read_text()).values()
    assert section.rows == {"one": ROW, "two": slow}
    table(file, slow, replace=True)
    (section,) = read_sections(file.read_text()).values()
    assert section.rows == {"one": slow, "two": slow}
    assert table(file, slow) == []


def test_another_processor_and_another_size_have_sections_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, here = tmp_path / "speed.md", machine()
    table(file, ROW)
    monkeypatch.setattr("benchmarks.__main__.machine", lambda: {**here, "processor": "Another"})
    slow = replace(ROW, highest=1.0)
    assert table(file, slow) == []
    assert make_table(TableOptions(names=("one",), file=file), lambda _: slow, ["one"]) == []
    sections = read_sections(file.read_text())
    assert [*sections] == [f"{here['processor']}, quick size", "Another, quick size", "Another, full size"]
    assert sections[f"{here['processor']}, quick size"].rows == {"one": ROW}


def test_results_that_differ_fail_and_are_not_stored(tmp_path: Path) -> None:
    file = tmp_path / "speed.md"
    assert table(file, replace(ROW, identical=False)) == ["one: results are not identical, and are not stored"]
    assert not file.exists()


def test_a_table_that_is_killed_has_lost_the_benchmark_in_flight_alone(tmp_path: Path) -> None:
    def measure(name: str) -> SpeedRow:
        if name == "two":
            raise KeyboardInterrupt
        return ROW

    options = TableOptions(names=("one", "two"), quick=True, file=tmp_path / "speed.md")
    with pytest.raises(KeyboardInterrupt):
        make_table(options, measure, ["one", "two"])
    (section,) = read_sections(options.file.read_text()).values()
    assert section.rows == {"one": ROW}


@pytest.mark.parametrize("options", [TableOptions(), TableOptions(names=("three",)), TableOptions(names=("one",), all=True)])
def test_a_table_of_nothing_or_of_the_unknown_is_refused(options: TableOptions, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one, two"):
        make_table(replace(options, file=tmp_path / "speed.md"), lambda _: ROW, ["one", "two"])


def test_benchmarks_run_in_processes_of_their_own_and_a_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes(tmp_path, monkeypatch, steady="pass", broken="raise ValueError('no such layer')")
    (tmp_path / "fakes" / "plain_loop.py").write_text("def run(): pass\n")
    names = benchmark_names(tmp_path / "fakes")
    assert names == ["broken", "steady"]
    options = TableOptions(all=True, quick=True, file=tmp_path / "speed.md")
    (problem,) = make_table(options, lambda name: measure_one(name, options, "fakes"), names)
    assert "no such layer" in problem
    assert "| broken | failed |" in capsys.readouterr().out
    (section,) = read_sections(options.file.read_text()).values()
    assert section.rows == {"steady": SpeedRow(6.0, 2.0, 10.0, True, 0.5)}


def test_a_benchmark_that_does_not_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes(tmp_path, monkeypatch, endless="import time; time.sleep(60)")
    monkeypatch.setattr("benchmarks.__main__.PATIENCE_S", 0.2)
    with pytest.raises(ConfigError, match="does not end"):
        measure_one("endless", TableOptions(quick=True), "fakes")


def test_the_command_measures_a_real_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "speed.md"
    command = [sys.executable, "-m", "benchmarks", "bootstrap", "--quick", "--repeats", "2", "--file", str(file)]
    done = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (section,) = read_sections(file.read_text()).values()
    row = section.rows["bootstrap"]
    assert row.identical
    assert 0 < row.lowest <= row.ratio <= row.highest
    assert f"| bootstrap | {row.cells[0]} |" in done.stdout
    file.write_text(
        format_sections(
            {
                name: replace(part, rows={"bootstrap": replace(row, lowest=1e6)})
                for name, part in read_sections(file.read_text()).items()
            }
        )
    )
    monkeypatch.setattr("benchmarks.__main__.measure_one", lambda name, options: row)
    monkeypatch.setattr(sys, "argv", command[2:])
    with pytest.raises(SystemExit, match="lost more than a tenth"):
        main()


def test_every_benchmark_has_the_options_of_all() -> None:
    assert BenchmarkOptions().repeats == 1
    assert {"bootstrap", "whitebox", "chat_triggers"} <= set(benchmark_names(FOLDER))
    assert "chat_choices" not in benchmark_names(FOLDER)
