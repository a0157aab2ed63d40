"""The chapter of perturbations on the page: evaluations with a plot by strategy and examples side by side, and audits.

Source of the layout: Niu & Bansal 2018 (arXiv 1809.02079), tables 2, 4 and 11. Contexts and replies are hostile text: it
is made visible before it is shown, and the page escapes it. Audits show drawn lines with changed words marked and labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import ClassVar

from markupsafe import Markup, escape

from parley.engine.core.page.content import (
    Chapter,
    Figure,
    Item,
    Piece,
    Run,
    Section,
    ShownRun,
    Verdict,
    fill,
    line,
    tables_of,
)
from parley.engine.core.page.page import SHARE, caveat, certain_sign, first_marks, listed, number, others_below
from parley.engine.core.stats.statistics import Estimate, Row, is_no_reply
from parley.engine.core.tables.table import EstimateTable
from parley.engine.perturb.catalogue import strategies
from parley.engine.perturb.metrics.audit import CONTROL as RANDOM_WORDS
from parley.engine.perturb.metrics.audit import RATIO, WRONG, describe_audit
from parley.engine.perturb.metrics.table import (
    ACTIVITY,
    BASE,
    BESIDE,
    CHANGE_RATE,
    CONTROL,
    ENTITY,
    GAIN,
    TOUCHED_CHANGE_RATE,
    trained_models,
)
from parley.engine.perturb.strategies.texts import ChangeKind, spans
from parley.engine.perturb.strategy import Expectation
from parley.engine.perturb.verbs.audit import AUDITED, PERTURB_AUDIT, labels_of, lines_of
from parley.engine.perturb.verbs.robustness import CLEAN, EVALUATE_ROBUSTNESS, STRATEGIES, UNSCORED, describe_for
from parley.engine.perturb.verbs.sheet import DrawnLine, LabelledSheet
from parley.envs.core.seeds import stable_hash
from parley.envs.core.visible import visible
from parley.envs.corpora.pairs.turns import EOT, Turns, turn_of
from parley.envs.corpora.pairs.vocabulary import EOU

NUM_SHOWN = 20
"""Examples of a strategy that the viewer holds."""
_NOTHING_SAID = "(says nothing)"
_UTTERANCE_END = " \N{PILCROW SIGN} "
_MEASURES = {
    ACTIVITY: ("Activity F1", "F1 times 100"),
    ENTITY: ("Entity F1", "F1 times 100"),
    CHANGE_RATE: ("Changed replies", "% of replies unlike the same model's clean one"),
}
"""Titles and units of the drawings by strategy, by the kind of metric."""


@dataclass(frozen=True, kw_only=True)
class ShownEvaluation(ShownRun):
    """One evaluation under perturbations; its items are examples.

    Args:
        tables: by heading, in the layout of the paper.
        strategies: the reaction of a good model by strategy, "should-not-change" or "should-change".
        unscored: the reason why activities and entities were not scored; empty if they were.
        beside: name of the second model that answers the same contexts; empty without one.
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
        tables: by heading; none before the audit is measured.
        note: on the labels.
        lines: drawn for labelling, for the viewer.
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


Marked = list[list[Piece]]
"""A context, turn by turn."""


@dataclass(frozen=True)
class Reply:
    """The replies of a model to the clean context and to the perturbed one."""

    who: str
    before: str
    after: str


@dataclass(frozen=True)
class Perturbed:
    """One example under one strategy; `good`: the base reacted as a good model does."""

    key: str
    before: Marked
    after: Marked
    replies: list[Reply]
    truth: str
    changed: str
    num_changed: int
    good: bool
    verdict: str


def strategy_names(evaluation: ShownEvaluation) -> list[str]:
    """Return the strategies, in the order of the evaluation, which has at least one answered example."""
    return [str(entry["strategy"]) for entry in evaluation.done[0]["perturbations"]]


def touched(evaluation: ShownEvaluation, strategy: str) -> list[Row]:
    """Return the examples that a strategy changed."""
    return [row for row in evaluation.done if _of(row["perturbations"], strategy)["changed"]]


def note_of(evaluation: ShownEvaluation, strategy: str) -> str:
    """Return a note on the reaction of a good model, and how often the base reacted otherwise."""
    rows, expectation = touched(evaluation, strategy), evaluation.strategies.get(strategy, "")
    otherwise = sum(_reply(row, BASE, strategy)["same"] is False for row in rows)
    wanted = f"a good model {_ANSWERS[expectation]}; " if expectation in _ANSWERS else ""
    counted = f"{len(rows):,} of {len(evaluation.done):,} contexts were changed"
    return f"{visible(strategy)}: {wanted}{counted}; the base answers {otherwise:,} of these otherwise."


