"""Reinforcement learning of one side as a run: built, watched, saved and gone on with exactly.

What `parley train rl`, `train adversary` and `train target` share; who learns and whom it meets is theirs.

Training by reinforcement against frozen opponents: `parley train rl`, `train adversary` and `train target`.

`rl` is the goal-based agent (Lewis et al. 2017): own points, both sides choose. `adversary` is the RL attack (Cheng et
al. 2019): own minus the target's points, the target alone chooses. `target` is the other half of adversarial training (same
paper, section 6): a target learns from adversaries that were trained against it. All are one algorithm,
`engine/negotiation/rl/algorithm.py`.
"""

from __future__ import annotations

import gc
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
from parley.engine.negotiation.attacks.settings import DefenceConfig, ReinforceConfig
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
from parley.engine.negotiation.verbs.negotiator import PUBLISHED, Language, corpus_words
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
from parley.policies.chat.answers import ANSWERS_FOLDER
from parley.policies.chat.seat import ChatSeat

_FIGURES = ("reward", "advantage", "agreement", "dialogues", "seconds", "seconds_networks_speaking", "seconds_learning")
"""What is read of an update's event."""
MAX_LEARNERS = 5
"""Learners that may die in a row without getting further than those before them."""
LOSS_S = 60.0
"""Seconds within which Ray's head notices that a machine is gone."""


@dataclass(frozen=True, kw_only=True)
class LearningConfig(Configuration):
    """Where learning is done, and on what; the same for every job that trains."""

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
    """How chat models take part that are met."""

    def __post_init__(self) -> None:
        super().__post_init__()
        where = "0 where no env runner plays (--env-runners; of attack table and evaluate population: --workers, no --trainers)"
        check(self, "runner_gpus", self.env_runners > 0 or not self.runner_gpus, where)

    def learning(self) -> dict[str, Any]:
        """These settings by name, for the jobs that a job is made of."""
        return shared(self, LearningConfig)

    @property
    def num_learner_actors(self) -> int:
        """Actors that learn; 0 where this process does."""
        return self.learners if self.remote_learner or self.learners > 1 else 0

    @property
    def num_learning_cpus(self) -> int:
        """CPUs of a session in which all of them, and the env runners, have room."""
        return self.env_runners + 1 + self.threads * self.num_learner_actors


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(LearningConfig, RepeatedConfig):
    """How one side is trained, whoever it is."""

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
"""Settings that change how learning is done and not what is learned; a resumed run may differ in them.

The learner's threads and GPUs are none of them: sums may differ in the last digit, and a training carries that on.
"""


@dataclass(frozen=True)
class PreparedTraining:
    """A learner and its opponents, found and checked.

    Args:
        config: how it is done.
        roster: who learns, and whom it meets; folders of checkpoints that are there.
        title: who against whom, for the heading.
        provenance: what the checkpoint says of its origin, besides corpus, seed and updates.
        base: the learner's model as it begins.
        language: its words' perplexity.
    """

    config: TrainingConfig
    roster: TrainingRoster
    title: str
    provenance: Mapping[str, Any]
    base: Any
    language: Language


def lessons(config: TrainingConfig, roster: TrainingRoster, title: str, provenance: Mapping[str, Any]) -> PreparedTraining:
    """Reads what a training needs, so that what is damaged is found before a run is made and Ray is started.

    Args:
        config: how it is done.
        roster: as in `AdversarialExamples`, like the rest.
        title: who against whom.
        provenance: of the checkpoint.

    Raises:
        CheckpointError: a checkpoint is damaged or of another kind.
        ConfigError: the corpus cannot guard the learner's language, or an opponent plays another game.
    """
    from parley.policies.negotiator.speaker import load_model

    base = load_model(fetched_model(roster.learner))
    # What is damaged or mistaken is found before there is a run.
    if roster.reference != roster.learner:
        load_model(fetched_model(roster.reference))
    for name, met in {met.checkpoint or met.agent: met for met in roster.met}.items():
        if name != roster.learner or met.defence.wanted:
            agent = make_agent(name, base.vocabulary)
            require_same_game(agent, base.vocabulary)
            defend(agent, met.defence, met.judge, "cpu", config.chat)
    language = Language(config.corpus, config.data_root, base, config.reinforce, config.perplexity_limit)
    return PreparedTraining(config, roster, title, provenance, base, language)


def snapshot_dialogues(rule: ReinforceConfig, snapshots: int) -> list[int]:
    """The dialogues that were learned from at each snapshot, rising; a training of so many would have come to the same.

    Args:
        rule: whose dialogues are halved again and again.
        snapshots: how often; those that fall together, or on the end, are one.
    """
    updates = {math.ceil(rule.updates / 2**power) for power in range(1, min(snapshots, rule.updates) + 1)} - {rule.updates}
    return [number * rule.dialogues_per_update for number in sorted(updates)]


def snapshot(path: Path, dialogues: int) -> Path:
    """Return the folder of the learner after so many dialogues; the run's folder is `path`."""
    return path / f"at-{dialogues}"


