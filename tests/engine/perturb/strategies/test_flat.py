"""Contexts laid end to end and cut again: nothing moves over a boundary, whatever the shape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.perturb.strategies.texts import Edits, FlatContexts
from parley.envs.corpora.pairs.turns import Turns, Utterance
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
def test_words_are_replaced_inserted_and_left_out_within_their_utterances(batch: Sequence[Turns], data: st.DataObject) -> None:
    flat = FlatContexts(batch)
    spans: list[tuple[int, int]] = []
    others: list[Utterance] = []

    def replaced(words: Utterance, begin: int) -> Utterance:
        written: Utterance = ()
        done = 0
        while done < len(words):
            size = data.draw(st.integers(0, len(words) - done))
            piece = words[done : done + size]
            if data.draw(st.booleans()):
                spans.append((begin + done, begin + done + size))
                others.append(data.draw(st.lists(st.sampled_from(["new", "words"]), max_size=3).map(tuple)))
                piece = others[-1]
            if size == 0:
                # No two edits begin alike: what is inserted stands before a word that stays.
                piece, size = (*piece, words[done]), 1
            written, done = written + piece, done + size
        return written

    begins = iter(flat.edges.tolist())
    expected = [tuple(tuple(replaced(words, next(begins)) for words in turn) for turn in turns) for turns in batch]
    starts, ends = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    assert flat.replaced(Edits(starts, ends, others)) == expected


def test_what_rules_say_of_utterances_are_edits_of_all_words() -> None:
    flat = FlatContexts([((("a", "b"), ("c",)), (("d", "e"),)), (((),),)])
    edits = flat.edits_of([(1, 2, ("x", "y")), None, (0, 2, ()), None])
    assert (edits.starts.tolist(), edits.ends.tolist()) == ([1, 3], [2, 5])
    assert flat.replaced(edits) == [((("a", "x", "y"), ("c",)), ((),)), (((),),)]
