"""The two lexicons: tags, opposites, forms, stop words; and what is said when NLTK's data are not there."""

from __future__ import annotations

import os
from itertools import product

import nltk
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.tag import PerceptronTagger

from parley.engine.perturb.lexicon.built_in import BuiltInLexicon, open_lexicon
from parley.engine.perturb.lexicon.nltk_lexicon import MISREAD, NltkLexicon
from parley.engine.perturb.lexicon.opposites import Lexicon
from parley.engine.perturb.lexicon.tagger import Tagger
from parley.envs.core.errors import DataError
from parley.envs.corpora.pairs.helpdesk.dialogues import dialogue
from parley.envs.corpora.pairs.tokens import tokenise

needs_nltk = [
    pytest.mark.data,
    pytest.mark.skipif(not os.environ.get("NLTK_DATA"), reason="NLTK_DATA names no folder with NLTK's data"),
]
TAGS = ["DT", "JJ", "NN", "VB"]
WORDS = ["disk", "Disk", "full", "1999", "10.04", "re-boot", "-", "n't", "é", "the"]


@pytest.fixture(scope="module")
def built_in() -> BuiltInLexicon:
    return BuiltInLexicon()


@pytest.fixture(scope="module")
def full() -> NltkLexicon:
    return NltkLexicon()


def test_a_process_reads_the_tagger_once(full: NltkLexicon) -> None:
    assert full._tagger is NltkLexicon()._tagger


def made_up_perceptron(num_steps: int) -> PerceptronTagger:
    """NLTK's tagger with made-up weights: few different ones, so that scores often tie."""
    perceptron = PerceptronTagger(load=False)
    perceptron.classes = perceptron.model.classes = set(TAGS)
    perceptron.tagdict = {"the": "DT"}
    normal = [*(perceptron.normalize(word) for word in WORDS), *perceptron.START, *perceptron.END]
    before = [*TAGS, *perceptron.START]
    features = ["bias"]
    features += [f"i {part} {word[:1] if part == 'pref1' else word[-3:]}" for part in ("pref1", "suffix") for word in WORDS]
    features += [f"{place} word {word}" for place in ("i-2", "i-1", "i", "i+1", "i+2") for word in normal]
    features += [f"{place} suffix {word[-3:]}" for place in ("i-1", "i+1") for word in normal]
    features += [f"{place} tag {tag}" for place in ("i-1", "i-2") for tag in before]
    features += [f"i tag+i-2 tag {tag} {other}" for tag, other in product(before, before)]
    features += [f"i-1 tag+i word {tag} {word}" for tag, word in product(before, normal)]
    rng = np.random.default_rng(1)
    perceptron.model.weights = {
        feature: {tag: int(rng.integers(-num_steps, num_steps + 1)) / 1000 for tag in TAGS if rng.random() < 0.7}
        for feature in features
    }
    return perceptron


class TestTagger:
    @pytest.mark.parametrize("num_steps", [3, 3000])
    @settings(max_examples=60, deadline=None)
    @given(words=st.lists(st.sampled_from(WORDS), max_size=9))
    def test_tags_are_those_of_nltk(self, num_steps: int, words: list[str]) -> None:
        perceptron = made_up_perceptron(num_steps)
        assert Tagger(perceptron).tag([words])[0] == [tag for _, tag in perceptron.tag(words)]

    @pytest.mark.parametrize("num_steps", [3, 3000])
    @settings(max_examples=60, deadline=None)
    @given(utterances=st.lists(st.lists(st.sampled_from(WORDS), max_size=9), max_size=6))
    def test_utterances_do_not_touch_each_other(self, num_steps: int, utterances: list[list[str]]) -> None:
        perceptron = made_up_perceptron(num_steps)
        assert Tagger(perceptron).tag(utterances) == [[tag for _, tag in perceptron.tag(words)] for words in utterances]

    @pytest.mark.parametrize("num_steps", [3, 3000])
    @settings(max_examples=80, deadline=None)
    @given(data=st.data())
    def test_tags_are_confirmed_where_tagging_gives_just_these(self, num_steps: int, data: st.DataObject) -> None:
        tagger = Tagger(made_up_perceptron(num_steps))
        utterances = data.draw(st.lists(st.lists(st.sampled_from(WORDS), max_size=9), max_size=6))
        right = tagger.tag(utterances)
        known = [*made_up_perceptron(num_steps).classes, "no tag"]
        asked = [[data.draw(st.sampled_from([tag, tag, tag, None, *known])) for tag in tags] for tags in right]
        same = [all(given in (tag, None) for given, tag in zip(*each, strict=True)) for each in zip(asked, right, strict=True)]
        assert tagger.are_tags(utterances, asked) == same
        assert tagger.are_tags(utterances, right) == [True] * len(right)

    def test_more_words_than_the_table_began_with(self) -> None:
        perceptron = made_up_perceptron(3000)
        tagger = Tagger(perceptron)
        words = [f"{WORDS[number % len(WORDS)]}{number}" for number in range(1500)]
        for part in (words, words[::-1]):
            assert tagger.tag([part])[0] == [tag for _, tag in perceptron.tag(part)]


