"""The files that put Parley on clusters: valid where that can be told offline, of one version, and closed to strangers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from fnmatch import fnmatch
from typing import Any

import jsonschema
import pytest
import yaml

from parley.engine.core.cli.flags import parse_job
from parley.engine.core.cli.main import find_verb
from parley.engine.core.verbs.catalogue import find
from tests.test_house import PROJECT, ROOMS, ROOT, pins

CLUSTER = yaml.safe_load((ROOT / "cluster.yaml").read_text())
RAY_JOB = yaml.safe_load((ROOT / "deploy" / "rayjob.yaml").read_text())
VOLUME = yaml.safe_load((ROOT / "deploy" / "runs.yaml").read_text())
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
GUIDE = (ROOT / "docs" / "cluster.md").read_text()
SECRET = re.compile(r"(?i)(secret|password|aws_access_key|AKIA[0-9A-Z]{16})|token:\s*\w{16}")


def validate(config: dict[str, Any]) -> None:
    """What `ray up` does with a file before it does anything else."""
    util = pytest.importorskip("ray.autoscaler._private.util")
    util.validate_config(util.prepare_config(config))


def node_types() -> dict[str, Any]:
    return dict(CLUSTER["available_node_types"])


def workers() -> list[dict[str, Any]]:
    return [kind for name, kind in node_types().items() if name != CLUSTER["head_node_type"]]


def test_cluster_file_is_valid_for_the_pinned_ray() -> None:
    validate(CLUSTER)


@pytest.mark.parametrize("wrong", [{"max_worker": 3}, {"idle_timeout_minutes": "long"}, {"docker": {"images": "x"}}], ids=str)
def test_what_ray_would_refuse_is_refused_here(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        validate(CLUSTER | wrong)


def test_cluster_runs_the_pinned_ray_everywhere() -> None:
    images = [CLUSTER["docker"]["image"], *(kind["docker"]["worker_image"] for kind in workers() if "docker" in kind)]
    assert len(images) == 2
    assert [image.split(":")[1].split("-")[0] for image in images] == [pins()["ray"]] * len(images)


def test_cluster_head_takes_no_work_and_idle_workers_cost_nothing() -> None:
    assert node_types()[CLUSTER["head_node_type"]]["resources"]["CPU"] == 0
    assert all(kind["min_workers"] == 0 and kind["max_workers"] > 0 for kind in workers())
    assert sum(kind["max_workers"] for kind in workers()) <= CLUSTER["max_workers"]
    assert any(kind["resources"].get("GPU") for kind in workers())
    assert any(not kind["resources"].get("GPU") for kind in workers())


def test_cluster_is_set_up_with_the_versions_that_are_tested() -> None:
    assert any("--constraint constraints.txt" in command for command in CLUSTER["setup_commands"])
    # A local version, such as +cpu, would keep CUDA away from the GPU workers.
    assert "+" not in pins()["torch"]


def test_cluster_is_closed() -> None:
    (start,) = [command for command in CLUSTER["head_start_ray_commands"] if "--head" in command]
    assert "--dashboard-host=127.0.0.1" in start
    assert "--env RAY_AUTH_MODE=token" in CLUSTER["docker"]["run_options"]
    assert "~/.ray/auth_token" in CLUSTER["file_mounts"]


@pytest.mark.parametrize("name", ["cluster.yaml", "deploy/rayjob.yaml", "deploy/runs.yaml", "deploy/Dockerfile"])
def test_no_file_holds_a_secret(name: str) -> None:
    text = (ROOT / name).read_text()
    assert SECRET.findall(text) == []


def fields(value: Any, prefix: str = "") -> Iterator[str]:
    """Dotted keys of a document; entries of lists count as one."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield f"{prefix}{key}"
            yield from fields(part, f"{prefix}{key}.")
    elif isinstance(value, list):
        for part in value:
            yield from fields(part, prefix)


POD = (
    "spec",
    "spec.securityContext",
    "spec.securityContext.*",
    "spec.containers",
    "spec.containers.name",
    "spec.containers.image",
    "spec.containers.resources",
    "spec.containers.resources.limits*",
    "spec.containers.resources.requests*",
    "spec.containers.ports",
    "spec.containers.ports.name",
    "spec.containers.ports.containerPort",
    "spec.containers.volumeMounts",
    "spec.containers.volumeMounts.name",
    "spec.containers.volumeMounts.mountPath",
    "spec.volumes",
    "spec.volumes.name",
    "spec.volumes.persistentVolumeClaim*",
    "spec.tolerations",
    "spec.tolerations.*",
)
GROUP = ("rayStartParams", "rayStartParams.num-cpus", "template", *(f"template.{field}" for field in POD))
WORKER_GROUP = (*GROUP, "groupName", "replicas", "minReplicas", "maxReplicas")
SPEC = (
    "entrypoint",
    "shutdownAfterJobFinishes",
    "ttlSecondsAfterFinished",
    "backoffLimit",
    "rayClusterSpec",
    "rayClusterSpec.rayVersion",
    "rayClusterSpec.authOptions",
    "rayClusterSpec.authOptions.mode",
    "rayClusterSpec.enableInTreeAutoscaling",
    "rayClusterSpec.autoscalerOptions",
    "rayClusterSpec.autoscalerOptions.idleTimeoutSeconds",
    "rayClusterSpec.autoscalerOptions.upscalingMode",
    "rayClusterSpec.headGroupSpec",
    *(f"rayClusterSpec.headGroupSpec.{field}" for field in GROUP),
    "rayClusterSpec.workerGroupSpecs",
    *(f"rayClusterSpec.workerGroupSpecs.{field}" for field in WORKER_GROUP),
)
"""Fields of a ray.io/v1 RayJob (KubeRay 1.6) that the manifest may use: Kubernetes drops unknown ones without a word."""


