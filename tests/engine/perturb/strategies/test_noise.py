"""Character noise: one slip a word, in words of letters alone, at the stated rate and mix."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from parley.engine.perturb import perturb_text
from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.lexicon.corrections import Corrections
from parley.engine.perturb.strategies.commands import NAMES
from parley.engine.perturb.strategies.noise import HOMOGLYPHS, KEYS, CharacterNoise, Misspellings
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.corpora.pairs.tokens import tokenise

SETTINGS = PerturbSettings(lexicon="built-in", noise_rate=1.0)


def slips(word: str, known: frozenset[str] | None = None, num: int = 400) -> Counter[str]:
    strategy = CharacterNoise(Resources(SETTINGS, known), 1.0)
    found = strategy.perturb([(((word,),),)] * num, range(num))
    return Counter(after for (((after,),),) in found)


def kind(word: str, after: str) -> str:
    if len(after) != len(word):
        return "repetition" if len(after) > len(word) else "omission"
    if sorted(after) == sorted(word):
        return "transposition"
    (old, new) = next((a, b) for a, b in zip(word, after, strict=True) if a != b)
    assert new in KEYS[old] or new == HOMOGLYPHS[old]
    return "homoglyph" if new in HOMOGLYPHS.values() else "key"


@given(word=st.text("abcdefghijklmnopqrstuvwxyz", min_size=4, max_size=12), seed=st.integers(0, 2**40))
def test_a_slip_keeps_both_ends_and_is_one_token(word: str, seed: int) -> None:
    assume(word not in NAMES)
    ((((after,),),),) = CharacterNoise(Resources(SETTINGS), 1.0).perturb([(((word,),),)], [seed])
    assert after != word
    assert (after[0], after[-1]) == (word[0], word[-1])
    assert abs(len(after) - len(word)) <= 1
    assert tokenise(after) == [after]
    kind(word, after)


def test_kinds_are_drawn_alike() -> None:
    found = slips("package", num=2000)
    counted = Counter(kind("package", after) for after in found.elements())
    assert set(counted) == {"transposition", "key", "omission", "repetition", "homoglyph"}
    assert all(320 < num < 480 for num in counted.values())
    assert len({after for after in found if kind("package", after) == "omission"}) == 5


def test_the_keys_beside_a_key() -> None:
    assert sorted(KEYS["s"]) == sorted("adwezx")
    assert sorted(KEYS["q"]) == sorted("wa")


@pytest.mark.parametrize(
    "text",
    [
        "the and you",
        "http://ubuntu.com/help /etc/apt/sources 10.04 :) apt-get don't",
        "--help -verbose",
        "\u043f\u0440\u0438\u0432\u0435\u0442 \u4f60\u597d\u4f60\u597d na\u00efvet\u00e9 caf\u00e9s",
        "abc4 x1y2z3",
        "sudo reboot",
        "grep",
        "xorg.conf",
        "the linux",
    ],
)
def test_what_is_no_word_of_four_letters_stays(text: str) -> None:
    assert perturb_text(text, "character-noise", settings=SETTINGS) == text


def test_a_slip_makes_no_word_that_the_model_knows() -> None:
    assert "form" in slips("from")
    assert "form" not in slips("from", frozenset({"form", "from"}))


def test_a_share_of_the_words_slips() -> None:
    text = " ".join(["package"] * 4000)
    after = perturb_text(text, "character-noise", settings=PerturbSettings(lexicon="built-in", noise_rate=0.25))
    assert 900 < sum(word != "package" for word in after.split()) < 1100


def test_slips_take_the_case_of_their_words() -> None:
    found = {perturb_text("Kitchens WORKS", "character-noise", seed=seed, settings=SETTINGS) for seed in range(30)}
    assert len(found) > 20
    assert all(text.startswith("K") and text.split()[1].isupper() and text.split()[0][1:].islower() for text in found)


def test_misspellings_are_those_of_the_lists() -> None:
    corrections = Corrections({}, {"package": ("pakage", "packadge", "ackage", "package", "pacckkage")})
    strategy = Misspellings(Resources(SETTINGS, frozenset({"packadge", "problem"})), 1.0, corrections)
    said = ("the", "package", "has", "a", "probelm", "because", "xyzzy", "problem")
    found = Counter(strategy.perturb([((said,),)] * 300, range(300))[row][0][0] for row in range(300))
    places = [Counter(words[place] for words in found.elements()) for place in range(len(said))]
    # Not the list's own word, not another word that the model knows, no slip of the first letter, no two letters more.
    assert set(places[1]) == {"pakage"}
    assert set(places[5]) == {"becuase", "becasue"}
    assert abs(places[5]["becuase"] - 150) < 40
    assert set(places[7]) == {"probelm"}
    assert [set(places[place]) for place in (0, 2, 3, 4, 6)] == [{"the"}, {"has"}, {"a"}, {"probelm"}, {"xyzzy"}]
