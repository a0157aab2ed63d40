"""Phrases among the words of contexts, against a search that looks at every stretch of words."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hypothesis import given
from hypothesis import strategies as st

from parley.engine.perturb.strategies.entities import Phrases
from parley.engine.perturb.strategies.texts import FlatContexts
from parley.envs.corpora.pairs.turns import Turns, Utterance

words = st.sampled_from("abcd")
phrases = st.lists(words, min_size=1, max_size=4).map(tuple)
listings = st.lists(phrases, max_size=6, unique=True)
utterances = st.lists(words, max_size=7).map(tuple)
contexts = st.lists(
    st.lists(st.lists(utterances, min_size=1, max_size=2).map(tuple), min_size=1, max_size=2).map(tuple), max_size=3
)


def longest(listed: Collection[Utterance], said: Utterance) -> Utterance | None:
    return max((phrase for phrase in listed if said[: len(phrase)] == phrase), key=len, default=None)


@given(listed=listings, batch=contexts)
def test_the_longest_phrase_is_found_wherever_one_begins_within_an_utterance(
    listed: list[Utterance], batch: Sequence[Turns]
) -> None:
    looked_for, flat = Phrases(listed), FlatContexts(batch)
    begun = [
        (begin + i, longest(listed, said[i:]))
        for begin, said in zip(flat.edges.tolist(), flat.utterances, strict=False)
        for i in range(len(said))
    ]
    expected = [(start, start + len(phrase), phrase) for start, phrase in begun if phrase is not None]
    found = [
        (start, end, looked_for.listed[which]) for start, end, which in zip(*map(list, looked_for.longest(flat)), strict=True)
    ]
    assert found == expected


@given(listed=listings, said=utterances)
def test_the_longest_phrase_that_words_begin_with(listed: list[Utterance], said: Utterance) -> None:
    looked_for = Phrases(listed)
    found = looked_for.first_of(said)
    assert (None if found is None else looked_for.listed[found]) == longest(listed, said)
