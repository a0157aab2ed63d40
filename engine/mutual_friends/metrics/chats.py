"""The metrics of chats between two bots that look for the friend both have: who finds it, how soon, and by which means.

Sources: He et al. 2017 (success, selections) and Niu & Bansal 2018, table 8 (completion rate, number of turns).

Completion alone says little: both sides hear selections, and each selection shows an item, so two bots that hear nothing else
may agree in the end. So three more metrics count the selections of a chat, how often the first one is right, and completion
under a limit of selections: the share of chats that agree before a side selects more often. For Confusing Entity, a lie is
believed if the listener's next move names the entity that was never said, or selects an item that has it. A lie may be noticed
if the listener asks, or speaks of that attribute again; the same rate on normal inputs stands beside it, because a bot that
asks a lot need not notice anything.

Models can also be measured on recorded chats, by the likelihood of the recorded moves. Unknown words are one token that the
model never learned to say, so there is also the perplexity without them, and their share.

Estimates are named KIND.PAIR.STRATEGY, those by attribute KIND.PAIR.STRATEGY.ATTRIBUTE, those of recorded chats
KIND.PAIR.CORPUS. The metrics of trainings of such bots are here as well.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np

from parley.engine.core.stats.known import HIGHER, LOWER, PREDICTION
from parley.engine.core.stats.pairs import ItemFigures, ItemMetrics, RowFigures, RowMetric
from parley.engine.core.stats.rows import Columns, PickedRows, selected
from parley.engine.core.stats.statistics import (
    FOR_BOTH,
    LOWER_FOR_BOTH,
    NEITHER,
    Estimate,
    Metric,
    Points,
    Row,
    clustered_rate,
    count,
    finished,
    mean_count,
    paired_bootstrap,
    rate,
    rate_difference,
)
from parley.envs.core.seeds import stable_hash
from parley.policies.chat.model import NO_REPLIES

FRIENDS_TRAINING = {
    "test_nll": Metric("test loss per token", LOWER, "nats per word or copied node that sides say, </s> counted", main=True),
    "test_ppl": Metric("test perplexity", LOWER, "exp of the test loss per token", "perplexity", main=True),
    "test_entity_ppl": Metric(
        "test perplexity of entities", LOWER, "of those that sides copy from their graphs", "perplexity", main=True
    ),
    "test_item_ppl": Metric("test perplexity of selections", LOWER, "of the items that sides select", "perplexity"),
    "test_linked": Metric("mentions that are linked", HIGHER, "share of test mentions that a listener finds by words", "rate"),
    "selfplay_completion": Metric(
        "completion with itself", HIGHER, "share of test scenarios in which both select the common friend", "rate", main=True
    ),
    "selfplay_events": Metric("events with itself", LOWER, "utterances and selections of these chats"),
    "selfplay_selections": Metric("selections with itself", LOWER, "of both sides, in these chats"),
    "validation_nll": Metric("validation loss per token", LOWER, "as on the test split; the stopping criterion"),
    "validation_ppl": PREDICTION["validation_ppl"],
}


MODEL, TRAINED = "model", "trained-"
"""The pair that was asked for; before the number of a pair that was trained against strategies and is compared with it."""
NORMAL = "normal"
"""The condition without changes: both sides hear the words as said."""
ONE_SIDED = "one-sided-"
"""Prefix of a strategy that changes the utterances of side 0 alone."""
COMPLETION, TURNS, CHANGE, P_VALUE = "completion", "turns", "completion_change", "completion_p"
GAIN, GAIN_P = "completion_gain", "completion_gain_p"
SELECTIONS, FIRST, MENTIONING, TOUCHED = "selections", "first_selection", "mentioning", "touched"
REPAIRS, UNREAD, CUT, BY_SCORES = "repairs", "unread", "cut", "by_scores"
NO_REPLY, LIES_NO_REPLY = "no_reply", "lies_no_reply"
REPLACED, LEFT, BELIEVED, IF_REPLACED, IF_NORMAL = "replaced", "left", "believed", "completion_replaced", "completion_otherwise"
PERPLEXITY = "fluency_ppl"
LIES, LIE_RATE, LIES_ASKED, LIES_SCORED = "lies", "lie_rate", "lies_asked", "lies_scored"
LIE_REPAIRS, LIES_UNREAD, LIES_CUT = "lie_repairs", "lies_unread", "lies_cut"
AGAIN, AGAIN_NORMAL = "asks_again", "asks_again_otherwise"
RECORDED_PERPLEXITY, KNOWN_PERPLEXITY, UNKNOWN = "recorded_ppl", "recorded_known_ppl", "recorded_unknown"
ENTITY_PERPLEXITY, ITEM_PERPLEXITY, LINKED = "recorded_entity_ppl", "recorded_item_ppl", "recorded_linked"
RECORDED = (RECORDED_PERPLEXITY, KNOWN_PERPLEXITY, ENTITY_PERPLEXITY, ITEM_PERPLEXITY, UNKNOWN, LINKED)
"""The metrics of recorded chats."""
ALLOWED = (1, 2, 3)
"""Selections of a side that may be allowed."""
WITHIN = {num: f"completion_{num}" for num in ALLOWED}
ANY = "any"
"""In the place of an attribute: all of them."""

_METRICS: dict[str, Metric] = {
    COMPLETION: Metric(
        "completion", FOR_BOTH, "share of chats in which both sides select the friend that they share", "share", main=True
    ),
    TURNS: Metric("turns", LOWER_FOR_BOTH, "events, selections included, mean over all chats", main=True),
    CHANGE: Metric("change of completion", NEITHER, "completion less that of the same scenarios on normal inputs"),
    P_VALUE: Metric("p of the change of completion", "", "paired bootstrap over scenarios, two-sided"),
    GAIN: Metric("gain of completion", FOR_BOTH, "completion less that of the model before such training, same condition"),
    GAIN_P: Metric("p of the gain of completion", "", "paired bootstrap over scenarios, two-sided"),
    SELECTIONS: Metric("selections", LOWER_FOR_BOTH, "selections of both sides, mean over all chats"),
    FIRST: Metric("first selection right", FOR_BOTH, "share of the chats with a selection whose first one is right", "share"),
    MENTIONING: Metric("utterances with an entity", NEITHER, "share of all utterances", "share"),
    TOUCHED: Metric("utterances changed", NEITHER, "share of all utterances that are heard otherwise than said", "share"),
    REPAIRS: Metric("repairs", LOWER_FOR_BOTH, "moves of a chat model that were asked for once more, mean over all chats"),
    UNREAD: Metric("unread moves", LOWER_FOR_BOTH, "those that could not be read then either, mean over all chats"),
    CUT: Metric("cut answers", LOWER_FOR_BOTH, "that were cut at the most tokens, mean over all chats"),
    BY_SCORES: Metric(
        "selections by scores",
        LOWER_FOR_BOTH,
        "that named no friend, so that the model's scores chose one, mean over all chats",
    ),
    NO_REPLY: Metric(
        "answers without a reply",
        LOWER_FOR_BOTH,
        "share of the answers in all chats, lost ones included: cut in thinking, filtered, ...; rows count each kind",
        "share",
    ),
    PERPLEXITY: Metric("perplexity", NEITHER, "exp of the judge's nll per word of what is heard", "perplexity"),
    LIES: Metric("lies", NEITHER, "told instead of what was meant, both sides, mean over all chats"),
    LIE_RATE: Metric("lies told", NEITHER, "share of the utterances in whose place one was allowed", "share"),
    LIES_ASKED: Metric("choices of lies asked for", NEITHER, "of a chat model, mean over all chats"),
    LIES_SCORED: Metric("choices of lies by scores", NEITHER, "of a chat model, mean over all chats"),
    LIE_REPAIRS: Metric("lies asked for again", NEITHER, "choices that were asked for once more, mean over all chats"),
    LIES_UNREAD: Metric("lies unread", NEITHER, "choices that could not be read then either, mean over all chats"),
    LIES_NO_REPLY: Metric(
        "choices of lies without a reply",
        NEITHER,
        "share of the liar's answers, which tell no lie then: cut in thinking, ...",
        "share",
    ),
    LIES_CUT: Metric("cut choices of lies", NEITHER, "answers that were cut at the most tokens, mean over all chats"),
    REPLACED: Metric("entities replaced", NEITHER, "mentions that are heard as another entity, all chats", "count"),
    LEFT: Metric("entities left", NEITHER, "mentions that are heard as they are said, all chats", "count"),
    BELIEVED: Metric(
        "lies believed",
        LOWER_FOR_BOTH,
        "share of the replaced mentions whose listener next names the new entity, or selects an item that has it",
        "share",
    ),
    AGAIN: Metric(
        "asks again",
        NEITHER,
        "share of the replaced mentions whose listener next asks something, or names an entity of that attribute",
        "share",
    ),
    AGAIN_NORMAL: Metric("asks again, normal", NEITHER, "the same of all mentions of the attribute on normal inputs", "share"),
    IF_REPLACED: Metric("completion where replaced", FOR_BOTH, "share of the chats in which such one was replaced", "share"),
    IF_NORMAL: Metric("the same scenarios, normal", FOR_BOTH, "completion of those scenarios on normal inputs", "share"),
    RECORDED_PERPLEXITY: Metric(
        "perplexity of recorded chats",
        LOWER_FOR_BOTH,
        "exp of the mean loss per token that sides say, </s> counted",
        "perplexity",
    ),
    KNOWN_PERPLEXITY: Metric("perplexity of known tokens", LOWER_FOR_BOTH, "the same without <unk>", "perplexity"),
    ENTITY_PERPLEXITY: Metric(
        "perplexity of recorded entities", LOWER_FOR_BOTH, "of those that sides copy from their graphs", "perplexity"
    ),
    ITEM_PERPLEXITY: Metric(
        "perplexity of recorded selections", LOWER_FOR_BOTH, "of the items that sides select", "perplexity"
    ),
    UNKNOWN: Metric("unknown tokens", NEITHER, "share of <unk> among the tokens of recorded chats", "share"),
    LINKED: Metric(
        "recorded mentions that are linked",
        FOR_BOTH,
        "share of the mentions, as marked or as found with both tables, that a listener finds alike with its own table",
        "share",
    ),
    **{
        name: Metric(
            f"completion, {num} selection{'s' if num > 1 else ''} allowed",
            FOR_BOTH,
            f"share of chats that agree before a side selects more than {num} time{'s' if num > 1 else ''}",
            "share",
        )
        for num, name in WITHIN.items()
    },
}


def describe(name: str) -> Metric:
    """Return the meaning of a metric by its name."""
    kind, _, condition = name.partition(".")
    metric = _METRICS[kind]
    return metric._replace(title=f"{metric.title}, {condition.replace('.', ', ')}")


def of(kind: str, pair: str, strategy: str, *more: str) -> str:
    """Join the name of a metric."""
    return ".".join((kind, pair, strategy, *more))


Conditions = Mapping[tuple[str, str], Sequence[Row]]
"""Finished chats by pair and strategy."""


def by_condition(rows: Sequence[Row]) -> dict[tuple[str, str], Sequence[Row]]:
    """Return the finished chats by pair and strategy, each in the order of its scenarios; conditions as they first come.

    A condition of which every chat was lost has none.
    """
    # Lost chats of older versions do not say their condition.
    conditions = {
        (row["pair"], row["strategy"]): array("i") for row in selected(rows, "pair", "strategy") if row.get("pair") is not None
    }
    done = finished(rows)
    named = selected(done, "pair", "strategy", "scenario")
    for number, row in enumerate(named):
        conditions[row["pair"], row["strategy"]].append(number)
    return {
        condition: PickedRows(done, sorted(numbers, key=lambda number: _scenario(named[number])))
        for condition, numbers in conditions.items()
    }


def condition_names(conditions: Sequence[tuple[str, str]], judged: bool = False) -> list[str]:
    """Return the names of the metrics that every run of some conditions has.

    Args:
        conditions: pair and strategy of each.
        judged: True if a judge measures the perplexity of heard utterances.
    """
    names = []
    for pair, strategy in conditions:
        kinds = [COMPLETION, TURNS, *WITHIN.values(), SELECTIONS, FIRST, MENTIONING, TOUCHED]
        kinds += [PERPLEXITY] if judged else []
        if strategy != NORMAL and (pair, NORMAL) in conditions:
            kinds += [CHANGE, P_VALUE]
        if pair.startswith(TRAINED) and (MODEL, strategy) in conditions:
            kinds += [GAIN, GAIN_P]
        names += [of(kind, pair, strategy) for kind in kinds]
    return names


def chat_metrics(rows: Sequence[Row]) -> dict[str, Estimate]:
    """Compute all estimates of a run.

    Args:
        rows: chats, by `parley.engine.mutual_friends.verbs.evaluate.CHATS`.
    """
    conditions, without_replies, metrics = by_condition(rows), _no_replies(rows), dict[str, Estimate]()
    for (pair, strategy), chats in conditions.items():
        of_pair = _of_condition(chats)
        if strategy != NORMAL:
            of_pair |= _compared(chats, conditions.get((pair, NORMAL), ()), CHANGE, P_VALUE)
        if pair.startswith(TRAINED):
            of_pair |= _compared(chats, conditions.get((MODEL, strategy), ()), GAIN, GAIN_P)
        of_pair |= without_replies.get((pair, strategy), {})
        metrics |= {of(kind, pair, strategy): estimate for kind, estimate in of_pair.items()}
        lies = _lies(strategy, chats, conditions.get((pair, NORMAL), ()))
        for kind, by_attribute in lies.items():
            metrics |= {of(kind, pair, strategy, attribute): estimate for attribute, estimate in by_attribute.items()}
    return metrics


def _scenario(row: Row) -> str:
    return str(row["scenario"])


def _agreed(row: Mapping[str, Any]) -> bool:
    return bool(row["agreed"])


def _of_condition(chats: Sequence[Row]) -> dict[str, Estimate]:
    """Return the metrics of all chats of a condition."""
    figures = RowFigures({**_ROW_METRICS, **_UTTERANCE_METRICS, **_OWN_METRICS}, chats)
    metrics = {name: figures.estimate(name) for name in (*_ROW_METRICS, *_UTTERANCE_METRICS)}
    # Only where a side moves by free text.
    free = [name for name in (REPAIRS, UNREAD, CUT, BY_SCORES) if figures[name].bottoms.any()]
    metrics |= {name: mean_count(figures[name].tops) for name in free}
    if len(figures[PERPLEXITY].rows):
        metrics[PERPLEXITY] = figures.estimate(PERPLEXITY)
    if not figures[LIES].bottoms.any():
        return metrics
    metrics |= {LIES: mean_count(figures[LIES].tops), LIE_RATE: figures.estimate(LIE_RATE)}
    is_chosen = figures[LIES_ASKED].tops.any() or figures[LIES_SCORED].tops.any()
    return metrics | {kind: mean_count(figures[kind].tops) for kind in _LIES_OF_CHATS if is_chosen and kind != LIES}


def _utterances(row: Row) -> list[Mapping[str, Any]]:
    return [event for event in row["events"] if event["selected"] is None]


def _mentions(event: Mapping[str, Any]) -> bool:
    return any(mention["said"] for mention in event["mentions"])


_ROW_METRICS: Mapping[str, RowMetric] = {
    COMPLETION: RowMetric(_agreed, "share"),
    TURNS: RowMetric(lambda row: float(len(row["events"])), "count"),
    **{
        name: RowMetric(lambda row, num=num: _agreed(row) and max(row["num_selections"]) <= num, "share")  # type: ignore[misc]  # a bound default
        for num, name in WITHIN.items()
    },
    SELECTIONS: RowMetric(lambda row: float(sum(row["num_selections"])), "count"),
    FIRST: RowMetric(lambda row: bool(row["first_selection_right"]), "share", among=lambda row: sum(row["num_selections"]) > 0),
}
"""Metrics of chats by what each chat adds to them."""
_UTTERANCE_METRICS: Mapping[str, RowMetric] = {
    MENTIONING: RowMetric(lambda row: sum(map(_mentions, _utterances(row))), "share", bottom=lambda row: len(_utterances(row))),
    TOUCHED: RowMetric(
        lambda row: sum(event["said"] != event["heard"] for event in _utterances(row)),
        "share",
        bottom=lambda row: len(_utterances(row)),
    ),
}


def _liars(row: Row) -> list[Row]:
    return [lying for lying in row.get("lying") or () if lying is not None]


def _sum(values: Iterable[float | None] | None) -> float:
    return float(sum(value or 0 for value in values or ()))


_LIES_OF_CHATS = {
    LIES: "told",
    LIES_ASKED: "asked",
    LIES_SCORED: "scored",
    LIE_REPAIRS: "repairs",
    LIES_UNREAD: "unread",
    LIES_CUT: "cut",
}
_OWN_METRICS: Mapping[str, RowMetric] = {
    # Bottoms tell whether a row has such numbers.
    **{
        name: RowMetric(
            lambda row, name=name: _sum(row.get(name)),  # type: ignore[misc]  # a bound default
            "count",
            lambda row, name=name: any(value is not None for value in row.get(name) or ()),  # type: ignore[misc]
        )
        for name in (REPAIRS, UNREAD, CUT, BY_SCORES)
    },
    PERPLEXITY: RowMetric(
        lambda row: sum(row["nll"]),
        "perplexity",
        lambda row: sum(row["num_words"]),
        lambda row: any(nats is not None for nats in row.get("nll") or ()),
    ),
    **{
        kind: RowMetric(
            lambda row, name=name: _sum(lying[name] for lying in _liars(row)),  # type: ignore[misc]
            "count",
            lambda row: len(_liars(row)),
        )
        for kind, name in _LIES_OF_CHATS.items()
    },
    LIE_RATE: RowMetric(
        lambda row: _sum(lying["told"] for lying in _liars(row)),
        "share",
        lambda row: _sum(lying["chances"] for lying in _liars(row)),
        lambda row: bool(_liars(row)),
    ),
}
"""Metrics of some chats alone: of free text, by a judge, of liars."""


def _figures(rows: Sequence[Row], config: Mapping[str, Any]) -> dict[str, ItemFigures]:
    """Return the figures of single chats by condition; a metric of one condition has no entries of others."""
    figures: dict[str, ItemFigures] = {}
    for pair, strategy in dict.fromkeys((row["pair"], row["strategy"]) for row in rows):
        positions = np.array([i for i, row in enumerate(rows) if (row["pair"], row["strategy"]) == (pair, strategy)])
        of_chats = RowFigures({**_ROW_METRICS, **_UTTERANCE_METRICS}, PickedRows(rows, positions.tolist()))
        for kind in (*_ROW_METRICS, *_UTTERANCE_METRICS):
            entries = of_chats[kind]
            figures[of(kind, pair, strategy)] = replace(entries, rows=positions[entries.rows])
    return figures


CHAT_ITEMS = ItemMetrics(
    "scenarios", _figures, describe, links=_scenario, content=itemgetter("pair", "strategy", "attributes", "tables")
)
"""Figures of single chats; a scenario is one unit."""


def _no_replies(rows: Sequence[Row]) -> dict[tuple[str, str], dict[str, Estimate]]:
    """Return by condition the shares of answers that are no reply, of players and of liars; nothing without chat models.

    Args:
        rows: those of lost chats included.
    """
    columns, conditions = Columns(), dict[tuple[str, str], None]()
    for row in selected(rows, "pair", "strategy", "answers", "no_reply", "lying"):
        condition = str(row.get("pair")), str(row.get("strategy"))
        conditions[condition] = None
        players = zip(row.get("answers") or (), row.get("no_reply") or (), strict=True)
        counted = [(NO_REPLY, num, _sum(lost.values())) for num, lost in players if lost is not None]
        counted += [(LIES_NO_REPLY, of["answers"], _sum(of.get(kind.column) for kind in NO_REPLIES)) for of in _liars(row)]
        for name, *numbers in counted:
            columns.add((condition, name), "d", numbers)
    metrics: dict[tuple[str, str], dict[str, Estimate]] = {condition: {} for condition in conditions}
    for condition in conditions:
        for name in (NO_REPLY, LIES_NO_REPLY):
            answers, lost = columns.get((condition, name)).reshape(-1, 2).T
            if answers.any():
                metrics[condition][name] = clustered_rate(lost, trials=answers)
    return metrics


def _agreements(chats: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Return a digest of the scenario of each chat, and whether it ends in agreement (V,)."""
    shown = selected(chats, "scenario", "agreed")
    digests = np.fromiter((stable_hash(_scenario(row)) for row in shown), np.uint64, len(shown))
    return digests, np.fromiter(map(_agreed, shown), np.float64, len(shown))


