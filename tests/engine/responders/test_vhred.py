"""Training of VHRED as a run: what it leaves, that it goes on exactly, and mistakes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.responders.vhred import TRAIN_VHRED, TrainVhredConfig
from parley.envs.core.errors import ConfigError, DataError, RunError
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.policies.core.settings import FitConfig
from parley.policies.vhred.decoding import load_model
from parley.policies.vhred.settings import VhredSizes
from tests.engine.core.verbs.made_up import Notes

run = TRAIN_VHRED.run

FIT = FitConfig(learning_rate=0.02, batch_size=8, max_epochs=3, decay_epochs=1)
SIZES = VhredSizes(embed=6, encoder=4, context=4, decoder=6, latent=3, score=4, readout=6, anneal_steps=4)


def asked(corpus: str, **changes: object) -> TrainVhredConfig:
    settings = {"corpus": corpus, "sizes": SIZES, "fit": FIT, **changes}
    return TrainVhredConfig(**settings)  # type: ignore[arg-type]  # settings of any kind, by name


def test_it_leaves_a_model_and_its_figures(tmp_path: Path, corpus: str) -> None:
    notes = Notes()
    result = run(asked(corpus), tmp_path / "run", notes)
    assert list(result.metrics) == list(TRAIN_VHRED.legend)
    for split, size in (("test", 3), ("validation", 2)):
        loss, perplexity, divergence = (result.metrics[f"{split}_{name}"] for name in ("nll", "ppl", "kl"))
        assert perplexity.value == pytest.approx(math.exp(loss.value))
        assert divergence.value >= 0
        assert (loss.n, divergence.n) == (size, size)
    model = load_model(tmp_path / "run")
    assert (model.vocabulary.digest, model.sizes) == (load_pairs(corpus).vocabulary.digest, SIZES)
    assert int(model.steps) > 0
    epochs = [event for event in RunFolder.load(tmp_path / "run").events() if event["kind"] == "epoch"]
    assert [epoch["stage"] for epoch in epochs] == ["full", "full", "decay"]
    assert all(epoch["validation_kl"] >= 0 for epoch in epochs)
    assert notes.stages[:3] == [(f"epoch {number}", 3, "batches") for number in (1, 2, 3)]
    assert all(path.exists() for path in result.files)
    assert result.next_commands == (f"parley evaluate robustness --model {tmp_path / 'run'}",)


def test_a_finished_training_says_so_and_an_unfinished_one_goes_on(tmp_path: Path, corpus: str) -> None:
    first = run(asked(corpus), tmp_path / "run", Silent())
    wanted = load_model(tmp_path / "run").state_dict()
    notes = Notes()
    again = run(asked(corpus), tmp_path / "run", notes)
    assert (again.metrics, again.title) == (first.metrics, first.title)
    assert notes.said == [f"{tmp_path / 'run'} is finished: nothing is left to do"]
    (tmp_path / "run" / "summary.json").unlink()
    # The last digit of sums depends on it, and a training carries that on.
    with pytest.raises(RunError, match="threads: 1 -> 2"):
        run(asked(corpus, threads=2), tmp_path / "run", Silent())
    run(asked(corpus), tmp_path / "run", notes)
    assert notes.said[1] == "resumed after epoch 3, batch 0"
    found = load_model(tmp_path / "run").state_dict()
    assert [name for name in wanted if not torch.equal(found[name], wanted[name])] == []


def test_mistakes_are_named_and_no_run_is_made(tmp_path: Path, corpus: str) -> None:
    with pytest.raises(ConfigError, match="did you mean 'helpdesk'"):
        run(asked("helpdsk"), tmp_path / "run", Silent())
    with pytest.raises(DataError, match="not complete"):
        run(asked("ubuntu_dialogues", data_root=tmp_path / "nothing"), tmp_path / "run", Silent())
    with pytest.raises(ConfigError, match=r"--device(.|\n)*warp"):
        run(asked(corpus, device="warp"), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_another_model_in_the_same_folder_is_an_error(tmp_path: Path, corpus: str) -> None:
    run(asked(corpus), tmp_path / "run", Silent())
    with pytest.raises(RunError, match=r"sizes\.attention: 'words' -> 'turns'"):
        run(asked(corpus, sizes=replace(SIZES, attention="turns")), tmp_path / "run", Silent())


def test_presets_are_what_they_say() -> None:
    made = {name: preset() for name, preset in TRAIN_VHRED.presets.items()}
    assert list(made) == ["small", "niu2018", "demo"]
    published, small = made["niu2018"], made["small"]
    assert published.sizes == VhredSizes(embed=300, encoder=256, context=512, decoder=512, latent=512, dropout=0.2)
    assert (published.fit.learning_rate, published.fit.clip, published.fit.batch_size) == (2e-4, 2.0, 64)
    assert (published.vocabulary, small.vocabulary) == (20_000, 10_000)
    assert (small.sizes.embed, small.sizes.encoder, small.sizes.context, small.sizes.decoder) == (150, 128, 256, 256)
    assert (made["demo"].corpus, small.corpus, published.corpus) == ("helpdesk", "ubuntu_dialogues", "ubuntu_dialogues")
