"""Chat models that lie and that judge in evaluations of bots that look for friends."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.page.page import collect_run
from parley.engine.core.ray.worker import Shard
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import USAGE, Silent
from parley.engine.mutual_friends.metrics.chats import LIE_RATE, LIES_UNREAD, MODEL, NO_REPLY, NORMAL, PERPLEXITY, REPLACED, of
from parley.engine.mutual_friends.verbs import evaluate as worker
from parley.engine.mutual_friends.verbs.evaluate import EVALUATE_MUTUAL_FRIENDS, ChatSpec, ChatWorker, PlayedChats, demo
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.mutual_friends.compiled import EMBEDDED_FRIENDS
from parley.envs.mutual_friends.lies import LieRules
from parley.policies.chat.settings import ChatSeat
from tests.engine.core.page.pages import page_of
from tests.engine.core.verbs.made_up import rows
from tests.policies.chat.fake_server import FakeServer, Said, completion, serving

run = EVALUATE_MUTUAL_FRIENDS.run
RANDOM = "random-lies"
SMALL = replace(
    demo(),
    scenarios=6,
    shard_size=5,
    max_events=12,
    lies=LieRules(lies=2, claims=5),
    chat=ChatSeat(max_tokens=9, concurrency=4),
)
JUDGE = """
from parley.policies.chat.model import ReplyScore

class Judge:
    def answer(self, chats, *, decoding, seeds):
        return ["hello" for _ in chats]

    def score(self, chats, replies):
        for chat, reply in zip(chats, replies):
            assert chat[0].role == "system" and "Your friends:" in chat[0].content and chat[-1].role == "user"
            assert all(part.content for part in chat)
        return [ReplyScore(-2.0 * len(reply.split()) - 0.01 * len(chat), 1) for chat, reply in zip(chats, replies)]


class Mute(Judge):
    score = None
