"""Loads a ranker by its name (see `policies/ranking/ranker.py`).

A name is a registered one, of which the fitted ones need training contexts, or of a form in `RANKER_KINDS`; a user's own
class or function is called without arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.core.registry import Registry, own_code
from parley.envs.core.storage.copies import fetched_model
from parley.envs.core.storage.uris import HUGGING_FACE
from parley.envs.ranking.groups import Context
from parley.policies.chat.addresses import GGUF, OPENAI, is_chat_address, is_served
from parley.policies.chat.answers import answers_chats, made_chat_model
from parley.policies.chat.settings import DEFAULT, ChatModelSettings
from parley.policies.core.responder import stored_kind
from parley.policies.ranking.ranker import Ranker

LANGUAGE_MODEL, RESPONSE_MODEL, RESPONSE_ONLY = "lm:", "seq2seq:", "response-only:"

rankers = Registry("ranker", "parley.rankers")
"""Classes that are called without arguments; one with a class method `fit` gets training contexts by it instead."""
rankers.register("constant", "all candidates alike", "parley.policies.ranking.ranker:Constant")
rankers.register("longest", "many words", "parley.policies.ranking.ranker:Longest")
rankers.register("shortest", "few words", "parley.policies.ranking.ranker:Shortest")
rankers.register("overlap", "words that the context holds", "parley.policies.ranking.ranker:WordOverlap")
rankers.register("tfidf", "cosine of TF-IDF weights", "parley.policies.ranking.ranker:TfIdf")
rankers.register("bm25", "cosine of BM25 weights", "parley.policies.ranking.ranker:Bm25")

kinds = Registry("kind of matching model", "parley.matchers")
"""Loaders by the kind of checkpoint; each makes a ranker of a run or checkpoint folder and a torch device."""
kinds.register("smn", "sequential matching network, Wu et al. 2017", "parley.policies.ranking.matching.fit:load_matcher")
kinds.register("dam", "deep attention matching network, Zhou et al. 2018", "parley.policies.ranking.matching.fit:load_matcher")
kinds.register(
    "mrfn", "multi-representation fusion network, Tao et al. 2019", "parley.policies.ranking.matching.fit:load_matcher"
)

RANKER_KINDS = {
    "RUN": f"a run or checkpoint of a matching model: {', '.join(f'{kind} ({kinds.summary(kind)})' for kind in kinds)}",
    f"{HUGGING_FACE}FOLDER": "a cross-encoder, bi-encoder or causal model of Hugging Face",
    f"{GGUF}FILE": "log-probability a token of a reply, by a chat model",
    f"{OPENAI}URL#MODEL": "a rating from 0 to 100, asked of a chat model",
    f"{RESPONSE_MODEL}RUN": "log-probability a word of a reply, by a response model",
    f"{LANGUAGE_MODEL}RUN": "log-probability a word of a reply, by a language model",
    f"{RESPONSE_ONLY}NAME": "any of these, which then sees no context",
    "path/file.py:Name": "a class or function of your own",
}
"""Forms of names that are not registered, with their meanings."""


def load_ranker(
    name: str, contexts: Iterable[Context] | None = None, chat: ChatModelSettings = DEFAULT, *, answers: Path | None = None
) -> Ranker:
    """Return the ranker of a name.

    Args:
        name: such as "tfidf", "runs/matcher", "hf:FOLDER" or "mine.py:Name"; `parley list` has all.
        contexts: of the training split, for rankers that are fitted; others do not look at them.
        chat: device of networks, one of your own apart, and settings of loading or asking a chat model.
        answers: folder of a run in which answers of chat models are kept; None keeps none.

    Returns:
        The ranker.

    Raises:
        ConfigError: no ranker is called so, contexts are missing, or a file of your own makes none.
        CheckpointError: nothing is there, it is damaged, or models of its kind do not rank.
        DataError: there are no words to fit a ranker on.
    """
    if name.startswith(RESPONSE_ONLY):
        from parley.policies.ranking.ranker import ResponseOnly

        return ResponseOnly(load_ranker(name.removeprefix(RESPONSE_ONLY), contexts, chat, answers=answers))
    if is_chat_ranker(name):
        return _chat_ranker(name, chat, answers)
    if name.startswith(HUGGING_FACE):
        from parley.policies.ranking.encoders import load_hugging_face_ranker

        return load_hugging_face_ranker(fetched_model(name.removeprefix(HUGGING_FACE)), chat.device)
    if name.startswith(RESPONSE_MODEL):
        from parley.policies.ranking.likelihood import load_reply_likelihood

        return load_reply_likelihood(name.removeprefix(RESPONSE_MODEL), chat.device)
    if name.startswith(LANGUAGE_MODEL):
        from parley.policies.ranking.likelihood import load_utterance_likelihood

        return load_utterance_likelihood(name.removeprefix(LANGUAGE_MODEL), chat.device)
    if ".py:" in name:
        with own_code(name):
            ranker = _made(name, contexts)
        if answers_chats(ranker):
            return _chat_ranker(name, chat, answers)
        if not hasattr(ranker, "score"):
            fix = "name a class with a method score, or a function that makes such an object; neither takes arguments"
            raise ConfigError("this makes no ranker", where=name, got=repr(ranker), fix=fix)
        return cast("Ranker", ranker)
    if name not in rankers and ("/" in name or Path(name).exists()):
        return _stored(name, chat.device)
    return cast("Ranker", _made(name, contexts))


def is_chat_ranker(name: str) -> bool:
    """Return whether a name stands for a chat model, which ranks replies by likelihood or by rating."""
    if name.startswith(HUGGING_FACE):
        from parley.policies.ranking.encoders import is_causal

        return is_causal(fetched_model(name.removeprefix(HUGGING_FACE)))
    return is_chat_address(name)


def _chat_ranker(name: str, chat: ChatModelSettings, answers: Path | None) -> Ranker:
    from parley.policies.chat.answers import kept_answers
    from parley.policies.chat.loading import load_chat_model
    from parley.policies.chat.model import Access, ScoringChatModel
    from parley.policies.chat.ranker import ChatRanker, RatingRanker

    model = load_chat_model(name, chat)
    if model.access < Access.SCORES:
        return RatingRanker(kept_answers(model, answers), chat.judge_tokens)
    # Scores of weights here are not kept.
    return ChatRanker(cast("ScoringChatModel", kept_answers(model, answers if is_served(name) else None)))


def is_fitted(maker: Any) -> bool:
    """Return whether the maker of a ranker is a class with a class method `fit`, which fits it on contexts."""
    return inspect.isclass(maker) and inspect.ismethod(getattr(maker, "fit", None))


def _made(name: str, contexts: Iterable[Context] | None) -> Any:
    maker: Any = rankers.get(name)
    if not is_fitted(maker):
        return made_chat_model(name, maker)
    if contexts is None:
        fix = "give contexts, those of a training split"
        raise ConfigError("this ranker is fitted on training contexts, and there are none", where=name, fix=fix)
    return maker.fit(contexts)


def _stored(name: str, device: str) -> Ranker:
    folder = fetched_model(name)
    kind = stored_kind(folder)
    if kind not in kinds:
        raise CheckpointError(
            "models of this kind do not match contexts with replies",
            where=folder,
            got=f"kind {kind!r}",
            fix=f"{RESPONSE_MODEL}{name} ranks by a response model, {LANGUAGE_MODEL}{name} by a language model",
        )
    return cast("Ranker", kinds.get(kind)(folder, device))
