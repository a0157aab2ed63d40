"""Inputs that were typed to chat models, as items of the page: prompt, input, target and reply.

Prompts, inputs, targets and replies are hostile text: it is made visible before it is shown, and the page escapes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from parley.engine.core.page.content import Item, Run, ShownRun, Verdict, fill, line
from parley.engine.core.page.page import SHARE, caveat, first_marks, listed, number
from parley.engine.core.stats.statistics import NO_REPLY, NOTHING, Estimate, Metric, Row, is_no_reply
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.job import Job
from parley.engine.triggers.metrics.hits import VERIFIED, successful_reply
from parley.engine.triggers.metrics.text import EMPTY, RANDOM, TEXT_METRICS
from parley.engine.triggers.metrics.transfer import BETWEEN, describe_transfer
from parley.engine.triggers.metrics.transfer import EMPTY as NO_TRIGGER
from parley.engine.triggers.metrics.universal import EMPTY as NO_INPUTS
from parley.engine.triggers.metrics.universal import FOUND, HELD_OUT, KINDS, SEARCHED, best_found, describe_universal
from parley.engine.triggers.metrics.universal import RANDOM as RANDOM_INPUTS
from parley.engine.triggers.verbs.text_search import SEARCH_TEXT
from parley.engine.triggers.verbs.transfer import SEARCH_TRANSFER
from parley.engine.triggers.verbs.universal import SEARCH_UNIVERSAL
from parley.envs.core.visible import visible

NUM_SHOWN = 200
"""Replies of a run that the viewer holds."""


Marks = tuple[str, dict[str, Estimate]]
"""The name of the units, in the plural, and shares of them by kind of input."""


@dataclass(frozen=True)
class TypedReply:
    """A reply of a model.

    Args:
        key: its own in the run.
        sort: the kind of input in a word or two, such as "found" or "no input".
        group: the model of the reply, or the kind of prompt.
        prompt: the request; None if the typed text is the whole prompt.
        typed: the texts in its slots; empty if they were empty.
        target: the wanted reply.
        row: the model's answer: the columns `reply`, `verified`, `kind`, `reasoning` and `withheld`.
        measured: numbers to sort by, by name.
        model: the model of the reply, if there are several and `group` does not name it.
    """

    key: str
    sort: str
    group: str
    prompt: str | None
    typed: Sequence[str]
    target: str
    row: Row
    measured: Mapping[str, float]
    model: str = ""

    @property
    def success(self) -> bool:
        """Return True if the reply is one."""
        return bool(self.row[VERIFIED])

    @property
    def no_reply(self) -> str:
        """Return the kind of an answer that is no reply; empty for a reply."""
        return str(self.row["kind"]) if is_no_reply(self.row) else ""

    @property
    def shown(self) -> str:
        """Return the reply, or the text in its place."""
        return f"(no reply: {self.no_reply})" if self.no_reply else str(self.row["reply"])

    def part(self, column: str) -> str:
        """Return another part of the answer; empty where there is none, as in rows of older runs."""
        return str(self.row.get(column) or "")


class _Sort(NamedTuple):
    """The readers of the runs of one job: legend of metrics, replies of rows, and marks of metrics."""

    job: Job[Any, Any, Any]
    describe: Callable[[str], Metric]
    replies: Callable[[Sequence[Row]], Iterator[TypedReply]]
    marks: Callable[[Mapping[str, Estimate]], Marks]


@dataclass(frozen=True, kw_only=True)
class ShownTyped(ShownRun):
    """A run of one of `TYPED_JOBS`; its items are replies, or inputs behind many prompts.

    Args:
        job: its job.
        clause: the description of a successful reply (`successful_reply`).
        table: the measured figures.
    """

    job: str
    clause: str
    table: EstimateTable


def shown_typed(run: Run) -> ShownTyped:
    """Return a run of one of `TYPED_JOBS` that was measured."""
    sort = _SORTS[run.job]
    legend = {name: sort.describe(name) for name in run.metrics}
    settings = run.config if run.job == SEARCH_TEXT.name else run.config.get("hugging_face", {})
    clause = successful_reply(run.config["success"], end=settings.get("end"))
    return ShownTyped.of(run, job=run.job, clause=clause, legend=legend, table=sort.job.tables(run.folder)[""])


def success_metric(clause: str) -> Metric:
    """Return the name of a verdict's shares, by the description of a successful reply."""
    definition = f"share of typed prompts with a likeliest reply {clause}"
    return SHARE._replace(title="Successes", direction="higher: adversary", definition=definition)


def typed_items(run: ShownTyped) -> list[Item]:
    """Return replies that the viewer holds, successes first."""
    replies = sorted(_SORTS[run.job].replies(run.done), key=lambda reply: (not reply.success, bool(reply.no_reply)))
    return [
        Item(
            kind="answer",
            key=visible(reply.key),
            group=run.name,
            summary=line(
                '{}{} \N{RIGHTWARDS ARROW} <q class="target">{}</q>',
                visible(reply.prompt or ""),
                line(' <q class="adversary">{}</q>', visible(" … ".join(reply.typed))) if any(reply.typed) else "",
                visible(reply.shown),
            ),
            tags=_tags(reply),
            values=reply.measured,
            body=fill("triggers/page/typed.html", reply=reply, visible=visible),
        )
        for reply in replies[:NUM_SHOWN]
    ]


