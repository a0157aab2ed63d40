"""The negotiator as an RLModule: under RLlib's stock runner it plays as it plays outside, and it leaves RLlib behind."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner

from parley.engine.core.ray.session import RaySession
from parley.engine.core.rllib import reproducible as state
from parley.engine.negotiation.rl.env import ADVERSARY, AGENTS, TARGET, NegotiationMultiAgentEnv
from parley.engine.negotiation.rl.learner import NegotiatorModule
from parley.engine.negotiation.rl.runner import DialogueEnvRunner
from parley.envs.negotiation.domain import YOU, Scenario
from parley.envs.negotiation.game import NegotiationGame, Rules, play
from parley.policies.core.checkpoint import Checkpoint
from parley.policies.negotiator.settings import KIND
from parley.policies.negotiator.speaker import load_agent, load_model
from tests.engine.negotiation.rl.trainings import SIZES, SMALL, World

ROOT = Path(__file__).parents[4]
SCENARIOS = [Scenario((1, 2, 3), ((1, 3, 1), (4, 0, 2))), Scenario((2, 2, 1), ((2, 3, 0), (1, 3, 2)))]
HALF = replace(SMALL, temperature=0.5)
SHORT = Rules(max_turns=6, max_words=8, max_tokens=64)
COMPLEMENTARY = replace(SHORT, complementary=True)


def stock_runner(world: World, rules: Rules, temperature: float) -> MultiAgentEnvRunner:
    modules = {
        agent: RLModuleSpec(
            module_class=NegotiatorModule, model_config={"checkpoint": str(world.folder / agent), "temperature": temperature}
        )
        for agent in AGENTS
    }
    config = {"vocabulary": world.vocabulary, "rules": rules, "scenarios": SCENARIOS}
    settings = (
        PPOConfig()
        .environment(NegotiationMultiAgentEnv, env_config=config)
        .env_runners(num_envs_per_env_runner=1, num_env_runners=0)
        .multi_agent(policies=list(AGENTS), policy_mapping_fn=lambda agent, *_, **__: agent)
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=modules))
    )
    settings.normalize_actions = settings.clip_actions = False
    return MultiAgentEnvRunner(config=settings)


@pytest.mark.parametrize("rules", [SHORT, COMPLEMENTARY], ids=["both choose", "complementary"])
def test_the_stock_runner_hears_the_dialogues_that_the_agents_hold_by_themselves(world: World, rules: Rules) -> None:
    # At temperature 0 nothing is drawn, so that both ways must come to the same words and choices.
    episodes = stock_runner(world, rules, temperature=0).sample(num_episodes=12)
    agents = [load_agent(world.folder / role, temperature=0) for role in AGENTS]
    assert len(episodes) == 12
    seen = set()
    for episode in episodes:
        single = next(iter(episode.agent_episodes.values()))
        info, observation = single.get_infos(-1), single.get_observations(-1)
        scenario = next(case for case in SCENARIOS if observation["context"][0] == case.counts[0])
        side = AGENTS.index(single.agent_id)
        first = side if observation["tokens"][0] == world.vocabulary.index[YOU] else 1 - side
        game = NegotiationGame([scenario], [0], world.vocabulary, rules, first_speakers=[first])
        play(game, (agents[0], agents[1]))
        assert info["transcript"] == game.transcript(0)
        assert info["points"] == tuple(game.points[0].tolist())
        assert info["agreed"] == game.agreed[0]
        seen.add((scenario.key, first))
    assert len(seen) == 4, "two scenarios, either side first"


def test_the_stock_runner_draws_words_that_may_be_said(world: World) -> None:
    episodes = stock_runner(world, SHORT, temperature=1.0).sample(num_episodes=10)
    transcripts = [next(iter(e.agent_episodes.values())).get_infos(-1) for e in episodes]
    assert all(info["num_illegal"] == (0, 0) for info in transcripts)
    said = {tuple(words) for info in transcripts for _, words in info["transcript"]}
    assert len(said) > 10


def spoken(world: World) -> tuple[NegotiatorModule, dict[str, torch.Tensor]]:
    """A module, and the dialogues it played as columns of a training batch."""
    runner = DialogueEnvRunner(config=world.settings(HALF))
    played = runner.sample(dealt=[(index, scenario, TARGET) for index, scenario in enumerate(SCENARIOS * 4)])
    return runner.module[ADVERSARY], {name: torch.from_numpy(played[name]) for name in ("contexts", "tokens", "lengths", "own")}


def with_corpus_rows(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The batch with its dialogues again, between the played ones, as if they came from the corpus."""
    size = len(batch["lengths"])
    order = torch.arange(2 * size) // 2
    twice = {name: value[order] for name, value in batch.items()}
    return {**twice, "supervised": torch.arange(2 * size) % 2 == 1, "outputs": torch.zeros(2 * size, 6, dtype=torch.int64)}


def test_log_probabilities_are_those_of_the_plain_network(world: World) -> None:
    module, batch = spoken(world)
    net = load_model(world.folder / ADVERSARY)
    with torch.no_grad():
        found_MV = module._forward_train(with_corpus_rows(batch))["log_probs"]
        logits_NTV, _ = net(batch["contexts"], batch["tokens"], batch["lengths"])
    logits_NTV[..., list(world.vocabulary.unspeakable_ids)] = -torch.inf
    expected_MV = (logits_NTV / HALF.temperature).log_softmax(-1)[batch["own"][:, 1:]]
    torch.testing.assert_close(found_MV, expected_MV, atol=1e-5, rtol=1e-4)


def test_dropout_is_for_corpus_rows_alone(world: World) -> None:
    module, batch = spoken(world)
    first, second = (module._forward_train(with_corpus_rows(batch)) for _ in range(2))
    assert first["log_probs"].equal(second["log_probs"])
    assert first["supervised_words"] != second["supervised_words"]
    assert not module.net.training


PLAY = """
import sys
sys.modules["ray"] = None
from pathlib import Path
from parley.envs.negotiation.domain import Vocabulary
from parley.envs.negotiation.game import NegotiationGame, play
from parley.envs.negotiation.domain import Scenario
from parley.policies.negotiator.speaker import load_agent

learned, target = (load_agent(Path(folder), name=folder, temperature=0) for folder in sys.argv[1:])
scenario = Scenario((1, 2, 3), ((1, 3, 1), (4, 0, 2)))
game = play(NegotiationGame([scenario], [7], learned.vocabulary), (learned, target))
print(*game.tokens[0, 0, : game.num_tokens[0]].tolist())
"""


@pytest.mark.ray
def test_what_was_learned_plays_where_ray_is_not_installed(world: World, ray_session: RaySession, tmp_path: Path) -> None:
    algorithm = world.settings().build_algo()
    for _ in range(2):
        algorithm.train()
    weights = state.learned_weights(algorithm)
    learned, target = (algorithm.env_runner.module[role].agent(role) for role in AGENTS)
    for agent in (learned, target):
        agent.temperature = 0
    game = play(NegotiationGame([SCENARIOS[0]], [7], world.vocabulary), (learned, target))
    algorithm.stop()
    Checkpoint(KIND, dict(vars(SIZES)), {}, world.vocabulary, weights).save(tmp_path / "learned")
    command = [sys.executable, "-c", PLAY, str(tmp_path / "learned"), str(world.folder / TARGET)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [int(word) for word in done.stdout.split()] == game.tokens[0, 0, : game.num_tokens[0]].tolist()
    assert not np.array_equal(weights["decoder.weight"], load_model(world.folder / ADVERSARY).decoder.weight.detach())
