"""Training of discriminators as a run: what they learn, that they go on exactly, and mistakes."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.generation.metrics.tables import DISCRIMINATION, accuracies
from parley.engine.generation.verbs.discriminator import NEGATIVES, TRAIN_DISCRIMINATOR, TrainDiscriminatorConfig
from parley.envs.core.errors import CheckpointError, ConfigError, DataError
from parley.envs.corpora.pairs.compiled import RepliedPair, load_pairs
from parley.envs.generation.game import pairs_in_words
from parley.policies.core.checkpoint import load_state
from parley.policies.core.settings import FitConfig
from parley.policies.generation.discriminator.batches import DISCRIMINATOR, PREFIXES, Discriminator, load_discriminator
from parley.policies.generation.discriminator.settings import DiscriminatorSizes
from parley.policies.generation.judges.judge import JudgeSettings
from parley.policies.generation.judges.neural import NetworkJudge
from parley.policies.seq2seq.scoring import build_seq2seq, load_seq2seq, save_model
from tests.engine.core.verbs.made_up import Notes, assert_equal_weights

FIT = FitConfig(learning_rate=0.02, batch_size=8, max_epochs=4, decay_epochs=1, precision="float32")


def asked(corpus: str, generator: Path, **changes: Any) -> TrainDiscriminatorConfig:
    settings = {"corpus": corpus, "generator": str(generator), "decoder": "beam:2", "fit": FIT, "min_reply": 4}
    sizes = DiscriminatorSizes(embed=8, hidden=8, dropout=0.0)
    return TrainDiscriminatorConfig(**{**settings, "sizes": sizes, **changes})


def test_it_tells_people_from_a_model_that_says_anything(tmp_path: Path, corpus: str, generator: Path) -> None:
    notes = Notes()
    result = TRAIN_DISCRIMINATOR.run(asked(corpus, generator), tmp_path / "run", notes)
    assert list(result.metrics) == [name for name in DISCRIMINATION if name != "validation_accuracy_beginnings"]
    for split, num in (("validation", 16), ("test", 16)):
        assert result.metrics[f"{split}_accuracy"].value > 0.9
        assert result.metrics[f"{split}_accuracy"].n == num
    model = load_discriminator(tmp_path / "run")
    assert model.vocabulary.words == load_seq2seq(generator).vocabulary.words
    assert DISCRIMINATOR.provenance(tmp_path / "run")[PREFIXES] is False
    assert f"--start {generator}" in result.next_commands[1]
    # Half of the generator's replies are the same for all contexts: a beam's of a model that knows nothing.
    replies, splits = load_state(tmp_path / "run" / NEGATIVES)
    assert splits["splits"] == ["train", "val", "test"]
    assert len(replies["train.lengths"]) == 80
    epochs = [event for event in RunFolder.load(tmp_path / "run").events() if event["kind"] == "epoch"]
    assert all(0 <= epoch["validation_accuracy"] <= 1 for epoch in epochs)


def test_a_discriminator_and_judges_share_no_first_weight(
    tmp_path: Path, corpus: str, generator: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[torch.Tensor] = []
    initialise = Discriminator.initialise

    def remembers(model: Discriminator, randomness: torch.Generator) -> None:
        initialise(model, randomness)
        drawn.append(model.reader.words.weight_hh_l0.detach().clone())

    monkeypatch.setattr(Discriminator, "initialise", remembers)
    config = asked(corpus, generator)
    TRAIN_DISCRIMINATOR.run(config, tmp_path / "run", Silent())
    # In every fold afresh; with the seed of the discriminator, too.
    pairs = [RepliedPair((("my", "disk", str(number)),), ("which", str(number % 3))) for number in range(40)]
    labels = np.arange(40) % 2 == 0
    for seed in (config.seed, config.seed + 1):
        NetworkJudge("hierarchical", JudgeSettings(embedding=8, hidden=8)).fit(pairs, labels, seed)
    assert len(drawn) == 3
    assert all(not (one == other).any() for one, other in combinations(drawn, 2))


def test_it_learns_beginnings_too(tmp_path: Path, corpus: str, generator: Path) -> None:
    result = TRAIN_DISCRIMINATOR.run(asked(corpus, generator, prefixes=True), tmp_path / "run", Silent())
    assert result.metrics["validation_accuracy_beginnings"].value > 0.6
    assert DISCRIMINATOR.provenance(tmp_path / "run")[PREFIXES] is True
    assert "--method regs-partial" in result.next_commands[1]


def test_it_goes_on_exactly_and_decodes_nothing_twice(
    tmp_path: Path, corpus: str, generator: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley.engine.generation.verbs.discriminator._PART", 16)
    config = asked(corpus, generator)

    class Interrupted(Notes):
        def __init__(self, after: int) -> None:
            super().__init__()
            self.left = after

        def advance(self, done: float, note: str = "") -> None:
            super().advance(done, note)
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt

    TRAIN_DISCRIMINATOR.run(config, tmp_path / "whole", Silent())
    decoding = Interrupted(2)
    with pytest.raises(KeyboardInterrupt):
        TRAIN_DISCRIMINATOR.run(config, tmp_path / "parts", decoding)
    fitting = Interrupted(3 + 2 + 2 - 1 + 12)
    with pytest.raises(KeyboardInterrupt):
        TRAIN_DISCRIMINATOR.run(config, tmp_path / "parts", fitting)
    assert fitting.steps[0] == 48
    notes = Notes()
    TRAIN_DISCRIMINATOR.run(config, tmp_path / "parts", notes)
    assert notes.stages[0][0].startswith("epoch")
    assert_equal_weights(tmp_path / "parts", tmp_path / "whole")
    assert RunFolder.load(tmp_path / "whole").metrics() == RunFolder.load(tmp_path / "parts").metrics()


def test_what_another_run_decoded_is_taken(tmp_path: Path, corpus: str, generator: Path) -> None:
    config, run = asked(corpus, generator), tmp_path / "whole"
    begun = replace(config, prefixes=True, replies=str(run))
    alone = Notes()
    TRAIN_DISCRIMINATOR.run(begun, tmp_path / "alone", alone)
    assert len([what for what, *_ in alone.stages if "replies" in what]) == 3, "nothing is there yet"
    TRAIN_DISCRIMINATOR.run(config, run, Silent())
    beside = Notes()
    TRAIN_DISCRIMINATOR.run(begun, tmp_path / "beside", beside)
    assert not [what for what, *_ in beside.stages if "replies" in what]
    assert_equal_weights(tmp_path / "beside", tmp_path / "alone")
    (mine, about), (theirs, known) = (load_state(tmp_path / name / NEGATIVES) for name in ("beside", "alone"))
    assert about == known
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    with pytest.raises(CheckpointError, match="replies of another origin"):
        TRAIN_DISCRIMINATOR.run(replace(begun, seed=2), tmp_path / "other", Silent())


def test_a_corpus_is_read_in_the_words_of_the_generator(corpus: str, generator: Path) -> None:
    every, words = load_pairs(corpus, every_word=True), load_seq2seq(generator).vocabulary
    found = pairs_in_words(every, words, turns=2, min_reply=6, max_reply=7).splits["val"]
    split = every.splits["val"]
    wanted = [row for row, (_, reply) in enumerate(split.pairs) if 6 <= len(split.utterances[reply]) <= 7]
    assert len(found) == len(wanted) > 0
    for row, (source, reply) in zip(wanted, found.pairs.tolist(), strict=True):
        own = split.pairs[row]
        before = every.vocabulary.decode(split.utterances[own[0]])
        assert words.decode(found.utterances[source]) == before
        assert words.decode(found.utterances[reply]) == every.vocabulary.decode(split.utterances[own[1]])
    both = pairs_in_words(every, words, turns=2, min_reply=5, max_reply=5).splits["val"]
    assert "<eot>" in words.decode(both.utterances[int(both.pairs[0, 0])])


def test_accuracies_are_of_the_replies_that_they_name() -> None:
    human, contexts = np.array([True, False] * 3), np.repeat(np.arange(3), 2)
    kinds = np.repeat(["decoded", "sampled", "sampled"], 2)
    found = accuracies(np.array([2.0, -1.0, -1.0, 1.0, 3.0, 0.0]), human, contexts, kinds)
    values = {name: estimate.value for name, estimate in found.items()}
    assert values["accuracy"] == pytest.approx(3.5 / 6)
    assert values["accuracy_human"] == pytest.approx(2 / 3)
    assert (values["accuracy_decoded"], values["accuracy_sampled"]) == (1.0, 0.25)


def test_the_published_negatives_need_a_backward_model(tmp_path: Path, corpus: str, generator: Path) -> None:
    published = TRAIN_DISCRIMINATOR.presets["li2017"]()
    assert published.decoder == "mmi"
    lacking = asked(corpus, generator, decoder="mmi:2")
    for job in (TRAIN_DISCRIMINATOR.run, TRAIN_DISCRIMINATOR.prepare):
        with pytest.raises(ConfigError, match="re-ranked by a backward model, and none is named") as told:
            job(lacking, tmp_path / "run", Silent())
        assert "--backward RUN" in str(told.value)
    with pytest.raises(CheckpointError, match="--backward needs a checkpoint"):
        TRAIN_DISCRIMINATOR.run(replace(lacking, backward=str(tmp_path / "nothing")), tmp_path / "run", Silent())
    model = build_seq2seq(load_seq2seq(generator).vocabulary, load_seq2seq(generator).sizes.exchanged)
    model.initialise(torch.Generator().manual_seed(2))
    save_model(model, tmp_path / "back", {"role": "made up"})
    named = replace(lacking, backward=str(tmp_path / "back"))
    TRAIN_DISCRIMINATOR.run(named, tmp_path / "run", Silent())
    found = f"mmi:2,backward={tmp_path / 'back'}"
    assert DISCRIMINATOR.provenance(tmp_path / "run")["decoder"] == found
    assert f"negatives half by {found}, half sampled" in (RunFolder.load(tmp_path / "run").summary() or {})["description"]
    assert TRAIN_DISCRIMINATOR.models(named)["backward"] == str(tmp_path / "back")


def test_mistakes_are_named(tmp_path: Path, corpus: str, generator: Path) -> None:
    config = asked(corpus, generator)
    with pytest.raises(CheckpointError, match="--generator"):
        TRAIN_DISCRIMINATOR.run(replace(config, generator=str(tmp_path / "nothing")), tmp_path / "run", Silent())
    with pytest.raises(ConfigError, match="no decoder is called 'beem'"):
        TRAIN_DISCRIMINATOR.run(replace(config, decoder="beem:7"), tmp_path / "run", Silent())
    with pytest.raises(DataError, match="nothing to train and measure on"):
        TRAIN_DISCRIMINATOR.run(replace(config, min_reply=8), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
