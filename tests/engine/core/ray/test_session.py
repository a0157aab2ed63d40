"""Reaching Ray: what does not answer, or is not Ray, is an error in time; what is already there is used."""

from __future__ import annotations

import importlib.util
import ipaddress
import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from ray._private import workers

from parley.engine.core.ray import logs, ray_internals, session
from parley.engine.core.ray.pool import run_sharded
from parley.engine.core.ray.session import TIMEOUT_VARIABLE, RaySession, code_path, connect, wants_token
from parley.envs.core.errors import ClusterError, ConfigError
from tests.engine.core.ray.own_cluster import SURVIVED, survives
from tests.engine.core.ray.workers import Environment, shards_of

ROOT = Path(__file__).resolve().parents[4]


SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
PATIENCE_S = 100.0
"""For what comes at once, on a machine however busy."""


def frame(headers: bytes) -> bytes:
    """A header block that ends an answer."""
    return bytes([0, 0, len(headers), 1, 5, 0, 0, 0, 1]) + headers


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """An address where something accepts one connection and answers, or keeps silent."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                if answer is not None:
                    connection.sendall(answer)
                else:
                    connection.recv(1000)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def closed_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


LOOPBACK = "127.0.0.1"
_LISTENS = "0A"


def descendants(process: int) -> set[int]:
    """The processes that a process started, and those that they started."""
    found: set[int] = set()
    # What has ended meanwhile, a process or a thread of it, has none.
    with suppress(OSError):
        for path in Path(f"/proc/{process}/task").glob("*/children"):
            with suppress(OSError):
                found |= {int(child) for child in path.read_text().split()}
    return found.union(*(descendants(child) for child in found))


def listening_addresses(process: int) -> set[tuple[str, int]]:
    """Host and port of every TCP socket on which a process takes connections, as Linux tells; IPv4 in its plain form."""
    found: set[tuple[str, int]] = set()
    inodes: set[str] = set()
    # It may have ended meanwhile, or closed a file; the list itself, of this process, was one.
    with suppress(OSError):
        for path in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):
                inodes.add(str(path.readlink()))
    # A machine may know no IPv6.
    for table in Path("/proc/net").glob("tcp*"):
        for line in table.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS and f"socket:[{fields[9]}]" in inodes:
                host, port = fields[1].split(":")
                words = [bytes.fromhex(host[start : start + 8])[::-1] for start in range(0, len(host), 8)]
                address = ipaddress.ip_address(b"".join(words))
                plain = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
                found.add((str(plain or address), int(port, 16)))
    return found


@pytest.mark.parametrize("address", ["", "head", "head:", ":6379", "head:port", "127.0.0.1:99999", "ray://127.0.0.1:10001"])
def test_what_is_no_address_is_an_error(address: str) -> None:
    with pytest.raises(ClusterError):
        wants_token(address, timeout_s=1)


def test_a_closed_port_is_an_error() -> None:
    with pytest.raises(ClusterError, match=r"no Ray cluster answers(.|\n)*ray start --head"):
        wants_token(closed_address(), timeout_s=1)


def test_silence_is_an_error_in_time() -> None:
    """Were the time not kept, the silence would not end before the test is broken off."""
    with listening(None) as address, pytest.raises(ClusterError, match="no Ray cluster answers"):
        wants_token(address, timeout_s=0.5)


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", SETTINGS, SETTINGS + frame(b"\x88\x00\x0bgrpc-status\x0212")],
    ids=["web server", "hangs up", "no reply", "other gRPC service"],
)
def test_other_servers_are_not_ray(answer: bytes) -> None:
    with listening(answer) as address, pytest.raises(ClusterError, match="other than a Ray head"):
        wants_token(address, timeout_s=PATIENCE_S)


@pytest.mark.parametrize(("status", "wanted"), [(b"\x010", False), (b"\x0216", True)])
def test_a_head_says_whether_it_wants_a_token(status: bytes, wanted: bool) -> None:
    with listening(SETTINGS + frame(b"\x88\x00\x0bgrpc-status" + status)) as address:
        assert wants_token(address, timeout_s=PATIENCE_S) is wanted


@pytest.mark.parametrize(
    ("wanted", "mode", "has_token", "problem"),
    [
        (True, None, True, ""),
        (True, None, False, "wants a token and this process has none"),
        (True, "disabled", False, "RAY_AUTH_MODE=disabled"),
        (False, None, True, ""),
        (False, "disabled", True, ""),
        (False, "token", True, "uses no token and this process does"),
    ],
)
def test_tokens_follow_the_cluster(
    monkeypatch: pytest.MonkeyPatch, wanted: bool, mode: str | None, has_token: bool, problem: str
) -> None:
    from ray._private.authentication import authentication_token_setup

    def enable(warn_if_disabled: bool) -> bool:
        assert wanted, "a token towards a cluster without one makes actors vanish"
        return has_token

    monkeypatch.setattr(authentication_token_setup, "maybe_enable_token_auth_if_token_available", enable)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    if mode:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    if problem:
        with pytest.raises(ClusterError, match=problem):
            session._settle_tokens("head:6379", wanted)
    else:
        session._settle_tokens("head:6379", wanted)


def test_the_token_is_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    ray_internals.hide_token()
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("secret")
    token.chmod(0o644)
    ray_internals.hide_token()
    assert token.stat().st_mode & 0o777 == 0o600


LONG = f"/scratch/{'x' * 40}"


@pytest.mark.skipif(sys.platform != "linux", reason="Ray reads TMPDIR on Linux alone")
@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({}, None),
        ({"TMPDIR": "/scratch"}, None),
        ({"TMPDIR": LONG}, "/tmp/ray"),
        ({"TMPDIR": "/tmp/größe"}, "/tmp/ray"),
        ({"TMPDIR": "/tmp/a b"}, None),
        ({"TMPDIR": LONG, "RAY_TMPDIR": "/fast"}, None),
    ],
)
def test_sockets_lie_in_a_folder_whose_path_ray_takes(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], told: str | None
) -> None:
    heard: dict[str, Any] = {}
    monkeypatch.setattr("ray.init", lambda *_, **options: heard.update(options))
    monkeypatch.setattr(ray_internals, "hide_token", lambda: None)
    for name in ("TMPDIR", "RAY_TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    session._start(1)
    assert heard.get("_temp_dir") == told


@pytest.mark.parametrize(
    "error", [OSError("AF_UNIX path length cannot exceed 107 bytes"), UnicodeEncodeError("ascii", "ö", 0, 1, "")]
)
def test_a_folder_that_ray_cannot_work_in_is_told_by_its_variable(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("ray.init", broken)
    # The session that the tests share goes on.
    monkeypatch.setattr("ray.shutdown", lambda: None)
    with pytest.raises(ClusterError, match=r"cannot be started(.|\n)*set RAY_TMPDIR to a folder of a short path in ASCII"):
        session._start(1)


def test_a_dead_cluster_of_the_environment_is_told_by_its_variable() -> None:
    address = closed_address()
    code = "from parley.engine.core.ray.session import connect\nwith connect(): print('connected')"
    surroundings = {**os.environ, "RAY_ADDRESS": address}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, env=surroundings, check=False
    )
    assert re.search(
        rf"no Ray cluster answers(.|\n)*RAY_ADDRESS={address}(.|\n)*unset RAY_ADDRESS(.|\n)*ray start --head", done.stderr
    )


def test_connecting_to_nothing_fails_in_time() -> None:
    code = f"from parley.engine.core.ray.session import connect\nwith connect({closed_address()!r}): print('connected')"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert "ClusterError: no Ray cluster answers" in found.stderr
    assert "connected" not in found.stdout


def test_work_in_this_process_does_not_import_ray() -> None:
    code = """
