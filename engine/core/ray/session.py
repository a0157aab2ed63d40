"""Connection to Ray: a session on this machine, or a cluster at an address, quietly and without hanging.

Tokens follow the cluster. A local session has one (Ray's default). A cluster is asked first (`wants_token`), and this process
uses the token of RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or Ray's own file if the cluster wants one. RAY_AUTH_MODE, if set,
decides.

Ray 2.60 waits for minutes at an address that does not answer. It does not notice that this process and the cluster disagree
about tokens: actors then vanish without a reason. One call of the head's `CheckAlive`, written out as the six frames of gRPC
over HTTP/2 that it takes, settles both in milliseconds.

Sources: RFC 9113 (HTTP/2 frames), RFC 7541 (literal header fields), the gRPC protocol over HTTP/2.
"""

from __future__ import annotations

import logging
import math
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import parley
from parley.engine.core.ray import logs, ray_internals
from parley.engine.core.ray.identity import own_identity
from parley.envs.core.errors import ClusterError, ConfigError
from parley.envs.core.registry import worker_variables

_ROOT = Path(parley.__file__).resolve().parents[1]
_CHATTY = (
    *ray_internals.CHATTY,
    "ray.rllib",
    "ray.rllib.algorithms.algorithm_config",
    # Recommends a package for watching GPUs each time an algorithm is built.
    "ray.tune.utils.util",
)
_WORKERS_LOGGERS = "RAY_LOGGER_LEVEL"
"""The variable for the level of Ray's own loggers in workers."""
TIMEOUT_VARIABLE = "PARLEY_WORKER_TIMEOUT_S"
"""The variable for the seconds without any worker after which a run ends."""
ADDRESS_VARIABLE = "RAY_ADDRESS"
"""The variable that names a cluster if no address is given."""


@dataclass(frozen=True)
class RaySession:
    """The connection of this process to Ray.

    Args:
        address: "local", the cluster's address, or "joined" if the process had a session before `connect`.
    """

    address: str

    @property
    def is_local(self) -> bool:
        """Return whether the session is on this machine alone and cannot grow."""
        return self.address == "local"

    @property
    def start_timeout_s(self) -> float:
        """Seconds without any worker after which a run ends.

        PARLEY_WORKER_TIMEOUT_S sets them. The default is 120 s on this machine, and 1200 s on a cluster, where a machine may
        have to be started and set up.

        Raises:
            ConfigError: the variable holds no positive number.
        """
        text = os.environ.get(TIMEOUT_VARIABLE)
        if text is None:
            return 120.0 if self.is_local else 1200.0
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds < math.inf:
            raise ConfigError("this is no number of seconds", where=TIMEOUT_VARIABLE, got=text, fix=f"{TIMEOUT_VARIABLE}=600")
        return seconds


_current: RaySession | None = None


def current() -> RaySession | None:
    """Return the session that `connect` made and has not ended."""
    return _current


def can_grow() -> bool:
    """Return whether anything adds machines to the session's cluster: a launcher or KubeRay, which set a machine's type.

    Nothing does in a local session, nor in a cluster whose machines were started by hand.
    """
    return (_current is None or not _current.is_local) and ray_internals.has_launcher()


