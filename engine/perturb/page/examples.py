"""Evaluations under perturbations for people to read: a plot by strategy, and examples side by side.

Source of the layout: Niu & Bansal 2018 (arXiv 1809.02079), tables 2, 4 and 11. Contexts and replies are hostile text: it
is made visible before it is shown, and the page escapes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from parley.engine.core.page.content import Item, Piece
from parley.engine.core.page.figure import Figure
from parley.engine.core.page.markup import fill, line
from parley.engine.core.stats.answers import is_no_reply
from parley.engine.core.stats.rows import Row
from parley.engine.core.stats.statistics import Estimate
from parley.engine.perturb.metrics.robustness import ACTIVITY, BASE, BESIDE, CHANGE_RATE, CONTROL, ENTITY
from parley.engine.perturb.page.sections import ShownEvaluation
from parley.engine.perturb.strategies.changes import ChangeKind, spans
from parley.engine.perturb.strategy import Expectation
from parley.engine.perturb.verbs.worker import CLEAN
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
    """What a model says to the clean context and to the perturbed one."""

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
    """What a good model does, and how often the base did otherwise."""
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
    """What a model is called that was trained against something, or stands beside such ones."""
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
    """What each strategy does to F1 and to replies, before and after training."""
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
    """What is measured of the base on perturbed and on clean contexts, and of trained models on perturbed ones, by strategy."""
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
