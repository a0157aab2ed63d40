"""What people who label changed lines say of strategies, and how far they agree.

Sources: Cohen 1960, "A coefficient of agreement for nominal scales"; Light 1971, "Measures of response agreement for
qualitative data": of several labellers, the mean over their pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

from parley.engine.core.stats.statistics import Estimate, count, rate
from parley.engine.perturb.metrics.audit import AGREEMENT, KAPPA, WRONG


def label_metrics(lines: Mapping[str, str], labels: Mapping[str, Mapping[str, bool]]) -> dict[str, Estimate]:
    """Rates of wrong lines by strategy; of several labellers their agreement too. Nothing where there is no label.

    Args:
        lines: the strategy of each line by its key.
        labels: whether a line is wrong, by labeller and key; a line that one labeller at least calls wrong is wrong.
    """
    votes: dict[str, list[bool]] = {}
    for said in labels.values():
        for key, wrong in said.items():
            votes.setdefault(key, []).append(wrong)
    if not votes:
        return {}
    found: dict[str, Estimate] = {}
    for strategy in dict.fromkeys(lines.values()):
        of_lines = [any(said) for key, said in votes.items() if lines[key] == strategy]
        found[f"{WRONG}.{strategy}"] = rate(sum(of_lines), len(of_lines))
    several = [said for said in votes.values() if len(said) > 1]
    if several:
        found[AGREEMENT] = rate(sum(len({*said}) == 1 for said in several), len(several))
        found[KAPPA] = count(_mean_kappa([*labels.values()]), len(several))
    return found


def kappa(pairs: Sequence[tuple[bool, bool]]) -> float:
    """Cohen's kappa of two labellers; NaN where both always say the same one thing, for then chance explains everything.

    Args:
        pairs: what each said of a line, at least one.
    """
    agreed = sum(one == other for one, other in pairs) / len(pairs)
    shares = [sum(pair[side] for pair in pairs) / len(pairs) for side in (0, 1)]
    chance = shares[0] * shares[1] + (1 - shares[0]) * (1 - shares[1])
    return (agreed - chance) / (1 - chance) if chance < 1 else math.nan


def _mean_kappa(labels: Sequence[Mapping[str, bool]]) -> float:
    pairs = [[(one[key], other[key]) for key in one if key in other] for one, other in combinations(labels, 2)]
    known = [value for both in pairs if both and not math.isnan(value := kappa(both))]
    return sum(known) / len(known) if known else math.nan
