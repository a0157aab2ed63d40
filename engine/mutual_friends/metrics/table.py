"""Chats under perturbation in the layout of Niu & Bansal 2018 (table 8), with what the paper leaves open beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from parley.engine.core.stats.statistics import NOTHING, Estimate
from parley.engine.core.tables.table import ABSENT, FEW_MARK, EstimateTable, above, few_note, num_measured, number
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

PUBLISHED: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        NORMAL: (0.94, 16.06),
        "random-inputs": (0.82, 22.87),
        "random-inputs-kept-entities": (0.95, 17.19),
        "confusing-entity": (0.77, 24.11),
    }
)
"""Completion rate and number of turns of DynoNet with itself by strategy (table 8)."""
SIGNIFICANT = 0.05
"""A star stands where the p-value is below this."""
_NOTE = (
    "Completion: share of chats in which both sides select the friend they share, Wilson's interval; turns: events, selections "
    "included. Change: completion less that of the same scenarios on normal inputs; star: p < 0.05, paired "
    "bootstrap over scenarios, two-sided, not corrected for their number. Selections: of both sides; first right: of the "
    "chats with a selection. With entity, changed: share of utterances that name an entity, and that are heard otherwise than "
    "said; confusing-entity leaves those without an entity as they are. Brackets: 95 % intervals."
)
_NOTE_PUBLISHED = (
    " Published: Niu & Bansal 2018, table 8, DynoNet with itself, fitted to chats of people. Of bots that are scripted, or "
    "fitted to scripted chats, ups and downs can be compared with it, sizes cannot."
)
_NOTE_ALLOWED = (
    "Share of chats that agree before a side selects more often than allowed; a bot does not know of the limit. Brackets: "
    "Wilson's 95 % intervals."
)
_NOTE_TRAINED = (
    "N-train: the model as it is; A-train: trained further, with what it hears changed; A-test: under the strategy; N-test: "
    "normal inputs, as on lines of that name. Bots play with themselves, or all with the partner. Star: p < 0.05 against the "
    "model as it is under the same condition, paired bootstrap over scenarios, two-sided, not corrected for their number. "
    "Brackets: 95 % intervals."
)
_NOTE_LIES = (
    "Replaced: mentions that were heard as another entity of that attribute, over all chats; left: those heard as they were "
    "said, for confusing-entity because the listener has no other, or new words would name the common friend; where one side's "
    "words alone are changed, those of this side, on normal inputs too. Believed: share of those replaced whose listener next "
    "names the new entity or selects an item that has it; asks again: whose listener next asks something or names an entity "
    "of that attribute, beside it the same of all mentions on normal inputs; intervals over chats. Completion: of the chats in "
    "which such a mention was replaced, and of the same scenarios on normal inputs."
)
_NOTE_SLIPS = (
    "Moves of a chat, both sides together: those that a chat model was asked for once more, because they began as a selection "
    "and named no friend or had no words; those of which the second answer could not be read either and was said as it stood; "
    "answers that were cut at the most tokens; selections without a friend of a model that gives scores, which chose one. "
    "Means over chats; no reply: share of the answers, those of lost chats included. Brackets: 95 % intervals."
)
_NOTE_RECORDED = (
    "A model reads recorded chats and foretells what each side says and selects next. Perplexity: e to the mean loss of a "
    "token; known tokens: without <unk>, one token for all words that the model was not fitted to; unknown: its share. "
    "Mentions linked: share of the mentions, as scripts mark them or as found with both tables as context, that the listener "
    "finds alike with its own table. Brackets: 95 % intervals over chats."
)
_OF_RECORDED = {
    RECORDED_PERPLEXITY: "perplexity",
    KNOWN_PERPLEXITY: "known tokens",
    ENTITY_PERPLEXITY: "entities",
    ITEM_PERPLEXITY: "selections",
    UNKNOWN: "unknown",
    LINKED: "mentions linked",
}
_NOTE_JUDGED = (
    " Perplexity: exp of the judge's nats per word of what is heard, each utterance as an answer in its speaker's seat, "
    "with an interval over chats."
)
_NOTE_LYING = (
    "Lies: told instead of what was meant, both sides together, means over chats; rate: share of the utterances in whose place "
    "one was allowed. Of chat models that lie: choices that were asked for, those by scores, those asked for once more because "
    "they were neither the word true nor the number of a claim, those that could not be read then either and are no lie, and "
    "answers that were cut at the most tokens, means over chats; no reply: share of the answers, which are no lie either. "
    "Brackets: 95 % intervals."
)
_OF_LIES = {
    BELIEVED: "believed",
    AGAIN: "asks again",
    AGAIN_NORMAL: "the same, normal",
    IF_REPLACED: "completion",
    IF_NORMAL: "completion, normal",
}

Metrics = Mapping[str, Estimate]
Conditions = Sequence[tuple[str, str]]


def overview(metrics: Metrics, conditions: Conditions) -> EstimateTable:
    """Completion, turns and the change of completion of one pair, by strategy."""
    rows = [
        (condition[1], *(number(_of(metrics, kind, condition)) for kind in (COMPLETION, TURNS)), _change(metrics, condition))
        for condition in conditions
    ]
    return EstimateTable(("strategy", "completion", "turns", "change"), tuple(rows), _NOTE)


def table_8(metrics: Metrics, conditions: Conditions, pairs: Mapping[str, str], published: bool) -> EstimateTable:
    """Completion and turns by condition.

    Args:
        metrics: those of `chat_metrics`.
        conditions: pair and strategy of each line.
        pairs: what pairs are called; the first pair needs no name beside its strategies.
        published: whether the paper's figures stand below those of the first pair.
    """
    columns: dict[str, Callable[[str, str], str]] = {
        "completion": lambda *at: number(_of(metrics, COMPLETION, at)),
        "turns": lambda *at: number(_of(metrics, TURNS, at)),
        "change": lambda *at: _change(metrics, at),
        "selections": lambda *at: number(_of(metrics, SELECTIONS, at)),
        "first right": lambda *at: number(_of(metrics, FIRST, at)),
        "with entity": lambda *at: number(_of(metrics, MENTIONING, at)),
        "changed": lambda *at: number(_of(metrics, TOUCHED, at)),
        "perplexity": lambda *at: number(_of(metrics, PERPLEXITY, at)),
        "n": lambda *at: num_measured(_of(metrics, COMPLETION, at)),
    }
    judged = any(of(PERPLEXITY, *at) in metrics for at in conditions)
    if not judged:
        del columns["perplexity"]
    rows = []
    for pair, strategy in conditions:
        rows.append((_title(pair, strategy, pairs), *(cell(pair, strategy) for cell in columns.values())))
        if published and pair == next(iter(pairs)) and strategy in PUBLISHED:
            rows.append(("published", *(f"{value:.2f}" for value in PUBLISHED[strategy]), *(ABSENT,) * (len(columns) - 2)))
    note = _NOTE + _NOTE_JUDGED * judged + _NOTE_PUBLISHED * published
    few = any(row[-1].endswith(FEW_MARK) for row in rows)
    return EstimateTable(("condition", *columns), tuple(rows), note + few_note("chats") * few)


def trained_table(metrics: Metrics, conditions: Conditions, pairs: Mapping[str, str]) -> EstimateTable:
    """What training against strategies does under them and on normal inputs (N-train/A-test, A-train/A-test, A-train/N-test).

    Args:
        metrics: those of `chat_metrics`.
        conditions: pair and strategy of the trained models.
        pairs: what pairs are called.
    """
    found = {
        "N-train/A-test": lambda pair, strategy: (MODEL, strategy),
        "A-train/A-test": lambda pair, strategy: (pair, strategy),
        "A-train/N-test": lambda pair, strategy: (pair, NORMAL),
    }
    rows = []
    for pair, strategy in conditions:
        cells = [cell for at in found.values() for cell in _trained_cells(metrics, at(pair, strategy))]
        rows.append((f"{pairs[pair]}: {strategy}", *cells, num_measured(_of(metrics, COMPLETION, (pair, strategy)))))
    few = any(row[-1].endswith(FEW_MARK) for row in rows)
    columns = [f"{title} {what}" for title in found for what in ("completion", "turns")]
    return EstimateTable(("trained: strategy", *columns, "n"), tuple(rows), _NOTE_TRAINED + few_note("chats") * few)


def _trained_cells(metrics: Metrics, condition: tuple[str, str]) -> tuple[str, str]:
    """Completion, with a star where it differs from that of the untrained model, and turns."""
    shown, *below = number(_of(metrics, COMPLETION, condition)).split("\n")
    star = "*" * (_of(metrics, GAIN_P, condition).value < SIGNIFICANT)
    return above(shown + star, *below), number(_of(metrics, TURNS, condition))


def allowed_table(metrics: Metrics, conditions: Conditions, pairs: Mapping[str, str]) -> EstimateTable:
    """Completion by the number of selections that are allowed to a side."""
    kinds = {**{f"{num}": name for num, name in WITHIN.items()}, "unlimited": COMPLETION}
    rows = [
        (_title(pair, strategy, pairs), *(number(_of(metrics, kind, (pair, strategy))) for kind in kinds.values()))
        for pair, strategy in conditions
    ]
    return EstimateTable(("selections allowed", *kinds), tuple(rows), _NOTE_ALLOWED)


def lies_table(metrics: Metrics, pair: str, strategy: str, names: Mapping[str, str]) -> EstimateTable | None:
    """Return the lies told and believed by attribute, the most believed first; None without lies.

    Args:
        metrics: those of `chat_metrics`.
        pair: who plays.
        strategy: what makes an entity of another.
        names: of attributes by category.
    """
    prefix = of(REPLACED, pair, strategy, "")
    found = [name.removeprefix(prefix) for name in metrics if name.startswith(prefix)]
    if not found:
        return None

    def estimate(kind: str, attribute: str) -> Estimate:
        return metrics.get(of(kind, pair, strategy, attribute), NOTHING)

    ranked = sorted((each for each in found if each != ANY), key=lambda each: -_value(estimate(BELIEVED, each)))
    rows = [
        (
            names.get(attribute, attribute),
            *(f"{estimate(kind, attribute).value:,.0f}" for kind in (REPLACED, LEFT)),
            *(number(estimate(kind, attribute)) for kind in _OF_LIES),
            num_measured(estimate(REPLACED, attribute)),
        )
        for attribute in (*ranked, ANY)
    ]
    few = any(row[-1].endswith(FEW_MARK) for row in rows)
    columns = ("attribute", "replaced", "left", *_OF_LIES.values(), "chats")
    return EstimateTable(columns, tuple(rows), _NOTE_LIES + few_note("chats") * few)


def slips_table(metrics: Metrics, conditions: Conditions, pairs: Mapping[str, str]) -> EstimateTable | None:
    """Moves of chat models that could not be read; None where nobody moves by free text."""
    rows = [
        (
            _title(pair, strategy, pairs),
            *(number(_of(metrics, kind, (pair, strategy))) for kind in (REPAIRS, UNREAD, CUT, BY_SCORES, NO_REPLY)),
        )
        for pair, strategy in conditions
        if of(REPAIRS, pair, strategy) in metrics or of(NO_REPLY, pair, strategy) in metrics
    ]
    columns = ("condition", "asked again", "unread", "cut", "chosen by scores", "no reply")
    return EstimateTable(columns, tuple(rows), _NOTE_SLIPS) if rows else None


def recorded_table(metrics: Metrics, corpus: str, pairs: Mapping[str, str]) -> EstimateTable:
    """Return the likelihoods that models give recorded chats.

    Args:
        metrics: some of `RECORDED`, for the pairs whose models were measured.
        corpus: of the chats.
        pairs: what pairs are called.
    """
    measured = [pair for pair in pairs if of(RECORDED_PERPLEXITY, pair, corpus) in metrics]
    rows = [
        (
            pairs[pair],
            *(number(_of(metrics, kind, (pair, corpus))) for kind in _OF_RECORDED),
            num_measured(_of(metrics, RECORDED_PERPLEXITY, (pair, corpus))),
        )
        for pair in measured
    ]
    few = any(row[-1].endswith(FEW_MARK) for row in rows)
    return EstimateTable(("model", *_OF_RECORDED.values(), "chats"), tuple(rows), _NOTE_RECORDED + few_note("chats") * few)


def lying_table(metrics: Metrics, conditions: Conditions, pairs: Mapping[str, str]) -> EstimateTable | None:
    """Return the rates of lies and of chat models' choices by how they were read; None if nobody could lie."""
    kinds = {"lies": LIES, "rate": LIE_RATE}
    told = [at for at in conditions if of(LIES, *at) in metrics]
    if any(of(LIES_ASKED, *at) in metrics for at in told):
        kinds |= {"asked": LIES_ASKED, "by scores": LIES_SCORED}
        kinds |= {"asked again": LIE_REPAIRS, "unread": LIES_UNREAD, "cut": LIES_CUT, "no reply": LIES_NO_REPLY}

    def cell(name: str) -> str:
        return number(metrics[name]) if name in metrics else ABSENT

    rows = [(_title(*at, pairs), *(cell(of(kind, *at)) for kind in kinds.values())) for at in told]
    return EstimateTable(("condition", *kinds), tuple(rows), _NOTE_LYING) if rows else None


def _title(pair: str, strategy: str, pairs: Mapping[str, str]) -> str:
    return strategy if pair == next(iter(pairs)) else f"{pairs[pair]}: {strategy}"


def _of(metrics: Metrics, kind: str, condition: tuple[str, ...]) -> Estimate:
    return metrics.get(of(kind, *condition), NOTHING)


def _change(metrics: Metrics, condition: tuple[str, ...]) -> str:
    shown, *below = number(_of(metrics, CHANGE, condition)).split("\n")
    # NaN, for no test, is not below it.
    return above(shown + "*" * (_of(metrics, P_VALUE, condition).value < SIGNIFICANT), *below)


def _value(estimate: Estimate) -> float:
    return estimate.value if estimate.n else -1.0
