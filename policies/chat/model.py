"""The protocol of chat models: messages, answers, kinds of answers, access levels, and counters of use.

`Access` says how much of a model can be seen: a server gives text alone, a model in this process likelihoods and gradients.
A task that needs more than a model gives raises an error before it asks anything.

An answer depends on the messages, the decoding and the seed alone, not on the rest of the batch or on the order.

`merged` and `fold_system` rewrite chats for templates and servers that take fewer roles: no system, or strict alternation.
Sources: the chat templates of Gemma 1 and 2 ("System role not supported"), Mistral 7B v0.1 and v0.2 ("Conversation roles must
alternate user/assistant/user/assistant/..."), Mistral 7B v0.3 ("Only user and assistant roles are supported") and Mistral's own
API ("Expected last role User or Tool ... but got assistant", "Unexpected role 'system' after role 'user'").
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum, StrEnum
from typing import Any, Protocol, runtime_checkable

import numpy as np

from parley.envs.core.config import Configuration, NonNegativeFloat, NonNegativeInt, PositiveInt
from parley.envs.core.errors import ConfigError
from parley.envs.core.play import AgentError
from parley.envs.core.visible import is_blank, well_formed
from parley.policies.chat.addresses import short_address
from parley.policies.chat.settings import ChatAsking

ROLES = ("system", "user", "assistant")
"""Roles of the author of a message."""
SEEDS = 2**31
"""Exclusive upper bound of the seeds of answers: servers take no larger ones."""


class Access(IntEnum):
    """Levels of access to a model; each includes those before it."""

    TEXT = 1
    """The text of its answers."""
    FIRST_TOKENS = 2
    """The log probabilities of the likeliest first tokens of its answers."""
    SCORES = 3
    """The log probability of a given reply."""
    LOGITS = 4
    """The logits of every possible next token."""
    GRADIENTS = 5
    """The gradients of the logits: its weights are in this process."""


class ChatTooLongError(ConfigError):
    """An error for messages that are longer than a model reads."""


@dataclass(frozen=True)
class Message:
    """One message of a chat.

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
    """Settings of how a chat model chooses an answer."""

    temperature: NonNegativeFloat = 0.0
    """Temperature of the distribution of tokens; 0 takes the likeliest."""
    max_tokens: PositiveInt = 128
    """Most tokens of an answer."""
    first_tokens: NonNegativeInt = 0
    """Likeliest first tokens that are shown with their log probabilities; 0 for none."""


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
    """No word and no reasoning, at the model's own end, or cut in blanks of weights that are here."""
    TOO_LONG = "too long"
    """No answer: the question is longer than the model reads, without its oldest turns too."""

    @property
    def column(self) -> str:
        """The name of a column that counts answers of the kind."""
        return self.value.replace(" ", "_")

    @property
    def is_reply(self) -> bool:
        """True for kinds that are replies, whole or cut."""
        return self in (AnswerKind.REPLY, AnswerKind.CUT)

    @property
    def fix(self) -> str:
        """A fix for answers of a kind that is no reply."""
        return _FIXES[self]


_THINKS = (
    "leave room behind the reasoning (tokens of an answer: chat.max_tokens of players and of replies, success.tokens of "
    "searches, writing.max_tokens of attackers, chat.judge_tokens of judges, the key max_tokens in a scan's policy file), "
    """or ask without it: --set chat.extra='{"chat_template_kwargs": {"enable_thinking": false}}'"""
)
_FIXES = {
    AnswerKind.CUT_IN_THINKING: _THINKS,
    AnswerKind.ONLY_THINKING: _THINKS,
    AnswerKind.REFUSED: "the model refuses such questions: ask another one, or ask for something else",
    AnswerKind.FILTERED: "the server's moderation stops them: ask a server without it, or for something else",
    AnswerKind.TOOL_CALL: """let it call no tools: --set chat.extra='{"tool_choice": "none"}'""",
    AnswerKind.EMPTY: "the model says no word: look at its chat template and its ends",
    AnswerKind.TOO_LONG: "ask a model that reads more, or about shorter texts",
}

