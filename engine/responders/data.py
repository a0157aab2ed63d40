"""`parley data list|get|info|check|export`: the corpora on this machine."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.text import Text
from tyro import conf

from parley.engine.core.cli.flags import parse
from parley.engine.core.cli.main import Verb
from parley.engine.core.cli.screen import make_console, show_lines, show_table, watching
from parley.engine.core.verbs.job import Reporter
from parley.engine.responders.corpora import CorpusInfo, SplitInfo, check_corpus, describe_corpus, get_corpus, list_corpora
from parley.engine.responders.corpus_info import (
    NLTK,
    CandidateCheck,
    CandidateInfo,
    CandidateSplitInfo,
    ChatCheck,
    ChatInfo,
    ChatSplitInfo,
    PairCheck,
    PairInfo,
    PairSplitInfo,
    Problem,
    export_chats,
    get_nltk,
)
from parley.envs.corpora.arrow import Progress, root_words
from parley.envs.corpora.lines import data_command
from parley.envs.corpora.own_files import own_file
from parley.envs.corpora.pairs.compiled import nothing_to_measure
from parley.envs.corpora.pairs.corpora import is_path
from parley.envs.ranking.groups import CandidateKind

_MOST_OF_A_KIND = 10
"""Problems of one kind that are shown."""


@dataclass(frozen=True, kw_only=True)
class DataArguments:
    """The folder of corpora, and the form of the output."""

    data_root: Annotated[Path | None, conf.arg(metavar="PATH", help_behavior_hint="")] = None
    """Folder of corpora; PARLEY_DATA or the user cache folder when not given."""
    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print one JSON object on standard output."""


@dataclass(frozen=True, kw_only=True)
class CorpusArguments(DataArguments):
    """The corpus, its folder, and the form of the output."""

    name: Annotated[conf.Positional[str], conf.arg(metavar="NAME")]
    """Registered corpus (parley data list), path/file.py:NAME, or a path: lines source<TAB>reply, rows
    label<TAB>turn<TAB>...<TAB>response, or a table with columns (FILE.csv#context=question,reply=answer,shares=70:15:15)."""


@dataclass(frozen=True, kw_only=True)
class ExportArguments(DataArguments):
    """The corpus to export, and the folder for it."""

    name: Annotated[conf.Positional[str], conf.arg(metavar="NAME")]
    """Corpus of chats (parley data list), or path/file.py:NAME."""
    folder: Annotated[conf.Positional[Path], conf.arg(metavar="FOLDER")]
    """Folder for train.json, dev.json, test.json, schema.json and inverse_lexicon_data.txt."""


def run_list(verb: Verb, arguments: Sequence[str]) -> int:
    """List the corpora and return the exit status."""
    options = parse(DataArguments, verb, arguments)
    listings = list_corpora(options.data_root)
    if options.json:
        return _print({"corpora": [asdict(listing) for listing in listings]})
    rows = [
        (listing.name, listing.kind, "yes" if listing.present else "no", listing.licence, listing.where, listing.summary)
        for listing in listings
    ]
    console = make_console()
    show_table(console, "Corpora", ("name", "kind", "here", "licence", "where", "what it is"), rows)
    absent = [data_command("get", listing.name, options.data_root) for listing in listings if not listing.present]
    show_lines(console, "next", absent or [data_command("info", "embedded", options.data_root)])
    return 0


def run_get(verb: Verb, arguments: Sequence[str]) -> int:
    """Download and compile a corpus, or the packages of NLTK's data; return the exit status."""
    options = parse(CorpusArguments, verb, arguments)
    if options.name == NLTK:
        return _get_nltk(options)
    with watching() as reporter:
        delivery = get_corpus(options.name, options.data_root, _download_progress(reporter))
    if options.json:
        return _print(asdict(delivery))
    console = make_console()
    if delivery.files:
        show_table(console, f"{delivery.name}, {delivery.where}", ("file", "what was done"), [*delivery.files.items()])
    show_lines(console, "files", [delivery.compiled])
    show_lines(console, "next", [data_command(verb, options.name, options.data_root) for verb in ("info", "check")])
    return 0


