"""A chat model that learns to negotiate by reinforcement: what it plays, what it earns, and the verb."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.chat.rl.runner import USER, Dealt, LearningNegotiator, NegotiatorSeat, RecordedChatModel
from parley.engine.chat.rl.settings import ChatReinforceConfig
from parley.engine.chat.verbs.chat_rl import TRAIN_CHAT_RL, UPDATE, TrainChatRlConfig
from parley.engine.core.ray.session import RaySession
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.envs.core.errors import ConfigError, ParleyError
from parley.envs.core.seeds import stream
from parley.envs.negotiation.domain import domain_of
from parley.envs.negotiation.scripted.wording import bargainer_vocabulary
from parley.envs.secret.game import ATTACKER, DEFENDER
from parley.policies.chat.adapters import shared_base
from parley.policies.chat.model import ChatDecoding
from parley.policies.chat.settings import ChatSeat, LoraSettings
from tests.policies.chat.bases import saved_base, small_corpus

pytest.importorskip("peft", reason="the extra lora is not installed")

CHAT = ChatSeat(batch_size=8)
SCENARIOS = [bargainer_vocabulary().domain.random_scenario(stream(0, number)) for number in range(20)]
DEALT = [Dealt(number, number // 2, ("scripted", "scripted-tough", USER)[number // 2 % 3]) for number in range(12)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"hf:{saved_base(tmp_path_factory.mktemp('base'), std=0.4)}"


@pytest.mark.parametrize("side", [ATTACKER, DEFENDER])
def test_a_learner_negotiates_and_its_words_are_those_that_were_drawn(base: str, side: int) -> None:
    seat, shared = NegotiatorSeat(side, SCENARIOS, "scripted"), shared_base(base, CHAT)
    adapter = shared.add("", LoraSettings(rank=2), 1)
    decoding = ChatDecoding(temperature=1.0, max_tokens=6)
    model = RecordedChatModel("learner", shared, adapter, 8, parts_thinking=False)
    opponents = {name: seat.opponent(name or seat.partner, 1.0, CHAT) for name in ("scripted", "scripted-tough", USER)}
    rows = seat.play(model, decoding, DEALT, opponents, 3)
    # Rows do not depend on their company.
    assert rows == [seat.play(model, decoding, [dealt], opponents, 3)[0] for dealt in DEALT]
    shared.remove(adapter)
    assert {seat._drawn(3, Dealt(0, number, USER))[1] for number in range(8)} == {0, 1}
    assert {seat._drawn(3, dealt)[1] for dealt in DEALT if dealt.opponent != USER} == {side}
    for dealt, row in zip(DEALT, rows, strict=True):
        outcomes = row["outcomes"]
        if dealt.opponent == USER:
            assert row["reward"] == outcomes["points"] / 10
            assert outcomes["agreed"] == (outcomes["points"] + outcomes["partner_points"] > 0)
        else:
            # A side earns what it is ahead.
            assert row["reward"] == outcomes["advantage"] / 10 * (1 if side == ATTACKER else -1)
        assert row["texts"] > 0
        for tokens, own in row["sequences"]:
            assert len(tokens) == len(own)
            assert own[-1]
    assert max(row["texts"] for row in rows) > 1
    # A scripted target seldom deals with who speaks no sense; the learner itself takes something.
    earned = [row["reward"] != 0 for dealt, row in zip(DEALT, rows, strict=True) if dealt.opponent]
    assert any(earned) if side == DEFENDER else not all(earned)


@pytest.mark.parametrize("opponent", ["scripted", USER])
def test_rewards_are_shares_of_the_best_deal_of_any_game(base: str, opponent: str) -> None:
    interview = domain_of("interview")
    scenarios = [interview.random_scenario(stream(0, number)) for number in range(8)]
    shared = shared_base(base, CHAT)
    adapter = shared.add("", LoraSettings(rank=2), 1)
    model = RecordedChatModel("learner", shared, adapter, 8, parts_thinking=False)
    seat = NegotiatorSeat(DEFENDER, scenarios, "scripted")
    dealt = [Dealt(number, number, opponent) for number in range(4)]
    opponents = {opponent: seat.opponent("scripted", 1.0, CHAT)}
    rows = seat.play(model, ChatDecoding(temperature=1.0, max_tokens=6), dealt, opponents, 3)
    shared.remove(adapter)
    assert interview.best != 10
    earned = [row["outcomes"]["points"] if opponent == USER else -row["outcomes"]["advantage"] for row in rows]
    assert [row["reward"] * interview.best for row in rows] == pytest.approx(earned)
    assert opponent == USER or any(earned)


def test_the_target_of_an_attack_alone_chooses(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = shared_base(base, CHAT)
    adapter = shared.add("", LoraSettings(rank=2), 1)
    model = RecordedChatModel("learner", shared, adapter, 8, parts_thinking=False)
    scored: list[int] = []
    choice_scores = LearningNegotiator.choice_scores
    monkeypatch.setattr(
        LearningNegotiator, "choice_scores", lambda *given: scored.append(len(given[1])) or choice_scores(*given)
    )
    for side, times in ((ATTACKER, 0), (DEFENDER, 1)):
        seat = NegotiatorSeat(side, SCENARIOS)
        opponents = {"scripted": seat.opponent("scripted", 1.0, CHAT)}
        seat.play(model, ChatDecoding(temperature=1.0, max_tokens=6), [Dealt(0, 0, "scripted")], opponents, 3)
        assert scored == [1] * times
    shared.remove(adapter)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_corpus(tmp_path_factory.mktemp("corpus"))


def asked(base: str, corpus: str, **rest: object) -> TrainChatRlConfig:
    rule = ChatReinforceConfig(updates=2, scenarios=2, tries=2, max_tokens=6, supervised_batch=2)
    settings = {"base": base, "game": "negotiation", "corpus": corpus, "examples": 4, "opponents": "scripted", **rest}
    return TrainChatRlConfig(reinforce=rule, lora=LoraSettings(rank=2), chat=CHAT, **settings)


def test_a_training_tells_of_deals_and_points(base: str, corpus: str, ray_session: RaySession, tmp_path: Path) -> None:
    # Of the scenarios of an update with this seed one is ordinary, the other an attack.
    result = TRAIN_CHAT_RL.run(asked(base, corpus, seed=2), tmp_path / "run", Silent())
    assert 0 <= result.metrics["training_agreed"].value <= 1
    assert 0 <= result.metrics["training_points"].value <= 10
    assert -10 <= result.metrics["training_advantage"].value <= 10
    assert "training_leak" not in result.metrics
    events = RunFolder.load(tmp_path / "run").events({UPDATE: {"number": int}})
    first, second = (event for event in events if event["kind"] == UPDATE)
    assert min(first["supervised_loss"], second["supervised_loss"]) > 0
    assert (tmp_path / "run" / "checkpoint").is_dir()
    assert f"--adversary {base} --target hf:" in result.next_commands[-1]
    assert TRAIN_CHAT_RL.models(asked(base, corpus)) == {"base": base, "start": "", "partner": base}


def test_an_adversary_is_paid_what_it_is_ahead(base: str, corpus: str, ray_session: RaySession, tmp_path: Path) -> None:
    result = TRAIN_CHAT_RL.run(asked(base, corpus, role="attacker", opponents=base), tmp_path / "run", Silent())
    assert result.metrics["training_reward"].value == pytest.approx(result.metrics["training_advantage"].value / 10)
    events = RunFolder.load(tmp_path / "run").events({UPDATE: {"number": int}})
    assert any(event["advantage"] for event in events if event["kind"] == UPDATE)
    assert "training_points" not in result.metrics
    assert f"--target {base}" in result.next_commands[-1]
    with pytest.raises(ConfigError, match="an attacker needs a defender"):
        TRAIN_CHAT_RL.run(asked(base, corpus, role="attacker", opponents=""), tmp_path / "none", Silent())


def test_a_partner_that_does_not_exist_is_refused(base: str, corpus: str, tmp_path: Path) -> None:
    with pytest.raises(ParleyError, match="--partner"):
        TRAIN_CHAT_RL.run(asked(base, corpus, partner="runs/none"), tmp_path / "run", Silent())
