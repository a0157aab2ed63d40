"""Runs that type inputs to chat models, on the page: what was replied, its controls beside, hostile words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.page.content import Item, Report, Verdict
from parley.engine.core.page.page import collect_run
from parley.engine.core.runs.parts import ok_row
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Estimate
from parley.engine.triggers.metrics.hits import VERIFIED
from parley.engine.triggers.metrics.text import text_metrics
from parley.engine.triggers.metrics.transfer import BETWEEN as SEPARATOR
from parley.engine.triggers.metrics.transfer import transfer_metrics
from parley.engine.triggers.metrics.universal import universal_metrics
from parley.engine.triggers.page import TriggerSearches
from parley.engine.triggers.success import SuccessSettings
from parley.engine.triggers.verbs.config import TextSearchConfig
from parley.engine.triggers.verbs.text_search import SEARCH_TEXT
from parley.engine.triggers.verbs.transfer import SEARCH_TRANSFER, TriggerTransferConfig
from parley.engine.triggers.verbs.universal import SEARCH_UNIVERSAL, UniversalConfig
from tests.engine.core.page.pages import HOSTILE, assert_brief, assert_harmless, page_of, run_of

MATRIX = {"b": 0.0, "c": 0.75, "d": 0.5, "e": 0.25}
"""Shares of one search's triggers that work, by model."""
UNJUDGED: dict[str, Any] = {"samples": 0, "sampled": 0, "judge_answers": 0, "judge_unparsable": 0, "judge_no_reply": 0}


def said(key: str, *, searched: bool, verified: bool) -> dict[str, Any]:
    asked = {"key": key, "prompt": f"{HOSTILE} {key}", "target": "yes", "reply": "yes" if verified else "no", "nats": 1.0}
    return asked | UNJUDGED | {"searched": searched, "hit": None, "retokenised": True, "verified": verified}


def typed(kind: str, number: int, *works: bool) -> dict[str, Any]:
    """An input behind a searched prompt and two held-out ones."""
    pairs = [said(f"p{place}", searched=place == 0, verified=verified) for place, verified in enumerate(works)]
    own = {"kind": kind, "typed": None if kind == "empty" else [f"{kind} words"], "loss": float(number), "pairs": pairs}
    return ok_row(f"{kind}-{number}", 1) | own | {"candidates": 4, "refused": 0}


def recorded(path: Path, job: Any, config: Any, rows: list[dict[str, Any]], metrics: dict[str, Estimate]) -> Report:
    rows = [{name: row.get(name) for name in job.schema.names} for row in rows]
    with RunFolder.open(path, config, job=job.name, schema=job.schema) as run:
        run.write_shard("shard", rows)
        run.write_summary(metrics, {"title": HOSTILE, "description": HOSTILE})
    return collect_run(path)


def verdict_of(report: Report) -> Verdict:
    found = TriggerSearches().verdict(report.found["triggers"])
    assert found is not None
    assert_brief(found)
    return found


def items_of(report: Report) -> list[Item]:
    chapter = TriggerSearches()
    return [item for run in report.found["triggers"] for _, items in chapter.items(run) for item in items]


def test_a_universal_input_is_judged_behind_held_out_prompts(tmp_path: Path) -> None:
    rows = [typed("found", 0, True, True, False), typed("found", 1, False, True, True)]
    rows += [typed("random", 0, False, False, False), typed("empty", 0, False, True, False)]
    shown = recorded(tmp_path / "run", SEARCH_UNIVERSAL, UniversalConfig(), rows, universal_metrics(rows, 0))
    verdict = verdict_of(shown)
    assert [mark.value for mark in verdict.marks.values()] == [0.5, 0.0, 0.5]
    assert verdict.sentence.startswith("Of held-out prompts, 50.0\N{NO-BREAK SPACE}% with the input found, 0.0")
    assert "found words" in "".join(assert_harmless(page_of(shown)).text)
    items = items_of(shown)
    assert len(items) == 9, "of several searches only the input that is kept is shown"
    assert [item.tags[0] for item in items] == ["success"] * 3 + ["no success"] * 6


def test_replies_of_several_models_say_whose_they_are(tmp_path: Path) -> None:
    rows = [typed("found", 0, True, True, False), typed("empty", 0, False, True, False)]
    for row in rows:
        row["pairs"] = [pair | {"model": model} for model in ("small", HOSTILE) for pair in row["pairs"]]
    shown = recorded(tmp_path / "run", SEARCH_UNIVERSAL, UniversalConfig(), rows, universal_metrics(rows, 0))
    items = items_of(shown)
    assert len({item.key for item in items}) == len(items) == 12
    assert sum("small" in item.tags for item in items) == sum("small" in str(item.body) for item in items) == 6
    assert_harmless(page_of(shown))


