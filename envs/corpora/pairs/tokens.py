"""One small tokeniser for utterances of people: lower-cased words and punctuation marks.

    Don't you see https://a.example/x?   do n't you see <url> ?
    I'm in /etc/apt, with 10.04...       i 'm in <path> , with 10.04 ...

- Addresses, also bare ones in com, org and net, become `<url>`, absolute and home paths `<path>`; these and `<unk>` stay.
- A contraction is cut before "n't", "'s", "'m", "'d", "'re", "'ve", "'ll"; other apostrophes and hyphens within a word stay.
- Numbers keep their inner points, commas and colons; two or more full stops become "..."; smileys stay whole; every other
  mark stands alone.
- What looks the same is the same word: text is read in Unicode's form NFC, whether an accent came with its letter or behind it,
  and without characters that show nothing (zero-width spaces and joiners, soft hyphens, marks of direction). An accent or vowel
  sign that no letter holds belongs to the word that it stands in.

The rules depend on nothing but the text, and tokens joined by spaces give the same tokens again. No token reaches over a space,
and what is beyond one decides nothing, so that a text may be read piece by piece.

Not here: how tokens are written as text again (`written.py`).

English words that say little by themselves, and which words are content.

Chinese text as words: what is written without blanks is cut by jieba, which the optional extra `chinese` installs.

Text that comes in words needs nothing but blanks: `tokenise` takes each run of Chinese characters as one word.

What a reader of pairs hands over: the utterances and pairs of each split, and what was broken.

Utterances are kept as numbers of words, so that five million of them fit into memory while they are read.

Where pairs come from: files of a published format, or a generator. `corpora.py` names those that Parley knows.

A corpus of your own is an object like those there: put `CORPUS = FilePairs(name="mine", ...)` into a file and name it as
`path/file.py:CORPUS`, or let an installed package offer it under the entry point group `parley.pairs`.
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
from parley.envs.corpora.files import CorpusFolder
from parley.envs.corpora.lines import SPLITS, Described, ReadText, Source, WordList, content_digest, fingerprint

_STOP_WORDS = """
i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it its
itself they them their theirs themselves what which who whom this that these those am is are was were be been being have has
had having do does did doing a an the and but if or because as until while of at by for with about against between into
through during before after above below to from up down in out on off over under again further then once here there when
where why how all any both each few more most other some such no nor not only own same so than too very can will just should
now n't 's 'm 're 've 'll 'd ca wo sha
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Function words of English, contractions cut as our tokeniser cuts them."""


def is_content(word: str) -> bool:
    """Return whether a word is neither a stop word, nor a mark such as `<unk>`, nor punctuation."""
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
    """Characters as `_TOKEN` reads them: what stands on or beside a letter (accents, vowel signs) as a letter."""

    def __missing__(self, code: int) -> int:
        self[code] = ord("_") if category(chr(code)).startswith("M") else code
        return self[code]


_SHAPES = _Shapes()


def normalised(text: str) -> str:
    """Return the text as its tokens have it: lower-cased, in form NFC, with straight apostrophes, without what shows nothing."""
    if text.isascii():
        return text.lower()
    return normalize("NFC", _SHOWS_NOTHING.sub("", text).lower()).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")


def tokenise(text: str) -> list[str]:
    """Return the words and punctuation marks of a text, lower-cased."""
    read = normalised(text)
    return [_token(match, read) for match in _TOKEN.finditer(_shape(read))]


def tokenise_where(text: str) -> list[tuple[str, int, int]]:
    """Return the tokens of `tokenise`, and where in the text as it came each begins and ends."""
    read = normalised(text)
    found = list(_TOKEN.finditer(_shape(read)))
    where = origins(text)
    return [(_token(match, read), where[match.start()], where[match.end()]) for match in found]


def origins(text: str) -> Sequence[int]:
    """For each place of the normalised text, its end included, where in the text what stands there begins; ascending.

    Letters are taken with the accents behind them, which Unicode's form NFC may put together.
    """
    if text.isascii():
        return range(len(text) + 1)
    starts = [i for i, each in enumerate(text) if not (i and _hangs(each))]
    ends = [*starts[1:], len(text)]
    lengths = [len(normalised(text[start:end])) for start, end in zip(starts, ends, strict=True)]
    begins = [min(start + i, end) for start, end, size in zip(starts, ends, lengths, strict=True) for i in range(size)]
    length = len(normalised(text))
    # Pieces are as long as the whole; were they not, a place is some letters off and no letter is lost.
    return [*begins[:length], *[len(text)] * (length + 1 - len(begins[:length]))]


def _shape(read: str) -> str:
    return read if read.isascii() else read.translate(_SHAPES)


def _token(match: re.Match[str], read: str) -> str:
    return _MARKS.get(match.lastgroup or "") or read[match.start() : match.end()]


def _hangs(character: str) -> bool:
    """Return whether a character may change what the one before it becomes: accents, Hangul's inner letters, what shows nothing."""
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
"""Chinese characters of a text by which it can be told whether it comes in words."""
_CHARACTERS_PER_BLANK = 8
"""Text in words has a blank between neighbouring characters after two of them on average, text as it is written none."""


