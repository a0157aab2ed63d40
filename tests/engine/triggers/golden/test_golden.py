"""Every search still finds what was recorded, visit for visit."""

from __future__ import annotations

import json

import pytest

from parley.engine.triggers.catalogue import searches
from tests.engine.triggers.golden.run import FOLDER, path, record

REWRITE = "if the change is intended: python -m tests.engine.triggers.golden.rewrite, and read the difference"


@pytest.mark.parametrize("method", list(searches))
def test_the_search_finds_what_was_recorded(method: str) -> None:
    found, recorded = record(method), json.loads(path(method).read_text())
    assert len(found) == len(recorded), REWRITE
    for row, expected in zip(found, recorded, strict=True):
        # Nats within rounding of each other on any machine; words and counts to the letter.
        for name in ("loss", "loss_by_sweep", "word_log_probability"):
            assert row.pop(name) == pytest.approx(expected.pop(name), abs=2e-4), REWRITE
        assert row == expected, REWRITE


def test_every_file_is_a_run_and_every_search_has_one() -> None:
    assert {file.stem for file in FOLDER.glob("*.json")} == set(searches)
