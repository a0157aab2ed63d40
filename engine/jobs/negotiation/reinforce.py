"""Training by reinforcement against frozen opponents: `parley train rl`, `train adversary` and `train target`.

`rl` is the goal-based agent (Lewis et al. 2017): own points, both sides choose. `adversary` is the RL attack (Cheng et
al. 2019): own minus the target's points, the target alone chooses. `target` is the other half of adversarial training (same
paper, section 6): a target learns from adversaries that were trained against it. All are one algorithm,
`engine/rllib/algorithm.py`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from engine.jobs.job import Job, Reporter, Result
from engine.jobs.negotiation.agents import require_negotiator, shared_vocabulary
from engine.jobs.negotiation.training import RESUME_SAFE, TrainingConfig, corpus_words, train
from engine.metrics.training import LEARNING
from engine.negotiation.opponents import Opponent, OpponentConfig, TrainingRoster
from engine.negotiation.settings import ReinforceConfig
from engine.store.layout import SUMMARY
from envs.core.errors import ConfigError
from envs.data.root import root_words
from envs.storage.copies import CHECKPOINT
from envs.storage.places import display_path, is_uri

PARTNER = "partner"


@dataclass(frozen=True, kw_only=True)
class _Learner:
    target: str
    """The frozen partner: run or checkpoint folder."""
    learner: str = ""
    """Where the learner starts: the target's own checkpoint when empty."""
    reference: str = ""
    """What the KL guard compares with: where the learner starts when empty."""


@dataclass(frozen=True, kw_only=True)
class _Hardened:
    target: str = "runs/rl"
    """Who learns, and where it starts: run or checkpoint folder."""
    adversaries: str = "runs/adversary"
    """The frozen adversaries, oldest first: run or checkpoint folders, separated by commas."""
    partner: str = ""
    """Ordinary partner beside them, such as the supervised agent; the target's own checkpoint when empty."""
    reference: str = ""
    """What the KL guard compares with, such as the agent before any hardening; the target's start when empty."""
    opponents: OpponentConfig = field(default_factory=OpponentConfig)
    """How they are drawn."""


# Fields of the last base come first, in the help too: who takes part before how it is done.
@dataclass(frozen=True, kw_only=True)
class TrainReinforceConfig(TrainingConfig, _Learner):
    """Who learns against whom."""


@dataclass(frozen=True, kw_only=True)
class TrainTargetConfig(TrainingConfig, _Hardened):
    """Who is hardened against whom."""


def run(role: str, config: TrainReinforceConfig, path: Path, reporter: Reporter) -> Result:
    """Trains side 0 against a frozen partner.

    Args:
        role: what the checkpoint is stored as, "rl" or "adversary".
        config: who learns against whom.
        path: run folder.
        reporter: who looks on.
    """
    job = TRAIN_RL if role == "rl" else TRAIN_ADVERSARY
    if earlier := job.finished(config, path, reporter):
        return earlier
    target = _folder(config.target, "--target")
    learner = _folder(config.learner or config.target, "--learner")
    reference = _folder(config.reference or learner, "--reference")
    shared_vocabulary({"--learner": learner, "--target": target, "--reference": reference})
    rule = config.reinforce
    met = Opponent(name="target", checkpoint=target, reward=rule.reward, complementary=rule.complementary)
    roster = TrainingRoster(role="adversary", learner=learner, reference=reference, opponents=(met,))
    origin = {"role": role, "target": config.target, "learner": config.learner or config.target}
    return train(job, config, roster, f"{role} against {config.target}", origin, path, reporter)


def run_target(config: TrainTargetConfig, path: Path, reporter: Reporter) -> Result:
    """Hardens a target against frozen adversaries.

    Raises:
        ConfigError: no adversary is named.
    """
    if earlier := TRAIN_TARGET.finished(config, path, reporter):
        return earlier
    names = [name.strip() for name in config.adversaries.split(",") if name.strip()]
    if not names:
        raise ConfigError("there is no adversary to learn from", where="--adversaries", fix="parley train adversary makes one")
    target = _folder(config.target, "--target")
    folders = {f"adversary-{number}": _folder(name, "--adversaries") for number, name in enumerate(names, start=1)}
    reference = _folder(config.reference or config.target, "--reference")
    partner = _folder(config.partner or config.target, "--partner")
    shared_vocabulary({"--target": target, "--reference": reference, "--partner": partner} | folders)
    rule = config.reinforce
    opponents = [
        Opponent(name=name, checkpoint=folder, reward=rule.reward, complementary=rule.complementary)
        for name, folder in folders.items()
    ]
    if config.opponents.partner_share > 0:
        plain = Opponent(name=PARTNER, checkpoint=partner, reward="points", complementary=False, ordinary=True)
        opponents = [plain, *opponents]
    roster = TrainingRoster(
        role="target", learner=target, reference=reference, opponents=tuple(opponents), drawing=config.opponents
    )
    origin = {"role": "target", "target": config.target, "adversaries": names}
    title = f"{config.target} against {names[-1]}" + (f" and {len(names) - 1} earlier" if len(names) > 1 else "")
    return train(TRAIN_TARGET, config, roster, title, origin, path, reporter)


