"""Answers of chat models that are no replies, under perturbations: counted by situation, and nothing is compared with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.core.page.page import report_from_run
from parley.engine.core.stats.statistics import NO_REPLY, NO_REPLY_KINDS
from parley.engine.core.verbs.job import Silent
from parley.engine.perturb.strategy import PerturbSettings
from parley.engine.perturb.verbs.config import RobustnessConfig
from parley.engine.perturb.verbs.robustness import EVALUATE_ROBUSTNESS
from parley.policies.chat.settings import ChatReplying
from tests.engine.core.verbs.made_up import rows

MODEL = """
from pathlib import Path
from parley.policies.chat.model import Answer


class Model:
    def answer(self, chats, *, decoding, seeds=()):
        Path(__file__).with_suffix(".most").write_text(str(decoding.max_tokens))
        return [self.one(sum(map(ord, chat[-1].content))) for chat in chats]

    def one(self, number):
        if number % 3 == 0: return Answer("", "content_filter")
        if number % 7 == 0: return Answer("", "length", reasoning="hm")
        return Answer(f"say {number % 5}")
"""
SWAP = "random-swap"


def test_no_reply_is_no_changed_reply(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    config = RobustnessConfig(
        model=f"{tmp_path}/model.py:Model",
        corpus="helpdesk",
        strategies=SWAP,
        limit=40,
        perturb=PerturbSettings(lexicon="built-in"),
        chat=ChatReplying(max_tokens=9),
    )
    result = EVALUATE_ROBUSTNESS.run(config, tmp_path / "run", Silent())
    assert (tmp_path / "model.most").read_text() == "9"
    pairs = [{reply["strategy"]: reply for reply in row["replies"]} for row in rows(tmp_path / "run")]
    compared, without = [], 0
    for pair in pairs:
        lost = [reply["kind"] in NO_REPLY_KINDS for reply in (pair[""], pair[SWAP])]
        without += sum(lost)
        if any(lost):
            assert [pair[SWAP][name] for name in ("same", "bleu", "reply_similarity")] == [None] * 3
        else:
            assert pair[SWAP]["same"] == (pair[SWAP]["reply"] == pair[""]["reply"])
            compared.append(not pair[SWAP]["same"])
    assert 0 < len(compared) < 40
    change = result.metrics[f"change_rate.base.{SWAP}"]
    assert (change.value, change.n) == (pytest.approx(sum(compared) / len(compared)), len(compared))
    swapped = sum(pair[SWAP]["kind"] in NO_REPLY_KINDS for pair in pairs)
    assert result.metrics[f"no_reply_share.base.{SWAP}"].value == swapped / 40
    assert result.metrics["no_reply_share.base.clean"].value == (without - swapped) / 40
    assert result.metrics[NO_REPLY].value == without / 80
    kinds = [reply["kind"] for pair in pairs for reply in pair.values()]
    assert result.metrics[f"{NO_REPLY}.filtered"].value == kinds.count("filtered") > 0
    assert result.metrics[f"{NO_REPLY}.cut_in_thinking"].value == kinds.count("cut in thinking") > 0
    table = (tmp_path / "run" / "table.md").read_text()
    assert "| no reply | n |" in table
    assert "pairs with one are left out of all other columns" in table
    page = report_from_run(tmp_path / "run").read_text()
    assert "(no reply: filtered)" in page
    assert "no reply to compare" in page
