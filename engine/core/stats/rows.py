"""Rows of a run that are read in a stream: `StoredRows` is a sequence of rows of which a few chunks are in memory.

Whoever goes through the rows in order holds one chunk, however many rows there are. Rows of small runs stay in memory after the
first time. What must know of all rows at once keeps numbers and not rows: in arrays, or in `Columns` where a row has many.
`PackedTexts` are texts that a run needs one by one, such as the keys of its items.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from array import array
from collections import OrderedDict, UserDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from threading import Lock
from typing import Any, Generic, TypeVar, overload

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from parley.envs.core.errors import RunError

CHUNK = 128
"""Rows that become dictionaries at a time."""
KEPT_BYTES = 1 << 18
"""Bytes of rows, as Arrow counts them, that stay in memory as dictionaries; these take about six times as many."""
_CHUNK_BYTES = 1024
"""Bytes that a chunk takes without its rows."""
_OK = "ok"

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class Recent(Generic[KeyT, ValueT]):
    """The values that were used last, up to some bytes in all; the newest always stays. Threads may share it.

    Args:
        most_bytes: of all values.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most, self._num_bytes, self._lock = most_bytes, 0, Lock()
        self._values: OrderedDict[KeyT, tuple[ValueT, int]] = OrderedDict()

    def get(self, key: KeyT) -> ValueT | None:
        """Return a value; None if it is not here."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: KeyT, value: ValueT, num_bytes: int) -> None:
        """Keep a value, and let the oldest ones go."""
        with self._lock:
            self._num_bytes += num_bytes - self._values.get(key, (value, 0))[1]
            self._values[key] = value, num_bytes
            while self._num_bytes > self._most and len(self._values) > 1:
                self._num_bytes -= self._values.popitem(last=False)[1][1]


ReadPart = Callable[[Sequence[str] | None], pa.Table]
"""Returns the rows of a part; some of their columns, or all."""


class _Chunks:
    """The parts, and their rows that were used last.

    Args:
        parts: the parts in order.
    """

    def __init__(self, parts: Sequence[ReadPart]) -> None:
        self.parts = parts
        self._kept = Recent[tuple[Any, ...], list[dict[str, Any]]](KEPT_BYTES)
        self._table: tuple[Any, pa.Table] | None = None

    @cached_property
    def are_ok(self) -> list[np.ndarray]:
        """The rows of each part that worked (V,) bool."""
        return [_are_ok(part(["status"])) for part in self.parts]

    def read(self, part: int, columns: tuple[str, ...] | None, worked: bool | None, number: int) -> list[dict[str, Any]]:
        """Return a chunk of the chosen rows of a part; an empty one is behind the last."""
        key = part, columns, worked, number
        if (kept := self._kept.get(key)) is not None:
            return kept
        if self._table is None or self._table[0] != key[:3]:
            table = self.parts[part](columns)
            if worked is not None:
                are_ok = _are_ok(table)
                table = table if (are_ok == worked).all() else table.filter(pa.array(are_ok == worked))
            self._table = key[:3], table
        chunk = self._table[1].slice(number * CHUNK, CHUNK)
        rows: list[dict[str, Any]] = chunk.to_pylist()
        self._kept.put(key, rows, chunk.nbytes + _CHUNK_BYTES)
        return rows


def _are_ok(table: pa.Table) -> np.ndarray:
    return np.array([status == _OK for status in table["status"].to_pylist()], dtype=bool)


class StoredRows(Sequence[dict[str, Any]]):
    """Rows of a run in the order of their parts. They are read when they are asked for, and must not be changed.

    Args:
        parts: readers of the parts.
    """

    def __init__(self, parts: Sequence[ReadPart]) -> None:
        self._chunks = _Chunks(parts)
        self._columns: tuple[str, ...] | None = None
        self._worked: bool | None = None

    def _view(self, columns: tuple[str, ...] | None, worked: bool | None) -> StoredRows:
        rows = StoredRows(())
        rows._chunks, rows._columns, rows._worked = self._chunks, columns, worked
        return rows

    def select(self, *columns: str) -> StoredRows:
        """Return the same rows with some of their columns and their status, which are read in less time."""
        return self._view(tuple(dict.fromkeys(("status", *columns))), self._worked)

    def of(self, worked: bool) -> StoredRows:
        """Return the rows of items that worked, or of those that failed."""
        return self._view(self._columns, worked)

    @cached_property
    def _ends(self) -> np.ndarray:
        are_ok = self._chunks.are_ok
        return np.cumsum([0, *(len(part) if self._worked is None else int((part == self._worked).sum()) for part in are_ok)])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __bool__(self) -> bool:
        return next(iter(self), None) is not None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for part in range(len(self._chunks.parts)):
            number = 0
            while rows := self._chunks.read(part, self._columns, self._worked, number):
                yield from rows
                if len(rows) < CHUNK:
                    break
                number += 1

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            if index.start is None and index.step is None and (index.stop or 0) > 0:
                # The first rows are found without the number of all.
                return [row for row, _ in zip(self, range(index.stop), strict=False)]
            return [self[number] for number in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        part = int(np.searchsorted(self._ends, number, side="right")) - 1
        chunk, position = divmod(number - int(self._ends[part]), CHUNK)
        return self._chunks.read(part, self._columns, self._worked, chunk)[position]


class LazySequence(Sequence[ValueT], Generic[KeyT, ValueT]):
    """Values that are made each time they are asked for; sent and copied as a tuple.

    Args:
        make: returns one of them by its name.
        names: names of the values in their order, such as indices (V,).
    """

    def __init__(self, make: Callable[[KeyT], ValueT], names: Sequence[KeyT]) -> None:
        self._make, self.names = make, names

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> ValueT: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ValueT]: ...
    def __getitem__(self, index: int | slice) -> ValueT | Sequence[ValueT]:
        if isinstance(index, slice):
            return LazySequence(self._make, self.names[index])
        return self._make(self.names[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)


class PickedRows(LazySequence[int, Mapping[str, Any]]):
    """Some of the rows of a sequence, in an order of their own; those of a run are read when they are asked for.

    Args:
        rows: the sequence.
        numbers: places of the rows in it.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]], numbers: Iterable[int]) -> None:
        super().__init__(rows.__getitem__, array("i", numbers))
        self.rows = rows


