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

The rules depend on nothing but the text, and tokens joined by spaces give the same tokens again.
"""

from __future__ import annotations

import re
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
    shape = read if read.isascii() else read.translate(_SHAPES)
    return [_MARKS.get(match.lastgroup or "") or read[match.start() : match.end()] for match in _TOKEN.finditer(shape)]
