"""Searches until another tool's loss: what is compared, and that no search is run twice."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import time_to_trigger
from benchmarks.time_to_trigger import Arena, Options, SearchLine, compare, measure, read_lines
from parley.envs.core.errors import ConfigError
from tests.benchmarks.test_chat_triggers import tiny

THEIRS = SearchLine([0, "nanogcg", 2, 8], [10.0, 20.0], [3.0, 2.0], "x", 2.0, False, [])
OURS = SearchLine([0, "ours exact", 2, 8], [2.0, 5.0, 21.0], [2.5, 2.0, 1.5], "y", 1.5, True, [True, False])


def test_seconds_to_the_peers_loss_and_the_loss_at_its_seconds_are_compared() -> None:
    of = {(0, "nanogcg"): THEIRS, (0, "ours exact"): OURS}
    shown = compare(of, "exact", ["nanogcg"], [0])
    assert shown == {
        "ratio": 4.0, "worst": 4.0, "reached": 1, "median_difference_nats": 0.0, "said": 1, "exact_choices": 0.5,
    }  # fmt: skip
    of[0, "nanogcg"] = replace(THEIRS, typed=1.0)
    missed = compare(of, "exact", ["nanogcg"], [0])
    assert (missed["reached"], missed["ratio"], missed["median_difference_nats"]) == (0, 20 / 21, 1.0)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A tiny model with two pairs; the searches that are run."""
    made = list[str]()

    def arenas(options: Options) -> tuple[list[Arena], None]:
        victim = tiny("cpu")
        start_N = torch.arange(20, 40)
        return [Arena(victim, victim.target_T[: 5 - number].clone(), start_N, number, options) for number in range(2)], None

    def noted(name: str, search: Any) -> Any:
        def run(self: Arena, *given: Any) -> Any:
            made.append(f"{name} {self.number}")
            return search(self, *given)

        return run

    monkeypatch.setattr(time_to_trigger, "arenas", arenas)
    monkeypatch.setattr(Arena, "plain", noted("plain", Arena.plain))
    monkeypatch.setattr(Arena, "ours", noted("ours", Arena.ours))
    return made


def test_a_search_that_has_ended_is_not_run_again(small: list[str], tmp_path: Path) -> None:
    options = Options(steps=2, candidates=8, ours="exact,draft", file=tmp_path / "lines.jsonl")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(time_to_trigger, "WAYS", {"exact": {}, "draft": {"draft": "1"}})
        first = measure(options)
        assert small == [f"{name} {number}" for number in range(2) for name in ("plain", "ours", "ours")]
        assert first.identical
        assert first.figures["ways"]["exact"]["exact_choices"] == 1
        lines = options.file.read_text().splitlines(keepends=True)
        assert len(read_lines(options.file)) == len(lines) == 6
        small.clear()
        assert measure(options) == first
        assert small == []
        options.file.write_text("".join(lines[:-1]) + lines[-1][:40])
        measure(options)
        assert small == ["ours 1"]


def test_the_loss_of_a_search_is_that_of_its_text(small: list[str], tmp_path: Path) -> None:
    options = Options(steps=2, candidates=8, file=tmp_path / "lines.jsonl")
    measure(options)
    for line in read_lines(options.file).values():
        assert line.losses == sorted(line.losses, reverse=True)
        assert line.seconds == sorted(line.seconds)
        assert line.typed == pytest.approx(line.losses[-1], abs=1e-4), asdict(line)


def test_an_unknown_way_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a way to search is unknown"):
        measure(Options(ours="exact,fast", file=tmp_path / "lines.jsonl"))


def test_a_peer_searches_in_a_process_and_its_text_is_read_as_typed(tmp_path: Path) -> None:
    victim: Any = tiny("cpu")
    victim.read_text = lambda text: [3, 4, *([20] * len(text)), 6, 7]
    arena = Arena(victim, victim.target_T, torch.arange(20, 40), 1, Options(steps=2, candidates=8))
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/sh\necho a library says something\necho "[[0.5, 9, \\"\\"], [2, 5, \\"ab\\"], [4, 7, \\"c\\"]]"\n'
    )
    python.chmod(0o755)
    line = arena.peer("tropt", str(python), tmp_path / "model.gguf", " x")
    assert (line.key, line.seconds, line.losses, line.text) == ([1, "tropt", 2, 8], [2, 4], [5, 5], "ab")
    assert line.typed == arena.read("ab")[0] > 0


def test_a_peer_that_is_not_installed_is_an_error(tmp_path: Path) -> None:
    arena = Arena(None, torch.arange(3), torch.arange(20), 0, Options())
    with pytest.raises(ConfigError, match="No module named 'nanogcg'"):
        arena.peer("nanogcg", sys.executable, tmp_path / "model.gguf", " x")
