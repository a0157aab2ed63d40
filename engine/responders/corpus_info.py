"""The parts of `parley data` for corpora of chats, pairs and candidates, and for NLTK's data.

They report where a corpus lies, how its numbers are spread, and its errors; `parley data get nltk` fetches the NLTK data that
perturbations need.
"""

from __future__ import annotations

import io
import json
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from parley.engine.core.verbs.job import Reporter
from parley.engine.perturb.lexicon.nltk_lexicon import FOLDERS, missing_folders
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.corpora.lines import FileLine, Source
from parley.envs.corpora.pairs.compiled import PairSplit, nothing_to_learn, open_pairs
from parley.envs.corpora.pairs.tokens import PairSource
from parley.envs.corpora.pairs.vocabulary import UNK_ID
from parley.envs.mutual_friends.compiled import (
    LEXICON_FILE,
    PUBLISHED,
    SCHEMA_FILE,
    ChatSource,
    FriendsCorpus,
    load_friends,
    open_friends,
    write_chats,
)
from parley.envs.mutual_friends.game import ChatEvent, FriendsChat, Mention
from parley.envs.mutual_friends.scenario import Entity
from parley.envs.ranking.compiled import no_group, open_candidates
from parley.envs.ranking.groups import KINDS, CandidateOptions, CandidateSplit, Context
from parley.envs.ranking.sources import CandidateSource

NLTK = "nltk"
"""Name of NLTK's data in the place of a corpus."""
_OBTAIN = "https://www.nltk.org/nltk_data"


@dataclass(frozen=True, kw_only=True)
class LexicalDelivery:
    """The result of `parley data get nltk`."""

    name: str
    where: str
    """NLTK's data folder that missing packages are put into: the first of NLTK_DATA, else NLTK's own choice."""
    packages: dict[str, str]
    """Result of each package: "kept" or "downloaded"."""


def get_nltk(reporter: Reporter) -> LexicalDelivery:
    """Download the missing packages of NLTK's data with NLTK's own downloader.

    Raises:
        DataError: a package cannot be fetched; the fix names its folder.
    """
    from nltk.downloader import Downloader

    downloader = Downloader()
    where = os.environ.get("NLTK_DATA", "").split(os.pathsep)[0] or downloader.default_download_dir()
    missing = missing_folders()
    reporter.stage(NLTK, len(missing), "packages")
    for folder in missing:
        try:
            downloader.download(
                folder.rpartition("/")[2], download_dir=where, quiet=True, raise_on_error=True, print_error_to=io.StringIO()
            )
        except (OSError, ValueError) as error:
            raise _by_hand(where, missing, str(error)) from None
        reporter.advance(1)
    left = missing_folders()
    if left:
        raise _by_hand(where, left, "the downloader left nothing that NLTK finds")
    return LexicalDelivery(
        name=NLTK, where=where, packages={folder: "downloaded" if folder in missing else "kept" for folder in FOLDERS}
    )


def _by_hand(where: str, folders: list[str], reason: str) -> DataError:
    return DataError(
        "NLTK's data cannot be downloaded",
        where=_OBTAIN,
        got=reason.strip().partition("\n")[0],
        fix=f"on a machine that can reach it, get these packages, and put their folders or zip files into {where}: "
        f"{', '.join(folders)}; or do without: --set perturb.lexicon=built-in",
    )


GENERATED = "generated on this machine"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong with a corpus."""

    what: str
    file: str
    line: int | None
    """Counted from 1; none when the file as a whole is wrong."""
    got: str | None
    fix: str | None


@dataclass(frozen=True, kw_only=True)
class DataCheck:
    """The result of `parley data check` for a corpus of any kind."""

    name: str
    where: str
    problems: tuple[Problem, ...]
    """Everything that is wrong, file by file."""
    doubts: tuple[str, ...] = ()
    """Sentences on repeated rows and equal replies; the corpus can be used."""

    @property
    def exit_status(self) -> int:
        """0 when nothing is wrong, else 1."""
        return int(bool(self.problems))


@dataclass(frozen=True, kw_only=True)
class Info:
    """The result of `parley data info` for a corpus of any kind."""

    name: str
    summary: str
    licence: str
    where: str
    compiled: str
    num_words: int
    """Word ids, the specials included."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The spread of a number over dialogues or utterances."""

    mean: float
    median: float
    p95: float
    max: float


