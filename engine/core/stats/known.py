"""Known adversaries: what each gains from each target, which is the best, and which have learned nothing.

The statistics are in `engine/core/stats/exploitability.py`; here are the table and the sentences that show them, the same for
negotiators, bots that look for friends, rankers and chat models.

An adversary of a dialogue is one of those known: luck may choose it, so other dialogues measure it. A ranker and a greedy chat
model answer alike each time, and who attacks one may try all known inputs in turn. Of these the best adversary is all of them
together, which no luck chooses (`AdversaryWords.tries_all`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parley.engine.core.stats.exploitability import has_learned
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.stats.tables import TextTable, with_interval

KNOWN, KNOWN_TABLE = "known", "Known adversaries"
"""Entry of a summary: all known adversaries; heading of their table."""


@dataclass(frozen=True, kw_only=True)
class AdversaryWords:
    """The words in which a system shows its known adversaries.

    Args:
        cell: what a cell of the table is, and in what the best adversary is chosen; a sentence.
        measured: what follows the figure of the best adversary, such as "points ahead in dialogues that did not choose it".
        start: what a trained adversary is compared with.
        tries_all: whether the best adversary is all of them together, each tried on every item.
        made: what those are called that were trained, or searched for.
        idle: what those have done that gain nothing by it.
    """

    cell: str
    measured: str
    start: str = ""
    tries_all: bool = False
    made: str = "trained"
    idle: str = "learned nothing"

    def note(self, *, trained: bool) -> str:
        """Return what stands below the table, where adversaries were trained with a sentence on what they learned."""
        learned = (
            f'More than {self.start}: on the target that it was made for; "nothing": it does not certainly gain '
            f"more than that and more than 0 there, so it has {self.idle} that shows. "
        )
        best = "all together, each tried on every item; best: by itself" if self.tries_all else "the best, measured in others"
        return f"{self.cell} Exploitability: {best}. {learned * trained}Brackets: 95 % intervals."


NEGOTIATORS = AdversaryWords(
    cell="Advantage in points of the adversary of the line over the target of the column, in the dialogues that chose the "
    "best: the marked value is too high by luck.",
    measured="points ahead in dialogues that did not choose it",
    start="its start",
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
        gained: by the same names, what it gains from that target.
        words: in which it is shown.
    """

    targets: Sequence[str]
    adversaries: Sequence[str]
    gains_TA: Sequence[Sequence[Estimate]]
    best: Sequence[int]
    measured: Sequence[Estimate]
    learned: Mapping[str, Estimate]
    gained: Mapping[str, Estimate]
    words: AdversaryWords = NEGOTIATORS

    @property
    def idle(self) -> list[str]:
        """The trained adversaries that do not certainly gain more than their start, or not more than 0."""
        return [name for name, more in self.learned.items() if not has_learned(more, self.gained[name])]

    def best_of(self, target: str) -> str:
        """Return the name of the best adversary of a target."""
        return self.adversaries[self.best[self.targets.index(target)]]

    def best_and_idle(self, target: str) -> str:
        """Return a sentence on who is best against a target, and how many trained adversaries have learned nothing."""
        num, index = len(self.adversaries), self.targets.index(target)
        best = f"Best of {num} known adversaries{' by itself' * self.words.tries_all}: {self.best_of(target)}"
        if self.words.tries_all and not self.measured[index].value > 0:
            best = f"None of {num} known adversaries reaches any"
        return f"{best}; {self.words.idle} that shows: {self._num_idle}." if self.idle else f"{best}."

    @property
    def _num_idle(self) -> str:
        return f"{len(self.idle)} of {len(self.learned)} {self.words.made}"

    def sentences(self) -> list[str]:
        """Return who is best against each target, and who has learned nothing."""
        num, lines = len(self.adversaries), []
        for target, index, measured in zip(self.targets, self.best, self.measured, strict=True):
            name, gained = self.adversaries[index], f"{with_interval(measured)} {self.words.measured}"
            if self.words.tries_all:
                lines.append(f"all {num} known adversaries against {target}: {gained}; the best by itself: {name}")
            else:
                lines.append(f"best of {num} known adversaries against {target}: {name}, {gained}")
        if self.idle:
            lines.append(f"{self.words.idle}, {self._num_idle}: {', '.join(self.idle)}")
        return lines

    def table(self) -> TextTable:
        """Return a line for each adversary and a last one with what the best gains."""
        lines = []
        for index, name in enumerate(self.adversaries):
            cells = [
                with_interval(gains[index]) + " best" * (best == index)
                for gains, best in zip(self.gains_TA, self.best, strict=True)
            ]
            more = self.learned.get(name)
            lines.append((name, *cells, "" if more is None else with_interval(more) + ": nothing" * (name in self.idle)))
        lines.append(("exploitability", *map(with_interval, self.measured), ""))
        columns = ("adversary", *self.targets, f"more than {self.words.start}")
        num = len(columns) - (not self.learned)
        return TextTable(columns[:num], tuple(line[:num] for line in lines), self.words.note(trained=bool(self.learned)))

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON types, for a summary."""
        return {
            "targets": list(self.targets),
            "adversaries": list(self.adversaries),
            "gains": [[gain.to_json() for gain in gains] for gains in self.gains_TA],
            "best": list(self.best),
            "measured": [gained.to_json() for gained in self.measured],
            "learned": {name: more.to_json() for name, more in self.learned.items()},
            "gained": {name: gained.to_json() for name, gained in self.gained.items()},
        }

    @classmethod
    def from_json(cls, parts: Mapping[str, Any], words: AdversaryWords = NEGOTIATORS) -> KnownAdversaries:
        """Return what `to_json` wrote."""
        learned, gained = (
            {name: Estimate.from_json(figure) for name, figure in parts[entry].items()} for entry in ("learned", "gained")
        )
        return cls(
            targets=parts["targets"],
            adversaries=parts["adversaries"],
            gains_TA=[[Estimate.from_json(gain) for gain in gains] for gains in parts["gains"]],
            best=parts["best"],
            measured=[Estimate.from_json(gained) for gained in parts["measured"]],
            learned=learned,
            gained=gained,
            words=words,
        )


def known_of(summary: Mapping[str, Any] | None, words: AdversaryWords = NEGOTIATORS) -> KnownAdversaries | None:
    """Return the known adversaries of a summary; None where there is none, or an older version has written it."""
    parts = (summary or {}).get(KNOWN, {})
    return KnownAdversaries.from_json(parts, words) if "gained" in parts else None
