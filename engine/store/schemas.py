"""The columns of the rows that runs write, one Arrow schema per kind of row.

Every row says which item of work it belongs to, whether that worked, and from which seed; the other columns are null in
rows of failed items. `SCHEMA_VERSION` grows when a column changes its meaning or type.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

SCHEMA_VERSION = 1
OK, ERROR = "ok", "error"

BASE = pa.schema(
    [
        pa.field("item_key", pa.string(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("error", pa.string()),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("schema_version", pa.int64(), nullable=False),
    ]
)
"""What every row has: the item's key, "ok" or "error" with the reason, the item's own seed (63 bits), the version."""


def with_base(fields: list[pa.Field]) -> pa.Schema:
    """The schema of a kind of row: the columns of `BASE`, then its own."""
    return pa.schema([*BASE, *fields])


def _list(of: pa.DataType) -> pa.DataType:
    # Parquet calls list elements "element"; any other name would come back changed.
    return pa.list_(pa.field("element", of))


DIALOGUES = with_base(
    [
        # The scenario: three counts, three points per item for each side.
        pa.field("counts", _list(pa.int64())),
        pa.field("values_adversary", _list(pa.int64())),
        pa.field("values_target", _list(pa.int64())),
        # The dialogue: sides 0 (adversary) and 1 (target), words joined by blanks, `<eos>` left out.
        pa.field("first_speaker", pa.int64()),
        pa.field("turns", _list(pa.struct([pa.field("side", pa.int8()), pa.field("words", pa.string())]))),
        # The outcome: ended_by is the side that said `<selection>`, -1 when a limit did.
        pa.field("agreed", pa.bool_()),
        pa.field("forced", pa.bool_()),
        pa.field("ended_by", pa.int64()),
        pa.field("points_adversary", pa.int64()),
        pa.field("points_target", pa.int64()),
        pa.field("selection_adversary", _list(pa.string())),
        pa.field("selection_target", _list(pa.string())),
        pa.field("pareto", pa.bool_()),
        # Language: turns include `<selection>`; words are the tokens a side wrote itself, `<eos>` and `<selection>`
        # included, forced ones not; nll is their summed negative log likelihood in nats, null when it was not scored.
        pa.field("num_turns", pa.int64()),
        pa.field("num_words_adversary", pa.int64()),
        pa.field("num_words_target", pa.int64()),
        pa.field("nll_adversary", pa.float64()),
        pa.field("nll_target", pa.float64()),
    ]
)
"""One negotiation dialogue per row."""

_STEP = pa.struct(
    [
        pa.field("replaced", pa.int64()),
        pa.field("reads", pa.int64()),
        pa.field("decisions", pa.int64()),
        pa.field("feasible", pa.bool_()),
        pa.field("points_adversary", pa.int64()),
        pa.field("points_target", pa.int64()),
    ]
)
_ATTEMPT = pa.struct(
    [
        # Which utterance of `turns` it is, how it was made ("reactive", "preemptive" or "transfer"), and whether its search
        # reached its goal.
        pa.field("turn", pa.int64()),
        pa.field("kind", pa.string()),
        pa.field("accepted", pa.bool_()),
        # What the speaker would have said, words joined by blanks, `<eos>` left out, and the positions of the words in
        # the said sentence that differ from it.
        pa.field("base", pa.string()),
        pa.field("replaced", _list(pa.int64())),
        # Reactive attempts: the target's probability of answering `<selection>` at its temperature, and whether it did.
        pa.field("end_probability", pa.float64()),
        pa.field("ended", pa.bool_()),
        # Language: tokens of the sentence, `<eos>` included; nats of it and of the base sentence in its place under the
        # judge; its least likely token; its special tokens. Likelihoods are null when they were not scored.
        pa.field("num_words", pa.int64()),
        pa.field("nll", pa.float64()),
        pa.field("nll_base", pa.float64()),
        pa.field("num_words_base", pa.int64()),
        pa.field("lowest_probability", pa.float64()),
        pa.field("special", pa.int64()),
        # The path of the search, the untouched sentence first: words replaced so far, queries so far, whether the end
        # constraint holds, and what both sides would earn if the dialogue ended there.
        pa.field("steps", _list(_STEP)),
    ]
)
ATTACKS = pa.schema(
    [
        *DIALOGUES,
        # The outcome if the target had to end the dialogue at the first reactive sentence that satisfies the end constraint;
        # where there is none, the outcome of the dialogue as it was played.
        pa.field("forced_points_adversary", pa.int64()),
        pa.field("forced_points_target", pa.int64()),
        pa.field("forced_agreed", pa.bool_()),
        # Candidates that the target was asked about, rejected searches included: read, and decided upon.
        pa.field("reads", pa.int64()),
        pa.field("decisions", pa.int64()),
        pa.field("attempts", _list(_ATTEMPT)),
    ]
)
"""One attacked negotiation dialogue per row, played live, with the searches for the sentences that were said in it."""


_HIT = pa.struct([pa.field("type", pa.string()), pa.field("hit", pa.bool_())])
_RESTART = pa.struct(
    [
        # Its number, the words of the input it ended with, joined by blanks, and the objective there.
        pa.field("restart", pa.int64()),
        pa.field("words", pa.string()),
        pa.field("loss", pa.float64()),
        # The objective at the start, then after every sweep; the last sweep may have been cut short.
        pa.field("loss_by_sweep", _list(pa.float64())),
        pa.field("sweeps", pa.int64()),
        # Positions looked at, inputs taken over, inputs tried, and why it ended: "converged", "satisfied" or "limit".
        pa.field("visits", pa.int64()),
        pa.field("accepted", pa.int64()),
        pa.field("candidates", pa.int64()),
        pa.field("stopped", pa.string()),
        pa.field("hits", _list(_HIT)),
    ]
)
TRIGGERS = with_base(
    [
        # The sentence that is searched for, and the input that is kept, words joined by blanks; which restart found it.
        pa.field("target", pa.string()),
        pa.field("trigger", pa.string()),
        pa.field("restart", pa.int64()),
        pa.field("loss", pa.float64()),
        # How likely the target is after it: its words, as the model has them, and its end, nats of each, whether each is the
        # likeliest; nats per word of the input, null without a language model.
        pa.field("target_words", _list(pa.string())),
        pa.field("word_log_probability", _list(pa.float64())),
        pa.field("likeliest", _list(pa.bool_())),
        pa.field("input_log_probability", pa.float64()),
        # Whether it is a hit, by type, and every restart that was needed.
        pa.field("hits", _list(_HIT)),
        pa.field("restarts", _list(_RESTART)),
    ]
)
"""One target of a trigger search per row, with all of its restarts."""


_FIND = pa.struct(
    [
        # A string of a list, the list's name, whether it is a whole reply to some input, and the first such input.
        pa.field("list", pa.string()),
        pa.field("string", pa.string()),
        pa.field("whole", pa.bool_()),
        pa.field("input", pa.string()),
    ]
)
_STRAY = pa.struct([pa.field("input", pa.string()), pa.field("reply", pa.string())])
BRANCHES = with_base(
    [
        # Inputs that begin alike, replies to them that are no word of the corpus, and a few of those.
        pa.field("inputs", pa.int64()),
        pa.field("outside", pa.int64()),
        pa.field("finds", _list(_FIND)),
        pa.field("strays", _list(_STRAY)),
    ]
)
"""One branch of the tree of all inputs per row: what a model replies to every one of them."""


_PERTURBATION = pa.struct(
    [
        # A strategy, the context that it made (a line as `envs.pairs.turns.format_turns` writes it), whether that is another
        # one, and how many words were changed.
        pa.field("strategy", pa.string()),
        pa.field("text", pa.string()),
        pa.field("changed", pa.bool_()),
        pa.field("num_changed", pa.int64()),
    ]
)
_REPLY = pa.struct(
    [
        # Who replied ("base", or what it was trained against), to the context of which strategy, "" for the clean one.
        pa.field("model", pa.string()),
        pa.field("strategy", pa.string()),
        pa.field("reply", pa.string()),
        # F1 (0 to 1) against the truth; null where the truth does not count, or there are no tables of activities.
        pa.field("activity_f1", pa.float64()),
        pa.field("entity_f1", pa.float64()),
        # Against the clean context and the same model's reply to it, null for that reply itself: cosines of the model's mean
        # embeddings, BLEU of the reply, whether it is the same, word by word.
        pa.field("context_similarity", pa.float64()),
        pa.field("reply_similarity", pa.float64()),
        pa.field("bleu", pa.float64()),
        pa.field("same", pa.bool_()),
    ]
)
ROBUSTNESS = with_base(
    [
        # What was said before and what followed, lines as `envs.pairs.turns.format_turns` writes them.
        pa.field("context", pa.string()),
        pa.field("truth", pa.string()),
        pa.field("perturbations", _list(_PERTURBATION)),
        pa.field("replies", _list(_REPLY)),
    ]
)
"""One example of a dialogue corpus per row: its context perturbed, and what models reply to it before and after."""


SWEEP_TRIALS = with_base(
    [
        # Its settings by dotted key as JSON, and what it was measured by, as an estimate over its repeats at the largest budget
        # that it was given.
        pa.field("parameters", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("low", pa.float64()),
        pa.field("high", pa.float64()),
        pa.field("n", pa.int64()),
        pa.field("budget", pa.int64()),
        # What it was worth at each budget, rising.
        pa.field("by_budget", _list(pa.struct([pa.field("budget", pa.int64()), pa.field("value", pa.float64())]))),
        # Whether the largest was a whole trial's, and where the runs of the trial lie, below the sweep's folder.
        pa.field("whole", pa.bool_()),
        pa.field("runs", pa.string()),
    ]
)
"""One trial of a sweep per row, in the order in which they were started."""


def error_row(item_key: str, seed: int, reason: str) -> dict[str, Any]:
    """The row of an item that failed; every column of its kind is null."""
    return {"item_key": item_key, "status": ERROR, "error": reason, "seed": seed, "schema_version": SCHEMA_VERSION}
