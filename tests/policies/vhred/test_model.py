"""VHRED: the fast recurrence is the plain one, padding is not seen, the posterior sees the reply and the prior does not."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from parley.envs.corpora.pairs.vocabulary import BOS_ID
from parley.policies.core.fitting.batches import OutputLoss
from parley.policies.vhred.model import VHRED, DialogueBatch, DialogueExamples, Gaussians, divergence
from parley.policies.vhred.settings import VhredAttention
from tests.policies.vhred.made_up import ATTENTIONS, VOCABULARY, dialogues, examples, sizes, vhred

ALL = np.arange(6)


class PlainLoss(OutputLoss):
    """The same in the precision of its arguments, which finite differences need."""

    def __call__(self, states_MH: Tensor, targets_M: Tensor) -> Tensor:
        return F.cross_entropy(self.output(states_MH), targets_M, reduction="sum")


def stepped(model: VHRED, batch: DialogueBatch) -> Tensor:
    """Readouts (B, T, R) made step by step, as in decoding."""
    memory = model.listen(batch.context)
    state, found = model.begin(memory), []
    for words_B in batch.reply.words_in_BT.t():
        _, state = model.step(memory, words_B, state)
        found.append(state.readout_BR)
    return torch.stack(found, dim=1)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_the_fast_recurrence_is_the_plain_one_and_has_its_gradients(attention: VhredAttention) -> None:
    model, batch = vhred(dtype=torch.float64, attention=attention), examples(6).batch(ALL)
    weights = [weight for name, weight in model.named_parameters() if not name.startswith(("posterior", "output", "prior.dev"))]
    fast, plain = model.target_states(batch), stepped(model, batch)[batch.real_BT]
    torch.testing.assert_close(fast, plain)
    factors = torch.linspace(-1, 2, fast.numel(), dtype=fast.dtype).view_as(fast)
    for found, wanted in zip(*(torch.autograd.grad((out * factors).sum(), weights) for out in (fast, plain)), strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_the_loss_has_the_gradients_that_finite_differences_have(attention: VhredAttention) -> None:
    model = vhred(dtype=torch.float64, attention=attention, dropout=0.3, word_drop=0.3, anneal_steps=3).train()
    batch, output_loss = examples(6).batch(ALL), PlainLoss(model.output)

    def loss() -> Tensor:
        torch.manual_seed(1)
        model.steps.fill_(1)
        return model.loss(batch, output_loss).total

    loss().backward()
    generator = torch.Generator().manual_seed(0)
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        way = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
        slope = float((weight.grad * way).sum())
        with torch.no_grad():
            weight.add_(way, alpha=1e-5)
            above = float(loss())
            weight.sub_(way, alpha=2e-5)
            below = float(loss())
            weight.add_(way, alpha=1e-5)
        assert slope == pytest.approx((above - below) / 2e-5, rel=1e-5, abs=1e-6), name


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_what_stands_beside_an_example_does_not_matter(attention: VhredAttention) -> None:
    model, several = vhred(attention=attention), examples(6)
    together = several.batch(ALL)
    divergences_B = model.divergences(together)
    states_BT = torch.split(model.target_states(together), several.num_targets[ALL].tolist())
    for row in range(6):
        alone = several.batch(np.array([row]))
        torch.testing.assert_close(model.target_states(alone), states_BT[row])
        torch.testing.assert_close(model.divergences(alone)[0], divergences_B[row])


def test_every_turn_that_it_reads_tells_and_no_other() -> None:
    contexts, replies = dialogues(40)
    context, reply = next((c, r) for c, r in zip(contexts, replies, strict=True) if len(c) == 4)
    changed = [(*context[:place], (("w1", "w2", "w3", "w4"),), *context[place + 1 :]) for place in range(4)]
    batch = DialogueExamples([context, *changed], [reply] * 5, VOCABULARY, sizes()).batch(np.arange(5))
    means = [tuple(row.tolist()) for row in vhred().prior(vhred().summarise(batch.context).newest_BC).mean_BZ]
    assert means[1] == pytest.approx(means[0]), "the model reads three turns"
    assert all(means[place] != pytest.approx(means[0], abs=1e-3) for place in (2, 3, 4))


def test_the_posterior_sees_the_reply_and_the_prior_does_not() -> None:
    contexts, (reply, *_) = dialogues(1)
    other = (("w9", "w8", "w7"),)
    batch = DialogueExamples(contexts * 2, [reply, other], VOCABULARY, sizes()).batch(np.arange(2))
    model = vhred()
    summary, posterior, divergence_B = model._posteriors(batch)
    prior = model.prior(summary.newest_BC)
    assert torch.equal(prior.mean_BZ[0], prior.mean_BZ[1])
    assert (posterior.mean_BZ[0] - posterior.mean_BZ[1]).abs().max() > 0.01
    assert divergence_B[0] != divergence_B[1]
    torch.testing.assert_close(divergence_B, kl_divergence(Normal(*posterior), Normal(*prior)).sum(1))


def test_a_reply_is_encoded_as_the_turn_that_it_becomes() -> None:
    said = (("w1", "w2"), ("w3",))
    batch = DialogueExamples([(said,)], [said], VOCABULARY, sizes()).batch(np.array([0]))
    model = vhred()
    summary, posterior, _ = model._posteriors(batch)
    (turn_E,), _ = model._encode_turns(batch.context)
    wanted = model.posterior(torch.cat([summary.newest_BC[0], turn_E]).unsqueeze(0))
    torch.testing.assert_close(posterior.mean_BZ, wanted.mean_BZ)


def test_no_word_is_predicted_from_itself_or_a_later_one() -> None:
    batch = examples(1).batch(np.array([0]))
    words_in = torch.tensor([[BOS_ID, 5, 6, 7]])
    model = vhred()
    memory = model.listen(batch.context)
    before = model.reply_states(memory, words_in)
    words_in[0, 2] = 9
    after = model.reply_states(memory, words_in)
    assert torch.equal(after[:, :2], before[:, :2])
    assert not torch.equal(after[:, 2:], before[:, 2:])


def test_the_divergence_is_that_of_normal_distributions() -> None:
    generator = torch.Generator().manual_seed(0)
    of, source = (Gaussians(torch.randn(5, 4, generator=generator), torch.rand(5, 4, generator=generator) + 0.1) for _ in "ab")
    wanted = kl_divergence(Normal(*of), Normal(*source)).sum(1)
    torch.testing.assert_close(divergence(of, source), wanted)
    assert (wanted > 0).all()
    assert divergence(of, of).tolist() == [0.0] * 5


def test_the_divergence_counts_the_more_the_longer_training_lasts() -> None:
    model = vhred(anneal_steps=4).train()
    batch, output_loss = examples(6).batch(ALL), OutputLoss(model.output)
    expected = float(model.divergences(batch).detach().sum())
    shares = []
    for _ in range(6):
        loss = model.loss(batch, output_loss)
        shares.append(float((loss.total - loss.nll).detach()) / expected)
    assert shares == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1], rel=1e-4)
    assert int(model.steps) == 6
    model.eval().loss(batch, output_loss)
    assert int(model.steps) == 6, "measuring is no training"


def test_training_reads_a_draw_of_the_posterior() -> None:
    model = vhred().train()
    batch, output_loss, found = examples(6).batch(ALL), OutputLoss(model.output), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(float(model.loss(batch, output_loss).nll.detach()))
    assert found[0] == found[1] != found[2]


def test_words_are_hidden_from_the_decoder_in_training_alone() -> None:
    model, words = vhred(word_drop=0.5), torch.arange(5, 29).repeat(50, 1)
    assert torch.equal(model._dropped(words), words)
    model.train()
    torch.manual_seed(0)
    changed = model._dropped(words) != words
    assert float(changed[:, 1:].float().mean()) == pytest.approx(0.5, abs=0.05)
    assert not changed[:, 0].any()


def test_dropout_takes_the_same_units_at_all_places_of_a_row() -> None:
    model = vhred(dropout=0.5).train()
    torch.manual_seed(0)
    dropped = model._steady(torch.ones(4, 5, 6))
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert not torch.equal(dropped[0], dropped[1])


def test_an_untrained_model_thinks_all_words_alike() -> None:
    model = VHRED(VOCABULARY, sizes(embed=30, readout=12))
    model.initialise(torch.Generator().manual_seed(1))
    batch = examples(6).batch(ALL)
    assert float(model.eval().nll(batch).mean().detach()) == pytest.approx(math.log(len(VOCABULARY)), rel=0.1)
    for cell in (model.encoder.forwards.bias_ih_l0, model.context.backwards.bias_ih_l0, model.decoder.bias_ih):
        hidden = len(cell) // 4
        assert cell.view(4, hidden).sum(1).tolist() == [0, hidden, 0, 0]
