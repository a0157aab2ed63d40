"""The RLlib algorithm that trains one side against frozen opponents (new API stack).

An iteration plays `dialogues_per_update` dialogues on the env runners, turns rewards into returns, mixes in corpus dialogues,
and makes one update. A `TrainingRoster` names the learner and its opponents: an adversary against its target, or a target
against a population of adversaries and an ordinary partner.

With `overlap` the runners play the dialogues of the next update during this one, with weights that are one update older.

Iteration i plays dialogues i * D .. (i + 1) * D - 1 on any runners. If a runner dies, its share is played again; no update has
fewer dialogues than configured, or dialogues of a runner with old weights. Dialogues in which a user's agent failed are left
out, at most `ReinforceConfig.max_lost` of them. For another reward, override `DialogueReinforce.rewards` and name the class in
`DialogueReinforceConfig(algo_class=...)`.

Results have RLlib's names. RLlib has some 200 settings: those in `ACTING` do what RLlib's documentation says; a change of any
other raises an error that names the setting to use instead.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils import metrics as rllib
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    EVALUATION_RESULTS,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_EPISODES_LIFETIME,
)
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from parley.engine.core.ray.identity import own_identity
from parley.engine.core.rllib.distributed_rollouts import DistributedAlgorithm, DistributedConfig, StartedSearch
from parley.engine.core.rllib.reproducible import RunningBaseline
from parley.engine.negotiation.attacks.opponents import OpponentDraw, TrainingRoster, require_enough
from parley.engine.negotiation.attacks.reinforce import discounted_returns
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.engine.negotiation.rl.env import AGENTS, NegotiationMultiAgentEnv
from parley.engine.negotiation.rl.learner import DialogueLearner, NegotiatorModule
from parley.engine.negotiation.rl.runner import COLUMNS, CallbackMetrics, DialogueEnvRunner, merged, training_rows
from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import stream
from parley.envs.negotiation.corpora.catalogue import load_corpus
from parley.envs.negotiation.domain import Scenario, Vocabulary
from parley.envs.negotiation.game import Rules
from parley.policies.negotiator.model import NegotiationBatch, make_batch

ACTING = frozenset(
    {
        *("algo_class", "lr", "grad_clip", "grad_clip_by", "learner_config_dict"),
        *("env_runner_cls", "num_env_runners", "num_cpus_per_env_runner", "num_gpus_per_env_runner"),
        *("custom_resources_per_env_runner", "max_requests_in_flight_per_env_runner", "num_learners", "num_gpus_per_learner"),
        *("num_cpus_per_learner", "custom_resources_per_learner", "local_gpu_idx", "max_requests_in_flight_per_learner"),
        *("num_cpus_for_main_process", "num_gpus", "placement_strategy", "log_level", "log_sys_usage", "log_gradients"),
        *("logger_config", "logger_creator", "stats_cls_lookup", "simple_optimizer"),
        *("evaluation_interval", "evaluation_duration", "custom_evaluation_function"),
        *("restart_failed_env_runners", "ignore_env_runner_failures", "max_num_env_runner_restarts"),
        *("delay_between_env_runner_restarts_s", "num_consecutive_env_runner_failures_tolerance"),
        *("env_runner_health_probe_timeout_s", "env_runner_restore_timeout_s"),
    }
)
"""RLlib's settings that take effect, beside those of callbacks."""
_MADE = ("env", "env_config", "policies", "policy_mapping_fn", "policies_to_train", "_rl_module_spec")
UNREFUSED = frozenset(
    {
        *("_learner_class", "_validate_config", "_use_msgpack_checkpoints"),  # these act
        *("_is_atari", "_is_online", "_is_frozen", "_per_module_overrides"),  # RLlib's own notes
    }
)
"""RLlib's attributes beginning with "_" that may change: its methods write settings under other names than their arguments."""
_WORLD = (
    "leave it out: the game itself plays dialogues side by side, and no environment is stepped. For another reward override "
    "DialogueReinforce.rewards; an environment of your own trains under PPO (docs/environments.md)"
)
_WHO = "name the learner and its opponents in dialogues(roster=...)"
_BATCH = "set dialogues(reinforce=ReinforceConfig(dialogues_per_update=...))"
_HOW = {
    "env": _WORLD,
    "env_config": _WORLD,
    "policies": _WHO,
    "policy_mapping_fn": _WHO,
    "policies_to_train": _WHO,
    "_rl_module_spec": _WHO,
    "gamma": "set dialogues(reinforce=ReinforceConfig(gamma=...))",
    "explore": "set dialogues(reinforce=ReinforceConfig(temperature=...))",
    "seed": "set dialogues(seed=...)",
    "train_batch_size": _BATCH,
    "_train_batch_size_per_learner": _BATCH,
    "_model_config": "leave it out: networks are those of the roster's checkpoints, and reinforce holds the temperature",
    "evaluation_duration_unit": "set evaluation_duration to a number of dialogues",
    "evaluation_num_env_runners": "set num_env_runners: they play the dialogues of evaluations too",
}


