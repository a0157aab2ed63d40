"""Language and response models as rankers: the mean log-probability of a reply's words, its end counted.

A response model reads the context, as many of its newest turns as it was made for. A language model reads none, and shows how
far fluent candidates are preferred whatever the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch

from parley.envs.core.errors import CheckpointError
from parley.envs.core.storage.copies import fetched_model
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import Context
from parley.policies.core.fitting.batches import example_nll
from parley.policies.core.responder import TrainableResponder
from parley.policies.core.responders import load_responder
from parley.policies.ranking.ranker import BatchRanker, LimitedRanker, Pair, Unread
from parley.policies.seq2seq.scoring import WordScores, load_language_model

_ROWS = 64


class ReplyLikelihood(LimitedRanker):
    """A response model as a ranker, by the likelihood of replies.

    Args:
        responder: of Parley's own, in evaluation mode.
    """

    is_free = True

    def __init__(self, responder: TrainableResponder) -> None:
        self._responder = responder

    @torch.inference_mode()
    def score_all(self, pairs: Sequence[Pair]) -> list[np.ndarray]:
        rows = [(context, reply) for context, candidates in pairs for reply in candidates]
        if not rows:
            return [np.zeros(0) for _ in pairs]
        contexts = [tuple((turn,) for turn in context) for context, _ in rows]
        examples = self._responder.examples(contexts, [(reply,) for _, reply in rows])
        model, scores = self._responder.model, np.empty(len(rows))
        device = next(model.parameters()).device
        order = np.argsort(examples.num_targets, kind="stable")
        for start in range(0, len(rows), _ROWS):
            block = order[start : start + _ROWS]
            nats_B, words_B = example_nll(model, examples.batch(block).to(device))
            scores[block] = -(nats_B / words_B).cpu().numpy()
        return np.split(scores, np.cumsum([len(candidates) for _, candidates in pairs])[:-1])

    def unread(self, context: Context, candidates: Sequence[Utterance]) -> Unread:
        """Return how many turns and replies exceed the model's number of turns, and of units of its vocabulary."""
        model: Any = self._responder.model
        sizes, units = model.sizes, model.vocabulary.encode
        lengths: np.ndarray = np.array([len(units(turn)) for turn in context[-self._responder.turns :]][::-1])
        # VHRED limits a turn; the others limit a context, in which a mark stands between turns.
        ends, most = (lengths, sizes.max_turn) if hasattr(sizes, "max_turn") else (np.cumsum(lengths + 1) - 1, sizes.max_source)
        long = sum(len(units(reply)) >= sizes.max_reply for reply in candidates)
        return Unread(len(context) - int((ends < most).sum()), long)


class UtteranceLikelihood(BatchRanker):
    """A language model as a ranker, which reads no context.

    Args:
        scores: of the model.
    """

    is_free = True

    def __init__(self, scores: WordScores) -> None:
        self._scores = scores

    def score_all(self, pairs: Sequence[Pair]) -> list[np.ndarray]:
        """Return nats per word, negative; a text that comes twice is read once."""
        texts = dict.fromkeys(reply for _, candidates in pairs for reply in candidates)
        means = [float(nats.mean()) for nats in self._scores.log_probabilities(list(texts))]
        score_of = dict(zip(texts, means, strict=True))
        return [np.array([score_of[reply] for reply in candidates]) for _, candidates in pairs]


def load_reply_likelihood(name: str, device: str = "cpu") -> ReplyLikelihood:
    """Return the ranker of a response model's run or checkpoint, by folder or URI, on a torch device.

    Raises:
        CheckpointError: nothing is there, it is damaged, or it is no response model whose likelihoods can be read.
    """
    responder = load_responder(name)
    if not hasattr(responder, "examples"):
        fix = "name a run or checkpoint that parley train made"
        raise CheckpointError("the model says no likelihoods", where=name, got=type(responder).__name__, fix=fix)
    trained = cast("TrainableResponder", responder)
    trained.model.to(device)
    return ReplyLikelihood(trained)


def load_utterance_likelihood(name: str, device: str = "cpu") -> UtteranceLikelihood:
    """Return the ranker of a language model's run or checkpoint, by folder or URI; raises as `load_language_model`."""
    return UtteranceLikelihood(WordScores(load_language_model(fetched_model(name)).to(device)))
