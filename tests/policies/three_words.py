"""A model of three words, all of whose replies can be written down."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from parley.envs.corpora.pairs.turns import Turns
from parley.envs.corpora.pairs.vocabulary import EOS_ID, PAD_ID, SPECIALS, PairVocabulary
from parley.policies.core.margin import ExamplesByContext, Spoken
from parley.policies.seq2seq.decoding import Seq2SeqResponder
from parley.policies.seq2seq.model import Seq2Seq
from parley.policies.seq2seq.settings import Seq2SeqSizes

THREE = PairVocabulary((*SPECIALS, "a", "b", "c"))
WAYS = 3


class ThreeWords:
    """A model of three words whose replies can all be written down, of at most three ids, and two contexts."""

    def __init__(self) -> None:
        model = Seq2Seq(THREE, Seq2SeqSizes(embed=4, hidden=5, max_source=4, max_reply=4))
        generator = torch.Generator().manual_seed(5)
        for parameter in model.parameters():
            parameter.data.uniform_(-1.5, 1.5, generator=generator)
        self.model = model.double().eval()
        self.responder = Seq2SeqResponder(self.model)
        self.contexts: list[Turns] = [((("a", "b"),),), ((("c",),),)]
        self.train = ExamplesByContext(self.responder, self.contexts, [(("a",),), (("b", "c"),)])
        going = [word for word in range(len(THREE)) if word != EOS_ID]
        replies = [
            [*begun, last]
            for length in range(3)
            for begun in itertools.product(going, repeat=length)
            for last in (range(len(THREE)) if length == 2 else (EOS_ID,))
        ]
        words_CT = torch.tensor([reply + [PAD_ID] * (3 - len(reply)) for reply in replies])
        lengths_C = torch.tensor([len(reply) for reply in replies])
        self.all = Spoken(words_CT, lengths_C, torch.zeros((2, len(replies)), dtype=torch.float64))

    def memory(self, context: int) -> Any:
        """A context as often as there are replies."""
        return self.model.hear(self.train.learned.batch(np.full(len(self.all.lengths_C), context)))

    def nats(self, context: int) -> Tensor:
        """Of all replies."""
        return by_teacher(self.model, self.memory(context), self.all)

    def slope(self, figure: Any, way: list[Tensor], step: float = 1e-5) -> float:
        """Of a figure along a way, by finite differences."""
        found = []
        with torch.no_grad():
            for sign in (1, -2):
                for parameter, part in zip(self.model.parameters(), way, strict=True):
                    parameter += sign * step * part
                found.append(float(figure()))
            for parameter, part in zip(self.model.parameters(), way, strict=True):
                parameter += step * part
        return (found[0] - found[1]) / (2 * step)

    def ways(self) -> list[list[Tensor]]:
        """Directions in the space of weights."""
        generator = torch.Generator().manual_seed(2)
        return [
            [torch.randn(each.shape, generator=generator, dtype=each.dtype) for each in self.model.parameters()]
            for _ in range(WAYS)
        ]


def along(gradients: Any, way: list[Tensor]) -> float:
    pairs = zip(gradients, way, strict=True)
    return sum(float((found * part).sum()) for found, part in pairs if found is not None)


def by_teacher(model: Any, memory: Any, spoken: Spoken) -> Tensor:
    """Nats of each reply (C,) behind a row of memory each, word by word as training reads them."""
    logits_CTV = model.output(model.reply_states(memory, spoken.words_in_CT))
    nats_CT = F.cross_entropy(logits_CTV.transpose(1, 2), spoken.words_CT, reduction="none")
    total: Tensor = (nats_CT * spoken.real_CT).double().sum(1)
    return total
