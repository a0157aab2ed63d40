"""Hugging Face models that answer contexts, on models of some thousand weights that are made here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.corpora.pairs.turns import parse_turns

transformers = pytest.importorskip("transformers", reason="the extra hugging-face is not installed")

from parley.policies.chat.loading import load_chat_model  # noqa: E402  # needs the extra
from parley.policies.chat.local import ChatResponder  # noqa: E402  # needs the extra
from parley.policies.chat.model import ANSWERS, AnswerKind  # noqa: E402  # needs the extra
from parley.policies.chat.newest import LEFT_OUT  # noqa: E402  # needs the extra
from parley.policies.chat.settings import ChatModelSettings  # noqa: E402  # needs the extra
from parley.policies.core.responder import (  # noqa: E402  # needs the extra
    GREEDY,
    DecoderSettings,
    replies_of,  # needs the extra
)
from parley.policies.core.responders import load_responder  # noqa: E402  # needs the extra
from parley.policies.hugging_face.responder import HuggingFaceResponder, LocalChatResponder  # noqa: E402  # needs the extra
from tests.policies.chat.tiny import saved  # noqa: E402  # needs the extra
from tests.policies.small_hugging_face import MODELS, bart, gpt2, t5  # noqa: E402  # needs the extra

CHAT = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}{% endif %}"
    "{{ ' oh ' if m.role == 'user' else ' well ' }}{{ m.content }}{% endfor %}{{ ' . ' if add_generation_prompt }}"
)
LINES = ("hello there", "how are you <eot> well ?", "oh <eot> what <eot> a fool ." + " you" * 90)
CONTEXTS = [parse_turns(line) for line in LINES]


def made(name: str, **kwargs: Any) -> HuggingFaceResponder:
    victim = MODELS[name](**kwargs)
    return HuggingFaceResponder(victim.model, victim.tokenizer)


def read_by(responder: HuggingFaceResponder, line: str) -> str:
    """What the model is given for a context, as its tokenizer spells it."""
    given: list[list[int]] = []

    def generate(ids_1T: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        given.append(ids_1T[0].tolist())
        return ids_1T

    responder.model.generate = generate
    responder.respond([parse_turns(line)])
    return str(responder._tokenizer.decode(given[0]))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("decoder", [GREEDY, DecoderSettings.parse("beam:3,length=0.6")], ids=["greedy", "beam"])
def test_a_reply_depends_on_its_context_alone(name: str, decoder: DecoderSettings) -> None:
    responder = made(name)
    together = responder.respond(CONTEXTS, decoder=decoder)
    assert together == [responder.respond([turns], decoder=decoder)[0] for turns in CONTEXTS]
    assert all(isinstance(utterance, tuple) and turn for turn in together for utterance in turn)


@pytest.mark.parametrize("decoder", ["sample:0.7", "greedy:repeat=1"])
def test_a_decoder_that_it_does_not_know_is_named(decoder: str) -> None:
    with pytest.raises(ConfigError, match=r"(sample|repeat)(.|\n)*greedy, beam"):
        made("gpt2").respond(CONTEXTS, decoder=DecoderSettings.parse(decoder))


def test_turns_of_a_causal_model_end_as_it_was_trained() -> None:
    assert read_by(made("gpt2"), "how are you <eot> oh well").split() == ["how", "are", "you", "</s>", "oh", "well", "</s>"]


def test_a_chat_template_sees_a_user_first_and_last() -> None:
    assert read_by(made("gpt2", chat=CHAT), "hello there").split() == ["oh", "hello", "there", "."]
    assert read_by(made("gpt2", chat=CHAT), "oh <eot> what <eot> you").split() == ["oh", "oh", "well", "what", "oh", "you", "."]
    assert read_by(made("gpt2", chat=CHAT), "hello <eot> there").split() == ["oh", "hello", "there", "."]


def test_a_folder_is_named_with_its_kind(tmp_path: Path) -> None:
    for name, victim in (("a", gpt2()), ("b", t5()), ("c", bart())):
        victim.model.save_pretrained(tmp_path / name)
        victim.tokenizer.save_pretrained(tmp_path / name)
        loaded, known = load_responder(f"hf:{tmp_path / name}"), HuggingFaceResponder(victim.model, victim.tokenizer)
        beam = DecoderSettings.parse("beam:3")
        assert loaded.respond(CONTEXTS, decoder=beam) == known.respond(CONTEXTS, decoder=beam)
        if victim.model.config.is_encoder_decoder:
            assert loaded.respond(CONTEXTS) == known.respond(CONTEXTS)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_responder(f"hf:{tmp_path}")


def test_turns_that_nothing_separates_are_an_error() -> None:
    victim = gpt2()
    victim.tokenizer.eos_token = None
    with pytest.raises(ConfigError, match="how turns are separated"):
        HuggingFaceResponder(victim.model, victim.tokenizer)


def test_a_causal_folder_is_a_chat_model_as_any_other(tmp_path: Path) -> None:
    folder = saved(tmp_path / "tiny")
    name, drawn = f"hf:{folder}", DecoderSettings.parse("sample:0.9")
    responder = load_responder(name, answers=tmp_path / "answers")
    assert responder.respond(CONTEXTS[:2]) == ChatResponder(load_chat_model(name)).respond(CONTEXTS[:2])
    first = responder.respond(CONTEXTS[:2], decoder=drawn, seeds=[1, 2])
    assert [responder.respond([CONTEXTS[1]], decoder=drawn, seeds=[2])[0], first[0]] == first[::-1]
    assert len((tmp_path / "answers" / ANSWERS).read_text().splitlines()) == 4, "each is asked once and kept"
    # It answers without the oldest turns, and not at all where the newest is too long alone.
    short, long = replies_of(responder, [(*CONTEXTS[2], *CONTEXTS[0]), CONTEXTS[2]])
    assert [short.turn] == responder.respond([CONTEXTS[0]])
    assert short.answer is not None
    assert short.answer.notes == (LEFT_OUT,)
    assert long.answer is not None
    assert (long.answer.kind, long.turn) == (AnswerKind.TOO_LONG, ((),))


@pytest.mark.parametrize("name", ["gpt2", "t5"])
@pytest.mark.usefixtures("own_cache")
def test_settings_say_in_which_precision_it_is_loaded(tmp_path: Path, name: str) -> None:
    victim = MODELS[name]()
    victim.model.save_pretrained(tmp_path)
    victim.tokenizer.save_pretrained(tmp_path)
    assert precision(load_responder(f"hf:{tmp_path}")) == torch.float32
    assert precision(load_responder(f"hf:{tmp_path}", ChatModelSettings(dtype="bfloat16"))) == torch.bfloat16


def precision(responder: Any) -> torch.dtype:
    model = responder.chat_model.model if isinstance(responder, LocalChatResponder) else responder.model
    dtype: torch.dtype = model.dtype
    return dtype


def test_a_template_without_the_user_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    folder = saved(tmp_path / "tiny", "{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %} well")
    with pytest.raises(ConfigError, match="no place for what the user says"):
        load_responder(f"hf:{folder}")
