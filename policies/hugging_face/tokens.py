"""Tokenizers of Hugging Face folders: reading texts as tokenizer.json says, blanks, typable tokens, and ends of replies.

Tokenizers of SentencePiece's kind: a word's token begins with its blank, which is lost if the token is decoded first. Such a
tokenizer also puts a blank of its own before texts. So parts of a text have other tokens than within it, and tokens another
text: "▁you" behind "tell me" is "tell me you", though alone it decodes to "you"; and "you!" has the tokens "▁you" and "!",
though "!" alone is "▁!". `LeadingBlanks` gives both as they are behind others. Byte-level tokenizers need none of it.

transformers 5 builds the tokenizer anew from the class that tokenizer_config.json names. It takes vocabulary and merges from
tokenizer.json, and normalizer, pre-tokenizer and decoder from the class. A folder whose file says otherwise is then read
otherwise than in its training, and transformers 5.23 gives no warning: Llama 3's numbers of three digits become three tokens
under the class of Qwen2. Where the two differ, the file counts. WordPiece tokenizers stay as transformers builds them: there
tokenizer_config.json overrides the file on purpose (lower case).

Shapes: V tokens of the vocabulary, N searched tokens.
"""

from __future__ import annotations

import json
import logging
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from parley.envs.core.errors import CheckpointError, ConfigError
from parley.policies.chat.completions import CHANNEL, CHANNEL_TOKENS, THINKING_TOKENS
from parley.policies.chat.model import Message
from parley.policies.chat.templates import write_prompt
from parley.policies.hugging_face import ANY as ANY_TEXT
from parley.policies.hugging_face import alphabet_pattern

logger = logging.getLogger(__name__)

BLANK = "\u2581"
"""The mark of a blank in the tokens of such a vocabulary."""
_MOST_WORDS = 20
"""Words that are tried in front of a text until one leaves its tokens as they are."""


class LeadingBlanks:
    """Tokens and texts behind others, for a tokenizer whose word tokens begin with their blanks.

    Args:
        tokenizer: of a model.
        words: tokens that begin so, at least one.
    """

    def __init__(self, tokenizer: Any, words: Sequence[int]) -> None:
        self._tokenizer, self._words = tokenizer, list(words)
        self._before = self._decoded(self._words[:1])

    def text(self, ids: Sequence[int], *, implied: bool) -> str:
        """Return the text to type for tokens.

        Args:
            ids: of an input.
            implied: whether the place that it is typed into has their first blank already (`implies`).
        """
        whole = self._decoded([self._words[0], *ids])[len(self._before) :]
        return whole.removeprefix(" ") if implied else whole

    def implies(self, before: str) -> bool:
        """Return whether a word typed behind a text gets its blank, from the text's end or from the tokenizer."""
        word = self._decoded(self._words[:1])
        return before.endswith(" ") or self._ids(f"{before}{word}") == self._ids(f"{before} {word}")

    def ids(self, text: str, *, follows: bool, leads: bool) -> list[int]:
        """Return the tokens of a part of a prompt.

        Args:
            text: it.
            follows: whether searched tokens stand before it.
            leads: whether some stand behind it, the first of which holds the blank that it ends in.
        """
        shown = text.removesuffix(" ") if leads else text
        for word in self._words if follows else []:
            before = self._decoded([word])
            head, whole = self._ids(before), self._ids(f"{before}{shown}")
            rest = whole[len(head) :]
            if whole[: len(head)] == head and rest and _begins(shown, self.text(rest[:1], implied=False)):
                return rest
        return self._ids(shown)

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=False).input_ids
        return ids

    def _decoded(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)
        return text


class PromptTokens:
    """The tokens around the searched slots of a prompt, and the texts to type into them.

    Args:
        tokenizer: of a model.
        pieces: texts around the places, one more than there are places.
        blanks: of the tokenizer; None where it has no such tokens.

    Attributes:
        pieces: the tokens of each piece.
    """

    def __init__(self, tokenizer: Any, pieces: Sequence[str], blanks: LeadingBlanks | None) -> None:
        self._tokenizer, self._blanks, last = tokenizer, blanks, len(pieces) - 1
        self.pieces: list[list[int]]
        if blanks is None:
            self.pieces = [tokenizer(text, add_special_tokens=False).input_ids for text in pieces]
            return
        self.pieces = [blanks.ids(text, follows=index > 0, leads=index < last) for index, text in enumerate(pieces)]
        self._implied = [blanks.implies(text) for text in pieces[:-1]]

    def texts(self, slots: Sequence[Sequence[int]]) -> list[str]:
        """Return the text to type into each slot for the tokens to be read there."""
        if self._blanks is None:
            texts: list[str] = self._tokenizer.batch_decode(list(map(list, slots)), clean_up_tokenization_spaces=False)
            return texts
        return [self._blanks.text(slot, implied=implied) for slot, implied in zip(slots, self._implied, strict=True)]