def where(folder: Path | None) -> str:
    """Return the folder of a corpus as text, or that the corpus is generated."""
    return GENERATED if folder is None else str(folder)


def said_of(source: Source, root: Path) -> dict[str, str]:
    """Return name, summary, licence and folder of a corpus, as `Info` holds them."""
    names = {"name": source.name, "summary": source.summary, "licence": source.licence}
    return {**names, "where": where(source.folder(root))}


def problem(error: DataError) -> Problem:
    """Turn the error of a reader into a problem."""
    position = error.where if isinstance(error.where, FileLine) else FileLine(str(error.where), 0)
    got = None if error.got is None else str(error.got)
    return Problem(what=error.what, file=position.source, line=position.line or None, got=got, fix=error.fix)


def spread(values: np.ndarray) -> Spread:
    """Return the spread of numbers (n,); zeros for no numbers."""
    if not len(values):
        return Spread(mean=0.0, median=0.0, p95=0.0, max=0.0)
    return Spread(
        mean=float(values.mean()),
        median=float(np.median(values)),
        p95=float(np.percentile(values, 95)),
        max=float(values.max()),
    )


@dataclass(frozen=True, kw_only=True)
class PairCheck(DataCheck):
    """The result of `parley data check` for a corpus of pairs."""

    num_utterances: dict[str, int]
    """Good utterances of each split."""
    num_pairs: dict[str, int]
    """Pairs of good utterances of each split."""


@dataclass(frozen=True, kw_only=True)
class PairSplitInfo:
    """One split of a corpus of pairs in numbers."""

    name: str
    num_pairs: int
    num_utterances: int
    num_tokens: int
    """Words and marks of all utterances."""
    unknown_rate: float
    """Share of them outside the vocabulary."""
    words: Spread
    """Words of an utterance."""
    source_words: Spread
    """Words of the source of a pair."""
    reply_words: Spread
    """Words of the reply of a pair."""


@dataclass(frozen=True, kw_only=True)
class PairInfo(Info):
    """The result of `parley data info` for a corpus of pairs."""

    splits: tuple[PairSplitInfo, ...]


def check_pairs(source: PairSource, root: Path) -> PairCheck:
    """Read every line of a corpus.

    Returns:
        All that is wrong: missing files and every broken line, or that there is no pair to train on.
    """
    text = source.read(root)
    # Where lines are broken or files missing, that is what is wrong.
    wrong = text.broken or list(filter(None, [nothing_to_learn(source, text, root)]))
    return PairCheck(
        name=source.name,
        where=where(source.folder(root)),
        num_utterances={name: split.num_utterances for name, split in text.splits.items()},
        num_pairs={name: split.num_pairs for name, split in text.splits.items()},
        problems=tuple(sorted(map(problem, wrong), key=lambda entry: entry.file)),
        doubts=_doubts({name: split.rows() for name, split in text.splits.items()}),
    )


def _doubts(rows_of: Mapping[str, Sequence[tuple[Any, ...]]]) -> tuple[str, ...]:
    """Say which splits have rows that repeat another, or equal right replies, the last of a row."""
    doubts = []
    for name, rows in rows_of.items():
        if repeated := len(rows) - len({*rows}):
            doubts.append(
                f"{name}: {repeated:,} of {len(rows):,} rows repeat another; equal contexts are one unit of intervals"
            )
        if len(rows) > 1 == len({row[-1] for row in rows}):
            doubts.append(f"{name}: all {len(rows):,} right replies are equal, so nothing can be told from them")
    return tuple(doubts)


