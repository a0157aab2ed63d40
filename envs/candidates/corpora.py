"""The corpora of candidates that Parley knows, beside all of pairs: what each is, its licence, its files and their reader."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from envs.candidates.dailydialog import read_dailydialog
from envs.candidates.rows import read_rows
from envs.candidates.sources import CandidateSource, FileCandidates, PairCandidates
from envs.candidates.text import CandidateText
from envs.core.errors import ConfigError
from envs.core.registry import Registry, nearest
from envs.data.lines import read_lines
from envs.data.sources import SPLITS, named_source
from envs.pairs.chinese import cutter_version
from envs.pairs.corpora import find_pairs, is_path, of_your_own, pair_corpora
from envs.pairs.dailydialog import FILES

candidate_corpora = Registry("corpus of candidates", "parley.candidates")

_NAMES = {"train": ("train",), "val": ("val", "valid", "dev"), "test": ("test",)}
_SUFFIXES = ("", ".txt", ".tsv")
_LOOKED_AT = 100
"""Lines of a file by which it is told whether they are rows or pairs."""


def find_candidates(name: str) -> CandidateSource:
    """The corpus of that name.

    Args:
        name: a registered name of candidates or of pairs, `path/file.py:NAME` of either, or a path: a file or folder of rows
            (see `own_candidates`), or of pairs as `envs.pairs.corpora.find_pairs` knows them.

    Raises:
        ConfigError: no such corpus, with the nearest name.
    """
    if is_path(name):
        path = Path(name).expanduser()
        return own_candidates(path) if holds_rows(path) else PairCandidates(pairs=find_pairs(name))
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


def holds_rows(path: Path) -> bool:
    """Whether a file, or those of a folder, hold rows and not pairs.

    A line with a tab speaks for rows if a label, 0 or 1, stands before the tab, else for pairs. As many on both sides are rows,
    so that a broken line of a short file is named; lines without a tab are broken in either and do not count.
    """
    files = [path] if path.is_file() else list(_files(path).values())
    firsts = [line.split("\t")[0] for file in files for line in read_lines(file)[:_LOOKED_AT] if "\t" in line]
    num_labelled = sum(first in ("0", "1") for first in firsts)
    return num_labelled > 0 and 2 * num_labelled >= len(firsts)


def own_candidates(path: Path) -> FileCandidates:
    """The corpus of a file or a folder of rows.

    Args:
        path: a folder of `train`, `val` (`valid`, `dev`) and `test`, with the suffix .txt, .tsv or none, of which some may be
            absent; one such file, for that split alone; or any other file, in which each group belongs to the split that its
            context names, 90 : 5 : 5.

    Raises:
        ConfigError: two files of the folder are of one split.
    """
    files: dict[str | None, str] = {split: file.name for split, file in _files(path).items()}
    if path.is_file():
        files = {next((split for split, stems in _NAMES.items() if path.stem in stems), None): path.name}
    return FileCandidates(
        name=path.stem if path.is_file() else path.resolve().name,
        summary="candidates of your own",
        licence="your own",
        obtain="",
        wanted=tuple((name,) for name in files.values()),
        reader=partial(_read_rows, files=files),
        place=path if path.is_dir() else path.parent,
        tools=(cutter_version(),),
    )


def _files(folder: Path) -> dict[str, Path]:
    """The file of each split that a folder has."""
    found = {}
    for split in SPLITS:
        files = [path for stem in _NAMES[split] for suffix in _SUFFIXES if (path := folder / f"{stem}{suffix}").is_file()]
        if len(files) > 1:
            got, fix = ", ".join(path.name for path in files), "leave one of them there, or name a file"
            raise ConfigError(f"two files of one folder are for {split}", where=folder, got=got, fix=fix)
        if files:
            found[split] = files[0]
    return found


def _read_rows(folder: Path, files: dict[str | None, str]) -> CandidateText:
    return read_rows({split: folder / name for split, name in files.items()})


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
