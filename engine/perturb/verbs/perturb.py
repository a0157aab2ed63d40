"""`parley perturb`: lines of text before and after, with what changed. It is a filter and not a run, and keeps no folder.

Here the texts are the results, so they go to standard output also without --json; messages go to standard
error.

`parley perturb RULE --context FILE` prints candidate replies before and after a rule, with their contexts. A line of the file
is `label TAB turn TAB ... TAB turn TAB response`, as published corpora have it, or the file is a table with columns of label,
context and reply (`envs/corpora/own_files.py`). Neighbouring lines of one context are one group; a line alone is a group too.
"""

from __future__ import annotations

import json
import os
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from io import TextIOWrapper
from itertools import groupby, islice
from pathlib import Path
from typing import IO, Annotated, NamedTuple

from rich.console import Console
from rich.text import Text
from tyro import conf

from parley.engine.core.cli.flags import parse
from parley.engine.core.cli.main import Verb
from parley.engine.core.cli.screen import PlainScreen, beating, make_console, show_table
from parley.engine.core.verbs.checkpoints import require_checkpoint
from parley.engine.perturb.catalogue import Resources, build, edits_of, left_out, names, strategies
from parley.engine.perturb.replies.catalogue import build_rules, rule_names, rules
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.perturb.replies.shapes import Attacked, LanguageCode, Rule, RuleResources
from parley.engine.perturb.strategies.draws import seeds_of
from parley.engine.perturb.strategies.swap import RandomSwap
from parley.engine.perturb.strategies.texts import ChangeKind, Span, Texts, bracketed, num_changed, spans
from parley.engine.perturb.strategy import PerturbSettings, Strategy
from parley.envs.core.config import Configuration, NonNegativeInt, assign, overlay
from parley.envs.core.errors import CheckpointError, ConfigError, DataError
from parley.envs.core.storage.copies import fetched_file
from parley.envs.core.visible import visible
from parley.envs.corpora.lines import broken_rule, located, read_lines
from parley.envs.corpora.own_files import LABEL, OwnFile, looks_like_csv, own_file
from parley.envs.corpora.pairs.tokens import comes_in_words, cut, is_chinese, tokenise
from parley.envs.corpora.pairs.turns import Turns, Utterance, format_turns
from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary
from parley.envs.ranking.groups import CandidateGroup, CandidateKind
from parley.envs.ranking.sources import Row, parse_row

_STYLES = {
    ChangeKind.SAME: "",
    ChangeKind.REPLACED: "bold yellow",
    ChangeKind.INSERTED: "bold green",
    ChangeKind.DELETED: "bold red",
}
_LABEL = 27
"""Columns of the longest strategy's name."""


class MarkedLines:
    """Words before and after below each other, changed ones in colour or in brackets.

    Args:
        width: columns of the longest name.
    """

    def __init__(self, width: int = _LABEL) -> None:
        self._width = width
        self._console = make_console(stderr=False)
        self._in_colour = self._console.is_terminal and not self._console.no_color

    def __call__(self, line: int, strategy: str, texts: tuple[str, str], contexts: tuple[Turns, Turns]) -> None:
        self.show(line, strategy, *contexts)

    def show(self, line: int, name: str, before: Turns, after: Turns) -> None:
        """Print the words before and after.

        Args:
            line: of the file, counted from 1.
            name: of what changed it.
            before: its words as they were.
            after: its words as they are.
        """
        label = f"{line:>5} {name:<{self._width}}"
        if after == before:
            sys.stdout.write(f"{label} = {visible(format_turns(before))}\n")
            return
        aligned_spans = spans(before, after)
        if self._in_colour:
            for mark, side in (("-", "before"), ("+", "after")):
                self._console.print(
                    _coloured(f"{label if mark == '-' else '':<{len(label)}} {mark}", aligned_spans, side), soft_wrap=True
                )
            return
        old, new = map(visible, bracketed(aligned_spans))
        sys.stdout.write(f"{label} - {old}\n{'':<{len(label)}} + {new}\n")


def _coloured(start: str, aligned_spans: Sequence[Span], side: str) -> Text:
    text = Text(start)
    for span in aligned_spans:
        if words := getattr(span, side):
            text.append(" ").append(" ".join(words), _STYLES[span.kind])
    return text


