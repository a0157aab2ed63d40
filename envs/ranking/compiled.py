"""Compiled corpora of candidates, as memory-mapped Arrow files.

A compiled corpus is a folder of `envs/corpora/arrow.py`. Its key contains the versions of compiler and reader, the content of
the source and all options. Wrong replies are drawn, and candidates shuffled, before the files are written.

    train.arrow, ...              words (list of int32), one distinct utterance a row
    train-groups.arrow, ...       number, dialogue (int64), context, candidates (list of int32, rows of utterances)
    train-candidates.arrow, ...   label, kind, attackable (uint8), one candidate a row
    vocabulary.json               every word of all splits
    facts.json                    the language, the number of repaired lines, and splits with too few replies to draw
"""

from __future__ import annotations

import ctypes
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from parley.envs.core.errors import DataError
from parley.envs.corpora.arrow import compiled_folder, is_whole, map_batch, publish, write_batch
from parley.envs.corpora.arrow import data_root as resolve_data_root
from parley.envs.corpora.lines import SPLITS, WordList, corpus_named
from parley.envs.corpora.pairs.compiled import Ragged
from parley.envs.corpora.pairs.tokens import is_chinese
from parley.envs.ranking.corpora import find_candidates
from parley.envs.ranking.groups import CandidateOptions, CandidateSplit, order_of, reply_statistics, with_negatives
from parley.envs.ranking.sources import CandidateSource, CandidateText

COMPILER_VERSION = 2
"""Grows when the compiler changes."""

Language = Literal["en", "zh"]

_VOCABULARY, _FACTS = "vocabulary.json", "facts.json"
_PARTS = ("", "-groups", "-candidates")
_FILES = (*(f"{split}{part}.arrow" for split in SPLITS for part in _PARTS), _VOCABULARY, _FACTS)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class CandidateCorpus:
    """An open compiled corpus of candidates.

    Args:
        name: the corpus' name.
        folder: the compiled files.
        language: "zh" if most distinct words have a Chinese character, else "en".
        num_mended: number of repaired lines.
        splits: "train", "val" and "test"; access to a split with too few replies to draw wrong ones raises DataError.
    """

    name: str
    folder: Path
    language: Language
    num_mended: int
    splits: dict[str, CandidateSplit]

    @property
    def lacking(self) -> dict[str, str]:
        """Splits with too few replies to draw wrong ones, each with its error message."""
        return {name: problem[0] for name, problem in self.splits.lacking.items()} if isinstance(self.splits, _Splits) else {}

    @property
    def digest(self) -> str:
        """Sixteen hex digits of all that the groups depend on: source, readers and options."""
        return self.folder.name


def load_candidates(
    name: str, data_root: Path | None = None, *, options: CandidateOptions | None = None, cache: Path | None = None
) -> CandidateCorpus:
    """Open a corpus of candidates by name, and compile it with these options first if needed.

    Args:
        name: a registered name of candidates or of pairs, a path, or `path/file.py:NAME`; see `find_candidates`.
        data_root: folder of the corpora; None for the default of `parley.envs.corpora.arrow.data_root`.
        options: of contexts, wrong replies and order.
        cache: folder of compiled corpora; None for the default of `parley.envs.corpora.arrow.cache_root`.

    Raises:
        ConfigError: an unknown corpus, or Chinese without blanks and jieba is not installed.
        DataError: files are missing, a line is broken, there is no group, a split has too few replies to draw wrong ones, or
            the compiled files cannot be written.
    """
    with corpus_named(name, data_root):
        return open_candidates(find_candidates(name), data_root, options=options, cache=cache)


