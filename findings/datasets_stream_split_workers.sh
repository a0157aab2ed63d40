#!/usr/bin/env bash
# datasets: a stream split by take and skip trains on rows of its own validation set as soon as a DataLoader has workers.
#
# Guess before the first run: ds.take(n) has the first n rows and ds.skip(n) all others, however many workers read them; that is how the
#   documentation splits a stream. The index that map and filter give with with_indices=True is that of the row in the stream.
# Seen with datasets 5.2.0, torch 2.13.0, four files of 100 rows, streamed. Validation is take(40), read without workers; training is skip(40).
#   Without workers they share no row. With two workers training has 20 of the 40 validation rows, and 20 others are in neither part; with
#   four it has 30. Of a stream that is shuffled first, by one seed, it has 23 and 37. Each worker takes or skips its share of the 40 in its own
#   files. Where files have 4, 4, 196 and 196 rows, take(40) by four workers has 28 rows. Indices are counted by each worker: every tenth
#   row of the shuffled stream and its rest, filtered with with_indices=True, share 39 of 40 rows with two workers and 36 with four.
#   Parts that are read by equally many workers share none, nor do those of a map-style dataset. Nothing is said.
# Why it matters: evaluation rows are trained on, loss and accuracy are too good, and the number of workers, set for speed, decides by how
#   much. Split by a key in the row, or by files, and read both parts with one number of workers.
# Needs a Python (PYTHON) for which torch 2.13.0 exists. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "torch==2.13.0" 2> /dev/null
  "$folder/venv/bin/pip" install --quiet "datasets==5.2.0" 2> /dev/null
  python=$folder/venv/bin/python
fi
cd "$folder"
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 HF_HOME="$folder/cache" HF_DATASETS_DISABLE_PROGRESS_BARS=1
cat > split.py <<'PYTHON'
import json
from importlib.metadata import version

from datasets import load_dataset
from torch.utils.data import DataLoader

WORKERS = (0, 2, 4)


def stream(sizes):
    """A stream of files of these sizes, whose rows are numbered."""
    names, row = [], 0
    for number, size in enumerate(sizes):
        names.append(f"{len(sizes)}-{size}-{number}.jsonl")
        with open(names[-1], "w") as file:
            for _ in range(size):
                print(json.dumps({"row": row}), file=file)
                row += 1
    return load_dataset("json", data_files=names, split="train", streaming=True)


def read(part, workers):
    """The rows of a part, as so many workers read it."""
    return [int(row["row"]) for row in DataLoader(part, batch_size=None, num_workers=workers)]


def common(name, validation, training):
    """How many rows are in both parts, as many as are in neither."""
    assert (len(validation), len(training)) == (40, 360), name
    shared, lost = len(set(validation) & set(training)), 400 - len(set(validation) | set(training))
    print(f"{name}: {shared} are in both, {lost} in neither")
    assert shared == lost
    return shared


def tenth(index):
    return index % 10 == 0


def main():
    print(*(f"{name} {version(name)}" for name in ("datasets", "torch")))
    ordered = stream([100] * 4)
    shuffled = ordered.shuffle(seed=0, buffer_size=50)
    for name, rows, taken, filtered in (
        ("in order", ordered, (0, 20, 30), None),
        ("shuffled", shuffled, (0, 23, 37), (0, 39, 36)),
    ):
        seen = [
            common(f"{name}, take(40), and skip(40) by {workers} workers", read(rows.take(40), 0), read(rows.skip(40), workers))
            for workers in WORKERS
        ]
        assert tuple(seen) == taken
        assert common(f"{name}, both by 2 workers", read(rows.take(40), 2), read(rows.skip(40), 2)) == 0
        if filtered:
            some = rows.filter(lambda row, index: tenth(index), with_indices=True)
            rest = rows.filter(lambda row, index: not tenth(index), with_indices=True)
            seen = [
                common(f"{name}, every tenth, and the rest by {workers} workers", read(some, 0), read(rest, workers))
                for workers in WORKERS
            ]
            assert tuple(seen) == filtered
    uneven = stream([4, 4, 196, 196])
    counts = [len(read(uneven.take(40), workers)) for workers in WORKERS]
    print("take(40) of files of 4, 4, 196 and 196 rows, by 0, 2 and 4 workers:", counts)
    assert counts == [40, 40, 28]
    rows = load_dataset("json", data_files=[f"4-100-{number}.jsonl" for number in range(4)], split="train")
    assert common("map-style, by 2 workers", read(rows.take(40), 0), read(rows.skip(40), 2)) == 0
    print("as seen")


if __name__ == "__main__":
    main()
PYTHON
"$python" -W ignore split.py 2> "$folder/errors" || { cat "$folder/errors"; exit 1; }
