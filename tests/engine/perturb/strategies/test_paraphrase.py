"""Data-level Paraphrase, and the files of paraphrases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.lexicon.opposites import read_paraphrases, two_way
from parley.engine.perturb.lexicon.phrasings import Synonyms, phrasings, synonyms
from parley.engine.perturb.strategies.paraphrase import DataParaphrase, ReleasedParaphrase, build
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.core.errors import DataError
from parley.envs.corpora.pairs.tokens import tokenise
from parley.envs.corpora.pairs.turns import Turns
from tests.engine.perturb.fakes import FakeLexicon, large

PPDB = """\
[VB] ||| mend ||| fix ||| PPDB2.0Score=4.2 ||| 0-0 ||| Equivalence
[VB] ||| take out ||| remove ||| PPDB2.0Score=3.9 ||| 0-0 1-0 ||| Equivalence
[NN] ||| disk ||| device ||| PPDB2.0Score=3.1 ||| 0-0 ||| ForwardEntailment
[NP] ||| the [NN,1] of ||| [NN,1] 's ||| PPDB2.0Score=3.0 ||| 0-1 1-0 ||| Equivalence
"""
WORDS = ["a", "b", "c", "d"]
phrases = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(tuple)
tables = st.lists(st.tuples(phrases, phrases), max_size=6).map(two_way)
utterances = st.lists(st.sampled_from(WORDS), max_size=8).map(tuple)


def said(*utterances: str) -> Turns:
    return (tuple(tuple(utterance.split()) for utterance in utterances),)


def table_of(pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    return two_way((tuple(left.split()), tuple(right.split())) for left, right in pairs)


def strategy(pairs: Sequence[tuple[str, str]], known: frozenset[str] | None = None, rate: float = 1.0) -> ReleasedParaphrase:
    return ReleasedParaphrase(table_of(pairs), Resources(PerturbSettings(), known).may_enter, rate)


def sound(
    pairs: Sequence[tuple[str, str]] = (), corpus: Sequence[str] = (), lexicon: object = None, **chosen: Any
) -> Callable[[str], set[str]]:
    """What the paper's rule may make of an utterance, over many seeds."""
    settings = PerturbSettings(lexicon="built-in", **chosen)
    resources = Resources(settings)
    resources.__dict__["lexicon"] = lexicon or FakeLexicon()
    if corpus:
        resources.__dict__["trigrams"] = large([tuple(line.split()) for line in corpus])
    table = table_of(pairs)
    phrases = {phrase: others for phrase, others in table.items() if len(phrase) > 1}
    made = DataParaphrase(Synonyms(table, resources.lexicon, resources.is_usual, {}), phrases, resources, settings)

    def versions(line: str) -> set[str]:
        turns = ((tuple(line.split()),),)
        return {" ".join(after[0][0]) for after in made.perturb([turns] * 60, range(60))}

    return versions


