"""Compiled corpora of pairs as memory-mapped Arrow files, their byte pair encoding, and files of replies to judge.

A compiled corpus is a folder of `envs/corpora/arrow.py`. Its key contains the versions of compiler and reader, the content of
the source and the size of the vocabulary. A corpus opened with every word has the words of all splits and no `<unk>`: text is
recovered from it, and models are fitted to the other form.

    train.arrow, val.arrow, test.arrow                     words (list of int32), one utterance a row
    train-pairs.arrow, val-pairs.arrow, test-pairs.arrow   pair (2 int64), rows of source and reply
    train-links.arrow, val-links.arrow, test-links.arrow   the same for turns of contexts that are no pairs, if there are any
    vocabulary.json                                        the most frequent words of the training split, or every word

Byte pair encoding: Sennrich et al. 2016 (arXiv 1508.07909); Niu & Bansal 2018 take 5,000 merges and get 5,121 pieces. As in the
released subword-nmt, pairs that occur once are not merged, and no merge crosses the end of a word. Pieces are learnt from the
words of the training split, each with its count.
  * # Released: a character that never ends a word in training cannot end one. Ours: each character is a piece alone and a piece
    at the end of a word, so every word of known characters can be spelt.
  * The library orders equally frequent pairs by their characters, the same on every machine.

Files of sources and replies (lines and records as in `turns.py`) are read as pairs to judge. In the published sample of Li et
al. 2017, `opensubtitles_sample:human`, `:machine` and `:random` are three files of replies to the same 768 sources. Its splits
are joined, because they were sorted by length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from parley.envs.core.errors import ConfigError, DataError
from parley.envs.corpora.arrow import compiled_folder, is_whole, map_batch, publish, require_files, write_batch
from parley.envs.corpora.arrow import data_root as resolve_data_root
from parley.envs.corpora.lines import SPLITS, broken_rule, corpus_named, located, read_lines, require_utf8
from parley.envs.corpora.own_files import OwnFile, looks_like_csv
from parley.envs.corpora.pairs.corpora import find_pairs
from parley.envs.corpora.pairs.recorded import DICTIONARY, parse_coded
from parley.envs.corpora.pairs.tokens import UNKNOWN, PairSource, PairText
from parley.envs.corpora.pairs.turns import BETWEEN_REPLIES, EOT, Utterance, parse_line, parse_texts
from parley.envs.corpora.pairs.vocabulary import BYTES, END, MARKS, SPECIALS, PairVocabulary

COMPILER_VERSION = 1
"""Grows when the compiler changes."""

EVERY_WORD = "every word"
"""The key's size of a vocabulary without a limit."""

_VOCABULARY = "vocabulary.json"
_FILES = (*(f"{split}{part}.arrow" for split in SPLITS for part in ("", "-pairs")), _VOCABULARY)
_LINKS = tuple(f"{split}-links.arrow" for split in SPLITS)
"""Files of links, in corpora whose contexts have turns that are no pairs."""


@dataclass(frozen=True, eq=False)
class Ragged:
    """N rows of different lengths, concatenated in one read-only array.

    Args:
        values: (T,) int32.
        offsets: (N + 1,) int64; row i is `values[offsets[i] : offsets[i + 1]]`.
    """

    values: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        """Return row i (length,) int64, i from 0 to N - 1."""
        return self.values[self.offsets[i] : self.offsets[i + 1]].astype(np.int64)

    def part(self, start: int, end: int) -> Ragged:
        """Return the rows from `start` to `end`, or to the last one."""
        offsets = self.offsets[start : end + 1]
        return Ragged(self.values[offsets[0] : offsets[-1]], offsets - offsets[0])

    @cached_property
    def lengths(self) -> np.ndarray:
        """Length of each row (N,) int64."""
        return np.diff(self.offsets)


