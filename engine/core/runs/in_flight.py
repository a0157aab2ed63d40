"""Which shards a process without actors works on, so that its death is known to the next one: `begun.json` of a run folder.

They are noted while they are worked on, and no longer however that ends, by an error or a signal that Python sees too. A note
that was left behind says that the process died: by `os._exit` or a crash in code of a user's own, or by a kill from outside.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path

from parley.engine.core.runs.documents import write_whole
from parley.engine.core.runs.layout import BEGUN
from parley.engine.core.runs.remote_sync import replicate, withdraw
from parley.envs.core.errors import RunError
from parley.envs.core.storage.uris import display_path

logger = logging.getLogger(__name__)


class BegunShards:
    """The notes of a run; a damaged file tells of nothing.

    Args:
        run: its folder, which this process writes.

    Attributes:
        deaths: by shard that has not come to its end since, how many processes died over it.
    """

    def __init__(self, run: Path) -> None:
        self._path = run / BEGUN
        self.deaths: dict[str, int] = {}
        try:
            found = json.loads(self._path.read_bytes())
            self.deaths = {str(name): int(number) for name, number in found["deaths"].items()}
            self.deaths |= {str(name): self.deaths.get(name, 0) + 1 for name in found["begun"]}
        except FileNotFoundError:
            pass
        except (AttributeError, KeyError, OSError, TypeError, ValueError):
            logger.warning("%s is damaged: which shards a process died over is forgotten", self._path)

    def note(self, names: Iterable[str]) -> None:
        """Notes the shards that are worked on from now; nobody waits for the disk, as no more than the process may die.

        Raises:
            RunError: the disk is full or the folder cannot be written.
            StorageError: the URI of the run cannot be written.
        """
        document = {"begun": list(names), "deaths": self.deaths}
        try:
            if any(document.values()):
                write_whole(self._path, json.dumps(document).encode(), durable=False)
                replicate(self._path)
            elif self._path.exists():
                self._path.unlink(missing_ok=True)
                withdraw(self._path)
        except OSError as error:
            fix = f"make room or mend the disk, then parley resume {display_path(self._path.parent)}"
            raise RunError("which shards are begun cannot be noted", where=self._path, got=error.strerror, fix=fix) from None
