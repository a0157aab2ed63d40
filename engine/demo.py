"""`parley demo`: all systems on the embedded corpora, offline, as one job whose stages resume by themselves.

The stages:
  * Negotiation: fit a target, train an adversary against it, and harden the target by one round of adversarial training. The
    best of all known adversaries measures the gain before and after. In the matches, target against itself and adversary
    against target, scenarios and seeds are the same and side 1 alone chooses, so the adversary's gain is not a gain of the
    rule. A white-box attack reads the target's networks.
  * Trigger search: fit a model to the help desk, and search inputs that make it say its usual replies, and rude sentences.
  * Perturbation: train that model against one perturbation that should not change its replies and one that should.
  * Ranking: a matching model and TF-IDF choose the right one of ten replies; rules and searches lift wrong replies.
  * Generation: train the model by a discriminator's rewards (REGS); a judge measures how often it passes for a person.
  * MutualFriends: two scripted bots look for their common friend, with clean names and with misheard ones.

One Ray actor runs the stages of the replying models ahead, then the matches while the target is hardened; another one trains
the control. More actors would take seconds each to start, and two cores are busy with these. The sizes are below those of the
presets, so that all of it takes minutes of two cores. The last screen is one table; `--all` shows every figure.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parley.engine.core.runs.run_folder import RunFolder, seconds_of
from parley.engine.core.stats.known import BEFORE, EXPLOITABILITY, MEAN_FRESH
from parley.engine.core.stats.statistics import FOR_ADVERSARY, FOR_BOTH, NOTHING, Estimate, Metric, has_lost
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.checkpoints import threads
from parley.engine.core.verbs.compare import compare_runs
from parley.engine.core.verbs.composite import BackgroundStages, Composite, Stage, run_stages
from parley.engine.core.verbs.job import Comparison, Reporter, Result, Silent, Summary, flat
from parley.engine.generation.metrics.adversarial import ADVERSUC, RANDOM
from parley.engine.generation.verbs import config as minmax_config
from parley.engine.generation.verbs import minmax as generation
from parley.engine.mutual_friends.channels import CONFUSING
from parley.engine.mutual_friends.metrics.chats import COMPLETION, MODEL, NORMAL, of
from parley.engine.mutual_friends.verbs import evaluate
from parley.engine.negotiation.metrics.attack import ATTACK_METRICS
from parley.engine.negotiation.metrics.campaign import PLAIN_AGREEMENT, REPEATS
from parley.engine.negotiation.metrics.dialogues import METRICS
from parley.engine.negotiation.verbs import minmax, negotiator
from parley.engine.negotiation.verbs import training as reinforce
from parley.engine.negotiation.verbs.exploitability import NUM_IDLE, NUM_KNOWN
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.engine.negotiation.verbs.whitebox import ATTACK_REACTIVE, ATTACK_RL, AttackConfig, FixedTurnConfig
from parley.engine.perturb.metrics.table import BASE, TOUCHED_CHANGE_RATE
from parley.engine.perturb.verbs import adversarial, robustness
from parley.engine.perturb.verbs.models import label_of
from parley.engine.ranking.metrics.ranking import CLEAN
from parley.engine.ranking.metrics.searched import BASELINE, SUCCESS
from parley.engine.ranking.verbs import attack, matcher, ranking
from parley.engine.ranking.verbs import matcher as matcher_config
from parley.engine.ranking.verbs.config import RankingAttackConfig, RankingConfig
from parley.engine.responders import seq2seq
from parley.engine.triggers.verbs import search
from parley.engine.triggers.verbs.config import MAL
from parley.envs.core.config import Configuration, NonNegativeInt, NumItems, NumItemsOrAll, constants_of, to_dict
from parley.envs.core.storage.uris import display_path

GAIN = "advantage_gain"
FIT: dict[str, Any] = {"target": {"max_epochs": 7, "learning_rate": 6e-3}, "model": {"max_epochs": 10}, "lm": {"max_epochs": 6}}
"""Changes of the presets' recipes. A target of five epochs agrees in less than half of its dialogues: not worth an attack."""
SIDE_BY_SIDE = 125
"""Dialogues of a match that are played side by side: a match takes seconds, so little is lost if it is killed."""
BUDGET = 1_920
"""Dialogues of the training of every adversary: its gain hardly rises after 1,300. The target learns from twice as many."""
LEAST_AGREEMENT = 0.5
"""Share of its dialogues with itself in which the target must agree to be worth an attack."""
HARDENED = (
    *(name + ending for name in (PLAIN_AGREEMENT, REPEATS, EXPLOITABILITY, MEAN_FRESH) for ending in minmax.TARGETS),
    *(minmax.DROP, minmax.DROP_BEYOND_CONTROL, NUM_KNOWN, NUM_IDLE),
)
"""Metrics of the target's play and of adversaries' gains: before hardening, after plain play alone, and after hardening."""
HITS = {"normal": "o-greedy", "mal": "o-sample-min-k1"}
"""The type of hit that each trigger search looks for, and by which it is reported."""
SWAP, ANTONYM = "random-swap", "antonym"
"""The perturbation that should not change a reply, and the one that should."""
_BEFORE = "_before_training"
MATCHER, TERMS = "matcher", "tfidf"
"""The rankers: one by the name of its stage, and one that counts words."""
RULE = "iiw"
QUERIES, ATTACKS = 50, 100
"""Queries of an attack on a ranker; contexts in which a wrong reply is lifted to the top, if that can be done."""
VS_RANDOM = "machine_vs_random"
_CHANGES = f"{TOUCHED_CHANGE_RATE}.{BASE}.", f"{TOUCHED_CHANGE_RATE}.{label_of((SWAP, ANTONYM))}."
SOURCES = {
    "reactive_advantage": ("reactive", "advantage"),
    "reactive_forced_advantage": ("reactive", "forced_advantage"),
    "reactive_attack_ppl": ("reactive", "attack_ppl"),
    **{name: ("minmax", name) for name in HARDENED},
    **{f"hits_{stage}": (stage, f"hit_rate.{kind}") for stage, kind in HITS.items()},
    f"oversensitive{_BEFORE}": ("robustness", f"{_CHANGES[0]}{SWAP}"),
    "oversensitive": ("robustness", f"{_CHANGES[1]}{SWAP}"),
    f"overstable{_BEFORE}": ("robustness", f"{_CHANGES[0]}{ANTONYM}"),
    "overstable": ("robustness", f"{_CHANGES[1]}{ANTONYM}"),
    f"first_{MATCHER}": ("ranking", f"r@1.{MATCHER}.{CLEAN}"),
    f"first_{MATCHER}_{RULE}": ("ranking", f"r@1.{MATCHER}.{RULE}"),
    f"first_{TERMS}": ("ranking", f"r@1.{TERMS}.{CLEAN}"),
    f"first_{TERMS}_{RULE}": ("ranking", f"r@1.{TERMS}.{RULE}"),
    f"lifted_{MATCHER}": ("searches", f"{SUCCESS}{QUERIES}.{MATCHER}.{BASELINE}"),
    f"lifted_{TERMS}": ("searches", f"{SUCCESS}{QUERIES}.{TERMS}.{BASELINE}"),
    f"{ADVERSUC}{BEFORE}": ("generation", f"test_{ADVERSUC}{BEFORE}"),
    ADVERSUC: ("generation", f"test_{ADVERSUC}"),
    f"{VS_RANDOM}{BEFORE}": ("generation", f"test_{RANDOM}{BEFORE}"),
    VS_RANDOM: ("generation", f"test_{RANDOM}"),
    "friend_found": ("collaboration", of(COMPLETION, MODEL, NORMAL)),
    "friend_found_confused": ("collaboration", of(COMPLETION, MODEL, CONFUSING)),
}
"""Stage and name there of each metric; `measure` turns changed replies to an antonym into those that stayed."""
_HIGHER, _LOWER = "higher: better", "lower: better"
_SWAPPED = "share of contexts in which words changed places and the reply changed"
_STAYED = "share of contexts in which a word became its opposite and the reply stayed the same"
_FIRST = "the reply that was given is ranked first, ties by chance"
_EDITED = f"the same under rule {RULE}, which edits wrong replies"
_LIFTED = f"random edits of three words at most lift it with {QUERIES} queries at most"
_TAKEN = "replies that a judge of words takes for a person's"
_TOLD = "replies, the generator's and people's to other contexts, that a judge of words tells right"
_AGAINST_IT, _AFTER_REGS = "  the same, trained against it", "  the same, after ten rounds of REGS"
LEGEND = METRICS | {
    GAIN: Metric("advantage gained", FOR_ADVERSARY, "advantage less the target's against itself on the same scenario, mean"),
    "reactive_advantage": Metric("advantage, reactive attack", FOR_ADVERSARY, "the white-box attack's, played live"),
    "reactive_forced_advantage": Metric(
        "the same, end forced", FOR_ADVERSARY, "the target made to end the talk where that is its likeliest answer"
    ),
    "reactive_attack_ppl": ATTACK_METRICS["attack_ppl"]._replace(title="  its sentences' perplexity"),
    **{name: minmax.LEGEND[name] for name in HARDENED},
    "hits_normal": Metric("trigger found, usual replies", FOR_ADVERSARY, "o-greedy hits among a model's own replies", "share"),
    "hits_mal": Metric("trigger found, rude sentences", FOR_ADVERSARY, "o-sample-min-k1 hits among malicious targets", "share"),
    f"oversensitive{_BEFORE}": Metric("other reply to swapped words", _LOWER, _SWAPPED, "share"),
    "oversensitive": Metric(_AGAINST_IT, _LOWER, _SWAPPED, "share"),
    f"overstable{_BEFORE}": Metric("same reply to an antonym", _LOWER, _STAYED, "share"),
    "overstable": Metric(_AGAINST_IT, _LOWER, _STAYED, "share"),
    f"first_{MATCHER}": Metric("right reply of ten first, a matching model", _HIGHER, _FIRST, "share"),
    f"first_{MATCHER}_{RULE}": Metric("  the same, context words in wrong ones", _HIGHER, _EDITED, "share"),
    f"first_{TERMS}": Metric("right reply of ten first, TF-IDF", _HIGHER, _FIRST, "share"),
    f"first_{TERMS}_{RULE}": Metric("  the same, context words in wrong ones", _HIGHER, _EDITED, "share"),
    f"lifted_{MATCHER}": Metric("wrong reply lifted to the top, a matching model", FOR_ADVERSARY, _LIFTED, "share"),
    f"lifted_{TERMS}": Metric("wrong reply lifted to the top, TF-IDF", FOR_ADVERSARY, _LIFTED, "share"),
    f"{ADVERSUC}{BEFORE}": Metric("replies taken for a person's", _HIGHER, _TAKEN, "share"),
    ADVERSUC: Metric(_AFTER_REGS, _HIGHER, _TAKEN, "share"),
    f"{VS_RANDOM}{BEFORE}": Metric("told from random human replies", _HIGHER, _TOLD, "share"),
    VS_RANDOM: Metric(_AFTER_REGS, _HIGHER, _TOLD, "share"),
    "friend_found": Metric("common friend found", FOR_BOTH, "share of the chats of two scripted bots that find it", "share"),
    "friend_found_confused": Metric("  the same, names misheard", FOR_BOTH, "the same, other names heard for names", "share"),
}


