"""Opponents with defences around them: the learner's dialogues are those with the defended agent, whose weights stay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parley.engine.core.rllib import reproducible as state
from parley.engine.negotiation.attacks.opponents import Opponent, TrainingRoster
from parley.engine.negotiation.attacks.settings import DefenceConfig
from parley.engine.negotiation.defences import defended
from parley.engine.negotiation.rl.env import ADVERSARY, TARGET
from parley.envs.core.seeds import derive_seed
from parley.envs.negotiation.game import Agent, NegotiationGame, Rules, play
from parley.policies.negotiator.speaker import load_agent, load_model
from tests.engine.negotiation.rl.trainings import SEED, SMALL, Built, Recording, World, equal_weights

pytestmark = pytest.mark.ray

RULE = replace(SMALL, dialogues_per_update=48)
LIMIT = 12.0
"""Perplexity that random networks find some sentences of random networks above, and some below."""


def facing(world: World, defence: DefenceConfig) -> TrainingRoster:
    folder = str(world.folder / TARGET)
    judge = folder if defence.max_perplexity else ""
    paid: dict[str, Any] = {"reward": "advantage", "complementary": True}
    met = Opponent(name=TARGET, checkpoint=folder, defence=defence, judge=judge, **paid)
    start = str(world.folder / ADVERSARY)
    return TrainingRoster(role="adversary", learner=start, reference=start, opponents=(met,))


def replayed(world: World, algorithm: Recording, target: Agent) -> NegotiationGame:
    """The first update's dialogues without RLlib."""
    speaker = load_agent(world.folder / ADVERSARY, temperature=RULE.temperature)
    indices = algorithm.played[0]["index"].tolist()
    seeds = [derive_seed(SEED, "training dialogue", index) for index in indices]
    scenarios = [algorithm._scenario(index) for index in indices]
    rules = Rules(max_turns=RULE.max_turns, complementary=True)
    return play(NegotiationGame(scenarios, seeds, world.vocabulary, rules), (speaker, target))


@pytest.mark.parametrize("defence", [DefenceConfig(max_perplexity=LIMIT), DefenceConfig(own_demand=True)])
def test_the_learner_meets_the_defended_agent(world: World, built: Built, defence: DefenceConfig) -> None:
    roster = facing(world, defence)
    algorithm = built(world.settings(RULE, kind=Recording, roster=roster))
    algorithm.train()
    plain = load_agent(world.folder / TARGET, temperature=RULE.temperature)
    behind = replayed(world, algorithm, defended(plain, defence, roster.opponents[0].judge))
    played = algorithm.played[0]
    np.testing.assert_array_equal(played["points"], behind.points)
    np.testing.assert_array_equal(played["lengths"], behind.num_tokens)
    if defence.max_perplexity:
        assert (replayed(world, algorithm, plain).num_tokens != behind.num_tokens).any(), (
            "without the filter it answers otherwise"
        )
        assert roster.opponents[0].judge in algorithm.models(), "it goes to machines that lack the driver's disk"
    frozen = dict(load_model(world.folder / TARGET).state_dict())
    assert equal_weights(dict(algorithm.learner_group._learner.module[TARGET].unwrapped().net.state_dict()), frozen)
    assert not equal_weights(state.learned_weights(algorithm), dict(load_model(world.folder / ADVERSARY).state_dict()))
