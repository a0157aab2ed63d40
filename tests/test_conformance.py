"""Every registered part keeps the promises of its kind, and `parley check` finds parts that do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.cli.main import main
from parley.engine.core.verbs.api import check_part
from parley.engine.mutual_friends.verbs.agents import friends_agents
from parley.engine.perturb.catalogue import ENTITY, PARAPHRASED, strategies
from parley.engine.perturb.replies.catalogue import rules
from parley.engine.ranking.attacks.catalogue import rank_attacks
from parley.engine.triggers.catalogue import searches
from parley.envs.core.errors import ConfigError
from parley.envs.core.play import HUMAN
from parley.envs.corpora.pairs.corpora import pair_corpora
from parley.envs.mutual_friends.compiled import EMBEDDED_FRIENDS, friend_corpora
from parley.envs.negotiation.agents import agents
from parley.envs.negotiation.corpora.catalogue import corpora
from parley.envs.ranking.corpora import candidate_corpora
from parley.policies.generation.judges.judge import judges
from parley.policies.ranking.rankers import rankers
from tests.engine.triggers.made_up import tiny_victim

NEED_MORE = {PARAPHRASED: "needs a trained paraphraser", **dict.fromkeys(ENTITY, "needs a table of entities")}

PARTS = [
    *(pytest.param("agent", agents, name, id=name) for name in agents if name != HUMAN),
    pytest.param("corpus of negotiations", corpora, "embedded", id="embedded"),
    pytest.param("corpus of pairs", pair_corpora, "helpdesk", id="helpdesk"),
    *(
        pytest.param("corpus of candidates", candidate_corpora, name, id=name, marks=pytest.mark.data)
        for name in candidate_corpora
    ),
    pytest.param("corpus of chats", friend_corpora, EMBEDDED_FRIENDS, id=EMBEDDED_FRIENDS),
    *(pytest.param("player of MutualFriends", friends_agents, name, id=f"friends: {name}") for name in friends_agents),
    *(pytest.param("perturbation strategy", strategies, name, id=name) for name in strategies if name not in NEED_MORE),
    *(pytest.param("rule on candidate replies", rules, name, id=name) for name in rules),
    *(pytest.param("ranker", rankers, name, id=name) for name in rankers),
    *(pytest.param("judge", judges, name, id=name) for name in judges),
    *(pytest.param("method of attacks on rankers", rank_attacks, name, id=name) for name in rank_attacks),
    *(pytest.param("method of trigger search", searches, name, id=name) for name in searches),
]

AGENT = '''
import numpy as np
from parley.envs.core.play import Utterances
from parley.envs.negotiation.domain import SELECTION_ID


class Curt:
    """Ends every dialogue at once and takes the first selection."""

    def __init__(self, vocabulary):
        self.name, self.vocabulary = "curt", vocabulary

    def join(self, view):
        return self

    def speak(self, rows):
        return Utterances.of([[SELECTION_ID]] * len(rows))

    def choose(self, rows):
        return np.zeros(len(rows), dtype=int)


class Greedy(Curt):
    def choose(self, rows):
        return np.full(len(rows), 999)


class Broken(Curt):
    def choose(self, rows):
        raise RuntimeError("my own bug")


class Moody(Curt):
    def __init__(self, vocabulary):
        super().__init__(vocabulary)
        self.joined = 0

    def join(self, view):
        self.joined += 1
        return self

    def choose(self, rows):
        return np.full(len(rows), self.joined % 5)


class Chatty:
    def join(self, view):
        self.view = view
        return self

    def speak(self, rows):
        return ["Perchance the balls, milord?" if len(self.view.turns(row)) < 2 else "<selection>" for row in rows.tolist()]

    def choose(self, rows):
        return rows * 0


def nothing():
    return 1
'''


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(AGENT)
    return tmp_path / "mine.py"


JUDGE = """
class Short:
    def fit(self, pairs, labels, seed):
        self.usual = 3.5

    def score(self, pairs):
        return [self.usual - len(pair.reply) for pair in pairs]
