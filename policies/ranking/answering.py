"""Hugging Face encoders as response models: a bi-encoder answers by retrieval, a classifier by its likeliest label.

A retrieval bot has a collection of replies and answers with the one that its ranker scores best, the first of equals. So its
reply to a changed context tells whether the change cost it the right one. The collection is handed in, because an encoder knows
none. A cross-encoder of one logit answers alike, and reads every pair of context and reply.

A classifier reads the turns of a context, one a line, and its reply is the name of a label.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.tokens import tokenise
from parley.envs.corpora.pairs.turns import Turn, Turns, Utterance
from parley.policies.core.responder import GREEDY, DecoderSettings, model_inside, require_known
from parley.policies.hugging_face.models import read_config, read_pretrained
from parley.policies.hugging_face.tokens import longest_input
from parley.policies.ranking.encoders import context_text, load_hugging_face_ranker
from parley.policies.ranking.ranker import Ranker, scores_of


class RetrievalResponder:
    """A ranker that answers with the best of some replies.

    Args:
        ranker: that scores replies.
        replies: to answer with.
    """

    def __init__(self, ranker: Ranker, replies: Sequence[Turn]) -> None:
        self._ranker, self._replies = ranker, tuple(replies)
        self._words = [_words(reply) for reply in replies]

    def respond(self, contexts: Sequence[Turns], *, decoder: DecoderSettings = GREEDY, seeds: Sequence[int] = ()) -> list[Turn]:
        """Return replies, see `parley.policies.core.responder.Responder`.

        Raises:
            ConfigError: there are no replies to answer with, or another decoder than greedy is asked for.
        """
        require_known(self, decoder, type(self).__name__)
        if contexts and not self._replies:
            fix = "parley evaluate robustness and evaluate ranking hand it the replies of their corpus"
            raise ConfigError("an encoder that ranks has no replies to answer with here", fix=fix)
        scores = scores_of(self._ranker, [(tuple(map(_words, turns)), self._words) for turns in contexts])
        return [self._replies[int(np.argmax(of_replies))] for of_replies in scores]


class LabelResponder:
    """A classifier that answers with its likeliest label.

    Args:
        model: with a head for sequence classification, of two labels or more.
        tokenizer: of the model; a text that is too long loses its beginning.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model, self._tokenizer = model.eval().requires_grad_(False), tokenizer
        tokenizer.truncation_side = "left"
        self._longest = longest_input(tokenizer, model)
        self._labels: dict[int, Turn] = {
            int(number): (tuple(tokenise(str(label))),) for number, label in model.config.id2label.items()
        }

    @torch.inference_mode()
    def respond(self, contexts: Sequence[Turns], *, decoder: DecoderSettings = GREEDY, seeds: Sequence[int] = ()) -> list[Turn]:
        """Return labels as replies, see `parley.policies.core.responder.Responder`; one context at a time, without padding."""
        require_known(self, decoder, type(self).__name__)
        labels = []
        for turns in contexts:
            text = context_text(tuple(map(_words, turns)))
            read = self._tokenizer(text, truncation=True, max_length=self._longest, return_tensors="pt")
            labels.append(self._labels[int(self._model(**read.to(self._model.device)).logits[0].argmax())])
        return labels


def encoder_kind(folder: Path) -> Literal["", "ranker", "classifier"]:
    """Return what an encoder's folder answers as; empty for a folder that holds no encoder, or none at all.

    Raises:
        CheckpointError: the configuration is damaged.
    """
    folder = model_inside(folder)
    if (folder / "modules.json").is_file():
        return "ranker"
    if not (folder / "config.json").is_file():
        return ""
    config = read_config(folder)
    if not any(name.endswith("ForSequenceClassification") for name in config.architectures or ()):
        return ""
    return "ranker" if config.num_labels == 1 else "classifier"


def load_encoder_responder(folder: Path, replies: Sequence[Turn], device: str = "cpu") -> RetrievalResponder | LabelResponder:
    """Return the encoder of a folder, one that has an `encoder_kind`, as a response model; raises as `read_pretrained`."""
    if encoder_kind(folder) == "ranker":
        return RetrievalResponder(load_hugging_face_ranker(folder, device), replies)
    tokenizer, model = read_pretrained(folder, lambda config: "AutoModelForSequenceClassification")
    return LabelResponder(model.to(device), tokenizer)


def _words(turn: Turn) -> Utterance:
    return tuple(chain.from_iterable(turn))
