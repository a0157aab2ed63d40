"""Verbs of the command line as calls from Python: the same job, the same run folder, the same result."""

from __future__ import annotations

from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from parley.engine.core.verbs.catalogue import ENTRIES
from parley.engine.core.verbs.job import Reporter, Result, Silent
from parley.envs.core.config import to_dict, with_values
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import nearest
from parley.envs.core.storage.copies import local_copy


def run_verb(verb: str, preset: str = "", *, run: str | Path = "", reporter: Reporter | None = None, **settings: Any) -> Result:
    """Runs a job, or goes on with its run; a finished run gives its result again.

    Args:
        verb: as typed after `parley`, such as "selfplay" or "train negotiator".
        preset: its name; the verb's default when empty.
        run: folder or URI; runs/NAME when empty, as on the command line.
        reporter: hears how far the job is; nobody when None.
        settings: of the configuration; "fit__max_epochs=1" is `--set fit.max_epochs=1`. A section may be given whole.

    Returns:
        What the job leaves behind: metrics by name, the run folder, what may come next.

    Raises:
        ConfigError: no such verb, preset or setting, or a value that is not allowed.
        ParleyError: as the job says.
    """
    verbs = {" ".join(entry.words): entry for entry in ENTRIES}
    if verb not in verbs:
        raise ConfigError(f"no job is called {verb!r}{nearest(verb, verbs)}", fix=f"one of {', '.join(verbs)}")
    entry = verbs[verb]
    job = entry.load()
    if preset and preset not in job.presets:
        what = f"{verb} has no preset {preset!r}{nearest(preset, job.presets)}"
        raise ConfigError(what, fix=f"one of {', '.join(job.presets)}")
    config = job.presets[preset]() if preset else next(iter(job.presets.values()))()
    known = list(vars(config))
    if wrong := [name for name in settings if "__" not in name and name not in known]:
        what = f"{verb} has no setting {wrong[0]!r}{nearest(wrong[0], known)}"
        raise ConfigError(what, fix=f"parley settings {verb}")
    values = {name.replace("__", "."): to_dict(value) if is_dataclass(value) else value for name, value in settings.items()}
    config = with_values(config, values, f"run_verb({verb!r})")
    return job.run(config, local_copy(str(run) or f"runs/{job.run_name}"), reporter or Silent())
