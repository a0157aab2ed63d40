"""The negotiation game in plain text: what is read, said and chosen, whoever the partner is."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest

from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.negotiation.domain import Scenario, domain_of
from parley.envs.negotiation.env import NegotiationTextEnv
from tests.envs.negotiation.agents import Reader

SCENARIO = Scenario((1, 2, 3), ((1, 3, 1), (4, 0, 2)))
ALL = ("1 2 3", " 1, 2, 3", "3 balls, 1 book and 2 hats")
EVERYTHING = {"scenario": SCENARIO}


def make(**arguments: Any) -> gymnasium.Env[str, str]:
    return gymnasium.make("parley/NegotiationText-v1", **arguments)


def test_a_dialogue_from_the_first_word_to_the_points() -> None:
    env = make(partner=Reader(lines=("i want the ball .",), selection=0))
    seen, _ = env.reset(seed=2, options=EVERYTHING)
    assert "book      1             1" in seen
    assert seen.endswith("say something, or <selection> to end the talk")
    seen, *_ = env.step("Café latte, s'il vous plaît!")
    assert "you: caf? latte , s'il vous pla?t !" in seen
    assert "partner: i want the ball ." in seen
    seen, reward, over, *_ = env.step("<selection>")
    assert (reward, over) == (0.0, False)
    assert "choose what you get: 3 whole numbers, book 0..1, hat 0..2, ball 0..3" in seen
    seen, reward, over, _, info = env.step("I take 1 book, 2 hats and 3 balls")
    # The reader chooses nothing for itself.
    assert (reward, over, info["agreed"]) == (10.0, True, True)
    assert "you chose book 1, hat 2, ball 3" in seen
    assert info["transcript"][-3:-1] != []


@pytest.mark.parametrize("said", [*ALL, "no deal", "", "1 2", "9 9 9", "give me all", "2 hats"])
def test_a_choice_is_read_or_counts_as_no_agreement(said: str) -> None:
    agreed = said in ALL
    env = make(partner=Reader(selection=0))
    env.reset(seed=2, options=EVERYTHING)
    env.step("<selection>")
    _, reward, over, _, info = env.step(said)
    assert over
    assert info["agreed"] == agreed == (reward == 10.0)


def test_any_partner_by_name_and_any_game() -> None:
    env = make(partner="scripted")
    answers = set()
    for seed in range(8):
        seen, _ = env.reset(seed=seed)
        seen, *_ = env.step("i need the hats , you can have the rest")
        answers.add(seen.splitlines()[-3])
    assert len(answers) > 3
    words = domain_of("interview").vocabulary()
    seen, _ = make(vocabulary=words, partner="scripted").reset(seed=1)
    assert all(item in seen for item in domain_of("interview").items)


def test_mistakes_are_named() -> None:
    env = NegotiationTextEnv()
    with pytest.raises(ScenarioError, match="step of NegotiationTextEnv"):
        env.step("hello")
    env.reset(seed=1)
    with pytest.raises(ScenarioError, match="an action is a text"):
        env.step(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="where: NegotiationTextEnv"):
        NegotiationTextEnv(reward="point")
    assert len(env.step("hat " * 4000)[0]) <= 16_384