_COMPARED = ("advantage", "agreement", "score_adversary", "score_target", "turns")
"""Metrics that are shown for the target against itself, too."""


def differences(path: Path) -> dict[str, Estimate]:
    """Return the attack minus the target against itself, over pairs of dialogues on one scenario."""
    compared = compare_runs([str(path / "selfplay"), str(path / "attack")], Silent(), _COMPARED)
    return {entry.metric: entry.contrast.test.difference for entry in compared.differences}


def failure(metrics: Mapping[str, Estimate]) -> str:
    """Return the promises of the demonstration that do not hold; empty if all do."""
    agreement, lost = metrics[PLAIN_AGREEMENT + minmax.BEFORE_TRAINING], metrics[minmax.DROP]
    promises = {
        f"the target agrees with itself in less than {LEAST_AGREEMENT:.0%} of its dialogues: {agreement}": (
            agreement.value >= LEAST_AGREEMENT
        ),
        f"the adversary has no certain advantage over its target: {metrics['advantage']}": metrics["advantage"].low > 0,
        f"hardening did not certainly lower what the best known adversary gains: {lost} points lost": lost.low > 0,
    }
    return "; ".join(promise for promise, holds in promises.items() if not holds)


STORY = {
    "negotiation": (
        ("points ahead", "", "advantage"),
        ("points lost, hardened", f"{EXPLOITABILITY}_before", EXPLOITABILITY),
        ("points lost, as much plain play", f"{EXPLOITABILITY}_before", f"{EXPLOITABILITY}_control"),
    ),
    "triggers": (("usual, then rude replies", "hits_normal", "hits_mal"),),
    "perturbations": (
        ("antonyms ignored", f"overstable{_BEFORE}", "overstable"),
        ("replies changed by swapped words", f"oversensitive{_BEFORE}", "oversensitive"),
    ),
    "ranking": (
        ("matching model is right", f"first_{MATCHER}", f"first_{MATCHER}_{RULE}"),
        ("TF-IDF is right", f"first_{TERMS}", f"first_{TERMS}_{RULE}"),
    ),
    "generation": (("taken for a person's", f"{ADVERSUC}{BEFORE}", ADVERSUC),),
    "MutualFriends": (("friend found", "friend_found", "friend_found_confused"),),
}
"""Lines of the last screen by system: what is measured, and the names of both metrics; the match with itself has none."""
_NOTE_STORY = "Before and after the attack or the training. 95 % intervals."


