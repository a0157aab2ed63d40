"""Verbs as calls from Python: values are those of Python, and wrong ones are errors that name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.verbs.api import run_verb
from parley.engine.core.verbs.job import Job
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.envs.core.errors import ConfigError


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a call would run: it gives back the configuration."""
    monkeypatch.setattr(Job, "run", lambda self, config, path, reporter: config)
    return run_verb


def test_values_are_those_of_python(asked: Any) -> None:
    found = asked("selfplay", adversary="no", dialogues=1e1, data_root="data", chat__device_map="1", shard_size=None)
    assert (found.adversary, found.dialogues, found.data_root, found.chat.device_map) == ("no", 10, Path("data"), "1")
    assert found.shard_size is None
    assert asked("train rl", reinforce=ReinforceConfig(dialogues=8)).reinforce.dialogues == 8


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"dialogues": "many"}, "dialogues has the wrong type"),
        ({"dialogues": 2.5}, "dialogues has the wrong type"),
        ({"dialogues": 0}, "dialogues is out of range"),
        ({"judge": None}, "judge has the wrong type"),
        ({"dialogus": 3}, "did you mean 'dialogues'"),
        ({"chat__devic": "cpu"}, "did you mean 'device'"),
    ],
)
def test_a_wrong_value_is_named(asked: Any, settings: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        asked("selfplay", **settings)
