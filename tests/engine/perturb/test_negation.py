"""Add Negation: one example for every rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from engine.perturb.built_in import BuiltInLexicon
from engine.perturb.negation import AddNegation, build
from engine.perturb.resources import Resources
from engine.perturb.settings import PerturbSettings
from envs.pairs.turns import Turns
from tests.engine.perturb.fakes import FakeLexicon


class Tagged(FakeLexicon):
    """Tags are written behind the words' own: "know/VB" is the word "know"."""

    def __init__(self, tags: Mapping[str, str]) -> None:
        self._words = tags

    def tag(self, words: Sequence[str]) -> list[str]:
        return [self._words.get(word, "NN") for word in words]

    def inflect(self, word: str, tag: str) -> str | None:
        forms = {"knew": "know", "knows": "know", "put": "put", "installed": "install", "has": "have"}
        return forms.get(word) if tag == "VB" else None


def negated(text: str, known: frozenset[str] | None = None, rule: str = "paper") -> str:
    pairs = [word.rpartition("/") if "/" in word else (word, "", "NN") for word in text.split()]
    lexicon = Tagged({word: tag for word, _, tag in pairs})
    words = tuple(word for word, _, _ in pairs)
    strategy = AddNegation(lexicon, Resources(PerturbSettings(), known).may_enter, rule)  # type: ignore[arg-type]  # a rule by its name
    (((after,),),) = strategy.perturb([((words,),)], [0])
    return " ".join(after)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("to know/VB it", "to not know it"),
        ("knowing/VBG it", "not knowing it"),
        ("known/VBN there", "not known there"),
        ("it was/VBD there", "it was n't there"),
        ("we were/VBD there", "we were n't there"),
        ("we knew/VBD it", "we did n't know it"),
        ("we put/VBD it", "we put it"),
        ("we frobbed/VBD it", "we frobbed it"),
        ("i am/VBP here", "i am not here"),
        ("you are/VBP here", "you are n't here"),
        ("you know/VBP it", "you do n't know it"),
        ("it is/VBZ here", "it is n't here"),
        ("she knows/VBZ it", "she does n't know it"),
        ("she has/VBZ it", "she does n't have it"),
        ("it frobs/VBZ it", "it frobs it"),
        ("it can/MD help", "it can help"),
        ("i 'm/VBP here", "i 'm not here"),
        ("you 're/VBP here", "you 're not here"),
        ("it 's/VBZ here", "it 's not here"),
    ],
)
def test_the_tag_of_the_verb_decides(text: str, after: str) -> None:
    assert negated(text) == after


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("we put/VBD it and knew/VBD it", "we put it and did n't know it"),
        ("it can/MD know/VB it", "it can not know it"),
        ("i do/VBP n't/RB know/VB it", "i do n't not know it"),
        ("she is/VBZ here and knows/VBZ it", "she is n't here and knows it"),
    ],
)
def test_the_first_verb_that_a_rule_fits_and_no_other(text: str, after: str) -> None:
    assert negated(text) == after


@pytest.mark.parametrize(
    ("known", "after"),
    [
        ({"do", "n't", "not", "know"}, "you do n't know it"),
        ({"do", "not", "know"}, "you do not know it"),
        ({"do", "n't", "not"}, "you know it"),
        ({"n't", "not", "know"}, "you know it"),
        ({"do", "know"}, "you know it"),
    ],
)
def test_what_enters_is_known_to_the_model(known: set[str], after: str) -> None:
    assert negated("you know/VBP it", frozenset(known)) == after


def test_a_verb_that_stays_need_not_be_known() -> None:
    assert negated("to frob/VB it", frozenset({"not"})) == "to not frob it"


def test_the_released_rule_changes_the_first_occurrence_of_the_word() -> None:
    words = ("my", "file", "and", "we", "file", "it")

    class Once(Tagged):
        def tag(self, words: Sequence[str]) -> list[str]:
            return ["PRP$", "NN", "CC", "PRP", "VBP", "PRP"]

    for rule, after in (("paper", "my file and we do n't file it"), ("released", "my do n't file and we file it")):
        strategy = AddNegation(Once({}), lambda words: True, rule)  # type: ignore[arg-type]  # a rule by its name
        assert strategy.perturb([((words,),)], [0]) == [((tuple(after.split()),),)]


def test_every_utterance_on_its_own_and_boundaries_stay() -> None:
    context: Turns = ((("it", "works"), (), ("hello",)), (("i", "know"),))
    strategy = build(PerturbSettings(lexicon="built-in"), Resources(PerturbSettings(lexicon="built-in")))
    assert isinstance(strategy.lexicon, BuiltInLexicon)
    assert strategy.perturb([context], [0]) == [
        ((("it", "does", "n't", "work"), (), ("hello",)), (("i", "do", "n't", "know"),))
    ]


def test_an_utterance_without_a_verb_comes_back_itself() -> None:
    words = ("hello", "there")
    (((after,),),) = AddNegation(Tagged({}), lambda words: True).perturb([((words,),)], [0])
    assert after is words
