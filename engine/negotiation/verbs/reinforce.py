"""Training by reinforcement against frozen opponents: `parley train rl`, `train adversary` and `train target`.

`rl` is the goal-based agent (Lewis et al. 2017): own points, both sides choose. `adversary` is the RL attack (Cheng et
al. 2019): own minus the target's points, the target alone chooses. `target` is the other half of adversarial training (same
paper, section 6): a target learns from adversaries that were trained against it. All are one algorithm,
`engine/negotiation/rl/algorithm.py`.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parley.engine.core.verbs.job import Reporter
from parley.engine.negotiation.attacks.opponents import Opponent, OpponentConfig, TrainingRoster
from parley.engine.negotiation.attacks.settings import DefenceConfig, ReinforceConfig
from parley.engine.negotiation.verbs.agents import (
    is_weightless,
    require_negotiator,
    require_partner,
    shared_vocabulary,
    split_names,
    start_of,
    weightless_name,
)
from parley.engine.negotiation.verbs.defended import filter_judge
from parley.engine.negotiation.verbs.judge import judge_of
from parley.engine.negotiation.verbs.language import corpus_words
from parley.engine.negotiation.verbs.training import LearnJob, PreparedTraining, TrainingConfig, lessons
from parley.envs.core.config import to_dict
from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.uris import display_path, is_uri
from parley.envs.corpora.root import root_words

PARTNER = "partner"


@dataclass(frozen=True, kw_only=True)
class _Learner:
    target: str
    """The frozen partner: run, checkpoint folder or any agent's name; or several between commas, drawn as `opponents` says."""
    learner: str = ""
    """Where the learner starts: the (newest, so last) target's own checkpoint when empty, if it has one."""
    reference: str = ""
    """What the KL guard compares with: where the learner starts when empty."""
    opponents: OpponentConfig = field(default_factory=OpponentConfig)
    """How several targets are drawn, such as a mixture of them."""
    defence: DefenceConfig = field(default_factory=DefenceConfig)
    """What stands around the target, or around each of several."""
    judge: str = ""
    """Who judges in its filter (defence.max_perplexity): a checkpoint, or a chat model that gives likelihoods (hf:, gguf:);
    when empty the target (or else where the learner starts), before any reinforcement."""


@dataclass(frozen=True, kw_only=True)
class _Hardened:
    target: str = "runs/rl"
    """Who learns, and where it starts: run or checkpoint folder."""
    adversaries: str = "runs/adversary"
    """The frozen adversaries, oldest first: run or checkpoint folders, or any agents' names, separated by commas."""
    partner: str = ""
    """Ordinary partner beside them, such as the supervised agent or scripted; the target's own checkpoint when empty."""
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


def _opponent(name: str, spec: str, option: str, **facts: Any) -> Opponent:
    """Whom a learner meets: a frozen checkpoint, or any other agent by its name."""
    require_partner(spec, option)
    if is_weightless(spec):
        return Opponent(name=name, agent=weightless_name(spec), **facts)
    return Opponent(name=name, checkpoint=_folder(spec, option), **facts)


def _judge(spec: str, limit: float) -> str:
    """Who judges in a filter of that limit, by a name that holds in other folders."""
    judge = filter_judge(spec, limit)
    return weightless_name(judge) if is_weightless(judge) else _folder(spec, "--judge")


def _met_words(config: TrainReinforceConfig) -> list[str]:
    """What else a match with the target is told, to be as the learner met it."""
    words = [*root_words(config.data_root), *(["--judge", config.judge] if config.judge else [])]
    for name, value in to_dict(config.defence).items():
        words += ["--set", f"defence.{name}={json.dumps(value)}"] if value else []
    return words


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
        """Side 0, which learns, and whom it meets: one frozen partner, or several."""
        names = split_names(config.target) or [""]
        if config.opponents.partner_share:
            fix = "leave it at 0: an adversary's targets are all it meets"
            raise ConfigError("there is no partner beside targets", where="opponents.partner_share", fix=fix)
        rule, role = config.reinforce, self.words[-1]
        start = start_of(config.learner, names[-1], "--learner")
        defence, limit = config.defence, config.defence.max_perplexity
        judge = _judge(judge_of(config.judge, (*names, start)), limit) if limit else ""
        paid: dict[str, Any] = {"reward": rule.reward, "complementary": rule.complementary, "defence": defence, "judge": judge}
        called = [f"target-{k}" for k in range(1, len(names) + 1)] if len(names) > 1 else ["target"]
        opponents = tuple(_opponent(name, spec, "--target", **paid) for name, spec in zip(called, names, strict=True))
        learner = _folder(start, "--learner")
        reference = _folder(config.reference or learner, "--reference")
        shared_vocabulary({"--learner": learner, "--reference": reference})
        roster = TrainingRoster(
            role="adversary", learner=learner, reference=reference, opponents=opponents, drawing=config.opponents
        )
        origin: dict[str, Any] = {"role": role, "target": config.target, "learner": start}
        title = f"{role} against {config.target}"
        if defence.wanted:
            origin, title = {**origin, "defence": to_dict(defence)}, f"{title}, defended"
        return lessons(config, roster, title, origin)

    def next_commands(self, config: TrainReinforceConfig, path: Path) -> tuple[str, ...]:
        """A match with the partner, the newest of several."""
        *_, newest = split_names(config.target)
        command = ["parley", "selfplay", "--adversary", display_path(path), "--target", newest]
        return (shlex.join([*command, *_met_words(config)]),)


class TrainAdversary(TrainRL):
    """`parley train adversary`."""

    words = ("train", "adversary")
    run_name = "adversary"
    presets = {"cheng2019": cheng2019, "demo": demo}

    def next_commands(self, config: TrainReinforceConfig, path: Path) -> tuple[str, ...]:
        """The attack on the target, the newest of several."""
        *_, newest = split_names(config.target)
        command = ["parley", "attack", "rl", "--target", newest, "--speaker", display_path(path)]
        return (shlex.join([*command, *_met_words(config)]),)


class TrainTarget(LearnJob[TrainTargetConfig]):
    """`parley train target`."""

    words = ("train", "target")
    run_name = "target"
    config = TrainTargetConfig
    presets = {"cheng2019": hardened}

    def prepare(self, config: TrainTargetConfig, path: Path, reporter: Reporter) -> PreparedTraining:
        """The target, which learns, and whom it meets: frozen adversaries, a partner, or that partner alone."""
        share = config.opponents.partner_share
        names = split_names(config.adversaries) if share < 1 else []
        if not names and share < 1:
            fix = "parley train adversary makes one"
            raise ConfigError("there is no adversary to learn from", where="--adversaries", fix=fix)
        target = _folder(config.target, "--target")
        reference = _folder(config.reference or config.target, "--reference")
        shared_vocabulary({"--target": target, "--reference": reference})
        rule = config.reinforce
        paid: dict[str, Any] = {"reward": rule.reward, "complementary": rule.complementary}
        opponents = [_opponent(f"adversary-{k}", name, "--adversaries", **paid) for k, name in enumerate(names, start=1)]
        partner = config.partner or config.target
        require_partner(partner, "--partner")
        if share > 0:
            paid = {"reward": "points", "complementary": False, "ordinary": share < 1}
            plain = _opponent(PARTNER, partner, "--partner", **paid)
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
