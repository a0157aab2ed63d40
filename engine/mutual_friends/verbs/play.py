"""`parley play friends`: a person and a bot look for the friend both have, at the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tyro import conf

from parley.engine.core.cli.flags import parse
from parley.engine.core.cli.screen import watching
from parley.engine.core.cli.tables import make_console, show_lines
from parley.engine.core.cli.terminal import StandardTerminal, Terminal
from parley.engine.core.cli.verbs import Verb
from parley.engine.mutual_friends.verbs.agents import SCRIPTED, corpus_of, make_friends_agent
from parley.envs.core.ranges import Configuration, NonNegativeFloat, NonNegativeInt
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.mutual_friends.compiled import load_friends
from parley.envs.mutual_friends.corpora import EMBEDDED_FRIENDS
from parley.envs.mutual_friends.events import ChatEvent, FriendsChat
from parley.envs.mutual_friends.game import Act, FriendsView
from parley.envs.mutual_friends.play import play_friends
from parley.envs.mutual_friends.scenario import random_friends
from parley.envs.mutual_friends.schema import chat_words
from parley.policies.dynonet.settings import FriendsDecoding

HELP = """Type what you say. Commands:
  /select 3   select friend 3 of your table; you may select again later
  /table      your friends again
  /help       this list
  /quit       leave"""


@dataclass(frozen=True, kw_only=True)
class PlayFriendsArguments(Configuration):
    """With whom, and about whose friends."""

    partner: str = SCRIPTED
    """Bot: a run or checkpoint folder (parley train dynonet), registered name (parley list), chat model (hf:FOLDER, gguf:FILE,
    openai:URL#MODEL), or path/file.py:Name."""
    corpus: Annotated[str, conf.arg(help_behavior_hint="")] = ""
    """Corpus whose names friends have; that of the bot when not given."""
    seed: NonNegativeInt = 1
    """Decides both tables, who begins, and every random draw."""
    temperature: NonNegativeFloat = 0.5
    """Of a model's word distribution; 0 takes the likeliest word."""


def run_play_friends(verb: Verb, arguments: Sequence[str]) -> int:
    """Plays one chat; returns the exit status."""
    asked = parse(PlayFriendsArguments, verb, arguments)
    with watching():
        corpus = load_friends(asked.corpus or corpus_of((asked.partner,)) or EMBEDDED_FRIENDS)
        partner = make_friends_agent(asked.partner, corpus, FriendsDecoding(temperature=asked.temperature))
    scenario = random_friends(corpus.schema, stream(asked.seed, "scenario", "played"))
    terminal = StandardTerminal()
    terminal.show(f"You and {asked.partner} have one friend in common. Find out who, then both select that friend.\n\n{HELP}\n")
    try:
        (chat,) = play_friends([(scenario, derive_seed(asked.seed, "played"))], (FriendsPerson(terminal), partner))
    except KeyboardInterrupt:
        terminal.show("\nyou left, no friend was found")
        return 0
    terminal.show(f"\n{_outcome(chat)}")
    again = ["parley", "play", "friends", "--partner", asked.partner, "--seed", str(asked.seed + 1)]
    again += ["--corpus", asked.corpus] if asked.corpus else []
    again += ["--temperature", str(asked.temperature)] if asked.temperature != PlayFriendsArguments.temperature else []
    show_lines(make_console(), "next", [shlex.join(again)])
    return 0


class FriendsPerson:
    """A person as a `FriendsAgent`.

    Args:
        terminal: where the person sits.
    """

    name = "human"

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def join(self, view: FriendsView) -> _PersonChats:
        """Takes a side."""
        return _PersonChats(view, self._terminal)


class _PersonChats:
    """A person's part in chats, one event after the other."""

    def __init__(self, view: FriendsView, terminal: Terminal) -> None:
        self._view, self._terminal = view, terminal

    def enter(self, rows: list[int]) -> None:
        for row in rows:
            self._terminal.show(self._table(row))

    def hear(self, rows: list[int], events: list[ChatEvent]) -> None:
        for event in events:
            # What was typed stands on the screen already.
            if event.side != self._view.side:
                self._terminal.show(f"partner: {_shown(event)}")

    def act(self, rows: list[int]) -> Sequence[Act]:
        return [self._act(row) for row in rows]

    def _act(self, row: int) -> Act:
        while True:
            line = self._terminal.ask("you: ")
            command, _, argument = line.partition(" ")
            if line == "/quit":
                raise KeyboardInterrupt
            if line == "/help":
                self._terminal.show(HELP)
            elif line == "/table":
                self._terminal.show(self._table(row))
            elif command == "/select":
                num = len(self._view.table(row))
                if argument.isascii() and argument.isdigit() and 1 <= int(argument[:9]) <= num:
                    return int(argument) - 1
                self._terminal.show(f"give the number of a friend, 1 to {num}, such as /select 2")
            elif line.startswith("/"):
                self._terminal.show(f"there is no command {command}; /help lists them")
            elif words := chat_words(line):
                return words

    def _table(self, row: int) -> str:
        lines = [("", *(each.name for each in self._view.attributes(row)))]
        lines += [(str(number), *item) for number, item in enumerate(self._view.table(row), 1)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rows = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)
        return "\n".join(["your friends:", *rows, ""])


def _shown(event: ChatEvent) -> str:
    return " ".join(event.words) if event.selected is None else f"selects {', '.join(event.item)}"


def _outcome(chat: FriendsChat) -> str:
    common = ", ".join(chat.scenario.tables[0][chat.scenario.shared[0]])
    found = f"both selected after {len(chat.events)} events" if chat.agreed else f"no agreement in {len(chat.events)} events"
    # Nobody hears the last event.
    last = f"partner: {_shown(chat.events[-1])}\n" if chat.events[-1].side else ""
    return f"{last}{found}; the common friend: {common}"
