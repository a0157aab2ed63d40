"""Agents without weights as opponents, partners and targets of what learns."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.core.ray.session import RaySession
from parley.engine.core.verbs.job import Silent
from parley.engine.negotiation.attacks.opponents import OpponentConfig
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.engine.negotiation.verbs.exploitability import EVALUATE_EXPLOITABILITY, ExploitabilityConfig
from parley.engine.negotiation.verbs.minmax import MINMAX
from parley.engine.negotiation.verbs.table import ATTACK_TABLE, TableConfig
from parley.engine.negotiation.verbs.training import TRAIN_ADVERSARY, TRAIN_TARGET
from parley.engine.negotiation.verbs.whitebox import TransferSettings
from parley.envs.core.errors import ConfigError
from parley.envs.negotiation.domain import Vocabulary
from parley.policies.core.checkpoint import Checkpoint
from parley.policies.negotiator.settings import KIND
from tests.engine.core.verbs.made_up import CORPUS, REINFORCE, Notes, campaign, hardening, iterations, rows, training

AGENT = """
class Mine:
    def join(self, view):
        self.view = view
        return self
    def speak(self, rows):
        if {when}: raise RuntimeError("lost for words")
        return ["Perchance a hat?" if len(self.view.turns(row)) < 2 else "<selection>" for row in rows.tolist()]
    def choose(self, rows): return rows * 0
"""
SOMETIMES = "(self.view.contexts[rows, 1] == 0).any()"


def mine(folder: Path, when: str = "False") -> Path:
    (folder / "mine.py").write_text(AGENT.replace("{when}", when))
    return folder / "mine.py:Mine"


@pytest.mark.ray
def test_an_adversary_learns_from_an_agent_that_fails_in_some_dialogues(
    tmp_path: Path, root: Path, trainee: Path, ray_session: RaySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReinforceConfig, "max_lost", 0.9)
    rule, notes = replace(REINFORCE, dialogues_per_update=12), Notes()
    asked = training(root, mine(tmp_path, SOMETIMES), learner=str(trainee), reinforce=rule)
    result = TRAIN_ADVERSARY.run(asked, tmp_path / "run", notes)
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    lost = {event["number"]: event["lost"] for event in events if event["kind"] == "dialogues_lost"}
    assert lost
    assert result.metrics["dialogues_lost"].value == sum(lost.values())
    assert all("lost for words" in event["reason"] for event in events if event["kind"] == "dialogues_lost")
    done = {event["number"]: event for event in events if event["kind"] == "iteration"}
    assert all(done[number]["dialogues"] == 12 - lost.get(number, 0) for number in iterations(tmp_path / "run"))
    assert any("dialogues lost to target" in line for line in notes.said)
    before, after = (Checkpoint.load(path, KIND, Vocabulary).weights for path in (trainee, tmp_path / "run" / "checkpoint"))
    assert any(not after[name].equal(value) for name, value in before.items())
    monkeypatch.setattr(ReinforceConfig, "max_lost", 0.0)
    with pytest.raises(ConfigError, match=r"too many dialogues(.|\n)*0% may be(.|\n)*lost for words"):
        TRAIN_ADVERSARY.run(asked, tmp_path / "strict", Silent())


@pytest.mark.ray
def test_a_target_learns_from_agents_of_any_kind(tmp_path: Path, root: Path, trainee: Path, ray_session: RaySession) -> None:
    met = OpponentConfig(partner_share=0.5, sampling="uniform")
    asked = hardening(root, trainee, f"{mine(tmp_path)},{trainee}", partner="scripted", opponents=met)
    result = TRAIN_TARGET.run(asked, tmp_path / "run", Silent())
    assert "dialogues_lost" not in result.metrics
    assert iterations(tmp_path / "run") == [1, 2, 3, 4]


@pytest.mark.ray
def test_any_agent_is_measured_and_attacked(tmp_path: Path, root: Path, trainee: Path, ray_session: RaySession) -> None:
    target = str(mine(tmp_path))
    asked = ExploitabilityConfig(
        target=target, speaker=str(trainee), corpus=CORPUS, data_root=root, dialogues=6, save_every=1, reinforce=REINFORCE
    )
    measured = EVALUATE_EXPLOITABILITY.run(asked, tmp_path / "measured", Silent())
    assert measured.metrics["exploitability"].n == 6
    played = rows(tmp_path / "measured" / "attack")
    assert any(row["nll_target"] > 0 for row in played), "the speaker judges words that it does not know, too"
    said = [turn["words"] for row in played for turn in row["turns"] if turn["side"] == 1]
    assert "perchance a hat ?" in said
    assert not any("train target" in command for command in measured.next_commands)
    notes = Notes()
    wanted = TableConfig(
        target=target,
        speaker=str(trainee),
        adversary=str(tmp_path / "measured" / "adversary"),
        dialogues=3,
        transfer=TransferSettings(sentence="no deal", turn=1),
    )
    table = ATTACK_TABLE.run(wanted, tmp_path / "table", notes)
    assert f"left out: reactive, preemptive, ra-pa-da, ra-pa-ta; they read weights that {target} has not" in notes.said
    assert {name.split(".")[1] for name in table.metrics} == {"none", "rl", "transfer"}
    with pytest.raises(ConfigError, match=r"no row to measure(.|\n)*ask for plain, none, rl, transfer"):
        ATTACK_TABLE.run(replace(wanted, rows="reactive"), tmp_path / "nothing", Silent())


@pytest.mark.ray
@pytest.mark.slow
def test_a_campaign_meets_agents_of_any_kind(tmp_path: Path, root: Path, trainee: Path, ray_session: RaySession) -> None:
    asked = campaign(root, trainee, adversary=str(mine(tmp_path)), partner="scripted", rounds=2)
    result = MINMAX.run(asked, tmp_path / "run", Silent())
    assert result.failure == ""
    assert (tmp_path / "run" / "02-adversary" / "checkpoint").is_dir(), "the second round's adversary starts from a checkpoint"
