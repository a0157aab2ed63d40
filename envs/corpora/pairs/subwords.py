"""Byte pair encoding of a corpus: pieces learnt from its training text, and its splits in pieces instead of words.

Source: Sennrich et al. 2016 (arXiv 1508.07909); Niu & Bansal 2018 take 5,000 merges and get 5,121 pieces. As in the released
subword-nmt, pairs that stand in one place only are not merged, and no merge reaches over the end of a word.
  * # Released: a character that never ends a word in training cannot end one. Ours: each is a piece alone and one at the end
    of a word, so that every word of known characters can be spelt.
  * Of pairs that are as frequent the library decides, by the order of characters, the same on every machine.

Text is learnt from the words of a corpus that was opened with every word: each word is spelt once, however often it is said.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from parley.envs.core.errors import ConfigError
from parley.envs.corpora.arrow import compiled_folder, is_whole, publish
from parley.envs.corpora.pairs.compiled import PairCorpus, PairSplit, Ragged
from parley.envs.corpora.pairs.vocabulary import BYTES, END, MARKS, PairVocabulary

LEARNER_VERSION = 1
"""Grows when the same text would give other pieces."""
LEAST = 2
"""How often a pair stands in the text at least that is merged."""

_VOCABULARY = "vocabulary.json"
_AT_ONCE = 1000
"""Times that a word stands in one string of what the learner reads."""


def pieces_of(corpus: PairCorpus, num_merges: int, *, in_bytes: bool = False, cache: Path | None = None) -> PairVocabulary:
    """The pieces of a corpus, learnt when they have not been learnt before.

    Args:
        corpus: opened with every word; all of its training split is read, whatever `first` left of it.
        num_merges: merges at most; fewer where the text has no more.
        in_bytes: whether characters that the text lacks are spelt in bytes, instead of one `<unk>` each.
        cache: where what was learnt is kept; see `parley.envs.corpora.root.cache_root` for the default.

    Raises:
        ConfigError: no merge is asked for.
        DataError: what was learnt cannot be written.
    """
    if num_merges < 1:
        fix = "give at least 1; 5,000 is what Niu & Bansal 2018 take"
        raise ConfigError("byte pair encoding needs a number of merges", where="subwords", got=num_merges, fix=fix)
    key = "pieces", LEARNER_VERSION, corpus.folder.name, num_merges, int(in_bytes)
    folder = compiled_folder(cache, corpus.name, *key)
    if not is_whole(folder, (_VOCABULARY,)):
        found = learn_pieces(word_counts(corpus.whole()), num_merges, in_bytes=in_bytes)
        publish(folder, lambda draft: found.save(draft / _VOCABULARY))
    return PairVocabulary.load(folder / _VOCABULARY)


def word_counts(corpus: PairCorpus) -> dict[str, int]:
    """How often the training split says each of its words."""
    words = corpus.vocabulary.words
    counts = np.bincount(corpus.splits["train"].utterances.values, minlength=len(words)).tolist()
    return {word: count for word, count in zip(words, counts, strict=True) if count}


def learn_pieces(counts: Mapping[str, int], num_merges: int, *, in_bytes: bool = False) -> PairVocabulary:
    """Byte pair encoding of words.

    Args:
        counts: how often the text says each; marks among them are left out.
        num_merges: merges at most, from 0, which leaves single characters.
        in_bytes: as in `pieces_of`.

    Returns:
        The marks, bytes if they are wanted, characters in their order, each as it is and at the end of a word, and what
        merges make.
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
    # Named first, characters have numbers that do not depend on the order in which words are met.
    trainer = BpeTrainer(
        vocab_size=len(alphabet) + num_merges,
        min_frequency=LEAST,
        special_tokens=alphabet,
        end_of_word_suffix=END,
        show_progress=False,
    )
    learner.train_from_iterator(_repeated(words), trainer)
    found = json.loads(learner.to_str())["model"]["merges"]
    merges = tuple((left, right) for left, right in found)
    made = dict.fromkeys(left + right for left, right in merges)
    return PairVocabulary((*MARKS, *(BYTES if in_bytes else ()), *alphabet, *made), merges)


def _repeated(words: Mapping[str, int]) -> Iterator[str]:
    """Text in which each word stands as often as it was counted; without words that could be spelt like a mark."""
    for word, count in words.items():
        if not ("<" in word and ">" in word) and not any(letter.isspace() for letter in word):
            for start in range(0, count, _AT_ONCE):
                yield " ".join([word] * min(_AT_ONCE, count - start))


def spelt(split: PairSplit, words: PairVocabulary, vocabulary: PairVocabulary) -> PairSplit:
    """A split in the units of another vocabulary; pairs keep their places.

    Args:
        split: whose utterances are words.
        words: what their ids stand for.
        vocabulary: words or pieces; the split itself comes back where they are the same.
    """
    if vocabulary is words:
        return split
    own = split.utterances
    units_U, starts_V1 = vocabulary.spell(words.words)
    lengths_V = np.diff(starts_V1)
    taken_T = lengths_V[own.values]
    ends_T1 = np.concatenate([[0], np.cumsum(taken_T)])
    places = np.arange(ends_T1[-1]) - np.repeat(ends_T1[:-1] - starts_V1[:-1][own.values], taken_T)
    values = units_U[places].astype(np.int32)
    return PairSplit(Ragged(values, ends_T1[own.offsets]), split.pairs, split.links)
