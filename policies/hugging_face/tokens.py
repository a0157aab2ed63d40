"""What a Hugging Face tokenizer makes of texts: what stands for nothing, what can be typed, and what ends a reply.

V tokens
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from parley.envs.core.errors import CheckpointError, ConfigError
from parley.policies.chat.model import Message
from parley.policies.chat.templates import write_prompt
from parley.policies.chat.thinking import CHANNEL, CHANNEL_TOKENS, THINKING_TOKENS
from parley.policies.hugging_face import alphabets

# SentencePiece vocabularies spell the 256 bytes like this; on their own they are no characters.
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_REPLY_ROOM = 128
_CONTROLS = ("Cc", "Cf", "Cs", "Co", "Cn")
_SAID = "where-the-model-speaks"
_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")
"""What configurations call the positions that a model has."""
_ABSURD = 10**9
"""No model reads so many tokens: numbers from here on stand for no limit."""


@dataclass(frozen=True, kw_only=True)
class InputRules:
    """Which inputs are searched among.

    Args:
        typed: only those whose text, tokenised where it stands, gives the same tokens again.
        alphabet: texts of tokens that may stand in an input (`policies/hugging_face/alphabets.py`).
        forbidden: texts that stand in no input, whatever their case.
        start: text that a search starts from; drawn at random when empty.
        written: what becomes of a text where it is typed, such as lower case; None where it stays as it is.
    """

    typed: bool = True
    alphabet: str = alphabets.ANY
    forbidden: tuple[str, ...] = ()
    start: str = ""
    written: Callable[[str], str] | None = None


ANY = InputRules()


def ends_of(tokenizer: Any, model: Any) -> tuple[int, ...]:
    """The tokens that end a reply: those that the model's `generation_config` names, and the tokenizer's own.

    Raises:
        ConfigError: there is none.
    """
    named = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    ends = [*(named if isinstance(named, list | tuple) else [named]), tokenizer.eos_token_id]
    # A configuration without ends says its class's default, which a smaller vocabulary may lack.
    num_tokens = len(model.get_input_embeddings().weight)
    end_ids = tuple(dict.fromkeys(end for end in ends if end is not None and 0 <= end < num_tokens))
    if not end_ids:
        raise ConfigError(
            "neither the tokenizer nor the model's generation_config has a token that ends a reply",
            where=tokenizer.name_or_path or None,
            fix="set eos_token of the tokenizer to the token that the model ends its replies with",
        )
    return end_ids


def name_end(tokenizer: Any, model: Any) -> None:
    """Give a tokenizer without an end the one that the model's `generation_config` names, where it has such a token."""
    if tokenizer.eos_token is None and model.get_output_embeddings() is not None:
        named = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
        first = named[0] if isinstance(named, list | tuple) and named else named
        if isinstance(first, int) and 0 <= first < len(tokenizer):
            tokenizer.eos_token = tokenizer.convert_ids_to_tokens(first)


def reply_end(tokenizer: Any, end_ids: Sequence[int]) -> int:
    """The token that is expected behind a reply: the one that the chat template writes there, else the tokenizer's own.

    Args:
        tokenizer: of the model.
        end_ids: all that end a reply.
    """
    if tokenizer.chat_template:
        text = write_prompt(tokenizer, (Message("user", "hello"), Message("assistant", _SAID)), generation=False)
        behind = tokenizer(text.partition(_SAID)[2], add_special_tokens=False).input_ids
        if found := next((word for word in behind if word in end_ids), None):
            return found
    return tokenizer.eos_token_id if tokenizer.eos_token_id in end_ids else end_ids[0]


def longest_input(tokenizer: Any, model: Any) -> int | float:
    """Tokens that a model reads at most, special ones included; infinity where nothing limits them."""
    # A tokenizer that was saved without a limit has one of 10^30.
    return min(_limit(tokenizer.model_max_length), num_positions(model))


def num_positions(model: Any) -> int | float:
    """Return the positions of a model, of its language part where it has several; infinity where nothing limits them."""
    for name, layer in model.named_modules():
        # RoBERTa and its kin count positions from behind their padding index.
        if name.endswith("position_embeddings") and getattr(layer, "padding_idx", None) is not None:
            return int(layer.num_embeddings - layer.padding_idx - 1)
    # A table of word vectors has a configuration of its own, without parts.
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    return min(_limit(getattr(config, name, None)) for name in _POSITIONS)


def _limit(value: Any) -> int | float:
    """Return a number of tokens as it stands in a configuration; infinity for one that cannot be meant."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _ABSURD else math.inf


def reply_room(longest: int | float) -> int:
    """Tokens that are kept for a reply behind a context that is too long: 128, or a quarter of what a model reads.

    Args:
        longest: tokens that the model reads at most.
    """
    return int(min(_REPLY_ROOM, longest / 4))


def readable_tokens(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Return the text of each token; of one that is a part of a character, or no text, the tokenizer's own spelling."""
    spelled = tokenizer.convert_ids_to_tokens(list(ids))
    texts = [tokenizer.decode([token], clean_up_tokenization_spaces=False) for token in ids]
    return [token if "\ufffd" in text or not text else text for token, text in zip(spelled, texts, strict=True)]


