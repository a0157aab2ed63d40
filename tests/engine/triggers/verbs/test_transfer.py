"""`parley search transfer`: what was found on one model is typed to others as messages, whoever they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.page.page import report_from_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.triggers.methods.evolution import EvolutionSettings
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.metrics.transfer import NO_INPUT, transfer_metrics, transfer_table
from parley.engine.triggers.success import SuccessSettings
from parley.engine.triggers.verbs import transfer as typed_triggers
from parley.engine.triggers.verbs.config import HuggingFaceSettings, TextSearchConfig, TriggerConfig
from parley.engine.triggers.verbs.methods import SEARCH_METHODS, MethodsConfig
from parley.engine.triggers.verbs.search import SEARCH
from parley.engine.triggers.verbs.text_search import SEARCH_TEXT
from parley.engine.triggers.verbs.transfer import SEARCH_TRANSFER, UNIVERSAL, TriggerTransferConfig
from parley.envs.core.errors import ConfigError, DataError, RunError
from tests.engine.core.verbs.made_up import Notes, rows

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")

from tests.policies.byte_pairs import byte_model

CLAUSE = "that begins with the target"

run = SEARCH_TRANSFER.run
SHORT = SuccessSettings(tokens=8)
PARROT = """
from pathlib import Path


def parrot(messages):
    with Path(__file__).with_suffix(".asked").open("a") as file:
        file.write("asked\\n")
    (message,) = messages
    return "hello there" if len(message["content"].split(" ", 2)[2]) else "no"
"""
"""Says the target to whatever stands behind two words."""


LENGTHY = """
TARGET = " ".join(f"word{number}" for number in range(100))


class Lengthy:
    def answer(self, chats, *, decoding, seeds=()):
        return [" ".join(TARGET.split()[: decoding.max_tokens]) for _ in chats]
"""
"""Says a sentence of a hundred words, as far as it is let."""


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("searched")
    for part in byte_model():
        part.save_pretrained(path / "chat")
    (path / "pairs.csv").write_text("prompt,target\ntell me,hello\nsay it,hello\nsay it,a\n")
    config = TriggerConfig(
        model=f"hf:{path}/chat",
        targets=str(path / "pairs.csv"),
        hit="o-greedy",
        search=SearchSettings(candidates=24, max_sweeps=6, restarts=2),
        hugging_face=HuggingFaceSettings(length=4, end=False),
        success=SHORT,
    )
    SEARCH.run(config, path / "found", Silent())
    (path / "parrot.py").write_text(PARROT)
    return path


def test_triggers_are_typed_to_each_model_and_prompts_without_them(tmp_path: Path, searched: Path) -> None:
    models = f"hf:{searched}/chat,{searched}/parrot.py:parrot"
    config = TriggerTransferConfig(searches=str(searched / "found"), model=models, found="all", success=SHORT)
    result = run(config, tmp_path / "run", Silent())
    found, source = rows(tmp_path / "run"), rows(searched / "found")
    own = {row["trigger"]: row for row in found if (row["model"], row["source"]) == ("chat", "found")}
    for row in source:
        assert row["typed"] == own[row["item_key"]]["typed"]
        assert row["verified"] == own[row["item_key"]]["verified"], "the searched model says the same to messages"
    other = [row for row in found if (row["model"], row["source"]) == ("parrot", "found")]
    assert [row["verified"] for row in other] == [row["target"] == "hello" for row in other]
    assert not any(row["verified"] for row in found if (row["model"], row["source"]) == ("parrot", NO_INPUT))
    assert result.metrics["found | parrot | verified"].value == pytest.approx(2 / 3)
    assert result.metrics["found | parrot | empty"].value == 0
    numbers = [result.metrics[f"found | parrot | {name}"].n for name in ("empty", "verified")]
    assert numbers == [2, 2], "three targets behind two prompts"
    table = (tmp_path / "run" / "table.md").read_text()
    assert "| found on | chat | chat, no input | parrot | parrot, no input | triggers |" in table
    page = report_from_run(tmp_path / "run").read_text()
    assert "found on" in page
    assert "parrot.py:parrot, shows text" in page, "the least that any of them shows"
    typed = {(row["prompt"], *row["typed"]) for row in found if row["model"] == "parrot"}
    assert (searched / "parrot.asked").read_text().count("asked") == len(typed), "nothing is asked twice"
    (searched / "found").rename(searched / "elsewhere")
    notes = Notes()
    run(config, tmp_path / "run", notes)
    (searched / "elsewhere").rename(searched / "found")
    assert any("nothing is left to do" in line for line in notes.said), "a finished run reads no searches"


@pytest.mark.usefixtures("workers_here")
def test_two_workers_write_the_rows_of_none(tmp_path: Path, searched: Path) -> None:
    models = f"hf:{searched}/chat,{searched}/parrot.py:parrot"
    config = TriggerTransferConfig(searches=str(searched / "found"), model=models, found="all", success=SHORT, shard_size=3)
    for workers in (0, 2):
        run(replace(config, workers=workers), tmp_path / str(workers), Silent())
    assert rows(tmp_path / "2") == rows(tmp_path / "0")


def test_replies_are_long_enough_for_long_targets(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(LENGTHY)
    (tmp_path / "targets.txt").write_text(" ".join(f"word{number}" for number in range(100)))
    model = f"{tmp_path}/model.py:Lengthy"
    few = EvolutionSettings(num_words=1, population=1, max_queries=1)
    SEARCH_TEXT.run(
        TextSearchConfig(model=model, targets=str(tmp_path / "targets.txt"), search=few), tmp_path / "text", Silent()
    )
    run(TriggerTransferConfig(searches=str(tmp_path / "text"), model=model, found="all"), tmp_path / "run", Silent())
    assert [row["verified"] for row in (*rows(tmp_path / "text"), *rows(tmp_path / "run"))] == [True] * 3


def test_a_prompt_that_fails_costs_no_other(tmp_path: Path, searched: Path) -> None:
    (tmp_path / "picky.py").write_text(
        PARROT.replace(
            "    (message,) = messages\n",
            """    (message,) = messages
    if "say it" in message["content"]: raise RuntimeError("too rude")
