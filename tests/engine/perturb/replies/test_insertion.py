"""IIW: which words of the context enter, where, and by which weight."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from parley.engine.perturb.lexicon.built_in import BuiltInLexicon
from parley.engine.perturb.replies.insertion import ImportantWords
from parley.engine.perturb.replies.language import English, TermCounts
from parley.envs.ranking.groups import CandidateGroup
from tests.engine.perturb.replies.groups import built_in, group
from tests.engine.perturb.replies.test_rules import batches

ENGLISH = English(BuiltInLexicon())
COUNTS = TermCounts.of(
    [
        (("the", "disk", "disk", "disk"), ("machine", "machine")),
        (("the", "machine", "is", "old"),),
        (("the", "system", "disk", "is", "new"),),
        (
            (
                "the",
                "house",
            ),
        ),
    ]
)


def made(counts: TermCounts | None = COUNTS, num_important: int = 3) -> ImportantWords:
    return ImportantWords(num_important, ENGLISH, counts)


def replies(rule: ImportantWords, written: CandidateGroup, seed: int = 0) -> list[str]:
    (found,) = rule.apply([written], [seed])
    return [" ".join(words) for words in found.group.candidates]


def test_weights_are_those_of_equations_4_and_5() -> None:
    assert COUNTS.term["disk"] == 4
    assert COUNTS.idf("disk") == math.log(4 / 2)
    assert COUNTS.idf("the") == 0
    assert COUNTS.idf("never") == math.log(4)


def test_words_of_a_context_enter_by_weight_at_words_of_their_tag() -> None:
    # disk 4 log 2, machine 3 log 2, old log 4, system log 4; the nouns of the reply are taken from the left.
    written = group("the old system|the machine has a disk", "+no", "you open the new file on the house and the picture")
    assert replies(made(), written)[1] == "you open the old disk on the machine and the picture"
    assert replies(made(num_important=9), written)[1] == "you open the old disk on the machine and the system"
    assert replies(made(num_important=1), written)[1] == "you open the new disk on the house and the picture"


def test_an_article_stays_right() -> None:
    written = group("the old error", "+no", "a new file , the small disk", "an easy one")
    assert replies(made(), written)[1:] == ["a new error , the old disk", "an old one"]


def test_a_word_without_a_place_makes_room_for_the_next() -> None:
    written = group("the disk is old", "+no", "it is new")
    assert replies(made(num_important=1), written)[1] == "it is old"


def test_a_word_that_the_reply_has_brings_nothing() -> None:
    written = group("the disk and the machine", "+no", "the disk and the file")
    assert replies(made(num_important=1), written)[1] == "the machine and the file"


def test_tags_are_the_same() -> None:
    written = group("the disk", "+no", "the files are here")
    assert replies(made(), written)[1] == "the files are here"


def test_stop_words_neither_enter_nor_leave() -> None:
    written = group("she", "+no", "you know")
    assert replies(made(), written)[1] == "you know"


def test_in_training_as_many_words_are_drawn_as_nine_words_of_the_context_go_into_it() -> None:
    context = "the disk , the machine , the system , the house , the file , the error , the screen , the phone"
    assert len(context.split()) == 23
    written = group(context, "+no", "a picture , a window , a problem , a question")
    (rule,) = (made(None),)
    found = [rule.apply([written], [seed])[0] for seed in range(20)]
    assert {each.changed for each in found} == {(0, 2)}
    assert len({each.group.candidates for each in found}) > 5
    short = group("the disk", "+no", "a picture , a window")
    assert rule.apply([short], [1])[0].changed == (0, 1)


def test_the_share_of_the_context_that_enters_in_training_is_a_setting() -> None:
    context = "the disk , the machine , the system , the house , the file , the error , the screen , the phone"
    written = group(context, "+no", "a picture , a window , a problem , a question")
    for num in (1, 3):
        assert ImportantWords(3, ENGLISH, None, context_share=num / 23).apply([written], [0])[0].changed == (0, num)


@given(batches)
def test_what_enters_is_a_word_of_the_context_with_a_tag_that_it_has_there(batch: list[tuple[CandidateGroup, int]]) -> None:
    for rule in built_in("iiw,iiw-training"):
        for (before, _), after in zip(batch, rule.apply(*map(list, zip(*batch, strict=True))) if batch else [], strict=True):
            there = {(word, tag) for turn in before.context for word, tag in zip(turn, ENGLISH.tag_all([turn])[0], strict=True)}
            for words, others, num in zip(before.candidates, after.group.candidates, after.changed, strict=True):
                assert len(words) == len(others)
                places = [place for place, word in enumerate(words) if others[place] != word]
                assert len(places) == num
                assert num <= 3 or rule.name == "iiw-training"
                tags = ENGLISH.tag_all([words])[0]
                assert {(others[place], tags[place]) for place in places} <= there
                assert all(others[place] not in words for place in places)


@given(st.integers(0, 100))
def test_counts_do_not_depend_on_when_a_rule_is_asked(seed: int) -> None:
    written = group("the old system|the machine has a disk", "+no", "you open a new file")
    rule = made()
    assert replies(rule, written, seed) == replies(rule, written, seed) == replies(made(), written, seed)
