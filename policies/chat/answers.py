"""Answers kept in a folder of a run, so that a resumed run asks nothing twice, and chat models of a user's own.

All processes append to one file, one line an answer, under a lock; no line is ever changed, and a line cut by a kill is
skipped. The key of an answer is made of the model, messages, decoding, the seed of a drawn answer, and the settings that
shape the request. Each line names the model, so that tokens and cost are counted by model. Answers of every kind are kept:
one that moderation stopped is not asked for again. Only where each line starts is held in memory, 2 MiB for 100,000 answers.
Measured beside SQLite at 100,000 answers: 28 MiB on disk for either, 22 microseconds of the processor to keep an answer here
and 49 there, 0.17 s to start here and 0.01 there. So lines stay, which any tool reads, and a copy of which is never torn.

A user's own model is `path/file.py:Name`: a class without arguments, or an object, with a method `answer` (as of `ChatModel`;
texts may stand for `Answer`s) or a method `reply(messages)` that returns a text or an `Answer`; or a function
`reply(messages)`. An `async def reply` is asked `chat.concurrency` questions at once, all others one by one. `reply` gets
dictionaries with `role` and `content`, as in OpenAI's protocol; `answer` gets `Chat`s. A method `score` (as of
`ScoringChatModel`) is used if there is one. Its answers must depend on messages, decoding and seed alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import itertools
import json
import os
import re
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from parley.envs.core.errors import ConfigError, ModelError, RunError
from parley.envs.core.registry import TimedCalls, own_code, own_start
from parley.envs.core.seeds import stable_hash
from parley.envs.core.storage.uris import locked
from parley.policies.chat.addresses import chat_models
from parley.policies.chat.completions import part_thinking
from parley.policies.chat.limits import RequestLimits
from parley.policies.chat.model import (
    ANSWERS,
    ANSWERS_FOLDER,
    LEAST_WORDS,
    SCORED,
    Access,
    Answer,
    ArrivingChatModel,
    Chat,
    ChatDecoding,
    ChatModel,
    ChatUsage,
    ReplyScore,
    RunUsage,
)
from parley.policies.chat.settings import DEFAULT, ChatModelSettings

_MORE_SECONDS = "mend it, or give it more seconds: --set chat.timeout_s=SECONDS"


def _as_dicts(chat: Chat) -> list[dict[str, str]]:
    return [{"role": part.role, "content": part.content} for part in chat]


class OwnChatModel(ArrivingChatModel):
    """A user's own chat model, whose results are checked.

    Args:
        name: its address.
        part: an object with `answer` or `reply`, or a function of messages.
        settings: seconds that an answer or a score may take (a call that is asked for several may take as many times more),
            whether reasoning between marks is parted from texts (an `Answer` has them apart already), and limits.

    Raises:
        ConfigError: it is none of them.
    """

    def __init__(self, name: str, part: Any, settings: ChatModelSettings = DEFAULT) -> None:
        self._parts_thinking = settings.thinking == "part"
        self.answers_depend_on = "" if self._parts_thinking else "thinking is kept"
        self.name, self._part, self.usage = name, part, ChatUsage()
        self.access = Access.SCORES if callable(getattr(part, "score", None)) else Access.TEXT
        self._reply = getattr(part, "reply", part)
        self._calls, self._timeout_s = TimedCalls(name, settings.timeout_s, _MORE_SECONDS), settings.timeout_s
        self.limits, self._at_once = RequestLimits(name, settings), settings.concurrency
        called = getattr(self._reply, "__call__", None)  # noqa: B004 (an object may have an async method of this name)
        self._is_async = inspect.iscoroutinefunction(self._reply) or inspect.iscoroutinefunction(called)
        if not callable(getattr(part, "answer", self._reply)):
            fix = "name a class with a method answer(chats, *, decoding, seeds), or a function of messages that returns a text"
            raise ConfigError("this makes no chat model", where=name, got=repr(part), fix=fix)

    def arriving(
        self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()
    ) -> Iterator[tuple[int, Answer]]:
        """Yield answers as they arrive, see `ArrivingChatModel`; in order, but of an `async def`.

        Raises:
            ModelError: it did not give one text to each chat, or took too long.
            ConfigError: its code raised.
        """
        results: Iterator[tuple[int, Any]]
        if hasattr(self._part, "answer"):
            results = iter(enumerate(self._answered(chats, decoding, seeds)))
        elif self._is_async:
            results = self._replied_together(chats)
        else:
            results = enumerate(map(self._replied, chats))
        for index, text in results:
            answer = self._of_text(text) if isinstance(text, str) else text
            if not isinstance(answer, Answer):
                fix = "return texts, or parley.policies.chat.model.Answer"
                raise ModelError("the model's answer is no text", where=self.name, got=repr(answer)[:80], fix=fix)
            self.limits.pay(chats[index], answer)
            self.usage.count([answer])
            yield index, answer

    def score(self, chats: Sequence[Chat], replies: Sequence[str]) -> list[ReplyScore]:
        """Return the log probability of each reply, see `ScoringChatModel`, for a model with `score`."""
        for _ in replies:
            self._count_request()
        with self._calls.call("score", len(replies)):
            scores = list(self._part.score(chats, replies))
        if len(scores) != len(replies) or not all(isinstance(score, ReplyScore) for score in scores):
            fix = "return one parley.policies.chat.model.ReplyScore for each reply"
            raise ModelError("the model does not score every reply", where=self.name, got=repr(scores)[:80], fix=fix)
        self.usage.count(Answer(reply, SCORED) for reply in replies)
        return scores

    def _of_text(self, text: str) -> Answer:
        if not self._parts_thinking:
            return Answer(text)
        reply, reasoning, closed = part_thinking(text)
        return Answer(reply, "stop" if closed else "length", reasoning=reasoning)

    def _answered(self, chats: Sequence[Chat], decoding: ChatDecoding, seeds: Sequence[int]) -> list[Any]:
        for _ in chats:
            self._count_request()
        with self._calls.call("answer", len(chats)):
            given = self._part.answer(chats, decoding=decoding, seeds=seeds)
            answers = [] if isinstance(given, str) else list(given)
        if len(answers) != len(chats):
            got = f"the text {given[:60]!r} for {len(chats)}" if isinstance(given, str) else f"{len(answers)} of {len(chats)}"
            fix = "return a list with one answer for each chat"
            raise ModelError("the model does not answer every chat", where=self.name, got=got, fix=fix)
        return answers

    def _replied(self, chat: Chat) -> Any:
        self._count_request()
        with self._calls.call("reply"):
            return self._reply(_as_dicts(chat))

    def _count_request(self) -> None:
        with self.limits.request(threading.Event()):
            pass

    def _replied_together(self, chats: Sequence[Chat]) -> Iterator[tuple[int, Any]]:
        """Yield the results of an `async def`, as many at once as are allowed."""
        loop, running, waiting = asyncio.new_event_loop(), set[asyncio.Task[tuple[int, Any]]](), enumerate(chats)

        async def reply(index: int, chat: Chat) -> tuple[int, Any]:
            async with asyncio.timeout(self._timeout_s):
                return index, await self._reply(_as_dicts(chat))

        try:
            while True:
                for index, chat in itertools.islice(waiting, self._at_once - len(running)):
                    self._count_request()
                    running.add(loop.create_task(reply(index, chat)))
                if not running:
                    return
                done, running = loop.run_until_complete(asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED))
                for task in done:
                    with own_code(self.name):
                        try:
                            result = task.result()
                        except TimeoutError:
                            what = f"reply took more than {self._timeout_s:g} s"
                            raise ModelError(what, where=self.name, fix=_MORE_SECONDS) from None
                    yield result
        finally:
            for task in running:
                task.cancel()
            if running:
                loop.run_until_complete(asyncio.wait(running))
            loop.close()


def load_own(name: str, settings: ChatModelSettings = DEFAULT) -> OwnChatModel:
    """Return the chat model of a user's file or of an installed package.

    Raises:
        ConfigError: no such file or name, it is not trusted, or it makes none.
    """
    return OwnChatModel(name, made_chat_model(name, chat_models.get(name)), settings)


def answers_chats(part: Any) -> bool:
    """Return whether an object, or a function, is a chat model of a user's own."""
    return inspect.isfunction(part) or any(callable(getattr(part, name, None)) for name in ("answer", "reply"))


