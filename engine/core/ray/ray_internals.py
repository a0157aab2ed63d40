"""What Parley needs of Ray 2.60 and Ray does not offer in public: all of it is here, and each piece says why.

A new version of Ray may change any of it. What `engine/core/rllib` overrides of RLlib's classes stays with the class.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

CHATTY = ("ray._private.authentication.authentication_token_setup", "ray._common.deprecation")
"""Private loggers through which Ray comments on its own defaults."""
_ALIVE, _DEAD = "ALIVE", "DEAD"
TEMPORARY_VARIABLE = "RAY_TMPDIR"
"""The variable that names the folder of Ray's sockets and logs."""
_MOST_BYTES = 36
"""Of a folder for what is temporary: a socket's address holds 107, and Ray's names below the folder take nearly 70."""


@dataclass(frozen=True)
class ActorState:
    """What Ray's head knows of an actor; of a lost machine it hears after some seconds.

    Args:
        is_alive: whether its process is up.
        is_dead: whether Ray will not start it again.
        num_restarts: how often Ray has started it again.
        machine: where it is; empty while it is nowhere.
    """

    is_alive: bool
    is_dead: bool
    num_restarts: int
    machine: str


def actor_state(actor: Any) -> ActorState:
    """The state of an actor, by its handle; `ray.util.state` would need the dashboard."""
    import ray

    found = ray._private.state.actors(actor._actor_id.hex())
    # One that was never placed may be unknown.
    state = found.get("State", "")
    return ActorState(state == _ALIVE, state == _DEAD, found.get("NumRestarts", 0), found.get("Address", {}).get("NodeID", ""))


def has_launcher() -> bool:
    """Whether a launcher or KubeRay started a machine of the cluster: they name its type, `ray.nodes()` does not."""
    import ray

    machines = ray._private.worker.global_worker.gcs_client.get_all_node_info()
    return any(machine.node_type_name for machine in machines.values())


def head_of_this_machine() -> str:
    """The address of the head that this machine belongs to, as Ray wrote it down; the head may have gone since.

    Raises:
        ConnectionError: it belongs to none.
    """
    from ray._private.services import canonicalize_bootstrap_address

    address: str = canonicalize_bootstrap_address("auto")
    return address


def temporary_folder() -> dict[str, str]:
    """Return what `ray.init` is told where it cannot work below TMPDIR: where Ray lies by default.

    TMPDIR may be too long for the addresses of sockets below it, or have letters that Ray's start does not take.
    """
    folder = os.environ.get("TMPDIR", "")
    unfit = sys.platform == "linux" and (len(os.fsencode(folder)) > _MOST_BYTES or not folder.isascii())
    return {"_temp_dir": "/tmp/ray"} if unfit and TEMPORARY_VARIABLE not in os.environ else {}


def use_token() -> bool:
    """Makes this process use a token where it finds one; returns whether it does."""
    from ray._private.authentication import authentication_token_setup

    return bool(authentication_token_setup.maybe_enable_token_auth_if_token_available(warn_if_disabled=False))


def hide_token() -> None:
    """Makes the file of Ray's token readable for its owner alone: who has the token can run code in a session."""
    from ray._private.authentication import authentication_token_setup

    # It may not be there, or be somebody else's.
    with suppress(OSError):
        authentication_token_setup._get_default_token_path().chmod(0o600)


def add_env_runners(group: Any, number: int) -> None:
    """Adds env runners to an RLlib group, from its configuration and not from a reference to it.

    Of a reference Ray warns on the terminal that such an actor may not come back.
    """
    group._remote_config_obj_ref = group._remote_config
    group.add_workers(number, validate=False)


def address_of(reference: Any) -> tuple[bytes, bytes, bytes]:
    """What another process finds an object of the store by, as long as its owner keeps a reference to it.

    Ray counts references that it pickles itself. Of an actor whose arguments hold one it warns on the terminal that the actor
    may not come back, whoever keeps the object.
    """
    import ray

    _, owner, status = ray._private.worker.global_worker.core_worker.serialize_object_ref(reference)
    return reference.binary(), owner, status


def reference_at(name: bytes, owner: bytes, status: bytes) -> Any:
    """The reference in this process to what `address_of` tells of."""
    import ray

    reference = ray.ObjectRef(name, owner)
    core = ray._private.worker.global_worker.core_worker
    core.deserialize_and_register_object_ref(name, ray.ObjectRef.nil(), owner, status)
    return reference


def absent_runners(group: Any, wait_s: float) -> list[int]:
    """The env runners of an RLlib group that do not answer in some seconds, not even with an error."""
    manager = group._worker_manager
    answers = manager.foreach_actor(lambda runner: runner.assert_healthy(), healthy_only=False, timeout_seconds=wait_s)
    return sorted({*manager.actor_ids()} - {answer.actor_id for answer in answers})


def remove_runners(group: Any, numbers: Sequence[int]) -> None:
    """Takes env runners out of an RLlib group for good: those that wait for a place would hold up every call."""
    import ray

    for number in numbers:
        ray.kill(group._worker_manager.remove_actor(number))


def set_iteration(algorithm: Any, iteration: int) -> None:
    """Sets how many iterations an RLlib algorithm has behind it; without a checkpoint of its own nothing else does."""
    algorithm._iteration = iteration


def put_note(board: str, key: str, text: str) -> None:
    """Puts a line of text into the memory of Ray's head, for every process of the cluster; an actor would be a process more."""
    from ray.experimental.internal_kv import _internal_kv_put

    _internal_kv_put(key, text.encode(), namespace=board)


def note(board: str, key: str) -> str:
    """What `put_note` put there; empty where nothing is."""
    from ray.experimental.internal_kv import _internal_kv_get

    return (_internal_kv_get(key, namespace=board) or b"").decode()


def drop_note(board: str, key: str) -> None:
    """Takes away what `put_note` put there."""
    from ray.experimental.internal_kv import _internal_kv_del

    _internal_kv_del(key, namespace=board)


@contextmanager
def started_apart() -> Iterator[None]:
    """A Ray that is started in the `with` block listens on 127.0.0.1 alone, in a process group of its own.

    Ray listens there on systems where it makes no clusters, and replaces a loopback address that it is given by the machine's.
    In our group it would get what `timeout` and schedulers send to us, and be gone before we have let go of it.
    """
    from ray._private import ray_constants, services

    clusters, popen = ray_constants.ENABLE_RAY_CLUSTER, services.ConsolePopen

    def popen_apart(*arguments: Any, preexec_fn: Callable[[], None], **options: Any) -> Any:
        def before_it_starts() -> None:
            preexec_fn()
            # Ray ends its processes by SIGTERM; `session.connect` holds it back in this one.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

        return popen(*arguments, preexec_fn=before_it_starts, process_group=0, **options)

    ray_constants.ENABLE_RAY_CLUSTER, services.ConsolePopen = False, popen_apart
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER, services.ConsolePopen = clusters, popen
