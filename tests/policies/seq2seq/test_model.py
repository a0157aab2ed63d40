"""The networks against the paper's equations, written out one word at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOU_ID, PAD_ID
from parley.policies.core.fitting.batches import Predictor
from parley.policies.seq2seq.model import Exchanges, LanguageModel, PairExamples, SentenceExamples, Sentences, Seq2Seq
from parley.policies.seq2seq.settings import Attention
from tests.policies.seq2seq.made_up import ATTENTIONS, LM_SIZES, VOCABULARY, language_model, seq2seq, sizes, split

SOURCES = [[7, 9, 11, 8, EOU_ID], [12, EOU_ID], [20, 21, 22, EOU_ID]]
REPLIES_IN = torch.tensor([[BOS_ID, 5, 29, 6], [BOS_ID, 8, 8, 8], [BOS_ID, 10, 11, 12]])

every_attention = pytest.mark.parametrize("attention", ATTENTIONS)


def padded(sources: list[list[int]]) -> tuple[Tensor, Tensor]:
    longest = max(map(len, sources))
    return torch.tensor([[*source, *[0] * (longest - len(source))] for source in sources]), torch.tensor([*map(len, sources)])


def by_the_paper(model: Seq2Seq, embedded_NE: Tensor, reply_in_T: Tensor) -> Tensor:
    """Logits (T, V) of one pair: no batch, no padding, torch's own LSTM and cell, one step after the other."""
    encoded_NH = model.encoder(embedded_NE.unsqueeze(0))[0][0]
    hidden, cell, logits = torch.zeros(1, 8), torch.zeros(1, 8), []
    for word in reply_in_T:
        embedded = model.reply_embedding(word.view(1))
        if model.sizes.attention == "none":
            context = encoded_NH[-1:]
        elif model.sizes.attention == "general":
            assert model.attention is not None
            scores = torch.stack([encoded @ (model.attention.weight @ hidden[0]) for encoded in encoded_NH])
            context = (scores.softmax(0) @ encoded_NH).unsqueeze(0)
        else:
            assert model.attention is not None
            query = model.attention(torch.cat([embedded, hidden, cell], dim=1)).relu()
            context = ((encoded_NH @ query[0]).softmax(0) @ encoded_NH).unsqueeze(0)
        hidden, cell = model.decoder(torch.cat([embedded, context], dim=1), (hidden, cell))
        logits.append(model.output(hidden)[0])
    return torch.stack(logits)


@every_attention
def test_it_computes_what_the_paper_says_whatever_else_is_in_the_batch(attention: Attention) -> None:
    model = seq2seq(attention)
    source_BN, lengths_B = padded(SOURCES)
    logits_BTV = model(source_BN, lengths_B, REPLIES_IN)
    for row, source in enumerate(SOURCES):
        expected = by_the_paper(model, model.source_embedding(torch.tensor(source)), REPLIES_IN[row])
        torch.testing.assert_close(logits_BTV[row], expected)


@every_attention
def test_gradients_are_those_of_the_equations(attention: Attention) -> None:
    model = seq2seq(attention)
    wanted = [*model.parameters()]
    logits = model(*padded(SOURCES), REPLIES_IN)
    embedded = [model.source_embedding(torch.tensor(source)) for source in SOURCES]
    expected = torch.stack([by_the_paper(model, each, reply) for each, reply in zip(embedded, REPLIES_IN, strict=True)])
    weights = torch.linspace(-1, 2, logits.numel()).view_as(logits)
    found = torch.autograd.grad((weights * logits).sum(), wanted)
    right = torch.autograd.grad((weights * expected).sum(), wanted)
    for mine, theirs in zip(found, right, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3 * float(theirs.abs().max()))
    assert model.source_embedding.weight is wanted[0]
    assert found[0][PAD_ID].count_nonzero() == 0, "padding must not matter"


@every_attention
def test_embeddings_have_gradients_when_the_model_is_frozen(attention: Attention) -> None:
    model = seq2seq(attention)
    embedded = model.source_embedding(torch.tensor(SOURCES[:1])).detach().requires_grad_()

    def gradient() -> Tensor:
        (found,) = torch.autograd.grad(model.decode(model.encode(embedded), None, REPLIES_IN[:1]).square().sum(), embedded)
        return found

    before = gradient()
    model.requires_grad_(False)
    torch.testing.assert_close(gradient(), before)
    assert bool((before.abs().sum(-1) > 0).all())


@every_attention
def test_full_length_sources_need_no_mask(attention: Attention) -> None:
    model = seq2seq(attention)
    sources = torch.tensor([[7, 9, EOU_ID], [9, 7, EOU_ID]])
    masked = model(sources, torch.tensor([3, 3]), REPLIES_IN[:2])
    torch.testing.assert_close(model.decode(model.encode(model.source_embedding(sources)), None, REPLIES_IN[:2]), masked)