def describe_pairs(source: PairSource, root: Path) -> PairInfo:
    """Describe a corpus in numbers, counted on its compiled form.

    Raises:
        DataError: files are missing or broken.
    """
    corpus = open_pairs(source, root)
    return PairInfo(
        **said_of(source, root),
        compiled=str(corpus.folder),
        num_words=len(corpus.vocabulary),
        splits=tuple(_split_info(name, split) for name, split in corpus.splits.items()),
    )


def _split_info(name: str, split: PairSplit) -> PairSplitInfo:
    values, lengths = split.utterances.values, split.utterances.lengths
    return PairSplitInfo(
        name=name,
        num_pairs=len(split),
        num_utterances=len(split.utterances),
        num_tokens=len(values),
        unknown_rate=float((values == UNK_ID).mean()) if len(values) else 0.0,
        words=spread(lengths),
        source_words=spread(lengths[split.pairs[:, 0]]),
        reply_words=spread(lengths[split.pairs[:, 1]]),
    )


@dataclass(frozen=True, kw_only=True)
class CandidateCheck(DataCheck):
    """The result of `parley data check` for a corpus of candidates."""

    num_groups: dict[str, int]
    """Good groups of each split."""
    turns: int
    """The most turns of a context by default (`candidates.turns`)."""
    num_cut: dict[str, int]
    """Groups of each split whose contexts have more."""
    mended: tuple[Problem, ...]
    """Lines that are read in another way than they are written; the corpus can be used."""
    long: tuple[str, ...]
    """Unusually long records, in sentences that name files and lines; the corpus can be used."""


@dataclass(frozen=True, kw_only=True)
class CandidateSplitInfo:
    """One split of a corpus of candidates in numbers."""

    name: str
    num_groups: int
    num_seen: int
    """Groups whose context the training split has too; 0 for that split itself."""
    num_several: int
    """Groups of several right replies."""
    num_one_sided: int
    """Groups without a right reply, or without a wrong one."""
    num_cut: int
    """Groups whose contexts have lost their oldest turns (`candidates.turns`)."""
    num_kinds: dict[str, int]
    """Candidates by where they come from."""
    size: Spread
    """Candidates of a group."""
    turns: Spread
    """Turns of a context."""
    turn_words: Spread
    """Words of a turn."""
    right_words: Spread
    """Words of a right reply."""
    wrong_words: Spread
    """Words of a wrong reply."""


@dataclass(frozen=True, kw_only=True)
class CandidateInfo(Info):
    """The result of `parley data info` for a corpus of candidates."""

    language: str
    num_mended: int
    """Lines that are read otherwise than they stand."""
    lacking: dict[str, str]
    """Splits that lack replies to draw wrong ones from, each with the reason; they are not among the others."""
    splits: tuple[CandidateSplitInfo, ...]


def check_candidates(source: CandidateSource, root: Path) -> CandidateCheck:
    """Read every line of a corpus.

    Returns:
        All that is wrong: missing files and every broken line, or that there is no group. And what was mended.
    """
    turns = CandidateOptions().turns
    text = source.read_groups(root, turns + 1)
    wrong = text.broken or list(filter(None, [no_group(source, text, root)]))
    return CandidateCheck(
        name=source.name,
        where=where(source.folder(root)),
        num_groups={name: len(split) for name, split in text.splits.items()},
        turns=turns,
        num_cut={name: split.num_longer(turns) for name, split in text.splits.items()},
        problems=tuple(sorted(map(problem, wrong), key=lambda entry: entry.file)),
        mended=tuple(map(problem, text.mended)),
        long=text.long_told(),
        doubts=_doubts({name: split.rows() for name, split in text.splits.items()}),
    )


def describe_candidates(source: CandidateSource, root: Path) -> CandidateInfo:
    """Describe a corpus in numbers, counted on its compiled form.

    Raises:
        DataError: files are missing or broken.
    """
    corpus = open_candidates(source, root)
    trained = set(_contexts(corpus.splits["train"]))
    return CandidateInfo(
        **said_of(source, root),
        compiled=str(corpus.folder),
        num_words=len(corpus.splits["train"].vocabulary),
        language=corpus.language,
        num_mended=corpus.num_mended,
        lacking=corpus.lacking,
        splits=tuple(
            _split_info_candidates(split, trained if name != "train" else set()) for name, split in corpus.splits.items()
        ),
    )


