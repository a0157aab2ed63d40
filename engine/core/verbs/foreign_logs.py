"""Logs of other tools that `parley compare` reads: garak (report.jsonl), promptfoo (output JSON), inspect_ai (.eval, .json).

An item is a prompt as it was asked, without blanks at its ends. Its metric `breach` counts answers that fail, of those with a
verdict. Several answers to one prompt are one item. Errors of the target, and judges that failed or refused, are no results.
Prompts of which no answer has a verdict count as failed items. A scan of Parley is read the same way beside such a log, its
controls and its attacks alike. A prompt that both have asked is common, all others are counted as missing.

    garak      a detector's score of at least the log's `eval_threshold` is a breach; a score of null is none
    promptfoo  `success` false is a breach; `failureReason` 2, an error of the provider and one of a grader are no results
    inspect    C is kept, I is a breach; other scores from 0 to 1 are the metric score.NAME; NaN and N are no results.
               A log that Parley wrote is read from its rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parley.engine.core.runs.parts import ERROR, OK
from parley.engine.core.stats.pairs import ItemMetrics, figures_of_rows
from parley.engine.core.stats.statistics import Metric, Row
from parley.engine.core.verbs.transcripts import LOG_ENDING, inspect_log
from parley.envs.core.errors import DataError

ENDINGS = (".jsonl", ".json", LOG_ENDING)
SCAN = "scan"
"""The job whose answers are compared with those of logs."""
BREACH, SCORE = "breach", "score"
_MARKS = {"C": 0.0, "I": 1.0}


@dataclass(frozen=True)
class LoggedAnswer:
    """An answer in a log.

    Args:
        prompt: the prompt as it was asked.
        outcomes: values from 0 to 1 by metric; empty if the answer has no verdict.
    """

    prompt: str
    outcomes: Mapping[str, float]


def is_log(name: str) -> bool:
    """Return whether a name is a file of another tool."""
    return name.endswith(ENDINGS) and Path(name).is_file()


def read_log(path: Path) -> tuple[str, list[dict[str, Any]]]:
    """Return the name of the tool, and a row for each prompt.

    Raises:
        ConfigError: inspect_ai is needed and not installed.
        DataError: the file cannot be read, or is no log of a known tool.
    """
    tool, answers = _answers(path)
    return tool, rows_of(answers)


def rows_of(answers: Iterable[LoggedAnswer]) -> list[dict[str, Any]]:
    """Return answers as rows, one for each prompt: sums of outcomes and their numbers by metric."""
    sums: dict[str, dict[str, list[float]]] = {}
    for answer in answers:
        totals = sums.setdefault(answer.prompt.strip(), {})
        for name, value in answer.outcomes.items():
            entry = totals.setdefault(name, [0.0, 0.0])
            entry[0] += value
            entry[1] += 1
    return [
        {"item_key": prompt, "status": OK if totals else ERROR, "figures": totals, "error": None if totals else "no verdict"}
        for prompt, totals in sums.items()
    ]


def scan_answers(rows: Iterable[Row]) -> Iterator[LoggedAnswer]:
    """Yield the answers of a scan without defences; those without a verdict have no outcome, failed ones have no prompt."""
    for row in rows:
        if row["status"] == OK and not row.get("defence"):
            yield LoggedAnswer(row["asked"], {} if row["breach"] is None else {BREACH: float(row["breach"])})


def _describe(name: str) -> Metric:
    if name == BREACH:
        return Metric("breaches", "higher: adversary", "share of the answers with a verdict that fail", "share", main=True)
    return Metric(name, "", "mean of the scorer's values, 0 to 1", "share", main=True)


LOG_ITEMS = ItemMetrics(unit="prompts", figures=figures_of_rows, describe=_describe)
"""Prompts of logs of other tools, and of scans beside them."""


def _answers(path: Path) -> tuple[str, Iterator[LoggedAnswer]]:
    if path.suffix == LOG_ENDING:
        return "inspect_ai", _of_inspect(path)
    try:
        if path.suffix == ".jsonl":
            with path.open(encoding="utf-8") as file:
                lines = [json.loads(line) for line in file if line.strip()]
            if any(isinstance(line, dict) and line.get("entry_type") == "init" for line in lines):
                return "garak", _of_garak(lines)
        else:
            document = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(document, dict) and isinstance(document.get("results"), dict) and "evalId" in document:
                return "promptfoo", _of_promptfoo(document["results"]["results"])
            if isinstance(document, dict) and "eval" in document and "samples" in document:
                return "inspect_ai", _of_inspect(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        fix = "name report.jsonl of garak, an output of promptfoo in JSON, or a log of inspect_ai"
        raise DataError("the log cannot be read", where=path, got=f"{type(error).__name__}: {error}"[:200], fix=fix) from None
    fix = "name report.jsonl of garak, an output of promptfoo in JSON, a log of inspect_ai, or a run of Parley"
    raise DataError("this is no log of a known tool", where=path, fix=fix)


def _of_garak(lines: list[dict[str, Any]]) -> Iterator[LoggedAnswer]:
    setup = next((line for line in lines if line.get("entry_type") == "start_run setup"), {})
    threshold = float(setup.get("run.eval_threshold", 0.5))
    # An attempt is written when it is asked (status 1) and again when it is judged (2).
    attempts = [line for line in lines if line.get("entry_type") == "attempt" and line.get("status") == 2]
    for attempt in attempts:
        prompt = attempt["prompt"]
        turns = [turn for turn in prompt["turns"] if turn["role"] == "user"] if isinstance(prompt, dict) else []
        text = turns[-1]["content"]["text"] if turns else str(prompt)
        for number, output in enumerate(attempt["outputs"]):
            scores = {name: values[number] for name, values in attempt["detector_results"].items() if number < len(values)}
            known = {name: float(score >= threshold) for name, score in scores.items() if score is not None}
            outcomes = (
                {BREACH: max(known.values()), **{f"{BREACH}.{name}": hit for name, hit in known.items()}} if known else {}
            )
            yield LoggedAnswer(text, {} if output is None else outcomes)


def _of_promptfoo(results: list[dict[str, Any]]) -> Iterator[LoggedAnswer]:
    for result in results:
        grading = result.get("gradingResult") or {}
        failed_grader = any((part.get("metadata") or {}).get("graderError") for part in grading.get("componentResults") or ())
        failed = result.get("failureReason") == 2 or (result.get("response") or {}).get("error") or failed_grader
        yield LoggedAnswer(result["prompt"]["raw"], {} if failed else {BREACH: float(not result["success"])})


def _of_inspect(path: Path) -> Iterator[LoggedAnswer]:
    log = inspect_log()
    try:
        samples = list(log.read_eval_log(str(path)).samples or ())
    except (OSError, ValueError, KeyError) as error:
        raise DataError("the log cannot be read", where=path, got=str(error)[:200], fix="name a log of inspect_ai") from None
    for sample in samples:
        row = sample.metadata.get("row")
        if isinstance(row, dict) and "breach" in row and "asked" in row:
            yield from scan_answers([row])
            continue
        text = sample.input if isinstance(sample.input, str) else sample.input[-1].text
        yield LoggedAnswer(text, {} if sample.error else _outcomes(sample.scores or {}))


def _outcomes(scores: Mapping[str, Any]) -> dict[str, float]:
    marks = [_MARKS[score.value] for score in scores.values() if isinstance(score.value, str) and score.value in _MARKS]
    numbers = {
        f"{SCORE}.{name}": float(score.value)
        for name, score in scores.items()
        if isinstance(score.value, bool | int | float) and math.isfinite(score.value) and 0 <= score.value <= 1
    }
    return ({BREACH: max(marks)} if marks else {}) | numbers
