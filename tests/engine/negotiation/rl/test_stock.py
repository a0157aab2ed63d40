"""What who knows RLlib expects: evaluation, callbacks, results, settings that act or are refused, and its own checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from parley.engine.core.rllib import reproducible as state
from parley.engine.negotiation.rl.algorithm import UNREFUSED, DialogueReinforce, DialogueReinforceConfig, require_acting
from parley.engine.negotiation.rl.env import ADVERSARY, TARGET, NegotiationMultiAgentEnv
from parley.envs.core.errors import ConfigError
from tests.engine.negotiation.rl.trainings import SMALL, Built, Recording, World, equal_weights

Build = Callable[..., Any]
REFUSED: list[tuple[str, Callable[[DialogueReinforceConfig], Any], str]] = [
    ("gamma", lambda c: c.training(gamma=0.1), "ReinforceConfig\\(gamma"),
    ("batch", lambda c: c.training(train_batch_size_per_learner=7), "dialogues_per_update"),
    ("epochs", lambda c: c.training(num_epochs=3), "leave it out"),
    ("seed", lambda c: c.debugging(seed=3), "dialogues\\(seed"),
    ("explore", lambda c: c.env_runners(explore=False), "temperature"),
    ("connector", lambda c: c.env_runners(env_to_module_connector=print), "leave it out"),
    ("vector", lambda c: c.env_runners(num_envs_per_env_runner=4), "leave it out"),
    ("minimum", lambda c: c.reporting(min_sample_timesteps_per_iteration=100), "leave it out"),
    ("wrapper", lambda c: c.environment(Wrapped), "DialogueReinforce.rewards"),
    ("reward", lambda c: c.environment(env_config={"reward": "points"}), "DialogueReinforce.rewards"),
    ("policies", lambda c: c.multi_agent(policies=["mine"]), "roster"),
    ("module", lambda c: c.rl_module(rl_module_spec=RLModuleSpec()), "roster"),
    ("networks", lambda c: c.rl_module(model_config={"fcnet_hiddens": [8]}), "checkpoints"),
    ("scaler", lambda c: c.experimental(_torch_grad_scaler_class=print), "leave it out"),
    ("schedulers", lambda c: c.experimental(_torch_lr_scheduler_classes=[print]), "leave it out"),
    ("unit", lambda c: c.evaluation(evaluation_duration_unit="timesteps"), "number of dialogues"),
    ("auto", lambda c: c.evaluation(evaluation_duration="auto"), "number of dialogues"),
    ("evaluators", lambda c: c.evaluation(evaluation_num_env_runners=2), "num_env_runners"),
    ("evaluation", lambda c: c.evaluation(evaluation_config={"explore": False}), "leave it out"),
]


class Wrapped(NegotiationMultiAgentEnv):
    """An environment of a user's own."""


class Listening(RLlibCallback):
    """Notes what it is told, and logs how often a dialogue was agreed on."""

    told: list[str] = []

    def on_environment_created(self, *, env: Any, **_: Any) -> None:
        self.told.append("environment")

    def on_episode_start(self, *, episode: Any, **_: Any) -> None:
        self.told.append("start")

    def on_episode_step(self, *, episode: Any, **_: Any) -> None:
        self.told.append("step")

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, rl_module: Any, **_: Any) -> None:
        self.told.append("end")
        info = next(iter(episode.agent_episodes.values())).get_infos(-1)
        assert episode.module_for(ADVERSARY) in rl_module
        lead = info["points"][0] - info["points"][1]
        if ADVERSARY in episode.agent_episodes:  # the target may end the talk before it has a turn
            assert sum(episode.agent_episodes[ADVERSARY].get_rewards()) == lead
        metrics_logger.log_value("lead", lead, reduce="mean", window=SMALL.dialogues_per_update)

    def on_sample_end(self, *, samples: list[Any], **_: Any) -> None:
        self.told.append(f"{len(samples)} samples")


class Counting(RLlibCallback):
    """Logs the learner's lead in every way of RLlib's."""

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **_: Any) -> None:
        info = next(iter(episode.agent_episodes.values())).get_infos(-1)
        lead = float(info["points"][0] - info["points"][1])
        metrics_logger.log_value("lead", lead, reduce="mean", window=100)
        metrics_logger.log_value("leads", lead, reduce="sum")
        metrics_logger.log_value("last_lead", lead, reduce="item")
        metrics_logger.log_value("most", lead, reduce="max", window=100)
        metrics_logger.log_value("smoothed", lead, reduce="ema", ema_coeff=0.3)
        metrics_logger.log_dict({"deep": {"lead": lead}}, window=100)
        with metrics_logger.log_time("seconds"):
            assert metrics_logger.peek("last_lead") == lead


