"""Reinforcement learning of an adapter: what is played, what is learned from it, and that it goes on exactly."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from parley.engine.chat.rl.algorithm import ChatReinforce, ChatReinforceAlgorithmConfig, advantages_of
from parley.engine.chat.rl.learner import batch_rows, policy_gradient
from parley.engine.chat.rl.runner import ChatLearnerSpec, OwnTurn, SecretSeat, sequences
from parley.engine.chat.rl.settings import ChatReinforceConfig
from parley.engine.core.ray.session import RaySession
from parley.engine.core.rllib import reproducible as state
from parley.engine.core.rllib.reproducible import DivergenceError
from parley.engine.core.verbs.supervised import built
from parley.envs.secret.game import ATTACKER, DEFENDER, SecretRules
from parley.policies.chat.adapters import shared_base
from parley.policies.chat.settings import ChatSeat, LoraSettings
from parley.policies.hugging_face.caches import TokenTree
from tests.policies.chat.bases import saved_base

pytest.importorskip("peft", reason="the extra lora is not installed")
pytestmark = pytest.mark.ray
RULE = ChatReinforceConfig(scenarios=4, tries=3, max_tokens=6, at_once=6, learning_rate=1e-2, kl_weight=0.1)
SCRIPTED = [([5, 6, 7, 8], [False, False, True, True]), ([9, 10, 11], [False, True, True])]


class Even(ChatReinforce):
    """A learner whose reward is the share of its tokens with an even number."""

    def rewards(self, played: Sequence[Mapping[str, Any]]) -> np.ndarray:
        shares = []
        for row in played:
            own = [token for ids, is_own in row["sequences"] for token, mine in zip(ids, is_own, strict=True) if mine]
            shares.append(sum(token % 2 == 0 for token in own) / len(own))
        return np.array(shares)


class Alike(ChatReinforce):
    """A learner whose dialogues all earn the same."""

    def rewards(self, played: Sequence[Mapping[str, Any]]) -> np.ndarray:
        return np.ones(len(played))


class Silent(ChatReinforce):
    """A learner of which every answer is empty."""

    def _learn(self, learned: Any) -> dict[str, float]:
        return {}

    def gather(self, items: Any, begun: Any = None) -> list[dict[str, Any]]:
        parts = super().gather(items, begun)
        for part in parts:
            for row in part["played"].values():
                row["silent"] = row["texts"]
        return parts


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"hf:{saved_base(tmp_path_factory.mktemp('base'), std=0.4)}"


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def settings(
    base: str,
    side: int = DEFENDER,
    rule: ChatReinforceConfig = RULE,
    kind: type = ChatReinforce,
    start: str = "",
    seed: int = 3,
    **rest: Any,
) -> Any:
    spec = ChatLearnerSpec(
        base, start, SecretSeat(side, SecretRules(max_messages=2)), LoraSettings(rank=2), ChatSeat(batch_size=8), seed
    )
    opponents = ("naive",) if side == ATTACKER else ("ask", "spell")
    options = {"opponents": opponents, "scripted": SCRIPTED, **rest}
    return ChatReinforceAlgorithmConfig(algo_class=kind).conversations(reinforce=rule, spec=spec, **options)


def trained(made: Any, updates: int) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    with built(made) as algorithm:
        figures = []
        for _ in range(updates):
            algorithm.train()
            figures.append(dict(algorithm.last))
        return state.learned_weights(algorithm), figures


def test_turns_of_a_dialogue_are_one_sequence_until_a_template_writes_them_otherwise() -> None:
    turns = [OwnTurn([1, 2], [3, 4]), OwnTurn([1, 2, 3, 4, 5], [6]), OwnTurn([1, 2, 3, 9, 5, 6, 7], [8])]
    first, second = sequences(turns)
    assert first == ([1, 2, 3, 4, 5, 6], [False, False, True, True, False, True])
    assert second == ([1, 2, 3, 9, 5, 6, 7, 8], [*[False] * 7, True])


def test_a_reward_is_compared_with_those_of_the_other_tries() -> None:
    rewards = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.5]])
    assert advantages_of(rewards, "leave-one-out").tolist() == [[1.0, -0.5, -0.5], [0.0, 0.0, 0.0]]
    group = advantages_of(rewards, "group")
    assert group[0] == pytest.approx([2**0.5, -(0.5**0.5), -(0.5**0.5)])
    assert not group[1].any()


def test_the_tries_of_a_scenario_share_it_and_its_opponent(base: str, ray_session: RaySession) -> None:
    with built(settings(base, shares=(0.0, 1.0))) as algorithm:
        dealt = [algorithm.dealt(update) for update in range(10)]
        rows = [dialogue for update in dealt for dialogue in update]
        assert [row.number for row in rows] == list(range(len(rows)))
        met = {row.scenario: set() for row in rows}
        for row in rows:
            met[row.scenario].add(row.opponent)
        assert all(len(opponents) == 1 for opponents in met.values())
        assert set.union(*met.values()) == {"", "spell"}
        assert 5 < sum(opponents == {""} for opponents in met.values()) < 35
        played = algorithm.env_runner.sample(dealt=[(0, dealt[0][:3])])["played"]
    for row in played.values():
        ids, own = row["sequences"][0]
        assert len(ids) == len(own)
        assert own[-1]
        assert not own[0]
        assert row["texts"] == 2


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_gradient_is_that_of_the_plain_loss_whatever_the_pieces(
    base: str, ray_session: RaySession, temperature: float
) -> None:
    rng = np.random.default_rng(0)
    played = []
    for length, advantage in ((9, 1.0), (14, -0.5), (6, 0.25)):
        own = rng.random(length) < 0.4
        own[0], own[-1] = False, True
        played.append((rng.integers(5, 60, length).tolist(), own.tolist(), advantage))
    # Tries of a scenario begin alike, one of them with own tokens that another has, too.
    beginning, read = rng.integers(5, 60, 40).tolist(), list[int]()
    for length, advantage in ((5, 0.5), (9, -1.0), (1, 0.75)):
        own = [False] * 38 + [length != 5] * 2 + (rng.random(length) < 0.5).tolist()
        own[-1] = True
        played.append((beginning + rng.integers(5, 60, length).tolist(), own, advantage))

    class Counted(TokenTree):
        def logits(self, model: Any, places: Sequence[int]) -> torch.Tensor:
            read.append(len(self))
            return super().logits(model, places)

    gradients = []
    for at_once in (8, 1):
        rule = replace(RULE, temperature=temperature)
        with built(settings(base, rule=rule)) as algorithm, pytest.MonkeyPatch.context() as patch:
            patch.setattr(ChatReinforceConfig, "rows_at_once", at_once)
            patch.setattr("parley.policies.chat.predictor.TokenTree", Counted)
            learner = algorithm.learner_group._learner
            columns = {name: torch.from_numpy(value) for name, value in batch_rows(played, SCRIPTED, 0.1).items()}
            # Garbage behind the end changes nothing.
            for row, length in enumerate(columns["lengths"].tolist()):
                columns["tokens"][row, length:] = 17
            # A start that the learner has left, so that the KL has a gradient.
            module = learner.module["defender"].unwrapped()
            with torch.no_grad():
                for number, (_, value) in enumerate(sorted(module.net.items())):
                    value.add_(0.3 * torch.randn(value.shape, generator=torch.Generator().manual_seed(number)))
            loss = learner.compute_loss_for_module(module_id="defender", config=None, batch=columns, fwd_out={})
            gradients.append({name: value.grad.clone() for name, value in module.net.items()})
            plain = plain_loss(module, played, temperature)
            assert float(loss) == pytest.approx(float(plain.detach()), abs=1e-4)
            wanted = torch.autograd.grad(plain, list(module.net.values()))
            for (name, value), grad in zip(module.net.items(), wanted, strict=True):
                assert_alike(value.grad, grad, name)
    # All six behind the start and behind the learner, then the scripted ones; in the second round two side by side at most.
    texts = [tuple(tokens[:-1]) for tokens, *_ in played]
    num_distinct = len({text[: end + 1] for text in texts for end in range(len(text))})
    assert read[0] == read[1] == num_distinct
    assert read[2] == sum(len(tokens) - 1 for tokens, _ in SCRIPTED)
    assert sum(read[3:-2]) > 2 * num_distinct
    for name, value in gradients[0].items():
        assert_alike(value, gradients[1][name], name)


@pytest.mark.parametrize("has_start", [True, False])
@pytest.mark.parametrize("num", [1, 8, 21])
def test_a_gradient_at_logits_is_that_of_the_written_loss_in_blocks_too(num: int, has_start: bool) -> None:
    logits_MV, start_MV = torch.randn(2, num, 30, generator=torch.Generator().manual_seed(num)).double()
    targets_M, factors_M = torch.arange(num) % 30, torch.linspace(-1, 2, num).double()
    rows_MV = logits_MV.clone().requires_grad_()
    log_p_MV, start_log_p_MV = (rows_MV / 0.7).log_softmax(-1), (start_MV / 0.7).log_softmax(-1)
    said_M, entropy_M = log_p_MV[torch.arange(num), targets_M], -(log_p_MV.exp() * log_p_MV).sum(-1)
    kl_M = (log_p_MV.exp() * (log_p_MV - start_log_p_MV)).sum(-1) if has_start else torch.zeros(num).double()
    (wanted,) = torch.autograd.grad((0.3 * kl_M - factors_M * said_M).sum(), rows_MV)
    values = policy_gradient(logits_MV, start_MV if has_start else None, targets_M, factors_M, 0.3, 0.7)
    for value, right in zip(values, (wanted, said_M, entropy_M, kl_M), strict=True):
        torch.testing.assert_close(value, right.detach())
    assert torch.equal(logits_MV, rows_MV)


def assert_alike(gradient: torch.Tensor, wanted: torch.Tensor, name: str) -> None:
    """Two gradients are equal but for the rounding of sums in float32."""
    torch.testing.assert_close(gradient, wanted, rtol=2e-4, atol=2e-4 * float(wanted.abs().max()), msg=name)


def plain_loss(module: Any, played: Sequence[tuple[list[int], list[bool], float]], temperature: float) -> torch.Tensor:
    """The loss by its formula, one sequence at a time, without padding."""
    base = module.base
    num_played = sum(sum(own) for _, own, _ in played)
    num_scripted = sum(sum(own) for _, own in SCRIPTED)
    total = torch.zeros(())

    def scores(tokens: list[int], temperature: float) -> torch.Tensor:
        return (base.model(input_ids=torch.tensor([tokens])).logits[0, :-1] / temperature).log_softmax(-1)

    for tokens, own, advantage in played:
        with base.using(""), torch.no_grad():
            start = scores(tokens, temperature)
        with base.using(module.adapter):
            now = scores(tokens, temperature)
        for place, mine in enumerate(own[1:]):
            if mine:
                kl = (now[place].exp() * (now[place] - start[place])).sum()
                total = total + (0.1 * kl - advantage * now[place, tokens[place + 1]]) / num_played
    with base.using(module.adapter):
        for tokens, own in SCRIPTED:
            for place, mine in enumerate(own[1:]):
                if mine:
                    total = (
                        total
                        + 0.1 * F.nll_loss(scores(tokens, 1.0)[place][None], torch.tensor([tokens[place + 1]])) / num_scripted
                    )
    return total


def test_what_earns_a_reward_is_said_more_often(base: str, ray_session: RaySession) -> None:
    rule = replace(RULE, scenarios=6, tries=4, at_once=24, kl_weight=0.0, supervised_weight=0.0, learning_rate=3e-2)
    _, figures = trained(settings(base, ATTACKER, rule, Even, seed=6), 16)
    rewards = [figure["reward"] for figure in figures]
    # Seeds 3 to 8 gain -.01 to .16: an update of few dialogues is mostly noise.
    assert np.mean(rewards[-4:]) > np.mean(rewards[:4]) + 0.05


def test_a_resumed_training_and_one_with_runners_are_equal_to_the_digit(
    base: str, ray_session: RaySession, tmp_path: Path
) -> None:
    whole, figures = trained(settings(base, ATTACKER, kind=Even), 3)
    with built(settings(base, ATTACKER, kind=Even)) as algorithm:
        for _ in range(2):
            algorithm.train()
        state.save(algorithm, tmp_path / "state.safetensors")
    with built(settings(base, ATTACKER, kind=Even)) as algorithm:
        assert state.restore(algorithm, tmp_path / "state.safetensors") == 2
        algorithm.train()
        again, last = state.learned_weights(algorithm), algorithm.last
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    assert last["reward"] == figures[-1]["reward"]
    several = settings(base, ATTACKER, kind=Even)
    several.env_runners(num_env_runners=2)
    apart, _ = trained(several, 3)
    assert all(torch.equal(whole[name], apart[name]) for name in whole)


def test_the_watch_raises_the_kl_and_ends_a_silent_learner(
    base: str, ray_session: RaySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ChatReinforceConfig, "kl_limit", 1e-6)
    _, figures = trained(settings(base, ATTACKER, RULE, Even), 3)
    assert figures[0]["kl_weight"] == 0.1
    assert figures[-1]["kl_weight"] > 0.1
    with built(settings(base, ATTACKER, RULE, Silent)) as algorithm:
        algorithm.train()
        algorithm.train()
        with pytest.raises(DivergenceError, match="stopped to speak"):
            algorithm.train()


@pytest.mark.parametrize(
    ("change", "kind", "missing"),
    [
        ({"kl_weight": 0.0}, Even, {"kl"}),
        ({"supervised_weight": 0.0}, Even, {"supervised_loss"}),
        # All tries earn the same, so that no dialogue is read again.
        ({}, Alike, {"kl", "token_entropy", "policy_gradient_loss"}),
    ],
)
def test_what_was_not_read_has_no_figure(
    base: str, ray_session: RaySession, change: dict[str, float], kind: type, missing: set[str]
) -> None:
    _, (figures,) = trained(settings(base, ATTACKER, replace(RULE, **change), kind), 1)
    assert {"kl", "token_entropy", "policy_gradient_loss", "supervised_loss"} - set(figures) == missing


def test_an_adapter_goes_on_from_a_stored_one_and_the_kl_is_to_it(base: str, ray_session: RaySession, tmp_path: Path) -> None:
    shared = shared_base(base, ChatSeat(batch_size=8))
    with built(settings(base, ATTACKER, kind=Even)) as algorithm:
        algorithm.train()
        module = algorithm.env_runner.module["attacker"]
        shared.write(module.adapter, tmp_path / "adapter")
        stored = {name: value.detach().clone() for name, value in module.net.items()}
    with built(settings(base, ATTACKER, kind=Even, start=f"hf:{tmp_path / 'adapter'}")) as algorithm:
        weights = algorithm.env_runner.module["attacker"].net
        assert all(torch.equal(value, weights[name]) for name, value in stored.items())
        algorithm.train()
        assert algorithm.last["kl"] == pytest.approx(0.0, abs=1e-6)
        assert algorithm.last["policy_gradient_loss"] != 0


def test_adapters_go_with_the_training_that_made_them(base: str, ray_session: RaySession, tmp_path: Path) -> None:
    shared = shared_base(base, ChatSeat(batch_size=8))
    with built(settings(base, ATTACKER, kind=Even)) as algorithm:
        algorithm.write(tmp_path / "adapter")
    del algorithm
    sizes = []
    for _ in range(3):
        trained(settings(base, ATTACKER, kind=Even, start=f"hf:{tmp_path / 'adapter'}"), 1)
        gc.collect()
        sizes.append(sum(parameter.numel() for parameter in shared.model.parameters()))
    assert sizes[0] == sizes[1] == sizes[2]