class TestBuiltInLexicon:
    @pytest.mark.parametrize(
        ("text", "tags"),
        [
            ("the printer does not work .", "DT NN VBZ RB VB ."),
            ("can you open the settings ?", "MD PRP VB DT NNS ."),
            ("i opened it and it is broken", "PRP VBD PRP CC PRP VBZ JJ"),
            ("open the file", "VB DT NN"),
            ("the open file", "DT JJ NN"),
            ("we print it, the print is blank", "PRP VBP PRP , DT NN VBZ JJ"),
            ("they have printed 10.04 pages", "PRP VBP VBN CD NNS"),
            ("it is printing", "PRP VBZ VBG"),
            ("it's the user's disk", "PRP VBZ DT NN POS NN"),
            ("do you know me ?", "VBP PRP VB PRP ."),
            ("frobnicating zzzness", "VBG NN"),
            ("i dont print, im new", "PRP VBP VB , PRP JJ"),
        ],
    )
    def test_plain_sentences_are_tagged_by_lists_and_neighbours(self, built_in: BuiltInLexicon, text: str, tags: str) -> None:
        assert built_in.tag(tokenise(text)) == tags.split()

    def test_every_word_of_the_help_desk_is_listed(self, built_in: BuiltInLexicon) -> None:
        said = {word for number in range(400) for utterance in dialogue(number) for word in tokenise(utterance)}
        assert {word for word in said if word not in built_in._possible and any(map(str.isalpha, word))} == set()

    @pytest.mark.parametrize(
        ("word", "tag", "form"),
        [
            ("installed", "VB", "install"),
            ("stop", "VBD", "stopped"),
            ("try", "VBZ", "tries"),
            ("tie", "VBG", None),
            ("die", "VBG", "dying"),
            ("make", "VBG", "making"),
            ("see", "VBG", "seeing"),
            ("write", "VBN", "written"),
            ("has", "VB", "have"),
            ("have", "VBZ", "has"),
            ("watch", "VBZ", "watches"),
            ("children", "NN", "child"),
            ("battery", "NNS", "batteries"),
            ("bigger", "JJS", "biggest"),
            ("zz9", "VB", None),
        ],
    )
    def test_forms(self, built_in: BuiltInLexicon, word: str, tag: str, form: str | None) -> None:
        assert built_in.inflect(word, tag) == form

    def test_opposites_hold_both_ways_and_for_every_form(self, built_in: BuiltInLexicon) -> None:
        pairs = (("install", "uninstall", "v"), ("old", "new", "a"), ("always", "never", "r"), ("day", "night", "n"))
        for word, other, kind in pairs:
            assert other in built_in.antonyms(word, kind)
            assert word in built_in.antonyms(other, kind)
        assert built_in.antonyms("opens", "v") == ("close",)
        assert built_in.antonyms("closed", "a") == ("open",)
        assert set(built_in.antonyms("open", None)) == {"close", "closed"}
        assert built_in.antonyms("open", "n") == ()
        assert built_in.opposites("open", "v") == ()

    def test_paraphrases_are_words_of_the_tokeniser(self, built_in: BuiltInLexicon) -> None:
        assert ("do", "n't") in built_in.paraphrases[("do", "not")]
        assert ("hello",) in built_in.paraphrases[("hi",)]
        assert all(tokenise(" ".join(phrase)) == [*phrase] for phrase in built_in.paraphrases)


