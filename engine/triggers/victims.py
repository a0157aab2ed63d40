"""Parley's own networks as what a trigger search works on: `Victim` and `InputModel` of `scorer.py`.

The searched positions are all of a source but its last, which is `<eou>` always; inputs have full length, as in He & Glass
(2018, section 4). None of the special tokens may be put into an input.

    B inputs, N searched positions, T words of a reply, V words, E embedding

Departures:
  * # Released: `<unk>` may be put into inputs. Ours: not by default, because nobody can type it; `unknown=True` allows it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from envs.pairs.turns import EOT
from envs.pairs.vocabulary import BOS_ID, EOS_ID, EOU_ID, SPECIALS, UNK_ID, PairVocabulary
from policies.seq2seq.model import LanguageModel, Seq2Seq


class Seq2SeqVictim:
    """A sequence-to-sequence model whose source is searched.

    Args:
        model: the network; its parameters are not touched.
        unknown: whether `<unk>` may be put into an input, as in the released code.
    """

    def __init__(self, model: Seq2Seq, *, unknown: bool = False) -> None:
        self.model = model.eval()
        self.searchable_V = searchable(model.vocabulary, unknown=unknown).to(self.embedding_VE.device)

    @property
    def embedding_VE(self) -> Tensor:
        """Embeddings of the words of a source."""
        return self.model.source_embedding.weight.detach()

    @property
    def input_length(self) -> int:
        """N: the source without its `<eou>`."""
        return self.model.sizes.max_source - 1

    def reply_logits(self, embedded_BNE: Tensor, replies_BT: Tensor) -> Tensor:
        """Logits (B, T, V) of each word of the replies given those before it."""
        end_BNE = self.embedding_VE[EOU_ID].expand(len(embedded_BNE), 1, -1)
        begin_BT = replies_BT.new_full((len(replies_BT), 1), BOS_ID)
        states_BNH = self.model.encode(torch.cat([embedded_BNE, end_BNE], dim=1))
        return self.model.decode(states_BNH, None, torch.cat([begin_BT, replies_BT[:, :-1]], dim=1))


class LmInputModel:
    """A language model that judges sources: R(x) of He & Glass (2018, equation 4).

    Args:
        lm: the network; its parameters are not touched.
    """

    end_id = EOS_ID
    """`</s>`."""

    def __init__(self, lm: LanguageModel) -> None:
        self.lm = lm.eval()

    @property
    def embedding_VE(self) -> Tensor:
        """Embeddings of the words."""
        return self.lm.embedding.weight.detach()

    def word_logits(self, embedded_BNE: Tensor) -> Tensor:
        """Logits (B, N + 1, V) of each word of the inputs and of their end."""
        begin_BNE = self.embedding_VE[BOS_ID].expand(len(embedded_BNE), 1, -1)
        return self.lm.from_embedded(torch.cat([begin_BNE, embedded_BNE], dim=1))


def searchable(vocabulary: PairVocabulary, *, unknown: bool = False) -> Tensor:
    """Which words (V,) an input may hold: all but the specials and what ends a turn, `<unk>` where allowed."""
    allowed_V = torch.arange(len(vocabulary)) >= len(SPECIALS)
    allowed_V[UNK_ID] = unknown
    if EOT in vocabulary.index:
        allowed_V[vocabulary.index[EOT]] = False
    return allowed_V