def story(metrics: Mapping[str, Estimate], comparison: Comparison | None) -> EstimateTable:
    """Return a line for each attack or defence: the figure without it, the figure with it; 80 columns hold it."""
    alone = {} if comparison is None else comparison.metrics
    rows = []
    for system, lines in STORY.items():
        for number, (what, first, second) in enumerate(lines):
            pair = (metrics[first] if first else alone[second], metrics[second])
            cells = (f"{part.value:.2f} [{part.low:.2f}, {part.high:.2f}]" for part in pair)
            rows.append((f"  {what}" if number else f"{system}: {what}", *cells, f"{pair[1].n:,}"))
    beyond = metrics[minmax.DROP_BEYOND_CONTROL]
    verdict = "more" if beyond.low > 0 else "fewer" if beyond.high < 0 else "not certainly more"
    much = f"{beyond.value:.2f} [{beyond.low:.2f}, {beyond.high:.2f}]"
    usual, control, now = (metrics.get(f"{REPEATS}{ending}", NOTHING).value for ending in minmax.TARGETS)
    text = (
        f" It says {now:.0%} of its later utterances again, word for word ({usual:.0%} before, {control:.0%} after plain play)."
    )
    repeating = text if has_lost(now - usual) else ""
    note = f"Hardening saved {verdict} points than as much plain play: {much}.{repeating} {_NOTE_STORY}"
    return EstimateTable(("what", "before", "after", "n"), tuple(rows), note)