@contextmanager
def connect(address: str | None = None, *, num_cpus: int | None = None, timeout_s: float = 10.0) -> Iterator[RaySession]:
    """Provide a Ray session within a `with` block; a session that this process already has is used and left open.

    Args:
        address: host:port of a cluster's head, or "auto" for the cluster of this machine. By default RAY_ADDRESS (set inside
            submitted jobs), else a new session on this machine.
        num_cpus: logical CPUs of a new session on this machine, by default all its cores; a cluster has its own.
        timeout_s: seconds within which an address must answer.

    Raises:
        ClusterError: nothing answers at the address, it is not a Ray head, or tokens do not fit.
    """
    global _current
    import ray

    if ray.is_initialized():
        with logs.quiet(_CHATTY, logging.ERROR):
            yield _current or RaySession("joined")
        return
    session = RaySession(address or os.environ.get(ADDRESS_VARIABLE) or "local")
    # Workers are compared with this, so it is read before files are edited.
    own_identity()
    # Ray comments on its own defaults and deprecations through these loggers; errors still pass.
    with logs.quiet(_CHATTY, logging.ERROR):
        try:
            with _own_sigterm():
                if session.is_local:
                    _start(num_cpus)
                elif not address:
                    _join_of_environment(session.address, timeout_s)
                else:
                    _join(session.address, timeout_s)
            _current = session
            yield session
        finally:
            _current = None
            ray.shutdown()


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keep this process's own handler of SIGTERM: `ray.init` replaces it by one that prints a C++ stack.

    A signal that arrives within the `with` block is handled at its end.
    """
    if threading.current_thread() is not threading.main_thread():
        # Python sets handlers in the main thread alone.
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        # None is a handler that Python did not install.
        if before is not None:
            signal.signal(signal.SIGTERM, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _start(num_cpus: int | None) -> None:
    import ray

    try:
        with ray_internals.started_apart():
            options = ray_internals.temporary_folder() | _options() | {"_system_config": ray_internals.NO_SPARE_WORKERS}
            ray.init("local", num_cpus=num_cpus, include_dashboard=False, **options)
    except Exception as error:
        # On a machine too busy to start it in time Ray raises a bare Exception.
        fix = "try again when the machine is less busy; what is saved is not done twice"
        if isinstance(error, UnicodeError) or "AF_UNIX" in str(error):
            fix = f"set {ray_internals.TEMPORARY_VARIABLE} to a folder of a short path in ASCII, such as /tmp"
        raise ClusterError("Ray cannot be started on this machine", got=f"{type(error).__name__}: {error}", fix=fix) from error
    ray_internals.hide_token()


def _join_of_environment(address: str, timeout_s: float) -> None:
    """Join the cluster that the environment names; an error says where the address comes from."""
    try:
        _join(address, timeout_s)
    except ClusterError as error:
        where = f"{ADDRESS_VARIABLE}={address}"
        fix = f"unset {ADDRESS_VARIABLE} to work on this machine alone; or {error.fix}"
        raise ClusterError(error.what, where=where, got=error.got, fix=fix) from error


def _join(address: str, timeout_s: float) -> None:
    import ray
    from ray.exceptions import RayError

    try:
        head = ray_internals.head_of_this_machine() if address == "auto" else address
    except ConnectionError as error:
        raise ClusterError("this machine is part of no cluster", got=error, fix="give host:port of the head") from error
    token_wanted = wants_token(head, timeout_s)
    if token_wanted is not None:
        _settle_tokens(head, token_wanted)
    try:
        ray.init(head, **_options())
    except (RayError, RuntimeError, ValueError, OSError) as error:
        what, got = "the cluster does not let this process in", f"{type(error).__name__}: {error}"
        fix = "run this on a machine of the cluster, or with ray job submit, and with its token, if any, in RAY_AUTH_TOKEN"
        if "Version mismatch" in str(error):
            # Ray's message lists the cluster's versions, then ours.
            rays, pythons = (re.findall(rf"{name}: (\S+)", str(error)) for name in ("Ray", "Python"))
            what = "the cluster runs another Ray or Python than this process"
            got = f"Ray {rays[0]} and Python {pythons[0]} there, Ray {rays[1]} and Python {pythons[1]} here"
            fix = "start the cluster with the versions of here, or run this with those of there, as ray job submit does"
        raise ClusterError(what, where=head, got=got, fix=fix) from error


def _settle_tokens(head: str, wanted: bool) -> None:
    """Make this process use a token exactly if the cluster does; Ray itself would fail late, or silently."""
    mode = os.environ.get("RAY_AUTH_MODE")
    if not wanted and mode == "token":
        what, fix = "the cluster uses no token and this process does", "set RAY_AUTH_MODE=disabled"
        raise ClusterError(what, where=head, got="RAY_AUTH_MODE=token", fix=fix)
    if wanted and not ray_internals.use_token():
        what, got = "the cluster wants a token and this process has none", f"RAY_AUTH_MODE={mode}" if mode else "no token"
        fix = "unset RAY_AUTH_MODE and put the cluster's token (on its head: ray get-auth-token) into RAY_AUTH_TOKEN"
        raise ClusterError(what, where=head, got=got, fix=fix)


def _options() -> dict[str, Any]:
    variables = worker_variables()
    # A submitted job brings its own code and environment. Ray adds what it does not set, and refuses the rest.
    if "RAY_JOB_CONFIG_JSON_ENV_VAR" not in os.environ:
        # Only errors of Ray's own loggers, unless a user asks for more; errors of workers are not theirs.
        variables |= code_path() | {_WORKERS_LOGGERS: os.environ.get(_WORKERS_LOGGERS, "error")}
    return {"logging_level": logging.WARNING, "runtime_env": {"env_vars": variables}}


def code_path() -> dict[str, str]:
    """Return the variable that makes this project importable in workers; empty if it is installed in site-packages."""
    # site-packages in front of the standard library would let stray packages in it shadow standard modules.
    if "site-packages" in _ROOT.parts:
        return {}
    return {"PYTHONPATH": os.pathsep.join((str(_ROOT), "${PYTHONPATH}"))}


_METHOD = "/ray.rpc.NodeInfoGcsService/CheckAlive"
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS = 1, 4
_OK, _UNAUTHENTICATED = b"\x0bgrpc-status\x010", b"\x0bgrpc-status\x0216"


def wants_token(address: str, timeout_s: float) -> bool | None:
    """Return whether the Ray head at an address requires a token.

    Args:
        address: host:port.
        timeout_s: seconds within which it must answer.

    Returns:
        None if it is unknown, because the cluster uses TLS.

    Raises:
        ClusterError: it is no address, nothing answers there, or something other than a Ray head does.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise ClusterError("this is not the address of a cluster", got=address, fix="give host:port, such as 10.0.0.1:6379")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s) as connection:
            if os.environ.get("RAY_USE_TLS") == "1":
                return None
            connection.sendall(_call(address))
            with connection.makefile("rb") as reply:
                trailer = _last_headers(reply)
    except (OSError, OverflowError) as error:
        fix = "start one there with: ray start --head --port PORT"
        raise ClusterError("no Ray cluster answers", where=address, got=error, fix=fix) from error
    if _OK not in trailer and _UNAUTHENTICATED not in trailer:
        fix = "give the port of the head, 6379 unless ray start was told another"
        raise ClusterError("something other than a Ray head answers", where=address, got=repr(trailer[:60]), fix=fix)
    return _UNAUTHENTICATED in trailer


def _call(address: str) -> bytes:
    """Return the client's side: preface, settings, one request with an empty message."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": _METHOD,
        ":authority": address,
        "content-type": "application/grpc",
        "te": "trailers",
    }
    fields = b"".join(b"\0" + _text(name) + _text(value) for name, value in headers.items())
    empty_message = bytes(5)
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + _frame(_SETTINGS, 0, 0, b"")
        + _frame(_HEADERS, _END_HEADERS, 1, fields)
        + _frame(_DATA, _END_STREAM, 1, empty_message)
    )


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _text(text: str) -> bytes:
    """Return a string literal without Huffman coding; 126 bytes at most, because longer lengths need a second byte."""
    data = text.encode()[:126]
    return bytes([len(data)]) + data


def _last_headers(answer: BinaryIO) -> bytes:
    """Return the header block that ends the answer, or its first bytes if it is not HTTP/2."""
    is_first = True
    while len(head := answer.read(9)) == 9:
        length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        if is_first and kind != _SETTINGS:
            return head
        is_first = False
        payload = answer.read(length)
        if kind == _HEADERS and flags & _END_STREAM:
            return payload
    return head
