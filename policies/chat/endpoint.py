"""A bot behind any HTTP address, described by a YAML file: `http:FILE.yaml`.

    url: https://bot.example.com/chat
    headers: {Authorization: "Bearer ${PARLEY_API_KEY_BOT}"}
    body: {message: "{prompt}", history: "{messages}"}
    reply: choices.0.text
    errors: {too_long: context length, busy: try again, filtered: policy}

`{prompt}` stands for the last message, `{messages}` for all of them as a list of role and content, `{system}` for the system's
text, and `{temperature}`, `{max_tokens}` and `{seed}` for the settings of the answer. A text that is one of these alone becomes
the value itself, such as a list. `reply` is a path into the JSON of the response; of `events` a path into each server-sent
event, whose texts are joined; without either the whole body is the reply. `errors` are words of the server, in any case, in the
body of any response.

Keys come from the environment at each request, from variables that begin with PARLEY_API_KEY, because these are removed from
everything that is shown or kept. All limits, attempts, waits and proxies are those of servers (`server.py`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request

import yaml

from parley.envs.core.errors import ConfigError, ModelError
from parley.envs.core.registry import nearest
from parley.envs.corpora.lines import utf8_text
from parley.policies.chat.addresses import ENDPOINT
from parley.policies.chat.completions import part_thinking
from parley.policies.chat.model import Answer
from parley.policies.chat.refusals import KEYS, AgainError, Refusal, RefusalKind, RefusalReading, blotted, excerpt
from parley.policies.chat.server import ServedChatModel
from parley.policies.chat.settings import ChatModelSettings

_KEYS = ("url", "method", "headers", "body", "reply", "events", "errors")
_ERRORS = ("too_long", "busy", "filtered")
_PLACES = ("prompt", "messages", "system", "temperature", "max_tokens", "seed")
_PLACE = re.compile(rf"\{{({'|'.join(_PLACES)})\}}")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_METHODS = ("POST", "PUT", "GET")
_NO_REPLY_MARK = "[DONE]"


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
        errors: words of the server by kind.
    """

    url: str
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    reply: str = ""
    events: str = ""
    errors: Mapping[str, str] = field(default_factory=dict)


def read_endpoint(path: Path) -> Endpoint:
    """Return the endpoint that a file describes.

    Raises:
        DataError: the file cannot be read.
        ConfigError: it does not fit.
    """
    where = str(path)
    try:
        document = yaml.safe_load(utf8_text(path))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError("the description of an endpoint is not YAML", where=where, got=str(error)) from None
    if not isinstance(document, dict):
        raise ConfigError("the description of an endpoint is a mapping", where=where, fix="write url:, body: and reply:")
    for key in document:
        if key not in _KEYS:
            what = f"an endpoint has no key {str(key)!r}{nearest(str(key), _KEYS)}"
            raise ConfigError(what, where=where, fix=f"one of {', '.join(_KEYS)}")
    texts = {key: document.get(key, "") for key in ("url", "method", "reply", "events")}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise ConfigError(f"{key} is no text", where=where, got=repr(value)[:80], fix=f'write {key}: "..."')
    parts = urlsplit(texts["url"])
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("url is no web address", where=where, got=texts["url"], fix="url: https://HOST/PATH")
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
    endpoint = Endpoint(texts["url"], method, headers, document.get("body"), texts["reply"], texts["events"], errors)
    if not _PLACE.search(json.dumps([endpoint.url, endpoint.body, dict(headers)])):
        fix = "write {prompt} or {messages} where the question stands"
        raise ConfigError("the request does not hold the prompt", where=where, fix=fix)
    return endpoint


def _texts(value: Any, key: str, where: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(part, str) for pair in value.items() for part in pair):
        raise ConfigError(f"{key} are texts by name", where=where, got=repr(value)[:80], fix=f'{key}: {{NAME: "text"}}')
    return dict(value)


class EndpointChatModel(ServedChatModel):
    """A bot behind an address that a file describes, of which only texts can be seen.

    Args:
        name: `http:FILE.yaml`.
        settings: as of a server.

    Raises:
        ConfigError: the file does not fit.
        DataError: it cannot be read.
    """

    def __init__(self, name: str, settings: ChatModelSettings) -> None:
        self._endpoint = read_endpoint(Path(name.removeprefix(ENDPOINT)).expanduser())
        super().__init__(name, settings, url=self._endpoint.url)

    def _request(self, body: dict[str, Any]) -> Request:
        """Return the request of a question, whose parts stand in `body` as a server's."""
        endpoint, messages = self._endpoint, body["messages"]
        values = {
            "prompt": messages[-1]["content"],
            "messages": messages,
            "system": "\n".join(message["content"] for message in messages if message["role"] == "system"),
            **{name: body.get(name) for name in ("temperature", "seed")},
            "max_tokens": body.get("max_tokens", body.get("max_completion_tokens")),
        }
        headers = {"Content-Type": "application/json", "User-Agent": "parley"}
        headers |= {name: self._with_keys(_filled(text, values)) for name, text in endpoint.headers.items()}
        data = (
            None if endpoint.body is None or endpoint.method == "GET" else json.dumps(_placed(endpoint.body, values)).encode()
        )
        return Request(_filled(endpoint.url, values, quoted=True), data, headers, method=endpoint.method)

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
            raise AgainError(ModelError("the server is busy", where=self.name, got=blotted(excerpt(raw)), fix="resume later"))
        if kind_named == "too_long":
            refusal = Refusal.of_response(400, raw)
            raise self._error_of(refusal, RefusalReading(RefusalKind.TOO_LONG))
        return Answer("", "content_filter", withheld=blotted(excerpt(raw))) if kind_named == "filtered" else None

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
    """Return JSON types with their places filled; a text that is one place alone becomes its value."""
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
        plain = value if isinstance(value, str) else json.dumps(value)
        return quote(plain, safe="") if quoted else plain

    return _PLACE.sub(shown, text)
