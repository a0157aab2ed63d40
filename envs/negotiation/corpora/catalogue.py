"""The registered negotiation corpora (licence, files, reader), and their compiled form as memory-mapped Arrow files.

For a corpus of your own, write `CORPUS = FileCorpus(name="mine", ...)` into a file and name it `path/file.py:CORPUS`, or let an
installed package offer it under the entry point group `parley.corpora`.

A compiled corpus is a folder of `envs/corpora/arrow.py`. Its key contains the versions of compiler and reader, the content of
the source and the vocabulary's threshold. For a game of K items whose selections have H tokens (`domain.py`; 3 and 6 in Deal or
No Deal), it holds

    train.arrow, val.arrow, test.arrow   context (2K int64), partner_values (K int64), output (H int64), tokens (list of int16)
    selfplay.arrow                       context (2K int64), partner_values (K int64)
    vocabulary.json                      the words of the training split, and their game
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa

from parley.envs.core.errors import DataError
from parley.envs.core.registry import Registry
from parley.envs.corpora.arrow import (
    UNNAMED,
    compiled_folder,
    is_whole,
    map_batch,
    publish,
    read_file,
    write_batch,
)
from parley.envs.corpora.arrow import data_root as resolve_data_root
from parley.envs.corpora.files import CorpusFolder, GeneratedFolder
from parley.envs.corpora.lines import (
    SPLITS,
    CorpusFile,
    ReadText,
    Source,
    content_digest,
    corpus_named,
    data_command,
    fingerprint,
    named_source,
    read_lines,
)
from parley.envs.negotiation.corpora.dealornodeal import READER_VERSION, DialogueRecord, parse_lines, parse_scenarios
from parley.envs.negotiation.domain import DEAL_OR_NO_DEAL, UNK_ID, Domain, Scenario, Vocabulary

SELFPLAY = "selfplay"
PUBLISHED_NAMES = tuple(f"{part}.txt" for part in (*SPLITS, SELFPLAY))

SCRIPTED = "parley.envs.negotiation.scripted.bargainers:embedded_corpus"

corpora = Registry("negotiation corpus", "parley.corpora")


@dataclass(frozen=True, kw_only=True)
class CorpusText(ReadText):
    """The result of reading a corpus: its good lines, and an error for each broken line."""

    splits: dict[str, list[DialogueRecord]]
    """Dialogues under "train", "val" and "test", in file order."""
    selfplay: list[Scenario]
    """Scenarios to play, in file order."""
    broken: list[DataError]


class CorpusSource(Source, Protocol):
    """A corpus of negotiations in the registry."""

    @property
    def game(self) -> str:
        """The name of the game (`domain.py`)."""

    @property
    def threshold(self) -> int:
        """The vocabulary has the words that occur more often than this in the training split."""

    @property
    def files(self) -> tuple[CorpusFile, ...]:
        """Files that must lie in `folder`; none for a generated corpus."""

    @property
    def obtain(self) -> str:
        """The place to get the files."""

    def read(self, root: Path) -> CorpusText:
        """Return the text, with errors for broken lines and missing files."""


def find_negotiations(name: str) -> CorpusSource:
    """Return the corpus of negotiations of that name.

    Args:
        name: a registered name, or `path/file.py:NAME`.

    Raises:
        ConfigError: an unknown corpus (with the nearest name), or an object that is not a corpus.
    """
    source: CorpusSource = named_source(corpora, name, "read", "fingerprint", "threshold", "game")
    return source


@dataclass(frozen=True, kw_only=True)
class FileCorpus(CorpusFolder):
    """A corpus in the published format: train.txt, val.txt, test.txt and selfplay.txt in one folder of the data root."""

    wanted: tuple[tuple[str, ...], ...] = tuple((name,) for name in PUBLISHED_NAMES)
    address: str | None = None
    """Web folder for `parley data get`; None if it cannot be downloaded."""
    raw: str | None = None
    """File at the address from which train.txt can be rebuilt (`rebuild_train`); None if there is none."""
    game: str = DEAL_OR_NO_DEAL
    """What is negotiated about (`domain.py`)."""
    threshold: int = 20
    """Words of the training split that occur more often than this make the vocabulary (20: Lewis et al. 2017)."""
    files: tuple[CorpusFile, ...] = tuple(CorpusFile(name=name) for name in PUBLISHED_NAMES)
    """The four files."""

    READER_VERSION: ClassVar[int] = READER_VERSION

    @property
    def remedy(self) -> str:
        """The fix for missing files, for messages."""
        by_hand = f"get the files from {self.obtain}"
        return by_hand if self.address is None else f"{data_command('get', UNNAMED)}; or {by_hand}"

    def fingerprint(self, root: Path) -> str:
        """Return a digest of the reader's version and of the content of the four files.

        Raises:
            DataError: a file is missing or cannot be read.
        """
        self.require_files(root)
        folder = self.folder(root)
        contents = (content_digest(folder / file.name) for file in self.files)
        # Keys of existing compiled corpora of the first game do not name it.
        return fingerprint("files", READER_VERSION, *contents, *([] if self.game == DEAL_OR_NO_DEAL else [self.game]))

    def read(self, root: Path) -> CorpusText:
        """Read all files that exist, with an error for each missing one."""
        folder = self.folder(root)
        paths = {part: folder / f"{part}.txt" for part in (*SPLITS, SELFPLAY)}
        lines = {part: read_lines(path) if path.is_file() else [] for part, path in paths.items()}
        return _parsed(lines, lambda part: str(paths[part]), self.missing_files(root), self.game)


@dataclass(frozen=True, kw_only=True)
class GeneratedCorpus(GeneratedFolder):
    """A corpus of negotiations that Parley generates."""

    game: str = DEAL_OR_NO_DEAL
    """What is negotiated about."""
    writer: str = SCRIPTED
    """The function that writes the dialogues, "module:name", which lies in the package of its scripted agents."""
    num_dialogues: int
    """Dialogues to generate, all splits together, each seen from both sides."""
    seed: int = 0
    """Master seed of dialogues and scenarios."""
    threshold: int = 5
    """Words of the training split that occur more often than this make the vocabulary; low, for a script never mistypes."""
    files: tuple[CorpusFile, ...] = field(default=(), init=False)

    def fingerprint(self, root: Path) -> str:
        """Digest of the reader's version, the generator's source, the size and the seed."""
        # The source of the packages stands for a version number that somebody would have to remember to raise.
        packages = dict.fromkeys(writer.partition(":")[0].rpartition(".")[0] for writer in (SCRIPTED, self.writer))
        sources = [path for package in packages for path in sorted(Path(import_module(package).__path__[0]).glob("*.py"))]
        generator = hashlib.sha256(b"".join(read_file(path) for path in sources)).hexdigest()
        return fingerprint("generated", READER_VERSION, generator, self.num_dialogues, self.seed)

    def read(self, root: Path) -> CorpusText:
        """Generate the dialogues and the scenarios."""
        module, _, name = self.writer.partition(":")
        written: dict[str, list[str]] = getattr(import_module(module), name)(self.num_dialogues, self.seed)
        return _parsed(written, lambda part: f"{self.name} {part}", [], self.game)


corpora.register("dealornodeal", "human negotiations, Lewis et al. 2017")(
    FileCorpus(
        name="dealornodeal",
        summary="5,916 human negotiations seen from both sides, 402 from one, 4,086 self-play scenarios (Lewis et al. 2017)",
        licence="CC BY-NC 4.0",
        obtain="github.com/facebookresearch/end-to-end-negotiator, folder src/data/negotiate",
        address="https://raw.githubusercontent.com/facebookresearch/end-to-end-negotiator/HEAD/src/data/negotiate",
        raw="data.txt",
        files=(
            CorpusFile(
                name="train.txt",
                num_lines=10_095,
                num_bytes=4_325_867,
                # Some copies of the release lack train.txt and it is rebuilt from data.txt. Rebuilt copies differ in whether
                # two disconnected dialogues without a partner's view count as <disagree> (first) or <disconnect> (second).
                sha256=(
                    "47c13b513d5de51211d2d1ca4a54ea288ad03e8fa3ff1b93a17a7c59e8c1eb35",
                    "6adcb017b63633fc096af434855df0ff19866d87cf1887a86e3dbf81333ed334",
                ),
                any_order=True,
            ),
            CorpusFile(
                name="val.txt",
                num_lines=1_087,
                num_bytes=468_508,
                sha256=("5ad7df00b8bc4b1fff565cb4dc38b23afc7874c496b0ed2e1c58c232326ff996",),
            ),
            CorpusFile(
                name="test.txt",
                num_lines=1_052,
                num_bytes=444_703,
                sha256=("37be3150bf656195b61a7547b45cf307acce929f2a8140036890a561c3597c83",),
            ),
            CorpusFile(
                name="selfplay.txt",
                num_lines=8_172,
                num_bytes=98_304,
                sha256=("05b7d66c309617f0f1a5562ab8c1d2de933e712a4c8419fd924f4a2c899ab3aa",),
            ),
        ),
    )
)

corpora.register("embedded", "scripted negotiations, generated")(
    GeneratedCorpus(
        name="embedded",
        summary="negotiations between two scripted bargainers, generated on this machine",
        licence="Apache-2.0, as Parley itself",
        num_dialogues=4_000,
    )
)

corpora.register("embedded-interview", "scripted job interviews, generated")(
    GeneratedCorpus(
        name="embedded-interview",
        summary="job interviews between two scripted sides who settle four issues, generated on this machine",
        licence="Apache-2.0, as Parley itself",
        game="interview",
        writer="parley.envs.negotiation.interview.domain:embedded_corpus",
        num_dialogues=4_000,
    )
)


def _parsed(
    lines: Mapping[str, Sequence[str]], location: Callable[[str], str], broken: list[DataError], game: str
) -> CorpusText:
    """Return the text of the lines of each part; `location` names a part in messages, `broken` has earlier errors."""
    splits: dict[str, list[DialogueRecord]] = {}
    for split in SPLITS:
        splits[split], errors = parse_lines(lines[split], location(split), game)
        broken += errors
    selfplay, errors = parse_scenarios(lines[SELFPLAY], location(SELFPLAY), game)
    return CorpusText(splits=splits, selfplay=selfplay, broken=broken + errors)


COMPILER_VERSION = 1
"""Grows when the compiler changes."""

_TOKEN_TYPE = np.int16
_SELFPLAY, _VOCABULARY = "selfplay", "vocabulary.json"
_FILES = (*(f"{part}.arrow" for part in (*SPLITS, _SELFPLAY)), _VOCABULARY)


@dataclass(frozen=True, eq=False)
class Split:
    """One split of a corpus as read-only arrays over the mapped file; N views of dialogues, T tokens.

    Args:
        contexts: (N, 2K) int64, count and own value of each item, interleaved.
        partner_values: (N, K) int64.
        outputs: (N, H) int64 token ids of the outcome, or a refusal on each head.
        token_values: (T,) int16 vocabulary ids of all dialogues, concatenated, with markers.
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
        """Return the first `limit` dialogues; all for 0."""
        if not 0 < limit < len(self):
            return self
        contexts, values, outputs = (array[:limit] for array in (self.contexts, self.partner_values, self.outputs))
        return Split(contexts, values, outputs, self.token_values[: self.offsets[limit]], self.offsets[: limit + 1])

    @cached_property
    def lengths(self) -> np.ndarray:
        """Tokens of each dialogue (N,) int64."""
        return np.diff(self.offsets).astype(np.int64)

    def tokens(self, i: int) -> np.ndarray:
        """Return the vocabulary ids of one dialogue (length,) int64, from its first marker to `<selection>`."""
        return self.token_values[self.offsets[i] : self.offsets[i + 1]].astype(np.int64)