""",
        )
    )
    config = TriggerTransferConfig(searches=str(searched / "found"), model=f"{tmp_path}/picky.py:parrot", found="all")
    run(config, tmp_path / "run", Silent())
    found = rows(tmp_path / "run")
    assert sorted(row["status"] for row in found) == ["error"] * 4 + ["ok"] * 2
    assert all("too rude" in row["error"] for row in found if row["status"] == "error")


def test_a_random_input_stands_behind_the_same_prompts_as_what_was_found(
    tmp_path: Path, searched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pairs(verified: Sequence[bool]) -> list[dict[str, Any]]:
        about = {"target": "hello", "hit": False}
        each = [{"key": str(n), "prompt": f"say {n}", "searched": n < 3, "verified": ok} for n, ok in enumerate(verified)]
        return [about | pair for pair in each]

    own = {"status": "ok", "loss": 1.0}
    found = own | {"item_key": "found-0", "kind": "found", "typed": ["x"], "pairs": pairs([True, False, True, True])}
    random = own | {"item_key": "random-0", "kind": "random", "typed": ["y"], "pairs": pairs([False] * 4)}

    class Universal:
        job, config = UNIVERSAL, RunFolder.load(searched / "found").config

        def rows(self) -> list[Any]:
            return [found, random]

    monkeypatch.setattr(typed_triggers.RunFolder, "load", lambda path: Universal())
    config = TriggerTransferConfig(searches=str(searched / "found"), model=f"{searched}/parrot.py:parrot", limit=2)
    items = SEARCH_TRANSFER.prepare(config, tmp_path / "run", Silent()).items.values()
    prompts: dict[str, set[str | None]] = {}
    for item in items:
        prompts.setdefault(item.trigger.source, set()).add(item.trigger.prompt)
    searched_for, held_out = {"say 0", "say 2"}, {"say 3"}
    assert prompts == {
        "found": searched_for,
        "found, held out": held_out,
        "found, random": searched_for,
        "found, random, held out": held_out,
        NO_INPUT: searched_for | held_out,
    }


def test_no_input_is_of_the_prompts_of_its_own_line() -> None:
    about: dict[str, Any] = {
        "status": "ok",
        "model": "a",
        "samples": 0,
        "judge_answers": 0,
        "judge_unparsable": 0,
        "judge_no_reply": 0,
    }

    def row(source: str, trigger: str, control: str | None, verified: bool) -> dict[str, Any]:
        key = {"item_key": f"{source}/{trigger}", "trigger": trigger, "control": control}
        return {**about, **key, "source": source, "verified": verified}

    found = [row("one", "0", "x", True), row("one", "1", "x", True), row("two", "0", "y", False)]
    empty = [row(NO_INPUT, "x", None, False), row(NO_INPUT, "y", None, True)]
    metrics = transfer_metrics([*found, *empty])
    assert {name: metrics[f"{name} | a | empty"].value for name in ("one", "two")} == {"one": 0, "two": 1}
    assert metrics["one | a | verified"].n == 2
    assert metrics["one | a | empty"].n == 1, "both triggers share one prompt"
    assert not any(name.startswith(NO_INPUT) for name in metrics)
    assert transfer_table(metrics, CLAUSE).columns == ("found on", "a", "a, no input", "triggers")


def test_drawn_replies_have_a_column_of_their_own() -> None:
    about: dict[str, Any] = {
        "status": "ok",
        "model": "a",
        "samples": 5,
        "judge_answers": 0,
        "judge_unparsable": 0,
        "judge_no_reply": 0,
        "control": None,
    }
    own = {"source": "one", "verified": False, "sampled": 0}
    found = [about | own | {"item_key": key, "trigger": key} for key in "01"]
    table = transfer_table(transfer_metrics(found), CLAUSE)
    assert table.columns[:3] == ("found on", "a", "a, drawn")
    assert table.rows[0][1] == table.rows[0][2] == "0.00 [0.00, 0.66]", "ten draws behind two prompts"
    assert "Drawn" in table.note


def test_what_methods_found_is_typed_and_inputs_of_words_too(tmp_path: Path, searched: Path) -> None:
    table = MethodsConfig(
        model=f"hf:{searched}/chat",
        targets=str(searched / "pairs.csv"),
        method="random,gcg[search.num_replaced=2],evolution",
        budget="4",
        hugging_face=HuggingFaceSettings(length=3, end=False),
        evolution=EvolutionSettings(num_words=2, population=2),
        success=SHORT,
    )
    SEARCH_METHODS.run(table, tmp_path / "table", Silent())
    config = TriggerTransferConfig(searches=str(tmp_path / "table"), model=table.model, found="all", success=SHORT)
    result = run(config, tmp_path / "run", Silent())
    found = rows(tmp_path / "run")
    for line in table.lines:
        own = {row["trigger"]: row for row in found if row["source"] == f"table, {line.label}"}
        told = rows(tmp_path / "table" / line.folder)
        assert [(row["typed"], row["reply"]) for row in told] == [
            (own[row["item_key"]]["typed"], own[row["item_key"]]["reply"]) for row in told
        ]
        assert result.metrics[f"table, {line.label} | chat | verified"].n == 2, "three targets behind two prompts"
    assert sum(row["source"] == NO_INPUT for row in found) == 3, "the same prompts for all lines"
    kept = replace(config, searches=str(tmp_path / "table" / "evolution"), found="hits")
    with pytest.raises(DataError, match="no trigger to type"):
        run(kept, tmp_path / "none", Silent())


def test_what_cannot_be_typed_is_refused(tmp_path: Path, searched: Path) -> None:
    config = TriggerTransferConfig(searches=str(searched / "found"), model=f"{searched}/parrot.py:parrot", found="all")
    for changes, kind, message in (
        ({"model": ""}, ConfigError, "no model to type"),
        ({"model": "nothing"}, ConfigError, "no chat model"),
    ):
        with pytest.raises(kind, match=message):
            run(replace(config, **changes), tmp_path / "run", Silent())
    with pytest.raises(RunError):
        run(replace(config, searches=str(tmp_path / "none")), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "named",
    [
        {"model": "hf:a/x,hf:b/x,hf:c/x-1"},
        {"model": "hf:a", "searches": "runs/no input"},
        {"model": "hf:a", "searches": "one/run,two/run,three/run-1"},
    ],
)
def test_no_two_lines_of_the_matrix_are_called_alike(named: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="called alike"):
        TriggerTransferConfig(**named)  # type: ignore[arg-type]  # names of settings
    TriggerTransferConfig(model="hf:a/x,hf:b/x", searches="one/run,two/run")