class TestNltkLexicon:
    pytestmark = needs_nltk

    def test_tags_are_those_of_pos_tag(self, full: NltkLexicon) -> None:
        said = [tuple(tokenise(utterance)) for number in range(20) for utterance in dialogue(number)]
        said.append(tuple(tokenise("I've run apt-get in 2009, it doesn't see /dev/sda1 :( ... why?")))
        for words in said:
            read = full.newswire.restored(words)
            tags = [tag for _, tag in nltk.pos_tag(read.words)]
            if any(tags[place] in MISREAD for place in read.beginnings):
                tags = [tag for _, tag in nltk.pos_tag(read.plain)]
            assert full.tag(words) == [tags[place] for place in read.origins or range(len(words))]

    @pytest.mark.parametrize(
        ("text", "tags"),
        [
            ("can i help you ?", "MD PRP VB PRP ."),
            ("i like all the genres .", "PRP VBP PDT DT NNS ."),
            ("i liked it a lot .", "PRP VBD PRP DT NN ."),
            ("install the package", "VB DT NN"),
            ("im sure u dont know him", "PRP JJ PRP VBP VB PRP"),
            ("did you install it ?", "VBD PRP VB PRP ."),
            ("what is new in canada ?", "WP VBZ JJ IN NNP ."),
            ("hi there", "NN EX"),
        ],
    )
    def test_lower_case_text_is_tagged_as_newspapers_are(self, full: NltkLexicon, text: str, tags: str) -> None:
        words = tuple(text.split())
        assert full.tag(words) == tags.split()
        assert full.are_tags([words], [tags.split()]) == [True]
        assert full.are_tags([words], [["CC", *tags.split()[1:]]]) == [False]

    def test_names_are_words_that_name_one_thing_in_every_sense(self, full: NltkLexicon) -> None:
        asked = ["canada", "monday", "china", "mark", "gates", "drew", "tho", "may"]
        assert [word for word in asked if full.newswire.restored(["a", word]).words[1] != word] == ["canada", "monday"]

    def test_wordnet_opens_without_the_map_that_other_languages_need(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reader = "nltk.corpus.reader.wordnet.WordNetCorpusReader"
        monkeypatch.setattr(f"{reader}.map_to_one", lambda *_: pytest.fail("half of the seconds for nothing"))
        assert "large" in NltkLexicon().synonyms("big", "a")

    def test_opposites_are_first_ones_of_all_lemmas(self, full: NltkLexicon) -> None:
        assert full.antonyms("good", "a") == ("bad", "evil")
        assert full.antonyms("opens", "v") == ("close", "fold")
        assert full.antonyms("on", None) == ("off",)
        assert full.antonyms("install", None) == ()
        assert full.antonyms("trust", "v") == ("mistrust",), "not distrust, which is the second one of the same lemma"

    @pytest.mark.parametrize(
        ("word", "tag", "form"),
        [
            ("installed", "VB", "install"),
            ("was", "VB", "be"),
            ("grepped", "VB", "grep"),
            ("symlinks", "NN", "symlink"),
            ("unmake", "VBD", "unmade"),
            ("devoice", "VBZ", None),
            ("symlink", "NNS", None),
            ("close", "VBZ", "closes"),
            ("men", "NN", "man"),
            ("slow", "JJR", "slower"),
            ("useful", "JJR", None),
            ("<url>", "VB", None),
            ("the", "DT", None),
        ],
    )
    def test_forms(self, full: NltkLexicon, word: str, tag: str, form: str | None) -> None:
        assert full.inflect(word, tag) == form

    def test_stop_words_are_those_of_the_tokeniser(self, full: NltkLexicon) -> None:
        assert {"i", "the", "do", "n't", "'ve", "'s", "wo"} <= full.stopwords
        assert not {"don't", "you've", "could", "it's"} & full.stopwords

    def test_paraphrases_share_a_sense_and_are_no_stop_words(self, full: NltkLexicon) -> None:
        assert ("fix",) in full.paraphrases[("repair",)]
        assert ("repair",) in full.paraphrases[("fix",)]
        assert ("hassan",) not in full.paraphrases.get(("good",), ())
        assert not {(word,) for word in full.stopwords} & full.paraphrases.keys()


def test_missing_data_of_nltk_are_named_with_both_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nltk.data, "path", ["/nowhere"])
    with pytest.raises(DataError) as caught:
        open_lexicon("nltk")
    assert "averaged_perceptron_tagger_eng" in caught.value.what
    assert "/nowhere" in str(caught.value.where)
    assert "parley data get nltk" in str(caught.value.fix)
    assert "perturb.lexicon=built-in" in str(caught.value.fix)


def test_the_built_in_lexicon_needs_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nltk.data, "path", [])
    lexicon: Lexicon = open_lexicon("built-in")
    assert lexicon.tag(["hello"]) == ["UH"]


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("NLTK_DATA"), reason="NLTK_DATA names no folder with NLTK's data")
def test_a_word_has_no_form_without_letters(full: NltkLexicon) -> None:
    assert full.inflect("s", "NN") is None
    assert full.inflect("seconds", "NN") == "second"


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("NLTK_DATA"), reason="NLTK_DATA names no folder with NLTK's data")
def test_synonyms_are_single_words_of_the_first_sense_or_of_all(full: NltkLexicon) -> None:
    first, every = full.synonyms("need", "v"), full.synonyms("need", "v", every_sense=True)
    assert {"necessitate", "require"} <= set(first)
    assert set(first) < set(every)
    assert all(word.isalpha() and word.islower() and word != "need" for word in every)
    assert full.synonyms("paris", "n") == ()


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("NLTK_DATA"), reason="NLTK_DATA names no folder with NLTK's data")
def test_words_that_are_rather_names_have_no_synonyms(full: NltkLexicon) -> None:
    for name in ("john", "china", "turkey", "java", "jenny"):
        assert full.synonyms(name, "n") == full.synonyms(name, "n", every_sense=True) == ()
    assert full.synonyms("mark", "n"), "a name too, but rather a thing"


def test_the_built_in_lexicon_has_listed_synonyms(built_in: BuiltInLexicon) -> None:
    assert built_in.synonyms("big", "a") == ("large",)
    assert built_in.synonyms("zzyzx", "n") == ()
