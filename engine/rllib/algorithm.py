"""Training one side against a frozen partner as an RLlib algorithm (new API stack).

An iteration plays `dialogues_per_update` dialogues on the env runners, turns rewards into returns, mixes in corpus
dialogues, and makes one update. Iteration i plays dialogues i * D .. (i + 1) * D - 1 whoever plays them; a runner that
dies costs a replay of its share, and an update is never made on fewer dialogues than configured, nor on dialogues of a
runner with old weights. For another reward, override `DialogueReinforce.rewards` and name the class in
`DialogueReinforceConfig(algo_class=...)`.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, LEARNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME

from engine.attacks.reinforce import RunningBaseline, discounted_returns
from engine.attacks.settings import ReinforceConfig
from engine.rllib.env import ADVERSARY, AGENTS, NegotiationMultiAgentEnv
from engine.rllib.learner import DialogueLearner
from engine.rllib.module import NegotiatorModule
from engine.rllib.runner import DialogueEnvRunner
from envs.core.errors import ClusterError
from envs.core.seeds import stream
from envs.data.compiled import load_corpus
from envs.data.vocabulary import PAD_ID, Vocabulary
from envs.negotiation.game import Rules
from envs.negotiation.scenario import Scenario, random_scenario
from policies.negotiator.batches import Batch, make_batch

MAX_REPLAYS = 5
"""Times the missing dialogues of one iteration are played again before giving up."""


class DialogueReinforceConfig(AlgorithmConfig):
    """Configuration of `DialogueReinforce`; `dialogues()` holds what is ours."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or DialogueReinforce)
        self.reinforce = ReinforceConfig()
        self.master_seed = 0
        self.start_checkpoint = ""
        self.corpus = ""
        self.data_root: Path | None = None
        # Every dialogue is seeded by itself; RLlib's own seeding replays seeds, and its checker seeds all envs alike.
        self.disable_env_checking = True
        self.env_runners(env_runner_cls=DialogueEnvRunner, num_env_runners=0)
        self.learners(num_learners=0)

    def dialogues(
        self,
        *,
        reinforce: ReinforceConfig,
        seed: int,
        learner: str,
        partner: str,
        vocabulary: Vocabulary,
        corpus: str,
        data_root: Path | None = None,
    ) -> DialogueReinforceConfig:
        """Sets who learns, against whom, and how.

        Args:
            reinforce: the learning rule.
            seed: master seed.
            learner: checkpoint folder that the learner starts from; also the reference of the KL guard.
            partner: checkpoint folder of the frozen partner.
            vocabulary: of both checkpoints.
            corpus: name of the corpus of the supervised guard and of the self-play scenarios.
            data_root: where the corpus lies; the usual places when not given.
        """
        self.reinforce, self.master_seed, self.start_checkpoint = reinforce, seed, learner
        self.corpus, self.data_root = corpus, data_root
        rules = Rules(max_turns=reinforce.max_turns, complementary=reinforce.complementary)
        self.environment(
            NegotiationMultiAgentEnv,
            env_config={"vocabulary": vocabulary, "rules": rules, "reward": reinforce.reward, "seed": seed},
        )
        self.multi_agent(policies=list(AGENTS), policy_mapping_fn=_seat_of, policies_to_train=[ADVERSARY])
        specs = {
            seat: RLModuleSpec(
                module_class=NegotiatorModule,
                model_config={"checkpoint": folder, "temperature": reinforce.temperature},
            )
            for seat, folder in zip(AGENTS, (learner, partner), strict=True)
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


def _seat_of(agent: str, *_: Any, **__: Any) -> str:
    return agent


class DialogueReinforce(Algorithm):
    """REINFORCE over whole dialogues, the side "adversary" against a frozen "target"."""

    @classmethod
    def get_default_config(cls) -> DialogueReinforceConfig:
        """A configuration that still needs `dialogues()`."""
        return DialogueReinforceConfig(algo_class=cls)

    def setup(self, config: AlgorithmConfig) -> None:
        """Builds runners and learner, then opens the corpus."""
        super().setup(config)
        self.baseline = RunningBaseline()
        self._corpus = load_corpus(config.corpus, config.data_root)
        self._orders: dict[int, np.ndarray] = {}
        self.last: dict[str, Any] = {}
        """Figures of the newest iteration, from our own clocks (RLlib's timers are moving averages)."""

    def rewards(self, played: dict[str, Any]) -> np.ndarray:
        """What the learner gets for each dialogue, (N,) float64.

        Args:
            played: the columns that `DialogueEnvRunner.sample` returns, in order of index.
        """
        points = played["points"].astype(np.float64)
        return points[:, 0] - points[:, 1] if self.config.reinforce.reward == "advantage" else points[:, 0]

    def training_step(self) -> None:
        """One iteration: play, reward, learn, hand the new weights to the runners."""
        started = time.monotonic()
        settings = self.config.reinforce
        size = settings.dialogues_per_update
        first = self.training_iteration * size
        played = self._play(range(first, first + size))
        sampled = time.monotonic()
        rewards = self.rewards(played)
        centered = self.baseline.center(rewards, settings.scaling)
        returns = discounted_returns(played["own"], centered, settings.gamma)
        rows = SampleBatch(_rows(played, returns, self._corpus_batch()))
        batch = MultiAgentBatch({ADVERSARY: rows}, env_steps=int(played["turns"].sum()))
        steps = {NUM_ENV_STEPS_SAMPLED_LIFETIME: (self.training_iteration + 1) * size}
        learned = self.learner_group.update(batch=batch, timesteps=steps)
        self.metrics.aggregate(learned, key=LEARNER_RESULTS)
        updated = time.monotonic()
        self._send_weights([ADVERSARY])
        finished = time.monotonic()
        self.last = {
            "reward": float(rewards.mean()),
            "advantage": float((played["points"][:, 0] - played["points"][:, 1]).mean()),
            "score_adversary": float(played["points"][:, 0].mean()),
            "score_target": float(played["points"][:, 1].mean()),
            "agreement": float(played["agreed"].mean()),
            "turns": float(played["turns"].mean()),
            "forced": float(played["forced"].mean()),
            "dialogues": size,
            "seconds": finished - started,
            "seconds_sampling": sampled - started,
            "seconds_networks_speaking": played["network_seconds"],
            "seconds_learning": updated - sampled,
            "seconds_syncing": finished - updated,
        }
        for name, value in self.last.items():
            self.metrics.log_value((ENV_RUNNER_RESULTS, name), value, window=1)

    def _play(self, indices: range) -> dict[str, Any]:
        """Plays the dialogues of those indices on whatever runners are alive, and returns them in order of index."""
        done: list[dict[str, Any]] = []
        missing = list(indices)
        for _ in range(MAX_REPLAYS):
            # A runner that died and was restarted unnoticed speaks with the weights that training started from.
            done += [part for part in self._dispatch(missing) if part["weights"] == self.env_runner.weights_seq_no()]
            here = {int(index) for part in done for index in part["index"]}
            missing = [index for index in indices if index not in here]
            if not missing:
                return _merge(done)
            self.restore_env_runners(self.env_runner_group)
            self._send_weights()
        raise ClusterError(
            "env runners keep failing",
            got=f"{len(missing)} of {len(indices)} dialogues unplayed after {MAX_REPLAYS} attempts",
            fix="read the workers' logs, or train with fewer env runners",
        )

    def _dispatch(self, indices: list[int]) -> list[dict[str, Any]]:
        group = self.env_runner_group
        dealt = [(index, self._scenario(index)) for index in indices]
        workers = group.healthy_worker_ids() if group.num_remote_workers() else []
        if not workers:
            return [self.env_runner.sample(dealt=dealt)]
        shares = [dealt[place :: len(workers)] for place in range(len(workers))]
        busy = [(worker, share) for worker, share in zip(workers, shares, strict=True) if share]
        parts = group.foreach_env_runner(
            [partial(_sample, dealt=share) for _, share in busy],
            local_env_runner=False,
            remote_worker_ids=[worker for worker, _ in busy],
        )
        for part in parts:
            if isinstance(part, Exception):
                raise part
        return parts

    def _send_weights(self, seats: list[str] | None = None) -> None:
        """Puts the learner's weights, of all seats or some, into every runner with older ones."""
        self.env_runner_group.sync_weights(
            from_worker_or_learner_group=self.learner_group, policies=seats, inference_only=True, timeout_seconds=None
        )

    def _scenario(self, index: int) -> Scenario:
        """The scenario of a dialogue; self-play scenarios come in endless passes, each in an order of its own."""
        seed, fixed = self.config.master_seed, self._corpus.selfplay
        if self.config.reinforce.scenarios == "random":
            return random_scenario(stream(seed, "training scenario", index))
        turn, place = divmod(index, len(fixed))
        if turn not in self._orders:
            self._orders = {turn: stream(seed, "scenario order", turn).permutation(len(fixed))}
        return fixed[int(self._orders[turn][place])]

    def _corpus_batch(self) -> Batch | None:
        settings, corpus = self.config.reinforce, self._corpus.splits["train"]
        if settings.supervised_weight == 0:
            return None
        draws = stream(self.config.master_seed, "supervised", self.training_iteration)
        return make_batch(corpus, draws.choice(len(corpus), size=min(settings.supervised_batch, len(corpus)), replace=False))


def _sample(runner: DialogueEnvRunner, dealt: list[tuple[int, Scenario]]) -> dict[str, Any] | Exception:
    """The runner's dialogues, or what went wrong: raised there, RLlib would let the runner sleep, die and try for ever."""
    try:
        return runner.sample(dealt=dealt)
    except Exception as error:
        return error


def _merge(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Rows of several runners as one, in order of index, padded alike."""
    width = max(part["tokens"].shape[1] for part in parts)
    order = np.argsort(np.concatenate([part["index"] for part in parts]), kind="stable")

    def column(name: str) -> np.ndarray:
        fill = PAD_ID if name == "tokens" else 0
        padded = [
            np.pad(part[name], [(0, 0), (0, width - part[name].shape[1])], constant_values=fill)
            if name in ("tokens", "own")
            else part[name]
            for part in parts
        ]
        return np.concatenate(padded)[order]

    names = ("index", "contexts", "tokens", "lengths", "own", "points", "agreed", "turns", "forced")
    merged: dict[str, Any] = {name: column(name) for name in names}
    # Runners play at the same time: the slowest one decides.
    slowest = max(parts, key=lambda part: part["seconds"])
    return {**merged, "network_seconds": slowest["network_seconds"]}


def _rows(played: dict[str, Any], returns: np.ndarray, corpus: Batch | None) -> dict[str, np.ndarray]:
    """Columns of a training batch (see `module.py`): dialogues just played, then corpus dialogues."""
    size = len(played["lengths"])
    extra = 0 if corpus is None else len(corpus.lengths_B)
    width = max(played["tokens"].shape[1], 0 if corpus is None else corpus.tokens_BT.shape[1])
    tokens = np.full((size + extra, width), PAD_ID, dtype=np.int64)
    own = np.zeros((size + extra, width), dtype=bool)
    weights = np.zeros((size + extra, width), dtype=np.float32)
    outputs = np.zeros((size + extra, 6), dtype=np.int64)
    tokens[:size, : played["tokens"].shape[1]] = played["tokens"]
    own[:size, : played["own"].shape[1]] = played["own"]
    weights[:size, : returns.shape[1]] = returns
    contexts, lengths = played["contexts"], played["lengths"]
    if corpus is not None:
        tokens[size:, : corpus.tokens_BT.shape[1]] = corpus.tokens_BT.numpy()
        outputs[size:] = corpus.outputs_B6.numpy()
        contexts = np.concatenate([contexts, corpus.contexts_B6.numpy()])
        lengths = np.concatenate([lengths, corpus.lengths_B.numpy()])
    return {
        "contexts": contexts,
        "tokens": tokens,
        "lengths": lengths,
        "own": own,
        "returns": weights,
        "supervised": np.arange(size + extra) >= size,
        "outputs": outputs,
    }
