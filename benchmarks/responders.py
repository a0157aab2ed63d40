"""Gradient steps of sequence-to-sequence models against torch's own layers, padded, and a decoder that goes word by word.

Exchanges are made up: contexts of two turns and replies of 5 to 20 words as long as those of DailyDialog, 5,000 words. In the
reference torch's LSTM reads contexts with their padding (with input feeding, packed: there the decoder starts from its last
cells), each word of a reply is a step of its own under autograd, by the cell that the model replies with, and logits are formed
for padding, too.

"attention" is the small model of `parley train seq2seq`, "fed" the same widths with input feeding, "published" the two layers
of 512 of Li et al. 2017. "ratio" is that of all steps of the three together; "identical": no gradient differs by
`MOST_DIFFERENCE` or more of its norm. All in float32, batches of `BATCH`, without dropout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks.measure import BenchmarkOptions, Clock, Result, run
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.compiled import PairSplit, Ragged
from parley.envs.corpora.pairs.vocabulary import PAD_ID, SPECIALS, PairVocabulary
from parley.policies.core.fitting.batches import OutputLoss, real_positions
from parley.policies.seq2seq.model import Exchanges, Memory, PairExamples, Seq2Seq
from parley.policies.seq2seq.scoring import build_seq2seq
from parley.policies.seq2seq.settings import Seq2SeqSizes

SEED, WORDS, BATCH = 1, 5_000, 64
MOST_DIFFERENCE = 1e-4
LENGTHS: dict[str, Any] = {"max_source": 60, "max_reply": 21, "turns": 2}
MODELS = {
    "attention": Seq2SeqSizes(embed=200, hidden=300, attention="general", **LENGTHS),
    "fed": Seq2SeqSizes(embed=200, hidden=300, attention="dot", input_feeding=True, **LENGTHS),
    "published": Seq2SeqSizes(embed=512, hidden=512, attention="dot", input_feeding=True, layers=2, **LENGTHS),
}


@dataclass(frozen=True)
class Options(BenchmarkOptions):
    """Steps of sequence-to-sequence models against torch's own layers."""


def made_up(num: int) -> PairSplit:
    """Pairs of a context and a reply, lengths as in DailyDialog: contexts 28 words on average, replies 10."""
    draws = stream(SEED, "exchanges")
    lengths = np.empty(2 * num, dtype=np.int64)
    lengths[::2] = (3 + draws.geometric(0.08, size=(num, 2))).clip(max=59).sum(1)
    lengths[1::2] = (5 + draws.geometric(0.2, size=num) - 1).clip(max=20)
    words = draws.integers(len(SPECIALS), WORDS, size=lengths.sum()).astype(np.int32)
    utterances = Ragged(words, np.concatenate([[0], np.cumsum(lengths)]))
    return PairSplit(utterances, np.arange(2 * num).reshape(num, 2))


def plain_memory(model: Seq2Seq, batch: Exchanges) -> Memory:
    """Contexts, read by torch's own layers."""
    embedded_BNE, width = model.source_embedding(batch.source_BN), batch.source_BN.shape[1]
    is_real_BN = real_positions(batch.lengths_B, width)
    if not model.sizes.input_feeding:
        states_BNH = nn.LSTM.forward(model.encoder, embedded_BNE)[0] * is_real_BN.unsqueeze(2)
        return model.remember(states_BNH, is_real_BN)
    packed = pack_padded_sequence(embedded_BNE, batch.lengths_B, batch_first=True, enforce_sorted=False)
    states, last = nn.LSTM.forward(model.encoder, packed)
    states_BNH, _ = pad_packed_sequence(states, batch_first=True, total_length=width)
    hidden_BH, cell_BH = (part_LBH.transpose(0, 1).flatten(1) for part_LBH in last)
    return model.remember(states_BNH, is_real_BN)._replace(hidden_BH=hidden_BH, cell_BH=cell_BH)


def plain_loss(model: Seq2Seq, batch: Exchanges) -> Tensor:
    """Nats of the replies, a step a word."""
    memory, logits = plain_memory(model, batch), []
    state = model.begin(memory)
    for words_B in batch.reply.words_in_BT.unbind(1):
        logits_BV, state = model.step(memory, words_B, state)
        logits.append(logits_BV)
    targets_BT = batch.targets_BT
    return F.cross_entropy(torch.stack(logits, dim=1).flatten(0, 1), targets_BT.flatten(), ignore_index=PAD_ID, reduction="sum")


def measure(options: Options) -> Result:
    """Clocks steps of each model both ways."""
    num = (2 if options.quick else 10) * BATCH
    vocabulary = PairVocabulary((*SPECIALS, *(f"w{rank}" for rank in range(WORDS - len(SPECIALS)))))
    split, apart = made_up(num), []
    figures: dict[str, float] = {}
    clocks = {(name, way): Clock() for name in MODELS for way in ("plain", "ours")}
    for name, sizes in MODELS.items():
        model = build_seq2seq(vocabulary, sizes)
        model.initialise(torch.Generator().manual_seed(SEED))
        examples, weights, loss = PairExamples(split, sizes), list(model.parameters()), OutputLoss(model.output)
        order = np.argsort(examples.num_targets, kind="stable")
        for start in range(0, num, BATCH):
            batch = examples.batch(order[start : start + BATCH])
            with clocks[name, "plain"].running():
                wanted = torch.autograd.grad(plain_loss(model, batch), weights)
            with clocks[name, "ours"].running():
                ours = torch.autograd.grad(model.loss(batch, loss).total, weights)
            pairs = zip(ours, wanted, strict=True)
            apart += [float((gradient - reference).norm() / reference.norm()) for gradient, reference in pairs]
        plain_s, ours_s = (clocks[name, way].seconds / num * BATCH for way in ("plain", "ours"))
        figures |= {f"{name}_ratio": plain_s / ours_s, f"{name}_step_ms": ours_s * 1e3, f"{name}_plain_step_ms": plain_s * 1e3}
    total = {way: sum(clocks[name, way].seconds for name in MODELS) for way in ("plain", "ours")}
    most = max(apart)
    return Result(
        ratio=total["plain"] / total["ours"],
        identical=most < MOST_DIFFERENCE,
        figures={
            "difference": most,
            **figures,
        },
    )


if __name__ == "__main__":
    run("responders", Options, measure)
