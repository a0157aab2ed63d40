"""What every registered environment promises, whatever its task."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence

import parley.envs
from parley.envs.core.errors import ConfigError

HEADINGS = (
    "Description",
    "Action Space",
    "Observation Space",
    "Starting State",
    "Reward",
    "Episode End",
    "Information",
    "Arguments",
    "References",
    "Version History",
)
MAX_STEPS = 1000
IDS = sorted(name for name in gymnasium.registry if name.startswith("parley/"))

every_environment = pytest.mark.parametrize("name", IDS)


def trace(env: gymnasium.Env[Any, Any], seed: int) -> list[Any]:
    """Two episodes of random actions: all that the environment returned, checked against its spaces on the way."""
    env.action_space.seed(seed)
    seen: list[Any] = []
    for first in (True, False):
        seen.append(env.reset(seed=seed if first else None))
        assert seen[-1][0] in env.observation_space
        for _ in range(MAX_STEPS):
            observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
            seen.append((observation, reward, terminated, truncated, info))
            assert observation in env.observation_space
            assert isinstance(reward, float)
            if terminated or truncated:
                break
        else:
            pytest.fail(f"no end after {MAX_STEPS} random actions")
    return seen


def test_the_package_lists_what_gymnasium_knows() -> None:
    assert sorted(parley.envs.IDS) == IDS
    assert "parley/Negotiation-v1" in IDS


@every_environment
@pytest.mark.filterwarnings("error")
def test_gymnasium_accepts_it_without_a_warning(name: str) -> None:
    check_env(gymnasium.make(name).unwrapped)


@every_environment
def test_one_seed_gives_one_episode(name: str) -> None:
    seen = trace(gymnasium.make(name), 11)
    assert data_equivalence(seen, trace(gymnasium.make(name), 11), exact=True)
    assert not data_equivalence(seen, trace(gymnasium.make(name), 12))


@every_environment
@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_it_survives_pickling(name: str, pickler: Any) -> None:
    env = gymnasium.make(name).unwrapped
    assert data_equivalence(trace(pickler.loads(pickler.dumps(env)), 5), trace(env, 5), exact=True)


@every_environment
@pytest.mark.parametrize("options", [3, "scenario", ["scenario"], {"nosuch": 1}])
def test_wrong_options_are_refused(name: str, options: Any) -> None:
    with pytest.raises(ConfigError, match="wrong option of reset"):
        gymnasium.make(name).unwrapped.reset(seed=1, options=options)


@every_environment
def test_its_docstring_has_the_fixed_headings(name: str) -> None:
    text = inspect.getdoc(type(gymnasium.make(name).unwrapped)) or ""
    headings = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert headings == list(HEADINGS)


def test_the_rooms_door_imports_nothing_heavy() -> None:
    code = "import sys, parley.envs; print(*sorted({'torch', 'ray', 'pyarrow', 'matplotlib'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""
