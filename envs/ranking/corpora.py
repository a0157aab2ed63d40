"""The registered corpora of candidates, the reader of DailyDialog++, and conformance tests of corpora and proposers.

Every corpus of pairs is also a corpus of candidates. A registered corpus has a licence, its files and a reader.

DailyDialog++ (Sai et al. 2020): contexts with replies that people wrote, right and misleading ones.

    data_positives.jsonl   7,641 contexts of 5 right replies: training, one group per reply, whose wrong replies are drawn
    dev.jsonl              1,028 contexts of 5 right, 5 misleading and 5 random replies: validation
    test.jsonl             1,142 of the same: test

A line is a JSON object of "context" (turns, oldest first) and lists of replies. A few wrong replies have the words of a right
one of their context; they are left out (`CandidateText.mended`).
"""

from __future__ import annotations

from functools import partial
from glob import escape
from itertools import islice
from pathlib import Path
from typing import Any

from parley.envs.core.conformance import Kind, expect, same_alone
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.registry import Registry, nearest
from parley.envs.corpora.arrow import data_root
from parley.envs.corpora.lines import has_its_files, keeps_its_fingerprint, located, named_source, read_lines, stream_lines
from parley.envs.corpora.own_files import LABEL, OwnFile, own_file, split_files, split_named
from parley.envs.corpora.pairs.corpora import find_pairs, is_path, of_your_own, pair_corpora
from parley.envs.corpora.pairs.recorded import CONTEXT, FILES, POSITIVE, parse_lists
from parley.envs.corpora.pairs.tokens import cutter_version
from parley.envs.ranking.groups import CandidateGroup, CandidateKind, CandidateOptions
from parley.envs.ranking.sources import (
    Candidate,
    CandidateSource,
    CandidateText,
    FileCandidates,
    ListedReply,
    PairCandidates,
    read_rows,
)


def _has_groups_to_rank(source: Any) -> None:
    """Read its files without a broken line, and find groups."""
    splits = source.read_groups(data_root(), CandidateOptions().turns).require_whole().splits
    groups = {name: len(split) for name, split in splits.items()}
    expect(any(groups.values()), "groups in train, val or test", groups)


CANDIDATE_CORPUS = Kind(
    "corpus of candidates",
    "parley.envs.ranking.sources.CandidateSource",
    ("read_groups", "fingerprint", "require_files"),
    lambda named: named,
    (has_its_files, _has_groups_to_rank, keeps_its_fingerprint),
)


_REPLIES = (("please", "try", "another", "cable", "today", "."), ("thanks",), (), ("which", "printers", "are", "broken", "?"))
_CONTEXT = (("my", "printer", "is", "broken", "."), ("does", "it", "print", "pages", "slowly", "?"), ())
_GROUP = CandidateGroup(
    "conformance", _CONTEXT, _REPLIES, (True, False, False, False), (CandidateKind.NEGATIVE,) * 4, (True,) * 4
)


def _made(named: Any) -> Any:
    return named() if callable(named) else named


def _proposes_words_for_every_place(proposer: Any) -> None:
    """Propose a list of other words for each word of a reply, empty ones and empty replies included."""
    for i, reply in enumerate(_REPLIES):
        proposals = proposer.propose(_GROUP, i)
        expect(len(proposals) == len(reply), f"{len(reply)} lists of words", len(proposals))
        for word, alternatives in zip(reply, proposals, strict=True):
            are_words = all(isinstance(alternative, str) and alternative for alternative in alternatives)
            expect(are_words and not isinstance(alternatives, str), "lists of words that are not empty", repr(alternatives))
            expect(word not in alternatives, f"other words than {word!r}", repr(alternatives))


def _proposes_the_same_again(proposer: Any) -> None:
    first, second = ([list(map(list, proposer.propose(_GROUP, i))) for i in range(len(_REPLIES))] for _ in range(2))
    same_alone(first, second, "what is proposed for a reply")


PROPOSER = Kind(
    "proposer of words",
    "parley.envs.ranking.edit_game.Proposer",
    ("propose",),
    _made,
    (_proposes_words_for_every_place, _proposes_the_same_again),
)


REPLIES = {
    POSITIVE: CandidateKind.POSITIVE,
    "adversarial_negative_responses": CandidateKind.ADVERSARIAL,
    "random_negative_responses": CandidateKind.RANDOM,
}


def read_dailydialog(folder: Path) -> CandidateText:
    """Read the three files.

    Args:
        folder: their folder.
    """
    text = CandidateText()
    for name, file in FILES.items():
        split, path = text.splits[name], folder / file
        split.is_drawn = name == "train"
        for number, line in enumerate(read_lines(path), 1):
            try:
                context, replies = parse_line(line, positives_only=split.is_drawn)
            except DataError as error:
                text.broken.append(located(error, str(path), number))
                continue
            if not split.is_drawn:
                listed = [ListedReply(number, words, kind is CandidateKind.POSITIVE, kind) for words, kind in replies]
                text.listed(name, path, number, context, listed)
                continue
            turns = [split.add(turn) for turn in context]
            for words, kind in replies:
                split.group(turns, [Candidate(split.add(words), True, kind)], dialogue=number)
    return text


def parse_line(line: str, positives_only: bool) -> tuple[list[list[str]], list[tuple[list[str], CandidateKind]]]:
    """Parse one line.

    Args:
        line: a JSON object.
        positives_only: whether the line has only right replies.

    Returns:
        The words of each turn, and of each reply with its kind.

    Raises:
        DataError: the line has another form, lacks a list, or holds an utterance without a word.
    """
    kinds = {name: kind for name, kind in REPLIES.items() if kind is CandidateKind.POSITIVE or not positives_only}
    context, *lists = parse_lists(line, CONTEXT, *kinds)
    return context, [(words, kind) for kind, listed in zip(kinds.values(), lists, strict=True) for words in listed]


