"""The columns of rows that hold an answer of a chat model, whichever job asked for it.

A row keeps what was thought and what was withheld beside the reply, so that an answer without a reply tells why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from parley.engine.core.runs.schemas import list_of
from parley.policies.chat.model import Answer

ANSWERED = [
    # The kind of the answer (`parley.policies.chat.model.AnswerKind`), what was thought before the reply, and text that is no
    # reply: half of a filtered answer, or a refusal in a field of its own. Null where the model is no chat model.
    pa.field("kind", pa.string()),
    pa.field("reasoning", pa.string()),
    pa.field("withheld", pa.string()),
]
"""The columns of one answer, beside its reply."""
_COUNTED = [pa.field("asked", pa.string()), pa.field("kind", pa.string()), pa.field("answers", pa.int64())]
NO_REPLIES = list_of(pa.struct(_COUNTED))
"""How many answers are no replies, by what was asked and by kind; nothing is said of those that are."""


def answer_columns(answer: Answer | None) -> dict[str, Any]:
    """Return the values of `ANSWERED`; nulls of a model that is no chat model."""
    if answer is None:
        return dict.fromkeys(field.name for field in ANSWERED)
    return {"kind": answer.kind.value, "reasoning": answer.reasoning, "withheld": answer.withheld}


def count_no_replies(answers: Mapping[str, Iterable[Answer]]) -> list[dict[str, Any]]:
    """Return the value of a column `NO_REPLIES`.

    Args:
        answers: by what was asked.
    """
    counts: dict[tuple[str, str], int] = {}
    for question, given in answers.items():
        for answer in given:
            if not answer.is_reply:
                counts[question, answer.kind.value] = counts.get((question, answer.kind.value), 0) + 1
    return [{"asked": question, "kind": kind, "answers": number} for (question, kind), number in sorted(counts.items())]
