"""What jobs work on in the tests: checkpoints of small random networks and a data root of made-up dialogues."""

from __future__ import annotations

import math
import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tensorboardX.proto.event_pb2 import Event

from parley.engine.core.ray.worker import Shard
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Job, Result, Silent
from parley.engine.core.verbs.trainings import FOLDER
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.engine.negotiation.verbs.campaign import MinMaxConfig
from parley.engine.negotiation.verbs.training import TrainReinforceConfig, TrainTargetConfig
from parley.envs.negotiation.corpora.catalogue import load_corpus
from parley.envs.negotiation.domain import Vocabulary
from parley.envs.negotiation.scripted.wording import bargainer_vocabulary
from parley.policies.core.checkpoint import Checkpoint
from parley.policies.core.responder import WEIGHTS
from parley.policies.negotiator.model import Negotiator
from parley.policies.negotiator.settings import KIND, NegotiatorFitConfig, NegotiatorSizes
from tests.envs.corpora import made_up

ROOT = Path(__file__).resolve().parents[4]
CORPUS = f"{made_up.__file__}:SOURCE"
TINY = NegotiatorSizes(
    embed_word=8, embed_context=4, hidden_context=4, hidden_language=8, hidden_attention=4, hidden_selection=4, init_range=0.4
)
FIT = NegotiatorFitConfig(sizes=TINY, max_epochs=5, batch_size=8)
REINFORCE = ReinforceConfig(
    reward="advantage",
    complementary=True,
    dialogues=24,
    dialogues_per_update=6,
    supervised_batch=4,
    max_turns=4,
    learning_rate=1e-2,
)


def save_negotiator(
    folder: Path, seed: int = 0, vocabulary: Vocabulary | None = None, kind: str = KIND, **provenance: Any
) -> Path:
    """Stores a negotiator with random weights, by default one that scripted bargainers can talk with; returns the folder."""
    words = vocabulary or bargainer_vocabulary()
    model = Negotiator(words, TINY)
    model.initialise(torch.Generator().manual_seed(seed))
    Checkpoint(kind, asdict(TINY), {"role": "made up", **provenance}, words, model.state_dict()).save(folder)
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


def hardening(root: Path, target: Path, adversaries: str, **changes: Any) -> TrainTargetConfig:
    """A small training of a target against adversaries, all of the made-up corpus' words."""
    settings: dict[str, Any] = {"corpus": CORPUS, "data_root": root, "save_every": 1, "reinforce": REINFORCE}
    return TrainTargetConfig(target=str(target), adversaries=adversaries, **{**settings, **changes})


def campaign(root: Path, target: Path, **changes: Any) -> MinMaxConfig:
    """Adversarial training of two updates a phase and six dialogues a measurement."""
    rule = replace(REINFORCE, dialogues=12)
    settings: dict[str, Any] = {"corpus": CORPUS, "data_root": root, "save_every": 1, "perplexity_limit": 0}
    settings |= {"rounds": 2, "budget": 12, "dialogues": 6, "attack": rule, "defence": rule}
    return MinMaxConfig(target=str(target), **{**settings, **changes})


def given(root: Path, target: Path, adversary: Path, **changes: Any) -> MinMaxConfig:
    """One round of that against an adversary that is there already."""
    return campaign(root, target, adversary=str(adversary), adversaries="fresh", **{"rounds": 1, **changes})


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a run in the order of their keys."""
    return sorted(RunFolder.load(path).read_rows().to_pylist(), key=lambda row: str(row["item_key"]))


def asked_of(path: Path, *names: str) -> dict[str, Any]:
    """Some settings of a run."""
    config = RunFolder.load(path).config
    return {name: config[name] for name in names}


def phases(path: Path) -> list[str]:
    """The names of a campaign's stages."""
    return sorted(folder.parent.name for folder in path.glob("*/environment.json"))


def metrics(result: Result) -> dict[str, Any]:
    """What a job found, as it is stored."""
    return {name: estimate.to_json() for name, estimate in result.metrics.items()}


def weights(path: Path) -> dict[str, torch.Tensor]:
    """The weights that a training stored."""
    return load_file(path / "checkpoint" / WEIGHTS)


def assert_equal_weights(found: Path, wanted: Path) -> None:
    """That two trainings stored the same."""
    first, second = weights(found), weights(wanted)
    assert first.keys() == second.keys()
    assert [name for name in first if not first[name].equal(second[name])] == []


def iterations(path: Path) -> list[int]:
    """The updates that a training made, in the order in which it made them."""
    return [event["number"] for event in RunFolder.load(path).events() if event["kind"] == "iteration"]


def tensorboard_events(path: Path) -> list[Event]:
    """What TensorBoard reads of a run, in the order in which it was written."""
    found = []
    for file in sorted((path / FOLDER).iterdir()):
        content = file.read_bytes()
        while content:
            # A record: its length, a checksum of that, the event, a checksum of it.
            end = 12 + struct.unpack("<Q", content[:8])[0]
            found.append(Event.FromString(content[12:end]))
            content = content[end + 4 :]
    return found


