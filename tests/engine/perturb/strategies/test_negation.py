"""Add Negation: one example for every rule."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.lexicon.built_in import BuiltInLexicon, open_lexicon
from parley.engine.perturb.lexicon.corrections import BREAKS, NEGATIONS
from parley.engine.perturb.lexicon.opposites import Lexicon
from parley.engine.perturb.strategies.negation import AddNegation, build
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.corpora.pairs.turns import Turns
from tests.engine.perturb.fakes import FakeLexicon

BUILT_IN = BuiltInLexicon()


class Tagged(FakeLexicon):
    """Tags are written behind the words' own: "know/VB" is the word "know"."""

    def __init__(self, tags: Mapping[str, str]) -> None:
        self._words = tags

    def tag(self, words: Sequence[str]) -> list[str]:
        return [self._words.get(word, "NN") for word in words]

    def inflect(self, word: str, tag: str) -> str | None:
        forms = {"knew": "know", "knows": "know", "put": "put", "installed": "install", "has": "have"}
        return (forms.get(word) or BUILT_IN.inflect(word, tag)) if tag == "VB" and word != "excellent" else None


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
        ("we put/VBD it and knew/VBD it", "we put it and did n't know it"),
        ("we frobbed/VBD it", "we frobbed it"),
        ("i am/VBP here", "i am not here"),
        ("you are/VBP here", "you are n't here"),
        ("you know/VBP it", "you do n't know it"),
        ("it is/VBZ here", "it is n't here"),
        ("she knows/VBZ it", "she does n't know it"),
        ("she has/VBZ it", "she does n't have it"),
        ("it frobs/VBZ it", "it frobs it"),
        ("it can/MD help", "it can help"),
        ("it can/MD know/VB it", "it can not know it"),
        ("i 'm/VBP here", "i 'm not here"),
        ("you 're/VBP here", "you 're not here"),
        ("it 's/VBZ here", "it 's not here"),
        ("i do/VBP n't/RB know/VB it", "i do n't not know it"),
        ("she is/VBZ here and knows/VBZ it", "she is n't here and knows it"),
        ("my file/NN and we file/VBP it", "my do n't file and we file it"),
    ],
)
def test_the_released_rule_asks_the_tag_of_the_verb_alone(text: str, after: str) -> None:
    assert negated(text, rule="released") == after


