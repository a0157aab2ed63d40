"""Made-up rows of trigger searches, small enough to count by hand."""

from __future__ import annotations

from typing import Any

from parley.engine.triggers.metrics.hits import NEARNESS

KINDS = ("o-greedy", "o-sample-min-k1")


def restart(number: int = 0, loss: float = 1.0, hits: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
    """A restart that ended with that loss, halfway down after its first sweep."""
    return {
        "restart": number,
        "words": f"trigger {number}",
        "loss": loss,
        "loss_by_sweep": [loss + 2, loss + 1, loss],
        "sweeps": 2,
        "visits": 4,
        "accepted": 2,
        "candidates": 100,
        "stopped": "converged",
        **dict.fromkeys(("refused", "ids", "seconds", *NEARNESS)),
        "tokens": 700,
        "hits": [{"type": kind, "hit": kind in hits} for kind in KINDS],
        **changes,
    }


def searched(key: str, *restarts: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A target whose first restart is the one that is kept."""
    first = restarts[0]
    return {
        "item_key": key,
        "status": "ok",
        "error": None,
        "seed": 7,
        "schema_version": 1,
        "target": "go away",
        "trigger": first["words"],
        "restart": first["restart"],
        "loss": first["loss"],
        "target_words": ["go", "away", "</s>"],
        "word_log_probability": [-1.0, -3.0, -0.5],
        "likeliest": [True, False, True],
        "input_log_probability": None,
        **dict.fromkeys(("prompt", "trigger_ids", "typed", "retokenised")),
        **dict.fromkeys(("reply", "kind", "reasoning", "withheld", "verified")),
        **dict.fromkeys(("samples", "sampled", "drawn_no_replies", "judge_answers", "judge_unparsable", "judge_no_reply")),
        "hits": first["hits"],
        "restarts": list(restarts),
        **changes,
    }


def failed(key: str, reason: str) -> dict[str, Any]:
    """A target whose search ended in an error."""
    return {**dict.fromkeys(searched(key, restart())), "item_key": key, "status": "error", "error": reason, "seed": 7}
