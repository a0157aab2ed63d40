"""What a worker is compared by: the same for the same source wherever it lies, and another for anything that rows depend on."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from parley.engine.core.ray import identity
from parley.engine.core.ray.identity import CODE, FOLDER, PACKAGES, ROOMS, differences, digest, own_identity, refusal, require
from parley.envs.core.errors import ClusterError

ROOT = Path(__file__).resolve().parents[4]


def rooms(folder: Path) -> dict[str, Path]:
    return {room: folder / "parley" / room for room in ROOMS}


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """This checkout's four rooms, elsewhere, as `ray job submit --working-dir` sends them."""
    for room in ("parley", *ROOMS):
        shutil.copytree(ROOT / room, tmp_path / room, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_a_copy_of_the_source_counts_as_the_same_wherever_it_lies(copied: Path) -> None:
    (copied / "engine" / "__pycache__").mkdir()
    (copied / "engine" / "__pycache__" / "x.cpython-311.pyc").write_bytes(b"compiled")
    (copied / "engine" / ".store.py.swp").write_bytes(b"an editor's")
    assert digest(rooms(copied)) == own_identity()[CODE]


@pytest.mark.parametrize("name", ["engine/triggers/scorers/scorer.py", "engine/triggers/prototypes.txt", "envs/core/seeds.py"])
def test_a_changed_a_moved_and_a_missing_file_count(copied: Path, name: str) -> None:
    found = {own_identity()[CODE]}
    path = copied / name
    before = path.read_text()
    path.write_text(f"{before}\n")
    found.add(digest(rooms(copied)))
    path.unlink()
    found.add(digest(rooms(copied)))
    path.with_stem("moved").write_text(before)
    found.add(digest(rooms(copied)))
    assert len(found) == 4


def test_another_process_finds_its_own_code_without_importing_it(copied: Path) -> None:
    (copied / "policies" / "__init__.py").write_text("raise ImportError\n")
    source = (ROOT / "engine" / "core" / "ray" / "identity.py").read_text()
    code = f"{source}\nprint(identity())"
    found = subprocess.run([sys.executable, "-c", code], cwd=copied, capture_output=True, text=True, check=True).stdout
    assert str(copied) in found
    assert own_identity()[CODE] not in found


def test_builds_of_one_version_may_work_together_and_versions_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"ray": "2.60.0", "torch": "2.13.0+cpu", "numpy": "2.4.6"}
    monkeypatch.setattr(identity, "version", versions.__getitem__)
    cpu = identity.identity()
    versions["torch"] = "2.13.0+cu130"
    assert differences(cpu, identity.identity()) == ""
    versions["torch"] = "2.12.1"
    assert differences(cpu, identity.identity()) == "torch 2.12.1 instead of 2.13.0"
    assert set(PACKAGES) < set(cpu)


def test_what_differs_is_told_with_machine_folders_and_what_to_do() -> None:
    found = own_identity() | {CODE: "0123456789ab", FOLDER: "/srv/parley", "numpy": "nothing"}
    with pytest.raises(ClusterError) as caught:
        raise refusal(own_identity(), found, "10.0.0.7")
    assert caught.value.where == f"machine 10.0.0.7, /srv/parley; this process has {ROOT}"
    assert f"Parley's code 0123456789ab instead of {own_identity()[CODE]}, numpy nothing instead of" in str(caught.value.got)
    assert "ray job submit --working-dir" in str(caught.value.fix)


def test_the_folder_alone_is_no_difference() -> None:
    require(own_identity() | {FOLDER: "/somewhere/else"})
    with pytest.raises(ClusterError, match=r"Python \d\.\d+ instead of 2\.7"):
        require(own_identity() | {"Python": "2.7"})
