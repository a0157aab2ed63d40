"""The pairs that searches find their targets in, their words, and a chat model."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from tests.engine.core.verbs.conftest import _small_machine, root, speaker, target, trainee  # noqa: F401  # fixtures
from tests.engine.triggers.verbs.searches import words_of, write_corpus
from tests.policies.byte_pairs import byte_model


@pytest.fixture(scope="package")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="package")
def vocabulary(corpus: Path) -> PairVocabulary:
    return words_of(corpus)


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved chat model whose tokenizer merges across boundaries."""
    path = tmp_path_factory.mktemp("chat")
    for part in byte_model():
        part.save_pretrained(path)
    return path
