"""Collaborating bots that mishear each other: `parley evaluate collaboration` (Niu & Bansal 2018, table 8).

Two bots look for the friend both have, on many scenarios and under several conditions: as they are, with their utterances
changed on their way, and beside them bots that tell what the figures are worth. A chat's draws come from its scenario alone, so
that conditions are compared on the same scenarios. A shard is some chats of one condition, played in lock-step (`worker.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from parley.engine.core.runs.layout import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.rows import finished
from parley.engine.core.stats.tables import TextTable
from parley.engine.core.verbs.checkpoints import absolute_name
from parley.engine.core.verbs.command import command_line
from parley.engine.core.verbs.job import Job, Reporter, Result, Summary
from parley.engine.core.verbs.sharded import RESUME_SAFE, work_off
from parley.engine.core.verbs.tables import TABLE_FILE
from parley.engine.mutual_friends.metrics.chats import (
    LIE_RATE,
    MODEL,
    RECORDED,
    TRAINED,
    by_condition,
    chat_metrics,
    condition_names,
    describe,
    of,
)
from parley.engine.mutual_friends.metrics.table import (
    allowed_table,
    lies_table,
    lying_table,
    recorded_table,
    slips_table,
    table_8,
    trained_table,
)
from parley.engine.mutual_friends.verbs.agents import MAKER, corpus_of, friends_agents
from parley.engine.mutual_friends.verbs.channels import LIAR, RANDOM_LIES, liars_of, located_strategy, tells_lies
from parley.engine.mutual_friends.verbs.config import BLIND, MIXED, SCRIPTED, SELECTORS, CollaborationConfig, Condition
from parley.engine.mutual_friends.verbs.judge import require_heard_judge
from parley.engine.mutual_friends.verbs.recorded import readings, recorded_metrics, recorded_models
from parley.engine.mutual_friends.verbs.rows import CHATS
from parley.engine.mutual_friends.verbs.worker import ChatWorker, PlayedChats, asked_chats
from parley.engine.perturb.settings import PerturbSettings
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.corpora.root import data_root
from parley.envs.mutual_friends.corpora import EMBEDDED_FRIENDS
from parley.envs.mutual_friends.scenario import check_schema
from parley.policies.chat.addresses import is_chat_address, short_address
from parley.policies.chat.answers import ANSWERS, ANSWERS_FOLDER

CONDITIONS, PAIRS, ATTRIBUTES = "conditions", "pairs", "attributes"
"""Entries of the summary: pair and strategy of each line of the table, what pairs are called, and attributes by category."""


def niu2018() -> CollaborationConfig:
    """A thousand scenarios under the paper's three strategies, beside its figures (Niu & Bansal 2018, table 8)."""
    return CollaborationConfig()


def quick() -> CollaborationConfig:
    """A first look: 100 scenarios."""
    return CollaborationConfig(scenarios=100)


def demo() -> CollaborationConfig:
    """Seconds, without a model: 30 chats of two scripted bots under each strategy."""
    return CollaborationConfig(scenarios=30, controls=False, perturb=PerturbSettings(lexicon="built-in"))


