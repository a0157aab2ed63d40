"""Addresses of chat models: of weights (`hf:`, `gguf:`), servers (`openai:`, `http:`, `ws:`), programs (`cmd:`), and Python."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import Registry, program_spelling
from parley.envs.core.storage.uris import CHAT_MODELS, HUGGING_FACE, has_chat_prefix, is_uri

chat_models = Registry("chat model", "parley.chat_models")
"""Chat models that installed packages bring; each is made like a user's own (`answers.py`)."""
CHAT = CHAT_MODELS
"""Prefixes of the addresses of chat models, those of a user's own apart."""
_, GGUF, OPENAI, ENDPOINT, SOCKET, PROGRAM, DEFENDED = CHAT
"""Prefixes of a file of weights for llama.cpp, of a server that speaks OpenAI's protocol, of files that describe other bots
behind HTTP or a WebSocket, of a program, and of a file that puts a defence around another model."""
chat_wrappers = Registry("wrapper of chat models", "parley.chat_wrappers")
chat_wrappers.register("defended", "a model behind a defence", "parley.engine.scan.defences:load_defended")

_COMPLETIONS = "/chat/completions"


def is_chat_address(name: str) -> bool:
    """Return whether a name begins like the address of a chat model."""
    return has_chat_prefix(name)


def is_local(name: str) -> bool:
    """Return whether a name stands for a model whose weights are on this machine."""
    return name.startswith((HUGGING_FACE, GGUF))


def is_served(name: str) -> bool:
    """Return whether a name stands for a model that is asked from outside this process, several questions at once."""
    return has_chat_prefix(name) and not is_local(name) and not name.startswith(DEFENDED)


def weights_of(name: str) -> str:
    """Return the folder, file or URI of the weights of an address; empty for a server or a program."""
    if name.startswith((OPENAI, PROGRAM)):
        return ""
    prefix = next((kind for kind in CHAT if has_chat_prefix(name) and name.startswith(kind)), "")
    return name.removeprefix(prefix)


def absolute_address(name: str) -> str:
    """Return the address of a chat model with an absolute path, for workers in other folders."""
    if name.startswith(PROGRAM):
        return program_spelling(name)
    weights = weights_of(name)
    if not weights or is_uri(weights) or name in chat_models:
        return name
    return f"{name.removesuffix(weights)}{Path(weights).expanduser().absolute()}"


def short_address(name: str) -> str:
    """Return the last part of an address, for labels: a server's model, or the folder or file of weights."""
    whole = name.rpartition("#")[2] if name.startswith(OPENAI) else weights_of(name)
    if name.startswith(PROGRAM):
        # The last word that is no option: bot of `cmd:python bot.py --fast`.
        whole = [word for word in name.removeprefix(PROGRAM).split() if not word.startswith("-")][-1].removesuffix(".py")
    parts = [part for part in whole.split("/") if part]
    return parts[-1].removesuffix(".gguf").removesuffix(".yaml").replace(".", "_") if parts else "model"


def server_of(name: str) -> tuple[str, str]:
    """Return the URL of completions, and the model, of the address of a server; a URL that ends in /completions stays so.

    Raises:
        ConfigError: it has no URL or no model, or holds a password or a query, which would be written into runs.
    """
    url, _, model = name.removeprefix(OPENAI).partition("#")
    fix = f"{OPENAI}http://127.0.0.1:8000/v1#MODEL, with the model as the server calls it"
    is_bare = "://" not in url
    try:
        parts = urlsplit(f"http://{url}" if is_bare else url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigError("this is no address of a server", got=OPENAI + "...", fix=fix) from None
    # Without parts that may be a key.
    shown = f"{OPENAI}{parts.scheme}://{host or ''}{f':{port}' if port else ''}{parts.path}#{model}"
    if parts.username is not None or parts.password is not None or parts.query:
        what = "the address of a server holds a password or a query, and addresses are written into runs"
        raise ConfigError(what, got=shown, fix="leave it out; a key is read from the environment")
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError("this is no address of a server", got=shown, fix=fix)
    if not model:
        raise ConfigError("the address of a server names no model", got=shown.rstrip("#"), fix=fix)
    if is_bare:
        raise ConfigError("the address of a server lacks http:// or https://", got=shown.replace("http://", "", 1), fix=shown)
    path = parts.path.rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path if path.endswith('/completions') else path + _COMPLETIONS}", model
