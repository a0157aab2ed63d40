"""A bot behind any HTTP address or WebSocket, described by a YAML file: `http:FILE.yaml`, `ws:FILE.yaml`.

    url: https://bot.example.com/chat
    headers: {Authorization: "Bearer ${PARLEY_API_KEY_BOT}"}
    body: {message: "{prompt}", history: "{messages}"}
    reply: choices.0.text
    errors: {too_long: context length, busy: try again, filtered: policy, refused: I cannot}

`{prompt}` stands for the last message, `{messages}` for all of them as a list of role and content, `{system}` for the system's
text, and `{temperature}`, `{max_tokens}` and `{seed}` for the settings of the answer. A text that is one of these alone becomes
the value itself, such as a list. `reply` is a path into the JSON of the response; of `events` a path into each server-sent
event, whose texts are joined; without either the whole body is the reply. `errors` are words of the server, in any case, in the
body of any response.

A bot that keeps a conversation gets `{conversation}`: the text at the path `conversation` of its last response, null in the
first request; without that path an id of ours, new for each dialogue. A dialogue goes on in the conversation whose messages it
has. Where there is none, such as after a resume, its earlier messages are sent again one by one, unless `{messages}` has them.

A WebSocket is a conversation: each dialogue has a connection of its own, and each question is one message. `reply` is taken
from the first message that has it. Of `events` each message is a part, until one holds the words `end`, or the bot closes.

Keys come from the environment at each request, from variables that begin with PARLEY_API_KEY, because these are removed from
everything that is shown or kept. All limits, attempts, waits and proxies are those of servers (`server.py`).
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from parley.envs.core.config import read_yaml
from parley.envs.core.errors import ConfigError, ModelError, how_to_install
from parley.envs.core.registry import nearest
from parley.envs.corpora.lines import utf8_text
from parley.policies.chat.addresses import ENDPOINT, SOCKET
from parley.policies.chat.completions import part_thinking
from parley.policies.chat.connections import CONNECT_TIMEOUT_S, is_loopback
from parley.policies.chat.model import Answer
from parley.policies.chat.refusals import KEYS, AgainError, Refusal, RefusalKind, RefusalReading, blotted, excerpt, without_keys
from parley.policies.chat.server import HttpRequest, ServedChatModel
from parley.policies.chat.settings import ChatModelSettings

_TEXTS = ("url", "method", "reply", "events", "conversation", "end")
_KEYS = (*_TEXTS, "headers", "body", "errors")
_ERRORS = ("too_long", "busy", "filtered", "refused")
_PLACES = ("prompt", "messages", "system", "temperature", "max_tokens", "seed", "conversation")
_PLACE = re.compile(rf"\{{({'|'.join(_PLACES)})\}}")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_METHODS = ("POST", "PUT", "GET")
_SCHEMES = {ENDPOINT: ("http", "https"), SOCKET: ("ws", "wss")}
REPLAYED = "asked after its earlier messages were sent again"
"""Note of an answer in a conversation that was begun anew."""
MOST_CONVERSATIONS, MOST_SOCKETS = 10_000, 128
"""Conversations that may go on; the one that was longest not asked is begun anew when it goes on."""
_NO_REPLY_MARK = "[DONE]"
_CONVERSATION = "_conversation"


@dataclass(frozen=True)
class Endpoint:
    """A checked description of an address.

    Args:
        url: the address; places in it are filled with quoted texts.
        method: of the request.
        headers: headers by name; `${VARIABLE}` stands for a key.
        body: the body as JSON types with places; None for none.
        reply: path of the reply in the response's JSON; empty if `events` tells, or the whole body is the reply.
        events: path of a part of the reply in each server-sent event; empty for a response without events.
        conversation: path of the id of the conversation in the response; empty for none.
        end: words of the last message of a WebSocket's answer; empty for none.
        errors: words of the server by kind.
    """

    url: str
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    reply: str = ""
    events: str = ""
    conversation: str = ""
    end: str = ""
    errors: Mapping[str, str] = field(default_factory=dict)

    def has(self, place: str) -> bool:
        """Return whether a request has a place."""
        return f"{{{place}}}" in json.dumps([self.url, self.body, dict(self.headers)])


def read_endpoint(path: Path, kind: str = ENDPOINT) -> Endpoint:
    """Return the endpoint that a file describes.

    Args:
        path: the file.
        kind: prefix of its address.

    Raises:
        DataError: the file cannot be read.
        ConfigError: it does not fit.
    """
    where = str(path)
    document = read_yaml(utf8_text(path), "the description of an endpoint", where)
    if not isinstance(document, dict):
        raise ConfigError("the description of an endpoint is a mapping", where=where, fix="write url:, body: and reply:")
    for key in document:
        if key not in _KEYS:
            what = f"an endpoint has no key {str(key)!r}{nearest(str(key), _KEYS)}"
            raise ConfigError(what, where=where, fix=f"one of {', '.join(_KEYS)}")
    texts = {key: document.get(key, "") for key in _TEXTS}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise ConfigError(f"{key} is no text", where=where, got=repr(value)[:80], fix=f'write {key}: "..."')
    parts = urlsplit(texts["url"])
    if parts.scheme not in _SCHEMES[kind] or not parts.hostname:
        fix = f"url: {_SCHEMES[kind][1]}://HOST/PATH"
        raise ConfigError(f"url is no web address for {kind}", where=where, got=texts["url"], fix=fix)
    if parts.username is not None or parts.password is not None:
        fix = "put the key into headers, as ${PARLEY_API_KEY_BOT}"
        raise ConfigError("the address holds a password", where=where, got=f"{parts.scheme}://...@{parts.hostname}", fix=fix)
    method = (texts["method"] or "POST").upper()
    if method not in _METHODS:
        raise ConfigError("no such method", where=where, got=method, fix=f"one of {', '.join(_METHODS)}")
    if texts["reply"] and texts["events"]:
        raise ConfigError("a response is one document or events", where=where, fix="write one of reply: and events:")
    headers, errors = (_texts(document.get(key, {}), key, where) for key in ("headers", "errors"))
    for name in _VARIABLE.findall(" ".join(headers.values())):
        if not name.startswith(KEYS[0]):
            fix = f"export it as {KEYS[0]}_{name}, and write ${{{KEYS[0]}_{name}}}"
            raise ConfigError("keys come from variables that are never shown", where=where, got=f"${{{name}}}", fix=fix)
    for kind, words in errors.items():
        if kind not in _ERRORS or not words.strip():
            raise ConfigError(f"errors has no kind {kind!r}", where=where, fix=f"one of {', '.join(_ERRORS)}, with words")
    texts["method"] = method
    endpoint = Endpoint(**texts, headers=headers, body=document.get("body"), errors=errors)
    if not endpoint.has("prompt") and not endpoint.has("messages"):
        fix = "write {prompt} or {messages} where the question stands"
        raise ConfigError("the request does not hold the prompt", where=where, fix=fix)
    return endpoint


def _texts(value: Any, key: str, where: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(part, str) for pair in value.items() for part in pair):
        raise ConfigError(f"{key} are texts by name", where=where, got=repr(value)[:80], fix=f'{key}: {{NAME: "text"}}')
    return dict(value)


class Conversation:
    """A conversation that a bot keeps.

    Args:
        id: that is sent; None before the bot has given one.
        socket: its connection, if it has one.
    """

    def __init__(self, id: str | None, socket: Any = None) -> None:
        self.id, self.socket = id, socket

    def close(self) -> None:
        """End the connection."""
        if self.socket is not None:
            self.socket.close()


class EndpointChatModel(ServedChatModel):
    """A bot behind an address that a file describes, of which only texts can be seen.

    Args:
        name: `http:FILE.yaml`.
        settings: as of a server.

    Raises:
        ConfigError: the file does not fit.
        DataError: it cannot be read.
    """

    _kind, _most = ENDPOINT, MOST_CONVERSATIONS

    def __init__(self, name: str, settings: ChatModelSettings) -> None:
        self._endpoint = read_endpoint(Path(name.removeprefix(self._kind)).expanduser(), self._kind)
        super().__init__(name, settings, url=self._endpoint.url)
        self._keeps = bool(self._endpoint.conversation or self._endpoint.has("conversation"))
        self._conversations = OrderedDict[tuple[str, ...], Conversation]()

    def _attempt(self, body: dict[str, Any], max_tokens: int | None) -> Answer:
        """Return the answer in the conversation that its messages belong to."""
        messages, notes = body["messages"], tuple[str, ...]()
        if not self._keeps:
            return super()._attempt(body, max_tokens)
        with self._lock:
            conversation = self._conversations.pop(_transcript(messages[:-1]), None)
        try:
            if conversation is None:
                conversation = Conversation(None if self._endpoint.conversation else secrets.token_hex(8))
                earlier = [number for number, message in enumerate(messages[:-1]) if message["role"] == "user"]
                for number in earlier if not self._endpoint.has("messages") else ():
                    self._said(conversation, {**body, "messages": messages[: number + 1]}, max_tokens)
                    notes = (REPLAYED,)
            answer = self._said(conversation, body, max_tokens)
        except Exception:
            if conversation is not None:
                conversation.close()
            raise
        closed = None
        with self._lock:
            spoken = [*messages, {"role": "assistant", "content": answer.text}]
            self._conversations[_transcript(spoken)] = conversation
            if len(self._conversations) > self._most:
                _, closed = self._conversations.popitem(last=False)
        if closed is not None:
            closed.close()
        return replace(answer, notes=(*answer.notes, *notes))

    def _said(self, conversation: Conversation, body: dict[str, Any], max_tokens: int | None) -> Answer:
        """Return the answer to one message of a conversation."""
        raw = self._exchange({**body, _CONVERSATION: conversation})
        answer = self._read(raw, body, max_tokens)
        if isinstance(raw, bytes) and self._endpoint.conversation:
            text = raw.decode("utf-8-sig", "replace")
            document = (_events(text) or [""])[-1] if self._endpoint.events else text
            conversation.id = self._at(self._endpoint.conversation, document) or conversation.id
        return answer

    def _request(self, body: dict[str, Any]) -> HttpRequest:
        """Return the request of a question, whose parts stand in `body` as a server's."""
        endpoint, values = self._endpoint, self._values(body)
        headers = {"Content-Type": "application/json", "User-Agent": "parley"} | self._headers(values)
        has_body = endpoint.body is not None and endpoint.method != "GET"
        data = json.dumps(_placed(endpoint.body, values)).encode() if has_body else None
        return HttpRequest(endpoint.method, _filled(endpoint.url, values, quoted=True), data, headers)

    def _headers(self, values: Mapping[str, Any]) -> dict[str, str]:
        return {name: self._with_keys(_filled(text, values)) for name, text in self._endpoint.headers.items()}

    def _values(self, body: dict[str, Any]) -> dict[str, Any]:
        messages, conversation = body["messages"], body.get(_CONVERSATION)
        return {
            "prompt": messages[-1]["content"],
            "messages": messages,
            "system": "\n".join(message["content"] for message in messages if message["role"] == "system"),
            **{name: body.get(name) for name in ("temperature", "seed")},
            "max_tokens": body.get("max_tokens", body.get("max_completion_tokens")),
            "conversation": conversation.id if conversation is not None else None,
        }

    def _with_keys(self, text: str) -> str:
        def key(match: re.Match[str]) -> str:
            value = os.environ.get(match[1], "").strip()
            if not value:
                raise ConfigError(
                    "the key of an endpoint is not there", where=self.name, got=match[1], fix=f"export {match[1]}=..."
                )
            self._require_no_proxy_reads_it()
            return value

        return _VARIABLE.sub(key, text)

    def _answer(self, raw: bytes, max_tokens: int | None) -> Answer:
        """Return the answer of a response with a status below 300."""
        if refused := self._refusal(raw):
            return refused
        text, endpoint = raw.decode("utf-8-sig", "replace"), self._endpoint
        if endpoint.events:
            reply = "".join(self._at(endpoint.events, event) for event in _events(text))
        elif endpoint.reply:
            reply = self._at(endpoint.reply, text)
        else:
            reply = text
        if self._settings.thinking == "keep":
            return Answer(reply)
        parted = part_thinking(reply)
        return Answer(parted.reply, "stop" if parted.closed else "length", reasoning=parted.reasoning)

    def _refused(self, refusal: Refusal, body: dict[str, Any]) -> Answer:
        known = self._refusal(f"{refusal.text} {refusal.shown}".encode())
        return known if known is not None else super()._refused(refusal, body)

    def _refusal(self, raw: bytes) -> Answer | None:
        """Return the answer of a response with words of an error; None if it has none; raise if another attempt may succeed."""
        text = raw.decode("utf-8", "replace").casefold()
        kind_named = next((kind for kind, words in self._endpoint.errors.items() if words.casefold() in text), None)
        if kind_named == "busy":
            error = ModelError("the server is busy", where=self.name, got=blotted(excerpt(raw)), fix="resume later")
            raise AgainError(error, is_busy=True)
        if kind_named == "too_long":
            refusal = Refusal.of_response(400, raw)
            raise self._error_of(refusal, RefusalReading(RefusalKind.TOO_LONG))
        ends = {"filtered": "content_filter", "refused": "refusal"}
        return Answer("", ends[kind_named], withheld=blotted(excerpt(raw))) if kind_named in ends else None

    def _at(self, path: str, text: str) -> str:
        """Return the text at a path of a JSON document, such as "choices.0.text"; empty for null."""
        try:
            value: Any = json.loads(text)
        except ValueError:
            fix = "leave out reply: if the whole body is the reply"
            raise ModelError("the response is no JSON", where=self.name, got=blotted(excerpt(text.encode())), fix=fix) from None
        for part in path.split("."):
            try:
                value = value[int(part)] if isinstance(value, list) else value[part]
            except (KeyError, IndexError, TypeError, ValueError):
                got, fix = blotted(excerpt(text.encode())), f"write the path of the reply; {part!r} of {path!r} is not there"
                raise ModelError("the response has no such part", where=self.name, got=got, fix=fix) from None
        if value is None:
            return ""
        if not isinstance(value, str):
            raise ModelError(
                "the reply is no text", where=self.name, got=blotted(repr(value)[:80]), fix=f"a path below {path!r}"
            )
        return value


