"""Contexts laid end to end and cut again: nothing moves over a boundary, whatever the shape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.perturb.flat import FlatContexts
from envs.pairs.turns import Turns, Utterance
from tests.engine.perturb.fakes import batches


@given(batch=batches)
def test_what_is_laid_out_is_cut_as_it_was(batch: Sequence[Turns]) -> None:
    flat = FlatContexts(batch)
    assert flat.cut(flat.words) == list(batch)
    assert flat.shaped(flat.utterances) == list(batch)
    assert flat.num_words.tolist() == [sum(len(words) for turn in turns for words in turn) for turns in batch]


@given(batch=batches, data=st.data())
def test_words_are_counted_by_context(batch: Sequence[Turns], data: st.DataObject) -> None:
    flat = FlatContexts(batch)
    chosen = data.draw(st.sets(st.sampled_from(flat.words)) if flat.words else st.just(set()))
    expected = [sum(word in chosen for turn in turns for words in turn for word in words) for turns in batch]
    assert flat.num_in_contexts(np.flatnonzero(flat.are_in(chosen))).tolist() == expected


@given(batch=batches, data=st.data())
def test_spans_are_replaced_within_their_utterances(batch: Sequence[Turns], data: st.DataObject) -> None:
    flat = FlatContexts(batch)
    spans: list[tuple[int, int]] = []
    others: list[Utterance] = []

    def replaced(words: Utterance, begin: int) -> Utterance:
        written: Utterance = ()
        done = 0
        while done < len(words):
            size = data.draw(st.integers(1, len(words) - done))
            piece = words[done : done + size]
            if data.draw(st.booleans()):
                spans.append((begin + done, begin + done + size))
                others.append(data.draw(st.lists(st.just("new"), min_size=1, max_size=3).map(tuple)))
                piece = others[-1]
            written, done = written + piece, done + size
        return written

    begins = iter(flat.edges.tolist())
    expected = [tuple(tuple(replaced(words, next(begins)) for words in turn) for turn in turns) for turns in batch]
    starts, ends = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    assert flat.replaced(starts, ends, others) == expected
