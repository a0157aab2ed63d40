"""RLlib's own PPO learns to negotiate by dialogue acts: proposals, acceptance, the end, with a mask over what is legal.

As it stands it trains for seconds, to show that it runs; `--iterations 20` takes a minute or two and beats random play by far.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule
from ray.tune import register_env

from parley.envs.negotiation.acts import DialogueActs

Choose = Callable[[dict[str, np.ndarray]], int]


def negotiation(_: Any = None) -> DialogueActs:
    """Return one side of the game, against the scripted bargainer."""
    return DialogueActs(gymnasium.make("parley:parley/Negotiation-v1"))


def mean_points(choose: Choose, dialogues: int = 100) -> tuple[float, float]:
    """Measure the points of a player per dialogue, and their standard error; all players get the same dialogues."""
    env, earned = negotiation(), []
    for seed in range(dialogues):
        seen, _ = env.reset(seed=10_000 + seed)
        over = False
        while not over:
            seen, reward, over, _, _ = env.step(np.int64(choose(seen)))
        earned.append(reward)
    return float(np.mean(earned)), float(np.std(earned) / dialogues**0.5)


def trained(iterations: int, seed: int) -> Choose:
    """Train a player with PPO."""
    register_env("negotiation by acts", negotiation)
    config = (
        PPOConfig()
        .environment("negotiation by acts")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(train_batch_size_per_learner=2000, minibatch_size=250, num_epochs=8, lr=5e-4, gamma=1.0, entropy_coeff=0.01)
        .rl_module(
            rl_module_spec=RLModuleSpec(
                module_class=ActionMaskingTorchRLModule,
                model_config={"head_fcnet_hiddens": [128, 128], "head_fcnet_activation": "tanh"},
            )
        )
        .debugging(seed=seed)
    )
    algorithm = config.build_algo()
    for iteration in range(1, iterations + 1):
        results = algorithm.train()["env_runners"]
        print(f"iteration {iteration}: {results['episode_return_mean']:.2f} points a dialogue while it explores")
    module = algorithm.get_module()
    algorithm.stop()

    def likeliest(seen: dict[str, np.ndarray]) -> int:
        batch = {"obs": {key: torch.as_tensor(value)[None] for key, value in seen.items()}}
        with torch.no_grad():
            return int(module.forward_inference(batch)["action_dist_inputs"].argmax())

    return likeliest


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=2, help="updates of 2,000 moves each")
    parser.add_argument("--seed", type=int, default=0, help="of the training")
    options = parser.parse_args()
    torch.set_num_threads(1)
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    draws = np.random.default_rng(options.seed)
    players: dict[str, Choose] = {
        "random legal acts": lambda seen: int(draws.choice(np.flatnonzero(seen["action_mask"]))),
        "PPO": trained(options.iterations, options.seed),
    }
    for name, choose in players.items():
        points, error = mean_points(choose)
        print(f"{name}: {points:.2f} points a dialogue, standard error {error:.2f}")