_LABEL_REPLIES = 14
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
    """Read the groups of candidates in a file.

    Args:
        name: of a file of lines or records as above, perhaps with its columns; Chinese without blanks is cut by jieba where
            most lines are written so.

    Raises:
        ConfigError: some is Chinese without blanks, and jieba is not installed.
        DataError: the file cannot be read, a line is broken, or records have no label; says where.
    """
    file = own_file(name)
    rows = _rows_of_lines(file.path) if file.kind is None else _rows_of_records(file)
    in_words = [comes_in_words(text) for row in rows for text in (*row.context, row.response)]
    words = cut if in_words.count(False) > in_words.count(True) else tokenise

    def cut_words(text: str) -> Utterance:
        return tuple(words(text))

    groups: list[WrittenGroup] = []
    for context, neighbours in groupby(rows, key=lambda row: row.context):
        members = list(neighbours)
        alone = len(members) == 1
        replies = (*(cut_words(row.response) for row in members), *[()] * alone)
        labels = (*(row.label for row in members), *[not members[0].label] * alone)
        kinds = {True: CandidateKind.POSITIVE, False: CandidateKind.NEGATIVE}
        group = CandidateGroup(
            f"line-{members[0].line:07d}",
            tuple(cut_words(turn) for turn in context),
            replies,
            labels,
            tuple(kinds[label] for label in labels),
            (*[True] * len(members), *[False] * alone),
        )
        groups.append(WrittenGroup(members, group))
    return groups


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


def _rows_of_records(file: OwnFile) -> list[Row]:
    if LABEL not in file.roles:
        fix = f"name it: {file.path}#context=COLUMN,reply=COLUMN,label=COLUMN"
        raise DataError("candidates need a column of labels, 1 or 0", where=file.path, got=file.columns_text, fix=fix)
    broken: list[DataError] = []
    rows = []
    for exchange in file.exchanges(broken):
        if broken:
            raise broken[0]
        if exchange is not None:
            for reply in exchange.replies:
                if not tokenise(reply):
                    error = broken_rule("a response has a word", reply)
                    raise located(error, str(file.path), exchange.line, "mend the record")
                rows.append(Row(exchange.line, bool(exchange.label), exchange.context, reply))
    if broken:
        raise broken[0]
    return rows


def attack_replies(
    chosen: str, path: str, settings: ReplySettings, shared: Resources, seed: int, console: Console, *, as_json: bool
) -> None:
    """Print replies before and after rules, and how many changed.

    Args:
        chosen: names of rules and groups of them.
        path: of the candidates, perhaps with its columns.
        settings: of the rules.
        shared: lexicon, words and data root.
        seed: of every random draw, together with a group's context, not its position.
        console: for the counts and notes.
        as_json: one object for each reply and rule, not lines for people.

    Raises:
        ConfigError: no such rule, or one that does not suit the language.
        DataError: the file is broken, or data that a rule needs are missing.
    """
    names = rule_names(chosen)
    written = read_groups(path)
    groups = [item.group for item in written]
    contexts = [group.context for group in groups]
    code: LanguageCode = "zh" if is_chinese(word for context in contexts for turn in context for word in turn) else "en"
    if "iiw" in names:
        note = f"iiw weighs words by the contexts of {path}; the test of a model counts those of its training"
        console.print(Text(note), soft_wrap=True)
    resources = RuleResources(settings, shared, code, {"training": contexts, "evaluated": contexts})
    rules = build_rules(names, resources)
    seeds = seeds_of(seed, ["\t".join(item.rows[0].context) for item in written])
    attacked = [rule.apply(groups, seeds) for rule in rules]
    show = _show_json if as_json else _show_lines
    for item, of_group in zip(written, zip(*attacked, strict=True), strict=True):
        show(item, list(zip(rules, of_group, strict=True)))
    rows = []
    for rule, of_rule in zip(rules, attacked, strict=True):
        attackable = sum(_attacks(rule, row) for item in written for row in item.rows)
        num = sum(count > 0 for _, changed in of_rule for count in changed)
        rows.append((rule.name, rule.attacks, f"{attackable:,}", f"{num:,}", f"{attackable - num:,}"))
    columns = ("rule", "attacks", "replies", "changed", "untouched")
    show_table(console, f"{len(groups):,} context{'s' * (len(groups) != 1)}", columns, rows, right=columns[2:])


def _attacks(rule: Rule, row: Row) -> bool:
    return row.label is (rule.attacks == "positives")


def _show_json(written: WrittenGroup, attacked: Sequence[tuple[Rule, Attacked]]) -> None:
    for index, row in enumerate(written.rows):
        for rule, (group, changed) in attacked:
            if _attacks(rule, row):
                record = {
                    "line": row.line,
                    "rule": rule.name,
                    "label": int(row.label),
                    "before": " ".join(written.group.candidates[index]),
                    "after": " ".join(group.candidates[index]),
                    "changed": changed[index],
                    "untouched": not changed[index],
                }
                sys.stdout.write(f"{json.dumps(record)}\n")


