"""Pages read back: their outline, their words, and whether hostile text stays text."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

from parley.envs.core.visible import visible

HOSTILE = (
    "😀 \x1b[31m\u202e\u2066 "
    "<script>alert(1)</script><img src=x onerror=alert(2)>\"' onload=alert(3) {{ 7*7 }} </style></title> & $x_{"
)
"""Markup, and marks that a terminal or a reader's eyes would obey."""
VOID = {"meta", "br", "img", "hr", "input", "link"}


class Outline(HTMLParser):
    """Tags, attributes, ids and headings of a page; fails on tags that do not nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[tuple[str, str]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1:] == [tag], f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("style", "script"):
            return
        self.text.append(data)
        if self.open and re.fullmatch("h[1-4]", self.open[-1]):
            self.headings.append((self.open[-1], data))

    def count(self, tag: str, **wanted: str) -> int:
        return sum(name == tag and all(attrs.get(k.rstrip("_")) == v for k, v in wanted.items()) for name, attrs in self.tags)


def words(page: str) -> str:
    """What a reader sees of a page, its blanks made one."""
    return " ".join(" ".join(Outline(page).text).split())


def assert_harmless(page: str) -> Outline:
    """Nothing on a page is loaded or runs but the viewer's script, which the content policy knows by its hash."""
    outline = Outline(page)
    assert visible(page, keep="\n") == page, "marks of direction and controls are spelled"
    assert {tag for tag, _ in outline.tags} & {"img", "iframe", "object", "embed", "link", "base", "form"} == set()
    assert not [name for _, attrs in outline.tags for name in attrs if name.startswith("on")]
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    assert len(scripts) == outline.count("script") == page.count("<script") <= 1
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes) or "'none'"
    policy = next(attrs["content"] or "" for _, attrs in outline.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ")
    assert f"script-src {allowed};" in policy, "no other script may run"
    return outline