candidate_corpora = Registry("corpus of candidates", "parley.candidates")

_LOOKED_AT = 100
"""Number of lines that are tested for rows or pairs."""


def find_candidates(name: str) -> CandidateSource:
    """Return the corpus of that name.

    Args:
        name: a registered name of candidates or pairs, `path/file.py:NAME` of either, or a path: a file or folder of rows
            (`own_candidates`) or of pairs (`parley.envs.corpora.pairs.corpora.find_pairs`).

    Raises:
        ConfigError: an unknown corpus (with the nearest name).
    """
    if is_path(name):
        user_file = own_file(name)
        return own_candidates(user_file) if holds_rows(user_file) else PairCandidates(pairs=find_pairs(name))
    if name in pair_corpora:
        return PairCandidates(pairs=find_pairs(name))
    if name in candidate_corpora or ".py:" in name:
        source = named_source(candidate_corpora, name, "fingerprint")
        if isinstance(source, CandidateSource):
            return source
        return PairCandidates(pairs=named_source(candidate_corpora, name, "read", "vocabulary"))
    names = sorted((*candidate_corpora, *pair_corpora))
    raise ConfigError(
        f"no corpus of candidates or pairs is called {name!r}{nearest(name, names)}",
        fix=f"known: {', '.join(names)}; or name a file of rows label<TAB>turn<TAB>...<TAB>response, or path/file.py:NAME, "
        f"{of_your_own(name)}",
    )


def holds_rows(user_file: OwnFile) -> bool:
    """Return whether a file, or the files of a folder, hold rows and not pairs.

    Records are rows if they have labels. A line with a tab counts as a row if a label, 0 or 1, is before the tab, else as a
    pair. A tie means rows, so that a broken line of a short file is reported. Lines without a tab do not count.
    """
    files = [user_file] if user_file.path.is_file() else [user_file.of(path) for path in split_files(user_file.path).values()]
    if any(file.kind for file in files):
        return any(file.kind is not None and LABEL in file.roles for file in files)
    firsts = [line.split("\t")[0] for file in files for line in islice(stream_lines(file.path), _LOOKED_AT) if "\t" in line]
    num_labelled = sum(first in ("0", "1") for first in firsts)
    return num_labelled > 0 and 2 * num_labelled >= len(firsts)


def own_candidates(file: Path | OwnFile) -> FileCandidates:
    """Return the corpus of a file or a folder of rows.

    Args:
        file: a folder of `train`, `val` (`valid`, `dev`) and `test`, with a suffix of text or records or none, of which some
            may be absent; one such file, for that split alone; or any other file, in which the hash of a group's context gives
            its split, 90 : 5 : 5 or by the shares in its name.

    Raises:
        ConfigError: two files of the folder are for one split.
    """
    user_file = file if isinstance(file, OwnFile) else OwnFile(file)
    path = user_file.path
    files: dict[str | None, str] = {split: file.name for split, file in split_files(path).items()}
    if path.is_file():
        files = {split_named(path): path.name}
    format_text = next(
        (f", {file.columns_text}" for name in files.values() if (file := user_file.of(_folder(path) / name)).kind), ""
    )
    return FileCandidates(
        name=path.stem if path.is_file() else path.resolve().name,
        summary=f"candidates of your own{format_text}",
        licence="your own",
        obtain="",
        wanted=tuple((escape(name),) for name in files.values()),
        reader=partial(_read_rows, files=files, user_file=user_file),
        place=_folder(path),
        tools=(cutter_version(), *user_file.key),
    )


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _read_rows(folder: Path, files: dict[str | None, str], user_file: OwnFile | None = None) -> CandidateText:
    return read_rows({split: (user_file or OwnFile(folder)).of(folder / name) for split, name in files.items()})


candidate_corpora.register("dailydialog_pp", "replies that people wrote to mislead, Sai et al. 2020")(
    FileCandidates(
        name="dailydialog_pp",
        summary="five right, five misleading and five random replies to each context (DailyDialog++, Sai et al. 2020)",
        licence="none stated",
        obtain="github.com/iitmnlp/DailyDialog-plusplus, folder dataset",
        wanted=tuple((name,) for name in FILES.values()),
        reader=read_dailydialog,
    )
)

candidate_corpora.register("ecommerce_sample", "a Chinese shop's customers, Zhang et al. 2018")(
    FileCandidates(
        name="ecommerce_sample",
        summary="100 test contexts of ten replies, words with blanks between (E-commerce, Zhang et al. 2018); train is val",
        licence="none stated",
        obtain="github.com/cooelf/DeepUtteranceAggregation, folder ECD_sample",
        wanted=(("train",), ("valid",), ("test",)),
        reader=partial(_read_rows, files={"train": "train", "val": "valid", "test": "test"}),
    )
)

candidate_corpora.register("douban_sample", "a Chinese forum, Wu et al. 2017")(
    FileCandidates(
        name="douban_sample",
        summary="57 right and 57 wrong replies, words with blanks between (Douban, Wu et al. 2017)",
        licence="none stated",
        obtain="github.com/MarkWuNLP/MultiTurnResponseSelection",
        wanted=(("train.sample",),),
        reader=partial(_read_rows, files={None: "train.sample"}),
    )
)
