"""Small runs of every kind, and workers that take their time, so that there is time to lose them.

Here, because scripts in processes of their own, and Ray's workers, import it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from parley.engine.core.ray import pool
from parley.engine.core.ray.actors import ActorPool
from parley.engine.core.ray.worker import Shard, TurnResult
from parley.engine.core.verbs.job import Job, Reporter, Silent
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.engine.negotiation.verbs.whitebox import JOBS as ATTACKS
from parley.engine.perturb.verbs.robustness import EVALUATE_ROBUSTNESS
from parley.engine.ranking.verbs.attack import ATTACK_RANKING
from parley.engine.ranking.verbs.ranking import EVALUATE_RANKING
from parley.engine.triggers.verbs.search import SEARCH
from tests.engine.core.ray.workers import meet
from tests.engine.core.verbs.made_up import Notes, rows, save_negotiator
from tests.engine.perturb.verbs import robust
from tests.engine.ranking.verbs import rankings
from tests.engine.triggers.verbs import searches

SECONDS = 0.3
NUM_SHARDS = 12


class Slowed:
    """One of two workers, that sleep before each shard, and leave a file per attempt: `FOLDER/SHARD.PID.NANOSECONDS`.

    Where death is ordered (`order_deaths`), the first that is at a shard nobody has tried before kills itself once there are as
    many attempts as the order says. So no shard loses three workers, which would be its end: at most one while it waits behind
    another shard, and one when it is first tried. One that works in turns makes short ones, and kills itself while it holds
    such shards alone.
    """

    def __init__(self, folder: Path, worker_class: Callable[..., Any], *args: Any) -> None:
        self.folder, self.worker = folder, worker_class(*args)
        self.held = set[str]()
        meet(folder.with_name(f"{folder.name}-met"))

    def run(self, shard: Shard[Any]) -> Any:
        is_first = not self._tried(shard.name)
        self._try(shard)
        time.sleep(SECONDS)
        if is_first:
            self._obey()
        return self.worker.run(shard)

    def turn(self, joining: Sequence[Shard[Any]], seconds: float) -> TurnResult[Any]:
        for shard in joining:
            self._try(shard)
        self.held |= {shard.name for shard in joining}
        time.sleep(SECONDS / 3)
        if all(self._tried(name) == 1 for name in self.held):
            self._obey()
        found: TurnResult[Any] = self.worker.turn(joining, 0.0)
        self.held -= found.ended.keys()
        return found

    def drop(self) -> None:
        self.held = set()
        self.worker.drop()

    def _tried(self, name: str) -> int:
        return len([*self.folder.glob(f"{name}.*")])

    def _try(self, shard: Shard[Any]) -> None:
        (self.folder / f"{shard.name}.{os.getpid()}.{time.monotonic_ns()}").touch()

    def _obey(self) -> None:
        num_attempts = len(attempts(self.folder))
        due = [order for order in _orders(self.folder) if int(order.name.rpartition("-")[2]) <= num_attempts]
        with suppress(FileNotFoundError):
            for order in due[:1]:
                order.unlink()
                os.kill(os.getpid(), signal.SIGKILL)


def slowed(folder: Path) -> Callable[..., ActorPool[Any, Any]]:
    """What makes pools of `Slowed` workers, which leave their attempts in a folder."""
    folder.mkdir()

    def make(worker_class: Callable[..., Any], worker_args: Any, **rest: Any) -> ActorPool[Any, Any]:
        return ActorPool(partial(Slowed, folder, worker_class), worker_args, **rest)

    return make


def slow_workers(folder: Path) -> None:
    """Makes all pools of this process such."""
    pool.ActorPool = slowed(folder)  # type: ignore[assignment, misc]


def attempts(folder: Path) -> list[tuple[str, int]]:
    """The shard and the process of every attempt, in order."""
    found = (path.name.split(".") for path in folder.iterdir())
    return [(shard, int(pid)) for shard, pid, _ in sorted(found, key=lambda parts: int(parts[2]))]


@dataclass(frozen=True)
class Case:
    """A run of `NUM_SHARDS` shards.

    Args:
        job: what it is a run of.
        config: of it, without workers.
    """

    job: Job[Any, Any, Any]
    config: Any

    def rows_of(self, path: Path, reporter: Reporter | None = None, **changes: Any) -> list[dict[str, Any]]:
        """Does the run with some settings changed; its rows."""
        self.job.run(replace(self.config, **changes), path, reporter or Silent())
        return rows(path)


def make_case(kind: str, folder: Path) -> Case:
    """A run of "search", "attack", "robustness", "ranking", "ranking-attack" or "selfplay" on models made in a folder."""
    return _CASES[kind](folder)


def _search(folder: Path) -> Case:
    corpus = searches.write_corpus(folder)
    model = searches.save_seq2seq(folder / "model", searches.words_of(corpus), corpus=str(corpus))
    return Case(SEARCH, searches.search(model, "random", limit=NUM_SHARDS, shard_size=1))


def _attack(folder: Path) -> Case:
    speaker, target = (str(save_negotiator(folder / name, seed)) for seed, name in enumerate(("speaker", "target")))
    job = ATTACKS["reactive"]
    preset = job.presets["cheng2019"]()
    few = replace(preset.search, replies=2, finalists=2)
    config = replace(
        preset, target=target, speaker=speaker, dialogues=2 * NUM_SHARDS, shard_size=2, max_turns=4, temperature=1.0, search=few
    )
    return Case(job, config)


def _robustness(folder: Path) -> Case:
    model = robust.save_responder(folder / "model", robust.words_of_the_desk())
    return Case(EVALUATE_ROBUSTNESS, robust.evaluation(model, limit=2 * NUM_SHARDS, shard_size=2))


def _ranking(folder: Path) -> Case:
    return Case(EVALUATE_RANKING, rankings.asked("tfidf,bm25", limit=2 * NUM_SHARDS, shard_size=2))


def _ranking_attack(folder: Path) -> Case:
    return Case(ATTACK_RANKING, rankings.attacks("tfidf,bm25", limit=2 * NUM_SHARDS, shard_size=2))


def _selfplay(folder: Path) -> Case:
    target = str(save_negotiator(folder / "target"))
    config = MatchConfig(adversary="scripted", target=target, dialogues=2 * NUM_SHARDS, shard_size=2, max_turns=6)
    return Case(SELFPLAY, config)


_CASES = {
    "search": _search,
    "attack": _attack,
    "robustness": _robustness,
    "ranking": _ranking,
    "ranking-attack": _ranking_attack,
    "selfplay": _selfplay,
}


class When(Notes):
    """A reporter that does something once, when some items are done."""

    def __init__(self, done: int, act: Callable[[], None]) -> None:
        super().__init__()
        self.done, self.act = done, act
        self.acted = False

    def advance(self, done: float, note: str = "") -> None:
        super().advance(done, note)
        if not self.acted and done >= self.done:
            self.acted = True
            self.act()


def order_deaths(folder: Path, *after: int) -> None:
    """Orders deaths of `Slowed` workers, which leave their attempts in a folder: see there for who dies, and when.

    Args:
        folder: of the attempts.
        after: how many there must be before each death.
    """
    for number in after:
        _order(folder, number).touch()


def num_deaths_left(folder: Path) -> int:
    """How many of the ordered deaths nobody has died."""
    return len(_orders(folder))


def _order(folder: Path, after: int) -> Path:
    return folder.with_name(f"{folder.name}-order-{after:03d}")


def _orders(folder: Path) -> list[Path]:
    return sorted(folder.parent.glob(f"{folder.name}-order-*"))
