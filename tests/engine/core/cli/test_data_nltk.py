"""`parley data get nltk`: what is there is kept, what is not is fetched by NLTK, or by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nltk
import pytest
from nltk.downloader import Downloader

from parley.engine.perturb.lexicon.nltk_lexicon import FOLDERS, STOPWORDS
from tests.engine.core.cli.conftest import Parley


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NLTK_DATA", str(tmp_path))
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    return tmp_path


def test_what_is_missing_is_fetched(parley: Parley, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / STOPWORDS).mkdir(parents=True)

    def download(self: Downloader, package: str, *, download_dir: str, **others: Any) -> bool:
        (wanted,) = (each for each in FOLDERS if each.endswith(f"/{package}"))
        (Path(download_dir) / wanted).mkdir(parents=True)
        return True

    monkeypatch.setattr(Downloader, "download", download)
    outcome = parley("data get nltk --json")
    assert outcome.status == 0
    printed = json.loads(outcome.out)
    assert printed["where"] == str(folder)
    assert printed["packages"] == {each: "kept" if each == STOPWORDS else "downloaded" for each in FOLDERS}
    again = parley("data get nltk")
    assert again.status == 0
    assert "downloaded" not in again.err


def test_without_network_it_says_what_to_put_where(parley: Parley, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(self: Downloader, package: str, **others: Any) -> bool:
        raise ValueError(f"Error loading {package}: no route")

    monkeypatch.setattr(Downloader, "download", download)
    outcome = parley("data get nltk")
    assert outcome.status != 0
    said = " ".join(outcome.err.split())
    assert "no route" in said
    assert str(folder) in said
    assert all(each in said for each in FOLDERS)
    assert "perturb.lexicon=built-in" in said
