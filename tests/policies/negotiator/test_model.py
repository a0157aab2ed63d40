"""The negotiator's networks: sizes, tying, dropout, initial weights, and what a result may depend on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parley.envs.core.errors import ConfigError
from parley.envs.negotiation.dealornodeal_rules import DISAGREE_ID, DISCONNECT_ID, NO_AGREEMENT_ID
from parley.envs.negotiation.domain import PAD_ID, SPECIALS, Vocabulary, domain_of, domains
from parley.policies.core.layers import TokenPlaces
from parley.policies.negotiator.model import (
    NegotiationBatch,
    Negotiator,
    by_length,
    make_batch,
    num_weighing,
    selection_loss,
    shuffled,
    supervised_loss,
    word_nll,
)
from parley.policies.negotiator.settings import NegotiatorSizes
from tests.policies.negotiator.made_up import TINY, VOCABULARY, dialogues, negotiator, row


def batch_of(size: int, seed: int = 0) -> NegotiationBatch:
    return make_batch(dialogues(size, seed), np.arange(size))


def test_the_published_sizes_have_the_published_number_of_parameters() -> None:
    vocabulary = Vocabulary((*SPECIALS, "YOU:", "THEM:", *(f"word{i}" for i in range(457))))
    assert len(vocabulary) == 463
    assert sum(parameter.numel() for parameter in Negotiator(vocabulary, NegotiatorSizes()).parameters()) == 1_631_277


def test_words_come_out_through_the_embedding_they_go_in_by() -> None:
    model = negotiator()
    states = torch.linspace(-1, 1, 4 * TINY.hidden_language).view(4, -1).requires_grad_()
    logits = model.word_logits(states)
    unfolded = F.linear(states, model.decoder.weight, model.decoder.bias) @ model.word_embedding.weight.t()
    torch.testing.assert_close(logits, unfolded)
    logits[:, 5].sum().backward()
    grad = model.word_embedding.weight.grad
    assert grad is not None
    assert grad[5].any()
    assert not grad[torch.arange(len(VOCABULARY)) != 5].any()
    assert [name for name, value in model.named_parameters() if len(VOCABULARY) in value.shape] == ["word_embedding.weight"]


def test_spoken_words_are_read_without_padding_as_with_it() -> None:
    batch, model = batch_of(5), negotiator().eval()
    lengths = batch.lengths_B - torch.arange(5)
    places = TokenPlaces.of(lengths.numpy(), lengths.device)
    passes = []
    for packed in (False, True):
        context = model.encode_context(batch.contexts_B6)
        if packed:
            states = model.read_spoken(batch.tokens_BT, places, context)
        else:
            states = model.read(batch.tokens_BT, context)[places.rows_N, places.steps_N]
        weighed = (states * torch.linspace(-1, 1, states.numel()).view_as(states)).sum()
        named = {
            name: value
            for name, value in model.named_parameters()
            if not name.startswith(("selection", "attention", "decoder"))
        }
        passes.append((states, *torch.autograd.grad(weighed, list(named.values()))))
    for found, right in zip(*passes, strict=True):
        assert right.any()
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)


def test_dropout_has_three_places_and_no_effect_in_play() -> None:
    batch = batch_of(3)
    model = negotiator()
    inputs: list[tuple[int, ...]] = []
    hook = model.dropout.register_forward_hook(lambda _, arguments, __: inputs.append(tuple(arguments[0].shape)))
    words, choice = model(batch.contexts_B6, batch.tokens_BT, batch.lengths_B)
    hook.remove()
    steps = batch.tokens_BT.shape[1]
    s = TINY
    assert inputs == [
        (steps, 3, s.embed_word + s.hidden_context),
        (steps, 3, s.hidden_language + s.embed_word),
        (3, 2 * s.hidden_selection + s.hidden_context),
    ]
    without = negotiator(sizes=replace(TINY, dropout=0.0)).train()
    for found, wanted in zip(without(batch.contexts_B6, batch.tokens_BT, batch.lengths_B), (words, choice), strict=True):
        assert torch.equal(found, wanted)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        dropped = model.train()(batch.contexts_B6, batch.tokens_BT, batch.lengths_B)
    assert not torch.equal(dropped[0], words)
    assert not torch.equal(dropped[1], choice)


def test_initial_weights_fill_the_published_ranges() -> None:
    sizes = NegotiatorSizes()
    model = Negotiator(VOCABULARY, sizes)
    model.initialise(torch.Generator().manual_seed(0))
    for name, parameter in model.named_parameters():
        values = parameter.detach()
        if name.startswith("selection."):
            limit = 1 / 16
        elif "bias" in name:
            assert not values.any(), name
            continue
        else:
            limit = 0.1
        assert float(values.abs().max()) <= limit, name
        assert float(values.abs().max()) > 0.97 * limit, name
        assert float(values.std()) == pytest.approx(limit / 3**0.5, rel=0.12), name


def test_initial_weights_follow_from_the_seed_alone() -> None:
    models = [Negotiator(VOCABULARY, TINY) for _ in range(3)]
    for model, seed in zip(models, (3, 3, 4), strict=True):
        model.initialise(torch.Generator().manual_seed(seed))
    first, second, other = (dict(model.named_parameters()) for model in models)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["selection.weight_hh_l0"], other["selection.weight_hh_l0"])


def test_results_do_not_depend_on_companions_or_padding() -> None:
    made = dialogues(12)
    model = negotiator().double()
    batch = make_batch(made, np.arange(12))
    wider = F.pad(batch.tokens_BT, (0, 5), value=PAD_ID)
    assert len(set(batch.lengths_B.tolist())) > 4
    with torch.no_grad():
        together = model(batch.contexts_B6, wider, batch.lengths_B)
        for i in range(12):
            length = int(batch.lengths_B[i])
            alone = model(row(made.contexts[i]), row(made.words[i]), torch.tensor([length]))
            torch.testing.assert_close(together[0][i, : length - 1], alone[0][0], rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(together[1][i], alone[1][0], rtol=1e-10, atol=1e-12)


def test_a_word_is_predicted_from_the_words_before_it_alone() -> None:
    model, batch = negotiator().double(), batch_of(4)
    steps = batch.tokens_BT.shape[1]
    changed = batch.tokens_BT.clone()
    changed[:, steps // 2 :] = (changed[:, steps // 2 :] + 1) % len(VOCABULARY)
    with torch.no_grad():
        (before, _), (after, _) = (model(batch.contexts_B6, tokens, batch.lengths_B) for tokens in (batch.tokens_BT, changed))
    # Logits at place t are those of token t + 1, read from tokens 0..t.
    assert torch.equal(before[:, : steps // 2], after[:, : steps // 2])
    assert not torch.equal(before[:, steps // 2], after[:, steps // 2])


def plainly(model: Negotiator, context: list[int], tokens: list[int]) -> tuple[Tensor, Tensor]:
    """Word logits (T - 1, V) and item logits (6, 18) of one dialogue, by torch's own layers and loops."""
    counts, values = model.count_embedding.weight, model.value_embedding.weight
    products = [counts[count] * values[value] for count, value in zip(context[0::2], context[1::2], strict=True)]
    scenario = model.context_encoder(torch.tanh(torch.cat(products)))
    embedded = [model.word_embedding.weight[token] for token in tokens]
    states = nn.GRU.forward(model.language, torch.stack([torch.cat([word, scenario]) for word in embedded]))[0]
    words = torch.stack([model.word_embedding.weight @ model.decoder(state) for state in states[:-1]])
    hidden = nn.GRU.forward(model.selection, torch.stack([torch.cat(pair) for pair in zip(states, embedded, strict=True)]))[0]
    scores = torch.stack([model.attention_score(torch.tanh(model.attention_hidden(state)))[0] for state in hidden])
    attended = sum(weight * state for weight, state in zip(scores.softmax(0), hidden, strict=True))
    encoded = torch.tanh(model.selection_encoder(torch.cat([torch.as_tensor(attended), scenario])))
    return words, model.selection_heads(encoded).view(6, 18)


