"""The chapter of adversarial evaluations: verdict, tables, examples; what replies say stays text."""

from __future__ import annotations

import pytest

from parley.engine.core.page.page import report_from_run
from parley.engine.core.verbs.job import Silent
from parley.engine.generation.verbs.adversarial import EVALUATE_ADVERSARIAL
from tests.engine.core.page.pages import HOSTILE, assert_harmless, words
from tests.engine.generation.verbs.judging import asked, replies, written


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("judged")
    config = asked(folder, published="li2017")
    written(folder / "telling.tsv", [f"{line} {HOSTILE}" for line in replies("telling")])
    EVALUATE_ADVERSARIAL.run(config, folder / "run", Silent())
    return report_from_run(folder / "run").read_text()


def test_the_page_says_what_it_comes_to_and_shows_tables_drawings_and_replies(page: str) -> None:
    said = words(page)
    assert "plain: these judges cannot tell its replies from people's" in said
    assert "telling: length explains it" in said, "hostile words make replies longer"
    assert "AdverSuc and machine-vs-random (table 3)" in said
    assert "Adver-REGS, published" in said
    assert "Calibration of the judges" in said
    assert "most human-like" in said
    assert "Replies: " in said


def test_replies_are_text(page: str) -> None:
    assert_harmless(page)
