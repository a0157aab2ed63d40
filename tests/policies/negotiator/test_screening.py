"""When choices are told in bfloat16 first: what is measured, what is counted, and what is kept of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from parley.envs.corpora.arrow import CACHE_VARIABLE
from parley.policies.core import layers as bfloat16
from parley.policies.core.layers import shortest_share, total_share
from parley.policies.negotiator.inference import FIRST, Screening, Tables, of_machine
from tests.policies.negotiator.made_up import TINY, negotiator

CPU = torch.device("cpu")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(bfloat16, "_KNOWN", {})
    return tmp_path


def another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bfloat16, "_KNOWN", {})


def unmeasured() -> float:
    pytest.fail("it was measured again")


def measured(*costs: float) -> Callable[[], float]:
    left = list(costs)
    return lambda: left.pop(0)


@pytest.mark.parametrize(("cost", "pays"), [(0.3, True), (0.79, True), (0.95, False), (1.0, False), (4.0, False)])
def test_what_is_no_faster_or_a_tie_is_float32(cost: float, pays: bool) -> None:
    assert Screening(lambda: cost).pays(1000) == pays


def test_few_choices_are_not_worth_it_and_nothing_is_measured_for_them() -> None:
    assert not Screening(unmeasured).pays(20)


@pytest.mark.parametrize(("left", "pays"), [(0, True), (FIRST // 4, True), (FIRST // 2, False), (FIRST, False)])
def test_a_network_that_leaves_most_choices_to_float32_is_no_longer_screened(left: int, pays: bool) -> None:
    network = Screening(lambda: 0.4)
    network.note(FIRST - 1, left - 1, moved_too_far=False)
    assert network.pays(1000), "so few tell nothing"
    network.note(1, 1, moved_too_far=False)
    assert network.pays(1000) == pays


def test_a_network_that_is_seen_to_leave_the_margin_is_no_longer_screened() -> None:
    network = Screening(lambda: 0.1)
    network.note(300, 1, moved_too_far=True)
    network.note(300, 1, moved_too_far=False)
    assert not network.pays(1000)


def test_it_is_measured_once_for_all_networks_of_those_sizes(cache: Path) -> None:
    assert of_machine(TINY, CPU, measured(0.25)).pays(1000)
    assert of_machine(TINY, CPU, unmeasured).pays(1000)
    assert not of_machine(replace(TINY, hidden_selection=10), CPU, measured(2.0)).pays(1000)


def test_another_process_reads_what_was_measured(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_machine(TINY, CPU, measured(0.25)).pays(1000)
    another_process(monkeypatch)
    assert of_machine(TINY, CPU, unmeasured).pays(1000)
    (file,) = cache.rglob("*.json")
    told = json.loads(file.read_text())
    assert (told["cost"], told["torch"], told["threads"]) == (0.25, torch.__version__, torch.get_num_threads())


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"cost": "0.1"}', '{"cost": NaN}', '{"cost": -1.0}', "\x00\xff"])
def test_a_damaged_file_is_measured_again_and_mended(content: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_machine(TINY, CPU, measured(0.25)).pays(1000)
    (file,) = cache.rglob("*.json")
    file.write_bytes(content.encode("latin-1"))
    another_process(monkeypatch)
    assert not of_machine(TINY, CPU, measured(3.0)).pays(1000)
    assert json.loads(file.read_text())["cost"] == 3.0


def test_a_folder_that_cannot_be_written_is_done_without(cache: Path) -> None:
    (cache / "bfloat16").write_text("a file where the folder would be")
    assert of_machine(TINY, CPU, measured(0.25)).pays(1000)
    assert of_machine(TINY, CPU, unmeasured).pays(1000)


def test_of_different_runs_all_but_the_first_count() -> None:
    now = [0.0]

    def takes(seconds: float) -> Callable[[], None]:
        def run() -> None:
            now[0] += seconds

        return run

    ours, theirs = map(takes, (7.0, 1.0, 2.0)), map(takes, (1.0, 4.0, 8.0))
    assert total_share(ours, theirs, lambda: now[0]) == pytest.approx(3.0 / 12.0)


def test_the_shortest_of_each_counts() -> None:
    """The first of each is not counted, and slow turns do not matter."""
    now, ours, theirs = [0.0], [0.1, 3.0, 2.0, 9.0, 2.5], [0.1, 4.0, 9.0, 9.0, 5.0]

    def take(seconds: list[float]) -> None:
        now[0] += seconds.pop(0)

    assert shortest_share(partial(take, ours), partial(take, theirs), lambda: now[0]) == pytest.approx(2.0 / 4.0)
    assert not ours + theirs


def test_a_network_measures_itself(cache: Path) -> None:
    tables, state = Tables(negotiator()), torch.get_rng_state()
    tables.screening.pays(1000)
    assert torch.equal(torch.get_rng_state(), state), "no global draws"
    (file,) = cache.rglob("*.json")
    assert 0 < json.loads(file.read_text())["cost"] < 1000
