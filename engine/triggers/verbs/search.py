"""Trigger search: `parley search` (He & Glass 2018, arXiv 1809.04113).

Inputs are searched that make a model say the sentences of a list. A shard is a few targets with all of their restarts; what a
worker finds for them is one row each (`search_worker.py`), and depends on nothing but the configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from parley.engine.core.runs.layout import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.answers import NO_REPLY, is_no_reply
from parley.engine.core.stats.rows import finished
from parley.engine.core.stats.statistics import NOTHING, Estimate, count
from parley.engine.core.verbs.job import ATTACK, Job, Reporter, Result, Summary
from parley.engine.core.verbs.sharded import RESUME_SAFE, ended_sessions, work_off
from parley.engine.triggers.methods import settings
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.metrics.hits import (
    COST_METRICS,
    HIT_RATE,
    JUDGE_ANSWERS,
    JUDGE_NO_REPLY,
    JUDGE_UNPARSABLE,
    REFUSED,
    SAMPLED,
    VERIFIED,
    describe,
    search_metrics,
    unread_failure,
)
from parley.engine.triggers.metrics.shown import ShownInput, shown_inputs
from parley.engine.triggers.targets import TargetList
from parley.engine.triggers.verbs.config import (
    NORMAL,
    OWN,
    ObjectiveSettings,
    TriggerConfig,
    TriggerEngineSettings,
    is_hugging_face,
)
from parley.engine.triggers.verbs.models import Models, models_of, open_models
from parley.engine.triggers.verbs.rows import TRIGGERS
from parley.engine.triggers.verbs.targets import FILE, choose_targets, num_targets, open_targets, require_list, save_targets
from parley.engine.triggers.verbs.worker import Searching, composition, effort, read_types
from parley.envs.core.errors import ConfigError
from parley.policies.chat.answers import ANSWERS_FOLDER
from parley.policies.chat.model import MODERATED


@dataclass(frozen=True)
class Wanted:
    """What is searched for, found and checked.

    Args:
        config: what was asked for.
        models: what is searched.
        targets: what it is to say.
    """

    config: TriggerConfig
    models: Models
    targets: TargetList


def candidates_per_s(run: RunFolder) -> Estimate:
    """Candidates that all workers together tried in a second, over all sessions that came to their end."""
    sessions = ended_sessions(run, Searching.event, "targets", "candidates")
    seconds = sum(event["seconds"] for event in sessions)
    tried = sum(event["candidates"] for event in sessions)
    return count(tried / seconds, sum(event["targets"] for event in sessions)) if sessions else NOTHING


def require_searchable(config: TriggerConfig) -> None:
    """Finds out before anything is loaded whether the configuration alone says that a search cannot work.

    Raises:
        ConfigError: parts do not go together, one is missing, or no list, method or type of hit is called so.
    """
    from parley.engine.triggers.catalogue import make_method
    from parley.engine.triggers.hits import HitType, Thresholds

    wanted, method = HitType.parse(config.hit), make_method(config.method, effort(config))
    if method.continues and not config.is_hugging_face:
        what, fix = f"{config.method} lets the model write inputs, which Parley's own networks do not", "--model hf:FOLDER"
        raise ConfigError(what, where="--model", got=config.model, fix=fix)
    if config.is_hugging_face:
        method.require_length(config.hugging_face.length)
    if not method.searches_words and (config.lm or wanted.limits_input):
        what = "a continuous input has no words that a language model could judge"
        got = f"--hit {config.hit}, --lm {config.lm!r}"
        raise ConfigError(what, got=got, fix="leave out --lm and take --hit o-greedy, or another method")
    if config.lm and (config.lm == OWN or is_hugging_face(config.lm)) != config.is_hugging_face:
        fix = f"--lm {OWN}, or another Hugging Face model with the same tokenizer"
        what = "no language model of ours has the tokens of a Hugging Face model"
        if not config.is_hugging_face:
            what, fix = "no Hugging Face model has the words of a model of ours", "--lm RUN of parley train lm"
        raise ConfigError(what, where="--lm", got=config.lm, fix=fix)
    # What is measured on a corpus, or stands in a checkpoint, is not known yet, but will be.
    later = None if config.is_hugging_face and not config.corpus else 0.0
    t_out, t_in = (later if given is None else given for given in (config.objective.t_out, config.objective.t_in))
    # Says so when a threshold is missing, or the model shows too little.
    composition(config, Thresholds(t_out=t_out, t_in=t_in if config.lm else None))
    if config.objective.lm_weight is not None and not config.lm:
        fix = "name a language model with --lm, or leave it out"
        raise ConfigError("nobody judges inputs", where="objective.lm_weight", got=config.objective.lm_weight, fix=fix)
    if config.objective.mellowmax and not config.is_hugging_face:
        fix = "leave it out, or name a model hf:FOLDER or gguf:FILE"
        raise ConfigError("Parley's own networks are searched by means over words", where="objective.mellowmax", fix=fix)
    require_list(config)
    config.require_device()


def he2018() -> TriggerConfig:
    """gibbs-enum as published: lists of 100 words, up to 50 sweeps, 10 restarts, until a hit (He & Glass 2018)."""
    return TriggerConfig(search=settings.he2018())


def released() -> TriggerConfig:
    """The released code's: 5 restarts of 5 sweeps, a hundredth of satisfied terms, batches of 100 that stop as one."""
    engine = TriggerEngineSettings(batch_size=100, unknown=True)
    return TriggerConfig(search=settings.released(), objective=ObjectiveSettings(satisfied_weight=0.01), engine=engine)


