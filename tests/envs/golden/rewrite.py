"""Writes every golden playthrough again: `python -m tests.envs.golden.rewrite`."""

from __future__ import annotations

import sys

from tests.envs.golden.playthrough import FOLDER, PLAYTHROUGHS, record


def main() -> None:
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    for playthrough in PLAYTHROUGHS:
        playthrough.path.write_text(record(playthrough))
        sys.stderr.write(f"wrote {playthrough.path.name}\n")


if __name__ == "__main__":
    main()
