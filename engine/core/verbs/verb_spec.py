"""What the list of jobs (`catalogue.py`) says of one of them."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parley.engine.core.verbs.job import Job


@dataclass(frozen=True)
class Entry:
    """One job on the command line.

    Args:
        words: what is typed, such as ("train", "negotiator").
        summary: one line of help.
        target: "module:ATTRIBUTE" of the `Job`.
        examples: copy-paste commands.
        reports: whether a finished run is shown as a page right away.
        argument: what may be typed behind the preset, in capitals; empty for nothing.
    """

    words: tuple[str, ...]
    summary: str
    target: str
    examples: tuple[str, ...]
    reports: bool = False
    argument: str = ""

    @classmethod
    def of(cls, words: str, summary: str, target: str, *examples: str, reports: bool = False, argument: str = "") -> Entry:
        """The job of those words, as they are typed."""
        return cls(tuple(words.split()), summary, target, examples, reports, argument)

    def load(self) -> Job[Any, Any, Any]:
        """Imports the job."""
        module, _, attribute = self.target.partition(":")
        job: Job[Any, Any, Any] = getattr(importlib.import_module(module), attribute)
        return job