STAGES = (
    *("target", "adversary", "minmax", "selfplay", "attack", "reactive"),
    *("model", "lm", "normal", "mal", "adversarial", "robustness"),
    *("matcher", "ranking", "searches", "generation", "collaboration"),
)
"""Names of the stages and of their folders, in the order of execution."""
BESIDE = STAGES[STAGES.index("model") :]
"""Stages that need none before them, and run beside them."""
BESIDE_HARDENING = STAGES[STAGES.index("selfplay") : STAGES.index("model")]
"""Stages that need the same as hardening, and run beside it."""
_NOTE_SECONDS = (
    "Of a stage's run, on the wall. Stages side by side slow each other down; --no-side-by-side does one after the other."
)


@dataclass(frozen=True, kw_only=True)
class DemoConfig(Configuration):
    """Sizes and recipes of the demonstration."""

    dialogues: NumItems = 500
    """Dialogues of each of the two matches; at most as many measure each target of the hardening."""
    searches: NumItems = 100
    """Dialogues of the white-box attack."""
    triggers: NumItems = 20
    """Targets of each of the two trigger searches."""
    contexts: NumItemsOrAll = 200
    """Contexts that are perturbed and answered, and as many in which replies are ranked, 100 at most attacked; 0 for all."""
    side_by_side: bool = True
    """Two cores: work in Ray actors on the models that reply, and on the control, while other negotiators are trained."""
    workers: NonNegativeInt = 0
    """Ray actors that play the matches, search and answer; 0 does all of it in the process that the stage is in."""
    seed: NonNegativeInt = 1
    """Master seed of every stage."""
    all: bool = False
    """Show every figure and the seconds of each stage, not only what broke."""


