"""Every training that diverges fails with what, where and how to mend it, and leaves no model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.core.ray.session import RaySession
from parley.engine.core.verbs.job import Silent
from parley.engine.negotiation.verbs.negotiator import TRAIN_NEGOTIATOR, TrainNegotiatorConfig
from parley.engine.negotiation.verbs.training import TRAIN_RL
from parley.engine.responders.paraphraser import TRAIN_PARAPHRASER, TrainParaphraserConfig
from parley.engine.responders.seq2seq import TRAIN_LM, TRAIN_SEQ2SEQ, TrainLMConfig, TrainSeq2SeqConfig
from parley.engine.responders.vhred import TRAIN_VHRED, TrainVhredConfig
from parley.envs.core.errors import ParleyError
from parley.policies.core.settings import FitConfig
from parley.policies.paraphraser.settings import PointerFitConfig, PointerSizes
from parley.policies.seq2seq.settings import LanguageModelSizes, Seq2SeqSizes
from parley.policies.vhred.settings import VhredSizes
from tests.engine.core.verbs.made_up import CORPUS, FIT, REINFORCE, training

RATE = 1e30
# One batch in all: what its update did shows in the validation alone.
ONE_BATCH = {"learning_rate": RATE, "batch_size": 64, "max_epochs": 1, "decay_epochs": 0}
TINY_VHRED = VhredSizes(embed=6, encoder=4, context=4, decoder=6, latent=3, score=4, readout=6, anneal_steps=4)
Train = Callable[[Path], object]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("pairs")
    words = ("red", "green", "blue", "grey", "brown")
    lines = [f"{first} {second}\t{second} {first}" for first in words for second in words]
    for split, part in (("train", lines[:20]), ("val", lines[20:22]), ("test", lines[22:])):
        (folder / f"{split}.tsv").write_text("\n".join(part) + "\n")
    return str(folder)


@pytest.fixture(scope="module")
def supervised(pairs: str) -> dict[str, Train]:
    fits = {"last": FitConfig(keep="last", **ONE_BATCH), "best": FitConfig(keep="best", **ONE_BATCH)}  # type: ignore[arg-type]
    small = Seq2SeqSizes(embed=8, hidden=8)

    def seq2seq(fit: FitConfig) -> Train:
        return lambda path: TRAIN_SEQ2SEQ.run(TrainSeq2SeqConfig(corpus=pairs, sizes=small, fit=fit), path, Silent())

    lm = TrainLMConfig(corpus=pairs, sizes=LanguageModelSizes(embed=8, hidden=8), fit=fits["last"])
    vhred = TrainVhredConfig(corpus=pairs, sizes=TINY_VHRED, fit=fits["best"])
    pointing = PointerFitConfig(**ONE_BATCH)  # type: ignore[arg-type]
    paraphraser = TrainParaphraserConfig(corpus=pairs, vocabulary=8, sizes=PointerSizes(embed=8, hidden=8), fit=pointing)
    return {
        "seq2seq, last model": seq2seq(fits["last"]),
        "seq2seq, best model": seq2seq(fits["best"]),
        "seq2seq, many batches": seq2seq(replace(fits["best"], batch_size=4, max_epochs=3)),
        "language model": lambda path: TRAIN_LM.run(lm, path, Silent()),
        "vhred": lambda path: TRAIN_VHRED.run(vhred, path, Silent()),
        "paraphraser": lambda path: TRAIN_PARAPHRASER.run(paraphraser, path, Silent()),
    }


def assert_it_says_so(train: Train, path: Path) -> None:
    with pytest.raises(ParleyError, match=r"diverged|no longer make finite numbers|is not finite") as found:
        train(path)
    assert found.value.where
    assert found.value.got
    assert "learning_rate" in str(found.value.fix)
    assert f"{RATE:g}" in str(found.value.fix)
    assert not (path / "checkpoint").exists()
    assert not (path / "summary.json").exists()


@pytest.mark.parametrize(
    "kind", ["seq2seq, last model", "seq2seq, best model", "seq2seq, many batches", "language model", "vhred", "paraphraser"]
)
def test_a_supervised_training_that_diverges_fails(tmp_path: Path, supervised: dict[str, Train], kind: str) -> None:
    assert_it_says_so(supervised[kind], tmp_path / "run")


@pytest.mark.parametrize("batch_size", [8, 512])
def test_a_negotiator_that_diverges_fails(tmp_path: Path, root: Path, batch_size: int) -> None:
    fit = replace(FIT, learning_rate=RATE, batch_size=batch_size)
    config = TrainNegotiatorConfig(corpus=CORPUS, data_root=root, fit=fit)
    assert_it_says_so(lambda path: TRAIN_NEGOTIATOR.run(config, path, Silent()), tmp_path / "run")


@pytest.mark.ray
@pytest.mark.parametrize("updates", [1, 3])
def test_a_training_by_reinforcement_that_diverges_fails(
    tmp_path: Path, root: Path, trainee: Path, ray_session: RaySession, updates: int
) -> None:
    rule = replace(REINFORCE, learning_rate=RATE, dialogues=updates * REINFORCE.dialogues_per_update)
    config = training(root, trainee, reinforce=rule)
    assert_it_says_so(lambda path: TRAIN_RL.run(config, path, Silent()), tmp_path / "run")
