"""What a chat model is: messages in, an answer out; more where its makers give more.

How much of a model can be seen is its `Access`. A server of text gives text alone; one in this process gives how likely a reply
is as well, and gradients. Who needs more than a model gives says so before anything is asked.

An answer follows from the messages, the decoding and the seed: not from what else is asked with it, nor from the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Protocol

from parley.envs.core.errors import ConfigError
from parley.envs.core.play import AgentError
from parley.envs.core.ranges import Configuration, NonNegativeFloat, PositiveInt
from parley.envs.core.visible import is_blank, well_formed

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
    TOO_LONG = "too long"
    """No answer: the question is longer than the model reads, without its oldest turns too."""

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
    AnswerKind.TOO_LONG: "ask a model that reads more, or about shorter texts",
}

NO_REPLIES = tuple(kind for kind in AnswerKind if not kind.is_reply)
"""The kinds that are no reply."""
MODERATED = (AnswerKind.REFUSED, AnswerKind.FILTERED)
"""Those that say what a model, or its server, does not let through: outcomes of an attack."""
FINISH_REASONS = ("stop", "length", "content_filter", "tool_calls", "refusal", "too_long")
"""The end of an answer: its own, at its most tokens, by moderation, with a tool call, a refusal in a field of its own, or none
for a question that is longer than the model reads."""


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
        if self.text and not self.kind.is_reply:
            object.__setattr__(self, "withheld", "\n".join(part for part in (self.withheld, self.text) if not is_blank(part)))
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
        if self.finish_reason == "too_long":
            return AnswerKind.TOO_LONG
        cut = self.finish_reason == "length"
        if not is_blank(self.text):
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
        return self.finish_reason not in ("length", "content_filter", "too_long")


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
