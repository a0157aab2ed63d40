"""Evaluation under perturbations: mistakes are named before a run is made."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.verbs.job import Silent
from parley.engine.perturb.catalogue import GROUPS
from parley.engine.perturb.strategy import PerturbSettings
from parley.engine.perturb.verbs.config import ContextSettings, RobustnessConfig
from parley.engine.perturb.verbs.robustness import EVALUATE_ROBUSTNESS
from parley.envs.core.errors import CheckpointError, ConfigError, DataError, ParleyError
from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary
from tests.engine.core.verbs.made_up import save_negotiator
from tests.engine.perturb.verbs.robust import OWN, SWAP, save_responder, words_of_the_desk

run = EVALUATE_ROBUSTNESS.run


def test_paraphrases_of_a_group_need_a_network_and_are_left_out_without_one(asked: RobustnessConfig) -> None:
    assert "generative-paraphrase" not in RobustnessConfig().strategy_names
    assert RobustnessConfig().left_out == ("generative-paraphrase",)
    given = RobustnessConfig(perturb=PerturbSettings(paraphraser=Path("runs/paraphraser")))
    assert given.strategy_names == GROUPS["all"]
    assert RobustnessConfig(strategies="generative-paraphrase").strategy_names == ("generative-paraphrase",)


MISTAKES: dict[str, tuple[dict[str, Any], type[ParleyError], str]] = {
    "no model": ({"model": "nothing"}, CheckpointError, "--model needs a checkpoint"),
    "no trained model": ({"trained": "nothing"}, CheckpointError, "--trained needs a checkpoint"),
    "no network for paraphrases": ({"strategies": "generative-paraphrase"}, ConfigError, "parley train paraphraser"),
    "a strategy's file that is not there": ({"strategies": "mine.py:Mine"}, ConfigError, "no such Python file"),
    "too long contexts": (
        {"contexts": ContextSettings(turns=80, min_turns=80)},
        DataError,
        r"no example with a context of 80 turns(.|\n)*contexts\.min_turns",
    ),
    "no such corpus": ({"corpus": "helpdisk"}, ConfigError, "did you mean 'helpdesk'"),
    "a corpus that is not there": ({"corpus": "switchboard", "data_root": Path("nowhere")}, DataError, "switchboard"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_and_no_run_is_made(tmp_path: Path, asked: RobustnessConfig, mistake: str) -> None:
    changes, kind, message = MISTAKES[mistake]
    with pytest.raises(kind, match=message):
        run(replace(asked, **changes), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_an_unknown_strategy_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="'antonim', did you mean 'antonym'"):
        RobustnessConfig(strategies="random-swap,antonim")


def test_a_missing_wordnet_names_the_command(tmp_path: Path, asked: RobustnessConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    nltk = pytest.importorskip("nltk")
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    with pytest.raises(DataError, match="parley data get nltk"):
        run(replace(asked, perturb=PerturbSettings()), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_models_that_cannot_be_compared_are_named(tmp_path: Path, asked: RobustnessConfig, trained: str, model: str) -> None:
    other = PairVocabulary((*SPECIALS, "other", "words"))
    silent = Path(save_responder(tmp_path / "silent", words_of_the_desk()))
    config = json.loads((silent / "config.json").read_text())
    del config["provenance"]["corpus"]
    (silent / "config.json").write_text(json.dumps(config))
    (tmp_path / "mine.py").write_text(OWN)
    foreign = save_responder(tmp_path / "foreign", other, role="adversarial", strategies=[SWAP])
    mistakes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"model": str(save_negotiator(tmp_path / "negotiator"))}, "kind"),
        ({"trained": foreign}, r"vocabularies differ(.|\n)*8 words(.|\n)*121 words"),
        ({"trained": model}, r"not trained against perturbations(.|\n)*parley train adversarial"),
        ({"trained": f"{trained},{trained}"}, f"trained against the same(.|\n)*{SWAP}"),
        ({"model": str(silent)}, "--corpus"),
        ({"model": f"{tmp_path / 'mine.py'}:Parrot", "trained": trained}, "not Parley's has no others"),
    )
    for changes, message in mistakes:
        with pytest.raises(ParleyError, match=message):
            run(replace(asked, **changes), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