def cut(text: str) -> list[str]:
    """Return the words and punctuation marks of a text in which some or all is Chinese without blanks.

    Raises:
        ConfigError: jieba is not installed.
    """
    words: list[str] = []
    for token in tokenise(text):
        words += cutter().lcut(token) if _HAN_CHARACTER.search(token) else [token]
    return words


@cache
def cutter() -> Any:
    """Return the tokeniser of jieba with its own dictionary, loaded once.

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
    made = jieba.Tokenizer()
    # As its `initialize` does, but for the copy of the dictionary that it would read from a folder that all users write to.
    made.FREQ, made.total = made.gen_pfdict(made.get_dict_file())
    made.initialized = True
    return made


def cutter_version() -> str:
    """What the cut words depend on: the installed version of jieba, or that there is none."""
    try:
        return f"{_PACKAGE} {version(_PACKAGE)}"
    except PackageNotFoundError:
        return f"no {_PACKAGE}"


def comes_in_words(text: str) -> bool | None:
    """Return whether Chinese text has blanks between its words; None where too little of it is Chinese to tell."""
    if text.isascii():
        return None
    num = len(_HAN_CHARACTER.findall(text))
    return None if num < _DECIDES else num <= _CHARACTERS_PER_BLANK * len(_BLANK_BETWEEN.findall(text))


def is_chinese(words: Iterable[str]) -> bool:
    """Return whether more of the words hold a Chinese character than a letter of another script alone."""
    num_chinese = num_others = 0
    for word in words:
        if _HAN_CHARACTER.search(word):
            num_chinese += 1
        elif any(map(str.isalpha, word)):
            num_others += 1
    return num_chinese > num_others


class SplitText:
    """One split while it is read: N utterances, P pairs of them, L links that are no pairs."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._values = array("i")
        self._offsets = array("q", [0])
        self._pairs, self._links = array("q"), array("q")

    def add(self, words: Sequence[str]) -> int:
        """Take an utterance of at least one word; returns its index."""
        assert words, "an utterance has words"
        self._values.extend(self._numbers.setdefault(word, len(self._numbers)) for word in words)
        self._offsets.append(len(self._values))
        return self.num_utterances - 1

    def link(self, source: int, reply: int) -> None:
        """Make a pair of two utterances, named by their indices."""
        self._pairs.extend((source, reply))

    def follow(self, turns: Sequence[int]) -> None:
        """Say of each of these utterances, named by their indices, that it followed the one before, without making pairs."""
        for earlier, later in pairwise(turns):
            self._links.extend((earlier, later))

    @property
    def num_utterances(self) -> int:
        """N."""
        return len(self._offsets) - 1

    @property
    def num_pairs(self) -> int:
        """P."""
        return len(self._pairs) // 2

    @property
    def offsets(self) -> np.ndarray:
        """Where each utterance begins in the encoded words, and the end of the last: (N + 1,) int64."""
        return np.array(self._offsets, dtype=np.int64)

    @property
    def pairs(self) -> np.ndarray:
        """Indices of source and reply (P, 2) int64."""
        return np.array(self._pairs, dtype=np.int64).reshape(-1, 2)

    @property
    def links(self) -> np.ndarray:
        """Indices of utterances and of what followed them beside the pairs (L, 2) int64."""
        return np.array(self._links, dtype=np.int64).reshape(-1, 2)

    def utterances(self) -> Iterator[list[str]]:
        """Yield the words of each utterance in turn."""
        words = list(self._numbers)
        for start, end in zip(self._offsets, self._offsets[1:], strict=False):
            yield [words[number] for number in self._values[start:end]]

    def encode(self, vocabulary: WordList) -> np.ndarray:
        """Return the ids of the words of all utterances, end to end: (T,) int32."""
        return vocabulary.encode(self._numbers)[np.array(self._values, dtype=np.int64)].astype(np.int32)


