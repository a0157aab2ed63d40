"""Made-up rows of an evaluation under perturbations, small enough to count by hand."""

from __future__ import annotations

from typing import Any


def perturbed(strategy: str, changed: bool = True) -> dict[str, Any]:
    """A context that a strategy made."""
    return {"strategy": strategy, "text": "some context", "changed": changed, "num_changed": int(changed)}


def replied(model: str = "base", strategy: str = "", **changes: Any) -> dict[str, Any]:
    """A reply; to a perturbed context it is another one unless said otherwise."""
    likeness = {"context_similarity": 0.9, "reply_similarity": 0.5, "bleu": 0.25, "same": False}
    return {
        "model": model,
        "strategy": strategy,
        "reply": "some reply",
        **dict.fromkeys(("kind", "reasoning", "withheld")),
        "activity_f1": 0.5,
        "entity_f1": 0.0,
        **(likeness if strategy else dict.fromkeys(likeness)),
        **changes,
    }


def asked(key: str, perturbations: list[dict[str, Any]], replies: list[dict[str, Any]]) -> dict[str, Any]:
    """An example that was answered."""
    base = {"item_key": key, "status": "ok", "error": None, "seed": 7, "schema_version": 1}
    return {**base, "context": f"context {key}", "truth": "a reply", "perturbations": perturbations, "replies": replies}


def failed(key: str) -> dict[str, Any]:
    """An example whose shard failed."""
    return {**dict.fromkeys(asked(key, [], [])), "item_key": key, "status": "error", "error": "lost", "seed": 7}
