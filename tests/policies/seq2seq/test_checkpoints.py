"""Models on disk: those of older versions, and thresholds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parley.envs.core.errors import CheckpointError
from parley.policies.seq2seq.scoring import LANGUAGE_MODEL, SEQ2SEQ, load_seq2seq, save_model, threshold
from tests.policies.seq2seq.made_up import language_model, seq2seq


def test_a_model_from_before_contexts_had_turns_reads_one(tmp_path: Path) -> None:
    save_model(seq2seq(), tmp_path, {})
    config = json.loads((tmp_path / "config.json").read_text())
    del config["sizes"]["turns"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load_seq2seq(tmp_path).sizes.turns == 1


def test_the_test_loss_sets_the_threshold(tmp_path: Path) -> None:
    save_model(seq2seq(), tmp_path / "model", {"test_nll": 3.93})
    save_model(language_model(), tmp_path / "lm", {"test_nll": 4.12})
    assert (threshold(tmp_path / "model", SEQ2SEQ), threshold(tmp_path / "lm", LANGUAGE_MODEL)) == (-3.93, -4.12)
    save_model(seq2seq(), tmp_path / "model", {})
    with pytest.raises(CheckpointError, match="names no test loss"):
        threshold(tmp_path / "model", SEQ2SEQ)
