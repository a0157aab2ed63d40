"""What jobs work on in the tests: checkpoints of small random networks and a data root of made-up dialogues."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from engine.attacks.settings import ReinforceConfig
from engine.jobs.reinforce import TrainReinforceConfig
from engine.store.run_folder import RunFolder
from envs.data.compiled import load_corpus
from envs.data.vocabulary import Vocabulary
from envs.negotiation.wording import bargainer_vocabulary
from policies.checkpoint import Checkpoint
from policies.negotiator.model import Negotiator
from policies.negotiator.settings import FitConfig, NegotiatorSizes
from policies.negotiator.speaker import KIND
from tests.envs.data import made_up

ROOT = Path(__file__).resolve().parents[3]
CORPUS = f"{made_up.__file__}:SOURCE"
TINY = NegotiatorSizes(
    embed_word=8, embed_context=4, hidden_context=4, hidden_language=8, hidden_attention=4, hidden_selection=4, init_range=0.4
)
FIT = FitConfig(sizes=TINY, max_epochs=3, batch_size=8)
REINFORCE = ReinforceConfig(
    reward="advantage",
    complementary=True,
    dialogues=24,
    dialogues_per_update=6,
    supervised_batch=4,
    max_turns=4,
    learning_rate=1e-2,
)


def save_negotiator(folder: Path, seed: int = 0, vocabulary: Vocabulary | None = None, kind: str = KIND) -> Path:
    """Stores a negotiator with random weights, by default one that scripted bargainers can talk with; returns the folder."""
    words = vocabulary or bargainer_vocabulary()
    model = Negotiator(words, TINY)
    model.initialise(torch.Generator().manual_seed(seed))
    Checkpoint(kind, asdict(TINY), {"role": "made up"}, words, model.state_dict()).save(folder)
    return folder


def data_root(folder: Path) -> Path:
    """A data root with the made-up corpus."""
    made_up.write(folder / made_up.SOURCE.name, made_up.contents(num_train=40))
    return folder


def corpus_vocabulary(root: Path) -> Vocabulary:
    """The words of the made-up corpus."""
    return load_corpus(CORPUS, root).vocabulary


def training(root: Path, target: Path, **changes: Any) -> TrainReinforceConfig:
    """A small training against a checkpoint whose words are the made-up corpus'."""
    settings: dict[str, Any] = {"corpus": CORPUS, "data_root": root, "save_every": 1, "reinforce": REINFORCE}
    return TrainReinforceConfig(target=str(target), **{**settings, **changes})


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a run in the order of their keys."""
    return sorted(RunFolder.load(path).read_rows().to_pylist(), key=lambda row: str(row["item_key"]))


def weights(path: Path) -> dict[str, torch.Tensor]:
    """The weights that a training stored."""
    return Checkpoint.load(path / "checkpoint", KIND).weights


def start_parley(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    """Starts `parley` in a process of its own, in a folder."""
    code = "import sys; from engine.cli.main import main; sys.exit(main())"
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class Notes:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.stages: list[tuple[str, int, str]] = []
        self.steps: list[int] = []

    def stage(self, title: str, total: int, unit: str) -> None:
        self.stages.append((title, total, unit))

    def advance(self, done: int, note: str = "") -> None:
        self.steps.append(done)

    def say(self, text: str) -> None:
        self.said.append(text)
