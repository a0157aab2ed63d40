"""A person at the terminal, as an agent: reads what the other side says, types words, chooses items.

What is shown goes to standard error and what is typed comes from standard input, so a person can also be a file of lines,
which are then shown as if they had been typed.
Words are taken as the corpora write them: lower case, punctuation apart. Leaving, or the end of the input, is the same as
Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parley.engine.core.cli.terminal import StandardTerminal, Terminal
from parley.envs.core.play import Utterances
from parley.envs.negotiation.game import NegotiationGame, SideView
from parley.envs.negotiation.render import render_dialogue
from parley.envs.negotiation.vocabulary import SELECTION, SELECTION_ID, Vocabulary, split_text

HELP = f"""Type what you say. Commands:
  /deal   end the dialogue and choose items (also {SELECTION})
  /help   this list
  /quit   leave"""
NO_DEAL = "none"


class Person:
    """A person as an `Agent`.

    Args:
        vocabulary: of the game.
        terminal: where the person sits.
    """

    name = "human"

    def __init__(self, vocabulary: Vocabulary, terminal: Terminal | None = None) -> None:
        self.vocabulary = vocabulary
        self.terminal = terminal or StandardTerminal()

    def join(self, view: SideView) -> PersonSession:
        """Takes a seat on one side of a batch of dialogues, which are then held one utterance at a time."""
        return PersonSession(view, self.terminal)


class PersonSession:
    """A person's part in a batch of dialogues.

    Args:
        view: what the side sees.
        terminal: where the person sits.
    """

    def __init__(self, view: SideView, terminal: Terminal) -> None:
        self._view, self._terminal = view, terminal
        self._num_shown = np.zeros(len(view), dtype=np.int64)
        self._last_row = -1

    def speak(self, rows: np.ndarray) -> Utterances:
        """What the person says in each of the dialogues `rows` (n,), one after the other."""
        return Utterances.of([self._words(row) for row in rows.tolist()])

    def choose(self, rows: np.ndarray) -> np.ndarray:
        """What the person takes in each of the dialogues `rows`: index (n,) into the legal selections."""
        return np.array([self._selection(row) for row in rows.tolist()], dtype=np.int64)

    def _words(self, row: int) -> list[int]:
        self._catch_up(row)
        while True:
            line = self._terminal.ask("you: ")
            if line in ("/deal", SELECTION):
                # The command stands on the screen, but not what it says.
                self._num_shown[row] += line == SELECTION
                return [SELECTION_ID]
            if line == "/quit":
                raise KeyboardInterrupt
            if line == "/help":
                self._terminal.show(HELP)
            elif line.startswith("/"):
                self._terminal.show(f"there is no command {line.split()[0]}; /help lists them")
            elif words := split_text(line, self._view.vocabulary):
                unknown = [word for word in words if word not in self._view.vocabulary.index]
                if unknown:
                    self._terminal.show(f"  (a trained model does not know, and hears as <unk>: {', '.join(unknown)})")
                return self._view.encode(line)

    def _selection(self, row: int) -> int:
        self._catch_up(row)
        counts, domain = tuple(self._view.contexts[row, ::2].tolist()), self._view.domain
        while True:
            line = self._terminal.ask(f"you take ({domain.question(counts)}; or {NO_DEAL}): ")
            if line == "/quit":
                raise KeyboardInterrupt
            if line == NO_DEAL:
                return len(self._view.selections(row)) - 2
            chosen = domain.read_selection(counts, line)
            if chosen is not None:
                return chosen
            self._terminal.show(f"give {domain.answer_form(counts)}; or {NO_DEAL}")

    def _catch_up(self, row: int) -> None:
        """Shows the scenario of a dialogue when it is another one than before, and what was said since."""
        view, anew = self._view, row != self._last_row
        if anew:
            self._last_row, self._num_shown[row] = row, 0
            self._terminal.show(_scenario(view, row))
        new = view.turns(row)[self._num_shown[row] :]
        self._num_shown[row] += len(new)
        for mine, words in new:
            # What was typed stands on the screen already; what a limit of the game said does not.
            if anew or not mine or words == SELECTION:
                self._terminal.show(f"{'you' if mine else 'partner'}: {words or '(says nothing)'}")


def tell_outcome(game: NegotiationGame, people: Sequence[int], terminal: Terminal | None = None) -> None:
    """Shows how dialogues ended: what was said, what both sides chose and their points.

    Args:
        game: dialogues that are over.
        people: sides on which a person sits; where there are two, both read the same screen.
        terminal: where they sit.
    """
    shown = terminal or StandardTerminal()
    perspective = people[0] if len(people) == 1 else None
    for row in range(len(game.scenarios)):
        shown.show(f"\n{render_dialogue(game, row, perspective)}\n")


def _scenario(view: SideView, row: int) -> str:
    counts, values = view.contexts[row, ::2].tolist(), view.contexts[row, 1::2].tolist()
    width = max(map(len, ("item", *view.domain.items)))
    lines = [f"{'item':<{width}}  count  value to you  value to partner"]
    for name, count, value in zip(view.domain.items, counts, values, strict=True):
        lines.append(f"{name:<{width}}  {count:>5}  {value:>12}  {'?':>16}")
    return "\n".join([*lines, ""])