def made_chat_model(name: str, named: Any) -> Any:
    """Return an instance of a class, the result of a function without arguments, or the object itself."""
    makes = inspect.isclass(named) or (inspect.isfunction(named) and not inspect.signature(named).parameters)
    with own_start(name):
        return named() if makes else named


LEAST_TEMPERATURE = 0.5
"""Temperature above which equal answers to different seeds are counted."""


_MOST_RECENT = 4096
"""Starts of lines that wait to be put in order."""


class _LineStarts:
    """Where the line of each key starts, in 16 bytes a key; two keys of one digest, of 64 bits, count as one."""

    def __init__(self) -> None:
        self._recent = dict[int, int]()
        self._digests, self._starts = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)

    def get(self, key: str) -> int | None:
        """Return the start of a key's newest line; None if it has none."""
        digest = stable_hash(key)
        if (start := self._recent.get(digest)) is not None:
            return start
        place = int(np.searchsorted(self._digests, np.uint64(digest)))
        return int(self._starts[place]) if place < len(self._digests) and int(self._digests[place]) == digest else None

    def put(self, key: str, start: int) -> None:
        """Set the start of a key's newest line."""
        self._recent[stable_hash(key)] = start
        if len(self._recent) < _MOST_RECENT:
            return
        digests, starts = np.array(sorted(self._recent.items()), dtype=np.uint64).T
        places = np.searchsorted(self._digests, digests)
        is_known = places < len(self._digests)
        is_known[is_known] = self._digests[places[is_known]] == digests[is_known]
        self._starts[places[is_known]] = starts[is_known]
        places, is_new = places[~is_known], ~is_known
        self._digests = np.insert(self._digests, places, digests[is_new])
        self._starts = np.insert(self._starts, places, starts[is_new])
        self._recent = {}


