"""How likely a model finds what was said: the negative log-likelihood of each side's words in finished dialogues."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from parley.envs.negotiation.game import NegotiationGame
from parley.envs.negotiation.vocabulary import EOS, EOS_ID, PAD_ID, UNK_ID, Vocabulary
from parley.policies.negotiator.model import Negotiator, word_nll

ROWS_PER_PASS = 128


@torch.no_grad()
def token_nll(model: Negotiator, contexts_n6: np.ndarray, tokens_nT: np.ndarray, lengths_n: np.ndarray) -> np.ndarray:
    """Negative log-likelihood of every token of dialogues, at temperature 1 with all words allowed.

    Args:
        model: the judge, such as the supervised agent.
        contexts_n6: count and own value of each item in turn.
        tokens_nT: dialogues in the model's vocabulary from one side's perspective, padded.
        lengths_n: how many tokens count.

    Returns:
        (n, T) float64 nats; 0 for the first token, which nothing predicts, and for padding.
    """
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    nats = np.zeros(tokens_nT.shape)
    order = np.argsort(lengths_n, kind="stable")
    for start in range(0, len(order), ROWS_PER_PASS):
        rows = order[start : start + ROWS_PER_PASS]
        width = int(lengths_n[rows].max())
        tokens_BT = torch.from_numpy(np.ascontiguousarray(tokens_nT[rows, :width])).to(device)
        context_BC = model.encode_context(torch.from_numpy(np.ascontiguousarray(contexts_n6[rows])).to(device))
        nll_BT = word_nll(model.word_logits(model.read(tokens_BT, context_BC)[:, :-1]), tokens_BT)
        nats[rows, 1:width] = nll_BT.cpu().numpy() * (np.arange(1, width) < lengths_n[rows, None])
    model.train(was_training)
    return nats


def utterance_nll(model: Negotiator, game: NegotiationGame, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Negative log-likelihood of the words one side wrote, as that side's speaker.

    Args:
        model: the judge, such as the supervised agent.
        game: finished dialogues; words that the model does not know count as `<unk>`.
        side: whose words are scored, seen from its own perspective.

    Returns:
        (nats (B,), words (B,)): summed over the words of each dialogue, `<eos>` and `<selection>` included, markers
        and forced words not.
    """
    mine = game.authors == side
    nats = token_nll(model, game.contexts[side], game.tokens_in(model.vocabulary, side), game.num_tokens)
    return (nats * mine).sum(1), mine.sum(1)


def sentence_nll(
    model: Negotiator, game: NegotiationGame, rows: np.ndarray, starts: np.ndarray, sentences: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Negative log-likelihood of sentences as side 0 would have said them.

    Args:
        model: the judge.
        game: dialogues.
        rows: the dialogue (n,) that each sentence belongs to.
        starts: tokens (n,) of the dialogue before its first word, the speaker's marker included.
        sentences: word ids of each, as side 0 says them; words that the model does not know count as `<unk>`.

    Returns:
        Nats of each word of each sentence.
    """
    lengths = starts + np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    tokens = np.full((len(rows), int(lengths.max())), PAD_ID, dtype=np.int64)
    heard = game.tokens_in(model.vocabulary, 0)
    for i, (row, start, end) in enumerate(zip(rows.tolist(), starts.tolist(), lengths.tolist(), strict=True)):
        tokens[i, :start] = heard[row, :start]
        tokens[i, start:end] = _known(sentences[i], game, model.vocabulary)
    nats = token_nll(model, game.contexts[0, rows], tokens, lengths)
    return [nats[i, start:end] for i, (start, end) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True))]


def _known(sentence: np.ndarray, game: NegotiationGame, vocabulary: Vocabulary) -> np.ndarray:
    """A sentence of side 0 in ids of a vocabulary; a word that was searched, or another's, may lack there."""
    own = game.vocabularies[0]
    if vocabulary.digest == own.digest:
        return np.where(sentence < len(own), sentence, UNK_ID)
    return vocabulary.encode([EOS if word == EOS_ID else game.written(0, [word])[0] for word in sentence.tolist()])
