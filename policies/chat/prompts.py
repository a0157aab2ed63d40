"""Messages as tokens of a model whose weights are here, as `templates.py` writes them, and none that do not fit."""

from __future__ import annotations

from typing import Any, NamedTuple

from parley.envs.core.errors import ConfigError
from parley.policies.chat.model import ROLES, Chat, ChatTooLongError, Message
from parley.policies.chat.templates import role_notes, write_prompt
from parley.policies.chat.thinking import opens_thinking
from parley.policies.hugging_face.tokens import ends_of, longest_input

_PROBE = "where-the-user-speaks"


class ChatPrompt(NamedTuple):
    """What stands before an answer.

    Args:
        ids: its tokens.
        thinks: whether it ends with a start of thinking, so that the answer begins inside.
        notes: what was done to messages whose roles the template does not take, as `Answer.notes` has it.
    """

    ids: list[int]
    thinks: bool
    notes: tuple[str, ...] = ()


class ChatPrompts:
    """Prompts of a model.

    Args:
        tokenizer: of the model.
        model: whose positions limit what it reads.
        where: address of the model, for messages.

    Attributes:
        end_ids: tokens that end an answer: those that the model's `generation_config` names, and the tokenizer's own.
        longest: tokens that the model reads at most; infinity where nothing limits them.

    Raises:
        ConfigError: the tokenizer has no end, or its template no place for what the user says.
    """

    def __init__(self, tokenizer: Any, model: Any, where: str) -> None:
        self._tokenizer, self._where = tokenizer, where
        self.end_ids: tuple[int, ...] = tuple(sorted(ends_of(tokenizer, model)))
        self.longest = longest_input(tokenizer, model)
        self._num_tokens = len(model.get_input_embeddings().weight)
        if _PROBE not in write_prompt(tokenizer, (Message("user", _PROBE),)):
            fix = "write message['content'] of the user into the chat_template of its tokenizer"
            raise ConfigError("the chat template has no place for what the user says", where=where, fix=fix)

    def ids(self, chat: Chat) -> list[int]:
        """The tokens that the model reads before its answer to a chat, see `prompt`."""
        return self.prompt(chat).ids

    def prompt(self, chat: Chat) -> ChatPrompt:
        """What the model reads before its answer to a chat; room for one more token is left.

        Raises:
            ConfigError: a role is unknown, the template refuses the messages, or the model lacks a token of theirs.
            ChatTooLongError: they are longer than the model reads.
        """
        if not chat:
            raise ConfigError("a chat without messages cannot be answered", where=self._where, fix="ask something")
        if unknown := sorted({message.role for message in chat} - set(ROLES)):
            raise ConfigError("no such role", where=self._where, got=", ".join(unknown), fix=f"one of {', '.join(ROLES)}")
        text = write_prompt(self._tokenizer, chat)
        # A template writes the marks around a text itself.
        ids: list[int] = self._tokenizer(text, add_special_tokens=False).input_ids
        if len(ids) >= self.longest:
            fix = "ask less, or take a model that reads more"
            got = f"{len(ids):,} tokens, and it reads {self.longest:,.0f} with its answer"
            raise ChatTooLongError("the messages are longer than the model reads", where=self._where, got=got, fix=fix)
        if (highest := max(ids, default=0)) >= self._num_tokens:
            got = f"{self._tokenizer.convert_ids_to_tokens(highest)!r}, number {highest:,} of {self._num_tokens:,}"
            fix = "save the tokenizer that the model was trained with beside it"
            raise ConfigError("the tokenizer writes a token that the model lacks", where=self._where, got=got, fix=fix)
        return ChatPrompt(ids, opens_thinking(text), role_notes(self._tokenizer, chat))

    def reply_ids(self, reply: str) -> list[int]:
        """The tokens of a reply, without an end.

        Raises:
            ConfigError: it has none.
        """
        ids: list[int] = self._tokenizer(reply, add_special_tokens=False).input_ids
        if not ids:
            what = "a reply without tokens has no likelihood"
            raise ConfigError(what, where=self._where, got=repr(reply), fix="say something")
        return ids