"""


def lies(number: int, body: dict[str, Any]) -> Said:
    """A claim, the truth or nonsense, by what is asked."""
    text = body["messages"][-1]["content"]
    return Said(completion(("2", "true", "I would rather not", "1")[len(text) % 4]))


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving(lies) as found:
        yield found


def by_strategy(path: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows(path):
        found.setdefault(row["strategy"], []).append(row)
    return found


def test_a_chat_model_lies_beside_random_lies_and_all_of_it_is_counted(server: FakeServer, tmp_path: Path) -> None:
    config = replace(SMALL, strategies=f"liar:{server.name}", controls=True, scenarios=4)
    liar = config.strategy_names[0]
    result = run(config, tmp_path / "run", Silent())
    of_model = [row["strategy"] for row in rows(tmp_path / "run") if row["pair"] == MODEL and row["scenario"] == "000000"]
    assert of_model[:3] == [NORMAL, liar, RANDOM]
    chats = [row for row in by_strategy(tmp_path / "run")[liar] if row["pair"] == MODEL]
    told = sum(event["said"] != event["heard"] for row in chats for event in row["events"])
    noted = [side for row in chats for side in row["lying"] if side]
    assert told == sum(side["told"] for side in noted) > 0
    assert sum(side["asked"] for side in noted) == sum(side["chances"] for side in noted)
    assert 0 < sum(side["unread"] for side in noted) <= sum(side["repairs"] for side in noted)
    assert {side["scored"] for side in noted} == {0}
    assert result.metrics[of(LIES_UNREAD, MODEL, liar)].value == sum(side["unread"] for side in noted) / len(chats)
    assert result.metrics[of(REPLACED, MODEL, liar, "any")].value > 0
    assert {row[0] for row in result.tables["Lies told"].rows} >= {liar, RANDOM, f"one-sided-{liar}"}
    assert f"Who believes {liar}" in result.tables
    rate = result.metrics[of(LIE_RATE, MODEL, liar)].value
    assert f"--strategies {RANDOM} " in result.next_commands[1]
    assert f"--set lies.rate={rate:.3g}" in result.next_commands[1]
    one_sided = [row for row in by_strategy(tmp_path / "run")[f"one-sided-{liar}"] if row["pair"] == MODEL]
    assert all(row["lying"][1] is None for row in one_sided)
    page = page_of(collect_run(tmp_path / "run"))
    assert "Lies told" in page
    assert liar in page


def test_a_liar_is_asked_nothing_twice_and_nothing_of_a_chat_depends_on_its_shard(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fails(ChatWorker):
        def run(self, shard: Shard[ChatSpec]) -> list[dict[str, Any]]:
            if shard.name == "00001":
                raise RuntimeError("out of memory")
            return super().run(shard)

    config = replace(SMALL, strategies=f"liar:{server.name}")
    with monkeypatch.context() as patch:
        patch.setattr(worker, "ChatWorker", Fails)
        run(config, tmp_path / "run", Silent())
    run(config, tmp_path / "run", Silent())
    kept = (tmp_path / "run" / "answers" / "answers.jsonl").read_text().splitlines()
    assert len({json.loads(line)["key"] for line in kept}) == len(kept) == len(server.asked)
    assert (RunFolder.load(tmp_path / "run").summary() or {})[USAGE]["asked"] == len(kept)
    whole = rows(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "rows")
    run(config, tmp_path / "run", Silent())
    assert len(server.asked) == len(kept)
    assert rows(tmp_path / "run") == whole
    run(replace(config, shard_size=100, side_by_side=2), tmp_path / "other", Silent())
    assert rows(tmp_path / "other") == whole


@pytest.mark.usefixtures("workers_here")
def test_two_workers_write_the_rows_of_none(server: FakeServer, tmp_path: Path) -> None:
    config = replace(SMALL, strategies=f"liar:{server.name}")
    run(config, tmp_path / "whole", Silent())
    run(replace(config, workers=2), tmp_path / "two", Silent())
    assert rows(tmp_path / "two") == rows(tmp_path / "whole")


def test_a_liar_that_fails_costs_the_chats_it_fails_in(tmp_path: Path) -> None:
    def picky(number: int, body: dict[str, Any]) -> Said:
        return Said(b"no", 400) if len(body["messages"][0]["content"]) % 3 == 0 else lies(number, body)

    with serving(picky) as server:
        seat = replace(SMALL.chat, max_attempts=1)
        config = replace(SMALL, strategies=f"liar:{server.name}", chat=seat, seed=4)
        run(config, tmp_path / "run", Silent())
    found = by_strategy(tmp_path / "run")
    assert {row["status"] for row in found[NORMAL]} == {"ok"}
    assert 0 < sum(row["status"] == "error" for row in rows(tmp_path / "run")) < 6


MODERATED = """
from parley.policies.chat.model import Answer

class Moderated:
    def answer(self, chats, *, decoding, seeds):
        return [self.one(chat, seed) for chat, seed in zip(chats, seeds)]

    def one(self, chat, seed):
        if "{word}" in chat[0].content + "everybody": return Answer("", "content_filter")
        return Answer("SELECT 1" if seed % 2 else "do you know anybody ?", "length" if seed % 7 == 0 else "stop")
