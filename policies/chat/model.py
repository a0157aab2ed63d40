"""What a chat model is: messages in, an answer out; more where its makers give more.

How much of a model can be seen is its `Access`. A server of text gives text alone; one in this process gives how likely a reply
is as well, and gradients. Who needs more than a model gives says so before anything is asked.

An answer follows from the messages, the decoding and the seed: not from what else is asked with it, nor from the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Protocol

from envs.core.errors import ConfigError
from envs.core.own_code import own_code
from envs.core.play import AgentError, agent_errors
from envs.core.ranges import Configuration, NonNegativeFloat, PositiveInt
from envs.core.visible import well_formed

ROLES = ("system", "user", "assistant")
"""Who can have written a message."""
SEEDS = 2**31
"""Seeds of answers are below it: servers take no larger ones."""


class Access(IntEnum):
    """How much of a model can be seen; each includes those before it."""

    TEXT = 1
    """What it answers."""
    SCORES = 2
    """How likely a given reply is."""
    LOGITS = 3
    """How likely every token is that may come next."""
    GRADIENTS = 4
    """The gradients of these, for its weights are in this process."""


class ChatTooLongError(ConfigError):
    """Messages are longer than a model reads."""


@dataclass(frozen=True)
class Message:
    """What somebody said.

    Args:
        role: one of `ROLES`.
        content: the text.
    """

    role: str
    content: str


Chat = tuple[Message, ...]
"""Messages, oldest first; the model answers the last."""


@dataclass(frozen=True, kw_only=True)
class ChatDecoding(Configuration):
    """How a chat model chooses an answer."""

    temperature: NonNegativeFloat = 0.0
    """Of the distribution of tokens; 0 takes the likeliest."""
    max_tokens: PositiveInt = 128
    """Tokens of an answer at most."""


class AnswerKind(StrEnum):
    """The kinds of answers. `REPLY` and `CUT` are replies; no other kind is ever read as one."""

    REPLY = "reply"
    """Text that came to its end."""
    CUT = "cut"
    """Text that was cut at the most tokens of an answer."""
    CUT_IN_THINKING = "cut in thinking"
    """All tokens went to reasoning, shown or hidden, before any text."""
    ONLY_THINKING = "only thinking"
    """Reasoning that came to its end, and no text behind it."""
    REFUSED = "refused"
    """A refusal in a field of its own, and no text."""
    FILTERED = "filtered"
    """The server's moderation stopped the question or the answer."""
    TOOL_CALL = "tool call"
    """A call of a tool in place of text."""
    EMPTY = "empty"
    """Nothing at all, and the model says that it came to its end."""

    @property
    def column(self) -> str:
        """The name of a column that counts answers of the kind."""
        return self.value.replace(" ", "_")

    @property
    def is_reply(self) -> bool:
        """Whether answers of this kind are replies, whole or cut."""
        return self in (AnswerKind.REPLY, AnswerKind.CUT)

    @property
    def fix(self) -> str:
        """What to do about answers of a kind that is no reply."""
        return _FIXES[self]


_THINKS = (
    "leave room behind the reasoning (tokens of an answer: chat.max_tokens of players and of replies, success.tokens of "
    "searches, writing.max_tokens of attackers, chat.judge_tokens of judges), "
    """or ask without it: --set chat.extra='{"chat_template_kwargs": {"enable_thinking": false}}'"""
)
_FIXES = {
    AnswerKind.CUT_IN_THINKING: _THINKS,
    AnswerKind.ONLY_THINKING: _THINKS,
    AnswerKind.REFUSED: "the model refuses such questions: ask another one, or ask for something else",
    AnswerKind.FILTERED: "the server's moderation stops them: ask a server without it, or for something else",
    AnswerKind.TOOL_CALL: """let it call no tools: --set chat.extra='{"tool_choice": "none"}'""",
    AnswerKind.EMPTY: "the model ends before it says a word: look at its chat template and its ends",
}

NO_REPLIES = tuple(kind for kind in AnswerKind if not kind.is_reply)
"""The kinds that are no reply."""
MODERATED = (AnswerKind.REFUSED, AnswerKind.FILTERED)
"""Those that say what a model, or its server, does not let through: outcomes of an attack."""
FINISH_REASONS = ("stop", "length", "content_filter", "tool_calls", "refusal")
"""The end of an answer: its own, at its most tokens, by moderation, with a tool call, or a refusal in a field of its own."""


