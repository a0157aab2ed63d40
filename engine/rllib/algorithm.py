"""Training one side against frozen opponents as an RLlib algorithm (new API stack).

An iteration plays `dialogues_per_update` dialogues on the env runners, turns rewards into returns, mixes in corpus
dialogues, and makes one update. Which side learns and whom it meets is a `TrainingRoster`: an adversary against its
target, or a target against a population of adversaries and an ordinary partner.

Iteration i plays dialogues i * D .. (i + 1) * D - 1 whoever plays them; a runner that dies costs a replay of its share, and
an update is never made on fewer dialogues than configured, nor on dialogues of a runner with old weights. For another
reward, override `DialogueReinforce.rewards` and name the class in `DialogueReinforceConfig(algo_class=...)`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, LEARNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME

from engine.negotiation.opponents import OpponentDraw, TrainingRoster
from engine.negotiation.reinforce import RunningBaseline, discounted_returns
from engine.negotiation.settings import ReinforceConfig
from engine.rllib.env import AGENTS, NegotiationMultiAgentEnv
from engine.rllib.learner import DialogueLearner
from engine.rllib.learner_group import DialogueLearnerGroup, learner_errors
from engine.rllib.module import NegotiatorModule
from engine.rllib.rows import merged, training_rows
from engine.rllib.runner import DialogueEnvRunner
from engine.rllib.shared_out import SharedOutAlgorithm
from engine.runtime.identity import own_identity
from envs.core.seeds import stream
from envs.negotiation.corpora.compiled import load_corpus
from envs.negotiation.game import Rules
from envs.negotiation.scenario import Scenario, random_scenario
from envs.negotiation.vocabulary import Vocabulary
from policies.negotiator.batches import NegotiationBatch, make_batch


class DialogueReinforceConfig(AlgorithmConfig):
    """Configuration of `DialogueReinforce`; `dialogues()` holds what is ours."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or DialogueReinforce)
        self.reinforce = ReinforceConfig()
        self.roster: TrainingRoster | None = None
        self.master_seed = 0
        self.corpus = ""
        self.data_root: Path | None = None
        self.driver: dict[str, str] = {}
        # Every dialogue is seeded by itself; RLlib's own seeding replays seeds, and its checker seeds all envs alike.
        self.disable_env_checking = True
        # Its thread measures the machine for results that nobody reads, and sleeps on while an algorithm stops.
        self.debugging(log_sys_usage=False)
        self.env_runners(env_runner_cls=DialogueEnvRunner, num_env_runners=0)
        self.learners(num_learners=0)

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
        """Sets who learns, against whom, and how.

        Args:
            reinforce: the learning rule.
            roster: who learns, and whom it meets; its checkpoints must be visible to every runner.
            seed: master seed.
            vocabulary: of all checkpoints.
            corpus: name of the corpus of the supervised guard and of the self-play scenarios.
            data_root: where the corpus lies; the usual places when not given.
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
        first = {roster.role: roster.role, AGENTS[1 - roster.side]: roster.met[0].name}
        folders = {roster.role: roster.learner} | {other.name: other.checkpoint for other in roster.met}
        # A list: from a set, the order and so the initialisation would change from process to process.
        self.multi_agent(
            policies=list(folders),
            policy_mapping_fn=partial(_module_of, first),
            policies_to_train=[roster.role],
        )
        specs = {
            name: RLModuleSpec(
                module_class=NegotiatorModule, model_config={"checkpoint": folder, "temperature": reinforce.temperature}
            )
            for name, folder in folders.items()
        }
        self.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
        self.training(lr=reinforce.learning_rate, grad_clip=reinforce.clip, grad_clip_by="global_norm")
        return self

    def get_default_learner_class(self) -> type:
        """`DialogueLearner`."""
        return DialogueLearner

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """A `NegotiatorModule`; its checkpoint is named in `dialogues()`."""
        return RLModuleSpec(module_class=NegotiatorModule)

    def build_learner_group(
        self, *, env: Any = None, spaces: Any = None, rl_module_spec: Any = None, placement_group: Any = None
    ) -> DialogueLearnerGroup:
        """The learner, in this process or an actor of its own.

        Raises:
            LearnerLostError: its actor died before it was ready.
        """
        spec = rl_module_spec or self.get_multi_rl_module_spec(env=env, spaces=spaces)
        with learner_errors():
            return DialogueLearnerGroup(config=self.copy(), module_spec=spec, placement_group=placement_group)


def _module_of(first: dict[str, str], agent: str, *_: Any, **__: Any) -> str:
    """Asked by RLlib's own runners alone; ours draws opponents by itself."""
    return first[agent]


