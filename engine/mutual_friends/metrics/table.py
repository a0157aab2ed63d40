"""Tables of chats under strategies in the layout of Niu & Bansal 2018 (table 8), with more metrics beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parley.engine.core.stats.statistics import NOTHING, Estimate
from parley.engine.core.tables.table import (
    ABSENT,
    PUBLISHED,
    STAR_NOTE,
    WHOLE,
    Column,
    EstimateTable,
    TableRow,
    metric_table,
    published_cell,
    read_published,
)
from parley.engine.mutual_friends.metrics.chats import (
    AGAIN,
    AGAIN_NORMAL,
    ANY,
    BELIEVED,
    BY_SCORES,
    CHANGE,
    COMPLETION,
    CUT,
    ENTITY_PERPLEXITY,
    FIRST,
    GAIN_P,
    IF_NORMAL,
    IF_REPLACED,
    ITEM_PERPLEXITY,
    KNOWN_PERPLEXITY,
    LEFT,
    LIE_RATE,
    LIE_REPAIRS,
    LIES,
    LIES_ASKED,
    LIES_CUT,
    LIES_NO_REPLY,
    LIES_SCORED,
    LIES_UNREAD,
    LINKED,
    MENTIONING,
    MODEL,
    NO_REPLY,
    NORMAL,
    P_VALUE,
    PERPLEXITY,
    RECORDED_PERPLEXITY,
    REPAIRS,
    REPLACED,
    SELECTIONS,
    TOUCHED,
    TURNS,
    UNKNOWN,
    UNREAD,
    WITHIN,
    of,
)

TABLE_8 = read_published("parley.engine.mutual_friends.metrics", "niu2018.csv")["8"]
"""Completion rate and number of turns of DynoNet with itself by strategy (Niu & Bansal 2018)."""
_BRACKETS = " Brackets: 95 % intervals."
_NOTE = (
    "Completion: share of chats in which both sides select their common friend; turns: events, selections included. Change: "
    "completion less that of the same scenarios on normal inputs. Selections: of both sides; first right: share of the chats "
    "with a selection. With entity, changed: share of utterances that name an entity, and that are heard otherwise than said; "
    f"confusing-entity changes only those with an entity.{_BRACKETS}{STAR_NOTE}"
)
_NOTE_PUBLISHED = (
    " Published: Niu & Bansal 2018, table 8, DynoNet with itself, fitted to chats of people. Of bots that are scripted, or "
    "fitted to scripted chats, ups and downs can be compared with it, sizes cannot."
)
_NOTE_JUDGED = " Perplexity: exp of the judge's nats per heard word, each utterance as an answer in its speaker's seat."
_NOTE_ALLOWED = f"Share of chats that agree before a side selects more often; a bot does not know of the limit.{_BRACKETS}"
_NOTE_TRAINED = (
    "N-train: the model before; A-train: trained further on changed utterances; A-test: under the strategy; N-test: normal "
    "inputs. Bots play with themselves, or all with the partner. Stars: of the difference from the model before, under the "
    f"same condition.{_BRACKETS}{STAR_NOTE}"
)
_NOTE_LIES = (
    "Replaced: mentions heard as another entity of that attribute; left: heard as said, because the listener has no other, or "
    "the new words would name the common friend. One-sided strategies count side 0 alone. Believed: the listener next names "
    "the new entity or selects an item that has it. Asks again: the listener next asks something or names an entity of that "
    "attribute; beside it the same on normal inputs. Completion: of the chats with such a replaced mention, and of the same "
    "scenarios on normal inputs."
)
_NOTE_SLIPS = (
    "Moves of chat models per chat, both sides, mean. Asked again: could not be read at first; unread: could not be read then "
    "either, and were said as they stood; cut: at the most tokens; chosen by scores: selections without a friend. No reply: "
    f"share of the answers, those of lost chats included.{_BRACKETS}"
)
_NOTE_RECORDED = (
    "A model reads recorded chats and predicts what each side says and selects next. Perplexity: exp of the mean loss of a "
    "token; known tokens: without <unk>; unknown: the share of <unk>. Mentions linked: share of the mentions that the listener "
    f"finds alike with its own table.{_BRACKETS}"
)
_NOTE_LYING = (
    "Lies: of both sides, mean over chats; rate: share of the utterances that a lie could replace. Of chat models that lie, "
    "choices per chat, mean: asked for, made by scores, asked again, unread then too, and cut at the most tokens; no reply: "
    f"share of the answers. Choices that are unread or no reply are no lie.{_BRACKETS}"
)

Metrics = Mapping[str, Estimate]
Conditions = Sequence[tuple[str, str]]


def _column(heading: str, kind: str, p_value: str = "") -> Column:
    """Return the column of a kind of metric of a condition, with stars by the kind of its p-values."""
    at = "{pair}.{strategy}"
    return Column(heading, f"{kind}.{at}", p_value=f"{p_value}.{at}" if p_value else "")


_COMPLETION, _TURNS, _CHANGE = _column("completion", COMPLETION), _column("turns", TURNS), _column("change", CHANGE, P_VALUE)
_TABLE_8 = (
    _COMPLETION,
    _TURNS,
    _CHANGE,
    _column("selections", SELECTIONS),
    _column("first right", FIRST),
    _column("with entity", MENTIONING),
    _column("changed", TOUCHED),
)
_SLIPS = {REPAIRS: "asked again", UNREAD: "unread", CUT: "cut", BY_SCORES: "chosen by scores", NO_REPLY: "no reply"}
_LIES = {
    BELIEVED: "believed",
    AGAIN: "asks again",
    AGAIN_NORMAL: "the same, normal",
    IF_REPLACED: "completion",
    IF_NORMAL: "completion, normal",
}
_LYING = {LIES: "lies", LIE_RATE: "rate"}
_CHOOSING = {
    LIES_ASKED: "asked",
    LIES_SCORED: "by scores",
    LIE_REPAIRS: "asked again",
    LIES_UNREAD: "unread",
    LIES_CUT: "cut",
    LIES_NO_REPLY: "no reply",
}
_RECORDED = {
    RECORDED_PERPLEXITY: "perplexity",
    KNOWN_PERPLEXITY: "known tokens",
    ENTITY_PERPLEXITY: "entities",
    ITEM_PERPLEXITY: "selections",
    UNKNOWN: "unknown",
    LINKED: "mentions linked",
}


def overview(metrics: Metrics, conditions: Conditions) -> EstimateTable:
    """Return completion, turns and the change of completion of one pair, by strategy."""
    rows = [TableRow(strategy, {"pair": pair, "strategy": strategy}) for pair, strategy in conditions]
    return metric_table(metrics, "strategy", rows, [_COMPLETION, _TURNS, _CHANGE], _NOTE)


def table_8(metrics: Metrics, conditions: Conditions, pairs: Mapping[str, str], published: bool) -> EstimateTable:
    """Return completion and turns by condition.

    Args:
        metrics: those of `chat_metrics`.
        conditions: pair and strategy of each line.
        pairs: names of pairs; the lines of the first pair have the names of their strategies alone.
        published: True for the paper's figures below those of the first pair.
    """
    judged = any(of(PERPLEXITY, *condition) in metrics for condition in conditions)
    columns = [*_TABLE_8, *[_column("perplexity", PERPLEXITY)] * judged]
    absent = dict.fromkeys([*(column.heading for column in columns), "n"], ABSENT)
    rows = []
    for row in _rows(conditions, pairs):
        rows.append(row)
        if published and row.fields["pair"] == next(iter(pairs)) and (printed := TABLE_8.get(row.fields["strategy"])):
            cells = absent | {heading: published_cell(value) for heading, value in printed.items()}
            rows.append(TableRow(PUBLISHED, row.fields, cells=cells))
    note = _NOTE + _NOTE_JUDGED * judged + _NOTE_PUBLISHED * published
    return metric_table(metrics, "condition", rows, columns, note, n=_COMPLETION.metric, unit="chats")


def trained_table(metrics: Metrics, conditions: Conditions, pairs: Mapping[str, str]) -> EstimateTable:
    """Return completion and turns after training against strategies (N-train/A-test, A-train/A-test, A-train/N-test).

    Args:
        metrics: those of `chat_metrics`.
        conditions: pair and strategy of the trained models.
        pairs: names of pairs.
    """
    compared = {
        "N-train/A-test": f"{MODEL}.{{strategy}}",
        "A-train/A-test": "{pair}.{strategy}",
        "A-train/N-test": f"{{pair}}.{NORMAL}",
    }
    columns = []
    for title, at in compared.items():
        columns.append(Column(f"{title} completion", f"{COMPLETION}.{at}", p_value=f"{GAIN_P}.{at}"))
        columns.append(Column(f"{title} turns", f"{TURNS}.{at}"))
    rows = [TableRow(f"{pairs[pair]}: {strategy}", {"pair": pair, "strategy": strategy}) for pair, strategy in conditions]
    return metric_table(metrics, "trained: strategy", rows, columns, _NOTE_TRAINED, n=_COMPLETION.metric, unit="chats")


def allowed_table(metrics: Metrics, conditions: Conditions, pairs: Mapping[str, str]) -> EstimateTable:
    """Return completion by the number of selections that a side is allowed."""
    columns = [*(_column(f"{num}", kind) for num, kind in WITHIN.items()), _column("unlimited", COMPLETION)]
    return metric_table(metrics, "selections allowed", _rows(conditions, pairs), columns, _NOTE_ALLOWED)


def lies_table(metrics: Metrics, pair: str, strategy: str, names: Mapping[str, str]) -> EstimateTable | None:
    """Return the lies told and believed by attribute, the most believed first; None without lies.

    Args:
        metrics: those of `chat_metrics`.
        pair: of the players.
        strategy: that replaces entities.
        names: of attributes by category.
    """
    prefix = of(REPLACED, pair, strategy, "")
    attributes = [name.removeprefix(prefix) for name in metrics if name.startswith(prefix)]
    if not attributes:
        return None

    def belief(attribute: str) -> float:
        estimate = metrics.get(of(BELIEVED, pair, strategy, attribute), NOTHING)
        return estimate.value if estimate.n else -1.0

    ranked = sorted((attribute for attribute in attributes if attribute != ANY), key=belief, reverse=True)
    fields = {"pair": pair, "strategy": strategy}
    rows = [TableRow(names.get(attribute, attribute), fields | {"attribute": attribute}) for attribute in (*ranked, ANY)]
    at = "{pair}.{strategy}.{attribute}"
    columns = [Column(heading, f"{kind}.{at}", WHOLE) for kind, heading in ((REPLACED, "replaced"), (LEFT, "left"))]
    columns += [Column(heading, f"{kind}.{at}") for kind, heading in _LIES.items()]
    return metric_table(metrics, "attribute", rows, columns, _NOTE_LIES, n=f"{REPLACED}.{at}", unit="chats", n_heading="chats")


def slips_table(metrics: Metrics, conditions: Conditions, pairs: Mapping[str, str]) -> EstimateTable | None:
    """Return the moves of chat models that could not be read; None if no side moves by free text."""
    counted = [at for at in conditions if of(REPAIRS, *at) in metrics or of(NO_REPLY, *at) in metrics]
    columns = [_column(heading, kind) for kind, heading in _SLIPS.items()]
    return metric_table(metrics, "condition", _rows(counted, pairs), columns, _NOTE_SLIPS) if counted else None


def recorded_table(metrics: Metrics, corpus: str, pairs: Mapping[str, str]) -> EstimateTable:
    """Return the likelihoods that models give recorded chats.

    Args:
        metrics: some of `RECORDED`, for the pairs whose models were measured.
        corpus: of the chats.
        pairs: names of pairs.
    """
    measured = [pair for pair in pairs if of(RECORDED_PERPLEXITY, pair, corpus) in metrics]
    rows = [TableRow(pairs[pair], {"pair": pair, "corpus": corpus}) for pair in measured]
    columns = [Column(heading, f"{kind}.{{pair}}.{{corpus}}") for kind, heading in _RECORDED.items()]
    return metric_table(metrics, "model", rows, columns, _NOTE_RECORDED, n=columns[0].metric, unit="chats", n_heading="chats")


def lying_table(metrics: Metrics, conditions: Conditions, pairs: Mapping[str, str]) -> EstimateTable | None:
    """Return the rates of lies and of chat models' choices by how they were read; None if nobody could lie."""
    lying = [at for at in conditions if of(LIES, *at) in metrics]
    kinds = _LYING | (_CHOOSING if any(of(LIES_ASKED, *at) in metrics for at in lying) else {})
    columns = [_column(heading, kind) for kind, heading in kinds.items()]
    return metric_table(metrics, "condition", _rows(lying, pairs), columns, _NOTE_LYING) if lying else None


def _rows(conditions: Conditions, pairs: Mapping[str, str]) -> list[TableRow]:
    """Return a row for each condition; those of the first pair have the names of their strategies alone."""
    first = next(iter(pairs))
    return [
        TableRow(strategy if pair == first else f"{pairs[pair]}: {strategy}", {"pair": pair, "strategy": strategy})
        for pair, strategy in conditions
    ]
