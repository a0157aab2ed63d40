"""Stock learners negotiate by dialogue acts: a PPO loop of 50 lines, Stable-Baselines3, RLlib. Each becomes an agent.

As it stands a plain loop trains for seconds, to show that it runs; `--learner rllib --timesteps 40000` takes some minutes.
Stable-Baselines3 is no part of Parley: `pip install stable-baselines3 sb3-contrib` brings `sb3` and `sb3-masked`.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

import parley
from parley.envs.negotiation.agents import as_agent
from parley.envs.negotiation.game import Agent, NegotiationGame, play
from parley.envs.negotiation.scripted.wording import bargainer_vocabulary

ENVIRONMENT = "parley:parley/NegotiationActs-v1"


class ActorCritic(nn.Module):
    """Two layers to one logit for each act, and two to a value."""

    def __init__(self, num_inputs: int, num_acts: int) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(num_inputs, 128), nn.Tanh(), nn.Linear(128, num_acts))
        self.critic = nn.Sequential(nn.Linear(num_inputs, 128), nn.Tanh(), nn.Linear(128, 1))

    def forward(self, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits (n, acts) and values (n,)."""
        return self.actor(seen), self.critic(seen)[:, 0]


def plain_loop(timesteps: int, seed: int, envs: int = 8, steps: int = 250) -> nn.Module:
    """Train by PPO as a script writes it: rollouts of one vector environment, and clipped updates; no mask."""
    torch.manual_seed(seed)
    vector = gymnasium.make_vec(ENVIRONMENT, num_envs=envs, vectorization_mode="sync")
    seen, _ = vector.reset(seed=envs * seed)  # gymnasium gives environment i this seed + i: no two trainings share a scenario
    net = ActorCritic(seen.shape[1], int(vector.single_action_space.n))  # type: ignore[attr-defined]
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-4)
    skipped = np.zeros(envs, dtype=bool)  # gymnasium's vector environments reset in the step after the end
    for _ in range(timesteps // (envs * steps)):
        batch: list[tuple[torch.Tensor, ...]] = []
        for _ in range(steps):
            observed = torch.as_tensor(seen)
            with torch.no_grad():
                logits, values = net(observed)
            chosen = torch.distributions.Categorical(logits=logits)
            acts = chosen.sample()
            seen, rewards, ends, cuts, _ = vector.step(acts.numpy())
            over = torch.as_tensor(ends | cuts)
            counted = torch.as_tensor(~skipped)
            rewarded = torch.as_tensor(rewards, dtype=torch.float32)
            batch.append((observed, acts, chosen.log_prob(acts), values, rewarded, over, counted))
            skipped = ends | cuts
        observed, acts, old, values, rewarded, over, counted = (torch.stack(part) for part in zip(*batch, strict=True))
        with torch.no_grad():
            following = net(torch.as_tensor(seen))[1]
        gains, gain = torch.zeros_like(rewarded), torch.zeros(envs)
        for t in reversed(range(steps)):
            going = (~over[t]).float()
            error = rewarded[t] + following * going - values[t]
            gain = error + 0.95 * going * gain
            gains[t], following = gain, values[t]
        scaled = (gains - gains[counted].mean()) / gains[counted].std()
        flat = [part[counted] for part in (observed, acts, old, scaled, gains + values)]
        for _ in range(10):
            for rows in torch.randperm(len(flat[0])).split(64):
                inputs, taken, before, advantage, target = (part[rows] for part in flat)
                logits, value = net(inputs)
                policy = torch.distributions.Categorical(logits=logits)
                ratio = (policy.log_prob(taken) - before).exp()
                surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
                loss = 0.5 * (value - target).square().mean() - surrogate - 0.01 * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                optimizer.step()
    return net


def stable_baselines(timesteps: int, seed: int, masked: bool = False) -> Any:
    """Train by PPO of Stable-Baselines3, or by MaskablePPO of sb3-contrib, at their own defaults but for gamma."""
    library, algorithm = ("sb3_contrib", "MaskablePPO") if masked else ("stable_baselines3", "PPO")
    model = getattr(importlib.import_module(library), algorithm)(
        "MlpPolicy", gymnasium.make(ENVIRONMENT), gamma=1.0, seed=seed, device="cpu"
    )
    return model.learn(timesteps)


def rllib(timesteps: int, seed: int, masked: bool = False) -> Any:
    """Train by RLlib's PPO with its default module, or with its module for masks."""
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec
    from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule

    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    layers = {"head_fcnet_hiddens": [128, 128], "head_fcnet_activation": "tanh"}
    config = (
        PPOConfig()
        .environment(ENVIRONMENT, env_config={"observations": "masked"} if masked else {})
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(train_batch_size_per_learner=2000, minibatch_size=250, num_epochs=8, lr=5e-4, gamma=1.0, entropy_coeff=0.01)
        .debugging(seed=seed)
    )
    if masked:
        config = config.rl_module(rl_module_spec=RLModuleSpec(module_class=ActionMaskingTorchRLModule, model_config=layers))
    algorithm = config.build_algo()
    for _ in range(timesteps // 2000):
        algorithm.train()
    module = algorithm.get_module()
    algorithm.stop()
    return module


LEARNERS: dict[str, Callable[[int, int], Any]] = {
    "loop": plain_loop,
    "sb3": stable_baselines,
    "sb3-masked": lambda timesteps, seed: stable_baselines(timesteps, seed, masked=True),
    "rllib": rllib,
    "rllib-masked": lambda timesteps, seed: rllib(timesteps, seed, masked=True),
}


def mean_points(agent: Agent, dialogues: int = 500) -> tuple[float, float]:
    """Measure the points of an agent per dialogue against the scripted bargainer, and their standard error."""
    words, draws = bargainer_vocabulary(), np.random.default_rng(10_000)
    scenarios = [words.domain.random_scenario(draws) for _ in range(dialogues)]
    game = play(NegotiationGame(scenarios, range(dialogues), words), (agent, as_agent("scripted")))
    return float(game.points[:, 0].mean()), float(game.points[:, 0].std() / dialogues**0.5)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learner", choices=LEARNERS, default="loop")
    parser.add_argument("--timesteps", type=int, default=4000, help="acts of training")
    parser.add_argument("--seed", type=int, default=0, help="of the training")
    options = parser.parse_args()
    torch.set_num_threads(1)
    draws = np.random.default_rng(options.seed)
    policies = {
        "random legal acts": lambda seen, mask: int(draws.choice(np.flatnonzero(mask))),
        "the first legal act": lambda seen, mask: int(mask.argmax()),
        f"{options.learner}, untrained": LEARNERS[options.learner](0, options.seed),
        options.learner: LEARNERS[options.learner](options.timesteps, options.seed),
    }
    for name, policy in policies.items():
        points, error = mean_points(parley.agent_of(policy, name=name))
        print(f"{name}: {points:.2f} points a dialogue, standard error {error:.2f}")
