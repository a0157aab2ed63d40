"""The command that asks for a configuration: the nearest preset, and a flag or `--set` for everything that differs.

It is derived from the configuration and not from what was typed, so it stands alone: no YAML file, nothing forgotten.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from parley.envs.core.config import to_dict
from parley.envs.core.storage.uris import display_path


def command_line(
    words: Sequence[str], presets: Mapping[str, Callable[[], Any]], config: Any, run: Path | None, argument: str = ""
) -> str:
    """What to type to get a run like this one.

    Args:
        words: of the job.
        presets: of the job, the default first.
        config: the run's configuration.
        run: its folder; None for the one that the job takes unless told otherwise.
        argument: the setting that is typed without a flag; empty for none.
    """
    wanted = flat(to_dict(config))
    values = {name: flat(to_dict(preset())) for name, preset in presets.items()}
    changes = {name: {key: value for key, value in wanted.items() if value != values[name][key]} for name in presets}
    nearest = min(changes, key=lambda name: len(changes[name]))
    line = ["parley", *words]
    if nearest != next(iter(presets)):
        line.append(nearest)
    if argument in changes[nearest]:
        line.append(str(changes[nearest].pop(argument)))
    for key, value in changes[nearest].items():
        line += ["--set", f"{key}={_yaml(value)}"] if "." in key else _flag(key, value)
    if run is not None:
        line += ["--run", display_path(run)]
    return shlex.join(line)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The simple values of nested settings, by dotted key."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def _flag(key: str, value: Any) -> list[str]:
    flag = key.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(value)]


def _yaml(value: Any) -> str:
    """A simple value as `--set` reads it; JSON's escapes of rare characters mean something else in YAML."""
    if isinstance(value, str):
        return yaml.safe_dump(value, default_style='"', width=math.inf).rstrip("\n")
    return json.dumps(value)
