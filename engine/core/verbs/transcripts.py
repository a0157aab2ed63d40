"""Rows as conversations, and the log of inspect_ai that holds them: `parley rows RUN out.eval`.

A job says by `Job.transcripts` how a row reads as a conversation: its messages, scores and target. The log has one sample for
each item. A failed item is a sample with its error and without scores. The whole row stands in the metadata of the sample, so
reading the log back gives the rows. The viewer of inspect_ai, its extension of VS Code and Scout open the file.

inspect_ai writes the file itself. It is an optional package: extra `inspect`.
"""

from __future__ import annotations

import importlib
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from parley.engine.core.runs.documents import plain, whole_file
from parley.engine.core.runs.parts import OK
from parley.engine.core.runs.remote_sync import replicate
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Estimate, Metric, Row
from parley.envs.core.errors import ConfigError, RunError
from parley.envs.core.storage.uris import display_path

LOG_ENDING = ".eval"
HOW_TO_INSTALL = 'in the folder of Parley: pip install --editable ".[inspect]"'
SYSTEM, USER, ASSISTANT = ROLES = ("system", "user", "assistant")
_ROW, _RUN = "row", "parley"
"""Entries of the metadata of a sample and of a log."""


@dataclass(frozen=True)
class Transcript:
    """A row as a conversation.

    Args:
        messages: pairs of role (`SYSTEM`, `USER` or `ASSISTANT`) and text; the measured model is the assistant.
        target: the text that is wanted of the model; empty for none.
        scores: values by name; a score that is None is left out, and counted as not scored.
        reasons: explanations of scores, by name.
        tags: names in catalogues of risks.
        typed: what a search found, one text a slot.
        success: whether an attack came through; None if it is undecided, or there is none.
    """

    messages: tuple[tuple[str, str], ...]
    target: str = ""
    scores: Mapping[str, float | bool | str | None] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()
    success: bool | None = None


TranscriptRule = Callable[[Row], Transcript]
"""Returns the conversation of a row that worked."""


def inspect_log() -> Any:
    """Return the module `inspect_ai.log`.

    Raises:
        ConfigError: inspect_ai is not installed.
    """
    try:
        return importlib.import_module("inspect_ai.log")
    except ImportError as error:
        got = f"no module {error.name}"
        raise ConfigError("logs of inspect_ai need the package inspect_ai", got=got, fix=HOW_TO_INSTALL) from None


def write_log(
    path: Path, run: RunFolder, rule: TranscriptRule, legend: Mapping[str, Metric], *, finished: bool
) -> tuple[str, ...]:
    """Write the rows of a run as a log of inspect_ai; return the names of the scores.

    Args:
        path: the file, which does not exist yet.
        run: the run.
        rule: how a row reads as a conversation.
        legend: meanings of the run's metrics, by name.
        finished: whether the run has nothing left to do.

    Raises:
        ConfigError: inspect_ai is not installed.
        RunError: a part of the run is damaged, or the disk refuses.
        StorageError: the URI cannot be written.
    """
    log, model = inspect_log(), _setting(run, ("model", "target", "agents"))
    samples = [_sample(log, row, rule, model) for row in run.rows()]
    names = tuple(dict.fromkeys(name for sample in samples for name in sample.scores or ()))
    summary = run.summary() or {}
    about = {
        "version": version("parley-redteam"),
        "job": run.job,
        "command": summary.get("command", ""),
        "title": summary.get("title", ""),
        "metrics": summary.get("metrics", {}),
    }
    times = [str(event["time"]) for event in run.events() if "time" in event] or [datetime.now(UTC).isoformat()]
    spec = log.EvalSpec(
        created=times[0],
        task=run.job,
        task_args=plain(run.config),
        dataset=log.EvalDataset(
            name=_setting(run, ("policy", "corpus", "scenarios", "targets")),
            samples=len(samples),
            sample_ids=[sample.id for sample in samples],
        ),
        model=model,
        config=log.EvalConfig(),
        packages={"parley-redteam": version("parley-redteam")},
        metadata={_RUN: plain(about)},
        tags=sorted({tag for sample in samples for tag in sample.metadata.get("tags", ())}) or None,
    )
    num_done = sum(sample.error is None for sample in samples)
    results = log.EvalResults(
        total_samples=len(samples), completed_samples=num_done, scores=list(_scores(log, samples, names, run.metrics(), legend))
    )
    document = log.EvalLog(
        status="success" if finished else "cancelled",
        eval=spec,
        results=results,
        stats=log.EvalStats(started_at=times[0], completed_at=times[-1]),
        samples=samples,
    )
    try:
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder) / f"log{LOG_ENDING}"
            log.write_eval_log(document, written, format="eval")
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as file:
                file.write(written.read_bytes())
    except OSError as error:
        fix = "make room, or name a file that can be written"
        raise RunError("the log cannot be written", where=display_path(path), got=error.strerror or error, fix=fix) from error
    replicate(path)
    return names


