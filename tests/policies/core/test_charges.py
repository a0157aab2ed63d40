"""Words that a model of pieces is kept from, whatever pieces spell them."""

from __future__ import annotations

import torch

from parley.envs.corpora.pairs.compiled import learn_pieces
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, UNK, UNK_ID
from parley.policies.core.decoding import charges_on_words

PIECES = learn_pieces({"install": 9, "stall": 4, "tall": 4, "the": 9}, 12)


def charged(begun: list[str], forbid: tuple[str, ...] = (), repeat: float = 0.0) -> dict[str, float]:
    """What is taken off each piece behind some pieces."""
    (charge,) = charges_on_words(PIECES, forbid, repeat)
    state = charge.begin(1, torch.device("cpu"))
    scores = torch.zeros(1, len(PIECES))
    for place, unit in enumerate([BOS_ID, *(PIECES.index[piece] for piece in begun)]):
        found, state = charge.step(place, scores, torch.tensor([unit]), state)
    return {PIECES.words[unit]: float(found[0, unit]) for unit in found[0].nonzero()[:, 0].tolist()}


def test_a_forbidden_word_is_never_ended() -> None:
    forever = -float("inf")
    assert charged([], ("tall", UNK, "zzz")) == {"tall ": forever, UNK: forever}
    assert charged(["t"], ("tall",)) == {}
    assert charged(["t", "a"], ("tall",)) == ({"ll ": forever} if "ll " in PIECES.index else {})
    assert charged(["t", "a", "l"], ("tall",)) == {"l ": forever}
    # "stall" may be said.
    assert charged(["s", "t", "a", "l"], ("tall",)) == {}


def test_content_words_that_were_said_cost() -> None:
    said = [PIECES.words[unit] for unit in PIECES.encode(["the", "install"])]
    once = charged([*said, "i", "n", "s", "t", "a", "l"], repeat=2.0)
    assert once == {"l ": -2.0}
    assert PIECES.words[EOS_ID] not in once
    assert PIECES.words[UNK_ID] not in once
