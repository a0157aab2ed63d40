"""Pairs in which people say sensible things, and a generator that was not fitted: easy to tell apart."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.contexts import with_eot
from parley.policies.seq2seq.model import Seq2Seq
from parley.policies.seq2seq.scoring import save_model
from parley.policies.seq2seq.settings import Seq2SeqSizes
from tests.engine.core.verbs.conftest import _small_machine, root, speaker, target, trainee  # noqa: F401  # fixtures

NOUNS = ("disk", "cable", "screen", "mouse", "printer", "battery", "router", "keyboard")
SIZES = Seq2SeqSizes(embed=8, hidden=8, max_source=20, max_reply=9, turns=2)


@pytest.fixture(scope="package")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Dialogues of three lines: what is broken, a question, an answer."""
    folder = tmp_path_factory.mktemp("corpus")
    dialogues = [
        (f"my {first} is near the {second}", f"is the {second} on the {first} ?", f"yes the {first} is on")
        for first in NOUNS
        for second in NOUNS
        if first != second
    ]
    for split, part in (("train", dialogues[:40]), ("val", dialogues[40:48]), ("test", dialogues[48:])):
        lines = [f"{said[0]}\t{said[1]}\n{said[1]}\t{said[2]}\n" for said in part]
        (folder / f"{split}.tsv").write_text("".join(lines))
    return str(folder)


@pytest.fixture(scope="package")
def generator(tmp_path_factory: pytest.TempPathFactory, corpus: str) -> Path:
    """A model with drawn weights that knows the words of the corpus."""
    folder = tmp_path_factory.mktemp("generator") / "checkpoint"
    model = Seq2Seq(with_eot(load_pairs(corpus).vocabulary), SIZES)
    model.initialise(torch.Generator().manual_seed(1))
    save_model(model, folder, {"role": "made up"})
    return folder