def example_items(evaluation: ShownEvaluation, strategy: str) -> list[Item]:
    """Return changed examples of a strategy: failures of the base first, in a fixed shuffle."""
    expectation = evaluation.strategies.get(strategy, "")
    examples = [read_example(row, strategy, expectation) for row in touched(evaluation, strategy)]
    examples.sort(key=lambda example: (example.good, stable_hash("report", example.key)))
    return [_item(f"{evaluation.name}, {visible(strategy)}", example) for example in examples[:NUM_SHOWN]]


def _item(group: str, example: Perturbed) -> Item:
    reply = example.replies[0]
    return Item(
        kind="example",
        key=example.key,
        group=group,
        summary=line("{}: <q>{}</q> \N{RIGHTWARDS ARROW} <q>{}</q>", example.verdict, reply.before, reply.after),
        tags=("as a good model" if example.good else "unlike a good model", example.verdict),
        values={"words changed": example.num_changed},
        body=fill("perturb/page/example.html", item=example),
    )


_ANSWERS: dict[str, str] = {
    Expectation.SHOULD_NOT_CHANGE.value: "answers as before",
    Expectation.SHOULD_CHANGE.value: "answers otherwise",
}


_SHOWN = {BASE: "reply", BESIDE: "reply of the other model", CONTROL: "control, trained as long on clean contexts"}
"""Titles of models that were not trained against a strategy."""


def trained_title(model: str) -> str:
    """Return the title of a trained model or of a model beside it."""
    return _SHOWN.get(model, f"trained against {visible(model)}")


def read_example(row: Row, strategy: str, expectation: str) -> Perturbed:
    """Return an answered example under one strategy, ready to be shown."""
    perturbation, same = _of(row["perturbations"], strategy), _reply(row, BASE, strategy)["same"]
    before, after = _marked(_turns(row["context"]), _turns(perturbation["text"]))
    num_changed = int(perturbation["num_changed"])
    models = [entry["model"] for entry in row["replies"] if entry["strategy"] == strategy]
    return Perturbed(
        key=visible(str(row["item_key"])),
        before=before,
        after=after,
        replies=[
            Reply(
                trained_title(model),
                _replied(_reply(row, model, CLEAN)),
                _replied(_reply(row, model, strategy)),
            )
            for model in models
        ],
        truth=_said(row["truth"]),
        changed="1 word changed" if num_changed == 1 else f"{num_changed} words changed",
        num_changed=num_changed,
        good=same is not None and same == (expectation != Expectation.SHOULD_CHANGE),
        verdict={None: "no reply to compare", True: "the same reply", False: "another reply"}[same],
    )


def _of(entries: Sequence[Row], strategy: str) -> Row:
    return next(entry for entry in entries if entry["strategy"] == strategy)


def _reply(row: Row, model: str, strategy: str) -> Row:
    return _of([entry for entry in row["replies"] if entry["model"] == model], strategy)


def _replied(reply: Row) -> str:
    """Return a reply, or the kind of an answer without one."""
    return f"(no reply: {reply['kind']})" if is_no_reply(reply) else _said(reply["reply"])


def _said(reply: str) -> str:
    return visible(f" {reply} ".replace(f" {EOU} ", _UTTERANCE_END).strip()) or _NOTHING_SAID


def _turns(line: str) -> Turns:
    """Parse the turns that `parley.envs.corpora.pairs.turns.format_turns` wrote, with its words as they are."""
    turns: list[list[str]] = [[]]
    for word in line.split():
        if word == EOT:
            turns.append([])
        else:
            turns[-1].append(word)
    return tuple(map(turn_of, turns))


def _marked(before: Turns, after: Turns) -> tuple[Marked, Marked]:
    """Mark in both contexts the words that the other lacks."""
    sides: dict[str, Marked] = {"before": [[]], "after": [[]]}
    for span in spans(before, after):
        for side, turns in sides.items():
            words: tuple[str, ...] = getattr(span, side)
            if words == (EOT,):
                turns.append([])
            elif words:
                text = _UTTERANCE_END.strip() if words == (EOU,) else visible(" ".join(words))
                turns[-1].append(Piece(text, "" if span.kind is ChangeKind.SAME else side))
    return sides["before"], sides["after"]


