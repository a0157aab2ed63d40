"""How replies take perturbed contexts, in numbers: F1, change rates, similarities, and whether training helped.

Source: Niu & Bansal 2018 (arXiv 1809.02079), tables 2 to 4. A row is an example with its perturbed contexts
and every model's replies (`parley.engine.perturb.verbs.rows.ROBUSTNESS`). Models are `BASE` and, for each adversarially trained
one, what it was trained against; it is asked about the clean context and about the contexts of those strategies.
  # Paper: significance by 100,000 bootstrap samples, whether paired is not said. Ours: paired over examples, two-sided.

Metrics are called KIND.MODEL.SITUATION, the situation being a strategy or `CLEAN`; F1 and shares are 0 to 1. Examples are the
independent units.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np

from parley.engine.core.stats.answers import NO_REPLY_METRICS, is_no_reply, kinds_of_rows, no_reply_metrics
from parley.engine.core.stats.rows import finished
from parley.engine.core.stats.statistics import (
    NUM_TEST_RESAMPLES,
    Estimate,
    Metric,
    PairedTest,
    clustered_rate,
    count,
    mean,
    paired_bootstrap,
    rate,
    rate_difference,
)
from parley.engine.perturb.metrics.activity import CEILING, CONSTANTS
from parley.envs.corpora.pairs.vocabulary import MARKS

logger = logging.getLogger(__name__)

Row = Mapping[str, Any]
"""One example, keyed by the columns of `parley.engine.perturb.verbs.rows.ROBUSTNESS`."""
Reply = Mapping[str, Any]
"""One entry of the column `replies`."""

BASE = "base"
"""The model that perturbations were made for, before any training against them."""
BESIDE = "beside"
"""A model of another kind that answers the same contexts."""
CONTROL = "none"
"""A model that was trained as long on contexts as they are."""
CLEAN = "clean"
"""The situation of a context that was not perturbed; rows have "" as its strategy."""
PERTURBED_SHARE = "perturbed_share"
CHANGE_RATE, TOUCHED_CHANGE_RATE = "change_rate", "change_rate_touched"
DIFFERENT = "different_replies"
ACTIVITY, ENTITY = "activity_f1", "entity_f1"
CONTEXT_SIMILARITY, REPLY_SIMILARITY, BLEU = "context_similarity", "reply_similarity", "bleu"
GAIN, P_VALUE = "_gain", "_p"
"""What follows a kind in the name of another model's figure less the base's, and of the p-value of that difference."""
LOSS, LOSS_P = "_loss", "_loss_p"
"""The same of a model's figure behind perturbed contexts less its own behind clean ones."""
UNKNOWN_SHARE = "unknown_share"
NO_REPLY_SHARE = "no_reply_share"

