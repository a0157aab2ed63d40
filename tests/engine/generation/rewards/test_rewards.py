"""Rewards: the fast ones are those of a plain reference, and belong to their word and example alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.plain_regs import plain_prefixes, plain_rollouts, plain_whole
from parley.engine.generation.rewards.rewards import ReplyActions, limit, reply_actions, rewards, rollout_draws, rollout_rewards
from parley.engine.generation.settings import Method, RewardSettings, released
from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.vocabulary import EOS_ID, PAD_ID
from parley.policies.core.decoding import drawn
from parley.policies.generation.discriminator.batches import Discriminator
from tests.engine.generation.made_up import Pair, Said, heard, pair, said, some

METHODS: tuple[Method, ...] = ("reinforce", "regs-mc", "regs-partial")
each_method = pytest.mark.parametrize("method", METHODS)
NUM, MAX_WORDS = 24, 6


def earned(method: Method, models: Pair, batch: Said, **changes: Any) -> Tensor:
    settings = RewardSettings(method=method, **changes)
    generator, discriminator, most = models
    return rewards(settings, generator, batch.memory, discriminator, batch.contexts, batch.replies, batch.seeds, most)


def as_words(replies: ReplyActions) -> list[list[int]]:
    return [row[: length - 1].tolist() for row, length in zip(replies.words_BT, replies.lengths_B, strict=True)]


@pytest.fixture(params=[("hierarchical", 0), ("concatenated", 0), ("hierarchical", 2)], ids=lambda kind: f"{kind[0]}-{kind[1]}")
def models(request: pytest.FixtureRequest) -> Pair:
    kind, layers = request.param
    return pair(12, MAX_WORDS, ends=1.5, kind=kind, layers=layers)


def test_rollouts_earn_what_the_plain_way_gives_them(models: Pair) -> None:
    batch = said(models, NUM)
    lengths = batch.replies.num_actions_B
    assert 0 < int(batch.replies.is_cut_B.sum()) < NUM
    assert len(set(lengths.tolist())) > 3
    found_BT = earned("regs-mc", models, batch, num_rollouts=3)
    args = models.generator, models.discriminator, batch.sources, batch.replies, batch.seeds, 3, MAX_WORDS
    for length, wanted_B in plain_rollouts(*args, range(1, MAX_WORDS)).items():
        rows = lengths > length
        torch.testing.assert_close(found_BT[rows, length - 1], wanted_B[rows], rtol=0, atol=1e-5)
    whole_B = plain_whole(models.discriminator, batch.sources, as_words(batch.replies))
    torch.testing.assert_close(batch.replies.at_end(found_BT), whole_B, rtol=0, atol=1e-5)


def test_partial_rewards_are_those_of_passes_of_their_own(models: Pair) -> None:
    batch = said(models, NUM)
    found_BT = earned("regs-partial", models, batch)
    plain_BT = plain_prefixes(models.discriminator, batch.sources, batch.replies)
    before_end_BT = torch.arange(found_BT.shape[1]) < batch.replies.num_actions_B.unsqueeze(1) - 1
    torch.testing.assert_close(found_BT[before_end_BT], plain_BT[before_end_BT], rtol=0, atol=1e-5)
    whole_B = plain_whole(models.discriminator, batch.sources, as_words(batch.replies))
    torch.testing.assert_close(batch.replies.at_end(found_BT), whole_B, rtol=0, atol=1e-5)


@each_method
def test_another_order_of_the_batch_orders_the_rewards_and_company_changes_none(method: Method) -> None:
    models = pair(12, MAX_WORDS, ends=1.5)
    batch = said(models, NUM)
    found_BT = earned(method, models, batch)
    order = torch.randperm(NUM, generator=torch.Generator().manual_seed(3)).tolist()
    torch.testing.assert_close(earned(method, models, some(order, models, batch)), found_BT[order], rtol=0, atol=1e-6)
    for row in (0, 5, 11):
        alone_1T = earned(method, models, some([row], models, batch))
        torch.testing.assert_close(alone_1T[0], found_BT[row, : alone_1T.shape[1]], rtol=0, atol=1e-6)
        assert not found_BT[row, alone_1T.shape[1] :].any()


@each_method
def test_the_end_is_an_action_with_a_reward_and_nothing_behind_it_has_one(method: Method) -> None:
    models = pair(12, MAX_WORDS, ends=1.5)
    replies = reply_actions([[], [7], [7, 8, 9, 7, 8, 9], [8, 8]], MAX_WORDS)
    assert replies.num_actions_B.tolist() == [1, 2, 6, 3]
    found_BT = earned(method, models, heard(models, [[7, 8]] * 4, [1, 2, 3, 4], replies))
    assert found_BT.shape == (4, 7)
    assert torch.equal(found_BT > 0, replies.real_BT)
    assert bool((found_BT <= 1).all())


def test_a_reply_earns_the_same_at_each_of_its_words_with_reinforce() -> None:
    models = pair(12, MAX_WORDS, ends=1.5)
    batch = said(models, NUM)
    found_BT = earned("reinforce", models, batch)
    for row, actions in enumerate(batch.replies.num_actions_B.tolist()):
        assert len(set(found_BT[row, :actions].tolist())) == 1


def test_partial_rewards_depend_on_the_words_up_to_theirs_alone() -> None:
    models = pair(12, MAX_WORDS)
    replies = [[7, 8, 9, 10], [7, 8, 9, 11], [7, 8, 12], [7, 5, 9, 10]]
    batch = heard(models, [[7, 8]] * 4, [1, 2, 3, 4], reply_actions(replies, MAX_WORDS))
    found_BT = earned("regs-partial", models, batch)
    torch.testing.assert_close(found_BT[1, :3], found_BT[0, :3])
    torch.testing.assert_close(found_BT[2, :2], found_BT[0, :2])
    torch.testing.assert_close(found_BT[3, :1], found_BT[0, :1])
    assert abs(found_BT[1, 3] - found_BT[0, 3]).item() > 1e-4
    assert abs(found_BT[3, 1] - found_BT[0, 1]).item() > 1e-4


def test_draws_belong_to_seed_beginning_continuation_and_place() -> None:
    three, five = rollout_draws(1, 3, MAX_WORDS), rollout_draws(1, 5, MAX_WORDS)
    assert (three == five[:3]).all()
    assert len(set(five.ravel().tolist())) == five.size
    assert not (three == rollout_draws(2, 3, MAX_WORDS)).any()


class Counting:
    """A generator that counts the rows that it reads, and names the different ones by their states."""

    def __init__(self, models: Pair) -> None:
        self._model, self.rows, self.distinct = models.generator, 0, 0

    def begin(self, memory: Any) -> Any:
        return self._model.begin(memory)

    def step(self, memory: Any, words_R: Tensor, state: Any) -> Any:
        logits, after = self._model.step(memory, words_R, state)
        self.rows += len(words_R)
        self.distinct += len({tuple(row) for row in torch.cat([after.cell_BH, memory.last_BH], 1).tolist()})
        return logits, after


class Listening(Discriminator):
    """A discriminator that counts the replies that it hears to their end."""

    num_ends = 0

    def advance(self, words_R: Tensor, state: Any) -> Any:
        self.num_ends += int((words_R == EOS_ID).sum())
        return super().advance(words_R, state)


def test_nothing_is_read_twice_and_equal_continuations_are_scored_once() -> None:
    models = pair(3, MAX_WORDS, ends=1.5)
    batch, counting = said(models, NUM), Counting(models)
    batch = some([row for row, source in enumerate(batch.sources) if source not in batch.sources[:row]], models, batch)
    listening = Listening(models.discriminator.vocabulary, models.discriminator.sizes).eval()
    listening.load_state_dict(models.discriminator.state_dict())
    found_BT = rollout_rewards(counting, batch.memory, listening, batch.contexts, batch.replies, batch.seeds, 5, MAX_WORDS)
    torch.testing.assert_close(found_BT, earned("regs-mc", models, batch))
    assert counting.rows == counting.distinct
    num_continuations = 5 * int((batch.replies.num_actions_B - 1).sum())
    assert len(batch.sources) <= listening.num_ends < num_continuations
    assert counting.rows < num_continuations * MAX_WORDS / 4


def test_padding_is_never_said() -> None:
    models = pair(12, MAX_WORDS, ends=1.5)
    batch, wanted_BT = said(models, NUM), earned("regs-mc", models, said(models, NUM))
    # As likely as any word; a reply that held it would be read as a shorter one.
    models.generator.output.bias.data[PAD_ID] = 2.0
    again = said(models, NUM)
    assert torch.equal(again.replies.words_BT, batch.replies.words_BT)
    torch.testing.assert_close(earned("regs-mc", models, again), wanted_BT)


def test_a_drawn_word_is_where_the_sum_of_probabilities_passes_the_draw() -> None:
    generator = torch.Generator().manual_seed(0)
    logits_nV = torch.randn(40, 300, generator=generator) * 3
    logits_nV[:, [0, 1, 130, 299]] = -torch.inf
    logits_nV[:5, 128:] = -torch.inf
    draws_R = torch.rand(4000, generator=generator, dtype=torch.float64)
    draws_R[:2] = torch.tensor([0.0, 1 - 2.0**-53])
    rows_R = torch.arange(4000) % 40
    found_R = drawn(logits_nV, draws_R, rows_R)
    passed_RV = logits_nV.double().softmax(1).cumsum(1)[rows_R]
    wanted_R = torch.searchsorted(passed_RV, draws_R.unsqueeze(1) * passed_RV[:, -1:], right=True).squeeze(1)
    assert torch.equal(found_R[2:], wanted_R[2:])
    assert bool(logits_nV[rows_R, found_R].isfinite().all())
    assert torch.equal(drawn(logits_nV, draws_R[:40]), found_R[:40])


def test_the_released_last_word_earns_what_the_word_before_it_does() -> None:
    models = pair(12, MAX_WORDS, ends=1.5)
    batch = said(models, NUM)
    ours_BT, theirs_BT = (earned("regs-mc", models, batch, last_word=each) for each in ("own", "before"))
    for row, actions in enumerate(batch.replies.num_actions_B.tolist()):
        torch.testing.assert_close(theirs_BT[row, : actions - 1], ours_BT[row, : actions - 1])
        assert theirs_BT[row, actions - 1] == ours_BT[row, max(actions - 2, 0)]


def test_defaults_are_the_papers_and_the_preset_is_the_released() -> None:
    assert RewardSettings().num_rollouts == 5
    assert RewardSettings().chosen_baseline == RewardSettings(method="regs-partial").chosen_baseline == "prefix"
    assert RewardSettings(method="reinforce").chosen_baseline == "critic"
    assert released().chosen_baseline == "critic"
    assert (released().max_words, released().last_word, released().divide) == (40, "before", "twice")


def test_models_that_cannot_work_together_are_refused() -> None:
    models, other = pair(12, MAX_WORDS), pair(11, MAX_WORDS)
    assert limit(RewardSettings(), models.generator, models.discriminator) == MAX_WORDS
    assert limit(RewardSettings(max_words=3), models.generator, models.discriminator) == 3
    with pytest.raises(ConfigError, match="different vocabularies"):
        limit(RewardSettings(), models.generator, other.discriminator)
    with pytest.raises(ConfigError, match="longer than what the generator says"):
        limit(released(), models.generator, models.discriminator)
    with pytest.raises(ConfigError, match="longer than what the discriminator reads"):
        limit(RewardSettings(), pair(12, MAX_WORDS + 1).generator, models.discriminator)
