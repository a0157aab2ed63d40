"""The plain way to score replies: each pair padded to ten turns of fifty words, the whole network for each, 100 at a time.

This is how the released repositories of SMN, DAM and MRFN evaluate. The equations are those of `policies/ranking/matching`,
with padding masked or read as released; torch's own layers read the weights of our models.

Shapes: B pairs, K turns, N words of a turn or reply, L letters.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parley.envs.corpora.pairs.vocabulary import PAD_ID, UNK
from parley.policies.core.layers import Linear, LSTMCell
from parley.policies.ranking.matching.batches import Alphabet
from parley.policies.ranking.matching.dam import DAM
from parley.policies.ranking.matching.matcher import BARRED, Matcher
from parley.policies.ranking.matching.mrfn import MRFN, Attention
from parley.policies.ranking.matching.smn import SMN
from parley.policies.ranking.ranker import Pair

BATCH = 100
ModelT = TypeVar("ModelT", bound=nn.Module)


class PlainBatch:
    """Pairs padded to full size.

    Args:
        model: whose sizes and words they are for.
        pairs: each a context and one reply.
    """

    def __init__(self, model: Matcher, pairs: Sequence[tuple[Sequence[Sequence[str]], Sequence[str]]]) -> None:
        sizes, vocabulary = model.sizes, model.vocabulary
        turns = [[list(turn[-sizes.words :] or [UNK]) for turn in context[-sizes.turns :]] for context, _ in pairs]
        replies = [list(reply[-sizes.words :] or [UNK]) for _, reply in pairs]
        self.turns = torch.full((len(pairs), sizes.turns, sizes.words), PAD_ID)
        self.replies = torch.full((len(pairs), sizes.words), PAD_ID)
        if isinstance(model, MRFN):
            alphabet = Alphabet(vocabulary, model.sizes)
            self.turn_letters = torch.zeros(*self.turns.shape, model.sizes.letters, dtype=torch.int64)
            self.reply_letters = torch.zeros(*self.replies.shape, model.sizes.letters, dtype=torch.int64)
        for row, (context, reply) in enumerate(zip(turns, replies, strict=True)):
            self.replies[row, : len(reply)] = torch.from_numpy(vocabulary.encode(reply))
            for index, turn in enumerate(context):
                self.turns[row, index, : len(turn)] = torch.from_numpy(vocabulary.encode(turn))
            if isinstance(model, MRFN):
                self.reply_letters[row, : len(reply)] = torch.from_numpy(alphabet.spell(reply))
                for index, turn in enumerate(context):
                    self.turn_letters[row, index, : len(turn)] = torch.from_numpy(alphabet.spell(turn))
        self.turn_mask, self.reply_mask = self.turns != PAD_ID, self.replies != PAD_ID
        # What counts beside what is read: as released, all of it.
        released = sizes.padding == "released"
        self.turn_real, self.reply_real = self.turn_mask | released, self.reply_mask | released
        self.num_turns = self.turn_real.any(2).sum(1)


def run(gru: nn.GRU, inputs_RND: Tensor) -> Tensor:
    """Return all states of torch's own layer."""
    states_NRH: Tensor = nn.GRU.forward(gru, inputs_RND.transpose(0, 1))[0]
    return states_NRH.transpose(0, 1)


def last(gru: nn.GRU, inputs_RND: Tensor, lengths_R: Tensor) -> Tensor:
    """Return the state after each row's last word; zero for an empty row."""
    states = run(gru, inputs_RND)[torch.arange(len(lengths_R)), (lengths_R - 1).clamp(min=0)]
    return states * (lengths_R > 0).unsqueeze(1)


def plain_smn(model: SMN, batch: PlainBatch) -> Tensor:
    """Return the log-odds (B, 1)."""
    replies, reply_mask = model.embedding(batch.replies), batch.reply_mask
    reply_states = run(model.gru, replies) * reply_mask.unsqueeze(2)
    matches = []
    for k in range(batch.turns.shape[1]):
        turns, turn_mask = model.embedding(batch.turns[:, k]), batch.turn_mask[:, k]
        turn_states = run(model.gru, turns) * turn_mask.unsqueeze(2)
        alike = torch.stack([turns @ replies.transpose(1, 2), model.bilinear(turn_states) @ reply_states.transpose(1, 2)], 1)
        starts = batch.turn_real[:, k, None, :-2, None] & batch.reply_real[:, None, None, :-2]
        maps = torch.relu(model.conv(alike)) * starts
        matches.append(torch.tanh(model.match(F.max_pool2d(maps, 3).flatten(1))))
    logits = model.output(last(model.session, torch.stack(matches, 1), batch.num_turns))
    return logits[:, 1:] - logits[:, :1]


def attended(queries: Tensor, keys: Tensor, mask: Tensor, block: Any) -> Tensor:
    """Run DAM's block on texts (B, N, E)."""
    logits = (queries @ keys.transpose(1, 2) / queries.shape[-1] ** 0.5).masked_fill(~mask, BARRED)
    mixed = block.first_norm(queries + logits.softmax(2) @ keys)
    states: Tensor = block.second_norm(mixed + block.outer(torch.relu(block.inner(mixed))))
    return states