@dataclass(frozen=True, kw_only=True)
class PairText(ReadText):
    """A corpus of pairs read: its good lines and what is wrong with the others."""

    splits: dict[str, SplitText] = field(default_factory=lambda: {split: SplitText() for split in SPLITS})
    """What was read of "train", "val" and "test"."""
    broken: list[DataError] = field(default_factory=list)


def split_of(key: str, shares: tuple[int, int, int] = (90, 5, 5)) -> str:
    """Return the split that something belongs to by its name or content alone.

    Args:
        key: the name or content.
        shares: of train, val and test.
    """
    train, val, test = (share // gcd(*shares) for share in shares)
    place = stable_hash("split", key) % (train + val + test)
    return SPLITS[(place >= train) + (place >= train + val)]


READER_VERSION = 2
"""Grows when the same files would be read differently; compiled corpora are keyed by it."""


@runtime_checkable
class PairSource(Source, Protocol):
    """What the registry holds: a corpus of pairs."""

    @property
    def vocabulary(self) -> int:
        """Entries of the vocabulary, specials included."""

    def missing(self, root: Path) -> tuple[str, ...]:
        """Files that must lie in `folder` and do not."""

    def require_files(self, root: Path) -> None:
        """Raise a `DataError` that says what to put where, when files are missing."""

    def read(self, root: Path) -> PairText:
        """Return the text, broken lines and missing files included as errors."""


@dataclass(frozen=True, kw_only=True)
class FilePairs(CorpusFolder):
    """A corpus of pairs in files of one folder."""

    vocabulary: int
    """Entries of the vocabulary, specials included."""
    reader: Callable[[Path], PairText]
    """Reads the folder."""

    READER_VERSION: ClassVar[int] = READER_VERSION
    OWN: ClassVar[str] = (
        "name a file or folder of pairs that is there: lines source<TAB>reply, or train.tsv, val.tsv and test.tsv"
    )

    def read(self, root: Path) -> PairText:
        """Read the files; nothing is read while some are missing, and each of those is an error."""
        missing = self.missing_files(root)
        return PairText(broken=missing) if missing else self.reader(self.folder(root))


@dataclass(frozen=True, kw_only=True)
class GeneratedPairs(Described):
    """A corpus that Parley writes itself, so that everything runs on a fresh machine offline."""

    vocabulary: int
    """Entries of the vocabulary, specials included."""
    generator: Callable[[], PairText]
    """Writes the text, the same at every call."""
    sources: tuple[Path, ...]
    """Python files that the generated text depends on."""

    def folder(self, root: Path) -> None:
        """None: there are no files."""

    def missing(self, root: Path) -> tuple[str, ...]:
        """Nothing."""
        return ()

    def require_files(self, root: Path) -> None:
        """Nothing is needed."""

    def fingerprint(self, root: Path) -> str:
        """Digest of the reader's version and the generator's source."""
        # The source stands for a version number that somebody would have to remember to raise.
        return fingerprint("generated", READER_VERSION, *map(content_digest, self.sources))

    def read(self, root: Path) -> PairText:
        """Generates the text."""
        return self.generator()
