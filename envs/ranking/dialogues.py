"""Contexts of a corpus of pairs and what followed them: groups whose wrong replies are still to be drawn.

A context is a chain of turns (`envs/corpora/pairs/contexts.py`), its right reply what follows. A dialogue is what pairs
connect, as far as the first source of each reply goes; a corpus of single exchanges has one pair a dialogue.
"""

from __future__ import annotations

import numpy as np

from parley.envs.corpora.pairs.compiled import PairSplit, Ragged
from parley.envs.corpora.pairs.contexts import NOBODY, chains
from parley.envs.corpora.pairs.text import PairText, SplitText
from parley.envs.corpora.pairs.vocabulary import EOU
from parley.envs.ranking.groups import CandidateKind
from parley.envs.ranking.text import Candidate, CandidateText, SplitGroups


def groups_of_pairs(pairs: PairText, turns: int) -> CandidateText:
    """One group for each pair, of its right reply alone.

    Args:
        pairs: what was read of the corpus; what is broken in it is broken here.
        turns: the most turns of a context.
    """
    text = CandidateText(broken=pairs.broken)
    for name, split in pairs.splits.items():
        _group(split, text.splits[name], turns)
    return text


def _group(pairs: SplitText, split: SplitGroups, turns: int) -> None:
    split.is_drawn = True
    said = [split.add([word for word in words if word != EOU]) for words in pairs.utterances()]
    graph = PairSplit(Ragged(np.zeros(0, dtype=np.int32), pairs.offsets), pairs.pairs, pairs.links)
    roots = _roots(graph)
    for number, ((_, reply), chain) in enumerate(zip(graph.pairs.tolist(), chains(graph, turns).tolist(), strict=True)):
        context = [said[turn] for turn in reversed(chain) if turn != NOBODY]
        split.group(context, [Candidate(said[reply], True, CandidateKind.POSITIVE)], number, int(roots[reply]))


def _roots(graph: PairSplit) -> np.ndarray:
    """The utterance that begins the dialogue of each (N,) int64."""
    parents = np.arange(len(graph.utterances))
    # Of several sources of a reply the first holds, as in a chain.
    parents[graph.pairs[::-1, 1]] = graph.pairs[::-1, 0]
    # Each round doubles how far back it is looked, so that a loop in a corpus of one's own ends it too.
    for _ in range(len(parents).bit_length()):
        parents = parents[parents]
    return parents
