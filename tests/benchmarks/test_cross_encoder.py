"""Cross-encoders beside sentence-transformers: what is counted and compared, and the peer in its own environment."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import cross_encoder
from benchmarks.cross_encoder import Options, Plain, measure, operations, predict_by_peer, save_model
from benchmarks.ranking import generated
from parley.envs.core.errors import ConfigError


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drawn network of small sizes, and generated contexts."""
    for name, size in {"LAYERS": 2, "WIDTH": 16, "INNER": 24, "HEADS": 2, "QUICK": 3}.items():
        monkeypatch.setattr(cross_encoder, name, size)
    monkeypatch.setattr(cross_encoder, "find_spec", lambda name: None)
    monkeypatch.setattr(cross_encoder, "groups", lambda number, root: ("generated", generated(number)))
    monkeypatch.setattr(cross_encoder, "peak_flop_per_s", lambda device: 1e9)


def test_operations_are_those_of_the_products(tmp_path: Path) -> None:
    save_model(tmp_path, generated(2))
    model = transformers.BertForSequenceClassification.from_pretrained(tmp_path, attn_implementation="eager")
    lengths = np.array([5, 9, 2])
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        for length in lengths:
            model(input_ids=torch.zeros(1, int(length), dtype=torch.long))
    head = 2 * 16 * 16 + 2 * 16
    assert operations(lengths, whole=True) == counter.get_total_flops() - len(lengths) * head
    one_layer = operations(lengths, whole=True) / 2
    first_alone = operations(lengths, whole=False) - one_layer
    assert 0 < first_alone < one_layer / 3


def test_both_ways_give_the_scores_and_the_figures_of_the_same_pairs() -> None:
    result = measure(Options(quick=True))
    assert result.identical
    assert result.figures["spread"] > 0.01
    assert (result.figures["texts"], result.figures["encoder"], result.figures["reference"]) == ("generated", "drawn", "plain")
    assert result.figures["pairs"] == 30
    assert 0 < result.figures["padding_share"] < 1
    assert result.figures["gflop"] < result.figures["reference_gflop"]


def test_other_scores_of_the_reference_are_not_identical(monkeypatch: pytest.MonkeyPatch) -> None:
    predict = Plain.predict
    monkeypatch.setattr(Plain, "predict", lambda self, texts: predict(self, texts) + 2e-5)
    assert not measure(Options(quick=True)).identical


def test_the_peer_reads_the_pairs_in_its_own_environment(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        f"#!{sys.executable}\nimport json, os, pathlib, sys\n"
        "pairs = json.loads(pathlib.Path(sys.argv[2], 'pairs.json').read_text())\n"
        "assert 'PYTHONPATH' not in os.environ\n"
        "print('a library says something')\nprint(json.dumps([60.0, [0.0] * len(pairs)]))\n"
    )
    python.chmod(0o755)
    result = measure(Options(quick=True, peer=str(python)))
    assert (result.identical, result.figures["reference"]) == (False, "sentence-transformers")
    assert result.figures["reference_ms_a_pair"] == 2000.0


def test_a_peer_that_is_not_installed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No module named 'sentence_transformers'"):
        predict_by_peer(sys.executable, tmp_path)
