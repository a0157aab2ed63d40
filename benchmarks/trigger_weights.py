"""The networks that trigger search is measured on: checkpoints', or drawn ones of published size.

Weights as drawn for training would not do: whatever the input, such networks say the same, so that all candidates cost alike
and no bound could tell them apart. Drawn `GAIN` times as large, states saturate and a word of the input moves the loss by
hundredths of a nat, as in a trained model. What remains different: words are about as likely as by chance, so that the words
of the subset hold little of the softmax and the planes nearly all. A checkpoint is the better measure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch

from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary
from parley.policies.seq2seq.model import LanguageModel, Seq2Seq
from parley.policies.seq2seq.scoring import LANGUAGE_MODEL, SEQ2SEQ, load_language_model, load_seq2seq, threshold
from parley.policies.seq2seq.settings import LanguageModelSizes, Seq2SeqSizes

SEED = 1
GAIN = 3.0


WORDS, EMBED, HIDDEN = 30_000, 300, 600
"""Published sizes of drawn networks: V with the specials, width of the embeddings, width of the states."""


@dataclass(frozen=True)
class Networks:
    """What is searched."""

    model: Seq2Seq
    lm: LanguageModel
    t_out: float
    """Log probability above which a word of the target is satisfied."""
    t_in: float
    """Mean log probability above which an input is."""


def networks(checkpoint: Path | None, lm: Path | None) -> Networks:
    """Load the networks of checkpoints, or draw networks with thresholds some way above chance.

    Args:
        checkpoint: run of a model, if one is named.
        lm: run of a language model over the same words; named with it.
    """
    if checkpoint is not None and lm is not None:
        t_out, t_in = threshold(checkpoint, SEQ2SEQ), threshold(lm, LANGUAGE_MODEL)
        return Networks(load_seq2seq(checkpoint), load_language_model(lm), t_out, t_in)
    vocabulary = PairVocabulary((*SPECIALS, *(f"w{rank}" for rank in range(WORDS - len(SPECIALS)))))
    model = Seq2Seq(vocabulary, Seq2SeqSizes(embed=EMBED, hidden=HIDDEN))
    judge = LanguageModel(vocabulary, LanguageModelSizes(embed=EMBED, hidden=HIDDEN))
    generator = torch.Generator().manual_seed(SEED)
    for network in (model, judge):
        network.initialise(generator)
        for parameter in network.parameters():
            parameter.data.mul_(GAIN)
    # Some words of a reply reach this, and never all of them: a search that is satisfied has nothing left to do.
    likely = 1.5 - math.log(WORDS)
    return Networks(model.eval(), judge.eval(), likely, likely)