class SocketChatModel(EndpointChatModel):
    """A bot behind a WebSocket that a file describes.

    Args:
        name: `ws:FILE.yaml`.
        settings: as of a server.

    Raises:
        ConfigError: the file does not fit, or the package of WebSockets is missing.
        DataError: the file cannot be read.
    """

    _kind, _most = SOCKET, MOST_SOCKETS

    def __init__(self, name: str, settings: ChatModelSettings) -> None:
        super().__init__(name, settings)
        if find_spec("websockets") is None:
            raise ConfigError("a WebSocket needs the package websockets", where=name, fix=how_to_install("websocket"))
        self._keeps = True

    def _exchange(self, body: dict[str, Any]) -> bytes | Answer:
        from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
        from websockets.sync.client import connect

        endpoint, values, conversation = self._endpoint, self._values(body), body[_CONVERSATION]
        deadline = time.monotonic() + self._settings.timeout_s
        is_here = is_loopback(urlsplit(self._url).hostname or "")
        parts: list[str] = []
        try:
            if conversation.socket is None:
                url, headers = _filled(endpoint.url, values, quoted=True), self._headers(values)
                limit_s = min(CONNECT_TIMEOUT_S, self._settings.timeout_s)
                opening = connect(
                    url, additional_headers=headers, open_timeout=limit_s, close_timeout=0.5, proxy=None if is_here else True
                )
                # It wants to be a context, and lives longer than a block.
                conversation.socket = opening.__enter__()
            message = _placed("{prompt}" if endpoint.body is None else endpoint.body, values)
            conversation.socket.send(message if isinstance(message, str) else json.dumps(message))
            while True:
                part = conversation.socket.recv(max(0.0, deadline - time.monotonic()))
                parts.append(part if isinstance(part, str) else part.decode("utf-8", "replace"))
                if self._is_last(parts[-1]):
                    break
        except TimeoutError:
            self._was_reached |= conversation.socket is not None
            raise AgainError(self._late()) if conversation.socket is not None else self._unreached("no connection") from None
        except InvalidStatus as error:
            self._was_reached = True
            return self._refused(
                Refusal.of_response(error.response.status_code, without_keys(bytes(error.response.body or b""))), body
            )
        except ConnectionClosed as error:
            if not (parts and endpoint.events):
                raise self._unreached(error) from None
        except (OSError, InvalidHandshake) as error:
            raise self._unreached(error) from None
        # As server-sent events, so that both are read alike.
        events = ("".join(f"data: {line}\n" for line in part.splitlines()) for part in parts)
        return "\n".join(events).encode() if endpoint.events else parts[-1].encode()

    def _is_last(self, part: str) -> bool:
        """Return whether a message ends the answer."""
        endpoint = self._endpoint
        if self._refusal(part.encode()):
            return True
        if endpoint.events:
            return bool(endpoint.end) and endpoint.end in part
        try:
            return not endpoint.reply or bool(self._at(endpoint.reply, part))
        except ModelError:
            return False


def _transcript(messages: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    return tuple(f"{message['role']} {' '.join(message['content'].lower().split())}" for message in messages)


def _events(text: str) -> list[str]:
    """Return the data of server-sent events; lines of one event are joined, a mark of the end is left out."""
    events, lines = [], list[str]()
    for line in (*text.splitlines(), ""):
        if line.startswith("data:"):
            lines.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and lines:
            events.append("\n".join(lines))
            lines = []
    return [event for event in events if event.strip() != _NO_REPLY_MARK]


def _placed(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        alone = _PLACE.fullmatch(value)
        return values[alone[1]] if alone else _filled(value, values)
    if isinstance(value, dict):
        return {key: _placed(part, values) for key, part in value.items()}
    return [_placed(part, values) for part in value] if isinstance(value, list) else value


def _filled(text: str, values: Mapping[str, Any], quoted: bool = False) -> str:
    from urllib.parse import quote

    def shown(match: re.Match[str]) -> str:
        value = values[match[1]]
        plain = value if isinstance(value, str) else "" if value is None else json.dumps(value)
        return quote(plain, safe="") if quoted else plain

    return _PLACE.sub(shown, text)
