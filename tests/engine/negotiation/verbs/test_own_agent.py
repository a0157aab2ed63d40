"""Agents of a user's own: what they must have, and how their mistakes are told."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.core.cli.main import main
from parley.engine.core.verbs.job import Silent
from parley.engine.negotiation.verbs.agents import make_agent, require_negotiator
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.engine.negotiation.verbs.table import ATTACK_TABLE, TableConfig
from parley.engine.perturb.catalogue import strategies
from parley.envs.core import registry as own_code
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.corpora.pairs.corpora import pair_corpora
from parley.envs.negotiation.agents import agents
from parley.envs.negotiation.scripted.wording import bargainer_vocabulary
from tests.engine.core.verbs.made_up import ROOT, rows

SESSION = """
import numpy as np
from parley.envs.core.play import Utterances
class Session:
    def __init__(self, view): self.view = view
    def speak(self, rows): return Utterances.of([self.view.vocabulary.encode(["<selection>"]) for _ in rows])
    def choose(self, rows): return np.full(len(rows), {choice})
"""
SESSION_OF_TEXT = """class Mine(Session):
    def __init__(self): pass
    def join(self, view):
        self.view = view
        return self
"""
"""A class that is its own session; what it says stands behind it."""
GOOD = {
    "a class": "class Mine:\n    def join(self, view): return Session(view)",
    "a class that takes the vocabulary": """class Mine:
    def __init__(self, vocabulary): self.words = vocabulary.words
    def join(self, view): return Session(view)""",
    "a class with a setting": """class Mine:
    def __init__(self, greed=1): self.greed = greed + 1
    def join(self, view): return Session(view)""",
    "a function": """class Other:
    def join(self, view): return Session(view)