def environment_settings(config: Any) -> dict[str, Any]:
    """Return the settings of environment, agents and modules in a comparable form, by name."""
    mapping, spec = config.policy_mapping_fn, config._rl_module_spec
    modules = spec.rl_module_specs if isinstance(spec, MultiRLModuleSpec) else {}
    settings = {
        "policies": sorted(config.policies),
        "policy_mapping_fn": (mapping.func.__name__, mapping.args) if isinstance(mapping, partial) else mapping,
        "_rl_module_spec": {
            name: (spec_of_module.module_class, spec_of_module.model_config) for name, spec_of_module in modules.items()
        },
        "env_config": dict(config.env_config),
    }
    return {name: settings.get(name, getattr(config, name)) for name in _MADE}


def require_acting(config: Any, made: Mapping[str, Any]) -> None:
    """Raise an error for settings that would be ignored.

    Args:
        config: a configuration of `DialogueReinforce`.
        made: its `environment_settings` after `dialogues()`.

    Raises:
        ConfigError: a setting differs from RLlib's default (or from what `dialogues()` made) and does nothing here.
    """
    plain, unchanged = AlgorithmConfig(), type(config)(algo_class=config.algo_class)
    names = [name for name in vars(plain) if not name.startswith("callbacks_") and name not in (*ACTING, *UNREFUSED, *_MADE)]
    changed = [name for name, value in environment_settings(config).items() if value != made[name]]
    changed += [name for name in names if getattr(config, name) != getattr(unchanged, name)]
    for name in changed:
        fix = _HOW.get(name, "leave it out")
        what = f"DialogueReinforce does not read the setting {name.strip('_')}"
        raise ConfigError(what, got=_short(getattr(config, name)), fix=fix)
    if not isinstance(config.evaluation_duration, int):
        got = f"evaluation_duration={config.evaluation_duration!r}"
        raise ConfigError("an evaluation has a number of dialogues", got=got, fix=_HOW["evaluation_duration_unit"])


def episode_results(played: Mapping[str, Any], rewards_N: np.ndarray, role: str) -> dict[Any, float]:
    """Return the results of dialogues by RLlib's names; a return is the learner's reward, a length counts utterances.

    Args:
        played: the columns of `runner.py`.
        rewards_N: rewards of the learner.
        role: its agent and module.
    """
    results: dict[Any, float] = {
        rllib.EPISODE_RETURN_MEAN: rewards_N.mean(),
        rllib.EPISODE_RETURN_MIN: rewards_N.min(),
        rllib.EPISODE_RETURN_MAX: rewards_N.max(),
        (rllib.EPISODE_AGENT_RETURN_MEAN, role): rewards_N.mean(),
        (rllib.EPISODE_MODULE_RETURN_MEAN, role): rewards_N.mean(),
        rllib.EPISODE_LEN_MEAN: played["turns"].mean(),
        rllib.EPISODE_LEN_MIN: played["turns"].min(),
        rllib.EPISODE_LEN_MAX: played["turns"].max(),
        rllib.NUM_EPISODES: len(rewards_N),
        rllib.NUM_ENV_STEPS_SAMPLED: played["turns"].sum(),
    }
    return {name: float(value) for name, value in results.items()}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


