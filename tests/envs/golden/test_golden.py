"""Every environment still plays the recorded episodes, to the letter."""

from __future__ import annotations

import gymnasium
import pytest

from tests.envs.golden.playthrough import FOLDER, PLAYTHROUGHS, Playthrough, record

REWRITE = "if the change is intended: python -m tests.envs.golden.rewrite, and read the difference"


@pytest.mark.parametrize("playthrough", PLAYTHROUGHS, ids=lambda playthrough: playthrough.name)
def test_the_episode_is_the_recorded_one(playthrough: Playthrough) -> None:
    assert record(playthrough) == playthrough.path.read_text(), REWRITE


def test_every_file_is_a_playthrough_and_every_environment_has_one() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == {playthrough.name for playthrough in PLAYTHROUGHS}
    registered = {name for name in gymnasium.registry if name.startswith("parley/")}
    assert {playthrough.environment for playthrough in PLAYTHROUGHS} == registered
