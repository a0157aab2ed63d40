"""Measured numbers of the house that may fall and never rise; the limits stand in this file."""

from __future__ import annotations

import ast
import re
from collections import Counter

import grimp

from parley.engine.core.cli.listing import settings_of
from parley.engine.core.verbs.catalogue import ENTRIES
from tests.test_house import ROOT, SOURCES, parsed

MOST_FILES = 514
MOST_LINES = 140_113
MOST_QUESTIONS = 1
"""Thousandths of docstrings that begin with a question word."""
MOST_IDIOMS = 13
"""Bindings of the variable names that say nothing of their value."""
MOST_SMALL = 0
"""Modules of fewer than 60 lines beside the only module that imports them."""
MOST_SHORT_HELPERS = 482
"""Private functions of at most five lines that are called once."""
MOST_SETTINGS = 40
"""Settings that `parley settings VERB` lists; a section that another list has counts as one."""
MORE_SETTINGS = {"evaluate generation": 42}
"""Verbs that list more."""
ALL_SETTINGS = 2_956
"""Settings of all verbs, those of each section counted one by one."""
QUESTIONS = {"What", "Whether", "How", "Which", "Who", "Where", "Of", "Those"}
IDIOMS = {"found", "told", "said", "asked", "each"}


def test_files_and_lines_do_not_grow() -> None:
    assert len(SOURCES) <= MOST_FILES
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES) <= MOST_LINES


def test_settings_of_verbs_do_not_grow() -> None:
    kinds = {" ".join(entry.words): entry.load().config for entry in ENTRIES}
    listed = {name: len(list(settings_of(kind, verb=name))) for name, kind in kinds.items()}
    assert {name: num for name, num in listed.items() if num > MOST_SETTINGS} == MORE_SETTINGS
    assert sum(len(list(settings_of(kind))) for kind in kinds.values()) <= ALL_SETTINGS


def test_docstrings_that_begin_with_a_question_word_do_not_grow() -> None:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    texts = [ast.get_docstring(node) for tree in map(parsed, SOURCES) for node in ast.walk(tree) if isinstance(node, kinds)]
    first = Counter(text.split()[0] in QUESTIONS for text in texts if text)
    assert 1000 * first[True] / first.total() <= MOST_QUESTIONS


def test_variables_that_say_nothing_of_their_value_do_not_grow() -> None:
    names = [
        node.id
        for tree in map(parsed, SOURCES)
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    assert sum(name in IDIOMS for name in names) <= MOST_IDIOMS


def test_small_modules_beside_their_only_importer_do_not_grow() -> None:
    graph = grimp.build_graph("parley")
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES if path.name != "__init__.py"}
    small = 0
    for path, size in sizes.items():
        module = ".".join(("parley", *path.relative_to(ROOT).with_suffix("").parts))
        importers = graph.find_modules_that_directly_import(module) if module in graph.modules else set()
        beside = {name for name in importers if name.rpartition(".")[0] == module.rpartition(".")[0]}
        small += size < 60 and len(importers) == 1 and importers == beside
    assert small <= MOST_SMALL


def test_short_private_functions_that_are_called_once_do_not_grow() -> None:
    short = 0
    for tree in map(parsed, SOURCES):
        names = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
        names.update(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and re.match(r"_[a-z]", node.name) and names[node.name] == 1:
                short += (node.end_lineno or 0) - node.body[0].lineno < 5
    assert short <= MOST_SHORT_HELPERS
