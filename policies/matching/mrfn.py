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

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from envs.pairs.vocabulary import PairVocabulary
from policies.gru import GRU
from policies.matching.batches import Block, Rows
from policies.matching.beginnings import BegunSteps
from policies.matching.matcher import BARRED, Encoded, Matcher, at, each_match, state_at, states
from policies.matching.settings import MrfnSizes
from policies.products import Linear

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
        """Queries, keys and values of words, which the other side does not change."""
        return torch.relu(self.query(words)), torch.relu(self.key(words)), torch.relu(self.value(words))

    def forward(self, words: Tensor, queries: Tensor, keys: Tensor, values: Tensor, asks: Tensor, told: Tensor) -> Tensor:
        """Words (R, N, E) with what they attend to.

        Args:
            words: (R, N, E).
            queries: of them.
            keys: of the text attended to (R, J, E).
            values: of it.
            asks: (R, N), true at words that attend.
            told: (R, J), true at words that are attended to.
        """
        query, key, value = (each.unflatten(2, (self.heads, -1)).transpose(1, 2) for each in (queries, keys, values))
        logits = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
        weights = logits.masked_fill(~told[:, None, None], BARRED).softmax(3)
        attended = (weights @ value).transpose(1, 2).flatten(2) * asks.unsqueeze(2)
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

    def match(self, turns_RND: Tensor, keys_RND: Tensor, replies_RJD: Tensor, read_RN: Tensor) -> Tensor:
        """F (R, J, D): what each word of a reply and what it finds in a turn have in common."""
        logits_RJN = (replies_RJD @ keys_RND.transpose(1, 2)).masked_fill(~read_RN.unsqueeze(1), BARRED)
        found_RJD = logits_RJN.softmax(2) @ turns_RND
        return torch.relu(self.compare(torch.cat([found_RJD * replies_RJD, found_RJD - replies_RJD], 2)))

    def decide(self, matches_PKD: Tensor, newest_P: Tensor) -> Tensor:
        """Log-odds (P,) of the matches of each pair's turns."""
        logits_P2 = self.output(state_at(self.session, matches_PKD, newest_P))
        return logits_P2[:, 1] - logits_P2[:, 0]


class MRFN(Matcher):
    """One MRFN's parameters; the arguments are those of `Matcher`."""

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

    def encode(self, words_RNE: Tensor, rows: Rows, letters: Tensor | None) -> Encoded:
        assert letters is not None, "its words are spelt"
        read_RN = rows.read_RN
        begun = None if rows.begun is None else rows.begun.exact
        sequence_RNE = states(self.gru, words_RNE, begun) * read_RN.unsqueeze(2)
        own_RNE = self.own(words_RNE, *self.own.project(words_RNE), read_RN, read_RN)
        alone = [letters, words_RNE, sequence_RNE, self.local(words_RNE), own_RNE]
        keys = [view.bilinear(each) for view, each in zip(self.each_view, alone, strict=False)]
        return *alone, *keys, *self.cross.project(words_RNE)

    def local(self, words_RNE: Tensor) -> Tensor:
        """What convolutions read around each word (R, N, D)."""
        words_REN = words_RNE.transpose(1, 2)
        maps = [conv(F.pad(words_REN, ((width - 1) // 2, width // 2))) for width, conv in zip(WINDOWS, self.convs, strict=True)]
        return self.local_norm(torch.relu(torch.cat(maps, 1)).transpose(1, 2))

    def begun(self, replies: Rows) -> list[BegunSteps | None]:
        """What replies that begin alike have in common, by the views."""
        if replies.begun is None:
            return [None] * len(self.views)
        same, local = replies.begun.exact, replies.begun.steps(WINDOWS[-1] // 2)
        # Attention reads a whole reply.
        alone = replies.begun.steps(self.sizes.words)
        return [same, same, same, local, alone, alone]

    def forward(self, block: Block) -> Tensor:
        memory = self.memory(block)
        alone, (queries, keys, values) = len(self.views) - 1, memory[-3:]

        def match(turns: Rows, replies: Rows) -> Tensor:
            here, there = turns.places_RN, replies.places_RN
            sides = [(at(memory[i], here), at(memory[alone + i], here), at(memory[i], there)) for i in range(alone)]
            words, said = sides[1][0], sides[1][2]
            crossed = self.cross(words, at(queries, here), at(keys, there), at(values, there), turns.read_RN, replies.read_RN)
            answered = self.cross(said, at(queries, there), at(keys, here), at(values, here), replies.read_RN, turns.read_RN)
            sides.append((crossed, self.each_view[-1].bilinear(crossed), answered))
            found = []
            for view, side, steps in zip(self.each_view, sides, self.begun(replies), strict=True):
                common_RJD = self.dropout(view.match(*side, turns.read_RN))
                found.append(state_at(view.words, common_RJD, replies.ends_R, steps))
            return torch.cat(found, 1)

        matches, newest_P = each_match(block, match, self.most_match_cells, begun=not torch.is_grad_enabled())
        parts = matches.split([view.output.in_features for view in self.each_view], 2)
        return torch.stack([view.decide(part, newest_P) for view, part in zip(self.each_view, parts, strict=True)], 1)