class DialogueReinforce(SharedOutAlgorithm):
    """REINFORCE over whole dialogues, one side against frozen opponents."""

    @classmethod
    def get_default_config(cls) -> DialogueReinforceConfig:
        """A configuration that still needs `dialogues()`."""
        return DialogueReinforceConfig(algo_class=cls)

    def setup(self, config: AlgorithmConfig) -> None:
        """Builds runners and learner, then opens the corpus."""
        super().setup(config)
        self.roster: TrainingRoster = config.roster
        self.role = self.roster.role
        self.baselines = {opponent.name: RunningBaseline() for opponent in self.roster.met}
        """Of the rewards against each opponent: what is usual differs between them."""
        self.draw = OpponentDraw(self.roster, config.master_seed)
        self._corpus = load_corpus(config.corpus, config.data_root)
        self._orders: dict[int, np.ndarray] = {}
        self.last: dict[str, Any] = {}
        """Figures of the newest iteration, from our own clocks (RLlib's timers are moving averages)."""

    def records(self) -> dict[str, Any]:
        """The baselines, and how often each opponent won."""
        return {"baselines": {name: vars(baseline) for name, baseline in self.baselines.items()}, "wins": self.draw.wins}

    def restore_records(self, records: Mapping[str, Any]) -> None:
        """See `ExactAlgorithm`."""
        self.baselines = {name: RunningBaseline(**record) for name, record in records["baselines"].items()}
        self.draw.restore(records["wins"])

    def rewards(self, played: dict[str, Any]) -> np.ndarray:
        """What the learner gets for each dialogue, (N,) float64.

        Args:
            played: the columns of `rows.py`, in order of index, and `opponent`, the name of whom each was played with.
        """
        points = played["points"].astype(np.float64)
        kinds = {opponent.name: opponent.reward for opponent in self.roster.met}
        relative = np.array([kinds[name] == "advantage" for name in played["opponent"]])
        return points[:, 0] - relative * points[:, 1] - played["forced"] * self.config.reinforce.stalling_penalty

    def training_step(self) -> None:
        """One iteration: play, reward, learn, hand the new weights to the runners.

        Raises:
            DivergenceError: the gradient is not finite.
            ClusterError: env runners keep failing; a `LearnerLostError` when the learner's actor is gone.
        """
        started = time.monotonic()
        settings, role = self.config.reinforce, self.roster.role
        size = settings.dialogues_per_update
        first = self.training_iteration * size
        opponents = self.draw.names(self.training_iteration, size)
        played = self._play(dict(zip(range(first, first + size), opponents, strict=True)))
        played["opponent"] = opponents
        sampled = time.monotonic()
        rewards = self.rewards(played)
        self.draw.note(opponents, played["points"][:, 1] - played["points"][:, 0])
        returns = discounted_returns(played["own"], self._centered(opponents, rewards), settings.gamma)
        rows = SampleBatch(training_rows(played, returns, self._corpus_batch()))
        batch = MultiAgentBatch({role: rows}, env_steps=int(played["turns"].sum()))
        steps = {NUM_ENV_STEPS_SAMPLED_LIFETIME: (self.training_iteration + 1) * size}
        learned = self.learner_group.update(batch=batch, timesteps=steps)
        self.metrics.aggregate(learned, key=LEARNER_RESULTS)
        updated = time.monotonic()
        self.send_weights([role])
        finished = time.monotonic()
        self.last = {
            "reward": float(rewards.mean()),
            **self._outcomes(played, np.array(opponents)),
            "dialogues": size,
            "seconds": finished - started,
            "seconds_sampling": sampled - started,
            "seconds_networks_speaking": played["network_seconds"],
            "seconds_learning": updated - sampled,
            "seconds_syncing": finished - updated,
        }
        for name, value in self.last.items():
            self.metrics.log_value((ENV_RUNNER_RESULTS, name), value, window=1)

    def _centered(self, opponents: list[str], rewards_N: np.ndarray) -> np.ndarray:
        """Rewards (N,) less what is usual against each opponent."""
        centered, names = np.empty(len(rewards_N)), np.array(opponents)
        for name in dict.fromkeys(opponents):
            met = names == name
            centered[met] = self.baselines[name].center(rewards_N[met], self.config.reinforce.scaling)
        return centered

    def _outcomes(self, played: dict[str, Any], names: np.ndarray) -> dict[str, float]:
        """Means over the dialogues of an update; those with an ordinary partner beside adversaries count apart."""
        ordinary = np.isin(names, [opponent.name for opponent in self.roster.met if opponent.ordinary])
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

    def _play(self, opponents: dict[int, str]) -> dict[str, Any]:
        """Plays dialogues, by index with whom, and returns them in order of index."""
        done = self.gather({index: (index, self._scenario(index), name) for index, name in opponents.items()})
        # Runners play at the same time: the slowest one decides.
        slowest = max(done, key=lambda part: float(part["seconds"]))
        return {**merged(done), "network_seconds": slowest["network_seconds"]}

    def _scenario(self, index: int) -> Scenario:
        """The scenario of a dialogue; self-play scenarios come in endless passes, each in an order of its own."""
        seed, fixed = self.config.master_seed, self._corpus.selfplay
        if self.config.reinforce.scenarios == "random":
            return random_scenario(stream(seed, "training scenario", index))
        turn, place = divmod(index, len(fixed))
        if turn not in self._orders:
            self._orders = {turn: stream(seed, "scenario order", turn).permutation(len(fixed))}
        return fixed[int(self._orders[turn][place])]

    def _corpus_batch(self) -> NegotiationBatch | None:
        settings, corpus = self.config.reinforce, self._corpus.splits["train"]
        if settings.supervised_weight == 0:
            return None
        draws = stream(self.config.master_seed, "supervised", self.training_iteration)
        return make_batch(corpus, draws.choice(len(corpus), size=min(settings.supervised_batch, len(corpus)), replace=False))
