"""RSW: which words have synonyms, and in which form they enter."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.lexicon.nltk_lexicon import NltkLexicon
from parley.engine.perturb.replies.language import English
from parley.engine.perturb.replies.settings import CAREFUL, PLAIN, ReplySettings
from parley.engine.perturb.replies.shapes import RuleResources, Synonymous
from parley.engine.perturb.strategy import PerturbSettings
from parley.engine.ranking.verbs.config import RankingConfig
from parley.envs.core.config import as_now, from_dict, to_dict
from parley.envs.core.errors import ConfigError
from tests.engine.perturb.replies.groups import built_in, group

LANGUAGE = RuleResources(ReplySettings(), Resources(PerturbSettings(lexicon="built-in"))).language
needs_nltk = [
    pytest.mark.data,
    pytest.mark.skipif(not os.environ.get("NLTK_DATA"), reason="NLTK_DATA names no folder with NLTK's data"),
]


def reply(rule: Any, text: str, seed: int = 1) -> str:
    (found,) = rule.apply([group("a b", f"+{text}", "x")], [seed])
    return " ".join(found.group.candidates[0])


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("it begins quickly", "it starts quickly"),
        ("a big picture", "a large image"),
        ("an error , a mistake , the error", "an error , a fault , the mistake"),
        ("the is of you", "the is of you"),
        ("", ""),
    ],
)
def test_synonyms_stand_in_the_form_of_the_word(text: str, after: str) -> None:
    (rule,) = built_in("rsw", ReplySettings(rule="careful"))
    assert reply(rule, text) == after


def test_any_synonym_is_drawn() -> None:
    drawn = Synonymous(ReplySettings(), LANGUAGE, replace(CAREFUL, synonym="random"))
    assert {reply(drawn, "i fix it", seed) for seed in range(40)} == {"i repair it", "i solve it", "i resolve it"}


def test_the_base_form_enters_as_an_option() -> None:
    rule = Synonymous(ReplySettings(), LANGUAGE, replace(CAREFUL, form="base"))
    assert reply(rule, "it begins quickly") == "it start quickly"


def synonyms(english: English, word: str, tag: str, **settings: Any) -> tuple[str, ...]:
    (found,) = english.synonyms([(word, tag)], replace(CAREFUL, **settings))
    return found


def test_the_paper_s_rule_is_the_default() -> None:
    assert ReplySettings().synonym_choice == PLAIN
    assert ReplySettings(rule="careful").synonym_choice == CAREFUL


def test_a_stored_run_reads_unless_it_changed_a_part_of_the_rule() -> None:
    stored = to_dict(RankingConfig())
    assert len(ReplySettings.constants) == 8 + 8
    stored["replies"] |= dict.fromkeys(("sense", "synonym", "form", "same_class", "tagged_alone", "usual", "known_names"))
    assert from_dict(RankingConfig, stored) == RankingConfig()
    assert as_now(RankingConfig, stored) == to_dict(RankingConfig())
    stored["replies"]["usual"] = True
    with pytest.raises(ConfigError, match=r"replies\.usual is no setting any more"):
        as_now(RankingConfig, stored)


@pytest.fixture(scope="module")
def english() -> English:
    return English(NltkLexicon())


class TestWordNet:
    """With NLTK's data."""

    pytestmark = needs_nltk

    def test_the_sense_is_shared_first_or_any(self, english: English) -> None:
        shared, first, every = (synonyms(english, "remembered", "VBD", sense=sense) for sense in ("shared", "first", "any"))
        assert "recalled" in shared
        assert set(shared) < set(first) < set(every)
        assert "remembered" not in every

    def test_synonyms_of_another_part_of_speech_do_not_enter(self, english: English) -> None:
        assert "good" not in synonyms(english, "well", "RB", sense="any")
        assert "good" in synonyms(english, "well", "RB", sense="any", tagged_alone=False)
        assert synonyms(english, "maybe", "RB", sense="shared")[:1] == ("possibly",)

    @pytest.mark.parametrize(
        "text",
        [
            "could you please tell me",
            "i am going to go ahead",
            "you need to ask someone else",
            "thanks for the help",
            "there is nothing i know",
            "no worries , one thing first",
        ],
    )
    def test_words_that_are_mostly_function_words_stay_unless_any_word_may_go(self, english: English, text: str) -> None:
        careful = Synonymous(ReplySettings(rule="careful"), english)
        assert reply(careful, text) == text
        assert any(reply(Synonymous(ReplySettings(), english), text, seed) != text for seed in range(5))

    def test_no_function_word_enters_for_a_content_word(self, english: English) -> None:
        assert not set(synonyms(english, "require", "VB", sense="any")) & {"need", "want", "ask", "take"}

    def test_names_stay(self, english: English) -> None:
        rule = Synonymous(ReplySettings(), english, replace(CAREFUL, sense="any"))
        text = "sudo apt-get install wine , grub on http paris"
        assert reply(rule, text) == text

    def test_the_paper_replaces_any_word_by_any_lemma(self, english: English) -> None:
        rule = Synonymous(ReplySettings(), english)
        found = {reply(rule, "i am happy to help you in canada", seed) for seed in range(40)}
        assert {"i am glad to assist you in canada", "i am felicitous to service you in canada"} <= found
        assert "i am happy to help you in canada" not in found

    def test_paper_lemmas_have_no_form_and_any_part_of_speech(self, english: English) -> None:
        (found,) = english.synonyms([("needed", "VBD")], PLAIN)
        assert {"require", "want", "involve"} <= set(found)
        assert not {"needed", "required"} & set(found)

    def test_words_that_a_corpus_does_not_say_do_not_enter(self) -> None:
        english = English(NltkLexicon(), {"begin"}.__contains__)
        assert synonyms(english, "start", "VBP", sense="any") == ("begin",)
        assert "commence" in synonyms(english, "start", "VBP", sense="any", usual=False)