def read_rows_of_log(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows that `write_log` has put into a log, one sample at a time.

    Raises:
        ConfigError: inspect_ai is not installed.
    """
    for sample in inspect_log().read_eval_log_samples(path, all_samples_required=False):
        if _ROW in sample.metadata:
            yield dict(sample.metadata[_ROW])


def _sample(log: Any, row: Row, rule: TranscriptRule, model: str) -> Any:
    """Return a row as a sample."""
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser, ModelOutput
    from inspect_ai.scorer import Score

    metadata: dict[str, Any] = {_ROW: plain(row)}
    if row["status"] != OK:
        error = log.EvalError(message=row["error"] or "", traceback="", traceback_ansi="")
        return log.EvalSample(id=row["item_key"], epoch=1, input="", target="", metadata=metadata, error=error)
    transcript = rule(row)
    if transcript.tags:
        metadata["tags"] = list(transcript.tags)
    makers = {SYSTEM: ChatMessageSystem, USER: ChatMessageUser, ASSISTANT: ChatMessageAssistant}
    # Ids of messages are random otherwise: the same run gives the same log.
    messages = [
        makers[role](content=text, id=f"{row['item_key']}-{number}") for number, (role, text) in enumerate(transcript.messages)
    ]
    first = next((number for number, message in enumerate(messages) if message.role == ASSISTANT), len(messages))
    last = next((message.text for message in reversed(messages) if message.role == ASSISTANT), "")
    scores = {
        name: Score(value=value, answer=last or None, explanation=transcript.reasons.get(name) or None)
        for name, value in transcript.scores.items()
        if value is not None
    }
    question = messages[:first]
    return log.EvalSample(
        id=row["item_key"],
        epoch=1,
        input=question if len(question) > 1 else question[0].text if question else "",
        target=transcript.target,
        messages=messages,
        output=ModelOutput.from_content(model, last) if last else ModelOutput(),
        scores=scores,
        metadata=metadata,
    )


def _scores(
    log: Any, samples: Sequence[Any], names: Sequence[str], metrics: Mapping[str, Estimate], legend: Mapping[str, Metric]
) -> Iterator[Any]:
    """Yield the run's main metrics with their intervals; of a run without any, the means of the scores."""
    main = {name: estimate for name, estimate in metrics.items() if name in legend and legend[name].main}
    for name, estimate in main.items():
        values = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
        known = {part: log.EvalMetric(name=part, value=value) for part, value in values.items() if math.isfinite(value)}
        if known:
            yield log.EvalScore(name=name, scorer=name, metrics=known, metadata={"independent": estimate.n})
    for name in () if main else names:
        scores = [sample.scores[name] for sample in samples if sample.scores and name in sample.scores]
        numbers = [float(score.value) for score in scores if isinstance(score.value, int | float)]
        if numbers:
            means = {"mean": log.EvalMetric(name="mean", value=sum(numbers) / len(numbers))}
            left = len(samples) - len(scores)
            yield log.EvalScore(name=name, scorer=name, scored_samples=len(scores), unscored_samples=left, metrics=means)


def _setting(run: RunFolder, names: Sequence[str]) -> str:
    """Return the first of some settings of a run that is a text; the job's name without any."""
    values = map(run.config.get, names)
    return next((value for value in values if isinstance(value, str) and value), run.job)
