"""`parley perturb`: lines of text before and after, with what changed. It is a filter and not a run, and keeps no folder.

Here the texts are the results, so they go to standard output also without --json; what is said about them goes to standard
error.
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
from itertools import islice
from pathlib import Path
from typing import IO, Annotated

from rich.console import Console
from rich.text import Text
from tyro import conf

from parley.engine.core.cli.flags import parse
from parley.engine.core.cli.screen import PlainScreen, beating
from parley.engine.core.cli.tables import make_console, show_table
from parley.engine.core.cli.verbs import Verb
from parley.engine.core.verbs.checkpoints import require_checkpoint
from parley.engine.perturb.augment import edits_of
from parley.engine.perturb.catalogue import build, left_out, names, strategies
from parley.engine.perturb.replies.catalogue import rules
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.perturb.resources import Resources
from parley.engine.perturb.settings import PerturbSettings
from parley.engine.perturb.strategies.changes import num_changed, spans
from parley.engine.perturb.strategies.swap import RandomSwap
from parley.engine.perturb.strategies.texts import Texts
from parley.engine.perturb.strategy import Strategy
from parley.engine.perturb.verbs.marked_lines import MarkedLines
from parley.engine.perturb.verbs.replies import attack_replies
from parley.envs.core.config import assign, overlay
from parley.envs.core.errors import CheckpointError, ConfigError, DataError
from parley.envs.core.ranges import Configuration, NonNegativeInt
from parley.envs.core.storage.copies import fetched_file
from parley.envs.corpora.pairs.turns import Turns
from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary

CHUNK = 1000
"""Lines perturbed at once; one where a person types them."""


@dataclass(frozen=True, kw_only=True)
class PerturbConfig:
    """What --config and --set reach."""

    perturb: PerturbSettings = field(default_factory=PerturbSettings)
    """How contexts are perturbed."""
    replies: ReplySettings = field(default_factory=ReplySettings)
    """How candidate replies are attacked."""


@dataclass(frozen=True, kw_only=True)
class PerturbArguments(Configuration):
    """Which strategies, over which lines."""

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
    """What is said at the end."""

    lines: int = 0
    empty: int = 0
    undecodable: int = 0
    perturbed: dict[str, int] = field(default_factory=dict)


def run_perturb(verb: Verb, arguments: Sequence[str]) -> int:
    """Perturbs lines of text, or candidate replies; returns the exit status."""
    asked = parse(PerturbArguments, verb, arguments)
    config = overlay(PerturbConfig(), fetched_file(asked.config), asked.config) if asked.config else PerturbConfig()
    config = assign(config, asked.set)
    console = make_console()
    # A terminal whose encoding lacks a character shows its escape.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if not asked.context:
            _perturb_lines(asked, config.perturb, console)
        else:
            _attack_replies(asked, asked.context, config, console)
        sys.stdout.flush()
    except BrokenPipeError:
        # Who read has enough. What Python still holds for standard output must not fail again when it is flushed at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _perturb_lines(asked: PerturbArguments, settings: PerturbSettings, console: Console) -> None:
    rule = next((name for name in names(asked.strategy) if name in rules and name not in strategies), None)
    if rule is not None:
        raise ConfigError(f"{rule} attacks candidate replies, not lines", where="STRATEGY", fix="name them with --context FILE")
    built = _built(asked, settings, console)
    _announce(settings, console)
    counts = Counts(perturbed=dict.fromkeys((strategy.name for strategy in built), 0))
    # Where somebody types, there is nothing to wait for.
    with _opened(asked.input) as file, nullcontext() if file.isatty() else _still_at_work(console, counts):
        _filter(file, built, asked, counts)
    sys.stdout.flush()
    _summarise(console, counts)
    if settings.rule == "paper" and counts.perturbed.get(RandomSwap.name, counts.lines) < counts.lines:
        few = f"utterances of fewer than {settings.swap_every} words"
        short = f"{RandomSwap.name} leaves {few} alone, and words that are equal (perturb.swap_every)"
        console.print(Text(short), soft_wrap=True)


def _attack_replies(asked: PerturbArguments, path: str, config: PerturbConfig, console: Console) -> None:
    if asked.input is not None:
        raise ConfigError("--context and --input name two files", fix="leave one of them out")
    _announce(config.perturb, console)
    shared = _resources(asked, config.perturb)
    attack_replies(asked.strategy, path, config.replies, shared, asked.seed, console, as_json=asked.json)


def _announce(settings: PerturbSettings, console: Console) -> None:
    if settings.lexicon == "built-in":
        from parley.engine.perturb.lexicon.built_in import ANNOUNCEMENT

        console.print(Text(ANNOUNCEMENT), soft_wrap=True)


def _built(asked: PerturbArguments, settings: PerturbSettings, console: Console) -> list[Strategy]:
    """The strategies one by one; of a group without those whose network or data are not there."""
    resources, absent = _resources(asked, settings), left_out(asked.strategy, settings)
    named = [part.strip() for part in asked.strategy.split(",")]
    built: list[Strategy] = []
    missing: DataError | None = None
    for name in names(asked.strategy):
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


def _still_at_work(console: Console, counts: Counts) -> AbstractContextManager[None]:
    """A block in which the time that has gone by is said every few seconds, where lines may go into a file unseen."""
    stage = PlainScreen(console)
    stage.stage("perturbing", 0, "lines")

    def beat() -> None:
        stage.advance(counts.lines)

    return beating(beat)


def _resources(asked: PerturbArguments, settings: PerturbSettings) -> Resources:
    if not asked.model:
        return Resources(settings, data_root=asked.data_root)
    folder = require_checkpoint(asked.model, "--model", "parley train seq2seq")
    try:
        vocabulary = PairVocabulary.load(folder / "vocabulary.json")
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(
            "the words of --model cannot be read", where=folder, got=str(error), fix="name a model of replies or contexts"
        ) from None
    if vocabulary.merges is not None:
        return Resources(settings, vocabulary, data_root=asked.data_root)
    common = [word for word in vocabulary.words if word not in SPECIALS]
    return Resources(settings, frozenset(common), common, asked.data_root)


def _opened(path: Path | None) -> AbstractContextManager[IO[bytes]]:
    if path is None:
        return nullcontext(sys.stdin.buffer)
    try:
        return path.open("rb")
    except OSError as error:
        raise ConfigError("the lines cannot be read", where=path, got=error.strerror, fix="name a file with --input") from None


def _filter(file: IO[bytes], built: Sequence[Strategy], asked: PerturbArguments, counts: Counts) -> None:
    """Reads, perturbs, writes and counts, some lines at a time."""
    show = _Json() if asked.json else MarkedLines()
    lines = _decoded(file, counts)
    while chunk := list(islice(lines, 1 if file.isatty() else CHUNK)):
        texts = Texts(chunk)
        contexts = texts.flat.contexts
        counts.empty += sum(not any(map(any, turns)) for turns in contexts)
        edits = [edits_of(texts, strategy, asked.seed) for strategy in built]
        perturbed = [list(zip(texts.flat.replaced(each), texts.rewritten(each), strict=True)) for each in edits]
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