class TestReading:
    def test_of_ppdb_the_rule_decides_what_counts(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        path = tmp_path / "ppdb.txt"
        path.write_text(PPDB)
        every = read_paraphrases(path)
        assert every[("mend",)] == (("fix",),)
        assert every[("remove",)] == (("take", "out"),)
        assert every[("device",)] == (("disk",),)
        assert "left out 1 rules with gaps" in caplog.text
        assert read_paraphrases(path, equivalent=True).keys() == every.keys() - {("disk",), ("device",)}

    def test_ppdb_1_names_no_entailment(self, tmp_path: Path) -> None:
        path = tmp_path / "ppdb.txt"
        path.write_text("[VB] ||| mend ||| fix ||| p(e|f)=1 ||| 0-0\n")
        assert read_paraphrases(path, equivalent=True) == {("mend",): (("fix",),), ("fix",): (("mend",),)}

    def test_pairs_of_words_and_of_phrases(self, tmp_path: Path) -> None:
        path = tmp_path / "pairs.txt"
        path.write_text("mend fix \nfix mend \n\nmend repair \n")
        assert read_paraphrases(path)[("mend",)] == (("fix",), ("repair",))
        path.write_text("do not\tdon't\r\nTake out\tremove\n")
        assert read_paraphrases(path)[("do", "not")] == (("do", "n't"),)
        assert read_paraphrases(path)[("take", "out")] == (("remove",),)

    @pytest.mark.parametrize(
        ("content", "line", "got"),
        [
            ("a ||| b ||| c ||| d ||| e ||| f\na ||| b ||| c\n", 2, "a ||| b ||| c"),
            ("mend\tfix\nmend fix\n", 2, "mend fix"),
            ("mend\tfix\nmend\t \n", 2, "mend"),
            ("mend fix\n\none two three\n", 3, "one two three"),
        ],
    )
    def test_a_broken_line_is_named(self, tmp_path: Path, content: str, line: int, got: str) -> None:
        path = tmp_path / "pairs.txt"
        path.write_text(content)
        with pytest.raises(DataError) as caught:
            read_paraphrases(path)
        assert str(caught.value.where) == f"{path}:{line}"
        assert got in str(caught.value.got)

    def test_bytes_that_are_no_text_are_a_broken_line(self, tmp_path: Path) -> None:
        path = tmp_path / "pairs.txt"
        path.write_bytes(b"mend\tfix\nm\xffnd\tfix\n")
        with pytest.raises(DataError, match=r"pairs\.txt:2"):
            read_paraphrases(path)

    @pytest.mark.parametrize("content", ["", "[NN] ||| disk ||| device ||| s ||| 0-0 ||| Independent\n"])
    def test_a_file_of_which_nothing_is_left_is_an_error(self, tmp_path: Path, content: str) -> None:
        path = tmp_path / "pairs.txt"
        path.write_text(content)
        with pytest.raises(DataError, match="no paraphrase"):
            read_paraphrases(path, equivalent=True)

    def test_the_settings_name_file_and_rule(self, tmp_path: Path) -> None:
        path = tmp_path / "ppdb.txt"
        path.write_text(PPDB)
        for rule, word in (("paper", "device"), ("released", "disk")):
            chosen = PerturbSettings(paraphrases=path, rule=rule, lexicon="built-in")  # type: ignore[arg-type]  # a rule by its name
            assert build(chosen, Resources(chosen)).perturb([said("disk")], [1]) == [said(word)]

    def test_the_settings_say_the_rate(self, tmp_path: Path) -> None:
        path = tmp_path / "pairs.txt"
        path.write_text("disk\tdevice\n")
        for rate, share in ((1.0, 1.0), (0.5, 0.5)):
            chosen = PerturbSettings(paraphrases=path, paraphrase_rate=rate, rule="released")
            after = build(chosen, Resources(chosen)).perturb([said("disk")] * 1000, range(1000))
            assert after.count(said("device")) / 1000 == pytest.approx(share, abs=0.07)


class TestSound:
    """The paper's rule."""

    def test_a_synonym_has_part_of_speech_form_and_sense_of_its_word(self) -> None:
        pairs = [("disk", "drive"), ("disk", "record"), ("close", "shut"), ("old", "used")]
        assert sound(pairs)("old disks") == {"old drives"}
        assert sound(pairs)("it closes here") == {"it shuts here"}
        # "close" is tagged a noun, of which the lexicon knows no such sense.
        assert sound(pairs)("close") == {"close"}

    def test_forms_of_one_word_and_words_of_grammar_and_commands_stay(self) -> None:
        pairs = [("try", "trying"), ("no", "none"), ("have", "ha"), ("grep", "find"), ("disk", "diskette")]
        line = "no have grep disk try"
        assert sound(pairs)(line) == {line}

    def test_a_word_that_begins_with_another_sound_does_not_stand_behind_a_or_an(self) -> None:
        pairs = [("as soon as", "once"), ("small one", "other one")]
        assert sound(pairs)("a small one") == {"a small one"}
        assert sound(pairs)("the small one") == {"the other one"}

    def test_a_phrase_is_replaced_whole_and_its_words_are_not(self) -> None:
        pairs = [("the disk", "that thing"), ("disk", "drive")]
        assert sound(pairs)("open the disk") == {"open that thing"}

    def test_at_most_a_share_of_an_utterance_changes_and_one_word_may(self) -> None:
        pairs = [("disk", "drive")]
        line = "disk on the disk on the disk of you"
        assert all(found.split().count("drive") == 1 for found in sound(pairs, paraphrase_share=0.1)(line))
        assert {found.split().count("drive") for found in sound(pairs, paraphrase_share=1.0)(line)} == {3}
        assert not any("drive drive" in found for found in sound(pairs, paraphrase_share=1.0)("disk disk disk"))

    def test_the_corpus_judges_what_is_usual_and_fluent(self) -> None:
        pairs = [("disk", "drive")]
        known = ["the disk is full", "the drive is full", "my disk is old", "my drive is old"] * 3
        assert sound(pairs, known)("the disk is full") == {"the drive is full"}
        line = "a disk of flowers"
        assert sound(pairs, [*known, *[line] * 9])(line) == {line}
        assert sound(pairs, [*known, *[line] * 9], perplexity_ratio=1e9)(line) == {"a drive of flowers"}
        assert sound(pairs, ["the disk is full"] * 9)("the disk is full") == {"the disk is full"}

    def test_own_phrasings_are_sentences_as_good_as_before(self) -> None:
        chosen = PerturbSettings(lexicon="built-in", paraphrase_share=1.0)
        made = build(chosen, Resources(chosen, corpus="helpdesk"))
        made._resources.__dict__["trigrams"] = None
        for line, wanted in (
            ("i 'm not sure it works fine", "i 'm unsure it works well"),
            ("maybe it is quick", "perhaps it is fast"),
            ("once again thank you", "once again thank you"),
        ):
            after = {made.perturb([said(line)], [seed])[0] for seed in range(200)}
            assert said(wanted) in after, after

    def test_words_that_mean_too_much_alone_change_only_where_a_corpus_judges(self) -> None:
        chosen = PerturbSettings(lexicon="built-in")
        alone, judged = Resources(chosen), Resources(chosen, corpus="helpdesk")
        judged.__dict__["trigrams"] = large([("you", verb, "it") for verb in ("want", "wish")] * 3)
        text, other = said("you want it"), said("you wish it")
        assert build(chosen, alone).perturb([text] * 40, range(40)) == [text] * 40
        assert build(chosen, judged).perturb([text] * 40, range(40)) == [other] * 40

    @pytest.mark.parametrize(
        "line",
        [
            "hang it on the tree",
            "hang on",
            "she asked me",
            "we are employed by us",
            "you must be tired",
            "i like it more than you",
            "he will do it right now",
            "did you give up ? try this one",
        ],
    )
    def test_without_a_help_channel_only_what_says_the_same_anywhere_changes(self, line: str) -> None:
        chosen = PerturbSettings(lexicon="built-in", paraphrase_share=1.0)
        made = build(chosen, Resources(chosen))
        assert made.perturb([said(line)] * 30, range(30)) == [said(line)] * 30

    @pytest.mark.parametrize("corpus", ["", "dailydialog"])
    def test_lists_of_help_channels_serve_their_corpora_alone(self, corpus: str) -> None:
        chosen = PerturbSettings(lexicon="built-in")
        at_hand = Resources(chosen, corpus=corpus)
        at_hand.__dict__["trigrams"] = large([("you", verb, "it") for verb in ("hang", "freeze")] * 3)
        text = said("you hang it")
        assert build(chosen, at_hand).perturb([text] * 40, range(40)) == [text] * 40
        assert build(chosen, at_hand).perturb([said("maybe")], [1]) in ([said("maybe")], [said("perhaps")])

    @pytest.mark.parametrize("help_channel", [False, True])
    def test_listed_phrases_say_something_else_and_read_back(self, help_channel: bool) -> None:
        for phrase, others in phrasings(help_channel=help_channel).items():
            assert phrase not in others
            assert all(tokenise(" ".join(words)) == [*words] for words in (phrase, *others)), phrase

    @pytest.mark.parametrize("word", ["no", "not", "have", "be", "do", "can", "grep", "sudo"])
    def test_no_listed_synonym_is_a_word_of_grammar_or_a_command(self, word: str) -> None:
        assert all(word != known and word not in others for (known, _), others in synonyms(help_channel=True).items())


class TestReplacing:
    def test_starts_run_from_the_right_and_long_phrases_win(self) -> None:
        changed = strategy([("b c", "x"), ("c", "y"), ("a b", "z"), ("d e f", "w"), ("d e", "v")])
        # "c" is the rightmost start, so that "b c" comes too late; at "d" the longest phrase is taken.
        assert changed.perturb([said("a b c", "d e f", "d e")], [1]) == [said("z y", "w", "v")]

    def test_what_was_written_is_not_read_again(self) -> None:
        assert strategy([("b", "c d"), ("a c", "x")]).perturb([said("a b")], [1]) == [said("a c d")]

    def test_both_sides_must_be_known(self) -> None:
        pairs = [("a", "b"), ("a", "c c"), ("d", "b")]
        changed = strategy(pairs, frozenset("abc"))
        assert changed.perturb([said("a")] * 20, range(20)).count(said("c c")) in range(1, 20)
        assert changed.perturb([said("d")], [1]) == [said("d")]
        assert strategy(pairs, frozenset("ab")).perturb([said("a")] * 20, range(20)) == [said("b")] * 20

    def test_the_rate_is_the_share_that_is_replaced(self) -> None:
        words = " ".join(["a"] * 2000)
        ((((*after,),),),) = [[strategy([("a", "b")], rate=0.3).perturb([said(words)], [5])[0][0]]]
        assert 500 < after.count("b") < 700

    def test_no_phrase_affects_the_draws_of_another(self) -> None:
        context, pairs = said("a a d a d", "d d"), [("d", "e"), ("d", "f")]
        several, few = (
            strategy(more, rate=0.5).perturb([said("c"), *[context] * 99], range(100)) for more in ([("a", "b"), *pairs], pairs)
        )
        assert few == [tuple(tuple(tuple("a" if word == "b" else word for word in u) for u in t) for t in c) for c in several]

    @settings(max_examples=100, deadline=None)
    @given(table=tables, words=utterances, seed=st.integers(0, 2**40))
    def test_an_utterance_is_cut_into_words_that_stay_and_phrases_that_are_replaced(
        self, table: dict[tuple[str, ...], tuple[tuple[str, ...], ...]], words: tuple[str, ...], seed: int
    ) -> None:
        changed = ReleasedParaphrase(table, Resources(PerturbSettings()).may_enter)
        (((after,),),) = changed.perturb([((words,),)], [seed])
        assert after in rewritings(table, words)
        assert changed.perturb([((words,),)], [seed]) == [((after,),)]
        if not any(words[i:j] in table for i in range(len(words)) for j in range(i + 1, len(words) + 1)):
            assert after == words


def rewritings(table: dict[tuple[str, ...], tuple[tuple[str, ...], ...]], words: tuple[str, ...]) -> set[tuple[str, ...]]:
    """All that the rule can make of an utterance, by recursion from the right."""
    if not words:
        return {()}
    found: set[tuple[str, ...]] = set()
    _from_right(table, words, len(words) - 1, len(words), (), found)
    return found


def _from_right(table, words, start, free, right, found) -> None:  # type: ignore[no-untyped-def]
    if start < 0:
        found.add(words[:free] + right)
        return
    for end in range(free, start, -1):
        if words[start:end] in table:
            for other in table[words[start:end]]:
                _from_right(table, words, start - 1, start, other + words[end:free] + right, found)
            return
    _from_right(table, words, start - 1, free, right, found)
