"""Prompts of local models: messages in the tokenizer's chat template, or with ends between them; and prompts with slots.

Contents: templates of models that also read pictures may want a list of parts in place of a text, and get it.

Roles: a template that takes no system, or drops its text silently, gets it in front of the user's first message; one that wants
strict alternation gets neighbours of one role merged (`model.merged`). Probe texts decide, once for each sequence of roles, and
the log says so once.

Dates: a template that reads the clock (`strftime_now`) would change its prompts every day. It gets the date of its tokenizer
(`use_options`), which is that of the run, at midnight. Variables that some templates test for (`date_string`) are set if a date
was given; otherwise the template's own constant stays, as on servers.

Without a template messages follow each other with ends between them, as DialoGPT is trained.

A prompt with slots is a list of messages, or a prompt written out:

    [{"role": "system", "content": "You are a help desk."}, {"role": "user", "content": "{prompt} {}"}]

`{}` is a slot, `{prompt}` the request that a target comes with. The searched tokens fill the slots in order. A last message of
the assistant is the beginning of the answer, which the model continues; blanks at its end stay.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.registry import nearest
from parley.envs.corpora.arrow import read_file
from parley.policies.chat.model import FOLDED, MERGED, ROLES, Chat, Message, fold_system, merged

logger = logging.getLogger(__name__)
_OPTIONS = "parley_template_options"
"""Name of the tokenizer attribute with the options of its template."""
_END = "\ue001"
"""Mark behind a begun answer that no template trims; of the private use area, which no text holds."""
_AS_IT_IS = ""
_MERGED = "neighbours of one role are merged"
_FOLDED = "the system's text stands in front of the first message of the user"
_WAYS: dict[str, Callable[[Chat], Chat]] = {_AS_IT_IS: lambda chat: chat, _MERGED: merged, _FOLDED: fold_system}
"""Changes of messages that a template does not take, the smallest first, by the words of the log."""
_NOTES = {_AS_IT_IS: (), _MERGED: (MERGED,), _FOLDED: (FOLDED,)}
_DIRECTIVES = [f"%{flag}{letter}" for letter in "aAbBcdDeFGHIjmMnpSTuUVwWxXyY" for flag in ("-", "")]
_DATE_VARIABLES = ("date_string", "current_date", "today_date", "today", "date")
_FORMATS = ("%d %b %Y", "%d %B %Y", "%B %d, %Y", "%b %d, %Y", "%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%A, %B %d, %Y")
_warned: set[tuple[str, ...]] = set()


class TemplateOptions(NamedTuple):
    """Inputs of a template beside the messages.

    Args:
        day: the date that it prints.
        explicit: whether the date was set by the user, so that variables hold it too.
        variables: further ones by name, such as `enable_thinking`.
    """

    day: date
    explicit: bool = False
    variables: tuple[tuple[str, Any], ...] = ()


class _Way(NamedTuple):
    """The change that fits messages to a template.

    Args:
        roles: of `_WAYS`.
        parts: whether a content is a list of parts.
        lost: roles of messages whose text the template leaves out all the same.
    """

    roles: str = _AS_IT_IS
    parts: bool = False
    lost: tuple[str, ...] = ()


def use_options(tokenizer: Any, day: str, variables: dict[str, Any] | None = None) -> None:
    """Set the options of a tokenizer's template.

    Args:
        tokenizer: of a model; nothing of it that is saved is changed.
        day: an ISO date; today when empty.
        variables: further variables of the template by name.
    """
    then = date.fromisoformat(day) if day else date.today()
    setattr(tokenizer, _OPTIONS, TemplateOptions(then, bool(day), tuple(sorted((variables or {}).items()))))


def options_of(tokenizer: Any) -> TemplateOptions:
    """Return the options of a tokenizer's template; they stay the same from the first call on."""
    if not hasattr(tokenizer, _OPTIONS):
        use_options(tokenizer, "")
    options: TemplateOptions = getattr(tokenizer, _OPTIONS)
    return options


