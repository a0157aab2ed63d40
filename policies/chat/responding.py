"""Response models as chat models: who answers contexts answers messages, of which it reads the newest.

Chat models as response models: `responder.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.turns import Turn, Turns
from parley.envs.corpora.pairs.written import detokenise
from parley.policies.chat.model import Access, Answer, Chat, ChatDecoding
from parley.policies.chat.responder import turn_of_text
from parley.policies.chat.usage import ChatUsage
from parley.policies.core.decoders import GREEDY, DecoderSettings
from parley.policies.core.responder import Responder, answer


class RespondingChatModel:
    """A response model that answers messages, each of which is a turn.

    Args:
        name: of its run.
        responder: who answers.

    Attributes:
        usage: what was asked; tokens are words, and those of a context that it does not read are counted, too.
    """

    access = Access.TEXT

    def __init__(self, name: str, responder: Responder) -> None:
        self.name, self.responder, self.usage = name, responder, ChatUsage()

    def answer(self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Answer]:
        """Answers, see `ChatModel`.

        Raises:
            ConfigError: there is a system message, or the model draws no replies.
        """
        if any(message.role == "system" for chat in chats for message in chat):
            fix = "say it in the first message of the user, or take a chat model"
            raise ConfigError("a response model has no place for the system", where=self.name, fix=fix)
        drawn = decoding.temperature > 0
        if drawn and "sample" not in getattr(self.responder, "decoders", ()):
            raise ConfigError("this model draws no replies", where=self.name, fix="ask at temperature 0, without samples")
        decoder = DecoderSettings(rule="sample", temperature=decoding.temperature) if drawn else GREEDY
        contexts = [tuple(turn_of_text(message.content) for message in chat) for chat in chats]
        replies = answer(self.responder, contexts, decoder, seeds if drawn else ())
        answers = [_answer(context, reply, decoding.max_tokens) for context, reply in zip(contexts, replies, strict=True)]
        self.usage.count(answers)
        return answers


def _answer(context: Turns, reply: Turn, most: int) -> Answer:
    read, words = sum(len(utterance) for turn in context for utterance in turn), [*chain.from_iterable(reply)]
    if len(words) > most:
        return Answer(detokenise(words[:most]), "length", read, most)
    return Answer("\n".join(map(detokenise, reply)), "stop", read, len(words))
