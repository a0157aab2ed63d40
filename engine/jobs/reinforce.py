"""Training by reinforcement against a frozen partner: `parley train rl` and `parley train adversary`.

`rl` is the goal-based agent (Lewis et al. 2017): own points, both sides choose. `adversary` is the RL attack (Cheng et
al. 2019): own minus the target's points, the target alone chooses. Both are one algorithm, `engine/rllib/algorithm.py`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from engine.attacks.settings import ReinforceConfig
from engine.jobs.agents import CHECKPOINT, require_checkpoint, shared_vocabulary
from engine.jobs.command import command_line
from engine.jobs.device import threads
from engine.jobs.job import SUMMARY, Job, Result, Watcher
from engine.metrics.statistics import Metric, mean
from engine.runtime.session import connect
from engine.store.run_folder import RunFolder
from envs.core.config import check
from envs.core.errors import ConfigError

STATE = "training.safetensors"

LEGEND = {
    "training_reward": Metric("reward, last updates", "higher: learner", "mean over the last tenth of the updates"),
    "training_advantage": Metric("advantage, last updates", "higher: learner", "learner's less partner's points, same updates"),
    "training_agreement": Metric("agreement, last updates", "higher: both", "share of dialogues, same updates"),
    "dialogues_per_s": Metric("dialogues per second", "higher: better", "played and learned from, wall time"),
    "share_outside_networks": Metric("share outside networks", "lower: better", "of wall time, neither speaking nor learning"),
}


@dataclass(frozen=True, kw_only=True)
class TrainReinforceConfig:
    """Who learns against whom."""

    target: str
    """The frozen partner: run or checkpoint folder."""
    learner: str = ""
    """Where the learner starts, and what the KL guard compares with: the target's own checkpoint when empty."""
    corpus: str = "embedded"
    """Corpus of the supervised guard and of self-play scenarios."""
    data_root: Path | None = None
    """Where corpora lie; PARLEY_DATA or the user cache folder when not given."""
    seed: int = 1
    """Master seed."""
    env_runners: int = 0
    """Ray actors that play; 0 plays in this process."""
    threads: int = 1
    """CPU threads that learning, and dialogues played in this process, compute with."""
    save_every: int = 25
    """Updates between saved training states."""
    address: str = ""
    """Address of a Ray cluster; a local one when empty."""
    reinforce: ReinforceConfig = field(default_factory=ReinforceConfig)
    """The learning rule."""

    def __post_init__(self) -> None:
        check(self, "seed", self.seed >= 0, "at least 0")
        check(self, "env_runners", self.env_runners >= 0, "at least 0")
        check(self, "threads", self.threads >= 1, "at least 1")
        check(self, "save_every", self.save_every >= 1, "at least 1")


UNCHECKED = ("env_runners", "threads", "address", "data_root", "save_every")


