"""Policies over acts of any library as agents: the same dialogues as their environment, and clear errors."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import parley
from parley.envs.core.errors import ConfigError, ModelError
from parley.envs.negotiation.agents import as_agent
from parley.envs.negotiation.domain import domain_of
from parley.envs.negotiation.game import NegotiationGame, play
from parley.envs.negotiation.scripted.wording import bargainer_vocabulary
from parley.policies.negotiator.acts_agent import agent_of

WORDS = bargainer_vocabulary()
SCENARIOS = [WORDS.domain.random_scenario(np.random.default_rng(seed)) for seed in range(12)]


def moderate(seen: np.ndarray, mask: np.ndarray) -> int:
    """Accept what is offered, else propose the fifth best deal; end what is agreed."""
    return 36 if mask[36] else 39 if seen[28] == 0 and seen[19] else min(5, int(mask[:36].sum()) - 1)


def dialogues(policy: Any) -> list[Any]:
    game = NegotiationGame(SCENARIOS, range(len(SCENARIOS)), WORDS)
    play(game, (agent_of(policy), as_agent("scripted")))
    return [(game.transcript(row), game.points[row].tolist()) for row in range(len(game))]


def test_an_agent_earns_what_its_policy_earns_in_the_environment() -> None:
    env = gymnasium.make("parley/NegotiationActs-v1", partner="scripted").unwrapped
    earned, seeds = [], np.random.default_rng(5)
    for scenario in SCENARIOS:
        seen, info = env.reset(seed=5 if scenario is SCENARIOS[0] else None, options={"scenario": scenario})
        over = False
        while not over:
            seen, reward, over, _, info = env.step(np.int64(moderate(seen, info["action_mask"])))
        earned.append((info["transcript"], list(info["points"])))
        assert reward == info["points"][0]
    dialogue_seeds = [int(seeds.integers(2**63)) for _ in SCENARIOS]
    game = NegotiationGame(SCENARIOS, dialogue_seeds, WORDS)
    play(game, (agent_of(moderate), as_agent("scripted")))
    assert [points for _, points in earned] == game.points.tolist()
    assert [turns for turns, _ in earned] == [game.transcript(row) for row in range(len(game))]
    assert len({tuple(points) for _, points in earned}) > 4


class Net(torch.nn.Module):
    """Logits that are features, so that a function can play the same."""

    def __init__(self, tuples: bool = False) -> None:
        super().__init__()
        self.tuples, self.scale = tuples, torch.nn.Parameter(torch.ones(1))

    def forward(self, seen: torch.Tensor) -> Any:
        logits = self.scale * seen[:, 28:68]
        return (logits, logits.sum(1)) if self.tuples else logits


class Predicts:
    """What Stable-Baselines3 offers, without a mask."""

    def predict(self, observation: np.ndarray, deterministic: bool = False) -> tuple[np.ndarray, None]:
        assert deterministic
        mask = observation[:, -40:]
        return np.where(mask > 0, observation[:, 28:68], -1).argmax(1), None


class PredictsMasked:
    """What sb3-contrib offers."""

    observation_space = spaces.Dict({"observations": spaces.Box(0, 1, (100,)), "action_mask": spaces.Box(0, 1, (40,), np.int8)})

    def predict(self, observation: Any, deterministic: bool, action_masks: np.ndarray) -> tuple[np.ndarray, None]:
        assert (observation["action_mask"].astype(bool) == action_masks).all()
        return np.where(action_masks, observation["observations"][:, 28:68], -1).argmax(1), None


class Module(Net):
    """What RLlib offers."""

    def is_stateful(self) -> bool:
        return False

    def forward_inference(self, batch: dict[str, torch.Tensor]) -> dict[str, Any]:
        return {"action_dist_inputs": self(batch["obs"])}


def test_each_kind_of_policy_plays_the_same_dialogues() -> None:
    def function(seen: np.ndarray, mask: np.ndarray) -> int:
        return int(np.where(mask, seen[28:68], -1).argmax())

    expected = dialogues(function)
    assert len({str(turns) for turns, _ in expected}) > 6
    for policy in (Net(), Net(tuples=True), Predicts(), PredictsMasked(), Module()):
        assert dialogues(policy) == expected, type(policy).__name__


def test_an_agent_has_a_name_and_plays_other_games() -> None:
    assert parley.agent_of(Net()).name == "Net"
    assert parley.agent_of(Net(), name="mine").name == "mine"
    interview = domain_of("interview")
    agent = agent_of(lambda seen, mask: int(mask.argmax()), interview.vocabulary())
    scenarios = [interview.random_scenario(np.random.default_rng(seed)) for seed in range(4)]
    partner = interview.scripted("scripted", interview.vocabulary())
    game = play(NegotiationGame(scenarios, range(4), interview.vocabulary()), (agent, partner))
    assert "70k" in str(game.transcript(0))


def test_mistakes_are_named() -> None:
    class Recurrent(Module):
        def is_stateful(self) -> bool:
            return True

    class Elsewhere(Predicts):
        observation_space = spaces.Box(0, 1, (4,))

    with pytest.raises(ConfigError, match="keeps a state"):
        agent_of(Recurrent())
    with pytest.raises(ConfigError, match=r"sees another game[\s\S]*\(4,\), not \(140,\)"):
        agent_of(Elsewhere())
    with pytest.raises(ConfigError, match="no policy over dialogue acts"):
        agent_of(3)
    with pytest.raises(ModelError, match="one act for each observation"):
        dialogues(lambda seen, mask: 40)
    with pytest.raises(ModelError, match="one logit for each act"):
        dialogues(torch.nn.Linear(140, 7))
    with pytest.raises(ModelError, match="nan"):
        dialogues(lambda_net(float("nan")))


def lambda_net(value: float) -> torch.nn.Module:
    net = Net()
    torch.nn.init.constant_(net.scale, value)
    return net


def test_the_seed_of_a_dialogue_is_the_only_source_of_its_phrases() -> None:
    assert dialogues(moderate) == dialogues(moderate)
