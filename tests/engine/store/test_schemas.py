"""Rows of attacks go to disk and come back."""

from __future__ import annotations

from pathlib import Path

from engine.jobs.negotiation.rows import ATTACKS, DIALOGUES
from engine.store.run_folder import RunFolder
from engine.store.schemas import SCHEMA_VERSION, error_row
from tests.engine.metrics.negotiation.attacks import attacked, attempt
from tests.engine.store.rows import SmallConfig


def test_rows_of_attacks_come_back_as_they_were(tmp_path: Path) -> None:
    unscored = attempt(kind="transfer", end_probability=None, nll=None, nll_base=None, lowest_probability=None, steps=[])
    base = {"error": None, "seed": 7, "schema_version": SCHEMA_VERSION}
    row = attacked((4, 6), (8, 2), (attempt(), unscored)) | base
    with RunFolder.open(tmp_path, SmallConfig(), job="attack", schema=ATTACKS) as run:
        run.write_shard("00000", [row, attacked((5, 5), item_key="d1") | base, error_row("d2", 3, "it broke")])
    first, second, failed = RunFolder.load(tmp_path).read_rows().to_pylist()
    assert {name: first[name] for name in row} == row
    assert second["attempts"] == []
    assert failed["attempts"] is None
    with RunFolder.open(tmp_path, SmallConfig(), job="attack", schema=ATTACKS) as run:
        assert run.done_keys() == {"d0", "d1"}, "types come back unchanged, so that the part still counts"


def test_an_attack_is_a_dialogue_and_more() -> None:
    assert ATTACKS.names[: len(DIALOGUES.names)] == DIALOGUES.names
    assert all(ATTACKS.field(name).equals(DIALOGUES.field(name)) for name in DIALOGUES.names)
