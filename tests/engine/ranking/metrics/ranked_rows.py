"""Made-up rows of an evaluation of rankers."""

from __future__ import annotations

from typing import Any

KEEPS = {"iiw": True, "sow": False}


def scored(model: str, rule: str, scores: list[float] | None, error: str | None = None) -> dict[str, Any]:
    return {"model": model, "rule": rule, "scores": scores, "error": error}


def attack(rule: str, *changed: tuple[int, str, int]) -> dict[str, Any]:
    entries = [{"place": place, "text": text, "num_changed": num} for place, text, num in changed]
    return {"rule": rule, "keeps_labels": KEEPS[rule], "changed": entries}


def context(number: int, ranked: list[dict[str, Any]], attacks: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """A context of a dialogue of two contexts, whose first reply of three is right."""
    row = {
        "item_key": f"test-{number:07d}",
        "status": "ok",
        "error": None,
        "dialogue": number // 2,
        "context": ["it is broken", f"what is {number}"],
        "candidates": ["the blue screen", "hello there", "what a day"],
        "labels": [True, False, False],
        "kinds": ["positive", "random", "random"],
        "attacks": attacks,
        "ranked": ranked,
    }
    return row | changes


def attacked(number: int, after: list[float], touched: bool = True, model: str = "mine") -> dict[str, Any]:
    """A ranker that is right on clean candidates; its scores under IIW are given, those under SOW are the clean ones."""
    clean = [3.0, 2.0, 1.0]
    return context(
        number,
        [
            *(scored(model, rule, scores) for rule, scores in (("clean", clean), ("iiw", after), ("sow", clean))),
            *(scored("constant", rule, [0.0] * 3) for rule in ("clean", *KEEPS)),
        ],
        [
            attack("iiw", *([(1, "hello broken", 1), (2, "what a broken", 1)] if touched else [])),
            attack("sow", (0, "screen the blue", 3)),
        ],
    )