def figures_of(evaluation: ShownEvaluation) -> list[Figure]:
    """Return the changes of F1 and of replies by each strategy, before and after training."""
    # matplotlib costs a second, which readers of examples need not pay.
    from parley.engine.core.page import plots

    strategies = strategy_names(evaluation)
    models = list(dict.fromkeys(str(entry["model"]) for entry in evaluation.done[0]["replies"]))
    figures = []
    for measure, (title, unit) in _MEASURES.items():
        series = _series(evaluation.metrics, measure, strategies, models)
        if series:
            num = max(estimate.n for points in series.values() for estimate in points.values())
            caption = f"{evaluation.name}, by strategy, up to {num:,} examples; bars are 95 % intervals"
            svg = plots.dots_svg(f"{evaluation.name}, {title}", unit, strategies, series, 100.0)
            figures.append(Figure(title, caption, Markup(svg)))
    return figures


def _series(
    metrics: Mapping[str, Estimate], measure: str, strategies: Sequence[str], models: Sequence[str]
) -> dict[str, dict[str, Estimate]]:
    """Return measures by strategy: of the base on perturbed and clean contexts, of trained models on perturbed ones."""
    wanted = {"perturbed": {name: f"{measure}.{BASE}.{name}" for name in strategies}}
    wanted["clean"] = dict.fromkeys(strategies, f"{measure}.{BASE}.clean")
    for model in models:
        if model != BASE:
            title = "trained against it" if model in strategies else trained_title(model)
            met = [name for name in strategies if f"{measure}.{model}.{name}" in metrics]
            wanted[title] = wanted.get(title, {}) | {name: f"{measure}.{model}.{name}" for name in met}
    series = {
        title: {name: metrics[metric] for name, metric in points.items() if metric in metrics}
        for title, points in wanted.items()
    }
    return series if series["perturbed"] else {}


_CHANGED = SHARE._replace(
    title="Replies that change", definition="share of the contexts that a strategy changed whose reply is another than before"
)
_WANTED = {Expectation.SHOULD_NOT_CHANGE.value: "stay", Expectation.SHOULD_CHANGE.value: "change"}


class Perturbations(Chapter[ShownPerturbations]):
    """The chapter of evaluations under perturbations and of audits."""

    name, title = "robustness", "Perturbations"
    jobs = (EVALUATE_ROBUSTNESS.name, PERTURB_AUDIT.name)
    terms: ClassVar = {
        r"\bF1\b": ("F1", "how many of the true reply's activities (or entities) are in the model's, and how few others."),
        r"touched": ("Touched", "contexts in which a strategy found something to change."),
        r"N-train|A-train": ("N-train, A-train", "the model as it is; the model trained against the strategy."),
        r"should-not-change|should not|replies that should stay": ("Should stay", "the context means the same as before."),
        r"perplexity ratio": (
            "Perplexity ratio",
            "how much less usual an edit makes an utterance: perplexity of its words and end after by before, 1 is no change.",
        ),
        r"random-words": ("random-words", "the control: as many words replaced at random; what the figures are on garbage."),
        r"BLEU": ("BLEU", "how many short runs of words two replies share, 0 to 1."),
    }

    def collect(self, runs: Sequence[Run]) -> ShownPerturbations | None:
        content = ShownPerturbations(
            evaluations=[_evaluation(run) for run in runs if run.job == EVALUATE_ROBUSTNESS.name and run.rows],
            audits=[shown_audit(run) for run in runs if run.job == PERTURB_AUDIT.name and run.rows],
        )
        return content if content.evaluations or content.audits else None

    def verdict(self, content: ShownPerturbations) -> Verdict | None:
        """Return the verdict of the first evaluation, with its worst strategies; else that of the first audit."""
        measured = [evaluation for evaluation in content.evaluations if evaluation.done and evaluation.metrics]
        if not measured:
            return next((audit_verdict(evaluation) for evaluation in content.audits if evaluation.tables), None)
        first = measured[0]
        rates = {name: first.metrics.get(f"{TOUCHED_CHANGE_RATE}.{BASE}.{name}") for name in first.strategies}
        measured_rates = {name: rate for name, rate in rates.items() if rate and rate.n}
        sentences, worst = [], []
        for expectation, wanted in _WANTED.items():
            of_expectation = [name for name in measured_rates if first.strategies[name] == expectation]
            if of_expectation:
                sign = 1 if wanted == "stay" else -1
                worst.append(max(of_expectation, key=lambda name: sign * measured_rates[name].value))
                changed = number(SHARE, measured_rates[worst[-1]].value)
                sentences.append(f"{_explained(worst[-1])} changes {changed} of the replies that should {wanted}")
        if not sentences:
            return None
        marks: dict[str, Estimate] = {}
        for name, rate in measured_rates.items():
            marks[f"{visible(name)} (should {_WANTED.get(first.strategies[name], 'either')})"] = rate
            if first.beside:
                marks[f"{visible(name)}, {visible(first.beside)}"] = first.metrics[f"{TOUCHED_CHANGE_RATE}.{BESIDE}.{name}"]
            for model in _trained(first, name):
                after = first.metrics[f"{TOUCHED_CHANGE_RATE}.{model}.{name}"]
                marks[f"{visible(name)}, {'trained against it' if model == name else trained_title(model)}"] = after
        trainings = [_training(first, name, model) for name in worst for model in _against(first, name)[:1]]
        training = f" Training against it brings that to {listed(trainings)}." if trainings else ""
        other = ""
        if first.beside and worst:
            other = f" Of the replies of {visible(first.beside)}: {listed([_other(first, name) for name in worst])}."
        text = "; ".join(sentences)
        rest = caveat(*(measured_rates[name] for name in worst), unit="contexts")
        return Verdict(
            sentence=f"{text[:1].upper()}{text[1:]}.{rest}{training}{other}{others_below(measured)}",
            metric=_CHANGED,
            marks=first_marks(marks),
        )

    def render(self, content: ShownPerturbations) -> Section:
        done = [evaluation for evaluation in content.evaluations if evaluation.done]
        both: list[ShownEvaluation | ShownAudit] = [*content.evaluations, *content.audits]
        items = {
            f"{evaluation.name}, {visible(name)}": example_items(evaluation, name)
            for evaluation in done
            for name in strategy_names(evaluation)
        }
        for audit in content.audits:
            for item in audit.lines:
                items.setdefault(item.group, []).append(item)
        unscored = [
            f"{evaluation.name}: activities and entities are not scored: {evaluation.unscored}."
            for evaluation in done
            if evaluation.unscored
        ]
        return Section(
            notes=[
                *unscored,
                *(note_of(evaluation, name) for evaluation in done for name in strategy_names(evaluation)),
                *(f"{evaluation.name}: {evaluation.note}" for evaluation in content.audits if evaluation.note),
            ],
            measured=both,
            tables=tables_of([(evaluation.name, evaluation.tables) for evaluation in both]),
            figures=[figure for evaluation in done for figure in figures_of(evaluation)],
            items=[item for shown in items.values() for item in shown],
            chosen={f"{name}: an example": shown[0] for name, shown in items.items() if shown},
        )


