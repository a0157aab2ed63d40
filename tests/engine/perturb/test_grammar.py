"""Grammar Errors, and the table that is built from corrected sentences."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from engine.perturb.corrections import FEW, open_corrections, read_corrections, replaced_words
from engine.perturb.grammar import GrammarErrors, build
from engine.perturb.resources import Resources
from engine.perturb.settings import PerturbSettings
from envs.core.errors import DataError
from envs.pairs.turns import Utterance
from tests.engine.perturb.fakes import FakeLexicon

DATA = os.environ.get("PARLEY_DATA")

TABLE = {"a": ("an", "the"), "disks": ("disc", "discs")}


def made(words: frozenset[str] | None = None, rate: float = 1.0) -> GrammarErrors:
    resources = Resources(PerturbSettings(), words)
    resources.__dict__["lexicon"] = FakeLexicon()
    return GrammarErrors(TABLE, resources, rate)


def forms(words: Utterance, strategy: GrammarErrors, num: int = 300) -> list[Counter[str]]:
    """What becomes of each word, over many seeds."""
    drawn = [after[0][0] for after in strategy.perturb([((words,),)] * num, range(num))]
    return [Counter(column) for column in zip(*drawn, strict=True)]


def test_verbs_lose_their_ending_and_plurals_become_singular() -> None:
    (after,) = made().perturb([((("we", "tried", "installing", "packages", "."),),)], [1])
    assert after == ((("we", "try", "install", "package", "."),),)


def test_every_wrong_form_of_a_word_is_as_likely() -> None:
    first, second = forms(("a", "disks"), made(), 1200)
    assert set(first) == {"an", "the"}
    assert set(second) == {"disc", "discs", "disk"}
    assert all(count == pytest.approx(400, abs=4 * (1200 * 2 / 9) ** 0.5) for count in second.values())


def test_only_known_words_enter() -> None:
    strategy = made(frozenset({"we", "tried", "the", "disks", "packages", "install"}))
    first, second, third, fourth = forms(("a", "disks", "tried", "installing"), strategy)
    assert (set(first), set(second), set(third), set(fourth)) == ({"the"}, {"disks"}, {"tried"}, {"install"})


def test_the_rate_is_the_share_of_words_that_change() -> None:
    (drawn,) = forms(("disks",), made(rate=0.25), 1600)
    assert drawn["disks"] == pytest.approx(1200, abs=4 * (1600 * 3 / 16) ** 0.5)
    assert all(drawn[form] == pytest.approx(400 / 3, abs=45) for form in ("disc", "discs", "disk"))


def test_by_default_one_word_in_five_that_may_change_does() -> None:
    chosen = PerturbSettings(lexicon="built-in")
    words = ("the", "file", "is", "in", "a", "folder", "at", "home")
    after = forms(words, build(chosen, Resources(chosen)), 2000)
    may_change = [column for word, column in zip(words, after, strict=True) if column[word] < 2000]
    assert len(may_change) >= 4
    assert all(2000 - column.most_common(1)[0][1] == pytest.approx(400, abs=4 * (2000 * 0.16) ** 0.5) for column in may_change)


def test_the_settings_say_the_rate() -> None:
    def changed(rate: float) -> float:
        chosen = PerturbSettings(lexicon="built-in", grammar_rate=rate)
        columns = forms(("the", "file", "is", "here"), build(chosen, Resources(chosen)), 1000)
        return 1 - columns[2]["is"] / 1000

    assert changed(1.0) == 1.0
    assert changed(0.5) == pytest.approx(0.5, abs=0.07)


def test_an_error_is_a_word_that_alone_stands_for_another() -> None:
    right, wrong = (tuple(line.split()) for line in ("he goes to the shop in 2 days .", "he go to a big shop on 3 days ."))
    assert list(replaced_words(right, wrong)) == [("goes", "go")]


def test_a_folder_is_read_with_all_its_corrections(tmp_path: Path) -> None:
    (tmp_path / "x.src").write_text("He go home .\nThis are it .\n")
    (tmp_path / "x.ref0").write_text("He goes home .\nThis is it .\n")
    (tmp_path / "x.ref1").write_text("He went home .\nThese are it .\n")
    (tmp_path / "x.other.src").write_text("another version\n")
    assert read_corrections(tmp_path) == {"goes": ("go",), "is": ("are",), "these": ("this",), "went": ("go",)}


def test_a_file_of_wrong_and_right_sentences_is_read(tmp_path: Path) -> None:
    path = tmp_path / "errors.tsv"
    path.write_text("she have it\tshe has it\nshe had it\tshe has it\n")
    assert read_corrections(path) == {"has": ("had", "have")}


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


def test_without_a_data_root_only_the_built_in_lexicon_brings_a_table(tmp_path: Path) -> None:
    settings = PerturbSettings(lexicon="built-in")
    assert open_corrections(settings, Resources(settings, data_root=tmp_path)) is FEW
    settings = PerturbSettings()
    with pytest.raises(DataError, match=r"perturb\.corrections"):
        open_corrections(settings, Resources(settings, data_root=tmp_path))


def test_no_form_of_the_written_table_is_right() -> None:
    assert all(good not in bad and len(set(bad)) == len(bad) > 0 for good, bad in FEW.items())


@pytest.mark.data
def test_published_corrections_give_some_thousand_errors() -> None:
    folder = Path(str(DATA)) / "grammar"
    if not folder.is_dir():
        pytest.skip("PARLEY_DATA lacks grammar")
    table = read_corrections(folder)
    # Counted elsewhere with case and another tokeniser: 2,193 errors of 1,351 words.
    assert (len(table), sum(map(len, table.values()))) == (1258, 2077)
    assert "writting" in table["writing"] or "writed" in table["wrote"]
