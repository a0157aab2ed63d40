"""A model of words and one of pieces on the very same contexts: what each sees, what is compared, table 9."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.metrics.table import UNKNOWN_SHARE
from parley.engine.perturb.strategies.noise import CharacterNoise
from parley.engine.perturb.verbs.config import RobustnessConfig
from parley.engine.perturb.verbs.models import ModelSpecs, admitted, open_models, usual_words
from parley.engine.perturb.verbs.robustness import EVALUATE_ROBUSTNESS
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.corpora.pairs.compiled import load_pairs, pieces_of
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from tests.engine.core.verbs.made_up import rows
from tests.engine.perturb.verbs.robust import BUILT_IN, OWN, SWAP, save_responder

NOISE, GRAMMAR = "character-noise", "grammar-errors"
run = EVALUATE_ROBUSTNESS.run


@pytest.fixture(scope="module")
def pieces() -> PairVocabulary:
    return pieces_of(load_pairs("helpdesk", every_word=True), 80)


@pytest.fixture(scope="module")
def spelling(tmp_path_factory: pytest.TempPathFactory, pieces: PairVocabulary) -> str:
    """A model of pieces."""
    return save_responder(tmp_path_factory.mktemp("pieces") / "checkpoint", pieces, seed=3)


def test_both_models_answer_the_same_contexts(tmp_path: Path, asked: RobustnessConfig, spelling: str) -> None:
    asked = replace(asked, strategies=f"{SWAP},{NOISE},{GRAMMAR}", published="niu2018")
    result = run(replace(asked, beside=spelling), tmp_path / "both", Silent())
    run(asked, tmp_path / "alone", Silent())
    for both, alone in zip(rows(tmp_path / "both"), rows(tmp_path / "alone"), strict=True):
        assert both["perturbations"] == alone["perturbations"]
        assert [each for each in both["replies"] if each["model"] == "base"] == alone["replies"]
        assert [each["strategy"] for each in both["replies"] if each["model"] == "beside"] == ["", SWAP, NOISE, GRAMMAR]
    figures = result.metrics
    # The help desk says words that a vocabulary of 120 has not; a slip makes a word that nobody has.
    assert figures[f"{UNKNOWN_SHARE}.base.clean"].value > 0.3
    assert figures[f"{UNKNOWN_SHARE}.base.{SWAP}"].value == 0.0
    assert figures[f"{UNKNOWN_SHARE}.base.{NOISE}"].value == figures[f"perturbed_share.{NOISE}"].value > 0
    assert all(f"change_rate{kind}.beside.{NOISE}" in figures for kind in ("", "_touched", "_gain", "_p"))
    tables = EVALUATE_ROBUSTNESS.tables(RunFolder.load(tmp_path / "both"))
    table = tables["Words and pieces of words"]
    named = [row[0] for row in table.rows]
    assert named[:2] == ["seq2seq, words, clean", "published"]
    assert named.count("published") == 4
    assert "seq2seq, pieces, character-noise" in named
    types = {row[0]: row[1] for row in table.rows}
    assert types["seq2seq, words, clean"] == "121"
    assert [row[3:5] for row in table.rows if row[0] == "published"] == [
        ("5.94", "3.52"),
        ("5.60", "3.09"),
        ("5.99", "3.66"),
        ("5.86", "3.54"),
    ]
    assert "trained" not in " ".join(row[0] for row in tables["Change and similarity"].rows)


def test_a_model_of_pieces_is_asked_alone(tmp_path: Path, asked: RobustnessConfig, spelling: str) -> None:
    result = run(replace(asked, model=spelling, strategies="random-inputs"), tmp_path / "run", Silent())
    assert not any(name.startswith(UNKNOWN_SHARE) for name in result.metrics)
    words = set(load_pairs("helpdesk", every_word=True).vocabulary.words)
    for row in rows(tmp_path / "run"):
        assert set(row["perturbations"][0]["text"].split()) <= words | {"<eot>", "<eou>"}


def test_a_filter_of_pieces_asks_what_can_be_spelt(pieces: PairVocabulary) -> None:
    corpus = load_pairs("helpdesk", every_word=True).vocabulary
    shared = Resources(BUILT_IN, admitted(pieces), usual_words(pieces, corpus))
    assert shared.may_enter(("uninstalls", "zebra"))
    assert not shared.may_enter(("naïve",))
    assert shared.common == corpus.words[5:1005]
    # Every slip can be spelt, and is no word for that.
    assert "pakcage" in pieces
    contexts = [((("package", "install", "manager"),),)]
    assert CharacterNoise(shared, 1.0).perturb(contexts, [1]) != contexts


def test_mistakes_are_named(tmp_path: Path, asked: RobustnessConfig, spelling: str) -> None:
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(ConfigError, match="has no others beside it"):
        open_models(replace(asked, model=f"{tmp_path}/own.py:Parrot", beside=spelling))
    with pytest.raises(CheckpointError, match="--beside needs a checkpoint"):
        open_models(replace(asked, beside=str(tmp_path / "nothing")))
    found: ModelSpecs = open_models(replace(asked, beside=spelling))
    assert {label: size.units for label, size in found.sizes.items()} == {"base": "words", "beside": "pieces"}
