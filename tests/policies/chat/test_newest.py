"""Contexts that are longer than a chat model reads: the oldest turns are left out, whatever else is asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.envs.core.play import AgentError
from parley.envs.corpora.pairs.compiled import RepliedPair
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import Context
from parley.policies.chat.answers import kept_answers, usage_of
from parley.policies.chat.local import ChatResponder
from parley.policies.chat.model import (
    Access,
    Answer,
    AnswerKind,
    Chat,
    ChatDecoding,
    ChatTooLongError,
    ChatUsage,
    Message,
    ReplyScore,
)
from parley.policies.chat.negotiator import nats_by_chat
from parley.policies.chat.newest import LEFT_OUT, SeatedChatModel, newest_forms
from parley.policies.chat.questions import StrictQuestion
from parley.policies.chat.ranker import NewestTurns, Questions
from parley.policies.core.responder import replies_of
from parley.policies.generation.judges.prompted import REPAIR, PromptedSides
from parley.policies.ranking.ranker import Unread, outcomes_of, scores_of, unread_of
from parley.policies.ranking.rankers import load_ranker
from tests.policies.chat.fake_server import Said, completion, serving
from tests.policies.chat.tiny import saved

LONG: Context = (("oh",) * 9, ("you", "fool"), ("hello",) * 7, ("who", "are", "you"))
SHORT: Context = (("hello", "there"),)
REPLIES: list[Utterance] = [("oh",), ("you", "are", "a", "fool"), ("fool",) * 10]


def test_a_causal_model_reads_the_newest_turns_behind_which_replies_fit(tmp_path: Path) -> None:
    ranker = load_ranker(f"hf:{saved(tmp_path, positions=32)}")
    (found,) = scores_of(ranker, [(LONG, REPLIES)])
    # Three words and their marks, seven and theirs; 8 of the 32 tokens are kept for a reply.
    (newest,) = scores_of(ranker, [(LONG[1:], REPLIES[:2])])
    assert found[:2].tolist() == newest.tolist()
    assert unread_of(ranker, LONG, REPLIES).turns >= 1
    assert unread_of(ranker, SHORT, REPLIES) == Unread()
    # Neither company, nor a neighbour that is longer, nor the order changes a score.
    alone = [scores_of(ranker, [(LONG, [reply])])[0][0] for reply in REPLIES]
    assert found.tolist() == alone
    together = scores_of(ranker, [(SHORT, REPLIES), (LONG, REPLIES[::-1])])[1]
    assert together[::-1].tolist() == alone


def test_what_fits_in_no_way_is_an_error_of_its_own_context(tmp_path: Path) -> None:
    ranker = load_ranker(f"hf:{saved(tmp_path, positions=32)}")
    newest = (*SHORT, ("oh",) * 40)
    whole, lost, reply = outcomes_of(ranker, [(SHORT, REPLIES), (newest, REPLIES), (SHORT, [("oh",) * 40])])
    assert isinstance(whole, np.ndarray)
    assert "longer than the model reads" in str(lost)
    assert "longer than the model reads" in str(reply)


def test_a_server_that_reads_less_is_asked_with_fewer_turns(tmp_path: Path) -> None:
    def says(number: int, body: dict[str, Any]) -> Said:
        question = body["messages"][0]["content"]
        if "oh oh oh" in question.replace("\n", " ").split("Reply:")[0]:
            return Said(json.dumps({"error": {"message": "This model's maximum context length is 99 tokens"}}).encode(), 400)
        return Said(completion(str(question.count("\n- "))))

    with serving(says) as server:
        ranker = load_ranker(server.name, answers=tmp_path)
        long, short = scores_of(ranker, [(LONG, REPLIES), (SHORT, REPLIES[:1])])
        assert long.tolist() == [3, 3, 3]
        assert short.tolist() == [1]
        assert unread_of(ranker, LONG, REPLIES) == Unread(turns=1)
        assert unread_of(ranker, SHORT, REPLIES) == Unread()
        (never,) = outcomes_of(ranker, [((("oh",) * 3,), REPLIES)])
        assert "no answer (too long)" in str(never)


def test_turns_go_one_by_one_and_for_each_reply_by_itself() -> None:
    def ask(asked: Questions) -> list[int]:
        if any(sum(map(len, context)) + len(reply) > 12 for context, reply in asked):
            raise ChatTooLongError("too long")
        return [len(context) for context, _ in asked]

    newest = NewestTurns(ask)
    assert newest([(LONG, REPLIES[0]), (LONG, REPLIES[1]), (SHORT, REPLIES[2])]) == [2, 1, 1]
    assert newest.left_out == {LONG: 3}
    assert NewestTurns(ask, lambda context: len(context) < 2)([(LONG, REPLIES[0])]) == [1]
    with pytest.raises(ChatTooLongError):
        newest([((("oh",) * 13,), REPLIES[0])])


class Short:
    """Says how many messages it is given, or `says`; it reads so many words and no more."""

    access = Access.SCORES

    def __init__(self, longest: int, says: str = "") -> None:
        self.name, self.longest, self.says, self.usage = "short", longest, says, ChatUsage()
        self.chats: list[Chat] = []

    def answer(self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Answer]:
        self._require_room(chats)
        self.chats += chats
        answers = [Answer(self.says or f"{len(chat)}", "stop", 1, 1) for chat in chats]
        self.usage.count(answers)
        return answers

    def score(self, chats: Sequence[Chat], replies: Sequence[str]) -> list[ReplyScore]:
        self._require_room(chats)
        return [ReplyScore(-float(len(chat)), 1) for chat in chats]

    def _require_room(self, chats: Sequence[Chat]) -> None:
        if any(sum(len(message.content.split()) for message in chat) > self.longest for chat in chats):
            raise ChatTooLongError("too long")


SYSTEM, TALK = (
    Message("system", "play"),
    [("user", "a b"), ("assistant", "c d"), ("user", "e f"), ("assistant", "g h"), ("user", "i")],
)
CHAT: Chat = (SYSTEM, *(Message(role, text) for role, text in TALK))


def test_the_system_and_the_last_message_stay_and_the_user_comes_first() -> None:
    assert newest_forms(CHAT) == [CHAT, (SYSTEM, *CHAT[3:]), (SYSTEM, CHAT[5])]
    assert newest_forms(CHAT[1:]) == [CHAT[1:], CHAT[3:], CHAT[5:]]
    assert newest_forms((CHAT[1],)) == [(CHAT[1],)]
    assert newest_forms((SYSTEM, *CHAT[1:3])) == [(SYSTEM, *CHAT[1:3])]


def test_a_player_reads_the_newest_turns_and_what_is_too_long_alone_is_a_lost_answer_of_its_row() -> None:
    model, noted = Short(6), list[tuple[int, Answer]]()
    seat = SeatedChatModel("short", lambda: model, 0.5, 8)
    chats = [CHAT, (SYSTEM, CHAT[1]), (SYSTEM, Message("user", "x " * 9))]
    answers = seat.answers([4, 5, 6], chats, [1, 2, 3], lambda row, answer: noted.append((row, answer)))
    assert [(answer.text, answer.kind, answer.notes) for answer in answers] == [
        ("4", AnswerKind.REPLY, (LEFT_OUT,)),
        ("2", AnswerKind.REPLY, ()),
        ("", AnswerKind.TOO_LONG, ()),
    ]
    assert len(noted) == 3, "no other seed makes it shorter"
    assert model.usage.kinds == {"reply": 2, "too long": 1}
    assert model.usage.notes == {LEFT_OUT: 1}
    with pytest.raises(AgentError, match="no answer \\(too long\\)") as error:
        seat.replies([4, 5, 6], chats, [1, 2, 3], lambda row, answer: None)
    assert error.value.rows == (6,)


def test_likelihoods_are_those_behind_the_newest_turns() -> None:
    model = Short(6)
    told = nats_by_chat(model, [CHAT, (SYSTEM, CHAT[1])], [["y", "n"], ["y"]])
    assert [nats.tolist() for nats in told] == [[-4, -4], [-2]]
    assert model.usage.notes == {LEFT_OUT: 1}
    with pytest.raises(ChatTooLongError):
        nats_by_chat(Short(1), [CHAT], [["y"]])


def test_a_response_model_reads_fewer_turns_and_a_run_counts_both_that_and_what_is_lost(tmp_path: Path) -> None:
    contexts = [(("a b",), ("c d",)), (("e",),), (("f g h i",),)]
    turns = [tuple((tuple(text.split()),) for (text,) in context) for context in contexts]
    for number in range(2):
        model = Short(3)
        responder = ChatResponder(kept_answers(model, tmp_path / "answers"))
        first, second, third = replies_of(responder, turns)
        assert [reply.answer and reply.answer.kind for reply in (first, second, third)] == ["reply", "reply", "too long"]
        assert [reply.answer and reply.answer.notes for reply in (first, second, third)] == [(LEFT_OUT,), (), ()]
        assert [chat[-1].content for chat in model.chats] == ([] if number else ["c d", "e"]), "nothing is asked twice"
    (usage,) = usage_of(tmp_path).models.values()
    assert (usage.asked, usage.kinds["too long"], usage.notes) == (3, 1, {LEFT_OUT: 1})


def test_a_strict_question_reads_a_shorter_form_and_has_no_room_for_a_repair() -> None:
    def forms(text: str) -> list[Chat]:
        words = text.split()
        return [(Message("user", " ".join(words[start:])),) for start in range(len(words))]

    model = Short(3, "maybe")
    yes = StrictQuestion(model, lambda text: 1 if text == "yes" else None, "say yes or no")
    (odd,) = yes([forms("a b c d")])
    assert (odd.value, odd.kind, odd.num_answers, odd.form) == (None, AnswerKind.REPLY, 1, 1)
    assert (yes.unparsable, model.usage.kinds) == (1, {"reply": 1}), "a repair that nobody asked is no answer"
    (lost,) = yes([[(Message("user", "a b c d"),)]])
    assert (lost.value, lost.kind, lost.is_lost) == (None, AnswerKind.TOO_LONG, True)
    assert yes.note() == "1 of another form, asked twice; 1 no reply (1 too long)"


def test_a_judge_reads_the_newest_turns_and_a_pair_that_is_too_long_is_counted() -> None:
    model = Short(36, "human")
    sides = PromptedSides(model)
    pairs = [RepliedPair(LONG, ("hi",)), RepliedPair(SHORT, ("oh",) * 30)]
    assert sides(pairs).tolist() == [1.0, 0.0]
    assert REPAIR not in [message.content for chat in model.chats for message in chat]
    assert "- you fool" not in model.chats[0][0].content
    assert model.chats[0][0].content.count("\n- ") < len(LONG)
    assert list(sides.lost.items()) == [(pairs[1], AnswerKind.TOO_LONG)]