class ChatAnswers:
    """The answers of a folder.

    Args:
        folder: made where it is not there; several processes may write to it.

    Raises:
        RunError: it cannot be read or written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._path = folder, folder / ANSWERS
        self._lines, self._read_to = _LineStarts(), 0
        self._lock, self._writer = threading.Lock(), -1
        try:
            # An existing file is only read until an answer is kept, so a read-only folder works.
            if not self._path.exists():
                folder.mkdir(parents=True, exist_ok=True)
                self._path.touch()
        except OSError as error:
            raise self._broken(error) from error

    def find(self, keys: Sequence[str]) -> list[Answer | None]:
        """Return the answer to each key, those of other processes too; None for no answer."""
        with self._lock:
            try:
                self._read_on()
                starts = [self._lines.get(key) for key in keys]
                if not any(start is not None for start in starts):
                    return [None] * len(keys)
                with self._path.open("rb") as file:
                    lines = [b"" if start is None else next(_lines_from(file, start), (0, b""))[1] for start in starts]
                    kept = [
                        _kept(line) if line and _key_of(line) == key else None for key, line in zip(keys, lines, strict=True)
                    ]
                return [None if line is None else line[0] for line in kept]
            except OSError as error:
                raise self._broken(error) from error

    def keep(self, key: str, answer: Answer, model: str, question: str = "") -> None:
        """Write an answer of a model on one line.

        Args:
            key: of the answer.
            answer: that is kept.
            model: address of the model that gave it.
            question: key of the question without its seed, for drawn answers; else empty.
        """
        document: dict[str, Any] = {"key": key, "model": model, "answer": {**vars(answer), "known": True}}
        if not answer.first_tokens:
            del document["answer"]["first_tokens"]
        document |= {"question": question} if question else {}
        line = json.dumps(document).encode() + b"\n"
        with self._lock:
            try:
                if self._writer < 0:
                    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                    self._writer = os.open(self._path, flags, 0o644)
                with locked(self._writer):
                    start = os.fstat(self._writer).st_size
                    # A kill may have left half a line, which must not swallow this one.
                    whole = start == 0 or os.pread(self._writer, 1, start - 1) == b"\n"
                    num_written = os.write(self._writer, line if whole else b"\n" + line)
            except OSError as error:
                raise self._broken(error) from error
            if whole and num_written == len(line):
                self._lines.put(key, start)
                self._read_to += num_written * (self._read_to == start)

    def usage(self) -> dict[str, ChatUsage]:
        """Return what the answers took when they were given, by the model's address."""
        usages: dict[str, ChatUsage] = {}
        drawn: dict[str, tuple[array[int], ...]] = {}
        try:
            self._read_on()
            with self._path.open("rb") as file:
                for start, line in _lines_from(file, 0):
                    if self._lines.get(_key_of(line)) != start or (kept := _kept(line)) is None:
                        continue
                    answer, model, question = kept
                    usage = usages.setdefault(model, ChatUsage())
                    usage.count([replace(answer, known=False)])
                    usage.failed_attempts += answer.failed_attempts
                    if question and answer.is_reply:
                        columns = drawn.setdefault(model, (array("Q"), array("Q"), array("b")))
                        columns[0].append(stable_hash(question))
                        columns[1].append(stable_hash(answer.text))
                        columns[2].append(len(answer.text.split()) >= LEAST_WORDS)
        except OSError as error:
            raise self._broken(error) from error
        for model, columns in drawn.items():
            usages[model].count_redrawn(*map(np.asarray, columns))
        return usages

    def _read_on(self) -> None:
        """Note where the answers of new lines stand."""
        if self._path.stat().st_size == self._read_to:
            return
        with self._path.open("rb") as file:
            for start, line in _lines_from(file, self._read_to):
                self._read_to = start + len(line)
                if key := _key_of(line):
                    self._lines.put(key, start)

    def __del__(self) -> None:
        if self._writer >= 0:
            os.close(self._writer)

    def _broken(self, error: OSError) -> RunError:
        fix = "make room or mend the disk; what was answered so far is kept"
        return RunError("answers cannot be kept", where=self._path, got=error.strerror or str(error), fix=fix)


