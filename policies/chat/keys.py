"""Keys of servers: read from the environment at each request, sent to one server, and blotted out of all that is shown or kept.

A key stands nowhere else: not in a model's name or attributes, a row, a log or an error.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from urllib.parse import urlsplit

from parley.envs.core.errors import ConfigError
from parley.policies.chat.model import Answer

KEYS = ("PARLEY_API_KEY", "OPENAI_API_KEY")
"""Environment variables of a key for all servers, in this order."""
_SHORTEST = 8
"""Characters of the shortest key that is blotted out; servers without keys are given shorter ones, such as `none`."""
_BEGINNING = 4
"""Characters of a key that a server may show of it."""


def key_variables(url: str) -> tuple[str, ...]:
    """Return the environment variables of a server's key, in the order in which they are read.

    Those of its host and port come first, then of its host, then those for all servers. Of https://api.example.com:8443/v1 the
    first two are PARLEY_API_KEY_API_EXAMPLE_COM_8443 and PARLEY_API_KEY_API_EXAMPLE_COM.
    """
    parts = urlsplit(url)
    host = re.sub(r"[^A-Z0-9]", "_", (parts.hostname or "").upper())
    own = [f"{KEYS[0]}_{host}_{parts.port}"] if parts.port else []
    return *own, f"{KEYS[0]}_{host}", *KEYS


def api_key(url: str) -> str:
    """Return the key of a server; empty where there is none, or where the variable of its host is set to nothing.

    Raises:
        ConfigError: the variable holds what no header can; the message does not show it.
    """
    *own, general, openai = key_variables(url)
    for variable in (*own, general, openai):
        if variable not in os.environ:
            continue
        key = os.environ[variable].strip()
        if not key.isascii() or (key and not key.isprintable()) or " " in key:
            fix = "export it anew, without quotes, blanks and line breaks inside"
            raise ConfigError("the key holds characters that no key has", where=variable, fix=fix)
        if key or variable in own:
            return key
    return ""


def without_keys(body: bytes) -> bytes:
    """Return what a server said without any key of this process, also where it is escaped as JSON, HTML and addresses may."""
    for key in _secrets():
        body = re.sub("".join(map(_escaped, key)).encode(), b"[key]", body, flags=re.IGNORECASE)
    return body


def answer_without_keys(answer: Answer) -> Answer:
    """Return an answer without any key of this process, such as one that stood in several parts."""
    text, reasoning, withheld = (
        without_keys(part.encode()).decode() for part in (answer.text, answer.reasoning, answer.withheld)
    )
    return replace(answer, text=text, reasoning=reasoning, withheld=withheld)


def blotted(text: str) -> str:
    """Return what an error shows, without keys as they are or as a server shortens them."""
    shown = without_keys(text.encode("utf-8", "replace")).decode()
    begins = "".join(rf"|\b{re.escape(key[:_BEGINNING])}[\w*.…-]*" for key in _secrets())
    return re.sub(rf"\b(sk|pk|key)-[\w*.…-]{{4,}}|[\w.-]*\*{{3,}}[\w*.-]*{begins}", "[key]", shown)


def _secrets() -> list[str]:
    """Return the keys of this process that are long enough to be secrets, the longest first."""
    named = (value.strip() for name, value in os.environ.items() if name in KEYS or name.startswith(f"{KEYS[0]}_"))
    return sorted({key for key in named if len(key) >= _SHORTEST and key.isascii()}, key=len, reverse=True)


def _escaped(character: str) -> str:
    """Return a pattern of a character: as it is, or as JSON (within JSON, too), HTML or an address write it."""
    code = ord(character)
    plain = re.escape(character)
    return rf"(?:\\*{plain}|\\+u{code:04x}|&#0*{code};|&#x0*{code:x};|%{code:02x})"
