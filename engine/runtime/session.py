"""Reaching Ray: a session on this machine, or a cluster at an address, quietly and without hanging.

Ray 2.60 waits for minutes, and then ends the process, when an address does not answer; `connect` asks first.
Ray 2.60 starts local sessions with a token but does not use the token towards an explicit address; `connect` does
(a cluster without tokens ignores it).
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.core.errors import ClusterError

_ROOT = Path(__file__).resolve().parents[2]
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_HTTP2_SETTINGS_FRAME = 4
_CHATTY = (
    "ray._private.authentication.authentication_token_setup",
    "ray._common.deprecation",
    "ray.rllib",
    "ray.rllib.algorithms.algorithm_config",
)


@dataclass(frozen=True)
class Session:
    """How this process reaches Ray.

    Args:
        address: "local", the cluster's address, or "joined" when the process had a session before `connect`.
    """

    address: str

    @property
    def is_local(self) -> bool:
        """Whether the session lives on this machine alone and cannot grow."""
        return self.address == "local"


_current: Session | None = None


def current() -> Session | None:
    """The session that `connect` made and has not ended."""
    return _current


@contextmanager
def connect(address: str | None = None, *, num_cpus: int | None = None, timeout_s: float = 10.0) -> Iterator[Session]:
    """A Ray session for the length of a `with` block; where this process already has one, that one, left open.

    Args:
        address: host:port of a cluster's head, or "auto" for the cluster that this machine is part of. When not given,
            RAY_ADDRESS (set inside submitted jobs), else a new session on this machine.
        num_cpus: logical CPUs of a new session on this machine, all its cores when not given; a cluster has its own.
        timeout_s: seconds within which an address must answer.

    Raises:
        ClusterError: nothing answers at the address, it is not a Ray cluster, or it refuses the token.
    """
    global _current
    import ray

    if ray.is_initialized():
        yield _current or Session("joined")
        return
    session = Session(address or os.environ.get("RAY_ADDRESS") or "local")
    if not session.is_local and session.address != "auto":
        check_address(session.address, timeout_s)
    with _quiet():
        _start(session, num_cpus)
        _current = session
        try:
            yield session
        finally:
            _current = None
            ray.shutdown()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences the loggers through which Ray comments on its own defaults and deprecations; errors still come through."""
    before = {name: logging.getLogger(name).level for name in _CHATTY}
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def _start(session: Session, num_cpus: int | None) -> None:
    import ray
    from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
    from ray.exceptions import RayError

    options: dict[str, Any] = {"logging_level": logging.WARNING}
    # A submitted job brings its own code and environment, and Ray refuses to merge two.
    if "RAY_JOB_CONFIG_JSON_ENV_VAR" not in os.environ:
        options["runtime_env"] = {"env_vars": code_path()}
    try:
        if session.is_local:
            ray.init("local", num_cpus=num_cpus, include_dashboard=False, **options)
        else:
            maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
            ray.init(session.address, **options)
    except (RayError, RuntimeError, ValueError, OSError) as error:
        raise ClusterError(
            "Ray cannot be started" if session.is_local else "Ray does not let this process in",
            where=session.address,
            got=f"{type(error).__name__}: {error}",
            fix="see the lines above"
            if session.is_local
            else "run this on a machine of the cluster (or with ray job submit), with the cluster's Ray version, "
            "RAY_AUTH_MODE=token and its token in RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH",
        ) from error


def code_path() -> dict[str, str]:
    """The variable that makes this project's packages importable in workers: none where they are installed for good."""
    # site-packages in front of the standard library would let stray packages in it shadow standard modules.
    if "site-packages" in _ROOT.parts:
        return {}
    return {"PYTHONPATH": os.pathsep.join((str(_ROOT), "${PYTHONPATH}"))}


def check_address(address: str, timeout_s: float) -> None:
    """Makes sure that something that speaks HTTP/2, as Ray's gRPC does, answers at an address.

    Args:
        address: host:port, or ray://host:port of a Ray client server.
        timeout_s: seconds within which it must answer.

    Raises:
        ClusterError: it is no address, nothing answers, or something else does.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ClusterError("this is not the address of a cluster", got=address, fix="give host:port, such as 10.0.0.1:6379")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s) as connection:
            if os.environ.get("RAY_USE_TLS") == "1":
                return
            connection.sendall(_HTTP2_HELLO)
            answer = connection.recv(9)
    except (OSError, OverflowError) as error:
        raise ClusterError(
            "no Ray cluster answers", where=address, got=error, fix="start one there with: ray start --head --port PORT"
        ) from error
    if len(answer) < 4 or answer[3] != _HTTP2_SETTINGS_FRAME:
        raise ClusterError(
            "something other than Ray answers", where=address, got=repr(answer), fix="give the port of the head, by default 6379"
        )
