"""Audits on the page: the verdict, and the drawn lines with changed words marked and labels beside them.

Lines are hostile text: they are made visible before they are shown, and the page escapes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from parley.engine.core.page.content import Item, Run, ShownRun, Verdict, fill
from parley.engine.core.page.page import SHARE, caveat, listed, number
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.tables.table import EstimateTable
from parley.engine.perturb.metrics.audit import CONTROL, RATIO, WRONG, describe_audit
from parley.engine.perturb.strategies.texts import ChangeKind
from parley.engine.perturb.verbs.audit import AUDITED, PERTURB_AUDIT, labels_of, lines_of
from parley.engine.perturb.verbs.sheet import DrawnLine, LabelledSheet
from parley.envs.core.visible import visible


@dataclass(frozen=True, kw_only=True)
class ShownEvaluation(ShownRun):
    """One evaluation under perturbations; its items are examples.

    Args:
        tables: what was measured, in the layout of the paper, by heading.
        strategies: what a good model does with the contexts of each strategy, "should-not-change" or "should-change".
        unscored: why activities and entities were not scored; empty if they were.
        beside: what the model is called that answers the same contexts; empty where there is none.
    """

    unit = "examples"
    tables: Mapping[str, EstimateTable] = field(default_factory=dict)
    strategies: Mapping[str, str] = field(default_factory=dict)
    unscored: str = ""
    beside: str = ""


@dataclass(frozen=True, kw_only=True)
class ShownAudit(ShownRun):
    """One audit; its items are contexts.

    Args:
        tables: what was measured, by heading; none before that.
        note: whose labels there are.
        lines: those that were drawn, for the viewer.
    """

    unit = "contexts"
    tables: Mapping[str, EstimateTable] = field(default_factory=dict)
    note: str = ""
    lines: Sequence[Item] = ()


@dataclass(frozen=True, kw_only=True)
class ShownPerturbations:
    """All evaluations and audits of a page."""

    evaluations: Sequence[ShownEvaluation] = ()
    audits: Sequence[ShownAudit] = ()


_RATIO = SHARE._replace(title="Perplexity ratio", form="number", definition="after an edit by before, geometric mean")
_WRONG = SHARE._replace(title="Wrong by hand", direction="lower: better", definition="share of the labelled lines")
_TAGS = {"before": Markup("<del>{}</del>"), "after": Markup("<mark>{}</mark>")}


def shown_audit(run: Run) -> ShownAudit:
    """An audit as the page shows it; its lines once it is measured."""
    done = AUDITED in run.summary
    lines = lines_of(run.folder) if done else {}
    labels = labels_of(run.folder, lines)
    legend = {name: describe_audit(name) for name in run.metrics}
    return ShownAudit.of(
        run,
        # All others stand in the tables.
        metrics={name: estimate for name, estimate in run.metrics.items() if legend[name].main},
        legend=legend,
        tables=PERTURB_AUDIT.tables(run.folder) if done else {},
        note=PERTURB_AUDIT.note(run.folder) if done else "",
        lines=[_item(run.heading, line, labels) for line in lines.values()],
    )


def audit_verdict(audit: ShownAudit) -> Verdict:
    """Return the labellers' verdict on each strategy, or the language model's where nobody has labelled a line."""
    wrong = _known(audit.metrics, WRONG)
    if wrong:
        said = listed([f"{number(SHARE, rate.value)} of {visible(name)}" for name, rate in wrong.items()])
        return Verdict(
            sentence=f"Of the labelled lines, wrong are {said}.{caveat(*wrong.values(), unit='labelled lines')}",
            metric=_WRONG,
            marks={visible(name): rate for name, rate in wrong.items()},
        )
    ratios = _known(audit.metrics, RATIO)
    own = {name: ratio for name, ratio in ratios.items() if name != CONTROL}
    if not own:
        return Verdict(sentence="No strategy found anything to change.", metric=_RATIO, marks={})
    told = listed([f"{visible(name)} {number(_RATIO, ratio.value)}" for name, ratio in own.items()])
    random = f", random words {number(_RATIO, ratios[CONTROL].value)}" if CONTROL in ratios else ""
    return Verdict(
        sentence=f"Edits make utterances so many times as perplexing: {told}{random}. No line is labelled yet.",
        metric=_RATIO,
        marks={visible(name): ratio for name, ratio in ratios.items()},
    )


def _known(metrics: Mapping[str, Estimate], kind: str) -> dict[str, Estimate]:
    """The estimates of a kind by strategy, where there are any."""
    prefix = f"{kind}."
    found = {name.removeprefix(prefix): each for name, each in metrics.items() if name.startswith(prefix)}
    return {name: each for name, each in found.items() if math.isfinite(each.value)}


def _item(heading: str, line: DrawnLine, labels: Mapping[str, LabelledSheet]) -> Item:
    said = [
        (name, each.labels[line.key], each.notes.get(line.key, "")) for name, each in labels.items() if line.key in each.labels
    ]
    tag = "not labelled" if not said else "wrong" if any(wrong for _, wrong, _ in said) else "ok"
    disagree = ("labellers disagree",) if len({wrong for _, wrong, _ in said}) > 1 else ()
    return Item(
        kind="line",
        key=visible(line.key),
        group=f"{heading}, {visible(line.strategy)}",
        summary=_marked(line, "before", "after"),
        tags=(tag, *disagree),
        values={"perplexity ratio": math.exp(min(line.log_ratio, 700.0))},
        body=fill(
            "perturb/page/line.html",
            before=_marked(line, "before"),
            after=_marked(line, "after"),
            labels=[(visible(name), "wrong" if wrong else "ok", visible(note)) for name, wrong, note in said],
            ratio=number(_RATIO, math.exp(min(line.log_ratio, 700.0))),
        ),
    )


def _marked(line: DrawnLine, *sides: str) -> Markup:
    """One side of a line, or both in one, changed words marked."""
    pieces: list[Markup] = []
    for span in line.spans:
        if span.kind is ChangeKind.SAME:
            pieces.append(escape(visible(" ".join(span.before))))
        else:
            texts = {side: visible(" ".join(getattr(span, side))) for side in sides}
            pieces += [_TAGS[side].format(text) for side, text in texts.items() if text]
    return Markup(" ").join(pieces) or Markup('<span class="muted">(nothing)</span>')