def quick() -> TriggerConfig:
    """A first look: 100 targets, 2 restarts of up to 10 sweeps."""
    return TriggerConfig(limit=100, search=SearchSettings(restarts=2, max_sweeps=10))


def demo() -> TriggerConfig:
    """Seconds, on the model of parley train seq2seq demo: what it says anyway, 20 targets, 2 restarts of up to 5 sweeps."""
    effort = SearchSettings(candidates=20, restarts=2, max_sweeps=5)
    return TriggerConfig(targets=NORMAL, limit=20, hit="o-greedy", search=effort)


def gcg() -> TriggerConfig:
    """GCG in nanoGCG's sizes: 512 swaps a step from lists of 256, one start, some 250 steps (Zou et al. 2023)."""
    return TriggerConfig(method="gcg", limit=100, search=settings.gcg())


def mac() -> TriggerConfig:
    """GCG with momentum (MAC: Zhang & Wei 2024), else as gcg."""
    return TriggerConfig(method="gcg", limit=100, search=settings.mac())


def autoprompt() -> TriggerConfig:
    """AutoPrompt in its released sizes: lists of 10 at drawn positions, one start, some 100 steps (Shin et al. 2020)."""
    return TriggerConfig(method="autoprompt", limit=100, search=settings.autoprompt())


def arca() -> TriggerConfig:
    """ARCA in its released sizes: slopes at 32 random words, lists of 32, one start, 50 rounds (Jones et al. 2023)."""
    return TriggerConfig(method="arca", limit=100, search=settings.arca())


def pez() -> TriggerConfig:
    """PEZ in its released sizes: some 3000 steps on embeddings, each read at the nearest words (Wen et al. 2023)."""
    return TriggerConfig(method="pez", limit=100, search=settings.pez())


def beast() -> TriggerConfig:
    """BEAST in its released sizes: a causal Hugging Face model writes the inputs, 15 kept (Sadasivan et al. 2024)."""
    return TriggerConfig(method="beast", limit=100, search=settings.beast())


def compare() -> TriggerConfig:
    """One cost for whichever --method: 30 targets, one start, 4,200 candidates for each."""
    return TriggerConfig(limit=30, search=settings.compare())


