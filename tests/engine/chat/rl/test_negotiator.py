"""A chat model that learns to negotiate by reinforcement: what it plays, what it earns, and the verb."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.chat.rl.runner import Dealt, NegotiatorSeat, RecordedChatModel
from parley.engine.chat.rl.settings import ChatReinforceConfig
from parley.engine.chat.verbs.chat_rl import TRAIN_CHAT_RL, UPDATE, TrainChatRlConfig
from parley.engine.core.ray.session import RaySession
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.envs.core.errors import ConfigError
from parley.policies.chat.adapters import shared_base
from parley.policies.chat.model import ChatDecoding
from parley.policies.chat.settings import ChatSeat, LoraSettings
from tests.policies.chat.bases import saved_base

pytest.importorskip("peft", reason="the extra lora is not installed")

CHAT = ChatSeat(batch_size=8)
DEALT = [Dealt(number, number // 2, ("scripted", "scripted-tough")[number // 2 % 2]) for number in range(8)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"hf:{saved_base(tmp_path_factory.mktemp('base'), std=0.4)}"


def test_the_learner_negotiates_on_both_sides_and_its_words_are_those_that_were_drawn(base: str) -> None:
    seat, shared = NegotiatorSeat("embedded", None), shared_base(base, CHAT)
    adapter = shared.add("", LoraSettings(rank=2), 1)
    decoding = ChatDecoding(temperature=1.0, max_tokens=6)
    model = RecordedChatModel("learner", shared, adapter, 8, parts_thinking=False)
    opponents = {name: seat.opponent(name, 1.0, CHAT) for name in ("scripted", "scripted-tough")}
    rows = seat.play(model, decoding, DEALT, opponents, 3)
    # Rows do not depend on their company.
    assert rows == [seat.play(model, decoding, [dealt], opponents, 3)[0] for dealt in DEALT]
    shared.remove(adapter)
    assert {seat._drawn(3, dealt.scenario)[1] for dealt in DEALT} == {0, 1}
    for row in rows:
        assert row["reward"] == row["outcomes"]["points"] / 10
        assert row["outcomes"]["agreed"] == (row["outcomes"]["points"] + row["outcomes"]["partner_points"] > 0)
        assert row["texts"] > 0
        for tokens, own in row["sequences"]:
            assert len(tokens) == len(own)
            assert own[-1]
    assert max(row["texts"] for row in rows) > 1


def asked(base: str, **rest: object) -> TrainChatRlConfig:
    rule = ChatReinforceConfig(updates=2, scenarios=2, tries=2, max_tokens=6, supervised_batch=2)
    settings = {"base": base, "game": "negotiation", "corpus": "embedded", "examples": 4, "opponents": "scripted", **rest}
    return TrainChatRlConfig(reinforce=rule, lora=LoraSettings(rank=2), chat=CHAT, **settings)


def test_a_training_tells_of_deals_and_points(base: str, ray_session: RaySession, tmp_path: Path) -> None:
    result = TRAIN_CHAT_RL.run(asked(base), tmp_path / "run", Silent())
    assert 0 <= result.metrics["training_agreed"].value <= 1
    assert result.metrics["training_reward"].value == pytest.approx(result.metrics["training_points"].value / 10)
    assert "training_leak" not in result.metrics
    events = RunFolder.load(tmp_path / "run").events({UPDATE: {"number": int}})
    first, second = (event for event in events if event["kind"] == UPDATE)
    assert min(first["supervised_loss"], second["supervised_loss"]) > 0
    assert (tmp_path / "run" / "checkpoint").is_dir()
    assert result.next_commands[-1].startswith("parley selfplay --adversary hf:")
    # Its own start is the opponent where none is named.
    assert asked(base, opponents="").names() == [base]


def test_one_side_of_a_negotiation_is_not_learned(base: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one adapter learns both sides"):
        TRAIN_CHAT_RL.run(asked(base, role="attacker"), tmp_path / "run", Silent())
