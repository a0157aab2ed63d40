"""Runs as chat models: response models that Parley trained, and folders that a hardening left."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.corpora.pairs.turns import detokenise
from parley.policies.chat.loading import load_chat_model
from parley.policies.chat.model import Access, ChatDecoding, Message
from parley.policies.core.responders import load_responder
from parley.policies.seq2seq.scoring import save_model
from tests.policies.chat.tiny import saved
from tests.policies.seq2seq.made_up import language_model, seq2seq

CHAT = (Message("user", "hello"), Message("assistant", "you\nthere"), Message("user", "hello you"))
CONTEXT = ((("hello",),), (("you",), ("there",)), (("hello", "you"),))


def test_a_run_of_a_response_model_answers_what_the_model_replies(tmp_path: Path) -> None:
    save_model(seq2seq(), tmp_path / "run" / "checkpoint", {})
    model, responder = load_chat_model(str(tmp_path / "run")), load_responder(tmp_path / "run")
    (reply,) = responder.respond([CONTEXT])
    (whole,) = model.answer([CHAT], decoding=ChatDecoding(max_tokens=99))
    assert whole.text == "\n".join(map(detokenise, reply))
    assert (whole.ended, whole.num_prompt_tokens) == (True, 5)
    assert whole.num_tokens == len(reply[0]) > 1
    (cut,) = model.answer([CHAT], decoding=ChatDecoding(max_tokens=1))
    assert (cut.text, cut.ended, cut.num_tokens) == (detokenise(reply[0][:1]), False, 1)
    drawn = ChatDecoding(temperature=1.0, max_tokens=99)
    first, second = (model.answer([CHAT] * 2, decoding=drawn, seeds=[3, 4]) for _ in range(2))
    assert first == second
    assert model.access is Access.TEXT
    assert model.usage.asked == 6  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="no place for the system"):
        model.answer([(Message("system", "be brief"), *CHAT)], decoding=drawn, seeds=[1])


def test_a_run_whose_model_does_not_answer_says_so(tmp_path: Path) -> None:
    save_model(language_model(), tmp_path, {})
    with pytest.raises(CheckpointError, match="models of this kind do not answer"):
        load_chat_model(str(tmp_path))


def test_a_hardened_run_is_the_model_that_it_holds(tmp_path: Path) -> None:
    saved(tmp_path / "run" / "checkpoint")
    model = load_chat_model(str(tmp_path / "run"))
    assert model.access is Access.GRADIENTS
    asked, decoding = [(Message("user", "oh you"),)], ChatDecoding(max_tokens=4)
    named = load_chat_model(f"hf:{tmp_path}/run")
    assert model.answer(asked, decoding=decoding) == named.answer(asked, decoding=decoding)