def _begins(text: str, part: str) -> bool:
    return bool(part) and text.startswith(part)


def leading_blanks(tokenizer: Any) -> LeadingBlanks | None:
    """Return a tokenizer's `LeadingBlanks`; None if its tokens have the same text everywhere."""
    names: list[str] = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    words = list(islice((i for i, name in enumerate(names) if name[:1] == BLANK and name[1:].isalpha()), _MOST_WORDS))
    loses = words and not tokenizer.decode(words[:1]).startswith(" ") and " " in tokenizer.decode([words[0]] * 2)
    return LeadingBlanks(tokenizer, words) if loses else None


FILE, CONFIG = "tokenizer.json", "tokenizer_config.json"
_PROBES = (
    "In 1984 and 2024 there were 1234567 of them: 3,141.59 or 10%",
    "Don't they'll say we've been I'm HE'S you'd",
    "  two  blanks\tand a tab \n\n\nand lines\r\n  indented   ",
    "\u4f60\u597d\u4e16\u754c\u3002\u65e5\u672c\u8a9e\u306e\u6587\u7ae0 \ud55c\uad6d\uc5b4",
    "\u00c5ngstr\u00f6m cafe\u0301 na\u00efve \ufb01ne \u00bd \u0395\u03bb\u03bb\u03ac\u03b4\u03b1 \u0440\u0443\u0441",
    "def f(x):\n    return x[0] != {'a': 1} -> https://a.b/c?d=e_f",
    "Hello!!! ... What?! \U0001f600\U0001f468\u200d\U0001f469 e-mail CamelCase UPPER lower",
)
"""Texts in which tokenizers differ: digits, contractions, blanks and lines, scripts without blanks, composed letters, signs."""
_MARKS = 8
"""Added tokens that are tried inside a text: some tokenizers start anew behind them."""
_PARTS = ("normalizer", "pre_tokenizer", "decoder")
_MODEL_OPTIONS = ("byte_fallback", "fuse_unk", "ignore_merges", "continuing_subword_prefix", "end_of_word_suffix", "dropout")
_warned: set[tuple[str, ...]] = set()


def load_tokenizer(folder: Path, **source: Any) -> Any:
    """Return the tokenizer of a folder, as its tokenizer.json defines it, if there is one.

    Args:
        folder: with the files of the tokenizer.
        source: arguments of `from_pretrained`.

    Raises:
        Exception: any error of transformers over files that it cannot read.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    built = AutoTokenizer.from_pretrained(folder, **source)
    if type(built) is PreTrainedTokenizerFast or not (folder / FILE).is_file() or _model_kind(folder) == "WordPiece":
        return built
    with _without_warnings():
        stored = PreTrainedTokenizerFast.from_pretrained(folder, **source)
    _heed_prefix(stored, folder)
    wrong = differences(built, stored)
    if not wrong:
        return built
    if (key := (str(folder), *wrong)) not in _warned and (texts := [text for text in wrong if text not in _PARTS]):
        _warned.add(key)
        logger.warning(
            "%s: transformers reads %s otherwise than tokenizer.json says (tokenizer_class %s): the file is used",
            folder,
            ", ".join(map(repr, texts[:2])),
            type(built).__name__,
        )
    return stored


def differences(built: Any, stored: Any) -> list[str]:
    """Return the texts that two tokenizers read otherwise, or write otherwise, and the parts that are not the same.

    Args:
        built: a tokenizer of transformers.
        stored: one that holds the file's tokenizer.
    """
    wrong = [text for text in _texts(stored) if _readings(built, text) != _readings(stored, text)]
    built_backend, stored_backend = (getattr(tokenizer, "backend_tokenizer", None) for tokenizer in (built, stored))
    wrong += [part for part in _PARTS if _state(built_backend, part) != _state(stored_backend, part)]
    if built_backend is None or any(_option(built_backend, name) != _option(stored_backend, name) for name in _MODEL_OPTIONS):
        wrong.append("pre_tokenizer")
    return list(dict.fromkeys(wrong))


def _texts(tokenizer: Any) -> list[str]:
    marks = [str(token) for _, token in sorted(tokenizer.added_tokens_decoder.items())][:_MARKS]
    return [*_PROBES, *(f"one{mark}two {mark} three\n{mark}\n" for mark in marks)]


def _readings(tokenizer: Any, text: str) -> Any:
    try:
        ids = tokenizer(text, add_special_tokens=False).input_ids
        return ids, tokenizer(text).input_ids, tokenizer.decode(ids)
    # A tokenizer built of parts that do not fit fails at the missing one.
    except Exception as error:
        return repr(error)


def _state(tokenizer: Any, part: str) -> Any:
    component = getattr(tokenizer, part, None)
    return None if component is None else json.loads(component.__getstate__())


def _option(tokenizer: Any, name: str) -> Any:
    return getattr(tokenizer.model, name, None) or None


def _model_kind(folder: Path) -> str | None:
    model = json.loads((folder / FILE).read_text(encoding="utf-8")).get("model")
    return model.get("type") if isinstance(model, dict) else None


def _heed_prefix(tokenizer: Any, folder: Path) -> None:
    """Put the prefix blank that tokenizer_config.json asks for into the tokenizer, as transformers 4 did."""
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8")) if (folder / CONFIG).is_file() else {}
    wanted, before = config.get("add_prefix_space"), tokenizer.backend_tokenizer.pre_tokenizer
    state = {} if before is None else json.loads(before.__getstate__())
    if isinstance(wanted, bool) and state.get("add_prefix_space", wanted) != wanted:
        before.__setstate__(json.dumps(state | {"add_prefix_space": wanted}).encode())
        tokenizer.backend_tokenizer.pre_tokenizer = before


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Keep transformers from saying that the class is another one than the folder names: that is meant."""
    from transformers.utils import logging as theirs

    level = theirs.get_verbosity()
    theirs.set_verbosity_error()
    try:
        yield
    finally:
        theirs.set_verbosity(level)


