"""`CrossEncoder.predict` of sentence-transformers itself, clocked.

`cross_encoder.py` runs it with the interpreter of an environment of its own, because Parley does without that library:

    python -m venv peer; peer/bin/pip install sentence-transformers==6.2.0 transformers==5.23.0 torch==2.13.0

It reads nothing of Parley. The one argument is the folder of a cross-encoder, in which `pairs.json` lists pairs of texts. It
prints one JSON line: the processor's seconds, and the scores. In float32, on one thread, in batches of 32, its default.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def predict(folder: Path) -> tuple[float, list[float]]:
    """Return the processor's seconds for all pairs, and their scores."""
    import torch
    from sentence_transformers import CrossEncoder  # type: ignore[import-not-found]  # of the other environment

    torch.set_num_threads(1)
    model = CrossEncoder(str(folder), device="cpu")
    pairs = [tuple(pair) for pair in json.loads((folder / "pairs.json").read_text(encoding="utf-8"))]
    model.predict(pairs[:2])
    began = time.process_time()
    scores = model.predict(pairs)
    return time.process_time() - began, [float(score) for score in scores]


if __name__ == "__main__":
    print(json.dumps(predict(Path(sys.argv[1]))))
