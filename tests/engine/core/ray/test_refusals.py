"""What a cluster is refused for; the script has a Ray of its own, in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.core.ray.identity import ROOMS
from tests.engine.core.ray.own_cluster import survives

REFUSES = """
import json, os, sys
from pathlib import Path
import pytest
from ray._raylet import GcsClient
from parley.engine.core.ray import session
from parley.engine.core.ray.pool import run_sharded
from parley.engine.core.ray.session import connect
from parley.envs.core.errors import ClusterError
from tests.engine.core.ray.own_cluster import start_cluster
from tests.engine.core.ray.workers import Environment, shards_of

# Workers find what their own machine holds, as where Parley is installed on each.
folder = Path(sys.argv[1])
sys.path.insert(0, os.getcwd())
os.chdir(folder)
session._ROOT = Path("/usr/lib/python3/site-packages")

def refused(message, **asked):
    with pytest.raises(ClusterError, match=message):
        run_sharded(Environment, (), shards_of(2, 1), num_workers=1, on_result=print, **asked)

cluster = start_cluster(2)
with connect(cluster.address):
    # At once: a cluster is waited for as long as 1200 s, in which this script would be ended.
    refused(r"nothing adds machines to it(.|\\n)*there are 1 machine of 2 CPUs and 0 GPUs", num_gpus_per_worker=1)
    # A machine of a launcher's, with other packages of those names.
    cluster.add_node(num_cpus=3, env_vars={"PYTHONPATH": str(folder / "other"), "RAY_NODE_TYPE_NAME": "worker"})
    refused("no worker could start within 1 s", num_gpus_per_worker=1, start_timeout_s=1)
    refused(r"other code(.|\\n)*/other; this process has (.|\\n)*Parley's code \\w{12} instead of", num_cpus_per_worker=3)

store = GcsClient(address=cluster.address)
there = json.loads(store.internal_kv_get(b"CLUSTER_METADATA", namespace=b"cluster")) | {"ray_version": "2.59.1"}
store.internal_kv_put(b"CLUSTER_METADATA", json.dumps(there).encode(), True, namespace=b"cluster")
with pytest.raises(ClusterError, match=r"another Ray or Python(.|\\n)*Ray 2\\.59\\.1 and Python .* there, Ray .* here"):
    with connect(cluster.address):
        pass
cluster.shutdown()
print("survived")
"""


@pytest.mark.ray
def test_other_code_other_versions_and_missing_gpus_are_refused_at_once(tmp_path: Path) -> None:
    for room in ("", *ROOMS):
        (tmp_path / "other" / "parley" / room).mkdir(parents=True)
        (tmp_path / "other" / "parley" / room / "__init__.py").write_text('"""Not Parley."""\n')
    survives(REFUSES, tmp_path, timeout_s=550)
