"""`parley/Negotiation-v1` against agents whose every move is known."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.negotiation.dealornodeal_rules import complement, selection_index, selection_table
from parley.envs.negotiation.domain import PAD_ID, Scenario, Vocabulary, domain_of
from parley.envs.negotiation.env import NegotiationEnv, choose_action, speak_action
from parley.envs.negotiation.game import OVER, SELECT, SPEAK, Rules
from tests.envs.negotiation.agents import VOCABULARY, Babbler, Reader

SHORT = Rules(max_turns=6, max_words=8, max_tokens=64)
COMPLEMENTARY = Rules(max_turns=6, max_words=8, max_tokens=64, complementary=True)
SCENARIO = Scenario((1, 2, 3), ((1, 3, 1), (4, 0, 2)))
OTHER = Scenario((1, 2, 2), ((4, 1, 2), (0, 5, 0)))
MINE = selection_index(SCENARIO.counts, (0, 2, 1))
THEIRS = complement(SCENARIO.counts, MINE)


def make(**arguments: Any) -> NegotiationEnv:
    arguments = {"partner": Reader(selection=THEIRS), "rules": SHORT, **arguments}
    return NegotiationEnv(**arguments)


def speak(*words: str) -> dict[str, Any]:
    return speak_action(VOCABULARY, SHORT, words)


def choose(selection: int) -> dict[str, Any]:
    return choose_action(SHORT, selection)


def seed_with_first_speaker(env: NegotiationEnv, mine: bool) -> int:
    """The smallest seed whose dialogue opens with my utterance, or with the partner's."""
    for seed in range(100):
        observation, _ = env.reset(seed=seed, options={"scenario": SCENARIO})
        if bool(observation["num_tokens"] == 0) is mine:
            return seed
    raise AssertionError("a hundred coins fell on one side")


def start(env: NegotiationEnv, mine: bool = True) -> dict[str, Any]:
    observation, info = env.reset(seed=seed_with_first_speaker(env, mine), options={"scenario": SCENARIO})
    assert info == {}
    return observation


def words_of(observation: dict[str, Any]) -> str:
    return " ".join(VOCABULARY.decode(observation["tokens"][: observation["num_tokens"]]))


def test_a_dialogue_from_the_first_word_to_the_points() -> None:
    env = make()
    observation = start(env)
    assert observation["context"].tolist() == [1, 1, 2, 3, 3, 1]
    assert (observation["tokens"] == PAD_ID).all()
    assert observation["phase"] == SPEAK
    assert observation["selections"].sum() == len(selection_table(SCENARIO.counts))

    observation, reward, terminated, truncated, info = env.step(speak("i", "want", "the", "hat", "<eos>"))
    assert words_of(observation) == "YOU: i want the hat <eos> THEM: i want the ball . <eos>"
    assert (reward, terminated, truncated, info) == (0.0, False, False, {})

    observation, reward, terminated, _, info = env.step(speak("<selection>"))
    assert observation["phase"] == SELECT
    assert (reward, terminated, info) == (0.0, False, {})

    observation, reward, terminated, truncated, info = env.step(choose(MINE))
    assert observation["phase"] == OVER
    assert (reward, terminated, truncated) == (7.0, True, False)
    assert info == {
        "agreed": True,
        "points": (7, 8),
        "forced": False,
        "num_illegal": (0, 0),
        "transcript": [(0, ["i", "want", "the", "hat"]), (1, ["i", "want", "the", "ball", "."]), (0, ["<selection>"])],
    }


def test_the_partner_speaks_first_when_the_coin_says_so() -> None:
    observation = start(make(), mine=False)
    assert words_of(observation) == "THEM: i want the ball . <eos>"


