"""Python files of a user's own: what goes wrong in them is told as theirs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb

from envs.core.errors import ConfigError, ParleyError


@contextmanager
def own_code(spec: str) -> Iterator[None]:
    """A block that runs code of a user's own; what it raises becomes an error that names the user's file and line.

    Args:
        spec: `path/file.py:Name`.

    Raises:
        ConfigError: the code raised; the user's own traceback is its cause.
    """
    try:
        yield
    except ParleyError:
        raise
    except Exception as error:
        path = Path(spec.rpartition(":")[0])
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if Path(frame.filename).name == path.name]
        if isinstance(error, SyntaxError):
            lines = [error.lineno]
        raise ConfigError(
            "the Python file raised an error",
            where=":".join(map(str, [path, *lines[-1:]])),
            got=f"{type(error).__name__}: {error}",
            fix="mend it; --debug shows the traceback",
        ) from error
