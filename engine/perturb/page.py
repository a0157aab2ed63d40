"""The chapters of perturbations: evaluations with a plot by strategy and examples side by side, and audits.

Source of the layout of evaluations: Niu & Bansal 2018 (arXiv 1809.02079), tables 2, 4 and 11. Audits show drawn lines with
changed words marked and labels.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from pathlib import PurePath
from typing import ClassVar

from markupsafe import Markup

from parley.engine.core.page.content import Chapter, Figure, Item, Run, Verdict
from parley.engine.core.page.markup import ARROW, badges, joined, line, marked, paragraphs, sides
from parley.engine.core.page.page import SHARE, certain_sign, first_marks, listed, number
from parley.engine.core.stats.statistics import Estimate, Metric, Row, is_no_reply
from parley.engine.perturb.catalogue import strategies
from parley.engine.perturb.metrics.audit import CONTEXTS, RATIO, WRONG, describe_audit
from parley.engine.perturb.metrics.audit import CONTROL as RANDOM_WORDS
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
from parley.engine.perturb.strategies.texts import ChangeKind, pieces, spans
from parley.engine.perturb.strategy import Expectation
from parley.engine.perturb.verbs.audit import AUDITED, PERTURB_AUDIT, labels_of, lines_of
from parley.engine.perturb.verbs.robustness import CLEAN, EVALUATE_ROBUSTNESS, STRATEGIES, describe_for
from parley.engine.perturb.verbs.sheet import DrawnLine, LabelledSheet
from parley.envs.core.seeds import stable_hash
from parley.envs.corpora.pairs.turns import EOT, Turns, turn_of
from parley.envs.corpora.pairs.vocabulary import EOU

NUM_SHOWN = 20
"""Examples of a strategy that the viewer holds."""
_UTTERANCE_END = " \N{PILCROW SIGN} "
_SIDES = ("as recorded", "perturbed")
_MEASURES = {
    ACTIVITY: ("Activity F1", "F1 times 100"),
    ENTITY: ("Entity F1", "F1 times 100"),
    CHANGE_RATE: ("Changed replies", "% of replies unlike the same model's clean one"),
}
"""Titles and units of the drawings by strategy, by the kind of metric."""
_ANSWERS: dict[str, str] = {
    Expectation.SHOULD_NOT_CHANGE.value: "answers as before",
    Expectation.SHOULD_CHANGE.value: "answers otherwise",
}
_WANTED: dict[str, str] = {Expectation.SHOULD_NOT_CHANGE.value: "stay", Expectation.SHOULD_CHANGE.value: "change"}
_MODELS = {BASE: "reply", BESIDE: "reply of the other model", CONTROL: "control, trained as long on clean contexts"}
"""Titles of models that were not trained against a strategy."""
_CHANGED = SHARE._replace(
    title="Replies that change", definition="share of the contexts that a strategy changed whose reply is another than before"
)
_RATIO = SHARE._replace(title="Perplexity ratio", form="number", definition="after an edit by before, geometric mean")
_WRONG = SHARE._replace(title="Wrong by hand", direction="lower: better", definition="share of the labelled lines")


class Perturbations(Chapter):
    """The chapter of evaluations under perturbations."""

    name, title, unit = "robustness", "Perturbations", "examples"
    jobs = (EVALUATE_ROBUSTNESS.name,)
    terms: ClassVar = {
        r"\bF1\b": ("F1", "how many of the true reply's activities (or entities) are in the model's, and how few others."),
        r"touched": ("Touched", "contexts in which a strategy found something to change."),
        r"N-train|A-train": ("N-train, A-train", "the model as it is; the model trained against the strategy."),
        r"should-not-change|should not|replies that should stay": ("Should stay", "the context means the same as before."),
        r"random-words": ("random-words", "the control: as many words replaced at random; what the figures are on garbage."),
        r"BLEU": ("BLEU", "how many short runs of words two replies share, 0 to 1."),
    }

    def verdict_of(self, run: Run) -> Verdict | None:
        """Return the worst strategy against replies that should stay; that against replies that should change is a detail."""
        expected, beside = run.summary.get(STRATEGIES, {}), PurePath(str(run.config.get("beside") or "")).name
        rates = {
            name: rate for name in expected if (rate := run.metrics.get(f"{TOUCHED_CHANGE_RATE}.{BASE}.{name}")) and rate.n
        }
        worst = []
        for expectation, wanted in _WANTED.items():
            sign = 1 if wanted == "stay" else -1
            if names := [name for name in rates if expected[name] == expectation]:
                worst.append(max(names, key=lambda name: sign * rates[name].value))
        if not worst or not run.done:
            return None
        sentences = [
            f"{name[:1].upper()}{name[1:]} changes {number(SHARE, rates[name].value)} of the replies that should "
            f"{_WANTED[expected[name]]}."
            for name in worst
        ]
        details = [f"{name}: {strategies.summary(name)}." for name in worst if name in set(strategies)]
        if trainings := [_training(run, name, model) for name in worst for model in _against(run, name)[:1]]:
            details.append(f"Training against it brings that to {listed(trainings)}.")
        if beside:
            details.append(f"Of the replies of {beside}: {listed([_other(run, name) for name in worst])}.")
        marks: dict[str, Estimate] = {}
        for name, rate in rates.items():
            marks[f"{name} (should {_WANTED.get(expected[name], 'either')})"] = rate
            if beside:
                marks[f"{name}, {beside}"] = run.metrics[f"{TOUCHED_CHANGE_RATE}.{BESIDE}.{name}"]
            for model in _trained(run, name):
                after = run.metrics[f"{TOUCHED_CHANGE_RATE}.{model}.{name}"]
                marks[f"{name}, {'trained against it' if model == name else trained_title(model)}"] = after
        return Verdict(
            sentence=sentences[0],
            metric=_CHANGED,
            number=rates[worst[0]],
            unit="contexts",
            marks=first_marks(marks),
            details=[*sentences[1:], *details],
        )

    def legend(self, run: Run) -> Mapping[str, Metric]:
        return {name: describe_for(name, run.summary.get(STRATEGIES, {})) for name in run.metrics}

    def notes(self, run: Run) -> Iterable[str]:
        """Return what was not scored, and by strategy the reaction of a good model and how often the base reacted otherwise."""
        yield from super().notes(run)
        for strategy in strategy_names(run):
            expectation = run.summary.get(STRATEGIES, {}).get(strategy, "")
            outcomes = Counter(_reply(row, BASE, strategy)["same"] is False for row in touched(run, strategy))
            wanted = f"a good model {_ANSWERS[expectation]}; " if expectation in _ANSWERS else ""
            counted = f"{outcomes.total():,} of {len(run.done):,} contexts were changed"
            yield f"{strategy}: {wanted}{counted}; the base answers {outcomes[True]:,} of these otherwise."

    def figures(self, run: Run) -> Iterable[Figure]:
        from parley.engine.core.page import plots

        names = strategy_names(run)
        models = dict.fromkeys(
            str(entry["model"]) for row in run.done[:1] for entry in row["replies"] if entry["model"] != BASE
        )
        for measure, (title, unit) in _MEASURES.items():
            metrics = {"perturbed": {name: f"{measure}.{BASE}.{name}" for name in names}}
            metrics["clean"] = dict.fromkeys(names, f"{measure}.{BASE}.clean")
            for model in models:
                label = "trained against it" if model in names else trained_title(model)
                metrics[label] = metrics.get(label, {}) | {name: f"{measure}.{model}.{name}" for name in names}
            series = {
                label: {name: run.metrics[metric] for name, metric in points.items() if metric in run.metrics}
                for label, points in metrics.items()
            }
            if series["perturbed"]:
                num = max(estimate.n for points in series.values() for estimate in points.values())
                caption = f"by strategy, up to {num:,} examples; bars are 95 % intervals"
                yield plots.dots(title, caption, unit, names, series, 100.0)

    def items(self, run: Run) -> Iterable[tuple[str, Iterable[Item]]]:
        for strategy in strategy_names(run):
            expectation = run.summary.get(STRATEGIES, {}).get(strategy, "")

            def rank(row: Row, strategy: str = strategy, expectation: str = expectation) -> tuple[bool, int]:
                return _is_good(row, strategy, expectation), stable_hash("report", str(row["item_key"]))

            rows = nsmallest(NUM_SHOWN, touched(run, strategy), rank)
            yield strategy, [example(row, strategy, expectation, not index) for index, row in enumerate(rows)]


def strategy_names(run: Run) -> list[str]:
    """Return the strategies, in the order of the evaluation; none without an answered example."""
    return [str(entry["strategy"]) for row in run.done[:1] for entry in row["perturbations"]]


def touched(run: Run, strategy: str) -> Iterator[Row]:
    """Yield the examples that a strategy changed."""
    return (row for row in run.done if _of(row["perturbations"], strategy)["changed"])


def trained_title(model: str) -> str:
    """Return the title of a trained model or of a model beside it."""
    return _MODELS.get(model, f"trained against {model}")


def example(row: Row, strategy: str, expectation: str, is_first: bool = False) -> Item:
    """Return an answered example under one strategy."""
    perturbation, same = _of(row["perturbations"], strategy), _reply(row, BASE, strategy)["same"]
    outcome = {None: "no reply to compare", True: "the same reply", False: "another reply"}[same]
    good, num = _is_good(row, strategy, expectation), int(perturbation["num_changed"])
    contexts = _contexts(_turns(row["context"]), _turns(perturbation["text"]))
    replies = [
        (trained_title(entry["model"]), *(_replied(_reply(row, entry["model"], name)) for name in (CLEAN, strategy)))
        for entry in row["replies"]
        if entry["strategy"] == strategy
    ]
    _, before, after = replies[0]
    rows = [("context", *contexts), *replies, ("truth", _said(row["truth"]))]
    return Item(
        kind="example",
        key=str(row["item_key"]),
        summary=line("{}: <q>{}</q> {} <q>{}</q>", outcome, before, ARROW, after),
        body=joined(
            [badges([(outcome, good), (f"{num} {'word' if num == 1 else 'words'} changed", None)]), sides(_SIDES, rows)]
        ),
        tags=("as a good model" if good else "unlike a good model", outcome),
        values={"words changed": num},
        link="an example" * is_first,
    )


def _is_good(row: Row, strategy: str, expectation: str) -> bool:
    same = _reply(row, BASE, strategy)["same"]
    return same is not None and same == (expectation != Expectation.SHOULD_CHANGE)


def _of(entries: Sequence[Row], strategy: str) -> Row:
    return next(entry for entry in entries if entry["strategy"] == strategy)


def _reply(row: Row, model: str, strategy: str) -> Row:
    return _of([entry for entry in row["replies"] if entry["model"] == model], strategy)


def _replied(reply: Row) -> str:
    return f"(no reply: {reply['kind']})" if is_no_reply(reply) else _said(reply["reply"])


def _said(reply: str) -> str:
    return f" {reply} ".replace(f" {EOU} ", _UTTERANCE_END).strip() or "(says nothing)"


def _turns(text: str) -> Turns:
    """Parse the turns that `parley.envs.corpora.pairs.turns.format_turns` wrote, with its words as they are."""
    turns: list[list[str]] = [[]]
    for word in text.split():
        if word == EOT:
            turns.append([])
        else:
            turns[-1].append(word)
    return tuple(map(turn_of, turns))


def _contexts(before: Turns, after: Turns) -> list[Markup]:
    """Return both contexts, turn by turn, with marks on the words that the other lacks."""
    shown = []
    for side in ("before", "after"):
        turns: list[list[tuple[str, str]]] = [[]]
        for span in spans(before, after):
            words: tuple[str, ...] = getattr(span, side)
            if words == (EOT,):
                turns.append([])
            elif words:
                text = _UTTERANCE_END.strip() if words == (EOU,) else " ".join(words)
                turns[-1].append((text, "" if span.kind is ChangeKind.SAME else side))
        shown.append(paragraphs(map(marked, turns)))
    return shown


def _trained(run: Run, strategy: str) -> list[str]:
    models = trained_models(run.metrics)
    return [model for model in models if f"{TOUCHED_CHANGE_RATE}.{model}.{strategy}" in run.metrics]


def _against(run: Run, strategy: str) -> list[str]:
    """Return the models trained against a strategy, the one of this strategy alone first, without the control."""
    models = [model for model in _trained(run, strategy) if model != CONTROL]
    return sorted(models, key=lambda model: model != strategy)


def _other(run: Run, strategy: str) -> str:
    changed = run.metrics[f"{TOUCHED_CHANGE_RATE}.{BESIDE}.{strategy}"]
    gain = run.metrics.get(f"{CHANGE_RATE}{GAIN}.{BESIDE}.{strategy}")
    certainty = {1: "certainly more", 0: "no certain difference", -1: "certainly fewer"}[
        0 if gain is None else certain_sign(gain)
    ]
    return f"{number(SHARE, changed.value)} ({certainty})"


def _training(run: Run, strategy: str, model: str) -> str:
    """Return whether training helped with a strategy, by the paired difference over all contexts, beside the control."""
    after = run.metrics[f"{TOUCHED_CHANGE_RATE}.{model}.{strategy}"]
    gain = run.metrics.get(f"{CHANGE_RATE}{GAIN}.{model}.{strategy}")
    better = 1 if run.summary[STRATEGIES][strategy] == Expectation.SHOULD_CHANGE else -1
    helped = 0 if gain is None else better * certain_sign(gain)
    certainty = {1: "it helped", 0: "no certain gain", -1: "it is worse"}[helped]
    if (control := run.metrics.get(f"{TOUCHED_CHANGE_RATE}.{CONTROL}.{strategy}")) is not None:
        certainty += f"; as much training on clean contexts alone: {number(SHARE, control.value)}"
    return f"{number(SHARE, after.value)} ({certainty})"


class Audits(Chapter):
    """The chapter of audits of perturbations."""

    name, title, unit = "audits", "Audits of perturbations", "contexts"
    jobs = (PERTURB_AUDIT.name,)
    terms: ClassVar = {
        r"perplexity ratio": (
            "Perplexity ratio",
            "how much less usual an edit makes an utterance: perplexity of its words and end after by before, 1 is no change.",
        ),
        **{pattern: Perturbations.terms[pattern] for pattern in (r"touched", r"random-words")},
    }

    def verdict_of(self, run: Run) -> Verdict | None:
        if wrong := _measured(run, WRONG):
            worst = max(wrong, key=lambda name: wrong[name].value)
            sentence = f"Of the labelled lines of {worst}, {number(SHARE, wrong[worst].value)} are wrong."
            return Verdict(
                sentence=sentence, metric=_WRONG, number=wrong[worst], unit="contexts with a labelled line", marks=wrong
            )
        ratios = _measured(run, RATIO)
        edited = [name for name in ratios if name != RANDOM_WORDS]
        if not edited:
            contexts = _measured(run, CONTEXTS)
            sentence = "No strategy found anything to change."
            most = max(contexts.values(), key=lambda share: share.value, default=None)
            if most is None:
                return None
            return Verdict(sentence=sentence, metric=SHARE, number=most, unit="contexts", marks={}, label="Contexts changed")
        worst = max(edited, key=lambda name: ratios[name].value)
        random = f", random words {number(_RATIO, ratios[RANDOM_WORDS].value)}" if RANDOM_WORDS in ratios else ""
        return Verdict(
            sentence=f"Edits by {worst} make utterances {number(_RATIO, ratios[worst].value)} times as perplexing{random}.",
            metric=_RATIO,
            number=ratios[worst],
            unit="utterances",
            marks=ratios,
            warnings=["No line is labelled yet."],
        )

    def shown(self, run: Run) -> Mapping[str, Estimate]:
        legend = self.legend(run)
        return {name: estimate for name, estimate in run.metrics.items() if legend[name].main}

    def legend(self, run: Run) -> Mapping[str, Metric]:
        return {name: describe_audit(name) for name in run.metrics}

    def items(self, run: Run) -> Iterable[tuple[str, Iterator[Item]]]:
        lines = lines_of(run.folder) if AUDITED in run.summary else {}
        labels = labels_of(run.folder, lines)
        for strategy in dict.fromkeys(drawn.strategy for drawn in lines.values()):
            yield strategy, (_line(drawn, labels) for drawn in lines.values() if drawn.strategy == strategy)


def _measured(run: Run, kind: str) -> dict[str, Estimate]:
    shares = {name.removeprefix(f"{kind}."): share for name, share in run.metrics.items() if name.startswith(f"{kind}.")}
    return {name: share for name, share in shares.items() if math.isfinite(share.value)}


def _line(drawn: DrawnLine, labels: Mapping[str, LabelledSheet]) -> Item:
    verdicts = [
        (name, sheet.labels[drawn.key], sheet.notes.get(drawn.key, ""))
        for name, sheet in labels.items()
        if drawn.key in sheet.labels
    ]
    tag = "not labelled" if not verdicts else "wrong" if any(wrong for _, wrong, _ in verdicts) else "ok"
    disagree = ("labellers disagree",) if len({wrong for _, wrong, _ in verdicts}) > 1 else ()
    ratio = math.exp(min(drawn.log_ratio, 700.0))
    notes = [(f"{name}: {'wrong' if wrong else 'ok'}{note and f', {note}'}", not wrong) for name, wrong, note in verdicts]
    words = [marked(pieces(drawn.spans, side)) for side in ("before", "after")]
    return Item(
        kind="line",
        key=drawn.key,
        summary=marked(pieces(drawn.spans, "before", "after")),
        body=joined(
            [badges([*notes, (f"perplexity ratio {number(_RATIO, ratio)}", None)]), sides(_SIDES, [("utterance", *words)])]
        ),
        tags=(tag, *disagree),
        values={"perplexity ratio": ratio},
    )