def prints_date(tokenizer: Any) -> bool:
    """Return whether the prompts of a tokenizer depend on the date."""
    if not tokenizer.chat_template:
        return False
    chat, options = (Message("user", "a"),), options_of(tokenizer)
    parts = _way(tokenizer, ("user",), True).parts
    other = options._replace(day=date(1999, 2, 3) if options.day != date(1999, 2, 3) else date(1998, 3, 4))
    try:
        return _render(tokenizer, chat, True, options, parts=parts) != _render(tokenizer, chat, True, other, parts=parts)
    # A template that takes no such chat raises its error when a prompt is needed.
    except ConfigError:
        return False


def write_prompt(tokenizer: Any, chat: Chat, *, generation: bool = True, begun: bool = False) -> str:
    """Return messages as a model reads them.

    Args:
        tokenizer: of the model.
        chat: the messages.
        generation: whether the start of an answer stands behind them; otherwise they stand as they are.
        begun: whether the last message is the beginning of the answer, which the model goes on with.

    Raises:
        ConfigError: the template does not take such messages, or changes a begun answer.
    """
    options = options_of(tokenizer)
    if begun:
        chat = (*chat[:-1], Message(chat[-1].role, f"{chat[-1].content}{_END}"))
    way = _way(tokenizer, tuple(message.role for message in chat), generation and not begun)
    fitted = _WAYS[way.roles](chat)
    if not tokenizer.chat_template:
        text = "".join(f"{message.content}{tokenizer.eos_token or ''}" for message in fitted)
    else:
        text = _render(tokenizer, fitted, generation and not begun, options, parts=way.parts)
    if not begun:
        return text
    text, mark, _ = text.rpartition(_END)
    if not mark or not text.endswith(chat[-1].content.removesuffix(_END)):
        fix = "write the prompt as a whole with its special tokens"
        what = "the chat template does not leave the beginning of an answer as it is"
        raise ConfigError(what, where=_where(tokenizer), got=repr(chat[-1].content.removesuffix(_END))[:80], fix=fix)
    return text


def role_notes(tokenizer: Any, chat: Chat) -> tuple[str, ...]:
    """Return the notes (`Answer.notes`) on the changes that fit a chat's roles to the template."""
    return _NOTES[_way(tokenizer, tuple(message.role for message in chat), True).roles]


def _way(tokenizer: Any, roles: tuple[str, ...], generation: bool) -> _Way:
    """Return the change that fits messages of such roles to a template, and log it once."""
    if not tokenizer.chat_template:
        way = _Way(_FOLDED if "system" in roles else _AS_IT_IS)
    else:
        options = options_of(tokenizer)
        ways: dict[Any, _Way] = tokenizer.__dict__.setdefault("parley_ways", {})
        key = (_template(tokenizer), roles, generation, options)
        if key not in ways:
            ways[key] = _found_way(tokenizer, roles, generation, options)
        way = ways[key]
    if way.roles:
        say_once(tokenizer, f"the chat template does not take messages of these roles: {way.roles}")
    if way.lost and generation:
        say_once(tokenizer, f"the chat template leaves out what some messages say: {', '.join(way.lost)}")
    return way


def _found_way(tokenizer: Any, roles: Sequence[str], generation: bool, options: TemplateOptions) -> _Way:
    probes = tuple(Message(role, f"probe{number}text") for number, role in enumerate(roles))
    best: _Way | None = None
    for parts, way in product((False, True), _WAYS):
        try:
            text = _render(tokenizer, _WAYS[way](probes), generation, options, parts=parts)
        except ConfigError:
            continue
        lost = tuple(probe.role for probe in probes if probe.content not in text)
        if best is None or len(lost) < len(best.lost):
            best = _Way(way, parts, lost)
        if not lost:
            break
    # If no change is taken, the unchanged messages raise the error.
    return best or _Way()


def _render(tokenizer: Any, chat: Chat, generation: bool, options: TemplateOptions, *, parts: bool = False) -> str:
    messages: list[dict[str, Any]] = [
        {"role": message.role, "content": [{"type": "text", "text": message.content}] if parts else message.content}
        for message in chat
    ]
    try:
        template = _template(tokenizer)
        more = dict(options.variables) | (_date_variables(template, options.day) if options.explicit else {})
        text: str = tokenizer.apply_chat_template(
            messages, chat_template=_dated(template, options.day), tokenize=False, add_generation_prompt=generation, **more
        )
    # A template is a program, which may raise any error for messages that it refuses, such as two of one role.
    except Exception as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        got = f"{', '.join(message.role for message in chat)}: {first}"[:200]
        fix = "ask in roles that the model's makers provide for"
        raise ConfigError("the chat template does not take these messages", where=_where(tokenizer), got=got, fix=fix) from None
    return text


