"""Figures of Niu & Bansal 2018 (arXiv 1809.02079, tables 1 to 4 and 9), which measured ones are shown beside.

Their F1 cannot be compared with ours in size, only in its ups and downs: they answered the Ubuntu Dialogue Corpus, whose
replies were tagged by another tagger, and a constant answer scores above all of them
(`parley.engine.perturb.metrics.activity`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Pair = tuple[float, float]
"""Activity F1 and entity F1, or similarity of contexts and of replies."""


@dataclass(frozen=True)
class Figures:
    """What was published of a model.

    Args:
        title: what the paper calls the model.
        clean: F1 on clean contexts, in percent (table 1).
        attacked: F1 under each strategy before training against it (N-train, A-test of tables 2 and 3).
        trained: the same after training against it (A-train, A-test).
        trained_clean: F1 on clean contexts after that training (A-train, N-test).
        similarity: cosines of contexts and of replies, clean and perturbed (table 4).
    """

    title: str
    clean: Pair
    attacked: Mapping[str, Pair]
    trained: Mapping[str, Pair]
    trained_clean: Mapping[str, Pair]
    similarity: Mapping[str, Pair] = field(default_factory=dict)


NORMAL_INPUT: Mapping[str, Pair] = MappingProxyType(
    {
        "LSTM": (1.18, 0.87),
        "HRED": (4.34, 2.22),
        "VHRED": (4.63, 2.53),
        "VHRED with attention": (5.94, 3.52),
        "reranking RL": (5.67, 3.73),
    }
)
"""Table 1: F1 on clean contexts, by model."""

SUBWORDS: Mapping[str, Mapping[str, Pair]] = MappingProxyType(
    {
        "words": MappingProxyType({"clean": NORMAL_INPUT["VHRED with attention"], "grammar-errors": (5.60, 3.09)}),
        "pieces": MappingProxyType({"clean": (5.99, 3.66), "grammar-errors": (5.86, 3.54)}),
    }
)
"""Table 9: F1 of VHRED that reads words (20,000 types) and pieces (5,121), on clean and on perturbed contexts."""

_STRATEGIES = (
    "random-swap",
    "stopword-dropout",
    "data-paraphrase",
    "generative-paraphrase",
    "grammar-errors",
    "add-negation",
    "antonym",
)


def _by_strategy(*pairs: Pair | None, **others: Pair) -> Mapping[str, Pair]:
    listed = {name: pair for name, pair in zip(_STRATEGIES, pairs, strict=True) if pair is not None}
    return MappingProxyType({**listed, **{name.replace("_", "-"): pair for name, pair in others.items()}})


PUBLISHED: Mapping[str, Figures] = MappingProxyType(
    {
        "niu2018": Figures(
            title="VHRED with attention",
            clean=NORMAL_INPUT["VHRED with attention"],
            attacked=_by_strategy(
                (6.10, 3.42), (5.49, 3.44), (5.38, 3.18), (4.25, 2.48), (5.60, 3.09), (6.06, 3.42), (5.85, 3.56)
            ),
            trained=_by_strategy(
                (6.47, 3.64), (6.23, 3.82), (6.39, 3.83), (5.89, 3.60), (5.93, 3.67), (5.01, 3.12), (5.43, 3.43)
            ),
            trained_clean=_by_strategy(
                (6.42, 3.74),
                (6.29, 3.71),
                (6.32, 3.87),
                (6.11, 3.66),
                (6.05, 3.69),
                (6.07, 3.46),
                (5.98, 3.56),
                should_not_change=(6.74, 3.97),
            ),
            similarity=_by_strategy(
                (1.00, 0.71), (0.61, 0.50), (0.96, 0.58), (0.70, 0.40), (0.96, 0.58), (0.96, 0.69), (0.98, 0.66)
            ),
        ),
        "niu2018-rl": Figures(
            title="reranking RL",
            clean=NORMAL_INPUT["reranking RL"],
            attacked=_by_strategy(
                (5.49, 3.56), (5.51, 4.09), (5.28, 3.07), (4.47, 2.63), (5.33, 3.25), (5.61, 3.79), (5.68, 3.70)
            ),
            trained=_by_strategy((6.20, 4.28), None, (5.53, 3.69), (5.30, 3.35), (5.55, 3.92), (4.92, 2.78), (5.30, 2.95)),
            trained_clean=_by_strategy(
                (6.36, 4.39), None, (5.79, 3.87), (5.86, 3.90), (5.93, 4.04), (6.10, 3.93), (5.80, 3.71)
            ),
            similarity=_by_strategy(
                (1.00, 0.86), (0.76, 0.68), (0.96, 0.74), (0.76, 0.55), (0.97, 0.74), (0.97, 0.81), (0.98, 0.74)
            ),
        ),
    }
)
"""By the name under which a user asks for them."""