def keep_learner(best: Path, path: Path) -> None:
    """Stores the learner of a run as that of another one, which it is a stage of."""
    from parley.policies.negotiator.speaker import load_model, provenance, save_model

    folder = best / CHECKPOINT
    save_model(load_model(folder), path / CHECKPOINT, {**provenance(folder), "training": best.name})


def _updates(config: Mapping[str, Any]) -> int | None:
    try:
        return from_dict(ReinforceConfig, config["reinforce"], CONFIG).updates
    except (KeyError, TypeError, ConfigError):
        # The run of another version can be looked at, and not be resumed.
        return None


class LearnJob(RepeatedJob[TrainingConfigT, PreparedTraining, Summary]):
    """A job in which one side learns; each says in `prepare` who that is."""

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
        """Trains, saving and resuming exactly, and stores the learner as `checkpoint`.

        Raises:
            DivergenceError: training lost itself: a gradient is not finite, or the perplexity is above its limit.
            ClusterError: too little room for runners or learner, or they keep dying.
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
            perplexity = language.measured(weights)
            language.require_known(perplexity)
            keep(weights, run.path, config.reinforce.updates)
            tail = history[-max(1, len(history) // 10) :]
            metrics = {f"training_{name}": mean([step[name] for step in tail]) for name in ("reward", "advantage")}
            metrics["training_agreement"] = clustered_rate([step["agreement"] for step in tail])
            metrics |= perplexity
        metrics["dialogues_per_s"] = mean([step["dialogues"] / step["seconds"] for step in history])
        if lost := sum(step.get("lost", 0) for step in history):
            metrics["dialogues_lost"] = count(lost, lost + int(sum(step["dialogues"] for step in history)))
        metrics["share_outside_networks"] = clustered_rate([_outside(step) for step in history])
        return Summary(prepared.title, f"{len(history)} updates, seed {config.seed}.", metrics)


class _Training:
    """A training in a run folder, from where it stands to its end."""

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
        # Updates after the last saved state are made again, and count as they were made last.
        needs = {"iteration": {"number": int, **dict.fromkeys(_FIGURES, float)}}
        self._history = {event["number"]: event for event in folder.events(needs) if event["kind"] == "iteration"}
        self._furthest = self._num_lost = 0
        self._meters = Meters(str(folder.path), folder.job)

    def finish(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Makes what is left of the updates; returns the figures of all of them and the learner's weights."""
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
        # While an algorithm was being left, names of it kept its modules from being collected.
        gc.collect()
        # Of one whose event was damaged nothing is known any more.
        return [step for number, step in sorted(self._history.items()) if number <= updates], weights

    def _go_on(self) -> dict[str, Any]:
        """Makes the updates after the last saved state with a learner of its own; returns its weights."""
        from parley.engine.core.rllib import reproducible as state
        from parley.engine.core.rllib.distributed_rollouts import LearnerLostError

        # After a loss a machine that takes the learner may still come.
        wait_s = self._session.start_timeout_s if self._num_lost else 0.0
        config = self._config
        num_runners = fitting_runners(
            config.env_runners, _learner(config), self._session, self._reporter, wait_s, config.runner_gpus
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
                # Until then the room of a lost machine would count as there.
                algorithm.learner_group.await_loss(LOSS_S)
                raise

    def _note(self, algorithm: Any, number: int, scalars: Scalars) -> str:
        """Writes down the newest update, and looks at its language where its state is to be saved."""
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
            # A state that has lost its language is not saved: nothing could go on from it.
            self._check_language(number, state.learned_weights(algorithm), scalars)
        recent = [step for k, step in self._history.items() if number - 20 < k <= number]
        reward, agreement = (sum(step[name] for step in recent) / len(recent) for name in ("reward", "agreement"))
        return f"reward {reward:+.2f}, agreement {agreement:.0%} (last {len(recent)} updates)"

    def _check_language(self, number: int, weights: Mapping[str, Any], scalars: Scalars) -> None:
        if self._language.limit == math.inf:
            return
        from parley.engine.core.rllib.reproducible import DivergenceError

        perplexity = self._language.measured(weights)["perplexity"].value
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
        num_learners=config.num_learner_actors,
        num_cpus_per_learner=config.threads,
        num_gpus_per_learner=config.learner_gpus,
    )
    return settings


def _learner(config: TrainingConfig) -> dict[str, float]:
    """Return the resources of the learners: nothing in this process."""
    number = config.num_learner_actors
    return {"CPU": config.threads * number, "GPU": config.learner_gpus * number}


def _outside(step: Mapping[str, Any]) -> float:
    return 1 - (step["seconds_networks_speaking"] + step["seconds_learning"]) / step["seconds"]


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
    """Return the judge of a filter with that limit, by a name that is valid in other folders."""
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
        """Return the match with the partner, the newest of several."""
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
        """Return the command that measures its exploitability."""
        command = ["parley", "evaluate", "exploitability", "--target", display_path(path)]
        return (shlex.join([*command, *corpus_words(config.corpus, config.data_root)]),)


TRAIN_RL, TRAIN_ADVERSARY, TRAIN_TARGET = TrainRL(), TrainAdversary(), TrainTarget()