def _places(digests: np.ndarray, among: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which digests (V,) are among others (W,), and the places of those."""
    order = np.argsort(among)
    places = np.minimum(np.searchsorted(among, digests, sorter=order), max(len(among) - 1, 0))
    is_among = among[order][places] == digests if len(among) else np.zeros(len(digests), dtype=bool)
    return is_among, order[places[is_among]]


def _compared(chats: Sequence[Row], baseline: Sequence[Row], change: str, p_value: str) -> dict[str, Estimate]:
    """Compare completion with other chats on the same scenarios, with a p-value; empty if there are none."""
    (digests, agreed), (others, before) = _agreements(chats), _agreements(baseline)
    is_both, places = _places(digests, others)
    if not is_both.any():
        return {}
    now, then = agreed[is_both], before[places]
    tested = paired_bootstrap(now, then)
    return {change: rate_difference(now, then), p_value: count(tested.p_value, len(now))}


def _lies(strategy: str, chats: Sequence[Row], normal: Sequence[Row]) -> dict[str, dict[str, Estimate]]:
    """Return the rates of entities replaced, believed and asked about, by attribute; nothing if none was replaced.

    Of a strategy for one side those that this side names, in the normal chats as well.
    """
    sides = (0,) if strategy.startswith(ONE_SIDED) else (0, 1)
    columns, num_heard, types = Columns(), Counter[str](), set[str]()
    for of_rows, is_normal in ((chats, False), (normal, True)):
        for number, row in enumerate(selected(of_rows, "events")):
            mentions = (mention for event in row["events"] if event["side"] in sides for mention in event["mentions"])
            for mention in mentions:
                if not mention["heard"]:
                    continue
                is_replaced = not is_normal and mention["heard"] != mention["said"]
                of_replaced = {BELIEVED: "believed", AGAIN: "again"} if is_replaced else {}
                answers = {AGAIN_NORMAL: "again"} if is_normal else of_replaced
                types.update([mention["type"]] * is_replaced)
                for attribute in (ANY, mention["type"]):
                    num_heard[attribute] += not is_normal
                    if is_replaced:
                        columns.add((REPLACED, attribute), "i", (number,))
                    for kind, how in answers.items():
                        if mention.get(how) is not None:
                            columns.add((kind, attribute), "i", (number, mention[how]))
    if not types:
        return {}
    (digests, agreed), (others, otherwise) = _agreements(chats), _agreements(normal)
    kinds = (REPLACED, LEFT, BELIEVED, AGAIN, AGAIN_NORMAL, IF_REPLACED, IF_NORMAL)
    metrics: dict[str, dict[str, Estimate]] = {kind: {} for kind in kinds}
    for attribute in (ANY, *sorted(types)):
        numbers = columns.get((REPLACED, attribute), "i")
        met = np.unique(numbers)
        metrics[REPLACED][attribute] = count(len(numbers), len(met))
        metrics[LEFT][attribute] = count(num_heard[attribute] - len(numbers), len(chats))
        for kind in (BELIEVED, AGAIN, AGAIN_NORMAL):
            of_chats, answered = columns.get((kind, attribute), "i").reshape(-1, 2).T
            metrics[kind][attribute] = clustered_rate(answered, of_chats)
        beside = otherwise[_places(digests[met], others)[1]]
        metrics[IF_REPLACED][attribute] = rate(int(agreed[met].sum()), len(met))
        metrics[IF_NORMAL][attribute] = rate(int(beside.sum()), len(beside))
    return metrics


def completed_by(chats: Sequence[Row], budgets: Iterable[int]) -> Points:
    """Return the share of chats that agree within each number of events."""
    ends = [len(row["events"]) for row in chats if row["agreed"]]
    return [(num, rate(sum(end <= num for end in ends), len(chats))) for num in budgets]