@dataclass(frozen=True, eq=False)
class PairSplit:
    """One split of a corpus of pairs; N utterances, P pairs of them.

    Args:
        utterances: word ids of every utterance, uncropped, each stored once; the only special tokens are `<unk>` and `<eou>`
            within a turn of several utterances.
        pairs: (P, 2) int64, indices of source and reply in `utterances`.
        links: (L, 2) int64, indices of utterances and their successors that are no pairs but parts of contexts.
        units: (P,) the dialogue of each pair, where pairs and links do not show it any more.
    """

    utterances: Ragged
    pairs: np.ndarray
    links: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))
    units: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.pairs)

    def first(self, limit: int) -> PairSplit:
        """Return the first `limit` pairs and the utterances up to the last of them; all for 0."""
        if not 0 < limit < len(self):
            return self
        pairs = self.pairs[:limit]
        num = int(pairs.max()) + 1
        units = None if self.units is None else self.units[:limit]
        return PairSplit(self.utterances.part(0, num), pairs, self.links[(self.links < num).all(1)], units)


@dataclass(frozen=True, eq=False)
class PairCorpus:
    """An open compiled corpus of pairs.

    Args:
        name: the corpus' name.
        folder: the compiled files; its last part is the key of the content.
        vocabulary: the most frequent words of the training split, or every word of all splits.
        splits: "train", "val" and "test".
    """

    name: str
    folder: Path
    vocabulary: PairVocabulary
    splits: dict[str, PairSplit]

    def first(self, limit: int) -> PairCorpus:
        """Return the corpus with at most `limit` pairs per split; all for 0."""
        return replace(self, splits={name: split.first(limit) for name, split in self.splits.items()})

    def whole(self) -> PairCorpus:
        """Return the corpus with all pairs."""
        return _open(self.name, self.folder)


def load_pairs(
    name: str,
    data_root: Path | None = None,
    *,
    vocabulary: int | None = None,
    every_word: bool = False,
    cache: Path | None = None,
) -> PairCorpus:
    """Open a corpus of pairs by name, and compile it first if needed.

    Args:
        name: a registered name, a `source<TAB>reply` file or folder (see `envs/corpora/pairs/turns.py`), or
            `path/file.py:NAME`.
        data_root: folder of the corpora; None for the default of `parley.envs.corpora.arrow.data_root`.
        vocabulary: size with special tokens; None for the corpus' own.
        every_word: use a vocabulary with all words of all splits, so that text can be recovered.
        cache: folder of compiled corpora; None for the default of `parley.envs.corpora.arrow.cache_root`.

    Raises:
        ConfigError: an unknown corpus, or a vocabulary without room for a word.
        DataError: files are missing, a line is broken, there is no pair to train on, or the compiled form cannot be written.
    """
    with corpus_named(name, data_root):
        return open_pairs(find_pairs(name), data_root, vocabulary=vocabulary, every_word=every_word, cache=cache)


def open_pairs(
    source: PairSource,
    data_root: Path | None = None,
    *,
    vocabulary: int | None = None,
    every_word: bool = False,
    cache: Path | None = None,
) -> PairCorpus:
    """Open a corpus from its source, and compile it first if needed; arguments as of `load_pairs`."""
    assert vocabulary is None or not every_word, "a vocabulary of every word has its own size"
    size = source.vocabulary if vocabulary is None else vocabulary
    if size <= len(SPECIALS):
        fix = f"give at least {len(SPECIALS) + 1}, for {len(SPECIALS)} entries are special tokens"
        raise ConfigError("the vocabulary has no room for a word", got=size, fix=fix)
    root = resolve_data_root(data_root)
    extent = EVERY_WORD if every_word else size
    folder = compiled_folder(cache, source.name, "pairs", COMPILER_VERSION, source.name, source.fingerprint(root), extent)
    if not is_whole(folder, (*_FILES, *(name for name in _LINKS if (folder / name).exists()))):
        text = source.read(root).require_whole()
        if nothing := nothing_to_learn(source, text, root):
            raise nothing
        counted = SPLITS if every_word else ("train",)
        utterances = chain.from_iterable(text.splits[split].utterances() for split in counted)
        _compile(text, PairVocabulary.build(utterances, None if every_word else size), folder)
    return _open(source.name, folder)