def _show_lines(written: WrittenGroup, attacked: Sequence[tuple[Rule, Attacked]]) -> None:
    show = MarkedLines(_LABEL_REPLIES)
    turns = visible(format_turns(tuple((turn,) for turn in written.group.context)))
    sys.stdout.write(f"{written.rows[0].line:>5} {'context':<{_LABEL_REPLIES}}   {turns}\n")
    for index, row in enumerate(written.rows):
        before = written.group.candidates[index]
        for rule, (group, _) in attacked:
            if _attacks(rule, row):
                show.show(row.line, rule.name, ((before,),), ((group.candidates[index],),))


CHUNK = 1000
"""Lines perturbed at once; one where a person types them."""


@dataclass(frozen=True, kw_only=True)
class PerturbConfig:
    """The settings that --config and --set reach."""

    perturb: PerturbSettings = field(default_factory=PerturbSettings)
    """How contexts are perturbed."""
    replies: ReplySettings = field(default_factory=ReplySettings)
    """How candidate replies are attacked."""


@dataclass(frozen=True, kw_only=True)
class PerturbArguments(Configuration):
    """Strategies and lines."""

    strategy: Annotated[conf.Positional[str], conf.arg(metavar="STRATEGY")]
    """One or several, separated by commas; or all, should-not-change, should-change, entity; parley list names them."""
    input: Annotated[Path | None, conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Lines of text, <eou> between utterances and <eot> between turns; standard input when not given."""
    context: Annotated[str, conf.arg(metavar="FILE", help_behavior_hint="")] = ""
    """Lines label<TAB>turn...<TAB>response, or CSV, TSV, JSON, JSON Lines or Parquet with columns of label, context and reply:
    rules attack the responses (iiw, rsw, sow, ..., or all; parley list names them)."""
    seed: NonNegativeInt = 1
    """Decides every random draw; a line's own words decide with it, not its place."""
    model: Annotated[str, conf.arg(metavar="RUN", help_behavior_hint="")] = ""
    """Run or checkpoint whose words alone may enter; every word may when not given."""
    data_root: Annotated[Path | None, conf.arg(metavar="PATH", help_behavior_hint="")] = None
    """Where corpora lie; PARLEY_DATA or the user cache folder when not given."""
    config: Annotated[str, conf.arg(metavar="FILE.yaml", help_behavior_hint="")] = ""
    """Settings laid over the defaults; a file or its URI."""
    set: Annotated[conf.UseAppendAction[tuple[str, ...]], conf.arg(metavar="KEY=VALUE", help_behavior_hint="(repeatable)")] = ()
    """One setting, such as perturb.rule=released or perturb.lexicon=built-in; parley settings perturb lists them."""
    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print one JSON object for each line and strategy."""


@dataclass
class Counts:
    """The counts that are printed at the end."""

    lines: int = 0
    empty: int = 0
    undecodable: int = 0
    perturbed: dict[str, int] = field(default_factory=dict)


def run_perturb(verb: Verb, arguments: Sequence[str]) -> int:
    """Perturb lines of text, or candidate replies; return the exit status."""
    options = parse(PerturbArguments, verb, arguments)
    config = overlay(PerturbConfig(), fetched_file(options.config), options.config) if options.config else PerturbConfig()
    config = assign(config, options.set)
    console = make_console()
    # A terminal whose encoding lacks a character shows its escape.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if not options.context:
            _perturb_lines(options, config.perturb, console)
        elif options.input is not None:
            raise ConfigError("--context and --input name two files", fix="leave one of them out")
        else:
            _announce(config.perturb, console)
            shared = _resources(options, config.perturb)
            attack_replies(
                options.strategy, options.context, config.replies, shared, options.seed, console, as_json=options.json
            )
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe. The rest of standard output must not fail again when Python flushes it at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _perturb_lines(options: PerturbArguments, settings: PerturbSettings, console: Console) -> None:
    rule = next((name for name in names(options.strategy) if name in rules and name not in strategies), None)
    if rule is not None:
        raise ConfigError(f"{rule} attacks candidate replies, not lines", where="STRATEGY", fix="name them with --context FILE")
    built = _built(options, settings, console)
    _announce(settings, console)
    counts = Counts(perturbed=dict.fromkeys((strategy.name for strategy in built), 0))
    # A person at a terminal needs no progress.
    with _opened(options.input) as file, nullcontext() if file.isatty() else _progress_beats(console, counts):
        _filter(file, built, options, counts)
    sys.stdout.flush()
    _summarise(console, counts)
    if settings.rule == "paper" and counts.perturbed.get(RandomSwap.name, counts.lines) < counts.lines:
        few = f"utterances of fewer than {settings.swap_every} words"
        short = f"{RandomSwap.name} leaves {few} alone, and words that are equal (perturb.swap_every)"
        console.print(Text(short), soft_wrap=True)


def _announce(settings: PerturbSettings, console: Console) -> None:
    if settings.lexicon == "built-in":
        from parley.engine.perturb.lexicon.built_in import ANNOUNCEMENT

        console.print(Text(ANNOUNCEMENT), soft_wrap=True)


def _built(options: PerturbArguments, settings: PerturbSettings, console: Console) -> list[Strategy]:
    """Build the strategies; in a group, skip those whose network or data are missing."""
    resources, absent = _resources(options, settings), left_out(options.strategy, settings)
    named = [part.strip() for part in options.strategy.split(",")]
    built: list[Strategy] = []
    missing: DataError | None = None
    for name in names(options.strategy):
        why = "name its network with --set perturb.paraphraser=RUN"
        if name not in absent:
            try:
                built += build([name], settings, resources)
                continue
            except DataError as error:
                if name in named:
                    raise
                missing, why = error, "; ".join(filter(None, (error.what, error.fix)))
        console.print(Text(f"{name} is left out: {why}"), soft_wrap=True)
    if not built and missing is not None:
        raise missing
    return built


def _progress_beats(console: Console, counts: Counts) -> AbstractContextManager[None]:
    """Report progress every few seconds inside the block, because the lines may go into a file."""
    stage = PlainScreen(console)
    stage.stage("perturbing", 0, "lines")

    def beat() -> None:
        stage.advance(counts.lines)

    return beating(beat)


def _resources(options: PerturbArguments, settings: PerturbSettings) -> Resources:
    if not options.model:
        return Resources(settings, data_root=options.data_root)
    folder = require_checkpoint(options.model, "--model", "parley train seq2seq")
    try:
        vocabulary = PairVocabulary.load(folder / "vocabulary.json")
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(
            "the words of --model cannot be read", where=folder, got=str(error), fix="name a model of replies or contexts"
        ) from None
    if vocabulary.merges is not None:
        return Resources(settings, vocabulary, data_root=options.data_root)
    common = [word for word in vocabulary.words if word not in SPECIALS]
    return Resources(settings, frozenset(common), common, options.data_root)


def _opened(path: Path | None) -> AbstractContextManager[IO[bytes]]:
    if path is None:
        return nullcontext(sys.stdin.buffer)
    try:
        return path.open("rb")
    except OSError as error:
        raise ConfigError("the lines cannot be read", where=path, got=error.strerror, fix="name a file with --input") from None


def _filter(file: IO[bytes], built: Sequence[Strategy], options: PerturbArguments, counts: Counts) -> None:
    """Read, perturb, write and count lines, a chunk at a time."""
    show = _Json() if options.json else MarkedLines()
    lines = _decoded(file, counts)
    while chunk := list(islice(lines, 1 if file.isatty() else CHUNK)):
        texts = Texts(chunk)
        contexts = texts.flat.contexts
        counts.empty += sum(not any(map(any, turns)) for turns in contexts)
        edits = [edits_of(texts, strategy, options.seed) for strategy in built]
        perturbed = [list(zip(texts.flat.replaced(changes), texts.rewritten(changes), strict=True)) for changes in edits]
        for row, (text, before) in enumerate(zip(chunk, contexts, strict=True)):
            for strategy, all_after in zip(built, perturbed, strict=True):
                after, text_after = all_after[row]
                counts.perturbed[strategy.name] += after != before
                show(counts.lines + row + 1, strategy.name, (text, text_after), (before, after))
        counts.lines += len(chunk)


def _decoded(file: IO[bytes], counts: Counts) -> Iterator[str]:
    for number, line in enumerate(file):
        text = line.rstrip(b"\r\n").removeprefix(b"" if number else BOM_UTF8)
        try:
            yield text.decode()
        except UnicodeDecodeError:
            counts.undecodable += 1
            yield text.decode(errors="replace")


class _Json:
    """One object a line."""

    def __call__(self, line: int, strategy: str, texts: tuple[str, str], contexts: tuple[Turns, Turns]) -> None:
        record = {
            "line": line,
            "strategy": strategy,
            "before": texts[0],
            "after": texts[1],
            "changed": num_changed(spans(*contexts)),
            "untouched": contexts[1] == contexts[0],
        }
        sys.stdout.write(f"{json.dumps(record)}\n")


def _summarise(console: Console, counts: Counts) -> None:
    untouched = {name: counts.lines - num for name, num in counts.perturbed.items()}
    rows = [(name, f"{num:,}", f"{untouched[name]:,}") for name, num in counts.perturbed.items()]
    title = f"{counts.lines:,} line{'s' * (counts.lines != 1)}"
    show_table(console, title, ("strategy", "perturbed", "untouched"), rows, right=("perturbed", "untouched"))
    if counts.empty:
        console.print(f"lines without a word, untouched: {counts.empty:,}")
    if counts.undecodable:
        console.print(f"lines with bytes that are not UTF-8, read as U+FFFD: {counts.undecodable:,}")
