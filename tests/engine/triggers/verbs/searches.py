"""What searches work on in the tests: small random models and their corpus, and how they are interrupted."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from parley.engine.core.ray import pool
from parley.engine.core.verbs.job import Job, Silent
from parley.engine.triggers.methods.settings import RelaxationSettings, SearchSettings
from parley.engine.triggers.verbs import turns
from parley.engine.triggers.verbs.config import TriggerConfig, TriggerEngineSettings
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.vocabulary import EOS_ID, PairVocabulary
from parley.policies.seq2seq.model import LanguageModel, Seq2Seq
from parley.policies.seq2seq.scoring import save_model
from parley.policies.seq2seq.settings import LanguageModelSizes, Seq2SeqSizes

_WORDS = (("the", "my", "your"), ("printer", "screen"), ("is", "was"), ("old", "broken"))
SOURCES = [" ".join(words) for words in itertools.product(*_WORDS)]
REPLIES = ("i think you are a fool .", "oh well , not mine .", "yes it is .", "you are boring .")
SENTENCES = (
    "you are a fool",
    "my printer is old .",
    "zebra crossing",
    "i think it is your printer",
    "well you are broken",
    "oh not mine",
)
"""Targets; the words of one of them are in no pair."""
EFFORT = SearchSettings(candidates=4, max_sweeps=2, restarts=2)
SMALL = RelaxationSettings(rounds=1, steps=3)


IN_THE_MIDDLE = 'any(each["outcomes"] and any(one["visits"] for one in each["saved"].values()) for each in kept("run"))'
"""Of a run: of a target one restart has ended and another is under way, as `halts_at` asks."""

STEP_BY_STEP = """
from parley.engine.triggers.verbs import turns
from parley.engine.core.ray import pool
from parley.engine.core.ray import actors
actors.TURN_S = pool.TURN_S = turns.SAVED_EVERY_S = 0.0
"""
"""Code that makes turns end after a step, with what is kept: a fast machine may do all that there is in a longer one."""


class _Middle(Silent):
    """Interrupts a run where something under way is kept that says so."""

    def __init__(self, path: Path, reached: Callable[[Any], bool]) -> None:
        self.path, self.reached = path, reached

    def advance(self, done: float, note: str = "") -> None:
        if any(self.reached(json.loads(file.read_text())) for file in (self.path / "unfinished").glob("*.json")):
            raise KeyboardInterrupt


def interrupt_inside(job: Job[Any, Any, Any], config: Any, path: Path, reached: Callable[[Any], bool] = bool) -> None:
    """Makes a run up to where its shards, some under way, have kept what is asked for; turns end after a step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "TURN_S", 0.0)
        patch.setattr(turns, "SAVED_EVERY_S", 0.0)
        with pytest.raises(KeyboardInterrupt):
            job.run(config, path, _Middle(path, reached))


def has_ended_a_restart(kept: Any) -> bool:
    """As `IN_THE_MIDDLE`."""
    return any(each["outcomes"] and any(one["visits"] for one in each["saved"].values()) for each in kept.values())


def write_corpus(folder: Path) -> Path:
    """A file of pairs."""
    lines = [f"{source}\t{reply}\n" for source, reply in itertools.product(SOURCES, REPLIES)]
    (folder / "pairs.tsv").write_text("".join(lines))
    return folder / "pairs.tsv"


def write_targets(folder: Path, sentences: tuple[str, ...] = SENTENCES) -> str:
    """A file of targets; its name."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "wishes.txt").write_text("".join(f"{sentence}\n" for sentence in sentences))
    return str(folder / "wishes.txt")


def words_of(corpus: Path) -> PairVocabulary:
    """The vocabulary of the pairs."""
    return load_pairs(str(corpus)).vocabulary


def save_seq2seq(folder: Path, vocabulary: PairVocabulary, /, seed: int = 11, turns: int = 1, **provenance: Any) -> str:
    """Stores a random sequence-to-sequence model whose inputs have four words; its folder."""
    model = Seq2Seq(vocabulary, Seq2SeqSizes(embed=6, hidden=8, max_source=5, max_reply=8, turns=turns))
    model.initialise(torch.Generator().manual_seed(seed))
    with torch.no_grad():
        # As drawn, every word is as likely as any other, whatever the input is.
        for parameter in model.parameters():
            parameter.mul_(4)
        # Nor would it end its replies.
        model.output.bias[EOS_ID] += 1
    save_model(model, folder, {"test_nll": 3.0, "turns": turns, **provenance})
    return str(folder)


def save_lm(folder: Path, vocabulary: PairVocabulary, seed: int = 0) -> str:
    """Stores a random language model; its folder."""
    model = LanguageModel(vocabulary, LanguageModelSizes(embed=6, hidden=8, max_length=5))
    model.initialise(torch.Generator().manual_seed(seed))
    save_model(model, folder, {"test_nll": 3.2})
    return str(folder)


def search(model: str, targets: str, **changes: Any) -> TriggerConfig:
    """A search of a few candidates; two targets a shard."""
    settings: dict[str, Any] = {"search": EFFORT, "engine": TriggerEngineSettings(batch_size=4), "shard_size": 2}
    return TriggerConfig(model=model, targets=targets, **{**settings, **changes})
