"""Targets that share a prompt, and prompts without input that several triggers share, are no independent trials."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parley.engine.core.stats.pairs import ItemMetrics, Sample
from parley.engine.core.stats.statistics import Estimate, clustered_rate, count, rate
from parley.engine.triggers.metrics.hits import TARGET_ITEMS, hits_by_restarts, search_metrics, units_of
from parley.engine.triggers.metrics.text import TEXT_ITEMS, text_metrics, text_table
from parley.engine.triggers.metrics.transfer import NO_INPUT, KnownInputs, transfer_metrics
from tests.engine.triggers.metrics.searches import KINDS, restart, searched

JUDGED = dict.fromkeys(("judge_answers", "judge_unparsable", "judge_no_reply"), 0)
PROMPTS = ("a", "a", "a", "a", "b", "b", "b", "b")
"""Eight targets behind two prompts; all behind the first are reached."""
HITS = [prompt == "a" for prompt in PROMPTS]
TOGETHER = clustered_rate(HITS, PROMPTS)


def test_two_prompts_of_four_targets_tell_less_than_eight_targets() -> None:
    assert TOGETHER.n == 2
    assert TOGETHER.high - TOGETHER.low > 1.4 * (rate(4, 8).high - rate(4, 8).low)


def test_rows_that_share_one_prompt_or_have_none_are_their_own_clusters() -> None:
    assert units_of(np.array([0, 0, 0])).tolist() == [0, 1, 2]
    assert units_of(np.array([0, 0, 0]), np.array([4, 4, 5])).tolist() == [4, 4, 5]
    assert units_of(np.array([0, 0, 2])).tolist() == [0, 0, 2]
    assert units_of(np.array([])).tolist() == []


def test_hits_of_one_prompt_hang_together() -> None:
    rows = [
        searched(str(i), restart(hits=(KINDS[0],) if hit else ()), prompt=prompt, verified=hit, samples=2, sampled=2 * hit)
        for i, (prompt, hit) in enumerate(zip(PROMPTS, HITS, strict=True))
    ]
    metrics = search_metrics(rows, count(1.0, 1), 0)
    assert metrics[f"hit_rate.{KINDS[0]}"] == metrics["verified"] == TOGETHER
    assert metrics["sampled"] == clustered_rate([2 * hit for hit in HITS], PROMPTS, [2] * 8)
    assert (metrics["targets"].n, metrics["sweeps"].n, metrics["loss"].n) == (8, 2, 2)
    assert hits_by_restarts(rows, KINDS[:1]) == {KINDS[0]: [(1, TOGETHER)]}


def text_row(prompt: str, key: str, hit: bool) -> dict[str, Any]:
    figures = {"random_verified": not hit, "empty_verified": False, "verified": hit, "samples": 0, "sampled": 0}
    return {"status": "ok", "item_key": key, "prompt": prompt, **figures, **JUDGED, "queries": 5, "random_queries": 5}


def test_searches_by_replies_alone_count_prompts() -> None:
    metrics = text_metrics([text_row(prompt, str(i), hit) for i, (prompt, hit) in enumerate(zip(PROMPTS, HITS, strict=True))])
    assert metrics["verified"] == metrics["random_verified"] == TOGETHER
    assert (metrics["over_random"].n, metrics["no_reply"].n, metrics["sampled"].n) == (2, 2, 0)
    assert "n counts 2 prompts of 8 targets" in text_table(metrics, "that is the target").note


def test_the_note_of_a_search_that_failed_everywhere_counts_no_answers() -> None:
    metrics = text_metrics([{"status": "failed", "item_key": "0", "prompt": "a"}])
    assert "nan" not in text_table(metrics, "that is the target").note


def test_a_prompt_without_input_is_one_trial_however_many_triggers_share_it() -> None:
    row = {"status": "ok", "model": "m", "samples": 0, **JUDGED}
    empty = [{**row, "source": NO_INPUT, "item_key": f"e{p}", "trigger": p, "prompt": p, "verified": p == "a"} for p in "ab"]
    typed = [
        {**row, "source": "s", "item_key": str(i), "trigger": f"t{i}", "control": prompt, "prompt": prompt, "verified": hit}
        for i, (prompt, hit) in enumerate(zip(PROMPTS, HITS, strict=True))
    ]
    metrics = transfer_metrics([*typed, *empty])
    assert metrics["s | m | verified"] == metrics["s | m | empty"] == TOGETHER
    # All triggers behind one prompt are units of their own; the prompt without any is one.
    metrics = transfer_metrics([*typed[:4], *empty])
    assert metrics["s | m | verified"] == rate(4, 4)
    assert metrics["s | m | empty"] == rate(1, 1)


def test_known_inputs_are_clustered_by_prompt() -> None:
    rows = [
        {
            "item_key": f"{model}/{source}/{i}",
            "status": "ok",
            "source": source,
            "model": model,
            "prompt": prompt,
            "target": str(i),
            "verified": hit,
        }
        for model in ("m", "c")
        for source in ("search", NO_INPUT)
        for i, (prompt, hit) in enumerate(zip(PROMPTS, HITS, strict=True))
    ]
    figures = KnownInputs.of(rows, {"m": "start", "c": "control"}, {"search": "start"}).figures()
    assert figures["start.exploitability"] == TOGETHER
    assert figures["start.gain_over_control"].n == 2
    assert figures["start.gain_over_control"].value == pytest.approx(0)


@pytest.mark.parametrize("prompts", [PROMPTS, ["the same"] * 8], ids=["several", "one"])
def test_runs_are_compared_by_the_units_of_their_metrics(prompts: list[str]) -> None:
    tries = list(enumerate(zip(prompts, HITS, strict=True)))
    searches = [searched(str(i), restart(hits=(KINDS[0],) if hit else ()), prompt=prompt) for i, (prompt, hit) in tries]
    name = f"hit_rate.{KINDS[0]}"
    assert compared(TARGET_ITEMS, searches, name) == search_metrics(searches, count(1.0, 1), 0)[name]
    texts = [text_row(prompt, str(i), hit) for i, (prompt, hit) in tries]
    for name in ("verified", "queries", "no_reply"):
        assert compared(TEXT_ITEMS, texts, name) == text_metrics(texts)[name]


def compared(rule: ItemMetrics, rows: list[dict[str, Any]], metric: str) -> Estimate:
    unit, clusters = rule.units([rule.digests(row) for row in rows])
    figures = rule.figures(rows, {})[metric]
    assert (unit, figures.rows.tolist()) == ("prompts" if len(set(clusters)) == 2 else "targets", list(range(len(rows))))
    return Sample(figures.tops, figures.bottoms, figures.rows >= 0, clusters, figures.form).estimate()
