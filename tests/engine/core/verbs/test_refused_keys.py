"""A key that a server refuses ends a command at the first answer, with one error that says so and never with the key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.cli.main import main
from parley.engine.core.ray.session import RaySession
from parley.engine.core.verbs.job import Silent
from parley.engine.generation.verbs.adversarial import EVALUATE_ADVERSARIAL
from parley.engine.mutual_friends.verbs.config import MutualFriendsConfig
from parley.engine.mutual_friends.verbs.evaluate import EVALUATE_MUTUAL_FRIENDS
from parley.engine.negotiation.verbs.exploitability import EVALUATE_EXPLOITABILITY, ExploitabilityConfig
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.engine.negotiation.verbs.minmax import MINMAX
from parley.engine.negotiation.verbs.table import ATTACK_TABLE, TableConfig
from parley.engine.negotiation.verbs.tactic import ATTACK_TACTIC, TacticConfig
from parley.engine.negotiation.verbs.training import TRAIN_ADVERSARY, TRAIN_RL, TRAIN_TARGET
from parley.engine.negotiation.verbs.whitebox import TransferSettings
from parley.engine.perturb.verbs.config import RobustnessConfig
from parley.engine.perturb.verbs.robustness import EVALUATE_ROBUSTNESS
from parley.engine.ranking.verbs.attack import ATTACK_RANKING
from parley.engine.ranking.verbs.config import RankingAttackConfig, RankingConfig
from parley.engine.ranking.verbs.ranking import EVALUATE_RANKING
from parley.engine.responders.reply import REPLY, ReplyConfig
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.success import SuccessSettings
from parley.engine.triggers.verbs.config import HuggingFaceSettings, TriggerConfig
from parley.engine.triggers.verbs.search import SEARCH
from parley.engine.triggers.verbs.text_search import SEARCH_TEXT, TextSearchConfig
from parley.engine.triggers.verbs.transfer import SEARCH_TRANSFER, TriggerTransferConfig
from parley.envs.core.errors import RefusedModelError
from parley.policies.chat.settings import ChatAsking, ChatReplying, ChatSeat
from parley.tune.config import SweepConfig
from parley.tune.sweep import SWEEP
from tests.engine.core.verbs.made_up import CORPUS, REINFORCE, campaign, given, hardening, training
from tests.engine.generation.verbs.judging import asked
from tests.engine.perturb.verbs.robust import BUILT_IN
from tests.policies.chat.fake_server import FakeServer, Said, completion, serving

KEY = "sk-verysecretkey0123456789"
QUICK = ChatAsking(timeout_s=60, max_attempts=1)
REPLYING = ChatReplying(timeout_s=60, max_attempts=1)
SEAT = ChatSeat(timeout_s=60, max_attempts=1)
DESK, SENTENCE = "helpdesk", TransferSettings(sentence="no deal")
QueryTask = dict[str, Callable[[str, Path], tuple[Any, Any]]]
ANY: QueryTask = {
    "reply": lambda name, folder: (REPLY, ReplyConfig(model=name, corpus=DESK, chat=REPLYING)),
    "evaluate robustness": lambda name, folder: (
        EVALUATE_ROBUSTNESS,
        RobustnessConfig(model=name, corpus=DESK, strategies="antonym", perturb=BUILT_IN, chat=REPLYING),
    ),
    "evaluate ranking": lambda name, folder: (EVALUATE_RANKING, RankingConfig(model=name, limit=2, chat=QUICK)),
    "attack ranking": lambda name, folder: (ATTACK_RANKING, RankingAttackConfig(model=name, limit=2, chat=QUICK)),
    "evaluate adversarial": lambda name, folder: (EVALUATE_ADVERSARIAL, replace(asked(folder), judges=name, chat=QUICK)),
    "search text": lambda name, folder: (SEARCH_TEXT, TextSearchConfig(model=name, chat=QUICK)),
    "selfplay": lambda name, folder: (SELFPLAY, MatchConfig(adversary="scripted", target=name, chat=SEAT)),
    "evaluate collaboration": lambda name, folder: (EVALUATE_MUTUAL_FRIENDS, MutualFriendsConfig(model=name, scenarios=40)),
    "attack tactic, attacker": lambda name, folder: (ATTACK_TACTIC, TacticConfig(attacker=name, target="scripted", chat=SEAT)),
    "attack tactic, target": lambda name, folder: (ATTACK_TACTIC, TacticConfig(attacker=coach(folder), target=name, chat=SEAT)),
    "attack table": lambda name, folder: (
        ATTACK_TABLE,
        TableConfig(target=name, speaker="scripted", rows="none,transfer", transfer=SENTENCE, chat=SEAT),
    ),
}
"""Verbs that ask a chat model, and would ask it often."""
LEARNING: dict[str, Callable[[str, Path, Path], tuple[Any, Any]]] = {
    "train rl": lambda name, root, own: (TRAIN_RL, training(root, name, learner=str(own), chat=SEAT)),  # type: ignore[arg-type]
    "train adversary": lambda name, root, own: (
        TRAIN_ADVERSARY,
        training(root, name, learner=str(own), chat=SEAT),  # type: ignore[arg-type]
    ),
    "train target": lambda name, root, own: (TRAIN_TARGET, hardening(root, own, name, chat=SEAT)),
    "minmax, partner": lambda name, root, own: (MINMAX, campaign(root, own, partner=name, chat=SEAT)),
    "minmax, adversary": lambda name, root, own: (MINMAX, given(root, own, name, chat=SEAT)),  # type: ignore[arg-type]
}
"""Verbs in which a negotiator learns against it."""


def coach(folder: Path) -> str:
    """An attacker of its own that needs no server."""
    (folder / "coach.py").write_text("def coach(messages):\n    return 'Tactic: ask for all'\n")
    return f"{folder}/coach.py:coach"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    """One that takes no key, and says it again."""
    monkeypatch.setenv("PARLEY_API_KEY", KEY)
    with serving(lambda number, body: Said(f"no such key: {KEY}".encode(), 401)) as refusing:
        yield refusing


def ends_at_once(server: FakeServer, job: Any, config: Any, path: Path, at_once: int = QUICK.concurrency) -> None:
    """Runs a job that asks a server, which refuses its key; actors of a session that is older than the key have none.

    Args:
        server: who is asked.
        job: that asks.
        config: of it.
        path: the run's folder.
        at_once: questions that may be under way when the first is answered.
    """
    with pytest.raises(RefusedModelError, match=r"(takes the|wants a) key(.|\n)*HTTP 401(.|\n)*export PARLEY_API_KEY") as told:
        job.run(config, path, Silent())
    assert 1 <= len(server.asked) <= at_once, "those that were under way"
    assert KEY not in str(told.value)
    for file in path.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes(), file


@pytest.mark.parametrize("verb", ANY)
def test_a_refused_key_ends_the_command_at_the_first_answer(tmp_path: Path, server: FakeServer, verb: str) -> None:
    ends_at_once(server, *ANY[verb](server.name, tmp_path), tmp_path / "run")


@pytest.mark.parametrize("verb", ["evaluate ranking", "selfplay"])
def test_a_model_that_the_server_does_not_have_ends_the_command_as_well(tmp_path: Path, verb: str) -> None:
    with serving(lambda number, body: Said(b"no model fake", 404)) as server:
        job, config = ANY[verb](server.name, tmp_path)
        with pytest.raises(RefusedModelError, match=r"no such address or model(.|\n)*HTTP 404: no model fake"):
            job.run(config, tmp_path / "run", Silent())
        assert 1 <= len(server.asked) <= QUICK.concurrency


@pytest.mark.parametrize("verb", LEARNING)
@pytest.mark.ray
def test_a_refused_key_ends_a_training_at_the_first_answer(
    tmp_path: Path, server: FakeServer, root: Path, trainee: Path, ray_session: RaySession, verb: str
) -> None:
    ends_at_once(server, *LEARNING[verb](server.name, root, trainee), tmp_path / "run")


@pytest.mark.ray
def test_a_refused_key_ends_what_actors_ask_with_it(
    tmp_path: Path, server: FakeServer, root: Path, trainee: Path, ray_session: RaySession
) -> None:
    learner: dict[str, Any] = {"learner": str(trainee), "chat": SEAT}
    played = training(root, server.name, env_runners=2, **learner)  # type: ignore[arg-type]
    ends_at_once(server, TRAIN_RL, played, tmp_path / "runners", 2 * SEAT.concurrency)


@pytest.mark.ray
@pytest.mark.slow
def test_a_refused_key_ends_trainers_and_a_table_too(
    tmp_path: Path, server: FakeServer, root: Path, trainee: Path, ray_session: RaySession
) -> None:
    beside = ExploitabilityConfig(
        target=server.name,
        speaker=str(trainee),
        corpus=CORPUS,
        data_root=root,
        reinforce=REINFORCE,
        chat=SEAT,
        seeds=3,
        trainers=2,
    )
    ends_at_once(server, EVALUATE_EXPLOITABILITY, beside, tmp_path / "trainers", 2 * SEAT.concurrency)
    server.asked.clear()
    table = TableConfig(
        target=server.name, speaker="scripted", rows="none,transfer", transfer=SENTENCE, dialogues=60, workers=2, chat=SEAT
    )
    ends_at_once(server, ATTACK_TABLE, replace(table, shard_size=1), tmp_path / "table", 2 * SEAT.concurrency)


PLAN = """
from parley.tune.plan import Plan
from parley.tune.plan import Integer
TURNS = Plan(
    job="selfplay", preset="scripted", space={"max_turns": Integer(4, 20)}, metrics=("advantage",), direction="max",
    fidelity="dialogues", budget=6,
)
"""


@pytest.mark.ray
def test_a_refused_key_ends_a_sweep_after_trials_that_worked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_session: RaySession
) -> None:
    monkeypatch.setenv("PARLEY_API_KEY", KEY)
    (tmp_path / "plan.py").write_text(PLAN)
    revoked: list[bool] = []

    def says(number: int, body: dict[str, Any]) -> Said:
        return Said(f"no such key: {KEY}".encode(), 401) if revoked else Said(completion("no deal"))

    class Revoking(Silent):
        def advance(self, done: float, note: str = "") -> None:
            if done >= 1 and not revoked:
                revoked.append(True)
                server.asked.clear()

    with serving(says) as server:
        base = f"target={server.name} chat.max_attempts=1"
        config = SweepConfig(sweep=f"{tmp_path}/plan.py:TURNS", num_trials=9, rungs=1, concurrent=1, base=base)
        with pytest.raises(RefusedModelError, match="HTTP 401"):
            SWEEP.run(config, tmp_path / "run", Revoking())
    assert 1 <= len(server.asked) <= QUICK.concurrency
    assert len(list((tmp_path / "run" / "trials").iterdir())) == 2, "no trial behind the one that met it"


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small model, pairs to search on it, and what a search found."""
    pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
    from tests.policies.small_gpt2 import save_gpt2

    path = tmp_path_factory.mktemp("searched")
    save_gpt2(path / "model")
    (path / "pairs.csv").write_text("prompt,target\n" + "".join(f"{word} sees,fish\n" for word in ("cat", "dog", "bird")))
    SEARCH.run(search(path), path / "found", Silent())
    return path


