"""A converter of PyRIT that puts what `parley search` found behind a prompt, and the search that finds it.

    found = parley_search("search text quick --model openai:http://127.0.0.1:8000/v1#MODEL --targets pairs.csv")
    converter = ParleyTriggerConverter(triggers=typed_texts(found))
    result = await converter.convert_async(prompt="How do I tie a tie?")

`parley_search` runs Parley, which may live in another environment, and returns its file of conversations; a file that `parley
rows RUN found.json` wrote is the same. `seed_prompts` returns whole prompts, for attacks that send them as they are. Tried with
PyRIT 1.1.0.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyrit.converter import Converter, ConverterResult
from pyrit.models import PromptDataType, SeedPrompt


def parley_search(search: str, parley: str = "parley") -> dict[str, Any]:
    """Run a search of Parley and return its conversations.

    Args:
        search: the command behind `parley`, without a run folder.
        parley: how Parley is started.
    """
    with tempfile.TemporaryDirectory() as folder:
        run, file = f"{folder}/run", f"{folder}/found.json"
        # Status 1 says that no input was found, which is a result.
        subprocess.run([*shlex.split(parley), *shlex.split(search), "--run", run], check=False)
        subprocess.run([*shlex.split(parley), "rows", run, file], check=True, stdout=subprocess.DEVNULL)
        return dict(json.loads(Path(file).read_text(encoding="utf-8")))


def typed_texts(found: dict[str, Any], *, only_successes: bool = True) -> list[str]:
    """Return the texts that a search typed, each once."""
    items = (item for item in found["items"] if item["success"] or not only_successes)
    return list(dict.fromkeys(" ".join(item["typed"]) for item in items if item["typed"]))


def seed_prompts(found: dict[str, Any], *, only_successes: bool = True) -> list[SeedPrompt]:
    """Return the last message of the user of each conversation."""
    items = [item for item in found["items"] if item["success"] or not only_successes]
    asked = [[message["content"] for message in item["messages"] if message["role"] == "user"][-1] for item in items]
    return [SeedPrompt(value=text, data_type="text") for text in asked]


class ParleyTriggerConverter(Converter):
    """Puts one of some texts behind a prompt; the next conversion takes the next one."""

    SUPPORTED_INPUT_TYPES = ("text",)
    SUPPORTED_OUTPUT_TYPES = ("text",)

    def __init__(self, *, triggers: Sequence[str]) -> None:
        super().__init__()
        if not triggers:
            raise ValueError("the search found nothing that could be typed")
        self._triggers, self._number = list(triggers), 0

    async def convert_async(self, *, prompt: str, input_type: PromptDataType = "text") -> ConverterResult:
        trigger = self._triggers[self._number % len(self._triggers)]
        self._number += 1
        return ConverterResult(output_text=f"{prompt} {trigger}", output_type="text")