def run(role: str, config: TrainReinforceConfig, path: Path, watcher: Watcher) -> Result:
    """Trains, saving and resuming exactly, and stores the learner as `checkpoint`.

    Args:
        role: what the checkpoint is stored as, "rl" or "adversary".
        config: who learns against whom.
        path: run folder.
        watcher: who looks on.
    """
    job = TRAIN_RL if role == "rl" else TRAIN_ADVERSARY
    if earlier := job.finished(config, path, watcher):
        return earlier
    target = require_checkpoint(config.target, "--target")
    learner = require_checkpoint(config.learner or config.target, "--learner")
    vocabulary = shared_vocabulary({"--learner": str(learner), "--target": str(target)})
    _check_corpus(config, vocabulary)
    from policies.negotiator.speaker import KIND, load_model

    # Read here, so that a damaged one is found before a run is made and Ray is started.
    base, _ = load_model(learner), load_model(target)
    with (
        threads(config.threads),
        RunFolder.open(path, config, job=job.name, unchecked=job.unchecked) as folder,
        connect(config.address or None, num_cpus=None if config.address else max(config.env_runners + 1, os.cpu_count() or 1)),
    ):
        from engine.rllib import state

        algorithm = _build(config, learner, target, vocabulary)
        try:
            history = _train(algorithm, config, folder, watcher)
            weights = state.learned_weights(algorithm)
        finally:
            algorithm.stop()
        from policies.checkpoint import Checkpoint

        provenance = {
            "role": role,
            "target": config.target,
            "learner": config.learner or config.target,
            "corpus": config.corpus,
            "seed": config.seed,
            "updates": config.reinforce.updates,
        }
        sizes = vars(base.sizes)
        Checkpoint(KIND, dict(sizes), provenance, vocabulary, weights).save(path / CHECKPOINT)
        tail = history[-max(1, len(history) // 10) :]
        metrics = {
            **{f"training_{name}": mean([step[name] for step in tail]) for name in ("reward", "advantage", "agreement")},
            "dialogues_per_s": mean([step["dialogues"] / step["seconds"] for step in history]),
            "share_outside_networks": mean([_outside(step) for step in history]),
        }
        about = {
            "title": f"{role} against {config.target}",
            "description": f"{len(history)} updates, seed {config.seed}.",
            "command": command_line(job, config, path),
        }
        folder.write_summary(metrics, about)
    return job.result(config, path)


def _check_corpus(config: TrainReinforceConfig, vocabulary: Any) -> None:
    from envs.data.compiled import load_corpus

    corpus = load_corpus(config.corpus, config.data_root)
    if config.reinforce.supervised_weight > 0 and corpus.vocabulary.digest != vocabulary.digest:
        raise ConfigError(
            "the corpus of the supervised guard has another vocabulary than the agents",
            where=f"corpus {config.corpus}",
            got=f"{len(corpus.vocabulary)} words, digest {corpus.vocabulary.digest}; "
            f"the agents {len(vocabulary)}, digest {vocabulary.digest}",
            fix="name the corpus that the agents were trained on with --corpus, or set reinforce.supervised_weight=0",
        )


def _build(config: TrainReinforceConfig, learner: Path, target: Path, vocabulary: Any) -> Any:
    from engine.rllib.algorithm import DialogueReinforceConfig

    settings = DialogueReinforceConfig().dialogues(
        reinforce=config.reinforce,
        seed=config.seed,
        # Workers may have another working directory.
        learner=str(learner.resolve()),
        partner=str(target.resolve()),
        vocabulary=vocabulary,
        corpus=config.corpus,
        data_root=config.data_root,
    )
    settings.env_runners(num_env_runners=config.env_runners)
    return settings.build_algo()


def _train(algorithm: Any, config: TrainReinforceConfig, folder: RunFolder, watcher: Watcher) -> list[dict[str, Any]]:
    from engine.rllib import state

    saved = folder.path / STATE
    if saved.exists():
        watcher.say(f"resumed after update {state.restore(algorithm, saved)}")
    # Updates after the last saved state are made again, and count as they were made last.
    history = {event["number"]: event for event in folder.events() if event["kind"] == "iteration"}
    updates = config.reinforce.updates
    watcher.stage("learning", updates, "updates")
    while algorithm.training_iteration < updates:
        algorithm.train()
        number = algorithm.training_iteration
        history[number] = {"number": number, **algorithm.last}
        folder.event("iteration", **history[number])
        if number % config.save_every == 0 or number == updates:
            state.save(algorithm, saved)
        recent = [history[k] for k in range(max(1, number - 19), number + 1)]
        reward, agreement = (sum(step[name] for step in recent) / len(recent) for name in ("reward", "agreement"))
        watcher.advance(number, f"reward {reward:+.2f}, agreement {agreement:.0%} (last {len(recent)} updates)")
    return [history[number] for number in range(1, updates + 1)]


def _outside(step: dict[str, Any]) -> float:
    return 1 - (step["seconds_networks_speaking"] + step["seconds_learning"]) / step["seconds"]


def _next_commands(role: str, config: TrainReinforceConfig, path: Path) -> tuple[str, ...]:
    if role == "adversary":
        return (shlex.join(["parley", "attack", "rl", "--target", config.target, "--speaker", str(path)]),)
    return (shlex.join(["parley", "selfplay", "--adversary", str(path), "--target", config.target]),)


def lewis2017() -> TrainReinforceConfig:
    """Goal-based agent: own points, both sides choose, self-play scenarios, supervised guard (Lewis et al. 2017)."""
    # With the whole centered reward and no KL, training settles on short, generous offers that everybody accepts.
    rule = ReinforceConfig(
        reward="points",
        complementary=False,
        scenarios="selfplay",
        scaling="sign",
        updates=1125,
        learning_rate=3e-4,
        kl_weight=0.5,
        supervised_weight=0.5,
    )
    return TrainReinforceConfig(target="runs/negotiator", corpus="dealornodeal", reinforce=rule)


def cheng2019() -> TrainReinforceConfig:
    """RL attack: S_adv - S_ori, the target alone chooses (Cheng et al. 2019, section 4.1)."""
    rule = ReinforceConfig(
        reward="advantage", complementary=True, updates=1000, learning_rate=3e-4, kl_weight=0.5, supervised_weight=0.5
    )
    return TrainReinforceConfig(target="runs/negotiator", corpus="dealornodeal", reinforce=rule)


def demo() -> TrainReinforceConfig:
    """The RL attack on the demonstration's small agent, about a minute of one core."""
    rule = ReinforceConfig(reward="advantage", complementary=True, updates=120, learning_rate=1e-3, supervised_weight=0.5)
    return TrainReinforceConfig(target="runs/demo/target", reinforce=rule)


def _job(role: str, presets: dict[str, Callable[[], TrainReinforceConfig]]) -> Job:
    return Job(
        f"train-{role}",
        TrainReinforceConfig,
        presets,
        partial(run, role),
        LEGEND,
        (CHECKPOINT, SUMMARY),
        partial(_next_commands, role),
        UNCHECKED,
    )


TRAIN_RL = _job("rl", {"lewis2017": lewis2017})
TRAIN_ADVERSARY = _job("adversary", {"cheng2019": cheng2019, "demo": demo})
