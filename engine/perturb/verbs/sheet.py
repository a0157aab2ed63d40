"""Changed lines for a person to label, and the labels read back: CSV that a spreadsheet opens.

    key,strategy,before,after,label,note
    antonym/test-000017/1/5f0c2a9e,antonym,it is [up],it is [down],ok,

Lines are drawn uniformly from the utterances that a strategy touched, each text once. A label is `ok` or `wrong`, a note is
free. A cell that a spreadsheet would take for a formula begins with an apostrophe. Sheets are read with commas, semicolons or
tabs, as spreadsheets of different countries save them.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from parley.engine.core.runs.parts import OK
from parley.engine.perturb.metrics.audit import CONTROL
from parley.engine.perturb.strategies.texts import Span, bracketed, spans
from parley.envs.core.errors import DataError
from parley.envs.core.registry import nearest
from parley.envs.core.seeds import stable_hash
from parley.envs.core.visible import FORMULA, visible

COLUMNS = ("key", "strategy", "before", "after", "label", "note")
LABELS = {"ok": False, "wrong": True}
"""Labels, and whether they call the line wrong."""
_DELIMITERS = ",;\t"
_SLACK = 1000


class DrawnLine(NamedTuple):
    """A changed utterance to label; `log_ratio` is that of its perplexities after and before."""

    key: str
    strategy: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    log_ratio: float

    @property
    def context(self) -> str:
        """Return the key of the context that holds the utterance."""
        return self.key.removeprefix(f"{self.strategy}/").rsplit("/", 2)[0]

    @property
    def spans(self) -> list[Span]:
        """Return the changed spans."""
        return spans(((self.before,),), ((self.after,),))


@dataclass(frozen=True)
class LabelledSheet:
    """The labels of one labeller.

    Args:
        labels: whether a line is wrong, by its key.
        notes: by key, those that are not empty.
    """

    labels: Mapping[str, bool]
    notes: Mapping[str, str]


def drawn_lines(rows: Iterable[Mapping[str, Any]], strategies: Sequence[str], num: int, seed: int) -> dict[str, DrawnLine]:
    """Draw lines of each strategy, by key; in the order of the strategies, shuffled within each.

    Args:
        rows: of `parley.engine.perturb.verbs.config.AUDIT`, in any order; looked at once.
        strategies: their names.
        num: lines of each, as far as there are so many.
        seed: decides which.
    """
    best: dict[str, dict[tuple[str, str], tuple[int, DrawnLine]]] = {name: {} for name in strategies}
    for row in rows:
        if row["status"] != OK:
            continue
        for touched in row["touched"]:
            if touched["strategy"] == CONTROL:
                continue
            line = _line(str(row["item_key"]), touched)
            text, rank = (touched["before"], touched["after"]), stable_hash("sheet", seed, line.key)
            drawn = best[line.strategy]
            # A text that stands more than once has the chances of all of its places, and is drawn once.
            if text not in drawn or rank < drawn[text][0]:
                drawn[text] = rank, line
            if len(drawn) > 2 * num + _SLACK:
                best[line.strategy] = dict(_first(drawn, num))
    return {line.key: line for drawn in best.values() for _, (_, line) in _first(drawn, num)}


def sheet(lines: Iterable[DrawnLine]) -> bytes:
    """Write lines as a sheet without labels, in UTF-8."""
    return write_sheet(COLUMNS, {line.key: (line.strategy, *_texts(line)) for line in lines})


def write_sheet(columns: Sequence[str], texts: Mapping[str, Sequence[str]]) -> bytes:
    """Write a sheet without labels, in UTF-8.

    Args:
        columns: its columns: key, those of the texts, label, note.
        texts: texts of each line by its key.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for key, cells in texts.items():
        # A spreadsheet would take some for formulas.
        writer.writerow([*(f"'{cell}" if re.match(FORMULA, cell) else cell for cell in (key, *cells)), "", ""])
    # Corpora may hold halves of characters.
    return text.getvalue().encode("utf-8", "backslashreplace")


def read_sheet(path: Path, lines: Mapping[str, DrawnLine]) -> LabelledSheet:
    """Read the labels of a sheet of changed lines.

    Args:
        path: the file; lines that were deleted, and those without a label, are not labelled.
        lines: that the run has drawn, by key.

    Raises:
        DataError: see `read_labels`.
    """
    return read_labels(path, COLUMNS, LABELS, ((key, (line.strategy, *_texts(line))) for key, line in lines.items()))