def nothing_to_learn(source: PairSource, text: PairText, root: Path) -> DataError | None:
    """Return the error of a corpus without training pairs, or None."""
    if text.splits["train"].num_pairs:
        return None
    what, fix = f"the corpus {source.name!r} has no pair to train on", "give it more lines, or name another corpus"
    return DataError(what, where=source.folder(root), fix=fix)


def nothing_to_measure(name: str, num_pairs: Mapping[str, int]) -> DataError | None:
    """Return the error of a corpus with a split that has no pairs, or None."""
    empty = [split for split, num in num_pairs.items() if not num]
    if not empty:
        return None
    return DataError(
        f"the corpus {name!r} has nothing to train and measure on",
        got=f"empty: {', '.join(empty)}",
        fix="name a corpus with more pairs, other shares (FILE#shares=70:15:15), or a folder of three files",
    )


def _open(name: str, folder: Path) -> PairCorpus:
    splits = {}
    for split in SPLITS:
        words = map_batch(folder / f"{split}.arrow").column("words")
        utterances = Ragged(words.values.to_numpy(zero_copy_only=True), words.offsets.to_numpy(zero_copy_only=True))
        linked = [part for part in ("-pairs", "-links") if (folder / f"{split}{part}.arrow").exists()]
        splits[split] = PairSplit(utterances, *(_pairs(folder / f"{split}{part}.arrow") for part in linked))
    return PairCorpus(name, folder, PairVocabulary.load(folder / _VOCABULARY), splits)


def _pairs(path: Path) -> np.ndarray:
    pairs: np.ndarray = map_batch(path).column("pair").flatten().to_numpy(zero_copy_only=True)
    return pairs.reshape(-1, 2)


def _compile(text: PairText, vocabulary: PairVocabulary, folder: Path) -> None:
    parts = ("pairs", "links") if any(len(split.links) for split in text.splits.values()) else ("pairs",)

    def write(draft: Path) -> None:
        for split in SPLITS:
            split_text = text.splits[split]
            words = pa.LargeListArray.from_arrays(pa.array(split_text.offsets), pa.array(split_text.encode(vocabulary)))
            write_batch(draft / f"{split}.arrow", pa.RecordBatch.from_pydict({"words": words}))
            for part in parts:
                pairs = pa.FixedSizeListArray.from_arrays(pa.array(getattr(split_text, part).reshape(-1)), 2)
                write_batch(draft / f"{split}-{part}.arrow", pa.RecordBatch.from_pydict({"pair": pairs}))
        vocabulary.save(draft / _VOCABULARY)

    publish(folder, write)


LEARNER_VERSION = 1
"""Grows when the learner changes."""
LEAST = 2
"""Fewest occurrences of a merged pair."""

_AT_ONCE = 1000
"""Most repetitions of a word in one string for the learner."""


def pieces_of(corpus: PairCorpus, num_merges: int, *, in_bytes: bool = False, cache: Path | None = None) -> PairVocabulary:
    """Return the pieces of a corpus, and learn them first if needed.

    Args:
        corpus: opened with every word; all of its training split is read, even after `first`.
        num_merges: most merges; the text may give fewer.
        in_bytes: spell unknown characters in bytes, not as one `<unk>` each.
        cache: folder of learnt pieces; None for the default of `parley.envs.corpora.arrow.cache_root`.

    Raises:
        ConfigError: `num_merges` is below 1.
        DataError: the pieces cannot be written.
    """
    if num_merges < 1:
        fix = "give at least 1; 5,000 is what Niu & Bansal 2018 take"
        raise ConfigError("byte pair encoding needs a number of merges", where="subwords", got=num_merges, fix=fix)
    key = "pieces", LEARNER_VERSION, corpus.folder.name, num_merges, int(in_bytes)
    folder = compiled_folder(cache, corpus.name, *key)
    if not is_whole(folder, (_VOCABULARY,)):
        pieces = learn_pieces(word_counts(corpus.whole()), num_merges, in_bytes=in_bytes)
        publish(folder, lambda draft: pieces.save(draft / _VOCABULARY))
    return PairVocabulary.load(folder / _VOCABULARY)


