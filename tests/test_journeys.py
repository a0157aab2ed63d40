"""Four journeys from a command to its result: what each loads and runs of the project, and how deep its calls go."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.test_house import ROOT

PROFILED = """
import json, sys, threading
from pathlib import Path
from parley.engine.core.cli.main import main

words, root, (file, function) = json.loads(sys.argv[1])
rooms = tuple(f"{Path(room).resolve()}/" for room in ("engine", "envs", "policies", "tune", "parley"))
rooms += tuple(f"{root}/parley/{room}/" for room in ("engine", "envs", "policies", "tune"))
files, frames = set(), 0

def profile(frame, event, argument):
    global frames
    code = frame.f_code
    if event != "call" or not code.co_filename.startswith(rooms):
        return
    files.add(code.co_filename)
    if code.co_name == function and code.co_filename.endswith(file):
        number = 0
        while frame:
            number += frame.f_code.co_filename.startswith(rooms)
            frame = frame.f_back
        frames = max(frames, number)

threading.setprofile(profile)
sys.setprofile(profile)
status = main(words)
sys.setprofile(None)
modules = sorted(name for name in sys.modules if name.startswith("parley."))
heavy = [name for name in ("ray", "torch") if name in sys.modules]
measured = {"status": status, "files": len(files), "frames": frames, "modules": len(modules), "heavy": heavy}
print(json.dumps(measured), file=sys.stderr)
"""
MODEL = """
def model(messages):
    words = messages[-1]["content"].split()
    return "hello there"[: 2 + 3 * sum(words.count(word) for word in ("please", "kindly"))]
"""
SEARCH = (
    "search text --model FOLDER/model.py:model --targets FOLDER/pairs.csv --words FOLDER/words.txt "
    "--set search.num_words=5 --set search.population=8 --set search.max_queries=60 --run FOLDER/run"
)


class Journey(NamedTuple):
    """A command with its limits; each of them may fall and never rise.

    Args:
        words: the command, with FOLDER in the place of a folder of its own.
        inner: file and name of a function at the heart of the work.
        frames: the project's frames from `main` to that function, both included.
        files: files of the project in which a function runs.
        modules: modules of the project that are imported.
    """

    words: str
    inner: tuple[str, str]
    frames: int
    files: int
    modules: int


# Before each system had a folder of its own: 19, 19, 19 and 14 frames; 559, 154, 541 and 124 files; 559, 158, 541 and 130
# modules; the first and the third also loaded torch.
JOURNEYS = {
    "rank replies": Journey(
        "evaluate ranking --corpus helpdesk --model tfidf --limit 20 --run FOLDER/run",
        ("policies/ranking/ranker.py", "score_all"),
        16,
        151,
        151,
    ),
    "negotiate": Journey(
        "selfplay --dialogues 20 --run FOLDER/run", ("envs/negotiation/scripted/bargainers.py", "speak"), 16, 92, 95
    ),
    "search": Journey(SEARCH, ("policies/chat/completions.py", "part_thinking"), 17, 140, 140),
    "perturb": Journey(
        "perturb random-swap --input FOLDER/lines.txt", ("engine/perturb/strategies/texts.py", "aligned"), 10, 78, 83
    ),
}


@pytest.mark.parametrize("name", JOURNEYS)
def test_a_verb_loads_its_own_system_and_takes_a_short_way(name: str, tmp_path: Path) -> None:
    journey = JOURNEYS[name]
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "pairs.csv").write_text("prompt,target\ntell me,hello there\n")
    (tmp_path / "words.txt").write_text("please kindly " + " ".join(f"w{number}" for number in range(30)))
    (tmp_path / "lines.txt").write_text("can you help me with my printer ?\n")
    words = journey.words.replace("FOLDER", str(tmp_path)).split()
    command = [sys.executable, "-c", PROFILED, json.dumps([words, str(ROOT), journey.inner])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    measured = json.loads(done.stderr.splitlines()[-1])
    assert measured["status"] == 0
    assert 0 < measured["frames"] <= journey.frames
    assert 0 < measured["files"] <= journey.files
    assert measured["modules"] <= journey.modules
    assert measured["heavy"] == []
