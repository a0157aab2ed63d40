"""Several games: which agents, scenarios and corpora go together, and interviews from their corpus to an attack's page."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.ray.session import RaySession
from parley.engine.core.verbs.job import Silent
from parley.engine.negotiation.page import dialogue
from parley.engine.negotiation.verbs.exploitability import EVALUATE_EXPLOITABILITY, ExploitabilityConfig
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.engine.negotiation.verbs.minmax import MINMAX, MinMaxConfig
from parley.engine.negotiation.verbs.negotiator import TRAIN_NEGOTIATOR, TrainNegotiatorConfig
from parley.engine.negotiation.verbs.table import ATTACK_TABLE, TableConfig
from parley.engine.negotiation.verbs.training import TRAIN_ADVERSARY, TrainReinforceConfig
from parley.engine.responders.corpora import check_corpus, describe_corpus
from parley.envs.core.errors import ConfigError, ParleyError
from parley.envs.negotiation.domain import domain_of
from tests.engine.core.verbs.made_up import FIT, REINFORCE, rows, save_negotiator

INTERVIEWS = "embedded-interview"
PLAYED = MatchConfig(adversary="scripted", target="scripted-tough", dialogues=20, scenarios="random:interview")


@pytest.fixture(scope="module")
def divider(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random negotiator of Deal or No Deal."""
    return str(save_negotiator(tmp_path_factory.mktemp("divider")))


