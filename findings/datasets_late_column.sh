#!/usr/bin/env bash
# datasets: a field that the first row lacks is dropped by `map` and `from_generator`, kept by two processes, and an error in larger data.
#
# Guess before the first run: `Dataset.map` and `Dataset.from_generator` make the columns from the keys of all rows, and fill with None,
#   or raise an error where a later row has a key that the first one lacks. `Dataset.from_list` documents that it takes the first row's.
# Seen with datasets 5.2.0, pyarrow 26.0.1: five rows, of which the last three get a "label". `map` and `from_generator` give no column
#   "label", without a word; `map` with num_proc=2 gives it, as the second process begins with such a row; an IterableDataset gives
#   it. With 1,500 rows, of which all from number 700 on get it, `map` ends in KeyError: 'label', because it writes 1,000 rows at a
#   time and the second thousand begins with such a row; so do five rows if the first alone has it. So one function has three
#   outcomes, by the number of rows and processes. With an explicit None all are right.
# Why it matters: fields of dialogues are often optional: a rating, a tool call, the reason of a refusal, the attack that was found. A
#   label that the first dialogue lacks is gone after a step that only cleans, and a test on a sample of it shows nothing. Return
#   every key for every row.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "datasets==5.2.0" "pyarrow==26.0.1" "numpy==2.4.6" 2> /dev/null
cd "$folder"
HF_HUB_OFFLINE=1 HF_HOME=$folder/hub "$folder/venv/bin/python" -W error - 2> /dev/null <<'PYTHON'
from importlib.metadata import version

from datasets import Dataset

print("datasets", version("datasets"), "pyarrow", version("pyarrow"))


def label_late(row):
    return {"label": row["number"]} if row["number"] >= 2 else {}


def label_first(row):
    return {"label": row["number"]} if row["number"] == 0 else {}


def label_last(row):
    return {"label": row["number"]} if row["number"] >= 700 else {}


def label_or_none(row):
    return {"label": row["number"] if row["number"] >= 2 else None}


def rows():
    for number in range(5):
        yield {"number": number} | label_late({"number": number})


def last_row(name, make):
    """The last row of what is made, or the error."""
    try:
        row = list(make())[-1]
    except KeyError as error:
        row = f"KeyError: {error}"
    print(f"{name}: {row}")
    return row


few = Dataset.from_dict({"number": list(range(5))})
many = Dataset.from_dict({"number": list(range(1500))})
without, whole, error = {"number": 4}, {"number": 4, "label": 4}, "KeyError: 'label'"
assert last_row("map", lambda: few.map(label_late)) == without
assert last_row("map by two processes", lambda: few.map(label_late, num_proc=2)) == whole
assert last_row("map of an IterableDataset", lambda: few.to_iterable_dataset().map(label_late)) == whole
assert last_row("from_generator", lambda: Dataset.from_generator(rows)) == without
assert last_row("map of 1,500 rows", lambda: many.map(label_last)) == error
assert last_row("map, the first row alone has it", lambda: few.map(label_first)) == error
assert last_row("map with None", lambda: few.map(label_or_none)) == whole
print("as seen")
PYTHON
