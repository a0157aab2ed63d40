"""The pairs of a corpus in the words of a model: what generators are trained further on, and discriminators beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from parley.envs.corpora.pairs.compiled import PairCorpus, PairSplit, Ragged
from parley.envs.corpora.pairs.contexts import in_train, left_out, windows, with_replies
from parley.envs.corpora.pairs.turns import EOT
from parley.envs.corpora.pairs.vocabulary import PairVocabulary


class PairsInWords(NamedTuple):
    """What a model reads of a corpus.

    Args:
        splits: pairs in the order of the corpus; words that the model does not know are `<unk>`.
        note: how many pairs are left out because train has their contexts, in sentences; empty where there are none.
    """

    splits: dict[str, PairSplit]
    note: str


def pairs_in_words(
    corpus: PairCorpus, vocabulary: PairVocabulary, *, turns: int, min_reply: int, max_reply: int
) -> PairsInWords:
    """The splits of a corpus as a model reads them; validation and test pairs whose contexts stand in train are left out.

    Args:
        corpus: opened with every word.
        vocabulary: of the model; with more than one turn `<eot>` is one of its words.
        turns: of context, the newest; `<eot>` stands between them.
        min_reply: words that a reply has at least.
        max_reply: words that a reply has at most.
    """
    table = vocabulary.encode(corpus.vocabulary.words).astype(np.int32)
    found, notes = {}, []
    for name, split in corpus.splits.items():
        known = replace(split, utterances=Ragged(table[split.utterances.values], split.utterances.offsets))
        if turns > 1:
            known = windows(known, turns, vocabulary.index[EOT])
        seen = in_train(corpus, name, turns)
        asked = with_replies(known, min_reply, max_reply)
        found[name] = with_replies(replace(known, pairs=known.pairs[~seen]), min_reply, max_reply)
        notes.append(left_out(len(asked) - len(found[name]), len(asked), name))
    return PairsInWords(found, " ".join(filter(None, notes)))
