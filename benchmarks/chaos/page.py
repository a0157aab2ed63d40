"""The tables of docs/reliability.md, which stand there between marks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.chaos.cases import CASES, DISTURBANCES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"


def table(*rows: Sequence[object]) -> list[str]:
    """Return the lines of a table, whose first row is its head; numbers stand on the right."""
    head, *others = [list(map(str, row)) for row in rows]
    sides = [
        "---:" if others and others[-1][column].lstrip("-").split(" ")[0].replace(".", "").isdigit() else "---"
        for column in range(len(head))
    ]
    return [f"| {' | '.join(row)} |" for row in (head, sides, *others)]


def write_cases(folder: Path) -> None:
    """Write the tables of all cases whose results lie in a folder."""
    found = {name: json.loads((folder / f"{name}.json").read_text()) for name in CASES if (folder / f"{name}.json").exists()}
    outcomes = [(name, outcome) for name, document in found.items() for outcome in document["outcomes"]]
    rows = [
        (text, *counts([outcome for _, outcome in outcomes if outcome["disturbance"] in kinds]))
        for text, kinds in DISTURBANCES.items()
        if any(outcome["disturbance"] in kinds for _, outcome in outcomes)
    ]
    processors = sorted({document["processor"] for document in found.values()})
    lines = [f"Processor: {'; '.join(processors)}.", ""]
    lines += table(("disturbance", "times", *HEAD), *rows, ("all", *counts([outcome for _, outcome in outcomes])))
    lines += ["", "## By verb", ""]
    rows = [
        (
            f"`{CASES[name].verb}`{', with Ray' * name.endswith('-ray')}",
            document["outcomes"][0]["items"],
            *counts(document["outcomes"]),
            CASES[name].unit,
        )
        for name, document in found.items()
        if document["outcomes"]
    ]
    lines += table(("verb", "pieces", "times", *HEAD, "unit of done again"), *rows)
    write("make chaos", lines)


HEAD = ("lost", "twice", "different", "done again", "second starts", "seconds until back")


def counts(outcomes: Sequence[Mapping[str, Any]]) -> tuple[object, ...]:
    """Return the cells of some outcomes."""
    seconds = [outcome["seconds"] for outcome in outcomes if outcome["resumed"]]
    back = f"{median(seconds):.1f} (at most {max(seconds):.1f})" if seconds else ""
    keys = ("lost", "twice", "different", "again", "resumed")
    return len(outcomes), *(sum(outcome[key] for outcome in outcomes) for key in keys), back


def write_peers(peers: Sequence[Mapping[str, Any]]) -> None:
    """Write the table of other tools."""
    head = (
        *("tool", "how it goes on", "asked before the kill", "answers in its files", "asked in all"),
        *("beyond the 60", "results at the end"),
    )
    keys = ("tool", "way", "before", "kept", "requests", "again", "results")
    write("peers", table(head, *([peer[key] for key in keys] for peer in peers)))


def write(name: str, lines: Sequence[str]) -> None:
    """Put lines between the marks of a name."""
    begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    after = rest.partition(end)[2]
    PAGE.write_text("\n".join((before + begin, "", *lines, "", end)) + after, encoding="utf-8")