"""


def test_what_is_fitted_and_scores_is_a_judge_and_no_ranker(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(JUDGE)
    (found,) = check_part(f"{tmp_path / 'mine.py'}:Short")
    assert found.kind.name == "judge"
    assert found.kept


def test_a_broken_promise_names_the_line_that_broke_it(mine: Path) -> None:
    line = mine.read_text().splitlines().index('        raise RuntimeError("my own bug")') + 1
    failures = [promise.failure for promise in check_part(f"{mine}:Broken")[0].promises if promise.failure]
    assert failures
    assert all(failure.endswith(f" (mine.py:{line})") for failure in failures), failures


FRIEND = """
class Session:
    def enter(self, rows):
        pass

    def hear(self, rows, events):
        pass

    def act(self, rows):
        return [("hello",) for _ in rows]


class Polite:
    name = "polite"

    def __init__(self, corpus):
        self.words = corpus.words

    def join(self, view):
        return Session()


class Nameless(Session):
    name = ""

    def join(self, view):
        return self
"""


@pytest.mark.parametrize(("name", "broken"), [("Polite", set()), ("Nameless", {"Have a name"})])
def test_who_looks_for_friends_is_no_negotiator(tmp_path: Path, name: str, broken: set[str]) -> None:
    (tmp_path / "mine.py").write_text(FRIEND)
    (found,) = check_part(f"{tmp_path / 'mine.py'}:{name}")
    assert found.kind.name == "player of MutualFriends"
    assert {promise.text for promise in found.promises if promise.failure} == broken


@pytest.mark.parametrize(("kind", "registry", "name"), PARTS)
def test_every_registered_part_keeps_its_promises(kind: str, registry: Any, name: str) -> None:
    (found,) = check_part(registry.get(name))
    assert found.kind.name == kind
    assert [(promise.text, promise.failure) for promise in found.promises if promise.failure] == []
    assert len(found.promises) >= 2


def test_a_model_under_search_is_told_by_its_members() -> None:
    (found,) = check_part(tiny_victim())
    assert found.kind.protocol == "parley.engine.triggers.scorers.scorer.Victim"
    assert found.kept


@pytest.mark.parametrize("name", ["Curt", "Chatty"])
def test_a_good_part_of_a_users_own_passes(mine: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{mine}:{name}"]) == 0
    shown = capsys.readouterr().err
    assert "as agent (parley.envs.negotiation.game.Agent)" in shown
    assert shown.count("kept") == 6


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Greedy", {"Chooses one of the legal selections of each dialogue": "999, which the game counts as no agreement"}),
        ("Moody", {"Repeats a dialogue from the same seed (all draws come from the view)": "others the second time"}),
        ("Broken", {"Plays dialogues to their end on both sides": "RuntimeError: my own bug (mine.py:30)"}),
    ],
)
def test_what_a_part_breaks_is_named(
    mine: Path, name: str, expected: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", f"{mine}:{name}", "--json"]) == 1
    (kind,) = json.loads(capsys.readouterr().out)["kinds"].values()
    assert not kind["kept"]
    for promise, failure in expected.items():
        assert failure in kind["promises"][promise]
    assert not kind["promises"]["Says its name and its vocabulary"]


def test_what_is_of_no_kind_is_refused_with_the_members_of_each(mine: Path) -> None:
    with pytest.raises(ConfigError, match="no kind that Parley knows") as caught:
        check_part(f"{mine}:nothing")
    assert "agent: join" in str(caught.value.fix)
    with pytest.raises(ConfigError, match="defines no"):
        check_part(f"{mine}:Crt")


HELPER = """
class Haggler:
    def join(self, view):
        self.view = view
        return self

    def speak(self, rows):
        return [self.reply(self.view.turns(row)) for row in rows.tolist()]

    def choose(self, rows):
        return rows * 0

    def reply(self, turns):
        return "Gimme all them balls, mate!" if len(turns) < 3 else "<selection>"


class Answering:
    def respond(self, contexts):
        return [((self.answer(context),),) for context in contexts]

    def answer(self, context):
        return "yes"


class Chatting(Haggler):
    def reply(self, messages):
        return messages[-1]["content"]
"""


def test_a_helper_that_is_called_as_a_chat_models_method_makes_no_chat_model(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HELPER)
    found = {name: [each.kind.name for each in check_part(f"{tmp_path}/mine.py:{name}")] for name in ("Haggler", "Answering")}
    assert found == {"Haggler": ["agent"], "Answering": ["responder"]}
    assert "chat model" in [each.kind.name for each in check_part(f"{tmp_path}/mine.py:Chatting")], "one may be both"
