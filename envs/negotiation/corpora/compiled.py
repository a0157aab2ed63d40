"""Compiled corpora: text turned once into memory-mapped Arrow files, so that every worker reads the same pages.

A compiled corpus is a folder as `envs/corpora/arrow.py` keeps them; its key names the versions of compiler and reader, the
content of the source and the vocabulary's threshold.

    train.arrow, val.arrow, test.arrow   context (2K int64), partner_values (K int64), output (H int64), tokens (list of int16)
    selfplay.arrow                       context (2K int64), partner_values (K int64)
    vocabulary.json                      the words of the training split, and what game they are of

of a game of K items whose selections have H tokens (`domain.py`); of Deal or No Deal 3 and 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from parley.envs.core.errors import DataError
from parley.envs.corpora.arrow import compiled_folder, is_whole, map_batch, publish, write_batch
from parley.envs.corpora.lines import corpus_named
from parley.envs.corpora.root import data_root as resolve_data_root
from parley.envs.corpora.sources import SPLITS
from parley.envs.negotiation.corpora.catalogue import CorpusSource, CorpusText, find_negotiations
from parley.envs.negotiation.corpora.dealornodeal import DialogueRecord
from parley.envs.negotiation.domain import Domain
from parley.envs.negotiation.scenario import Scenario
from parley.envs.negotiation.vocabulary import UNK_ID, Vocabulary

COMPILER_VERSION = 1
"""Grows when the same source would be compiled differently."""

_TOKEN_TYPE = np.int16
_SELFPLAY, _VOCABULARY = "selfplay", "vocabulary.json"
_FILES = (*(f"{part}.arrow" for part in (*SPLITS, _SELFPLAY)), _VOCABULARY)


@dataclass(frozen=True, eq=False)
class Split:
    """One split of a corpus as read-only arrays over the mapped file; N views of dialogues, T tokens in all.

    Args:
        contexts: (N, 2K) int64, count and own value of each item in turn.
        partner_values: (N, K) int64.
        outputs: (N, H) int64 token ids of the outcome, or a refusal on each head.
        token_values: (T,) int16 vocabulary ids of all dialogues, end to end, markers included.
        offsets: (N + 1,) int32; dialogue i is `token_values[offsets[i] : offsets[i + 1]]`.
    """

    contexts: np.ndarray
    partner_values: np.ndarray
    outputs: np.ndarray
    token_values: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.contexts)

    def first(self, limit: int) -> Split:
        """So many dialogues at the beginning; all where the limit is 0."""
        if not 0 < limit < len(self):
            return self
        contexts, values, outputs = (each[:limit] for each in (self.contexts, self.partner_values, self.outputs))
        return Split(contexts, values, outputs, self.token_values[: self.offsets[limit]], self.offsets[: limit + 1])

    @cached_property
    def lengths(self) -> np.ndarray:
        """Tokens of each dialogue (N,) int64."""
        return np.diff(self.offsets).astype(np.int64)

    def tokens(self, i: int) -> np.ndarray:
        """Vocabulary ids of one dialogue (length,) int64, from its first marker to `<selection>`."""
        return self.token_values[self.offsets[i] : self.offsets[i + 1]].astype(np.int64)


@dataclass(frozen=True, eq=False)
class Corpus:
    """A compiled corpus, opened.

    Args:
        name: the registered name.
        folder: the compiled files; its last part is the key of the content.
        vocabulary: the words of the training split.
        splits: "train", "val" and "test".
        selfplay: scenarios to play.
    """

    name: str
    folder: Path
    vocabulary: Vocabulary
    splits: dict[str, Split]
    selfplay: list[Scenario]

    def first(self, limit: int) -> Corpus:
        """The same with so many dialogues of each split at most; all of them where the limit is 0."""
        return replace(self, splits={name: split.first(limit) for name, split in self.splits.items()})


def load_corpus(name: str, data_root: Path | None = None, *, cache: Path | None = None, threshold: int | None = None) -> Corpus:
    """Opens a corpus, compiling it first when its content has not been compiled before.

    Args:
        name: a registered name, or `path/file.py:NAME`.
        data_root: where the corpora lie; see `parley.envs.corpora.root.data_root` for the default.
        cache: where compiled corpora lie; see `parley.envs.corpora.root.cache_root` for the default.
        threshold: words of the training split that occur more often than this are kept; the corpus' own by default.

    Raises:
        ConfigError: no such corpus.
        DataError: files are missing, a line is broken, or the compiled form cannot be written.
    """
    with corpus_named(name, data_root):
        return open_corpus(find_negotiations(name), data_root, cache=cache, threshold=threshold)


def open_corpus(
    source: CorpusSource, data_root: Path | None = None, *, cache: Path | None = None, threshold: int | None = None
) -> Corpus:
    """The same for a corpus in hand instead of a name."""
    root = resolve_data_root(data_root)
    kept = source.threshold if threshold is None else threshold
    folder = compiled_folder(cache, source.name, COMPILER_VERSION, source.name, source.fingerprint(root), kept)
    if not is_whole(folder, _FILES):
        text = source.read(root).require_whole()
        _compile(text, Vocabulary.build((record.tokens for record in text.splits["train"]), kept, source.game), folder)
    return _open(source.name, folder)


def _open(name: str, folder: Path) -> Corpus:
    splits = {}
    for split in SPLITS:
        batch = map_batch(folder / f"{split}.arrow")
        tokens = batch.column("tokens")
        splits[split] = Split(
            contexts=_matrix(batch, "context"),
            partner_values=_matrix(batch, "partner_values"),
            outputs=_matrix(batch, "output"),
            token_values=tokens.values.to_numpy(zero_copy_only=True),
            offsets=tokens.offsets.to_numpy(zero_copy_only=True),
        )
    played = map_batch(folder / f"{_SELFPLAY}.arrow")
    rows = zip(_matrix(played, "context").tolist(), _matrix(played, "partner_values").tolist(), strict=True)
    vocabulary = Vocabulary.load(folder / _VOCABULARY)
    selfplay = [Scenario(tuple(own[::2]), (tuple(own[1::2]), tuple(partner)), vocabulary.game) for own, partner in rows]
    return Corpus(name, folder, vocabulary, splits, selfplay)


def _matrix(batch: pa.RecordBatch, column: str) -> np.ndarray:
    values = batch.column(column)
    return values.flatten().to_numpy(zero_copy_only=True).reshape(-1, values.type.list_size)


def _compile(text: CorpusText, vocabulary: Vocabulary, folder: Path) -> None:
    def write(draft: Path) -> None:
        for split in SPLITS:
            write_batch(draft / f"{split}.arrow", _split_batch(text.splits[split], vocabulary))
        played = _scenario_columns(text.selfplay, vocabulary.domain)
        write_batch(draft / f"{_SELFPLAY}.arrow", pa.RecordBatch.from_pydict(played))
        vocabulary.save(draft / _VOCABULARY)

    publish(folder, write)


def _split_batch(records: Sequence[DialogueRecord], vocabulary: Vocabulary) -> pa.RecordBatch:
    if len(vocabulary) > np.iinfo(_TOKEN_TYPE).max:
        raise DataError(
            "the vocabulary is too large to compile",
            got=f"{len(vocabulary):,} words",
            fix=f"raise the threshold until at most {np.iinfo(_TOKEN_TYPE).max:,} words are left",
        )
    encoded = [[vocabulary.index.get(word, UNK_ID) for word in record.tokens] for record in records]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    values = np.fromiter((i for ids in encoded for i in ids), dtype=_TOKEN_TYPE, count=int(offsets[-1]))
    columns = _scenario_columns([record.scenario for record in records], vocabulary.domain)
    columns["output"] = _fixed([record.output for record in records], vocabulary.domain.num_heads)
    columns["tokens"] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
    return pa.RecordBatch.from_pydict(columns)


def _scenario_columns(scenarios: Sequence[Scenario], domain: Domain) -> dict[str, pa.Array]:
    num_items = len(domain.items)
    return {
        "context": _fixed([scenario.context(0) for scenario in scenarios], 2 * num_items),
        "partner_values": _fixed([scenario.values[1] for scenario in scenarios], num_items),
    }


def _fixed(rows: Sequence[tuple[int, ...]], width: int) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.array(rows, dtype=np.int64).reshape(-1)), width)
