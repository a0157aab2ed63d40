"""Training of DynoNets as a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.jobs.collaboration.dynonet import TRAIN_DYNONET, TrainDynoNetConfig, he2017, stanonet
from engine.jobs.job import Silent
from engine.metrics.collaboration.training import FRIENDS_TRAINING
from engine.store.run_folder import RunFolder
from envs.core.errors import ConfigError, OutOfRangeError
from policies.dynonet.checkpoints import corpus_of, load_dynonet
from policies.dynonet.settings import DynoNetSizes, dynonet_fit

SIZES = DynoNetSizes(embed=8, hidden=8, message=4, edge=4)
FIT = replace(dynonet_fit(), max_epochs=2, decay_epochs=1)
ASKED = TrainDynoNetConfig(limit=12, selfplay=3, sizes=SIZES, fit=FIT)


def test_a_run_stores_a_model_and_says_how_well_it_finds_friends(tmp_path: Path) -> None:
    result = TRAIN_DYNONET.run(ASKED, tmp_path / "run", Silent())
    assert list(result.metrics) == list(FRIENDS_TRAINING)
    assert result.metrics["selfplay_completion"].n == 3
    assert result.metrics["test_linked"].value > 0.8
    assert corpus_of(tmp_path / "run") == "friends"
    assert load_dynonet(tmp_path / "run").sizes == SIZES
    epochs = [event for event in RunFolder.load(tmp_path / "run").events() if event["kind"] == "epoch"]
    assert epochs[1]["validation_nll"] < epochs[0]["validation_nll"]
    assert result.next_commands == (f"parley evaluate collaboration --model {tmp_path / 'run'}",)
    assert TRAIN_DYNONET.run(ASKED, tmp_path / "run", Silent()).metrics == result.metrics


def test_presets_and_mistakes(tmp_path: Path) -> None:
    assert he2017().corpus == stanonet().corpus == "mutualfriends_scripted"
    assert (he2017().sizes.dynamic, stanonet().sizes.dynamic) == (True, False)
    with pytest.raises(OutOfRangeError, match="precision"):
        replace(ASKED, fit=replace(FIT, precision="bfloat16"))
    with pytest.raises(ConfigError, match="friends"):
        TRAIN_DYNONET.run(replace(ASKED, corpus="freinds"), tmp_path / "run", Silent())