def _evaluation(run: Run) -> ShownEvaluation:
    strategies = run.summary.get(STRATEGIES, {})
    return ShownEvaluation.of(
        run,
        legend={name: describe_for(name, strategies) for name in run.metrics},
        tables=EVALUATE_ROBUSTNESS.tables(run.folder),
        strategies=strategies,
        unscored=run.summary.get(UNSCORED, ""),
        beside=PurePath(str(run.config.get("beside") or "")).name,
    )


def _explained(strategy: str) -> str:
    """Return a strategy, with its summary if it is one of the catalogue's."""
    return f"{strategy} ({strategies.summary(strategy)})" if strategy in set(strategies) else visible(strategy)


def _trained(evaluation: ShownEvaluation, strategy: str) -> list[str]:
    """Return the trained models that replied under a strategy."""
    models = trained_models(evaluation.metrics)
    return [model for model in models if f"{TOUCHED_CHANGE_RATE}.{model}.{strategy}" in evaluation.metrics]


def _against(evaluation: ShownEvaluation, strategy: str) -> list[str]:
    """Return the models trained against a strategy, the one of this strategy alone first, without the control."""
    models = [model for model in _trained(evaluation, strategy) if model != CONTROL]
    return sorted(models, key=lambda model: model != strategy)


def _other(evaluation: ShownEvaluation, strategy: str) -> str:
    changed = evaluation.metrics[f"{TOUCHED_CHANGE_RATE}.{BESIDE}.{strategy}"]
    gain = evaluation.metrics.get(f"{CHANGE_RATE}{GAIN}.{BESIDE}.{strategy}")
    certainty = {1: "certainly more", 0: "no certain difference", -1: "certainly fewer"}[
        0 if gain is None else certain_sign(gain)
    ]
    return f"{number(SHARE, changed.value)} ({certainty})"


