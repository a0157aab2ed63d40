"""Training by reinforcement against frozen opponents: `parley train rl`, `train adversary` and `train target`.

`rl` is the goal-based agent (Lewis et al. 2017): own points, both sides choose. `adversary` is the RL attack (Cheng et
al. 2019): own minus the target's points, the target alone chooses. `target` is the other half of adversarial training (same
paper, section 6): a target learns from adversaries that were trained against it. All are one algorithm,
`engine/rllib/algorithm.py`.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path

from engine.jobs.job import Reporter
from engine.jobs.negotiation.agents import require_negotiator, shared_vocabulary
from engine.jobs.negotiation.language import corpus_words
from engine.jobs.negotiation.training import LearnJob, PreparedTraining, TrainingConfig, lessons
from engine.negotiation.opponents import Opponent, OpponentConfig, TrainingRoster
from engine.negotiation.settings import ReinforceConfig
from envs.core.errors import ConfigError
from envs.data.root import root_words
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


def _folder(spec: str, option: str) -> str:
    folder = require_negotiator(spec, option)
    # Workers may have another working directory, and another cache.
    return display_path(folder) if is_uri(spec) else str(folder.resolve())


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


class TrainRL(LearnJob[TrainReinforceConfig]):
    """`parley train rl`."""

    words = ("train", "rl")
    run_name = "rl"
    config = TrainReinforceConfig
    presets = {"lewis2017": lewis2017}

    def prepare(self, config: TrainReinforceConfig, path: Path, reporter: Reporter) -> PreparedTraining:
        """Side 0, which learns, and its frozen partner."""
        target = _folder(config.target, "--target")
        learner = _folder(config.learner or config.target, "--learner")
        reference = _folder(config.reference or learner, "--reference")
        shared_vocabulary({"--learner": learner, "--target": target, "--reference": reference})
        rule, role = config.reinforce, self.words[-1]
        met = Opponent(name="target", checkpoint=target, reward=rule.reward, complementary=rule.complementary)
        roster = TrainingRoster(role="adversary", learner=learner, reference=reference, opponents=(met,))
        origin = {"role": role, "target": config.target, "learner": config.learner or config.target}
        return lessons(config, roster, f"{role} against {config.target}", origin)

    def next_commands(self, config: TrainReinforceConfig, path: Path) -> tuple[str, ...]:
        """A match with the partner."""
        command = ["parley", "selfplay", "--adversary", display_path(path), "--target", config.target]
        return (shlex.join([*command, *root_words(config.data_root)]),)


class TrainAdversary(TrainRL):
    """`parley train adversary`."""

    words = ("train", "adversary")
    run_name = "adversary"
    presets = {"cheng2019": cheng2019, "demo": demo}

    def next_commands(self, config: TrainReinforceConfig, path: Path) -> tuple[str, ...]:
        """The attack."""
        command = ["parley", "attack", "rl", "--target", config.target, "--speaker", display_path(path)]
        return (shlex.join([*command, *root_words(config.data_root)]),)


class TrainTarget(LearnJob[TrainTargetConfig]):
    """`parley train target`."""

    words = ("train", "target")
    run_name = "target"
    config = TrainTargetConfig
    presets = {"cheng2019": hardened}

    def prepare(self, config: TrainTargetConfig, path: Path, reporter: Reporter) -> PreparedTraining:
        """The target, which learns, and whom it meets: frozen adversaries, a partner, or that partner alone."""
        share = config.opponents.partner_share
        names = [name.strip() for name in config.adversaries.split(",") if name.strip()] if share < 1 else []
        if not names and share < 1:
            fix = "parley train adversary makes one"
            raise ConfigError("there is no adversary to learn from", where="--adversaries", fix=fix)
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
        if share > 0:
            plain = Opponent(name=PARTNER, checkpoint=partner, reward="points", complementary=False, ordinary=share < 1)
            opponents = [plain, *opponents]
        roster = TrainingRoster(
            role="target", learner=target, reference=reference, opponents=tuple(opponents), drawing=config.opponents
        )
        against = names[-1] + (f" and {len(names) - 1} earlier" if len(names) > 1 else "") if names else "an ordinary partner"
        title = f"{config.target} against {against}"
        return lessons(config, roster, title, {"role": "target", "target": config.target, "adversaries": names})

    def next_commands(self, config: TrainTargetConfig, path: Path) -> tuple[str, ...]:
        """How exploitable it still is."""
        command = ["parley", "evaluate", "exploitability", "--target", display_path(path)]
        return (shlex.join([*command, *corpus_words(config.corpus, config.data_root)]),)


TRAIN_RL, TRAIN_ADVERSARY, TRAIN_TARGET = TrainRL(), TrainAdversary(), TrainTarget()
