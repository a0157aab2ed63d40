"""The pairs that models are fitted to in the tests of their trainings."""

from __future__ import annotations

import pytest

from tests.engine.core.verbs.conftest import _small_machine, root, speaker, target, trainee  # noqa: F401  # fixtures

WORDS = ("red", "green", "blue", "grey", "brown")


@pytest.fixture(scope="package")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Sources of two words, answered by the same words the other way round."""
    folder = tmp_path_factory.mktemp("corpus")
    lines = [f"{first} {second}\t{second} {first}" for first in WORDS for second in WORDS]
    for split, part in (("train", lines[:20]), ("val", lines[20:22]), ("test", lines[22:])):
        (folder / f"{split}.tsv").write_text("\n".join(part) + "\n")
    return str(folder)