import sys
import parley.engine.core.ray.record, parley.engine.core.ray.session
from parley.engine.core.ray.pool import run_sharded
from parley.engine.core.ray.worker import make_shards
class Worker:
    def run(self, shard): return len(shard)
shards = make_shards({"a": 1, "b": 2}, 1)
run_sharded(Worker, (), shards, num_workers=0, on_result=lambda shard, result: print(shard.name, result))
print("ray" in sys.modules, "torch" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["00000", "1", "00001", "1", "False", "False"]


def test_code_path_is_this_checkout_unless_installed_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    assert code_path()["PYTHONPATH"].split(os.pathsep) == [str(ROOT), "${PYTHONPATH}"]
    monkeypatch.setattr(session, "_ROOT", Path("/usr/lib/python3/site-packages"))
    assert code_path() == {}


@pytest.mark.parametrize("python", [sys.executable, "env -u GONE python3"])
def test_a_worker_starts_as_by_rays_own_script(tmp_path: Path, python: str) -> None:
    rays = Path(workers.__file__).with_name("setup_worker.py")
    (tmp_path / rays.name).symlink_to(rays)
    worker = tmp_path / "default_worker.py"
    worker.write_text("import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['ONE'], os.environ['TWO']]))")
    variables = {"ONE": "1 \"'${PATH}", "TWO": "${GONE}$HOME"}
    context = json.dumps({"env_vars": variables, "py_executable": python, "command_prefix": [], "java_jars": []})
    arguments = [worker, "--a=b=c", "--language=PYTHON", f"--serialized-runtime-env-context={context}", "d e"]
    found = [
        subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=True).stdout
        for script in (rays, Path(ray_internals.__file__).with_name(rays.name))
    ]
    assert json.loads(found[0])[0] == ["--a=b=c", "d e"]
    assert found[1] == found[0]


