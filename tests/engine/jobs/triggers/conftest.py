"""The pairs that searches find their targets in, and their words."""

from __future__ import annotations

from pathlib import Path

import pytest

from envs.pairs.vocabulary import PairVocabulary
from tests.engine.jobs.triggers.searches import words_of, write_corpus


@pytest.fixture(scope="package")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="package")
def vocabulary(corpus: Path) -> PairVocabulary:
    return words_of(corpus)
