"""The pairs that an adversarial evaluation asked judges about, in a file of the run, so that each score has its texts.

A row of `JUDGED` is a judge in a fold of a scenario; its k-th source, label and score are of the pair of that scenario and fold
with the `place` k. Texts stand here once and not in the rows of every judge; a flat file (`parley rows`) has both.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from parley.engine.core.runs.documents import write_whole
from parley.engine.core.runs.manifest import whole
from parley.engine.core.runs.schemas import list_of, with_base
from parley.engine.core.verbs.export import FlatRows, Line, Row
from parley.engine.generation.metrics.scenarios import JudgedScenario
from parley.envs.core.errors import RunError

PAIRS_FILE = "pairs.parquet"
JUDGED_PAIRS = pa.schema(
    [
        # As in the rows; the pair's number, from 0, in its fold.
        pa.field("scenario", pa.string()),
        pa.field("fold", pa.int64()),
        pa.field("place", pa.int64()),
        # Hash of the source, and whether the pair is of the first side.
        pa.field("source", pa.string()),
        pa.field("label", pa.bool_()),
        # All turns before the reply, and the reply, as judges read them.
        pa.field("context", list_of(pa.string())),
        pa.field("reply", pa.string()),
    ]
)


def write_pairs(path: Path, scenarios: Iterable[JudgedScenario]) -> None:
    """Writes the pairs of all scenarios.

    Args:
        path: the file.
        scenarios: whose pairs stand in the order in which judges are asked.

    Raises:
        RunError: the disk refuses.
    """
    rows = []
    for scenario in scenarios:
        places: Counter[int] = Counter()
        for each, fold in zip(scenario.pairs, scenario.folds.tolist(), strict=True):
            texts = {"context": [" ".join(turn) for turn in each.pair.context], "reply": " ".join(each.pair.reply)}
            known = {"scenario": scenario.name, "fold": fold, "place": places[fold]}
            rows.append({**known, "source": each.source, "label": each.label, **texts})
            places[fold] += 1
    content = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=JUDGED_PAIRS), content, compression="zstd")
    try:
        write_whole(path, content.getvalue())
    except OSError as error:
        fix = "free some space, then the same command writes it"
        raise RunError("the judged pairs cannot be written", where=path, got=error.strerror, fix=fix) from None


FLAT_JUDGED = with_base(
    [
        # As `parley.engine.generation.metrics.scenarios`; the file of its system, null in scenarios of people alone; the judge;
        # the fold whose pairs it has not seen.
        pa.field("scenario", pa.string()),
        pa.field("system", pa.string()),
        pa.field("judge", pa.string()),
        pa.field("fold", pa.int64()),
        # As in `JUDGED_PAIRS`; the judge's score, above 0 for the first side.
        *(JUDGED_PAIRS.field(name) for name in ("place", "source", "label")),
        pa.field("score", pa.float64()),
        *(JUDGED_PAIRS.field(name) for name in ("context", "reply")),
    ]
)
"""One pair per line, as one judge scored it in one scenario."""


def flat_pairs(path: Path) -> FlatRows:
    """How rows of `JUDGED` become lines of `FLAT_JUDGED`.

    Args:
        path: the file of the run's pairs.

    Raises:
        RunError: it is not there, or damaged.
    """
    with whole(path, "the command that made the run writes it again"):
        pairs = pq.read_table(path, schema=JUDGED_PAIRS)
        # Numbers of lines: as Python's own values all texts would take several times as much memory.
        found: dict[tuple[str, int], list[int]] = {}
        for number, key in enumerate(zip(pairs["scenario"].to_pylist(), pairs["fold"].to_pylist(), strict=True)):
            found.setdefault(key, []).append(number)

    def lines(row: Row) -> Iterator[Line]:
        about = {"judge": row["judge"], "system": row["scenario"].partition(".")[2] or None}
        with whole(path):
            texts = pairs.take(found[row["scenario"], row["fold"]]).to_pylist()
            yield from (about | pair | {"score": score} for pair, score in zip(texts, row["scores"], strict=True))

    return FlatRows(FLAT_JUDGED, lines)
