"""A golden run of each search: the same seed finds the same inputs, visit for visit.

`python -m tests.engine.triggers.golden.rewrite` writes the runs again after an intended change; read the difference first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parley.engine.triggers.catalogue import searches
from parley.engine.triggers.hits import HitType, Thresholds
from parley.engine.triggers.methods.settings import RelaxationSettings, SearchSettings
from tests.engine.triggers.made_up import bound, scorer, searched, tasks

FOLDER = Path(__file__).parent
THRESHOLDS = Thresholds(t_out=-2.5, t_in=-3.0)
HIT, FREE = HitType.parse("io-sample-min-k2"), HitType.parse("o-sample-min-k2")
DESCENT = RelaxationSettings(rounds=2, steps=20)
SETTINGS = SearchSettings(candidates=4, max_sweeps=4, words_per_position=3, beams=2, relaxation=DESCENT)


def path(method: str) -> Path:
    return FOLDER / f"{method}.json"


def record(method: str) -> list[dict[str, Any]]:
    """What the search finds for two targets, restart by restart."""
    kind = searches.get(method)
    hit = HIT if kind.searches_words else FREE
    search = bound(kind, scorer(hit.objective(THRESHOLDS)), SETTINGS, lambda reading: hit.is_hit(reading, THRESHOLDS))
    return [
        {
            "target": outcome.task.key,
            "restart": outcome.task.restart,
            "words": list(outcome.words or ()),
            "loss": round(outcome.loss, 4),
            "loss_by_sweep": [round(loss, 4) for loss in outcome.loss_by_sweep],
            "word_log_probability": [round(value, 4) for value in outcome.reading.word_log_probability],
            "visits": outcome.visits,
            "accepted": outcome.accepted,
            "candidates": outcome.candidates,
            "stopped": outcome.stopped,
        }
        for outcome in searched(search, tasks(restarts=3), 4)
    ]