def read_labels(
    path: Path, columns: Sequence[str], known: Mapping[str, bool], texts: Iterable[tuple[str, Sequence[str]]]
) -> LabelledSheet:
    """Read the labels of a sheet.

    Args:
        path: the file; lines that were deleted, and those without a label, are not labelled.
        columns: its columns, as `write_sheet` has written them.
        known: labels and what they stand for.
        texts: keys of all lines that the run may have drawn, with their texts; those of the sheet are kept.

    Raises:
        DataError: it cannot be read, is no such sheet, has an unknown label, a line twice, a line of another run, or keys that
            stand beside other lines' texts.
    """
    rows = [(number, _unguarded(row["key"].strip()), row) for number, row in _rows(path, columns)]
    shown = [tuple(_unguarded(row[name]) for name in columns[1:-2]) for _, _, row in rows]
    keys_of: dict[tuple[str, ...], set[str]] = {cells: set() for cells in shown}
    missing = {key for _, key, _ in rows}
    for line_key, cells in texts:
        missing.discard(line_key)
        if tuple(cells) in keys_of:
            keys_of[tuple(cells)].add(line_key)
    labels: dict[str, bool] = {}
    notes: dict[str, str] = {}
    seen: dict[str, int] = {}
    for (number, key, row), cells in zip(rows, shown, strict=True):
        where, label = f"{path}, line {number}", row["label"].strip().lower()
        if key in missing:
            what = "a line has no key" if not key else "the sheet has a line of another run"
            fix = "label the sheet.csv of this run, and leave its column key as it is"
            raise DataError(what, where=where, got=visible(key) or None, fix=fix)
        if key in seen:
            fix = f"delete one; the other is line {seen[key]}"
            raise DataError("a line stands twice in the sheet", where=where, got=visible(key), fix=fix)
        seen[key] = number
        if keys_of[cells] and key not in keys_of[cells]:
            fix = "sort whole rows, never single columns; label a fresh copy of the run's sheet.csv"
            raise DataError("a key stands beside the text of another line", where=where, got=visible(key), fix=fix)
        if label and label not in known:
            what = f"a label is {' or '.join(known)}, or empty{nearest(label, known)}"
            raise DataError(what, where=where, got=visible(label), fix="what else there is to say belongs into the column note")
        if label:
            labels[key] = known[label]
        if note := _unguarded(row["note"]).strip():
            notes[key] = note
    return LabelledSheet(labels, notes)


def _rows(path: Path, needed: Sequence[str]) -> Iterable[tuple[int, Mapping[str, str]]]:
    """Yield the lines of a sheet with the line numbers that an editor shows."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError("the sheet cannot be read", where=path, got=error.strerror, fix="name a labelled sheet.csv") from None
    except UnicodeDecodeError as error:
        raise DataError("the sheet is not UTF-8", where=path, got=error.reason, fix="save it as CSV UTF-8") from None
    head = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(_DELIMITERS, key=head.count))
    try:
        columns = [name.strip().lower() for name in next(reader, [])]
        if missing := [name for name in needed if name not in columns]:
            fix = f"its first line is {','.join(needed)}; label the sheet.csv of the run"
            raise DataError("the sheet lacks columns", where=path, got=f"without {', '.join(missing)}", fix=fix)
        after = reader.line_num
        for cells in reader:
            number, after = after + 1, reader.line_num
            if any(cells):
                if any(cell.strip() for cell in cells[len(columns) :]):
                    fix = "quote a cell that holds a separator, or save the sheet from the spreadsheet again"
                    what = "a line has more cells than the sheet has columns"
                    raise DataError(what, where=f"{path}, line {number}", got=cells[-1][:80], fix=fix)
                padded = [*cells, *[""] * (len(columns) - len(cells))]
                yield number, dict(zip(columns, padded, strict=False))
    except csv.Error as error:
        raise DataError("the sheet is no CSV", where=f"{path}, line {reader.line_num}", got=str(error)) from None


def _line(key: str, touched: Mapping[str, Any]) -> DrawnLine:
    before, after = str(touched["before"]), str(touched["after"])
    # Of another run, where the strategy does something else, the key is another.
    digest = f"{stable_hash(before, after) & 0xFFFFFFFF:08x}"
    nats = [touched[f"nats_{side}"] / (len(touched[side].split()) + 1) for side in ("before", "after")]
    name = f"{touched['strategy']}/{key}/{touched['place']}/{digest}"
    return DrawnLine(name, str(touched["strategy"]), tuple(before.split()), tuple(after.split()), nats[1] - nats[0])


def _first(
    drawn: Mapping[tuple[str, str], tuple[int, DrawnLine]], num: int
) -> list[tuple[tuple[str, str], tuple[int, DrawnLine]]]:
    return sorted(drawn.items(), key=lambda item: item[1][0])[:num]


def _texts(line: DrawnLine) -> tuple[str, str]:
    return bracketed(line.spans)


def _unguarded(cell: str) -> str:
    return cell.removeprefix("'")