def selected(rows: Sequence[Mapping[str, Any]], *columns: str) -> Sequence[Mapping[str, Any]]:
    """Return rows with at least these columns and their status; those of a run are read in less time."""
    if isinstance(rows, PickedRows):
        return PickedRows(selected(rows.rows, *columns), rows.names)
    return rows.select(*columns) if isinstance(rows, StoredRows) else rows


_BUFFER = 8192
"""Numbers of a column, or bytes of texts, that wait in memory."""


class _SpillFile:
    """A temporary file, made when it is written to; threads may read it."""

    def __init__(self) -> None:
        self._file: Any = None

    def append(self, content: bytes | bytearray) -> int:
        """Write content behind what there is, and return its start.

        Raises:
            RunError: the disk has no room for the file.
        """
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115  # closed with this object
                weakref.finalize(self, self._file.close)
            start: int = self._file.tell()
            self._file.write(content)
            self._file.flush()
        except OSError as error:
            fix = "make room there, or name another folder: TMPDIR=FOLDER"
            got = error.strerror or str(error)
            raise RunError(
                "what the run must remember cannot be kept", where=tempfile.gettempdir(), got=got, fix=fix
            ) from error
        return start

    def read(self, start: int, size: int) -> bytes:
        """Return a piece of the content."""
        return os.pread(self._file.fileno(), size, start)