def word_counts(corpus: PairCorpus) -> dict[str, int]:
    """Return the count of each word in the training split."""
    words = corpus.vocabulary.words
    counts = np.bincount(corpus.splits["train"].utterances.values, minlength=len(words)).tolist()
    return {word: count for word, count in zip(words, counts, strict=True) if count}


def learn_pieces(counts: Mapping[str, int], num_merges: int, *, in_bytes: bool = False) -> PairVocabulary:
    """Learn a byte pair encoding of words.

    Args:
        counts: the count of each word; marks are ignored.
        num_merges: most merges; 0 gives single characters.
        in_bytes: as in `pieces_of`.

    Returns:
        The marks, the bytes if `in_bytes`, the sorted characters (each alone and at the end of a word), and the merged pieces.
    """
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.trainers import BpeTrainer

    words = {word: count for word, count in counts.items() if word not in MARKS}
    letters = sorted({letter for word in words for letter in word if not letter.isspace()})
    alphabet = [piece for letter in letters for piece in (letter, letter + END)]
    learner = Tokenizer(BPE(end_of_word_suffix=END))
    learner.pre_tokenizer = WhitespaceSplit()
    # As special tokens, characters get ids that do not depend on the order of words.
    trainer = BpeTrainer(
        vocab_size=len(alphabet) + num_merges,
        min_frequency=LEAST,
        special_tokens=alphabet,
        end_of_word_suffix=END,
        show_progress=False,
    )
    learner.train_from_iterator(_repeated(words), trainer)
    learned_merges = json.loads(learner.to_str())["model"]["merges"]
    merges = tuple((left, right) for left, right in learned_merges)
    merged = dict.fromkeys(left + right for left, right in merges)
    return PairVocabulary((*MARKS, *(BYTES if in_bytes else ()), *alphabet, *merged), merges)


def _repeated(words: Mapping[str, int]) -> Iterator[str]:
    """Yield text that repeats each word by its count, except words that could be spelt like a mark."""
    for word, count in words.items():
        if not ("<" in word and ">" in word) and not any(letter.isspace() for letter in word):
            for start in range(0, count, _AT_ONCE):
                yield " ".join([word] * min(_AT_ONCE, count - start))


def spelt(split: PairSplit, words: PairVocabulary, vocabulary: PairVocabulary) -> PairSplit:
    """Return a split encoded in another vocabulary; pairs keep their indices.

    Args:
        split: its utterances are ids of `words`.
        words: the vocabulary of the split.
        vocabulary: of words or pieces; for the same vocabulary, the split itself is returned.
    """
    if vocabulary is words:
        return split
    utterances = split.utterances
    units_U, starts_V1 = vocabulary.spell(words.words)
    lengths_V = np.diff(starts_V1)
    taken_T = lengths_V[utterances.values]
    ends_T1 = np.concatenate([[0], np.cumsum(taken_T)])
    places = np.arange(ends_T1[-1]) - np.repeat(ends_T1[:-1] - starts_V1[:-1][utterances.values], taken_T)
    values = units_U[places].astype(np.int32)
    return replace(split, utterances=Ragged(values, ends_T1[utterances.offsets]))


