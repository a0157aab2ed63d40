"""A worker of an adversarial evaluation: shards of (scenario, judge, fold) in, rows of `JUDGED` out.

A row depends on its item and the seed alone: a judge is made afresh, fitted on the other folds, and asked about its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.sharding import Shard
from parley.engine.core.runs.schemas import OK, error_row, list_of, ok_row, with_base
from parley.engine.core.verbs.sharded import Sharded
from parley.engine.generation.metrics.scenarios import ADVERSUC, JudgedScenario
from parley.envs.core.errors import RefusedModelError
from parley.envs.core.seeds import derive_seed
from parley.policies.chat.model import NO_REPLIES
from parley.policies.generation.judges.judge import Answering, Featured, Judge, JudgeSettings, Parsing, scores_by
from parley.policies.generation.judges.makers import judge_maker

NUM_EXAMPLES, NUM_FEATURES = 3, 50

_EXAMPLE = pa.struct(
    # A reply of the system, all turns before it, and its score.
    [pa.field("context", list_of(pa.string())), pa.field("reply", pa.string()), pa.field("score", pa.float64())]
)
_FEATURE = pa.struct([pa.field("word", pa.string()), pa.field("weight", pa.float64())])
JUDGED = with_base(
    [
        # As `parley.engine.generation.metrics.scenarios`; label of the judge; the fold whose pairs it has not seen.
        pa.field("scenario", pa.string()),
        pa.field("judge", pa.string()),
        pa.field("fold", pa.int64()),
        # Of each pair of the fold, in the order of the file of their texts (`judged_pairs.py`): a hash of its source, whether
        # it is of the first side, the judge's score.
        pa.field("sources", list_of(pa.string())),
        pa.field("labels", list_of(pa.bool_())),
        pa.field("scores", list_of(pa.float64())),
        # Replies of the system that the judge finds most human and most machine-like, of each of them three; empty in other
        # scenarios than "adversuc".
        pa.field("examples", list_of(_EXAMPLE)),
        # Pairs of the fold of which a judge that asks a chat model could not read the answer; 0 of other judges.
        pa.field("unparsable", pa.int64()),
        # Those of which the chat model gave no reply, by the kind of its answer; null of other judges.
        pa.field("no_reply", pa.struct([pa.field(kind.column, pa.int64()) for kind in NO_REPLIES])),
        # Of a linear judge the words of largest weight.
        pa.field("features", list_of(_FEATURE)),
    ]
)
"""One judge in one fold of one scenario per row."""


class JudgedFold(NamedTuple):
    """An item: a judge in a fold of a scenario.

    Args:
        scenario: its name.
        judge: the judge's label.
        name: as `load_judge` knows it.
        fold: whose pairs it judges.
    """

    scenario: str
    judge: str
    name: str
    fold: int


@dataclass(frozen=True)
class Judging(Sharded[JudgedFold]):
    """Judges that are fitted and asked.

    Args:
        scenarios: by name.
        settings: what judges are made with.
        run_seed: of the run.
    """

    unit = "fits"
    event = "judged"

    scenarios: Mapping[str, JudgedScenario]
    settings: JudgeSettings
    run_seed: int

    def seed(self, key: str) -> int:
        return derive_seed(self.run_seed, "judge", key)

    def worker(self) -> JudgingWorker:
        return JudgingWorker(self)

    def digest(self, rows: Rows) -> Counts:
        return Counter({self.unit: sum(row["status"] == OK for row in rows)})

    def shard_size(self, num_items: int, num_workers: int) -> int:
        """A fit of a network takes up to a minute, which is as much as may be lost."""
        return 1


class JudgingWorker:
    """Fits judges and asks them."""

    def __init__(self, judging: Judging) -> None:
        self._judging = judging
        self._makers: dict[str, Callable[[], Judge]] = {}

    def run(self, shard: Shard[JudgedFold]) -> list[dict[str, Any]]:
        """One row per item; a judge that fails costs no other its row."""
        rows = []
        for key, item in zip(shard.keys, shard.items, strict=True):
            seed = self._judging.seed(key)
            try:
                rows.append(ok_row(key, seed) | self._columns(item, seed))
            except RefusedModelError:
                raise
            except Exception as error:
                rows.append(error_row(key, seed, f"{item.judge}: {type(error).__name__}: {error}"))
        return rows

    def _maker(self, name: str) -> Callable[[], Judge]:
        if name not in self._makers:
            self._makers[name] = judge_maker(name, self._judging.settings)
        return self._makers[name]

    def _columns(self, item: JudgedFold, seed: int) -> dict[str, Any]:
        scenario = self._judging.scenarios[item.scenario]
        labels = np.array([each.label for each in scenario.pairs])
        seen, unseen = (np.flatnonzero((scenario.folds == item.fold) == held_out) for held_out in (False, True))
        judge = self._maker(item.name)()
        judge.fit([scenario.pairs[place].pair for place in seen], labels[seen], seed)
        judged = [scenario.pairs[place] for place in unseen]
        pairs = [pair.pair for pair in judged]
        scores = scores_by(judge, pairs)
        lost = judge.no_replies(pairs) if isinstance(judge, Answering) else None
        return {
            "scenario": item.scenario,
            "judge": item.judge,
            "fold": item.fold,
            "unparsable": judge.num_unparsable(pairs) if isinstance(judge, Parsing) else 0,
            "no_reply": None if lost is None else {kind.column: lost.get(kind.column, 0) for kind in NO_REPLIES},
            "sources": [pair.source for pair in judged],
            "labels": labels[unseen].tolist(),
            "scores": scores.tolist(),
            "examples": self._examples(item, judged, scores),
            "features": [
                {"word": word, "weight": weight}
                for word, weight in (judge.features(NUM_FEATURES) if isinstance(judge, Featured) else [])
            ],
        }

    def _examples(self, item: JudgedFold, asked: Sequence[Any], scores: np.ndarray) -> list[dict[str, Any]]:
        if item.scenario.partition(".")[0] != ADVERSUC:
            return []
        order = sorted((place for place, each in enumerate(asked) if not each.label), key=lambda place: -scores[place])
        chosen = dict.fromkeys([*order[:NUM_EXAMPLES], *order[-NUM_EXAMPLES:]])
        return [
            {
                "context": [" ".join(turn) for turn in asked[place].pair.context],
                "reply": " ".join(asked[place].pair.reply),
                "score": float(scores[place]),
            }
            for place in chosen
        ]
