"""The dialogues in which tactics are tried: shards and their worker. A row is a dialogue of one tactic.

All tactics play the same dialogues: scenario and draws follow from the dialogue's number. Development dialogues come first, the
tactics in the order in which they were written, and then the held-out ones, so that a round only adds shards to those before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, cast

import pyarrow as pa

from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.sharding import Shard
from parley.engine.core.runs.schemas import OK
from parley.engine.core.verbs.sharded import Sharded
from parley.engine.negotiation.verbs.match import MatchConfig, MatchWorker, Roster, dialogue_seed
from parley.engine.negotiation.verbs.rows import DIALOGUES
from parley.engine.negotiation.verbs.scenario_sampling import match_scenarios
from parley.envs.negotiation.scenario import Scenario
from parley.policies.chat.negotiator import ChatNegotiator

_OF_TACTICS = [
    pa.field("tactic", pa.string()),
    pa.field("tactic_number", pa.int64()),
    pa.field("held_out", pa.bool_()),
    pa.field("dialogue", pa.int64()),
]
TACTICS = pa.schema([*DIALOGUES, *_OF_TACTICS])
"""A dialogue with a tactic: its text, its number (0 for none), whether it is held out, and which dialogue it is."""
_MOST_SIDE_BY_SIDE = 32


class TriedDialogue(NamedTuple):
    """One dialogue of one tactic."""

    tactic: str
    tactic_number: int
    held_out: bool
    dialogue: int
    scenario: Scenario


@dataclass(frozen=True)
class TacticTrials(Sharded[TriedDialogue]):
    """A chat model and its target, who play with one tactic after the other.

    Args:
        match: how they play; its dialogues are those of development.
        num_held_out: dialogues behind these.
        answers: folder of the run in which chat models' answers are kept.
    """

    unit = "dialogues"
    event = "played"

    match: MatchConfig
    num_held_out: int
    answers: Path | None = None

    def seed(self, key: str) -> int:
        return dialogue_seed(self.match.seed, key.rpartition("-")[2])

    def worker(self) -> TacticWorker:
        return TacticWorker(self)

    def checkpoints(self) -> tuple[str, ...]:
        return self.roster.checkpoints()

    def shard_size(self, num_items: int, num_workers: int) -> int:
        """Shards hold dialogues of one tactic, so that those of later tactics change none; alike for any number of workers."""
        return max(size for size in range(1, _MOST_SIDE_BY_SIDE + 1) if self.match.dialogues % size == 0)

    def digest(self, rows: Rows) -> Counts:
        return Counter(dialogues=sum(row["status"] == OK for row in rows))

    @property
    def roster(self) -> Roster:
        """Who plays."""
        return Roster(self.match, answers=self.answers)

    def development(self, tactics: Iterable[tuple[int, str]]) -> dict[str, TriedDialogue]:
        """The development dialogues of some tactics, by key."""
        wanted = list(self.scenarios().items())[: self.match.dialogues]
        return {
            f"dev-{number:04d}-{key}": TriedDialogue(text, number, False, int(key), scenario)
            for number, text in tactics
            for key, scenario in wanted
        }

    def held_out(self, tactics: Mapping[int, str]) -> dict[str, TriedDialogue]:
        """The held-out dialogues of some tactics, by key; keys stand behind those of development."""
        wanted = list(self.scenarios().items())[self.match.dialogues :]
        return {
            f"held-{number:04d}-{key}": TriedDialogue(text, number, True, int(key), scenario)
            for number, text in tactics.items()
            for key, scenario in wanted
        }

    def scenarios(self) -> dict[str, Scenario]:
        """The scenarios of all dialogues by key, those of development first."""
        whole = replace(self.match, dialogues=self.match.dialogues + self.num_held_out)
        return match_scenarios(whole, self.roster.game)


class TacticWorker:
    """Plays shards of dialogues and returns their rows."""

    def __init__(self, trials: TacticTrials) -> None:
        self._worker = MatchWorker(trials.roster)

    def run(self, shard: Shard[TriedDialogue]) -> list[dict[str, Any]]:
        """One row per dialogue, by `TACTICS`; those of a tactic are played side by side."""
        rows = []
        speaker, target = self._worker.agents
        for tactic, found in groupby(zip(shard.keys, shard.items, strict=True), lambda one: one[1].tactic):
            keys, items = zip(*found, strict=True)
            self._worker.agents = cast("ChatNegotiator", speaker).told(tactic), target
            numbers = tuple(key.rpartition("-")[2] for key in keys)
            played = self._worker.run(Shard(shard.name, numbers, tuple(item.scenario for item in items)))
            for key, item, row in zip(keys, items, played, strict=True):
                about = {name: value for name, value in item._asdict().items() if name != "scenario"}
                rows.append(row | about | {"item_key": key})
        self._worker.agents = speaker, target
        return rows
