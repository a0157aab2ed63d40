"""A negotiation as messages to a chat model, and its answers as moves: what it is told, how it chooses, what is read of that.

The system message holds the rules, the items and what they are worth to the model's side: what its `SideView` shows and no
more. What the partner says are messages of the user, its own words those of the assistant. `<selection>` alone ends the talk.

A choice is one line in the words of `Domain.describe`, such as "book 1, hat 0, ball 2", or "no deal". Nothing else is read as
one: a sentence that mentions numbers may mean the other side's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from parley.envs.negotiation.domain import Domain, Numbers
from parley.envs.negotiation.game import SideView
from parley.envs.negotiation.vocabulary import SELECTION
from parley.policies.chat.model import Chat, Message
from parley.policies.chat.roles import merged

NO_DEAL = "no deal"
SILENCE = "..."
"""Stands for an utterance without words, because messages must not be empty."""
BEGINNING = "You speak first."
"""What the user says where the model's side begins."""
_BETWEEN = re.compile(r"[\s,;:=]+")
_AROUND = " \t\r\n\"'`*."
_LAST_WORD = re.compile(r"(\S+) [^\s,]+(?=,|$)")


def instructions(view: SideView, row: int, tactic: str = "") -> str:
    """What a model is told before a dialogue: the rules, its items and values, how to speak and how to end.

    Args:
        view: of its side.
        row: the dialogue.
        tactic: of a user's or an attacker's own, added at the end; empty for none.
    """
    counts, values = view.contexts[row, ::2].tolist(), view.contexts[row, 1::2].tolist()
    items = (
        f"- {item}: {count} there, worth {value} point{'s' * (value != 1)} to you{' each' * (count > 1)}"
        for item, count, value in zip(view.domain.items, counts, values, strict=True)
    )
    parts = [
        view.domain.how_to_play,
        "\n".join(items),
        "Your partner has other points for them, which you do not see. Get as many points for yourself as you can.",
        f"Each time write what you say to your partner next, in one short line, and nothing else. When you two have agreed, or "
        f"there is no more to say, write {SELECTION} and nothing else: it ends the talk.",
    ]
    return "\n\n".join([*parts, f"Your tactic: {tactic}"] if tactic else parts)


def talk(view: SideView, row: int, tactic: str = "", then: Sequence[tuple[bool, str]] = ()) -> Chat:
    """The messages that a model answers with its next utterance; the last is the user's, and roles take turns.

    Args:
        view: of its side.
        row: the dialogue.
        tactic: as in `instructions`.
        then: turns that have not been said, as if they had: whether each is its own, and its words.
    """
    return _talk(view, row, [*view.turns(row), *then], tactic)


def before(view: SideView, row: int, turn: int) -> Chat:
    """The messages that were answered by an utterance of one's own, which had so many utterances before it."""
    return _talk(view, row, view.turns(row)[:turn])


def _talk(view: SideView, row: int, turns: Sequence[tuple[bool, str]], tactic: str = "") -> Chat:
    messages = [Message("user", BEGINNING)] if not turns or turns[0][0] else []
    messages += [Message("assistant" if own else "user", words or SILENCE) for own, words in turns]
    return Message("system", instructions(view, row, tactic)), *merged(messages)


def choice(view: SideView, row: int, tactic: str = "", then: Sequence[tuple[bool, str]] = ()) -> Chat:
    """The messages that a model answers with what it chooses; arguments as of `talk`."""
    head, *messages = talk(view, row, tactic, then)
    return head, *merged([*messages, Message("user", f"The talk has ended. {_form(view, row)}")])


def question(domain: Domain, counts: Numbers) -> Chat:
    """The question for a choice alone: no rules, no values and no talk before it."""
    return (Message("user", _question(domain, counts)),)


def repair(asked: Chat, answer: str, view: SideView, row: int) -> Chat:
    """The messages that ask once more, after an answer that was no choice."""
    more = Message("assistant", answer), Message("user", f"That cannot be read. {_form(view, row)}")
    return *asked, *more


def choices(domain: Domain, counts: Numbers) -> list[str]:
    """What may be answered to `choice`: every deal in the order of the selections, and then that there is none."""
    return [domain.describe(counts, deal) for deal in range(domain.selections(counts).no_agreement)] + [NO_DEAL]


def read_choice(domain: Domain, counts: Numbers, text: str) -> int | None:
    """The selection that an answer names; None for one that is not of the form."""
    named = _readings(domain, counts).get(_plain(text))
    return domain.read_selection(counts, text.strip(_AROUND)) if named is None else named


@lru_cache(maxsize=256)
def _readings(domain: Domain, counts: Numbers) -> dict[str, int]:
    return {_plain(written): selection for selection, written in enumerate(choices(domain, counts))}


def _plain(text: str) -> str:
    return " ".join(filter(None, _BETWEEN.split(text.strip(_AROUND).lower())))


def _form(view: SideView, row: int) -> str:
    return _question(view.domain, tuple(view.contexts[row, ::2].tolist()))


def _question(domain: Domain, counts: Numbers) -> str:
    form = _LAST_WORD.sub(r"\1 ...", domain.describe(counts, 0))
    return (
        f"Write what you get, in one line of this form and nothing else: {form} ({domain.question(counts)}). "
        f"If you found no deal, write: {NO_DEAL}"
    )
