"""Where questions and keys go: proxies, keys of single hosts, addresses that nobody answers, and signals while nobody does."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from parley.envs.core.errors import ConfigError, ModelError, RefusedModelError
from parley.policies.chat import connections as timed_http
from parley.policies.chat.connections import Connections, is_loopback
from parley.policies.chat.loading import load_chat_model
from parley.policies.chat.model import ANSWERS, Chat, ChatDecoding, Message
from parley.policies.chat.refusals import api_key, blotted, key_variables, without_keys
from parley.policies.chat.server import MAX_UNREACHED
from parley.policies.chat.settings import ChatModelSettings
from tests.policies.chat.fake_server import Said, completion, serving

KEY, OTHER = "sk-verysecretkey0123456789", "tok_another/key+0987"
QUICK = ChatModelSettings(max_attempts=3, concurrency=1)
GREEDY = ChatDecoding(max_tokens=5)
ASKED: list[Chat] = [(Message("user", "how are you?"),)]


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in os.environ:
        if variable.lower().endswith("_proxy") or variable.startswith(("PARLEY_API_KEY", "OPENAI_API_KEY")):
            monkeypatch.delenv(variable)


def yes(number: int, body: object) -> Said:
    return Said(completion("yes"))


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "model.localhost", "LOCALHOST."]
)
def test_this_machine_is_known_by_its_names(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["127.0.0.1.example.com", "localhost.example.com", "10.0.0.1", "::2", ""])
def test_other_machines_are_none_of_its_names(host: str) -> None:
    assert not is_loopback(host)


def test_what_lies_on_this_machine_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("PARLEY_API_KEY", KEY)
    with serving(yes) as server:
        assert load_chat_model(server.name, QUICK).answer(ASKED, decoding=GREEDY)[0].text == "yes"
        assert (
            load_chat_model(server.name.replace("127.0.0.1", "localhost"), QUICK).answer(ASKED, decoding=GREEDY)[0].text
            == "yes"
        )


def test_another_machine_is_asked_by_the_proxy_but_for_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    address = "openai:http://model.invalid/v1#m"
    with serving(yes) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("http://", "http://me:hunter2@"))
        assert load_chat_model(address, QUICK).answer(ASKED, decoding=GREEDY)[0].text == "yes"
        assert proxy.paths == ["http://model.invalid/v1/chat/completions"]
        monkeypatch.setenv("PARLEY_API_KEY", KEY)
        with pytest.raises(
            RefusedModelError, match=r"key would go to a proxy(.|\n)*http_proxy=http://127(.|\n)*no_proxy=model.inv"
        ) as caught:
            load_chat_model(address, QUICK).answer(ASKED, decoding=GREEDY)
        assert "hunter2" not in str(caught.value)
        assert len(proxy.asked) == 1
        monkeypatch.setenv("no_proxy", "model.invalid")
        with pytest.raises(RefusedModelError, match="cannot be reached") as caught:
            load_chat_model(address, QUICK).answer(ASKED, decoding=GREEDY)
        assert "proxy" not in str(caught.value)


def test_a_proxy_is_named_in_the_errors_that_it_may_have_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with pytest.raises(
        ModelError, match=r"cannot be reached(.|\n)*by the proxy http://127.0.0.1:9(.|\n)*no_proxy=model.invalid"
    ):
        load_chat_model("openai:http://model.invalid/v1#m", QUICK).answer(ASKED, decoding=GREEDY)
    with serving(lambda number, body: Said(b"no route", 502)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        with pytest.raises(ModelError, match=rf"HTTP 502: no route, by the proxy {proxy.url}"):
            load_chat_model("openai:http://model.invalid/v1#m", QUICK).answer(ASKED, decoding=GREEDY)


def test_a_server_that_speaks_tls_is_asked_through_the_tunnel_of_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    assert Connections("https://model.example/v1").proxy == "http://proxy.example:3128"
    assert Connections("http://model.example/v1").proxy == ""


def test_each_host_may_have_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "https://api.example.com:8443/v1/chat/completions"
    own = ("PARLEY_API_KEY_API_EXAMPLE_COM_8443", "PARLEY_API_KEY_API_EXAMPLE_COM")
    assert key_variables(url) == (*own, "PARLEY_API_KEY", "OPENAI_API_KEY")
    keys = ["the-first-key", "the-second-key", "the-third-key", "the-fourth-key"]
    for variable, key in zip(reversed(key_variables(url)), keys, strict=True):
        monkeypatch.setenv(variable, key)
        assert api_key(url) == key
    assert api_key("https://other.example.com/v1") == "the-second-key"
    monkeypatch.setenv(own[0], "")
    assert api_key(url) == "", "set to nothing: none for this host"
    monkeypatch.setenv("PARLEY_API_KEY", "")
    assert api_key("https://other.example.com/v1") == "the-first-key"


def test_two_servers_of_a_command_get_their_own_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(yes) as first, serving(yes) as second:
        for server, key in ((first, KEY), (second, OTHER)):
            monkeypatch.setenv(f"PARLEY_API_KEY_127_0_0_1_{server.url.rpartition(':')[2]}", key)
            load_chat_model(server.name, QUICK).answer(ASKED, decoding=GREEDY)
        assert [first.headers[0]["Authorization"], second.headers[0]["Authorization"]] == [f"Bearer {KEY}", f"Bearer {OTHER}"]


@pytest.mark.parametrize("key", [KEY, OTHER])
def test_a_key_that_comes_back_escaped_is_blotted_out(key: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PARLEY_API_KEY_ELSEWHERE", key)
    escaped = "".join(f"\\u{ord(letter):04X}" for letter in key)
    partly = f"\\u{ord(key[0]):04x}{key[1:]}"
    inner = json.dumps(json.dumps({"raw": key}).replace(key[0], f"\\u{ord(key[0]):04x}", 1))
    entities = "".join(f"&#{ord(letter)};" for letter in key)
    for form in (escaped, partly, entities, key.replace("/", r"\/")):
        body = b'{"choices": [{"message": {"content": "it is %s"}, "finish_reason": "stop"}]}' % form.encode()
        with serving(lambda number, asked, body=body: Said(body)) as server:  # type: ignore[misc]
            model = load_chat_model(server.name, QUICK, answers=tmp_path / server.url.rpartition(":")[2])
            assert model.answer(ASKED, decoding=GREEDY)[0].text == "it is [key]"
        assert key not in "".join(file.read_text() for file in tmp_path.rglob(ANSWERS))
        assert key[4:] not in blotted(f"HTTP 400: {form}")
    parts = [{"type": "text", "text": key[:9]}, {"type": "text", "text": key[9:]}]
    with serving(lambda number, body: Said(completion(parts))) as server:  # type: ignore[arg-type]
        assert load_chat_model(server.name, QUICK).answer(ASKED, decoding=GREEDY)[0].text == "[key]"
    assert key[1:] not in without_keys(inner.encode()).decode()
    refusal = Said(f'{{"error": {{"message": "{escaped}"}}}}'.encode(), 400)
    with serving(lambda number, body: refusal) as server, pytest.raises(ModelError, match=r"HTTP 400: .*\[key\]"):
        load_chat_model(server.name, QUICK).answer(ASKED, decoding=GREEDY)


def test_an_address_that_refuses_connections_ends_a_command_soon(caplog: pytest.LogCaptureFixture) -> None:
    began = time.monotonic()
    for address in ("openai:http://127.0.0.1:9/v1#m", "openai:http://nobody.invalid/v1#m"):
        model = load_chat_model(address, ChatModelSettings())
        with pytest.raises(RefusedModelError, match=rf"cannot be reached(.|\n)*{MAX_UNREACHED} attempts") as caught:
            model.answer(ASKED, decoding=GREEDY)
        assert caught.value.where == address
    assert {f"asked up to {MAX_UNREACHED - 1} times more" in record.getMessage() for record in caplog.records} == {True}
    assert time.monotonic() - began < 10


def test_a_server_that_was_there_is_waited_for_as_long_as_any(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = dataclasses.replace(QUICK, max_attempts=5)
    with serving(yes) as server:
        model = load_chat_model(server.name, settings)
        model.answer(ASKED, decoding=GREEDY)
    with pytest.raises(ModelError, match="5 attempts") as caught:
        model.answer(ASKED, decoding=GREEDY)
    assert not isinstance(caught.value, RefusedModelError)


@contextmanager
def _deaf() -> Iterator[str]:
    """Yield the address of a port whose queue of connections is full, so that what is sent there is dropped."""
    with socket.socket() as server, ExitStack() as stack:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        yield f"openai:http://127.0.0.1:{server.getsockname()[1]}/v1#m"


def test_an_address_that_drops_connections_ends_a_command_within_the_time_of_one_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert timed_http.CONNECT_TIMEOUT_S == 10
    monkeypatch.setattr(timed_http, "CONNECT_TIMEOUT_S", 0.3)
    began = time.monotonic()
    with _deaf() as address:
        model = load_chat_model(address, ChatModelSettings(timeout_s=60, max_attempts=6))
        with pytest.raises(RefusedModelError, match=r"cannot be reached(.|\n)*no connection within 0\.3 s") as caught:
            model.answer(ASKED * 20, decoding=GREEDY)
    assert "attempts" not in str(caught.value)
    assert "start the server, or mend the address" in str(caught.value)
    assert time.monotonic() - began < 3


def test_a_server_that_answered_once_and_drops_connections_then_is_asked_as_often_as_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timed_http, "CONNECT_TIMEOUT_S", 0.05)
    settings = dataclasses.replace(QUICK, max_attempts=4)
    with serving(yes) as server:
        model = load_chat_model(server.name, settings)
        model.answer(ASKED, decoding=GREEDY)

    def drops(*args: object, **kwargs: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(HTTPConnection, "connect", drops)
    with pytest.raises(ModelError, match=r"no connection(.|\n)*4 attempts") as caught:
        model.answer(ASKED, decoding=GREEDY)
    assert not isinstance(caught.value, RefusedModelError)


@pytest.mark.parametrize(("number", "attempts"), [(errno.EHOSTUNREACH, MAX_UNREACHED), (errno.ECONNRESET, 6)])
def test_a_host_without_a_way_to_it_is_given_up_as_one_that_refuses(
    number: int, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(HTTPConnection, "connect", fails)
    model = load_chat_model("openai:http://127.0.0.1:9/v1#m", dataclasses.replace(QUICK, max_attempts=6))
    with pytest.raises(ModelError, match=rf"{attempts} attempts") as caught:
        model.answer(ASKED, decoding=GREEDY)
    assert isinstance(caught.value, RefusedModelError) == (attempts == MAX_UNREACHED)


def test_a_server_that_takes_a_connection_and_says_nothing_is_waited_for_longer_than_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timed_http, "CONNECT_TIMEOUT_S", 0.1)
    with serving(lambda number, body: Said(completion("yes"), slow_s=0.5)) as server:
        (answer,) = load_chat_model(server.name, QUICK).answer(ASKED, decoding=GREEDY)
    assert answer.text == "yes"


@pytest.mark.parametrize(
    ("address", "right"),
    [
        ("http://127.0.0.1:8000/v1", "openai:http://127.0.0.1:8000/v1#MODEL"),
        ("https://host/v1#m", "openai:https://host/v1#m"),
        ("openai:http://127.0.0.1:8102/v1", "openai:http://127.0.0.1:8102/v1"),
    ],
)
def test_an_address_without_its_kind_or_its_model_is_answered_with_the_right_form(address: str, right: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_chat_model(address)
    assert right in str(caught.value)
