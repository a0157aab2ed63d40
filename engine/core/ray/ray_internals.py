"""Private parts of Ray 2.60 that Parley needs: all uses are here, each with its reason.

A new version of Ray may change any of them. Overrides of RLlib's classes in `engine/core/rllib` stay with the class.
"""

from __future__ import annotations

import inspect
import os
import re
import signal
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

CHATTY = ("ray._private.authentication.authentication_token_setup", "ray._common.deprecation")
"""Private loggers through which Ray comments on its own defaults."""
_ALIVE, _DEAD = "ALIVE", "DEAD"
TEMPORARY_VARIABLE = "RAY_TMPDIR"
"""The variable that names the folder of Ray's sockets and logs."""
_MOST_BYTES = 36
"""Longest temporary folder: the address of a socket holds 107 bytes, and Ray adds names of nearly 70."""


@dataclass(frozen=True)
class ActorState:
    """The state of an actor, as Ray's head knows it; the head learns of a lost machine after some seconds.

    Args:
        is_alive: whether its process is up.
        is_dead: whether Ray will not start it again.
        num_restarts: number of restarts by Ray.
        machine: its machine; empty while it has none.
    """

    is_alive: bool
    is_dead: bool
    num_restarts: int
    machine: str


def actor_state(actor: Any) -> ActorState:
    """Return the state of an actor, by its handle; `ray.util.state` would need the dashboard."""
    import ray

    entry = ray._private.state.actors(actor._actor_id.hex())
    # An actor that was never placed may be unknown.
    state = entry.get("State", "")
    return ActorState(state == _ALIVE, state == _DEAD, entry.get("NumRestarts", 0), entry.get("Address", {}).get("NodeID", ""))


def has_launcher() -> bool:
    """Return whether a launcher or KubeRay started a machine of the cluster: they set its type, missing in `ray.nodes()`."""
    import ray

    machines = ray._private.worker.global_worker.gcs_client.get_all_node_info()
    return any(machine.node_type_name for machine in machines.values())


def head_of_this_machine() -> str:
    """Return the recorded address of the head that this machine belongs to; the head may have gone since.

    Raises:
        ConnectionError: it belongs to no cluster.
    """
    from ray._private.services import canonicalize_bootstrap_address

    return str(canonicalize_bootstrap_address("auto"))


def temporary_folder() -> dict[str, str]:
    """Return the temporary folder for `ray.init` if it cannot work below TMPDIR: Ray's default.

    TMPDIR may be too long for the addresses of sockets below it, or have letters that Ray's start does not accept.
    """
    folder = os.environ.get("TMPDIR", "")
    unfit = sys.platform == "linux" and (len(os.fsencode(folder)) > _MOST_BYTES or not folder.isascii())
    return {"_temp_dir": "/tmp/ray"} if unfit and TEMPORARY_VARIABLE not in os.environ else {}


def use_token() -> bool:
    """Make this process use a token if it finds one; return whether it does."""
    from ray._private.authentication import authentication_token_setup

    return bool(authentication_token_setup.maybe_enable_token_auth_if_token_available(warn_if_disabled=False))


def hide_token() -> None:
    """Make the file of Ray's token readable for its owner alone: a holder of the token can run code in a session."""
    from ray._private.authentication import authentication_token_setup

    # The file may not exist, or belong to another user.
    with suppress(OSError):
        authentication_token_setup._get_default_token_path().chmod(0o600)


def add_env_runners(group: Any, number: int) -> None:
    """Add env runners to an RLlib group from its configuration, not from a reference to it.

    With a reference Ray warns on the terminal that such an actor may not come back.
    """
    group._remote_config_obj_ref = group._remote_config
    group.add_workers(number, validate=False)


def address_of(reference: Any) -> tuple[bytes, bytes, bytes]:
    """Return the address by which another process finds an object of the store, while its owner keeps a reference.

    Ray counts references that it pickles itself. It warns on the terminal that an actor whose arguments hold one may not come
    back, whoever keeps the object.
    """
    import ray

    _, owner, status = ray._private.worker.global_worker.core_worker.serialize_object_ref(reference)
    return reference.binary(), owner, status


def reference_at(name: bytes, owner: bytes, status: bytes) -> Any:
    """Return a reference in this process to the object at an address of `address_of`."""
    import ray

    reference = ray.ObjectRef(name, owner)
    core = ray._private.worker.global_worker.core_worker
    core.deserialize_and_register_object_ref(name, ray.ObjectRef.nil(), owner, status)
    return reference


def absent_runners(group: Any, wait_s: float) -> list[int]:
    """Return the env runners of an RLlib group that do not answer within some seconds, not even with an error."""
    manager = group._worker_manager
    answers = manager.foreach_actor(lambda runner: runner.assert_healthy(), healthy_only=False, timeout_seconds=wait_s)
    return sorted({*manager.actor_ids()} - {answer.actor_id for answer in answers})