def _template(tokenizer: Any) -> str:
    template: str = tokenizer.get_chat_template()
    return template


@lru_cache(maxsize=64)
def _dated(template: str, day: date) -> str:
    """Return a template in which `strftime_now` tells a date.

    transformers gives templates the clock, and hands none of a caller's functions to them; a macro of the same name is found
    first. A block at the end of a line takes the line's end with it, so that nothing is written.
    """
    if "strftime_now" not in template:
        return template
    parts = ", ".join(f'("{code}", "{day.strftime(code)}")' for code in _DIRECTIVES if code != "%n")
    return (
        '{% macro strftime_now(format) %}{% set ns = namespace(text=format | replace("%%", "\ue002")) %}'
        f"{{% for code, value in [{parts}] %}}{{% set ns.text = ns.text | replace(code, value) %}}{{% endfor %}}"
        '{{ ns.text | replace("\ue002", "%") }}{% endmacro %}\n'
        f"{template}"
    )


def _date_variables(template: str, day: date) -> dict[str, str]:
    """Return the variables of a date that a template tests for, written as its own constant is."""
    variables = {}
    for name in _DATE_VARIABLES:
        if re.search(
            rf"\b{name}\b\s+is\s+(?:not\s+)?defined|\bnot\s+{name}\s+is\s+defined|\bif\s+(?:not\s+)?{name}\b", template
        ):
            constant = re.search(rf"\b{name}\s*=\s*([\"'])(.+?)\1", template)
            call = re.search(rf"\b{name}\s*=\s*strftime_now\(\s*([\"'])(.+?)\1", template)
            written_as = call[2] if call else _format_of(constant[2]) if constant else ""
            variables[name] = day.strftime(written_as or ("%d %b %Y" if name == "date_string" else "%Y-%m-%d"))
    return variables


def _format_of(written: str) -> str:
    for candidate in _FORMATS:
        try:
            datetime.strptime(written, candidate)
        except ValueError:
            continue
        return candidate
    return ""


def say_once(tokenizer: Any, text: str) -> None:
    """Log a warning about a tokenizer's template, once in a process."""
    where = _where(tokenizer) or type(tokenizer).__name__
    if (where, text) not in _warned:
        _warned.add((where, text))
        logger.warning("%s: %s", where, text)


def _where(tokenizer: Any) -> str | None:
    return getattr(tokenizer, "name_or_path", "") or None


SLOT, PROMPT = "{}", "{prompt}"
"""Marks in a template: of the searched tokens, and of the request of a target."""
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
    """A prompt with slots.

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
        """Return the messages with the slots filled; a prompt that is written out is one message of the user.

        Args:
            slots: a text for each.
        """
        messages = (Message(USER, self._template),) if isinstance(self._template, str) else self._template
        return filled_chat(messages, self._prompt, slots)

    def text(self, slots: Sequence[str]) -> str:
        """Return the filled prompt as text for the tokenizer, its special tokens written out.

        Args:
            slots: a text for each.
        """
        chat = self.chat(slots)
        if isinstance(self._template, str):
            return chat[0].content
        return write_prompt(self._tokenizer, chat, begun=chat[-1].role == "assistant")


def filled_chat(template: Chat, prompt: str | None, slots: Sequence[str]) -> Chat:
    """Return messages with their slots filled.

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
    """Return how many slots messages have."""
    return sum(_PARTS.findall(message.content).count(SLOT) for message in template)


def default_template(tokenizer: Any) -> str:
    """Return a causal model's prompt, `{}` in the user's turn: its chat template, or the turn and an end, as DialoGPT's."""
    return write_prompt(tokenizer, (Message("user", SLOT),))


def template_of(name: str | None, *, has_prompts: bool) -> str | Chat | None:
    """Return the template that a setting names.

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
    """Return the messages of a JSON file: a list of objects with "role" and "content".

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
