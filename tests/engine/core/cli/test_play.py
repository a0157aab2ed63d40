"""A person plays, with lines from a pipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.negotiation.verbs.negotiator import demo as preset
from parley.engine.negotiation.verbs.play import read_scenario
from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.negotiation.dealornodeal import DIVISION
from parley.envs.negotiation.domain import Scenario
from tests.engine.core.cli.conftest import Parley, Typed

SCENARIO = "1,2,3/0,2,2/4,0,2"


def test_a_dialogue_from_the_scenario_to_the_points(parley: Parley, typed: Typed) -> None:
    typed("you can have the book and one ball", "/deal", "0 2 2")
    outcome = parley(f"play scripted --scenario {SCENARIO}")
    assert (outcome.status, outcome.out) == (0, "")
    assert "value to partner" in outcome.err
    assert "you chose book 0, hat 2, ball 2" in outcome.err
    assert "partner chose" in outcome.err
    assert "points: you" in outcome.err
    assert outcome.err.endswith("next:\n  parley play scripted --seed 2\n")


def test_equal_seeds_are_equal_games_and_others_are_not(parley: Parley, typed: Typed) -> None:
    games = []
    for seed in (5, 5, 6):
        typed("hello", "/deal", "none")
        games.append(parley(f"play scripted --seed {seed}").err)
    assert games[0] == games[1]
    assert games[0] != games[2]


def test_a_network_can_be_played(parley: Parley, typed: Typed, checkpoints: tuple[str, str]) -> None:
    typed("hello", "/deal", "none")
    outcome = parley(f"play {checkpoints[0]} --temperature 0")
    assert outcome.status == 0
    assert "not agreed, points: you 0, partner 0" in outcome.err


@pytest.mark.parametrize("lines", [(), ("hello",), ("/quit",), ("/deal", "/quit")])
def test_leaving_is_no_error(parley: Parley, typed: Typed, lines: tuple[str, ...]) -> None:
    typed(*lines)
    outcome = parley("play scripted --seed 3")
    assert outcome.status == 0
    assert outcome.err.endswith("you left, there is no deal\n")


def test_a_scenario_is_read_as_its_key() -> None:
    scenario = Scenario((1, 2, 3), ((0, 2, 2), (4, 0, 2)))
    assert scenario.key == SCENARIO
    assert read_scenario(SCENARIO, DIVISION) == scenario
    for broken in ("", "1,2,3", "1,2/3,4/5,6", "1,2,3/0,2,2/4,0,two"):
        with pytest.raises(ConfigError, match="three times 3 numbers"):
            read_scenario(broken, DIVISION)
    with pytest.raises(ScenarioError, match="worth 10"):
        read_scenario("1,2,3/0,2,2/4,0,3", DIVISION)


def test_an_unknown_agent_is_named(parley: Parley) -> None:
    outcome = parley("play scriptd")
    assert outcome.status == 2
    assert "did you mean 'scripted'" in outcome.err
    assert parley("play").status == 2


def test_a_run_without_a_checkpoint_says_which_run_it_is_and_what_to_do(
    parley: Parley, tmp_path: Path, checkpoints: tuple[str, str]
) -> None:
    with RunFolder.open(Path("runs/half"), preset(), job="train-negotiator"):
        pass
    outcome = parley("play runs/half")
    assert outcome.status == 2
    assert "a run of parley train negotiator that has not come to its end" in outcome.err
    assert "parley resume runs/half goes on with it" in outcome.err
    parley("selfplay --dialogues 2")
    outcome = parley("play runs/selfplay")
    assert outcome.status == 2
    assert "a run of parley selfplay, which is no training" in outcome.err
    assert "name the run of a training" in outcome.err
    outcome = parley("play runs")
    assert "a folder that is no run" in outcome.err
    assert "name one of the runs in it: runs/adversary, runs/target" in outcome.err
    Path("hugging").mkdir()
    Path("hugging/tokenizer.json").touch()
    assert "hf:hugging, for Hugging Face" in parley("play hugging").err
    Path("notes.txt").touch()
    assert "a file" in parley("play notes.txt").err
    outcome = parley("selfplay --target runs/half --run runs/other")
    assert outcome.status == 2
    assert "parley resume runs/half goes on with it" in outcome.err


def test_a_folder_does_not_hide_an_agent_of_its_name(parley: Parley, typed: Typed) -> None:
    Path("scripted").mkdir()
    typed("/quit")
    assert parley("play scripted").status == 0
