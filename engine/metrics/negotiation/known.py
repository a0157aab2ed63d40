"""Known adversaries: what each gains from each target, which is the best, and which have learned nothing.

The statistics are in `engine/metrics/exploitability.py`; here are the table and the sentences that show them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.metrics.exploitability import has_learned
from engine.metrics.statistics import Estimate
from engine.metrics.tables import TextTable, with_interval

_NOTE = (
    "Advantage in points of the adversary of the line over the target of the column, in the dialogues that chose the best: the "
    "marked value is too high by luck. Exploitability is measured in other dialogues, in the last line. More than its start: "
    "against the target that it was trained against; an interval that is not above 0 has learned nothing that shows. "
    "Brackets: 95 % intervals."
)


@dataclass(frozen=True, kw_only=True)
class KnownAdversaries:
    """What all known adversaries gain from some targets.

    Args:
        targets: their names.
        adversaries: their names.
        gains_TA: of each adversary from each target, in the dialogues that choose; targets first.
        best: the best adversary of each target, as its place among them.
        measured: what that one gains in dialogues that did not choose it, by target.
        learned: by the adversary's name, what a trained one gains more than its start from the target that it met.
    """

    targets: Sequence[str]
    adversaries: Sequence[str]
    gains_TA: Sequence[Sequence[Estimate]]
    best: Sequence[int]
    measured: Sequence[Estimate]
    learned: Mapping[str, Estimate]

    @property
    def idle(self) -> list[str]:
        """The trained adversaries that do not certainly gain more than their start."""
        return [name for name, gained in self.learned.items() if not has_learned(gained)]

    def best_of(self, target: str) -> str:
        """Return the name of the best adversary of a target."""
        return self.adversaries[self.best[self.targets.index(target)]]

    def sentences(self) -> list[str]:
        """Return who is best against each target, and who has learned nothing."""
        lines = [
            f"best of {len(self.adversaries)} known adversaries against {target}: {self.adversaries[index]}, "
            f"{with_interval(gained)} points ahead in dialogues that did not choose it"
            for target, index, gained in zip(self.targets, self.best, self.measured, strict=True)
        ]
        if self.idle:
            lines.append(f"learned nothing, {len(self.idle)} of {len(self.learned)} trained: {', '.join(self.idle)}")
        return lines

    def table(self) -> TextTable:
        """Return a line for each adversary and a last one with what the best gains."""
        lines = []
        for index, name in enumerate(self.adversaries):
            cells = [
                with_interval(gains[index]) + " best" * (best == index)
                for gains, best in zip(self.gains_TA, self.best, strict=True)
            ]
            gained = self.learned.get(name)
            learned = "" if gained is None else with_interval(gained) + ": nothing" * (name in self.idle)
            lines.append((name, *cells, learned))
        lines.append(("exploitability", *map(with_interval, self.measured), ""))
        return TextTable(("adversary", *self.targets, "more than its start"), tuple(lines), _NOTE)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON types, for a summary."""
        return {
            "targets": list(self.targets),
            "adversaries": list(self.adversaries),
            "gains": [[gain.to_json() for gain in gains] for gains in self.gains_TA],
            "best": list(self.best),
            "measured": [gained.to_json() for gained in self.measured],
            "learned": {name: gained.to_json() for name, gained in self.learned.items()},
        }

    @classmethod
    def from_json(cls, parts: Mapping[str, Any]) -> KnownAdversaries:
        """Return what `to_json` wrote."""
        return cls(
            targets=parts["targets"],
            adversaries=parts["adversaries"],
            gains_TA=[[Estimate.from_json(gain) for gain in gains] for gains in parts["gains"]],
            best=parts["best"],
            measured=[Estimate.from_json(gained) for gained in parts["measured"]],
            learned={name: Estimate.from_json(gained) for name, gained in parts["learned"].items()},
        )
