"""Models that evaluations under perturbations ask, made once for all of their tests."""

from __future__ import annotations

import pytest

from parley.engine.perturb.verbs.config import RobustnessConfig
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from tests.engine.core.verbs.conftest import _small_machine, root, speaker, target, trainee  # noqa: F401  # fixtures
from tests.engine.perturb.verbs.robust import SWAP, evaluation, save_responder, words_of_the_desk


@pytest.fixture(scope="package")
def vocabulary() -> PairVocabulary:
    return words_of_the_desk()


@pytest.fixture(scope="package")
def model(tmp_path_factory: pytest.TempPathFactory, vocabulary: PairVocabulary) -> str:
    return save_responder(tmp_path_factory.mktemp("model") / "checkpoint", vocabulary)


@pytest.fixture(scope="package")
def trained(tmp_path_factory: pytest.TempPathFactory, vocabulary: PairVocabulary) -> str:
    return save_responder(
        tmp_path_factory.mktemp("trained") / "checkpoint", vocabulary, seed=1, role="adversarial", strategies=[SWAP]
    )


@pytest.fixture
def asked(model: str) -> RobustnessConfig:
    return evaluation(model)
