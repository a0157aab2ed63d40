"""What an evaluation under perturbations says of a reply: F1 of activities and entities, likeness to the reply before.

The measures themselves are in `engine/perturb/metrics/activity.py` and `similarity.py`; here they are opened, and asked
once for what occurs often, as short replies do.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from parley.engine.core.stats.statistics import Estimate
from parley.engine.perturb.metrics.activity import ActivityExtractor, f1, reference_metrics
from parley.engine.perturb.metrics.activity_tables import read_activity_tables
from parley.engine.perturb.metrics.similarity import average_similarity, sentence_bleu
from parley.engine.perturb.resources import Resources
from parley.envs.corpora.pairs.turns import Turn, Turns
from parley.envs.corpora.root import data_root
from parley.policies.core.responder import Responder

_REMEMBERED = 1 << 16


class Activities:
    """F1 of activities and entities.

    Args:
        extractor: reads them off replies.
    """

    def __init__(self, extractor: ActivityExtractor) -> None:
        self.extract = lru_cache(_REMEMBERED)(extractor.extract)

    @classmethod
    def open(cls, resources: Resources) -> Activities:
        """The tables of the data root, and the tagger of the lexicon.

        Raises:
            DataError: the tables or the tagger are not there; says how to get them.
        """
        return cls(ActivityExtractor(read_activity_tables(data_root(resources.data_root)), resources.lexicon.tag))

    def f1(self, reply: Turn, truth: Turn) -> tuple[float | None, float | None]:
        """Of activities and of entities, 0 to 1; None where the truth does not count."""
        return f1(self.extract(reply), self.extract(truth))

    def references(self, truths: Sequence[Turn]) -> dict[str, Estimate]:
        """What constant replies and the truths themselves score."""
        return reference_metrics([self.extract(truth) for truth in truths])


def likeness(responder: Responder, before: Sequence[Turns], after: Sequence[Turns]) -> list[float | None]:
    """Cosines of the mean embeddings of texts, as a model perceives them.

    Args:
        responder: the model.
        before: contexts, or replies as contexts of one turn.
        after: as many, to be compared with them.

    Returns:
        -1 to 1; None where the model knows no word of the text before, or shows no embeddings.
    """
    if not hasattr(responder, "vectors"):
        return [None] * len(before)
    return average_similarity([_words(turns) for turns in before], [_words(turns) for turns in after], responder.vectors)


@lru_cache(_REMEMBERED)
def bleu(before: Turn, after: Turn) -> float:
    """BLEU of a reply against the one before, over the words of all utterances, 0 to 1."""
    return sentence_bleu(_words((after,)), _words((before,)))


def _words(turns: Turns) -> list[str]:
    return [word for turn in turns for utterance in turn for word in utterance]