def _contexts(split: CandidateSplit) -> Iterator[Context]:
    return (tuple(map(split.utterance_of, split.contexts[row])) for row in range(len(split)))


def _split_info_candidates(split: CandidateSplit, trained: Collection[Context]) -> CandidateSplitInfo:
    words = split.utterances.lengths
    num_right = np.bincount(split.positives()[:, 0], minlength=len(split))
    reply_words = words[split.candidates.values]
    kinds = Counter(split.kinds.tolist())
    return CandidateSplitInfo(
        name=split.name,
        num_groups=len(split),
        num_seen=sum(context in trained for context in _contexts(split)),
        num_several=int((num_right > 1).sum()),
        num_one_sided=int(((num_right == 0) | (num_right == split.candidates.lengths)).sum()),
        num_cut=int(split.is_cut.sum()),
        num_kinds={str(kind): kinds[index] for index, kind in enumerate(KINDS) if kinds[index]},
        size=spread(split.candidates.lengths),
        turns=spread(split.contexts.lengths),
        turn_words=spread(words[split.contexts.values]),
        right_words=spread(reply_words[split.labels]),
        wrong_words=spread(reply_words[~split.labels]),
    )


@dataclass(frozen=True, kw_only=True)
class ChatCheck(DataCheck):
    """The result of `parley data check` for a corpus of chats."""

    num_chats: dict[str, int]
    """Good chats of each split."""


@dataclass(frozen=True, kw_only=True)
class ChatSplitInfo:
    """One split of a corpus of chats in numbers."""

    name: str
    num_chats: int
    completion: float
    """Share of chats in which both sides select their common friend."""
    events: Spread
    """Utterances and selections of a chat."""
    selections: Spread
    """Selections of a chat, of both sides."""
    words: Spread
    """Words of an utterance."""
    entities: Spread
    """Entities of an utterance."""
    named: float
    """Share of utterances with an entity."""
    in_own_table: float
    """Share of the entities of utterances that stand in the speaker's table."""
    in_a_table: float
    """Share of them that stand in the speaker's or the listener's."""
    selected_named: float
    """Share of the values of selected friends that either side had named before."""
    items: Spread
    """Friends of a table."""


@dataclass(frozen=True, kw_only=True)
class ChatInfo(Info):
    """The result of `parley data info` for chats; `num_words` counts words of training utterances outside entities."""

    num_entities: dict[str, int]
    """Values of each category of the schema."""
    num_forms: int
    """Different spellings in the lexicon."""
    splits: tuple[ChatSplitInfo, ...]


def check_chats(source: ChatSource, root: Path) -> ChatCheck:
    """Read every chat of a corpus.

    Returns:
        All that is wrong: missing files and every broken chat.
    """
    try:
        text = source.read_text(root)
        broken, sizes = text.broken, {split: len(chats) for split, chats in text.splits.items()}
    except DataError as error:
        # Without a schema or a lexicon no chat can be read.
        broken, sizes = [error], dict.fromkeys(PUBLISHED, 0)
    problems = tuple(sorted(map(problem, broken), key=lambda entry: entry.file))
    return ChatCheck(name=source.name, where=where(source.folder(root)), num_chats=sizes, problems=problems)


def describe_chats(source: ChatSource, root: Path) -> ChatInfo:
    """Describe a corpus in numbers, counted on its compiled form.

    Raises:
        DataError: files are missing or broken.
    """
    corpus = open_friends(source, root)
    return ChatInfo(
        **said_of(source, root),
        compiled=str(corpus.folder),
        num_words=len(corpus.words),
        num_entities={kind: len(values) for kind, values in corpus.schema.values.items()},
        num_forms=len(set(corpus.forms)),
        splits=tuple(describe_split(name, list(split)) for name, split in corpus.splits.items()),
    )