class Search(Job[TriggerConfig, Wanted, Wanted]):
    """`parley search`."""

    words = ("search",)
    run_name = "search"
    config = TriggerConfig
    presets = {each.__name__: each for each in (he2018, released, quick, demo, gcg, mac, autoprompt, arca, pez, beast, compare)}
    schema = TRIGGERS
    files = (SUMMARY, FILE, "rows")
    resume_safe = RESUME_SAFE
    outcomes = MODERATED

    def prepare(self, config: TriggerConfig, path: Path, reporter: Reporter) -> Wanted:
        """Models and targets, those that the run was started with where it has begun."""
        require_searchable(config)
        models = open_models(config)
        return Wanted(config, models, open_targets(config, models, path))

    def work(self, run: RunFolder, prepared: Wanted, reporter: Reporter) -> Wanted:
        config, targets = prepared.config, prepared.targets
        save_targets(targets, run.path)
        reporter.say(str(composition(config, prepared.models.thresholds)))
        items = {target.key: target for target in targets.targets}
        searching = Searching(config, prepared.models, answers=str((run.path / ANSWERS_FOLDER).absolute()))
        work_off(run, searching, items, config, reporter, f"searching for {targets.name} targets")
        return prepared

    def measure(self, run: RunFolder, found: Wanted) -> Summary:
        config, targets = found.config, found.targets
        rows = (row for part in run.read_parts() for row in part.to_pylist())
        return Summary(
            f"{config.hit} search for {targets.name} targets on {config.model}",
            f"{len(targets.targets):,} targets, {config.method}, {config.search.restarts} restarts, seed {config.seed}.",
            search_metrics(rows, candidates_per_s(run), len(targets.skipped)),
            {
                ATTACK: composition(config, found.models.thresholds).parts,
                "thresholds": found.models.limits,
                "skipped": [each._asdict() for each in targets.skipped],
            },
        )

    def models(self, config: TriggerConfig) -> Mapping[str, str]:
        return models_of(config)

    def num_rows(self, config: TriggerConfig, path: Path) -> int:
        return num_targets(path)

    def num_items(self, config: TriggerConfig) -> int:
        require_searchable(config)
        return len(choose_targets(config, open_models(config)).targets)

    def metrics_of(self, config: TriggerConfig) -> list[str]:
        from parley.engine.triggers.catalogue import make_method
        from parley.engine.triggers.hits import HitType

        sampled = not config.is_hugging_face or config.objective.t_out is not None or bool(config.corpus)
        kinds = read_types(HitType.parse(config.hit), sampled=sampled, judged=bool(config.lm))
        typed = (
            [VERIFIED, REFUSED, NO_REPLY]
            if config.is_hugging_face and make_method(config.method, effort(config)).finds_words
            else []
        )
        typed += [SAMPLED] if typed and config.success.samples else []
        typed += [JUDGE_ANSWERS, JUDGE_UNPARSABLE, JUDGE_NO_REPLY] if typed and config.success.judge else []
        return [*(f"{HIT_RATE}{kind.name}" for kind in kinds), *typed, *COST_METRICS]

    def present(self, result: Result, run: RunFolder) -> Result:
        """With what the metrics mean, and the best inputs that were typed to a model."""
        legend = {name: describe(name) for name in result.metrics}
        shown = shown_inputs(_shown(run)) if VERIFIED in result.metrics else {}
        return replace(result, legend=legend, more=shown, failure=result.failure or unread_failure(result.metrics))


def _shown(run: RunFolder) -> Iterator[ShownInput]:
    """Yield what was typed for each target."""
    for part in run.read_parts():
        for row in finished(part.to_pylist()):
            if row["typed"]:
                kind = row["kind"] if is_no_reply(row) else ""
                yield ShownInput(
                    bool(row["verified"]), row["prompt"], row["typed"], row["target"], row["reply"], kind, -row["loss"]
                )


SEARCH = Search()
