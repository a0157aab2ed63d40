"""Chat models in the seats of response models, rankers and judges, and what `parley check` says of one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.engine.core.verbs.api import check_part
from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.compiled import RepliedPair
from parley.envs.corpora.pairs.turns import parse_turns
from parley.policies.chat.local import ChatResponder, chat_of_turns
from parley.policies.chat.model import Access, Answer, Chat, ChatDecoding, Message
from parley.policies.chat.questions import REPAIR as RATE_AGAIN
from parley.policies.chat.questions import UNRATED
from parley.policies.chat.ranker import RatingRanker
from parley.policies.chat.seat import chat_model
from parley.policies.chat.settings import DEFAULT
from parley.policies.core.responder import DecoderSettings
from parley.policies.core.responders import load_responder
from parley.policies.generation.judges.judge import Answering, JudgeSettings, Parsing, Remembered, scores_by
from parley.policies.generation.judges.prompted import REPAIR, PromptedJudge, PromptedSides, judge_maker, question_of, side_of
from parley.policies.ranking.ranker import UnscoredError, outcomes_of, scores_of
from parley.policies.ranking.rankers import load_ranker
from tests.policies.chat.fake_server import Said, completion, serving
from tests.policies.chat.tiny import saved

OWN = '''
class Echo:
    """Says the last message again, and so often how many there are."""

    def reply(self, messages):
        return f"{len(messages)} {messages[-1]['content']}\\nIt's me."


def reply(messages):
    return messages[-1]["content"].upper()


def always(messages):
    return "hello"


class Forgetful:
    def __init__(self):
        self.asked = 0

    def answer(self, chats, *, decoding, seeds=()):
        self.asked += 1
        return [f"{self.asked}" for _ in chats]
'''


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def test_turns_alternate_and_the_user_is_first_and_last() -> None:
    assert chat_of_turns(["a"]) == (Message("user", "a"),)
    assert chat_of_turns(["a", "b"]) == (Message("user", "a\nb"),)
    assert chat_of_turns(["a", "b", "c"]) == (Message("user", "a"), Message("assistant", "b"), Message("user", "c"))


def test_a_chat_model_of_ones_own_replies_to_contexts(own: Path) -> None:
    (reply,) = load_responder(f"{own}:Echo").respond([parse_turns("do n't <eot> hi <eot> i ca n't see ( it )")])
    assert reply == (("3", "i", "ca", "n't", "see", "(", "it", ")"), ("it", "'s", "me", "."))
    assert load_responder(f"{own}:reply").respond([parse_turns("hi")]) == [(("hi",),)]


def test_a_server_replies_to_contexts_and_remembers(tmp_path: Path) -> None:
    def says(number: int, body: dict[str, Any]) -> Said:
        return Said(completion(f"{body['temperature']} {body.get('seed')}"))

    with serving(says) as server:
        responder = load_responder(server.name, answers=tmp_path)
        contexts = [parse_turns("hello"), parse_turns("you there ?")]
        assert responder.respond(contexts) == [(("0.0", "none"),)] * 2
        drawn = responder.respond(contexts, decoder=DecoderSettings.parse("sample:0.5"), seeds=[3, 4])
        assert drawn == [(("0.5", "3"),), (("0.5", "4"),)]
        load_responder(server.name, answers=tmp_path).respond(contexts)
        assert len(server.asked) == 4
        with pytest.raises(ConfigError, match="greedy, sample"):
            responder.respond(contexts, decoder=DecoderSettings.parse("beam:3"))
    assert isinstance(responder, ChatResponder)


def test_a_causal_folder_ranks_by_the_log_probability_of_a_reply(tmp_path: Path) -> None:
    ranker = load_ranker(f"hf:{saved(tmp_path)}")
    context = (("hello", "there"),)
    candidates = [("you", "are", "a", "fool"), (), ("oh",), ("oh",)]
    scores = scores_of(ranker, [(context, candidates), (context, [])])[0]
    from parley.policies.chat.loading import load_chat_model

    model = load_chat_model(f"hf:{tmp_path}")
    wanted = model.score([(Message("user", "hello there"),)] * 2, ["you are a fool", "oh"])  # type: ignore[attr-defined]
    assert scores[[0, 2]] == pytest.approx([wanted[0].nats / 4, wanted[1].nats])
    assert scores[1] < scores[[0, 2, 3]].min()
    assert scores[2] == scores[3]


def test_runs_of_a_process_share_the_weights_and_not_the_answers(tmp_path: Path) -> None:
    name = f"hf:{saved(tmp_path)}"
    one, other = (chat_model(name, DEFAULT, answers=tmp_path / run) for run in ("one", "other"))
    assert one.inner is other.inner is chat_model(name, DEFAULT, answers=None)  # type: ignore[attr-defined]
    assert (tmp_path / "one").is_dir()
    assert (tmp_path / "other").is_dir()


def test_a_server_rates_replies_is_asked_once_more_and_remembers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def says(number: int, body: dict[str, Any]) -> Said:
        question = body["messages"][0]["content"]
        repaired = body["messages"][-1]["content"] == RATE_AGAIN
        if "mumble" in question:
            return Said(completion("It fits rather well, 90."))
        if "tidy" in question and not repaired:
            return Said(completion("Rating: 80, I think"))
        assert "- hello there\n- who?" in question
        return Said(completion(" -5 " if "much" in question else "80." if repaired else "7"))

    context = (("hello", "there"), ("who", "?"))
    candidates = [("a", "fool"), ("tidy",), (), ("mumble",), ("a", "fool"), ("too", "much")]
    with serving(says) as server, caplog.at_level(logging.WARNING):
        ranker = load_ranker(server.name, answers=tmp_path)
        assert scores_of(ranker, [(context, candidates)])[0].tolist() == [7, 80, UNRATED, UNRATED, 7, UNRATED]
        assert "of its ratings 2 of another form, asked twice; further" in caplog.text
        asked = len(server.asked)
        assert asked == 4 + 3
        again = load_ranker(server.name, answers=tmp_path).score(context, candidates[::-1])
        assert list(again) == [UNRATED, 7, UNRATED, UNRATED, 80, 7]
        assert len(server.asked) == asked


class Thinks:
    """Needs room to think before it says a word; says nothing of some replies, whatever room it has."""

    name, access = "thinks", Access.TEXT

    def __init__(self, reply: str) -> None:
        self._reply, self.room = reply, list[int]()

    def answer(self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Answer]:
        self.room += [decoding.max_tokens] * len(chats)
        return [self._said(chat[0].content, decoding.max_tokens) for chat in chats]

    def _said(self, question: str, room: int) -> Answer:
        if "blocked" in question:
            return Answer("", "content_filter")
        if room < 1000 or "deep" in question:
            return Answer("", "length", reasoning="Let me see.")
        return Answer("I cannot say." if "mumble" in question else self._reply)


def test_a_rater_that_was_cut_in_thinking_is_asked_with_more_room_and_what_stays_lost_is_no_rating() -> None:
    context, model = (("hello", "there"),), Thinks("70")
    ranker = RatingRanker(model)
    assert list(ranker.score(context, [("fine",)])) == [70]
    assert model.room == [16, 1024]
    fine, blocked, deep = outcomes_of(
        ranker, [(context, [("fine",)]), (context, [("fine",), ("blocked",)]), (context, [("deep",), ("fine",)])]
    )
    assert isinstance(fine, np.ndarray)
    assert isinstance(blocked, UnscoredError)
    assert (blocked.what, blocked.got) == ("no answer (filtered)", "1 of 2 replies are not rated")
    assert isinstance(deep, UnscoredError)
    assert deep.what == "no answer (cut in thinking)"
    assert "chat.judge_tokens" in str(deep)
    assert model.room[2:] == [16] * 3 + [1024] * 2, "what moderation stopped stays stopped"
    with pytest.raises(UnscoredError):
        ranker.score(context, [("blocked",)])
    roomy = Thinks("70")
    assert list(RatingRanker(roomy, max_tokens=2000).score(context, [("fine",)])) == [70]
    assert roomy.room == [2000]


@pytest.mark.parametrize(
    ("text", "side"),
    [("human", 1), ("Machine.", -1), (" **Human** ", 1), ("a human", None), ("human or machine", None), ("", None)],
)
def test_an_answer_is_one_of_two_words_or_says_nothing(text: str, side: float | None) -> None:
    assert side_of(text) == side


def pairs(num: int, *words: str) -> list[RepliedPair]:
    return [RepliedPair((("question", str(number)),), (*words, str(number))) for number in range(num)]


def test_a_chat_judge_asks_once_more_and_counts_what_it_cannot_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def says(number: int, body: dict[str, Any]) -> Said:
        asked = body["messages"][0]["content"]
        if "mumble" in asked:
            return Said(completion("I cannot say."))
        if "tidy" in asked and body["messages"][-1]["content"] != REPAIR:
            return Said(completion("It was surely written by a machine, I think."))
        return Said(completion("human" if "person" in asked.split("Reply:")[1] else "Machine."))

    people, systems = pairs(4, "person"), pairs(4, "tidy")
    odd = pairs(1, "mumble")
    with serving(says) as server, caplog.at_level(logging.WARNING):
        judge = judge_maker(server.name, JudgeSettings(answers=str(tmp_path)))()
        judge.fit([*people[:2], *systems[:2]], np.array([True, True, False, False]), 1)
        scores = scores_by(judge, [*people[2:], *systems[2:], *odd])
        assert (scores[:2] > 0).all()
        assert (scores[2:4] < 0).all()
        assert isinstance(judge, Parsing)
        assert judge.num_unparsable([*people, *systems, *odd]) == 1
        num = len(server.asked)
        assert num == 4 + 2 * 4 + 2
        again = judge_maker(server.name, JudgeSettings(answers=str(tmp_path)))()
        again.fit([*people, *systems], np.array([True] * 4 + [False] * 4), 1)
        assert len(server.asked) == num, "its answers are in the run"
    assert "says neither human nor machine: 1 of another form, asked twice" in caplog.text


def test_a_chat_judge_counts_what_is_no_reply_apart() -> None:
    sides = PromptedSides(Thinks("human"), 1000)
    judge = PromptedJudge(sides, Remembered(sides))
    asked = [*pairs(2, "person"), *pairs(3, "blocked"), *pairs(1, "mumble")]
    assert isinstance(judge, Parsing)
    assert isinstance(judge, Answering)
    assert judge.num_unparsable(asked) == 1
    assert judge.no_replies(asked) == {"filtered": 3}
    assert sides(asked).tolist() == [1, 1, 0, 0, 0, 0]


def test_a_question_holds_the_conversation_as_people_write_it() -> None:
    (message,) = question_of(RepliedPair((("do", "n't", "{x}"), ("hi",)), ("it", "'s", "me")))
    assert "- don't {x}\n- hi" in message.content
    assert "Reply: it's me" in message.content


def test_parley_check_knows_chat_models(own: Path) -> None:
    for name, kept in (("Echo", True), ("reply", True), ("always", True), ("Forgetful", False)):
        found = check_part(f"{own}:{name}")
        assert [each.kind.name for each in found] == ["chat model"]
        assert found[0].kept is kept
