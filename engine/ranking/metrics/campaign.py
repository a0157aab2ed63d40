"""Metrics of rankers hardened in rounds, for one round and for a whole campaign."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from parley.engine.core.stats.known import AdversaryWords, CampaignMetrics, LanguageWatch, Round, best_of
from parley.engine.core.stats.rows import linked_units
from parley.engine.core.stats.statistics import Estimate, Metric, Row, clustered_rate, finished, rate_difference
from parley.engine.ranking.metrics.ranks import group_metrics, recall_at
from parley.engine.ranking.metrics.searched import REACHED_REASON
from parley.envs.core.seeds import stable_hash

RANKER, HIGHER = "lower: ranker", "higher: ranker"
POLICY_BEFORE, POLICY_AFTER, POLICY, SEARCH, HELD, FIRST = (
    "policy_before",
    "policy_after",
    "exploitability",
    "search_success",
    "under_attack",
    "clean",
)
ROUND_METRICS = {
    POLICY_BEFORE: Metric("policy before", RANKER, "success of the last policy on the ranker that it learned from", "rate"),
    POLICY_AFTER: Metric("policy after", RANKER, "success of the same policy on the ranker that learned from it", "rate"),
    POLICY: Metric("fresh policy", RANKER, "success of a policy that learned to mislead this ranker", "rate"),
    SEARCH: Metric("search", RANKER, "success of a greedy search by as many edits of the same kind", "rate"),
    HELD: Metric(
        "R@1 under attack",
        HIGHER,
        "share of contexts whose right reply is first under the search, random edits and every policy known",
        "rate",
    ),
    FIRST: Metric("R@1", HIGHER, "share of the contexts whose right reply is first among candidates as they are", "rate"),
}
"""The metrics of a ranker after a round, in the order of the table's columns."""
AS_CONTROL, BEFORE_HARDENING = "_control", "_before"
"""Endings of the metrics of the start after as much training on replies as they are, and of the start."""
GAIN, GAIN_BEYOND_CONTROL = "gain", "gain_beyond_control"
MEASURED = (POLICY, SEARCH, HELD, FIRST)
"""The metrics of start, result and control."""
_ENDINGS = {BEFORE_HARDENING: ", before", AS_CONTROL: ", control", "": ""}
CAMPAIGN = {
    **{
        f"{name}{ending}": ROUND_METRICS[name]._replace(title=f"{ROUND_METRICS[name].title}{suffix}", main=name == HELD)
        for name in MEASURED
        for ending, suffix in _ENDINGS.items()
    },
    GAIN: Metric("more R@1 under attack", HIGHER, "the result's less the start's, in the same contexts", main=True),
    GAIN_BEYOND_CONTROL: Metric("  beyond the control", HIGHER, "the result's less the control's", main=True),
}
"""The metrics of a campaign."""


def lost(round_: Round) -> float:
    """Return the loss that is to fall from round to round: 1 minus R@1 under attack."""
    return 1.0 - round_.metrics[HELD].value


ATTACKS = AdversaryWords(
    cell="Share of the contexts whose right reply is not first under the attack of the line, those included in which it is not "
    "first before. Each attack has as many edits and queries, but in the last column: there a policy and random edits have one "
    "try a context, in the test of its training.",
    measured="of the contexts lost",
    start="random edits",
    tries_all=True,
)
"""The words in which known attacks are shown."""
RANKERS = CampaignMetrics(
    what="ranker",
    of_round=ROUND_METRICS,
    at_end={name: ROUND_METRICS[name] for name in MEASURED},
    endings={"before": BEFORE_HARDENING, "control": AS_CONTROL, "after": ""},
    gains=(f"{ROUND_METRICS[HELD].title}: after, less this", {"before": GAIN, "control": GAIN_BEYOND_CONTROL}),
    loss=lost,
    watch=LanguageWatch(plain=FIRST),
    stalled="R@1 under attack has not risen",
    note_rounds="Round 0 is the ranker before any hardening. Policies edit the wrong reply that the ranker likes best; "
    "success: share of the contexts in which they bring it to the top, of those in which no wrong reply is there already. "
    "Under attack: by the search, random edits and all policies known by then. All on the validation split, "
    "which chooses the result's round. Brackets: 95 % intervals.",
    note_outcome="Control: the start, trained as long on replies as they are. All on the test split. Fresh policies are of one "
    "seed, which chose no round. Under attack: by the search, random edits, and the policies of all rounds, of result and "
    "control. Brackets: 95 % intervals.",
    known=ATTACKS,
)


class UnderAttack:
    """The results of a ranker under attack, context by context.

    Args:
        rows: of attacks on one ranker.
        methods: of the attacks, all of which it has to stand.
    """

    def __init__(self, rows: Sequence[Row], methods: Sequence[str]) -> None:
        self._rows = finished(rows)
        attacks = {row["item_key"]: [search for search in row["searches"] if search["method"] in methods] for row in self._rows}
        links = ([row["dialogue"] for row in self._rows], [stable_hash(*row["context"]) for row in self._rows])
        self._units = dict(zip(attacks, linked_units(*links).tolist(), strict=True))
        # A goal reached before any edit counts as lost; contexts without a reply to edit or without scores do not count.
        self._held = {
            key: float(all(search["status"] == "failure" for search in of_context))
            for key, of_context in attacks.items()
            if all(search["status"] in ("success", "failure") or search["reason"] == REACHED_REASON for search in of_context)
        }

    @property
    def keys(self) -> list[str]:
        """The contexts that count."""
        return list(self._held)

    def is_lost(self, key: str) -> float:
        """Return 1 if an attack puts a wrong reply first in a context that counts, else 0."""
        return 1 - self._held[key]

    def units(self, keys: Iterable[str]) -> list[int]:
        """Return the units of contexts."""
        return [self._units[key] for key in keys]

    def held(self) -> Estimate:
        """Return the share of contexts in which no attack puts a wrong reply first."""
        return clustered_rate(list(self._held.values()), self.units(self._held))

    def lost(self) -> Estimate:
        """Return the share of contexts in which an attack puts a wrong reply first: 1 - `held`."""
        return clustered_rate([1 - held for held in self._held.values()], self.units(self._held))

    def first(self) -> Estimate:
        """Return R@1 of the unattacked candidates, with ties as expectations."""
        scored = [row for row in self._rows if row["before"][0]["scores"]]
        keys = np.repeat([row["item_key"] for row in scored], [len(row["labels"]) for row in scored])
        scores = np.concatenate([row["before"][0]["scores"] for row in scored])
        labels = np.concatenate([row["labels"] for row in scored])
        metrics = group_metrics(keys, scores, labels)
        return clustered_rate(metrics.values[recall_at(1)], self.units(metrics.keys.tolist()))

    def more_than(self, other: UnderAttack) -> Estimate:
        """Return `held` minus that of another ranker, over the contexts that count for both."""
        keys = sorted(self._held.keys() & other._held.keys())
        return rate_difference([self._held[key] for key in keys], [other._held[key] for key in keys], self.units(keys))


def best_single(attacks: Sequence[UnderAttack]) -> Estimate:
    """Estimate the contexts that a ranker loses to its best attack by itself, chosen on one half and measured on the other.

    Args:
        attacks: the ranker under each attack alone.
    """
    keys = sorted(set.intersection(*(set(attack.keys) for attack in attacks)))
    lost_GA = np.array([[attack.is_lost(key) for attack in attacks] for key in keys])
    return best_of(lost_GA, attacks[0].units(keys), clustered_rate)