class Columns:
    """Columns of numbers that grow row by row, by name; all but the last few numbers of each lie in a temporary file."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, array[Any]] = {}
        # The starts of pieces of `_BUFFER` numbers each.
        self._stored: dict[Hashable, list[int]] = {}
        self._file = _SpillFile()

    def __contains__(self, name: Hashable) -> bool:
        return name in self._waiting

    def add(self, name: Hashable, code: str, numbers: Iterable[float]) -> None:
        """Add numbers to the end of a column.

        Args:
            name: of the column.
            code: type of its numbers, as of `array.array`; the same each time.
            numbers: the numbers.

        Raises:
            RunError: the disk has no room for the file.
        """
        waiting = self._waiting.setdefault(name, array(code))
        if isinstance(numbers, np.ndarray):
            waiting.frombytes(numbers.astype(code).tobytes())
        else:
            waiting.extend(numbers)
        while len(waiting) >= _BUFFER:
            self._stored.setdefault(name, []).append(self._file.append(waiting[:_BUFFER].tobytes()))
            del waiting[:_BUFFER]

    def get(self, name: Hashable, code: str = "d", start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return a column's numbers in their order (V,), or a slice; none, of the type of `code`, if it was never added to."""
        waiting, stored = self._waiting.get(name, array(code)), self._stored.get(name, ())
        num, size = len(stored) * _BUFFER, waiting.itemsize
        start, stop, _ = slice(start, stop).indices(num + len(waiting))
        numbers = np.empty(max(stop - start, 0), np.asarray(waiting).dtype)
        for piece in range(start // _BUFFER, min(len(stored), -(-stop // _BUFFER))) if len(numbers) else ():
            low, high = (max(0, min(end - piece * _BUFFER, _BUFFER)) for end in (start, stop))
            content = np.frombuffer(self._file.read(stored[piece] + low * size, (high - low) * size), numbers.dtype)
            numbers[piece * _BUFFER + low - start :][: high - low] = content
        if stop > max(start, num):
            numbers[max(num - start, 0) :] = waiting[max(start - num, 0) : stop - num]
        return numbers


class StoredFigures(UserDict[str, np.ndarray]):
    """Columns of floats by their names, which are read each time they are asked for."""

    def __init__(self, columns: Columns, names: Iterable[str]) -> None:
        super().__init__(dict.fromkeys(names, np.zeros(0)))
        self._columns = columns

    def __getitem__(self, name: str) -> np.ndarray:
        return self._columns.get(name) if name in self.data else super().__getitem__(name)


def linked_units(*columns: ArrayLike) -> np.ndarray:
    """Return the index of the first row of the independent unit of each row (V,) int64.

    Args:
        columns: numbers of what rows may share, such as their dialogues and their contexts, (V,) each. Rows that share an entry
            of a column, directly or through others, are one unit.
    """
    codes = [np.unique(column, return_inverse=True)[1] for column in columns]
    units: np.ndarray = np.arange(len(codes[0]))
    while True:
        before = units
        for code in codes:
            first = np.full(len(units), len(units))
            np.minimum.at(first, code, units)
            units = first[code]
        # The first row of a unit may belong to one that begins earlier.
        units = units[units]
        if np.array_equal(units, before):
            return units


class PackedTexts(LazySequence[int, str]):
    """Texts of which all but the last few lie in a temporary file; each takes 8 bytes of memory.

    Args:
        texts: the texts; they may hold lone surrogates.

    Raises:
        RunError: the disk has no room for the file.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._ends, self._file, waiting = array("Q", [0]), _SpillFile(), bytearray()
        for text in texts:
            content = text.encode("utf-8", "surrogatepass")
            waiting += content
            self._ends.append(self._ends[-1] + len(content))
            if len(waiting) >= _BUFFER:
                self._file.append(waiting)
                waiting.clear()
        self._last, self._num_stored = bytes(waiting), self._ends[-1] - len(waiting)
        super().__init__(self._text, range(len(self._ends) - 1))

    def _text(self, number: int) -> str:
        start, end = self._ends[number : number + 2]
        is_stored, behind = start < self._num_stored, start - self._num_stored
        content = self._file.read(start, end - start) if is_stored else self._last[behind : end - self._num_stored]
        return content.decode("utf-8", "surrogatepass")

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedTexts, (list(self),)
