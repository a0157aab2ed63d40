"""The rows of evaluations and of audits: an example each, with what strategies made of its context."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from parley.engine.core.runs.answers import ANSWERED
from parley.engine.core.runs.schemas import list_of, with_base
from parley.engine.core.verbs.export import FlatRows, Line, Row
from parley.engine.perturb.strategies.signals import SIGNALS

_PERTURBATION = pa.struct(
    [
        # A strategy, the context that it made (a line as `parley.envs.corpora.pairs.turns.format_turns` writes it), whether
        # that is another one, and how many words were changed.
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
        *ANSWERED,
        # F1 (0 to 1) against the truth; null where the truth does not count, or there are no tables of activities.
        pa.field("activity_f1", pa.float64()),
        pa.field("entity_f1", pa.float64()),
        # Against the clean context and the same model's reply to it, null for that reply itself: cosines of the model's mean
        # embeddings, BLEU of the reply, whether it is the same, word by word; null where either answer is no reply.
        pa.field("context_similarity", pa.float64()),
        pa.field("reply_similarity", pa.float64()),
        pa.field("bleu", pa.float64()),
        pa.field("same", pa.bool_()),
    ]
)
ROBUSTNESS = with_base(
    [
        # What was said before and what followed, lines as `parley.envs.corpora.pairs.turns.format_turns` writes them.
        pa.field("context", pa.string()),
        pa.field("truth", pa.string()),
        pa.field("perturbations", list_of(_PERTURBATION)),
        pa.field("replies", list_of(_REPLY)),
    ]
)
"""One example of a dialogue corpus per row: its context perturbed, and what models reply to it before and after."""


def _replied_lines(row: Row) -> Iterator[Line]:
    clean = {"text": row["context"], "changed": False, "num_changed": 0}
    made = {each["strategy"]: each for each in row["perturbations"]}
    about = {name: row[name] for name in ("context", "truth")}
    yield from (about | made.get(reply["strategy"], clean) | reply for reply in row["replies"])


REPLIES = FlatRows(
    with_base(
        [
            # As in `ROBUSTNESS`: the clean context and what followed it; what was replied to "text" under "strategy".
            *(ROBUSTNESS.field(name) for name in ("context", "truth")),
            *_REPLY,
            *(field for field in _PERTURBATION if field.name != "strategy"),
        ]
    ),
    _replied_lines,
)
"""Of `ROBUSTNESS` one reply of one model per line."""

_SIGNALS = pa.struct([pa.field(name, pa.int64()) for name in SIGNALS])
_TOUCHED = pa.struct(
    [
        # A strategy and an utterance that it changed: which of the context's, from 0, its words before and after, how many of
        # them changed.
        pa.field("strategy", pa.string()),
        pa.field("place", pa.int64()),
        pa.field("before", pa.string()),
        pa.field("after", pa.string()),
        pa.field("num_changed", pa.int64()),
        # Negative log-likelihood in nats of the words and their end, under the language model.
        pa.field("nats_before", pa.float64()),
        pa.field("nats_after", pa.float64()),
        # Words that were replaced one by one, and how many of those have another part of speech now.
        pa.field("num_replaced", pa.int64()),
        pa.field("num_retagged", pa.int64()),
        # How often each sign of broken English stands in it.
        pa.field("signals_before", _SIGNALS),
        pa.field("signals_after", _SIGNALS),
        # Whether each utterance follows from the other one; null where no model was asked.
        pa.field("kept", pa.bool_()),
    ]
)
AUDIT = with_base(
    [
        # A line as `parley.envs.corpora.pairs.turns.format_turns` writes it, its utterances that hold a word, and their words.
        pa.field("context", pa.string()),
        pa.field("num_utterances", pa.int64()),
        pa.field("num_words", pa.int64()),
        pa.field("touched", list_of(_TOUCHED)),
    ]
)
"""One context of a dialogue corpus per row, with every utterance that a strategy changed."""