@pytest.fixture
def build(world: World, built: Built) -> Build:
    """Builds algorithms, changed as told."""

    def make(change: Callable[[Any], Any] = lambda config: None, **options: Any) -> Recording:
        settings = world.settings(**{"kind": Recording, **options})
        change(settings)
        return built(settings)

    return make


@pytest.mark.parametrize(("change", "fix"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_a_setting_that_would_do_nothing_is_refused(world: World, change: Callable[[Any], Any], fix: str) -> None:
    settings = world.settings()
    settings.validate()
    change(settings)
    with pytest.raises(ConfigError, match=fix):
        settings.validate()


def test_every_hidden_attribute_of_rllibs_settings_is_refused_or_known(world: World) -> None:
    hidden = [name for name in vars(AlgorithmConfig()) if name.startswith("_") and name not in UNREFUSED]
    assert set(vars(AlgorithmConfig())) >= UNREFUSED
    assert {"_model_config", "_learner_connector", "_rl_module_spec"} <= set(hidden)
    for name in hidden:
        settings = world.settings()
        settings.__dict__[name] = "something else"
        with pytest.raises(ConfigError, match=rf"does not read the setting {name.strip('_')}"):
            require_acting(settings, settings.made)


def test_a_configuration_without_a_learner_is_refused() -> None:
    with pytest.raises(ConfigError, match="dialogues"):
        DialogueReinforceConfig().validate()


def test_settings_that_act_pass(world: World) -> None:
    settings = world.settings().training(lr=1e-3, grad_clip=2.0).callbacks(on_episode_end=print)
    settings.evaluation(evaluation_interval=2, evaluation_duration=6).fault_tolerance(max_num_env_runner_restarts=3)
    copied = settings.copy(copy_frozen=False)
    for _ in range(2):  # RLlib sets some by itself when it validates
        copied.validate()


@pytest.mark.ray
def test_evaluations_repeat_and_leave_the_training_alone(build: Build) -> None:
    watched = build(lambda config: config.evaluation(evaluation_interval=2, evaluation_duration=8))
    alone = build()
    assert "evaluation" not in watched.train()
    first, again = (watched.evaluate()["env_runners"] for _ in range(2))
    assert first["num_episodes"] == 8
    assert first["episode_return_mean"] == again["episode_return_mean"] == watched.paid[1].mean()
    assert first["episode_return_mean"] == first["advantage"]
    assert set(watched.played[1]["index"]) == set(range(-8, 0))
    assert watched.train()["evaluation"]["env_runners"]["num_episodes"] == 8
    for _ in range(2):
        alone.train()
    assert equal_weights(state.learned_weights(watched), state.learned_weights(alone))
    assert watched.records() == alone.records()


@pytest.mark.ray
def test_results_have_rllibs_names(build: Build) -> None:
    algorithm = build()
    results = [algorithm.train()["env_runners"] for _ in range(2)]
    size = SMALL.dialogues_per_update
    for result, paid, played in zip(results, algorithm.paid, algorithm.played, strict=True):
        assert result["episode_return_mean"] == result["agent_episode_returns_mean"][ADVERSARY] == paid.mean()
        assert (result["episode_return_min"], result["episode_return_max"]) == (paid.min(), paid.max())
        assert result["num_episodes"] == size
        assert result["episode_len_mean"] == played["turns"].mean()
    assert [result["num_episodes_lifetime"] for result in results] == [size, 2 * size]


@pytest.mark.ray
# Figures of callbacks with runners in processes of their own: the next test.
@pytest.mark.parametrize("env_runners", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_callbacks_hear_of_each_dialogue_and_their_figures_are_results(build: Build, env_runners: int) -> None:
    Listening.told.clear()
    algorithm = build(lambda config: config.callbacks(Listening), env_runners=env_runners)
    result = algorithm.train()["env_runners"]
    size, points = SMALL.dialogues_per_update, algorithm.played[0]["points"]
    assert result["lead"] == pytest.approx((points[:, 0] - points[:, 1]).mean())
    assert "environment" in Listening.told
    if not env_runners:
        assert Listening.told.count("start") == Listening.told.count("end") == size
        assert Listening.told[-1] == f"{size} samples"
        # The target's choice is a step too; a forced end is nobody's.
        spoken = algorithm.played[0]["turns"] - algorithm.played[0]["forced"]
        assert Listening.told.count("step") == spoken.sum() + size
    evaluated = algorithm.evaluate()["env_runners"]
    assert evaluated["lead"] == pytest.approx(evaluated["advantage"])


@pytest.mark.ray
def test_figures_of_callbacks_do_not_depend_on_who_played(build: Build) -> None:
    """Seven dialogues on two runners: four and three."""
    rule = replace(SMALL, dialogues_per_update=7)
    alone, both = (build(lambda config: config.callbacks(Counting), reinforce=rule, env_runners=number) for number in (0, 2))
    for _ in range(2):
        expected, result = alone.train()["env_runners"], both.train()["env_runners"]
        points = both.played[-1]["points"]
        lead = points[:, 0] - points[:, 1]
        assert result["lead"] == pytest.approx(lead.mean())
        assert result["leads"] == lead.sum()
        assert result["last_lead"] == lead[-1]
        for name in ("lead", "leads", "last_lead", "most", "smoothed", "deep"):
            assert result[name] == expected[name], name
        assert result["seconds"] > 0


@pytest.mark.ray
def test_a_schedule_of_rates_goes_on_to_the_digit(build: Build, tmp_path: Path) -> None:
    size = SMALL.dialogues_per_update
    falling = [[0, 0.1], [size, 1e-3], [3 * size, 1e-5], [4 * size, 1e-2]]

    def change(config: Any) -> None:
        config.training(lr=falling).callbacks(Counting)

    whole, first, second = (build(change, env_runners=number) for number in (0, 1, 0))
    for _ in range(2):
        whole.train()
        first.train()
    state.save(first, tmp_path / "own")
    saved, kept = first.save_to_path(tmp_path / "rllib"), first.get_state()
    expected = [_update(whole) for _ in range(3)]
    assert [_update(first) for _ in range(3)] == expected
    assert len({update["smoothed"] for update in expected}) == 3
    for back in (lambda: second.restore_from_path(saved), lambda: second.set_state(kept)):
        back()
        assert [_update(second) for _ in range(3)] == expected
    # Our own states leave out what RLlib alone shows.
    state.restore(second, tmp_path / "own")
    again = [_update(second) for _ in range(3)]
    assert [{**update, "smoothed": None} for update in again] == [{**update, "smoothed": None} for update in expected]


@pytest.mark.ray
def test_rllibs_checkpoint_goes_on_to_the_digit(world: World, build: Build, tmp_path: Path) -> None:
    original = build(roster=world.hardening())
    for _ in range(2):
        original.train()
    saved, kept = original.save_to_path(tmp_path / "saved"), original.get_state()
    undisturbed = [_update(original) for _ in range(2)]
    assert undisturbed[0]["wins"] != kept["records"]["wins"]
    restored = DialogueReinforce.from_checkpoint(saved)
    try:
        assert restored.training_iteration == 2
        assert [_update(restored) for _ in range(2)] == undisturbed
        assert equal_weights(state.learned_weights(restored, TARGET), state.learned_weights(original, TARGET))
    finally:
        restored.stop()
    # Back into an algorithm that is ahead of it: as Tune does it, and as a state in memory.
    for back in (lambda: original.load_checkpoint(str(saved)), lambda: original.set_state(kept)):
        back()
        assert [_update(original) for _ in range(2)] == undisturbed


def _update(algorithm: DialogueReinforce) -> dict[str, Any]:
    """What an update comes to, but for times."""
    smoothed = algorithm.train()["env_runners"].get("smoothed")
    weights = state.learned_weights(algorithm)
    sums = {name: float(value.double().sum()) for name, value in weights.items()} | {"smoothed": smoothed}
    return {**{k: v for k, v in algorithm.last.items() if not k.startswith("seconds")}, **algorithm.records(), **sums}


@pytest.mark.ray
def test_a_checkpoint_is_gone_on_from_at_another_rate(build: Build, tmp_path: Path) -> None:
    """As population based training does."""
    first = build()
    first.train()
    saved = first.save_to_path(tmp_path / "saved")
    before = state.learned_weights(first)
    slow = build(lambda config: config.training(lr=1e-12))
    slow.restore_from_path(saved)
    slow.train()
    moved = [float((value - before[name]).abs().max()) for name, value in state.learned_weights(slow).items()]
    assert max(moved) < 1e-8
