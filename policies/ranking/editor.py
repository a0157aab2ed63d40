"""A policy that edits replies: it scores every replacement of a word by features of it, and learns by reinforcement.

It plays `parley/ResponseRanking-v1` (`engine/ranking/rl.py` trains it) and is a method of attacks on rankers
(`engine/ranking/attacks/editing.py`). It sees a ranker's scores alone: the margin, and the effect of erasing each word of the
original, which costs a query a word. Shapes: B examples, A actions, F features.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from parley.envs.corpora.lines import WordList
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.edit_game import EditedReply, EditGame, EditRules
from parley.envs.ranking.groups import Context
from parley.policies.core.checkpoint import ActionScorer, ModelFormat
from parley.policies.core.settings import ChoiceSizes

FEATURES = (
    "place of the word, from the first to the last",
    "rarity of the word",
    "rarity of the new word",
    "times that the context says the new word, of three",
    "whether the newest turn says the new word",
    "whether the context says the word",
    "share of the other candidates that hold the new word",
    "what erasing the word takes off the margin",
    "margin",
    "edits left",
    "whether it stops",
)
"""Features of an action, each from -1 to 1; rarity is the IDF as a share of the largest."""
_TIMES = 3


class Editor(ActionScorer):
    """A policy that scores edits.

    Args:
        vocabulary: words whose rarity is known; others are the rarest.
        sizes: widths.
    """

    rarity: Tensor

    def __init__(self, vocabulary: WordList, sizes: ChoiceSizes) -> None:
        super().__init__(len(FEATURES), sizes)
        self.vocabulary = vocabulary
        self.register_buffer("rarity", torch.zeros(len(vocabulary)))

    def sight(self) -> EditorSight:
        """Return the features of an example for its actions."""
        return EditorSight(dict(zip(self.vocabulary.words, self.rarity.tolist(), strict=True)))


class EditorSight:
    """A computation of the `FEATURES` of each action.

    Args:
        rarity: of words.
    """

    size = len(FEATURES)

    def __init__(self, rarity: dict[str, float]) -> None:
        self._rarity = rarity

    def __call__(self, game: EditGame, rows: Sequence[int]) -> np.ndarray:
        """Return the features of actions, see `parley.envs.ranking.ranking_env.Sight`; each erased word is a query."""
        erased = game.margins(rows, [[] if game.replies[row].is_over else without_each(game.replies[row]) for row in rows])
        return np.stack([self.seen(game.replies[row], margins, game.rules) for row, margins in zip(rows, erased, strict=True)])

    def seen(self, reply: EditedReply, erased: Sequence[float] | np.ndarray, rules: EditRules) -> np.ndarray:
        """Return the features of an example (A, F) float32; zeros once it is over.

        Args:
            reply: as it is now.
            erased: the margin without each word of the original, as `without_each` lists them.
            rules: of the game.
        """
        features = np.zeros((rules.stop + 1, self.size), dtype=np.float32)
        if reply.is_over:
            return features
        context_counts, newest = Counter(chain.from_iterable(reply.group.context)), set(reply.group.context[-1])
        rival_words = [set(words) for words in reply.group.candidates if words != reply.original]
        before = erased[-1]
        features[:, 8] = reply.margin / reply.distance
        features[:, 9] = 1 - reply.num_steps / rules.edits
        features[rules.stop, 10] = 1
        for position, (old, words) in enumerate(zip(reply.original, reply.proposals, strict=False)):
            of_word = position / len(reply.original), self._rarity.get(old, 1.0)
            lost = (before - erased[position]) / reply.distance
            for number, new in enumerate(words):
                held = sum(new in other for other in rival_words) / max(len(rival_words), 1)
                features[position * rules.num_proposals + number, :8] = (
                    *of_word,
                    self._rarity.get(new, 1.0),
                    min(context_counts[new] / _TIMES, 1.0),
                    new in newest,
                    old in context_counts,
                    held,
                    lost,
                )
        return features.clip(-1.0, 1.0)


def without_each(reply: EditedReply) -> list[Utterance]:
    """Return the original without each of the words that may be replaced, then the original itself."""
    words = reply.original
    return [*(words[:position] + words[position + 1 :] for position in range(len(reply.proposals))), words]


def new_editor(contexts: Iterable[Context], sizes: ChoiceSizes, seed: int) -> Editor:
    """Return an untrained policy.

    Args:
        contexts: of the training split; rarity is counted in them.
        sizes: widths.
        seed: of the weights.
    """
    counts: Counter[str] = Counter()
    num = 0
    for context in contexts:
        counts.update(set(chain.from_iterable(context)))
        num += 1
    words = sorted(counts)
    editor = Editor(WordList(tuple(words)), sizes)
    rarest = math.log(1 + num)
    editor.rarity = torch.tensor([math.log((1 + num) / (1 + counts[word])) / rarest for word in words])
    editor.draw_weights(seed)
    return editor.eval()


FORMAT = ModelFormat("editor", WordList, ChoiceSizes, Editor)
"""Storage format of the policy."""


def load_editor(folder: Path) -> Editor:
    """Return the policy of a run or checkpoint folder; errors as of `ModelFormat.load`."""
    return FORMAT.load(folder)