NO_REPLIES = tuple(kind for kind in AnswerKind if not kind.is_reply)
"""The kinds that are no reply."""
MODERATED = (AnswerKind.REFUSED, AnswerKind.FILTERED)
"""The kinds in which a model or its server refuses: outcomes of an attack."""
SCORED = "scored"
"""The end of a given reply whose log probability was asked for."""
FINISH_REASONS = ("stop", "length", "content_filter", "tool_calls", "refusal", "too_long", SCORED)
"""The end of an answer: its own, at its most tokens, by moderation, with a tool call, a refusal in a field of its own, none for
a question that is longer than the model reads, or `SCORED`."""


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
        reasoning: the model's thinking before its reply, as far as it is shown.
        withheld: text that is no reply: half of a filtered answer, a refusal in a field of its own, the call of a tool as JSON,
            or what a server says of a question that its moderation stopped. Text of an answer that is no reply is moved here.
        notes: deviations from the request, such as `drawn at the server's own temperature`; counted in a run.
        first_tokens: the likeliest first tokens with their log probabilities in nats, if they were asked for.

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
    first_tokens: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if self.finish_reason not in FINISH_REASONS:
            raise ValueError(f"finish_reason is one of {', '.join(FINISH_REASONS)}, got {self.finish_reason!r}")
        # A cut text may end in half a surrogate pair, which rows and events must not hold.
        for name in ("text", "reasoning", "withheld"):
            object.__setattr__(self, name, well_formed(getattr(self, name)))
        if self.text and not self.kind.is_reply:
            object.__setattr__(self, "withheld", "\n".join(part for part in (self.withheld, self.text) if not is_blank(part)))
            object.__setattr__(self, "text", "")

    @property
    def kind(self) -> AnswerKind:
        """The kind of the answer, by its end, its text and its reasoning."""
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
        # Blanks of weights that are here hide no reasoning; those of a server may.
        if cut and (self.reasoning.strip() or not self.withheld):
            return AnswerKind.CUT_IN_THINKING
        return AnswerKind.ONLY_THINKING if self.reasoning.strip() else AnswerKind.EMPTY

    @property
    def is_reply(self) -> bool:
        """True for a reply, whole or cut."""
        return self.kind.is_reply

    @property
    def ended(self) -> bool:
        """True if the model came to its end; False for an answer that was cut or filtered."""
        return self.finish_reason not in ("length", "content_filter", "too_long")


MOST_FIRST_TOKENS = 20
"""First tokens that are asked for: OpenAI's protocol shows no more."""


def first_token_nats(answer: Answer, target: str) -> float:
    """Return the log probability that an answer begins with a token that the target begins with, a blank before it aside.

    Args:
        answer: with its likeliest first tokens.
        target: a text.

    Returns:
        Nats, at most 0; minus infinity where none of the shown tokens begins the target.
    """
    beginning = target.lstrip()
    likely = [nats for token, nats in answer.first_tokens if token.strip() and beginning.startswith(token.lstrip())]
    return min(0.0, math.log(sum(map(math.exp, likely)))) if likely else -math.inf


@dataclass(frozen=True)
class ReplyScore:
    """The log probability of a reply.

    Args:
        nats: its log probability, at most 0, the end of the reply left out.
        num_tokens: its tokens.
    """

    nats: float
    num_tokens: int

    @classmethod
    def of(cls, scored: Answer) -> ReplyScore:
        """Return the score of a reply whose tokens are the `first_tokens` of an answer."""
        return cls(min(0.0, sum(nats for _, nats in scored.first_tokens)), len(scored.first_tokens))


class NoReplyError(AgentError):
    """An error for an answer that is no reply, which ends a dialogue."""

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
    """Its level of access."""

    def answer(self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Answer]:
        """Return one answer to each chat.

        Args:
            chats: at least one message each.
            decoding: settings of choosing an answer.
            seeds: one for each chat where the temperature is above 0.

        Raises:
            ModelError: the model did not answer, after as many attempts as it allows.
            ConfigError: messages do not fit: a role that the model's template lacks.
            ChatTooLongError: they do not fit, for they are more tokens than it reads.
        """


