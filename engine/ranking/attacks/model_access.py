"""What white-box methods see of a ranker beside scores: its slopes, and the words of its vocabulary. Looking is no query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np

from parley.engine.ranking.attacks.goals import RankGoal
from parley.envs.core.errors import RankerError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import Context
from parley.policies.ranking.ranker import Ranker, SlopedRanker, VocabularyRanker


class Need(NamedTuple):
    """What a method needs of a ranker beside scores; a method names it as `needs`.

    Args:
        protocol: of rankers that give it.
        what: such as "slopes".
        fix: for whoever has a ranker that does not.
    """

    protocol: type
    what: str
    fix: str

    def is_met(self, ranker: Ranker) -> bool:
        """Whether a ranker gives it."""
        return isinstance(ranker, self.protocol)


SLOPES = Need(
    SlopedRanker,
    "slopes",
    "take methods that ask for scores alone: greedy, beam, random; or give the ranker a method slopes "
    "(policies/ranking/ranker.py)",
)
VOCABULARY = Need(
    VocabularyRanker,
    "words of a vocabulary",
    "name a bi-encoder as the ranker (hf:FOLDER), or take methods that ask for scores alone: greedy, beam, random",
)


class Inside:
    """A ranker as white-box methods see it in one example. What a ranker does not give is not to be asked for (`Need`).

    Args:
        ranker: any.
        context: of the example.
        goal: whether higher scores are closer to it.
    """

    def __init__(self, ranker: Ranker, context: Context, goal: RankGoal) -> None:
        self._ranker, self._context, self._sign = ranker, context, goal.margin(1.0, 0.0)
        self.num_slopes = 0
        """Gradients that were asked for."""

    @property
    def vocabulary(self) -> Sequence[str]:
        """Words that the ranker reads as one token each."""
        return cast(VocabularyRanker, self._ranker).vocabulary()

    def reads(self, reply: Utterance, words: Utterance) -> bool:
        """Whether a reply with words of the vocabulary behind it is read as its own tokens and one for each word."""
        return cast(VocabularyRanker, self._ranker).reads(reply, words)

    def slopes(self, reply: Utterance, words: Sequence[str]) -> np.ndarray:
        """How much closer to the goal each word (W,) at each place of a reply (T,) comes, to first order (T, W).

        Raises:
            RankerError: the ranker raised, or did not give one finite number for each.
        """
        self.num_slopes += 1
        try:
            found = np.asarray(cast(SlopedRanker, self._ranker).slopes(self._context, reply, words), dtype=np.float64)
        except Exception as error:
            what = "the ranker raised an error when it was asked for slopes"
            raise RankerError(what, where=type(self._ranker).__name__, got=f"{type(error).__name__}: {error}") from error
        if found.shape != (len(reply), len(words)) or not np.isfinite(found).all():
            raise RankerError(
                "the ranker's slopes are not one finite number for each place and word",
                where=type(self._ranker).__name__,
                got=f"shape {found.shape} for {len(reply)} places and {len(words)} words",
                fix="return an array (words of the reply, words to try)",
            )
        return self._sign * found