def scalars(path: Path) -> dict[str, list[tuple[int, float]]]:
    """The scalars among that: (step, value) by name."""
    found: dict[str, list[tuple[int, float]]] = {}
    for event in tensorboard_events(path):
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def kill_when(process: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    """Kills a process at a moment of its work, which is not its end."""
    with process:
        while process.poll() is None and not reached():
            time.sleep(0.01)
        process.kill()
        _, told = process.communicate()
    assert process.returncode == -9, told


_HALTS = """
import json, time
from pathlib import Path
from parley.engine.core.ray import record
from parley.engine.core.runs.run_folder import RunFolder

def parts(run):
    return len([*Path(run, "rows").glob("*.parquet")])

def events(run, kind):
    log = Path(run, "events.jsonl")
    lines = log.read_text().split("\\n") if log.is_file() else []
    return sum(json.loads(line)["kind"] == kind for line in lines if line)

def kept(run):
    return [each for file in Path(run, "unfinished").glob("*.json") for each in json.loads(file.read_text()).values()]

def halting(method):
    def call(*arguments, **options):
        found = method(*arguments, **options)
        if REACHED:
            Path("halted").touch()
            time.sleep(3600)
        return found
    return call

RunFolder.event, RunFolder.note_part = halting(RunFolder.event), halting(RunFolder.note_part)
record.write_unfinished = halting(record.write_unfinished)
"""


def halts_at(reached: str) -> str:
    """Code that makes a process go no further once so much is written down: it can be stopped there, however fast it is.

    Args:
        reached: an expression, asked after every event, every part of rows and whatever is kept of a shard under way. It
            knows `parts(run)`, `events(run, kind)` and `kept(run)`, which is what targets are gone on from.
    """
    return _HALTS.replace("REACHED", reached)


def await_halt(process: subprocess.Popen[str], folder: Path) -> None:
    """Waits until a process halts, started with `halts_at` in a folder, or ends."""
    while process.poll() is None and not (folder / "halted").exists():
        time.sleep(0.01)


def kill_at(reached: str, *arguments: str, folder: Path, before: str = "") -> None:
    """Starts `parley` in a process of its own, as `start_parley`, and kills it where `halts_at` makes it halt."""
    with start_parley(*arguments, folder=folder, before=before + halts_at(reached)) as process:
        await_halt(process, folder)
        process.kill()
        _, told = process.communicate()
    assert process.returncode == -9, told


def start_parley(*arguments: str, folder: Path, before: str = "") -> subprocess.Popen[str]:
    """Starts `parley` in a process of its own, in a folder; before it, some lines of code."""
    # A shell ignores Ctrl-C for what it starts in the background, and so would what is started here.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heard}\n{before}\nimport sys; from parley.engine.core.cli.main import main; sys.exit(main())"
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
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.stages: list[tuple[str, int, str]] = []
        self.steps: list[float] = []

    def stage(self, title: str, total: int, unit: str) -> None:
        self.stages.append((title, total, unit))

    def advance(self, done: float, note: str = "") -> None:
        self.steps.append(done)

    def say(self, text: str) -> None:
        self.said.append(text)


class Listening(Notes):
    """One that remembers notes on the way too."""

    def advance(self, done: float, note: str = "") -> None:
        super().advance(done, note)
        self.said.append(note)


class Interrupted(Notes):
    """A reporter at whom a run is interrupted: at a line or a stage's title that begins so, or once so much is done.

    Args:
        words: a regular expression.
        done: of a stage.
    """

    def __init__(self, words: str = "", done: float = math.inf) -> None:
        super().__init__()
        self.words, self.done = words, done

    def stage(self, title: str, total: int, unit: str) -> None:
        super().stage(title, total, unit)
        self._look(title)

    def advance(self, done: float, note: str = "") -> None:
        super().advance(done, note)
        if done >= self.done:
            raise KeyboardInterrupt

    def say(self, text: str) -> None:
        super().say(text)
        self._look(text)

    def _look(self, text: str) -> None:
        if self.words and re.match(self.words, text):
            raise KeyboardInterrupt


def interrupt(job: Job[Any, Any, Any], config: Any, path: Path, words: str = "", done: float = math.inf) -> None:
    """Makes a run up to where it is interrupted, as `Interrupted` says."""
    with pytest.raises(KeyboardInterrupt):
        job.run(config, path, Interrupted(words, done))


def die_before_event(
    monkeypatch: pytest.MonkeyPatch, job: Job[Any, Any, Any], config: Any, path: Path, kind: str, number: int
) -> None:
    """Makes a run up to an event, which is not written: a process may die between a state and its event."""
    event = RunFolder.event

    def dies(run: RunFolder, name: str, **fields: Any) -> None:
        if name == kind and fields["number"] == number:
            raise KeyboardInterrupt
        event(run, name, **fields)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "event", dies)
        with pytest.raises(KeyboardInterrupt):
            job.run(config, path, Silent())


def timeless_events(path: Path, kind: str) -> list[dict[str, Any]]:
    """The events of a kind, without their times."""
    events = [event for event in RunFolder.load(path).events() if event["kind"] == kind]
    return [{name: value for name, value in event.items() if name not in ("time", "seconds")} for event in events]


class DiesOnce:
    """A worker that is killed, as if from outside, when it has worked off the first shard; a mark says that this happened."""

    def __init__(self, mark: Path, worker: Any) -> None:
        self.mark, self.worker = mark, worker

    def run(self, shard: Shard[Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.worker.run(shard)
        if shard.name == "00000" and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return found
