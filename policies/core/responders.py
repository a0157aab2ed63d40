"""Loads a response model by its name: a run, a checkpoint, a chat model, or a user's own (see `policies/core/responder.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.copies import fetched_model
from parley.envs.core.storage.uris import HUGGING_FACE
from parley.envs.corpora.pairs.turns import Turn
from parley.policies.chat.addresses import is_chat_address, is_local
from parley.policies.chat.settings import DEFAULT, MAX_REPLY_TOKENS, ChatModelSettings
from parley.policies.core.responder import Responder, kinds, load_trained


def load_responder(
    name: str | Path,
    chat: ChatModelSettings = DEFAULT,
    *,
    answers: Path | None = None,
    max_tokens: int = MAX_REPLY_TOKENS,
    replies: Sequence[Turn] = (),
) -> Responder:
    """Return the response model of a name.

    Args:
        name: a run or checkpoint, by folder or URI, `hf:FOLDER` of a Hugging Face model, `gguf:FILE` or `openai:URL#MODEL` of a
            chat model, or `path/file.py:Name` of a class or function that is called without arguments, or of a chat model.
        chat: settings of loading or asking a Hugging Face or chat model, with its device.
        answers: folder of a run in which a chat model's answers are kept, so that it is asked nothing twice; None keeps none.
        max_tokens: of a reply of a Hugging Face or chat model at most.
        replies: that a Hugging Face encoder, such as a bi-encoder, answers with.

    Returns:
        The model; one of Parley's own is a `TrainableResponder` on the CPU, in evaluation mode.

    Raises:
        CheckpointError: nothing is there, it is damaged, or models of its kind do not answer.
        ConfigError: the file of your own is missing, or its name stands for nothing that makes a responder.
    """
    if ".py:" in str(name):
        return _own_responder(str(name), chat, answers, max_tokens)
    if is_encoder(str(name)):
        from parley.policies.ranking.answering import load_encoder_responder

        return load_encoder_responder(fetched_model(str(name).removeprefix(HUGGING_FACE)), replies, chat.device)
    if is_local(str(name)):
        from parley.policies.hugging_face.responder import load_local_responder

        return load_local_responder(str(name), chat, answers=answers, max_tokens=max_tokens)
    if is_chat_address(str(name)):
        from parley.policies.chat.loading import load_chat_model
        from parley.policies.chat.local import ChatResponder

        return ChatResponder(load_chat_model(str(name), chat, answers=answers), max_tokens)
    return load_trained(name)


def is_encoder(name: str) -> bool:
    """Return whether a name stands for a bi-encoder, a cross-encoder or a classifier of Hugging Face."""
    if not name.startswith(HUGGING_FACE):
        return False
    from parley.policies.ranking.answering import encoder_kind

    return bool(encoder_kind(fetched_model(name.removeprefix(HUGGING_FACE))))


def _own_responder(name: str, chat: ChatModelSettings, answers: Path | None, max_tokens: int) -> Responder:
    from parley.policies.chat.answers import OwnChatModel, answers_chats, kept_answers, made_chat_model
    from parley.policies.chat.local import ChatResponder

    named: Any = kinds.get(name)
    part = made_chat_model(name, named)
    if hasattr(part, "respond") and callable(named):
        return cast("Responder", part)
    if not answers_chats(part):
        fix = "name a class with a method respond, or a chat model: a class with answer or reply, or a function of messages"
        raise ConfigError("this makes no response model", where=name, got=repr(named), fix=fix)
    chat_model = OwnChatModel(name, part, chat)
    return ChatResponder(kept_answers(chat_model, answers), max_tokens)
