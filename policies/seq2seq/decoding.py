"""What the models say: greedy and sampled replies, those that a beam finds, and sentences of a language model.

Source: He & Glass 2018, sections 3 and 5: greedy decoding; samples that keep only words with log p > T_out, with which the
`normal` targets of Switchboard and OpenSubtitles are drawn; sentences of full length, with which io searches start.

Every word is decided by one uniform number that belongs to its item and its place, so that results do not depend on which
items are decoded together.

Departures:
  * # Released: a step at which no word reaches T_out says so and draws from all words. Ours: it draws from all words.

Shapes: B items, V words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.turns import EOT
from parley.envs.corpora.pairs.vocabulary import BOS_ID, PAD_ID, SPECIALS
from parley.policies.core.decoding import Charges, Hypothesis, in_blocks, likeliest, n_best, word_by_word
from parley.policies.core.drawing import drawn
from parley.policies.seq2seq.batches import framed_source
from parley.policies.seq2seq.model import LanguageModel, Memory, Seq2Seq

Ids = Sequence[int] | np.ndarray


def greedy(model: Seq2Seq, sources: Sequence[Ids], beyond: int = 0, charges: Charges = ()) -> list[list[int]]:
    """The likeliest word at every step, for each source.

    Args:
        model: in evaluation mode.
        sources: word ids without specials; cut to the model's length.
        beyond: words after which a reply is cut, in addition to the model's; with one, a reply that is cut shows by its length.
        charges: what changes how likely words are.

    Returns:
        Word ids of the replies without `</s>`, which ends them; at most `max_reply` - 1 words, and those beyond.
    """
    return _decode(model, sources, lambda rows: likeliest, beyond, charges)


def sample(
    model: Seq2Seq,
    sources: Sequence[Ids],
    seeds: Sequence[int],
    temperature: float = 1.0,
    min_log_probability: float | None = None,
    beyond: int = 0,
    charges: Charges = (),
) -> list[list[int]]:
    """A reply to each source, drawn from the model; `<pad>`, which is no word of a reply, never is.

    Args:
        model: in evaluation mode.
        sources: as in `greedy`.
        seeds: one for each source; equal seeds draw alike.
        temperature: of the word distribution, above 0.
        min_log_probability: only words whose log-probability at temperature 1 is above this are drawn, in nats; all words
            where none is.
        beyond: as in `greedy`.
        charges: as in `greedy`.

    Returns:
        As `greedy`.
    """
    assert temperature > 0, "greedy takes the likeliest word"
    draws_RT = np.array([stream(seed, "reply").random(model.sizes.max_reply + beyond) for seed in seeds])

    def choose(rows: slice, place: int, logits_BV: Tensor) -> Tensor:
        if min_log_probability is not None:
            short_BV = logits_BV.log_softmax(1) <= min_log_probability
            short_BV[:, PAD_ID] = True
            logits_BV = logits_BV.masked_fill(short_BV & ~short_BV.all(1, keepdim=True), -torch.inf)
        logits_BV[:, PAD_ID] = -torch.inf
        return drawn(logits_BV / temperature, torch.from_numpy(draws_RT[rows, place]).to(logits_BV.device))

    return _decode(model, sources, lambda rows: partial(choose, rows), beyond, charges)


def beam(model: Seq2Seq, sources: Sequence[Ids], width: int, length_penalty: float = 1.0) -> list[list[int]]:
    """The best reply that a beam finds to each source (`policies/core/decoding.py`).

    Args:
        model: in evaluation mode.
        sources: as in `greedy`.
        width: hypotheses kept for each source, at least 1, which is greedy decoding.
        length_penalty: exponent of the number of words, `</s>` counted, by which log-probabilities are divided; 0 for none.

    Returns:
        As `greedy`.
    """
    found = hypotheses(model, sources, width, length_penalty=length_penalty, most=1)
    return [best.words for (best,) in found]


def hypotheses(model: Seq2Seq, sources: Sequence[Ids], width: int, **options: Any) -> list[list[Hypothesis]]:
    """Return the replies that a beam finds to each source, the best first, by the options of `n_best`."""

    def decode(rows: slice) -> list[list[Hypothesis]]:
        block = sources[rows]
        return n_best(model, read(model, block), len(block), width, model.sizes.max_reply, **options)

    return in_blocks(len(sources), decode, width)


def sample_sentences(model: LanguageModel, seeds: Sequence[int], length: int) -> np.ndarray:
    """Sentences of full length, drawn from a language model without special tokens, `<unk>` and `<eot>` among them.

    Args:
        model: in evaluation mode.
        seeds: one for each sentence.
        length: words in each.

    Returns:
        Word ids (B, length) int64.
    """
    draws_BT = np.stack([stream(seed, "sentence").random(length) for seed in seeds])
    device, index = model.output.weight.device, model.vocabulary.index
    barred = [*range(len(SPECIALS)), *([index[EOT]] if EOT in index else [])]

    def decode(rows: slice) -> list[list[int]]:
        memory = None
        words_BT = torch.full((rows.stop - rows.start, length + 1), BOS_ID, device=device)
        for place in range(length):
            states_B1H, memory = model.lstm(model.embedding(words_BT[:, place : place + 1]), memory)
            logits_BV = model.output(states_B1H[:, 0])
            logits_BV[:, barred] = -torch.inf
            words_BT[:, place + 1] = drawn(logits_BV, torch.from_numpy(draws_BT[rows, place]).to(device))
        return words_BT[:, 1:].tolist()

    return np.array(in_blocks(len(seeds), decode))


def read(model: Seq2Seq, sources: Sequence[Ids]) -> Memory:
    """Encodes sources (B), cut to length as in training.

    Args:
        model: in evaluation mode.
        sources: word ids without the specials around them.
    """
    framed = [framed_source(source, model.sizes) for source in sources]
    lengths_B = torch.tensor([len(source) for source in framed])
    source_BN = torch.full((len(framed), int(lengths_B.max())), PAD_ID)
    for row, source in enumerate(framed):
        source_BN[row, : len(source)] = torch.tensor(source)
    device = model.output.weight.device
    return model.listen(source_BN.to(device), lengths_B.to(device))


def _decode(
    model: Seq2Seq,
    sources: Sequence[Ids],
    choice: Callable[[slice], Callable[[int, Tensor], Tensor]],
    beyond: int,
    charges: Charges,
) -> list[list[int]]:
    """Replies word by word; `choice` says how the words of the rows at work are chosen."""

    def decode(rows: slice) -> list[list[int]]:
        return word_by_word(model, read(model, sources[rows]), model.sizes.max_reply + beyond, choice(rows), charges)

    return in_blocks(len(sources), decode)
