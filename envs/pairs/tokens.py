"""One small tokeniser for utterances of people: lower-cased words and punctuation marks.

    Don't you see https://a.example/x?   do n't you see <url> ?
    I'm in /etc/apt, with 10.04...       i 'm in <path> , with 10.04 ...

- Addresses, also bare ones in com, org and net, become `<url>`, absolute and home paths `<path>`; these and `<unk>` stay.
- A contraction is cut before "n't", "'s", "'m", "'d", "'re", "'ve", "'ll"; other apostrophes and hyphens within a word stay.
- Numbers keep their inner points, commas and colons; two or more full stops become "..."; smileys stay whole; every other
  mark stands alone.

The rules depend on nothing but the text, and tokens joined by spaces give the same tokens again.
"""

from __future__ import annotations

import re

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


def tokenise(text: str) -> list[str]:
    """The words and punctuation marks of a text, lower-cased."""
    lowered = text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return [_MARKS.get(match.lastgroup or "", match[0]) for match in _TOKEN.finditer(lowered)]
