"""Messages as tokens of a model whose weights are here: by its tokenizer's chat template, and none that do not fit.

A tokenizer without a template has its messages behind one another with ends between them, as DialoGPT is trained; a system
message has no place there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from envs.core.errors import ConfigError
from policies.chat.model import ROLES, Chat, ChatTooLongError
from policies.hugging_face import longest_input

_PROBE = "where-the-user-speaks"


class ChatPrompts:
    """What stands before an answer.

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
        if tokenizer.eos_token_id is None:
            fix = "set its eos_token to the token that the model ends its replies with"
            raise ConfigError("the tokenizer has no token that ends a reply", where=where, fix=fix)
        named = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
        more: Iterable[int] = named if isinstance(named, list | tuple) else [] if named is None else [named]
        self.end_ids: tuple[int, ...] = tuple(sorted({tokenizer.eos_token_id, *more}))
        self.longest = longest_input(tokenizer, model)
        self._num_tokens = len(model.get_input_embeddings().weight)
        if tokenizer.chat_template and _PROBE not in self._written([{"role": "user", "content": _PROBE}]):
            fix = "write message['content'] of the user into the chat_template of its tokenizer"
            raise ConfigError("the chat template has no place for what the user says", where=where, fix=fix)

    def ids(self, chat: Chat) -> list[int]:
        """The tokens that the model reads before its answer to a chat; room for one more is left.

        Raises:
            ConfigError: a role is unknown, the template refuses the messages, or the model lacks a token of theirs.
            ChatTooLongError: they are longer than the model reads.
        """
        if not chat:
            raise ConfigError("a chat without messages cannot be answered", where=self._where, fix="ask something")
        if unknown := sorted({message.role for message in chat} - set(ROLES)):
            raise ConfigError("no such role", where=self._where, got=", ".join(unknown), fix=f"one of {', '.join(ROLES)}")
        if self._tokenizer.chat_template:
            text = self._written([{"role": message.role, "content": message.content} for message in chat])
        elif any(message.role == "system" for message in chat):
            fix = "say it in the first message of the user, or take a model with a chat template"
            raise ConfigError("a tokenizer without a chat template has no place for the system", where=self._where, fix=fix)
        else:
            text = "".join(f"{message.content}{self._tokenizer.eos_token}" for message in chat)
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
        return ids

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

    def _written(self, messages: list[dict[str, str]]) -> str:
        try:
            written: str = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        # A template is a program of its makers, which says so itself where it refuses messages, such as two of one role.
        except Exception as error:
            got = (str(error).splitlines() or [type(error).__name__])[0][:200]
            fix = "ask in roles that the model's makers provide for"
            raise ConfigError("the chat template does not take these messages", where=self._where, got=got, fix=fix) from None
        return written