@pytest.mark.parametrize(("asked", "level"), [(None, "error"), ("debug", "debug")])
def test_rays_own_loggers_are_quiet_in_workers_unless_asked(
    monkeypatch: pytest.MonkeyPatch, asked: str | None, level: str
) -> None:
    monkeypatch.delenv("RAY_LOGGER_LEVEL", raising=False)
    if asked:
        monkeypatch.setenv("RAY_LOGGER_LEVEL", asked)
    variables = session._options()["runtime_env"]["env_vars"]
    assert variables == {**code_path(), "RAY_LOGGER_LEVEL": level}


def test_what_ray_recommends_is_not_heard_in_a_session() -> None:
    recommends = logging.getLogger("ray.tune.utils.util")
    # The session that tests share may be open already.
    before = recommends.level
    recommends.setLevel(logging.WARNING)
    try:
        with logs.quiet(session._CHATTY, logging.ERROR):
            assert not recommends.isEnabledFor(logging.WARNING)
            assert recommends.isEnabledFor(logging.ERROR)
        assert recommends.isEnabledFor(logging.WARNING)
    finally:
        recommends.setLevel(before)


def test_a_cluster_is_given_time_to_start_machines() -> None:
    assert RaySession("local").start_timeout_s == 120
    assert RaySession("10.0.0.1:6379").start_timeout_s == RaySession("joined").start_timeout_s == 1200


@pytest.mark.parametrize("asked", ["soon", "", "0", "-1", "nan", "inf"])
def test_the_time_without_any_worker_is_a_positive_number_of_seconds(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    monkeypatch.setenv(TIMEOUT_VARIABLE, "7.5")
    assert RaySession("local").start_timeout_s == RaySession("joined").start_timeout_s == 7.5
    monkeypatch.setenv(TIMEOUT_VARIABLE, asked)
    with pytest.raises(ConfigError, match=f"where: {TIMEOUT_VARIABLE}"):
        _ = RaySession("local").start_timeout_s


SUBMITTED = """
import json, os, sys

# What `ray job submit` sets for a driver.
os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"] = json.dumps({"runtime_env": {"env_vars": {"OWN": "1"}}, "metadata": {}})

import ray
from parley.engine.core.ray.session import connect
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import Trust, require_trust, trusting

@ray.remote(num_cpus=0.25)
def refused(deeper):
    assert os.environ["OWN"] == "1"
    found = []
    for name in ("typed.py:Name", "other.py:Name"):
        try:
            require_trust(name)
        except ConfigError:
            found.append(name)
    return found + (ray.get(refused.remote(False)) if deeper else [])

with trusting(Trust({"typed.py"})), connect(num_cpus=1):
    assert ray.get(refused.remote(True)) == ["other.py:Name"] * 2
print("SURVIVED")
"""


@pytest.mark.ray
def test_every_process_of_a_submitted_job_is_told_which_files_may_be_imported(tmp_path: Path) -> None:
    survives(SUBMITTED.replace("SURVIVED", SURVIVED), tmp_path, timeout_s=550)


@pytest.mark.ray
def test_a_session_of_one_machine_listens_on_the_loopback_alone(ray_session: RaySession) -> None:
    import ray

    found: list[Any] = []
    run_sharded(Environment, (), shards_of(1, 1), num_workers=1, on_result=lambda shard, result: found.append(1))
    ours = {os.getpid(), *descendants(os.getpid())}
    addresses = {address for process in ours for address in listening_addresses(process)}
    assert ray.nodes()[0]["NodeManagerPort"] in {port for _, port in addresses}
    assert {host for host, _ in addresses} == {LOOPBACK}


@pytest.mark.ray
@pytest.mark.skipif(importlib.util.find_spec("aiohttp") is not None, reason="ray[default] is installed: the agent has work")
def test_where_the_agent_of_the_dashboard_has_no_work_none_is_started(ray_session: RaySession) -> None:
    commands = [Path(f"/proc/{process}/cmdline") for process in descendants(os.getpid())]
    started = [path.read_bytes() for path in commands if path.exists()]
    assert b"cat\0" in started, "it stands in for the agent, and ends with Ray"
    assert not any(b"DashboardAgent" in command or b"dashboard/agent.py" in command for command in started)


@pytest.mark.ray
def test_a_block_inside_a_block_uses_its_session(ray_session: RaySession) -> None:
    import ray

    with connect(closed_address()) as inner:
        assert inner == ray_session == session.current()
        assert inner.is_local
    assert ray.is_initialized()


@pytest.mark.ray
def test_a_session_of_the_caller_is_used_and_left(ray_session: RaySession, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setattr(session, "_current", None)
    with connect() as joined:
        assert not joined.is_local
    assert ray.is_initialized()


@pytest.mark.ray
def test_workers_import_the_code_of_this_checkout(ray_session: RaySession) -> None:
    found: list[Any] = []
    run_sharded(Environment, (), shards_of(1, 1), num_workers=1, on_result=lambda shard, result: found.append(result))
    assert Path(found[0]["module"]) == ROOT / "tests" / "engine" / "core" / "ray" / "workers.py"
