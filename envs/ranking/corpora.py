"""The corpora of candidates that Parley knows, beside all of pairs: what each is, its licence, its files and their reader."""

from __future__ import annotations

from functools import partial
from glob import escape
from pathlib import Path

from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import Registry, nearest
from parley.envs.corpora.lines import read_lines
from parley.envs.corpora.own_files import LABEL, OwnFile, own_file, split_files, split_named
from parley.envs.corpora.pairs.chinese import cutter_version
from parley.envs.corpora.pairs.corpora import find_pairs, is_path, of_your_own, pair_corpora
from parley.envs.corpora.pairs.dailydialog import FILES
from parley.envs.corpora.sources import named_source
from parley.envs.ranking.dailydialog import read_dailydialog
from parley.envs.ranking.rows import read_rows
from parley.envs.ranking.sources import CandidateSource, FileCandidates, PairCandidates
from parley.envs.ranking.text import CandidateText

candidate_corpora = Registry("corpus of candidates", "parley.candidates")

_LOOKED_AT = 100
"""Lines of a file by which it is told whether they are rows or pairs."""


def find_candidates(name: str) -> CandidateSource:
    """The corpus of that name.

    Args:
        name: a registered name of candidates or of pairs, `path/file.py:NAME` of either, or a path: a file or folder of rows
            (see `own_candidates`), or of pairs as `parley.envs.corpora.pairs.corpora.find_pairs` knows them.

    Raises:
        ConfigError: no such corpus, with the nearest name.
    """
    if is_path(name):
        own = own_file(name)
        return own_candidates(own) if holds_rows(own) else PairCandidates(pairs=find_pairs(name))
    if name in pair_corpora:
        return PairCandidates(pairs=find_pairs(name))
    if name in candidate_corpora or ".py:" in name:
        found = named_source(candidate_corpora, name, "fingerprint")
        if isinstance(found, CandidateSource):
            return found
        return PairCandidates(pairs=named_source(candidate_corpora, name, "read", "vocabulary"))
    known = sorted((*candidate_corpora, *pair_corpora))
    raise ConfigError(
        f"no corpus of candidates or pairs is called {name!r}{nearest(name, known)}",
        fix=f"known: {', '.join(known)}; or name a file of rows label<TAB>turn<TAB>...<TAB>response, or path/file.py:NAME, "
        f"{of_your_own(name)}",
    )


def holds_rows(own: OwnFile) -> bool:
    """Whether a file, or those of a folder, hold rows and not pairs.

    Records are rows if they have labels. A line with a tab speaks for rows if a label, 0 or 1, stands before the tab, else for
    pairs. As many on both sides are rows, so that a broken line of a short file is named; lines without a tab are broken in
    either and do not count.
    """
    files = [own] if own.path.is_file() else [own.of(path) for path in split_files(own.path).values()]
    if any(file.kind for file in files):
        return any(file.kind is not None and LABEL in file.roles for file in files)
    firsts = [line.split("\t")[0] for file in files for line in read_lines(file.path)[:_LOOKED_AT] if "\t" in line]
    num_labelled = sum(first in ("0", "1") for first in firsts)
    return num_labelled > 0 and 2 * num_labelled >= len(firsts)


def own_candidates(file: Path | OwnFile) -> FileCandidates:
    """The corpus of a file or a folder of rows.

    Args:
        file: a folder of `train`, `val` (`valid`, `dev`) and `test`, with a suffix of text or of records or none, of which some
            may be absent; one such file, for that split alone; or any other file, in which each group belongs to the split that
            its context names, 90 : 5 : 5 or as its name says.

    Raises:
        ConfigError: two files of the folder are of one split.
    """
    own = file if isinstance(file, OwnFile) else OwnFile(file)
    path = own.path
    files: dict[str | None, str] = {split: file.name for split, file in split_files(path).items()}
    if path.is_file():
        files = {split_named(path): path.name}
    told = next((f", {file.told}" for name in files.values() if (file := own.of(_place(path) / name)).kind), "")
    return FileCandidates(
        name=path.stem if path.is_file() else path.resolve().name,
        summary=f"candidates of your own{told}",
        licence="your own",
        obtain="",
        wanted=tuple((escape(name),) for name in files.values()),
        reader=partial(_read_rows, files=files, own=own),
        place=_place(path),
        tools=(cutter_version(), *own.key),
    )


def _place(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _read_rows(folder: Path, files: dict[str | None, str], own: OwnFile | None = None) -> CandidateText:
    return read_rows({split: (own or OwnFile(folder)).of(folder / name) for split, name in files.items()})


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
