"""What who knows RLlib expects of `DialogueReinforce`: results by RLlib's names, and no setting that is taken and ignored.

RLlib has some 200 settings. Those in `ACTING` do what RLlib's documentation says; every other one that is changed is refused,
with what to set instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.utils import metrics as rllib

from parley.envs.core.errors import ConfigError

ACTING = frozenset(
    {
        *("algo_class", "lr", "grad_clip", "grad_clip_by", "learner_config_dict"),
        *("env_runner_cls", "num_env_runners", "num_cpus_per_env_runner", "num_gpus_per_env_runner"),
        *("custom_resources_per_env_runner", "max_requests_in_flight_per_env_runner", "num_learners", "num_gpus_per_learner"),
        *("num_cpus_per_learner", "custom_resources_per_learner", "local_gpu_idx", "max_requests_in_flight_per_learner"),
        *("num_cpus_for_main_process", "num_gpus", "placement_strategy", "log_level", "log_sys_usage", "log_gradients"),
        *("logger_config", "logger_creator", "stats_cls_lookup", "simple_optimizer"),
        *("evaluation_interval", "evaluation_duration", "custom_evaluation_function"),
        *("restart_failed_env_runners", "ignore_env_runner_failures", "max_num_env_runner_restarts"),
        *("delay_between_env_runner_restarts_s", "num_consecutive_env_runner_failures_tolerance"),
        *("env_runner_health_probe_timeout_s", "env_runner_restore_timeout_s"),
    }
)
"""RLlib's settings that the algorithm keeps to, beside those of callbacks."""
_MADE = ("env", "env_config", "policies", "policy_mapping_fn", "policies_to_train", "_rl_module_spec")
UNREFUSED = frozenset(
    {
        *("_learner_class", "_validate_config", "_use_msgpack_checkpoints"),  # these act
        *("_is_atari", "_is_online", "_is_frozen", "_per_module_overrides"),  # RLlib's own notes
    }
)
"""RLlib's attributes beginning with "_" that may change: its methods write settings under other names than their arguments."""
_WORLD = (
    "leave it out: the game itself plays dialogues side by side, and no environment is stepped. For another reward override "
    "DialogueReinforce.rewards; an environment of your own trains under PPO (docs/environments.md)"
)
_WHO = "name who learns and whom it meets in dialogues(roster=...)"
_BATCH = "set dialogues(reinforce=ReinforceConfig(dialogues_per_update=...))"
_HOW = {
    "env": _WORLD,
    "env_config": _WORLD,
    "policies": _WHO,
    "policy_mapping_fn": _WHO,
    "policies_to_train": _WHO,
    "_rl_module_spec": _WHO,
    "gamma": "set dialogues(reinforce=ReinforceConfig(gamma=...))",
    "explore": "set dialogues(reinforce=ReinforceConfig(temperature=...))",
    "seed": "set dialogues(seed=...)",
    "train_batch_size": _BATCH,
    "_train_batch_size_per_learner": _BATCH,
    "_model_config": "leave it out: networks are as the checkpoints of roster say; what they draw by, reinforce does",
    "evaluation_duration_unit": "set evaluation_duration to a number of dialogues",
    "evaluation_num_env_runners": "set num_env_runners: they play the dialogues of evaluations too",
}


def world_of(config: Any) -> dict[str, Any]:
    """What a configuration says about environment, agents and modules, by setting, in a form that can be compared."""
    mapping, spec = config.policy_mapping_fn, config._rl_module_spec
    modules = spec.rl_module_specs if isinstance(spec, MultiRLModuleSpec) else {}
    found = {
        "policies": sorted(config.policies),
        "policy_mapping_fn": (mapping.func.__name__, mapping.args) if isinstance(mapping, partial) else mapping,
        "_rl_module_spec": {name: (each.module_class, each.model_config) for name, each in modules.items()},
        "env_config": dict(config.env_config),
    }
    return {name: found.get(name, getattr(config, name)) for name in _MADE}


def require_acting(config: Any, made: Mapping[str, Any]) -> None:
    """Refuses settings that would be ignored.

    Args:
        config: a configuration of `DialogueReinforce`.
        made: the `world_of` it after `dialogues()`.

    Raises:
        ConfigError: a setting differs from RLlib's default (or from what `dialogues()` made) and does nothing here.
    """
    plain, untouched = AlgorithmConfig(), type(config)(algo_class=config.algo_class)
    names = [name for name in vars(plain) if not name.startswith("callbacks_") and name not in (*ACTING, *UNREFUSED, *_MADE)]
    changed = [name for name, value in world_of(config).items() if value != made[name]]
    changed += [name for name in names if getattr(config, name) != getattr(untouched, name)]
    for name in changed:
        fix = _HOW.get(name, "leave it out")
        what = f"DialogueReinforce does not read the setting {name.strip('_')}"
        raise ConfigError(what, got=_short(getattr(config, name)), fix=fix)
    if not isinstance(config.evaluation_duration, int):
        got = f"evaluation_duration={config.evaluation_duration!r}"
        raise ConfigError("an evaluation has a number of dialogues", got=got, fix=_HOW["evaluation_duration_unit"])


def episode_results(played: Mapping[str, Any], rewards_N: np.ndarray, role: str) -> dict[Any, float]:
    """Results of dialogues by RLlib's names; a return is what the learner got, a length the number of utterances.

    Args:
        played: the columns of `rows.py`.
        rewards_N: of the learner.
        role: its agent and module.
    """
    results: dict[Any, float] = {
        rllib.EPISODE_RETURN_MEAN: rewards_N.mean(),
        rllib.EPISODE_RETURN_MIN: rewards_N.min(),
        rllib.EPISODE_RETURN_MAX: rewards_N.max(),
        (rllib.EPISODE_AGENT_RETURN_MEAN, role): rewards_N.mean(),
        (rllib.EPISODE_MODULE_RETURN_MEAN, role): rewards_N.mean(),
        rllib.EPISODE_LEN_MEAN: played["turns"].mean(),
        rllib.EPISODE_LEN_MIN: played["turns"].min(),
        rllib.EPISODE_LEN_MAX: played["turns"].max(),
        rllib.NUM_EPISODES: len(rewards_N),
        rllib.NUM_ENV_STEPS_SAMPLED: played["turns"].sum(),
    }
    return {name: float(value) for name, value in results.items()}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
