"""A language of a few words, rankers whose best edit can be worked out, and groups for them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from parley.engine.perturb.replies.settings import SynonymChoice
from parley.engine.perturb.strategies.texts import FlatContexts
from parley.engine.ranking.attacks.attack import RankAttack
from parley.engine.ranking.attacks.cases import Constraint
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup, CandidateKind, Context
from parley.policies.ranking.ranker import Pair

STOPS = frozenset(("the", "is", "?"))
SYNONYMS = {"big": ("large", "huge"), "run": ("go",), "cat": ("feline",), "quick": ("fast",)}


class Toy:
    """Tags are first letters: `n1` and `n2` share one; `a` is followed by no vowel."""

    generic: tuple[Utterance, ...] = ()

    def __init__(self) -> None:
        self.num_tagged = 0

    def tag_all(self, utterances: Sequence[Utterance]) -> list[list[str]]:
        self.num_tagged += len(utterances)
        return [[word[:1] for word in words] for words in utterances]

    def are_tags(self, utterances: Sequence[Utterance], tags: Sequence[Sequence[str]]) -> list[bool]:
        return [found == list(own) for found, own in zip(self.tag_all(utterances), tags, strict=True)]

    def class_of(self, tag: str) -> Any:
        return "name" if tag == "q" else "noun"

    def is_content(self, word: str) -> bool:
        return word not in STOPS

    def stays(self, flat: FlatContexts) -> np.ndarray:
        return np.array([word == "cat" for word in flat.words], dtype=bool)

    def synonyms(self, asked: Sequence[tuple[str, str]], choice: SynonymChoice) -> list[Utterance]:
        return [SYNONYMS.get(word, ()) for word, _ in asked]

    def fits(self, before: str, word: str, other: str) -> bool:
        return (before, other) != ("the", "huge")


class Sum:
    """The sum of weights of a reply's words; others weigh nothing. Counts what it is asked."""

    def __init__(self, weights: dict[str, float], noise: float = 0.0) -> None:
        self.weights, self._noise = weights, noise
        self.asked: list[Utterance] = []
        self.words = (*(word for word in sorted(weights) if " " not in word and word != "top"), "z1", "z2")
        self.sizes: list[int] = []

    def score(self, context: Context, candidates: Sequence[Utterance]) -> np.ndarray:
        self.asked += candidates
        return np.array([sum(self.weights.get(word, 0.0) for word in reply) for reply in candidates])

    def score_all(self, pairs: Sequence[Pair]) -> list[np.ndarray]:
        self.sizes.append(len(pairs))
        found = [self.score(*pair) for pair in pairs]
        # What a batch does to a network: the last digits change with its size.
        return [scores * (1 + self._noise * np.sin(len(pairs) + np.arange(len(scores)))) for scores in found]

    def slopes(self, context: Context, reply: Utterance, words: Sequence[str]) -> np.ndarray:
        here = np.array([self.weights.get(word, 0.0) for word in reply])
        return np.array([self.weights.get(word, 0.0) for word in words])[None, :] - here[:, None]

    def vocabulary(self) -> Sequence[str]:
        return self.words

    def reads(self, reply: Utterance, words: Utterance) -> bool:
        return True


class Odds(Sum):
    """The same as probabilities that fit."""

    gives_probabilities = True

    def score(self, context: Context, candidates: Sequence[Utterance]) -> np.ndarray:
        return np.asarray(1 / (1 + np.exp(-super().score(context, candidates))))


class Crossed(Sum):
    """Words also act on their neighbours, so that the best single edits are not the best together."""

    def score(self, context: Context, candidates: Sequence[Utterance]) -> np.ndarray:
        plain = super().score(context, candidates)
        pairs = [sum(self.weights.get(f"{a} {b}", 0.0) for a, b in pairwise(reply)) for reply in candidates]
        return plain + np.array(pairs)


def group(
    candidates: Sequence[str],
    context: Sequence[str] = ("n1 n2 v1", "the n3 a1"),
    right: int = 0,
    key: str = "test-0",
    attackable: Sequence[bool] | None = None,
) -> CandidateGroup:
    labels = tuple(place == right for place in range(len(candidates)))
    return CandidateGroup(
        key,
        tuple(tuple(turn.split()) for turn in context),
        tuple(tuple(reply.split()) for reply in candidates),
        labels,
        tuple(CandidateKind.POSITIVE if label else CandidateKind.RANDOM for label in labels),
        tuple(attackable) if attackable else (True,) * len(labels),
    )


def attack(ranker: Any, constraints: Sequence[Constraint] = (), **kwargs: Any) -> RankAttack:
    return RankAttack(ranker, Toy(), constraints=constraints, **kwargs)
