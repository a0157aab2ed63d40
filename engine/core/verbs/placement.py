"""Where a training's env runners and learner have room: asked before RLlib is, which would wait for ever without a word."""

from __future__ import annotations

import time
from collections.abc import Mapping

from parley.engine.core.ray.session import RaySession, can_grow
from parley.engine.core.verbs.job import Reporter
from parley.envs.core.errors import ClusterError


def fitting_runners(
    num_runners: int,
    learner: Mapping[str, float],
    session: RaySession,
    reporter: Reporter,
    wait_s: float = 0.0,
    gpus_per_runner: float = 0.0,
) -> int:
    """How many env runners there is room for beside the learner; says what is waited for or left out.

    Args:
        num_runners: how many are wanted, of a CPU each.
        learner: CPUs and GPUs ("CPU", "GPU") that learners reserve.
        session: that they are to fit.
        reporter: who looks on.
        wait_s: seconds to wait for a machine with room for the learner.
        gpus_per_runner: GPUs that each env runner reserves.

    Returns:
        `num_runners`, or fewer where the cluster has no room for all and never will.

    Raises:
        ClusterError: Ray would wait for ever: there is no room for the learner, or on this machine for the env runners.
    """
    import ray

    wanted = {"CPU": num_runners + learner["CPU"], "GPU": num_runners * gpus_per_runner + learner["GPU"]}
    deadline = time.monotonic() + wait_s
    while True:
        there = {name: ray.cluster_resources().get(name, 0) for name in wanted}
        if all(wanted[name] <= there[name] for name in wanted):
            return num_runners
        needs = f"{wanted['CPU']:g} CPUs and {wanted['GPU']:g} GPUs; in all there are {there['CPU']:g} and {there['GPU']:g}"
        if can_grow():
            reporter.say(f"env runners and learner need {needs}: waiting for machines to join the cluster")
            return num_runners
        room = int(there["CPU"] - learner["CPU"])
        if gpus_per_runner:
            room = min(room, int((there["GPU"] - learner["GPU"]) / gpus_per_runner))
        if not session.is_local and room >= 0 and learner["GPU"] <= there["GPU"]:
            reporter.say(f"env runners and learner need {needs}: training goes on with {room} env runners")
            return room
        if time.monotonic() >= deadline:
            break
        if wait_s:
            reporter.say(f"env runners and learner need {needs}: waiting {wait_s:g} s for a machine")
            wait_s = 0.0
        time.sleep(1)
    raise ClusterError(
        f"this {'machine' if session.is_local else 'cluster'} has too little room for env runners and learner",
        got=needs,
        fix="ask for fewer env_runners, learners, threads or GPUs, or give the address of a cluster with room, or that grows",
    )