def remove_runners(group: Any, numbers: Sequence[int]) -> None:
    """Remove env runners from an RLlib group for good: runners without a machine would delay every call."""
    import ray

    for number in numbers:
        ray.kill(group._worker_manager.remove_actor(number))


def set_iteration(algorithm: Any, iteration: int) -> None:
    """Set the number of past iterations of an RLlib algorithm; only its own checkpoints would do it otherwise."""
    algorithm._iteration = iteration


def read_callers_alone() -> None:
    """Let RLlib's connectors read the frame of their caller alone, and not the source of every frame of the stack.

    Each of a dozen connectors of an algorithm asks for the whole stack: half a second for each training where it is deep.
    """
    from ray.rllib.connectors import connector_v2

    caller_alone = {"stack": lambda: [None, SimpleNamespace(frame=sys._getframe(2))]}
    connector_v2.inspect = SimpleNamespace(**vars(inspect) | caller_alone)


class ProgressBoard:
    """The newest text of each piece of work, in the memory of Ray's head; workers are sent the board.

    An actor would be one more process. If the head does not answer, a text is lost and no work.
    """

    def __init__(self) -> None:
        self._space = {"namespace": f"parley-board-{uuid.uuid4().hex}"}

    def put(self, key: int | str, text: str) -> None:
        """Replace the text of a piece of work."""
        from ray.experimental.internal_kv import _internal_kv_put

        with suppress(Exception):
            _internal_kv_put(str(key), text.encode(), **self._space)

    def line(self, key: int | str) -> str:
        """Return the text of a piece of work; empty before its first text."""
        from ray.experimental.internal_kv import _internal_kv_get

        with suppress(Exception):
            return (_internal_kv_get(str(key), **self._space) or b"").decode()
        return ""

    def clear(self, key: int | str) -> None:
        """Remove the text of a piece of work."""
        from ray.experimental.internal_kv import _internal_kv_del

        with suppress(Exception):
            _internal_kv_del(str(key), **self._space)


NO_SPARE_WORKERS = {"enable_worker_prestart": False, "prestart_worker_first_driver": False}
"""Settings of Ray's start for no processes ahead of work: ours have variables of their own, so they could not use those."""
_AGENT = r"(--dashboard_agent_command=).* --node-id=(\w+) .*--session-dir=([\w./-]+) .*--minimal.*"
_PORTS = "metrics_agent_port metrics_export_port dashboard_agent_listen_port"
_IDLE_AGENT = rf'\1sh -c "cd \3; for port in {_PORTS}; do printf %s -1 > port; mv port ${{port}}_\2; done; exec cat"'
"""The dashboard's agent of a Ray without ray[default]: it writes that it has no ports and ends with Ray, as Ray's own does."""


@contextmanager
def started_apart() -> Iterator[None]:
    """Let a Ray started in the `with` block listen on 127.0.0.1 alone, in a process group of its own, with few processes.

    Ray listens there on systems where it makes no clusters, and replaces a given loopback address by the machine's. In our
    process group it would get the signals that `timeout` and schedulers send to us, and be gone too early. A session that
    cannot grow needs no autoscaler. The server of the dashboard would start without its pages, too, and Ray waits a second for
    an agent that has nothing to do. Its workers start by `setup_worker.py`, which is quicker than Ray's script of this name.
    """
    from ray._private import ray_constants, services
    from ray._private.node import Node

    clusters, popen, setup = ray_constants.ENABLE_RAY_CLUSTER, services.ConsolePopen, ray_constants.SETUP_WORKER_FILENAME
    autoscaler, server = Node.start_monitor, Node.start_api_server

    def popen_apart(command: Sequence[str], *, preexec_fn: Callable[[], None], **options: Any) -> Any:
        def before_it_starts() -> None:
            preexec_fn()
            # Ray ends its processes by SIGTERM; `session.connect` holds it back in this one.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

        command = [re.sub(_AGENT, _IDLE_AGENT, argument) for argument in command]
        return popen(command, preexec_fn=before_it_starts, process_group=0, **options)

    ray_constants.ENABLE_RAY_CLUSTER, services.ConsolePopen = False, popen_apart
    # Ray puts this behind its own folder, which a whole path replaces.
    ray_constants.SETUP_WORKER_FILENAME = str(Path(__file__).with_name(setup))
    Node.start_monitor = Node.start_api_server = lambda *_, **options: None
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER, services.ConsolePopen = clusters, popen
        ray_constants.SETUP_WORKER_FILENAME = setup
        Node.start_monitor, Node.start_api_server = autoscaler, server