@dataclass(frozen=True, eq=False)
class Corpus:
    """An open compiled corpus.

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
        """Return the corpus with at most `limit` dialogues per split; all for 0."""
        return replace(self, splits={name: split.first(limit) for name, split in self.splits.items()})


def load_corpus(name: str, data_root: Path | None = None, *, cache: Path | None = None, threshold: int | None = None) -> Corpus:
    """Open a corpus by name, and compile it first if needed.

    Args:
        name: a registered name, or `path/file.py:NAME`.
        data_root: folder of the corpora; None for the default of `parley.envs.corpora.arrow.data_root`.
        cache: folder of compiled corpora; None for the default of `parley.envs.corpora.arrow.cache_root`.
        threshold: keep words of the training split that occur more often; None for the corpus' own.

    Raises:
        ConfigError: an unknown corpus.
        DataError: files are missing, a line is broken, or the compiled form cannot be written.
    """
    with corpus_named(name, data_root):
        return open_corpus(find_negotiations(name), data_root, cache=cache, threshold=threshold)


def open_corpus(
    source: CorpusSource, data_root: Path | None = None, *, cache: Path | None = None, threshold: int | None = None
) -> Corpus:
    """Open a corpus from its source, and compile it first if needed; arguments as of `load_corpus`."""
    root = resolve_data_root(data_root)
    cutoff = source.threshold if threshold is None else threshold
    folder = compiled_folder(cache, source.name, COMPILER_VERSION, source.name, source.fingerprint(root), cutoff)
    if not is_whole(folder, _FILES):
        text = source.read(root).require_whole()
        _compile(text, Vocabulary.build((record.tokens for record in text.splits["train"]), cutoff, source.game), folder)
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
    selfplay = [
        Scenario(tuple(context[::2]), (tuple(context[1::2]), tuple(partner)), vocabulary.game) for context, partner in rows
    ]
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
