"""Tokens as people write them, whatever a tokenizer puts in the place of a blank."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")

from parley.policies.hugging_face.tokens import readable_tokens
from tests.policies.byte_pairs import byte_model


def test_a_blank_is_shown_as_a_blank_and_half_a_character_as_it_is_spelled() -> None:
    _, tokenizer = byte_model()
    text = "say hello there"
    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert "\u0120" in "".join(tokenizer.convert_ids_to_tokens(ids)), "the tokenizer spells blanks"
    assert "".join(readable_tokens(tokenizer, ids)) == text
    halves = tokenizer("\N{SNOWMAN}", add_special_tokens=False).input_ids
    assert "\ufffd" not in "".join(readable_tokens(tokenizer, halves))