def run_info(verb: Verb, arguments: Sequence[str]) -> int:
    """Describe a corpus and return the exit status."""
    options = parse(CorpusArguments, verb, arguments)
    with watching():
        info = describe_corpus(options.name, options.data_root)
    if options.json:
        return _print(asdict(info))
    console = make_console()
    facts = [
        ("what it is", info.summary),
        ("licence", info.licence),
        ("where", info.where),
        ("compiled", info.compiled),
        *_facts(info),
    ]
    show_table(console, info.name, ("fact", "value"), facts)
    columns = ("", *(split.name for split in info.splits))
    facts_of_splits = zip(*(_split_facts(split) for split in info.splits), strict=True)
    rows = [(facts[0][0], *(value for _, value in facts)) for facts in facts_of_splits]
    show_table(console, "splits", columns, rows, right=columns[1:])
    further = [data_command("check", options.name, options.data_root)]
    if isinstance(info, ChatInfo):
        further.append(shlex.join(["parley", "data", "export", options.name, "FOLDER", *root_words(options.data_root)]))
    elif not isinstance(info, CandidateInfo):
        learner = "seq2seq" if isinstance(info, PairInfo) else "negotiator"
        further.append(shlex.join(["parley", "train", learner, "--corpus", options.name, *root_words(options.data_root)]))
    show_lines(console, "next", further)
    return 0


def run_check(verb: Verb, arguments: Sequence[str]) -> int:
    """Check a corpus and return the exit status: 1 for a corpus with problems."""
    options = parse(CorpusArguments, verb, arguments)
    with watching():
        checked = check_corpus(options.name, options.data_root)
    if options.json:
        _print({**asdict(checked), "ok": not checked.problems})
        return checked.exit_status
    console = make_console()
    if isinstance(checked, PairCheck):
        counts = {"good utterances": checked.num_utterances, "pairs": checked.num_pairs}
    elif isinstance(checked, CandidateCheck):
        counts = {"good groups": checked.num_groups, f"with more than {checked.turns} turns": checked.num_cut}
    elif isinstance(checked, ChatCheck):
        counts = {"good chats": checked.num_chats}
    else:
        counts = {"good lines": {**checked.num_dialogues, "self-play scenarios": checked.num_selfplay}}
    if any(num for column in counts.values() for num in column.values()):
        rows = [(part, *(f"{column[part]:,}" for column in counts.values())) for part in next(iter(counts.values()))]
        show_table(console, f"{checked.name}, {checked.where}", ("part", *counts), rows, right=(*counts,))
    if isinstance(checked, CandidateCheck):
        if checked.mended:
            show_lines(console, f"{len(checked.mended):,} read otherwise", _capped(checked.mended))
        show_lines(console, "unusually long", checked.long)
    show_lines(console, "look at", checked.doubts)
    if is_path(options.name) and (shares := own_file(options.name).told_shares):
        console.print(Text(f"\n{shares}"), soft_wrap=True)
    heading = f"{len(checked.problems):,} problem{'s' * (len(checked.problems) > 1)}"
    show_lines(console, heading, _capped(checked.problems))
    if not checked.problems:
        console.print("\nnothing is wrong")
        if isinstance(checked, PairCheck) and (small := nothing_to_measure(checked.name, checked.num_pairs)):
            console.print(Text(f"but it is too small to train on: {small.got}; {small.fix}"), soft_wrap=True)
    return checked.exit_status


def run_export(verb: Verb, arguments: Sequence[str]) -> int:
    """Write a corpus of chats in its published format and return the exit status."""
    options = parse(ExportArguments, verb, arguments)
    with watching():
        files = export_chats(options.name, options.folder, options.data_root)
    if options.json:
        return _print({"files": files})
    show_lines(make_console(), "files", files)
    return 0


def _get_nltk(options: CorpusArguments) -> int:
    with watching() as reporter:
        delivery = get_nltk(reporter)
    if options.json:
        return _print(asdict(delivery))
    console = make_console()
    show_table(console, f"{delivery.name}, {delivery.where}", ("package", "what was done"), [*delivery.packages.items()])
    show_lines(console, "next", ['echo "I like it" | parley perturb antonym'])
    return 0


def _facts(info: CorpusInfo | PairInfo | CandidateInfo | ChatInfo) -> list[tuple[str, str]]:
    if isinstance(info, CandidateInfo):
        mended = [("read otherwise", f"{info.num_mended:,} lines, which data check names")] * bool(info.num_mended)
        return [
            ("vocabulary", f"{info.num_words:,} words, all that occur"),
            ("language", info.language),
            *mended,
            *info.lacking.items(),
        ]
    if isinstance(info, ChatInfo):
        values = ", ".join(f"{num:,} {kind}" for kind, num in info.num_entities.items())
        plain = f"{info.num_words:,} words of training utterances outside entities"
        return [("vocabulary", plain), ("values", values), ("spellings of values", f"{info.num_forms:,}")]
    if isinstance(info, PairInfo):
        return [("vocabulary", f"{info.num_words:,} words, the most frequent ones")]
    return [
        ("game", info.game),
        ("vocabulary", f"{info.num_words:,} words, those that occur more than {info.threshold} times"),
        ("scenarios to play", f"{info.num_selfplay:,}, {info.num_selfplay_distinct:,} distinct"),
    ]