@pytest.mark.parametrize(
    ("side", "kind", "expected"), [(0, "points", 7), (0, "advantage", -1), (1, "points", 8), (1, "advantage", 1)]
)
def test_rewards_are_my_points_or_my_advantage(side: int, kind: str, expected: float) -> None:
    mine, theirs = (MINE, THEIRS) if side == 0 else (THEIRS, MINE)
    env = make(partner=Reader(selection=theirs), side=side, reward=kind)
    observation = start(env)
    assert observation["context"].tolist() == list(SCENARIO.context(side))
    env.step(speak("<selection>"))
    _, reward, terminated, _, info = env.step(choose(mine))
    assert (reward, terminated, info["points"]) == (expected, True, (7, 8))


def test_choices_that_do_not_fit_together_earn_nothing() -> None:
    env = make()
    start(env)
    env.step(speak("<selection>"))
    _, reward, _, _, info = env.step(choose(THEIRS))
    assert (reward, info["agreed"], info["points"]) == (0.0, False, (0, 0))


def test_the_partners_end_moves_on_to_the_selection() -> None:
    env = make(partner=Reader((), selection=THEIRS))
    observation = start(env, mine=False)
    assert observation["phase"] == SELECT
    assert words_of(observation) == "THEM: <selection>"
    assert env.step(choose(MINE))[1:3] == (7.0, True)


def test_each_phase_reads_its_own_part_of_the_action() -> None:
    env = make()
    start(env)
    observation, *_ = env.step({**speak("<selection>"), "selection": THEIRS})
    assert observation["phase"] == SELECT
    _, reward, _, _, info = env.step({**choose(MINE), "utterance": speak("no", "<eos>")["utterance"]})
    assert reward == 7.0
    assert len(info["transcript"]) == 1


def test_limits_of_the_game_end_it_without_truncation() -> None:
    env = make(partner=Reader(("no .",) * 9, selection=THEIRS))
    observation = start(env)
    for _ in range(3):
        assert observation["phase"] == SPEAK
        observation, _, terminated, truncated, _ = env.step(speak("no", "deal"))
        assert not terminated
        assert not truncated
    assert observation["phase"] == SELECT
    assert words_of(observation).endswith("YOU: <selection>")
    *_, truncated, info = env.step(choose(MINE))
    assert info["forced"]
    assert not truncated


def test_illegal_words_are_counted_by_side_and_padding_is_not() -> None:
    env = make(side=1, partner=Reader(selection=MINE))
    start(env)
    env.step(speak("<pad>", "YOU:", "deal", "<eos>"))
    env.step(speak())
    env.step(speak("<selection>"))
    *_, info = env.step(choose(THEIRS))
    assert info["num_illegal"] == (0, 2)
    assert info["transcript"][::2] == [(1, ["deal"]), (1, []), (1, ["<selection>"])]


def test_under_the_complementary_rule_side_0_never_chooses() -> None:
    env = make(rules=COMPLEMENTARY)
    start(env)
    observation, reward, terminated, _, info = env.step(speak("<selection>"))
    assert observation["phase"] == OVER
    assert (reward, terminated, info["points"]) == (7.0, True, (7, 8))


def test_under_the_complementary_rule_side_1_chooses_for_both() -> None:
    env = make(rules=COMPLEMENTARY, side=1, partner=Reader())
    start(env)
    observation, _, terminated, _, _ = env.step(speak("<selection>"))
    assert observation["phase"] == SELECT
    assert not terminated
    _, reward, terminated, _, info = env.step(choose(THEIRS))
    assert (reward, terminated, info["points"]) == (8.0, True, (7, 8))


def test_a_complementary_dialogue_that_ends_before_my_first_word_still_pays() -> None:
    env = make(rules=COMPLEMENTARY, partner=Reader((), selection=THEIRS))
    observation = start(env, mine=False)
    assert observation["phase"] == OVER
    _, reward, terminated, _, info = env.step(speak("no", "<eos>"))
    assert (reward, terminated) == (7.0, True)
    assert info["transcript"] == [(1, ["<selection>"])]
    with pytest.raises(ScenarioError, match="no dialogue"):
        env.step(speak("no", "<eos>"))


def test_the_scripted_bargainer_is_the_partner_of_those_who_bring_none() -> None:
    env = NegotiationEnv()
    assert env.partner.name == "scripted"
    assert env.vocabulary == env.partner.vocabulary
    larger = Vocabulary((*env.vocabulary.words, "zebra"))
    assert NegotiationEnv(vocabulary=larger).partner.vocabulary == larger