"""


def test_a_chat_that_moderation_stops_is_one_lost_chat_also_where_it_is_the_first(tmp_path: Path) -> None:
    first = ChatWorker(replace(SMALL, corpus=EMBEDDED_FRIENDS, controls=False)).scenario(0).tables[0][0][0]
    (tmp_path / "own.py").write_text(MODERATED.replace("{word}", f": {first}"))
    config = replace(SMALL, model=f"{tmp_path / 'own.py'}:Moderated", strategies="none", controls=False)
    result = run(config, tmp_path / "run", Silent())
    played = rows(tmp_path / "run")
    lost = [row for row in played if row["status"] == "error"]
    assert 0 < len(lost) < len(played)
    assert {row["error"].splitlines()[0] for row in lost} == {"no answer (filtered)"}
    assert {(row["pair"], row["strategy"]) for row in lost} == {(MODEL, NORMAL)}
    answers = sum(side for row in played for side in row["answers"])
    filtered = sum(side["filtered"] for row in played for side in row["no_reply"])
    used = (RunFolder.load(tmp_path / "run").summary() or {})[USAGE]
    assert used["asked"] == answers
    assert used["kinds"]["filtered"] == filtered > 0
    assert used["kinds"]["cut"] == sum(side for row in played if row["cut"] for side in row["cut"])
    assert result.metrics[of(NO_REPLY, MODEL, NORMAL)].value > 0
    assert any(warning.startswith(f"{len(lost)} of {len(played)} items failed") for warning in result.warnings)
    (tmp_path / "own.py").write_text(MODERATED.replace("{word}", "everybody"))
    silent = run(config, tmp_path / "silent", Silent())
    assert "every item failed" in silent.failure
    assert "filtered" in silent.failure


def test_one_403_in_the_first_check_costs_its_own_chat(tmp_path: Path) -> None:
    def says(number: int, body: dict[str, Any]) -> Said:
        if number == 0:
            return Said(b'{"error": {"message": "The request was blocked by content moderation."}}', 403)
        return Said(completion("SELECT 1"))

    with serving(says) as server:
        config = replace(SMALL, model=server.name, strategies="none", scenarios=3, max_events=4, controls=False)
        result = run(config, tmp_path / "run", Silent())
    assert [row["status"] for row in rows(tmp_path / "run")] == ["error", "ok", "ok"]
    assert result.chat_usage["kinds"]["filtered"] == 1
    assert not result.failure


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(JUDGE)
    return str(tmp_path / "own.py")


def test_a_judge_says_how_perplexing_what_is_heard_is_under_each_condition(own: str, tmp_path: Path) -> None:
    config = replace(SMALL, strategies="random-inputs", judge=f"{own}:Judge", controls=True)
    result = run(config, tmp_path / "run", Silent())
    for row in rows(tmp_path / "run"):
        heard = [event["heard"].split() if event["heard"] else [] for event in row["events"]]
        for side in (0, 1):
            said = [words for words, event in zip(heard, row["events"], strict=True) if event["side"] == side]
            assert row["num_words"][side] == sum(map(len, said))
            assert row["nll"][side] == pytest.approx(2.0 * row["num_words"][side], abs=0.13 * len(said))
    assert result.tables["Completion and turns"].columns[-2:] == ("perplexity", "n")
    assert 7.3 < result.metrics[of(PERPLEXITY, MODEL, NORMAL)].value < 8
    assert result.metrics[of(PERPLEXITY, MODEL, "unheard")].n == 0
    assert result.metrics[of(PERPLEXITY, "selectors", NORMAL)].n == 0
    assert "perplexity as " in (RunFolder.load(tmp_path / "run").summary() or {})["description"]
    assert set(EVALUATE_MUTUAL_FRIENDS.models(config)) == {"partner", "judge"}
    plain = run(replace(config, judge="", controls=False), tmp_path / "plain", Silent())
    assert "perplexity" not in plain.tables["Completion and turns"].columns
    assert PlayedChats(config).computes


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"judge": "openai:http://here/v1#model"}, ConfigError, "a server does not"),
        ({"judge": "hf:nowhere"}, CheckpointError, "needs a folder"),
        ({"judge": "runs/dynonet"}, ConfigError, "a chat model judges"),
        ({"judge": "OWN:Mute"}, ConfigError, "a judge of fluency needs scores"),
        ({"strategies": "liar:hf:nowhere"}, CheckpointError, "needs a folder"),
        ({"strategies": "liar:openai:http://here/v1"}, ConfigError, "names a URL and a model"),
        ({"strategies": "liar:OWN:JUDGE"}, ConfigError, "JUDGE"),
        ({"strategies": "liar:a.py:X,liar:b.py:X"}, ConfigError, "the same name"),
    ],
)
def test_what_cannot_lie_or_judge_is_told_before_there_is_a_run(
    own: str, tmp_path: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    told = {name: value.replace("OWN", own) for name, value in changes.items()}
    with pytest.raises(error, match=message):
        run(replace(SMALL, **told), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
