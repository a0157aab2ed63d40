"""Golden screens: what commands show, with numbers, the widths that hang on them, and the lines of boxes left out."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"
SCREENS = {
    "help": "--help",
    "help_train": "train --help",
    "help_selfplay": "selfplay --help",
    "selfplay": "selfplay --dialogues 12",
    "unknown_verb": "trian negotiator",
    "unknown_flag": "selfplay --dialogus 12",
    "unknown_key": "train negotiator --set fit.learning_rat=1",
    "unknown_agent": "selfplay --adversary scriptd",
    "wrong_value": "selfplay --set temperature=-1",
    "wrong_type": "selfplay --dialogues many",
    "no_run": "resume runs/nothing",
    "status_no_run": "status",
}
"""Commands by the name of their screen; each is run in an empty folder."""
_PROGRESS = re.compile(r"#/# \w+, # (\w+/s|so far)|#/# \w+, #:# so far")
"""Lines that appear when a machine is slow."""


def steady(out: str, err: str) -> str:
    """Both streams of a command as they may be compared."""
    parts = [f"{name}:\n{text}" for name, text in (("standard output", out), ("standard error", err)) if text]
    text = re.sub(r"-?\d+(?:[.,]\d+)*", "#", "\n".join(parts))
    lines = [re.sub(r" {2,}", "  ", re.sub(r"[─│╭╮╰╯]|-{3,}", "", line)).strip() for line in text.splitlines()]
    return "".join(f"{line}\n" for line in lines if line and not _PROGRESS.search(line))
