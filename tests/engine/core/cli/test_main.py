"""The entry point: screens, exit statuses, errors, speed."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from parley.engine.core.cli.main import JOBS, VERBS, Verb, below, find_verb
from parley.engine.core.ray import logs
from parley.engine.core.verbs.catalogue import ENTRIES, find
from parley.envs.core.config import to_dict
from parley.envs.core.errors import ConfigError, RunError
from tests.engine.core.cli.conftest import Parley
from tests.engine.core.cli.screens import FOLDER, SCREENS, steady
from tests.engine.core.verbs.made_up import ROOT, await_halt, halts_at, rows, start_parley

REWRITE = "if the change is intended: python -m tests.engine.core.cli.rewrite, and read the difference"
HEAVY = ("ray", "torch", "matplotlib", "scipy", "pandas", "nltk")


@pytest.mark.parametrize("name", SCREENS)
def test_the_screen_is_the_recorded_one(parley: Parley, name: str) -> None:
    outcome = parley(SCREENS[name])
    assert steady(outcome.out, outcome.err) == (FOLDER / f"{name}.txt").read_text(), REWRITE
    mistake = "error:" in outcome.err
    assert outcome.status == (2 if mistake else 0)


def test_every_recorded_screen_is_one_of_a_command() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(SCREENS)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_the_help_of_a_verb_says_what_each_flag_is(parley: Parley, verb: Verb) -> None:
    outcome = parley(f"{verb.name} --help")
    assert (outcome.status, outcome.err) == (0, "")
    assert verb.summary in " ".join(outcome.out.split())
    assert all(f"  {example}" in outcome.out for example in verb.examples)
    assert max(map(len, outcome.out.splitlines())) <= 140
    if verb.name == "settings":
        return
    shown = re.sub("[─│╭╮╰╯]", " ", outcome.out.partition("examples:")[0])
    # A flag, its value, and at least two words of what it is, on its own line or the next.
    entries = [" ".join(entry.split()) for entry in re.split(r"\n\s+(?=--?[a-z])", shown)[1:]]
    assert len(entries) >= 2
    for entry in entries:
        flag, _, text = entry.partition(" ")
        assert len(re.findall(r"[a-z]{2,}", text)) >= 2, f"{flag} is not explained"
    if verb in JOBS:
        job = find("-".join(verb.words)).load()
        assert all(preset in outcome.out for preset in job.presets)
        values = to_dict(next(iter(job.presets.values()))())
        # What is on by default has a flag that turns it off, which says so itself.
        with_default = [key for key, value in values.items() if isinstance(value, int | float) and value is not True]
        defaults = {re.split("[ ,]", entry)[0] for entry in entries if "(default: " in entry}
        assert {f"--{key.replace('_', '-')}" for key in with_default} <= defaults


def test_help_shows_every_verb_with_its_examples(parley: Parley) -> None:
    overview = parley("--help").out
    for verb in VERBS:
        assert f"  {verb.name}" in overview
        assert verb.summary in overview
        assert len(verb.examples) == 3
        assert all(example.startswith(f"parley {verb.name}") for example in verb.examples)


LOADING = """
import json, sys
from parley.engine.core.cli.main import main
found = {}
for words in sys.argv[1:]:
    main(words.split())
    found[words] = [*{name.split(".")[0] for name in sys.modules}]