def plain_dam(model: DAM, batch: PlainBatch) -> Tensor:
    """Return the log-odds (B, 1)."""
    reply_mask = batch.reply_mask
    replies = [model.embedding(batch.replies)]
    for block in model.own:
        replies.append(attended(replies[-1], replies[-1], reply_mask.unsqueeze(1) & reply_mask.unsqueeze(2), block))
    volumes, masks = [], []
    for k in range(batch.turns.shape[1]):
        turn_mask = batch.turn_mask[:, k]
        turns = [model.embedding(batch.turns[:, k])]
        for block in model.own:
            turns.append(attended(turns[-1], turns[-1], turn_mask.unsqueeze(1) & turn_mask.unsqueeze(2), block))
        mask = turn_mask.unsqueeze(2) & reply_mask.unsqueeze(1)
        crossed = [
            (attended(turn, reply, mask, of_turn), attended(reply, turn, mask.transpose(1, 2), of_reply))
            for turn, reply, of_turn, of_reply in zip(turns, replies, model.of_turns, model.of_replies, strict=True)
        ]
        sides = [*crossed, *zip(turns, replies, strict=True)]
        alike = torch.stack([turn @ reply.transpose(1, 2) for turn, reply in sides], 1) / model.sizes.embed**0.5
        masks.append(batch.turn_real[:, k].unsqueeze(2) & batch.reply_real.unsqueeze(1))
        volumes.append(alike * masks[-1].unsqueeze(1))
    values, real = torch.stack(volumes, 2), torch.stack(masks, 1).unsqueeze(1)
    for conv in (model.first, model.second):
        values = F.max_pool3d(F.elu(conv(values)).masked_fill(~real, -torch.inf), 3, ceil_mode=True)
        real = F.max_pool3d(real.float(), 3, ceil_mode=True) > 0
        values = values.masked_fill(~real, 0)
    log_odds: Tensor = model.output(values.flatten(1))
    return log_odds


def asked(attention: Attention, words: Tensor, keys: Tensor, asks: Tensor, told_mask: Tensor) -> Tensor:
    """Run MRFN's attention of words over other words."""
    attended: Tensor = attention(words, attention.project(words)[0], *attention.project(keys)[1:], asks, told_mask)
    return attended


def plain_mrfn(model: MRFN, batch: PlainBatch) -> Tensor:
    """Return the log-odds (B, 6)."""
    released = model.sizes.padding == "released"

    def spelt(letters: Tensor) -> Tensor:
        flat = letters.flatten(0, -2)
        maps = torch.relu(model.letter_conv(model.letter(flat).transpose(1, 2))) * ((flat > 0) | released).unsqueeze(1)
        return maps.amax(2).view(*letters.shape[:-1], -1)

    def alone(words: Tensor, letters: Tensor, mask: Tensor) -> list[Tensor]:
        sequence = run(model.gru, words) * mask.unsqueeze(2)
        return [spelt(letters), words, sequence, model.local(words), asked(model.own, words, words, mask, mask)]

    reply_mask = batch.reply_mask
    reply_words = model.embedding(batch.replies)
    replies = alone(reply_words, batch.reply_letters, reply_mask)
    matches: list[list[Tensor]] = [[] for _ in model.each_view]
    for k in range(batch.turns.shape[1]):
        words, mask = model.embedding(batch.turns[:, k]), batch.turn_mask[:, k]
        turns = alone(words, batch.turn_letters[:, k], mask)
        crossed = asked(model.cross, words, reply_words, mask, reply_mask)
        answered = asked(model.cross, reply_words, words, reply_mask, mask)
        sides = zip([*turns, crossed], [*replies, answered], strict=True)
        for view, (turn, reply), match in zip(model.each_view, sides, matches, strict=True):
            common = view.match(view.find(turn, view.bilinear(turn), reply, mask), reply)
            match.append(last(view.words, common, batch.reply_real.sum(1)))
    decided = []
    for view, match in zip(model.each_view, matches, strict=True):
        logits = view.output(last(view.session, torch.stack(match, 1), batch.num_turns))
        decided.append(logits[:, 1] - logits[:, 0])
    return torch.stack(decided, 1)


PLAIN: dict[type[Matcher], Callable[..., Tensor]] = {SMN: plain_smn, DAM: plain_dam, MRFN: plain_mrfn}


def stock(model: ModelT) -> ModelT:
    """Copy a model with torch's own layers."""
    copied = copy.deepcopy(model)
    layers = [(part, name, child) for part in copied.modules() for name, child in part.named_children()]
    for part, name, child in layers:
        if isinstance(child, Linear):
            plain = nn.Linear(child.in_features, child.out_features, bias=child.bias is not None)
            plain.load_state_dict(child.state_dict())
            setattr(part, name, plain)
        elif isinstance(child, LSTMCell):
            cell = nn.LSTMCell(child.input_size, child.hidden_size)
            cell.load_state_dict(child.state_dict())
            setattr(part, name, cell)
    return copied


@torch.no_grad()
def plain_scores(model: Matcher, pairs: Sequence[Pair]) -> list[np.ndarray]:
    """Score the candidates of each context, (C,) float64."""
    flat = [(context, reply) for context, candidates in pairs for reply in candidates]
    model, parts = stock(model), []
    for start in range(0, len(flat), BATCH):
        batch = PlainBatch(model, flat[start : start + BATCH])
        parts.append(PLAIN[type(model)](model, batch).double().sigmoid().mean(1).numpy())
    return np.split(np.concatenate(parts), np.cumsum([len(candidates) for _, candidates in pairs])[:-1])