SAMPLE = "opensubtitles_sample"
SAMPLE_FILES = {"human": "t_given_s", "machine": "decoded", "random": "random"}
_WORD = re.compile(r"\S+")
_SPLITS = ("train", "dev", "test")
_UNKNOWNS = frozenset({"unknown", "<unk>", "[unk]", "<unknown>", "_unk_", "unk"})
"""Spellings of an unknown word, lower-cased; "unknown" and "unk" count only in capitals."""
CLOSED_FROM, FEWEST_UNKNOWN = 0.002, 3
"""Least share and least number of `<unk>` in a file with a closed vocabulary."""


class RepliedPair(NamedTuple):
    """A reply and its context.

    Args:
        context: turns, oldest first, each its words; the last one is the source.
        reply: its words.
    """

    context: tuple[Utterance, ...]
    reply: Utterance


def read_replied(file: Path | OwnFile, *, normalise: bool = True) -> list[RepliedPair]:
    """Read a file of pairs to judge.

    Args:
        file: lines or records as in `turns.py`, UTF-8.
        normalise: use the project's tokeniser, with unknown words as `<unk>`; otherwise split at blanks.

    Raises:
        DataError: the file cannot be read or is empty, or a line is broken; the message names the first broken line.
    """
    own_file = file if isinstance(file, OwnFile) else OwnFile(file)
    if own_file.kind is not None:
        return _read_records(own_file, normalise=normalise)
    if other := looks_like_csv(own_file.path):
        raise other
    return _read(own_file.path, read_lines(own_file.path), partial(parse_replied, normalise=normalise))


def parse_replied(line: str, *, normalise: bool = True) -> list[RepliedPair]:
    """Parse one line into a pair for each of its replies.

    Args:
        line: as in `turns.py`.
        normalise: as in `read_replied`.

    Raises:
        DataError: no tab, or a turn or a reply without a word.
    """
    context, replies = parse_line(_with_unknowns(line)) if normalise else _as_written(line)
    return [RepliedPair(tuple(map(tuple, context)), tuple(reply)) for reply in replies]


def read_sample_replies(root: Path, side: str) -> list[RepliedPair]:
    """Read all splits of one side of the published sample.

    Args:
        root: the folder of all corpora.
        side: "human", "machine" or "random".

    Raises:
        DataError: the side is unknown, a file is missing, or a line is broken.
    """
    folder = root / SAMPLE
    if side not in SAMPLE_FILES:
        samples = ", ".join(f"{SAMPLE}:{name}" for name in SAMPLE_FILES)
        raise DataError("the sample has no such side", got=f"{SAMPLE}:{side}", fix=f"known: {samples}")
    names = [f"{SAMPLE_FILES[side]}_{split}.txt" for split in _SPLITS]
    remedy = "get the files from github.com/jiweil/Neural-Dialogue-Generation, folder data"
    require_files(SAMPLE, folder, [DICTIONARY, *names], remedy)
    dictionary = read_lines(folder / DICTIONARY)
    dictionary[0] = UNKNOWN

    def pairs(line: str) -> list[RepliedPair]:
        source, reply = parse_coded(line, dictionary)
        return [RepliedPair((tuple(source),), tuple(reply))]

    return [pair for name in names for pair in _read(folder / name, read_lines(folder / name), pairs)]


def unknown_share(pairs: Sequence[RepliedPair]) -> float:
    """Return the share of `<unk>` in the words of a file, sources and replies."""
    num_words, num_unknown = _counted(pairs)
    return num_unknown / max(1, num_words)


def is_closed(pairs: Sequence[RepliedPair]) -> bool:
    """Return whether a file has a closed vocabulary: enough words are `<unk>`."""
    return unknown_share(pairs) >= CLOSED_FROM and _counted(pairs)[1] >= FEWEST_UNKNOWN


def in_one_vocabulary(
    first: Sequence[RepliedPair], second: Sequence[RepliedPair]
) -> tuple[Sequence[RepliedPair], Sequence[RepliedPair]]:
    """Return two files in one vocabulary, so that `<unk>` does not reveal the writer.

    The closed vocabulary of a file is its set of words. If one file has a closed vocabulary, other words of the other file
    become `<unk>`. If both have one, or neither, nothing changes.
    """
    closed = is_closed(first), is_closed(second)
    if closed == (False, True):
        return _all_within(first, second), second
    return (first, _all_within(second, first)) if closed == (True, False) else (first, second)