@dataclass(frozen=True)
class Answer:
    """An answer of a chat model.

    Args:
        text: the reply, without reasoning and without the tokens that end it; empty where there is no reply.
        finish_reason: one of `FINISH_REASONS`.
        num_prompt_tokens: tokens that were read; None where the model does not say.
        num_tokens: tokens that were written, reasoning included; None where the model does not say.
        known: whether it was answered before, so that nothing was asked.
        failed_attempts: attempts without an answer before it.
        reasoning: what the model thought before its reply, as far as it is shown.
        withheld: text that is no reply: half of a filtered answer, a refusal in a field of its own, the call of a tool as JSON,
            or what a server says of a question that its moderation stopped. Text of an answer that is no reply is moved here.
        notes: what was done differently from what was asked, such as `drawn at the server's own temperature`; counted in a run.

    Raises:
        ValueError: the finish reason is unknown.
    """

    text: str
    finish_reason: str = "stop"
    num_prompt_tokens: int | None = None
    num_tokens: int | None = None
    known: bool = False
    failed_attempts: int = 0
    reasoning: str = ""
    withheld: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.finish_reason not in FINISH_REASONS:
            raise ValueError(f"finish_reason is one of {', '.join(FINISH_REASONS)}, got {self.finish_reason!r}")
        # Rows and events hold no half of a surrogate pair, as one that is cut may end in.
        for field in ("text", "reasoning", "withheld"):
            object.__setattr__(self, field, well_formed(getattr(self, field)))
        if self.text.strip() and not self.kind.is_reply:
            object.__setattr__(self, "withheld", "\n".join(filter(str.strip, (self.withheld, self.text))))
            object.__setattr__(self, "text", "")

    @property
    def kind(self) -> AnswerKind:
        """The kind of the answer."""
        if self.finish_reason == "content_filter":
            return AnswerKind.FILTERED
        if self.finish_reason == "refusal":
            return AnswerKind.REFUSED
        if self.finish_reason == "tool_calls":
            return AnswerKind.TOOL_CALL
        cut = self.finish_reason == "length"
        if self.text.strip():
            return AnswerKind.CUT if cut else AnswerKind.REPLY
        if cut:
            return AnswerKind.CUT_IN_THINKING
        return AnswerKind.ONLY_THINKING if self.reasoning.strip() else AnswerKind.EMPTY

    @property
    def is_reply(self) -> bool:
        """Whether it is a reply, whole or cut."""
        return self.kind.is_reply

    @property
    def ended(self) -> bool:
        """Whether the model came to its end; False for an answer that was cut or filtered."""
        return self.finish_reason not in ("length", "content_filter")


@dataclass(frozen=True)
class ReplyScore:
    """How likely a reply is.

    Args:
        nats: its log probability, at most 0, the end of the reply left out.
        num_tokens: its tokens.
    """

    nats: float
    num_tokens: int


class NoReplyError(AgentError):
    """A chat model's answer is no reply, so that a dialogue cannot go on."""

    @classmethod
    def of(cls, model: str, kind: AnswerKind, rows: Sequence[int] = ()) -> NoReplyError:
        """Return the error of a kind of answers.

        Args:
            model: its address.
            kind: of the answers.
            rows: dialogues of the game in which the model gave such an answer.
        """
        error = cls(f"no answer ({kind.value})", where=model, fix=kind.fix)
        error.rows = tuple(rows)
        return error


class ChatModel(Protocol):
    """A model that answers messages."""

    name: str
    """Its address, without any key."""
    access: Access
    """How much of it can be seen."""

    def answer(self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Answer]:
        """Answers, one to each chat.

        Args:
            chats: at least one message each.
            decoding: how an answer is chosen.
            seeds: one for each chat where the temperature is above 0.

        Raises:
            ModelError: the model did not answer, after as many attempts as it allows.
            ConfigError: messages do not fit: a role that the model's template lacks.
            ChatTooLongError: they do not fit, for they are more tokens than it reads.
        """


class ScoringChatModel(ChatModel, Protocol):
    """A chat model whose access is `SCORES` or more."""

    def score(self, chats: Sequence[Chat], replies: Sequence[str]) -> list[ReplyScore]:
        """How likely each reply is as the answer to its chat.

        Raises:
            ConfigError: a reply has no tokens, or messages do not fit.
            ChatTooLongError: messages and a reply are more tokens than it reads.
        """


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

        At temperature 0 the same question has the same answer, and what moderation stopped stays stopped.

        Args:
            rows: dialogues of the game.
            chats: one of each.
            seeds: one of each.
            note: is given every answer and its row, whatever the answer's kind.

        Raises:
            AgentError: the model fails.
        """
        answers = self._noted(rows, chats, seeds, note)
        again = [
            place for place, answer in enumerate(answers) if not answer.is_reply and answer.kind is not AnswerKind.FILTERED
        ]
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
            answers = list(self.model.answer(chats, decoding=self.decoding, seeds=seeds))
        if len(answers) != len(chats):
            what, got = "a chat model gives one answer to each chat", f"{len(answers)} answers to {len(chats)} chats"
            raise AgentError(what, where=self.address, got=got)
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


def require_access(model: ChatModel, needed: Access, what: str) -> None:
    """Checks that enough of a model can be seen.

    Args:
        model: any.
        needed: at least.
        what: who needs it, for the message.

    Raises:
        ConfigError: it shows less.
    """
    if model.access < needed:
        raise ConfigError(
            f"{what} needs {needed.name.lower()} of a model",
            where=model.name,
            got=f"it gives {model.access.name.lower()}",
            fix="name a model whose weights are here: hf:FOLDER or gguf:FILE",
        )
