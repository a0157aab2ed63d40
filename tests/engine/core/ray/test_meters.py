"""Meters: what Ray is told of sharded work, and that nothing is told where there is no Ray."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from parley.engine.core.ray.record import COUNTERS, GAUGES, Counts, Meters, Rows, ascii_text, write_shards
from parley.engine.core.ray.session import RaySession
from parley.engine.core.runs.parts import OK
from parley.engine.core.runs.run_folder import RunFolder
from tests.engine.core.ray.metered import watch
from tests.engine.core.ray.own_cluster import ROOT, survives
from tests.engine.core.ray.workers import NUMBERS, By, Counting, RaisesOn, shards_of
from tests.engine.core.runs.rows import SmallConfig


class Metered(By):
    def digest(self, rows: Rows) -> Counts:
        rows = [row for row in rows if row["status"] == OK]
        hits = sum(row["number"] > 2 for row in rows)
        return Counter({"candidates": 10 * len(rows), "hits": hits, "dialogues": len(rows), "not a meter": 1})


@pytest.mark.ray
def test_every_meter_is_told_of_every_shard(tmp_path: Path, ray_session: RaySession, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = watch(monkeypatch)
    (tmp_path / "log").mkdir()
    path = tmp_path / "run"
    with RunFolder.open(path, SmallConfig(), job="attack", schema=NUMBERS) as run:
        work = (run, Metered(RaisesOn, str(tmp_path / "log")), shards_of(20, 4))
        write_shards(*work, num_workers=2)
    told = heard.of(str(path), "attack")
    assert told.pop("parley_workers") in (1, 2), "where one does all of the work before the other is up"
    # Two of five shards failed, of four items each; a count of nothing is not told.
    assert told == {
        "parley_shards": 5,
        "parley_items": 20,
        "parley_errors": 8,
        "parley_candidates": 120,
        "parley_dialogues": 12,
        "parley_items_left": 0,
    }
    with RunFolder.open(path, SmallConfig(), job="attack", schema=NUMBERS) as run:
        work = (run, Metered(Counting, str(tmp_path / "log")), shards_of(20, 4))
        write_shards(*work, num_workers=0)
    assert heard.of(str(path), "attack")["parley_items"] == 28, "what was saved before is not counted again"


@pytest.mark.ray
def test_a_run_in_a_folder_beyond_ascii_is_worked_on_and_resumed_elsewhere(tmp_path: Path, ray_session: RaySession) -> None:
    (tmp_path / "log").mkdir()
    first, second = tmp_path / "größe →" / "einé", tmp_path / "число ж" / "run"
    work = Metered(RaisesOn, str(tmp_path / "log")), shards_of(20, 4)
    with RunFolder.open(first, SmallConfig(), job="attack", schema=NUMBERS) as run:
        write_shards(run, *work, num_workers=1)
    shutil.copytree(first, second)
    work = Metered(Counting, str(tmp_path / "log")), shards_of(20, 4)
    with RunFolder.open(second, SmallConfig(), job="attack", schema=NUMBERS) as run:
        assert run.num_done == 12
        write_shards(run, *work, num_workers=1)
        assert run.num_done == 20


def test_what_ray_takes_of_a_text_tells_texts_apart() -> None:
    assert ascii_text("runs/a b") == "runs/a b"
    assert ascii_text("größe/→") == "gr%C3%B6%C3%9Fe/%E2%86%92"
    assert ascii_text("caf\udce9") == "caf%E9", "a name that is no UTF-8"


@pytest.mark.ray
def test_the_names_are_ones_that_ray_takes(ray_session: RaySession, recwarn: pytest.WarningsRecorder) -> None:
    meters = Meters("runs/a b", "search")
    meters.add(**dict.fromkeys(COUNTERS, 1))
    meters.show(**dict.fromkeys(GAUGES, 0))
    assert not [warning for warning in recwarn if "metric" in str(warning.message).lower()]
    with pytest.raises(AssertionError, match="no counter"):
        meters.add(candidate=1)


def test_without_a_session_nothing_is_counted_and_ray_not_loaded() -> None:
    code = (
        "import sys; from parley.engine.core.ray.record import Meters; meters = Meters('run', 'job'); meters.add(items=1);"
        "meters.show(workers=1); print('ray' in sys.modules); import ray; Meters('run', 'job').add(items=1)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


SCRAPE = """
import time, urllib.request
from parley.engine.core.ray.record import COUNTERS, GAUGES, Meters
from parley.engine.core.ray.session import connect
with connect(num_cpus=1):
    import ray
    meters = Meters("runs/search", "search")
    meters.add(**{name: 7 for name in COUNTERS})
    meters.show(**{name: 7 for name in GAUGES})
    (node,) = ray.nodes()
    wanted = {f"ray_parley_{name}_total{{" for name in COUNTERS} | {f"ray_parley_{name}{{" for name in GAUGES}
    missing, tired_at = wanted, time.monotonic() + 60
    while missing and time.monotonic() < tired_at:
        time.sleep(1)
        try:
            where = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
            text = urllib.request.urlopen(where, timeout=5).read().decode()
        except OSError:
            continue
        lines = [line for line in text.splitlines() if 'run="runs/search"' in line and 'job="search"' in line]
        missing = {each for each in wanted if not any(line.startswith(each) and line.endswith(" 7.0") for line in lines)}
    print("survived" if not missing else f"missing: {missing}")
"""


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("prometheus_client") is None, reason="needs ray[default]: parley[cluster]")
def test_a_machine_shows_all_of_them_to_prometheus(tmp_path: Path) -> None:
    survives(SCRAPE, tmp_path, timeout_s=550)
