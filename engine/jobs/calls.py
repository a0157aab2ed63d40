"""Verbs of the command line as calls from Python: the same job, the same run folder, the same result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.jobs.catalogue import ENTRIES
from engine.jobs.job import Reporter, Result, Silent
from envs.core.config import assign
from envs.core.errors import ConfigError
from envs.core.registry import nearest
from envs.storage.copies import local_copy


def run_verb(verb: str, preset: str = "", *, run: str | Path = "", reporter: Reporter | None = None, **settings: Any) -> Result:
    """Runs a job, or goes on with its run; a finished run gives its result again.

    Args:
        verb: as typed after `parley`, such as "selfplay" or "train negotiator".
        preset: its name; the verb's default when empty.
        run: folder or URI; runs/NAME when empty, as on the command line.
        reporter: hears how far the job is; nobody when None.
        settings: of the configuration; "fit__max_epochs=1" is `--set fit.max_epochs=1`.

    Returns:
        What the job leaves behind: metrics by name, the run folder, what may come next.

    Raises:
        ConfigError: no such verb, preset or setting.
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
    plain = {name: value for name, value in settings.items() if "__" not in name}
    try:
        config = replace(config, **plain)
    except TypeError:
        known = list(vars(config))
        wrong = next(name for name in plain if name not in known)
        raise ConfigError(f"{verb} has no setting {wrong!r}{nearest(wrong, known)}", fix=f"parley settings {verb}") from None
    for name, value in settings.items():
        if "__" in name:
            config = assign(config, [f"{name.replace('__', '.')}={value}"], f"run_verb({verb!r})")
    return job.run(config, local_copy(str(run) or f"runs/{job.run_name}"), reporter or Silent())