_BETTER = "higher: better, but under should-change lower"
_EITHER = "lower under should-not-change, higher under should-change: better"
_F1_OVER = "mean over the examples whose true reply has an activity in every utterance"
_KINDS: dict[str, Metric] = {
    PERTURBED_SHARE: Metric("perturbed", "", "share of all contexts in which something was changed", "share"),
    CHANGE_RATE: Metric("changed replies", _EITHER, "share of replies unlike the same model's clean one", "share", main=True),
    TOUCHED_CHANGE_RATE: Metric(
        "changed replies, touched contexts", _EITHER, "the same over the contexts in which something was changed", "share"
    ),
    DIFFERENT: Metric("different replies", "", "to contexts as they are; few: it hardly reads them", "count", main=True),
    ACTIVITY: Metric("activity F1", _BETTER, f"{_F1_OVER}, 0 to 1", "rate", main=True),
    ENTITY: Metric("entity F1", _BETTER, f"{_F1_OVER}, 0 to 1; 0 where it has no entity", "rate", main=True),
    CONTEXT_SIMILARITY: Metric("similarity of contexts", "", "cosine of the model's mean embeddings, mean over contexts"),
    REPLY_SIMILARITY: Metric("similarity of replies", "", "cosine of the model's mean embeddings, mean over replies"),
    BLEU: Metric("BLEU of replies", "", "of the reply against the same model's clean one, 0 to 1, mean over replies", "rate"),
    ACTIVITY + GAIN: Metric("gain of activity F1", "", "it minus base on the same contexts, mean over examples"),
    ENTITY + GAIN: Metric("gain of entity F1", "", "it minus base on the same contexts, mean over examples"),
    ACTIVITY + P_VALUE: Metric("p of the gain of activity F1", "", "paired bootstrap, two-sided"),
    ENTITY + P_VALUE: Metric("p of the gain of entity F1", "", "paired bootstrap, two-sided"),
    **{
        kind + suffix: Metric(f"{title} of {name} F1", "", meaning)
        for kind, name in ((ACTIVITY, "activity"), (ENTITY, "entity"))
        for suffix, title, meaning in (
            (LOSS, "change", "behind perturbed contexts minus clean ones, the same model, mean over examples"),
            (LOSS_P, "p of the change", "paired bootstrap, two-sided"),
        )
    },
    UNKNOWN_SHARE: Metric(
        "contexts with unknown words", "", "share where the base reads <unk>: in perturbed ones, for a new word", "share"
    ),
    NO_REPLY_SHARE: Metric(
        "answers without a reply", "", "share of contexts; with no reply nothing is compared, nor has it an F1", "share"
    ),
    CHANGE_RATE + GAIN: Metric("changed replies, less base", _EITHER, "on the same contexts, mean over examples"),
    CHANGE_RATE + P_VALUE: Metric("p of the difference of changed replies", "", "paired bootstrap, two-sided"),
}
_REFERENCES = {
    **dict.fromkeys(CONSTANTS, "of a constant answer"),
    CEILING: "of the true replies themselves: the most that can be reached",
}


def describe(name: str) -> Metric:
    """What a metric of this module or of `activity.reference_metrics` is called and how to read it."""
    if name in NO_REPLY_METRICS:
        return NO_REPLY_METRICS[name]
    kind, _, rest = name.partition(".")
    metric = _KINDS[kind]
    if rest in _REFERENCES:
        return metric._replace(
            title=f"{metric.title}, {rest}", definition=f"{_REFERENCES[rest]}; {metric.definition}", main=False
        )
    return metric._replace(title=f"{metric.title}, {rest.replace('.', ', ')}")


def base_metrics(strategies: Sequence[str]) -> list[str]:
    """The names of all metrics of the base under some strategies; those of F1 are there only where it can be scored."""
    kinds = (CHANGE_RATE, TOUCHED_CHANGE_RATE, CONTEXT_SIMILARITY, REPLY_SIMILARITY, BLEU)
    of_strategies = [f"{kind}.{BASE}.{name}" for name in strategies for kind in kinds]
    f1 = [f"{kind}.{BASE}.{name}" for name in (CLEAN, *strategies) for kind in (ACTIVITY, ENTITY)]
    return [*(f"{PERTURBED_SHARE}.{name}" for name in strategies), f"{DIFFERENT}.{BASE}.{CLEAN}", *of_strategies, *f1]


