"""Downloads of corpus files: progress, a check of the content, and an atomic rename. Nothing else uses the network."""

from __future__ import annotations

import http.client
import os
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from parley.envs.core.errors import DataError

Progress = Callable[[str, int, int | None], None]
"""Called with file name, bytes so far, and bytes in all where the server says so."""

TIMEOUT_S = 30.0
_CHUNK_BYTES = 1 << 16


class DownloadError(DataError):
    """An address cannot be reached, or does not hold what was expected."""


def download(address: str, target: Path, mismatch: Callable[[Path], str], progress: Progress | None = None) -> None:
    """Fetches a file and puts it in place once its content is known to be right.

    Args:
        address: where it is.
        target: where it shall be; its folder is made.
        mismatch: says how a file differs from what is expected; the empty string accepts it.
        progress: told about every chunk.

    Raises:
        DownloadError: the address cannot be reached, the connection breaks, or the content is not as expected.
        DataError: the file cannot be written.
    """
    with replacing(target) as draft:
        with draft.open("wb") as sink:
            num_bytes = 0
            for chunk, total in _chunks(address):
                sink.write(chunk)
                num_bytes += len(chunk)
                if progress is not None:
                    progress(target.name, num_bytes, total)
        difference = mismatch(draft)
        if difference:
            raise DownloadError("an address holds other content than expected", where=address, got=difference)


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A path to write to; when the block ends well, the file there takes the target's place in one step.

    Args:
        target: the file to make or replace; its folder is made.

    Raises:
        DataError: the file cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-", ignore_cleanup_errors=True) as aside:
            draft = Path(aside) / target.name
            yield draft
            with draft.open("rb") as file:
                os.fsync(file.fileno())
            draft.replace(target)
    except OSError as error:
        raise DataError(
            "a corpus file cannot be written",
            where=target,
            got=error.strerror or str(error),
            fix="free some space there, or name a folder you may write to with --data-root or PARLEY_DATA",
        ) from None


def _chunks(address: str) -> Iterator[tuple[bytes, int | None]]:
    # Reading and writing both fail with OSError; as a generator, this one sees the failures of reading only.
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
            length = answer.headers.get("Content-Length")
            while chunk := answer.read(_CHUNK_BYTES):
                yield chunk, None if length is None else int(length)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DownloadError("an address cannot be reached", where=address, got=str(error)) from None