def _folder(spec: str, option: str) -> str:
    folder = require_negotiator(spec, option)
    # Workers may have another working directory, and another cache.
    return display_path(folder) if is_uri(spec) else str(folder.resolve())


def _next_commands(role: str, config: TrainReinforceConfig, path: Path) -> tuple[str, ...]:
    root = root_words(config.data_root)
    if role == "adversary":
        return (shlex.join(["parley", "attack", "rl", "--target", config.target, "--speaker", display_path(path), *root]),)
    return (shlex.join(["parley", "selfplay", "--adversary", display_path(path), "--target", config.target, *root]),)


def _next_of_target(config: TrainTargetConfig, path: Path) -> tuple[str, ...]:
    return (
        shlex.join(
            [
                *("parley", "evaluate", "exploitability", "--target", display_path(path)),
                *corpus_words(config.corpus, config.data_root),
            ]
        ),
    )


def lewis2017() -> TrainReinforceConfig:
    """Goal-based agent: own points, both sides choose, self-play scenarios, supervised guard (Lewis et al. 2017)."""
    # With the whole centered reward and no KL, training settles on short, generous offers that everybody accepts.
    rule = ReinforceConfig(
        reward="points",
        complementary=False,
        scenarios="selfplay",
        scaling="sign",
        dialogues=72_000,
        learning_rate=3e-4,
        kl_weight=0.5,
        supervised_weight=0.5,
    )
    return TrainReinforceConfig(target="runs/negotiator", corpus="dealornodeal", reinforce=rule)


def cheng2019() -> TrainReinforceConfig:
    """RL attack: S_adv - S_ori, the target alone chooses (Cheng et al. 2019, section 4.1)."""
    rule = ReinforceConfig(
        reward="advantage", complementary=True, dialogues=64_000, learning_rate=3e-4, kl_weight=0.5, supervised_weight=0.5
    )
    return TrainReinforceConfig(target="runs/negotiator", corpus="dealornodeal", reinforce=rule)


def demo() -> TrainReinforceConfig:
    """The RL attack on the demonstration's small agent, seconds of one core."""
    rule = ReinforceConfig(
        reward="advantage", complementary=True, dialogues=3_840, learning_rate=1e-3, supervised_weight=0.5, max_turns=12
    )
    return TrainReinforceConfig(target="runs/demo/target", corpus="embedded", reinforce=rule)


def hardened() -> TrainTargetConfig:
    """Adversarial training: -(S_adv - S_ori) against the latest adversary (Cheng et al. 2019, eq. 9)."""
    rule = ReinforceConfig(
        reward="advantage",
        complementary=True,
        dialogues=12_800,
        learning_rate=3e-4,
        kl_weight=0.1,
        supervised_weight=0.5,
        # Without it every dialogue against an adversary ran into the limit of turns, and plain play fell apart.
        stalling_penalty=5.0,
    )
    return TrainTargetConfig(corpus="dealornodeal", reinforce=rule)


def _job(role: str, presets: dict[str, Callable[[], TrainReinforceConfig]]) -> Job:
    return Job(
        f"train-{role}",
        TrainReinforceConfig,
        presets,
        partial(run, role),
        LEARNING,
        (CHECKPOINT, SUMMARY),
        partial(_next_commands, role),
        RESUME_SAFE,
    )


TRAIN_RL = _job("rl", {"lewis2017": lewis2017})
TRAIN_ADVERSARY = _job("adversary", {"cheng2019": cheng2019, "demo": demo})
TRAIN_TARGET = Job(
    "train-target",
    TrainTargetConfig,
    {"cheng2019": hardened},
    run_target,
    LEARNING,
    (CHECKPOINT, SUMMARY),
    _next_of_target,
    RESUME_SAFE,
)