def _constants() -> dict[str, Any]:
    """Return the recipes of the stages, which were settings; what the demonstration promises holds for the presets alone."""
    recipes = {
        "fit": negotiator.demo().fit,
        "reinforce": reinforce.demo().reinforce,
        "defence": minmax.demo().defence,
        "model": seq2seq.demo().fit,
        "hardening": adversarial.demo().fit,
        "generation": minmax_config.helpdesk().learning,
        "matcher": matcher_config.demo().fit,
    }
    settings = {f"{name}.{key}": value for name, recipe in recipes.items() for key, value in flat(to_dict(recipe)).items()}
    return settings | {
        key: value for name, kind in recipes.items() for key, value in constants_of(type(kind), f"{name}.").items()
    }


DemoConfig.constants = {"attacks": ATTACKS, **_constants()}


def embedded() -> DemoConfig:
    """Two small networks on scripted negotiations, after Lewis et al. 2017 and Cheng et al. 2019."""
    return DemoConfig()


class Demo(Composite[DemoConfig, DemoConfig, DemoConfig]):
    """`parley demo`."""

    words = ("demo",)
    run_name = "demo"
    config = DemoConfig
    presets = {"embedded": embedded}
    legend = LEGEND
    resume_safe = ("workers", "side_by_side", "all")

    def stages(self, config: DemoConfig, path: Path) -> dict[str, Stage]:
        folders = {name: display_path(path / name) for name in STAGES}
        seeded: dict[str, Any] = {"seed": config.seed}
        worked, judged = seeded | {"workers": config.workers}, {"target": folders["target"], "judge": folders["target"]}
        matched = judged | worked | {"dialogues": config.dialogues, "shard_size": SIDE_BY_SIDE}
        trained, hardened, searched = reinforce.demo(), minmax.demo(), search.demo()
        rule = replace(trained.reinforce, dialogues=BUDGET)
        learned = seeded | {"target": folders["target"], "corpus": negotiator.demo().corpus}
        searched = replace(searched, search=replace(searched.search, restarts=1), limit=config.triggers, **worked)
        searched = replace(searched, model=folders["model"], lm=folders["lm"])
        perturbed = {"strategies": f"{SWAP},{ANTONYM}", "model": folders["model"]}
        ranked = worked | {"model": f"{TERMS},{folders[MATCHER]}"}

        def fitted(name: str, preset: Any) -> Any:
            return replace(preset, fit=replace(preset.fit, **FIT.get(name, {})), **seeded)

        hardening = replace(
            hardened,
            **learned | worked,
            # In one round the target learns from the given and the fresh one; a mixture would train one more against the start.
            adversaries="fresh",
            opponents=replace(hardened.opponents, sampling="prioritised"),
            adversary=folders["adversary"],
            rounds=1,
            num_adversaries=1,
            num_final_adversaries=1,
            budget=BUDGET,
            dialogues=min(config.dialogues, 300),
            choosing=min(config.dialogues, 100),
            defence=replace(hardened.defence, dialogues=2 * BUDGET),
            shard_size=SIDE_BY_SIDE,
            trainers=int(config.side_by_side),
            attack=rule,
        )
        reactive = matched | {"dialogues": config.searches, "shard_size": None}
        few = min(config.contexts or ATTACKS, ATTACKS)
        lifting = RankingAttackConfig(rules=RULE, method=BASELINE, limit=few, budget=QUERIES, **ranked)
        rewarded = replace(minmax_config.helpdesk(), start=folders["model"], limit=config.dialogues, keep="last", **seeded)
        measured = replace(robustness.demo(), trained=folders["adversarial"], limit=config.contexts, **perturbed | worked)
        return {
            "target": (negotiator.TRAIN_NEGOTIATOR, fitted("target", negotiator.demo())),
            "adversary": (reinforce.TRAIN_ADVERSARY, replace(trained, reinforce=rule, **learned)),
            "minmax": (minmax.MINMAX, hardening),
            "selfplay": (SELFPLAY, MatchConfig(adversary=folders["target"], complementary=True, **matched)),
            "attack": (ATTACK_RL, AttackConfig(speaker=folders["adversary"], **matched)),
            "reactive": (ATTACK_REACTIVE, FixedTurnConfig(speaker=folders["target"], **reactive)),
            "model": (seq2seq.TRAIN_SEQ2SEQ, fitted("model", seq2seq.demo())),
            "lm": (seq2seq.TRAIN_LM, fitted("lm", seq2seq.demo_lm())),
            "normal": (search.SEARCH, searched),
            "mal": (search.SEARCH, replace(searched, targets=MAL, hit=HITS["mal"])),
            "adversarial": (adversarial.TRAIN_ADVERSARIAL, replace(adversarial.demo(), **perturbed | seeded)),
            "robustness": (robustness.EVALUATE_ROBUSTNESS, measured),
            "matcher": (matcher.TRAIN_MATCHER, fitted("matcher", matcher_config.demo())),
            "ranking": (ranking.EVALUATE_RANKING, RankingConfig(rules=f"{RULE},sow,ngr", limit=config.contexts, **ranked)),
            "searches": (attack.ATTACK_RANKING, lifting),
            "generation": (generation.MINMAX_REPLIES, rewarded),
            "collaboration": (evaluate.EVALUATE_MUTUAL_FRIENDS, replace(evaluate.demo(), **seeded)),
        }

    def finished(self, config: DemoConfig, path: Path, weights: Mapping[str, str]) -> bool:
        """Return False: each stage reports by itself whether it is finished, which is part of the demonstration."""
        return False

    def prepare(self, config: DemoConfig, path: Path, reporter: Reporter) -> DemoConfig:
        return config

    def work(self, run: RunFolder, prepared: DemoConfig, reporter: Reporter) -> DemoConfig:
        planned = self.stages(prepared, run.path)
        # CPUs for models and matches, and for the control; actors of a match come and go on either side.
        num_cpus = 3 + 2 * prepared.workers
        most, needs = int(prepared.side_by_side), dict.fromkeys(BESIDE_HARDENING, ("adversary",))
        beside = {name: stage for name, stage in planned.items() if name in (*BESIDE, *BESIDE_HARDENING)}
        # More threads than cores would slow down all of them.
        with threads(1), BackgroundStages(beside, run.path, most, needs=needs, num_cpus=num_cpus) as background:
            run_stages(planned, run.path, reporter, background=(background,))
        return prepared

    def measure(self, run: RunFolder, config: DemoConfig) -> Summary:
        measured = {name: RunFolder.load(run.path / name).metrics() for name in STAGES}
        metrics = {
            **measured["attack"],
            GAIN: differences(run.path)["advantage"],
            **{name: measured[stage][entry] for name, (stage, entry) in SOURCES.items()},
        }
        for name in ("overstable", f"overstable{_BEFORE}"):
            changed = metrics[name]
            metrics[name] = Estimate(1 - changed.value, 1 - changed.high, 1 - changed.low, changed.n)
        return Summary(
            "A trained adversary against the agent it was trained on",
            f"Embedded corpus, {config.dialogues} dialogues a match on the same scenarios, seed {config.seed}; "
            "side 1 alone chooses in both matches.",
            metrics,
        )

    def result(self, config: DemoConfig, path: Path) -> Result:
        """Return the result; without `--all` what broke, in one table of a few lines, and two commands."""
        result = super().result(config, path)
        if config.all:
            return result
        tables = {"": story(result.metrics, result.comparison)}
        commands = (self.command(replace(config, all=True), path), *result.next_commands[:1])
        return replace(result, title="What broke", tables=tables, more={}, files=(), next_commands=commands)

    def present(self, result: Result, run: RunFolder) -> Result:
        before = RunFolder.load(run.path / "selfplay").metrics()
        comparison = Comparison("target against itself", "adversary against target", before, differences(run.path))
        return replace(result, comparison=comparison, failure=failure(result.metrics))

    def more(self, run: RunFolder) -> dict[str, EstimateTable]:
        took = [(name, f"{seconds_of(RunFolder.load(run.path / name).events()):.1f}") for name in STAGES]
        return {"stages": EstimateTable(("stage", "seconds"), tuple(took), _NOTE_SECONDS)}

    def next_commands(self, config: DemoConfig, path: Path) -> tuple[str, ...]:
        model, lm = display_path(path / "model"), display_path(path / "lm")
        return (
            *(shlex.join(["parley", "play", display_path(path / name)]) for name in ("target", "adversary", "minmax")),
            shlex.join(["parley", "search", "--model", model, "--lm", lm]),
            shlex.join(["parley", "evaluate", "robustness", "demo", "--model", model, "--strategies", "add-negation"]),
            shlex.join(["parley", "play", "ranking", "--model", f"{display_path(path / MATCHER)},{TERMS}"]),
            "parley minmax --help",
        )


DEMO = Demo()
