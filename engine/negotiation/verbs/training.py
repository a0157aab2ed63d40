"""Reinforcement learning of one side against frozen opponents: `parley train rl`, `train adversary` and `train target`.

`rl` is the goal-based agent (Lewis et al. 2017): own points, both sides choose. `adversary` is the RL attack (Cheng et al.
2019): own minus the target's points, the target alone chooses. `target` is the other half of adversarial training (same paper,
section 6): a target learns from adversaries that were trained against it. All are one algorithm,
`engine/negotiation/rl/algorithm.py`; they differ in the learner and its opponents. A training is saved and resumes exactly.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from parley.engine.core.ray.record import Meters
from parley.engine.core.ray.session import RaySession
from parley.engine.core.runs.documents import CONFIG, SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import LEARNING, LOST
from parley.engine.core.stats.statistics import clustered_rate, count, mean
from parley.engine.core.verbs.checkpoints import threads
from parley.engine.core.verbs.composite import fitting_runners
from parley.engine.core.verbs.job import Reporter, Steps, Summary
from parley.engine.core.verbs.repeated import RepeatedConfig, RepeatedJob
from parley.engine.core.verbs.sharded import session
from parley.engine.core.verbs.supervised import built, make_updates
from parley.engine.core.verbs.trainings import Scalars
from parley.engine.negotiation.attacks.opponents import Opponent, OpponentConfig, TrainingRoster
from parley.engine.negotiation.attacks.settings import RELEASED_GUARD, DefenceConfig, ReinforceConfig
from parley.engine.negotiation.verbs.agents import (
    is_weightless,
    judge_of,
    require_negotiator,
    require_partner,
    shared_vocabulary,
    split_names,
    start_of,
    weightless_name,
)
from parley.engine.negotiation.verbs.defended import defend, filter_judge
from parley.engine.negotiation.verbs.negotiator import PUBLISHED, Language, corpus_words, demo_words
from parley.envs.core.config import (
    Configuration,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    check,
    from_dict,
    shared,
    to_dict,
)
from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.copies import CHECKPOINT, fetched_model
from parley.envs.core.storage.uris import display_path, is_uri
from parley.envs.corpora.arrow import root_words
from parley.envs.negotiation.agents import make_agent, require_same_game
from parley.policies.chat.model import ANSWERS_FOLDER
from parley.policies.chat.settings import ChatSeat

_FIGURES = ("reward", "advantage", "agreement", "dialogues", "seconds", "seconds_networks_speaking", "seconds_learning")
"""Entries of an update's event that are read again."""
MAX_LEARNERS = 5
"""Number of learners that may die in a row without an update beyond the last one."""
LOSS_S = 60.0
"""Seconds within which Ray's head notices that a machine is gone."""


