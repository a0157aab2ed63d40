"""Servers of every kind: what becomes of an answer that is none, of a refusal, and of a request that does not suit."""

from __future__ import annotations

import dataclasses
import json
import logging
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from parley.envs.core.errors import ConfigError, ModelError, RefusedModelError
from parley.policies.chat.answers import ChatAnswers, usage_of
from parley.policies.chat.loading import load_chat_model
from parley.policies.chat.model import (
    ANSWERS,
    FOLDED,
    MERGED,
    Answer,
    AnswerKind,
    Chat,
    ChatDecoding,
    ChatTooLongError,
    Message,
)
from parley.policies.chat.server import NO_LIMIT, NO_SEED, OWN_TEMPERATURE, SHORTENED, UNEXPLAINED
from parley.policies.chat.settings import ChatAsking, ChatModelSettings
from tests.policies.chat import answer_kinds as kinds
from tests.policies.chat.fake_server import Said, completion, serving
from tests.policies.chat.refusal_kinds import (
    FIELDS,
    FORBIDDEN,
    LARGE,
    LONG_KINDS,
    MODERATED,
    QUOTA,
    ROOM,
    SAY,
    body_of,
    choice,
    said,
)

QUICK = ChatModelSettings(max_attempts=3, concurrency=1)
GREEDY, DRAWN = ChatDecoding(max_tokens=5), ChatDecoding(temperature=0.5, max_tokens=5)
ASKED: Chat = (Message("system", "be brief"), Message("user", "how are you?"))


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("PARLEY_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)


def asked_once(name: str, decoding: ChatDecoding = GREEDY, **settings: Any) -> tuple[Answer, list[dict[str, Any]]]:
    """The answer of a kind of server, and the bodies of the requests that it took."""
    with serving(kinds.play) as server:
        model = load_chat_model(server.named(name), dataclasses.replace(QUICK, **settings))
        (answer,) = model.answer([ASKED], decoding=decoding, seeds=[3])
        return answer, server.asked


@pytest.mark.parametrize("name", kinds.ANSWERS)
def test_an_answer_of_any_kind_is_asked_for_once_and_kept(name: str, tmp_path: Path) -> None:
    expected = kinds.ANSWERS[name][1]
    with serving(kinds.play) as server:
        for _ in range(2):
            model = load_chat_model(server.named(name), QUICK, answers=tmp_path / "answers")
            (answer,) = model.answer([ASKED], decoding=GREEDY)
            assert (answer.kind, answer.text.strip(), answer.reasoning) == (expected.kind, expected.text, expected.reasoning)
        assert len(server.asked) == 1
    usage = usage_of(tmp_path)
    assert usage is not None
    assert usage.total.kinds == {expected.kind.value: 1}
    assert json.loads(json.dumps(usage.as_json(ChatAsking())))["kinds"] == {expected.kind.value: 1}


@pytest.mark.parametrize("name", kinds.BROKEN)
def test_half_an_answer_is_asked_for_again_unless_it_is_final(name: str) -> None:
    status = kinds.BROKEN[name][1]
    with serving(kinds.play) as server:
        with pytest.raises(RefusedModelError if status else ModelError, match="HTTP 200 with error"):
            load_chat_model(server.named(name), QUICK).answer([ASKED], decoding=GREEDY)
        assert len(server.asked) == (1 if status else 3)


@pytest.mark.parametrize("name", LONG_KINDS)
def test_what_is_too_long_is_asked_once(name: str) -> None:
    chat = (*ASKED[:1], Message("user", "word " * 70))
    with serving(kinds.play) as server:
        model = load_chat_model(server.named(name), QUICK)
        with pytest.raises(ChatTooLongError, match="longer than the model reads"):
            model.answer([chat], decoding=GREEDY)
        assert model.answer([ASKED], decoding=GREEDY)[0].text == SAY
        assert len(server.asked) == 2


@pytest.mark.parametrize("name", MODERATED)
def test_what_moderation_stops_is_an_answer_that_the_next_one_does_not_share(name: str, tmp_path: Path) -> None:
    with serving(kinds.play) as server:
        for _ in range(2):
            model = load_chat_model(server.named(f"{name}:bad"), QUICK, answers=tmp_path)
            blocked, other = model.answer([(Message("user", "a bad word"),), ASKED], decoding=GREEDY)
            assert (blocked.kind, blocked.text, other.text) == (AnswerKind.FILTERED, "", SAY)
            assert blocked.withheld
        assert len(server.asked) == 2


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_is_forbidden_to_a_key_is_an_error(name: str) -> None:
    with serving(kinds.play) as server:
        with pytest.raises(ModelError, match="HTTP 403"):
            load_chat_model(server.named(name), QUICK).answer([ASKED], decoding=GREEDY)
        explained = name not in ("forbidden-empty", "forbidden-plain")
        assert len(server.asked) == (1 if explained else 2), "without a reason a harmless text is asked, too"


@pytest.mark.parametrize("refusal", [Said(b"", 403), Said(b"<html>Access denied</html>", 403)], ids=["empty", "page"])
def test_a_text_that_is_forbidden_without_a_reason_is_moderated_where_others_are_answered(refusal: Said) -> None:
    def play(number: int, body: dict[str, Any]) -> Said:
        return refusal if "blocked" in body["messages"][-1]["content"] else kinds.said(kinds.body_of(kinds.choice(SAY)))

    chats: list[Chat] = [(Message("user", f"this is blocked {number}"),) for number in range(13)]
    with serving(play) as server:
        model = load_chat_model(server.named("m"), QUICK)
        answers = model.answer([*chats, ASKED], decoding=GREEDY)
    assert [answer.kind for answer in answers] == [AnswerKind.FILTERED] * 13 + [AnswerKind.REPLY]
    assert {answer.notes for answer in answers} == {(UNEXPLAINED,), ()}
    harmless = [asked for asked in server.asked if asked["messages"][-1]["content"] == "Hello."]
    assert len(harmless) == 2, "the first, and after ten more"


@pytest.mark.parametrize("name", QUOTA)
def test_a_spent_quota_ends_the_command_at_once(name: str) -> None:
    with serving(kinds.play) as server:
        with pytest.raises(RefusedModelError, match=r"nothing is left to pay(.|\n)*HTTP"):
            load_chat_model(server.named(name), QUICK).answer([ASKED] * 3, decoding=GREEDY)
        assert len(server.asked) == 1


def test_a_stream_is_asked_for_once() -> None:
    with serving(kinds.play) as server:
        with pytest.raises(ModelError, match="a stream and no completion"):
            load_chat_model(server.named("sse"), QUICK).answer([ASKED], decoding=GREEDY)
        assert len(server.asked) == 1


def test_a_limit_by_the_minute_is_waited_for() -> None:
    answer, asked = asked_once("rate")
    assert (answer.text, answer.failed_attempts, len(asked)) == (SAY, 1, 2)


NOTED = {
    "temperature": {OWN_TEMPERATURE},
    "seed": {NO_SEED},
    "max_tokens": set(),
    "limit": {NO_LIMIT},
    "system": {FOLDED},
    "turns": {FOLDED},
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_request_is_fitted_to_a_server_once_and_a_run_says_so(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    decoding = GREEDY if name.startswith("no-temp-zero") else DRAWN
    with serving(kinds.play) as server, caplog.at_level(logging.WARNING):
        model = load_chat_model(server.named(name), QUICK, answers=tmp_path / "answers")
        (answer,) = model.answer([ASKED], decoding=decoding, seeds=[3])
        first = len(server.asked)
        others = model.answer([ASKED] * 2, decoding=decoding, seeds=[4, 5])
        later = server.asked[first:]
    assert [each.text for each in (answer, *others)] == [SAY] * 3
    assert len(later) == (0 if decoding is GREEDY else 2), "what does not suit is not tried again"
    expected = {OWN_TEMPERATURE, NO_SEED} if name == "no-fields" else NOTED[FIELDS[name][1]]
    assert set(answer.notes) == expected
    assert len(caplog.records) == first - 1 >= 1, "each change is said once"
    told = {
        "system": "in front of the user's",
        "turns": "sent as one",
        "limit": "is sent instead",
        "max_tokens": "is sent instead",
    }
    assert told.get(FIELDS[name][1], "left out of all" if name != "no-fields" else "instead") in caplog.records[0].getMessage()
    usage = usage_of(tmp_path)
    assert usage is not None
    assert set(usage.total.notes) == expected
    assert all(f"{usage.total.asked} {note}" in usage.summary(ChatAsking()) for note in expected)


def test_turns_of_one_role_are_merged_where_they_have_to_alternate() -> None:
    chat = (Message("user", "a"), Message("user", "b"), Message("assistant", "c"), Message("user", "d"))
    with serving(kinds.play) as server:
        (answer,) = load_chat_model(server.named("strict-turns"), QUICK).answer([chat], decoding=GREEDY)
    assert answer.notes == (MERGED,)
    assert server.asked[-1]["messages"][0] == {"role": "user", "content": "a\n\nb"}


def test_the_system_is_said_in_front_of_the_user_where_a_server_has_no_such_role() -> None:
    _, asked = asked_once("no-system")
    assert asked[-1]["messages"] == [{"role": "user", "content": "be brief\n\nhow are you?"}]


@pytest.mark.parametrize("name", LARGE)
def test_an_answer_is_allowed_as_much_as_there_is_room(name: str) -> None:
    answer, asked = asked_once(name, ChatDecoding(max_tokens=32_000))
    assert [body["max_tokens"] for body in asked] == [32_000, ROOM - 96]
    assert (answer.kind, answer.notes) == (AnswerKind.CUT, (SHORTENED,))


def test_more_tokens_than_a_server_gives_are_an_error_where_it_does_not_say_how_many() -> None:
    refusal = Said(json.dumps({"error": {"message": "max_tokens is too large", "param": "max_tokens"}}).encode(), 400)
    with serving(lambda number, body: refusal) as server:
        with pytest.raises(ModelError, match="other values of max_tokens"):
            load_chat_model(server.name, QUICK).answer([ASKED], decoding=GREEDY)
        assert len(server.asked) == 1


def test_an_answer_that_was_lost_to_thinking_may_come_as_an_error() -> None:
    words = "Could not finish the message because max_tokens or model output limit was reached. Please try again."
    refusal = Said(json.dumps({"error": {"message": words, "code": 400}}).encode(), 400)
    with serving(lambda number, body: refusal) as server:
        (answer,) = load_chat_model(server.name, QUICK).answer([ASKED], decoding=GREEDY)
    assert answer.kind is AnswerKind.CUT_IN_THINKING


def test_settings_shape_a_request(tmp_path: Path) -> None:
    extra = {"top_p": 0.9, "chat_template_kwargs": {"enable_thinking": False}, "temperature": None, "seed": None}
    answer, (body,) = asked_once("ok", DRAWN, extra=extra)
    assert body == {
        "model": "ok", "top_p": 0.9, "chat_template_kwargs": {"enable_thinking": False}, "max_tokens": 5,
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "how are you?"}],
    }  # fmt: skip
    assert answer.notes == (OWN_TEMPERATURE, NO_SEED)
    _, (body,) = asked_once("ok", DRAWN, extra={"max_tokens": None})
    assert not {"max_tokens", "max_completion_tokens"} & set(body)


@pytest.mark.parametrize("extra", [{"model": "other"}, {"messages": []}, {"n": 2}, {"temperature": 1}, {"seed": 1}, "[1]", "{"])
def test_what_a_verb_decides_on_is_not_overridden(extra: Any) -> None:
    with pytest.raises(ConfigError, match=f"extra {'has the wrong type' if isinstance(extra, str) else 'is out of range'}"):
        ChatModelSettings(extra=extra)


def test_a_field_of_ones_own_that_a_server_lacks_is_named() -> None:
    refusal = Said(json.dumps({"error": {"message": "Unknown parameter: 'top_k'."}}).encode(), 400)
    with serving(lambda number, body: refusal) as server:
        model = load_chat_model(server.name, dataclasses.replace(QUICK, extra={"top_k": 3}))
        with pytest.raises(ModelError, match=r"takes no field top_k(.|\n)*chat.extra="):
            model.answer([ASKED], decoding=GREEDY)
        assert len(server.asked) == 1


def test_answers_are_kept_by_the_settings_that_they_follow_from(tmp_path: Path) -> None:
    thinks = said(body_of(choice(f"<think>\n{kinds.THOUGHT}\n</think>{SAY}")))
    with serving(lambda number, body: thinks) as server:
        texts = []
        for more in ({}, {"thinking": "keep"}, {"extra": {"top_p": 0.5}}, {}):
            model = load_chat_model(server.name, dataclasses.replace(QUICK, **more), answers=tmp_path)
            texts.append(model.answer([ASKED], decoding=GREEDY)[0].text)
        assert len(server.asked) == 3
    assert texts[0] == texts[2] == SAY
    assert texts[1].startswith("<think>")


def test_an_old_line_that_may_hold_no_reply_is_asked_again(tmp_path: Path) -> None:
    with serving(kinds.play) as server:
        model = load_chat_model(server.named("ok"), QUICK, answers=tmp_path)
        chats = [(Message("user", f"question {number}"),) for number in range(4)]
        model.answer(chats, decoding=GREEDY)
        lines = [json.loads(line) for line in (tmp_path / ANSWERS).read_text().splitlines()]
        for line, text, ended in zip(lines, ["", "<think>so", "half", "whole"], [True, True, False, True], strict=True):
            line["answer"] = {"text": text, "ended": ended, "num_prompt_tokens": 1, "num_tokens": 1, "known": True}
        (tmp_path / ANSWERS).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        answers = load_chat_model(server.named("ok"), QUICK, answers=tmp_path).answer(chats, decoding=GREEDY)
    assert [answer.text for answer in answers] == [SAY, SAY, SAY, "whole"]
    assert len(server.asked) == 7


def warned(path: Path, texts: list[str], temperature: float = 0.7) -> str:
    """What a run warns of in which one question was answered so, with a seed each."""
    with serving(lambda number, body: Said(completion(texts[body["seed"]]))) as server:
        model = load_chat_model(server.name, QUICK, answers=path / "answers")
        decoding = ChatDecoding(temperature=temperature, max_tokens=5)
        model.answer([ASKED] * len(texts), decoding=decoding, seeds=range(len(texts)))
    usage = usage_of(path)
    assert usage is not None
    return " ".join(warning for warning in usage.warnings(ChatAsking()) if "are no reply" not in warning)


def test_a_server_that_draws_nothing_is_noticed(tmp_path: Path) -> None:
    ignored = "all 4 replies of fake to other seeds are equal to the first; it may ignore temperature or seed"
    assert ignored in warned(tmp_path / "equal", [SAY] * 5)
    for name, texts, temperature in (
        ("one varies", [SAY, SAY, SAY, SAY, f"{SAY} !"], 0.7),
        ("few", [SAY] * 3, 0.7),
        ("short", ["yes , i do"] * 5, 0.7),
        ("cold", [SAY] * 5, 0.3),
        ("empty", [""] * 5, 0.7),
    ):
        assert "ignore" not in warned(tmp_path / name, texts, temperature), name


def test_equal_answers_count_over_the_processes_of_a_run(tmp_path: Path) -> None:
    for number in range(4):
        ChatAnswers(tmp_path / "answers").keep(str(number), Answer(SAY), "openai:http://h/v1#m", "question")
    usage = usage_of(tmp_path)
    assert usage is not None
    assert (usage.total.redrawn, usage.total.equal_redrawn) == (3, 3)


def test_the_newest_of_many_answers_is_found_from_few_bytes_each(tmp_path: Path) -> None:
    folder, num = tmp_path / "answers", 10_000
    folder.mkdir()
    numbers = [*range(num), *range(0, num, 7)]
    lines = [{"key": f"{number:032x}", "model": "m", "answer": vars(Answer(str(at)))} for at, number in enumerate(numbers)]
    (folder / ANSWERS).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    tracemalloc.start()
    try:
        kept = ChatAnswers(folder)
        assert kept.find(["f" * 32]) == [None]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # What waits to be put in order, and 16 bytes of each.
    assert held < 16 * num + 2**20
    newest = {number: str(at) for at, number in enumerate(numbers)}
    found = kept.find([f"{number:032x}" for number in range(num)])
    assert [answer and answer.text for answer in found] == [newest[number] for number in range(num)]
    kept.keep("other", Answer("more"), "m")
    assert [answer and answer.text for answer in kept.find(["other", f"{7:032x}"])] == ["more", newest[7]]
    assert kept.usage()["m"].asked == num + 1
