from __future__ import annotations

from pathlib import Path

import pytest

from parley.envs.core.errors import DataError
from parley.envs.corpora.arrow import cache_root, data_root, missing_files, read_file, require_files


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PARLEY_DATA", "PARLEY_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_data_root_prefers_argument_then_variable_then_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert data_root() == tmp_path / "home" / ".cache" / "parley" / "data"
    monkeypatch.setenv("PARLEY_DATA", str(tmp_path / "named"))
    assert data_root() == tmp_path / "named"
    assert data_root(tmp_path / "given") == tmp_path / "given"


def test_cache_root_prefers_argument_then_variable_then_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_root() == tmp_path / "home" / ".cache" / "parley"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "parley"
    monkeypatch.setenv("PARLEY_CACHE", str(tmp_path / "named"))
    assert cache_root() == tmp_path / "named"
    assert cache_root(tmp_path / "given") == tmp_path / "given"


def test_a_home_sign_is_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PARLEY_DATA", "~/corpora")
    assert data_root() == tmp_path / "home" / "corpora"
    assert cache_root(Path("~/made")) == tmp_path / "home" / "made"


def test_require_files_names_what_is_missing_and_where_it_goes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    (tmp_path / "c.txt").mkdir()
    names = ["a.txt", "b.txt", "c.txt"]
    assert missing_files(tmp_path, names) == ["b.txt", "c.txt"]
    with pytest.raises(DataError) as caught:
        require_files("some", tmp_path, names, "ask the publisher")
    assert caught.value.where == tmp_path
    assert caught.value.got == "no b.txt, c.txt"
    assert f"ask the publisher, and put b.txt, c.txt into {tmp_path}" in str(caught.value.fix)
    with pytest.raises(DataError, match="no such folder"):
        require_files("some", tmp_path / "nowhere", names, "ask the publisher")
    require_files("some", tmp_path, ["a.txt"], "ask the publisher")


def test_an_unreadable_file_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_file(tmp_path)
