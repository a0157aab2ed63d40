"""Log probabilities of servers: each shape is read; a server that ignores the field, or shows other tokens, is noticed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.envs.core.errors import ConfigError, ModelError, RefusedModelError
from parley.policies.chat.answers import ChatAnswers, RememberedChatModel, answer_key, kept_answers
from parley.policies.chat.first_question import understood
from parley.policies.chat.loading import load_chat_model
from parley.policies.chat.logprobs import FEWER
from parley.policies.chat.model import (
    MOST_FIRST_TOKENS,
    Access,
    Answer,
    ChatDecoding,
    Message,
    ReplyScore,
    RunUsage,
    first_token_nats,
    require_access,
)
from parley.policies.chat.ranker import ChatRanker
from parley.policies.chat.server import ServedChatModel
from parley.policies.chat.settings import ChatModelSettings
from tests.policies.chat.fake_server import Said, completion, serving

CHAT = (Message("user", "hello"),)
SETTINGS = ChatModelSettings(logprobs="reply")
FIRST = ChatDecoding(max_tokens=8, first_tokens=MOST_FIRST_TOKENS)


def chat_logprobs(*likeliest: tuple[str, float], token: str | None = None) -> dict[str, Any]:
    tops = [{"token": name, "logprob": nats, "bytes": list(name.encode())} for name, nats in likeliest]
    return {"content": [{"token": likeliest[0][0] if token is None else token, "logprob": -0.1, "top_logprobs": tops}]}


def said(text: str, **more: Any) -> Said:
    document = json.loads(completion(text))
    document["choices"][0] |= {name: value for name, value in more.items() if name != "prompt_logprobs"}
    document |= {name: value for name, value in more.items() if name == "prompt_logprobs"}
    return Said(json.dumps(document).encode())


def test_first_tokens_come_with_answers_and_are_kept_with_them(tmp_path: Path) -> None:
    logprobs = chat_logprobs(("Su", -2.0), ("Sure", -0.5), (" Sure", -1.5), ("No", -3.0), ("never", -9999.0), token="Sure")
    with serving(lambda number, body: said("Sure, here", logprobs=logprobs)) as server:
        model = RememberedChatModel(load_chat_model(server.name, SETTINGS), ChatAnswers(tmp_path))
        (answer,) = model.answer([CHAT], decoding=FIRST)
        (again,) = RememberedChatModel(model.inner, ChatAnswers(tmp_path)).answer([CHAT], decoding=FIRST)
        (plain,) = model.answer([CHAT], decoding=replace(FIRST, first_tokens=0))
    assert answer.first_tokens == (("Sure", -0.5), (" Sure", -1.5), ("Su", -2.0), ("No", -3.0)), "the likeliest first"
    assert FEWER in answer.notes
    assert again == replace(answer, known=True)
    assert (server.asked[0]["logprobs"], server.asked[0]["top_logprobs"]) == (True, 20)
    assert len(server.asked) == 2
    assert "logprobs" not in server.asked[1]
    assert plain.first_tokens == ()
    together = math.log(math.exp(-0.5) + math.exp(-1.5) + math.exp(-2))
    assert first_token_nats(answer, " Sure, here") == pytest.approx(min(0.0, together))
    assert first_token_nats(answer, "Never") == -math.inf


def test_keys_of_answers_without_log_probabilities_stay_as_they_were() -> None:
    plain = answer_key("m", CHAT, ChatDecoding(max_tokens=8), None)
    assert plain == "81a43c63fa2a063146a417cbb760c6ee", "as before there were log probabilities"
    assert answer_key("m", CHAT, FIRST, None) != plain


@pytest.mark.parametrize(
    ("response", "error", "match"),
    [
        (said("Sure"), RefusedModelError, "shows no log probabilities"),
        (said("Sure", logprobs=None), RefusedModelError, "as if they were not asked for"),
        (said("Sure", logprobs={"content": []}), RefusedModelError, "shows no log probabilities"),
        (said("Sure", logprobs=chat_logprobs(("Well", -0.1))), ModelError, "other tokens than its answer's"),
        (said("<think>so</think>Sure", logprobs=chat_logprobs(("<think>", -0.1))), RefusedModelError, "the model's reasoning"),
        (
            Said(b'{"error": {"message": "logprobs is not supported", "param": "logprobs"}}', 400),
            RefusedModelError,
            "shows no log",
        ),
    ],
)
def test_a_server_that_shows_none_is_noticed_at_once(response: Said, error: type[ModelError], match: str) -> None:
    with serving(lambda number, body: response) as server:
        with pytest.raises(error, match=match) as raised:
            load_chat_model(server.name, SETTINGS).answer([CHAT], decoding=FIRST)
        assert len(server.asked) == 1, "no further attempt helps"
        assert isinstance(raised.value, RefusedModelError) == (error is RefusedModelError)


def test_a_server_that_allows_fewer_is_asked_for_fewer() -> None:
    def says(number: int, body: dict[str, Any]) -> Said:
        if body["top_logprobs"] > 5:
            return Said(b'{"error": {"message": "top_logprobs must be less than or equal to 5", "param": "top_logprobs"}}', 400)
        return said("Sure", logprobs=chat_logprobs(("Sure", -0.1)))

    with serving(says) as server:
        (answer,) = load_chat_model(server.name, SETTINGS).answer([CHAT], decoding=FIRST)
        assert [body["top_logprobs"] for body in server.asked] == [20, 5]
    assert answer.first_tokens == (("Sure", -0.1),)


def vllm(tokens: list[tuple[str, float]]) -> Callable[[int, dict[str, Any]], Said]:
    places = [
        None,
        *(
            {"7": {"decoded_token": token, "logprob": nats}, "9": {"decoded_token": "x", "logprob": -0.01}}
            for token, nats in tokens
        ),
    ]
    return lambda number, body: said("x", prompt_logprobs=places if "prompt_logprobs" in body else None)


def test_a_given_reply_is_scored_by_prompt_log_probabilities() -> None:
    with serving(vllm([("hello", -9.0), ("\n", -8.0), ("Yes", -0.5), (" sir", -0.25)])) as server:
        model = ServedChatModel(server.name, SETTINGS)
        assert model.access is Access.SCORES
        assert model.score([CHAT, CHAT], ["Yes sir", " sir"]) == [ReplyScore(-0.75, 2), ReplyScore(-0.25, 1)]
        with pytest.raises(ModelError, match="other tokens than the reply's"):
            model.score([CHAT], ["no"])
        with pytest.raises(ConfigError, match="no likelihood"):
            model.score([CHAT], [" "])
    asked = next(body for body in server.asked if body["messages"][-1]["content"] == "Yes sir")
    assert asked["messages"] == [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Yes sir"}]
    assert (asked["prompt_logprobs"], asked["add_generation_prompt"], asked["continue_final_message"]) == (1, False, True)
    with serving(vllm([])) as silent, pytest.raises(RefusedModelError, match="no log probabilities of a given reply"):
        ServedChatModel(silent.name, SETTINGS).score([CHAT], ["Yes"])


def letters(number: int, body: dict[str, Any]) -> Said:
    """Say one letter, and show every letter as a token of a nat, as a server of completions does that echoes."""
    text = body["prompt"] + "!" if body.get("echo") else "!"
    logprobs = {
        "tokens": list(text),
        "token_logprobs": [None, *[-1.0] * (len(text) - 1)],
        "top_logprobs": [{"!": -0.5, "?": -2.0}],
    }
    choice = {"text": text, "finish_reason": "length", "logprobs": logprobs if body.get("logprobs") else None}
    return Said(json.dumps({"choices": [choice]}).encode())


def test_a_server_of_completions_goes_on_with_text_and_echoes_a_given_reply() -> None:
    with serving(letters) as server:
        model = ServedChatModel(f"openai:{server.url}/v1/completions#fake", SETTINGS)
        assert model.score([CHAT, CHAT], ["abc", "d"]) == [ReplyScore(-3.0, 3), ReplyScore(-1.0, 1)]
        (answer,) = model.answer([CHAT], decoding=FIRST)
    assert set(server.paths) == {"/v1/completions"}
    scored = next(body for body in server.asked if body["prompt"].endswith("abc"))
    assert server.asked[0]["prompt"] == "one two\nthree four five", "one try, before all others"
    assert (scored["prompt"], scored["echo"], scored["logprobs"], "messages" in scored) == ("hello\nabc", True, 1, False)
    assert (server.asked[-1]["prompt"], server.asked[-1]["logprobs"], "echo" in server.asked[-1]) == ("hello\n", 20, False)
    assert answer.first_tokens == (("!", -0.5), ("?", -2.0))


def test_scores_of_a_server_are_counted_priced_and_kept(tmp_path: Path) -> None:
    def says(number: int, body: dict[str, Any]) -> Said:
        answer = vllm([("hello", -9.0), ("Yes", -0.5)])(number, body)
        document = json.loads(answer.body) | {"usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}}
        return Said(json.dumps(document).encode())

    settings = replace(SETTINGS, prices="1/10", max_requests=100, max_cost=99.0)
    with serving(says) as server:
        model = kept_answers(ServedChatModel(server.name, settings), tmp_path)
        scores = [model.score([CHAT, CHAT, (Message("user", "hi"),)], ["Yes"] * 3) for _ in range(2)]  # type: ignore[attr-defined]
        assert (scores[0], len(server.asked)) == ([ReplyScore(-0.5, 1)] * 3, 2), "a kept score is not asked for again"
        assert scores[1] == scores[0]
    (usage,) = ChatAnswers(tmp_path).usage().values()
    assert (usage.asked, usage.scored, usage.tokens_in, usage.tokens_out, usage.uncounted) == (0, 2, 18, 2, 0)
    assert usage.cost(settings, server.name) == pytest.approx(0.038), "2 x (9 x 1 + 1 x 10) / 1000"
    sums = json.loads((tmp_path / "requests.json").read_text())
    assert (sums["requests"], sums["cost"]) == (2, pytest.approx(0.038))
    assert "0 answers, 2 scores of given replies: 18 tokens read, 2 written" in RunUsage({server.name: usage}).summary(settings)


def test_a_ranker_of_a_server_prefers_the_likelier_reply() -> None:
    def says(number: int, body: dict[str, Any]) -> Said:
        nats = -0.5 if body["messages"][-1]["content"] == "good" else -4.0
        return vllm([(body["messages"][-1]["content"], nats)])(number, body)

    with serving(says) as server:
        ranker = ChatRanker(ServedChatModel(server.name, SETTINGS))
        assert ranker.score_all([((("hi",),), [("good",), ("bad",)])])[0].tolist() == [-0.5, -4.0]
        with pytest.raises(ConfigError, match=r"chat\.logprobs=reply"):
            ChatRanker(ServedChatModel(server.name, replace(SETTINGS, logprobs="first")))
        with pytest.raises(ConfigError, match=r"chat\.logprobs=first"):
            require_access(ServedChatModel(server.name, ChatModelSettings()), Access.FIRST_TOKENS, "a search")


def test_first_tokens_of_local_weights_are_their_scores() -> None:
    from parley.policies.chat.local import LocalChatModel
    from tests.policies.chat.tiny import tiny_chat

    local = LocalChatModel("tiny", *tiny_chat())
    (answer,) = local.answer([CHAT], decoding=FIRST)
    assert len(answer.first_tokens) > 3
    assert [nats for _, nats in answer.first_tokens] == sorted((nats for _, nats in answer.first_tokens), reverse=True)
    token, nats = next((token, nats) for token, nats in answer.first_tokens if token.strip() and "<" not in token)
    (score,) = local.score([CHAT], [token])
    assert (score.nats, score.num_tokens) == (pytest.approx(nats, abs=1e-5), 1)
    assert Answer("x").first_tokens == ()


def test_a_server_whose_log_probabilities_are_those_of_the_next_token_is_noticed() -> None:
    def late(number: int, body: dict[str, Any]) -> Said:
        text = body["prompt"]
        logprobs = {"tokens": list(text), "token_logprobs": [None, *[-1.0] * (len(text) - 1)]}
        return Said(json.dumps({"choices": [{"text": f"{text}!", "finish_reason": "length", "logprobs": logprobs}]}).encode())

    with serving(late) as server, pytest.raises(RefusedModelError, match="one token late"):
        ServedChatModel(f"openai:{server.url}/v1/completions#fake", SETTINGS).score([CHAT], ["a"])


@pytest.mark.parametrize(
    ("logprobs", "shown"),
    [
        (
            chat_logprobs(("hi", -0.1)),
            "log probabilities of 1 first tokens, but the server shows no log probabilities of a given",
        ),
        (None, "the server shows no log probabilities"),
    ],
)
def test_the_first_question_says_what_a_server_shows(logprobs: Any, shown: str) -> None:
    with serving(lambda number, body: said("hi", logprobs=logprobs if body.get("logprobs") else None)) as server:
        model = ServedChatModel(server.name, SETTINGS)
        decoding = ChatDecoding(max_tokens=8)
        (answer,) = model.answer([CHAT], decoding=decoding)
        assert shown in understood(model, CHAT, answer, decoding, 0)
        plain = ServedChatModel(server.name, ChatModelSettings())
        assert "log prob" not in understood(plain, CHAT, answer, decoding, 0)
