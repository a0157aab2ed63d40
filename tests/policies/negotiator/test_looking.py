"""A speaker that looks at who has ended only now and then, as on a GPU: the same dialogues, and few waits for the device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from parley.envs.negotiation.dealornodeal_rules import random_scenario
from parley.envs.negotiation.domain import EOS_ID, SELECTION_ID
from parley.envs.negotiation.game import play
from parley.policies.negotiator.speaker import LOOK_EVERY, NegotiatorAgent
from tests.policies.negotiator.made_up import SHORT, TINY, deal, negotiator

RULES = replace(SHORT, max_words=20, max_tokens=160)
WAITS = {"nonzero", "item", "tolist", "cpu", "numpy", "__bool__", "__int__", "__float__", "masked_select"}
"""What a process asks of a tensor for which it waits until a GPU has done all that it was given."""


class Waits(TorchFunctionMode):
    """Counts them, and tensors that are picked by a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        picked = args[1] if name == "__getitem__" else None
        self.number += name in WAITS or (isinstance(picked, Tensor) and picked.dtype == torch.bool)
        return func(*args, **(kwargs or {}))


def agents(look_every: int) -> tuple[NegotiatorAgent, NegotiatorAgent]:
    pair = (NegotiatorAgent(negotiator(1), "first", 1.5), NegotiatorAgent(negotiator(2), "second", 1.5))
    for agent in pair:
        agent.look_every = look_every
    return pair


@pytest.mark.parametrize("look_every", [2, LOOK_EVERY, 1000])
def test_dialogues_are_those_of_a_speaker_that_looks_at_each_word(look_every: int) -> None:
    games = [play(deal(60, rules=RULES), agents(number)) for number in (1, look_every)]
    assert len({int(length) for length in games[0].num_tokens}) > 10
    for side in (0, 1):
        assert np.array_equal(games[0].tokens[side], games[1].tokens[side])
    assert np.array_equal(games[0].selections, games[1].selections)


@pytest.mark.parametrize(("look_every", "waits"), [(1, 40), (LOOK_EVERY, 40 // LOOK_EVERY)])
def test_a_speaker_waits_for_its_device_when_it_looks_and_never_else(look_every: int, waits: int) -> None:
    agent, width = agents(look_every)[0], 40
    # Nobody ever ends.
    agent.word_bias_V[[EOS_ID, SELECTION_ID]] = -torch.inf
    _, gates = agent.tables.encode(np.array([random_scenario(np.random.default_rng(0)).context(0)] * 5))
    states, draws = torch.zeros(5, TINY.hidden_language), torch.rand(5, width)
    with Waits() as counted:
        _, lengths = agent.sample(states, gates, draws)
    assert counted.number == waits
    assert lengths.tolist() == [width] * 5
