"""Small corpora of candidates written for the tests, in the published formats."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from parley.envs.corpora.pairs.tokens import PairText
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup, CandidateKind, Context

ROWS = (
    "1\tmy disk is full\twhich disk ?\tthe first one",
    "0\tmy disk is full\twhich disk ?\tgood morning",
    "0\tmy disk is full\twhich disk ?\tno",
    "1\thello\thi there",
    "0\thello\tit is red",
)
"""Groups of three and of two."""


def listed(group: CandidateGroup) -> tuple[list[str], dict[str, bool]]:
    """Turns of the context, and candidates with their labels."""
    return [" ".join(turn) for turn in group.context], {
        " ".join(said): label for said, label in zip(group.candidates, group.labels, strict=True)
    }


def pair_text(dialogues: Sequence[Sequence[str]], split: str = "train") -> PairText:
    """Neighbouring utterances of each dialogue as pairs."""
    text = PairText()
    into = text.splits[split]
    for dialogue in dialogues:
        rows = [into.add(said.split()) for said in dialogue]
        for source, reply in pairwise(rows):
            into.link(source, reply)
    return text


DESK = CandidateGroup(
    "desk-1",
    (("the", "printer", "keeps", "jamming"), ("which", "drawer", "jams", "?")),
    (("open", "the", "lower", "drawer"), ("your", "laptop", "needs", "charging"), ("good", "morning")),
    (True, False, False),
    (CandidateKind.POSITIVE, CandidateKind.RANDOM, CandidateKind.RANDOM),
    (True, True, True),
)
"""A context with one right reply."""


class Listed:
    """Scores a reply by the sum of what its words weigh."""

    WEIGHTS = {"drawer": 2.0, "printer": 1.5, "jamming": 1.0, "keeps": 0.75, "lower": 0.5, "laptop": 0.25}

    def __call__(self, pairs: Sequence[tuple[Context, Sequence[Utterance]]]) -> list[np.ndarray]:
        return [np.array([sum(self.WEIGHTS.get(word, 0.0) for word in reply) for reply in of]) for _, of in pairs]

    def __repr__(self) -> str:
        return "Listed()"
