"""Jobs that are made of other jobs: each stage is a run of its own below the run's folder, and resumes by itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.jobs.job import ConfigT, FoundT, Job, PreparedT, Reporter

Stage = tuple[Job[Any, Any, Any], Any]
"""A job and its configuration."""


class Composite(Job[ConfigT, PreparedT, FoundT]):
    """A job whose work is that of its stages."""

    @abstractmethod
    def stages(self, config: ConfigT, path: Path) -> Mapping[str, Stage]:
        """The stages by the names of their folders, in the order in which they are done.

        Args:
            config: what is asked for.
            path: the run's folder, as it was given; the stages name each other's folders below it.
        """


def run_stages(
    stages: Mapping[str, Stage], path: Path, reporter: Reporter, before: Callable[[str], None] = lambda name: None
) -> None:
    """Does what is left of each stage, one after the other.

    Args:
        stages: as `Composite.stages` gives them.
        path: the folder that theirs lie in.
        reporter: who looks on.
        before: called with the name of each before it is done.
    """
    for number, (name, (job, config)) in enumerate(stages.items(), start=1):
        reporter.say(f"stage {number} of {len(stages)}: {name}")
        before(name)
        job.run(config, path / name, reporter)