_KEY = re.compile(rb'\{"key": "([^"\\]+)"')


def _key_of(line: bytes) -> str:
    match = _KEY.match(line)
    return match[1].decode(errors="replace") if match else ""


def _lines_from(file: BinaryIO, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines from a place on, each with its start."""
    file.seek(start)
    for line in file:
        if line.endswith(b"\n"):
            yield start, line
        start += len(line)


def _kept(line: bytes) -> tuple[Answer, str, str] | None:
    """Return the answer of a line, the model, and the key of its question; None for a line that says too little."""
    try:
        document = json.loads(line)
        return _stored_answer(document["answer"]), str(document.get("model", "")), str(document.get("question", ""))
    except (ValueError, KeyError, TypeError):
        return None


class RememberedChatModel(ArrivingChatModel):
    """A chat model that never asks the same question twice.

    Args:
        model: the model that is asked.
        answers: the kept answers.
        apart: is part of the keys of its answers, so that none is that of a model without it; empty for most.
    """

    def __init__(self, model: ChatModel, answers: ChatAnswers, apart: str = "") -> None:
        self.inner, self._answers = model, answers
        self.name: str = model.name
        self.access: Access = model.access
        self.usage: ChatUsage = getattr(model, "usage", None) or ChatUsage()
        self._depends_on: str = getattr(model, "answers_depend_on", "") + apart

    def arriving(
        self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = (), note: str = ""
    ) -> Iterator[tuple[int, Answer]]:
        """Yield answers as they arrive, see `ArrivingChatModel`; those that were kept come first.

        Args:
            chats: questions.
            decoding: of answers.
            seeds: one of each question where answers are drawn.
            note: is added to the notes of new answers; empty adds none.
        """
        drawn: Sequence[int | None] = seeds or [None] * len(chats)
        keys = [self._key(chat, decoding, seed) for chat, seed in zip(chats, drawn, strict=True)]
        is_drawn = decoding.temperature >= LEAST_TEMPERATURE and bool(seeds)

        def ask(indices: Sequence[int]) -> Iterator[tuple[int, Answer]]:
            questions, chosen = [chats[index] for index in indices], [seeds[index] for index in indices] if seeds else ()
            return answers_arriving(self.inner, questions, decoding=decoding, seeds=chosen, note=note)

        return self._remembered(keys, ask, note, lambda index: self._key(chats[index], decoding, None) if is_drawn else "")

    def _remembered(
        self,
        keys: Sequence[str],
        ask: Callable[[Sequence[int]], Iterator[tuple[int, Answer]]],
        note: str = "",
        question: Callable[[int], str] = lambda index: "",
    ) -> Iterator[tuple[int, Answer]]:
        """Yield the answers of keys, those that were kept first; `ask` gives those of some indices, which are kept."""
        # Equal questions of one call are asked once.
        indices: dict[str, list[int]] = {}
        for index, key in enumerate(keys):
            indices.setdefault(key, []).append(index)
        unknown = []
        for key, answer in zip(indices, self._answers.find(list(indices)), strict=True):
            if answer is None:
                unknown.append(key)
                continue
            noted = replace(answer, notes=tuple(dict.fromkeys((*answer.notes, note)))) if note else answer
            yield from self._known(indices[key], noted)
        if not unknown:
            return
        if (limits := getattr(self.inner, "limits", None)) is not None:
            limits.folder = self._answers.folder
        firsts = [indices[key][0] for key in unknown]
        try:
            for number, answer in ask(firsts):
                key = unknown[number]
                self._answers.keep(key, answer, self.name, question(firsts[number]))
                yield firsts[number], answer
                yield from self._known(indices[key][1:], answer)
        except (ConfigError, ModelError) as error:
            error.indices = tuple(index for number in error.indices for index in indices[unknown[number]])
            raise

    def keep_lost(self, chat: Chat, answer: Answer, decoding: ChatDecoding, seed: int | None) -> Answer:
        """Keep and return the answer of a question that could not be asked; a kept one is marked as known."""
        key = self._key(chat, decoding, seed)
        (kept,) = self._answers.find([key])
        if kept is None:
            self._answers.keep(key, answer, self.name)
        answer = answer if kept is None else replace(answer, known=True)
        self.usage.count([answer])
        return answer

    def _known(self, indices: Sequence[int], answer: Answer) -> Iterator[tuple[int, Answer]]:
        for index in indices:
            kept_answer = replace(answer, known=True)
            self.usage.count([kept_answer])
            yield index, kept_answer

    def score(self, chats: Sequence[Chat], replies: Sequence[str]) -> list[ReplyScore]:
        """Return the log probability of each reply, see `ScoringChatModel`; that of a server is kept."""
        inner: Any = self.inner
        if not hasattr(inner, "scores_arriving"):
            scores: list[ReplyScore] = inner.score(chats, replies)
            return scores
        decoding = ChatDecoding(max_tokens=1)
        pairs = list(zip(chats, replies, strict=True))
        keys = [answer_key(self.name, chat, decoding, None, f"{self._depends_on} {SCORED} {reply}") for chat, reply in pairs]
        scored = dict(
            self._remembered(keys, lambda indices: inner.scores_arriving(*zip(*(pairs[of] for of in indices), strict=True)))
        )
        return [ReplyScore.of(scored[index]) for index in range(len(pairs))]

    def _key(self, chat: Chat, decoding: ChatDecoding, seed: int | None) -> str:
        return answer_key(self.name, chat, decoding, seed, self._depends_on)


def answers_arriving(
    model: ChatModel, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = (), note: str = ""
) -> Iterator[tuple[int, Answer]]:
    """Return an iterator of the answers of any model as they come, each with the index of its chat.

    Args:
        model: the model that is asked.
        chats: questions.
        decoding: of answers.
        seeds: one of each question where answers are drawn.
        note: is added to the notes of new answers, and counted; empty adds none.
    """
    if isinstance(model, RememberedChatModel):
        return model.arriving(chats, decoding=decoding, seeds=seeds, note=note)
    if isinstance(model, ArrivingChatModel):
        answers = model.arriving(chats, decoding=decoding, seeds=seeds)
    else:
        given = model.answer(chats, decoding=decoding, seeds=seeds)
        if len(given) != len(chats):
            what, got = "a chat model gives one answer to each chat", f"{len(given)} answers to {len(chats)} chats"
            raise ConfigError(what, where=model.name, got=got)
        answers = iter(enumerate(given))
    return _noted(answers, note, getattr(model, "usage", None)) if note else answers


def _noted(answers: Iterator[tuple[int, Answer]], note: str, usage: ChatUsage | None) -> Iterator[tuple[int, Answer]]:
    for index, answer in answers:
        if usage is not None:
            usage.notes[note] += 1
        yield index, replace(answer, notes=(*answer.notes, note))


def count_lost(model: ChatModel, chat: Chat, answer: Answer, *, decoding: ChatDecoding, seed: int | None) -> Answer:
    """Return the answer of a question that could not be asked; count it, and keep it if answers are kept."""
    if isinstance(model, RememberedChatModel):
        return model.keep_lost(chat, answer, decoding, seed)
    if (usage := getattr(model, "usage", None)) is not None:
        usage.count([answer])
    return answer


def _stored_answer(fields: dict[str, Any]) -> Answer:
    """Return the answer of a line; raise KeyError if a line of an older version does not tell a reply from none.

    Older versions stored whether an answer ended, and no reason. Text that ended is a reply in both, unless it holds reasoning.
    """
    if "finish_reason" in fields:
        first_tokens = tuple((str(token), float(nats)) for token, nats in fields.get("first_tokens", ()))
        return Answer(**{**fields, "notes": tuple(fields.get("notes", ())), "first_tokens": first_tokens})
    older = dict(fields)
    ended = older.pop("ended", True)
    if not ended or not older["text"].strip() or part_thinking(older["text"]).reasoning:
        raise KeyError("finish_reason")
    return Answer(**older)


def usage_of(path: Path) -> RunUsage | None:
    """Return what the answers of a run, and of the runs below it, took when they were given; None without answers.

    Raises:
        RunError: they cannot be read.
    """
    models: dict[str, ChatUsage] = {}
    for file in sorted(path.rglob(f"{ANSWERS_FOLDER}/{ANSWERS}")):
        for model, usage in ChatAnswers(file.parent).usage().items():
            models.setdefault(model, ChatUsage()).add(usage)
    return RunUsage(models) if models else None


def kept_answers(model: ChatModel, folder: Path | None, apart: str = "") -> ChatModel:
    """Return a chat model that keeps its answers in a folder, see `RememberedChatModel`; the model itself without a folder."""
    return model if folder is None else RememberedChatModel(model, ChatAnswers(folder), apart)


def answer_key(name: str, chat: Chat, decoding: ChatDecoding, seed: int | None, depends_on: str = "") -> str:
    """Return the key of an answer, as 32 hex digits.

    Args:
        name: address of the model.
        chat: that is answered.
        decoding: of the answer.
        seed: that it is drawn with.
        depends_on: settings that shape the request or the reading of the answer; empty where all stand as they stood.
    """
    drawn = seed if decoding.temperature > 0 else None
    # What is shown beside an answer is part of its key only where it is asked for.
    how = {setting: value for setting, value in vars(decoding).items() if setting != "first_tokens" or value}
    parts: list[Any] = [name, [[message.role, message.content] for message in chat], how, drawn]
    parts += [depends_on] if depends_on else []
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()