def test_ray_job_uses_only_fields_that_kuberay_knows() -> None:
    assert (RAY_JOB["apiVersion"], RAY_JOB["kind"]) == ("ray.io/v1", "RayJob")
    assert [field for field in fields(RAY_JOB["spec"]) if not any(fnmatch(field, known) for known in SPEC)] == []


def pods() -> list[dict[str, Any]]:
    cluster = RAY_JOB["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [group["template"]["spec"] for group in groups]


def test_ray_job_runs_the_pinned_ray_from_one_image() -> None:
    cluster = RAY_JOB["spec"]["rayClusterSpec"]
    assert cluster["rayVersion"] == pins()["ray"]
    (image,) = {container["image"] for pod in pods() for container in pod["containers"]}
    assert image.endswith(f":{PROJECT['project']['version']}")
    assert (ROOT / "deploy" / "rayjob.yaml").read_text().count(image) == 1, "one place to fill in"


def test_ray_job_is_closed_ends_and_grows() -> None:
    spec = RAY_JOB["spec"]
    assert spec["shutdownAfterJobFinishes"] is True
    cluster = spec["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    assert cluster["enableInTreeAutoscaling"] is True
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    for group in cluster["workerGroupSpecs"]:
        assert group["minReplicas"] == 0 < group["maxReplicas"]
        assert group["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    for pod in pods():
        assert pod["securityContext"]["runAsNonRoot"] is True


def test_every_pod_of_the_ray_job_sees_the_runs() -> None:
    for pod in pods():
        (volume,) = pod["volumes"]
        assert volume["persistentVolumeClaim"]["claimName"] == VOLUME["metadata"]["name"]
        assert pod["containers"][0]["volumeMounts"] == [{"name": volume["name"], "mountPath": "/runs"}]
    assert VOLUME["spec"]["accessModes"] == ["ReadWriteMany"]


def test_ray_job_asks_for_a_command_that_parley_takes() -> None:
    config = understood(RAY_JOB["spec"]["entrypoint"])
    worker = RAY_JOB["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    most = worker["maxReplicas"] / config.gpus_per_worker
    assert config.workers == most, "as many workers as the cluster has room for at its largest"


def understood(command: str) -> Any:
    """The configuration that a command line stands for."""
    _, *words = shlex.split(command)
    verb = find_verb(words)
    assert verb is not None, command
    entry = find("-".join(verb.words))
    return parse_job(verb, entry.load(), words[len(verb.words) :]).config


def test_image_holds_the_rooms_the_pins_and_no_root() -> None:
    instructions = dict(re.findall(r"^(USER|ENTRYPOINT|FROM) (.+)$", DOCKERFILE, flags=re.MULTILINE))
    assert instructions["FROM"].startswith("python:3.11-")
    assert instructions["USER"] != "root"
    assert instructions["ENTRYPOINT"] == '["parley"]'
    assert "--constraint constraints.txt" in DOCKERFILE
    copied = {word for line in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, flags=re.MULTILINE) for word in line.split()}
    assert copied == {*ROOMS, "parley", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"}
    assert all((ROOT / name).exists() for name in copied)
    ignored = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == copied


def test_clusters_get_the_ray_that_takes_jobs() -> None:
    assert "ray[default]==2.60.*" in PROJECT["project"]["optional-dependencies"]["cluster"]
    assert "['cluster']" in DOCKERFILE


def commands() -> list[str]:
    """What the guide has people type after `ray job submit ... --`, and its parley commands."""
    blocks = re.findall(r"^```bash\n(.*?)^```", GUIDE, flags=re.DOTALL | re.MULTILINE)
    lines = [line.partition("#")[0].strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line[line.index("parley ") :] for line in lines if re.match(r"(ray job submit .*-- )?parley ", line)]


@pytest.mark.parametrize("command", commands())
def test_commands_of_the_guide_are_understood(command: str) -> None:
    verb = find_verb(shlex.split(command)[1:])
    assert verb is not None
    if verb.has_presets:
        understood(command)


def test_the_guide_names_files_that_are_there() -> None:
    named = set(re.findall(r"`((?:deploy|docs|engine)/[\w./-]+|[\w-]+\.(?:yaml|txt|toml))`", GUIDE))
    assert {"deploy/rayjob.yaml", "cluster.yaml"} <= named
    assert [name for name in named if not (ROOT / name).exists()] == []
