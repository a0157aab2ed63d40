"""The transfer attack: one sentence, said once and in time, by a speaker that keeps track of what was said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from parley.engine.negotiation.attacks.tactics import TransferAgent, last_sentences
from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import stream
from parley.envs.negotiation.dealornodeal_rules import random_scenario
from parley.envs.negotiation.domain import SELECTION
from parley.envs.negotiation.game import SPEAK, NegotiationGame, Rules, play
from parley.policies.negotiator.model import Negotiator
from parley.policies.negotiator.settings import NegotiatorSizes
from parley.policies.negotiator.speaker import NegotiatorAgent
from tests.envs.negotiation.agents import VOCABULARY, Reader

PLUG = "no deal no deal"
OTHERS = ("i want the hat", "no ball")
TALK = Reader(("the book .", "the hat .", "the ball .", "i want", "deal ."))
RULES = Rules(max_turns=12, max_words=8, max_tokens=128)
SIZES = NegotiatorSizes(
    embed_word=12, embed_context=8, hidden_context=8, hidden_language=16, hidden_attention=8, hidden_selection=8, init_range=1.5
)


def table(count: int, first: int = 0, rules: Rules = RULES, first_speakers: list[int] | None = None) -> NegotiationGame:
    scenarios = [random_scenario(stream(2, index)) for index in range(first, first + count)]
    return NegotiationGame(scenarios, list(range(first, first + count)), VOCABULARY, rules, first_speakers)


def turns(game: NegotiationGame, row: int) -> list[tuple[int, str]]:
    return [(side, " ".join(words)) for side, words in game.transcript(row)]


def negotiator(seed: int) -> NegotiatorAgent:
    """A random network that seldom ends a dialogue."""
    model = Negotiator(VOCABULARY, SIZES)
    model.initialise(torch.Generator().manual_seed(seed))
    return NegotiatorAgent(model.eval(), f"random {seed}", temperature=1.0)


@pytest.mark.parametrize("turn", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("role", [0, 1])
def test_the_sentence_is_said_once_at_the_first_own_turn_with_enough_behind_it(role: int, turn: int) -> None:
    attacker = TransferAgent(TALK, [PLUG], turn)
    game = table(2, first_speakers=[0, 1])
    play(game, (attacker, TALK) if role == 0 else (TALK, attacker))
    for row, opener in enumerate((0, 1)):
        due = turn if (turn % 2 == 0) == (opener == role) else turn + 1
        said = [number for number, (_, words) in enumerate(turns(game, row)) if words == PLUG]
        assert said == [due]
        assert turns(game, row)[due][0] == role


def test_the_paper_plugs_it_in_behind_three_utterances() -> None:
    attacker = TransferAgent(TALK, ["book"])
    game = play(table(1, first_speakers=[1]), (attacker, TALK))
    assert turns(game, 0)[3] == (0, "book")
    assert attacker.name == "transfer through reader"


def test_other_turns_and_the_choice_are_the_speakers_own() -> None:
    speaker = replace(TALK, selection=4)
    plain, attacked = table(4), table(4)
    play(plain, (speaker, TALK))
    play(attacked, (TransferAgent(speaker, [PLUG]), TALK))
    for row in range(4):
        pairs = list(zip(turns(plain, row), turns(attacked, row), strict=True))
        changed = [number for number, (before, after) in enumerate(pairs) if before != after]
        assert len(changed) == 1
        assert pairs[changed[0]][1] == (0, PLUG)
    np.testing.assert_array_equal(plain.selections, attacked.selections)


def test_a_dialogue_that_ends_early_hears_no_sentence() -> None:
    brief = Reader(("deal .",))
    game = play(table(6), (TransferAgent(brief, [PLUG], turn=5), brief))
    assert all(words != PLUG for row in range(6) for _, words in turns(game, row))


def plugged(sentences: list[str], count: int, first: int = 0) -> list[str]:
    game = play(table(count, first), (TransferAgent(TALK, sentences), TALK))
    listed = [[words for _, words in turns(game, row) if words in sentences] for row in range(count)]
    assert all(len(said) == 1 for said in listed)
    return [said[0] for said in listed]


def test_each_dialogue_draws_its_sentence_by_itself() -> None:
    sentences = [PLUG, *OTHERS]
    together = plugged(sentences, 60)
    assert together == plugged(sentences, 60)
    assert together == [said for index in range(60) for said in plugged(sentences, 1, first=index)]
    assert min(together.count(sentence) for sentence in sentences) >= 10


def test_a_network_that_was_spoken_for_has_read_what_it_is_said_to_have_said() -> None:
    """After the plugged sentence, it goes on as one that joins then and reads the whole transcript."""
    speaker, partner = negotiator(0), negotiator(1)
    game = table(24, rules=replace(RULES, max_turns=9))
    attacker = TransferAgent(speaker, [PLUG], turn=2).join(game.view(0))
    other = partner.join(game.view(1))
    compared = 0
    while (game.phase == SPEAK).any():
        rows = game.rows_to_speak(0)
        if rows.size:
            afresh = speaker.join(game.view(0)).speak(rows)
            found = attacker.speak(rows)
            for i, row in enumerate(rows.tolist()):
                said = VOCABULARY.decode(found.tokens[i, : found.lengths[i]])
                if said == [*PLUG.split(), "<eos>"]:
                    continue
                assert said == VOCABULARY.decode(afresh.tokens[i, : afresh.lengths[i]])
                compared += (0, PLUG) in turns(game, row)
            game.say(rows, found)
        rows = game.rows_to_speak(1)
        if rows.size:
            game.say(rows, other.speak(rows))
    assert compared >= 20
    rows = game.rows_to_choose(0)
    np.testing.assert_array_equal(attacker.choose(rows), speaker.join(game.view(0)).choose(rows))


@pytest.mark.parametrize("word", ["unicorn", "<unk>", "<pad>", "<eos>", SELECTION, "YOU:", "THEM:"])
def test_a_sentence_that_cannot_be_said_is_an_error_that_names_the_word(word: str) -> None:
    with pytest.raises(ConfigError, match="does not know or may not say") as caught:
        TransferAgent(TALK, [PLUG, f"the {word} ."])
    assert caught.value.got == word
    assert caught.value.where == f"the {word} ."


def test_no_sentence_at_all_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no sentence"):
        TransferAgent(TALK, [])


def dialogue(said: list[tuple[int, str]], adversary: int, target: int, status: str = "ok") -> dict[str, Any]:
    listed = [{"side": side, "words": words} for side, words in said]
    return {"status": status, "points_adversary": adversary, "points_target": target, "turns": listed}


ROWS = [
    dialogue([(0, "b"), (1, "x"), (0, "a"), (1, SELECTION)], 9, 2),
    dialogue([(1, "x"), (0, "a"), (1, "y"), (0, SELECTION)], 8, 1),
    dialogue([(0, "c " + SELECTION), (1, "x"), (0, "")], 10, 0),
    dialogue([(0, "b"), (1, SELECTION)], 6, 0),
    dialogue([(0, "weak"), (1, SELECTION)], 6, 1),
    dialogue([(0, "lost"), (1, SELECTION)], 1, 9),
    dialogue([(1, "mute"), (1, SELECTION)], 10, 0),
    {"status": "error", "error": "the worker died"},
]


def test_last_sentences_are_the_winners_most_frequent_first_then_by_text() -> None:
    assert last_sentences(ROWS, 6, 10) == ["a", "b", "c"]
    assert last_sentences(ROWS, 6, 2) == ["a", "b"]
    assert last_sentences(ROWS, 5, 10) == ["a", "b", "c", "weak"]
    assert last_sentences(ROWS, 7, 10) == ["a", "c"]
    assert last_sentences(list(reversed(ROWS)), 6, 10) == ["a", "b", "c"]
    assert last_sentences(ROWS, 11, 10) == []


def test_last_sentences_of_a_match_are_the_lines_that_were_spoken() -> None:
    game = play(table(8), (TALK, TALK))
    rows = [dialogue(turns(game, row), 10, 0) for row in range(8)]
    assert last_sentences(rows, 1, 10) == ["deal ."]
