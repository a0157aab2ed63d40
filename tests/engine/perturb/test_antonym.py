"""Antonym: which word, which opposite, which form."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.perturb.antonym import Antonym
from engine.perturb.built_in import BuiltInLexicon
from engine.perturb.lexicon import open_lexicon
from engine.perturb.resources import Resources
from engine.perturb.settings import PerturbSettings
from tests.engine.perturb.fakes import FakeLexicon

BUILT_IN = BuiltInLexicon()
BETWEEN = {"n't": "RB", "you": "PRP", "it": "PRP", "to": "TO", "tried": "VBN", "disk": "NN", ",": ","}
WORDS = ["the", "printer", "opens", "opened", "open", "slower", "is", "day", "here", "loud", "never", "."]


class Asked(FakeLexicon):
    """Every word has one tag, and opposites for the parts of speech that it is asked with."""

    def __init__(self, tag: str) -> None:
        self._tag = tag

    def tag(self, words: Sequence[str]) -> list[str]:
        return [self._tag] * len(words)

    def antonyms(self, word: str, part_of_speech: str | None) -> tuple[str, ...]:
        return (f"un-{part_of_speech}",)

    def inflect(self, word: str, tag: str) -> str | None:
        return f"{word}-{tag}"


class Tagged(Asked):
    """Words of a table have its tags, all others that of a present verb."""

    def __init__(self) -> None:
        super().__init__("VBP")

    def tag(self, words: Sequence[str]) -> list[str]:
        return [BETWEEN.get(word, self._tag) for word in words]

    def antonyms(self, word: str, part_of_speech: str | None) -> tuple[str, ...]:
        return () if word in BETWEEN else super().antonyms(word, part_of_speech)


def opposed(text: str, rule: str = "paper") -> str:
    strategy = Antonym(Tagged(), lambda words: True, rule)  # type: ignore[arg-type]  # a rule by its name
    (((after,),),) = strategy.perturb([((tuple(text.split()),),)], [0])
    return " ".join(after)


def changed(text: str, rule: str = "paper", known: frozenset[str] | None = None, seed: int = 0) -> str:
    strategy = Antonym(BUILT_IN, Resources(PerturbSettings(), known).may_enter, rule)  # type: ignore[arg-type]  # a rule by its name
    (((after,),),) = strategy.perturb([((tuple(text.split()),),)], [seed])
    return " ".join(after)


def asked(tag: str, rule: str) -> str:
    strategy = Antonym(Asked(tag), lambda words: True, rule)  # type: ignore[arg-type]  # a rule by its name
    (((after,),),) = strategy.perturb([((("word",),),)], [0])
    return after[0]


def test_the_paper_changes_verbs_adjectives_and_adverbs_and_keeps_their_forms() -> None:
    tags = ["VB", "VBP", "VBZ", "VBD", "JJ", "JJR", "RB", "NN", "NNS", "MD", "RP", "IN", "PRP", "WRB"]
    assert [asked(tag, "paper") for tag in tags] == [
        *("un-v", "un-v", "un-v-VBZ", "un-v-VBD", "un-a", "un-a-JJR", "un-r"),
        *["word"] * 7,
    ]


def test_the_released_rule_takes_every_part_of_speech_and_base_forms() -> None:
    tags = ["VB", "VBZ", "MD", "JJR", "RB", "WRB", "NNS", "RP", "IN", "PRP"]
    assert [asked(tag, "released") for tag in tags] == [
        *("un-v", "un-v", "un-v", "un-a", "un-r", "un-r", "un-n", "un-None", "un-None", "un-None")
    ]


def test_the_first_word_with_an_opposite_changes_and_no_other() -> None:
    assert changed("the day is here and the printer is loud .") == "the day is there and the printer is loud ."
    assert changed("the day is here and the printer is loud .", "released").startswith("the night is here and")


def test_the_form_of_the_word_is_kept() -> None:
    assert {changed("it opens", seed=seed) for seed in range(20)} == {"it closes", "it shuts"}
    assert {changed("it opens", "released", seed=seed) for seed in range(20)} == {"it close", "it shut"}
    assert changed("it is bigger") == "it is smaller"


def test_forms_of_be_never_change() -> None:
    for word in ("be", "am", "is", "are", "was", "were", "been"):
        for rule in ("paper", "released"):
            strategy = Antonym(Asked("VB"), lambda words: True, rule)  # type: ignore[arg-type]  # a rule by its name
            assert strategy.perturb([(((word,),),)], [0]) == [(((word,),),)]


def test_forms_of_do_change_only_as_released() -> None:
    for word in ("do", "does", "did", "doing", "done"):
        assert opposed(f"{word} you know") == f"{word} you un-v"
        assert opposed(f"{word} you know", "released") == "un-v you know"


@pytest.mark.parametrize("word", ["have", "has", "had", "having"])
def test_have_changes_but_before_a_verb(word: str) -> None:
    for auxiliary in ("tried", "n't tried", "you tried", "n't you tried", "it n't it tried"):
        assert opposed(f"{word} {auxiliary}") == f"{word} {auxiliary}"
        assert opposed(f"{word} {auxiliary}", "released") == f"un-v {auxiliary}"
    for own in ("", "it", "disk tried", ", tried", "to go"):
        assert opposed(f"{word} {own}".strip()) == f"un-v {own}".strip()


def test_other_verbs_change_before_a_verb() -> None:
    assert opposed("go n't tried") == "un-v n't tried"


def test_only_opposites_that_the_model_knows_are_drawn() -> None:
    known = frozenset({"shuts", "quiet"})
    assert {changed("it opens", known=known, seed=seed) for seed in range(20)} == {"it shuts"}
    assert changed("it opens and is loud", known=frozenset({"quiet"})) == "it opens and is quiet"


def test_opposites_are_drawn_alike() -> None:
    drawn = [changed("it opens", seed=seed) for seed in range(600)]
    assert 220 < drawn.count("it closes") < 380


@settings(max_examples=60, deadline=None)
@given(words=st.lists(st.sampled_from(WORDS), max_size=8).map(tuple), seed=st.integers(0, 2**40))
def test_one_word_at_most_changes(words: tuple[str, ...], seed: int) -> None:
    strategy = Antonym(BUILT_IN, lambda words: True)
    (((after,),),) = strategy.perturb([((words,),)], [seed])
    different = [place for place, (old, new) in enumerate(zip(words, after, strict=True)) if old != new]
    assert len(different) <= 1
    assert strategy.perturb([((words,),)], [seed]) == [((after,),)]
    if not different:
        assert after is words


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("NLTK_DATA"), reason="NLTK_DATA names no folder with NLTK's data")
def test_wordnet_neither_unmakes_auxiliaries_nor_makes_up_forms() -> None:
    strategy = Antonym(open_lexicon("nltk"), lambda words: True)
    said = ["what did you do ?", "it does n't , have you tried ?", "what happened here", "that sounds right", "i have a disk"]
    drawn = {
        " ".join(after)
        for line in said
        for seed in range(20)
        for (((after,),),) in [strategy.perturb([((tuple(line.split()),),)], [seed])]
    }
    assert {"what did you do ?", "it does n't , have you tried ?", "what happened there", "i lack a disk"} <= drawn
    assert not any(word in line.split() for line in drawn for word in ("unmaked", "unmake", "dematerialised", "devoices"))