def _split_facts(split: SplitInfo | PairSplitInfo | CandidateSplitInfo | ChatSplitInfo) -> list[tuple[str, str]]:
    if isinstance(split, CandidateSplitInfo):
        lengths = {"a turn": split.turn_words, "a right reply": split.right_words, "a wrong reply": split.wrong_words}
        return [
            ("contexts", f"{split.num_groups:,}"),
            ("contexts that train has", f"{split.num_seen:,}"),
            ("candidates of a context", f"{split.size.mean:.1f}"),
            *((f"candidates: {kind}", f"{split.num_kinds.get(kind, 0):,}") for kind in CandidateKind),
            ("several right replies", f"{split.num_several:,}"),
            ("no right or no wrong reply", f"{split.num_one_sided:,}"),
            ("turns of a context", f"{split.turns.mean:.1f}"),
            ("contexts that lost older turns", f"{split.num_cut:,}"),
            *((f"words of {part}, mean", f"{words.mean:.1f}") for part, words in lengths.items()),
            *((f"words of {part}, p95", f"{words.p95:.0f}") for part, words in lengths.items()),
        ]
    if isinstance(split, ChatSplitInfo):
        return [
            ("chats", f"{split.num_chats:,}"),
            ("completion", f"{split.completion:.2f}"),
            ("turns of a chat", f"{split.events.mean:.2f}"),
            ("turns of a chat, p95", f"{split.events.p95:.0f}"),
            ("selections of a chat", f"{split.selections.mean:.2f}"),
            ("words of an utterance", f"{split.words.mean:.2f}"),
            ("entities of an utterance", f"{split.entities.mean:.2f}"),
            ("utterances with an entity", f"{split.named:.1%}"),
            ("entities in the speaker's table", f"{split.in_own_table:.1%}"),
            ("entities in either table", f"{split.in_a_table:.1%}"),
            ("values of a selection named before", f"{split.selected_named:.1%}"),
            ("friends of a table", f"{split.items.mean:.1f}"),
        ]
    if isinstance(split, PairSplitInfo):
        lengths = {"an utterance": split.words, "a source": split.source_words, "a reply": split.reply_words}
        return [
            ("pairs", f"{split.num_pairs:,}"),
            ("utterances", f"{split.num_utterances:,}"),
            ("tokens", f"{split.num_tokens:,}"),
            ("unknown words", f"{split.unknown_rate:.2%}"),
            *((f"words of {part}, mean", f"{words.mean:.1f}") for part, words in lengths.items()),
            *((f"words of {part}, p95", f"{words.p95:.0f}") for part, words in lengths.items()),
        ]
    return [
        ("dialogues", f"{split.num_dialogues:,}"),
        ("tokens", f"{split.num_tokens:,}"),
        ("unknown words", f"{split.unknown_rate:.2%}"),
        ("tokens of a dialogue", f"{split.tokens.mean:.1f}"),
        ("turns of a dialogue", f"{split.turns.mean:.1f}"),
        ("words of an utterance", f"{split.words.mean:.1f}"),
        ("scenarios", f"{split.num_scenarios:,}"),
        *((f"ends: {name.replace('_', ' ')}", f"{num:,}") for name, num in split.outcomes.items()),
    ]


def _capped(problems: Sequence[Problem]) -> list[str]:
    """Return a line for each problem, for at most `_MOST_OF_A_KIND` of a kind, then the number of the others."""
    counts, lines = Counter(problem.what for problem in problems), list[str]()
    shown = Counter[str]()
    for problem in problems:
        shown[problem.what] += 1
        if shown[problem.what] <= _MOST_OF_A_KIND:
            lines.append(_line(problem))
    more = {what: num - _MOST_OF_A_KIND for what, num in counts.items() if num > _MOST_OF_A_KIND}
    return lines + [f"{num:,} more like this, which --json lists: {what}" for what, num in more.items()]


def _line(problem: Problem) -> str:
    position = problem.file if problem.line is None else f"{problem.file}:{problem.line}"
    details = [f"got {problem.got}" if problem.got else "", problem.fix or ""]
    return "; ".join([f"{position}: {problem.what}", *(detail for detail in details if detail)])


def _download_progress(reporter: Reporter) -> Progress:
    current: list[str] = []

    def progress(name: str, num_bytes: int, total: int | None) -> None:
        if current != [name]:
            current[:] = [name]
            reporter.stage(name, total or 0, "bytes")
        reporter.advance(num_bytes)

    return progress


def _print(answer: dict[str, Any]) -> int:
    sys.stdout.write(f"{json.dumps(answer)}\n")
    return 0
