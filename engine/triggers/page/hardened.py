"""Models that are hardened against triggers by rounds, from run folders to what their report shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from parley.engine.core.page.content import Stages, Verdict
from parley.engine.core.page.hardening import Hardenings, certainly
from parley.engine.core.page.verdicts import SHARE, caveat, number
from parley.engine.core.stats.exploitability import EXPLOITABILITY
from parley.engine.core.stats.statistics import Estimate
from parley.engine.triggers.metrics.hardening import ADAPTIVE, CONTROL, INPUTS, LESS_THAN_CONTROL, START
from parley.engine.triggers.verbs.minmax import MINMAX_TRIGGERS


class HardenedModels(Hardenings):
    """The chapter of campaigns."""

    name, title = "hardened-models", "Hardened against triggers"
    job = MINMAX_TRIGGERS
    words = INPUTS
    sources: ClassVar = ()
    stages: ClassVar = {MINMAX_TRIGGERS.name: Stages(others="by folder")}
    terms: ClassVar = {r"\bcontrol\b": ("Control", "the same model, trained as long on clean contexts alone.")}

    def verdict_of(self, metrics: Mapping[str, Estimate]) -> Verdict:
        """Return the targets that known inputs reach in the start, the control and the model of the last round."""
        # Where inputs cannot be typed to other models, each is measured by the search of itself alone.
        is_typed = f"{START}.{EXPLOITABILITY}" in metrics
        figure = EXPLOITABILITY if is_typed else ADAPTIVE
        last = [name.partition(".")[0] for name in metrics if name.endswith(f".{figure}") and not name.startswith(CONTROL)][-1]
        marks = {model: metrics[f"{model}.{figure}"] for model in (START, CONTROL, last)}
        shares = {model: number(SHARE, estimate.value) for model, estimate in marks.items()}
        who = "The best of all known inputs makes" if is_typed else "A search of it makes"
        sure = certainly(metrics[f"{last}.{LESS_THAN_CONTROL}"], "more", "fewer") if is_typed else ""
        sentence = (
            f"{who} the hardened model say {shares[last]} of the targets, before the hardening {shares[START]}, "
            f"after as much training on clean contexts alone {shares[CONTROL]}{sure}.{caveat(*marks.values(), unit='targets')}"
        )
        metric = SHARE._replace(title="Targets reached by known inputs" if is_typed else "Targets found anew")
        return Verdict(sentence=sentence, metric=metric, marks=marks)
