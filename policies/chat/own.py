"""A chat model of a user's own, named as `path/file.py:Name`.

`Name` is a class that is called without arguments, or an object, with a method `answer` (`ChatModel.answer`; texts will do in
the place of `Answer`s) or a method `reply(messages)` that returns a text; or it is a function `reply(messages)` itself. To
`reply` messages come as dictionaries with `role` and `content`, as OpenAI's protocol has them; to `answer` as `Chat`. A method
`score` (`ScoringChatModel.score`) is found where there is one. What it says must follow from messages, decoding and seed.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from parley.envs.core.errors import ConfigError, ModelError
from parley.envs.core.own_code import TimedCalls, own_start
from parley.policies.chat.addresses import chat_models
from parley.policies.chat.model import Access, Answer, Chat, ChatDecoding, ReplyScore
from parley.policies.chat.settings import DEFAULT, ChatModelSettings
from parley.policies.chat.thinking import part_thinking
from parley.policies.chat.usage import ChatUsage


class OwnChatModel:
    """What a user's own model says, checked.

    Args:
        name: what it was named by.
        part: an object with `answer` or `reply`, or a function of messages.
        timeout_s: seconds that an answer or a score may take; a call that is asked for several may take as many times more.
        parts_thinking: whether reasoning between marks is parted from texts; an `Answer` says itself what is which.

    Raises:
        ConfigError: it is none of them.
    """

    def __init__(self, name: str, part: Any, timeout_s: float = DEFAULT.timeout_s, *, parts_thinking: bool = True) -> None:
        self._parts_thinking = parts_thinking
        self.answers_depend_on = "" if parts_thinking else "thinking is kept"
        self.name, self._part, self.usage = name, part, ChatUsage()
        self.access = Access.SCORES if callable(getattr(part, "score", None)) else Access.TEXT
        self._reply = getattr(part, "reply", part)
        self._calls = TimedCalls(name, timeout_s, "mend it, or give it more seconds: --set chat.timeout_s=SECONDS")
        if not callable(getattr(part, "answer", self._reply)):
            fix = "name a class with a method answer(chats, *, decoding, seeds), or a function of messages that returns a text"
            raise ConfigError("this makes no chat model", where=name, got=repr(part), fix=fix)

    def answer(self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Answer]:
        """Answers, see `ChatModel`.

        Raises:
            ModelError: it did not give one text to each chat, or took too long.
            ConfigError: its code raised.
        """
        return [answer for _, answer in self.arriving(chats, decoding=decoding, seeds=seeds)]

    def arriving(
        self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()
    ) -> Iterator[tuple[int, Answer]]:
        """Answers as they come, in order, see `ArrivingChatModel`: one by one where one text is given at a time."""
        said = self._answered(chats, decoding, seeds) if hasattr(self._part, "answer") else map(self._replied, chats)
        for place, text in enumerate(said):
            answer = self._of_text(text) if isinstance(text, str) else text
            if not isinstance(answer, Answer):
                fix = "return texts, or parley.policies.chat.model.Answer"
                raise ModelError("the model's answer is no text", where=self.name, got=repr(answer)[:80], fix=fix)
            self.usage.count([answer])
            yield place, answer

    def score(self, chats: Sequence[Chat], replies: Sequence[str]) -> list[ReplyScore]:
        """How likely each reply is, see `ScoringChatModel`; of a model that has `score`."""
        with self._calls.call("score", len(replies)):
            found = list(self._part.score(chats, replies))
        if len(found) != len(replies) or not all(isinstance(score, ReplyScore) for score in found):
            fix = "return one parley.policies.chat.model.ReplyScore for each reply"
            raise ModelError("the model does not score every reply", where=self.name, got=repr(found)[:80], fix=fix)
        return found

    def _of_text(self, text: str) -> Answer:
        """Return the answer that a text is, its reasoning parted from its reply."""
        if not self._parts_thinking:
            return Answer(text)
        reply, reasoning, closed = part_thinking(text)
        return Answer(reply, "stop" if closed else "length", reasoning=reasoning)

    def _answered(self, chats: Sequence[Chat], decoding: ChatDecoding, seeds: Sequence[int]) -> list[Any]:
        with self._calls.call("answer", len(chats)):
            said = list(self._part.answer(chats, decoding=decoding, seeds=seeds))
        if len(said) != len(chats):
            got, fix = f"{len(said)} of {len(chats)}", "return a list with one answer for each chat"
            raise ModelError("the model does not answer every chat", where=self.name, got=got, fix=fix)
        return said

    def _replied(self, chat: Chat) -> Any:
        with self._calls.call("reply"):
            return self._reply([{"role": part.role, "content": part.content} for part in chat])


def load_own(name: str, settings: ChatModelSettings = DEFAULT) -> OwnChatModel:
    """The chat model that a file of a user's own, or an installed package, makes.

    Raises:
        ConfigError: no such file or name, it is not trusted, or it makes none.
    """
    made = made_chat_model(name, chat_models.get(name))
    return OwnChatModel(name, made, settings.timeout_s, parts_thinking=settings.thinking == "part")


def answers_chats(part: Any) -> bool:
    """Whether an object, or a function, is a chat model of a user's own."""
    return inspect.isfunction(part) or any(callable(getattr(part, name, None)) for name in ("answer", "reply"))


def made_chat_model(name: str, named: Any) -> Any:
    """An object of a class, what a function without arguments makes, or the part itself."""
    makes = inspect.isclass(named) or (inspect.isfunction(named) and not inspect.signature(named).parameters)
    with own_start(name):
        return named() if makes else named