# SentencePiece vocabularies spell the 256 bytes like this; single bytes may be no characters.
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_REPLY_ROOM = 128
_CONTROLS = ("Cc", "Cf", "Cs", "Co", "Cn")
_SAID = "where-the-model-speaks"
_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")
"""Names of the number of positions in configurations."""
_ABSURD = 10**9
"""Numbers of tokens from here on stand for no limit."""


@dataclass(frozen=True, kw_only=True)
class InputRules:
    """Rules of the inputs of a search.

    Args:
        typed: only those whose text, tokenised where it stands, gives the same tokens again.
        alphabet: texts of tokens that may stand in an input (`policies/hugging_face/__init__.py`).
        forbidden: texts that stand in no input, whatever their case.
        start: text that a search starts from; drawn at random when empty.
        written: change of a text when it is typed, such as lower case; None for no change.
    """

    typed: bool = True
    alphabet: str = ANY_TEXT
    forbidden: tuple[str, ...] = ()
    start: str = ""
    written: Callable[[str], str] | None = None


ANY = InputRules()


def ends_of(tokenizer: Any, model: Any) -> tuple[int, ...]:
    """Return the tokens that end a reply: those of the model's `generation_config`, and the tokenizer's own.

    Raises:
        ConfigError: there is none.
    """
    named = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    ends = [*(named if isinstance(named, list | tuple) else [named]), tokenizer.eos_token_id]
    # A configuration without ends has its class's default, which a smaller vocabulary may lack.
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
    """Give a tokenizer without an end that of the model's `generation_config`, if it has such a token."""
    if tokenizer.eos_token is None and model.get_output_embeddings() is not None:
        named = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
        first = named[0] if isinstance(named, list | tuple) and named else named
        if isinstance(first, int) and 0 <= first < len(tokenizer):
            tokenizer.eos_token = tokenizer.convert_ids_to_tokens(first)


def reply_end(tokenizer: Any, end_ids: Sequence[int]) -> int:
    """Return the token expected behind a reply: that of the chat template, else the tokenizer's own.

    Args:
        tokenizer: of the model.
        end_ids: all that end a reply.
    """
    if tokenizer.chat_template:
        text = write_prompt(tokenizer, (Message("user", "hello"), Message("assistant", _SAID)), generation=False)
        behind = tokenizer(text.partition(_SAID)[2], add_special_tokens=False).input_ids
        if end_id := next((word for word in behind if word in end_ids), None):
            return end_id
    return tokenizer.eos_token_id if tokenizer.eos_token_id in end_ids else end_ids[0]


def longest_input(tokenizer: Any, model: Any) -> int | float:
    """Return the most tokens that a model reads, special ones included; infinity without a limit."""
    # A tokenizer saved without a limit has one of 10^30.
    return min(_limit(tokenizer.model_max_length), num_positions(model))


