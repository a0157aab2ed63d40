"""What searches work on in the tests: small random models, their corpus, and workers that die."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from parley.engine.core.ray.record import Rows
from parley.engine.core.ray.worker import Shard, TurnResult
from parley.engine.triggers.methods.settings import RelaxationSettings, SearchSettings
from parley.engine.triggers.targets import Target
from parley.engine.triggers.verbs.config import TriggerConfig, TriggerEngineSettings
from parley.engine.triggers.verbs.search import SearchTask, SearchWorker
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


class DiesOnce(SearchWorker):
    """Is killed, as if from outside, when it has searched for the first target; a mark says that this has happened."""

    def __init__(self, mark: Path, *args: Any) -> None:
        super().__init__(*args)
        self.mark = mark

    def turn(self, joining: Sequence[Shard[Target]], seconds: float) -> TurnResult[Rows]:
        turn = super().turn(joining, 0.0)
        if turn.ended and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return turn


@dataclass(frozen=True)
class DyingSearch(SearchTask):
    """A search whose worker dies once."""

    mark: Path

    def worker(self) -> DiesOnce:
        return DiesOnce(self.mark, self.config, self.models)
