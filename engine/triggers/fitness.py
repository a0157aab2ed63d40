"""How fit an input is whose reply alone is seen: what searches by replies climb.

    target      how alike the reply's beginning and the target are, letter by letter (`evolution.closeness`)
    similarity  the cosine of their vectors by a bi-encoder, from 0 (opposite) to 1: other words that say the same count
    rating      how far a chat model finds that the reply does what was asked for, 0 to 100; PAIR's score (Chao et al. 2023)

With `lm` the mean nats of an input's words, by a model whose weights are here, weigh against what its reply is worth: inputs
that read like text go on. A weight of some hundredths is much: random words have about 10 nats, and a reply is worth 1 at most.

Whether a reply is a success, which ends a search, is judged apart (`success.py`); a success is worth 1 more than it is fit,
and goes before whatever is none. An answer that is no reply is not rated, and is less fit than any reply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

from parley.engine.triggers.methods.evolution import closeness
from parley.envs.core.errors import ConfigError
from parley.envs.core.ranges import Configuration, NonNegativeFloat
from parley.envs.core.storage.copies import fetched_model
from parley.envs.core.storage.uris import HUGGING_FACE
from parley.policies.chat.addresses import absolute_address, is_local
from parley.policies.chat.settings import ChatModelSettings
from parley.policies.chat.verdicts import ReplyRating

Fitness = Callable[[Sequence[str], str, str | None], list[ReplyRating]]
"""From replies, their target and its request to how fit each is."""


@dataclass(frozen=True, kw_only=True)
class FitnessSettings(Configuration):
    """What makes an input fit, for searches that see replies alone."""

    by: Literal["target", "similarity", "rating"] = "target"
    """target (letters), similarity (vectors), or rating (a chat model's)."""
    encoder: str = ""
    """similarity: hf:FOLDER of a bi-encoder, as sentence-transformers writes it."""
    judge: str = ""
    """rating: the chat model that rates, by its address."""
    lm: str = ""
    """A causal model that says how fluent an input is, hf:FOLDER or gguf:FILE; with lm_weight."""
    lm_weight: NonNegativeFloat = 0.0
    """Weight of the mean nats of an input's words by lm, against what its reply is worth."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for by, name in {"similarity": "encoder", "rating": "judge"}.items():
            if (self.by == by) != bool(getattr(self, name)):
                got, fix = (
                    f"by {self.by}, {name} {getattr(self, name)!r}",
                    f"give both fitness.by={by} and fitness.{name}, or neither",
                )
                raise ConfigError(f"{by} is told by a model that is named", where="fitness", got=got, fix=fix)
        if bool(self.lm) != bool(self.lm_weight) or (self.lm and not is_local(self.lm)):
            got = f"lm {self.lm!r}, lm_weight {self.lm_weight}"
            fix = "give both fitness.lm=hf:FOLDER (or gguf:FILE) and fitness.lm_weight above 0, or neither"
            raise ConfigError("fluency is told by a model whose weights are here", where="fitness", got=got, fix=fix)
        if self.encoder and not self.encoder.startswith(HUGGING_FACE):
            raise ConfigError("an encoder is named hf:FOLDER", where="fitness.encoder", got=self.encoder, fix="hf:FOLDER")


def load_fitness(settings: FitnessSettings, chat: ChatModelSettings, answers: Path | None = None) -> Fitness:
    """What tells how fit replies are.

    Args:
        settings: by what.
        chat: how a chat model that rates is loaded or asked.
        answers: folder of a run in which its answers are kept; None keeps none.

    Raises:
        ConfigError: no chat model is called so, or the folder is no bi-encoder.
        CheckpointError: no model is there.
    """
    if settings.by == "rating":
        from parley.policies.chat.loading import load_chat_model
        from parley.policies.chat.verdicts import ChatRatings

        return ChatRatings(load_chat_model(absolute_address(settings.judge), chat, answers=answers), chat.judge_tokens)
    if settings.by == "similarity":
        return _similarity(settings.encoder)
    return lambda replies, target, prompt: [ReplyRating(closeness(reply, target)) for reply in replies]


def load_fluency(settings: FitnessSettings, chat: ChatModelSettings) -> Callable[[str], float]:
    """From an input to what its words cost, at least 0; nothing where no model tells.

    Args:
        settings: by which model, and how much it weighs.
        chat: how the model is loaded.

    Raises:
        ConfigError: the model has an encoder.
        CheckpointError: there is no model.
    """
    if not settings.lm:
        return lambda text: 0.0
    from parley.policies.hugging_face.judges import HuggingFaceInputModel
    from parley.policies.hugging_face.models import read_model

    tokenizer, model = read_model(settings.lm, chat, chat.device)
    judge = HuggingFaceInputModel(model, tokenizer)
    return lambda text: settings.lm_weight * fmean(judge.nats(text))


def _similarity(name: str) -> Fitness:
    from parley.policies.ranking.encoders import BiEncoder
    from parley.policies.ranking.hugging_face import load_hugging_face_ranker

    encoder = load_hugging_face_ranker(fetched_model(name.removeprefix(HUGGING_FACE)))
    if not isinstance(encoder, BiEncoder):
        fix = "name a folder that sentence-transformers wrote, with a pooling"
        raise ConfigError("only a bi-encoder makes vectors of texts", where="fitness.encoder", got=name, fix=fix)
    return lambda replies, target, prompt: [ReplyRating((1 + cosine) / 2) for cosine in encoder.cosines(target, replies)]
