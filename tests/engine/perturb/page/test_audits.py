"""Audits on the page: the verdict, the tables, drawn lines with marked words and labels, hostile words."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from parley.engine.core.page.content import Item, Run, Verdict
from parley.engine.core.page.page import collect_run, report_from_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.perturb.page import Audits
from parley.engine.perturb.verbs.audit import PERTURB_AUDIT, SHEET
from parley.engine.perturb.verbs.config import AuditConfig
from parley.envs.core.visible import visible
from tests.engine.core.page.pages import HOSTILE, assert_brief, assert_harmless, words
from tests.engine.perturb.verbs.robust import ANTONYM, BUILT_IN, SWAP


@pytest.fixture
def run(tmp_path: Path) -> Path:
    config = AuditConfig(strategies=f"{SWAP},{ANTONYM}", limit=8, num_lines=4, perturb=BUILT_IN)
    PERTURB_AUDIT.run(config, tmp_path / "run", Silent())
    return tmp_path / "run"


def label(run: Path, name: str, labels: list[str], note: str = "") -> None:
    rows = list(csv.DictReader(io.StringIO((run / SHEET).read_text())))
    for row, said in zip(rows, labels, strict=False):
        row |= {"label": said, "note": note}
    path = run.parent / f"{name}.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    PERTURB_AUDIT.label(run, [path], Silent())


def found(run: Path) -> list[Run]:
    return list(collect_run(run).found["audits"])


def verdict_of(run: Path) -> Verdict | None:
    verdict = Audits().verdict(found(run))
    if verdict is not None:
        assert_brief(verdict)
    return verdict


def lines(run: Path) -> list[Item]:
    return [item for audit in found(run) for _, items in Audits().items(audit) for item in items]


def test_without_labels_the_verdict_is_the_language_models(run: Path) -> None:
    verdict = verdict_of(run)
    assert verdict is not None
    assert verdict.sentence.startswith("Edits by random-swap make utterances ")
    assert ", random words " in verdict.sentence
    assert "No line is labelled yet." in verdict.cautions
    assert [*verdict.marks] == [SWAP, ANTONYM, "random-words"]
    assert [item.tags for item in lines(run)] == [("not labelled",)] * 8
    page = report_from_run(run).read_text()
    shown = words(page)
    assert "Table: How it reads" in shown
    assert "Table: How much is changed" in shown
    assert "changed lines for a person to label" in shown
    assert "<del>" in page
    assert "<mark>" in page


def test_labels_stand_beside_their_lines(run: Path) -> None:
    label(run, "alice", ["wrong", "ok", "ok"], HOSTILE)
    label(run, "bob", ["ok", "ok"])
    verdict = verdict_of(run)
    assert verdict is not None
    assert verdict.sentence.replace("\xa0", " ") == "Of the labelled lines of random-swap, 33.3 % are wrong."
    assert verdict.cautions == ["Few contexts with a labelled line (3): do not lean on it."]
    assert [item.tags for item in lines(run)[:4]] == [("wrong", "labellers disagree"), ("ok",), ("ok",), ("not labelled",)]
    page = report_from_run(run).read_text()
    outline = assert_harmless(page)
    assert "alice: wrong, " + visible(HOSTILE) in "".join(outline.text)
    assert "Lines with a label: 3 of 4 of random-swap, 0 of 4 of antonym. Labellers: alice 3, bob 2." in words(page)


def test_an_audit_that_is_not_measured_yet_has_a_page_too(run: Path) -> None:
    (run / "summary.json").unlink()
    assert verdict_of(run) is None
    assert "0 lines" not in words(report_from_run(run).read_text())


def test_hostile_words_stay_text(run: Path) -> None:
    config = AuditConfig(strategies=SWAP, limit=1, num_lines=4, perturb=BUILT_IN)
    evil = " ".join(HOSTILE.split())
    with RunFolder.open(run.parent / "evil", config, job=PERTURB_AUDIT.name, schema=PERTURB_AUDIT.schema) as folder:
        (row,) = RunFolder.load(run).read_rows().to_pylist()[:1]
        texts = {"before": f"{evil} \u202ex", "after": f"y {evil}"}
        touched = [each | texts for each in row["touched"] if each["strategy"] == SWAP]
        folder.write_shard("00000", [row | {"touched": touched}])
        PERTURB_AUDIT.conclude(folder, config, PERTURB_AUDIT.measured(folder, config, [SWAP]))
    page = report_from_run(run.parent / "evil").read_text()
    outline = assert_harmless(page)
    assert "<script>alert(1)</script>" in "".join(outline.text)
    assert "\u202e" not in page
