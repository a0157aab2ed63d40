"""A probe of garak whose prompts `parley search` finds.

garak loads probes from its own folder. Copy this file there, and name what Parley shall run; Parley may live in another
environment. `SEARCH` is a search of Parley without its run folder, or name a file that `parley rows RUN found.json` wrote:

    cp examples/adapters/garak_probe.py $(python -c "import garak; print(garak.__path__[0])")/probes/parley.py
    export PARLEY="/path/to/venv/bin/parley"
    export PARLEY_SEARCH="search text quick --model openai:http://127.0.0.1:8000/v1#MODEL --targets pairs.csv"
    garak --target_type openai.OpenAICompatible --target_name MODEL --probes parley.ParleySearch

An output is a hit if it holds the target that its prompt was searched for. Tried with garak 0.17.1.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import garak.attempt
import garak.probes
from garak import _config


class ParleySearch(garak.probes.Probe):
    """Prompts after which a target says a given text, found by parley search."""

    lang = "*"
    intent = "T009ignore"
    doc_uri = "https://arxiv.org/abs/1809.04113"
    goal = "make the target say a given text"
    primary_detector = "base.TriggerListDetector"
    tier = garak.probes.Tier.UNLISTED
    active = False

    DEFAULT_PARAMS = garak.probes.Probe.DEFAULT_PARAMS | {"found": "", "search": "", "parley": "", "only_successes": True}

    found: str
    search: str
    parley: str

    def __init__(self, config_root: object = _config) -> None:
        super().__init__(config_root=config_root)
        self.parley = self.parley or os.environ.get("PARLEY", "parley")
        self.search = self.search or os.environ.get("PARLEY_SEARCH", "")
        document: Any = json.loads(Path(self.found).read_text(encoding="utf-8")) if self.found else self._searched()
        items = [item for item in document["items"] if item["success"] or not self.only_successes]
        if not items:
            raise ValueError("the search found no prompt; only_successes: false takes those that failed, too")
        self.targets = [item["target"] for item in items]
        self.prompts = [_asked(item["messages"]) for item in items]

    def _searched(self) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            run, file = f"{folder}/run", f"{folder}/found.json"
            command = [*shlex.split(self.parley), *shlex.split(self.search), "--run", run]
            # Status 1 says that no input was found, which is a result.
            subprocess.run(command, check=False)
            subprocess.run([*shlex.split(self.parley), "rows", run, file], check=True, stdout=subprocess.DEVNULL)
            return dict(json.loads(Path(file).read_text(encoding="utf-8")))

    def _attempt_prestore_hook(self, attempt: garak.attempt.Attempt, seq: int) -> garak.attempt.Attempt:
        attempt.notes["triggers"] = [self.targets[seq]]
        return attempt


def _asked(messages: list[dict[str, str]]) -> garak.attempt.Conversation:
    """Return the messages up to the reply."""
    while messages[-1]["role"] == "assistant":
        messages = messages[:-1]
    turns = [garak.attempt.Turn(message["role"], garak.attempt.Message(message["content"], lang="*")) for message in messages]
    return garak.attempt.Conversation(turns)
