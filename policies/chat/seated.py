"""A chat model that takes part in a game: it is asked for a reply, without the oldest turns where it reads no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property

from parley.envs.core.own_code import own_code
from parley.envs.core.play import agent_errors
from parley.policies.chat.model import SEEDS, Answer, AnswerKind, Chat, ChatDecoding, ChatModel, NoReplyError
from parley.policies.chat.newest import answer_newest, newest_forms

_ALWAYS_SO = (AnswerKind.FILTERED, AnswerKind.TOO_LONG)
"""Kinds of answers that no other seed mends."""
Note = Callable[[int, Answer], None]
"""Takes a dialogue and an answer that was given in it."""


class SeatedChatModel:
    """A chat model that takes part in a game.

    Args:
        address: the model's.
        load: gives the model; called when it is first needed.
        temperature: of its answers; 0 takes the likeliest.
        max_tokens: tokens of an answer at most.
    """

    def __init__(self, address: str, load: Callable[[], ChatModel], temperature: float, max_tokens: int) -> None:
        self.address, self._load = address, load
        self.decoding = ChatDecoding(temperature=temperature, max_tokens=max_tokens)

    @contextmanager
    def asked(self) -> Iterator[None]:
        """A block that asks the model; where that fails, the dialogue is lost and no other.

        Raises:
            AgentError: it fails.
        """
        with agent_errors(), own_code(self.address) if ".py:" in self.address else nullcontext():
            yield

    def answers(self, rows: Sequence[int], chats: Sequence[Chat], seeds: Sequence[int], note: Note) -> list[Answer]:
        """Return an answer to each chat; where the model draws, one that is no reply is asked for once more.

        At temperature 0 the same question has the same answer; what moderation stopped stays stopped, and what is too long
        stays so.

        Args:
            rows: dialogues of the game.
            chats: one of each.
            seeds: one of each.
            note: is given every answer and its row, whatever the answer's kind.

        Raises:
            AgentError: the model fails.
        """
        answers = self._noted(rows, chats, seeds, note)
        again = [place for place, answer in enumerate(answers) if not answer.is_reply and answer.kind not in _ALWAYS_SO]
        if again and self.decoding.temperature > 0:
            more = [(seeds[place] + 1) % SEEDS for place in again]
            mended = self._noted([rows[place] for place in again], [chats[place] for place in again], more, note)
            for place, answer in zip(again, mended, strict=True):
                answers[place] = answer
        return answers

    def replies(self, rows: Sequence[int], chats: Sequence[Chat], seeds: Sequence[int], note: Note) -> list[Answer]:
        """Return a reply to each chat, see `answers`.

        Raises:
            NoReplyError: answers are still no reply; it names the rows of the kind that comes first.
            AgentError: the model fails.
        """
        answers = self.answers(rows, chats, seeds, note)
        lost = [(row, answer.kind) for row, answer in zip(rows, answers, strict=True) if not answer.is_reply]
        if lost:
            kind = lost[0][1]
            raise NoReplyError.of(self.address, kind, [row for row, other in lost if other is kind])
        return answers

    def _noted(self, rows: Sequence[int], chats: Sequence[Chat], seeds: Sequence[int], note: Note) -> list[Answer]:
        with self.asked():
            newest = answer_newest(self.model, [newest_forms(chat) for chat in chats], decoding=self.decoding, seeds=seeds)
        answers = [answer for _, answer in newest]
        for row, answer in zip(rows, answers, strict=True):
            note(row, answer)
        return answers

    @cached_property
    def model(self) -> ChatModel:
        """Who answers.

        Raises:
            ConfigError: it cannot be loaded.
        """
        return self._load()
