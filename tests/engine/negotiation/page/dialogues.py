"""Made-up rows and reports for the tests of the report."""

from __future__ import annotations

from typing import Any

from parley.engine.core.page.content import Report, Run
from parley.engine.core.stats.statistics import NOTHING, Estimate
from parley.engine.negotiation.metrics.attack import ATTACK_METRICS, attack_metrics
from parley.engine.negotiation.metrics.dialogues import DEFENCE_METRICS
from tests.engine.core.page.pages import page_of, run_of
from tests.engine.negotiation.metrics.attacks import attempt

__all__ = ["page_of"]

NAN = float("nan")


def row(key: str = "a", points: tuple[int, int] = (6, 4), **changes: Any) -> dict[str, Any]:
    """One dialogue of the columns that runs store."""
    agreed = points != (0, 0)
    return {
        "item_key": key,
        "status": "ok",
        "error": None,
        "seed": 7,
        "schema_version": 1,
        "counts": [1, 2, 3],
        "values_adversary": [0, 2, 2],
        "values_target": [4, 0, 2],
        "first_speaker": 0,
        "turns": [
            {"side": 0, "words": "i would like the hats"},
            {"side": 1, "words": "fine , the rest for me"},
            {"side": 0, "words": "<selection>"},
        ],
        "agreed": agreed,
        "forced": False,
        "ended_by": 0,
        "points_adversary": points[0],
        "points_target": points[1],
        "selection_adversary": ["item0=0", "item1=2", "item2=1", "item0=1", "item1=0", "item2=2"],
        "selection_target": ["item0=1", "item1=0", "item2=2", "item0=0", "item1=2", "item2=1"],
        "pareto": agreed,
        "num_turns": 3,
        "nll_adversary": 9.5,
        "num_words_adversary": 5,
        "nll_target": 11.5,
        "stopped": None,
        "refused": None,
        "num_words_target": 6,
        **dict.fromkeys(("chat_adversary", "chat_target")),
        **changes,
    }


def attack_row(key: str = "a", points: tuple[int, int] = (6, 4), **changes: Any) -> dict[str, Any]:
    """One attacked dialogue whose first sentence has had its last word replaced."""
    said = {"base": "i would like the ball", "replaced": [4], "num_words": 6}
    return {
        **row(key, points),
        "forced_points_adversary": 9,
        "forced_points_target": 1,
        "forced_agreed": True,
        "reads": 400,
        "decisions": 20,
        "attempts": [attempt(**said, end_probability=0.63)],
        **changes,
    }


def error_row(key: str, reason: str) -> dict[str, Any]:
    """A dialogue that failed: all but key, status and reason is empty."""
    return {**dict.fromkeys(row()), "item_key": key, "status": "error", "error": reason, "seed": 7, "schema_version": 1}


def metrics(advantage: float = 2.0, n: int = 200) -> dict[str, Estimate]:
    """A match's metrics, all with intervals half a point wide on either side."""
    values = {"advantage": advantage, "score_adversary": 5 + advantage / 2, "score_target": 5 - advantage / 2}
    points = {name: Estimate(value, value - 0.5, value + 0.5, n) for name, value in values.items()}
    return {**points, "agreement": Estimate(0.8, 0.75, 0.85, n)}


def match(name: str = "m", job: str = "selfplay", legend: Any = None, **changes: Any) -> Run:
    """A match or an attack."""
    run = run_of(job, heading=name, **changes)
    run.__dict__["legend"] = ATTACK_METRICS | DEFENCE_METRICS if legend is None else legend
    return run


def negotiations(*matches: Run, **changes: Any) -> Report:
    """A report with nothing but matches."""
    return Report(title="t", found={"negotiation": matches}, **changes)


def report(**changes: Any) -> Report:
    """A report with two matches, a stage of training and two curves."""
    epochs = [{"kind": "epoch", "number": i, "train_perplexity": 8.0 - 0.1 * i, "perplexity_reference": 8.0} for i in range(12)]
    steps = [{"kind": "iteration", "number": i, "reward": 8.0 - 0.1 * i} for i in range(12)]
    parts: dict[str, Any] = {
        "title": "demo",
        "lead": "An adversary against a target.",
        "found": {
            "negotiation": [
                match("target vs itself", metrics=metrics(0.1), rows=[row("a", (5, 5)), row("b", (0, 0))]),
                match(
                    "adversary vs target",
                    job="attack-rl",
                    description="After self-play.",
                    metrics=metrics(3.5, n=12),
                    rows=[row("c", (8, 2)), row("d", (3, 7)), row("e", (6, 4))],
                ),
            ],
            "training": [
                run_of(
                    "train-negotiator",
                    heading="target, supervised",
                    metrics={"validation_loss": Estimate(1.7, NAN, NAN, 400)},
                    events=[*epochs, *steps],
                )
            ],
        },
        "commands": ["parley demo --seed 1"],
        "files": [("rows/", "every dialogue")],
        "config": {"seed": "1"},
        "environment": {"python": "3.11"},
    }
    return Report(**{**parts, **changes})


def searched(**changes: Any) -> Run:
    """Two dialogues with a reactive attack, the second one changed."""
    rows = [attack_row("a", (8, 2)), attack_row("b", (5, 5), **changes)]
    return match("reactive", job="attack-reactive", metrics=attack_metrics(rows, NOTHING), rows=rows)