def test_encoder_states_are_zero_at_padding_and_alike_elsewhere() -> None:
    model = seq2seq()
    source_BN, lengths_B = padded(SOURCES)
    states = model.listen(source_BN, lengths_B).states_BNH
    for row, source in enumerate(SOURCES):
        assert states[row, len(source) :].count_nonzero() == 0
        alone = model.encode(model.source_embedding(torch.tensor([source])))[0]
        torch.testing.assert_close(states[row, : len(source)], alone)


@every_attention
def test_a_step_is_a_column_of_the_whole(attention: Attention) -> None:
    model = seq2seq(attention)
    source_BN, lengths_B = padded(SOURCES)
    memory = model.listen(source_BN, lengths_B)
    state, columns = model.begin(memory), []
    for words_B in REPLIES_IN.t():
        logits_BV, state = model.step(memory, words_B, state)
        columns.append(logits_BV)
    torch.testing.assert_close(torch.stack(columns, dim=1), model(source_BN, lengths_B, REPLIES_IN))


def test_parameters_have_the_names_and_shapes_that_search_counts_on() -> None:
    general = {name: tuple(value.shape) for name, value in seq2seq("general").state_dict().items()}
    assert general == {
        "source_embedding.weight": (30, 7),
        "encoder.weight_ih_l0": (32, 7),
        "encoder.weight_hh_l0": (32, 8),
        "encoder.bias_ih_l0": (32,),
        "encoder.bias_hh_l0": (32,),
        "reply_embedding.weight": (30, 7),
        "decoder.weight_ih": (32, 15),
        "decoder.weight_hh": (32, 8),
        "decoder.bias_ih": (32,),
        "decoder.bias_hh": (32,),
        "attention.weight": (8, 8),
        "output.weight": (30, 8),
        "output.bias": (30,),
    }
    released = {name: tuple(value.shape) for name, value in seq2seq("released").state_dict().items()}
    assert released == general | {"attention.weight": (8, 23), "attention.bias": (8,)}
    assert set(general) - set(seq2seq("none").state_dict()) == {"attention.weight"}
    assert [name for name, _ in language_model().named_children()] == ["embedding", "lstm", "output", "dropout"]


def test_a_language_model_is_torchs_lstm_and_a_layer() -> None:
    model = language_model()
    words_BT = torch.tensor([[BOS_ID, 5, 6], [BOS_ID, 29, 7]])
    expected = model.output(model.lstm(model.embedding(words_BT))[0])
    torch.testing.assert_close(model(words_BT), expected)
    embedded = model.embedding(words_BT).detach().requires_grad_()
    torch.testing.assert_close(model.from_embedded(embedded), expected)
    model.requires_grad_(False)
    (gradient,) = torch.autograd.grad(model.from_embedded(embedded).square().sum(), embedded)
    assert bool((gradient.abs().sum(-1) > 0).all())


def test_target_states_are_those_of_the_real_targets_in_the_order_of_the_rows() -> None:
    made, model, lm = split(6), seq2seq(), language_model()
    pairs: Exchanges = PairExamples(made, model.sizes).batch(torch.arange(6).numpy())
    logits = model(pairs.source_BN, pairs.lengths_B, pairs.reply.words_in_BT)[pairs.real_BT]
    torch.testing.assert_close(model.output(model.target_states(pairs)), logits)
    sentences: Sentences = SentenceExamples(made.utterances, LM_SIZES).batch(torch.arange(6).numpy())
    torch.testing.assert_close(lm.output(lm.target_states(sentences)), lm(sentences.words_in_BT)[sentences.real_BT])


@pytest.mark.parametrize("kind", ["seq2seq", "lm"])
def test_one_seed_one_set_of_initial_weights(kind: str) -> None:
    def fresh(seed: int) -> Predictor[Exchanges] | Predictor[Sentences]:
        model = Seq2Seq(VOCABULARY, sizes()) if kind == "seq2seq" else LanguageModel(VOCABULARY, LM_SIZES)
        model.initialise(torch.Generator().manual_seed(seed))
        return model

    first, again, other = (dict(fresh(seed).named_parameters()) for seed in (1, 1, 2))
    for name, value in first.items():
        assert torch.equal(value, again[name])
        assert not torch.equal(value, other[name])
        bound = 0.1 if "embedding" in name else 8**-0.5
        assert 0.5 * bound < float(value.detach().abs().max()) <= bound


def test_dropout_is_for_training_alone() -> None:
    model = Seq2Seq(VOCABULARY, sizes(dropout=0.5))
    source_BN, lengths_B = padded(SOURCES)
    torch.manual_seed(1)
    drawn = [model(source_BN, lengths_B, REPLIES_IN) for _ in range(2)]
    assert not torch.equal(*drawn)
    model.eval()
    assert torch.equal(model(source_BN, lengths_B, REPLIES_IN), model(source_BN, lengths_B, REPLIES_IN))
