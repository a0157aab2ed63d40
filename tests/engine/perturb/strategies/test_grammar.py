"""Grammar Errors, and the table that is built from corrected sentences."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.lexicon import corrections as slips
from parley.engine.perturb.lexicon.corrections import (
    Corrections,
    open_corrections,
    read_corrections,
    read_misspellings,
    replaced_words,
)
from parley.engine.perturb.strategies.grammar import WEIGHTS, ErrorKind, GrammarErrors
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.core.errors import DataError

DATA = os.environ.get("PARLEY_DATA")

NOTHING = Corrections({}, {})


def made(
    rate: float = 1.0, words: frozenset[str] | None = None, corrections: Corrections = NOTHING, lexicon: str = "built-in"
) -> GrammarErrors:
    chosen = PerturbSettings(lexicon=lexicon)  # type: ignore[arg-type]  # one of two names
    return GrammarErrors(corrections, Resources(chosen, words), rate)


def versions(line: str, strategy: GrammarErrors, num: int = 400) -> Counter[str]:
    """What becomes of an utterance, over many seeds."""
    turns = ((tuple(line.split()),),)
    return Counter(" ".join(after[0][0]) for after in strategy.perturb([turns] * num, range(num)))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("it works", "it work"),
        ("i am installing it", "i am install it"),
        ("the file was opened", "the file was open"),
        ("he closed it", "he close it"),
        ("many files", "many file"),
        ("two old files", "two old file"),
        ("it has a name", "it have a name"),
        ("you are here", "you is here"),
        ("open the folder", "open folder"),
        ("the file in the folder", "the file on the folder"),
        ("use your files", "use you 're files"),
        ("i do n't know", "i dont know"),
        ("you could have asked", "you could of asked"),
        ("because of it", "becuase of it"),
    ],
)
def test_errors_are_those_that_people_make(right: str, wrong: str) -> None:
    assert wrong in versions(right, made(0.4), 3000)


@pytest.mark.parametrize(
    ("line", "never"),
    [
        ("i closed it", "i close it"),  # a sentence of the present, and no error
        ("the files", "the file"),
        ("it is here", "it be here"),
        ("a few files", "few files"),
        ("a lot of files", "lot of files"),
        ("look at the file", "look in the file"),  # the verb's meaning hangs on its preposition
        ("is it here", "are it here"),
    ],
)
def test_what_says_something_else_or_is_no_error_is_left_alone(line: str, never: str) -> None:
    assert never not in versions(line, made())


def test_no_error_reaches_into_another() -> None:
    # "could have" is one error, "have" alone another.
    assert all("of" not in line.split() or "have" not in line.split() for line in versions("we could have it", made()))


def test_only_known_words_enter() -> None:
    known = frozenset(["it", "works", "here", "because", "of", "the", "file"])
    assert set(versions("it works because of the file", made(words=known))) <= {
        "it works because of the file",
        "it works because of file",
    }


def test_the_rate_and_the_weight_say_how_many_words_change() -> None:
    found = versions("open the folder", made(rate=0.25, words=frozenset({"open", "the", "folder"})), 2000)
    assert found["open folder"] == pytest.approx(2000 * 0.25 * WEIGHTS[ErrorKind.ARTICLE], abs=90)


def test_what_a_corpus_shows_oftener_is_oftener_written() -> None:
    shown = Corrections({"in": {"at": 47}}, {})
    known = frozenset(["the", "file", "in", "on", "at", "folder"])
    found = versions("the file in the folder", made(words=known, corrections=shown), 3000)
    written = Counter(word for line, times in found.items() for word in [line.split()[-3]] * times if word in ("on", "at"))
    # The list knows both, "on" as half of what is written: 1 + 0 against 1 + 47 sentences.
    assert written["at"] > 20 * max(1, written["on"])


def test_a_dictionary_of_misspellings_is_used_for_long_words_that_keep_their_first_letter() -> None:
    known = Corrections({}, {"folder": ("foldr", "olderf"), "the": ("hte", "t"), "open": ("opne",)})
    written = {word for line in versions("open the folder", made(corrections=known)) for word in line.split()}
    assert {"foldr"} <= written
    assert not written & {"olderf", "hte", "t"}


def test_commands_are_spelt_right() -> None:
    known = Corrections({}, {"grep": ("gerp",)})
    assert set(versions("grep", made(corrections=known))) == {"grep"}


def test_an_error_is_a_word_that_alone_stands_for_another() -> None:
    right, wrong = (tuple(line.split()) for line in ("he goes to the shop in 2 days .", "he go to a big shop on 3 days ."))
    assert list(replaced_words(right, wrong)) == [("goes", "go")]


def test_a_replacement_counts_by_its_sentences_and_from_the_second_on(tmp_path: Path) -> None:
    (tmp_path / "x.src").write_text("He go home .\nShe go there .\nThis are it .\n")
    (tmp_path / "x.ref0").write_text("He goes home .\nShe goes there .\nThis is it .\n")
    (tmp_path / "x.ref1").write_text("He goes home .\nShe went there .\nThis is it .\n")
    (tmp_path / "x.other.src").write_text("another version\n")
    # "is" stands for "are" in two references of one sentence.
    assert read_corrections(tmp_path) == ({"goes": {"go": 2}}, {})


def test_a_file_of_wrong_and_right_sentences_is_read(tmp_path: Path) -> None:
    path = tmp_path / "errors.tsv"
    path.write_text("she have it\tshe has it\nhe have it\the has it\nshe had it\tshe has it\n")
    assert read_corrections(path).replaced == {"has": {"have": 2}}


def test_a_dictionary_beside_them_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.src").write_text("a\n")
    (tmp_path / "x.ref0").write_text("b\n")
    (tmp_path / "codespell_dictionary.txt").write_text("abuot->about\nabotu->about\nform->from, form, a word too\n1nd->1st\n")
    assert read_corrections(tmp_path).misspelt == {"about": ("abuot", "abotu")}


def test_a_broken_line_of_the_dictionary_is_named(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("abuot->about\n\nabotu about\n")
    with pytest.raises(DataError, match=r"words\.txt:3"):
        read_misspellings(path)


@pytest.mark.parametrize("content", [b"no tab\n", b"one\ttwo\tthree\n", b"caf\xe9\tcafe\n"])
def test_a_broken_line_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "errors.tsv"
    path.write_bytes(b"she have it\tshe has it\n" + content)
    with pytest.raises(DataError, match=r"errors\.tsv:2"):
        read_corrections(path)


def test_files_of_unequal_length_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.src").write_text("a\nb\n")
    (tmp_path / "x.ref0").write_text("a\n")
    with pytest.raises(DataError, match="not as many"):
        read_corrections(tmp_path)


def test_a_folder_without_corrections_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.src").write_text("a\n")
    with pytest.raises(DataError, match="no sentences before and after"):
        read_corrections(tmp_path)


def test_without_a_data_root_the_built_in_lexicon_needs_none(tmp_path: Path) -> None:
    settings = PerturbSettings(lexicon="built-in")
    assert open_corrections(settings, Resources(settings, data_root=tmp_path)) == ({}, {})
    settings = PerturbSettings()
    with pytest.raises(DataError, match=r"perturb\.corrections"):
        open_corrections(settings, Resources(settings, data_root=tmp_path))


@pytest.mark.parametrize("table", [slips.AGREEMENT, slips.PREPOSITIONS, slips.CONFUSED, slips.MISSPELLINGS])
def test_no_form_of_the_written_tables_is_right(table: Mapping[str, Collection[str]]) -> None:
    assert all(good not in bad and len(set(bad)) == len(bad) > 0 for good, bad in table.items())


@pytest.mark.data
def test_one_in_eight_of_the_published_replacements_is_in_two_sentences() -> None:
    folder = Path(str(DATA)) / "grammar"
    if not folder.is_dir():
        pytest.skip("PARLEY_DATA lacks grammar")
    found = read_corrections(folder)
    # 2,077 in all, 1,807 of them in one sentence.
    assert sum(map(len, found.replaced.values())) == 270
    assert found.replaced["on"]["in"] == 13
    assert "writting" in found.misspelt["writing"]
