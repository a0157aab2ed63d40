"""Evaluations under perturbations and audits of them, from run folders to what their report shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import ClassVar

from parley.engine.core.page.content import Chapter, Section, Verdict, tables_of
from parley.engine.core.page.runs import Run
from parley.engine.core.page.verdicts import SHARE, caveat, certain_sign, first_marks, listed, number, others_below
from parley.engine.core.stats.statistics import Estimate
from parley.engine.perturb.catalogue import strategies
from parley.engine.perturb.metrics.robustness import BASE, BESIDE, CHANGE_RATE, CONTROL, GAIN, TOUCHED_CHANGE_RATE
from parley.engine.perturb.metrics.table import trained_models
from parley.engine.perturb.page.audits import audit_verdict, shown_audit
from parley.engine.perturb.page.examples import example_items, figures_of, note_of, strategy_names, trained_title
from parley.engine.perturb.page.sections import ShownAudit, ShownEvaluation, ShownPerturbations
from parley.engine.perturb.strategy import Expectation
from parley.engine.perturb.verbs.audit import PERTURB_AUDIT
from parley.engine.perturb.verbs.robustness import EVALUATE_ROBUSTNESS, STRATEGIES, UNSCORED, describe_for
from parley.envs.core.visible import visible

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
    """How many replies a strategy changes of the model that stands beside, and whether these are more, over all contexts."""
    changed = evaluation.metrics[f"{TOUCHED_CHANGE_RATE}.{BESIDE}.{strategy}"]
    gain = evaluation.metrics.get(f"{CHANGE_RATE}{GAIN}.{BESIDE}.{strategy}")
    told = {1: "certainly more", 0: "no certain difference", -1: "certainly fewer"}[0 if gain is None else certain_sign(gain)]
    return f"{number(SHARE, changed.value)} ({told})"


def _training(evaluation: ShownEvaluation, strategy: str, model: str) -> str:
    """Whether training helped with a strategy, by the paired difference over all contexts, beside the control."""
    after = evaluation.metrics[f"{TOUCHED_CHANGE_RATE}.{model}.{strategy}"]
    gain = evaluation.metrics.get(f"{CHANGE_RATE}{GAIN}.{model}.{strategy}")
    better = 1 if evaluation.strategies[strategy] == Expectation.SHOULD_CHANGE else -1
    helped = 0 if gain is None else better * certain_sign(gain)
    told = {1: "it helped", 0: "no certain gain", -1: "it is worse"}[helped]
    if (control := evaluation.metrics.get(f"{TOUCHED_CHANGE_RATE}.{CONTROL}.{strategy}")) is not None:
        told += f"; as much training on clean contexts alone: {number(SHARE, control.value)}"
    return f"{number(SHARE, after.value)} ({told})"
