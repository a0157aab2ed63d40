"""The negotiator under RLlib's own algorithms: probabilities of what it said, and an update of stock PPO."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from parley.engine.core.ray.session import RaySession
from parley.engine.negotiation.rl.env import ADVERSARY, AGENTS, TARGET, NegotiationMultiAgentEnv
from parley.engine.negotiation.rl.learner import ActorCriticNegotiator, NegotiatorModule
from parley.envs.core.errors import ConfigError
from parley.envs.negotiation.domain import PAD_ID
from parley.envs.negotiation.env import NegotiationEnv
from parley.envs.negotiation.game import SPEAK, Rules
from parley.envs.negotiation.scripted.wording import bargainer_vocabulary
from parley.policies.negotiator.speaker import load_agent, load_model
from tests.engine.core.verbs.made_up import save_negotiator
from tests.engine.negotiation.rl.trainings import World

SHORT = Rules(max_turns=6, max_words=8, max_tokens=64)
ATTACKED = replace(SHORT, complementary=True)
"""The rule of the attacks: random agents hardly ever agree otherwise."""
TEMPERATURE = 0.7


def observed(world: World) -> tuple[NegotiationEnv, list[dict[str, Any]]]:
    """An environment, and what was seen in some of its dialogues: nothing said yet, talk, choices."""
    env = NegotiationEnv(partner=load_agent(world.folder / TARGET, temperature=1.0), rules=SHORT)
    env.action_space.seed(3)
    seen = []
    for seed in range(6):
        observation, over = env.reset(seed=seed)[0], False
        while not over:
            seen.append(observation)
            observation, _, over, *_ = env.step(env.action_space.sample())
    return env, seen


def module(world: World, env: NegotiationEnv) -> ActorCriticNegotiator:
    config = {"checkpoint": str(world.folder / ADVERSARY), "temperature": TEMPERATURE}
    spec = RLModuleSpec(
        module_class=ActorCriticNegotiator,
        observation_space=env.observation_space,
        action_space=env.action_space,
        model_config=config,
    )
    made: ActorCriticNegotiator = spec.build()
    return made


def test_the_probability_of_an_utterance_is_that_of_its_words(world: World) -> None:
    env, seen = observed(world)
    critic = module(world, env)
    batch = {Columns.OBS: {key: np.stack([each[key] for each in seen]) for key in seen[0]}}
    acted = critic._forward_exploration(batch)
    net = load_model(world.folder / ADVERSARY)
    phases = set()
    for row, observation in enumerate(seen):
        said = acted[Columns.ACTIONS]["utterance"][row]
        words = said[said != PAD_ID] if observation["phase"] == SPEAK else said[:0]
        before = [*observation["tokens"][: observation["num_tokens"]], world.vocabulary.you_id]
        with torch.no_grad():
            context = net.encode_context(torch.as_tensor(observation["context"])[None])
            states = net.read(torch.tensor([[*before, *words]]), context)[0]
            logits = net.word_logits(states[len(before) - 1 : -1]) / TEMPERATURE
        logits[:, list(world.vocabulary.unspeakable_ids)] = -torch.inf
        expected = logits.log_softmax(-1)[range(len(words)), words.tolist()].sum()
        assert acted[Columns.ACTION_LOGP][row] == pytest.approx(float(expected), abs=1e-4)
        phases.add((int(observation["phase"]), len(before) > 1))
    assert len(phases) >= 3
    again = critic._forward_train({**batch, Columns.ACTIONS: acted[Columns.ACTIONS]})
    np.testing.assert_allclose(again[Columns.ACTION_DIST_INPUTS].detach(), acted[Columns.ACTION_DIST_INPUTS], atol=1e-5)
    known = critic.get_train_action_dist_cls().from_logits(again[Columns.ACTION_DIST_INPUTS])
    assert known.kl(known).abs().max() == 0
    assert (known.entropy() >= 0).all()


@pytest.mark.ray
def test_stock_ppo_trains_one_side_of_the_two(world: World, ray_session: RaySession) -> None:
    kinds = {ADVERSARY: ActorCriticNegotiator, TARGET: NegotiatorModule}
    specs = {
        agent: RLModuleSpec(module_class=kind, model_config={"checkpoint": str(world.folder / agent), "temperature": 1.0})
        for agent, kind in kinds.items()
    }
    settings = (
        PPOConfig()
        .environment(
            NegotiationMultiAgentEnv, env_config={"vocabulary": world.vocabulary, "rules": ATTACKED, "reward": "advantage"}
        )
        .env_runners(num_env_runners=0)
        .training(train_batch_size_per_learner=100, minibatch_size=100, num_epochs=1, lr=1e-3)
        .multi_agent(policies=list(AGENTS), policy_mapping_fn=lambda agent, *_, **__: agent, policies_to_train=[ADVERSARY])
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
    )
    settings.normalize_actions = settings.clip_actions = False
    algorithm = settings.build_algo()
    try:
        learned = algorithm.train()["learners"][ADVERSARY]
        # One pass over the batch: what learns still speaks as what was sampled from.
        assert learned["mean_kl_loss"] == pytest.approx(0, abs=1e-6)
        moved = algorithm.learner_group._learner.module
        for agent in AGENTS:
            before = load_model(world.folder / agent).state_dict()
            after = moved[agent].unwrapped().net.state_dict()
            assert any(not value.equal(after[name]) for name, value in before.items()) == (agent == ADVERSARY)
        assert moved[ADVERSARY].unwrapped().critic.bias.abs() > 0
    finally:
        algorithm.stop()


@pytest.mark.ray
def test_the_example_of_the_documentation_trains(tmp_path: Path, ray_session: RaySession) -> None:
    guide = (Path(__file__).parents[4] / "docs" / "environments.md").read_text()
    (code,) = re.findall(r"```python\n(config = \(\n    PPOConfig.*?)```", guide, re.DOTALL)
    folder = save_negotiator(tmp_path / "target", vocabulary=bargainer_vocabulary())
    names: dict[str, Any] = {part.__name__: part for part in (PPOConfig, RLModuleSpec, ActorCriticNegotiator)}
    exec(code.replace("runs/demo/target", str(folder)), names)
    config = names["config"].env_runners(num_env_runners=0)
    config.training(train_batch_size_per_learner=20, minibatch_size=20, num_epochs=1)
    algorithm = config.build_algo()
    try:
        assert algorithm.train()["env_runners"]["num_episodes"] > 0
    finally:
        algorithm.stop()


def test_the_plain_module_names_the_one_that_ppo_trains(world: World) -> None:
    env, seen = observed(world)
    plain = NegotiatorModule(
        observation_space=env.observation_space,
        action_space=env.action_space,
        model_config={"checkpoint": str(world.folder / ADVERSARY), "temperature": 1.0},
    )
    with pytest.raises(ConfigError, match="ActorCriticNegotiator"):
        plain._forward_train({Columns.OBS: seen[0]})
