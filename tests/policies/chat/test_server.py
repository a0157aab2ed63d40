"""Servers that answer, fail, dawdle, cut, ask for patience and say keys again."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from parley.envs.core.errors import ConfigError, ModelError, OutOfRangeError
from parley.policies.chat.answers import ChatAnswers, usage_of
from parley.policies.chat.loading import load_chat_model
from parley.policies.chat.model import (
    ANSWERS,
    MODERATED,
    Access,
    Answer,
    Chat,
    ChatDecoding,
    ChatModel,
    ChatTooLongError,
    ChatUsage,
    Message,
    RunUsage,
)
from parley.policies.chat.server import MAX_FAILED
from parley.policies.chat.settings import ChatAsking, ChatModelSettings
from tests.policies.chat.fake_server import Said, completion, serving

KEY = "sk-verysecretkey0123456789"
QUICK = ChatModelSettings(timeout_s=60, max_attempts=3, concurrency=4)
GREEDY = ChatDecoding(max_tokens=5)


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("PARLEY_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)


def chats(num: int = 1) -> list[Chat]:
    return [(Message("system", "be brief"), Message("user", f"question {number}")) for number in range(num)]


def echo(number: int, body: dict[str, Any]) -> Said:
    return Said(completion(f"{body['messages'][-1]['content']} {body.get('seed')}"))


def usage(model: ChatModel) -> Any:
    return model.usage  # type: ignore[attr-defined]


def test_each_chat_is_sent_as_the_protocol_says_and_gets_its_own_answer() -> None:
    with serving(echo) as server:
        model = load_chat_model(server.name, dataclasses.replace(QUICK, prices="1/2"))
        answers = model.answer(chats(9), decoding=ChatDecoding(temperature=0.5, max_tokens=5), seeds=range(9))
    assert [answer.text for answer in answers] == [f"question {number} {number}" for number in range(9)]
    assert {answer.num_tokens for answer in answers} == {3}
    assert all(answer.ended for answer in answers)
    assert server.paths == ["/v1/chat/completions"] * 9
    asked = next(body for body in server.asked if body["seed"] == 2)
    assert asked == {
        "model": "fake", "temperature": 0.5, "max_tokens": 5, "seed": 2,
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "question 2"}],
    }  # fmt: skip
    assert model.access is Access.TEXT
    assert (usage(model).asked, usage(model).tokens_in, usage(model).tokens_out) == (9, 63, 27)
    assert usage(model).cost(dataclasses.replace(QUICK, prices="1/2")) == pytest.approx(0.117)


def test_no_more_is_asked_at_once_than_is_allowed() -> None:
    three = threading.Barrier(3)

    def says(number: int, body: dict[str, Any]) -> Said:
        three.wait(timeout=60)
        # Time for a fourth to come, if it may.
        return Said(completion("x"), slow_s=0.1)

    with serving(says) as server:
        load_chat_model(server.name, dataclasses.replace(QUICK, concurrency=3)).answer(chats(6), decoding=GREEDY)
    assert server.most_at_once == 3


def test_an_answer_that_was_cut_at_its_limit_says_so() -> None:
    with serving(lambda number, body: Said(completion("so far", reason="length"))) as server:
        (answer,) = load_chat_model(server.name, QUICK).answer(chats(), decoding=GREEDY)
    assert (answer.text, answer.ended) == ("so far", False)


FAILING = {
    "busy": (Said(b"no", 503), "HTTP 503: no"),
    "nothing": (Said(b""), "an empty body"),
    "no json": (Said(b'{"choices": [{"mess'), "no JSON, or cut"),
    "cut": (Said(completion("x")[:20], promised=500), "broke off"),
    "an error": (Said(b'{"error": "overloaded"}'), "the server fails.*HTTP 200 with error 500: .*overloaded"),
    "empty choices": (Said(b'{"choices": []}'), "no choices"),
    "a list": (Said(b"[1, 2]"), "no choices"),
    "no message": (Said(b'{"choices": [{}]}'), "no message"),
    "limited": (Said(b"slow down", 429), "asks for patience"),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_failure_is_asked_again_and_then_told_with_what_and_where(name: str) -> None:
    said, told = FAILING[name]
    with serving(lambda number, body: said if number < 2 else Said(completion("at last"))) as server:
        model = load_chat_model(server.name, QUICK)
        (answer,) = model.answer(chats(), decoding=GREEDY)
        assert answer.text == "at last"
        assert usage(model).failed_attempts == 2
    with serving(lambda number, body: said) as server:
        with pytest.raises(ModelError, match=rf"(?s){told}.*3 attempts") as caught:
            load_chat_model(server.name, QUICK).answer(chats(), decoding=GREEDY)
        assert caught.value.where == server.name
        assert len(server.asked) == 3


REFUSED = {
    "page": (Said(b"<!DOCTYPE html><html>Welcome</html>"), "answers a page"),
    "unknown model": (Said(b'{"error": "no model fake"}', 404), "no such address or model.*HTTP 404.*no model fake"),
    "bad request": (Said(b'{"error": "too long"}', 400), "too long"),
    "no key": (Said(b"", 401), r"wants a key(.|\n)*export PARLEY_API_KEY"),
    "redirect": (Said(b"", 302, {"Location": "http://127.0.0.1:9/"}), "HTTP 302: moved to http://127.0.0.1:9/"),
    "long patience": (Said(b"", 429, {"Retry-After": "3600"}), "3600 s of patience"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_get_better_is_asked_once(name: str) -> None:
    said, told = REFUSED[name]
    with serving(lambda number, body: said) as server:
        with pytest.raises(ModelError, match=rf"(?s){told}"):
            load_chat_model(server.name, QUICK).answer(chats(), decoding=GREEDY)
        assert len(server.asked) == 1


def test_the_patience_that_a_server_asks_for_is_given() -> None:
    with serving(lambda number, body: echo(number, body) if number else Said(b"", 429, {"Retry-After": "0.4"})) as server:
        began = time.monotonic()
        load_chat_model(server.name, QUICK).answer(chats(), decoding=GREEDY)
    assert time.monotonic() - began >= 0.4


def test_questions_that_are_told_the_same_patience_do_not_come_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChatAsking, "first_wait_s", 1.0)
    monkeypatch.setattr(ChatAsking, "longest_wait_s", 5.0)
    came: list[float] = []

    def says(number: int, body: dict[str, Any]) -> Said:
        came.append(time.monotonic())
        return Said(b"busy", 429, {"Retry-After": "1"}) if number < 6 else Said(completion("yes"))

    with serving(says) as server:
        load_chat_model(server.name, dataclasses.replace(QUICK, concurrency=6)).answer(chats(6), decoding=GREEDY)
    first, again = came[:6], sorted(came[6:])
    assert again[0] >= min(first) + 1
    assert again[-1] - again[0] > 0.05


LATE = {"slow": {"slow_s": 300.0}, "dripping": {"drip_s": 0.05}, "dripping headers": {"headers_drip_s": 0.05}}
"""Five minutes each."""


@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
def test_a_server_has_so_long_and_no_longer(late: dict[str, float]) -> None:
    said = Said(completion("x" * 6000), headers={"X-Long": "x" * 6000}, **late)  # type: ignore[arg-type]
    quick = dataclasses.replace(QUICK, timeout_s=0.2, max_attempts=1)
    with serving(lambda number, body: said) as server:
        began = time.monotonic()
        with pytest.raises(ModelError, match=r"in time(.|\n)*0.2 s"):
            load_chat_model(server.name, quick).answer(chats(), decoding=GREEDY)
        assert time.monotonic() - began < 60


def test_nobody_there() -> None:
    with pytest.raises(ModelError, match=r"cannot be reached(.|\n)*ConnectionRefusedError"):
        load_chat_model("openai:http://127.0.0.1:9/v1#m", QUICK).answer(chats(), decoding=GREEDY)


def test_newer_models_of_openai_are_told_their_limit_by_its_new_name() -> None:
    def says(number: int, body: dict[str, Any]) -> Said:
        if "max_tokens" in body:
            return Said(b'{"error": {"message": "use \'max_completion_tokens\' instead"}}', 400)
        return Said(completion(str(body["max_completion_tokens"])))

    with serving(says) as server:
        model = load_chat_model(server.name, QUICK)
        assert model.answer(chats(), decoding=GREEDY)[0].text == "5"
        model.answer(chats(), decoding=GREEDY)
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("openai:http://me:hunter2@host/v1#m", "holds a password"),
        ("openai:https://host/v1?key=hunter2#m", "holds a password or a query"),
        ("openai:ftp://host/v1#m", "no address of a server"),
        ("openai:127.0.0.1:80/v1#m", r"lacks http://(.|\n)*got:   openai:127.0.0.1:80/v1#m\n"),
        ("openai:localhost:80/v1#m", "fix:   openai:http://localhost:80/v1#m$"),
        ("openai:me:hunter2@host/v1#m", "holds a password"),
        ("openai:http://host:hunter2/v1#m", "no address of a server"),
        ("openai:http://host/v1", "names no model"),
    ],
)
def test_an_address_that_is_none_or_holds_a_secret_is_refused_without_showing_it(name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        load_chat_model(name)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("variable", ["PARLEY_API_KEY", "OPENAI_API_KEY"])
def test_the_key_reaches_the_server_and_nothing_else(variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(variable, KEY)
    said = [
        Said(f'{{"error": "wrong key {KEY}"}}'.encode(), 401),
        Said(b"x" * 150 + KEY.encode(), 404),
        Said(b"wrong key sk-veryse***6789", 403),
        Said(json.dumps({"choices": [], "note": KEY}).encode()),
        Said(f"<html>{KEY}".encode()),
        Said(completion(f"your key is {KEY}")),
    ]
    once = dataclasses.replace(QUICK, max_attempts=1)
    with serving(lambda number, body: said[number]) as server:
        model = load_chat_model(server.name, once, answers=tmp_path)
        for _ in said[:-1]:
            with pytest.raises(ModelError) as caught:
                model.answer(chats(), decoding=GREEDY)
            shown = f"{caught.value!s}{caught.value!r}{caught.value.__cause__}"
            assert "veryse" not in shown
        (answer,) = model.answer(chats(), decoding=GREEDY)
        assert answer.text == "your key is [key]"
        assert "veryse" not in (tmp_path / ANSWERS).read_text()
        assert "veryse" not in repr(vars(model.inner))  # type: ignore[attr-defined]
    assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {KEY}"}


@pytest.mark.parametrize("key", ["gsk_veryse_hidden_56789", "veryse/hidden+56789", "veryse89"])
def test_a_key_of_any_kind_is_blotted_out_also_where_it_is_shortened(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_API_KEY", key)
    echoed = json.dumps({"error": f"wrong key {key}"}).replace("/", r"\/").encode()
    said = [
        Said(f"wrong key {key[:6]}******{key[-4:]}, **".encode(), 401),
        Said(f"wrong key ***{key[-4:]}.".encode(), 403),
        Said(f"wrong key {key[:5]}\N{HORIZONTAL ELLIPSIS}".encode(), 403),
        Said(echoed, 401),
        Said(completion(f"it is {key}").replace(b"/", rb"\/")),
    ]
    with serving(lambda number, body: said[number]) as server:
        model = load_chat_model(server.name, dataclasses.replace(QUICK, max_attempts=1))
        for _ in said[:-1]:
            with pytest.raises(ModelError, match=r"wrong key.*\[key\]") as caught:
                model.answer(chats(), decoding=GREEDY)
            assert "very" not in str(caught.value)
            assert key[-4:] not in str(caught.value)
        (answer,) = model.answer(chats(), decoding=GREEDY)
    assert answer.text == "it is [key]"


def test_a_key_that_no_header_can_hold_is_refused_without_showing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_API_KEY", "hunter2\r\nEvil: 1")
    with serving(echo) as server, pytest.raises(ConfigError, match="PARLEY_API_KEY") as caught:
        load_chat_model(server.name, QUICK).answer(chats(), decoding=GREEDY)
    assert "hunter2" not in str(caught.value)


def test_a_resumed_run_asks_nothing_twice(tmp_path: Path) -> None:
    decoding = ChatDecoding(temperature=1.0, max_tokens=5)
    with serving(echo) as server:
        first = load_chat_model(server.name, QUICK, answers=tmp_path)
        said = first.answer(chats(3), decoding=decoding, seeds=[1, 2, 3])
        again = load_chat_model(server.name, QUICK, answers=tmp_path)
        known = again.answer(chats(3), decoding=decoding, seeds=[1, 2, 3])
        assert [answer.text for answer in known] == [answer.text for answer in said]
        assert all(answer.known for answer in known)
        assert not any(answer.known for answer in said)
        assert (len(server.asked), usage(again).known, usage(again).asked) == (3, 3, 0)
        again.answer(chats(3), decoding=decoding, seeds=[1, 2, 4])
        assert len(server.asked) == 4, "another seed is another question"
        again.answer(chats(1) * 3, decoding=GREEDY)
        assert len(server.asked) == 5, "asked once where it is asked three times at once"
        first.answer(chats(1), decoding=GREEDY)
        assert len(server.asked) == 5, "what another process was answered is known"


def test_what_was_answered_before_a_failure_is_kept(tmp_path: Path) -> None:
    once = dataclasses.replace(QUICK, max_attempts=1, concurrency=1)
    with serving(lambda number, body: echo(number, body) if number != 2 else Said(b"wrong key", 403)) as server:
        with pytest.raises(ModelError):
            load_chat_model(server.name, once, answers=tmp_path).answer(chats(4), decoding=GREEDY)
        before = len(server.asked)
        load_chat_model(server.name, once, answers=tmp_path).answer(chats(4), decoding=GREEDY)
        assert len(server.asked) - before == 4 - (before - 1)


def test_half_a_line_of_a_killed_process_costs_that_answer_alone(tmp_path: Path) -> None:
    with serving(echo) as server:
        load_chat_model(server.name, QUICK, answers=tmp_path).answer(chats(2), decoding=GREEDY)
        file = tmp_path / ANSWERS
        file.write_bytes(file.read_bytes()[:-20])
        for _ in range(2):
            load_chat_model(server.name, QUICK, answers=tmp_path).answer(chats(2), decoding=GREEDY)
        assert len(server.asked) == 3


def test_errors_cross_processes() -> None:
    error = ModelError("the server fails", where="openai:http://host/v1#m", got="HTTP 500", fix="resume later")
    assert str(copy.copy(pickle.loads(pickle.dumps(error)))) == str(error)  # noqa: S301  # our own


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"error": {"message": "This model's maximum context length is 4096 tokens"}}, ChatTooLongError),
        ({"error": {"message": "Too much. " * 40, "code": "context_length_exceeded"}}, ChatTooLongError),
        ({"error": {"message": "increase it", "type": "exceed_context_size_error", "n_ctx": 256}}, ChatTooLongError),
        ({"object": "error", "message": "The prompt is longer than the maximum model length of 8."}, ChatTooLongError),
        ({"error": {"message": "the chat template cannot be filled from this context"}}, ModelError),
        ({"error": {"message": "a role is unknown", "prompt": "what is your maximum context length"}}, ModelError),
    ],
)  # fmt: skip
def test_a_question_that_is_longer_than_the_model_reads_is_told_apart(
    said: dict[str, Any], error: type[ChatTooLongError | ModelError]
) -> None:
    with serving(lambda number, body: Said(json.dumps(said).encode(), 400)) as server:
        model = load_chat_model(server.name, QUICK)
        with pytest.raises(error, match="HTTP 400"):
            model.answer(chats(), decoding=GREEDY)
        assert len(server.asked) == 1, "asking again would not make it shorter"


def test_a_server_that_is_gone_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    alive = False
    monkeypatch.setattr(ChatAsking, "longest_wait_s", 600.0)
    with serving(lambda number, body: echo(number, body) if alive else Said(b"no room", 500)) as server:
        model = load_chat_model(server.name, dataclasses.replace(QUICK, max_attempts=1))
        for _ in range(MAX_FAILED):
            with pytest.raises(ModelError, match="the server fails"):
                model.answer(chats(), decoding=GREEDY)
        alive = True
        with pytest.raises(ModelError, match=r"left alone for 600 s(.|\n)*the server fails: HTTP 500: no room"):
            model.answer(chats(), decoding=GREEDY)
        assert len(server.asked) == MAX_FAILED
        now = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: now() + 600)
        assert model.answer(chats(), decoding=GREEDY)[0].text.startswith("question 0")
        model.answer(chats(), decoding=GREEDY)


def test_the_first_failure_is_told_while_the_server_is_asked_again_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    with serving(lambda number, body: echo(number, body) if number % 3 == 2 else Said(b"no room", 500)) as server:
        model = load_chat_model(server.name, dataclasses.replace(QUICK, concurrency=1))
        model.answer(chats(2), decoding=GREEDY)
        told = [record.getMessage() for record in caplog.records]
        assert usage(model).failed_attempts == 4
        with pytest.raises(ModelError):
            load_chat_model(server.name, dataclasses.replace(QUICK, max_attempts=1)).answer(chats(), decoding=GREEDY)
    assert [record.getMessage() for record in caplog.records] == told, "one attempt is told by its error"
    assert len(told) == 1
    assert f"{server.name}: the server fails (HTTP 500: no room); it is asked up to 2 times more" in told[0]


def test_what_answers_took_is_told_with_their_cost() -> None:
    usage = ChatUsage(asked=2_000, tokens_in=1_500, tokens_out=500, uncounted=3)
    free = "Chat models gave 2,000 answers: 1,500 tokens read, 500 written, tokens of 3 answers unknown"
    alone = RunUsage({"openai:http://h/v1#large": usage})
    assert alone.summary(ChatAsking()) == f"{free}."
    assert alone.summary(ChatAsking(prices="0.5/1.5")) == f"{free}, cost 1.5."
    here = RunUsage({"gguf:here.gguf": usage})
    assert here.summary(ChatAsking(prices="0.5/0")) == f"{free}.", "what is here costs nothing"


def test_answers_that_are_no_reply_are_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ChatAnswers(tmp_path / "answers")
    said = [Answer("yes"), Answer("so", "length"), Answer("", "length"), Answer("", "length"), Answer("", "content_filter")]
    for number, answer in enumerate(said):
        kept.keep(str(number), answer, "openai:http://h/v1#thinks")
    kept.keep("fine", Answer("yes"), "hf:here")
    found = usage_of(tmp_path)
    assert found is not None
    assert "1 cut at the most tokens, 3 no reply (2 cut in thinking, 1 filtered)" in found.summary(ChatAsking())
    document = found.as_json(ChatAsking())
    assert document["kinds"] == {"reply": 2, "cut": 1, "cut in thinking": 2, "filtered": 1}
    assert document["no_reply_share"] == 0.5
    assert document["models"]["openai:http://h/v1#thinks"]["no_reply_share"] == 0.6
    (warning,) = found.warnings(ChatAsking())
    assert warning.startswith("3 of 5 answers of thinks are no reply (60%: 2 cut in thinking, 1 filtered); leave room")
    assert "enable_thinking" in warning
    assert "the key max_tokens in a scan's policy file" in warning, "right for a verb and for a scan"
    monkeypatch.setattr(ChatAsking, "max_no_reply", 0.6)
    assert not found.warnings(ChatAsking())
    assert found.failure() == warning
    assert not found.failure(allowed=MODERATED), "an attack measures what moderation stops"


def test_attempts_that_failed_before_an_answer_stay_counted_in_the_run(tmp_path: Path) -> None:
    said = [Said(b"busy", 429), Said(b"busy", 503), Said(completion("yes"))]
    with serving(lambda number, body: said[number]) as server:
        model = load_chat_model(server.name, QUICK, answers=tmp_path / "answers")
        model.answer(chats(1), decoding=GREEDY)
        assert model.usage.failed_attempts == 2  # type: ignore[attr-defined]
        (again,) = load_chat_model(server.name, QUICK, answers=tmp_path / "answers").answer(chats(1), decoding=GREEDY)
        assert again.known
    found = usage_of(tmp_path)
    assert found is not None
    assert found.total.failed_attempts == 2
    assert found.summary(ChatAsking()) == "Chat models gave 1 answers: 7 tokens read, 3 written, 2 attempts failed."


def test_each_model_costs_what_it_costs(tmp_path: Path) -> None:
    prices = ChatAsking(prices="large=2/8,other/small.1=0.1/0.4,unasked=1/1,0/100")
    answered = Answer("yes", num_prompt_tokens=1_000, num_tokens=500)
    for folder in (tmp_path / "answers", tmp_path / "stage" / "answers"):
        kept = ChatAnswers(folder)
        for number, model in enumerate(("openai:http://h/v1#large", "openai:http://h/v1#other/small.1", "hf:here")):
            kept.keep(str(number), answered, model)
    (tmp_path / "stage" / "answers" / "answers.jsonl").open("a").write('{"key": "old", "answer": {"text": "of no name"}}\n')
    found = usage_of(tmp_path)
    assert found is not None
    assert found.total == ChatUsage(asked=7, tokens_in=6_000, tokens_out=3_000, uncounted=1, kinds=Counter(reply=7))
    told = found.as_json(prices)
    assert told["cost"] == pytest.approx(2 * (2 + 4) + 2 * (0.1 + 0.2))
    assert [each["cost"] for each in told["models"].values()] == pytest.approx([2 * (2 + 4), 2 * (0.1 + 0.2), 0, 0])
    sentence = found.summary(prices)
    assert "By model: large 2 answers: 2,000 tokens read, 1,000 written, cost 12;" in sentence
    assert "Prices of models that gave none: unasked." in sentence
    for wrong in ("large", "large=1", "large=1/-1", "=1/2", "large=a/b"):
        with pytest.raises(OutOfRangeError, match="prices"):
            ChatAsking(prices=wrong)


def test_a_sentence_on_many_models_names_those_that_were_asked_most() -> None:
    usage = RunUsage({f"hf:model-{number}": ChatUsage(asked=10 + number) for number in range(9)})
    sentence = usage.summary(ChatAsking())
    assert "model-8 18 answers" in sentence
    assert "model-3 13" not in sentence
    assert "; 4 others 46 answers, each in the summary." in sentence
    assert len(usage.as_json(ChatAsking())["models"]) == 9
    few = RunUsage({f"hf:model-{number}": ChatUsage(asked=10 + number) for number in range(6)}).summary(ChatAsking())
    assert all(f"model-{number} " in few for number in range(6))