class EvaluateCollaboration(Job[CollaborationConfig, PlayedChats, PlayedChats]):
    """`parley evaluate collaboration`."""

    words = ("evaluate", "collaboration")
    run_name = "collaboration"
    config = CollaborationConfig
    presets = {"niu2018": niu2018, "quick": quick, "demo": demo}
    schema = CHATS
    files = (TABLE_FILE, SUMMARY, "rows")
    resume_safe = (*RESUME_SAFE, "side_by_side")

    def prepare(self, config: CollaborationConfig, path: Path, reporter: Reporter) -> PlayedChats:
        """Bots, corpus and strategies, one chat played under each condition."""
        config.require_device()
        found = located(config)
        for pair, _, chats, _, corpus in readings(found):
            reporter.say(f"{pair} reads {len(chats):,} recorded chats of {corpus.name}")
        with TemporaryDirectory() as beside:
            # Of a run that was begun what it knows; there is none yet to keep answers in otherwise.
            begun = path / ANSWERS_FOLDER
            answers = begun if begun.is_dir() else Path(beside)
            worker = ChatWorker(found, answers)
            check_schema(worker.corpus.schema, found.tables)
            worker.check()
            tried = Path(beside, ANSWERS)
            return PlayedChats(found, tried=tried.read_bytes() if tried.is_file() else b"")

    def work(self, run: RunFolder, prepared: PlayedChats, reporter: Reporter) -> PlayedChats:
        answers = run.path / ANSWERS_FOLDER
        if prepared.tried:
            answers.mkdir(exist_ok=True)
            (answers / ANSWERS).write_bytes(prepared.tried)
        prepared = replace(prepared, answers=str(answers), tried=b"")
        work_off(run, prepared, asked_chats(prepared.config), prepared.config, reporter, "playing chats")
        reporter.stage("computing metrics, their intervals and significances", 0, "")
        return prepared

    def measure(self, run: RunFolder, found: PlayedChats) -> Summary:
        config, rows = found.config, run.read_rows().to_pylist()
        done = finished(rows)
        attributes = dict(pair for row in done for pair in zip(row["types"], row["attributes"], strict=True))
        pairs = {pair: name for pair, name in pair_names(run.config, config.trained_runs).items() if pair in config.pairs}
        return Summary(
            f"{pairs[MODEL]} looking for friends",
            f"{config.scenarios:,} scenarios of {config.corpus}, {len(config.conditions)} conditions, a bot remembers what it "
            f"{config.remembers}{'' if config.remembers == 'said' else ' of itself'}, seed {config.seed}"
            f"{f'; perplexity as {config.judge} finds it' if config.judge else ''}.",
            chat_metrics(rows) | recorded_metrics(config),
            {CONDITIONS: list(map(list, by_condition(rows))), PAIRS: pairs, ATTRIBUTES: dict(sorted(attributes.items()))},
        )

    def models(self, config: CollaborationConfig) -> dict[str, str]:
        named = {"model": config.model, "partner": config.partner}
        named |= {f"{TRAINED}{i}": run for i, run in enumerate(config.trained_runs, 1)}
        named |= liars_of(config.channel_names.values()) | ({"judge": config.judge} if config.judge else {})
        return {option: spec for option, spec in named.items() if spec not in friends_agents}

    def num_rows(self, config: CollaborationConfig, path: Path) -> int:
        return config.scenarios * len(config.conditions)

    def metrics_of(self, config: CollaborationConfig) -> list[str] | None:
        """Only a run can tell the names of strategies of a user's own."""
        if any(".py:" in name for name in config.strategy_names):
            return None
        recorded = [of(kind, pair, config.recorded) for pair in recorded_models(config) for kind in RECORDED]
        return [*condition_names(config.conditions, judged=bool(config.judge)), *recorded]

    def next_commands(self, config: CollaborationConfig, path: Path) -> tuple[str, ...]:
        """The page; then random lies as often as a chat model told its own, on the same scenarios."""
        commands = super().next_commands(config, path)
        if not config.chat_liars:
            return commands
        metrics = RunFolder.load(path).metrics()
        for liar in config.chat_liars:
            told = metrics.get(of(LIE_RATE, MODEL, liar))
            if told is not None and told.value > 0:
                lies = replace(config.lies, rate=float(f"{told.value:.3g}"))
                asked = replace(config, strategies=RANDOM_LIES, lies=lies, controls=False, trained="")
                beside = path.with_name(f"{path.name}-as-{liar.removeprefix(LIAR)}")
                commands = (*commands, command_line(self.words, self.presets, asked, beside))
        return commands

    def tables(self, run: RunFolder) -> dict[str, TextTable]:
        """Table 8 of the paper, completion by selections allowed, and the lies by attribute."""
        metrics, summary = run.metrics(), run.summary() or {}
        if not metrics:
            return {}
        conditions = [Condition(*each) for each in summary[CONDITIONS]]
        pairs: Mapping[str, str] = summary[PAIRS]
        recorded = run.config.get("recorded", "")
        lies = {
            f"Who believes {each.strategy}": lies_table(metrics, *each, summary[ATTRIBUTES])
            for each in conditions
            if each.pair == MODEL and tells_lies(each.hearing)
        }
        trained = [each for each in conditions if each.pair.startswith(TRAINED)]
        against = {"Trained against strategies": trained_table(metrics, trained, pairs)} if trained else {}
        return {
            "Completion and turns": table_8(metrics, conditions, pairs, run.config["published"] != "none"),
            **against,
            "Completion by selections allowed": allowed_table(metrics, conditions, pairs),
            **{heading: table for heading, table in lies.items() if table is not None},
            **({"Lies told": lying} if (lying := lying_table(metrics, conditions, pairs)) else {}),
            **({f"Recorded chats of {recorded}": recorded_table(metrics, recorded, pairs)} if recorded else {}),
            **({"Moves that could not be read": slips} if (slips := slips_table(metrics, conditions, pairs)) else {}),
        }

    def present(self, result: Result, run: RunFolder) -> Result:
        """With what the metrics mean, and the tables in their place."""
        legend = {name: describe(name) for name in result.metrics}
        return replace(result, legend=legend, tables=self.tables(run))


def located(config: CollaborationConfig) -> CollaborationConfig:
    """The settings with corpus and data root found, and models by names that hold on other machines and in other folders.

    Raises:
        CheckpointError: there is no checkpoint of a name.
    """
    model, partner = (
        absolute_name(spec, option, MAKER) if spec and spec not in friends_agents else spec
        for spec, option in ((config.model, "--model"), (config.partner, "--partner"))
    )
    trained = ",".join(absolute_name(run, "--trained", MAKER) for run in config.trained_runs)
    if config.judge:
        require_heard_judge(config.judge)
        config = replace(config, judge=absolute_name(config.judge))
    heard = ",".join(map(located_strategy, config.channel_names.values())) or config.strategies
    corpus = config.corpus or corpus_of((model, partner)) or EMBEDDED_FRIENDS
    found = replace(config, model=model, partner=partner, trained=trained, strategies=heard)
    return replace(found, corpus=corpus, data_root=data_root(config.data_root))


def pair_names(config: Mapping[str, object], trained: Sequence[str]) -> dict[str, str]:
    """What pairs are called, runs and files by the ends of their paths.

    Args:
        config: as it was asked for.
        trained: the runs of `CollaborationConfig.trained_runs`, by which their pairs are numbered.
    """
    model, partner = (_short(str(config[name])) for name in ("model", "partner"))
    beside = f" with {partner}" if config["partner"] not in ("", config["model"]) else ""
    runs = [f"{_short(run.removesuffix(f'/{CHECKPOINT}'))}{beside}" for run in trained]
    return {
        MODEL: f"{model}{beside}",
        **{f"{TRAINED}{i}": run for i, run in enumerate(runs, 1)},
        SCRIPTED: "scripted bots",
        MIXED: f"{model} with a scripted bot",
        SELECTORS: "selectors",
        BLIND: "blind selectors",
    }


def _short(spec: str) -> str:
    return short_address(spec) if is_chat_address(spec) else spec.rstrip("/").rpartition("/")[2]


EVALUATE_COLLABORATION = EvaluateCollaboration()