def test_transferred_triggers_stand_before_no_input(tmp_path: Path) -> None:
    rows = [
        ok_row(f"{model}/{source}/{number}", 1)
        | {
            "source": source,
            "trigger": f"{source}-{number}",
            "control": f"no input-{number}",
            "model": model,
            "prompt": HOSTILE,
            "target": "yes",
            "typed": typed_in,
        }
        | {"reply": HOSTILE, "ended": True, "verified": source == "run" and number == 0}
        | UNJUDGED
        for model in ("a", "b")
        for source, typed_in in (("no input", [""]), ("run", ["x", "y"]))
        for number in range(2)
    ]
    config = TriggerTransferConfig(model="hf:a,hf:b", searches="run")
    shown = recorded(tmp_path / "run", SEARCH_TRANSFER, config, rows, transfer_metrics(rows))
    assert {name: mark.value for name, mark in verdict_of(shown).marks.items()} == {
        "of run on a": 0.5,
        "of run on b": 0.5,
        "of run on a without input": 0.0,
        "of run on b without input": 0.0,
    }
    assert "x … y" in "".join(assert_harmless(page_of(shown)).text)


@pytest.mark.parametrize("prompt", ["ask", None])
def test_evolved_inputs_beside_their_controls(tmp_path: Path, prompt: str | None) -> None:
    rows = [
        ok_row(str(number), 1)
        | {"prompt": prompt, "target": "yes", "trigger": HOSTILE, "typed": [HOSTILE], "fitness": 1.0, "queries": 7}
        | {"fitness_by_generation": [1.0], "reply": "yes", "ended": True, "verified": number < 3}
        | {"empty_verified": False, "random_verified": number == 0, "random_fitness": 0.5, "random_queries": 9}
        | UNJUDGED
        for number in range(4)
    ]
    config = TextSearchConfig(model="hf:a", targets="pairs.csv")
    shown = recorded(tmp_path / "run", SEARCH_TEXT, config, rows, text_metrics(rows))
    assert [mark.value for mark in verdict_of(shown).marks.values()] == [0.75, 0.25, 0.0]
    assert_harmless(page_of(shown))


def test_what_counts_as_a_success_is_said_as_it_was_asked_for(tmp_path: Path) -> None:
    """Of a pattern no page says that a reply had the target."""
    own = {"prompt": "p", "target": "yes", "trigger": "a", "typed": ["a"], "fitness": 1.0, "queries": 7, "reply": "surely"}
    controls = {"empty_verified": False, "random_verified": False, "random_fitness": 0.5, "random_queries": 9}
    rows = [ok_row("0", 1) | own | {"fitness_by_generation": [1.0], "ended": True, "verified": True} | controls | UNJUDGED]
    settings = SuccessSettings(by="pattern", pattern="sure")
    shown = recorded(
        tmp_path / "run", SEARCH_TEXT, TextSearchConfig(model="hf:a", targets="t", success=settings), rows, text_metrics(rows)
    )
    verdict = verdict_of(shown)
    assert "matches the pattern" in verdict.metric.definition
    assert "target" not in verdict.sentence.replace("targets", "")


def test_methods_under_one_budget_are_told_beside_their_controls() -> None:
    none, half = Estimate(0.0, 0.0, 0.49, 4), Estimate(0.5, 0.15, 0.85, 4)
    names = {"gcg": half, "random": none, HOSTILE: none}
    metrics = {f"methods.{number}.{VERIFIED}": share for number, share in enumerate(names.values())}
    layout = [{"rows": [{"label": name, "key": number} for number, name in enumerate(names)]}]
    config = {"success": {"by": "prefix"}, "hugging_face": {}}
    verdict = TriggerSearches().verdict([run_of("search-methods", metrics=metrics, config=config, tables=layout)])
    assert verdict is not None
    assert_brief(verdict)
    assert verdict.sentence.startswith("Of targets, 50.0\N{NO-BREAK SPACE}% with gcg, 0.0\N{NO-BREAK SPACE}% with random")
    assert list(verdict.marks.values()) == [half, none, none]


def test_a_matrix_is_told_by_its_highest_and_its_lowest_share(tmp_path: Path) -> None:
    shares = {f"a{SEPARATOR}{model}{SEPARATOR}{VERIFIED}": Estimate(share, 0, 1, 9) for model, share in MATRIX.items()}
    config = TriggerTransferConfig(searches="runs/a", model="openai:http://127.0.0.1:1/v1#b")
    verdict = verdict_of(recorded(tmp_path / "run", SEARCH_TRANSFER, config, [], shares))
    space = "\N{NO-BREAK SPACE}"
    assert verdict.sentence == (
        f"Between 0.0{space}% (a on b) and 75.0{space}% (a on c) of typed triggers got a successful reply."
    )
