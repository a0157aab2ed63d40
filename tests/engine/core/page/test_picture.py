"""The picture of the verdicts: what its name says it is, the same for the same report, larger with more to show."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from parley.engine.core.page.content import Report
from parley.engine.core.page.page import load_chapters
from parley.engine.core.page.plots import write_picture
from parley.envs.core.errors import ConfigError
from tests.engine.negotiation.page.dialogues import match, metrics, negotiations


def attacks(number: int) -> Report:
    return negotiations(*(match(name=f"attack {i}", job="attack-rl", metrics=metrics(i)) for i in range(number)))


def size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    return struct.unpack(">II", data[16:24])


def test_picture_has_a_row_for_each_estimate_and_is_repeatable(tmp_path: Path) -> None:
    pictures = [write_picture(attacks(n), load_chapters(), tmp_path / f"{n}.png") for n in (2, 3, 7)]
    heights = [size(picture)[1] for picture in pictures]
    assert heights[1] - heights[0] > 0
    assert (heights[2] - heights[0]) == pytest.approx(5 * (heights[1] - heights[0]), abs=5)
    assert write_picture(attacks(3), load_chapters(), tmp_path / "again.png").read_bytes() == pictures[1].read_bytes()


@pytest.mark.parametrize(
    ("suffix", "begins"), [(".png", b"\x89PNG"), (".PNG", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")]
)
def test_a_picture_is_what_its_name_says(tmp_path: Path, suffix: str, begins: bytes) -> None:
    first, second = (write_picture(attacks(1), load_chapters(), tmp_path / f"{name}{suffix}").read_bytes() for name in "ab")
    assert first.startswith(begins)
    assert first == second


@pytest.mark.parametrize("name", ["x.jpg", "x.html", "picture", "."])
def test_another_kind_of_picture_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"(?s)cannot be drawn.*\.png, \.svg, \.pdf"):
        write_picture(attacks(1), load_chapters(), tmp_path / name)
    assert not (tmp_path / name).is_file()


def test_picture_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        write_picture(Report(title="t"), load_chapters(), tmp_path / "empty.png")
