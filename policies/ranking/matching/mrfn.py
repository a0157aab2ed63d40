"""The multi-representation fusion network with late fusion, FLS (Tao et al. 2019, WSDM); Li et al. 2019 print it "MFRN" too.

Six representations of the words of a turn U and of a reply R:
    letters   largest of relu(conv over 5 letters)                word      word vectors
    sequence  GRU over the words                                  local     norm(relu(conv over 1, 2, 3 and 4 words))
    self      attention over its own text                         cross     attention over the other text, 8 heads each
    attention(Q, K) = norm(Q + heads(softmax(q k^T / sqrt(e)) v)),  q, k, v = relu(W Q + b), relu(W K + b), relu(W K + b)
Each is matched alone:
    r'_j      = sum_i softmax_i(r_j . W u_i) u_i
    f_j       = relu(W [r'_j * r_j; r'_j - r_j] + b),  t_k = last state of a GRU over f_1..f_n
    p(fits)   = softmax of a linear layer of the last state of a GRU over t_1..t_K
The loss is the sum of six cross-entropies; the score is the mean of the six probabilities (released: their sum).

Departures, those of `matcher.py` apart:
  * # Paper: dropout. Released: the layer is never told that it trains, so there is none; `dropout=0` is the released.
  * # Released: 1e-5 is added to the sums of attention weights. Ours: a softmax over words.
  * # Released: every use of a norm has gains of its own, though layers are shared. Ours: one norm for each attention.
  * # Released: vectors of letters are trained beforehand. Ours: they start at random.

Shapes: R rows, N words of a turn, J words of a reply, S different words, L letters; others as in `matcher.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.core.gru import GRU
from parley.policies.core.layers import Linear
from parley.policies.ranking.matching.batches import Block, Padded, Sequences, at, buckets, with_zero
from parley.policies.ranking.matching.matcher import BARRED, Matcher
from parley.policies.ranking.matching.settings import MrfnSizes

LETTERS_WINDOW = 5
WINDOWS = (1, 2, 3, 4)
"""Words that each convolution reads."""


class Attention(nn.Module):
    """Attention of words over words, by several heads.

    Args:
        width: of the words.
        heads: that share it.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (Linear(width, width) for _ in range(3))
        self.norm = nn.LayerNorm(width, eps=1e-8)
        self.heads = heads

    def project(self, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of words, which do not depend on the other side."""
        return torch.relu(self.query(words)), torch.relu(self.key(words)), torch.relu(self.value(words))

    def forward(
        self, words: Tensor, queries: Tensor, keys: Tensor, values: Tensor, query_mask: Tensor, key_mask: Tensor
    ) -> Tensor:
        """Return words (R, N, E) with the words they attend to.

        Args:
            words: (R, N, E).
            queries: of them.
            keys: of the text attended to (R, J, E).
            values: of it.
            query_mask: (R, N), true at words that attend.
            key_mask: (R, J), true at words that are attended to.
        """
        query, key, value = (projected.unflatten(2, (self.heads, -1)).transpose(1, 2) for projected in (queries, keys, values))
        logits = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
        weights = logits.masked_fill(~key_mask[:, None, None], BARRED).softmax(3)
        attended = (weights @ value).transpose(1, 2).flatten(2) * query_mask.unsqueeze(2)
        return self.norm(words + attended)


class View(nn.Module):
    """The matching of one representation.

    Args:
        width: of the representation.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bilinear = Linear(width, width, bias=False)
        self.compare = Linear(2 * width, width)
        self.words, self.session = GRU(width, width), GRU(width, width)
        self.output = Linear(width, 2)

    def find(self, turns_RND: Tensor, keys_RND: Tensor, replies_RJD: Tensor, read_RN: Tensor) -> Tensor:
        """Return the attended words of a turn for each word of a reply (R, J, D)."""
        logits_RJN = (replies_RJD @ keys_RND.transpose(1, 2)).masked_fill(~read_RN.unsqueeze(1), BARRED)
        return logits_RJN.softmax(2) @ turns_RND

    def match(self, attended: Tensor, replies: Tensor) -> Tensor:
        """Return F (..., D): the comparison of a reply's words with the words they attend to."""
        return torch.relu(self.compare(torch.cat([attended * replies, attended - replies], -1)))

    def decide(self, matches_ZD: Tensor, sessions: Sequences) -> Tensor:
        """Return the log-odds (P,) of the matches of each pair's turns."""
        logits_P2 = self.output(sessions.last_states(self.session, matches_ZD))
        return logits_P2[:, 1] - logits_P2[:, 0]


class MRFN(Matcher):
    """The parameters of one MRFN; the arguments are those of `Matcher`."""

    sizes: MrfnSizes
    most_match_cells = 1 << 17

    def __init__(self, vocabulary: PairVocabulary, sizes: MrfnSizes) -> None:
        super().__init__(vocabulary, sizes)
        embed, local = sizes.embed, sizes.maps * len(WINDOWS)
        self.letter = nn.Embedding(sizes.alphabet + 2, sizes.letter_embed, padding_idx=0)
        self.letter_conv = nn.Conv1d(sizes.letter_embed, sizes.letter_maps, LETTERS_WINDOW, padding="same")
        self.gru = GRU(embed, embed)
        self.convs = nn.ModuleList(nn.Conv1d(embed, sizes.maps, width) for width in WINDOWS)
        self.local_norm = nn.LayerNorm(local, eps=1e-8)
        self.own, self.cross = (Attention(embed, sizes.heads) for _ in range(2))
        self.views = nn.ModuleList(map(View, (sizes.letter_maps, embed, embed, local, embed, embed)))
        self.dropout = nn.Dropout(sizes.dropout)

    @property
    def each_view(self) -> list[View]:
        """The views, in the order of the representations."""
        return [cast("View", view) for view in self.views]

    def drop(self, values: Tensor) -> Tensor:
        return self.dropout(values)

    def encode_letters(self, block: Block) -> Tensor:
        letters_SL = block.tensor(block.letters_SL)
        maps_SDL = torch.relu(self.letter_conv(self.letter(letters_SL).transpose(1, 2)))
        if self.sizes.padding == "masked":
            maps_SDL = maps_SDL * (letters_SL > 0).unsqueeze(1)
        return maps_SDL.amax(2)

    def encode(self, words_WE: Tensor, block: Block, letters_WD: Tensor | None) -> Sequence[Tensor]:
        assert letters_WD is not None, "its words are spelt"
        sequence_WE = block.texts.states(self.gru, words_WE) * block.read_W.unsqueeze(1)
        texts, queried = (
            block.padded(self.most_cells),
            [with_zero(representation) for representation in (words_WE, *self.own.project(words_WE))],
        )
        local, attended = [], []
        for rows, words_RNE, *projections in zip(texts.rows, *map(texts.spread, queried), strict=True):
            local.append(self.local(words_RNE))
            attended.append(self.own(words_RNE, *projections, rows.read_RN, rows.read_RN))
        alone = [letters_WD, words_WE, sequence_WE, texts.joined(local), texts.joined(attended)]
        keys = [view.bilinear(representation) for view, representation in zip(self.each_view, alone, strict=False)]
        return *alone, *keys, *self.cross.project(words_WE)

    def local(self, words_RNE: Tensor) -> Tensor:
        """Return the convolutions around each word (R, N, D)."""
        words_REN = words_RNE.transpose(1, 2)
        maps = [conv(F.pad(words_REN, ((width - 1) // 2, width // 2))) for width, conv in zip(WINDOWS, self.convs, strict=True)]
        return self.local_norm(torch.relu(torch.cat(maps, 1)).transpose(1, 2))

    def forward(self, block: Block) -> Tensor:
        memory = self.memory(block)
        alone, (queries, keys, values) = len(self.views) - 1, memory[-3:]
        met_M2, _ = block.matches
        chosen = list(buckets(block.rooms_T[met_M2], self.most_match_cells))
        turns, replies = (Padded(block, texts_M, chosen) for texts_M in met_M2.T)
        codes_X = block.codes_W[replies.numbers_X]
        # Replies that meet the same turn may begin alike.
        codes_X = codes_X + np.repeat(met_M2[:, 0], block.rooms_T[met_M2[:, 1]]) * (block.codes_W.max() + 1)
        sequences = Sequences(block.rooms_T[met_M2[:, 1]], block.device, codes_X)
        places_Z, sessions = block.sessions
        # Later positions that one depends on; attention reads a whole reply.
        ahead = (0, 0, 0, WINDOWS[-1] // 2, self.sizes.words, self.sizes.words)
        decided = []
        for i, view in enumerate(self.each_view):
            if i < alone:
                sides: list[Iterable[Tensor]] = [turns.spread(flat_WD) for flat_WD in (memory[i], memory[alone + i])]
                sides.append(replies.spread(memory[i]))
                said_XD = at(memory[i], replies.places_X)
            else:
                words = turns.spread(memory[1]), replies.spread(memory[1])
                projections = [side.spread(flat_WD) for flat_WD in (queries, keys, values) for side in (turns, replies)]
                crossed, answered = [], []
                for here, there, *parts in zip(turns.rows, replies.rows, *words, *projections, strict=True):
                    turn, reply, turn_query, query, turn_key, key, turn_value, value = parts
                    crossed.append(self.cross(turn, turn_query, key, value, here.read_RN, there.read_RN))
                    answered.append(self.cross(reply, query, turn_key, turn_value, there.read_RN, here.read_RN))
                sides = [crossed, [view.bilinear(flat_WD) for flat_WD in crossed], answered]
                said_XD = replies.joined(answered)
            attended = [
                view.find(here, key, reply, rows.read_RN) for rows, here, key, reply in zip(turns.rows, *sides, strict=True)
            ]
            common_XD = self.dropout(view.match(replies.joined(attended), said_XD))
            matches_MD = sequences.last_states(view.words, common_XD, ahead[i])
            decided.append(view.decide(at(matches_MD, places_Z), sessions))
        return torch.stack(decided, 1)