def test_scenarios_come_from_the_list() -> None:
    env = make(scenarios=[SCENARIO, OTHER])
    contexts = [tuple(env.reset(seed=seed)[0]["context"]) for seed in range(20)]
    assert set(contexts) == {SCENARIO.context(0), OTHER.context(0)}


def test_random_scenarios_differ_from_reset_to_reset() -> None:
    env = make()
    env.reset(seed=0)
    assert len({tuple(env.reset()[0]["context"]) for _ in range(20)}) > 10


def trace(env: NegotiationEnv, seed: int, num_episodes: int = 3) -> list[Any]:
    """Everything that random actions bring about, over some episodes after one seed."""
    env.action_space.seed(seed)
    seen: list[Any] = []
    for episode in range(num_episodes):
        seen.append(env.reset(seed=seed if episode == 0 else None))
        terminated = False
        while not terminated:
            seen.append(env.step(env.action_space.sample()))
            assert seen[-1][0] in env.observation_space
            terminated = seen[-1][2]
    return seen


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0, 1]), st.sampled_from(["points", "advantage"]), st.booleans())
def test_random_actions_stay_in_the_spaces_and_repeat_by_seed(seed: int, side: int, kind: str, complementary: bool) -> None:
    arguments = {"partner": Babbler(), "side": side, "reward": kind, "rules": COMPLEMENTARY if complementary else SHORT}
    seen = trace(make(**arguments), seed)
    assert data_equivalence(seen, trace(make(**arguments), seed), exact=True)
    low = 0 if kind == "points" else -10
    assert all(low <= moment[1] <= 10 for moment in seen if len(moment) == 5)
    assert all(moment[1] == 0 for moment in seen if len(moment) == 5 and not moment[2])


def test_another_seed_gives_another_episode() -> None:
    assert not data_equivalence(trace(make(), 1), trace(make(), 2))


@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_a_pickled_environment_plays_on_alike(pickler: Any) -> None:
    fresh = make(partner=Babbler())
    assert data_equivalence(trace(pickler.loads(pickler.dumps(fresh)), 3), trace(fresh, 3), exact=True)
    half = make()
    start(half)
    half.step(speak("no", "<eos>"))
    copy = pickler.loads(pickler.dumps(half))
    assert data_equivalence(copy.step(speak("deal", "<eos>")), half.step(speak("deal", "<eos>")), exact=True)


def test_observations_are_copies() -> None:
    env = make()
    before = start(env)
    kept = {key: np.copy(value) for key, value in before.items()}
    env.step(speak("no", "<eos>"))
    assert data_equivalence(before, {key: value[()] if value.ndim == 0 else value for key, value in kept.items()})


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("rules", [SHORT, COMPLEMENTARY], ids=["both choose", "complementary"])
@pytest.mark.filterwarnings("error")
def test_gymnasium_finds_nothing_to_complain_about(side: int, rules: Rules) -> None:
    made = gymnasium.make("parley/Negotiation-v1", partner=Babbler(), rules=rules, side=side)
    check_env(made.unwrapped)


def test_a_vector_of_environments_runs() -> None:
    vector = gymnasium.make_vec("parley/Negotiation-v1", num_envs=3, vectorization_mode="sync", partner=Babbler(), rules=SHORT)
    vector.action_space.seed(0)
    observations, _ = vector.reset(seed=0)
    assert observations["tokens"].shape == (3, SHORT.max_tokens)
    ended = 0
    for _ in range(40):
        _, _, terminated, truncated, _ = vector.step(vector.action_space.sample())
        ended += int(terminated.sum())
        assert not truncated.any()
    assert ended >= 3
    vector.close()


