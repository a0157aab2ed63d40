"""Recorded chats that models of `evaluate collaboration` read: `--recorded`."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.page.page import report_from_run
from parley.engine.core.verbs.job import Silent
from parley.engine.mutual_friends.metrics.chats import (
    LINKED,
    MODEL,
    RECORDED,
    RECORDED_PERPLEXITY,
    UNKNOWN,
    of,
)
from parley.engine.mutual_friends.verbs.config import SCRIPTED
from parley.engine.mutual_friends.verbs.evaluate import EVALUATE_MUTUAL_FRIENDS, demo
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.mutual_friends.compiled import EMBEDDED_FRIENDS
from tests.engine.core.verbs.made_up import Notes
from tests.engine.mutual_friends.verbs.made_up import drawn_dynonet

FEW = """
from dataclasses import dataclass, replace

from parley.envs.mutual_friends.scenario import Attribute
from parley.envs.mutual_friends.compiled import ChatText, ScriptedChats


class Others(ScriptedChats):
    def read_text(self, root):
        text = super().read_text(root)
        for chats in text.splits.values():
            for i, chat in enumerate(chats):
                band = Attribute("Band", chat.scenario.attributes[0].type)
                known = (band, *chat.scenario.attributes[1:])
                chats[i] = replace(chat, scenario=replace(chat.scenario, attributes=known))
        return text


ABOUT = {"summary": "few chats", "licence": "", "sizes": (2, 1, 2), "seed": 7}
CORPUS, OTHER = ScriptedChats(name="few", **ABOUT), Others(name="other", **ABOUT)
"""
run = EVALUATE_MUTUAL_FRIENDS.run
SMALL = replace(demo(), scenarios=6, shard_size=5)


@pytest.fixture
def dynonet(tmp_path: Path) -> Path:
    return drawn_dynonet(tmp_path)


def test_models_read_recorded_chats_too(tmp_path: Path, dynonet: Path) -> None:
    again = tmp_path / "again"
    shutil.copytree(dynonet, again)
    own = f"{tmp_path}/few.py:CORPUS"
    (tmp_path / "few.py").write_text(FEW)
    asked = replace(SMALL, model=str(dynonet), trained=str(again), strategies="none", scenarios=1, max_events=2)
    config, notes = replace(asked, recorded=own), Notes()
    result = run(config, tmp_path / "run", notes)
    read = {name: each for name, each in result.metrics.items() if name.startswith("recorded")}
    assert set(read) == {of(kind, pair, own) for kind in RECORDED for pair in (MODEL, "trained-1")}
    assert set(EVALUATE_MUTUAL_FRIENDS.metrics_of(replace(config, recorded="friends")) or ()) >= {
        of(RECORDED_PERPLEXITY, "trained-1", "friends")
    }
    assert {read[of(kind, MODEL, own)].n for kind in (RECORDED_PERPLEXITY, LINKED)} == {5}, "chats, of all splits"
    # A model that is fitted to nothing finds every word alike.
    assert read[of(RECORDED_PERPLEXITY, MODEL, own)].value > 30
    assert read[of(UNKNOWN, MODEL, own)].value == 0
    assert read[of(LINKED, MODEL, own)].value > 0.8
    table = result.tables[f"Recorded chats of {own}"]
    assert [row[0] for row in table.rows] == ["dynonet", "again"]
    assert table.rows[0][1:] == table.rows[1][1:], "equal weights"
    assert any("reads 5 recorded chats" in line for line in notes.said)
    assert "Recorded chats of" in report_from_run(tmp_path / "run").read_text()
    own_split = run(replace(asked, trained="", recorded=EMBEDDED_FRIENDS), tmp_path / "own", Silent())
    assert own_split.metrics[of(RECORDED_PERPLEXITY, MODEL, EMBEDDED_FRIENDS)].n == 100, (
        "of what it is fitted to, the test split"
    )


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"model": SCRIPTED}, ConfigError, r"--recorded needs a model[\s\S]*scripted[\s\S]*parley train dynonet"),
        ({"recorded": "frends"}, ConfigError, "did you mean 'friends'"),
        ({"recorded": "OTHER"}, DataError, "does not know the attribute 'Band'"),
    ],
)
def test_recorded_chats_that_cannot_be_read_are_told_before_there_is_a_run(
    tmp_path: Path, dynonet: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    (tmp_path / "few.py").write_text(FEW)
    told: dict[str, Any] = {name: each.replace("OTHER", f"{tmp_path}/few.py:OTHER") for name, each in changes.items()}
    with pytest.raises(error, match=message):
        run(replace(SMALL, **{"model": str(dynonet), "recorded": EMBEDDED_FRIENDS, **told}), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
