"""What changed: spans, their count, and how they are marked."""

from __future__ import annotations

from hypothesis import given, settings

from parley.engine.perturb.strategies.texts import ChangeKind, Span, bracketed, num_changed, spans
from parley.envs.corpora.pairs.turns import Turns, format_turns, parse_turns
from tests.engine.perturb.fakes import contexts


def marked(before: str, after: str) -> tuple[str, str]:
    return bracketed(spans(parse_turns(before), parse_turns(after)))


def test_every_kind_of_change_is_told() -> None:
    found = spans(parse_turns("a b c d"), parse_turns("a x c d e"))
    assert [(span.kind, span.before, span.after) for span in found] == [
        (ChangeKind.SAME, ("a",), ("a",)),
        (ChangeKind.REPLACED, ("b",), ("x",)),
        (ChangeKind.SAME, ("c", "d"), ("c", "d")),
        (ChangeKind.INSERTED, (), ("e",)),
    ]
    assert num_changed(found) == 2
    assert [span.kind for span in spans(parse_turns("a b"), parse_turns("b"))] == [ChangeKind.DELETED, ChangeKind.SAME]


def test_words_are_marked_within_their_boundaries() -> None:
    before, after = marked("i do see it <eou> ok <eot> yes", "i do n't see it <eou> fine <eot> yes")
    assert before == "i do see it <eou> [ok] <eot> yes"
    assert after == "i do [n't] see it <eou> [fine] <eot> yes"


def test_a_replacement_counts_its_longer_side() -> None:
    assert num_changed([Span(ChangeKind.REPLACED, ("a",), ("b", "c")), Span(ChangeKind.SAME, ("d",), ("d",))]) == 2
    assert num_changed([Span(ChangeKind.REPLACED, ("a", "b", "c"), ("d",)), Span(ChangeKind.DELETED, ("e",), ())]) == 4


@settings(deadline=None)
@given(before=contexts)
def test_an_untouched_context_has_no_change(before: Turns) -> None:
    found = spans(before, before)
    assert num_changed(found) == 0
    assert bracketed(found) == (format_turns(before),) * 2


@settings(deadline=None)
@given(before=contexts)
def test_the_words_of_all_spans_are_those_of_both_contexts(before: Turns) -> None:
    after = tuple(tuple(words[::-1] for words in turn) for turn in before)
    found = spans(before, after)
    assert " ".join(word for span in found for word in span.before) == format_turns(before)
    assert " ".join(word for span in found for word in span.after) == format_turns(after)
    assert (num_changed(found) == 0) == (before == after)
