"""The whole story on the embedded corpus, offline: `parley demo`.

A target is fitted, and an adversary is trained against it. Two rounds of adversarial training harden the target; the best of
all known adversaries says what can be gained before and after them. Target and adversary play the same scenarios with the
same seeds: the target against itself, and the adversary against the target. In both matches side 1 alone chooses, so that the
adversary's gain is not a gain of the rule. A white-box attack reads the target's networks. A sequence-to-sequence model is
fitted to the help desk, and inputs are searched that make it say what it says anyway (a search that works finds them) and
what nobody taught it; it is trained against two perturbations of what it is asked, one that should not change its replies and
one that should, and both models are asked what they say. A matching model and TF-IDF choose the right one of ten replies, as
they are and under fixed rules, and searches lift wrong replies to the top. The model goes on against a discriminator, which
rewards each of its words (REGS), and a judge says how often its replies pass for people's. Two scripted bots look for the
friend both have, as they are and where each mishears the names that the other says. Each stage is a run of its own below the
demonstration's folder, and resumes by itself.

The replying models know nothing of the negotiators, nor matches of hardening: their stages are done in a Ray actor beside this
process, which then finds them finished.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from parley.engine.core.runs.event_log import seconds_of
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.tables import TextTable
from parley.engine.core.verbs.background_stages import Beside
from parley.engine.core.verbs.composite import Composite, Stage, run_stages
from parley.engine.core.verbs.job import Comparison, Reporter, Result, Summary
from parley.engine.demo.figures import (
    ANTONYM,
    FOUND,
    GAIN,
    HARDENED,
    HITS,
    LEGEND,
    MATCHER,
    QUERIES,
    REPLIES,
    RULE,
    SWAP,
    TERMS,
    answers,
    choices,
    differences,
    failure,
)
from parley.engine.generation.rl.reply_settings import ReplyLearning
from parley.engine.generation.verbs import minmax as generation
from parley.engine.generation.verbs import minmax_config
from parley.engine.mutual_friends.metrics.chats import COMPLETION, MODEL, of
from parley.engine.mutual_friends.verbs import evaluate
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.engine.negotiation.verbs import minmax, negotiator, reinforce
from parley.engine.negotiation.verbs.attack import ATTACK_RL, AttackConfig
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.engine.negotiation.verbs.whitebox import ATTACK_REACTIVE, FixedTurnConfig
from parley.engine.perturb.verbs import adversarial, robustness
from parley.engine.ranking.metrics.searched import BASELINE
from parley.engine.ranking.verbs import attack, matcher, matcher_config, ranking
from parley.engine.ranking.verbs.config import RankingAttackConfig, RankingConfig
from parley.engine.responders import seq2seq
from parley.engine.triggers.verbs import search
from parley.engine.triggers.verbs.config import MAL
from parley.envs.core.ranges import Configuration, NonNegativeInt, NumItems, NumItemsOrAll
from parley.envs.core.storage.uris import display_path
from parley.policies.core.fitting import settings as fitting
from parley.policies.negotiator.settings import NegotiatorFitConfig
from parley.policies.ranking.matching.settings import MatcherFitConfig
from parley.policies.seq2seq import settings

logger = logging.getLogger(__name__)

STAGES = (
    *("target", "adversary", "minmax", "selfplay", "attack", "reactive"),
    *("model", "lm", "normal", "mal", "adversarial", "robustness"),
    *("matcher", "ranking", "searches", "generation", "collaboration"),
)
"""Names of the stages, in the order in which they are done; also of their folders."""
BESIDE = STAGES[STAGES.index("model") :]
"""Those that need none before them, and are done beside them."""
BESIDE_HARDENING = STAGES[STAGES.index("selfplay") : STAGES.index("model")]
"""Those that need what hardening needs, and are done beside it."""

_NOTE_SECONDS = (
    "Seconds on the wall, from where the stage's run begins, what it reads found, to its summary. Stages that are done side by "
    "side slow each other down; --no-side-by-side does one after the other."
)


@dataclass(frozen=True, kw_only=True)
class DemoConfig(Configuration):
    """How large the demonstration is."""

    dialogues: NumItems = 1000
    """Dialogues of each of the two matches; at most as many measure each target of the hardening."""
    searches: NumItems = 200
    """Dialogues of the white-box attack."""
    triggers: NumItems = 30
    """Targets of each of the two trigger searches."""
    contexts: NumItemsOrAll = 200
    """Contexts that are perturbed and answered, and as many in which replies are ranked; 0 for all."""
    attacks: NumItems = 100
    """Contexts in which a wrong reply is lifted to the top, if that can be done."""
    side_by_side: bool = True
    """Two cores: work in Ray actors on the models that reply while negotiators are trained, and on adversaries side by side."""
    workers: NonNegativeInt = 0
    """Ray actors that play the matches, search and answer; 0 does all of it in the process that the stage is in."""
    seed: NonNegativeInt = 1
    """Master seed of every stage."""
    fit: NegotiatorFitConfig = field(default_factory=lambda: negotiator.demo().fit)
    """The target's recipe."""
    reinforce: ReinforceConfig = field(default_factory=lambda: reinforce.demo().reinforce)
    """The adversaries' learning rule."""
    defence: ReinforceConfig = field(default_factory=lambda: minmax.demo().defence)
    """The target's, against the adversary."""
    model: fitting.FitConfig = field(default_factory=settings.demo)
    """The recipe of the sequence-to-sequence model, and of the language model that judges its inputs."""
    hardening: fitting.FitConfig = field(default_factory=lambda: adversarial.demo().fit)
    """The recipe by which the first of them is trained against perturbations."""
    generation: ReplyLearning = field(default_factory=lambda: minmax_config.helpdesk().learning)
    """How a generator and a discriminator learn from each other."""
    matcher: MatcherFitConfig = field(default_factory=lambda: matcher_config.demo().fit)
    """The recipe of the matching model."""


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
    resume_safe = ("workers", "side_by_side")

    def stages(self, config: DemoConfig, path: Path) -> dict[str, Stage]:
        """What is trained, played, attacked, hardened, searched and perturbed."""
        target, adversary = display_path(path / "target"), display_path(path / "adversary")
        fitted = replace(negotiator.demo(), fit=config.fit, seed=config.seed)
        trained = replace(reinforce.demo(), target=target, corpus=fitted.corpus, reinforce=config.reinforce, seed=config.seed)
        hardening = replace(
            minmax.demo(),
            target=target,
            adversary=adversary,
            budget=config.reinforce.dialogues,
            dialogues=min(config.dialogues, minmax.demo().dialogues),
            corpus=fitted.corpus,
            seed=config.seed,
            workers=config.workers,
            trainers=2 * config.side_by_side,
            attack=config.reinforce,
            defence=config.defence,
        )
        model = replace(seq2seq.demo(), fit=config.model, seed=config.seed)
        lm = replace(seq2seq.demo_lm(), fit=config.model, seed=config.seed)
        searched: dict[str, Any] = {
            "model": display_path(path / "model"),
            "lm": display_path(path / "lm"),
            "limit": config.triggers,
        }
        searching = replace(search.demo(), **searched, seed=config.seed, workers=config.workers)
        strategies = f"{SWAP},{ANTONYM}"
        against = replace(
            adversarial.demo(),
            strategies=strategies,
            fit=config.hardening,
            model=display_path(path / "model"),
            seed=config.seed,
        )
        asked = replace(
            robustness.demo(),
            strategies=strategies,
            model=display_path(path / "model"),
            trained=display_path(path / "adversarial"),
            limit=config.contexts,
            workers=config.workers,
            seed=config.seed,
        )
        ranked: dict[str, Any] = {"workers": config.workers, "seed": config.seed}
        ranked["model"] = f"{TERMS},{display_path(path / MATCHER)}"
        matched: dict[str, Any] = {"dialogues": config.dialogues, "workers": config.workers, "seed": config.seed}
        matched["judge"] = target
        return {
            "target": (negotiator.TRAIN_NEGOTIATOR, fitted),
            "adversary": (reinforce.TRAIN_ADVERSARY, trained),
            "minmax": (minmax.MINMAX, hardening),
            "selfplay": (SELFPLAY, MatchConfig(adversary=target, target=target, complementary=True, **matched)),
            "attack": (ATTACK_RL, AttackConfig(speaker=adversary, target=target, **matched)),
            "reactive": (
                ATTACK_REACTIVE,
                FixedTurnConfig(speaker=target, target=target, **{**matched, "dialogues": config.searches}),
            ),
            "model": (seq2seq.TRAIN_SEQ2SEQ, model),
            "lm": (seq2seq.TRAIN_LM, lm),
            "normal": (search.SEARCH, searching),
            "mal": (search.SEARCH, replace(searching, targets=MAL, hit=HITS["mal"])),
            "adversarial": (adversarial.TRAIN_ADVERSARIAL, against),
            "robustness": (robustness.EVALUATE_ROBUSTNESS, asked),
            "matcher": (matcher.TRAIN_MATCHER, replace(matcher_config.demo(), fit=config.matcher, seed=config.seed)),
            "ranking": (ranking.EVALUATE_RANKING, RankingConfig(rules=f"{RULE},sow,ngr", limit=config.contexts, **ranked)),
            "searches": (
                attack.ATTACK_RANKING,
                RankingAttackConfig(rules=RULE, method=BASELINE, limit=config.attacks, budget=QUERIES, **ranked),
            ),
            "generation": (
                generation.MINMAX_REPLIES,
                replace(
                    minmax_config.helpdesk(),
                    start=display_path(path / "model"),
                    learning=config.generation,
                    limit=config.dialogues,
                    keep="last",
                    seed=config.seed,
                ),
            ),
            "collaboration": (evaluate.EVALUATE_COLLABORATION, replace(evaluate.demo(), seed=config.seed)),
        }

    def finished(self, config: DemoConfig, path: Path, weights: Mapping[str, str]) -> bool:
        """The stages say themselves what is finished, one by one: that is part of the story."""
        return False

    def prepare(self, config: DemoConfig, path: Path, reporter: Reporter) -> DemoConfig:
        """Nothing is needed."""
        return config

    def work(self, run: RunFolder, prepared: DemoConfig, reporter: Reporter) -> DemoConfig:
        """Does what is left of the stages."""
        planned = self.stages(prepared, run.path)
        # For both of these, the control and two trainers; actors of a match come and go on either side.
        num_cpus = 5 + 2 * prepared.workers
        models, matches = (
            Beside([{name: planned[name]} for name in names], run.path, int(prepared.side_by_side), num_cpus=num_cpus)
            for names in (BESIDE, BESIDE_HARDENING)
        )
        with models, ExitStack() as until_done:

            def before(name: str) -> None:
                if name == "minmax":
                    until_done.enter_context(matches)
                elif name in BESIDE_HARDENING:
                    matches.wait(reporter)
                elif name in BESIDE:
                    models.wait(reporter)

            run_stages(planned, run.path, reporter, before)
        return prepared

    def measure(self, run: RunFolder, found: DemoConfig) -> Summary:
        """What the stages came to, side by side."""
        measured = {name: RunFolder.load(run.path / name).metrics() for name in STAGES}
        searched = measured["reactive"]
        metrics = {
            **measured["attack"],
            GAIN: differences(run.path)["advantage"],
            "reactive_advantage": searched["advantage"],
            "reactive_forced_advantage": searched["forced_advantage"],
            "reactive_attack_ppl": searched["attack_ppl"],
            **{name: measured["minmax"][name] for name in HARDENED},
            **{f"hits_{name}": measured[name][f"hit_rate.{kind}"] for name, kind in HITS.items()},
            **answers(measured["robustness"]),
            **choices(measured["ranking"], measured["searches"]),
            **{name: measured["generation"][kept] for name, kept in REPLIES.items()},
            **{name: measured["collaboration"][of(COMPLETION, MODEL, heard)] for name, heard in FOUND.items()},
        }
        return Summary(
            "A trained adversary against the agent it was trained on",
            f"Embedded corpus, {found.dialogues} dialogues a match on the same scenarios, seed {found.seed}; "
            "side 1 alone chooses in both matches.",
            metrics,
        )

    def present(self, result: Result, run: RunFolder) -> Result:
        """Beside the target against itself, and what each stage took; a failure where the adversary is not certainly better."""
        before = RunFolder.load(run.path / "selfplay").metrics()
        took = [(name, f"{seconds_of(RunFolder.load(run.path / name).events()):.1f}") for name in STAGES]
        comparison = Comparison("target against itself", "adversary against target", before, differences(run.path))
        more = {"stages": TextTable(("stage", "seconds"), tuple(took), _NOTE_SECONDS)}
        return replace(result, comparison=comparison, more=more, failure=failure(result.metrics))

    def next_commands(self, config: DemoConfig, path: Path) -> tuple[str, ...]:
        """Talks with the agents, and searches of one's own."""
        model, lm = display_path(path / "model"), display_path(path / "lm")
        return (
            *(shlex.join(["parley", "play", display_path(path / name)]) for name in ("target", "adversary", "minmax")),
            shlex.join(["parley", "search", "--model", model, "--lm", lm]),
            shlex.join(["parley", "evaluate", "robustness", "demo", "--model", model, "--strategies", "add-negation"]),
            shlex.join(["parley", "play", "ranking", "--model", f"{display_path(path / MATCHER)},{TERMS}"]),
            "parley minmax --help",
        )


DEMO = Demo()
