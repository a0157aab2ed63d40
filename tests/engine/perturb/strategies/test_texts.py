"""Texts in, texts out: what no edit touches stays letter by letter, and what comes out reads as the perturbed tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.perturb import perturb_text, perturb_texts
from parley.engine.perturb.strategies.rewriting import Edit
from parley.engine.perturb.strategies.texts import Edits, Texts
from parley.engine.perturb.strategy import Expectation, OnUtterances, PerturbSettings
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.corpora.pairs.tokens import tokenise, tokenise_where
from parley.envs.corpora.pairs.turns import Turns, Utterance, parse_turns, tokens_where

PIECES = ["I", "don't", "BOOT", "Disk", "disk,", "(the", "old)", "http://a.com/x", "/etc/apt", "10.04.", "  ", "\n", "\t"]
PIECES += ["<eou>", "__eot__", "a<eou>b", "\u200b", "caf\u00e9", "cafe\u0301!", "\u4e2d\u6587\u3002", "\x00"]
PIECES += ["\N{GRINNING FACE}", "...", '"', "'s"]
texts = st.one_of(
    st.text(max_size=40),
    st.text("aBdLnoTwWx' .", max_size=40),
    st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join),
    st.lists(st.sampled_from(PIECES)).map("".join),
)
WORDS = ["new", "disk", "the", "n't", ",", "i", "<url>"]
PLAIN = "I opened the Disk and it doesn't WORK, does it? No: see http://a.com/x (the old one)."


def read(text: str) -> Turns:
    return parse_turns(text)


def edited(text: str, *edits: tuple[int, int, str]) -> str:
    starts, ends, others = zip(*edits, strict=True)
    (after,) = Texts([text]).rewritten(Edits(np.array(starts), np.array(ends), [tuple(other.split()) for other in others]))
    return after


def no_edits() -> Edits:
    return Edits(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), [])


@given(batch=st.lists(texts, max_size=4))
def test_texts_are_read_as_lines_are_and_come_back_as_they_are(batch: Sequence[str]) -> None:
    found = Texts(batch)
    assert list(found.flat.contexts) == [read(text) for text in batch]
    assert found.rewritten(no_edits()) == list(batch)
    every = np.arange(len(found.flat.words))
    same = found.rewritten(Edits.of_words(every, [(word,) for word in found.flat.words]))
    assert same == list(batch)


@given(text=texts, data=st.data())
def test_outside_of_edits_nothing_changes_and_the_result_reads_as_the_edited_words(text: str, data: st.DataObject) -> None:
    found = Texts([text])
    spans: list[tuple[int, int]] = []
    for edge, end in zip(found.flat.edges.tolist(), found.flat.edges[1:].tolist(), strict=False):
        while edge < end and data.draw(st.booleans()):
            size = data.draw(st.integers(0, min(3, end - edge)))
            spans.append((edge, edge + size))
            edge += size + 1
    others = [tuple(data.draw(st.lists(st.sampled_from(WORDS), max_size=3))) for _ in spans]
    starts, ends = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    (after,) = found.rewritten(Edits(starts, ends, others))
    expected = [word for turn in found.flat.replaced(Edits(starts, ends, others))[0] for said in turn for word in said]
    reread = [word for turn in read(after) for said in turn for word in said]
    assert reread == expected
    each = [Edit(start, end, other) for (start, end), other in zip(spans, others, strict=True)]
    assert found.text(0).rewritten(each) == after
    if spans:
        # What stands in one piece with a change, or behind it, may lose a capital or get a blank.
        head = re.split(r"\S*\Z", text[: place_of(text, spans[0][0])])[0].rstrip()
        tail = re.split(r"\A\S*", text[place_of(text, spans[-1][1] + 1) :])[-1].lstrip()
        assert after.startswith(head)
        assert after.endswith(tail)


def place_of(text: str, token: int) -> int:
    """Where a token of a text begins."""
    starts = [start for _, start, _ in tokens_where(text) or tokenise_where(text)]
    return starts[token] if token < len(starts) else len(text)


@pytest.mark.parametrize(
    ("edits", "after"),
    [
        ([(2, 4, "disk the")], "I opened Disk the and it doesn't WORK, does it? No: see http://a.com/x (the old one)."),
        ([(0, 2, "opened i")], "Opened I the Disk and it doesn't WORK, does it? No: see http://a.com/x (the old one)."),
        ([(1, 2, "closed")], "I closed the Disk and it doesn't WORK, does it? No: see http://a.com/x (the old one)."),
        ([(3, 4, "screen")], "I opened the Screen and it doesn't WORK, does it? No: see http://a.com/x (the old one)."),
        ([(8, 9, "boot")], "I opened the Disk and it doesn't BOOT, does it? No: see http://a.com/x (the old one)."),
        ([(7, 8, "")], "I opened the Disk and it does WORK, does it? No: see http://a.com/x (the old one)."),
        ([(10, 11, "does n't")], "I opened the Disk and it doesn't WORK, doesn't it? No: see http://a.com/x (the old one)."),
        ([(1, 2, "ca n't open")], "I can't open the Disk and it doesn't WORK, does it? No: see http://a.com/x (the old one)."),
        ([(0, 1, "")], "Opened the Disk and it doesn't WORK, does it? No: see http://a.com/x (the old one)."),
        ([(13, 14, "")], "I opened the Disk and it doesn't WORK, does it?: see http://a.com/x (the old one)."),
        ([(15, 17, "")], "I opened the Disk and it doesn't WORK, does it? No: (the old one)."),
        ([(18, 19, "")], "I opened the Disk and it doesn't WORK, does it? No: see http://a.com/x (old one)."),
        ([(20, 21, "")], "I opened the Disk and it doesn't WORK, does it? No: see http://a.com/x (the old)."),
        ([(15, 17, "<url> see")], "I opened the Disk and it doesn't WORK, does it? No: http://a.com/x see (the old one)."),
        ([(0, 0, "today ,")], "Today, I opened the Disk and it doesn't WORK, does it? No: see http://a.com/x (the old one)."),
        ([(8, 8, "not")], "I opened the Disk and it doesn't NOT WORK, does it? No: see http://a.com/x (the old one)."),
    ],
)
def test_edits_of_a_text_by_example(edits: list[tuple[int, int, str]], after: str) -> None:
    assert edited(PLAIN, *edits) == after


@pytest.mark.parametrize(
    ("before", "edit", "after"),
    [
        ("Know it.", (0, 1, "do n't know"), "Don't know it."),
        ("Then I'll go.", (2, 3, "wo n't"), "Then I won't go."),
        ("YOU CAN GO", (1, 2, "ca n't"), "YOU CAN'T GO"),
        ("a the <eou> b", (1, 2, ""), "a <eou> b"),
        ("a <eou> the b", (1, 2, ""), "a <eou> b"),
        ("and/or x", (0, 1, "also"), "also/or x"),
        ("foo.", (1, 2, "bar"), "foo bar"),
        ("say  the\nword", (1, 2, ""), "say\nword"),
        ("say\nthe word", (1, 2, ""), "say\nword"),
        ("the", (0, 1, ""), ""),
        ("ok <eou> the <eou> no", (1, 2, ""), "ok <eou> <eou> no"),
        ("See http://a.com now", (0, 2, "<url> see"), "http://a.com see now"),
    ],
)
def test_blanks_marks_and_capitals_by_example(before: str, edit: tuple[int, int, str], after: str) -> None:
    assert edited(before, edit) == after


class Reversed(OnUtterances):
    name = "reversed"
    expectation = Expectation.SHOULD_NOT_CHANGE

    def utterance(self, words: Utterance, rng: np.random.Generator) -> Utterance:
        return words[::-1]


class Doubled(Reversed):
    def utterance(self, words: Utterance, rng: np.random.Generator) -> Utterance:
        return (*words, "indeed")


class Filled(Reversed):
    def perturb(self, contexts: Sequence[Turns], seeds: Sequence[int]) -> list[Turns]:
        return [((("a", "b"),),) for _ in contexts]


class Longer(Reversed):
    def perturb(self, contexts: Sequence[Turns], seeds: Sequence[int]) -> list[Turns]:
        return [(*turns, ((),)) for turns in contexts]


def test_a_strategy_of_ones_own_needs_no_edits() -> None:
    assert perturb_text("See http://a.com, OK", Reversed()) == "OK, http://a.com see"
    assert perturb_text("It works <eou> (so) ", Doubled()) == "It works indeed <eou> (so) indeed "


@given(text=texts)
def test_whatever_a_strategy_does_its_words_come_out(text: str) -> None:
    after = perturb_text(text, Doubled())
    said = [word for turn in read(text) for utterance in turn for word in (*utterance, *(("indeed",) if utterance else ()))]
    if all(utterance for turn in read(text) for utterance in turn):
        assert [word for turn in read(after) for utterance in turn for word in utterance] == said


@pytest.mark.parametrize(("made", "what"), [(Filled, "fills an utterance"), (Longer, "changes how many turns")])
def test_what_no_strategy_may_do_is_an_error(made: type[Reversed], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        perturb_text("", made())


@pytest.mark.parametrize(
    "text",
    ["", " \n ", "?", "ok", "\ud800 a surrogate \udfff", "\x00\x07 \x1b[31m", "\u0645\u0631\u062d\u0628\u0627 hi \u4f60\u597d"],
)
@pytest.mark.parametrize("strategy", ["random-swap", "stopword-dropout", "add-negation", "antonym", "data-paraphrase"])
def test_no_text_is_too_strange(strategy: str, text: str) -> None:
    after = perturb_text(text, strategy, settings=PerturbSettings(lexicon="built-in"))
    assert set(tokenise(after)) <= {*tokenise(text), "not", "hello", "okay"}


def test_ten_thousand_words_are_perturbed() -> None:
    text = "It works, and the old Disk is full. " * 1250
    for strategy in ("random-swap", "antonym", Reversed()):
        (after,) = perturb_texts([text], strategy, settings=PerturbSettings(lexicon="built-in"))
        assert after != text
        assert len(after) > 40_000


@pytest.mark.parametrize("given", ["can you help me ?", b"can you", [None], [("can", "you")], np.array([1, 2])])
def test_what_is_no_list_of_texts_is_an_error(given: object) -> None:
    with pytest.raises(DataError, match="these are no texts"):
        perturb_texts(given, "random-swap")  # type: ignore[arg-type]
    lines = ["can you help me with it ?", "hello"]
    assert perturb_texts(iter(lines), "random-swap") == perturb_texts(np.array(lines), "random-swap")  # type: ignore[arg-type]
