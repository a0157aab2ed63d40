"""Stored models and training states: round trips, every way to be damaged, full disks, and no pickle."""

from __future__ import annotations

import errno
import json
import os
import pickletools
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from parley.envs.core.errors import CheckpointError, DataError
from parley.envs.negotiation.domain import Vocabulary
from parley.policies.core.checkpoint import (
    FORMAT_VERSION,
    Checkpoint,
    Uninitialised,
    flatten_optimiser,
    load_state,
    restore_optimiser,
    save_state,
)
from parley.policies.core.responder import reading
from tests.envs.negotiation.agents import VOCABULARY

PARTS = {"weights.safetensors", "config.json", "vocabulary.json"}
WEIGHTS = {"first": torch.linspace(-1, 1, 12).view(3, 4), "second": torch.arange(5), "third": torch.zeros(0, 2).bfloat16()}
STORED = Checkpoint("negotiator", {"width": 4, "rate": 0.1}, {"role": "supervised", "seed": 1}, VOCABULARY, WEIGHTS)


@contextmanager
def files_no_larger_than(num_bytes: int) -> Iterator[None]:
    """The kernel refuses larger ones, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def assert_same_tensors(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value)


def assert_stored(folder: Path, wanted: Checkpoint = STORED) -> None:
    found = Checkpoint.load(folder, wanted.kind, Vocabulary)
    assert replace(found, weights={}) == replace(wanted, weights={})
    assert_same_tensors(found.weights, wanted.weights)
    assert {path.name for path in folder.iterdir()} == PARTS
    assert [path.name for path in folder.parent.iterdir()] == [folder.name], "nothing is left beside it"


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    STORED.save(tmp_path / "new" / "checkpoint")
    assert_stored(tmp_path / "new" / "checkpoint")


def test_weights_that_need_gradients_or_lie_apart_are_stored_too(tmp_path: Path) -> None:
    square = torch.nn.Parameter(torch.arange(6.0).view(2, 3))
    replace(STORED, weights={"square": square, "turned": square.t()}).save(tmp_path / "checkpoint")
    assert_stored(tmp_path / "checkpoint", replace(STORED, weights={"square": square.data, "turned": square.data.t()}))


def test_a_newer_checkpoint_takes_the_place_of_an_older_one(tmp_path: Path) -> None:
    STORED.save(tmp_path / "checkpoint")
    newer = replace(STORED, provenance={"seed": 2}, weights={"first": torch.ones(2)})
    newer.save(tmp_path / "checkpoint")
    assert_stored(tmp_path / "checkpoint", newer)


def test_what_a_killed_process_left_beside_it_is_in_nobodys_way(tmp_path: Path) -> None:
    STORED.save(tmp_path / "checkpoint")
    for suffix in ("partial", "old"):
        shutil.copytree(tmp_path / "checkpoint", tmp_path / f".checkpoint.{os.getpid()}.{suffix}")
    newer = replace(STORED, provenance={"seed": 2})
    newer.save(tmp_path / "checkpoint")
    assert_stored(tmp_path / "checkpoint", newer)


@pytest.mark.parametrize("refused", [1, 2])
def test_an_older_checkpoint_survives_when_it_cannot_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    STORED.save(tmp_path / "checkpoint")
    rename, count = Path.rename, iter(range(1, 10))

    def moody(path: Path, target: Path) -> Path:
        if next(count) == refused:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", moody)
        with pytest.raises(CheckpointError, match="cannot be written"):
            replace(STORED, provenance={"seed": 2}).save(tmp_path / "checkpoint")
    assert_stored(tmp_path / "checkpoint")


@pytest.mark.parametrize("room", [0, 100], ids=["for nothing", "for part of the weights"])
def test_a_full_disk_leaves_the_older_checkpoint(tmp_path: Path, room: int) -> None:
    STORED.save(tmp_path / "checkpoint")
    larger = replace(STORED, weights={"first": torch.ones(10_000)})
    with files_no_larger_than(room), pytest.raises(CheckpointError, match=r"cannot be written(.|\n)*free disk space"):
        larger.save(tmp_path / "checkpoint")
    assert_stored(tmp_path / "checkpoint")
    larger.save(tmp_path / "checkpoint")
    assert_stored(tmp_path / "checkpoint", larger)


def test_a_disk_that_fills_up_late_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    STORED.save(tmp_path / "models" / "checkpoint")
    save_state(tmp_path / "states" / "state.safetensors", WEIGHTS, {"epoch": 1})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(CheckpointError, match=r"cannot be written(.|\n)*No space left"):
            replace(STORED, provenance={"seed": 2}).save(tmp_path / "models" / "checkpoint")
        with pytest.raises(CheckpointError, match=r"cannot be written(.|\n)*No space left"):
            save_state(tmp_path / "states" / "state.safetensors", WEIGHTS, {"epoch": 2})
    assert_stored(tmp_path / "models" / "checkpoint")
    assert [path.name for path in (tmp_path / "states").iterdir()] == ["state.safetensors"]
    assert load_state(tmp_path / "states" / "state.safetensors")[1] == {"epoch": 1}


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot be written(.|\n)*file/checkpoint"):
        STORED.save(tmp_path / "file" / "checkpoint")


def is_pickle(content: bytes) -> bool:
    try:
        return any(operation.name == "STOP" for operation, _, _ in pickletools.genops(content))
    except ValueError:
        return False


def test_there_is_no_pickle_in_what_is_written(tmp_path: Path) -> None:
    STORED.save(tmp_path / "checkpoint")
    save_state(tmp_path / "state.safetensors", WEIGHTS, {"epoch": 3})
    for path in (*(tmp_path / "checkpoint").iterdir(), tmp_path / "state.safetensors"):
        content = path.read_bytes()
        assert not is_pickle(content)
        if path.suffix == ".json":
            json.loads(content)
        else:
            # The length of a JSON header in eight bytes, the header, then numbers alone.
            size = int.from_bytes(content[:8], "little")
            header = json.loads(content[8 : 8 + size])
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
            assert len(content) == 8 + size + max(ends)


@pytest.mark.parametrize("part", sorted(PARTS))
def test_a_missing_part_is_named(tmp_path: Path, part: str) -> None:
    STORED.save(tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / part).unlink()
    with pytest.raises(CheckpointError, match=rf"no checkpoint is there(.|\n)*missing {part}\n"):
        Checkpoint.load(tmp_path / "checkpoint", "negotiator", Vocabulary)


def test_no_folder_at_all_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no checkpoint is there(.|\n)*nowhere"):
        Checkpoint.load(tmp_path / "nowhere", "negotiator", Vocabulary)


def test_a_checkpoint_of_another_kind_or_format_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    replace(STORED, kind="ranker").save(folder)
    with pytest.raises(CheckpointError, match=r"another kind(.|\n)*'ranker'(.|\n)*'negotiator'"):
        Checkpoint.load(folder, "negotiator", Vocabulary)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"format": FORMAT_VERSION + 1}))
    with pytest.raises(CheckpointError, match=rf"another kind(.|\n)*format {FORMAT_VERSION + 1}"):
        Checkpoint.load(folder, "ranker", Vocabulary)


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def empty(_: bytes) -> bytes:
    return b""


def garbage(_: bytes) -> bytes:
    return bytes(range(128, 256))


def other_json(_: bytes) -> bytes:
    return b'["nothing", "of", "the", "kind"]'


def number(_: bytes) -> bytes:
    return b"7"


@pytest.mark.parametrize("damage", [cut, empty, garbage, other_json, number])
@pytest.mark.parametrize("part", sorted(PARTS))
def test_a_damaged_part_is_an_error_of_its_own(tmp_path: Path, part: str, damage: Callable[[bytes], bytes]) -> None:
    folder = tmp_path / "checkpoint"
    STORED.save(folder)
    (folder / part).write_bytes(damage((folder / part).read_bytes()))
    with pytest.raises(CheckpointError, match=r"the checkpoint is damaged(.|\n)*/checkpoint(.|\n)*train it again"):
        Checkpoint.load(folder, "negotiator", Vocabulary)


def test_damage_is_told_once(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    STORED.save(folder)
    (folder / "vocabulary.json").write_bytes(b"7")
    with pytest.raises(CheckpointError) as told:
        Checkpoint.load(folder, "negotiator", Vocabulary)
    assert str(told.value).count("fix:") == 1
    assert "Error" not in str(told.value.got)


def test_an_error_of_what_reads_a_part_stands_in_one_line(tmp_path: Path) -> None:
    wrong = DataError("no word", where="vocabulary.json", got="''", fix="mend it")
    with pytest.raises(CheckpointError) as told, reading(tmp_path):
        raise wrong
    assert (told.value.where, told.value.got) == ("vocabulary.json", "no word, ''")


@pytest.mark.parametrize("part", ["weights.safetensors", "vocabulary.json"])
def test_a_flipped_bit_is_noticed(tmp_path: Path, part: str) -> None:
    folder = tmp_path / "checkpoint"
    STORED.save(folder)
    content = bytearray((folder / part).read_bytes())
    # Past the header of the weights and inside a word: what is read would be another number, another word.
    content[-20 if part == "weights.safetensors" else content.index(b"hat")] ^= 1
    (folder / part).write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"damaged: {part} is not as it was saved(.|\n)*SHA-256(.|\n)*copy it again"):
        Checkpoint.load(folder, "negotiator", Vocabulary)


def test_a_checkpoint_from_before_digests_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    STORED.save(folder)
    config = json.loads((folder / "config.json").read_text())
    del config["digests"]
    (folder / "config.json").write_text(json.dumps(config))
    assert_stored(folder)


@pytest.mark.parametrize("entry", [{"sizes": []}, {"provenance": 3}, {"digests": ["x"]}, {"digests": dict.fromkeys(PARTS, 7)}])
def test_a_configuration_of_wrong_types_is_an_error_of_its_own(tmp_path: Path, entry: dict[str, object]) -> None:
    folder = tmp_path / "checkpoint"
    STORED.save(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | entry))
    with pytest.raises(CheckpointError, match=r"the checkpoint is damaged"):
        Checkpoint.load(folder, "negotiator", Vocabulary)


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    counters = {"epoch": 3, "best": float("inf"), "history": [{"rate": 0.1, "stage": "full"}], "optimiser": {}}
    path = tmp_path / "new" / "state.safetensors"
    # Two names of one memory, which safetensors alone would refuse.
    tied = WEIGHTS | {"view": WEIGHTS["first"][1:]}
    save_state(path, tied, counters)
    tensors, found = load_state(path)
    assert_same_tensors(tensors, tied)
    assert found == counters
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_full_disk_leaves_the_older_state(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    save_state(path, WEIGHTS, {"epoch": 1})
    with files_no_larger_than(100), pytest.raises(CheckpointError, match=r"state cannot be written(.|\n)*then resume"):
        save_state(path, {"first": torch.ones(10_000)}, {"epoch": 2})
    tensors, counters = load_state(path)
    assert_same_tensors(tensors, WEIGHTS)
    assert counters == {"epoch": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("damage", [cut, empty, garbage, other_json])
def test_a_damaged_state_is_an_error_of_its_own(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "state.safetensors"
    save_state(path, WEIGHTS, {"epoch": 1})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=r"training state is damaged(.|\n)*delete it"):
        load_state(path)


def test_a_flipped_bit_never_changes_a_state_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    save_state(path, WEIGHTS, {"epoch": 1})
    content, taken = path.read_bytes(), 0
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            tensors, counters = load_state(path)
        except CheckpointError:
            continue
        assert_same_tensors(tensors, WEIGHTS)
        assert counters == {"epoch": 1}
        taken += 1
    assert taken <= len("sha256"), "where the digest's own name is hit"


def test_a_state_of_an_older_version_has_no_digest_and_is_read(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    save_file(WEIGHTS, path, metadata={"counters": '{"epoch": 1}'})
    assert_same_tensors(load_state(path)[0], WEIGHTS)


def test_tensors_that_are_no_state_are_refused(tmp_path: Path) -> None:
    STORED.save(tmp_path / "checkpoint")
    with pytest.raises(CheckpointError, match="training state is damaged"):
        load_state(tmp_path / "checkpoint" / "weights.safetensors")


def optimise(make: Callable[[list[Tensor]], torch.optim.Optimizer], steps: int, path: Path | None = None) -> Tensor:
    """A vector after some steps on a fixed loss; with a path, the optimiser is stored and rebuilt before each step."""
    vector = torch.linspace(-1, 1, 5).requires_grad_()
    optimiser = make([vector])
    for _ in range(steps):
        if path is not None:
            tensors, numbers = flatten_optimiser(optimiser)
            save_state(path, tensors, numbers)
            optimiser = make([vector])
            restore_optimiser(optimiser, *load_state(path))
        optimiser.zero_grad()
        (vector.cos() * torch.arange(5)).sum().backward()
        optimiser.step()
    return vector.detach()


def sgd(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.5, nesterov=True)


def adam(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.1)


@pytest.mark.parametrize("make", [sgd, adam])
def test_an_optimiser_goes_on_as_if_it_had_not_been_stored(
    tmp_path: Path, make: Callable[[list[Tensor]], torch.optim.Optimizer]
) -> None:
    assert torch.equal(optimise(make, 6), optimise(make, 6, tmp_path / "state.safetensors"))


def test_settings_of_the_optimiser_are_those_of_now_and_not_of_then() -> None:
    vector = torch.ones(2, requires_grad=True)
    first = torch.optim.SGD([vector], lr=0.1, momentum=0.5)
    vector.sum().backward()
    first.step()
    second = torch.optim.SGD([vector], lr=0.02, momentum=0.5)
    restore_optimiser(second, *flatten_optimiser(first))
    assert second.param_groups[0]["lr"] == 0.02
    assert torch.equal(second.state[vector]["momentum_buffer"], first.state[vector]["momentum_buffer"])


def test_a_network_that_gets_stored_weights_is_built_without_drawing_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the device "meta" torch loads its compiler to draw from a normal distribution."""
    drawn: list[object] = []
    monkeypatch.setattr("torch.nn.init._no_grad_normal_", lambda tensor, *_: drawn.append(tensor))
    nn.Embedding(3, 4)
    assert len(drawn) == 1, "embeddings are drawn so"
    with torch.device("meta"), Uninitialised():
        embedding, linear = nn.Embedding(3, 4), nn.Linear(4, 5)
    assert len(drawn) == 1
    assert (embedding.weight.shape, linear.weight.shape) == ((3, 4), (5, 4))
    assert embedding.weight.is_meta
    assert linear.weight.is_meta
