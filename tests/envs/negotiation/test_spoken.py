"""Text in the game: sides whose vocabularies differ, and words that no vocabulary holds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from parley.envs.negotiation.domain import SPECIALS, Scenario, Vocabulary
from parley.envs.negotiation.game import SELECT, SPEAK, NegotiationGame, play
from tests.envs.negotiation.agents import VOCABULARY, Reader
from tests.envs.negotiation.test_game import PER_DIALOGUE, SHORT, one_dialogue, say, scenarios, seeds, unhurried


@unhurried
@given(scenarios, seeds, st.booleans())
def test_two_vocabularies_play_the_same_dialogue_in_ids_of_their_own(scenario: Scenario, seed: int, other_first: bool) -> None:
    other = Vocabulary((*SPECIALS, *reversed(VOCABULARY.words[4:]), "zebra"))
    lines = ("i want the ball .", "no deal .")
    words = (other, VOCABULARY) if other_first else (VOCABULARY, other)
    agents = tuple(Reader(lines, side, vocabulary=own) for side, own in enumerate(words))
    mixed = play(NegotiationGame([scenario], [seed], words, SHORT), agents)
    plain = play(NegotiationGame([scenario], [seed], VOCABULARY, SHORT), (Reader(lines, 0), Reader(lines, 1)))
    assert mixed.transcript(0) == plain.transcript(0)
    for side, own in enumerate(words):
        length = int(plain.num_tokens[0])
        assert own.decode(mixed.tokens[side, 0, :length]) == VOCABULARY.decode(plain.tokens[side, 0, :length])
        np.testing.assert_array_equal(mixed.tokens_in(VOCABULARY, side), plain.tokens[side])
    for name in PER_DIALOGUE:
        np.testing.assert_array_equal(getattr(mixed, name), getattr(plain, name))


def test_a_word_that_one_side_lacks_is_unknown_to_it_and_stands_in_the_transcript() -> None:
    game = one_dialogue()
    say(game, *game.view(0).encode("I want the zebra"))
    say(game, *VOCABULARY.encode(["no", "<eos>"]).tolist())
    assert game.transcript(0) == [(0, ["i", "want", "the", "zebra"]), (1, ["no"])]
    assert game.view(1).turns(0) == [(False, "i want the zebra"), (True, "no")]
    heard = game.tokens[1, 0, : game.num_tokens[0]].tolist()
    assert heard == VOCABULARY.encode(["THEM:", "i", "want", "the", "<unk>", "<eos>", "YOU:", "no", "<eos>"]).tolist()
    judge = Vocabulary((*SPECIALS, "zebra", "THEM:", "YOU:"))
    assert judge.decode(game.tokens_in(judge, 1)[0, :6]) == ["THEM:", "<unk>", "<unk>", "<unk>", "zebra", "<eos>"]
    assert judge.decode(game.tokens_in(judge, 0)[0, :1]) == ["YOU:"]
    say(game, *game.view(0).encode("YOU: <pad> <selection>"))
    assert game.transcript(0)[2] == (0, ["you", ":", "<selection>"])
    assert (game.phase[0], game.num_illegal[0].tolist()) == (SPEAK, [1, 0])
    say(game, *game.view(1).encode("<selection>"))
    assert game.phase[0] == SELECT
