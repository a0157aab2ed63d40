"""How likely a model finds what was said: the negative log-likelihood of each side's words in finished dialogues."""

from __future__ import annotations

import numpy as np
import torch

from envs.negotiation.game import NegotiationGame
from policies.negotiator.model import Negotiator, word_nll

ROWS_PER_PASS = 128


@torch.no_grad()
def utterance_nll(model: Negotiator, game: NegotiationGame, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Negative log-likelihood of the words one side wrote, as that side's speaker (temperature 1, all words allowed).

    Args:
        model: the judge, such as the supervised agent.
        game: finished dialogues in the model's vocabulary.
        side: whose words are scored, seen from its own perspective.

    Returns:
        (nats (B,), words (B,)): summed over the words of each dialogue, `<eos>` and `<selection>` included, markers
        and forced words not.
    """
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    nats, words = np.zeros(len(game)), np.zeros(len(game), dtype=np.int64)
    order = np.argsort(game.num_tokens, kind="stable")
    for start in range(0, len(order), ROWS_PER_PASS):
        rows = order[start : start + ROWS_PER_PASS]
        width = int(game.num_tokens[rows].max())
        tokens_BT = torch.from_numpy(game.tokens[side][rows, :width]).to(device)
        context_BC = model.encode_context(torch.from_numpy(np.ascontiguousarray(game.contexts[side][rows])).to(device))
        nll_BT = word_nll(model.word_logits(model.read(tokens_BT, context_BC)[:, :-1]), tokens_BT)
        mine = game.authors[rows, 1:width] == side
        nats[rows] = (nll_BT.cpu().numpy() * mine).sum(1)
        words[rows] = mine.sum(1)
    model.train(was_training)
    return nats, words
