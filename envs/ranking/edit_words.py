"""What `parley/ResponseRanking-v1` is played with where nothing is handed in: a ranker, words that may enter, what is seen.

They need no tagger and no model, and are there to try the environment out; `engine/ranking/attacks/editing.py` has those of
attacks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np

from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.edit_game import EditGame
from parley.envs.ranking.groups import CandidateGroup, Context

_ENDINGS = ("ing", "ed", "ly", "s")
_SHORT = 3
"""Letters up to which a word says nothing by itself."""


class TermOverlap:
    """Scores a reply by the cosine of its words with the context's, each weighed by how few contexts hold it.

    Args:
        contexts: that are counted.
    """

    def __init__(self, contexts: Sequence[Context]) -> None:
        self._num = len(contexts)
        self._holding = Counter(chain.from_iterable(set(chain.from_iterable(context)) for context in contexts))

    def __call__(self, pairs: Sequence[tuple[Context, Sequence[Utterance]]]) -> list[np.ndarray]:
        """Scores of the candidates of each context, from 0 to 1."""
        return [np.array([self._cosine(set(chain.from_iterable(said)), set(reply)) for reply in of]) for said, of in pairs]

    def _cosine(self, said: set[str], reply: set[str]) -> float:
        shared, *norms = (self._squares(words) for words in (said & reply, said, reply))
        return shared / math.sqrt(norms[0] * norms[1]) if shared else 0.0

    def _squares(self, words: set[str]) -> float:
        # Summed exactly, whatever the order of a set.
        return math.fsum(math.log((1 + self._num) / (1 + self._holding[word])) ** 2 for word in words)


class AlikeWords:
    """Proposes words of the context that end as the word does, those of the newest turn first: a tagger in two lines."""

    def propose(self, group: CandidateGroup, place: int) -> list[tuple[str, ...]]:
        """See `parley.envs.ranking.edit_game.Proposer`."""
        said = [word for turn in reversed(group.context) for word in turn]
        tags = {word: ending(word) for word in said}
        return [
            tuple(other for other, tag in tags.items() if tag is not None and tag == ending(word) and other != word)
            for word in group.candidates[place]
        ]


def ending(word: str) -> str | None:
    """What a word ends in, "" for nothing special; None for words that say little: short ones, numbers, marks."""
    if len(word) <= _SHORT or not word.isalpha():
        return None
    return next((end for end in _ENDINGS if word.endswith(end)), "")


class PlainSight:
    """Shows of each action: where the word stands, how often the context says the new one, the margin, the edits left."""

    size = 4

    def __call__(self, game: EditGame, rows: Sequence[int]) -> np.ndarray:
        """See `parley.envs.ranking.ranking_env.Sight`."""
        rules = game.rules
        seen = np.zeros((len(rows), rules.stop + 1, self.size), dtype=np.float32)
        for number, row in enumerate(rows):
            reply = game.replies[row]
            said = Counter(chain.from_iterable(reply.group.context))
            seen[number, :, 2:] = reply.margin / reply.distance, 1 - reply.num_steps / rules.edits
            for place, words in enumerate(reply.proposals):
                for proposal, word in enumerate(words):
                    action = place * rules.num_proposals + proposal
                    seen[number, action, :2] = place / rules.num_places, said[word] / said.total()
        return seen.clip(-1.0, 1.0)