@pytest.mark.parametrize(
    ("text", "after"),
    [
        # The auxiliary or modal that is there.
        ("it is/VBZ broken", "it is n't broken"),
        ("i am/VBP new here", "i am not new here"),
        ("that was/VBD the/DT problem", "that was n't the problem"),
        ("you can/MD open/VB it", "you ca n't open it"),
        ("it will/MD work/VB", "it wo n't work"),
        ("it might/MD work/VB", "it might not work"),
        ("you should/MD probably/RB ask/VB", "you should probably not ask"),
        ("i 'm/VBP new here", "i 'm not new here"),
        ("i 'll/MD try/VB it", "i wo n't try it"),
        ("i 've/VBP tried/VBN it", "i have n't tried it"),
        ("i 'd/MD like/VB to/TO know/VB", "i would n't like to know"),
        ("it 's/VBZ the/DT driver", "it 's not the driver"),
        ("let/VB 's/POS open/VB it", "let 's not open it"),
        ("let/VB me check/VB it", "let me not check it"),
        ("i have/VBP tried/VBN it", "i have n't tried it"),
        ("i do/VBP have/VB it", "i do n't have it"),
        # Questions: those that are answered by yes or no stay, with or without their mark.
        ("did/VBD you install/VB it ?/.", "did you install it ?"),
        ("did/VBD you install/VB it", "did you install it"),
        ("is/VBZ the/DT disk full", "is the disk full"),
        ("does/VBZ ubuntu/NNP work/VB", "does ubuntu work"),
        ("you installed/VBD it ?/.", "you installed it ?"),
        ("is/VBZ it on or off ?/.", "is it on or off ?"),
        ("i have/VBP a/DT problem/NN ./. can/MD you help/VB ?/.", "i do n't have a problem . can you help ?"),
        ("i heard/VBD it ./. is/VBZ it fun ?/.", "i did n't hear it . is it fun ?"),
        ("do/VB this first", "do n't do this first"),
        ("here/RB it is/VBZ", "here it is"),
        ("do/VBP you know/VB it ?/.", "do you know it ?"),
        ("is/VBZ there/EX a/DT way ?/.", "is there a way ?"),
        ("can/MD it open/VB files ?/.", "can it open files ?"),
        ("did/VBD fresh/JJ installs/NNS", "did n't do fresh installs"),
        ("please do/VBP so there", "please do n't do so there"),
        ("have/VBP you tried/VBN it ?/.", "have you tried it ?"),
        ("am/VBP i late ?/.", "am i late ?"),
        ("how/WRB do/VBP i open/VB it ?/.", "how do i open it ?"),
        ("what/WP is/VBZ the error/NN ?/.", "what is the error ?"),
        ("what/WP 's/VBZ the error/NN ?/.", "what 's the error ?"),
        ("what/WP file/NN do/VBP you have/VB ?/.", "what file do you have ?"),
        ("why/WRB do/VBP i open/VB it ?/.", "why do n't i open it ?"),
        ("chen/NN does/VBZ that sound/VB familiar/JJ ?/.", "chen does that sound familiar ?"),
        ("my/PRP$ guess/NN is/VBZ it 's/VBZ broken/JJ", "my guess is it 's not broken"),
        ("the file/NN i think/VBP", "the file i think"),
        ("all/DT i get/VBP is/VBZ text/NN", "all i get is n't text"),
        ("the/DT best/JJS i can/MD do/VB is/VBZ offer/VB", "the best i can do is n't offer"),
        ("the/DT only/JJ one/CD i can/MD find/VB is/VBZ old/JJ", "the only one i can find is n't old"),
        ("everything/NN you know/VBP is/VBZ wrong/JJ", "everything you know is n't wrong"),
        ("why/WRB is/VBZ it slow ?/.", "why is n't it slow ?"),
        ("how/WRB to/TO open/VB it ?/.", "how not to open it ?"),
        # Full verbs by the right form of "do".
        ("i have/VBP a/DT problem", "i do n't have a problem"),
        ("he has/VBZ a/DT problem", "he does n't have a problem"),
        ("i had/VBD a/DT problem", "i did n't have a problem"),
        ("i did/VBD that yesterday", "i did n't do that yesterday"),
        ("i know/VBP that", "i do n't know that"),
        ("it works/VBZ", "it does n't work"),
        ("the/DT printer works/VBZ", "the printer does n't work"),
        ("i usually/RB need/VBP it", "i usually do n't need it"),
        ("it always/RB works/VBZ", "it does n't always work"),
        ("i installed/VBD it", "i did n't install it"),
        ("seems/VBZ to/TO work/VB", "does n't seem to work"),
        # Imperatives.
        ("try/VB rebooting/VBG", "do n't try rebooting"),
        ("please check/VB the/DT log", "please do n't check the log"),
        ("just/RB use/VB it", "just do n't use it"),
        ("ok ,/, open/VB the/DT log", "ok , do n't open the log"),
        ("trying/VBG to/TO log/VB in", "not trying to log in"),
        # A main clause before a subordinate one, and that alone where no main clause is safe.
        ("if it works/VBZ ,/, you can/MD stop/VB", "if it works , you ca n't stop"),
        ("when i boot/VBP i get/VBP an/DT error", "when i boot i do n't get an error"),
        ("i think/VBP it is/VBZ broken", "i do n't think it is broken"),
        ("the/DT driver i use/VBP is/VBZ broken", "the driver i use is n't broken"),
        ("i guess/VBP it is/VBZ broken", "i guess it is n't broken"),
        ("because it is/VBZ broken", "because it is n't broken"),
        # Another clause than the one with a negation.
        ("no ,/, it is/VBZ broken", "no , it is n't broken"),
        ("it does/VBZ n't/RB work/VB ,/, i tried/VBD it", "it does n't work , i did n't try it"),
    ],
)
def test_a_sentence_is_negated_as_people_do_it(text: str, after: str) -> None:
    assert negated(text) == after


