"""The rows of evaluations of rankers and of attacks on them: a context each, with its candidates.

Of an evaluation what rules made of candidates, and all scores; of attacks what each method found on each ranker.
"""

from __future__ import annotations

import pyarrow as pa

from engine.store.schemas import list_of, with_base

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
    # As `policies.ranker.Unread`: turns and candidates that the ranker did not read, or not whole.
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
    # Where each candidate comes from, as `envs.candidates.groups.CandidateKind` says it.
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
    # As `engine.retrieval.outcomes.TracePoint`.
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
        # As `engine.retrieval.outcomes.AttackOutcome`; text: the edited reply, words between blanks, of which `edited` says
        # which are not as they were; scores are on the scale of those of `before`.
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
        pa.field("trace", list_of(_TRACE)),
        pa.field("transfers", list_of(_TRANSFER)),
    ]
)
SEARCHES = with_base([*_CONTEXT, pa.field("before", list_of(_BEFORE)), pa.field("searches", list_of(_SEARCHED))])
"""One attacked context per row."""
