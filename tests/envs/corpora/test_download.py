from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from parley.envs.core.errors import DataError
from parley.envs.corpora.arrow import DownloadError, download, replacing


def accept(_: Path) -> str:
    return ""


def test_a_file_is_fetched_with_progress(tmp_path: Path) -> None:
    content = bytes(range(256)) * 1_000
    (tmp_path / "there").write_bytes(content)
    told: list[tuple[str, int, int | None]] = []
    target = tmp_path / "folder" / "here.txt"
    download((tmp_path / "there").as_uri(), target, accept, lambda *news: told.append(news))
    assert target.read_bytes() == content
    assert told[-1] == ("here.txt", len(content), len(content))
    assert [news[1] for news in told] == sorted(news[1] for news in told)
    assert len(told) > 1
    assert [path.name for path in target.parent.iterdir()] == ["here.txt"]


def test_other_content_than_expected_never_reaches_the_target(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("new")
    target = tmp_path / "folder" / "here.txt"
    target.parent.mkdir()
    target.write_text("old")
    with pytest.raises(DownloadError, match="other content") as caught:
        download((tmp_path / "there").as_uri(), target, lambda draft: f"it says {draft.read_text()}")
    assert caught.value.got == "it says new"
    assert target.read_text() == "old"
    assert [path.name for path in target.parent.iterdir()] == ["here.txt"]


@pytest.mark.parametrize("address", ["{}/nothing", "no address at all"])
def test_an_address_that_answers_nothing_is_a_download_error(address: str, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="cannot be reached"):
        download(address.format(tmp_path.as_uri()), tmp_path / "here.txt", accept)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_a_data_error_and_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    target = tmp_path / "here.txt"
    target.write_text("old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DataError, match="No space left") as caught, replacing(target) as draft:
        draft.write_text("new")
    assert not isinstance(caught.value, DownloadError)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