@runtime_checkable
class ArrivingChatModel(Protocol):
    """A chat model that returns each answer as it arrives, so that a later failure loses none."""

    @abstractmethod
    def arriving(
        self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()
    ) -> Iterator[tuple[int, Answer]]:
        """Yield the index of each chat with its answer, in the order of arrival; else as `ChatModel.answer`."""

    def answer(self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Answer]:
        """Return one answer to each chat, see `ChatModel`."""
        answers = dict(self.arriving(chats, decoding=decoding, seeds=seeds))
        return [answers[index] for index in range(len(chats))]


class ScoringChatModel(ChatModel, Protocol):
    """A chat model whose access is `SCORES` or more."""

    def score(self, chats: Sequence[Chat], replies: Sequence[str]) -> list[ReplyScore]:
        """Return the log probability of each reply as the answer to its chat.

        Raises:
            ConfigError: a reply has no tokens, or messages do not fit.
            ChatTooLongError: messages and a reply are more tokens than it reads.
        """


def require_access(model: ChatModel, needed: Access, what: str) -> None:
    """Check that a model gives the access that a task needs.

    Args:
        model: any.
        needed: at least.
        what: the task that needs it, for the message.

    Raises:
        ConfigError: it shows less.
    """
    if model.access < needed:
        raise ConfigError(
            f"{what} needs {needed.name.lower()} of a model",
            where=model.name,
            got=f"it gives {model.access.name.lower()}",
            fix="name a model whose weights are here: hf:FOLDER or gguf:FILE; of an openai: server that shows log "
            f"probabilities --set chat.logprobs={'first' if needed is Access.FIRST_TOKENS else 'reply'}",
        )


FOLDED = "asked with the system's text in front of the user's"
MERGED = "asked with neighbours of one role as one message"
"""Notes of answers (`Answer.notes`) to messages that were changed so."""
_SYSTEM = r"['\"`]?(?:system|developer)['\"`]?(?: role| messages?| prompts?| instructions?)+"
_NOT_TAKEN = r"(?:(?:is|are) )?(?:not (?:supported|allowed|enabled|permitted|accepted)|unsupported|disallowed)"
_NO_SYSTEM = re.compile(
    "|".join(
        (
            rf"{_SYSTEM} {_NOT_TAKEN}",
            rf"(?:does not|doesn't|cannot|can't) (?:support|accept|take|handle|allow)s? (?:\w+ )?{_SYSTEM}",
            r"(?:unsupported|unknown|invalid|unexpected) (?:message )?role:? ?['\"`]?(?:system|developer)\b",
            rf"role:? ['\"`]?(?:system|developer)['\"`]? {_NOT_TAKEN}",
            r"role\b.{0,20}(?:system|developer)['\"`]? is not (?:one of|in|among)",
            r"role\b.{0,20}does not support ['\"`]?(?:system|developer)",
            r"input should be ['\"`]?user['\"`]?(?:,? or |, )['\"`]?assistant",
            r"developer instruction is not enabled",
            r"only ['\"`]?user['\"`]?,? (?:and|or) ['\"`]?(?:assistant|model)['\"`]?(?: and tool)? (?:roles?|messages?)",
        )
    ),
    re.IGNORECASE,
)
_MUST_ALTERNATE = re.compile(
    r"roles? must (?:strictly )?alternate|must alternate between|alternating (?:user|roles)|"
    r"(?:consecutive|successive|neighbou?ring) (?:messages|roles|user|assistant)|multiple (?:user|assistant) messages in a row|"
    r"(?:first|initial|last|final) (?:non-system )?message(?:s role)? (?:must|should|has to) (?:be|have|use)[^.]{0,20}user|"
    r"unexpected role ['\"`]?(?:user|assistant)|after (?:the optional system message,? )?.{0,20}roles? must",
    re.IGNORECASE,
)


