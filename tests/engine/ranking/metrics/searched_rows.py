"""Made-up rows of attacks on rankers."""

from __future__ import annotations

from typing import Any


def search(model: str, method: str, queries: int | None, other: str = "", reached: bool | None = None, **more: Any) -> Any:
    """An attack on the second of three replies, which succeeded with so many queries, or did not."""
    won = queries is not None
    found = {
        "model": model,
        "method": method,
        "status": "success" if won else "failure",
        "reason": "" if won else "queries ran out",
        "place": 1,
        "text": "hello broken",
        "edited": [False, True],
        "num_changed": 1,
        "moves": ["context"],
        "score_before": 2.0,
        "score": 4.0 if won else 2.5,
        "rank_before": 2.0,
        "rank_after": 1.0 if won else 2.0,
        "queries": queries or 50,
        "num_slopes": 0,
        "trace": [{"queries": queries or 3, "margin": 1.0 if won else -0.5, "cost": 1}],
        "transfers": [{"model": other, "reached": reached, "error": None}] if other else [],
    }
    return found | more


def left(model: str, method: str, status: str, reason: str) -> Any:
    """An attack that was not tried, or that ended without scores."""
    nothing = dict.fromkeys(("place", "text", "score", "score_before", "rank_before", "rank_after"))
    more = {"status": status, "reason": reason, "queries": 0, "num_changed": 0, "edited": [], "moves": [], "trace": []}
    return search(model, method, 1) | nothing | more | {"transfers": []}


def attacked_context(number: int, *searches: Any, dialogue: int | None = None, **changes: Any) -> dict[str, Any]:
    """A context with a dialogue of its own, whose first reply of three is right."""
    row = {
        "item_key": f"test-{number:07d}",
        "status": "ok",
        "error": None,
        "seed": 1,
        "schema_version": 1,
        "dialogue": number if dialogue is None else dialogue,
        "context": ["it is broken", f"what is {number}"],
        "candidates": ["the blue screen", "hello there", "what a day"],
        "labels": [True, False, False],
        "kinds": ["positive", "random", "random"],
        "before": [{"model": model, "scores": [3.0, 2.0, 1.0]} for model in dict.fromkeys(each["model"] for each in searches)],
        "searches": list(searches),
    }
    return row | changes