def test_the_whole_pass_is_that_of_torchs_own_layers() -> None:
    made, model = dialogues(8), negotiator().double()
    batch = make_batch(made, np.arange(8))
    with torch.no_grad():
        words, choice = model(batch.contexts_B6, batch.tokens_BT, batch.lengths_B)
        for i in range(8):
            wanted_words, wanted_choice = plainly(model, made.contexts[i].tolist(), made.words[i].tolist())
            torch.testing.assert_close(words[i, : len(wanted_words)], wanted_words, rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(choice[i], wanted_choice, rtol=1e-10, atol=1e-12)


def test_word_loss_is_minus_the_log_softmax_of_the_next_token() -> None:
    batch = batch_of(3)
    steps = batch.tokens_BT.shape[1]
    logits = torch.linspace(-2, 2, 3 * (steps - 1) * len(VOCABULARY)).view(3, steps - 1, -1).sin()
    nll = word_nll(logits, batch.tokens_BT)
    for i in range(3):
        for t in range(steps - 1):
            wanted = -logits[i, t].log_softmax(0)[batch.tokens_BT[i, t + 1]]
            assert float(nll[i, t]) == pytest.approx(float(wanted), rel=1e-5)


def choices(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Item logits (4, 6, 18) and what was chosen: an allocation, then each of the three refusals."""
    logits = torch.randn(4, 6, 18, generator=torch.Generator().manual_seed(seed))
    outputs = torch.tensor([[1, 5, 10, 0, 6, 12], *([token] * 6 for token in (NO_AGREEMENT_ID, DISAGREE_ID, DISCONNECT_ID))])
    return logits, outputs


@pytest.mark.parametrize("game", list(domains))
@pytest.mark.parametrize("part", [slice(0, 1), slice(0, 2), slice(1, 3), slice(0, 0)])
def test_heads_that_weigh_are_the_shares_of_parts_in_the_selection_loss(game: str, part: slice) -> None:
    """Several learners have a part of an update's corpus dialogues each; one may have refusals alone, or none."""
    domain = domain_of(game)
    tokens, heads = len(domain.tokens), domain.num_heads
    deal = domain.selections(domain.random_scenario(np.random.default_rng(0)).counts).table[0].tolist()
    outputs = torch.tensor([deal, [domain.disagree_id] * heads, [tokens - 1] * heads, [tokens - 2] * heads])
    logits = torch.randn(4, heads, tokens, generator=torch.Generator().manual_seed(1))
    here = torch.zeros(4, dtype=torch.bool)
    here[part] = True
    counts = [num_weighing(outputs[rows], tokens) for rows in (here, ~here)]
    shared = sum(
        count / sum(counts) * float(selection_loss(logits[rows], outputs[rows]))
        for count, rows in zip(counts, (here, ~here), strict=True)
    )
    assert shared == pytest.approx(float(selection_loss(logits, outputs)), rel=1e-5)


def test_disagreement_and_disconnection_weigh_nothing_in_the_selection_loss() -> None:
    logits, outputs = choices()
    counted = [-logits[i, head].log_softmax(0)[outputs[i, head]] for i in (0, 1) for head in range(6)]
    assert float(selection_loss(logits, outputs)) == pytest.approx(float(sum(counted)) / 12, rel=1e-5)
    assert float(selection_loss(logits[:2], outputs[:2])) == pytest.approx(float(selection_loss(logits, outputs)), rel=1e-5)


def test_a_batch_of_disagreements_costs_nothing_rather_than_nan() -> None:
    logits, outputs = choices()
    logits = logits[2:].requires_grad_()
    loss = selection_loss(logits, outputs[2:])
    assert loss.item() == 0.0
    loss.backward()
    assert logits.grad is not None
    assert not logits.grad.any()


def test_the_supervised_loss_is_the_mean_of_real_words_and_weighs_the_selection() -> None:
    logits, outputs = choices()
    nll = torch.tensor([[1.0, 2.0, torch.nan], [4.0, 0.25, 0.0], [1.0, torch.inf, 1.0], [0.0, 3.0, 2.0]])
    total, words, selection = supervised_loss(logits, nll, torch.tensor([3, 4, 2, 3]), outputs, 0.5)
    assert float(words) == pytest.approx((1 + 2 + 4 + 0.25 + 0 + 1 + 0 + 3) / 8)
    assert float(selection) == float(selection_loss(logits, outputs))
    assert float(total) == pytest.approx(float(words) + 0.5 * float(selection))


@pytest.mark.parametrize("wrong", [{"embed_word": 0}, {"dropout": 1.0}, {"dropout": -0.1}, {"init_range": 0.0}])
def test_sizes_out_of_range_are_named(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        NegotiatorSizes(**wrong)  # type: ignore[arg-type]


def test_batches_hold_dialogues_of_like_length_padded_to_the_longest() -> None:
    made = dialogues(23, max_turns=9)
    groups = by_length(made, 5)
    assert [len(group) for group in groups] == [5, 5, 5, 5, 3]
    assert sorted(np.concatenate(groups).tolist()) == list(range(23))
    lengths = made.lengths[np.concatenate(groups)]
    assert (np.diff(lengths) >= 0).all()
    for group in groups:
        batch = make_batch(made, group)
        assert batch.tokens_BT.shape == (len(group), made.lengths[group].max())
        for place, index in enumerate(group):
            assert batch.tokens_BT[place, : made.lengths[index]].tolist() == made.words[index].tolist()
            assert set(batch.tokens_BT[place, made.lengths[index] :].tolist()) <= {PAD_ID}
            assert batch.contexts_B6[place].tolist() == made.contexts[index].tolist()
            assert batch.outputs_B6[place].tolist() == made.outputs[index].tolist()


def test_an_epoch_sees_every_dialogue_once_in_an_order_of_its_own() -> None:
    made = dialogues(20)

    def epoch(seed: int) -> list[list[int]]:
        groups = shuffled(made, 3, np.random.default_rng(seed))
        return [tokens for group in groups for tokens in make_batch(made, group).contexts_B6.tolist()]

    assert sorted(epoch(0)) == sorted(made.contexts.tolist())
    assert epoch(0) == epoch(0)
    assert epoch(0) != epoch(1)
