"""Answers of chat models that are no replies: `parley reply` counts them by kind, and they are no lines of its files."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.core.page.page import report_from_run
from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.stats.statistics import NO_REPLY, NO_REPLY_KINDS
from parley.engine.core.verbs.job import Silent
from parley.engine.responders.reply import HUMAN_FILE, MACHINE_FILE, REPLY, ReplyConfig
from parley.envs.corpora.pairs.compiled import read_replied
from parley.policies.chat.settings import MAX_REPLY_TOKENS, ChatReplying
from parley.policies.core.responder import replies_of
from parley.policies.core.responders import load_responder
from tests.engine.core.verbs.made_up import Notes, rows

MODEL = """
from pathlib import Path
from parley.policies.chat.model import Answer

ANSWERS = [
    Answer("hello there", reasoning="what would fit ?"),
    Answer("hello", "length"),
    Answer("half of it", "content_filter"),
    Answer("", "refusal", withheld="sorry , no"),
    Answer("", "length", reasoning="let me think"),
    Answer("", "stop", reasoning="let me think"),
    Answer("", "tool_calls"),
    Answer("", "stop"),
    Answer("", "too_long"),
]


class Model:
    def answer(self, chats, *, decoding, seeds=()):
        with Path(__file__).with_suffix(".most").open("a") as file:
            file.write(f"{decoding.max_tokens}\\n" * len(chats))
        return [ANSWERS[sum(map(ord, chat[-1].content)) % len(ANSWERS)] for chat in chats]
"""


@pytest.fixture
def asked(tmp_path: Path) -> ReplyConfig:
    (tmp_path / "model.py").write_text(MODEL)
    return ReplyConfig(model=f"{tmp_path}/model.py:Model", corpus="helpdesk", limit=60)


def test_answers_that_are_no_replies_are_counted_by_kind_and_no_lines(tmp_path: Path, asked: ReplyConfig) -> None:
    notes = Notes()
    result = REPLY.run(asked, tmp_path / "run", notes)
    found = rows(tmp_path / "run")
    kinds = Counter(row["kind"] for row in found)
    without = [row for row in found if row["kind"] in NO_REPLY_KINDS]
    assert set(NO_REPLY_KINDS) < set(kinds), "every kind occurs"
    assert all(row["reply"] == "" for row in without), "nor is half of a filtered answer a reply"
    assert {row["reasoning"] for row in found if row["kind"] == "reply"} == {"what would fit ?"}
    assert {row["withheld"] for row in found if row["kind"] == "refused"} == {"sorry , no"}
    assert result.metrics[NO_REPLY].value == len(without) / 60
    for kind in NO_REPLY_KINDS:
        assert result.metrics[f"{NO_REPLY}.{kind.replace(' ', '_')}"].value == kinds[kind]
    assert result.metrics["reply_words"].n == 60 - len(without)
    assert result.metrics["empty_share"].value == 0
    lengths = [2] * kinds["reply"] + [1] * kinds["cut"]
    assert result.metrics["reply_words"].value == pytest.approx(sum(lengths) / len(lengths)), "what is no reply has no length"
    machine, human = (read_replied(tmp_path / "run" / name) for name in (MACHINE_FILE, HUMAN_FILE))
    assert (len(machine), len(human)) == (60 - len(without), 60)
    assert {pair.context for pair in machine} <= {pair.context for pair in human}
    assert all(pair.reply for pair in machine)
    told = json.loads((tmp_path / "run" / SUMMARY).read_text())["description"]
    lost = f"{len(without)} of 60 contexts got no reply, and have no line in {MACHINE_FILE}"
    assert f"{lost} ({kinds['cut in thinking']} cut in thinking, " in told
    assert result.warnings[0].startswith(f"{len(without)} of 60 contexts got no reply"), "on the screen, too"
    assert f"{len(without)} of 60 contexts got no reply" in report_from_run(tmp_path / "run").read_text()


def test_the_longest_reply_is_a_setting(tmp_path: Path, asked: ReplyConfig) -> None:
    asked = replace(asked, limit=2)
    REPLY.run(asked, tmp_path / "run", Silent())
    REPLY.run(replace(asked, chat=ChatReplying(max_tokens=7)), tmp_path / "other", Silent())
    assert (tmp_path / "model.most").read_text().split() == [str(MAX_REPLY_TOKENS)] * 2 + ["7"] * 2
    assert MAX_REPLY_TOKENS == 60


def test_a_responder_tells_what_came_of_each_context(asked: ReplyConfig) -> None:
    contexts = [((tuple(text.split()),),) for text in ("how are you ?", "a", "b", "c", "d", "e", "f", "g", "h")]
    responder = load_responder(asked.model)
    turns = responder.respond(contexts)
    for turn, reply in zip(turns, replies_of(responder, contexts), strict=True):
        assert turn == reply.turn
        assert reply.answer is not None
        assert reply.is_reply == bool(turn[0]) == reply.answer.is_reply
