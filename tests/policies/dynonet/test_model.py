from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.plain_dynonet import PlainSide, plain_turn_loss
from parley.envs.mutual_friends.game import play_friends
from parley.policies.dynonet.agent import DynoNetAgent
from parley.policies.dynonet.batches import SideExamples
from parley.policies.dynonet.model import turn_loss
from parley.policies.dynonet.settings import DynoNetSizes
from tests.devices import CLOSE, SHARE, on_each_device
from tests.policies.dynonet.chats import LINKER, SIZES, VOCABULARY, chats, scenario, tiny


@pytest.mark.parametrize(
    ("alternate", "changed"),
    [(True, {}), (False, {}), (True, {"dynamic": False}), (True, {"rounds": 1}), (True, {"rounds": 0}), (True, {"rounds": 3})],
)
def test_losses_and_gradients_are_those_of_one_side_at_a_time(alternate: bool, changed: dict[str, int]) -> None:
    sizes = DynoNetSizes(**(vars(SIZES) | changed))
    model = tiny(sizes)
    examples = SideExamples(chats(5, alternate=alternate), VOCABULARY, sizes, LINKER)
    batch = examples.batch(np.arange(len(examples)))
    plain = [PlainSide(model, side) for side in examples.sides]
    memory = model.blank(*batch.features_RNF.shape[:2])
    for number, turn in enumerate(batch.turns):
        model.zero_grad()
        loss, _, memory = turn_loss(model, memory, batch, turn, len(examples))
        loss.backward()
        ours = {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}
        model.zero_grad()
        wanted = plain_turn_loss(plain, number)
        wanted.backward()
        assert loss.item() == pytest.approx(wanted.item(), abs=1e-5)
        wanted_by_name = {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
        torch.testing.assert_close(ours, wanted_by_name, atol=2e-5, rtol=1e-3)


@on_each_device
def test_each_device_finds_the_same(device: str) -> None:
    examples = SideExamples(chats(4), VOCABULARY, SIZES, LINKER)
    batch = examples.batch(np.arange(len(examples)))
    wanted = tiny().nll(batch)
    found_M = tiny().to(device).nll(batch.to(torch.device(device))).cpu()
    torch.testing.assert_close(found_M, wanted, rtol=CLOSE["rtol"], atol=CLOSE["atol"])
    wanted_chats, found = (
        play_friends([(scenario(i), i) for i in range(20)], (agent, agent))
        for agent in (DynoNetAgent(tiny().to(place), LINKER, "tiny") for place in ("cpu", device))
    )
    assert sum(ours.events[0] == theirs.events[0] for ours, theirs in zip(found, wanted_chats, strict=True)) >= SHARE * 20
