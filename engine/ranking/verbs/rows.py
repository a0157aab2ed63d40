"""The rows of evaluations of rankers and of attacks on them: a context each, with its candidates.

Of an evaluation what rules made of candidates, and all scores; of attacks what each method found on each ranker. At the end
what becomes of them in a flat file (`parley rows`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from parley.engine.core.runs.schemas import ERROR, list_of, with_base
from parley.engine.core.verbs.export import FlatRows, Line, Row
from parley.engine.ranking.metrics.movement import expected_ranks

_CHANGED = pa.struct(
    [
        # The place of a candidate, the words that a rule left of it between blanks, and how many of them it changed.
        pa.field("place", pa.int64()),
        pa.field("text", pa.string()),
        pa.field("num_changed", pa.int64()),
    ]
)
_ATTACK = pa.struct(
    [
        # A rule, whether what it changes stays right or wrong, and the candidates that it changed.
        pa.field("rule", pa.string()),
        pa.field("keeps_labels", pa.bool_()),
        pa.field("changed", list_of(_CHANGED)),
    ]
)
_UNREAD = (
    # As `parley.policies.ranking.ranker.Unread`: turns and candidates that the ranker did not read, or not whole.
    pa.field("turns_unread", pa.int64()),
    pa.field("replies_unread", pa.int64()),
)
_SCORED = pa.struct(
    [
        # A ranker, a rule ("clean" for none), the score of each candidate, or null and why there is none.
        pa.field("model", pa.string()),
        pa.field("rule", pa.string()),
        pa.field("scores", list_of(pa.float64())),
        pa.field("error", pa.string()),
        *_UNREAD,
    ]
)
_CONTEXT = [
    # The dialogue that the context is of, by its number in the split; turns and candidates are words between blanks.
    pa.field("dialogue", pa.int64()),
    pa.field("context", list_of(pa.string())),
    # Whether older turns are left out of it (`candidates.turns`).
    pa.field("is_cut", pa.bool_()),
    pa.field("candidates", list_of(pa.string())),
    pa.field("labels", list_of(pa.bool_())),
    # Where each candidate comes from, as `parley.envs.ranking.groups.CandidateKind` says it.
    pa.field("kinds", list_of(pa.string())),
]
_READING = pa.struct(
    [
        # A ranker, the place of a right reply, its distinct words with their importance to the ranker by erasure, and the
        # scores of the reply of which the 1 to 6 most important words stay.
        pa.field("model", pa.string()),
        pa.field("place", pa.int64()),
        pa.field("words", list_of(pa.string())),
        pa.field("importance", list_of(pa.float64())),
        pa.field("kept", list_of(pa.float64())),
    ]
)
RANKING = with_base(
    [
        *_CONTEXT,
        pa.field("attacks", list_of(_ATTACK)),
        pa.field("ranked", list_of(_SCORED)),
        # Of the contexts that are chosen for it; empty in others.
        pa.field("readings", list_of(_READING)),
    ]
)
"""One context of a corpus of candidates per row."""

_BEFORE = pa.struct(
    # A ranker and its scores of all candidates before any edit, log-odds in the place of probabilities; empty for none.
    [pa.field("model", pa.string()), pa.field("scores", list_of(pa.float64())), *_UNREAD]
)
_TRACE = pa.struct(
    # As `parley.engine.ranking.attacks.outcomes.TracePoint`.
    [pa.field("queries", pa.int64()), pa.field("margin", pa.float64()), pa.field("cost", pa.int64())]
)
_TRANSFER = pa.struct(
    [
        # Another ranker, and whether the edited reply reaches the goal there; null where that ranker puts the reply there
        # before any edit, or gave no scores, and why.
        pa.field("model", pa.string()),
        pa.field("reached", pa.bool_()),
        pa.field("error", pa.string()),
    ]
)
_SEARCHED = pa.struct(
    [
        # A ranker, and a method or a rule.
        pa.field("model", pa.string()),
        pa.field("method", pa.string()),
        # As `parley.engine.ranking.attacks.outcomes.AttackOutcome`; text: the edited reply, words between blanks, of which
        # `edited` says which are not as they were; scores are on the scale of those of `before`.
        pa.field("status", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("place", pa.int64()),
        pa.field("text", pa.string()),
        pa.field("edited", list_of(pa.bool_())),
        pa.field("num_changed", pa.int64()),
        pa.field("moves", list_of(pa.string())),
        pa.field("score_before", pa.float64()),
        pa.field("score", pa.float64()),
        # From 1; places of ties are shared.
        pa.field("rank_before", pa.float64()),
        pa.field("rank_after", pa.float64()),
        pa.field("queries", pa.int64()),
        pa.field("num_slopes", pa.int64()),
        # Drafts without a score, which are taken to be no closer to the goal than the reply as it was.
        pa.field("num_unscored", pa.int64()),
        pa.field("trace", list_of(_TRACE)),
        pa.field("transfers", list_of(_TRANSFER)),
    ]
)
SEARCHES = with_base([*_CONTEXT, pa.field("before", list_of(_BEFORE)), pa.field("searches", list_of(_SEARCHED))])
"""One attacked context per row."""

_ABOUT = _CONTEXT[:3]
"""What a line of a flat file says of its context: the dialogue, the turns, whether older ones are left out."""


def _ranked_lines(row: Row) -> Iterator[Line]:
    about = {field.name: row[field.name] for field in _ABOUT}
    changed = {attack["rule"]: {each["place"]: each for each in attack["changed"]} for attack in row["attacks"]}
    keeps_labels = {attack["rule"]: attack["keeps_labels"] for attack in row["attacks"]}
    for entry in row["ranked"]:
        rule, scores = entry["rule"], entry["scores"] if entry["error"] is None else []
        ranks, times = expected_ranks(scores).tolist(), Counter(scores)
        told = about | {"model": entry["model"], "rule": rule, "keeps_labels": keeps_labels.get(rule, True)}
        told |= {name: entry[name] for name in ("turns_unread", "replies_unread")} | _error(entry["error"])
        for place, candidate in enumerate(zip(row["candidates"], row["labels"], row["kinds"], strict=True)):
            text, label, kind = candidate
            edited: Mapping[str, Any] = changed.get(rule, {}).get(place, {"text": text, "num_changed": 0})
            line = told | {"place": place, "label": label, "kind": kind}
            line |= {"text": edited["text"], "num_changed": edited["num_changed"]}
            if scores:
                line |= {"score": scores[place], "rank": ranks[place], "tied": times[scores[place]]}
            yield line


def _searched_lines(row: Row) -> Iterator[Line]:
    about = {field.name: row[field.name] for field in _ABOUT}
    for found in row["searches"]:
        status, place = found["status"], found["place"]
        line = about | {field.name: found[field.name] for field in _FOUND} | {"outcome": status}
        if status == ERROR:
            line |= _error(found["reason"])
        if place is not None:
            line |= {"label": row["labels"][place], "kind": row["kinds"][place], "original": row["candidates"][place]}
        yield line


def _error(reason: str | None) -> dict[str, Any]:
    return {} if reason is None else {"status": ERROR, "error": reason}


RANKED_CANDIDATES = FlatRows(
    with_base(
        [
            *_ABOUT,
            # A ranker, a rule ("clean" for none), whether it keeps labels.
            pa.field("model", pa.string()),
            pa.field("rule", pa.string()),
            pa.field("keeps_labels", pa.bool_()),
            # Which candidate of the context, whether it was right, where it comes from; what the rule left of it.
            pa.field("place", pa.int64()),
            pa.field("label", pa.bool_()),
            pa.field("kind", pa.string()),
            pa.field("text", pa.string()),
            pa.field("num_changed", pa.int64()),
            # Null where the ranker gave none. Rank from 1, ties share the mean of theirs; candidates that have this score, this
            # one too.
            pa.field("score", pa.float64()),
            pa.field("rank", pa.float64()),
            pa.field("tied", pa.int64()),
            *_UNREAD,
        ]
    ),
    _ranked_lines,
)
"""Of `RANKING` one candidate per line, as one ranker scored it under one rule."""

_FOUND = [field for field in _SEARCHED if field.name != "status"]
ATTACKED_CONTEXTS = FlatRows(
    with_base(
        [
            *_ABOUT,
            # As in `SEARCHES`; outcome: "success", "failure", "skipped" or "error".
            *_FOUND[:2],
            pa.field("outcome", pa.string()),
            *_FOUND[2:4],
            # Of the edited reply its label, where it comes from, and its words before.
            pa.field("label", pa.bool_()),
            pa.field("kind", pa.string()),
            pa.field("original", pa.string()),
            *_FOUND[4:],
        ]
    ),
    _searched_lines,
)
"""Of `SEARCHES` one context per line, as one method attacked one ranker in it."""