def Mine(): return Other()""",
}
BAD = {
    "class Mine:\n    pass": r"an agent has no method join(.|\n)*mine\.py:Mine",
    "Mine = 3": r"this makes no agent(.|\n)*got:   3",
    "class Mine:\n    def __init__(self):\n        raise ValueError('my bug')": r"mine\.py:10\n.*ValueError: my bug",
    "raise RuntimeError('boom')": r"mine\.py:8\n.*RuntimeError: boom",
    "def Mine(:": r"mine\.py:8\n.*SyntaxError",
    "class Mine:\n    def __init__(self, vocabulary, more): pass": r"TypeError(.|\n)*more",
}


def saved(folder: Path, text: str, choice: int = 0) -> str:
    path = folder / "mine.py"
    path.write_text(SESSION.replace("{choice}", str(choice)) + text)
    return f"{path}:Mine"


def match(agent: str) -> MatchConfig:
    return MatchConfig(adversary=agent, target="scripted", dialogues=6, shard_size=3)


@pytest.mark.parametrize("what", GOOD)
def test_it_needs_no_more_than_a_seat(tmp_path: Path, what: str) -> None:
    result = SELFPLAY.run(match(saved(tmp_path, GOOD[what])), tmp_path / "run", Silent())
    assert result.failure == ""
    assert {row["status"] for row in rows(tmp_path / "run")} == {"ok"}


@pytest.mark.parametrize("text", BAD)
def test_a_mistake_names_the_file_and_the_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=BAD[text]):
        make_agent(saved(tmp_path, text), bargainer_vocabulary())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("class Mine:\n    def join(self, view): return 3", "what join returns has no method speak or choose"),
        (
            "class Mine(Session):\n    def __init__(self): pass\n    def join(self, view): return self\n"
            "    def speak(self, rows): return [3] * len(rows)",
            "speak gives utterances, one for each row",
        ),
        (
            "class Mine(Session):\n    def __init__(self): pass\n    def join(self, view): return self\n"
            "    def speak(self, rows): return ['deal'] * (len(rows) + 1)",
            "speak gives utterances, one for each row",
        ),
        (
            "class Mine(Session):\n    def __init__(self): pass\n    def join(self, view): return self\n"
            "    def speak(self, rows): return Utterances.of([[10 ** 6]] * len(rows))",
            "speak gives ids of its vocabulary",
        ),
        (
            "import time\nclass Mine(Session):\n    time_limit_s = 0.05\n    def __init__(self): pass\n"
            "    def join(self, view): return self\n    def speak(self, rows):\n        while True:\n"
            "            try: time.sleep(1)\n            except Exception: pass",
            "took more than 0.05 s",
        ),
        (
            "class Mine(Session):\n    def __init__(self): pass\n    def join(self, view): return Session(view)\n"
            "Session.choose = lambda self, rows: 0",
            "choose gives a whole number for each row",
        ),
    ],
)
def test_a_move_of_another_kind_fails_its_dialogues(tmp_path: Path, text: str, told: str) -> None:
    result = SELFPLAY.run(match(saved(tmp_path, text)), tmp_path / "run", Silent())
    assert told in result.failure


CROOKED = {
    "more words than there are": "np.full((n, 2), 5), np.full(n, 3)",
    "fewer words than none": "np.full((n, 2), 5), np.full(n, -1)",
    "a part of a word": "np.full((n, 2), 5), np.full(n, 2.0)",
    "one utterance too many": "np.full((n + 1, 2), 5), np.full(n, 2)",
    "one row": "np.full(n, 5), np.full(n, 1)",
}
"""Utterances whose parts do not fit, of n rows."""


@pytest.mark.parametrize("what", CROOKED)
def test_utterances_that_do_not_fit_cost_the_dialogue_and_no_other(tmp_path: Path, what: str) -> None:
    speak = f"""{SESSION_OF_TEXT}    def speak(self, rows):
        n = len(rows)
        return Utterances({{what}}) if 1 in self.view.contexts[rows, 0] else Utterances.of([[2]] * n)"""
    SELFPLAY.run(match(saved(tmp_path, speak.format(what="np.full((n, 1), 2), np.full(n, 1)"))), tmp_path / "whole", Silent())
    hit = {row["item_key"] for row in rows(tmp_path / "whole") if row["counts"][0] == 1}
    assert 0 < len(hit) < 6
    SELFPLAY.run(match(saved(tmp_path, speak.format(what=CROOKED[what]))), tmp_path / "run", Silent())
    lost = [row for row in rows(tmp_path / "run") if row["status"] == "error"]
    assert {row["item_key"] for row in lost} == hit
    assert all("speak gives utterances" in row["error"] and "mine.py:Mine" in row["error"] for row in lost)


def test_what_an_agent_does_to_its_rows_changes_no_dialogue(tmp_path: Path) -> None:
    speak = f"{SESSION_OF_TEXT}    def speak(self, rows):\n        rows[:] = 0\n        return ['<selection>'] * len(rows)"
    assert SELFPLAY.run(match(saved(tmp_path, speak)), tmp_path / "run", Silent()).failure == ""


HALF = {
    "an agent says it": (f"{SESSION_OF_TEXT}    def speak(self, rows): return ['the hats \\ud83d'] * len(rows)", ""),
    "a chat model answers it": ("class Mine:\n    def reply(self, messages): return 'the hats \\ud83d'", ""),
    "an error tells of it": (f"{SESSION_OF_TEXT}    def speak(self, rows): raise ValueError('\\ud83d')", "ValueError: \ufffd"),
}
"""Agents who bring half a surrogate pair, which no file holds, along; and what their dialogues fail with."""


@pytest.mark.parametrize("where", HALF)
def test_half_a_character_ends_no_run(tmp_path: Path, where: str) -> None:
    text, told = HALF[where]
    result = SELFPLAY.run(match(saved(tmp_path, text)), tmp_path / "run", Silent())
    assert told in result.failure
    if not told:
        said = {turn["words"] for row in rows(tmp_path / "run") for turn in row["turns"] if turn["side"] == 0}
        assert "the hats \ufffd" in said


def test_a_selection_out_of_range_is_kept_as_that(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    result = SELFPLAY.run(match(saved(tmp_path, GOOD["a class"], choice=999)), tmp_path / "run", Silent())
    assert result.metrics["illegal_adversary"].value == 1
    assert result.metrics["illegal_target"].value == 0
    assert [row["selection_adversary"] for row in rows(tmp_path / "run")] == [["<illegal>"]] * 6
    assert "the adversary chose out of range in 6 of 6 dialogues" in caplog.text


def test_the_agent_of_the_contributors_guide_plays(tmp_path: Path) -> None:
    guide = ROOT / "CONTRIBUTING.md"
    (code,) = re.findall(r"```python\n(.*?)```", guide.read_text(), re.DOTALL)
    (tmp_path / "stubborn.py").write_text(code)
    result = SELFPLAY.run(match(f"{tmp_path}/stubborn.py:Stubborn"), tmp_path / "run", Silent())
    assert main(["check", f"{tmp_path}/stubborn.py:Stubborn"]) == 0, "what users begin with keeps every promise"
    assert result.failure == ""
    assert result.metrics["illegal_adversary"].value == 0
    assert all(row["turns"][-1]["words"] == "<selection>" for row in rows(tmp_path / "run"))


@pytest.mark.parametrize("spec", ["mine.py:Mine", "scripted", "human"])
def test_where_weights_are_needed_it_is_said_which_verbs_take_any_agent(spec: str) -> None:
    with pytest.raises(CheckpointError, match=r"--target needs a checkpoint of a negotiator(.|\n)*parley selfplay"):
        require_negotiator(spec, "--target")


def test_a_chat_model_whose_weights_are_here_is_told_the_attack_that_reads_them() -> None:
    with pytest.raises(CheckpointError, match="parley attack trigger"):
        require_negotiator("hf:models/chat", "--target")


def test_a_file_that_raises_is_told_wherever_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "boom.py").write_text("first = 1\nraise RuntimeError('boom')\n")
    for registry in (agents, pair_corpora, strategies):
        with pytest.raises(ConfigError, match=r"boom\.py:2\n.*RuntimeError: boom"):
            registry.get(f"{tmp_path}/boom.py:X")


TALKER = """
import signal, time
class Talker:
    time_limit_s = 60
    def join(self, view):
        self.view = view
        return self
    def speak(self, rows): return [self.reply(row) for row in rows.tolist()]
    def choose(self, rows): return np.zeros(len(rows), dtype=int)
    def reply(self, row):
        turns = self.view.turns(row)
        {what}
        return "Perchance the balls, milord?" if len(turns) < 3 else "<selection>"
