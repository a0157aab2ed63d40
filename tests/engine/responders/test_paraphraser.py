"""Training of a paraphraser as a run: what it leaves, that it goes on exactly, and mistakes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import REWRITING, TEXT
from parley.engine.core.verbs.job import Silent
from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.strategies.generative import build
from parley.engine.perturb.strategy import PerturbSettings
from parley.engine.responders import paraphraser
from parley.engine.responders.paraphraser import TRAIN_PARAPHRASER, TrainParaphraserConfig
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.corpora.pairs.corpora import helpdesk_paraphrases
from parley.envs.corpora.pairs.turns import parse_turns
from parley.policies.paraphraser.model import load_pointer_generator, paraphrases
from parley.policies.paraphraser.settings import BeamConfig, PointerFitConfig, PointerSizes
from tests.engine.core.verbs.made_up import Notes, assert_equal_weights, interrupt

FIT = PointerFitConfig(learning_rate=0.02, batch_size=8, max_epochs=3, decay_epochs=1)


def asked(corpus: str, **changes: object) -> TrainParaphraserConfig:
    settings = {"corpus": corpus, "vocabulary": 8, "sizes": PointerSizes(embed=8, hidden=8), "fit": FIT, **changes}
    return TrainParaphraserConfig(**settings)  # type: ignore[arg-type]  # settings of any kind, by name


def test_it_leaves_a_network_and_its_figures(tmp_path: Path, corpus: str) -> None:
    notes = Notes()
    result = TRAIN_PARAPHRASER.run(asked(corpus), tmp_path / "run", notes)
    assert set(result.metrics) == set(REWRITING | TEXT)
    for split, size in (("test", 3), ("validation", 2)):
        loss, perplexity = result.metrics[f"{split}_nll"], result.metrics[f"{split}_ppl"]
        assert perplexity.value == pytest.approx(math.exp(loss.value))
        assert loss.n == size
    model = load_pointer_generator(tmp_path / "run")
    assert len(model.vocabulary) == 8, "the other words are copied"
    epochs = [event for event in RunFolder.load(tmp_path / "run").events() if event["kind"] == "epoch"]
    assert [epoch["stage"] for epoch in epochs] == ["full", "full", "decay"]
    assert notes.stages[:3] == [(f"epoch {number}", 3, "batches") for number in (1, 2, 3)]
    assert all(path.exists() for path in result.files)
    settings = PerturbSettings(paraphraser=tmp_path / "run", lexicon="built-in")
    assert len(build(settings, Resources(settings)).perturb([parse_turns("red green")], [0])) == 1


def test_a_run_resumes_to_the_same_weights_and_a_finished_one_says_so(tmp_path: Path, corpus: str) -> None:
    TRAIN_PARAPHRASER.run(asked(corpus), tmp_path / "whole", Silent())
    interrupt(TRAIN_PARAPHRASER, asked(corpus), tmp_path / "stopped", "epoch  2")
    notes = Notes()
    TRAIN_PARAPHRASER.run(asked(corpus), tmp_path / "stopped", notes)
    assert notes.said[0] == "resumed after epoch 2, batch 0"
    assert_equal_weights(tmp_path / "stopped", tmp_path / "whole")
    again = Notes()
    TRAIN_PARAPHRASER.run(asked(corpus), tmp_path / "stopped", again)
    assert again.said == [f"{tmp_path / 'stopped'} is finished: nothing is left to do"]


def test_mistakes_are_named_and_no_run_is_made(tmp_path: Path, corpus: str) -> None:
    with pytest.raises(ConfigError, match="did you mean 'helpdesk_paraphrases'"):
        TRAIN_PARAPHRASER.run(asked("helpdesk_paraphrase"), tmp_path / "run", Silent())
    with pytest.raises(DataError, match="not complete"):
        TRAIN_PARAPHRASER.run(asked("msr_paraphrases", data_root=tmp_path / "nothing"), tmp_path / "run", Silent())
    with pytest.raises(ConfigError, match="vocabulary"):
        asked(corpus, vocabulary=5)
    assert not (tmp_path / "run").exists()


def test_presets_are_what_they_say() -> None:
    presets = {name: preset() for name, preset in TRAIN_PARAPHRASER.presets.items()}
    assert {name: (each.corpus, each.vocabulary, each.sizes.hidden, each.fit.adagrad) for name, each in presets.items()} == {
        "small": ("msr_paraphrases", 5_000, 128, 0.0),
        "see2017": ("msr_paraphrases", 50_000, 256, 0.1),
        "demo": ("helpdesk_paraphrases", 300, 32, 0.0),
    }


@pytest.mark.slow
def test_the_demo_paraphrases_the_help_desk(tmp_path: Path) -> None:
    TRAIN_PARAPHRASER.run(paraphraser.demo(), tmp_path / "run", Silent())
    split = helpdesk_paraphrases().splits["test"]
    words = [tuple(each) for each in split.utterances()]
    ways = {(words[source], words[reply]) for source, reply in split.pairs}
    said = paraphrases(load_pointer_generator(tmp_path / "run"), [words[source] for source, _ in split.pairs], BeamConfig())
    right = sum((words[source], found) in ways for (source, _), each in zip(split.pairs, said, strict=True) for found in each)
    assert right > 0.4 * len(split.pairs)