def num_positions(model: Any) -> int | float:
    """Return the positions of a model, or of its language part; infinity without a limit."""
    for name, layer in model.named_modules():
        # RoBERTa and its kin count positions from behind their padding index.
        if name.endswith("position_embeddings") and getattr(layer, "padding_idx", None) is not None:
            return int(layer.num_embeddings - layer.padding_idx - 1)
    # A table of word vectors has a configuration of its own, without parts.
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    ropes = getattr(config, "rope_parameters", None) or {}
    # Beyond the length of its training a model with LongRoPE reads a text otherwise beside a longer one, and behind a kept one.
    kinds = [rope for rope in (ropes, *ropes.values()) if isinstance(rope, Mapping)]
    trained = [rope.get("original_max_position_embeddings") for rope in kinds if rope.get("rope_type") == "longrope"]
    return min(map(_limit, (*(getattr(config, name, None) for name in _POSITIONS), *trained)))


def _limit(value: Any) -> int | float:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _ABSURD else math.inf


def reply_room(longest: int | float) -> int:
    """Return the tokens kept for a reply behind a context that is too long: 128, or a quarter of the model's input.

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
    """Return the words of a text that become the unknown token, another special one, or nothing.

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
    """Return which tokens (V,) are text on their own: no special ones, single bytes or control characters.

    Args:
        tokenizer: it may know fewer tokens than the model has embeddings; the rest was never trained.
        num_tokens: V.
        rules: further tokens to leave out.
    """
    banned, pattern = [text.lower() for text in rules.forbidden], alphabet_pattern(rules.alphabet)
    num_known, marks = min(len(tokenizer), num_tokens), _special_ids(tokenizer)
    allowed_V = torch.zeros(num_tokens, dtype=torch.bool)
    names, texts = tokenizer.convert_ids_to_tokens(range(num_known)), tokenizer.batch_decode([[i] for i in range(num_known)])
    for i, (name, text) in enumerate(zip(names, texts, strict=True)):
        typed = i not in marks and not _BYTE.fullmatch(name) and _is_text(text)
        typed = typed and bool(pattern.fullmatch(text))
        allowed_V[i] = typed and not any(banned_text in text.lower() for banned_text in banned)
    return allowed_V


def start_of(tokenizer: Any, text: str, length: int, searchable_V: Tensor) -> list[int] | None:
    """Return the tokens (N,) that a search starts from; None for an empty text, where they are drawn.

    Args:
        tokenizer: of the model.
        text: as it was asked for.
        length: N.
        searchable_V: true at tokens that an input may hold.

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
        what = "the text to start from holds tokens that no input may hold"
        raise ConfigError(what, where=text, fix="start from other words")
    return ids


def decode_marked(tokenizer: Any, ids: Sequence[int], **how: Any) -> str:
    """Return the text of a reply's tokens, without special ones except the marks of thinking.

    Args:
        tokenizer: of the model.
        ids: of the tokens.
        how: further arguments of the tokenizer's `decode`.
    """
    special = _special_ids(tokenizer)
    names = {i: tokenizer.convert_ids_to_tokens(i) for i in set(ids) & special}
    marks = THINKING_TOKENS | (CHANNEL_TOKENS if CHANNEL in names.values() else frozenset())
    is_plain = marks.isdisjoint(names.values())
    shown = [i for i in ids if is_plain or i not in special or names[i] in marks]
    text: str = tokenizer.decode(shown, skip_special_tokens=is_plain, **how)
    return text


def _special_ids(tokenizer: Any) -> set[int]:
    return set(tokenizer.all_special_ids) | {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}


def _is_text(text: str) -> bool:
    """Return whether a person could type it: not empty, no half characters, no control characters."""
    return (
        bool(text) and "\N{REPLACEMENT CHARACTER}" not in text and not any(unicodedata.category(c) in _CONTROLS for c in text)
    )


def marks_around(tokenizer: Any, **sample: str) -> tuple[list[int], list[int]]:
    """Return the tokens that the tokenizer puts before and after a text."""
    marked = tokenizer(**sample).input_ids
    plain = tokenizer(**sample, add_special_tokens=False).input_ids
    start = next(i for i in range(len(marked)) if marked[i : i + len(plain)] == plain)
    return marked[:start], marked[start + len(plain) :]


def require_finite(model: Any, name: object = None) -> None:
    """Check that the weights of a model in memory are finite.

    Args:
        model: of Hugging Face.
        name: its name in the message; its class when None.

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
