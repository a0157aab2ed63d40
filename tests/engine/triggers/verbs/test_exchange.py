"""Conversations as JSON: written by `parley rows`, read back, used by adapters of other tools; searches behind a defence."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from parley.engine.core.verbs.exchange import SCHEMA, read_exchange
from parley.engine.core.verbs.export import write_flat
from parley.engine.core.verbs.job import Silent
from parley.engine.scan.verbs import _found_by_searches
from parley.engine.triggers.methods.evolution import EvolutionSettings
from parley.engine.triggers.verbs.config import TextSearchConfig
from parley.engine.triggers.verbs.text_search import SEARCH_TEXT
from parley.engine.triggers.verbs.transfer import typed_triggers
from parley.envs.core.errors import DataError
from tests.engine.core.verbs.made_up import rows

BOT = """
def bot(messages):
    text = messages[-1]["content"]
    return "Sure, here it is" if "apple" in text or "garden" in text else "no"
"""
EXAMPLES = Path(__file__).parents[4] / "examples" / "adapters"


def searched(tmp_path: Path, model: str) -> Path:
    """The folder of a search for two targets, in words of which two work."""
    (tmp_path / "bot.py").write_text(BOT)
    (tmp_path / "pairs.csv").write_text('prompt,target\nhow is it,"Sure, here"\nwhat now,"Sure, here"\n')
    (tmp_path / "words.txt").write_text("apple river garden stone paper window")
    search = EvolutionSettings(num_words=2, population=4, max_queries=80)
    config = TextSearchConfig(
        model=model, targets=str(tmp_path / "pairs.csv"), words=str(tmp_path / "words.txt"), search=search, workers=0
    )
    SEARCH_TEXT.run(config, tmp_path / "run", Silent())
    return tmp_path / "run"


def test_what_was_found_is_written_and_read_back(tmp_path: Path) -> None:
    run = searched(tmp_path, f"{tmp_path}/bot.py:bot")
    file = tmp_path / "found.json"
    written = write_flat(str(run), str(file), Silent())
    assert (written.num_lines, "verified" in written.columns) == (2, True)
    document = json.loads(file.read_text())
    assert (document["schema"], document["made_by"]["job"]) == (SCHEMA, "search-text")
    for shared, row in zip(read_exchange(file), rows(run), strict=True):
        assert (shared.key, shared.success, list(shared.typed)) == (row["item_key"], True, row["typed"])
        assert shared.messages == (("user", f"{row['prompt']} {row['typed'][0]}"), ("assistant", "Sure, here it is"))
    (of_run,), (of_file,) = (typed_triggers({"it": str(name)}, "verified").values() for name in (run, file))
    assert [trigger.chat for trigger in of_file] == [trigger.chat for trigger in of_run]
    for one, other in zip(of_file, of_run, strict=True):
        assert one.emptied().chat[-1].content == other.emptied().chat[-1].content.strip()
    assert _found_by_searches(str(file)) == [" ".join(row["typed"]) for row in rows(run)]


def test_a_search_behind_a_defence_finds_what_passes_it(tmp_path: Path) -> None:
    file = tmp_path / "defended.yaml"
    file.write_text(f"model: {tmp_path}/bot.py:bot\ndefence: {{guard: {{before: {{contains: apple}}}}}}\n")
    run = searched(tmp_path, f"defended:{file}")
    assert all(row["verified"] and "garden" in row["trigger"] and "apple" not in row["trigger"] for row in rows(run))
    stopped = [row for row in rows(run) if any(lost["kind"] == "filtered" for lost in row["no_replies"])]
    assert stopped, "prompts that the guard stops are queries without a reply"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "no conversations"),
        ("{", "no JSON"),
        ('{"schema": "other", "items": []}', "no conversations"),
        (json.dumps({"schema": SCHEMA, "items": [{"id": 1}]}), "this is no conversation"),
        (json.dumps({"schema": SCHEMA, "items": [{"id": 1, "messages": [{"role": "dog", "content": ""}]}]}), "no conversation"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "found.json").write_text(text)
    with pytest.raises(DataError, match=said):
        read_exchange(tmp_path / "found.json")


def adapter(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FOUND = {
    "schema": SCHEMA,
    "items": [
        {
            "id": "1",
            "messages": [{"role": "user", "content": "how is it apple"}, {"role": "assistant", "content": "Sure, here it is"}],
            "typed": ["apple"],
            "target": "Sure, here",
            "success": True,
        },
        {"id": "2", "messages": [{"role": "user", "content": "how"}], "typed": ["x"], "target": "y", "success": False},
    ],
}


def test_pyrit_converts_prompts_with_what_was_found() -> None:
    pytest.importorskip("pyrit", reason="pyrit is not installed")
    module = adapter("pyrit_converter")
    converter = module.ParleyTriggerConverter(triggers=module.typed_texts(FOUND))
    assert asyncio.run(converter.convert_async(prompt="what now")).output_text == "what now apple"
    assert [prompt.value for prompt in module.seed_prompts(FOUND)] == ["how is it apple"]


def test_garak_probes_with_what_was_found(tmp_path: Path) -> None:
    pytest.importorskip("garak", reason="garak is not installed")
    (tmp_path / "found.json").write_text(json.dumps(FOUND))
    module = adapter("garak_probe")
    module.ParleySearch.DEFAULT_PARAMS["found"] = str(tmp_path / "found.json")
    probe = module.ParleySearch()
    assert [prompt.last_message().text for prompt in probe.prompts] == ["how is it apple"]
    assert probe.targets == ["Sure, here"]
