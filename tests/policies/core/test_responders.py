"""Response models by name: checkpoints by their kind, files of one's own, and names that stand for nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.corpora.pairs.turns import Turns
from parley.policies.core.responder import DecoderSettings, answer
from parley.policies.core.responders import load_responder
from parley.policies.seq2seq.decoding import Seq2SeqResponder
from parley.policies.seq2seq.scoring import save_model
from tests.policies.seq2seq.made_up import language_model, seq2seq

CONTEXT = ((("hello",),),)
OWN = """
class Echo:
    def respond(self, contexts):
        return [context[-1] for context in contexts]

def made():
    return Echo()

def nothing():
    return None

ECHO = Echo()
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def test_a_run_or_its_checkpoint_answers_by_its_kind(tmp_path: Path) -> None:
    save_model(seq2seq(), tmp_path / "checkpoint", {})
    for name in (tmp_path, str(tmp_path / "checkpoint")):
        found = load_responder(name)
        assert isinstance(found, Seq2SeqResponder)
        assert not found.model.training


@pytest.mark.parametrize("name", ["Echo", "made"])
def test_a_class_or_function_of_ones_own_answers(own: Path, name: str) -> None:
    assert load_responder(f"{own}:{name}").respond([CONTEXT]) == [CONTEXT[-1]]


def test_a_blind_decoder_gives_everybody_the_greedy_reply_to_no_context() -> None:
    responder, others = Seq2SeqResponder(seq2seq()), [CONTEXT, ((("no",), ("yes",)),)]
    blind = DecoderSettings.parse("blind:forbid=no")
    assert answer(responder, others, blind) == responder.respond([()], decoder=DecoderSettings.parse("greedy:forbid=no")) * 2
    assert answer(responder, [], blind) == []


@pytest.mark.parametrize("name", ["nothing", "ECHO"])
def test_what_makes_no_response_model_is_named(own: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"makes no response model(.|\n)*own\.py"):
        load_responder(f"{own}:{name}")


def test_a_file_without_the_name_says_what_is_near(own: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'Echo'"):
        load_responder(f"{own}:Ehco")
    with pytest.raises(ConfigError, match="no such Python file"):
        load_responder(f"{own.with_name('other.py')}:Echo")


def test_a_model_of_a_kind_that_does_not_answer_is_named(tmp_path: Path) -> None:
    save_model(language_model(), tmp_path, {})
    with pytest.raises(CheckpointError, match=r"do not answer(.|\n)*'language-model'(.|\n)*parley train seq2seq or "):
        load_responder(tmp_path)


def test_a_folder_without_a_model_and_a_damaged_one_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint is there"):
        load_responder(tmp_path / "nothing")
    for content in ("{", "[]", json.dumps({"format": 1})):
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(CheckpointError, match="the checkpoint is damaged"):
            load_responder(tmp_path)


@pytest.mark.parametrize("turns", ["oh well", ["oh", "well"], [("oh",), ("well",)], [(("oh",),)], None])
def test_what_is_no_turn_for_each_context_is_an_error_not_letters(turns: Any) -> None:
    class Own:
        def respond(self, contexts: Sequence[Turns]) -> Any:
            return turns

    with pytest.raises(ConfigError, match=r"gives a turn to each context(.|\n)*where: Own(.|\n)*for 2(.|\n)*tuples of words"):
        answer(Own(), [((("hi",),),)] * 2)
