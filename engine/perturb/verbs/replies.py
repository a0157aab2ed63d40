"""`parley perturb RULE --context FILE`: candidate replies before and after a rule, with their contexts.

A line of the file is `label TAB turn TAB ... TAB turn TAB response`, as published corpora have it, or the file is a table with
columns of label, context and reply (`envs/corpora/own_files.py`). Neighbouring lines of one context are one group; a line alone
is a group too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from parley.engine.core.cli.tables import show_table
from parley.engine.perturb.replies.catalogue import build_rules, rule_names
from parley.engine.perturb.replies.resources import LanguageCode, RuleResources
from parley.engine.perturb.replies.rule import Attacked, Rule
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.perturb.resources import Resources
from parley.engine.perturb.strategies.draws import seeds_of
from parley.engine.perturb.verbs.marked_lines import MarkedLines
from parley.envs.core.errors import DataError
from parley.envs.core.visible import visible
from parley.envs.corpora.lines import broken_rule, located, read_lines
from parley.envs.corpora.own_files import LABEL, OwnFile, looks_like_csv, own_file
from parley.envs.corpora.pairs.chinese import comes_in_words, cut, is_chinese
from parley.envs.corpora.pairs.tokens import tokenise
from parley.envs.corpora.pairs.turns import Utterance, format_turns
from parley.envs.ranking.groups import CandidateGroup, CandidateKind
from parley.envs.ranking.rows import Row, parse_row

_LABEL = 14
"""Columns of the longest rule's name."""


class WrittenGroup(NamedTuple):
    """Neighbouring lines of one context.

    Args:
        rows: the lines.
        group: their words; of a line alone with an empty candidate behind it, which no rule may change.
    """

    rows: Sequence[Row]
    group: CandidateGroup


def read_groups(name: str) -> list[WrittenGroup]:
    """Return the groups of a file.

    Args:
        name: of a file of lines or records as above, perhaps with its columns; Chinese without blanks is cut by jieba where
            most lines are written so.

    Raises:
        ConfigError: some is Chinese without blanks, and jieba is not installed.
        DataError: the file cannot be read, a line is broken, or records have no label; says where.
    """
    own = own_file(name)
    rows = _rows_of_lines(own.path) if own.kind is None else _rows_of_records(own)
    in_words = [comes_in_words(text) for row in rows for text in (*row.context, row.response)]
    words = cut if in_words.count(False) > in_words.count(True) else tokenise

    def said(text: str) -> Utterance:
        return tuple(words(text))

    found: list[WrittenGroup] = []
    for context, neighbours in groupby(rows, key=lambda row: row.context):
        members = list(neighbours)
        alone = len(members) == 1
        replies = (*(said(row.response) for row in members), *[()] * alone)
        labels = (*(row.label for row in members), *[not members[0].label] * alone)
        kinds = {True: CandidateKind.POSITIVE, False: CandidateKind.NEGATIVE}
        group = CandidateGroup(
            f"line-{members[0].line:07d}",
            tuple(said(turn) for turn in context),
            replies,
            labels,
            tuple(kinds[label] for label in labels),
            (*[True] * len(members), *[False] * alone),
        )
        found.append(WrittenGroup(members, group))
    return found


def _rows_of_lines(path: Path) -> list[Row]:
    if other := looks_like_csv(path):
        raise other
    rows = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            row = parse_row(line, number)
            if not tokenise(row.response):
                raise broken_rule("a response has a word", line)
            rows.append(row)
        except DataError as error:
            raise located(error, str(path), number, "mend the line") from None
    return rows


def _rows_of_records(own: OwnFile) -> list[Row]:
    if LABEL not in own.roles:
        fix = f"name it: {own.path}#context=COLUMN,reply=COLUMN,label=COLUMN"
        raise DataError("candidates need a column of labels, 1 or 0", where=own.path, got=own.told, fix=fix)
    broken: list[DataError] = []
    rows = []
    for exchange in own.exchanges(broken):
        if broken:
            raise broken[0]
        if exchange is not None:
            for reply in exchange.replies:
                if not tokenise(reply):
                    error = broken_rule("a response has a word", reply)
                    raise located(error, str(own.path), exchange.line, "mend the record")
                rows.append(Row(exchange.line, bool(exchange.label), exchange.context, reply))
    if broken:
        raise broken[0]
    return rows


def attack_replies(
    chosen: str, path: str, settings: ReplySettings, shared: Resources, seed: int, console: Console, *, as_json: bool
) -> None:
    """Prints replies before and after rules, and how many changed.

    Args:
        chosen: names of rules and groups of them.
        path: of the candidates, perhaps with its columns.
        settings: of the rules.
        shared: lexicon, words and data root.
        seed: decides every random draw; a group's own context decides with it, not its place.
        console: where it is said what was done.
        as_json: one object for each reply and rule, not lines for people.

    Raises:
        ConfigError: no such rule, or one that does not suit the language.
        DataError: the file is broken, or what a rule leans on is not there.
    """
    names = rule_names(chosen)
    written = read_groups(path)
    groups = [each.group for each in written]
    contexts = [group.context for group in groups]
    code: LanguageCode = "zh" if is_chinese(word for context in contexts for turn in context for word in turn) else "en"
    if "iiw" in names:
        said = f"iiw weighs words by the contexts of {path}; the test of a model counts those of its training"
        console.print(Text(said), soft_wrap=True)
    resources = RuleResources(settings, shared, code, {"training": contexts, "evaluated": contexts})
    rules = build_rules(names, resources)
    seeds = seeds_of(seed, ["\t".join(each.rows[0].context) for each in written])
    attacked = [rule.apply(groups, seeds) for rule in rules]
    show = _show_json if as_json else _show_lines
    for each, of_group in zip(written, zip(*attacked, strict=True), strict=True):
        show(each, list(zip(rules, of_group, strict=True)))
    rows = []
    for rule, of_rule in zip(rules, attacked, strict=True):
        asked = sum(_attacks(rule, row) for each in written for row in each.rows)
        num = sum(count > 0 for _, changed in of_rule for count in changed)
        rows.append((rule.name, rule.attacks, f"{asked:,}", f"{num:,}", f"{asked - num:,}"))
    columns = ("rule", "attacks", "replies", "changed", "untouched")
    show_table(console, f"{len(groups):,} context{'s' * (len(groups) != 1)}", columns, rows, right=columns[2:])


def _attacks(rule: Rule, row: Row) -> bool:
    return row.label is (rule.attacks == "positives")


def _show_json(written: WrittenGroup, attacked: Sequence[tuple[Rule, Attacked]]) -> None:
    for place, row in enumerate(written.rows):
        for rule, (group, changed) in attacked:
            if _attacks(rule, row):
                record = {
                    "line": row.line,
                    "rule": rule.name,
                    "label": int(row.label),
                    "before": " ".join(written.group.candidates[place]),
                    "after": " ".join(group.candidates[place]),
                    "changed": changed[place],
                    "untouched": not changed[place],
                }
                sys.stdout.write(f"{json.dumps(record)}\n")


def _show_lines(written: WrittenGroup, attacked: Sequence[tuple[Rule, Attacked]]) -> None:
    show = MarkedLines(_LABEL)
    turns = visible(format_turns(tuple((turn,) for turn in written.group.context)))
    sys.stdout.write(f"{written.rows[0].line:>5} {'context':<{_LABEL}}   {turns}\n")
    for place, row in enumerate(written.rows):
        before = written.group.candidates[place]
        for rule, (group, _) in attacked:
            if _attacks(rule, row):
                show.show(row.line, rule.name, ((before,),), ((group.candidates[place],),))
