"""Antonym: which word, which opposite, which form."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.lexicon.built_in import BuiltInLexicon, open_lexicon
from parley.engine.perturb.lexicon.tagger import NGrams
from parley.engine.perturb.strategies.antonym import Antonym
from parley.engine.perturb.strategy import PerturbSettings
from tests.engine.perturb.fakes import FakeLexicon

BUILT_IN = BuiltInLexicon()
WORDS = ["the", "a", "an", "printer", "opens", "open", "slower", "old", "new", "same", "add", "to", "is", "day", "never", "."]


class Asked(FakeLexicon):
    """Every word has one tag, and opposites for the parts of speech that it is asked with."""

    def __init__(self, tag: str) -> None:
        self._tag = tag

    def tag(self, words: Sequence[str]) -> list[str]:
        return [self._tag] * len(words)

    def antonyms(self, word: str, part_of_speech: str | None) -> tuple[str, ...]:
        return (f"un-{part_of_speech}",)

    def opposites(self, word: str, part_of_speech: str) -> tuple[str, ...]:
        return (f"un{part_of_speech}",)

    def inflect(self, word: str, tag: str) -> str | None:
        return word if tag == "VB" or not word.startswith("un") else f"{word}{tag}"


class Tagged(BuiltInLexicon):
    """Tags are written behind the words' own: "know/VB" is the word "know"."""

    def __init__(self, tags: Sequence[str]) -> None:
        super().__init__()
        self._written = tags

    def tag_all(self, utterances: Sequence[tuple[str, ...]]) -> list[list[str]]:
        return [[*self._written]]


def opposed(text: str, known: frozenset[str] | None = None, seed: int = 0) -> str:
    """What the paper's rule makes of words with their tags."""
    pairs = [word.rpartition("/") if "/" in word else (word, "", "NN") for word in text.split()]
    strategy = Antonym(Tagged([tag for _, _, tag in pairs]), Resources(PerturbSettings(), known).may_enter)
    (((after,),),) = strategy.perturb([((tuple(word for word, _, _ in pairs),),)], [seed])
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
    assert [asked(tag, "paper") for tag in tags] == [*("unv", "unv", "unvVBZ", "unvVBD", "una", "una", "unr"), *["word"] * 7]


def test_the_released_rule_takes_every_part_of_speech_and_base_forms() -> None:
    tags = ["VB", "VBZ", "MD", "JJR", "RB", "WRB", "NNS", "RP", "IN", "PRP"]
    assert [asked(tag, "released") for tag in tags] == [
        *("un-v", "un-v", "un-v", "un-a", "un-r", "un-r", "un-n", "un-None", "un-None", "un-None")
    ]


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("open/VB the/DT log", "close the log"),
        ("it opens/VBZ", "it closes"),
        ("i opened/VBD it", "i closed it"),
        ("the/DT old/JJ disk", "the new disk"),
        ("an/DT old/JJ disk", "a new disk"),
        ("a/DT new/JJ disk", "an old disk"),
        ("a/DT useful/JJ tool", "a useless tool"),
        ("it is/VBZ slower/JJR", "it is faster"),
        ("it is/VBZ possible/JJ", "it is impossible"),
        ("i am/VBP very/RB sure/JJ of/IN it", "i am very unsure of it"),
        ("it works/VBZ", "it fails"),
        ("i think/VBP it is/VBZ", "i doubt it is"),
        ("i never/RB use/VBP it", "i always use it"),
        ("add/VB it to/TO the/DT list", "remove it from the list"),
        ("connect/VB to/TO it", "disconnect from it"),
        ("the/DT same/JJ problem/NN", "a different problem"),
        ("the/DT same/JJ problems/NNS", "different problems"),
        ("a/DT different/JJ problem/NN", "the same problem"),
        ("too/RB many/JJ files/NNS", "too few files"),
    ],
)
def test_a_word_gets_the_opposite_of_its_usual_sense_and_the_sentence_agrees(text: str, after: str) -> None:
    assert opposed(text) == after


def test_the_first_opposite_that_the_corpus_finds_usual_is_taken() -> None:
    said = [tuple(line.split()) for line in ("open the old log", "read the new log", "the log is open", "close it now")] * 9
    words = ("open", "the", "old", "log")
    lexicon = Tagged(["VB", "DT", "JJ", "NN"])
    for most, after in ((1e9, ("close", "the", "old", "log")), (8.0, ("open", "the", "new", "log")), (1e-9, words)):
        made = Antonym(lexicon, Resources(PerturbSettings()).may_enter, fluency=(NGrams(said), most))
        assert made.perturb([((words,),)], [1]) == [((after,),)]


