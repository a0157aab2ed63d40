"""The documents: every command in them can be typed, and every link leads somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from parley.engine.core.cli.flags import parse_job
from parley.engine.core.cli.main import JOBS, find_verb
from parley.engine.core.verbs.catalogue import find

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PLACEHOLDER = re.compile(r"\b[A-Z]\b")
"""One capital letter stands for a number or a name; where a flag could stand, for flags that the page spells out."""


def commands(page: Path) -> Iterator[str]:
    """What a page tells its readers to type, without comments; lines that go on are put together."""
    text = page.read_text().replace("\\\n", " ")
    for block in re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            typed = re.split(r"\s+#", line.strip().removeprefix("$ "))[0]
            if typed.startswith("parley "):
                yield typed


def anchors(page: Path) -> set[str]:
    """The places in a page that links may name."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_can_be_typed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for typed in dict.fromkeys(commands(page)):
        pairs = pairwise(shlex.split(typed))
        words = [PLACEHOLDER.sub("1", one) for flag, one in pairs if flag.startswith("--") or not PLACEHOLDER.fullmatch(one)]
        if "--config" in words:
            Path(words[words.index("--config") + 1]).parent.mkdir(parents=True, exist_ok=True)
            Path(words[words.index("--config") + 1]).write_text("seed: 2\n")
        verb = find_verb(words)
        assert verb is not None, typed
        if verb in JOBS:
            parse_job(verb, find("-".join(verb.words)).load(), words[len(verb.words) :])


def test_commands_are_found() -> None:
    assert sum(len([*commands(page)]) for page in PAGES) > 100


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" not in link:
            name, _, place = link.partition("#")
            there = (page.parent / name).resolve() if name else page
            assert there.exists(), link
            assert not place or place in anchors(there), link