def search(path: Path, **changes: Any) -> TriggerConfig:
    settings: dict[str, Any] = {
        "model": f"hf:{path}/model",
        "targets": str(path / "pairs.csv"),
        "hit": "o-greedy",
        "search": SearchSettings(candidates=2, max_sweeps=1, restarts=1),
        "hugging_face": HuggingFaceSettings(length=2, end=False),
        "success": SuccessSettings(tokens=4),
        "chat": QUICK,
    }
    return TriggerConfig(**{**settings, **changes})


def test_a_refused_key_ends_a_search_that_such_a_model_judges(tmp_path: Path, server: FakeServer, searched: Path) -> None:
    judged = search(searched, success=SuccessSettings(by="judge", judge=server.name, tokens=4))
    ends_at_once(server, SEARCH, judged, tmp_path / "run", 1)


def test_a_refused_key_ends_the_typing_of_triggers(tmp_path: Path, server: FakeServer, searched: Path) -> None:
    typed = TriggerTransferConfig(searches=str(searched / "found"), model=server.name, found="all", chat=QUICK)
    ends_at_once(server, SEARCH_TRANSFER, typed, tmp_path / "run")


def test_the_screen_shows_one_error_and_no_trace(
    tmp_path: Path, server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["attack", "tactic", "--attacker", server.name, "--target", "scripted", "--run", str(tmp_path / "run")]
    assert main(words) == 2
    shown = "".join(capsys.readouterr())
    assert shown.count("HTTP 401") == 1
    assert "export PARLEY_API_KEY" in shown
    assert "Traceback" not in shown
    assert KEY not in shown