def describe_split(name: str, chats: Sequence[FriendsChat]) -> ChatSplitInfo:
    """Describe chats in numbers."""
    utterances = [event.tokens for chat in chats for event in chat.events if event.selected is None]
    named = np.array([sum(isinstance(token, Mention) for token in tokens) for tokens in utterances])
    mentions = [(entity, event.side, chat.scenario) for chat in chats for event in chat.events for entity in _entities(event)]
    return ChatSplitInfo(
        name=name,
        num_chats=len(chats),
        completion=sum(chat.agreed for chat in chats) / max(1, len(chats)),
        events=spread(np.array([len(chat.events) for chat in chats])),
        selections=spread(np.array([chat.num_selections(0) + chat.num_selections(1) for chat in chats])),
        words=spread(np.array([len(event.words) for chat in chats for event in chat.events if event.selected is None])),
        entities=spread(named),
        named=float((named > 0).mean()) if len(named) else 0.0,
        in_own_table=_share([mention in scenario.mentionable[side] for mention, side, scenario in mentions]),
        in_a_table=_share([mention in scenario.all_mentionable for mention, _, scenario in mentions]),
        selected_named=_share([is_named for chat in chats for is_named in _selected_named(chat)]),
        items=spread(np.array([len(chat.scenario.tables[0]) for chat in chats])),
    )


def _entities(event: ChatEvent) -> list[Entity]:
    return [token.entity for token in event.tokens if isinstance(token, Mention)]


def _selected_named(chat: FriendsChat) -> Iterator[bool]:
    """Yield for each value of each selected friend whether a side had named it."""
    named: set[Entity] = set()
    for event in chat.events:
        if event.selected is not None:
            yield from (entity in named for entity in chat.scenario.entities[event.side][event.selected])
        named.update(_entities(event))


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / max(1, len(flags))


def export_chats(name: str, folder: Path, data_root: Path | None = None) -> tuple[str, ...]:
    """Write a corpus of chats in the published format, with schema and lexicon.

    Args:
        name: a registered corpus of chats, or `path/file.py:NAME`.
        folder: where the files go; made where it is not there.
        data_root: where the corpora lie.

    Returns:
        The files written.

    Raises:
        ConfigError: no such corpus of chats, or the folder holds one of the files already.
        DataError: the corpus has missing or broken files, or the folder cannot be written.
    """
    folder = folder.expanduser()
    files = {split: folder / file for split, file in PUBLISHED.items()}
    schema, lexicon = folder / SCHEMA_FILE, folder / LEXICON_FILE
    existing = [path.name for path in (*files.values(), schema, lexicon) if path.exists()]
    if existing:
        raise ConfigError("the folder is not empty", where=folder, got=", ".join(existing), fix="name another folder")
    corpus = load_friends(name, data_root)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # All files or none: half of a split would read as a corpus, and its file would be in the way of the next try.
        with TemporaryDirectory(dir=folder, prefix=".export-") as aside:
            for split, path in files.items():
                write_chats(Path(aside, path.name), corpus.splits[split])
            _write_known(corpus, Path(aside, SCHEMA_FILE), Path(aside, LEXICON_FILE))
            for path in (*files.values(), schema, lexicon):
                Path(aside, path.name).replace(path)
    except OSError as error:
        fix = "free some space there, or name a folder that you may write"
        raise DataError("the corpus cannot be written", where=folder, got=error.strerror, fix=fix) from None
    return tuple(str(path) for path in (*files.values(), schema, lexicon))


def _write_known(corpus: FriendsCorpus, schema: Path, lexicon: Path) -> None:
    attributes = [
        {"name": attribute.name, "value_type": attribute.type, "unique": attribute.unique}
        for attribute in corpus.schema.attributes
    ]
    entries = {"attributes": attributes, "values": {kind: list(values) for kind, values in corpus.schema.values.items()}}
    schema.write_text(json.dumps(entries, ensure_ascii=False), encoding="utf-8")
    lines = [f"{entity.value}\t{' '.join(words)}\t{entity.type}\n" for entity, words in corpus.forms]
    lexicon.write_text("".join(lines), encoding="utf-8")