def open_candidates(
    source: CandidateSource,
    data_root: Path | None = None,
    *,
    options: CandidateOptions | None = None,
    cache: Path | None = None,
) -> CandidateCorpus:
    """Open a corpus from its source, and compile it first if needed; arguments as of `load_candidates`."""
    options = options or CandidateOptions()
    root = resolve_data_root(data_root)
    options_key = json.dumps(asdict(options), sort_keys=True)
    folder = compiled_folder(
        cache, source.name, "candidates", COMPILER_VERSION, source.name, source.fingerprint(root), options_key
    )
    if not is_whole(folder, _FILES):
        # One more turn shows which contexts are cut.
        text = source.read_groups(root, options.turns + 1).require_whole()
        if nothing := no_group(source, text, root):
            raise nothing
        _report(source, text)
        _compile(text, options, folder)
        del text
        # Freed memory between what stays goes back to the system.
        with suppress(AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
    return _open(source.name, folder)


def no_group(source: CandidateSource, text: CandidateText, root: Path) -> DataError | None:
    """Return the error of a corpus without a group, or None."""
    if any(map(len, text.splits.values())):
        return None
    what, fix = f"the corpus {source.name!r} has no context to rank replies to", "give it more lines, or name another corpus"
    return DataError(what, where=source.folder(root), fix=fix)


def _report(source: CandidateSource, text: CandidateText) -> None:
    """Log each kind of repair with its number and first line, and unusually long text."""
    first = {error.what: error.where for error in reversed(text.mended)}
    for what, num in Counter(error.what for error in text.mended).items():
        logger.warning("%s: %s: %d times, first at %s", source.name, what, num, first[what])
    for sentence in text.long_told():
        logger.warning("%s", sentence)


def _compile(text: CandidateText, options: CandidateOptions, folder: Path) -> None:
    utterances = chain.from_iterable(split.utterances.utterances() for split in text.splits.values())
    counts = Counter(chain.from_iterable(utterances))
    vocabulary = WordList(tuple(word for word, _ in counts.most_common()))
    drawn = {name for name, split in text.splits.items() if split.is_drawn}
    # A split that has become arrays is let go.
    read = {name: _cut(text.splits.pop(name).split(name, vocabulary), options) for name in SPLITS}
    statistics = reply_statistics(read["train"])
    complete, lacking = dict[str, CandidateSplit](), dict[str, list[str]]()
    for name, split in read.items():
        try:
            complete[name] = with_negatives(split, options, statistics) if name in drawn else split
        except DataError as error:
            # Callers may need only the other splits.
            complete[name], lacking[name] = split.first_none(), [error.what, str(error.where), str(error.got), str(error.fix)]
    facts = {"language": "zh" if is_chinese(counts) else "en", "mended": len(text.mended), "lacking": lacking}

    def write(draft: Path) -> None:
        for split in complete.values():
            _write(draft, split if options.file_order else _shuffled(split, options.seed))
        vocabulary.save(draft / _VOCABULARY)
        (draft / _FACTS).write_text(json.dumps(facts), encoding="utf-8")

    publish(folder, write)


def _cut(split: CandidateSplit, options: CandidateOptions) -> CandidateSplit:
    """Return the groups with at least `min_turns` turns, and their contexts cut to `turns`."""
    long_enough = split.chosen(np.flatnonzero(split.contexts.lengths >= options.min_turns))
    lengths = long_enough.contexts.lengths
    turns_to_end = np.repeat(long_enough.contexts.offsets[1:], lengths) - np.arange(len(long_enough.contexts.values))
    offsets = np.concatenate([[0], np.cumsum(np.minimum(lengths, options.turns))])
    shortened = Ragged(long_enough.contexts.values[turns_to_end <= options.turns], offsets)
    return replace(long_enough, contexts=shortened, is_cut=lengths > options.turns)


def _shuffled(split: CandidateSplit, seed: int) -> CandidateSplit:
    values, offsets = split.candidates.values.copy(), split.candidates.offsets
    labels, kinds, attackable = split.labels.copy(), split.kinds.copy(), split.attackable.copy()
    for row, (start, end) in enumerate(pairwise(offsets)):
        order = list(order_of(split.key(row), int(end - start), seed))
        for array in (values, labels, kinds, attackable):
            array[start:end] = array[start:end][order]
    return replace(split, candidates=Ragged(values, offsets), labels=labels, kinds=kinds, attackable=attackable)


def _write(draft: Path, split: CandidateSplit) -> None:
    groups = {
        "number": pa.array(split.numbers),
        "dialogue": pa.array(split.dialogues),
        "cut": pa.array(split.is_cut.astype(np.uint8)),
        "context": _lists(split.contexts),
        "candidates": _lists(split.candidates),
    }
    marks = {"label": split.labels, "kind": split.kinds, "attackable": split.attackable}
    tables: Mapping[str, dict[str, pa.Array]] = {
        "": {"words": _lists(split.utterances)},
        "-groups": groups,
        "-candidates": {name: pa.array(values.astype(np.uint8)) for name, values in marks.items()},
    }
    for part, columns in tables.items():
        write_batch(draft / f"{split.name}{part}.arrow", pa.RecordBatch.from_pydict(columns))


def _open(name: str, folder: Path) -> CandidateCorpus:
    vocabulary = WordList.load(folder / _VOCABULARY)
    facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
    lacking = facts.get("lacking", {})
    splits = _Splits({split: _mapped(split, folder, vocabulary) for split in SPLITS if split not in lacking})
    splits.lacking = lacking
    return CandidateCorpus(name, folder, facts["language"], facts["mended"], splits)


class _Splits(dict[str, CandidateSplit]):
    """Splits by name; a split that could not be made raises its error on access."""

    lacking: Mapping[str, Sequence[str]]

    def __missing__(self, name: str) -> CandidateSplit:
        if name not in self.lacking:
            raise KeyError(name)
        what, where, got, fix = self.lacking[name]
        raise DataError(what, where=where, got=got, fix=fix)


def _mapped(name: str, folder: Path, vocabulary: WordList) -> CandidateSplit:
    words, groups, marks = (map_batch(folder / f"{name}{part}.arrow") for part in _PARTS)
    return CandidateSplit(
        name=name,
        vocabulary=vocabulary,
        utterances=_ragged(words.column("words")),
        contexts=_ragged(groups.column("context")),
        candidates=_ragged(groups.column("candidates")),
        labels=_array(marks.column("label")).view(bool),
        kinds=_array(marks.column("kind")),
        attackable=_array(marks.column("attackable")).view(bool),
        numbers=_array(groups.column("number")),
        dialogues=_array(groups.column("dialogue")),
        is_cut=_array(groups.column("cut")).view(bool),
    )


def _lists(ragged: Ragged) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array(ragged.offsets), pa.array(ragged.values))


def _ragged(column: pa.Array) -> Ragged:
    return Ragged(_array(column.values), _array(column.offsets))


def _array(column: pa.Array) -> np.ndarray:
    array: np.ndarray = column.to_numpy(zero_copy_only=True)
    return array
