"""A program that reads and writes JSON lines: `cmd:PROGRAM ARGS`.

It reads one line for each question: {"messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 60},
with a seed where an answer is drawn. It writes one line for each: {"text": "..."}, or the text alone as JSON, or what a server
of OpenAI's protocol answers. {"error": "..."} is read like the refusal of a server: too long, busy (a code 429) or moderated
by its words. `finish_reason`, `reasoning`, `refusal` and `usage` may stand beside the text.

As many copies run as questions are asked at once (`chat.concurrency`), each started when it is first needed. A copy that ends,
or takes longer than `chat.timeout_s`, is started anew, and the end of what it wrote to standard error is shown. What it prints
beside JSON belongs there, too.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import subprocess
import tempfile
import time
import weakref
from collections import deque
from contextlib import suppress
from typing import Any

from parley.envs.core.errors import ConfigError, ModelError
from parley.envs.core.registry import require_trust
from parley.policies.chat.addresses import PROGRAM
from parley.policies.chat.completions import answer_of
from parley.policies.chat.connections import MOST_BYTES
from parley.policies.chat.model import Answer
from parley.policies.chat.refusals import AgainError, blotted, excerpt
from parley.policies.chat.server import MAX_UNREACHED, AskedChatModel
from parley.policies.chat.settings import ChatModelSettings

_SHOWN = 300
"""Letters of standard error that an error shows."""


class ProgramChatModel(AskedChatModel):
    """A chat model that is a program.

    Args:
        name: `cmd:PROGRAM ARGS`, as a shell reads words; no shell is started.
        settings: as of any model that is asked.

    Raises:
        ConfigError: there is no such program, or it was not typed on this command line.
    """

    def __init__(self, name: str, settings: ChatModelSettings) -> None:
        super().__init__(name, settings)
        try:
            self._words = shlex.split(name.removeprefix(PROGRAM))
        except ValueError as error:
            raise ConfigError("this is no command", where=name, got=str(error), fix="close the quotes") from None
        if not self._words or shutil.which(self._words[0]) is None:
            fix = "name a program and its arguments: cmd:python bot.py"
            raise ConfigError("there is no such program", where=name, got=" ".join(self._words[:1]), fix=fix)
        require_trust(name)
        self._idle = deque[_Copy]()

    def _exchange(self, body: dict[str, Any]) -> bytes | Answer:
        deadline = time.monotonic() + self._settings.timeout_s
        try:
            copy = self._idle.pop()
        except IndexError:
            copy = _Copy(self._words)
        question = {name: value for name, value in body.items() if name != "model"}
        try:
            line = copy.answer(json.dumps(question).encode() + b"\n", deadline)
        except TimeoutError:
            copy.end()
            raise AgainError(self._late()) from None
        except OSError as error:
            got = f"{copy.end()}; {error}" if error.args else copy.end()
            fix = "mend it; it reads lines from standard input until that ends, and writes a line of JSON for each"
            what = "the program ended without an answer"
            raise AgainError(
                ModelError(what, where=self.name, got=blotted(got), fix=fix), most_unreached=MAX_UNREACHED
            ) from None
        self._idle.append(copy)
        return line

    def _answer(self, raw: bytes, max_tokens: int | None) -> Answer:
        try:
            document = json.loads(raw)
        except ValueError:
            fix = 'write a line such as {"text": "..."} for each line that is read, and all else to standard error'
            what = "the program writes a line that is no JSON"
            raise ModelError(what, where=self.name, got=blotted(excerpt(raw)), fix=fix) from None
        if isinstance(document, str):
            document = {"text": document}
        if isinstance(document, dict) and "text" in document and "choices" not in document:
            beside = {name: document[name] for name in ("reasoning", "refusal") if name in document}
            choice = {
                "message": {"content": document["text"], **beside},
                "finish_reason": document.get("finish_reason", "stop"),
            }
            raw = json.dumps({"choices": [choice], "usage": document.get("usage")}).encode()
        return answer_of(raw, self.name, max_tokens=max_tokens, thinking=self._settings.thinking)


class _Copy:
    """A running program.

    Args:
        words: the program and its arguments.
    """

    def __init__(self, words: list[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the program)
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0)
        self._read = b""
        self._ends = weakref.finalize(self, self._process.kill)

    def answer(self, line: bytes, deadline: float) -> bytes:
        """Return the line that the program writes after a line that it reads.

        Raises:
            TimeoutError: it takes too long.
            OSError: it ended.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None, "it is a pipe"
        assert stdout is not None, "it is a pipe"
        os.set_blocking(stdin.fileno(), False)
        reading, writing = select.poll(), select.poll()
        reading.register(stdout, select.POLLIN)
        writing.register(stdin, select.POLLOUT)
        while line:
            _wait(writing, deadline)
            line = line[os.write(stdin.fileno(), line[: select.PIPE_BUF]) :]
        while b"\n" not in self._read:
            _wait(reading, deadline)
            part = os.read(stdout.fileno(), 65536)
            if not part:
                raise OSError
            self._read += part
            if len(self._read) > MOST_BYTES:
                raise OSError(f"its line is longer than {MOST_BYTES:,} bytes")
        answer, _, self._read = self._read.partition(b"\n")
        return answer

    def end(self) -> str:
        """End the program, and return how it ended with the end of its standard error."""
        try:
            status = f"status {self._process.wait(0.5)}"
        except subprocess.TimeoutExpired:
            status = "it still ran"
        self._ends()
        self._process.wait()
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 4 * _SHOWN))
        text = " ".join(self._errors.read().decode("utf-8", "replace").split())[-_SHOWN:]
        for file in (self._process.stdin, self._process.stdout, self._errors):
            with suppress(OSError):
                assert file is not None, "all are pipes or files"
                file.close()
        return f"{status}: {text}" if text else f"{status}, nothing on standard error"


def _wait(poll: select.poll, deadline: float) -> None:
    left_s = deadline - time.monotonic()
    if left_s <= 0 or not poll.poll(left_s * 1000):
        raise TimeoutError
