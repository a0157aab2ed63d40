"""Made-up rows of attacks, small enough to count by hand."""

from __future__ import annotations

from typing import Any

from tests.engine.negotiation.metrics.test_dialogues import dialogue


def step(
    points: tuple[int, int], *, replaced: int = 0, reads: int = 0, decisions: int = 0, feasible: bool = True
) -> dict[str, Any]:
    """One step of a search."""
    found = {"points_adversary": points[0], "points_target": points[1]}
    return {"replaced": replaced, "reads": reads, "decisions": decisions, "feasible": feasible, **found}


def attempt(**changes: Any) -> dict[str, Any]:
    """A reactive sentence in the place of "i want the ball" that reached its goal with one replaced word."""
    return {
        "turn": 0,
        "kind": "reactive",
        "accepted": True,
        "base": "i want the hat",
        "replaced": [3],
        "end_probability": 0.5,
        "ended": True,
        "num_words": 5,
        "nll": 10.0,
        "nll_base": 5.0,
        "num_words_base": 5,
        "lowest_probability": 0.01,
        "special": 0,
        "steps": [step((3, 7), reads=1, decisions=1), step((8, 2), replaced=1, reads=400, decisions=20)],
        **changes,
    }


def attacked(
    live: tuple[int, int], forced: tuple[int, int] | None = None, attempts: tuple[dict[str, Any], ...] = (), **changes: Any
) -> dict[str, Any]:
    """A dialogue with attempts; the forced outcome is the live one unless it is given."""
    points = forced or live
    return {
        **dialogue(live, agreed=live != (0, 0)),
        "forced_points_adversary": points[0],
        "forced_points_target": points[1],
        "forced_agreed": points != (0, 0),
        "reads": 400,
        "decisions": 20,
        "attempts": list(attempts),
        **changes,
    }
