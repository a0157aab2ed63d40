"""What a tagger of newspapers reads of a chat: pronouns, short forms, beginnings of sentences and names restored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.perturb.lexicon.nltk_lexicon import SHORT_FORMS, Newswire, expanded

NEWSWIRE = Newswire({"paris", "will"}.__contains__)
WORDS = [*SHORT_FORMS, "i", "did", "paris", "disk", ".", "?", "conf", ",", "10.04", "é", "<url>"]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("what can i do", "What can I do"),
        ("i dont know , im new", "I do n't know , I 'm new"),
        ("u cant go to paris . why ?", "You ca n't go to Paris . Why ?"),
        ("did you see it ? does it work ?", "did you see it ? does it work ?"),
        ("will it start", "will it start"),
        (", open xorg . conf please", ", Open xorg . conf please"),
        ("> > read this", "> > Read this"),
        ("10.04 is old", "10.04 is old"),
        ("open", "open"),
        ("dont", "do n't"),
        ("", ""),
        ("? !", "? !"),
    ],
)
def test_words_are_written_as_in_a_newspaper(text: str, read: str) -> None:
    assert " ".join(NEWSWIRE.restored(tuple(text.split())).words) == read


@given(st.lists(st.sampled_from(WORDS), max_size=12))
def test_each_word_keeps_its_place(words: list[str]) -> None:
    read = NEWSWIRE.restored(words)
    pieces, origins = expanded(words)
    assert [word.lower() for word in read.words] == [word.lower() for word in read.plain] == pieces
    assert list(read.origins or range(len(words))) == origins
    assert [place for place in range(len(pieces)) if read.words[place] != read.plain[place]] == list(read.beginnings)