@dataclass(frozen=True, kw_only=True)
class LearningConfig(Configuration):
    """Settings of every job that trains: corpus, devices and actors."""

    corpus: str = PUBLISHED
    """Corpus of the supervised guard, of the perplexity and of self-play scenarios."""
    data_root: Path | None = None
    """Where corpora lie; PARLEY_DATA or the user cache folder when not given."""
    seed: NonNegativeInt = 1
    """Master seed."""
    env_runners: NonNegativeInt = 0
    """Ray actors that play while one side learns; 0 plays in this process."""
    remote_learner: bool = False
    """Learn in a Ray actor, such as on another machine, rather than in this process."""
    learner_gpus: NonNegativeFloat = 0.0
    """GPUs, or a fraction of one, that each learner computes with."""
    learners: PositiveInt = 1
    """Learners that share each update; several are Ray actors, with other last digits."""
    runner_gpus: NonNegativeFloat = 0.0
    """GPUs, or a fraction of one, that each env runner plays on."""
    threads: PositiveInt = 1
    """CPU threads that learning, and dialogues played in this process, compute with."""
    save_every: PositiveInt = 25
    """Updates between saved training states."""
    address: str = ""
    """Address of a Ray cluster; a local one when empty."""
    chat: ChatSeat = field(default_factory=ChatSeat)
    """Settings of chat models among the opponents."""

    def __post_init__(self) -> None:
        super().__post_init__()
        where = "0 where no env runner plays (--env-runners; of attack table and evaluate population: --workers, no --trainers)"
        check(self, "runner_gpus", self.env_runners > 0 or not self.runner_gpus, where)

    def learning(self) -> dict[str, Any]:
        """Return these settings by name, for jobs that run other jobs."""
        return shared(self, LearningConfig)

    @property
    def num_learner_actors(self) -> int:
        """Number of actors that learn; 0 if this process learns."""
        return self.learners if self.remote_learner or self.learners > 1 else 0

    @property
    def num_learning_cpus(self) -> int:
        """CPUs of a session that has room for the learners and the env runners."""
        return self.env_runners + 1 + self.threads * self.num_learner_actors


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(LearningConfig, RepeatedConfig):
    """Settings of a training of one side."""

    perplexity_limit: float = 0.0
    """Perplexity, as a multiple of the learner's at its start, from which training counts as diverged; 0 for no limit."""
    snapshots: NonNegativeInt = 0
    """Checkpoints on the way, after a half, a quarter, ... of the updates, in the run's folders at-DIALOGUES."""
    reinforce: ReinforceConfig = field(default_factory=ReinforceConfig)
    """The learning rule."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "perplexity_limit", self.perplexity_limit == 0 or self.perplexity_limit > 1, "0, or above 1")
        size = self.reinforce.dialogues_per_update
        check(self, "learners", self.learners <= size, f"at most reinforce.dialogues_per_update ({size}), which they share")


TrainingConfigT = TypeVar("TrainingConfigT", bound=TrainingConfig)
RESUME_SAFE = ("env_runners", "remote_learner", "address", "data_root", "save_every", "trainers")
"""Settings that change no result; a resumed run may change them.

The learner's threads and GPUs are not among them: sums may differ in the last digit, and training amplifies that.
"""


@dataclass(frozen=True)
class PreparedTraining:
    """A learner and its opponents, loaded and checked.

    Args:
        config: the settings.
        roster: the learner and its opponents, as existing checkpoint folders or names.
        title: learner and opponents, for the heading.
        provenance: origin of the checkpoint, besides corpus, seed and updates.
        base: the learner's model at its start.
        language: the perplexity of its words.
    """

    config: TrainingConfig
    roster: TrainingRoster
    title: str
    provenance: Mapping[str, Any]
    base: Any
    language: Language


def prepare_training(
    config: TrainingConfig, roster: TrainingRoster, title: str, provenance: Mapping[str, Any]
) -> PreparedTraining:
    """Load the models and the corpus of a training, so that errors arise before a run is made and Ray is started.

    Args:
        config: the settings.
        roster: the learner and its opponents.
        title: learner and opponents, for the heading.
        provenance: origin of the checkpoint.

    Raises:
        CheckpointError: a checkpoint is damaged or of another kind.
        ConfigError: the corpus cannot guard the learner's language, or an opponent plays another game.
    """
    from parley.policies.negotiator.speaker import load_model

    base = load_model(fetched_model(roster.learner))
    if roster.reference != roster.learner:
        load_model(fetched_model(roster.reference))
    for name, met in {met.checkpoint or met.agent: met for met in roster.drawable}.items():
        if name != roster.learner or met.defence.wanted:
            agent = make_agent(name, base.vocabulary)
            require_same_game(agent, base.vocabulary)
            defend(agent, met.defence, met.judge, "cpu", config.chat)
    language = Language(config.corpus, config.data_root, base, config.reinforce, config.perplexity_limit)
    return PreparedTraining(config, roster, title, provenance, base, language)


def snapshot_dialogues(rule: ReinforceConfig, snapshots: int) -> list[int]:
    """Return the dialogues learned from at each snapshot, rising; a training of that length gives the same learner.

    Args:
        rule: the learning rule, whose updates are halved again and again.
        snapshots: number of halvings; equal numbers, and the full training, are left out.
    """
    updates = {math.ceil(rule.updates / 2**power) for power in range(1, min(snapshots, rule.updates) + 1)} - {rule.updates}
    return [number * rule.dialogues_per_update for number in sorted(updates)]


def snapshot(path: Path, dialogues: int) -> Path:
    """Return the folder of the learner after so many dialogues; the run's folder is `path`."""
    return path / f"at-{dialogues}"


