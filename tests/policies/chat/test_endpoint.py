"""Bots behind any HTTP address, described by a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parley.envs.core.errors import ConfigError, ModelError, ParleyError
from parley.policies.chat.addresses import absolute_address, is_chat_address, short_address, weights_of
from parley.policies.chat.loading import load_chat_model
from parley.policies.chat.model import AnswerKind, Chat, ChatDecoding, ChatTooLongError, Message
from parley.policies.chat.settings import ChatModelSettings
from tests.policies.chat.fake_server import FakeServer, Said, serving

CHAT: Chat = (
    Message("system", "be kind"),
    Message("user", 'say "it"'),
    Message("assistant", "it"),
    Message("user", "again & again"),
)
SETTINGS = ChatModelSettings(max_attempts=2)


def described(folder: Path, server: FakeServer, text: str) -> str:
    path = folder / "bot.yaml"
    path.write_text(f"url: {server.url}/chat\n{text}")
    return f"http:{path}"


def asked(text: str, tmp_path: Path, says: Callable[[int, dict[str, Any]], Said], chat: Chat = CHAT) -> tuple[Any, FakeServer]:
    with serving(says) as server:
        model = load_chat_model(described(tmp_path, server, text), SETTINGS)
        (answer,) = model.answer([chat], decoding=ChatDecoding(temperature=0.5, max_tokens=7), seeds=[3])
    return answer, server


def test_places_of_the_body_are_filled_and_the_reply_is_read_at_its_path(tmp_path: Path) -> None:
    text = (
        'body: {message: "{prompt}", all: "{messages}", about: "as {system}: {prompt}", n: "{max_tokens}", '
        't: "{temperature}", s: "{seed}", fixed: [1, x]}\nreply: choices.0.text\n'
    )
    body = json.dumps({"choices": [{"text": "fine"}]}).encode()
    answer, server = asked(text, tmp_path, lambda number, sent: Said(body))
    assert (answer.text, answer.kind) == ("fine", AnswerKind.REPLY)
    sent = {
        "message": "again & again",
        "all": [{"role": message.role, "content": message.content} for message in CHAT],
        "about": "as be kind: again & again",
        "n": 7,
        "t": 0.5,
        "s": 3,
        "fixed": [1, "x"],
    }
    # A busy machine may ask twice.
    assert [*map(json.dumps, server.asked)] == [json.dumps(sent)] * len(server.asked)
    assert set(server.paths) == {"/chat"}


def test_events_are_joined_and_a_plain_body_is_a_reply(tmp_path: Path) -> None:
    stream = b'data: {"d": {"t": "fi"}}\n\n: ping\n\ndata: {"d": {"t": "ne"}}\n\ndata: {"d": {"t": null}}\n\ndata: [DONE]\n\n'
    answer, _ = asked('body: {q: "{prompt}"}\nevents: d.t\n', tmp_path, lambda number, sent: Said(stream))
    assert answer.text == "fine"
    answer, _ = asked('body: {q: "{prompt}"}\n', tmp_path, lambda number, sent: Said(b"<think>hm</think>fine"))
    assert (answer.text, answer.reasoning) == ("fine", "hm")


def test_a_key_comes_from_the_environment_and_is_shown_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'headers: {X-Key: "Bearer ${PARLEY_API_KEY_BOT}"}\nbody: {q: "{prompt}"}\n'
    with pytest.raises(ConfigError, match="the key of an endpoint is not there"):
        asked(text, tmp_path, lambda number, sent: Said(b"fine"))
    monkeypatch.setenv("PARLEY_API_KEY_BOT", "very-secret-key")
    answer, server = asked(text, tmp_path, lambda number, sent: Said(b"it is very-secret-key"))
    assert server.headers[0]["X-Key"] == "Bearer very-secret-key"
    assert answer.text == "it is [key]"


def test_words_of_the_server_say_what_an_error_means(tmp_path: Path) -> None:
    text = 'body: {q: "{prompt}"}\nreply: r\nerrors: {too_long: Context Length, busy: try again, filtered: our policy}\n'
    answer, _ = asked(text, tmp_path, lambda number, sent: Said(b'{"e": "against our POLICY"}'))
    assert (answer.kind, answer.text) == (AnswerKind.FILTERED, "")
    answer, _ = asked(text, tmp_path, lambda number, sent: Said(b"against our policy", 422))
    assert answer.kind is AnswerKind.FILTERED
    busy = iter([Said(b"please try again"), Said(b'{"r": "fine"}')])
    answer, _ = asked(text, tmp_path, lambda number, sent: next(busy))
    assert (answer.text, answer.failed_attempts) == ("fine", 1)
    with pytest.raises(ChatTooLongError):
        asked(text, tmp_path, lambda number, sent: Said(b"the context length is 8", 400))


@pytest.mark.parametrize(
    ("reply", "body", "message"),
    [
        ("r", b"<html>", "the response is no JSON"),
        ("r.0", b'{"r": []}', "the response has no such part"),
        ("r", b'{"r": {"t": 1}}', "the reply is no text"),
    ],
)
def test_a_response_of_another_form_is_named(reply: str, body: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message):
        asked(f'body: {{q: "{{prompt}}"}}\nreply: {reply}\n', tmp_path, lambda number, sent: Said(body))


def test_an_empty_reply_is_none(tmp_path: Path) -> None:
    answer, _ = asked('body: {q: "{prompt}"}\nreply: r\n', tmp_path, lambda number, sent: Said(b'{"r": null}'))
    assert answer.kind is AnswerKind.EMPTY


def test_a_question_may_stand_in_the_address(tmp_path: Path) -> None:
    with serving(lambda number, sent: Said(b"fine")) as server:
        path = tmp_path / "bot.yaml"
        path.write_text(f"url: {server.url}/ask?q={{prompt}}\nmethod: get\n")
        model = load_chat_model(f"http:{path}", SETTINGS)
        (answer,) = model.answer([CHAT], decoding=ChatDecoding())
    assert (answer.text, set(server.paths)) == ("fine", {"/ask?q=again%20%26%20again"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("url: [", "is not YAML"),
        ("- url", "is a mapping"),
        ("url: ftp://host\nbody: '{prompt}'", "url is no web address"),
        ("url: http://me:secret@host\nbody: '{prompt}'", "the address holds a password"),
        ("url: http://host\nbody: {q: x}", "the request does not hold the prompt"),
        ("url: http://host\nbodi: '{prompt}'", "no key 'bodi', did you mean 'body'?"),
        ("url: http://host\nbody: '{prompt}'\nmethod: DELETE", "no such method"),
        ("url: http://host\nbody: '{prompt}'\nreply: a\nevents: b", "one document or events"),
        ("url: http://host\nbody: '{prompt}'\nheaders: {K: '${TOKEN}'}", "keys come from variables that are never shown"),
        ("url: http://host\nbody: '{prompt}'\nerrors: {slow: x}", "errors has no kind 'slow'"),
    ],
)
def test_what_is_wrong_with_a_description_is_said(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bot.yaml"
    path.write_text(text)
    with pytest.raises(ParleyError) as raised:
        load_chat_model(f"http:{path}")
    assert message in str(raised.value)
    assert "secret" not in str(raised.value)


def test_its_address_is_that_of_a_file_and_a_web_address_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_chat_address("http:bot.yaml")
    assert not is_chat_address("http://host/v1")
    assert weights_of("http:bot.yaml") == "bot.yaml"
    assert absolute_address("http:bot.yaml") == f"http:{tmp_path / 'bot.yaml'}"
    assert short_address(f"http:{tmp_path / 'bot.yaml'}") == "bot"
    with pytest.raises(ParleyError, match="openai:http://host/v1"):
        load_chat_model("http://host/v1")
