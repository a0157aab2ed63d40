"""The chapter of perturbations on the page: evaluations with a plot by strategy and examples side by side, and audits.

Source of the layout: Niu & Bansal 2018 (arXiv 1809.02079), tables 2, 4 and 11. Contexts and replies are hostile text: it
is made visible before it is shown, and the page escapes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import ClassVar

from markupsafe import Markup

from parley.engine.core.page.content import Chapter, Figure, Item, Piece, Run, Section, Verdict, fill, line, tables_of
from parley.engine.core.page.page import SHARE, caveat, certain_sign, first_marks, listed, number, others_below
from parley.engine.core.stats.statistics import Estimate, Row, is_no_reply
from parley.engine.perturb.catalogue import strategies
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
from parley.engine.perturb.page.audits import ShownAudit, ShownEvaluation, ShownPerturbations, audit_verdict, shown_audit
from parley.engine.perturb.strategies.texts import ChangeKind, spans
from parley.engine.perturb.strategy import Expectation
from parley.engine.perturb.verbs.audit import PERTURB_AUDIT
from parley.engine.perturb.verbs.robustness import CLEAN, EVALUATE_ROBUSTNESS, STRATEGIES, UNSCORED, describe_for
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
"""What is drawn by strategy: titles and units by the beginning of the metrics' names."""


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
    """One example under one strategy; `good` tells whether the base did as a good model does."""

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
    """The strategies, in the order in which they were asked for; of an evaluation with at least one answered example."""
    return [str(entry["strategy"]) for entry in evaluation.done[0]["perturbations"]]


def touched(evaluation: ShownEvaluation, strategy: str) -> list[Row]:
    """The examples that a strategy could do something to."""
    return [row for row in evaluation.done if _of(row["perturbations"], strategy)["changed"]]


def note_of(evaluation: ShownEvaluation, strategy: str) -> str:
    """Return a note on what a good model does, and how often the base did otherwise."""
    rows, expectation = touched(evaluation, strategy), evaluation.strategies.get(strategy, "")
    otherwise = sum(_reply(row, BASE, strategy)["same"] is False for row in rows)
    wanted = f"a good model {_ANSWERS[expectation]}; " if expectation in _ANSWERS else ""
    counted = f"{len(rows):,} of {len(evaluation.done):,} contexts were changed"
    return f"{visible(strategy)}: {wanted}{counted}; the base answers {otherwise:,} of these otherwise."


def example_items(evaluation: ShownEvaluation, strategy: str) -> list[Item]:
    """Examples of a strategy that it could do something to: those where the base failed first, then in a fixed shuffle."""
    expectation = evaluation.strategies.get(strategy, "")
    found = [read_example(row, strategy, expectation) for row in touched(evaluation, strategy)]
    found.sort(key=lambda each: (each.good, stable_hash("report", each.key)))
    return [_item(f"{evaluation.name}, {visible(strategy)}", each) for each in found[:NUM_SHOWN]]


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
"""What replies are called of models that were not trained against a strategy."""


def trained_title(model: str) -> str:
    """Return the title of a model that was trained against something, or stands beside such ones."""
    return _SHOWN.get(model, f"trained against {visible(model)}")


def read_example(row: Row, strategy: str, expectation: str) -> Perturbed:
    """An answered example under one strategy, ready to be shown."""
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
    """Return a reply, or what stands in its place."""
    return f"(no reply: {reply['kind']})" if is_no_reply(reply) else _said(reply["reply"])


def _said(reply: str) -> str:
    return visible(f" {reply} ".replace(f" {EOU} ", _UTTERANCE_END).strip()) or _NOTHING_SAID


def _turns(line: str) -> Turns:
    """The turns that `parley.envs.corpora.pairs.turns.format_turns` wrote: its words are taken as they are."""
    turns: list[list[str]] = [[]]
    for word in line.split():
        if word == EOT:
            turns.append([])
        else:
            turns[-1].append(word)
    return tuple(map(turn_of, turns))


