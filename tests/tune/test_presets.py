"""Every shipped sweep measures what it says: one trial of each on models made up for it, at a budget of almost nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from parley.engine.core.ray.session import RaySession
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.ranking.verbs.matcher import TRAIN_MATCHER
from parley.envs.core.config import assign
from parley.envs.corpora.arrow import CACHE_VARIABLE, DATA_VARIABLE
from parley.tune.plan import Plan, corners, find_plan
from parley.tune.sweep import SWEEP
from parley.tune.trial import Setup, measure
from tests.engine.core.verbs import made_up
from tests.engine.perturb.verbs import robust
from tests.engine.triggers.verbs import searches

DESK = "corpus=helpdesk perturb.lexicon=built-in"
RULE = "dialogues_per_update=6 {0}.supervised_batch=4 {0}.max_turns=4"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _no_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(tmp_path_factory.getbasetemp() / "cache"))
        patch.delenv(DATA_VARIABLE, raising=False)
        yield


@pytest.fixture(scope="module")
def negotiator(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Settings of the jobs that train on dialogues: a random negotiator of a made-up corpus' words, and the corpus."""
    root = made_up.data_root(tmp_path_factory.mktemp("data"))
    target = made_up.save_negotiator(tmp_path_factory.mktemp("target") / "model", 3, made_up.corpus_vocabulary(root))
    return f"target={target} corpus={made_up.CORPUS} data_root={root}"


@pytest.fixture(scope="module")
def responder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return robust.save_responder(tmp_path_factory.mktemp("responder") / "model", robust.words_of_the_desk())


def first_trial(preset: str, settings: str, budget: int, path: Path, **smaller: int) -> tuple[Plan, float]:
    """The plan of a preset, and what a trial with every setting at its first corner is worth."""
    config = SWEEP.presets[preset]()
    plan = find_plan(config.sweep)
    base = plan.base(f"{config.base} {settings}", 0)
    setup = Setup(plan=plan, base=base, budgets=(budget,), repeats=1, seed=1, run=str(path), folder=path)
    parameters = {key: corners(domain)[0] for key, domain in plan.space.items()}
    smaller_ones = {key.replace("__", "."): value for key, value in smaller.items()}
    return plan, measure({**parameters, **smaller_ones}, setup, budget, path / "runs").value


def test_gibbs_enum(tmp_path: Path) -> None:
    words = searches.words_of(searches.write_corpus(tmp_path))
    model, lm = searches.save_seq2seq(tmp_path / "model", words), searches.save_lm(tmp_path / "lm", words)
    settings = f"model={model} lm={lm} targets={searches.write_targets(tmp_path)}"
    _, value = first_trial("gibbs-enum", settings, 3, tmp_path)
    assert 0 <= value <= 1


def test_white_box(tmp_path: Path) -> None:
    model = made_up.save_negotiator(tmp_path / "model")
    _, value = first_trial("white-box", f"target={model} speaker={model} judge={model} scenarios=random", 3, tmp_path)
    assert -10 <= value <= 10


def test_perturbation(tmp_path: Path, responder: str) -> None:
    strategies = "strategies=data-paraphrase,grammar-errors,random-swap"
    _, value = first_trial("perturbation", f"model={responder} {DESK} {strategies}", 4, tmp_path)
    assert 0 <= value <= 1


def test_adversarial_training(tmp_path: Path, responder: str) -> None:
    plan, value = first_trial("adversarial-training", f"model={responder} {DESK}", 1, tmp_path)
    metrics = plan.load().result(plan.base(f"model={responder} {DESK}", 0), tmp_path / "runs" / "0").metrics
    assert value == pytest.approx((metrics["margin"].value - metrics["test_nll"].value) / 2)


@pytest.mark.ray
def test_rl_attack(tmp_path: Path, negotiator: str, ray_session: RaySession) -> None:
    rule = f"reinforce.{RULE.format('reinforce')}"
    _, value = first_trial("rl-attack", f"{negotiator} {rule} dialogues=6", 12, tmp_path)
    assert RunFolder.load(tmp_path / "runs" / "0" / "attack").job == "attack-rl", "a match that it did not learn from"
    assert -10 <= value <= 10


@pytest.mark.ray
def test_min_max(tmp_path: Path, negotiator: str, ray_session: RaySession) -> None:
    rules = " ".join(f"{name}.{RULE.format(name)}" for name in ("attack", "defence"))
    settings = f"{negotiator} {rules} attack.dialogues=12 budget=12 dialogues=6 perplexity_limit=0"
    _, value = first_trial("min-max", settings, 1, tmp_path, defence__dialogues=12)
    assert np.isfinite(value)


def test_every_preset_has_its_test() -> None:
    tested = {name.removeprefix("test_").replace("_", "-") for name in globals() if name.startswith("test_")}
    assert set(SWEEP.presets) - tested == {"demo"}, "that one runs in test_sweep.py and needs no model"


def test_ranking(tmp_path: Path) -> None:
    _, value = first_trial("ranking", "", 6, tmp_path)
    assert 0 <= value <= 1


def test_ranking_training(tmp_path: Path) -> None:
    sizes = "smn.embed=8 smn.turns=2 smn.words=8 smn.gru=6 smn.maps=3 smn.match=5 smn.session=4 limit=60"
    config = assign(TRAIN_MATCHER.presets["smn"](), f"{sizes} fit.max_epochs=1".split(), "test")
    TRAIN_MATCHER.run(config, tmp_path / "matcher", Silent())
    _, value = first_trial("ranking-training", f"start={tmp_path / 'matcher'} {sizes}", 1, tmp_path)
    assert 0 <= value <= 1


@pytest.mark.ray
def test_replies(tmp_path: Path, ray_session: RaySession) -> None:
    sizes = "sizes.embed=8 sizes.hidden=8 discriminator_sizes.embed=8 discriminator_sizes.hidden=8 learning.examples_per_step=8"
    settings = f"{sizes} fit.max_epochs=1 discriminator_fit.max_epochs=1 limit=60 checked=30"
    plan, value = first_trial("replies", settings, 1, tmp_path)
    metrics = plan.load().result(plan.base(settings, 0), tmp_path / "runs" / "0").metrics
    both = metrics["validation_adversuc"].value + metrics["validation_random"].value
    assert value == pytest.approx((both - 0.1 * metrics["validation_nll"].value) / 3)
