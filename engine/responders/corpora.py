"""The job behind `parley data`: list the corpora, get one, describe it, check it.

Every function returns a frozen dataclass of plain values, ready to be printed as a table or, through
`dataclasses.asdict`, as JSON. Screens and flags are the command line's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from parley.engine.responders.corpus_info import (
    CandidateCheck,
    CandidateInfo,
    ChatCheck,
    ChatInfo,
    DataCheck,
    Info,
    PairCheck,
    PairInfo,
    Problem,
    Spread,
    check_candidates,
    check_chats,
    check_pairs,
    describe_candidates,
    describe_chats,
    describe_pairs,
    problem,
    said_of,
    spread,
    where,
)
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.registry import nearest
from parley.envs.corpora.arrow import UNNAMED, DownloadError, Progress, download, missing_files, replacing
from parley.envs.corpora.arrow import data_root as resolve_data_root
from parley.envs.corpora.lines import CorpusFile, corpus_named, data_command, named_source, read_lines, whole_commands
from parley.envs.corpora.own_files import own_file
from parley.envs.corpora.pairs.compiled import open_pairs
from parley.envs.corpora.pairs.corpora import find_pairs, is_path, of_your_own, pair_corpora
from parley.envs.corpora.pairs.tokens import PairSource
from parley.envs.mutual_friends.compiled import ChatSource, friend_corpora, open_friends
from parley.envs.negotiation.corpora.catalogue import CorpusSource, FileCorpus, Split, corpora, find_negotiations, open_corpus
from parley.envs.negotiation.corpora.dealornodeal import rebuild_train
from parley.envs.negotiation.domain import DISAGREE, DISCONNECT, EOS_ID, NO_AGREEMENT, UNK_ID, Domain, Vocabulary
from parley.envs.ranking.compiled import open_candidates
from parley.envs.ranking.corpora import candidate_corpora, holds_rows, own_candidates
from parley.envs.ranking.sources import CandidateSource

TRAIN_FILE = "train.txt"
AnySource = CorpusSource | PairSource | CandidateSource | ChatSource
_REGISTRIES = (corpora, pair_corpora, candidate_corpora, friend_corpora)


@dataclass(frozen=True, kw_only=True)
class CorpusListing:
    """One row of `parley data list`."""

    name: str
    kind: str
    """Kind of its records: "negotiation", "pairs", "candidates" or "chats"."""
    summary: str
    licence: str
    where: str
    """Folder of the files, or that the corpus is generated."""
    present: bool
    """True if every file is there."""
    missing: tuple[str, ...]
    """Files that are not, with number of lines and size where they are fixed."""


@dataclass(frozen=True, kw_only=True)
class CorpusDelivery:
    """The result of `parley data get`."""

    name: str
    where: str
    """Folder of the files, or that the corpus is generated."""
    files: dict[str, str]
    """Result of each file: "kept", "downloaded" or "rebuilt from data.txt"."""
    compiled: str
    """Folder of the compiled form."""


@dataclass(frozen=True, kw_only=True)
class CorpusCheck(DataCheck):
    """The result of `parley data check`."""

    num_dialogues: dict[str, int]
    """Good dialogue lines of each split."""
    num_selfplay: int
    """Good self-play scenarios."""


@dataclass(frozen=True, kw_only=True)
class SplitInfo:
    """One split of a corpus in numbers."""

    name: str
    num_dialogues: int
    """Views of dialogues, one a line."""
    num_tokens: int
    """Dialogue tokens, markers included."""
    num_loader_tokens: int
    """The same with the six context numbers and six output tokens of each line, as the published loader counts."""
    unknown_rate: float
    """Share of dialogue tokens outside the vocabulary."""
    tokens: Spread
    """Tokens of a dialogue."""
    turns: Spread
    """Turns of a dialogue, the final `<selection>` included."""
    words: Spread
    """Words of an utterance, marker and `<eos>` left out."""
    outcomes: dict[str, int]
    """Dialogues that end in an allocation, disagreement, no agreement or disconnection."""
    num_scenarios: int
    """Distinct scenarios, sides in order."""
    choices: Spread
    """Legal selections of a dialogue, refusals included."""


@dataclass(frozen=True, kw_only=True)
class CorpusInfo(Info):
    """The result of `parley data info` for a corpus of negotiations."""

    threshold: int
    """Words are kept that occur more often than this."""
    game: str
    """Name of the game."""
    num_item_tokens: int
    num_context_values: int
    splits: tuple[SplitInfo, ...]
    num_selfplay: int
    """Self-play scenarios."""
    num_selfplay_distinct: int
    """The same without repetitions, sides in order."""
    selfplay_choices: Spread
    """Legal selections of a self-play scenario."""


AnyCheck = CorpusCheck | PairCheck | CandidateCheck | ChatCheck
AnyInfo = CorpusInfo | PairInfo | CandidateInfo | ChatInfo


def list_corpora(data_root: Path | None = None) -> list[CorpusListing]:
    """List every registered corpus, negotiations first, and whether its files are there."""
    root = resolve_data_root(data_root)
    return [_listing(find_corpus(name), root) for registry in _REGISTRIES for name in registry]


def find_corpus(name: str) -> AnySource:
    """Return the corpus of that name, of any kind.

    Args:
        name: a registered name, `path/file.py:NAME`, or a path of pairs or of candidates (see
            `parley.envs.corpora.pairs.corpora.is_path`).

    Raises:
        ConfigError: no such corpus, with the nearest name.
    """
    source: AnySource
    if is_path(name) and holds_rows(rows_file := own_file(name)):
        return own_candidates(rows_file)
    if is_path(name) or name in pair_corpora:
        return find_pairs(name)
    for registry in _REGISTRIES:
        if name in registry:
            source = registry.get(name)
            return source
    if ".py:" in name:
        # Of any kind; what is of none of the others has to be one of negotiations.
        source = named_source(corpora, name, "fingerprint")
        return find_negotiations(name) if _kind_of(source) is _NEGOTIATIONS else source
    names = sorted(name for registry in _REGISTRIES for name in registry)
    raise ConfigError(
        f"no corpus is called {name!r}{nearest(name, names)}",
        fix=f"known: {', '.join(names)}; or name your own: path/file.py:NAME, {of_your_own(name)}",
    )


def get_corpus(name: str, data_root: Path | None = None, progress: Progress | None = None) -> CorpusDelivery:
    """Download the missing and wrong files of a corpus, and compile it.

    Args:
        name: as for `find_corpus`.
        data_root: where its folder is made.
        progress: called after every chunk of every download.

    Raises:
        ConfigError: no such corpus.
        DataError: an address cannot be reached, or there is none (the message names each missing file and where to put it),
            or the files cannot be written or read.
    """
    source = find_corpus(name)
    root = resolve_data_root(data_root)
    files: dict[str, str] = {}
    if isinstance(source, FileCorpus):
        wrong = _absent(source, root)
        wrong += [file for file in source.files if file not in wrong and file.mismatch(source.folder(root) / file.name)]
        files = {file.name: "kept" for file in source.files if file not in wrong}
        # The training split comes last, because rebuilding it needs the others.
        for file in sorted(wrong, key=lambda file: file.name == TRAIN_FILE):
            try:
                files[file.name] = _obtain(source, file, root, progress)
            except DownloadError as error:
                raise _by_hand(source, root, error, data_command("check", name, data_root)) from None
    with corpus_named(name, data_root):
        compiled = _kind_of(source).open(source, root).folder
    return CorpusDelivery(name=source.name, where=where(source.folder(root)), files=files, compiled=str(compiled))


def check_corpus(name: str, data_root: Path | None = None) -> AnyCheck:
    """Read every line of a corpus and compare its files with the published ones.

    Returns:
        All that is wrong: missing files, files that differ from the published ones, and every broken line.
    """
    source = find_corpus(name)
    checked = _kind_of(source).check(source, resolve_data_root(data_root))
    problems = (replace(wrong, fix=whole_commands(wrong.fix or "", name, data_root) or None) for wrong in checked.problems)
    return replace(checked, problems=tuple(problems))


def _check_negotiations(source: CorpusSource, root: Path) -> CorpusCheck:
    text = source.read(root)
    problems = [*map(problem, text.broken)]
    folder = source.folder(root)
    if folder is not None:
        for file in source.files:
            path = folder / file.name
            difference = file.mismatch(path) if path.is_file() else ""
            if difference:
                what = f"the file differs from the published {file.describe()}"
                fix = f"{data_command('get', UNNAMED)} puts the published file there"
                problems.append(Problem(what=what, file=str(path), line=None, got=difference, fix=fix))
    problems.sort(key=lambda wrong: wrong.file)
    return CorpusCheck(
        name=source.name,
        where=where(source.folder(root)),
        num_dialogues={split: len(records) for split, records in text.splits.items()},
        num_selfplay=len(text.selfplay),
        problems=tuple(problems),
    )


def describe_corpus(name: str, data_root: Path | None = None) -> AnyInfo:
    """Describe a corpus in numbers, counted on its compiled form.

    Raises:
        DataError: files are missing or broken.
    """
    source = find_corpus(name)
    with corpus_named(name, data_root):
        return _kind_of(source).describe(source, resolve_data_root(data_root))


def _describe_negotiations(source: CorpusSource, root: Path) -> CorpusInfo:
    corpus = open_corpus(source, root)
    return CorpusInfo(
        **said_of(source, root),
        compiled=str(corpus.folder),
        num_words=len(corpus.vocabulary),
        threshold=source.threshold,
        game=corpus.vocabulary.game,
        num_item_tokens=len(corpus.vocabulary.domain.tokens),
        num_context_values=corpus.vocabulary.domain.largest + 1,
        splits=tuple(_split_info(name, split, corpus.vocabulary) for name, split in corpus.splits.items()),
        num_selfplay=len(corpus.selfplay),
        num_selfplay_distinct=len(set(corpus.selfplay)),
        selfplay_choices=_choices(corpus.vocabulary.domain, np.array([scenario.counts for scenario in corpus.selfplay])),
    )


def _obtain(source: FileCorpus, file: CorpusFile, root: Path, progress: Progress | None) -> str:
    target = source.folder(root) / file.name
    rebuildable = file.name == TRAIN_FILE and source.raw is not None
    if rebuildable and (target.parent / str(source.raw)).is_file():
        return _rebuild(source, file, root, progress)
    try:
        download(_address(source, file.name), target, file.mismatch, progress)
    except DownloadError:
        # Some copies of the published repository lack the file.
        if not rebuildable:
            raise
        return _rebuild(source, file, root, progress)
    return "downloaded"


def _rebuild(source: FileCorpus, file: CorpusFile, root: Path, progress: Progress | None) -> str:
    folder, raw_name = source.folder(root), str(source.raw)
    held_out = [line for split in ("val", "test") for line in read_lines(folder / f"{split}.txt")]
    with replacing(folder / file.name) as draft:
        raw = folder / raw_name
        if not raw.is_file():
            raw = draft.with_name(raw_name)
            download(_address(source, raw_name), raw, lambda path: "", progress)
        lines = rebuild_train(read_lines(raw), held_out, str(raw))
        draft.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")
        difference = file.mismatch(draft)
        if difference:
            raise DownloadError(f"{file.name} rebuilt from {raw_name} is not the published one", where=raw, got=difference)
    return f"rebuilt from {raw_name}"


def _address(source: FileCorpus, name: str) -> str:
    if source.address is None:
        raise DownloadError("the corpus has no address to download from", got=source.name)
    return f"{source.address}/{name}"


def _by_hand(source: FileCorpus, root: Path, error: DownloadError, check: str) -> DataError:
    folder = source.folder(root)
    files = [file for file in source.files if not (path := folder / file.name).is_file() or file.mismatch(path)]
    missing = "; ".join(file.describe() for file in files)
    instead = f" ({source.raw} will do in place of {TRAIN_FILE}: put it there and run this again)" if source.raw else ""
    return DataError(
        f"the corpus {source.name!r} cannot be downloaded: {error.what}",
        where=error.where,
        got=error.got,
        fix=f"put these files from {source.obtain} into {folder}: {missing}{instead}; then {check}",
    )


@dataclass(frozen=True)
class _Kind:
    """The functions for corpora of one kind."""

    name: str
    source: type
    """The protocol of its corpora."""
    open: Callable[[Any, Path], Any]
    check: Callable[[Any, Path], AnyCheck]
    describe: Callable[[Any, Path], AnyInfo]


_NEGOTIATIONS = _Kind("negotiation", object, open_corpus, _check_negotiations, _describe_negotiations)
_KINDS = (
    _Kind("pairs", PairSource, open_pairs, check_pairs, describe_pairs),
    _Kind("candidates", CandidateSource, open_candidates, check_candidates, describe_candidates),
    _Kind("chats", ChatSource, open_friends, check_chats, describe_chats),
    _NEGOTIATIONS,
)


def _kind_of(source: Any) -> _Kind:
    return next(kind for kind in _KINDS if isinstance(source, kind.source))


def _listing(source: Any, root: Path) -> CorpusListing:
    kind = _kind_of(source)
    missing = source.missing(root) if kind is not _NEGOTIATIONS else tuple(file.describe() for file in _absent(source, root))
    return CorpusListing(**said_of(source, root), kind=kind.name, present=not missing, missing=missing)


def _absent(source: CorpusSource, root: Path) -> list[CorpusFile]:
    folder = source.folder(root)
    if folder is None:
        return []
    names = missing_files(folder, [file.name for file in source.files])
    return [file for file in source.files if file.name in names]


def _split_info(name: str, split: Split, vocabulary: Vocabulary) -> SplitInfo:
    values, starts = split.token_values, split.offsets[:-1]
    is_marker = np.isin(values, (vocabulary.you_id, vocabulary.them_id))
    turn_starts = np.flatnonzero(is_marker)
    turn_lengths = np.diff(np.append(turn_starts, len(values)))
    closing = values[turn_starts + turn_lengths - 1]
    counts = split.contexts[:, ::2]
    kinds = split.outputs[:, 0]
    domain = vocabulary.domain
    refusals = {"disagree": DISAGREE, "no_agreement": NO_AGREEMENT, "disconnect": DISCONNECT}
    outcomes = {kind: int((kinds == domain.token_index[token]).sum()) for kind, token in refusals.items()}
    return SplitInfo(
        name=name,
        num_dialogues=len(split),
        num_tokens=len(values),
        num_loader_tokens=len(values) + len(split) * (split.contexts.shape[1] + split.outputs.shape[1]),
        unknown_rate=float((values == UNK_ID).mean()) if len(values) else 0.0,
        tokens=spread(split.lengths),
        turns=spread(np.add.reduceat(is_marker, starts) if len(split) else starts),
        words=spread(turn_lengths[closing == EOS_ID] - 2),
        outcomes={"items": int((kinds < domain.disagree_id).sum()), **outcomes},
        num_scenarios=len(np.unique(np.hstack([split.contexts, split.partner_values]), axis=0)),
        choices=_choices(domain, counts),
    )


def _choices(domain: Domain, counts_nK: np.ndarray) -> Spread:
    """Legal selections of scenarios with those counts: every deal and two refusals."""
    return spread(np.array([len(domain.selections(tuple(counts))) for counts in counts_nK.tolist()], dtype=np.int64))