def unknown_words(tokenizer: Any, text: str) -> tuple[str, ...]:
    """The words of a text that no tokens stand for: those that become the unknown token, another special one, or nothing.

    Args:
        tokenizer: of the model.
        text: words between blanks.

    Returns:
        Each such word once; the whole text where its words are known one by one and not together.
    """
    marks = _special_ids(tokenizer)

    def lost(piece: str) -> bool:
        ids = tokenizer(piece, add_special_tokens=False).input_ids
        return not ids or not marks.isdisjoint(ids)

    if not lost(text):
        return ()
    return tuple(dict.fromkeys(word for word in text.split() if lost(word))) or (text,)


def searchable(tokenizer: Any, num_tokens: int, rules: InputRules = ANY) -> Tensor:
    """Which tokens (V,) are text on their own: no special ones, no single bytes of characters, no control characters.

    Args:
        tokenizer: it may know fewer tokens than the model has embeddings; the rest was never trained.
        num_tokens: V.
        rules: which tokens are left out beside these.
    """
    banned, pattern = [text.lower() for text in rules.forbidden], alphabets.alphabet_pattern(rules.alphabet)
    known = min(len(tokenizer), num_tokens)
    marks = _special_ids(tokenizer)
    allowed_V = torch.zeros(num_tokens, dtype=torch.bool)
    names, texts = tokenizer.convert_ids_to_tokens(range(known)), tokenizer.batch_decode([[i] for i in range(known)])
    for i, (name, text) in enumerate(zip(names, texts, strict=True)):
        typed = i not in marks and not _BYTE.fullmatch(name) and _is_text(text)
        allowed_V[i] = typed and bool(pattern.fullmatch(text)) and not any(each in text.lower() for each in banned)
    return allowed_V


def start_of(tokenizer: Any, text: str, length: int, searchable_V: Tensor) -> list[int] | None:
    """The tokens (N,) that a search starts from; None of an empty text, where they are drawn.

    Args:
        tokenizer: of the model.
        text: as it was asked for.
        length: N.
        searchable_V: which tokens an input may hold.

    Raises:
        ConfigError: the text has more or fewer tokens than are searched, or some that no input may hold.
    """
    if not text:
        return None
    ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids
    if len(ids) != length:
        got, fix = f"{len(ids)} tokens, and {length} are searched", f"--set hugging_face.length={len(ids)}"
        raise ConfigError("the text to start from has another length", where=text, got=got, fix=fix)
    if not bool(searchable_V[ids].all()):
        fix = "start from other words"
        raise ConfigError("the text to start from holds tokens that no input may hold", where=text, fix=fix)
    return ids


def decode_marked(tokenizer: Any, ids: Sequence[int], **how: Any) -> str:
    """Return the text of a reply's tokens, without special ones but with those that mark what a model thinks.

    Args:
        tokenizer: of the model.
        ids: of the tokens.
        how: further arguments of the tokenizer's `decode`.
    """
    special = _special_ids(tokenizer)
    names = {i: tokenizer.convert_ids_to_tokens(i) for i in set(ids) & special}
    marks = THINKING_TOKENS | (CHANNEL_TOKENS if CHANNEL in names.values() else frozenset())
    if marks.isdisjoint(names.values()):
        text: str = tokenizer.decode(list(ids), skip_special_tokens=True, **how)
        return text
    shown = [i for i in ids if i not in special or names[i] in marks]
    text = tokenizer.decode(shown, skip_special_tokens=False, **how)
    return text


def _special_ids(tokenizer: Any) -> set[int]:
    return set(tokenizer.all_special_ids) | {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}


def _is_text(text: str) -> bool:
    """Whether somebody could type it: not empty, no half characters, no control characters."""
    return (
        bool(text) and "\N{REPLACEMENT CHARACTER}" not in text and not any(unicodedata.category(c) in _CONTROLS for c in text)
    )


def marks_around(tokenizer: Any, **sample: str) -> tuple[list[int], list[int]]:
    """What the tokenizer puts before and after a text."""
    marked = tokenizer(**sample).input_ids
    plain = tokenizer(**sample, add_special_tokens=False).input_ids
    start = next(i for i in range(len(marked)) if marked[i : i + len(plain)] == plain)
    return marked[:start], marked[start + len(plain) :]


def require_finite(model: Any, name: object = None) -> None:
    """Checks the weights of a model that are in memory.

    Args:
        model: of Hugging Face.
        name: what the message calls it; by its class when None.

    Raises:
        CheckpointError: some are no numbers.
    """
    broken = [key for key, value in model.named_parameters() if not value.is_meta and not value.isfinite().all()]
    if broken:
        raise CheckpointError(
            "the model's weights are not all finite numbers",
            where=type(model).__name__ if name is None else name,
            got=f"NaN or infinity in {', '.join(broken[:5])}",
            fix="take another model, or another dtype",
        )
