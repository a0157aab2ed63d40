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
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from unicodedata import category, normalize

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
    """The text as its tokens have it: lower-cased, in form NFC, with straight apostrophes, without what shows nothing."""
    if text.isascii():
        return text.lower()
    return normalize("NFC", _SHOWS_NOTHING.sub("", text).lower()).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")


def tokenise(text: str) -> list[str]:
    """The words and punctuation marks of a text, lower-cased."""
    read = normalised(text)
    return [_token(match, read) for match in _TOKEN.finditer(_shape(read))]


def tokenise_where(text: str) -> list[tuple[str, int, int]]:
    """The tokens of `tokenise`, and where in the text as it came each begins and ends."""
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
    """Whether a character may change what the one before it becomes: accents, Hangul's inner letters, what shows nothing."""
    return (
        _SHAPES[ord(character)] != ord(character)
        or "\u1160" <= character <= "\u11ff"
        or _SHOWS_NOTHING.match(character) is not None
    )
