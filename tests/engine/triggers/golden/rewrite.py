"""Writes every golden run again: `python -m tests.engine.triggers.golden.rewrite`."""

from __future__ import annotations

import json
import sys

from parley.engine.triggers.catalogue import searches
from tests.engine.triggers.golden.run import FOLDER, path, record


def main() -> None:
    for old in FOLDER.glob("*.json"):
        old.unlink()
    for method in searches:
        rows = [json.dumps(row) for row in record(method)]
        path(method).write_text("[\n" + ",\n".join(rows) + "\n]\n")
        sys.stderr.write(f"wrote {path(method).name}\n")


if __name__ == "__main__":
    main()
