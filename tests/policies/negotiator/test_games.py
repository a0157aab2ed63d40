"""Networks of a game other than Deal or No Deal: their shapes, what they say and choose, what is stored of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from parley.engine.negotiation.attacks.choices import Values
from parley.envs.core.errors import CheckpointError
from parley.envs.core.seeds import stream
from parley.envs.negotiation.dealornodeal import DIVISION
from parley.envs.negotiation.dealornodeal_rules import random_scenario
from parley.envs.negotiation.domain import points
from parley.envs.negotiation.game import NegotiationGame, play
from parley.envs.negotiation.interview.domain import INTERVIEW
from parley.policies.negotiator.model import Negotiator
from parley.policies.negotiator.speaker import NegotiatorAgent, load_model, save_model, selection_scores
from tests.policies.negotiator.made_up import SHORT, TINY


def interviewer(seed: int = 0) -> Negotiator:
    """A negotiator of interviews with random weights."""
    model = Negotiator(INTERVIEW.vocabulary(), TINY).eval()
    model.initialise(torch.Generator().manual_seed(seed))
    return model


def test_the_networks_have_the_shape_of_the_game() -> None:
    model = interviewer()
    contexts = np.array([INTERVIEW.random_scenario(stream(i)).context(0) for i in range(3)])
    tokens = torch.randint(4, 20, (3, 6), generator=torch.Generator().manual_seed(1))
    _, choice = model(torch.from_numpy(contexts), tokens, torch.tensor([6, 5, 4]))
    assert choice.shape == (3, 4, 16)
    scores = selection_scores(choice, contexts, INTERVIEW)
    for row in range(3):
        by_hand = [
            sum(float(choice[row, head, token]) for head, token in enumerate(tokens))
            for tokens in INTERVIEW.selections((1,) * 13).table.tolist()
        ]
        assert scores[row].tolist() == pytest.approx(by_hand, abs=1e-5)


def test_an_agent_chooses_what_its_networks_score_highest() -> None:
    model = interviewer()
    agent = NegotiatorAgent(model, "interviewer")
    scenarios = [INTERVIEW.random_scenario(stream(i)) for i in range(20)]
    game = play(NegotiationGame(scenarios, list(range(20)), model.vocabulary, SHORT), (agent, agent))
    for row, scenario in enumerate(scenarios):
        for side in (0, 1):
            context = np.array([scenario.context(side)])
            tokens = torch.from_numpy(game.tokens[side, row : row + 1, : game.num_tokens[row]])
            with torch.no_grad():
                choice = model(torch.from_numpy(context), tokens, torch.tensor([tokens.shape[1]]))[1]
            assert game.selections[row, side] == int(selection_scores(choice, context, INTERVIEW).argmax())


def test_values_are_the_points_of_every_selection() -> None:
    scenarios = [INTERVIEW.random_scenario(stream(i)) for i in range(5)]
    contexts = np.array([[scenario.context(side) for scenario in scenarios] for side in (0, 1)])
    values = Values.of(contexts, INTERVIEW)
    for row, scenario in enumerate(scenarios):
        earned = [points(scenario, (deal, deal))[1] for deal in range(110)]
        assert list(zip(values.adversary[row].tolist(), values.target[row].tolist(), strict=True)) == earned
    assert values.legal.all()


def test_a_checkpoint_keeps_its_game(tmp_path: Path) -> None:
    model = interviewer()
    save_model(model, tmp_path / "checkpoint", {})
    loaded = load_model(tmp_path / "checkpoint")
    assert loaded.domain is INTERVIEW
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in model.state_dict().items())


def test_an_agent_of_another_game_is_refused() -> None:
    agent = NegotiatorAgent(interviewer(), "interviewer")
    game = NegotiationGame([random_scenario(np.random.default_rng(0))], [1], DIVISION.vocabulary())
    with pytest.raises(CheckpointError, match="another game"):
        agent.join(game.view(0))
