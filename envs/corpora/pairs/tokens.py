"""The tokeniser of utterances, the text of pairs that readers return, and the base classes of corpora of pairs.

    Don't you see https://a.example/x?   do n't you see <url> ?
    I'm in /etc/apt, with 10.04...       i 'm in <path> , with 10.04 ...

- Addresses, also bare ones in com, org and net, become `<url>`, absolute and home paths `<path>`; these and `<unk>` stay.
- A contraction is cut before "n't", "'s", "'m", "'d", "'re", "'ve", "'ll"; other apostrophes and hyphens within a word stay.
- Numbers keep their inner points, commas and colons. Two or more full stops become "...". Smileys stay whole. Every other
  mark is a token.
- Text is normalised to Unicode's form NFC, without invisible characters (zero-width spaces and joiners, soft hyphens, marks of
  direction), so words that look equal are equal. A combining accent or vowel sign belongs to the word around it.

The rules depend on the text alone. Tokens joined by spaces give the same tokens again. No token spans a space, and no rule
looks beyond one, so a text may be read in pieces. `turns.py` writes tokens as text (`detokenise`).

jieba cuts Chinese text without blanks into words; the optional extra `chinese` installs it. Chinese text that already has
blanks needs no jieba: `tokenise` takes each run of Chinese characters as one word.

`SplitText` keeps utterances as word numbers, so five million of them fit into memory while they are read.

For a corpus of your own, write `CORPUS = FilePairs(name="mine", ...)` into a file and name it `path/file.py:CORPUS`, or let an
installed package offer it under the entry point group `parley.pairs`.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from math import gcd
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable
from unicodedata import category, normalize

import numpy as np

from parley.envs.core.errors import ConfigError, DataError, how_to_install
from parley.envs.core.seeds import stable_hash
from parley.envs.corpora.files import CorpusFolder, GeneratedFolder
from parley.envs.corpora.lines import SPLITS, ReadText, WantingSource, WordList, content_digest, fingerprint

_STOP_WORDS = """
i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it its
itself they them their theirs themselves what which who whom this that these those am is are was were be been being have has
had having do does did doing a an the and but if or because as until while of at by for with about against between into
through during before after above below to from up down in out on off over under again further then once here there when
where why how all any both each few more most other some such no nor not only own same so than too very can will just should
now n't 's 'm 're 've 'll 'd ca wo sha
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""English function words, with contractions cut as by the tokeniser."""


def is_content(word: str) -> bool:
    """Return whether a word is no stop word, mark such as `<unk>`, or punctuation."""
    return word not in STOP_WORDS and not word.startswith("<") and any(letter.isalnum() for letter in word)


URL, PATH, UNKNOWN = "<url>", "<path>", "<unk>"

_CLITIC = r"'(?:s|m|d|re|ve|ll)(?!\w)"
_TOKEN = re.compile(
    rf"""
    (?P<kept> {URL} | {PATH} | {UNKNOWN} )
  | (?P<url>  (?: (?:https?|ftps?|irc)://(?=\w) | www\.(?=\w) ) [^\s<>"]* [\w/] )
  | (?P<host> \w[\w-]* (?:\.[\w-]+)* \.(?:com|org|net)(?!\w) (?: /[^\s<>"]*[\w/] )? )
  | (?P<path> (?<![^\s"'(\[=:,]) (?:~|\.{{1,2}})? (?: /[\w.+@~-]*\w )+ /? )
  | (?P<dots> \.{{2,}} )
  | {_CLITIC}
  | \w+? (?=n't(?!\w))
  | \d+ (?:[.,:]\d+)+ (?!\w)
  | \w+ (?: ' (?!(?:s|m|d|re|ve|ll)(?!\w)) \w+ | - \w+ )*
  | [:;]-? (?: [()] | [dp](?!\w) )
  | [^\w\s]
    """,
    re.VERBOSE,
)
_MARKS = {"url": URL, "host": URL, "path": PATH, "dots": "..."}
_SHOWS_NOTHING = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Unicode's Default_Ignorable_Code_Point."""


class _Shapes(dict[int, int]):
    """A translation table that maps combining characters (accents, vowel signs) to a letter, for `_TOKEN`."""

    def __missing__(self, code: int) -> int:
        self[code] = ord("_") if category(chr(code)).startswith("M") else code
        return self[code]


_SHAPES = _Shapes()


def normalised(text: str) -> str:
    """Return the text in lower case and form NFC, with straight apostrophes and without invisible characters."""
    if text.isascii():
        return text.lower()
    return normalize("NFC", _SHOWS_NOTHING.sub("", text).lower()).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")


def tokenise(text: str) -> list[str]:
    """Return the words and punctuation marks of a text, lower-cased."""
    read = normalised(text)
    return [_token(match, read) for match in _TOKEN.finditer(_shape(read))]


def tokenise_where(text: str) -> list[tuple[str, int, int]]:
    """Return the tokens of `tokenise`, each with its start and end in the original text."""
    read = normalised(text)
    matches = list(_TOKEN.finditer(_shape(read)))
    origin = origins(text)
    return [(_token(match, read), origin[match.start()], origin[match.end()]) for match in matches]


def origins(text: str) -> Sequence[int]:
    """Return the start in the original text for each position of the normalised text and for its end, ascending.

    A letter and the accents after it count as one character, because Unicode's form NFC may combine them.
    """
    if text.isascii():
        return range(len(text) + 1)
    starts = [i for i, character in enumerate(text) if not (i and _combines(character))]
    ends = [*starts[1:], len(text)]
    lengths = [len(normalised(text[start:end])) for start, end in zip(starts, ends, strict=True)]
    begins = [min(start + i, end) for start, end, size in zip(starts, ends, lengths, strict=True) for i in range(size)]
    length = len(normalised(text))
    # Normalised pieces are as long as the normalised text; otherwise positions would shift, but none be lost.
    return [*begins[:length], *[len(text)] * (length + 1 - len(begins[:length]))]


def _shape(read: str) -> str:
    return read if read.isascii() else read.translate(_SHAPES)


def _token(match: re.Match[str], read: str) -> str:
    return _MARKS.get(match.lastgroup or "") or read[match.start() : match.end()]


def _combines(character: str) -> bool:
    """Return whether a character may change the one before: accents, inner Hangul letters, invisible characters."""
    return (
        _SHAPES[ord(character)] != ord(character)
        or "\u1160" <= character <= "\u11ff"
        or _SHOWS_NOTHING.match(character) is not None
    )


EXTRA = "chinese"
_PACKAGE = "jieba"
_HAN = "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]"
_HAN_CHARACTER = re.compile(_HAN)
_BLANK_BETWEEN = re.compile(rf"(?<={_HAN})\s+(?={_HAN})")
_DECIDES = 8
"""Fewest Chinese characters of a text that decide whether it comes in words."""
_CHARACTERS_PER_BLANK = 8
"""Text in words has a blank after two characters on average, ordinary Chinese text has none."""


def cut(text: str) -> list[str]:
    """Return the words and punctuation marks of a text with Chinese that has no blanks.

    Raises:
        ConfigError: jieba is not installed.
    """
    words: list[str] = []
    for token in tokenise(text):
        words += cutter().lcut(token) if _HAN_CHARACTER.search(token) else [token]
    return words


@cache
def cutter() -> Any:
    """Return the tokeniser of jieba with its own dictionary; loaded once.

    Raises:
        ConfigError: jieba is not installed.
    """
    try:
        import jieba
    except ImportError:
        raise ConfigError(
            "Chinese text without blanks is cut into words by the package jieba, which is not installed",
            fix=f"{how_to_install(EXTRA)}; or put blanks between the words",
        ) from None
    tokeniser = jieba.Tokenizer()
    # As jieba's `initialize`, without its cached dictionary, which lies in a folder that all users can write to.
    tokeniser.FREQ, tokeniser.total = tokeniser.gen_pfdict(tokeniser.get_dict_file())
    tokeniser.initialized = True
    return tokeniser


def cutter_version() -> str:
    """Return the installed version of jieba, which the words depend on, or that there is none."""
    try:
        return f"{_PACKAGE} {version(_PACKAGE)}"
    except PackageNotFoundError:
        return f"no {_PACKAGE}"


def comes_in_words(text: str) -> bool | None:
    """Return whether Chinese text has blanks between words; None if the text has too little Chinese to decide."""
    if text.isascii():
        return None
    num = len(_HAN_CHARACTER.findall(text))
    return None if num < _DECIDES else num <= _CHARACTERS_PER_BLANK * len(_BLANK_BETWEEN.findall(text))


def is_chinese(words: Iterable[str]) -> bool:
    """Return whether more words have a Chinese character than only letters of another script."""
    num_chinese = num_others = 0
    for word in words:
        if _HAN_CHARACTER.search(word):
            num_chinese += 1
        elif any(map(str.isalpha, word)):
            num_others += 1
    return num_chinese > num_others


class SplitText:
    """One split while it is read: N utterances, P pairs, L links that are no pairs."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._values = array("i")
        self._offsets = array("q", [0])
        self._pairs, self._links = array("q"), array("q")

    def add(self, words: Sequence[str]) -> int:
        """Add an utterance of at least one word, and return its index."""
        assert words, "an utterance has words"
        self._values.extend(self._numbers.setdefault(word, len(self._numbers)) for word in words)
        self._offsets.append(len(self._values))
        return self.num_utterances - 1

    def link(self, source: int, reply: int) -> None:
        """Make a pair of two utterances, given by their indices."""
        self._pairs.extend((source, reply))

    def follow(self, turns: Sequence[int]) -> None:
        """Link each of these utterances, given by their indices, to the one before, without making pairs."""
        for earlier, later in pairwise(turns):
            self._links.extend((earlier, later))

    @property
    def num_utterances(self) -> int:
        """Number of utterances, N."""
        return len(self._offsets) - 1

    @property
    def num_pairs(self) -> int:
        """Number of pairs, P."""
        return len(self._pairs) // 2

    @property
    def offsets(self) -> np.ndarray:
        """The start of each utterance in the encoded words, and the end of the last: (N + 1,) int64."""
        return np.array(self._offsets, dtype=np.int64)

    @property
    def pairs(self) -> np.ndarray:
        """Indices of source and reply (P, 2) int64."""
        return np.array(self._pairs, dtype=np.int64).reshape(-1, 2)

    @property
    def links(self) -> np.ndarray:
        """Indices (L, 2) int64 of utterances and their successors that are no pairs."""
        return np.array(self._links, dtype=np.int64).reshape(-1, 2)

    def utterances(self) -> Iterator[list[str]]:
        """Yield the words of each utterance."""
        words = list(self._numbers)
        for start, end in zip(self._offsets, self._offsets[1:], strict=False):
            yield [words[number] for number in self._values[start:end]]

    def rows(self) -> list[tuple[str, str]]:
        """Return each source and its reply, words between blanks."""
        texts = [*map(" ".join, self.utterances())]
        return [(texts[source], texts[reply]) for source, reply in self.pairs.tolist()]

    def encode(self, vocabulary: WordList) -> np.ndarray:
        """Return the word ids of all utterances, concatenated: (T,) int32."""
        ids: np.ndarray = vocabulary.encode(self._numbers).astype(np.int32)[np.asarray(self._values)]
        return ids


@dataclass(frozen=True, kw_only=True)
class PairText(ReadText):
    """The result of reading a corpus of pairs: its splits, and an error for each broken line."""

    splits: dict[str, SplitText] = field(default_factory=lambda: {split: SplitText() for split in SPLITS})
    """The text of "train", "val" and "test"."""
    broken: list[DataError] = field(default_factory=list)


def split_of(key: str, shares: tuple[int, int, int] = (90, 5, 5)) -> str:
    """Return the split of an item by a hash of its name or content.

    Args:
        key: the name or content.
        shares: of train, val and test.
    """
    train, val, test = (share // gcd(*shares) for share in shares)
    position = stable_hash("split", key) % (train + val + test)
    return SPLITS[(position >= train) + (position >= train + val)]


READER_VERSION = 2
"""Grows when the reader changes; part of the key of compiled corpora."""


@runtime_checkable
class PairSource(WantingSource, Protocol):
    """A corpus of pairs in the registry."""

    @property
    def vocabulary(self) -> int:
        """Entries of the vocabulary, specials included."""

    def read(self, root: Path) -> PairText:
        """Return the text, with errors for broken lines and missing files."""


@dataclass(frozen=True, kw_only=True)
class FilePairs(CorpusFolder):
    """A corpus of pairs in the files of one folder."""

    vocabulary: int
    """Entries of the vocabulary, specials included."""
    reader: Callable[[Path], PairText]
    """Reads the folder."""

    READER_VERSION: ClassVar[int] = READER_VERSION
    OWN: ClassVar[str] = (
        "name a file or folder of pairs that is there: lines source<TAB>reply, or train.tsv, val.tsv and test.tsv"
    )

    def read(self, root: Path) -> PairText:
        """Read the files, or return only errors if some are missing."""
        missing = self.missing_files(root)
        return PairText(broken=missing) if missing else self.reader(self.folder(root))


@dataclass(frozen=True, kw_only=True)
class GeneratedPairs(GeneratedFolder):
    """A corpus of pairs that Parley generates."""

    vocabulary: int
    """Entries of the vocabulary, specials included."""
    generator: Callable[[], PairText]
    """Generates the text, the same at every call."""
    sources: tuple[Path, ...]
    """Python files that the generated text depends on."""

    def fingerprint(self, root: Path) -> str:
        """Return a digest of the reader's version and the generator's source."""
        # The digest of the source replaces a version number that is easily forgotten.
        return fingerprint("generated", READER_VERSION, *map(content_digest, self.sources))

    def read(self, root: Path) -> PairText:
        """Generate the text."""
        return self.generator()