def keep_learner(best: Path, path: Path) -> None:
    """Store the learner of a stage as the checkpoint of its run."""
    from parley.policies.negotiator.speaker import load_model, provenance, save_model

    folder = best / CHECKPOINT
    save_model(load_model(folder), path / CHECKPOINT, {**provenance(folder), "training": best.name})


def _updates(config: Mapping[str, Any]) -> int | None:
    try:
        return from_dict(ReinforceConfig, config["reinforce"], CONFIG).updates
    except (KeyError, TypeError, ConfigError):
        # A run of another version can be read but not resumed.
        return None


class LearnJob(RepeatedJob[TrainingConfigT, PreparedTraining, Summary]):
    """A job that trains one side, which `prepare` of the subclass decides."""

    legend = LEARNING | LOST
    files = (CHECKPOINT, SUMMARY)
    resume_safe = RESUME_SAFE
    steps = Steps("iteration", "updates", _updates)

    def loss(self, run: RunFolder) -> float:
        """Return minus the last training reward; matches measure the learner in other dialogues."""
        return -run.metrics()["training_reward"].value

    def keep(self, best: Path, run: RunFolder) -> None:
        keep_learner(best, run.path)

    def work(self, run: RunFolder, prepared: PreparedTraining, reporter: Reporter) -> Summary:
        """Train, saving and resuming exactly, and store the learner as `checkpoint`.

        Raises:
            DivergenceError: a gradient is not finite, or the perplexity is above its limit.
            ClusterError: there is too little room for runners or learner, or they keep dying.
        """
        from parley.policies.negotiator.speaker import save_model

        config, base, language = prepared.config, prepared.base, prepared.language
        with threads(config.threads), session(config.num_learning_cpus, config.address) as here:
            about = {**prepared.provenance, "corpus": config.corpus, "seed": config.seed}

            def keep(weights: Mapping[str, Any], folder: Path, updates: int) -> None:
                base.load_state_dict(dict(weights))
                save_model(base, folder / CHECKPOINT, {**about, "updates": updates})

            roster = replace(prepared.roster, chat=config.chat, answers=(run.path / ANSWERS_FOLDER).absolute())
            history, weights = _Training(config, here, roster, base, language, run, reporter, keep).finish()
            perplexity = language.measure(weights)
            language.require_known(perplexity)
            keep(weights, run.path, config.reinforce.updates)
            tail = history[-max(1, len(history) // 10) :]
            metrics = {f"training_{name}": mean([step[name] for step in tail]) for name in ("reward", "advantage")}
            metrics["training_agreement"] = clustered_rate([step["agreement"] for step in tail])
            metrics |= perplexity
        metrics["dialogues_per_s"] = mean([step["dialogues"] / step["seconds"] for step in history])
        if lost := sum(step.get("lost", 0) for step in history):
            metrics["dialogues_lost"] = count(lost, lost + int(sum(step["dialogues"] for step in history)))
        metrics["share_outside_networks"] = clustered_rate(
            [1 - (step["seconds_networks_speaking"] + step["seconds_learning"]) / step["seconds"] for step in history]
        )
        return Summary(prepared.title, f"{len(history)} updates, seed {config.seed}.", metrics)


class _Training:
    """A training in a run folder; it resumes at the last saved state."""

    def __init__(
        self,
        config: TrainingConfig,
        session: RaySession,
        roster: TrainingRoster,
        base: Any,
        language: Language,
        folder: RunFolder,
        reporter: Reporter,
        keep: Callable[[Mapping[str, Any], Path, int], None],
    ) -> None:
        self._keep = keep
        self._config, self._session, self._roster, self._vocabulary = config, session, roster, base.vocabulary
        self._language, self._folder, self._reporter = language, folder, reporter
        # Updates after the last saved state are made again; their last figures count.
        needs = {"iteration": {"number": int, **dict.fromkeys(_FIGURES, float)}}
        self._history = {event["number"]: event for event in folder.events(needs) if event["kind"] == "iteration"}
        self._furthest = self._num_lost = 0
        self._meters = Meters(str(folder.path), folder.job)

    def finish(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Make the remaining updates; return the figures of all updates and the learner's weights."""
        from parley.engine.core.rllib.distributed_rollouts import LearnerLostError

        updates = self._config.reinforce.updates
        self._reporter.stage("learning", updates, "updates")
        while True:
            try:
                weights = self._go_on()
                break
            except LearnerLostError as error:
                self._num_lost += 1
                if self._num_lost >= MAX_LEARNERS:
                    raise
                self._reporter.say(f"{error.what}; another one goes on")
                self._folder.event("learner_lost", furthest=self._furthest, reason=str(error.got))
        # An update with a damaged event is left out.
        return [step for number, step in sorted(self._history.items()) if number <= updates], weights

    def _go_on(self) -> dict[str, Any]:
        """Make the updates after the last saved state with a new algorithm; return the learner's weights."""
        from parley.engine.core.rllib import reproducible as state
        from parley.engine.core.rllib.distributed_rollouts import LearnerLostError

        # After a loss, wait for a machine that can take the learner.
        wait_s = self._session.start_timeout_s if self._num_lost else 0.0
        config = self._config
        num_runners = fitting_runners(
            config.env_runners, _learner_resources(config), self._session, self._reporter, wait_s, config.runner_gpus
        )
        rule = config.reinforce
        gpus = config.runner_gpus if num_runners else 0.0
        with built(
            _settings(replace(config, env_runners=num_runners, runner_gpus=gpus), self._roster, self._vocabulary)
        ) as algorithm:
            try:
                note = partial(self._note, algorithm)
                make_updates(algorithm, self._folder, rule.updates, config.save_every, self._reporter, note)
                return state.learned_weights(algorithm)
            except LearnerLostError:
                # Until Ray notices the loss, it counts the resources of the lost machine.
                algorithm.learner_group.await_loss(LOSS_S)
                raise

    def _note(self, algorithm: Any, number: int, scalars: Scalars) -> str:
        """Record the newest update, and check the language before its state is saved."""
        from parley.engine.core.rllib import reproducible as state

        if number > self._furthest:
            self._furthest, self._num_lost = number, 0
        self._history[number] = {"number": number, **algorithm.last}
        self._folder.event("iteration", **self._history[number])
        self._meters.add(dialogues=algorithm.last["dialogues"])
        scalars.add(number, algorithm.last)
        if algorithm.lost:
            name, reason = next(iter(algorithm.lost.values()))
            self._folder.event("dialogues_lost", number=number, lost=len(algorithm.lost), opponent=name, reason=reason)
            self._reporter.say(f"update {number}: dialogues lost to {name}: {len(algorithm.lost)}; {reason.splitlines()[0]}")
        dialogues = number * self._config.reinforce.dialogues_per_update
        if dialogues in snapshot_dialogues(self._config.reinforce, self._config.snapshots):
            self._keep(state.learned_weights(algorithm), snapshot(self._folder.path, dialogues), number)
        if number % self._config.save_every == 0 or number == self._config.reinforce.updates:
            # A state that has lost its language is not saved, because no training could resume from it.
            self._check_language(number, state.learned_weights(algorithm), scalars)
        recent = [step for k, step in self._history.items() if number - 20 < k <= number]
        reward, agreement = (sum(step[name] for step in recent) / len(recent) for name in ("reward", "agreement"))
        return f"reward {reward:+.2f}, agreement {agreement:.0%} (last {len(recent)} updates)"

    def _check_language(self, number: int, weights: Mapping[str, Any], scalars: Scalars) -> None:
        if self._language.limit == math.inf:
            return
        from parley.engine.core.rllib.reproducible import DivergenceError

        perplexity = self._language.measure(weights)["perplexity"].value
        self._folder.event("language", number=number, perplexity=perplexity)
        scalars.add(number, {"perplexity": perplexity})
        if not perplexity <= self._language.limit:
            raise DivergenceError(
                "the learner is losing its language",
                where=f"update {number}",
                got=f"validation perplexity {perplexity:.4g}, the limit is {self._language.limit:.4g}",
                fix="train again with a smaller learning_rate or a larger supervised_weight, or raise perplexity_limit",
            )


def _settings(config: TrainingConfig, roster: TrainingRoster, vocabulary: Any) -> Any:
    from parley.engine.negotiation.rl.algorithm import DialogueReinforceConfig

    settings = DialogueReinforceConfig().dialogues(
        reinforce=config.reinforce,
        roster=roster,
        seed=config.seed,
        vocabulary=vocabulary,
        corpus=config.corpus,
        data_root=config.data_root,
    )
    settings.env_runners(num_env_runners=config.env_runners, num_gpus_per_env_runner=config.runner_gpus)
    settings.learners(
        num_learners=config.num_learner_actors, num_cpus_per_learner=config.threads, num_gpus_per_learner=config.learner_gpus
    )
    return settings


def _learner_resources(config: TrainingConfig) -> dict[str, float]:
    """Return the resources of the learners: nothing in this process."""
    number = config.num_learner_actors
    return {"CPU": config.threads * number, "GPU": config.learner_gpus * number}


PARTNER = "partner"


@dataclass(frozen=True, kw_only=True)
class _LearnerFields:
    target: str
    """The frozen partner: run, checkpoint folder or any agent's name; or several between commas, drawn as `opponents` says."""
    learner: str = ""
    """Where the learner starts: the (newest, so last) target's own checkpoint when empty, if it has one."""
    reference: str = ""
    """Reference of the KL guard; the start of the learner when empty."""
    opponents: OpponentConfig = field(default_factory=OpponentConfig)
    """Draw of several targets, such as a mixture of them."""
    defence: DefenceConfig = field(default_factory=DefenceConfig)
    """Defence of the target, or of each of several."""
    judge: str = ""
    """Judge of its filter (defence.max_perplexity): a checkpoint, or a chat model that gives likelihoods (hf:, gguf:);
    when empty the target (or else the start of the learner), before any reinforcement."""


@dataclass(frozen=True, kw_only=True)
class _HardeningFields:
    target: str = "runs/rl"
    """The learner and its start: run or checkpoint folder."""
    adversaries: str = "runs/adversary"
    """The frozen adversaries, oldest first: run or checkpoint folders, or any agents' names, separated by commas."""
    partner: str = ""
    """Ordinary partner beside them, such as the supervised agent or scripted; the target's own checkpoint when empty."""
    reference: str = ""
    """Reference of the KL guard, such as the agent before any hardening; the target's start when empty."""
    opponents: OpponentConfig = field(default_factory=OpponentConfig)
    """Draw of the opponents."""


# Fields of the last base come first, in the help too: the agents before the settings of learning.
@dataclass(frozen=True, kw_only=True)
class TrainReinforceConfig(TrainingConfig, _LearnerFields):
    """Settings of a training against one target or several."""


@dataclass(frozen=True, kw_only=True)
class TrainTargetConfig(TrainingConfig, _HardeningFields):
    """Settings of a target's training against adversaries."""


def _folder(spec: str, option: str) -> str:
    folder = require_negotiator(spec, option)
    # Workers may have another working directory, and another cache.
    return display_path(folder) if is_uri(spec) else str(folder.resolve())


def _opponent(name: str, spec: str, option: str, **facts: Any) -> Opponent:
    """Return an opponent of a learner: a frozen checkpoint, or any other agent by its name."""
    require_partner(spec, option)
    if is_weightless(spec):
        return Opponent(name=name, agent=weightless_name(spec), **facts)
    return Opponent(name=name, checkpoint=_folder(spec, option), **facts)


def _absolute_judge(spec: str, limit: float) -> str:
    """Return the judge of a filter with that limit, by a name that is valid in other folders."""
    judge = filter_judge(spec, limit)
    return weightless_name(judge) if is_weightless(judge) else _folder(spec, "--judge")


def _met_words(config: TrainReinforceConfig) -> list[str]:
    words = [*root_words(config.data_root), *(["--judge", config.judge] if config.judge else [])]
    for name, value in to_dict(config.defence).items():
        words += ["--set", f"defence.{name}={json.dumps(value)}"] if value else []
    return words


# Paper: silent on a guard. Ours: the released one; a weaker one let targets end in runs of dots.
_GUARD: dict[str, Any] = {"clipping": "parts", "supervised_weight": RELEASED_GUARD}


def lewis2017() -> TrainReinforceConfig:
    """Train a goal-based agent: own points, both sides choose, self-play scenarios, supervised guard (Lewis et al. 2017)."""
    # With the full centred reward and no KL guard, training ends at short, generous offers that every partner accepts.
    rule = ReinforceConfig(
        reward="points",
        complementary=False,
        scenarios="selfplay",
        scaling="sign",
        dialogues=72_000,
        learning_rate=3e-4,
        kl_weight=0.5,
        **_GUARD,
    )
    return TrainReinforceConfig(target="runs/negotiator", corpus="dealornodeal", reinforce=rule)


def cheng2019() -> TrainReinforceConfig:
    """Train the RL attack: S_adv - S_ori, the target alone chooses (Cheng et al. 2019, section 4.1)."""
    # Paper: a rate of 0.1, norms of 1 at most, discount 0.95, four epochs on all scenarios. Ours: that norm and discount,
    # but Adam at 3e-4, 64,000 random scenarios, and a KL guard beside the supervised one.
    rule = ReinforceConfig(
        reward="advantage", complementary=True, dialogues=64_000, learning_rate=3e-4, kl_weight=0.5, **_GUARD
    )
    return TrainReinforceConfig(target="runs/negotiator", corpus="dealornodeal", reinforce=rule)


def demo() -> TrainReinforceConfig:
    """Train the RL attack on the demonstration's small agent, in seconds of one core."""
    rule = ReinforceConfig(
        reward="advantage", complementary=True, dialogues=3_840, learning_rate=1e-3, supervised_weight=0.5, max_turns=12
    )
    return TrainReinforceConfig(target="runs/demo/target", corpus="embedded", reinforce=rule)


def hardened() -> TrainTargetConfig:
    """Train the target: -(S_adv - S_ori) against the latest adversary (Cheng et al. 2019, eq. 9)."""
    rule = ReinforceConfig(
        reward="advantage",
        complementary=True,
        dialogues=12_800,
        learning_rate=3e-4,
        kl_weight=0.1,
        **_GUARD,
        # Without it every dialogue against an adversary reached the limit of turns, and plain play failed.
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
        names = split_names(config.target) or [""]
        if config.opponents.partner_share:
            fix = "leave it at 0: an adversary's targets are all it meets"
            raise ConfigError("there is no partner beside targets", where="opponents.partner_share", fix=fix)
        rule, role = config.reinforce, self.words[-1]
        start = start_of(config.learner, names[-1], "--learner")
        defence, limit = config.defence, config.defence.max_perplexity
        judge = _absolute_judge(judge_of(config.judge, (*names, start)), limit) if limit else ""
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
        return prepare_training(config, roster, title, origin)

    def next_commands(self, config: TrainReinforceConfig, path: Path) -> tuple[str, ...]:
        *_, newest = split_names(config.target)
        command = ["parley", "selfplay", "--adversary", display_path(path), "--target", newest]
        return (shlex.join([*command, *_met_words(config)]),)


class TrainAdversary(TrainRL):
    """`parley train adversary`."""

    words = ("train", "adversary")
    run_name = "adversary"
    presets = {"cheng2019": cheng2019, "demo": demo}

    def next_commands(self, config: TrainReinforceConfig, path: Path) -> tuple[str, ...]:
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
        return prepare_training(config, roster, title, {"role": "target", "target": config.target, "adversaries": names})

    def next_commands(self, config: TrainTargetConfig, path: Path) -> tuple[str, ...]:
        command = ["parley", "evaluate", "exploitability", *demo_words(config.corpus), "--target", display_path(path)]
        return (shlex.join([*command, *corpus_words(config.corpus, config.data_root)]),)


TRAIN_RL, TRAIN_ADVERSARY, TRAIN_TARGET = TrainRL(), TrainAdversary(), TrainTarget()