def _tags(reply: TypedReply) -> tuple[str, ...]:
    outcome = "success" if reply.success else "no success"
    more = (reply.sort, reply.group, reply.model, reply.no_reply and f"no reply: {reply.no_reply}")
    return (outcome, *map(visible, filter(None, more)))


def typed_verdict(run: ShownTyped) -> Verdict | None:
    """Return the verdict on a run, with its controls; None if nothing was measured."""
    units, all_marks = _SORTS[run.job].marks(run.metrics)
    marks = {name: mark for name, mark in all_marks.items() if mark.n}
    if not marks:
        return None
    shown = first_marks(marks)
    shares = {name: f"{number(SHARE, mark.value)} {name}" for name, mark in marks.items()}
    ordered = sorted(marks, key=lambda name: -marks[name].value)
    # A matrix has more lines than a sentence carries.
    summary = f"{shares[ordered[0]]} at most, {shares[ordered[-1]]} at least, in {len(shares)} lines,"
    if len(shares) <= MOST_SAID:
        summary = listed(list(shares.values()))
    sentence = f"Of the {units}, {summary} got a reply {run.clause}.{caveat(*marks.values(), unit=units)}"
    if without := run.metrics.get(NO_REPLY, NOTHING).value:
        sentence += f" Of all answers {number(SHARE, without)} are no reply." if without > 0 else ""
    return Verdict(sentence=sentence, metric=success_metric(run.clause), marks=shown)


def _universal_replies(rows: Sequence[Row]) -> Iterator[TypedReply]:
    best = best_found(rows)
    for row in rows if best is None else [best, *(row for row in rows if row["kind"] != FOUND)]:
        several = len({pair.get("model") for pair in row["pairs"]}) > 1
        for pair in row["pairs"]:
            model = pair["model"] if several else ""
            yield TypedReply(
                "/".join(filter(None, (row["item_key"], model, pair["key"]))),
                row["kind"],
                "searched prompt" if pair["searched"] else "held-out prompt",
                pair["prompt"],
                row["typed"] or (),
                pair["target"],
                pair,
                {"nats": pair["nats"]},
                model,
            )


def _universal_marks(metrics: Mapping[str, Estimate]) -> Marks:
    named = {FOUND: "with the input found", RANDOM_INPUTS: "with random inputs", NO_INPUTS: "with none"}
    # Where prompts are held out, the others chose the input.
    split = HELD_OUT if metrics.get(f"{FOUND}.{HELD_OUT}.{VERIFIED}", NOTHING).n else SEARCHED
    units = "held-out prompts" if split == HELD_OUT else "searched prompts"
    return units, {named[kind]: metrics.get(f"{kind}.{split}.{VERIFIED}", NOTHING) for kind in KINDS}


def _transfer_replies(rows: Sequence[Row]) -> Iterator[TypedReply]:
    for row in rows:
        yield TypedReply(row["item_key"], row["source"], row["model"], row["prompt"], row["typed"], row["target"], row, {})


def _transfer_marks(metrics: Mapping[str, Estimate]) -> Marks:
    names = {VERIFIED: "of {} on {}", NO_TRIGGER: "of the prompts of {} without input on {}"}
    marks: dict[str, Estimate] = {}
    for figure, sentence in names.items():
        for name, estimate in metrics.items():
            if name.endswith(f"{BETWEEN}{figure}"):
                source, model, _ = map(visible, name.split(BETWEEN))
                marks[sentence.format(source, model)] = estimate
    return "typed triggers", marks


def _text_replies(rows: Sequence[Row]) -> Iterator[TypedReply]:
    for row in rows:
        measured = {"queries": row["queries"]} | ({} if row["fitness"] is None else {"fitness": row["fitness"]})
        yield TypedReply(row["item_key"], "found", "", row["prompt"], row["typed"], row["target"], row, measured)


def _text_marks(metrics: Mapping[str, Estimate]) -> Marks:
    lines = {VERIFIED: "with what the search found", RANDOM: "with as many random ones", EMPTY: "with none"}
    return "targets", {line: metrics.get(name, NOTHING) for name, line in lines.items()}


_SORTS = {
    SEARCH_UNIVERSAL.name: _Sort(SEARCH_UNIVERSAL, describe_universal, _universal_replies, _universal_marks),
    SEARCH_TRANSFER.name: _Sort(SEARCH_TRANSFER, describe_transfer, _transfer_replies, _transfer_marks),
    SEARCH_TEXT.name: _Sort(SEARCH_TEXT, TEXT_METRICS.__getitem__, _text_replies, _text_marks),
}
MOST_SAID = 3
"""Shares that a sentence names one by one."""
TYPED_JOBS = tuple(_SORTS)
"""Jobs that type inputs to chat models."""
