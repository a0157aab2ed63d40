"""What models whose weights are here think is parted from what they say, also where the marks are special tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from parley.policies.chat.local import LocalChatModel, load_local
from parley.policies.chat.model import AnswerKind, ChatDecoding, Message
from parley.policies.chat.settings import ChatModelSettings
from parley.policies.hugging_face.caches import continues_reading
from parley.policies.hugging_face.responder import HuggingFaceResponder
from parley.policies.hugging_face.tokens import decode_marked
from parley.policies.hugging_face.victims import HuggingFaceCausal
from tests.policies.byte_pairs import CHAT, END_ID, byte_model
from tests.policies.small_hugging_face import tokenizers

CHATS = [(Message("user", "hello"),)]
OPENS = "<|begin|>assistant\n{% endif %}"
THINKS = CHAT.replace(OPENS, "<|begin|>assistant\n<think>\n{% endif %}")
SWITCHED = CHAT.replace(
    OPENS, "<|begin|>assistant\n<think>\n{% if enable_thinking is false %}\n</think>\n\n{% endif %}{% endif %}"
)
SPECIAL = ("<think>", "</think>", "<|channel|>", "<|message|>", "<|start|>", "<|other|>")


def says(text: str, *, special: bool, template: str = CHAT, ended: bool = True) -> tuple[Any, Any]:
    """Return a model that says a text whatever it is asked, and its tokenizer; its marks are tokens where they are special."""
    model, tokenizer = byte_model()
    tokenizer.chat_template = template
    if special:
        marks = [tokenizers.AddedToken(mark, special=True) for mark in SPECIAL]
        tokenizer.add_special_tokens({"additional_special_tokens": marks})
        model.resize_token_embeddings(len(tokenizer))
    ids = tokenizer(text, add_special_tokens=False).input_ids + [END_ID] * ended
    assert continues_reading(model)
    forward, said = model.forward, []

    def told(*given: Any, input_ids: torch.Tensor, **more: Any) -> Any:
        read = forward(*given, input_ids=input_ids, **more)
        if input_ids.shape[1] > 1:
            said.clear()
        read.logits[:, -1] = -1e9
        read.logits[:, -1, ids[min(len(said), len(ids) - 1)]] = 0.0
        said.append(1)
        return read

    model.forward = told
    return model, tokenizer


def answered(model: Any, tokenizer: Any, num: int = 80, **options: Any) -> Any:
    (answer,) = LocalChatModel("told", model, tokenizer, **options).answer(CHATS, decoding=ChatDecoding(max_tokens=num))
    return answer


@pytest.mark.parametrize("special", [True, False])
def test_thoughts_of_a_local_model_are_no_reply(special: bool) -> None:
    text = "<think>\nSorry or not?\n</think>\n\ni am fine"
    answer = answered(*says(text, special=special))
    assert (answer.text, answer.reasoning, answer.kind) == ("i am fine", "Sorry or not?", AnswerKind.REPLY)
    assert answered(*says(text, special=special), parts_thinking=False).text == text


@pytest.mark.parametrize("special", [True, False])
def test_a_prompt_that_opens_a_thought_is_gone_on_with(special: bool) -> None:
    answer = answered(*says("so\n</think>\n\noh well", special=special, template=THINKS))
    assert (answer.text, answer.reasoning, answer.kind) == ("oh well", "so", AnswerKind.REPLY)
    unclosed = answered(*says("so on and on", special=special, template=THINKS))
    assert (unclosed.text, unclosed.reasoning, unclosed.kind) == ("", "so on and on", AnswerKind.CUT_IN_THINKING)


@pytest.mark.parametrize("special", [True, False])
def test_thinking_that_is_cut_is_said_to_be(special: bool) -> None:
    answer = answered(*says("<think>on and on and on", special=special, ended=False), num=12)
    assert (answer.text, answer.finish_reason, answer.kind) == ("", "length", AnswerKind.CUT_IN_THINKING)
    assert answer.reasoning.startswith("on")


@pytest.mark.parametrize("parts_thinking", [True, False])
def test_blanks_that_are_cut_are_no_thinking(parts_thinking: bool) -> None:
    answer = answered(*says("\n \n", special=True, ended=False), num=7, parts_thinking=parts_thinking)
    assert (answer.text, answer.finish_reason, answer.kind) == ("", "length", AnswerKind.EMPTY)
    assert answer.withheld == "(7 tokens without a word)"
    opened = answered(*says("\n \n", special=True, template=THINKS, ended=False), num=7)
    assert opened.kind is AnswerKind.CUT_IN_THINKING, "its template opens a thought"


def test_channels_of_special_tokens_are_read_and_other_special_tokens_are_not() -> None:
    text = "<|channel|>analysis<|message|>They greet.<|start|>assistant<|channel|>final<|message|>Hello."
    model, tokenizer = says(text, special=True)
    answer = answered(model, tokenizer)
    assert (answer.text, answer.reasoning, answer.kind) == ("Hello.", "They greet.", AnswerKind.REPLY)
    read = tokenizer("<|other|>a<|start|> b<think>c</think>", add_special_tokens=False).input_ids
    assert decode_marked(tokenizer, read) == "a b<think>c</think>"


def test_beams_say_the_reply_alone() -> None:
    model, tokenizer = says("<think>hm</think>oh well", special=True)
    assert HuggingFaceResponder(model, tokenizer).respond([((("hello",),),)]) == [(("oh", "well"),)]


@pytest.mark.parametrize("thinks", [True, False])
def test_a_template_is_told_whether_to_think(thinks: bool, tmp_path: Path) -> None:
    model, tokenizer = byte_model()
    tokenizer.chat_template = SWITCHED
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    extra: Any = {"chat_template_kwargs": {"enable_thinking": thinks}}
    chat_model = load_local(f"hf:{tmp_path}", ChatModelSettings(extra=extra))
    assert chat_model.prompts.prompt(CHATS[0]).thinks is thinks
    assert "enable_thinking" in chat_model.answers_depend_on


def test_a_score_and_a_search_are_of_what_is_asked() -> None:
    model, tokenizer = byte_model()
    tokenizer.chat_template = THINKS
    chat_model = LocalChatModel("thinks", model, tokenizer)
    before = tokenizer("<|begin|>user\nhello<|turn|>\n<|begin|>assistant\n<think>\n", add_special_tokens=False).input_ids
    reply = tokenizer("oh well", add_special_tokens=False).input_ids
    with torch.inference_mode():
        log_TV = model(input_ids=torch.tensor([before + reply])).logits[0, len(before) - 1 : -1].log_softmax(-1)
    wanted = float(log_TV.gather(1, torch.tensor(reply)[:, None]).sum())
    assert chat_model.score(CHATS, ["oh well"])[0].nats == pytest.approx(wanted, rel=1e-4)
    assert tokenizer.decode(HuggingFaceCausal(model, tokenizer, 3, end=False)._read([5, 6, 7])).endswith("<think>\n")