sys.stderr.write("loaded: " + json.dumps(found))
"""


def loaded(*commands: str) -> dict[str, set[str]]:
    """Packages that a fresh interpreter has loaded after each of some commands, given one after the other."""
    done = subprocess.run([sys.executable, "-c", LOADING, *commands], cwd=ROOT, capture_output=True, text=True, check=True)
    return {words: set(found) for words, found in json.loads(done.stderr.rpartition("loaded: ")[2]).items()}


def test_help_starts_at_once() -> None:
    before = os.times()
    packages = loaded("--help")["--help"]
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    assert not packages & {*HEAVY, "gymnasium", "numpy", "pyarrow", "rich", "tyro", "yaml"}
    # Of a core, a tenth of this on a free machine; the imports above are what keeps it so.
    assert seconds < 5


LIGHT = (
    "train --help",
    "list",
    "list --json",
    "selfplay --help",
    "settings search",
    "attack transfer --help",
    "attack reactive --help",
    "attack ra-pa-ta --help",
    "attack table --help",
    "search --help",
    "search table --help",
    "play --help",
    "play ranking --help",
    "status --help",
    "data list",
)


@pytest.fixture(scope="module")
def light() -> dict[str, set[str]]:
    """All of them in one interpreter: one that loads something heavy is the first that fails."""
    return loaded(*LIGHT)


@pytest.mark.parametrize("words", LIGHT)
def test_nothing_heavy_is_loaded_to_tell_what_there_is(words: str, light: dict[str, set[str]]) -> None:
    assert not light[words] & set(HEAVY)


def test_without_arguments_it_helps(parley: Parley) -> None:
    assert parley("").out == parley("-h").out == parley("--help").out


def test_it_names_its_version(parley: Parley) -> None:
    outcome = parley("--version")
    assert (outcome.status, outcome.out) == (0, f"parley {version('parley-redteam')}\n")


def test_a_word_that_begins_several_verbs_wants_one(parley: Parley) -> None:
    outcome = parley("train")
    assert outcome.status == 2
    assert "negotiator, rl, adversary" in outcome.err
    assert "did you mean 'adversary'" in parley("train adversery").err


def test_of_two_verbs_that_fit_the_longer_one_is_meant() -> None:
    for words, verb in {"search table demo": ("search", "table"), "search demo": ("search",), "search": ("search",)}.items():
        found = find_verb(words.split())
        assert found is not None
        assert found.words == verb


def test_errors_keep_their_traceback_for_those_who_ask(parley: Parley, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Traceback" not in parley("selfplay --adversary nobody").err
    with pytest.raises(ConfigError, match="nobody"):
        parley("selfplay --adversary nobody --debug")
    monkeypatch.setenv(logs.DEBUG_VARIABLE, "1")
    with pytest.raises(ConfigError, match="nobody"):
        parley("selfplay --adversary nobody")


def test_a_shard_that_failed_shows_the_users_own_traceback_to_those_who_ask(tmp_path: Path, parley: Parley) -> None:
    (tmp_path / "mine.py").write_text("class Mine:\n    def join(self, view): raise ValueError('my own bug')")
    asked = "selfplay --dialogues 2 --adversary mine.py:Mine"
    quiet = parley(asked).err
    assert 'mine.py", line 2, in join' not in quiet
    assert "advantage" not in quiet, "there is nothing to show a table of"
    assert "  where: mine.py:2\n  got:   ValueError: my own bug" in quiet
    assert "--debug shows the traceback" in quiet
    assert 'mine.py", line 2, in join' in parley(f"{asked} --debug").err


def test_a_fault_of_our_own_is_not_dressed_up(parley: Parley, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise ValueError("not a mistake of the user's")

    monkeypatch.setattr(Verb, "load", lambda verb: broken)
    with pytest.raises(ValueError, match="not a mistake"):
        parley("list")


def test_an_error_is_red_on_a_terminal(parley: Parley, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1;31merror: " in parley("trian").err


def test_an_interrupt_while_the_command_line_is_loaded_shows_no_traceback() -> None:
    code = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, *rest):
        if name == "parley.engine.core.cli.main":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
from parley.__main__ import start
start()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "\ninterrupted; the same command resumes\n")


@pytest.mark.parametrize(
    ("number", "status", "what"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
    ids=["SIGINT", "SIGTERM"],
)
@pytest.mark.parametrize(
    ("workers", "dialogues"),
    [(0, 200), pytest.param(2, 4000, marks=[pytest.mark.ray, pytest.mark.slow])],
    ids=["here", "actors"],
)
def test_an_interrupted_run_says_so_and_the_same_command_resumes(
    tmp_path: Path, parley: Parley, workers: int, dialogues: int, number: signal.Signals, status: int, what: str
) -> None:
    asked = ["selfplay", "--dialogues", str(dialogues), "--shard-size", "20", "--run", "run"]
    with start_parley(*asked, "--workers", str(workers), folder=tmp_path, before=halts_at('parts("run") == 2')) as process:
        await_halt(process, tmp_path)
        process.send_signal(number)
        out, err = process.communicate()
    assert process.returncode == status, err
    assert err.endswith(f"{what}; the same command resumes\n")
    assert "SIGTERM received" not in err, "a C++ stack"
    assert "Traceback" not in err
    assert out == ""
    num_saved = len(rows(tmp_path / "run"))
    assert 40 <= num_saved < dialogues
    assert parley(*asked).status == 0
    assert parley(*asked[:-1], "whole").status == 0
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("asked", ["sweep demo --num-trials 40", "selfplay --dialogues 99999 --workers 2"])
def test_sigterm_to_all_processes_of_a_command_prints_no_stack(tmp_path: Path, asked: str) -> None:
    """As `timeout` and schedulers send it."""
    with start_parley(*asked.split(), "--run", "run", folder=tmp_path, before="import os; os.setsid()") as process:
        while process.poll() is None and not [*(tmp_path / "run" / "rows").glob("*.parquet")]:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGTERM)
        _, err = process.communicate()
    assert process.returncode == 143, err
    assert err.endswith("\nterminated; the same command resumes\n")
    assert "SIGTERM received" not in err, "a C++ stack"


@pytest.mark.parametrize("asked", [["minmax", "--help"], ["list", "--json"], ["selfplay", "--dialogues", "2", "--json"]])
def test_output_that_nobody_reads_is_no_mistake(tmp_path: Path, asked: list[str]) -> None:
    with start_parley(*asked, folder=tmp_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        told = process.stderr.read()
    assert process.returncode == 141, told
    assert "rror" not in told
    assert "Traceback" not in told


@pytest.mark.parametrize("command", ["--help", "search --help", "list --json", "selfplay --dialogues 2 --json"])
def test_output_onto_a_full_disk_is_an_error_and_no_traceback(tmp_path: Path, command: str) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "parley", *command.split()],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.returncode == 2
    assert "error: standard output cannot be written\n  got:   No space left on device\n  fix:   make room" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr


@pytest.mark.parametrize("columns", ["0", "00", ""])
def test_a_terminal_of_no_width_gets_text_all_the_same(parley: Parley, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.delenv("COLUMNS")
    usual = parley("list")
    monkeypatch.setenv("COLUMNS", columns)
    assert parley("list") == usual
    assert "search" in usual.out + usual.err


def test_every_verb_can_be_loaded_and_every_job_is_in_the_list() -> None:
    for verb in VERBS:
        module, _, attribute = verb.target.partition(":")
        assert callable(getattr(importlib.import_module(module), attribute))
    for listed in ENTRIES:
        job = listed.load()
        assert job.name == "-".join(listed.words)
        assert job.argument.upper() == listed.argument
        assert find(job.name) is listed
        assert [preset() for preset in job.presets.values()]
        assert listed.words[0] in {verb.words[0] for verb in below(listed.words[0])}
    with pytest.raises(RunError, match="train-ranker"):
        find("train-ranker")


def test_the_console_script_is_this_function() -> None:
    script = Path(sys.executable).with_name("parley")
    if not os.access(script, os.X_OK):
        pytest.skip("the project is not installed in this environment")
    done = subprocess.run([script, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: parley VERB")
