"""Parley's own networks as what a trigger search works on: `TextVictim` of `scorer.py`.

The searched positions are all of a source but its last, which is `<eou>` always; inputs have full length, as in He & Glass
(2018, section 4). None of the special tokens may be put into an input.

    B inputs, N searched positions, T words of a reply, V words, E embedding

Departures:
  * # Released: `<unk>` may be put into inputs. Ours: not by default, because nobody can type it; `unknown=True` allows it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from parley.engine.triggers.targets import outside
from parley.envs.core.errors import DataError
from parley.envs.corpora.pairs.turns import EOT
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, EOU_ID, SPECIALS, UNK_ID, PairVocabulary
from parley.policies.seq2seq.decoding import sample_sentences
from parley.policies.seq2seq.model import LanguageModel, Seq2Seq


class Seq2SeqVictim:
    """A sequence-to-sequence model whose source is searched.

    Args:
        model: the network; its parameters are not touched.
        lm: a language model over the same words, which judges sources: R(x) of equation 4; None without one.
        unknown: whether `<unk>` may be put into an input, as in the released code.
    """

    def __init__(self, model: Seq2Seq, lm: LanguageModel | None = None, *, unknown: bool = False) -> None:
        self.model, self.lm = model.eval(), None if lm is None else lm.eval()
        self.searchable_V = searchable(model.vocabulary, unknown=unknown).to(self.embedding_VE.device)

    @property
    def embedding_VE(self) -> Tensor:
        """Embeddings of the words of a source."""
        return self.model.source_embedding.weight.detach()

    @property
    def longest_reply(self) -> int:
        """Words of the longest reply, its `</s>` included: decoding goes no further."""
        return self.model.sizes.max_reply

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

    def target(self, text: str) -> Tensor:
        """Word ids (T,) int64 of a reply and its `</s>`.

        Args:
            text: words between blanks, written as in the corpus.

        Raises:
            DataError: a word is not in the vocabulary.
        """
        words = text.split()
        if unknown := outside(self.model.vocabulary)(words):
            fix = "write the target with other words"
            raise DataError("the model cannot say some words of a target", where=text, got=", ".join(unknown), fix=fix)
        return torch.tensor([*self.model.vocabulary.encode(words), EOS_ID], device=self.searchable_V.device)

    def words(self, ids: Sequence[int]) -> list[str]:
        """The words of those ids."""
        return [self.model.vocabulary.words[i] for i in ids]

    def text(self, ids: Sequence[int]) -> str:
        """Words joined by blanks."""
        return " ".join(self.model.vocabulary.decode(ids))

    def likely_inputs(self, seeds: Sequence[int]) -> Tensor:
        """Inputs (B, N) int64 of full length that the language model finds likely, drawn from one seed each."""
        assert self.lm is not None, "nobody judges inputs"
        return torch.from_numpy(sample_sentences(self.lm, seeds, self.input_length)).to(self.searchable_V.device)


def searchable(vocabulary: PairVocabulary, *, unknown: bool = False) -> Tensor:
    """Which words (V,) an input may hold: all but the specials and what ends a turn, `<unk>` where allowed."""
    allowed_V = torch.arange(len(vocabulary)) >= len(SPECIALS)
    allowed_V[UNK_ID] = unknown
    if EOT in vocabulary.index:
        allowed_V[vocabulary.index[EOT]] = False
    return allowed_V