"""
FAULTS = {
    "raises": ("if self.view.contexts[row, 1] == {value}: raise RuntimeError('lost')", "RuntimeError: lost"),
    "exits": ("if self.view.contexts[row, 1] == {value}: raise SystemExit(3)", "SystemExit: 3"),
    # The minute is over at once, and only here, however busy the machine is.
    "hangs": (
        "while self.view.contexts[row, 1] == {value}: signal.setitimer(signal.ITIMER_REAL, 0.01); time.sleep(0.1)",
        "speak took more than 60 s",
    ),
}


def talker(folder: Path, what: str) -> str:
    return saved(folder, TALKER.replace("{what}", what)).replace(":Mine", ":Talker")


def test_an_agent_says_texts_of_any_words(tmp_path: Path) -> None:
    result = SELFPLAY.run(match(talker(tmp_path, "assert all(word for _, word in turns)")), tmp_path / "run", Silent())
    assert result.failure == ""
    said = {turn["words"] for row in rows(tmp_path / "run") for turn in row["turns"] if turn["side"] == 0}
    assert said == {"perchance the balls , milord ?", "<selection>"}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_agent_loses_the_dialogues_that_it_fails_in_and_no_others(tmp_path: Path, fault: str) -> None:
    what, told = FAULTS[fault]
    whole = match(talker(tmp_path, "pass"))
    SELFPLAY.run(whole, tmp_path / "whole", Silent())
    good = rows(tmp_path / "whole")
    value = good[0]["values_adversary"][0]
    hit = {row["item_key"] for row in good if row["values_adversary"][0] == value}
    assert 0 < len(hit) < len(good)
    SELFPLAY.run(match(talker(tmp_path, what.replace("{value}", str(value)))), tmp_path / "run", Silent())
    for before, after in zip(good, rows(tmp_path / "run"), strict=True):
        if before["item_key"] in hit:
            assert after["status"] == "error"
            assert told in after["error"]
        else:
            assert after == before


def test_a_table_of_an_agent_that_always_fails_is_a_failure(tmp_path: Path) -> None:
    asked = TableConfig(target=talker(tmp_path, "1 // 0"), speaker="scripted", rows="none", dialogues=2)
    for _ in range(2):
        table = ATTACK_TABLE.run(asked, tmp_path / "table", Silent())
        assert table.failure.startswith("1 stage failed: none: every item failed, 2 of 2 with: the Python file raised an error")
    assert ATTACK_TABLE.run(replace(asked, target="scripted-tough"), tmp_path / "good", Silent()).failure == ""


def test_an_agent_whose_making_never_ends_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_code, "START_LIMIT_S", 0.05)
    spec = saved(tmp_path, "import time\nclass Mine:\n    def __init__(self): time.sleep(60)")
    with pytest.raises(ConfigError, match=r"more than 0\.05 s to start"):
        make_agent(spec, bargainer_vocabulary())


@pytest.mark.parametrize("words", ["", "perchance the balls , milord ?"], ids=["says nothing", "talks for ever"])
def test_an_agent_that_never_ends_meets_the_limits_of_the_game(tmp_path: Path, words: str) -> None:
    text = TALKER.replace("        {what}\n", "").replace(
        'return "Perchance the balls, milord?" if len(turns) < 3 else "<selection>"', f"return {words!r}"
    )
    spec = saved(tmp_path, text).replace(":Mine", ":Talker")
    result = SELFPLAY.run(MatchConfig(adversary=spec, target=spec, dialogues=4, max_turns=6), tmp_path / "run", Silent())
    assert result.failure == ""
    played = rows(tmp_path / "run")
    assert {row["status"] for row in played} == {"ok"}
    assert all(row["forced"] for row in played)
    assert {tuple(turn["words"] for turn in row["turns"]) for row in played} == {(words,) * 6 + ("<selection>",)}


def test_an_agent_that_always_hangs_is_not_asked_for_ever(tmp_path: Path) -> None:
    spec = saved(tmp_path, TALKER.replace("{what}", "time.sleep(60)").replace("= 60", "= 0.3")).replace(":Mine", ":Talker")
    SELFPLAY.run(match(spec), tmp_path / "run", Silent())
    told = [row["error"].splitlines()[0] for row in rows(tmp_path / "run")]
    assert "took more than" in told[0]
    assert "not asked any more" in told[-1]
