"""Commands that take chat models by their addresses: what they ask, what they keep, and what they never write."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.generation.verbs.adversarial import EVALUATE_ADVERSARIAL, NOTES
from parley.engine.generation.verbs.adversarial_config import AdversarialConfig, labels_of
from parley.engine.perturb.verbs.config import RobustnessConfig
from parley.engine.perturb.verbs.robustness import EVALUATE_ROBUSTNESS
from parley.engine.ranking.verbs.attack import ATTACK_RANKING
from parley.engine.ranking.verbs.config import RankingAttackConfig, RankingConfig
from parley.engine.ranking.verbs.ranking import EVALUATE_RANKING
from parley.engine.responders.reply import REPLY, ReplyConfig
from parley.policies.chat.local import ChatResponder
from parley.policies.chat.settings import ChatAsking, ChatReplying
from tests.engine.core.verbs.made_up import rows
from tests.engine.generation.verbs.judging import asked, replies, written
from tests.engine.perturb.verbs.robust import BUILT_IN
from tests.policies.chat.fake_server import Said, completion, serving

QUICK, REPLYING = ChatAsking(timeout_s=60, max_attempts=1), ChatReplying(timeout_s=60, max_attempts=1)
DESK = "helpdesk"
KEY = "sk-verysecretkey0123456789"


def last_word(number: int, body: dict[str, Any]) -> Said:
    return Said(completion(f"{body['messages'][-1]['content'].split()[-1]} {body.get('seed')}"))


@pytest.mark.parametrize("decoder", ["greedy", "sample:0.7"])
def test_a_run_that_was_broken_off_asks_nothing_twice_and_ends_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decoder: str
) -> None:
    monkeypatch.setenv("PARLEY_API_KEY", KEY)
    replies, calls = ChatResponder.replies_with_answers, []

    def broken_off(self: ChatResponder, contexts: Any, **more: Any) -> Any:
        calls.append(contexts)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return replies(self, contexts, **more)

    monkeypatch.setattr(ChatResponder, "replies_with_answers", broken_off)
    with serving(last_word) as server:
        config = ReplyConfig(
            model=server.name, corpus="helpdesk", limit=6, shard_size=3, batch_size=2, decoder=decoder, chat=REPLYING
        )
        with pytest.raises(KeyboardInterrupt):
            REPLY.run(config, tmp_path / "run", Silent())
        before = len(server.asked)
        REPLY.run(config, tmp_path / "run", Silent())
        assert (before, len(server.asked)) == (5, 6)
        REPLY.run(replace(config, shard_size=6, batch_size=5), tmp_path / "other", Silent())
    assert rows(tmp_path / "run") == rows(tmp_path / "other")
    assert {row["status"] for row in rows(tmp_path / "run")} == {"ok"}
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


def test_a_context_that_is_refused_costs_no_other(tmp_path: Path) -> None:
    refusals = count()

    def picky(number: int, body: dict[str, Any]) -> Said:
        if len(str(body["messages"])) % 3:
            return last_word(number, body)
        return Said(b"no", (400, 403)[next(refusals) % 2])

    config = ReplyConfig(model="", corpus="helpdesk", limit=12, shard_size=12, chat=REPLYING)
    with serving(picky) as server:
        REPLY.run(replace(config, model=server.name), tmp_path / "run", Silent())
    found = rows(tmp_path / "run")
    assert 0 < sum(row["status"] == "error" for row in found) < 12
    assert {row["error"].partition("HTTP ")[2][:3] for row in found if row["status"] == "error"} == {"400"}
    # One that forbids a text without a reason, and answers others, moderates.
    assert "filtered" in {row["kind"] for row in found}


def test_a_server_is_asked_under_perturbations(tmp_path: Path) -> None:
    with serving(last_word) as server:
        config = RobustnessConfig(
            model=server.name, corpus="helpdesk", limit=4, strategies="random-swap,antonym", perturb=BUILT_IN, chat=REPLYING
        )
        result = EVALUATE_ROBUSTNESS.run(config, tmp_path / "run", Silent())
        assert server.asked
    assert result.metrics["bleu.base.random-swap"].n == 4


def test_a_folder_of_a_causal_model_ranks_beside_others(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
    from tests.policies.chat.tiny import saved

    folder = saved(tmp_path / "tiny.model")
    config = RankingConfig(model=f"hf:{folder},tfidf", rules="none", limit=3)
    EVALUATE_RANKING.run(config, tmp_path / "run", Silent())
    found = (RunFolder.load(tmp_path / "run").summary() or {})["rankers"]
    assert {"tiny_model", "response-only:tiny_model"} < set(found)
    assert found["tiny_model"]["name"] == f"hf:{folder}"


def test_a_model_that_rates_nothing_is_no_ranker_and_the_run_says_so(tmp_path: Path) -> None:
    with serving(lambda number, body: Said(completion("I'm sorry, but I can't help with that."))) as server:
        config = RankingConfig(model=server.name, rules="none", limit=2, num_erased=0, chat=QUICK)
        result = EVALUATE_RANKING.run(config, tmp_path / "ranking", Silent())
        searching = RankingAttackConfig(model=server.name, limit=2, budget=12, chat=QUICK)
        attacked = ATTACK_RANKING.run(searching, tmp_path / "attack", Silent())
    note = " ".join(table.note for table in result.tables.values())
    assert "fake rated 20 of 20 replies by no number" in note
    assert "response-only:fake rated 20 of 20" in note
    assert "fake rated 20 of 20" in next(iter(attacked.tables.values())).note
    for run in ("ranking", "attack"):
        assert "fake rated 20 of 20 replies by no number" in (tmp_path / run / "table.md").read_text()


def moderated(number: int, body: dict[str, Any]) -> Said:
    """Rates by the length of the question, and says nothing of some."""
    length = len(body["messages"][0]["content"])
    return Said(completion("" if length % 29 == 0 else str(length % 101)))


def test_contexts_that_a_rater_gave_no_reply_about_are_counted_shown_and_warned_of(tmp_path: Path) -> None:
    with serving(moderated) as server:
        config = RankingConfig(model=server.name, rules="none", controls=False, limit=6, num_erased=0, chat=QUICK)
        ranked = EVALUATE_RANKING.run(config, tmp_path / "ranking", Silent())
        searching = RankingAttackConfig(model=server.name, limit=6, budget=12, chat=QUICK, rules="none")
        attacked = ATTACK_RANKING.run(searching, tmp_path / "attack", Silent())
    for result, run in ((ranked, "ranking"), (attacked, "attack")):
        lost = [row for row in rows(tmp_path / run) if row["status"] == "error"]
        assert 0 < len(lost) < 6
        assert all(row["error"].startswith("no answer (empty)") for row in lost)
        failed = result.metrics["failed.fake"]
        assert (failed.value, failed.n) == (len(lost), 6)
        note = " ".join(table.note for table in result.tables.values())
        assert f"fake gave no scores for {len(lost)} of 6 contexts: no answer (empty)" in note
        assert any(warning.startswith(f"{len(lost)} of 6 items failed") for warning in result.warnings)
        assert f"{len(lost)} of 6 contexts" in (tmp_path / run / "table.md").read_text()
        kinds = result.chat_usage["kinds"]
        assert kinds["empty"] > 0
        assert sum(kinds.values()) == result.chat_usage["asked"]
    assert ranked.metrics["r@1.fake.clean"].n == 6 - failed_in(tmp_path / "ranking")


def failed_in(run: Path) -> int:
    return sum(row["status"] == "error" for row in rows(run))


def short(folder: Path) -> AdversarialConfig:
    """An evaluation of sixteen replies a system: each is a question or two."""
    config = asked(folder)
    for kind in ("people", "plain", "telling"):
        written(folder / f"{kind}.tsv", replies(kind, 16))
    return config


def test_a_chat_model_judges_and_the_run_says_what_it_could_not_read(tmp_path: Path) -> None:
    def says(number: int, body: dict[str, Any]) -> Said:
        reply = body["messages"][0]["content"].split("Reply: ")[1].split("\n")[0]
        return Said(completion("who knows" if len(reply) % 5 == 0 else "human" if len(reply) % 2 else "machine"))

    with serving(says) as server:
        config = replace(short(tmp_path), judges=server.name, chat=QUICK)
        result = EVALUATE_ADVERSARIAL.run(config, tmp_path / "run", Silent())
        num = len(server.asked)
        assert len({str(body["messages"]) for body in server.asked}) == num, "nothing is asked twice"
    assert labels_of((server.name,)) == {server.name: "fake"}
    assert "adversuc.fake.plain" in result.metrics
    notes = (RunFolder.load(tmp_path / "run").summary() or {})[NOTES]
    assert any("fake said neither human nor machine" in note for note in notes)


def test_a_judge_that_never_answers_is_told_of_beside_those_that_do(tmp_path: Path) -> None:
    with serving(lambda number, body: Said(b"<html>welcome</html>")) as server:
        config = replace(short(tmp_path), judges=server.name, chat=QUICK)
        result = EVALUATE_ADVERSARIAL.run(config, tmp_path / "run", Silent())
    assert "fake judged nothing: ModelError: the server answers a page" in result.failure
    assert result.metrics["adversuc.constant.plain"].n
