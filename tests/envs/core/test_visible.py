"""What a terminal or a page would obey is spelled, and all else stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.envs.core.visible import visible, well_formed


@given(st.text())
def test_visible_text_keeps_everything_that_can_be_seen(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    assert [c for c in shown if c in "\u202e\u200b\x00\n\ud800\x1b\x9b"] == []
    if text.isascii() and text.isprintable():
        assert shown == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", r"\u001b]0;title\u0007"),
        ("\x9b2J", r"\u009b2J"),
        ("run\u202egnp.exe", r"run\u202egnp.exe"),
        ("caf\xe9\ta\nb", "caf\xe9" + r"\u0009a" + "\nb"),
    ],
)
def test_controls_of_both_sets_and_overrides_of_direction_are_spelled(text: str, shown: str) -> None:
    assert visible(text, keep="\n") == shown


@given(st.text(st.characters(exclude_categories=())))
def test_well_formed_text_can_be_written_whatever_it_was(text: str) -> None:
    written = well_formed(text)
    assert written.encode().decode() == written == well_formed(written)


@pytest.mark.parametrize(
    ("text", "written"), [("\ud83d ok", "\ufffd ok"), ("ok\ude00\ud83d", "ok\ufffd\ufffd"), ("\ud83d\ude00", "\U0001f600")]
)
def test_half_a_pair_is_replaced_and_a_whole_one_is_joined(text: str, written: str) -> None:
    assert well_formed(text) == written