CALLBACKS = "callbacks"
"""Name of the loggers of callbacks in RLlib's checkpoints."""


class DialogueReinforceConfig(DistributedConfig):
    """The configuration of `DialogueReinforce`; `dialogues()` holds Parley's own settings."""

    own_learner, own_module = DialogueLearner, NegotiatorModule

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or DialogueReinforce)
        self.reinforce = ReinforceConfig()
        self.roster: TrainingRoster | None = None
        self.corpus = ""
        self.data_root: Path | None = None
        self.driver: dict[str, str] = {}
        self.made: dict[str, Any] = {}
        self.env_runners(env_runner_cls=DialogueEnvRunner)

    def dialogues(
        self,
        *,
        reinforce: ReinforceConfig,
        roster: TrainingRoster,
        seed: int,
        vocabulary: Vocabulary,
        corpus: str,
        data_root: Path | None = None,
    ) -> DialogueReinforceConfig:
        """Set the learner, its opponents and the learning rule.

        Args:
            reinforce: the learning rule.
            roster: the learner and its opponents, with local checkpoints or URIs.
            seed: master seed.
            vocabulary: the vocabulary of the learner.
            corpus: name of the corpus of the supervised guard and of the self-play scenarios.
            data_root: the folder of the corpus; the usual folders if None.
        """
        self.reinforce, self.roster, self.master_seed = reinforce, roster, seed
        self.corpus, self.data_root = corpus, data_root
        # Runners and learner elsewhere compare it with theirs.
        self.driver = own_identity()
        rules = Rules(max_turns=reinforce.max_turns, complementary=reinforce.complementary)
        self.environment(
            NegotiationMultiAgentEnv,
            env_config={"vocabulary": vocabulary, "rules": rules, "reward": reinforce.reward, "seed": seed},
        )
        folders = {roster.role: roster.learner} | {
            other.name: other.checkpoint for other in roster.drawable if other.checkpoint
        }
        first = {roster.role: roster.role, AGENTS[1 - roster.side]: [*list(folders)[1:], roster.role][0]}
        # A list: from a set, the order and so the initialisation would change from process to process.
        self.multi_agent(policies=list(folders), policy_mapping_fn=partial(_module_of, first), policies_to_train=[roster.role])
        specs = {
            name: RLModuleSpec(
                module_class=NegotiatorModule, model_config={"checkpoint": folder, "temperature": reinforce.temperature}
            )
            for name, folder in folders.items()
        }
        self.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
        # Parts that are clipped by themselves are not clipped again: their sum is no longer than this.
        longest = reinforce.clip * (1 + reinforce.supervised_weight * (reinforce.clipping == "parts"))
        self.training(lr=reinforce.learning_rate, grad_clip=longest, grad_clip_by="global_norm")
        self.made = environment_settings(self)
        return self

    def validate(self) -> None:
        """Check the configuration, as RLlib does before it builds.

        Raises:
            ConfigError: `dialogues()` was not called, or a setting of RLlib's is changed that the algorithm would ignore.
        """
        if self.roster is None:
            raise ConfigError("nobody learns yet", where=type(self).__name__, fix="call dialogues(...) before build_algo()")
        # RLlib sets batch sizes of an evaluation by itself.
        if not self.in_evaluation:
            require_acting(self, self.made)
        super().validate()


