"""Prompts with slots: messages, or a prompt as it is written out, in which searched words stand at one place or several.

    [{"role": "system", "content": "You are a help desk."}, {"role": "user", "content": "{prompt} {}"}]

`{}` is a slot, `{prompt}` the request that a target comes with. The searched tokens fill the slots in order. A last message of
the assistant is the beginning of the answer, which the model goes on with; blanks at its end stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.registry import nearest
from parley.envs.corpora.root import read_file
from parley.policies.chat.model import ROLES, Chat, Message
from parley.policies.chat.templates import write_prompt

SLOT, PROMPT = "{}", "{prompt}"
"""Where the searched tokens stand in a template, and where the request of a target does."""
USER, PREFIX, SUFFIX, SYSTEM = PLACEMENTS = ("user", "prefix", "suffix", "system")
"""Templates by name: the user says the searched words alone, before or behind the request, or the system says them."""
_NAMED: Mapping[str, Chat] = {
    USER: (Message("user", SLOT),),
    PREFIX: (Message("user", f"{SLOT} {PROMPT}"),),
    SUFFIX: (Message("user", f"{PROMPT} {SLOT}"),),
    SYSTEM: (Message("system", SLOT), Message("user", PROMPT)),
}
_PARTS = re.compile(r"(\{prompt\}|\{\})")
# Of the private use area, so that it stands in no prompt.
_SENTINEL = "\ue000"


class SlottedPrompt:
    """A prompt whose slots can be filled.

    Args:
        tokenizer: of the model; its chat template writes messages.
        template: messages, or the text of a prompt with its special tokens written out.
        prompt: the request; None where there is none.

    Attributes:
        pieces: the text before the first slot, between slots, and behind the last one.

    Raises:
        ConfigError: there is no slot, a request without a place or a place without a request, or the tokenizer's chat template
            leaves slots out or takes no such messages.
    """

    def __init__(self, tokenizer: Any, template: str | Chat, prompt: str | None = None) -> None:
        self._tokenizer, self._template, self._prompt = tokenizer, template, prompt
        contents = [template] if isinstance(template, str) else [message.content for message in template]
        marks = [mark for content in contents for mark in _PARTS.findall(content)]
        shown = " / ".join(contents)
        self.num_slots = marks.count(SLOT)
        if not self.num_slots:
            raise ConfigError("a template has a place for the input", got=repr(shown), fix=f"write {SLOT} there")
        if prompt is None and PROMPT in marks:
            fix = f"give targets with prompts (a CSV or JSONL file), or a template without {PROMPT}"
            raise ConfigError("the template has a place for a prompt, and the targets have none", got=repr(shown), fix=fix)
        if prompt is not None and PROMPT not in marks:
            fix = f"write {PROMPT} there, or take one of the templates {PREFIX}, {SUFFIX} and {SYSTEM}"
            raise ConfigError("the targets have prompts, and the template no place for them", got=repr(shown), fix=fix)
        self.pieces = tuple(self.text([_SENTINEL] * self.num_slots).split(_SENTINEL))
        if len(self.pieces) != self.num_slots + 1:
            fix = "write other messages, or the prompt as a whole with its special tokens"
            what = "the tokenizer's chat template leaves slots out"
            raise ConfigError(what, where=tokenizer.name_or_path or None, got=repr(shown), fix=fix)

    def chat(self, slots: Sequence[str]) -> Chat:
        """The messages with the slots filled; of a prompt that is written out, one of the user.

        Args:
            slots: a text for each.
        """
        messages = (Message(USER, self._template),) if isinstance(self._template, str) else self._template
        return filled_chat(messages, self._prompt, slots)

    def text(self, slots: Sequence[str]) -> str:
        """What the tokenizer is given, its special tokens written out.

        Args:
            slots: a text for each.
        """
        chat = self.chat(slots)
        if isinstance(self._template, str):
            return chat[0].content
        return write_prompt(self._tokenizer, chat, begun=chat[-1].role == "assistant")


def filled_chat(template: Chat, prompt: str | None, slots: Sequence[str]) -> Chat:
    """Messages with their slots filled.

    Args:
        template: messages with slots.
        prompt: the request in the place of `{prompt}`; None where there is none.
        slots: a text for each slot.
    """
    rest = iter(slots)

    def filled(content: str) -> str:
        parts = _PARTS.split(content)
        return "".join(next(rest) if part == SLOT else str(prompt) if part == PROMPT else part for part in parts)

    return tuple(Message(message.role, filled(message.content)) for message in template)


def num_slots(template: Chat) -> int:
    """How many slots messages have."""
    return sum(_PARTS.findall(message.content).count(SLOT) for message in template)


def default_template(tokenizer: Any) -> str:
    """The prompt of a causal model, `{}` in the user's turn: its chat template, else the turn and an end, as DialoGPT's."""
    return write_prompt(tokenizer, (Message("user", SLOT),))


def template_of(name: str | None, *, has_prompts: bool) -> str | Chat | None:
    """The template that a setting names.

    Args:
        name: one of `PLACEMENTS`, a JSON file of messages, or a prompt written out; None for the usual one.
        has_prompts: whether targets come with requests; they are then followed by the searched words.

    Raises:
        ConfigError: no template is called so.
        DataError: the file holds no messages.
    """
    if name is None:
        return _NAMED[SUFFIX] if has_prompts else None
    if name in _NAMED:
        return _NAMED[name]
    if name.lower().endswith(".json"):
        return read_messages(Path(name))
    if SLOT not in name:
        what = f"no template is called {name!r}{nearest(name, PLACEMENTS)}"
        fix = f"one of {', '.join(PLACEMENTS)}, a JSON file of messages, or a prompt with {SLOT} in the place of the input"
        raise ConfigError(what, fix=fix)
    return name


def read_messages(path: Path) -> Chat:
    """The messages of a JSON file: a list of objects with "role" and "content".

    Raises:
        DataError: it cannot be read, or holds something else.
    """
    example = f'[{{"role": "user", "content": "{PROMPT} {SLOT}"}}]'
    try:
        entries = json.loads(read_file(path))
        messages = tuple(Message(entry["role"], entry["content"]) for entry in entries)
    except (ValueError, KeyError, TypeError) as error:
        got = f"{type(error).__name__}: {error}"
        raise DataError("the file holds no messages", where=path, got=got, fix=f"write {example}") from None
    wrong = [message for message in messages if message.role not in ROLES or not isinstance(message.content, str)]
    if wrong or not messages:
        got = repr(wrong[0]) if wrong else "an empty list"
        fix = f"write {example}; roles: {', '.join(ROLES)}"
        raise DataError("a message has a role and a text", where=path, got=got, fix=fix)
    return messages