def merged(messages: Iterable[Message]) -> Chat:
    """Return the messages with neighbours of one role joined by an empty line."""
    joined: list[Message] = []
    for message in messages:
        if joined and joined[-1].role == message.role:
            joined[-1] = Message(message.role, f"{joined[-1].content}\n\n{message.content}")
        else:
            joined.append(message)
    return tuple(joined)


def fold_system(chat: Iterable[Message]) -> Chat:
    """Return the messages without a system: its text precedes the next message of the user; neighbours are merged."""
    return merged(Message("user", message.content) if message.role == "system" else message for message in chat)


def refuses_system(text: str) -> bool:
    """Return whether a template or a server refuses messages of the system."""
    return _NO_SYSTEM.search(text) is not None


def refuses_order(text: str) -> bool:
    """Return whether a template or a server requires roles to alternate."""
    return _MUST_ALTERNATE.search(text) is not None


LEAST_WORDS, LEAST_REDRAWN = 8, 3
"""Least words of an equal reply, and least replies, before a server is said to ignore temperature or seed."""
ANSWERS_FOLDER = "answers"
"""Name of the folder of a run with its answers."""
ANSWERS = "answers.jsonl"
"""Name of the file in a folder of answers."""
_MOST_NAMED = 5
"""Models whose answers are counted one by one in a sentence; the most asked ones."""
MOST_LOST = 0.5
"""Share of answers without a reply above which a run has failed."""