def robustness_metrics(rows: Sequence[Row], num_resamples: int = NUM_TEST_RESAMPLES) -> dict[str, Estimate]:
    """All metrics of some rows; kinds for which no row has a number are left out.

    Args:
        rows: those with status "error" are left out with a warning.
        num_resamples: of the significance tests.
    """
    examples = finished(rows)
    if len(examples) < len(rows):
        logger.warning("%d of %d examples failed and are left out of the metrics", len(rows) - len(examples), len(rows))
    touched = _touched(examples)
    metrics = {f"{PERTURBED_SHARE}.{name}": rate(sum(marks), len(marks)) for name, marks in touched.items()}
    replies = _replies(examples)
    for (model, strategy), strategy_replies in replies.items():
        where = f"{model}.{strategy or CLEAN}"
        if strategy:
            # Nothing is compared where either answer is no reply.
            unlike = [None if reply["same"] is None else not reply["same"] for reply in strategy_replies]
            compared = [changed for changed in unlike if changed is not None]
            metrics[f"{CHANGE_RATE}.{where}"] = rate(sum(compared), len(compared))
            of_touched = [
                changed for changed, mark in zip(unlike, touched[strategy], strict=True) if mark and changed is not None
            ]
            metrics[f"{TOUCHED_CHANGE_RATE}.{where}"] = rate(sum(of_touched), len(of_touched))
        else:
            replied = [reply["reply"] for reply in strategy_replies if not is_no_reply(reply)]
            metrics[f"{DIFFERENT}.{where}"] = count(len(set(replied)), len(replied))
        if without := sum(map(is_no_reply, strategy_replies)):
            metrics[f"{NO_REPLY_SHARE}.{where}"] = rate(without, len(strategy_replies))
        for kind in (ACTIVITY, ENTITY, CONTEXT_SIMILARITY, REPLY_SIMILARITY, BLEU):
            if numbers := [reply[kind] for reply in strategy_replies if reply[kind] is not None]:
                metrics[f"{kind}.{where}"] = clustered_rate(numbers) if kind in (ACTIVITY, ENTITY) else mean(numbers)
        if model != BASE:
            for kind in (ACTIVITY, ENTITY, CHANGE_RATE):
                if test := _gain(strategy_replies, replies[BASE, strategy], kind, num_resamples):
                    metrics[f"{kind}{GAIN}.{where}"] = test.difference
                    metrics[f"{kind}{P_VALUE}.{where}"] = count(test.p_value, test.difference.n)
        if strategy and model in (BASE, BESIDE) and (BESIDE, "") in replies:
            for kind in (ACTIVITY, ENTITY):
                if test := _gain(strategy_replies, replies[model, ""], kind, num_resamples):
                    metrics[f"{kind}{LOSS}.{where}"] = test.difference
                    metrics[f"{kind}{LOSS_P}.{where}"] = count(test.p_value, test.difference.n)
    if any(reply.get("kind") for strategy_replies in replies.values() for reply in strategy_replies):
        kinds = [sum(kinds_of_rows(row["replies"]), Counter[str]()) for row in examples]
        metrics |= no_reply_metrics(kinds, [len(row["replies"]) for row in examples])
    return metrics


def unknown_shares(rows: Sequence[Row], known: Container[str]) -> dict[str, Estimate]:
    """In how many contexts the base reads `<unk>`, by situation; of perturbed ones, for words that the clean one has not.

    Args:
        rows: as in `robustness_metrics`.
        known: words of the base; marks of turns are none.
    """
    marks: defaultdict[str, list[bool]] = defaultdict(list)
    for row in finished(rows):
        clean = Counter(row["context"].split())
        came_in = {made["strategy"]: Counter(made["text"].split()) - clean for made in row["perturbations"]}
        for situation, words in ({CLEAN: clean} | came_in).items():
            marks[situation].append(any(word not in known and word not in MARKS for word in words))
    return {f"{UNKNOWN_SHARE}.{BASE}.{situation}": rate(sum(each), len(each)) for situation, each in marks.items()}


def _gain(after: Sequence[Reply], before: Sequence[Reply], kind: str, num_resamples: int) -> PairedTest | None:
    """The test of replies against others to the same examples; none where nothing was scored."""
    both = [(_number(now, kind), _number(then, kind)) for now, then in zip(after, before, strict=True)]
    scored = np.array([pair for pair in both if None not in pair])
    if not len(scored):
        return None
    tested = paired_bootstrap(scored[:, 0], scored[:, 1], num_resamples)
    return PairedTest(rate_difference(scored[:, 0], scored[:, 1]), tested.p_value)


def _number(reply: Reply, kind: str) -> float | None:
    """A reply's part in a mean; none where it has none."""
    number: float | None = reply[kind] if kind != CHANGE_RATE else reply["same"]
    return number if kind != CHANGE_RATE or number is None else 1.0 - number


def _touched(examples: Sequence[Row]) -> dict[str, list[bool]]:
    """Whether each context was changed, by strategy."""
    marks: defaultdict[str, list[bool]] = defaultdict(list)
    for row in examples:
        for made in row["perturbations"]:
            marks[made["strategy"]].append(bool(made["changed"]))
    return dict(marks)


def _replies(examples: Sequence[Row]) -> dict[tuple[str, str], list[Reply]]:
    """The replies to all examples, by model and strategy; all of them in the order of the examples."""
    replies: defaultdict[tuple[str, str], list[Reply]] = defaultdict(list)
    for row in examples:
        for reply in row["replies"]:
            replies[reply["model"], reply["strategy"]].append(reply)
    return dict(replies)
