"""A training that hardens a GPT-2 that is made here, and a search that is written here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from parley.engine.core.runs.parts import ok_row
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.triggers.verbs.config import TRIGGERS, TriggerConfig
from parley.engine.triggers.verbs.lessons import TrainHardenedConfig, hardening_recipe
from tests.policies.small_gpt2 import EOS

TEMPLATE = f"now {{}}{EOS}"
REFUSAL = "sorry no"


def write_search(path: Path, found: dict[str, str], *, hit: bool = True, template: str | None = None, end: bool = True) -> Path:
    """A finished search: for each trigger what the model says after it, as if that had been the target."""
    config = TriggerConfig(model="hf:anywhere", hit="o-greedy")
    config = replace(config, hugging_face=replace(config.hugging_face, template=template, end=end))
    with RunFolder.open(path, config, job="search", schema=TRIGGERS) as run:
        rows = []
        for number, (trigger, target) in enumerate(found.items()):
            restart = {"restart": 0, "words": trigger, "hits": [{"type": "o-greedy", "hit": hit}]}
            rows.append(ok_row(f"file-{number}", number) | {"target": target, "trigger": trigger, "restarts": [restart]})
        run.write_shard("00000", rows)
    return path


def asked(folder: Path, search: Path, corpus: Path, **changes: Any) -> TrainHardenedConfig:
    fit = replace(hardening_recipe(), learning_rate=1e-2, max_epochs=4)
    settings: dict[str, Any] = {"method": "full", "reply": REFUSAL, "max_tokens": 4, "clean": "recorded", "fit": fit}
    settings |= {"model": f"hf:{folder}", "searches": str(search), "corpus": str(corpus)}
    return TrainHardenedConfig(**(settings | changes))
