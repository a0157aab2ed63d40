"""Names of places, and where their local copies lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.uris import display_path, join_uri, local_copy, split_uri, uri_of
from parley.envs.corpora.arrow import CACHE_VARIABLE

URIS = (
    "s3://bucket/runs/search",
    "s3://bucket",
    "gs://bucket/a%20b",
    "file:///shared/runs",
    "hdfs://name@host:8020/runs",
    "s3://bucket/runs?endpoint_override=localhost%3A9000&scheme=http",
)


@pytest.mark.parametrize("uri", URIS)
def test_a_uri_is_known_again_from_where_its_copy_lies(uri: str, cache: Path) -> None:
    copy = local_copy(uri)
    assert cache in copy.parents
    assert uri_of(copy) == display_path(copy) == uri
    assert uri_of(copy / "checkpoint") == join_uri(uri, "checkpoint")
    assert local_copy(join_uri(uri, "checkpoint")) == copy / "checkpoint"


def test_different_uris_have_different_copies() -> None:
    assert len({local_copy(uri) for uri in URIS}) == len(URIS)


@pytest.mark.parametrize("uri", ["s3://bucket//runs/./search/", "S3://bucket/runs/search"])
def test_spellings_of_one_place_are_one_copy(uri: str) -> None:
    assert local_copy(uri) == local_copy(URIS[0])


def test_what_is_below_a_query_comes_before_it() -> None:
    assert join_uri("s3://bucket/runs?region=x", "search/rows") == "s3://bucket/runs/search/rows?region=x"
    assert split_uri("s3://bucket/runs?region=x") == ("s3://bucket?region=x", "runs")


@pytest.mark.parametrize("path", ["runs/search", "/runs/search", "."])
def test_a_path_is_its_own_place(path: str, cache: Path) -> None:
    assert local_copy(path) == local_copy(Path(path)) == Path(path)
    assert uri_of(Path(path)) is None
    assert display_path(Path(path)) == path
    assert uri_of(cache / "copies") is None
    assert uri_of(cache / "copies" / "s3") is None


def test_a_relative_cache_is_found_from_the_same_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(CACHE_VARIABLE, "here")
    assert local_copy(URIS[0]).is_relative_to(tmp_path / "here")
    assert uri_of(local_copy(URIS[0])) == URIS[0]


def test_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="holds a password") as caught:
        local_copy("s3://key:hidden@bucket/runs")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("uri", ["s3://bucket/runs/../other", "://bucket", "s3://bucket/a#b"])
def test_what_names_no_place_is_refused(uri: str) -> None:
    with pytest.raises(ConfigError):
        local_copy(uri)