@pytest.mark.parametrize(
    "text",
    [
        "i know/VBP it",
        "get/VB a/DT disk",
        "i have/VBP a/DT disk",
        "have/VBP you tried/VBN",
        "what/WP did/VBD you do/VB",
        "run/VB it",
        "well/RB , hello",
        "good/JJ morning/NN",
        "look/VB here/RB",
        "set/VB up/RP the/DT disk",
        "it opens/VBZ up/RP",
        "all right/JJ",
        "right/RB now/RB",
        "at least/JJS",
        "last/JJ night/NN",
        "the/DT hard/JJ drive/NN",
        "the/DT full/JJ path/NN",
        "make/VB sure/JJ",
        "i 'm/VBP new/JJ to/TO linux/NN",
        "works/VBZ fine/RB",
        "i work/VBP on/IN it",
        "at/IN the/DT same/JJ time/NN",
        "i think/VBP so/RB",
        "we think/VBP ,/,",
        "a/DT few/JJ files/NNS",
        "how/WRB many/JJ files/NNS",
        "apt-get install/VB - y",
        "enable/VB or/CC disable/VB",
        "opens/VB it",
        "i think/VBP",
        "we think/VBP .",
        "the/DT manual/JJ is/VBZ",
        "different/JJ options/NNS than/IN it",
        "apt-get remove/VB it",
        "better/RBR tell/VB us",
        "i lost/VBN myself",
        "many/JJ thanks/NNS",
        "iam working/VBG here",
        "i go/VBP to/TO work/VB",
        "10.04/JJ",
        "would/MD you like/VB it",
        "it sells/VBZ well/RB",
        "get/VB a/DT good/JJ look/NN",
    ],
)
def test_what_has_no_opposite_in_this_sense_stays(text: str) -> None:
    assert opposed(text) == " ".join(word.rpartition("/")[0] if "/" in word else word for word in text.split())


def test_the_first_word_with_an_opposite_changes_and_no_other() -> None:
    assert changed("the day is wet and the printer is loud .") == "the day is dry and the printer is loud ."
    assert changed("the day is wet and the printer is loud .", "released").startswith("the night is wet and")


def test_forms_of_be_never_change() -> None:
    for word in ("be", "am", "is", "are", "was", "were", "been"):
        for rule in ("paper", "released"):
            strategy = Antonym(Asked("VB"), lambda words: True, rule)
            assert strategy.perturb([(((word,),),)], [0]) == [(((word,),),)]


def test_only_opposites_that_the_model_knows_are_drawn() -> None:
    assert {opposed("install/VB it", frozenset({"remove"}), seed) for seed in range(20)} == {"remove it"}
    assert opposed("open/VB and/CC old/JJ disk", frozenset({"new"})) == "open and new disk"
    assert opposed("an/DT old/JJ disk", frozenset({"new"})) == "an old disk"


def test_opposites_are_drawn_alike() -> None:
    drawn = [opposed("install/VB it", seed=seed) for seed in range(300)]
    assert 100 < drawn.count("remove it") < 200
    assert drawn.count("remove it") + drawn.count("uninstall it") == 300


def test_a_lexicon_is_asked_for_usual_words_alone() -> None:
    for usual, after in ((None, "una"), ({"word", "una"}, "una"), ({"word"}, "word"), ({"una"}, "word")):
        strategy = Antonym(Asked("JJ"), lambda words: True, usual=usual)
        assert strategy.perturb([((("word",),),)], [0]) == [(((after,),),)]


@settings(max_examples=60, deadline=None)
@given(words=st.lists(st.sampled_from(WORDS), max_size=8).map(tuple), seed=st.integers(0, 2**40))
def test_one_phrase_at_most_changes(words: tuple[str, ...], seed: int) -> None:
    (((after,),),) = Antonym(BUILT_IN, lambda words: True).perturb([((words,),)], [seed])
    if after == words:
        return
    start = next(place for place, (old, new) in enumerate(zip(words, after, strict=False)) if old != new)
    end = next(back for back in range(1, len(words) + 1) if back == len(words) or words[-back] != after[-back])
    assert len(words) - end - start < 8
    assert abs(len(after) - len(words)) <= 1


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("NLTK_DATA"), reason="NLTK_DATA names no folder with NLTK's data")
def test_wordnet_gives_the_opposite_of_the_first_sense_where_both_are_usual() -> None:
    lexicon = open_lexicon("nltk")
    assert lexicon.opposites("visible", "a") == ("invisible",)
    assert lexicon.opposites("specific", "a") == ("general",)
    for word, kind in (("sorry", "a"), ("install", "v"), ("frobnicate", "v"), ("get", "v"), ("know", "v"), ("certain", "a")):
        assert lexicon.opposites(word, kind) == ()


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("NLTK_DATA"), reason="NLTK_DATA names no folder with NLTK's data")
def test_wordnet_neither_unmakes_auxiliaries_nor_makes_up_forms() -> None:
    strategy = Antonym(open_lexicon("nltk"), lambda words: True)
    said = ["what did you do ?", "it does n't , have you tried ?", "what happened here", "that sounds right", "i have a disk"]
    for line in said:
        for seed in range(20):
            assert strategy.perturb([((tuple(line.split()),),)], [seed]) == [((tuple(line.split()),),)]
