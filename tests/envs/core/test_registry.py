"""Parts that installed packages add to a registry."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import Registry


def test_a_part_of_an_installed_package_is_listed_and_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "made_up-1.0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up\nVersion: 1.0\n")
    (made / "entry_points.txt").write_text("[parley.made_up]\nouter = pathlib:Path\n")
    monkeypatch.syspath_prepend(tmp_path)
    parts = Registry("made-up part", "parley.made_up")
    parts.register("inner", "one of ours", "pathlib:PurePath")
    assert list(parts) == ["inner", "outer"]
    assert parts.get("outer") is Path
    assert parts.summary("outer") == "from an installed package"
    with pytest.raises(ConfigError, match="did you mean 'outer'"):
        parts.get("uter")
    assert list(Registry("other part", "parley.of_others")) == []


def test_a_file_is_read_as_it_stands_whatever_is_compiled_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    file = tmp_path / "mine.py"
    for number in (1, 2):
        file.write_text(f"PART = {number}\n")
        os.utime(file, (1, 1))
        assert Registry("part", "parley.made_up").get(f"{file}:PART") == number