def _marked(before: Turns, after: Turns) -> tuple[Marked, Marked]:
    """Both contexts with the words that the other one has not marked."""
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
    found = {
        title: {name: metrics[metric] for name, metric in points.items() if metric in metrics}
        for title, points in wanted.items()
    }
    return found if found["perturbed"] else {}


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
        found = ShownPerturbations(
            evaluations=[_evaluation(run) for run in runs if run.job == EVALUATE_ROBUSTNESS.name and run.rows],
            audits=[shown_audit(run) for run in runs if run.job == PERTURB_AUDIT.name and run.rows],
        )
        return found if found.evaluations or found.audits else None

    def verdict(self, found: ShownPerturbations) -> Verdict | None:
        """On the first evaluation: the strategies that go worst, what training against them did; else on the first audit."""
        measured = [each for each in found.evaluations if each.done and each.metrics]
        if not measured:
            return next((audit_verdict(each) for each in found.audits if each.tables), None)
        first = measured[0]
        rates = {name: first.metrics.get(f"{TOUCHED_CHANGE_RATE}.{BASE}.{name}") for name in first.strategies}
        known = {name: rate for name, rate in rates.items() if rate and rate.n}
        sentences, worst = [], []
        for expectation, wanted in _WANTED.items():
            asked = [name for name in known if first.strategies[name] == expectation]
            if asked:
                sign = 1 if wanted == "stay" else -1
                worst.append(max(asked, key=lambda name: sign * known[name].value))
                changed = number(SHARE, known[worst[-1]].value)
                sentences.append(f"{_explained(worst[-1])} changes {changed} of the replies that should {wanted}")
        if not sentences:
            return None
        marks: dict[str, Estimate] = {}
        for name, rate in known.items():
            marks[f"{visible(name)} (should {_WANTED.get(first.strategies[name], 'either')})"] = rate
            if first.beside:
                marks[f"{visible(name)}, {visible(first.beside)}"] = first.metrics[f"{TOUCHED_CHANGE_RATE}.{BESIDE}.{name}"]
            for model in _trained(first, name):
                after = first.metrics[f"{TOUCHED_CHANGE_RATE}.{model}.{name}"]
                marks[f"{visible(name)}, {'trained against it' if model == name else trained_title(model)}"] = after
        told = [_training(first, name, model) for name in worst for model in _against(first, name)[:1]]
        training = f" Training against it brings that to {listed(told)}." if told else ""
        other = ""
        if first.beside and worst:
            other = f" Of the replies of {visible(first.beside)}: {listed([_other(first, name) for name in worst])}."
        said = "; ".join(sentences)
        rest = caveat(*(known[name] for name in worst), unit="contexts")
        return Verdict(
            sentence=f"{said[:1].upper()}{said[1:]}.{rest}{training}{other}{others_below(measured)}",
            metric=_CHANGED,
            marks=first_marks(marks),
        )

    def render(self, found: ShownPerturbations) -> Section:
        done = [each for each in found.evaluations if each.done]
        both: list[ShownEvaluation | ShownAudit] = [*found.evaluations, *found.audits]
        items = {f"{each.name}, {visible(name)}": example_items(each, name) for each in done for name in strategy_names(each)}
        for audit in found.audits:
            for item in audit.lines:
                items.setdefault(item.group, []).append(item)
        unscored = [f"{each.name}: activities and entities are not scored: {each.unscored}." for each in done if each.unscored]
        return Section(
            notes=[
                *unscored,
                *(note_of(each, name) for each in done for name in strategy_names(each)),
                *(f"{each.name}: {each.note}" for each in found.audits if each.note),
            ],
            measured=both,
            tables=tables_of([(each.name, each.tables) for each in both]),
            figures=[figure for each in done for figure in figures_of(each)],
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
    """A strategy with what it does, where it is one of the catalogue's."""
    return f"{strategy} ({strategies.summary(strategy)})" if strategy in set(strategies) else visible(strategy)


def _trained(evaluation: ShownEvaluation, strategy: str) -> list[str]:
    """The trained models that were asked about a strategy."""
    models = trained_models(evaluation.metrics)
    return [model for model in models if f"{TOUCHED_CHANGE_RATE}.{model}.{strategy}" in evaluation.metrics]


def _against(evaluation: ShownEvaluation, strategy: str) -> list[str]:
    """The models that were trained against a strategy, that of this strategy alone first; the control was not."""
    found = [model for model in _trained(evaluation, strategy) if model != CONTROL]
    return sorted(found, key=lambda model: model != strategy)


def _other(evaluation: ShownEvaluation, strategy: str) -> str:
    changed = evaluation.metrics[f"{TOUCHED_CHANGE_RATE}.{BESIDE}.{strategy}"]
    gain = evaluation.metrics.get(f"{CHANGE_RATE}{GAIN}.{BESIDE}.{strategy}")
    told = {1: "certainly more", 0: "no certain difference", -1: "certainly fewer"}[0 if gain is None else certain_sign(gain)]
    return f"{number(SHARE, changed.value)} ({told})"


def _training(evaluation: ShownEvaluation, strategy: str, model: str) -> str:
    """Return whether training helped with a strategy, by the paired difference over all contexts, beside the control."""
    after = evaluation.metrics[f"{TOUCHED_CHANGE_RATE}.{model}.{strategy}"]
    gain = evaluation.metrics.get(f"{CHANGE_RATE}{GAIN}.{model}.{strategy}")
    better = 1 if evaluation.strategies[strategy] == Expectation.SHOULD_CHANGE else -1
    helped = 0 if gain is None else better * certain_sign(gain)
    told = {1: "it helped", 0: "no certain gain", -1: "it is worse"}[helped]
    if (control := evaluation.metrics.get(f"{TOUCHED_CHANGE_RATE}.{CONTROL}.{strategy}")) is not None:
        told += f"; as much training on clean contexts alone: {number(SHARE, control.value)}"
    return f"{number(SHARE, after.value)} ({told})"
