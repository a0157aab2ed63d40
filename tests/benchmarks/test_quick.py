"""Every benchmark runs offline in its quick form and prints one line with what it promises; how fast is not asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import NO_SPEED, benchmark_names

ROOT = Path(__file__).parents[2]
NAMES = sorted({*benchmark_names(ROOT / "benchmarks"), *NO_SPEED})


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled corpus, made once for all of them."""
    return tmp_path_factory.mktemp("cache")


def test_the_benchmarks_are_found() -> None:
    promised = {"bootstrap", "selfplay", "supervised", "rllib", "whitebox", "trigger", "perturbation", "pool", "ranking"}
    assert promised | {"collaboration", "dynonet", "regs", "reranking", "scripted_chats", "subwords"} <= set(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_quick_form_prints_one_line_of_figures(name: str, cache: Path) -> None:
    environment = {**os.environ, "PARLEY_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", f"benchmarks.{name}", "--quick"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    figures = json.loads(line)
    assert figures["benchmark"] == name
    assert isinstance(figures["identical"], bool)
    assert figures["ratio"] > 0
    machine = figures["machine"]
    assert machine["processor"] in done.stderr
    assert (machine["threads"], machine["cores"]) == (1, os.cpu_count())
    assert {"instructions", "load_before", "load_after"} <= set(machine)


@pytest.mark.slow
def test_a_wrong_option_is_an_error_and_no_line() -> None:
    command = [sys.executable, "-m", "benchmarks.supervised", "--quick", "--corpus", "nowhere"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stdout == ""
    assert "no negotiation corpus is called 'nowhere'" in done.stderr
    assert "Traceback" not in done.stderr
