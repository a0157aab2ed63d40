"""A person at the table: what is shown, what typed words become, and leaving."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

import pytest

from parley.engine.core.cli.screen import StandardTerminal
from parley.engine.negotiation.verbs.agents import HELP, Person, tell_outcome
from parley.envs.negotiation.agents import agents
from parley.envs.negotiation.dealornodeal import read_numbers
from parley.envs.negotiation.dealornodeal_rules import picks_table
from parley.envs.negotiation.domain import UNK_ID, Scenario, split_text
from parley.envs.negotiation.game import NegotiationGame, Rules, play
from parley.envs.negotiation.scripted.bargainers import scripted
from parley.envs.negotiation.scripted.wording import bargainer_vocabulary

SCENARIO = Scenario((1, 2, 3), ((0, 2, 2), (4, 0, 2)))
VOCABULARY = bargainer_vocabulary()


class Typist:
    """A terminal at which lines are typed, one after the other, and then nobody sits any more."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines, self.shown = list(lines), list[str]()
        self.prompts: list[str] = []

    def show(self, text: str) -> None:
        self.shown.append(text)

    def ask(self, prompt: str) -> str:
        self.prompts.append(prompt)
        if not self.lines:
            raise KeyboardInterrupt
        return self.lines.pop(0)


def held(lines: Sequence[str], first: int = 0, num: int = 1, rules: Rules | None = None) -> tuple[NegotiationGame, Typist]:
    """Dialogues of a person, who types those lines, with a scripted bargainer."""
    game = NegotiationGame([SCENARIO] * num, range(num), VOCABULARY, rules, first_speakers=[first] * num)
    typist = Typist(lines)
    play(game, (Person(VOCABULARY, typist), scripted(VOCABULARY)))
    return game, typist


def test_a_deal_is_said_and_chosen() -> None:
    game, typist = held(["I want the hats and the balls!", "/deal", "0 2 3"])
    turns = game.transcript(0)
    assert turns[0] == (0, ["i", "want", "the", "hats", "and", "the", "balls", "!"])
    assert turns[-1][1] == ["<selection>"]
    assert picks_table(SCENARIO.counts)[game.selections[0, 0]].tolist() == [0, 2, 3]
    assert typist.shown[0].splitlines()[0].split() == ["item", "count", "value", "to", "you", "value", "to", "partner"]
    assert typist.shown[0].splitlines()[1].split() == ["book", "1", "0", "?"]
    assert "4" not in typist.shown[0], "the partner's values are hidden"
    assert typist.shown[1].startswith("partner: ")
    assert not [line for line in typist.shown if line.startswith("you: i want")], "what was typed is not repeated"
    assert "you: <selection>" in typist.shown


def test_the_end_that_was_typed_as_it_is_said_is_not_repeated() -> None:
    _, typist = held(["i want the hats", "<selection>", "0 2 3"])
    assert "you: <selection>" not in typist.shown


def test_the_partner_may_open() -> None:
    game, typist = held(["/deal", "none"], first=1)
    assert typist.shown[1] == f"partner: {' '.join(game.transcript(0)[0][1])}"
    assert not game.agreed[0]


def test_unknown_words_are_heard_as_unknown_and_announced() -> None:
    game, typist = held(["flibber the hats , zounds", "<selection>", "none"])
    (notice,) = [line for line in typist.shown if "<unk>" in line and not line.startswith("you")]
    assert "flibber, zounds" in notice
    assert (game.tokens[0, 0, :6] == UNK_ID).sum() == 2
    assert game.transcript(0)[0][1] == ["flibber", "the", "hats", ",", "zounds"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Give me 2 hats, please.", ["give", "me", "2", "hats", ",", "please", "."]),
        ("i'd like 1 book", ["i'd", "like", "1", "book"]),
        ("  spaced   out  ", ["spaced", "out"]),
        ("no <eos> way", ["no", "way"]),
        ("", []),
    ],
)
def test_typed_lines_become_words_as_the_corpora_write_them(line: str, words: list[str]) -> None:
    assert split_text(line, VOCABULARY) == words


def test_commands_and_mistakes_are_answered_and_asked_again() -> None:
    _, typist = held(["", "/help", "/hlep", "/deal", "1 2", "9 9 9", "-1 -1 -1", "0.5 1", "1 2 3 4", "0 2 3"])
    assert HELP in typist.shown
    assert "there is no command /hlep; /help lists them" in typist.shown
    expected = "give 3 whole numbers, book 0..1, hat 0..2, ball 0..3, such as 1 2 3; or none"
    assert typist.shown.count(expected) == 5
    assert sum(prompt.startswith("you take") for prompt in typist.prompts) == 6
    assert typist.prompts.count("you: ") == 4
    assert not typist.lines


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("0 2 3", [0, 2, 3]),
        ("0,2, 3", [0, 2, 3]),
        ("1  2", [1, 2]),
        ("-1 -1 -1", []),
        ("0.5 1", []),
        ("1 2 3 hats", []),
        ("1,,2 3", []),
        ("1 2 \N{SUPERSCRIPT TWO}", []),
        ("1 2 " + "9" * 5000, []),
        ("", []),
    ],
)
def test_only_whole_numbers_are_numbers(line: str, numbers: list[int]) -> None:
    assert read_numbers(line) == numbers


def test_the_outcome_is_told_to_one_person_and_to_two() -> None:
    game, typist = held(["i want the hats", "/deal", "0 2 0"])
    tell_outcome(game, [0], typist)
    assert "you chose book 0, hat 2, ball 0" in typist.shown[-1]
    assert f"points: you {game.points[0, 0]}, partner {game.points[0, 1]}" in typist.shown[-1]
    tell_outcome(game, [0, 1], typist)
    assert "side 0 chose book 0, hat 2, ball 0" in typist.shown[-1]


@pytest.mark.parametrize("lines", [["/quit"], ["hello", "/quit"], ["/deal", "/quit"], ["hello"]])
def test_leaving_is_an_interruption(lines: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        held(lines)


def test_dialogues_side_by_side_are_shown_anew_in_turn() -> None:
    _, typist = held(["hello", "hi", "/deal", "/deal", "none", "none"], num=2)
    tables = [line for line in typist.shown if line.startswith("item")]
    assert len(tables) == 6
    assert "you: hello" in typist.shown
    assert "you: hi" in typist.shown


def test_a_limit_of_the_game_is_shown() -> None:
    _, typist = held(["hello", "none"], rules=Rules(max_turns=1))
    assert "partner: <selection>" in typist.shown


def test_the_registered_person_sits_at_standard_input_and_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n/deal\nnone\n"))
    game = NegotiationGame([SCENARIO], [3], VOCABULARY, first_speakers=[0])
    person = agents.get("human")(VOCABULARY)
    play(game, (person, scripted(VOCABULARY)))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "\nyou: hello\npartner: " in shown.err, "what came through a pipe is shown, and ends its line"
    assert person.name == "human"
    with pytest.raises(KeyboardInterrupt):
        StandardTerminal().ask("you: ")
