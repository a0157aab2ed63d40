"""The generator of Li et al. 2017 against its equations, written out one word at a time, and steps against the whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from parley.envs.core.errors import OutOfRangeError
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOU_ID
from parley.policies.core.fitting.loop import Fit
from parley.policies.core.settings import FitConfig
from parley.policies.seq2seq.decoding import beam, greedy, read, sample
from parley.policies.seq2seq.model import PairExamples
from parley.policies.seq2seq.scoring import StackedSeq2Seq, build_seq2seq, load_seq2seq, save_model
from parley.policies.seq2seq.settings import Seq2SeqSizes
from tests.policies.seq2seq.made_up import VOCABULARY, sizes, split

SIZES = replace(sizes(), attention="dot", input_feeding=True, layers=2)
SOURCES = [[7, 9, 11, 8, EOU_ID], [12, EOU_ID], [20, 21, 22, EOU_ID]]
REPLIES_IN = torch.tensor([[BOS_ID, 5, 29, 6], [BOS_ID, 8, 8, 8], [BOS_ID, 10, 11, 12]])
LENGTHS = torch.tensor([*map(len, SOURCES)])
PADDED = torch.tensor([[*source, *[0] * (5 - len(source))] for source in SOURCES])


def stacked(layers: int = 2, seed: int = 0) -> StackedSeq2Seq:
    model = StackedSeq2Seq(VOCABULARY, replace(SIZES, layers=layers)).eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data.uniform_(-1, 1, generator=generator)
    return model


def by_the_equations(model: StackedSeq2Seq, source_N: Tensor, reply_in_T: Tensor) -> Tensor:
    """Logits (T, V) of one pair, by cells of torch: no batch, no padding."""
    layers, hidden = model.sizes.layers, model.sizes.hidden
    states: list[tuple[Tensor, Tensor]] = [(torch.zeros(1, hidden), torch.zeros(1, hidden))] * layers
    encoded = []
    for word in source_N:
        below = model.source_embedding(word.view(1))
        for layer in range(layers):
            weights = [getattr(model.encoder, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
            states[layer] = torch.lstm_cell(below, states[layer], *weights)
            below = states[layer][0]
        encoded.append(below[0])
    encoded_NH = torch.stack(encoded)

    def mixed(mix: nn.Linear, query_H: Tensor) -> Tensor:
        context_H = (encoded_NH @ query_H).softmax(0) @ encoded_NH
        of_context, of_query = mix.weight.split(hidden, dim=1)
        return torch.tanh(of_context @ context_H + of_query @ query_H)

    logits = []
    for word in reply_in_T:
        below = torch.cat([model.reply_embedding(word.view(1)), mixed(model.fed, states[-1][0][0]).unsqueeze(0)], dim=1)
        for layer, cell in enumerate((model.decoder, *model.upper)):
            states[layer] = cell(below, states[layer])
            below = states[layer][0]
        logits.append(model.output(mixed(model.said, below[0])))
    return torch.stack(logits)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_it_computes_its_equations_and_their_gradients_whatever_else_is_in_the_batch(layers: int) -> None:
    model = stacked(layers)
    logits_BTV = model(PADDED, LENGTHS, REPLIES_IN)
    expected = torch.stack(
        [by_the_equations(model, torch.tensor(source), REPLIES_IN[row]) for row, source in enumerate(SOURCES)]
    )
    torch.testing.assert_close(logits_BTV, expected)
    weights = torch.linspace(-1, 2, expected.numel()).view_as(expected)
    wanted = list(model.parameters())
    found = torch.autograd.grad((weights * logits_BTV).sum(), wanted)
    right = torch.autograd.grad((weights * expected).sum(), wanted)
    for mine, theirs in zip(found, right, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3 * float(theirs.abs().max()))


def test_a_step_is_a_column_of_the_whole() -> None:
    model = stacked()
    memory = model.listen(PADDED, LENGTHS)
    state, columns = model.begin(memory), []
    for words_B in REPLIES_IN.t():
        logits_BV, state = model.step(memory, words_B, state)
        columns.append(logits_BV)
        assert all(len(part) == len(SOURCES) for part in state), "rows first, so that any of them can go on alone"
    torch.testing.assert_close(torch.stack(columns, dim=1), model(PADDED, LENGTHS, REPLIES_IN))


def test_it_decodes_a_source_the_same_alone() -> None:
    model = stacked(seed=3)
    model.output.weight.data *= 3
    sources = [[5 + (3 * row + place) % 25 for place in range(1 + row % 6)] for row in range(9)]
    for decode in (greedy, lambda m, s: beam(m, s, 3), lambda m, s: sample(m, s, range(len(s)))):
        together = decode(model, sources)
        assert [decode(model, sources[: row + 1])[-1] for row in range(len(sources))] == together
        assert len({tuple(reply) for reply in together}) > 2
    memory = read(model, sources)
    torch.testing.assert_close(read(model, sources[2:3]).last_BH[0], memory.last_BH[2])


def test_a_saved_model_comes_back(tmp_path: Path) -> None:
    model = stacked()
    save_model(model, tmp_path / "checkpoint", {})
    found = load_seq2seq(tmp_path / "checkpoint")
    assert type(found) is StackedSeq2Seq
    torch.testing.assert_close(found(PADDED, LENGTHS, REPLIES_IN), model(PADDED, LENGTHS, REPLIES_IN))
    assert type(build_seq2seq(VOCABULARY, sizes())) is not StackedSeq2Seq


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_it_learns(tmp_path: Path, precision: str) -> None:
    model = StackedSeq2Seq(VOCABULARY, replace(SIZES, embed=16, hidden=24, dropout=0.1))
    train, validation = (PairExamples(split(400, seed), model.sizes) for seed in (0, 1))
    config = FitConfig(learning_rate=0.02, batch_size=32, max_epochs=3, decay_epochs=0, precision=precision)  # type: ignore[arg-type]  # a literal
    fit = Fit(model, train, validation, config, 1, tmp_path / "state")
    fit.run(lambda epoch: None, lambda *counts: None)
    assert fit.history[-1]["validation_nll"] < fit.history[0]["validation_nll"] - 0.05


def test_initial_weights_are_the_released_ones() -> None:
    model = stacked()
    model.initialise(torch.Generator().manual_seed(1))
    assert all(0.05 < float(value.detach().abs().max()) <= 0.1 for value in model.parameters())


def test_sizes_that_belong_to_neither_model_are_named() -> None:
    with pytest.raises(OutOfRangeError, match=r"layers is out of range(.|\n)*input_feeding=true"):
        Seq2SeqSizes(layers=2)
    with pytest.raises(OutOfRangeError, match=r"attention is out of range(.|\n)*dot with input_feeding"):
        Seq2SeqSizes(input_feeding=True)
    with pytest.raises(OutOfRangeError, match="attention is out of range"):
        Seq2SeqSizes(attention="dot")


def test_a_backward_model_reads_replies_and_predicts_the_newest_words_of_contexts() -> None:
    pairs = split(4)
    forward = replace(sizes(), max_source=4, max_reply=6, turns=2)
    batch = PairExamples(pairs, forward.exchanged).batch(np.arange(4))
    for row, (source, reply) in enumerate(pairs.pairs.tolist()):
        said, context = pairs.utterances[reply].tolist(), pairs.utterances[source].tolist()
        assert batch.source_BN[row, : len(said[:5]) + 1].tolist() == [*said[:5], EOU_ID]
        kept = context[-3:]
        assert batch.reply.words_BT1[row, 1 : len(kept) + 2].tolist() == [*kept, 2]
    one_turn = PairExamples(pairs, replace(forward, turns=1).exchanged).batch(np.arange(4))
    assert one_turn.reply.words_BT1[0, 1:4].tolist() == [*pairs.utterances[int(pairs.pairs[0, 0])].tolist(), 2, 0, 0][:3]
