"""Write the pages of `docs/reference/` from the code: `make reference`.

A test compares the pages with the code, so run this after a change of a verb, a setting, a metric or a public name.
"""

from __future__ import annotations

import inspect
from collections import Counter
from pathlib import Path
from typing import Any

import parley
from parley.engine.core.cli.listing import settings_of
from parley.engine.core.cli.main import JOBS, VERBS, help_text
from parley.engine.core.verbs.catalogue import find

FOLDER = Path(__file__).parent / "reference"
MADE = "Generated from the code by `make reference`. Do not edit this page."
SHARED = 5
"""A setting that as many verbs have, with the same sentence, is explained once."""

SHOWN = 3
"""Names of one definition that are written out."""


def cell(text: str) -> str:
    """Return a text as it may stand in a cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def table(*rows: tuple[str, ...]) -> list[str]:
    """Return the lines of a table, whose first row is its head."""
    head, *others = rows
    return [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *others)]


def code(value: Any) -> str:
    """Return a value as code, as a settings file has it."""
    text = "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{cell(text)}`" if text else "empty"


def jobs() -> dict[str, Any]:
    """Return the job of each verb that has one, by the verb's words."""
    return {verb.name: find("-".join(verb.words)).load() for verb in JOBS}


def verbs_page() -> list[str]:
    """Return the page of all verbs with their examples."""
    shown, _, note = help_text().rpartition("\n\n")
    lines = ["# Verbs", "", MADE, "", "```", *shown.splitlines(), "```", "", *note.splitlines()]
    for verb in VERBS:
        typed = f"parley {verb.name} {verb.usage}".rstrip()
        lines += ["", f"## {verb.name}", "", f"`{typed}`: {cell(verb.summary)}."]
        if verb in JOBS:
            presets = ", ".join(f"`{name}`" for name in find("-".join(verb.words)).load().presets)
            lines += ["", f"Presets: {presets}. [Settings](settings.md#{verb.name.replace(' ', '-')})."]
        if verb.examples:
            lines += ["", "```", *verb.examples, "```"]
    return lines


def settings_page(by_verb: dict[str, Any]) -> list[str]:
    """Return the page of all settings; those that many verbs have come first and once."""
    settings = {name: list(settings_of(job.config)) for name, job in by_verb.items()}
    counts = Counter((each.key, each.meaning) for several in settings.values() for each in several)
    known = {(each.key, each.meaning): each for several in settings.values() for each in several}
    shared = {key: each for key, each in known.items() if counts[key] >= SHARED}
    lines = ["# Settings", "", MADE, "", "A setting is given as `--set key=value`, or in the file of `--config`."]
    lines += ["`parley settings VERB` prints the values that a command would use.", "", "## Settings of many verbs", ""]
    rows = [(f"`{each.key}`", cell(each.kind), cell(each.meaning)) for _, each in sorted(shared.items())]
    lines += table(("setting", "values", "what it is"), *rows)
    for name, job in by_verb.items():
        default, preset = next(iter(job.presets.items()))
        values = preset()
        own = [each for each in settings[name] if (each.key, each.meaning) not in shared]
        lines += ["", f"## {name}", "", f"Values of the preset `{default}`."]
        rows = []
        for each in own:
            value = values
            for part in each.key.split("."):
                value = getattr(value, part)
            rows.append((f"`{each.key}`", code(value), cell(each.kind), cell(each.meaning)))
        lines += ["", *table(("setting", "value", "values", "what it is"), *rows)] if rows else []
        others = ", ".join(f"`{each.key}`" for each in settings[name] if each not in own)
        lines += ["", f"Also, as above: {others}."] if others else []
    return lines


def metrics_page(by_verb: dict[str, Any]) -> list[str]:
    """Return the page of all metrics; verbs with one legend share a table, metrics with one definition a row."""
    legends: dict[tuple[Any, ...], list[str]] = {}
    for name, job in by_verb.items():
        if job.legend:
            legends.setdefault(tuple(job.legend.items()), []).append(name)
    lines = ["# Metrics", "", MADE, "", "The direction says which way is better, and for whom."]
    lines += [
        "A row with several names is one definition for several conditions; `...` stands for the names left out.",
        "A verb that is absent here names its metrics by its settings, such as the models or strategies that you choose.",
    ]
    for legend, names in legends.items():
        alike: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for key, metric in legend:
            alike.setdefault((metric.direction, metric.definition), []).append((f"`{key}`", metric.title))
        rows = []
        for (direction, definition), several in alike.items():
            keys, titles = zip(*several, strict=True)
            shown = [*keys[:SHOWN], *(["`...`"] if len(keys) > SHOWN else [])]
            title = titles[0] if len(set(titles)) == 1 else f"{titles[0]}, ..."
            rows.append((", ".join(shown), cell(title), cell(direction), cell(definition)))
        lines += ["", f"## {', '.join(names)}", "", *table(("name", "title", "direction", "definition"), *rows)]
    return lines


def python_page() -> list[str]:
    """Return the page of the public Python names."""
    lines = ["# Python names", "", MADE, "", "Each name is imported as `parley.NAME`. `help(parley.NAME)` says more.", ""]
    rows = []
    for name in dir(parley):
        thing = getattr(parley, name)
        module = getattr(inspect.unwrap(thing) if inspect.isfunction(thing) else thing, "__module__", "") or ""
        signature = inspect.signature(thing).parameters.values() if inspect.isfunction(thing) else ()
        parameters = [f"{'**' * (each.kind is each.VAR_KEYWORD)}{each.name}" for each in signature]
        shown = f"`{name}({', '.join(parameters)})`" if inspect.isfunction(thing) else f"`{name}`"
        said = inspect.getdoc(thing) if callable(thing) else f"{', '.join(thing)}."
        rows.append((shown, cell((said or "").partition("\n\n")[0]), f"`{module}`" if module.startswith("parley") else ""))
    return [*lines, *table(("name", "what it is", "where"), *rows)]


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    by_verb = jobs()
    texts = {"verbs": verbs_page(), "settings": settings_page(by_verb), "metrics": metrics_page(by_verb)}
    texts["python"] = python_page()
    return {f"{name}.md": "\n".join(lines) + "\n" for name, lines in texts.items()}


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
