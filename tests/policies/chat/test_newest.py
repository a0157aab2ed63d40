"""Contexts that are longer than a chat model reads: the oldest turns are left out, whatever else is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs.candidates.groups import Context
from envs.pairs.turns import Utterance
from policies.chat.model import ChatTooLongError
from policies.chat.newest import NewestTurns, Questions
from policies.ranker import Unread, outcomes_of, scores_of, unread_of
from policies.rankers import load_ranker
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
        assert "longer than the model reads" in str(never)


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
