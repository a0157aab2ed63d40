"""The pairs of a corpus in the words of a model: what generators are trained further on, and discriminators beside them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from envs.pairs.compiled import PairCorpus, PairSplit, Ragged
from envs.pairs.contexts import windows, with_replies
from envs.pairs.turns import EOT
from envs.pairs.vocabulary import PairVocabulary


def pairs_in_words(
    corpus: PairCorpus, vocabulary: PairVocabulary, *, turns: int, min_reply: int, max_reply: int
) -> dict[str, PairSplit]:
    """The splits of a corpus as a model reads them.

    Args:
        corpus: opened with every word.
        vocabulary: of the model; with more than one turn `<eot>` is one of its words.
        turns: of context, the newest; `<eot>` stands between them.
        min_reply: words that a reply has at least.
        max_reply: words that a reply has at most.

    Returns:
        Pairs in the order of the corpus; words that the model does not know are `<unk>`.
    """
    table = vocabulary.encode(corpus.vocabulary.words).astype(np.int32)
    found = {}
    for name, split in corpus.splits.items():
        known = replace(split, utterances=Ragged(table[split.utterances.values], split.utterances.offsets))
        if turns > 1:
            known = windows(known, turns, vocabulary.index[EOT])
        found[name] = with_replies(known, min_reply, max_reply)
    return found
