"""The documents: their commands can be typed, their links lead somewhere, the files and modules that they name exist."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

import parley
from parley.engine.core.cli.flags import parse_job
from parley.engine.core.cli.main import JOBS, find_verb
from parley.engine.core.verbs.catalogue import find
from parley.engine.scan.policy import read_policy

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = "benchmarks|deploy|docs|engine|envs|examples|findings|policies|tests|tune"
PATH = re.compile(rf"(?<![\w./:-])(?:{FOLDERS})/[\w./{{}},-]*[\w/}}]")
MODULE = re.compile(r"(?<![\w./:-])(?:parley\.[a-z_]+|benchmarks|tests)(?:\.[a-z_0-9]+)+\b")
BARE = re.compile(r"(?<![\w./-])\w+\.py(?![\w:.])")
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_settings_file_on_a_page_can_be_read(page: Path, tmp_path: Path) -> None:
    (tmp_path / "prompts.csv").write_text("prompt\nhello\n")
    for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        document = yaml.safe_load(block)
        if isinstance(document, dict) and {"prompts", "attacks"} <= document.keys():
            if not {"rules", "must", "must_not"} & document.keys():
                document["rules"] = [{"must_not": {"contains": "x"}}]
            (tmp_path / "policy.yaml").write_text(yaml.safe_dump(document))
            read_policy(tmp_path / "policy.yaml")


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


def expand(path: str) -> list[str]:
    """Return the paths that a path with alternatives in braces stands for."""
    match = re.fullmatch(r"([^{}]*)\{([^{}]*)\}(.*)", path)
    return [match[1] + part + match[3] for part in match[2].split(",")] if match else [path]


def module_exists(name: str) -> bool:
    """Return whether a dotted name is a module, or a name in one."""
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists() or path.parent.with_suffix(".py").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    paths = {path for match in PATH.findall(text) for path in expand(match)}
    named = {path for path in paths if not re.search("/(?!README)[A-Z]{2}", path)}  # capitals stand for a name
    assert sorted(path for path in named if not (ROOT / path).exists()) == []
    assert sorted({name for name in MODULE.findall(text) if not module_exists(name)}) == []
    assert sorted(set(re.findall(r"\bparley\.(\w+)\(", text)) - set(dir(parley))) == []
    ours = {path.name for folder in FOLDERS.split("|") for path in (ROOT / folder).rglob("*.py")}
    spans = " ".join(re.findall(r"`([^`\n]+)`", text))
    assert sorted({name for name in BARE.findall(spans) if name not in ours and f"{name}:" not in text}) == []


def test_the_reference_is_up_to_date() -> None:
    """`make reference` mends it."""
    spec = importlib.util.spec_from_file_location("generate_reference", ROOT / "docs" / "generate_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    stale = [name for name, text in module.pages().items() if (ROOT / "docs" / "reference" / name).read_text() != text]
    assert stale == []


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 90
    assert max(map(len, text.splitlines())) <= 160
    assert len(re.findall("`[^`]+`", text)) <= 40


def how_tos() -> list[str]:
    """Return the pages below "How to" of the site."""
    (block,) = re.findall(r"^  - How to:\n((?:      - .*\n)+)", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    return re.findall(r": (\w+\.md)$", block, re.MULTILINE)


def test_a_how_to_is_short() -> None:
    lengths = {name: len((ROOT / "docs" / name).read_text().splitlines()) for name in how_tos()}
    assert {"negotiation.md", "ranking.md", "chat_models.md", "cluster.md"} <= lengths.keys()
    assert {name: length for name, length in lengths.items() if length > 120} == {}


def test_a_release_has_few_lines() -> None:
    releases = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    assert {release.split()[0]: len(release.splitlines()) for release in releases if len(release.splitlines()) > 40} == {}