@dataclass
class ChatUsage:
    """Counters of one chat model."""

    asked: int = 0
    """Answers that the model gave."""
    known: int = 0
    """Answers that were given before, so that nothing was asked."""
    failed_attempts: int = 0
    """Attempts that came to no answer: the server was busy, failed, or cut its answer; of a run those before an answer."""
    tokens_in: int = 0
    """Tokens that the model read, as far as it says."""
    tokens_out: int = 0
    """Tokens that it wrote, as far as it says."""
    scored: int = 0
    """Given replies that were scored by a request of their own; their tokens count, too."""
    uncounted: int = 0
    """Answers and scores with an unknown number of tokens."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Answers that the model gave by their kind (`AnswerKind`)."""
    notes: Counter[str] = field(default_factory=Counter)
    """Answers by what was done differently from what was asked."""
    redrawn: int = 0
    """Replies that were drawn with another seed for a question that had one already, at a temperature of 0.5 or more; short
    ones that are equal are not counted, for chance repeats them."""
    equal_redrawn: int = 0
    """Number of these that equal the first."""

    def count(self, answers: Iterable[Answer]) -> None:
        """Add answers to the counters."""
        for answer in answers:
            if answer.known:
                self.known += 1
                continue
            if answer.finish_reason == SCORED:
                self.scored += 1
            else:
                self.asked += 1
                self.kinds[answer.kind.value] += 1
            self.notes.update(answer.notes)
            self.uncounted += answer.num_prompt_tokens is None or answer.num_tokens is None
            self.tokens_in += answer.num_prompt_tokens or 0
            self.tokens_out += answer.num_tokens or 0

    def count_redrawn(self, questions: np.ndarray, replies: np.ndarray, are_long: np.ndarray) -> None:
        """Count replies that were drawn for a question beside the first reply to it.

        Args:
            questions: digest of the question of each reply (V,), in the order of the replies.
            replies: digest of each (V,).
            are_long: whether it has so many words that chance does not repeat it (V,).
        """
        order = np.argsort(questions, kind="stable")
        is_first = np.append(True, questions[order][1:] != questions[order][:-1])
        firsts = order[is_first][np.cumsum(is_first) - 1]
        is_equal = replies[order] == replies[firsts]
        counts = ~is_first & (~is_equal | (are_long[order] > 0))
        self.redrawn += int(counts.sum())
        self.equal_redrawn += int((counts & is_equal).sum())

    @property
    def draws_nothing(self) -> bool:
        """True if all replies to other seeds equal the first, of enough to tell."""
        return LEAST_REDRAWN <= self.redrawn == self.equal_redrawn

    @property
    def no_replies(self) -> Counter[str]:
        """Counts of answers that are no reply, by their kind."""
        return Counter({kind.value: self.kinds[kind.value] for kind in NO_REPLIES if self.kinds[kind.value]})

    def no_reply_share(self, allowed: Collection[AnswerKind] = ()) -> float:
        """Return the share of answers that are no reply.

        Args:
            allowed: kinds that count as replies here.
        """
        lost = self.no_replies.total() - sum(self.no_replies[kind.value] for kind in allowed)
        return lost / self.asked if self.asked else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the counters, and the share of answers that are no reply."""
        return {**vars(self), "kinds": dict(self.kinds), "notes": dict(self.notes), "no_reply_share": self.no_reply_share()}

    def add(self, other: ChatUsage) -> None:
        """Add the counters of another model."""
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def cost(self, settings: ChatAsking, address: str = "") -> float:
        """Return the cost of the counted tokens at the prices of the settings; 0 for local weights."""
        price_in, price_out = settings.prices_of(address)
        return (self.tokens_in * price_in + self.tokens_out * price_out) / 1000


@dataclass(frozen=True)
class RunUsage:
    """Counters of the answers of a run, by model.

    Args:
        models: by the model's address; an empty address for answers of an unknown model.
    """

    models: Mapping[str, ChatUsage]

    @property
    def total(self) -> ChatUsage:
        """The sum over all models."""
        usages = ChatUsage()
        for usage in self.models.values():
            usages.add(usage)
        return usages

    def cost(self, settings: ChatAsking) -> float:
        """Return the cost of the counted tokens of each model at its prices."""
        return sum(usage.cost(settings, address) for address, usage in self.models.items())

    def summary(self, settings: ChatAsking) -> str:
        """Return a summary in sentences, with the cost if prices are set, and by model if there are several."""
        parts = [f"Chat models gave {_counted(self.total, self.cost(settings))}."]
        if len(self.models) > 1:
            short = {address: short_address(address) for address in self.models}
            names = short if len(set(short.values())) == len(short) else {address: address for address in short}
            used = sorted(self.models.items(), key=lambda pair: -pair[1].asked)
            used, rest = (
                (used[:_MOST_NAMED], used[_MOST_NAMED:]) if len(used) > _MOST_NAMED + 1 else (list(self.models.items()), [])
            )
            by_model = [f"{names[where]} {_counted(usage, usage.cost(settings, where))}" for where, usage in used]
            others = sum(usage.asked for _, usage in rest)
            by_model += [f"{len(rest)} others {others:,} answers, each in the summary"] if rest else []
            parts.append(f"By model: {'; '.join(by_model)}.")
        model_names = {address.rpartition("#")[2] for address in self.models}
        if notes := self.total.notes:
            counts = (f"{num:,} {note}" for note, num in sorted(notes.items()))
            parts.append(f"Of these: {'; '.join(counts)}.")
        if strange := [name for name in settings.prices_by_model if name and name not in model_names]:
            parts.append(f"Prices of models that gave none: {', '.join(strange)}.")
        return " ".join(parts)

    def as_json(self, settings: ChatAsking) -> dict[str, Any]:
        """Return the sums with the cost, and the same for each model."""
        models = {address: {**usage.as_json(), "cost": usage.cost(settings, address)} for address, usage in self.models.items()}
        return {**self.total.as_json(), "cost": self.cost(settings), "models": models}

    def warnings(self, settings: ChatAsking) -> list[str]:
        """Return a sentence for each model with too many answers that are no reply (`max_no_reply`), or that never vary."""
        most = settings.max_no_reply
        lost = [_warning(address, usage) for address, usage in self.models.items() if usage.no_reply_share() > most]
        return lost + [
            f"all {usage.redrawn:,} replies of {short_address(address)} to other seeds are equal to the first; "
            "it may ignore temperature or seed, so that nothing varies"
            for address, usage in self.models.items()
            if usage.draws_nothing
        ]

    def failure(self, allowed: Collection[AnswerKind] = ()) -> str:
        """Return why the run has too few replies to say anything; empty if it has enough.

        Args:
            allowed: kinds that are outcomes of the measurement, such as `FILTERED` of an attack.
        """
        lost = [pair for pair in self.models.items() if pair[1].no_reply_share(allowed) > MOST_LOST]
        return " ".join(_warning(address, usage) for address, usage in lost)


def _warning(address: str, usage: ChatUsage) -> str:
    lost = usage.no_replies
    kind = AnswerKind(lost.most_common(1)[0][0])
    share = f"{lost.total():,} of {usage.asked:,} answers of {short_address(address) or 'a model'} are no reply"
    return f"{share} ({usage.no_reply_share():.0%}: {by_kind(lost)}); {kind.fix}"


def by_kind(counts: Mapping[Any, int]) -> str:
    """Return counts by kind in words, such as "3 cut in thinking, 1 filtered"."""
    return ", ".join(f"{num:,} {kind}" for kind, num in sorted(counts.items(), key=lambda pair: -pair[1]) if num)


def _counted(usage: ChatUsage, cost: float) -> str:
    is_known = usage.uncounted < max(usage.asked + usage.scored, 1)
    tokens = f"{usage.tokens_in:,} tokens read, {usage.tokens_out:,} written" if is_known else "tokens unknown"
    uncounted = f", tokens of {usage.uncounted:,} answers unknown" if usage.uncounted and is_known else ""
    failed = f", {usage.failed_attempts:,} attempts failed" if usage.failed_attempts else ""
    cut = f", {num:,} cut at the most tokens" if (num := usage.kinds[AnswerKind.CUT.value]) else ""
    lost = f", {usage.no_replies.total():,} no reply ({by_kind(usage.no_replies)})" if usage.no_replies else ""
    scores = f", {usage.scored:,} scores of given replies" if usage.scored else ""
    return f"{usage.asked:,} answers{scores}: {tokens}{uncounted}{cut}{lost}{failed}{f', cost {cost:,.4g}' if cost else ''}"


@dataclass
class ChatMoves:
    """Counters of a chat model's part in one dialogue."""

    answers: int = 0
    """Answers that it gave, to repairs too."""
    scored: int = 0
    """Choices that it scored."""
    tokens_in: int = 0
    """Tokens that it read for its answers, as far as it says."""
    tokens_out: int = 0
    """Tokens that it wrote, as far as it says."""
    wordless: int = 0
    """Utterances without a word."""
    cut: int = 0
    """Utterances that were cut at the most tokens of an answer, or words of an utterance."""
    mixed_ends: int = 0
    """Utterances with `<selection>` among other words, which ends nothing and is left out."""
    repairs: int = 0
    """Choices that were asked for once more."""
    cut_in_thinking: int = 0
    """Answers that are no reply, by their kind (`AnswerKind`)."""
    only_thinking: int = 0
    refused: int = 0
    filtered: int = 0
    tool_call: int = 0
    empty: int = 0
    too_long: int = 0


def moves_of(session: object) -> list[ChatMoves] | None:
    """Return the counters of a chat model by dialogue, of a session or its `inner` ones; None without a chat model."""
    parts = _moves(session)
    return [_sum(moves) for moves in zip(*parts, strict=True)] if parts else None


def _moves(session: object) -> list[list[ChatMoves]]:
    moves = getattr(session, "moves", None)
    if isinstance(moves, list) and moves and isinstance(moves[0], ChatMoves):
        return [moves]
    inner = getattr(session, "inner", [])
    return [moves for part in (inner if isinstance(inner, list) else [inner]) for moves in _moves(part)]


def _sum(moves: Sequence[ChatMoves]) -> ChatMoves:
    return ChatMoves(**{counter.name: sum(getattr(move, counter.name) for move in moves) for counter in fields(ChatMoves)})
