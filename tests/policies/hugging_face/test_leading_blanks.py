"""Searched tokens of SentencePiece's kind behind and before text: what is read is what typing gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from parley.policies.chat.model import Chat, Message

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")

from parley.policies.hugging_face.tokens import leading_blanks
from parley.policies.hugging_face.victims import HuggingFaceCausal
from tests.policies.byte_pairs import byte_tokenizer
from tests.policies.sentence_pieces import piece_model

PLACES: dict[str, tuple[Chat, str | None]] = {
    "alone": ((Message("user", "{}"),), None),
    "behind": ((Message("user", "{prompt} {}"),), "tell me"),
    "before a mark": ((Message("user", "oh {}! well"),), None),
    "twice": ((Message("system", "be {}, ok"), Message("user", "{prompt} {}")), "tell me"),
}


@pytest.fixture(scope="module", params=["first", "always"])
def parts(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    return piece_model(request.param)


def read_by(victim: HuggingFaceCausal, ids: list[int]) -> list[int]:
    """What the model reads of searched tokens."""
    read, places = victim.prompt(victim.target("hello"))
    found = list(read)
    for place, word in zip(places, ids, strict=True):
        found[place] = word
    return found


@pytest.mark.parametrize("place", PLACES)
def test_words_are_read_as_they_are_typed_into_their_place(parts: tuple[Any, Any], place: str) -> None:
    template, prompt = PLACES[place]
    victim = HuggingFaceCausal(*parts, 4, template, prompt=prompt)
    words = victim.searchable_V.nonzero()[:, 0]
    rows = words[torch.randint(len(words), (600, 4), generator=torch.Generator().manual_seed(1))].tolist()
    allowed = victim.allows(torch.tensor(rows)).tolist()
    begins = 0
    for ids, ok in zip(rows, allowed, strict=True):
        chat = [
            {"role": message.role, "content": message.content.replace("{}", text).replace("{prompt}", prompt or "")}
            for message, text in zip(template, victim.slot_texts(ids), strict=True)
        ]
        typed = victim.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"]
        assert ok == (typed == read_by(victim, ids))
        begins += ok and victim.tokenizer.convert_ids_to_tokens(ids[0]).startswith("\u2581")
    assert begins > 5, "a word may stand first"


@pytest.mark.parametrize("place", ["behind", "before a mark"])
def test_a_text_that_is_typed_there_can_be_found(parts: tuple[Any, Any], place: str) -> None:
    template, prompt = PLACES[place]
    tokenizer = parts[1]
    (message,) = template
    typed = message.content.replace("{prompt}", prompt or "").replace("{}", "hello you are a fool")
    whole = tokenizer.apply_chat_template([{"role": "user", "content": typed}], add_generation_prompt=True, return_dict=True)[
        "input_ids"
    ]
    start = message.content.replace("{prompt}", prompt or "").partition("{}")[0]
    before = tokenizer(f"<|begin|>user\n{start[:-1]}", add_special_tokens=False).input_ids
    behind = "! well<|turn|>" if place == "before a mark" else "<|turn|>"
    ends = [at for at in range(len(before), len(whole)) if tokenizer.decode(whole[at:]).startswith(behind)]
    ids = whole[len(before) : ends[0]]
    victim = HuggingFaceCausal(*parts, len(ids), template, prompt=prompt)
    assert victim.slot_texts(ids) == ["hello you are a fool"]
    assert victim.retokenises(ids)
    assert victim.typed(ids) == whole == read_by(victim, ids)


def test_bytes_and_lone_blanks_are_no_words_of_an_input(parts: tuple[Any, Any]) -> None:
    victim = HuggingFaceCausal(*parts, 4)
    names = victim.tokenizer.convert_ids_to_tokens(victim.searchable_V.nonzero()[:, 0].tolist())
    assert not any(name.startswith("<0x") or name == "\u2581" for name in names)
    assert any(name.startswith("\u2581") for name in names)
    # A target that no piece spells is said by its bytes.
    assert victim.reply_text(victim.target("\N{SNOWMAN}").tolist()) == "\N{SNOWMAN}"


def test_byte_level_tokenizers_are_read_as_they_were() -> None:
    assert leading_blanks(byte_tokenizer()) is None
