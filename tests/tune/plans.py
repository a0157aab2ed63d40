"""Sweeps for the tests: two scripted bargainers, and trials that fail. Named on the command line as path/file.py:NAME."""

from __future__ import annotations

from dataclasses import replace

from parley.tune.plan import Choice, Integer, Plan

SMALL = Plan(
    job="selfplay",
    preset="scripted",
    space={"adversary": Choice(("scripted", "scripted-tough")), "max_turns": Integer(4, 20)},
    metrics=("advantage",),
    direction="max",
    fidelity="dialogues",
    budget=8,
)
LONG = replace(SMALL, space={"max_turns": Integer(4, 20)}, budget=2000)
UNKNOWN = replace(SMALL, space={"max_turn": Integer(4, 20)})
FORBIDDEN = replace(SMALL, space={"max_turns": Integer(0, 20)})
HALF_FAIL = replace(SMALL, space={"adversary": Choice(("scripted", "nobody"))})
ALL_FAIL = replace(SMALL, space={"adversary": Choice(("nobody", "no-one"))})
UNMEASURED = replace(SMALL, metrics=("advantag",))
TURNED_ROUND = replace(SMALL, metrics=("advantage", "-turns"))
"""More for the adversary in fewer turns."""