def _module_of(first: dict[str, str], agent: str, *_: Any, **__: Any) -> str:
    """Return an agent's module for RLlib's own runners; Parley's runners draw opponents themselves."""
    return first[agent]


def _path(name: Any) -> tuple[str, ...]:
    return (name,) if isinstance(name, str) else name


class DialogueReinforce(DistributedAlgorithm):
    """REINFORCE over whole dialogues, one side against frozen opponents."""

    shares_learning, own_config = True, DialogueReinforceConfig

    def setup(self, config: AlgorithmConfig) -> None:
        super().setup(config)
        self.roster: TrainingRoster = config.roster
        self.role = self.roster.role
        self.baselines = {opponent.name: RunningBaseline() for opponent in self.roster.drawable}
        """Baseline of the rewards against each opponent."""
        self.draw = OpponentDraw(self.roster, config.master_seed)
        self._corpus = load_corpus(config.corpus, config.data_root)
        self._callbacks = CallbackMetrics(stats_cls_lookup=config.stats_cls_lookup)
        self._orders: dict[int, np.ndarray] = {}
        self._next: int | None = None
        """The next update without dialogues, in the middle of an iteration; None: the update of the iteration."""
        self._started: StartedSearch | None = None
        self._ahead: dict[str, Any] = {}
        self.lost: dict[int, tuple[str, str]] = {}
        """Lost dialogues of the newest iteration: the failed opponent and the reason, by index."""
        self.last: dict[str, Any] = {}
        """Figures of the newest iteration, from our own clocks (RLlib's timers are moving averages)."""

    def models(self) -> set[str]:
        """Return the models of the modules, the KL reference and the judges of opponents' filters."""
        roster: TrainingRoster = self.config.roster
        return super().models() | {roster.reference} | {other.judge for other in roster.drawable if other.judge}

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        state = super().get_state(components, not_components=not_components, **kwargs)
        if self._check_component(CALLBACKS, components, not_components):
            state[CALLBACKS] = self._callbacks.get_state()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._callbacks.set_state(state.get(CALLBACKS, {}))

    def records(self) -> dict[str, Any]:
        """Return the baselines, and the share of wins of each opponent."""
        return {"baselines": {name: vars(baseline) for name, baseline in self.baselines.items()}, "wins": self.draw.wins}

    def restore_records(self, records: Mapping[str, Any]) -> None:
        self.baselines = {name: RunningBaseline(**record) for name, record in records["baselines"].items()}
        self.draw.restore(records["wins"])

    def rewards(self, played: dict[str, Any]) -> np.ndarray:
        """Return the learner's reward for each dialogue, (N,) float64.

        Args:
            played: the columns of `runner.py`, in order of index, and `opponent`, the names of the opponents.
        """
        points = played["points"].astype(np.float64)
        kinds = {opponent.name: opponent.reward for opponent in self.roster.drawable}
        relative = np.array([kinds[name] == "advantage" for name in played["opponent"]])
        return points[:, 0] - relative * points[:, 1] - played["forced"] * self.config.reinforce.stalling_penalty

    def training_step(self) -> None:
        """Run one iteration: play, reward, learn, and send the new weights to the runners.

        Raises:
            DivergenceError: the gradient is not finite.
            ClusterError: env runners keep failing; a `LearnerLostError` when the learner's actor is gone.
        """
        started = time.monotonic()
        settings, role = self.config.reinforce, self.roster.role
        size = settings.dialogues_per_update
        played = self._played(self.training_iteration)
        self._next = self.training_iteration + 1
        opponents, num_played, self.lost = played["opponent"], len(played["index"]), played["lost"]
        sampled = time.monotonic()
        rewards = self.rewards(played)
        self.draw.note(opponents, played["points"][:, 1] - played["points"][:, 0])
        if settings.overlap:
            self.send_weights([role])
            self._started = self.begin(self._items(self._next)) if self._next < settings.updates else None
        returns = discounted_returns(played["own"], self._centered(opponents, rewards), settings.gamma)
        rows = SampleBatch(training_rows(played, returns, self._corpus_batch()))
        batch = MultiAgentBatch({role: rows}, env_steps=int(played["turns"].sum()))
        learned = self.learner_group.update(batch=batch, timesteps=self.timesteps(size))
        self.metrics.aggregate(learned, key=LEARNER_RESULTS)
        updated = time.monotonic()
        if not settings.overlap:
            self.send_weights([role])
        finished = time.monotonic()
        self.last = {
            "reward": float(rewards.mean()),
            **self._outcomes(played, np.array(opponents)),
            "dialogues": num_played,
            "lost": size - num_played,
            "seconds": finished - started,
            "seconds_sampling": sampled - started,
            "seconds_networks_speaking": played["network_seconds"],
            "seconds_learning": updated - sampled,
            "seconds_syncing": finished - updated,
        }
        for name, value in (self.last | episode_results(played, rewards, role)).items():
            self.metrics.log_value((ENV_RUNNER_RESULTS, *_path(name)), value, window=1)
        for name, value in ((NUM_ENV_STEPS_SAMPLED_LIFETIME, played["turns"].sum()), (NUM_EPISODES_LIFETIME, num_played)):
            self.metrics.log_value((ENV_RUNNER_RESULTS, name), int(value), reduce="lifetime_sum")

    @classmethod
    def _should_create_evaluation_env_runners(cls, eval_config: AlgorithmConfig) -> bool:
        """Return False: the runners of the training play evaluations too."""
        return False

    def _evaluate_on_local_env_runner(self, env_runner: Any) -> tuple[None, int, int, list[Any]]:
        """Play `evaluation_duration` dialogues on all runners, the same ones each time; RLlib's `evaluate` calls this.

        Their indices are negative, so no training dialogue is among them; opponents take turns.
        """
        results = (EVALUATION_RESULTS, ENV_RUNNER_RESULTS)
        met = [opponent.name for opponent in self.roster.drawable]
        indices = range(-self.config.evaluation_duration, 0)
        opponents = [met[index % len(met)] for index in indices]
        if self.config.reinforce.overlap:
            # Runners are one update behind, or play the dialogues of the next update.
            self.ahead()
            self.send_weights([self.roster.role])
        played = self._play(self._with_scenarios(indices, opponents), results=results)
        rewards = self.rewards(played)
        logger = MetricsLogger(root=False)
        figures = self._outcomes(played, np.array(played["opponent"])) | episode_results(played, rewards, self.roster.role)
        for name, value in figures.items():
            logger.log_value(_path(name), value, window=1)
        self.metrics.aggregate([logger.reduce()], key=results)
        steps = int(played["turns"].sum())
        return None, steps, steps, []

    def _centered(self, opponents: list[str], rewards_N: np.ndarray) -> np.ndarray:
        centered, names = np.empty(len(rewards_N)), np.array(opponents)
        for name in dict.fromkeys(opponents):
            met = names == name
            centered[met] = self.baselines[name].center(rewards_N[met], self.config.reinforce.scaling)
        return centered

    def _outcomes(self, played: dict[str, Any], names: np.ndarray) -> dict[str, float]:
        """Return means over the dialogues of an update; those with an ordinary partner count separately."""
        ordinary = np.isin(names, [opponent.name for opponent in self.roster.drawable if opponent.ordinary])
        main = ~ordinary
        by_side = played["points"][:, [self.roster.side, 1 - self.roster.side]]
        figures = {
            "advantage": (by_side[:, 0] - by_side[:, 1])[main].mean(),
            "score_adversary": by_side[main, 0].mean(),
            "score_target": by_side[main, 1].mean(),
            "agreement": played["agreed"][main].mean(),
            "turns": played["turns"].mean(),
            "forced": played["forced"].mean(),
        }
        if ordinary.any():
            figures["plain_score"] = played["points"][ordinary, 0].mean()
            figures["plain_agreement"] = played["agreed"][ordinary].mean()
        return {name: float(value) for name, value in figures.items()}

    def ahead(self) -> dict[str, np.ndarray]:
        """Play and return the next update's dialogues if they overlap, so that newer weights do not play them again."""
        number = self.training_iteration if self._next is None else self._next
        if not self.config.reinforce.overlap or number >= self.config.reinforce.updates:
            return {}
        self._ahead = self._played(number)
        return {name: self._ahead[name] for name in COLUMNS}

    def restore_ahead(self, columns: Mapping[str, np.ndarray]) -> None:
        self._ahead, self._started, self._next = dict(columns), None, None

    def _played(self, number: int) -> dict[str, Any]:
        """Return an update's dialogues in the form of `_play`, and play them if necessary."""
        items = self._items(number)
        played, self._ahead = self._ahead, {}
        started, self._started = self._started, None
        if not played:
            return self._play(items, started)
        # A restored training does not know the reasons of lost dialogues.
        here = played["index"].tolist()
        lost = {index: (items[index][2], "not known any more") for index in items.keys() - set(here)}
        return {"lost": lost, "network_seconds": 0.0, **played, "opponent": [items[index][2] for index in here]}

    def _items(self, number: int) -> dict[int, tuple[int, Scenario, str]]:
        size = self.config.reinforce.dialogues_per_update
        return self._with_scenarios(range(number * size, (number + 1) * size), self.draw.names(number, size))

    def _with_scenarios(self, indices: Sequence[int], opponents: Sequence[str]) -> dict[int, tuple[int, Scenario, str]]:
        return {index: (index, self._scenario(index), name) for index, name in zip(indices, opponents, strict=True)}

    def _play(
        self,
        items: Mapping[int, tuple[int, Scenario, str]],
        started: StartedSearch | None = None,
        results: tuple[str, ...] = (ENV_RUNNER_RESULTS,),
    ) -> dict[str, Any]:
        """Play dialogues and return the finished ones in order of index; callbacks log to `results`."""
        done = self.gather(items, started)
        opponents = {index: name for index, (_, _, name) in items.items()}
        lost = {index: (opponents[index], reason) for part in done for index, reason in part["lost"].items()}
        require_enough(lost, opponents, self.config.reinforce.max_lost)
        if logged := [call for part in done for call in part["logged"]]:
            self.metrics.aggregate([self._callbacks.reduced("/".join(results), logged)], key=results)
        done = [part for part in done if len(part["index"])]
        # Runners play at the same time: the slowest one decides.
        slowest = max(done, key=lambda part: float(part["seconds"]))
        played = merged(done)
        met = [opponents[index] for index in played["index"].tolist()]
        return {**played, "opponent": met, "lost": lost, "network_seconds": slowest["network_seconds"]}

    def _scenario(self, index: int) -> Scenario:
        """Return the scenario of a dialogue; self-play scenarios come in endless passes, each with its own order."""
        seed, fixed = self.config.master_seed, self._corpus.selfplay
        if self.config.reinforce.scenarios == "random":
            return self.config.env_config["vocabulary"].domain.random_scenario(stream(seed, "training scenario", index))
        turn, position = divmod(index, len(fixed))
        if turn not in self._orders:
            self._orders = {turn: stream(seed, "scenario order", turn).permutation(len(fixed))}
        return fixed[int(self._orders[turn][position])]

    def _corpus_batch(self) -> NegotiationBatch | None:
        settings, corpus = self.config.reinforce, self._corpus.splits["train"]
        if settings.supervised_weight == 0:
            return None
        draws = stream(self.config.master_seed, "supervised", self.training_iteration)
        return make_batch(corpus, draws.choice(len(corpus), size=min(settings.supervised_batch, len(corpus)), replace=False))