def test_rendering_is_returned_written_or_declined(capsys: pytest.CaptureFixture[str]) -> None:
    env = make(render_mode="ansi")
    start(env)
    env.step(speak("i", "want", "the", "hat", "<eos>"))
    text = env.render()
    assert text is not None
    assert text.endswith("you: i want the hat\npartner: i want the ball .")
    assert capsys.readouterr().err == ""

    human = make(render_mode="human")
    start(human)
    capsys.readouterr()
    human.step(speak("i", "want", "the", "hat", "<eos>"))
    written = capsys.readouterr()
    assert written.err == text + "\n\n"
    assert written.out == ""

    silent = make()
    start(silent)
    with pytest.warns(UserWarning, match="render mode"):
        assert silent.render() is None


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"reward": "pionts"}, "did you mean 'points'"),
    ({"scenarios": []}, "empty"),
    ({"side": 2}, "side 0 or 1"),
    ({"render_mode": "rgb_array"}, "unknown render mode"),
    ({"partner": "scriptd"}, "did you mean 'scripted'"),
    ({"partner": "mine.py:Mine"}, "no such Python file"),
    ({"vocabulary": domain_of("interview").vocabulary()}, r"the partner plays another game(.|\n)*not 'interview'"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[next(iter(arguments)) for arguments, _ in WRONG])
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**arguments)


@pytest.mark.parametrize("options", [{"scenaro": SCENARIO}, {"scenario": "1,2,3"}])
def test_wrong_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="wrong option"):
        make().reset(options=options)


def test_moves_without_a_dialogue_are_refused() -> None:
    env = make()
    with pytest.raises(ScenarioError, match="reset"):
        env.step(speak("no"))
    with pytest.raises(ScenarioError, match="reset"):
        env.render()
    start(env)
    env.step(speak("<selection>"))
    env.step(choose(MINE))
    with pytest.raises(ScenarioError, match="reset"):
        env.step(speak("no"))


def test_actions_outside_the_space_are_refused() -> None:
    env = make()
    start(env)
    action = speak("no")
    action["utterance"][0] = len(VOCABULARY)
    with pytest.raises(ScenarioError, match="outside the action space"):
        env.step(action)
    with pytest.raises(ScenarioError, match="too long"):
        speak(*["no"] * 9)


def test_a_partner_is_named_and_other_words_arrive_as_text(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "class Mine:\n"
        "    def join(self, view):\n        self.view = view\n        return self\n"
        "    def speak(self, rows):\n        self.heard = self.view.turns(0)\n"
        "        return ['Forsooth, the book?'] * len(rows)\n"
        "    def choose(self, rows):\n        return rows * 0\n"
    )
    env: Any = gymnasium.make("parley/Negotiation-v1", partner=f"{tmp_path}/mine.py:Mine", vocabulary=VOCABULARY, rules=SHORT)
    start(env)
    observation, *_ = env.step(speak("i", "want", "the", "book", "<eos>"))
    assert words_of(observation) == "YOU: i want the book <eos> THEM: <unk> <unk> the book <unk> <eos>"
    assert env.unwrapped._game.transcript(0)[1] == (1, ["forsooth", ",", "the", "book", "?"])
    assert env.unwrapped.partner._agent.heard == [(False, "i want the book")]
    assert env.observation_space.contains(observation)


class Mute:
    """An agent of a notebook's: it has neither a name nor a vocabulary."""

    def join(self, view: Any) -> Any:
        return self

    def speak(self, rows: np.ndarray) -> list[str]:
        return ["Forsooth, the book?"] * len(rows)

    def choose(self, rows: np.ndarray) -> np.ndarray:
        return rows * 0


@pytest.mark.parametrize("partner", [Mute, Mute()], ids=["class", "object"])
def test_a_partner_is_handed_over_as_it_is(partner: Any) -> None:
    env = make(partner=partner, vocabulary=VOCABULARY)
    start(env)
    env.step(speak("i", "want", "the", "book", "<eos>"))
    assert env.partner.name == "Mute"
    assert env._game is not None
    assert env._game.transcript(0)[1] == (1, ["forsooth", ",", "the", "book", "?"])


def test_a_partner_that_cannot_sit_down_is_named() -> None:
    with pytest.raises(ConfigError, match="no method join"):
        make(partner=3)
