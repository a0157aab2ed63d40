"""Discriminators against their equations, read word by word and whole, alone and beside others."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from parley.envs.corpora.pairs.vocabulary import EOS_ID
from parley.policies.generation.discriminator.batches import (
    Critic,
    Discriminator,
    LinearCritic,
    ReplyExamples,
    context_batch,
    reply_batch,
)
from tests.devices import CLOSE, on_each_device
from tests.policies.generation.discriminator.made_up import EOT_ID, KINDS, VOCABULARY, judged, network, sizes

NUM = 12
each_kind = pytest.mark.parametrize("kind", KINDS)


def vector(model: Discriminator, words: list[int]) -> Tensor:
    """An utterance's vector by torch's own layer, without a batch."""
    return model.reader.words(model.reader.embedding(torch.tensor([words])))[0][0, -1:]


def by_the_paper(model: Discriminator, source: list[int], reply: list[int]) -> Tensor:
    """Log-odds of a reply that is read as it is given."""
    text = " ".join(map(str, source)).split(f" {EOT_ID} ")
    turns = [[*map(int, turn.split())][-model.sizes.words + 1 :] for turn in text][-model.sizes.turns :]
    vectors = [vector(model, [*turn, EOS_ID]) for turn in turns] + [vector(model, reply)]
    if model.reader.sentences is None:
        missing = [torch.zeros(1, model.sizes.hidden)] * (model.sizes.turns + 1 - len(vectors))
        joined = torch.cat([*missing, *vectors], dim=1)
    else:
        state = (torch.zeros(1, model.sizes.hidden),) * 2
        for each in vectors:
            state = model.reader.sentences(each, state)
        joined = state[0]
    shares = model.output(joined).softmax(1)[0]
    return (shares[1] / shares[0]).log()


def examples(model: Discriminator, *, prefixes: bool = False) -> ReplyExamples:
    return ReplyExamples(judged(NUM), model.vocabulary, model.sizes, prefixes=prefixes)


@each_kind
def test_it_computes_what_the_paper_says_whatever_else_is_in_the_batch(kind: str) -> None:
    model = network(kind)
    found_R = model(examples(model).batch(np.arange(NUM)))
    replies = [(item.source, [*reply[:6], EOS_ID]) for item in judged(NUM) for reply in item.replies]
    expected_R = torch.stack([by_the_paper(model, list(source), reply) for source, reply in replies])
    torch.testing.assert_close(found_R, expected_R)
    assert expected_R.std() > 0.05


@each_kind
def test_prefixes_are_whole_passes_over_them_in_one_pass_and_word_by_word(kind: str) -> None:
    model, items = network(kind), judged(NUM)
    memory = model.read(context_batch([item.source for item in items], VOCABULARY, model.sizes))
    words_RT, lengths_R = reply_batch([item.replies[0] for item in items], model.sizes)
    found_RT = model.prefixes(memory, words_RT, lengths_R)
    state = model.begin(memory)
    for step, words_R in enumerate(words_RT.unbind(1)):
        state = model.advance(words_R, state)
        one_by_one_R = model.human(memory, state)
        for row, item in enumerate(items):
            if step < lengths_R[row]:
                expected = by_the_paper(model, list(item.source), words_RT[row, : step + 1].tolist())
                torch.testing.assert_close(found_RT[row, step], expected, rtol=0, atol=1e-5)
                torch.testing.assert_close(one_by_one_R[row], expected, rtol=0, atol=1e-5)
            else:
                assert found_RT[row, step] == 0
    whole_R = model(examples(model).batch(np.arange(NUM)))[::2]
    torch.testing.assert_close(found_RT[torch.arange(NUM), lengths_R - 1], whole_R, rtol=0, atol=1e-5)


@each_kind
def test_gradients_flow_to_every_weight_through_whole_replies_and_prefixes(kind: str) -> None:
    model = network(kind)
    batch = examples(model).batch(np.arange(NUM))
    memory = model.read(batch.contexts).of(batch.rows_R)
    last_R = model.prefixes(memory, batch.words_RT, batch.lengths_R)[torch.arange(2 * NUM), batch.lengths_R - 1]
    by_prefix = torch.autograd.grad(last_R.sum(), list(model.parameters()))
    whole = torch.autograd.grad(model(batch).sum(), list(model.parameters()))
    for ours, theirs in zip(by_prefix, whole, strict=True):
        assert ours.any()
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_reply_that_is_over_is_not_its_last_prefix() -> None:
    model, item = network(), judged(1)[0]
    memory = model.read(context_batch([item.source], VOCABULARY, model.sizes))
    odds = model.prefixes(memory, *reply_batch([[7, 8]], model.sizes))[0]
    assert len(odds) == 3
    assert abs((odds[2] - odds[1]).item()) > 1e-3


def test_a_partial_sequence_is_drawn_by_the_seed_of_its_example() -> None:
    model = network()
    whole, found = (examples(model, prefixes=each).batch(np.arange(NUM)) for each in (False, True))
    assert bool((found.lengths_R >= 1).all())
    assert bool((found.lengths_R <= whole.lengths_R).all())
    assert len(set(found.lengths_R.tolist())) > 3
    alone = [examples(model, prefixes=True).batch(np.array([number])) for number in reversed(range(NUM))]
    assert [each.lengths_R.tolist() for each in reversed(alone)] == found.lengths_R.view(-1, 2).tolist()
    torch.testing.assert_close(torch.cat([model(each) for each in reversed(alone)]), model(found))


def test_every_length_of_a_partial_sequence_is_as_likely() -> None:
    model = network()
    (item,) = judged(1)
    many = [type(item)(item.source, [[7, 8, 9]], [True], seed) for seed in range(800)]
    lengths = ReplyExamples(many, VOCABULARY, model.sizes, prefixes=True).batch(np.arange(800)).lengths_R
    assert all(abs(int(count) - 200) < 50 for count in torch.bincount(lengths)[1:])
    assert int(lengths.max()) == 4


@each_kind
def test_a_critic_values_a_context_before_a_word_is_said_and_after_each(kind: str) -> None:
    critic, items = Critic(VOCABULARY, sizes(kind)), judged(NUM)
    critic.initialise(torch.Generator().manual_seed(1))
    contexts = context_batch([item.source for item in items], VOCABULARY, critic.sizes)
    words_BT, lengths_B = reply_batch([item.replies[0] for item in items], critic.sizes)
    values_BT = critic.prefixes(contexts, words_BT, lengths_B)
    assert values_BT.shape == (NUM, words_BT.shape[1] + 1)
    torch.testing.assert_close(critic(contexts), values_BT[:, 0])
    for row, item in enumerate(items):
        alone, length = context_batch([item.source], VOCABULARY, critic.sizes), lengths_B[row : row + 1]
        whole, shorter = (critic.prefixes(alone, words_BT[row : row + 1], each)[0] for each in (length, length - 1))
        torch.testing.assert_close(whole, values_BT[row])
        torch.testing.assert_close(shorter[: int(length)], values_BT[row, : int(length)])
        assert not shorter[int(length) :].any()
    assert len(set(values_BT[:, 0].tolist())) == NUM


def test_the_released_critic_starts_at_zero_and_leaves_the_encoder_alone() -> None:
    critic, last_BH = LinearCritic(8), torch.randn(4, 8, requires_grad=True)
    values_B1 = critic(last_BH)
    assert values_B1.tolist() == [[0.0]] * 4
    (values_B1 - 1).square().sum().backward()
    assert last_BH.grad is None
    assert critic.output.weight.grad is not None


@on_each_device
@each_kind
def test_it_judges_the_same_on_each_device(kind: str, device: str) -> None:
    model = network(kind)
    batch = examples(model).batch(np.arange(NUM))
    wanted = model(batch)
    found = model.to(device)(batch.to(torch.device(device)))
    torch.testing.assert_close(found.cpu(), wanted, **CLOSE)
