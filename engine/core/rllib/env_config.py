"""What the multi-agent environments make of RLlib's `env_config`: keys that they know, and a stream of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ray.rllib.env.env_context import EnvContext

from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import nearest


def require_known(config: Mapping[str, Any], keys: Sequence[str]) -> None:
    """Raises a `ConfigError` for a key of an `env_config` that no environment of the kind knows."""
    for key in config:
        if key not in keys:
            fix = f"known keys: {', '.join(keys)}"
            raise ConfigError(f"unknown key {key!r}{nearest(str(key), keys)}", where="env_config", fix=fix)


def own_stream(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Integers that name one of several environments of a configuration: its key `stream`, then worker and sub-environment."""
    named: tuple[int, ...] = tuple(config.get("stream", ()))
    if not isinstance(config, EnvContext):
        return named
    # RLlib gives one context, with vector_index 0, to all sub-environments that a runner makes; each takes the next number,
    # or they would all play the same dialogues.
    config.vector_index += 1
    # A runner that is built by hand, without a group, has no index.
    return (*named, config.worker_index or 0, config.vector_index - 1)
