"""Continuous relaxation as a search job: inputs between words, their weights, and no judge of words that are none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.verbs.job import Silent
from parley.engine.triggers.methods import relaxation
from parley.engine.triggers.methods.settings import RelaxationSettings
from parley.engine.triggers.metrics.hits import NEARNESS
from parley.engine.triggers.verbs.config import TriggerConfig
from parley.engine.triggers.verbs.search import SEARCH
from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from tests.engine.core.verbs.made_up import rows
from tests.engine.triggers.verbs.searches import EFFORT, SMALL, save_lm, save_seq2seq, search, write_targets

run = SEARCH.run


@pytest.fixture
def asked(tmp_path: Path, vocabulary: PairVocabulary) -> TriggerConfig:
    return search(save_seq2seq(tmp_path / "model" / "checkpoint", vocabulary), write_targets(tmp_path))


def test_continuous_inputs_are_read_before_and_after_they_become_words(tmp_path: Path, asked: TriggerConfig) -> None:
    config = replace(asked, method="relaxation", hit="o-greedy", search=replace(EFFORT, relaxation=SMALL))
    result = run(config, tmp_path / "one-hot", Silent())
    assert {"hit_rate.o-greedy", "hit_rate.projected-o-greedy"} < set(result.metrics)
    assert set(result.metrics) == set(SEARCH.metrics_of(config))
    assert all(len(row["trigger"].split()) == 4 for row in rows(tmp_path / "one-hot"))
    (restart, *_) = rows(tmp_path / "one-hot")[0]["restarts"]
    # The encoder reads the mark at the end, too.
    assert [len(restart[name]) for name in NEARNESS] == [4, 4, 4, 4, 5, 5]
    assert [result.metrics[name].value > 0 for name in NEARNESS] == [True] * 6
    free = replace(config, search=replace(EFFORT, relaxation=replace(SMALL, mode="embedding")))
    measured = run(free, tmp_path / "embedding", Silent()).metrics
    assert not {"hit_rate.projected-o-greedy", *NEARNESS} & set(measured)
    assert [row["trigger"] for row in rows(tmp_path / "embedding")] == [None] * 5


@pytest.mark.parametrize(
    ("targets", "given", "weight"), [("mal", None, 0.1), ("random", None, None), ("", None, None), ("mal", 0.5, 0.5)]
)
def test_one_hot_inputs_of_malicious_targets_are_drawn_to_words_as_weakly_as_in_the_paper(
    tmp_path: Path,
    asked: TriggerConfig,
    monkeypatch: pytest.MonkeyPatch,
    targets: str,
    given: float | None,
    weight: float | None,
) -> None:
    relax, weights = relaxation.relax, set()

    def heard(victim: Any, tasks: Any, settings: RelaxationSettings, *rest: Any) -> Any:
        weights.add(settings.l1_weight)
        return relax(victim, tasks, settings, *rest)

    monkeypatch.setattr(relaxation, "relax", heard)
    config = replace(asked, targets=targets or asked.targets, limit=1, method="relaxation", hit="o-greedy")
    run(replace(config, search=replace(EFFORT, relaxation=replace(SMALL, l1_weight=given))), tmp_path / "run", Silent())
    assert weights == {weight}


def test_continuous_inputs_have_no_words_to_judge(tmp_path: Path, asked: TriggerConfig, vocabulary: PairVocabulary) -> None:
    lm = save_lm(tmp_path / "lm" / "checkpoint", vocabulary)
    with pytest.raises(ConfigError, match="no words that a language model could judge"):
        run(replace(asked, lm=lm, method="relaxation", hit="io-sample-min-k1"), tmp_path / "run", Silent())
    with pytest.raises(ConfigError, match="leave out --lm"):
        run(replace(asked, lm=lm, method="relaxation", hit="o-greedy"), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
