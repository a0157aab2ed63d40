"""`parley settings VERB`: every setting of a verb, what it is, and what it would be; nothing is run."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from rich.console import Console
from tyro import conf

from parley.engine.core.cli.flags import field_docs, parse, parse_job
from parley.engine.core.cli.mistakes import meant
from parley.engine.core.cli.tables import make_console, show_lines, show_table
from parley.engine.core.cli.verbs import JOBS, Verb, find_verb
from parley.engine.core.verbs.catalogue import find
from parley.engine.core.verbs.command import flat
from parley.envs.core.config import JsonObject, assign, overlay, to_dict
from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.copies import fetched_file

OTHERS = {
    "perturb": "parley.engine.perturb.verbs.perturb:PerturbConfig",
    "play ranking": "parley.engine.ranking.verbs.config:PlayRankingConfig",
}
"""Verbs with settings that run no job."""
HELP = {"-h", "--help"}
_TYPES = {int: "whole number", float: "number", str: "text", bool: "true, false", Path: "path", JsonObject: "JSON object"}


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting of a job.

    Args:
        key: dotted.
        kind: what values it takes, in words.
        default: its own, before any preset; `dataclasses.MISSING` where it has none.
        meaning: the docstring under it.
    """

    key: str
    kind: str
    default: Any
    meaning: str

    def told(self, value: Any) -> str:
        """What it is, which values it takes, and its default where the value is another."""
        other = self.default is not dataclasses.MISSING and self.default != value
        default = f"; default {_shown(self.default)}" if other else ""
        return f"{self.meaning} [{self.kind}{default}]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SettingsArguments:
    """What may follow a verb with settings that runs no job."""

    config: Annotated[str, conf.arg(metavar="FILE.yaml", help_behavior_hint="")] = ""
    """Settings laid over the defaults; a file or its URI."""
    set: Annotated[conf.UseAppendAction[tuple[str, ...]], conf.arg(metavar="KEY=VALUE", help_behavior_hint="(repeatable)")] = ()
    """One setting."""
    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print the settings as one JSON object on standard output."""


def run_settings(verb: Verb, arguments: Sequence[str]) -> int:
    """Prints the settings that a command line would use; returns the exit status."""
    # The words of a verb may stand in quotes, too.
    arguments = [word for argument in arguments[:1] for word in argument.split()] + list(arguments[1:])
    wanted = find_verb(arguments)
    if wanted is not None and wanted.name in OTHERS and not set(arguments) & HELP:
        return _settings_of_no_job(wanted, arguments[len(wanted.words) :])
    if wanted not in JOBS:
        names = [*(job.name for job in JOBS), *OTHERS]
        asked = [argument for argument in arguments if argument not in HELP]
        if asked != list(arguments) or not asked:
            sys.stdout.write(_help(verb))
            return 0
        begun = [name for name in names if name.startswith(f"{asked[0]} ")]
        hint = "" if begun and len(asked) == 1 else meant(" ".join(asked), begun or names)
        raise ConfigError(f"no verb with settings is called {asked[0]!r}{hint}", fix=f"one of {', '.join(begun or names)}")
    assert wanted is not None
    job = find("-".join(wanted.words)).load()
    command = parse_job(wanted, job, arguments[len(wanted.words) :])
    values = flat(to_dict(command.config))
    if command.json:
        sys.stdout.write(f"{json.dumps(to_dict(command.config))}\n")
        return 0
    console = _show(wanted.name, job.config, values)
    first, *others = (flat(to_dict(preset())) for preset in job.presets.values())
    differences = [
        (name, ", ".join(f"{key}={_shown(value)}" for key, value in preset.items() if value != first[key]))
        for name, preset in zip([*job.presets][1:], others, strict=True)
    ]
    if differences:
        show_table(console, f"presets, where they differ from {next(iter(job.presets))}", ("preset", "settings"), differences)
    show_lines(console, "this command", [job.command(command.config, command.run)])
    return 0


def _settings_of_no_job(verb: Verb, arguments: Sequence[str]) -> int:
    """The settings of a verb that runs no job; returns the exit status."""
    asked = parse(SettingsArguments, verb, arguments)
    module, _, name = OTHERS[verb.name].partition(":")
    kind = getattr(importlib.import_module(module), name)
    config = overlay(kind(), fetched_file(asked.config), asked.config) if asked.config else kind()
    values = to_dict(assign(config, asked.set))
    if asked.json:
        sys.stdout.write(f"{json.dumps(values)}\n")
    else:
        _show(verb.name, kind, flat(values))
    return 0


def _show(name: str, kind: type, values: Mapping[str, Any]) -> Console:
    console = make_console()
    rows = [(each.key, _shown(values[each.key]), each.told(values[each.key])) for each in settings_of(kind)]
    show_table(console, f"settings of parley {name}", ("setting", "value", "what it is"), rows)
    return console


def settings_of(kind: type, prefix: str = "") -> Iterator[Setting]:
    """Every simple setting of a configuration in the order of its fields, those of sections after the section's place."""
    hints, docs = get_type_hints(kind), field_docs(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            assert isinstance(hint, type)
            yield from settings_of(hint, f"{prefix}{field.name}.")
        else:
            yield Setting(f"{prefix}{field.name}", _kind(hint), field.default, " ".join(docs.get(field.name, "").split()))


def _kind(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)))
    if isinstance(hint, UnionType):
        return " or ".join("none" if each is NoneType else _kind(each) for each in get_args(hint))
    return _TYPES.get(hint, getattr(hint, "__name__", str(hint)))


def _shown(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value) or "empty"


def _help(verb: Verb) -> str:
    lines = [f"usage: parley {verb.name} {verb.usage}", "", verb.summary, ""]
    lines += ["What follows is what could follow that verb: a preset, --config, --set and flags. --json prints JSON."]
    return "\n".join([*lines, "", "examples:", *(f"  {line}" for line in verb.examples), ""])
