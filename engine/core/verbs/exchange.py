"""Conversations as JSON, for other tools and back: `parley rows RUN found.json`.

    {"schema": "parley/conversations/v1",
     "made_by": {"version": "...", "job": "search-text", "title": "...", "model": "..."},
     "items": [
       {"id": "...",                                             key of the row
        "messages": [{"role": "user", "content": "..."}, ...],   roles system, user and assistant; the assistant is the target
        "typed": ["..."],                                        what a search found, one text a slot; else empty
        "target": "...",                                         the text that was wanted; else empty
        "success": true,                                         whether the attack came through; null if undecided
        "scores": {"name": 0.5}, "tags": ["..."]}]}

Rows that failed are left out. Unknown keys are ignored when a file is read, so that other tools may add their own. A file that
another tool wrote needs `schema` and `items` with `id` and `messages`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from parley.engine.core.runs.documents import plain, write_whole
from parley.engine.core.runs.remote_sync import replicate
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import finished
from parley.engine.core.verbs.transcripts import ROLES, TranscriptRule
from parley.envs.core.errors import DataError, RunError
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.lines import utf8_text

EXCHANGE_ENDING = ".json"
SCHEMA = "parley/conversations/v1"


@dataclass(frozen=True)
class SharedConversation:
    """A conversation of an exchange file.

    Args:
        key: its id.
        messages: pairs of role and text.
        typed: what a search found, one text a slot.
        target: the text that was wanted; empty for none.
        success: whether the attack came through; None if undecided.
    """

    key: str
    messages: tuple[tuple[str, str], ...]
    typed: tuple[str, ...] = ()
    target: str = ""
    success: bool | None = None


def write_exchange(path: Path, run: RunFolder, rule: TranscriptRule) -> tuple[str, ...]:
    """Write the conversations of a run; return the names of the scores.

    Args:
        path: the file.
        run: the run.
        rule: how a row reads as a conversation.

    Raises:
        RunError: a part of the run is damaged, or the disk refuses.
    """
    items: list[dict[str, Any]] = []
    names: dict[str, None] = {}
    for row in finished(run.rows()):
        transcript = rule(row)
        scores = {name: value for name, value in transcript.scores.items() if value is not None}
        names |= dict.fromkeys(scores)
        messages = [{"role": role, "content": text} for role, text in transcript.messages]
        parts = {"typed": list(transcript.typed), "target": transcript.target, "success": transcript.success, "scores": scores}
        items.append({"id": row["item_key"], "messages": messages, **parts, "tags": list(transcript.tags)})
    summary = run.summary() or {}
    made_by = {"version": version("parley-redteam"), "job": run.job, "title": summary.get("title", "")}
    document = {"schema": SCHEMA, "made_by": {**made_by, "model": run.config.get("model", "")}, "items": items}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(plain(document), ensure_ascii=False, indent=1).encode("utf-8", "backslashreplace") + b"\n")
    except OSError as error:
        fix = "make room, or name a file that can be written"
        raise RunError("the file cannot be written", where=display_path(path), got=error.strerror or error, fix=fix) from error
    replicate(path)
    return tuple(names)


def read_exchange(path: Path) -> list[SharedConversation]:
    """Return the conversations of a file, of Parley or of another tool.

    Raises:
        DataError: it cannot be read, has another schema, or a conversation does not fit.
    """
    fix = "parley rows RUN found.json writes such a file; its form is in docs/exchange.md"
    text = utf8_text(path)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError("the file is no JSON", where=path, got=str(error), fix=fix) from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA or not isinstance(document.get("items"), list):
        got = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise DataError(f"the file holds no conversations of {SCHEMA}", where=path, got=repr(got), fix=fix)
    return [_conversation(item, f"{path}: items[{number}]", fix) for number, item in enumerate(document["items"])]


def _conversation(item: Any, where: str, fix: str) -> SharedConversation:
    try:
        messages = tuple((str(message["role"]), str(message["content"])) for message in item["messages"])
        fits = bool(messages) and {role for role, _ in messages} <= set(ROLES) and isinstance(item.get("success"), bool | None)
        typed: Sequence[str] = item.get("typed") or ()
        fits = fits and not isinstance(typed, str) and all(isinstance(text, str) for text in typed)
        shared = SharedConversation(str(item["id"]), messages, tuple(typed), str(item.get("target") or ""), item.get("success"))
    except (KeyError, TypeError, AttributeError):
        fits = False
    if not fits:
        raise DataError("this is no conversation", where=where, got=json.dumps(item, default=str)[:120], fix=fix)
    return shared