def _training(evaluation: ShownEvaluation, strategy: str, model: str) -> str:
    """Return whether training helped with a strategy, by the paired difference over all contexts, beside the control."""
    after = evaluation.metrics[f"{TOUCHED_CHANGE_RATE}.{model}.{strategy}"]
    gain = evaluation.metrics.get(f"{CHANGE_RATE}{GAIN}.{model}.{strategy}")
    better = 1 if evaluation.strategies[strategy] == Expectation.SHOULD_CHANGE else -1
    helped = 0 if gain is None else better * certain_sign(gain)
    certainty = {1: "it helped", 0: "no certain gain", -1: "it is worse"}[helped]
    if (control := evaluation.metrics.get(f"{TOUCHED_CHANGE_RATE}.{CONTROL}.{strategy}")) is not None:
        certainty += f"; as much training on clean contexts alone: {number(SHARE, control.value)}"
    return f"{number(SHARE, after.value)} ({certainty})"


_RATIO = SHARE._replace(title="Perplexity ratio", form="number", definition="after an edit by before, geometric mean")
_WRONG = SHARE._replace(title="Wrong by hand", direction="lower: better", definition="share of the labelled lines")
_TAGS = {"before": Markup("<del>{}</del>"), "after": Markup("<mark>{}</mark>")}


def shown_audit(run: Run) -> ShownAudit:
    """Return an audit for the page; with its lines once it is measured."""
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
        lines=[_line_item(run.heading, drawn, labels) for drawn in lines.values()],
    )


def audit_verdict(audit: ShownAudit) -> Verdict:
    """Return the labellers' verdict on each strategy; without labels, that of the language model."""
    wrong = _measured(audit.metrics, WRONG)
    if wrong:
        listed_rates = listed([f"{number(SHARE, rate.value)} of {visible(name)}" for name, rate in wrong.items()])
        return Verdict(
            sentence=f"Of the labelled lines, wrong are {listed_rates}.{caveat(*wrong.values(), unit='labelled lines')}",
            metric=_WRONG,
            marks={visible(name): rate for name, rate in wrong.items()},
        )
    ratios = _measured(audit.metrics, RATIO)
    of_strategies = {name: ratio for name, ratio in ratios.items() if name != RANDOM_WORDS}
    if not of_strategies:
        return Verdict(sentence="No strategy found anything to change.", metric=_RATIO, marks={})
    listed_ratios = listed([f"{visible(name)} {number(_RATIO, ratio.value)}" for name, ratio in of_strategies.items()])
    random = f", random words {number(_RATIO, ratios[RANDOM_WORDS].value)}" if RANDOM_WORDS in ratios else ""
    return Verdict(
        sentence=f"Edits make utterances so many times as perplexing: {listed_ratios}{random}. No line is labelled yet.",
        metric=_RATIO,
        marks={visible(name): ratio for name, ratio in ratios.items()},
    )


def _measured(metrics: Mapping[str, Estimate], kind: str) -> dict[str, Estimate]:
    """Return the finite estimates of a kind by strategy."""
    prefix = f"{kind}."
    estimates = {name.removeprefix(prefix): estimate for name, estimate in metrics.items() if name.startswith(prefix)}
    return {name: estimate for name, estimate in estimates.items() if math.isfinite(estimate.value)}


def _line_item(heading: str, drawn: DrawnLine, labels: Mapping[str, LabelledSheet]) -> Item:
    verdicts = [
        (name, sheet.labels[drawn.key], sheet.notes.get(drawn.key, ""))
        for name, sheet in labels.items()
        if drawn.key in sheet.labels
    ]
    tag = "not labelled" if not verdicts else "wrong" if any(wrong for _, wrong, _ in verdicts) else "ok"
    disagree = ("labellers disagree",) if len({wrong for _, wrong, _ in verdicts}) > 1 else ()
    return Item(
        kind="line",
        key=visible(drawn.key),
        group=f"{heading}, {visible(drawn.strategy)}",
        summary=_marked_line(drawn, "before", "after"),
        tags=(tag, *disagree),
        values={"perplexity ratio": math.exp(min(drawn.log_ratio, 700.0))},
        body=fill(
            "perturb/page/line.html",
            before=_marked_line(drawn, "before"),
            after=_marked_line(drawn, "after"),
            labels=[(visible(name), "wrong" if wrong else "ok", visible(note)) for name, wrong, note in verdicts],
            ratio=number(_RATIO, math.exp(min(drawn.log_ratio, 700.0))),
        ),
    )


def _marked_line(drawn: DrawnLine, *sides: str) -> Markup:
    """Return one side of a line, or both in one, with changed words marked."""
    pieces: list[Markup] = []
    for span in drawn.spans:
        if span.kind is ChangeKind.SAME:
            pieces.append(escape(visible(" ".join(span.before))))
        else:
            texts = {side: visible(" ".join(getattr(span, side))) for side in sides}
            pieces += [_TAGS[side].format(text) for side, text in texts.items() if text]
    return Markup(" ").join(pieces) or Markup('<span class="muted">(nothing)</span>')