@pytest.fixture(scope="module")
def interviewer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random negotiator of interviews."""
    return str(save_negotiator(tmp_path_factory.mktemp("interviewer"), vocabulary=domain_of("interview").vocabulary()))


def test_scripted_agents_play_the_game_of_the_scenarios(tmp_path: Path) -> None:
    SELFPLAY.run(PLAYED, tmp_path / "random", Silent())
    SELFPLAY.run(replace(PLAYED, scenarios=INTERVIEWS), tmp_path / "corpus", Silent())
    for played in (rows(tmp_path / "random"), rows(tmp_path / "corpus")):
        assert {row["status"] for row in played} == {"ok"}
        assert {tuple(row["counts"]) for row in played} == {(1,) * 13}
        assert sum(row["agreed"] for row in played) > 15
        assert max(row["points_target"] for row in played) > 10


def test_a_page_shows_what_was_settled(tmp_path: Path) -> None:
    SELFPLAY.run(PLAYED, tmp_path / "run", Silent())
    row = next(row for row in rows(tmp_path / "run") if row["agreed"])
    cells = (
        r'<tr><th scope="row">(\w+)[^<]*</th><td>\d+</td><td>(\d+)</td><td class="took">1</td><td>(\d+)</td><td class="took">1<'
    )
    settled = re.findall(cells, str(dialogue(row).body))
    assert [name for name, *_ in settled] == ["salary", "holidays", "office", "role"]
    points = [sum(int(values[side]) for _, *values in settled) for side in (0, 1)]
    assert points == [row["points_adversary"], row["points_target"]]


def test_a_file_of_scenarios_is_of_the_agents_game(tmp_path: Path, interviewer: str) -> None:
    SELFPLAY.run(replace(PLAYED, dialogues=2), tmp_path / "first", Silent())
    (row, *_) = rows(tmp_path / "first")
    sides = [" ".join(f"1 {value}" for value in row[f"values_{side}"]) for side in ("adversary", "target")]
    file = tmp_path / "scenarios.txt"
    file.write_text("".join(f"{side}\n" for side in sides))
    SELFPLAY.run(replace(PLAYED, adversary=interviewer, dialogues=1, scenarios=str(file)), tmp_path / "run", Silent())
    assert rows(tmp_path / "run")[0]["values_target"] == row["values_target"]


def test_agents_and_scenarios_of_different_games_are_refused(tmp_path: Path, divider: str, interviewer: str) -> None:
    def fails(match: str, **changes: Any) -> ParleyError:
        with pytest.raises(ConfigError, match=match) as caught:
            SELFPLAY.run(replace(PLAYED, **changes), tmp_path / "run", Silent())
        assert not (tmp_path / "run").exists()
        return caught.value

    error = fails("the adversary plays another game than the scenarios are of", adversary=divider)
    assert (error.where, error.got) == (divider, "'dealornodeal', and scenarios of 'interview'")
    fails("the target plays another game", target=interviewer, scenarios="embedded")
    fails("the target plays another game", adversary=interviewer, target=divider, scenarios="random")
    fails("the judge plays another game", judge=divider)
    fails("no game is called 'intervew', did you mean 'interview'", scenarios="random:intervew")


@pytest.mark.parametrize(
    ("prepare", "match"),
    [
        (
            lambda mine, other: TRAIN_ADVERSARY.prepare(TrainReinforceConfig(target=mine), Path("run"), Silent()),
            r"the corpus is of another game than the agents(.|\n)*'dealornodeal', and the agents play 'interview'",
        ),
        (
            lambda mine, other: TRAIN_ADVERSARY.prepare(
                TrainReinforceConfig(target=other, learner=mine, corpus=INTERVIEWS), Path("run"), Silent()
            ),
            r"the partner plays another game(.|\n)*'dealornodeal', not 'interview'",
        ),
        (
            lambda mine, other: MINMAX.prepare(MinMaxConfig(target=mine, partner=other), Path("run"), Silent()),
            "--target and --partner play different games",
        ),
        (
            lambda mine, other: MINMAX.prepare(MinMaxConfig(target=mine), Path("run"), Silent()),
            "the corpus is of another game than the agents",
        ),
        (
            lambda mine, other: EVALUATE_EXPLOITABILITY.prepare(
                ExploitabilityConfig(target=mine, judge=other), Path("run"), Silent()
            ),
            "--target and --judge play different games",
        ),
        (
            lambda mine, other: ATTACK_TABLE.prepare(TableConfig(target=mine, adversary=other), Path("run"), Silent()),
            "--target and --adversary play different games",
        ),
        (
            lambda mine, other: ATTACK_TABLE.prepare(TableConfig(target=mine, published="sv"), Path("run"), Silent()),
            r"published figures are of 'dealornodeal'(.|\n)*--published none",
        ),
    ],
)
def test_a_partner_of_another_game_is_refused_before_there_is_a_run(
    interviewer: str, divider: str, prepare: Callable[[str, str], object], match: str
) -> None:
    with pytest.raises(ParleyError, match=match):
        prepare(interviewer, divider)


def test_the_corpus_of_interviews_is_whole_and_told() -> None:
    assert not check_corpus(INTERVIEWS).problems
    info: Any = describe_corpus(INTERVIEWS)
    assert (info.game, info.num_item_tokens, info.num_context_values) == ("interview", 16, 16)
    assert (info.selfplay_choices.mean, info.selfplay_choices.max) == (110, 110)


@pytest.mark.ray
def test_a_negotiator_of_interviews_is_fitted_and_attacked(tmp_path: Path, ray_session: RaySession) -> None:
    target = tmp_path / "negotiator"
    TRAIN_NEGOTIATOR.run(TrainNegotiatorConfig(corpus=INTERVIEWS, limit=40, fit=replace(FIT, max_epochs=2)), target, Silent())
    rule = replace(REINFORCE, dialogues=12)
    training = TrainReinforceConfig(target=str(target), corpus=INTERVIEWS, save_every=1, reinforce=rule)
    TRAIN_ADVERSARY.run(training, tmp_path / "adversary", Silent())
    match = MatchConfig(adversary=str(tmp_path / "adversary"), target=str(target), dialogues=4, complementary=True, max_turns=4)
    SELFPLAY.run(match, tmp_path / "match", Silent())
    for row in rows(tmp_path / "match"):
        assert row["selection_adversary"] == row["selection_target"], "what the target settles holds for both"
        assert row["nll_target"] > 0
