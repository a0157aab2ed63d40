"""Tokenizers of Hugging Face folders, which read texts as the folder's own tokenizer.json says.

transformers 5 builds the tokenizer anew from the class that tokenizer_config.json names. It takes vocabulary and merges from
tokenizer.json, and normalizer, pre-tokenizer and decoder from the class. A folder whose file says otherwise is then read
otherwise than in its training, and transformers 5.23 gives no warning: Llama 3's numbers of three digits become three tokens
under the class of Qwen2. Where the two differ, the file counts.

WordPiece tokenizers stay as transformers builds them: there tokenizer_config.json overrides the file on purpose (lower case).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)
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
"""Added tokens that are tried inside a text: some tokenizers begin anew behind them."""
_PARTS = ("normalizer", "pre_tokenizer", "decoder")
_MODEL_OPTIONS = ("byte_fallback", "fuse_unk", "ignore_merges", "continuing_subword_prefix", "end_of_word_suffix", "dropout")
_warned: set[tuple[str, ...]] = set()


def load_tokenizer(folder: Path, **source: Any) -> Any:
    """Return the tokenizer of a folder, as its tokenizer.json has it where there is one.

    Args:
        folder: with the files of the tokenizer.
        source: arguments of `from_pretrained`.

    Raises:
        Exception: what transformers raises over files that it cannot read.
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
    own, theirs = (getattr(tokenizer, "backend_tokenizer", None) for tokenizer in (built, stored))
    wrong += [part for part in _PARTS if _state(own, part) != _state(theirs, part)]
    if own is None or any(_option(own, name) != _option(theirs, name) for name in _MODEL_OPTIONS):
        wrong.append("pre_tokenizer")
    return list(dict.fromkeys(wrong))


def _texts(tokenizer: Any) -> list[str]:
    marks = [str(token) for _, token in sorted(tokenizer.added_tokens_decoder.items())][:_MARKS]
    return [*_PROBES, *(f"one{mark}two {mark} three\n{mark}\n" for mark in marks)]


def _readings(tokenizer: Any, text: str) -> Any:
    try:
        ids = tokenizer(text, add_special_tokens=False).input_ids
        return ids, tokenizer(text).input_ids, tokenizer.decode(ids)
    # A tokenizer that was built of parts that do not fit fails at what it lacks.
    except Exception as error:
        return repr(error)


def _state(tokenizer: Any, part: str) -> Any:
    component = getattr(tokenizer, part, None)
    return None if component is None else json.loads(component.__getstate__())


def _option(tokenizer: Any, name: str) -> Any:
    return getattr(tokenizer.model, name, None) or None


def _model_kind(folder: Path) -> str | None:
    """Return the kind of model that tokenizer.json names: BPE, Unigram, WordPiece or WordLevel."""
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