def _with_unknowns(line: str) -> str:
    """Return a line with every spelling of an unknown word as `<unk>`."""
    return _WORD.sub(lambda word: UNKNOWN if _is_unknown(word[0]) else word[0], line)


def _as_written(line: str) -> tuple[list[list[str]], list[list[str]]]:
    """Return the words between blanks of each turn and each reply."""
    require_utf8(line)
    *columns, last = line.split("\t")
    if not columns:
        raise broken_rule("a tab belongs between source and reply, and there is none", line)
    return _split_texts(columns, last.split(BETWEEN_REPLIES), line)


def _split_texts(turns: Sequence[str], texts: Sequence[str], shown: str) -> tuple[list[list[str]], list[list[str]]]:
    context, replies = [text.split() for turn in turns for text in turn.split(EOT)], [text.split() for text in texts]
    for name, side in (("source", context), ("reply", replies)):
        if not all(side):
            raise broken_rule(f"the {name} has no word", shown)
    return context, replies


def _counted(pairs: Sequence[RepliedPair]) -> tuple[int, int]:
    utterances = [words for pair in pairs for words in (*pair.context, pair.reply)]
    return sum(map(len, utterances)), sum(words.count(UNKNOWN) for words in utterances)


def _all_within(pairs: Sequence[RepliedPair], closed: Sequence[RepliedPair]) -> list[RepliedPair]:
    """Return pairs with words outside of a file's words as `<unk>`."""
    vocabulary = frozenset(word for pair in closed for words in (*pair.context, pair.reply) for word in words)
    return [_within(pair, vocabulary) for pair in pairs]


def _within(pair: RepliedPair, vocabulary: frozenset[str]) -> RepliedPair:
    def words(utterance: Iterable[str]) -> Utterance:
        return tuple(word if word in vocabulary else UNKNOWN for word in utterance)

    return RepliedPair(tuple(map(words, pair.context)), words(pair.reply))


def _is_unknown(word: str) -> bool:
    return word.lower() in _UNKNOWNS and (not word.isalpha() or word in ("UNK", "UNknown", "UNKNOWN"))


def _read(path: Path, lines: Sequence[str], parse: Callable[[str], list[RepliedPair]]) -> list[RepliedPair]:
    pairs, broken = [], []
    for number, line in enumerate(lines, 1):
        try:
            pairs += parse(line)
        except DataError as error:
            broken.append(located(error, str(path), number, "mend the line, or leave it out"))
    return _whole(path, pairs, broken)


def _read_records(own_file: OwnFile, *, normalise: bool) -> list[RepliedPair]:
    pairs: list[RepliedPair] = []
    broken: list[DataError] = []
    for exchange in own_file.exchanges(broken):
        if exchange is None:
            continue
        texts = exchange.context, exchange.replies
        try:
            if normalise:
                context, replies = parse_texts(*([_with_unknowns(text) for text in side] for side in texts))
            else:
                context, replies = _split_texts(*texts, repr(texts))
        except DataError as error:
            broken.append(located(error, str(own_file.path), exchange.line, "mend the record, or leave it out"))
        else:
            pairs += [RepliedPair(tuple(map(tuple, context)), tuple(reply)) for reply in replies]
    return _whole(own_file.path, pairs, broken)


def _whole(path: Path, pairs: list[RepliedPair], broken: Sequence[DataError]) -> list[RepliedPair]:
    """Return the pairs of a file without errors."""
    if broken:
        first = broken[0]
        raise DataError(f"{first.what} ({len(broken):,} broken in all)", where=first.where, got=first.got, fix=first.fix)
    if not pairs:
        raise DataError("the file holds no line", where=path, fix="lines are source<TAB>reply")
    return pairs
