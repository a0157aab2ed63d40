"""A person talks with a response model, with lines from a pipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.core.cli.conftest import Parley, Typed

OWN = """
class Echo:
    decoders = ("greedy", "sample")

    def respond(self, contexts, *, decoder=None, seeds=()):
        tail = ((str(seeds[0] % 2),),) if seeds else ()
        return [((str(len(context)),), *context[-1], *tail) if context[-1] != (("hush",),) else ((),) for context in contexts]
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(OWN)
    return f"{tmp_path / 'own.py'}:Echo"


def test_it_replies_to_what_was_said_before_until_a_new_dialogue_begins(parley: Parley, typed: Typed, own: str) -> None:
    typed("Hello there, you!", "", "hush", "and?", "/new", "again", "/quit", "unread")
    outcome = parley("play", "reply", own)
    assert (outcome.status, outcome.out) == (0, "")
    replies = [line for line in outcome.err.splitlines() if line.startswith("model:")]
    said = ["1 / hello there, you!", "(says nothing)", "4 / and?", "1 / again"]
    assert replies == [f"model: {text}" for text in said]
    assert outcome.err.endswith(f"next:\n  parley reply quick --model {own} --decoder greedy\n")


CHAT = """
from parley.policies.chat.model import Answer

class Chat:
    def answer(self, chats, *, decoding, seeds=()):
        return [Answer("", "content_filter") if "bad" in chat[-1].content else Answer(str(len(chat))) for chat in chats]
"""


def test_an_answer_of_a_chat_model_that_is_no_reply_says_its_kind(parley: Parley, typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "chat.py").write_text(CHAT)
    typed("good", "bad", "/new", "good", "/quit")
    outcome = parley("play", "reply", f"{tmp_path}/chat.py:Chat")
    replies = [line for line in outcome.err.splitlines() if line.startswith("model:")]
    assert replies == ["model: 1", "model: (no reply: filtered)", "model: 1"]
    assert outcome.status == 0
    assert "warning:\n  1 of 3 answers of " in outcome.err
    assert "are no reply (33%: 1 filtered); " in outcome.err


def test_a_talk_of_answers_that_are_no_replies_has_failed(parley: Parley, typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "chat.py").write_text(CHAT)
    typed("good", "bad", "bad", "/quit")
    outcome = parley("play", "reply", f"{tmp_path}/chat.py:Chat")
    assert outcome.status == 1
    assert "failed:\n  2 of 3 answers of " in outcome.err
    assert "are no reply (67%: 2 filtered); " in outcome.err


def test_what_is_drawn_follows_from_the_seed(parley: Parley, typed: Typed, own: str) -> None:
    told = []
    for seed in (1, 1, 2, 3, 4, 5):
        typed("a", "b", "c")
        told.append(parley("play", "reply", own, "--decoder", "sample:0.8", "--seed", str(seed)).err.partition("next:")[0])
    assert told[0] == told[1]
    assert len(set(told)) > 1


@pytest.mark.parametrize(
    ("decoder", "message"),
    [("beam:5", "no decoder or option beam"), ("samplr", "did you mean 'sample'"), ("mmi:5", "needs backward")],
)
def test_a_decoder_that_does_not_fit_is_named(parley: Parley, own: str, decoder: str, message: str) -> None:
    outcome = parley("play", "reply", own, "--decoder", decoder)
    assert outcome.status == 2
    assert message in outcome.err


def test_a_missing_model_is_named(parley: Parley) -> None:
    outcome = parley("play reply runs/nothing")
    assert outcome.status == 2
    assert "MODEL needs a checkpoint and there is none" in outcome.err