@pytest.mark.parametrize(
    "text",
    [
        "it does/VBZ n't/RB work/VB",
        "i can/MD not/RB see/VB it",
        "i never/RB know/VBP that",
        "it works/VBZ without/IN it",
        "nothing works/VBZ",
        "i doubt/VBP it is/VBZ there",
        "i dont/VBP know/VB it",
        "ls - l",
        "sudo apt-get install/VB vim",
        "<path> - install/VB it",
        "broken printer",
        "everyone 's/POS help/NN",
        "what/WP do/VBP you mean/VB ?/.",
        "here is/VBZ it",
        "see/VB you",
        "there/RB you go/VBP",
        "there was/VBD //SYM is/VBZ",
        "i tried/VBD that too",
        "you had/VBD better/RBR open/VB it",
        "search/NN results/NNS",
        "log/NN files/NNS",
        "can/MD anyone help/VB me ?/.",
        "could/MD you send/VB it ?/.",
        "where/WRB is/VBZ the/DT log ?/.",
        "it is/VBZ gone ,/, is/VBZ n't/RB it ?/.",
        "until/IN it works/VBZ",
        "dhcp/NN clients/NNS can/MD send/VB or do/VBP n't/RB send/VB it",
        "i already/RB know/VBP it",
        "you 'd/MD better/RB know/VB it",
        "the excellent/VBD one",
    ],
)
def test_what_holds_a_negation_and_what_no_rule_fits_stay(text: str) -> None:
    words = " ".join(word.rpartition("/")[0] if "/" in word else word for word in text.split())
    assert negated(text) == words


@pytest.mark.parametrize(
    ("text", "known", "after"),
    [
        ("you need/VBP it", {"do", "n't", "not", "need"}, "you do n't need it"),
        ("you need/VBP it", {"do", "n't", "not"}, "you do n't need it"),
        ("you need/VBP it", {"do", "not"}, "you do not need it"),
        ("you need/VBP it", {"do"}, "you need it"),
        ("you need/VBP it", {"n't", "not"}, "you need it"),
        ("you knew/VBD it", {"did", "n't", "not"}, "you knew it"),
        ("you can/MD open/VB it", {"n't", "not"}, "you can open it"),
        ("you can/MD open/VB it", {"not"}, "you can not open it"),
        ("you will/MD open/VB it", {"not"}, "you will not open it"),
    ],
)
def test_what_enters_is_known_to_the_model(text: str, known: set[str], after: str) -> None:
    assert negated(text, frozenset(known)) == after


@cache
def nltk_lexicon() -> Lexicon:
    return open_lexicon("nltk")


WORDS = "i you it is was can ca do does did n't not no never have has know knows work works open try the a file if and , . ?"


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("NLTK_DATA"), reason="NLTK_DATA names no folder with NLTK's data")
@settings(max_examples=200, deadline=None)
@given(words=st.lists(st.sampled_from(WORDS.split()), max_size=12).map(tuple))
def test_a_clause_gets_no_second_negation_and_nothing_else_changes(words: tuple[str, ...]) -> None:
    (((after,),),) = AddNegation(nltk_lexicon(), lambda words: True).perturb([((words,),)], [0])
    if after == words:
        return
    assert sum(word in NEGATIONS for word in after) == sum(word in NEGATIONS for word in words) + 1
    clause: list[str] = []
    for word in (*after, "."):
        clause = [] if word in BREAKS else [*clause, word]
        assert sum(word in NEGATIONS for word in clause) <= max(1, sum(word in NEGATIONS for word in words))
    assert len(words) <= len(after) <= len(words) + 2


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
