"""A scan of a served model against the bare questions: a server that answers in 50 ms, 32 questions at once.

The reference is threads with one connection of `http.client` each, which send the same bodies and keep nothing. "ours_share" is
what `parley scan` takes on the wall from its first question to its last row beyond "ideal_s", the server's time, as a share;
"reference_share" is the same of the reference. "ratio" is of processor seconds. "start_s" is the time before, "end_s" after.
"resume_s" is the time until a scan that is done but for one answer asks for it. "identical": equal answers.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import queue
import resource
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from benchmarks.measure import BenchmarkOptions, Result, run
from parley.engine.core.ray.record import WORK
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.scan.verbs import SCAN, ScanAsking, ScanConfig, ScanPlan, chat_of, wordings_of

DELAY_S, AT_ONCE = 0.05, 32
CONTROLS = 2
"""Each prompt is asked as it is, and with random words."""
POLICY = """
name: numbers
rules: [{name: no code, must_not: {contains: SAVE50}}]
limits: {breach.none: 0.5}
prompts: [{file: prompts.csv, column: prompt}]
"""


@dataclass(frozen=True)
class Options(BenchmarkOptions):
    """A scan of many prompts."""

    prompts: int = 5_000
    """Questions, half of them with random words."""
    delay_s: float = DELAY_S
    """Seconds of the server for an answer."""


def serve(port: Any, delay_s: float) -> None:
    """Answer each question after a while, as a server of OpenAI's protocol."""

    class Answering(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport, self.read = transport, b""

        def data_received(self, data: bytes) -> None:
            self.read += data
            head, end, rest = self.read.partition(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]) if end else 0
            if end and len(rest) >= size:
                self.read = rest[size:]
                asyncio.get_running_loop().call_later(delay_s, self.answer, json.loads(rest[:size]))

        def answer(self, body: dict[str, Any]) -> None:
            message = {"content": reply_to(body["messages"][-1]["content"])}
            usage = {"prompt_tokens": 7, "completion_tokens": 3}
            content = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}).encode()
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))

    async def answering() -> None:
        server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0, backlog=256)
        port.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(answering())


def reply_to(text: str) -> str:
    """Return the server's answer to a text."""
    return f"you said {text}"


def bare(port: int, bodies: list[dict[str, Any]]) -> list[str]:
    """Ask all questions, 32 at once, and return the answers."""
    answers, waiting = [""] * len(bodies), queue.SimpleQueue[int]()
    for index in range(len(bodies)):
        waiting.put(index)

    def ask() -> None:
        connection = HTTPConnection("127.0.0.1", port)
        while not waiting.empty():
            try:
                index = waiting.get_nowait()
            except queue.Empty:
                break
            connection.request("POST", "/v1/chat/completions", json.dumps(bodies[index]), {"Content-Type": "application/json"})
            answers[index] = json.loads(connection.getresponse().read())["choices"][0]["message"]["content"]
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def times_of(finished: RunFolder) -> dict[str, float]:
    """Return the last moment of each kind of event of a run, in seconds since 1970."""
    return {event["kind"]: datetime.fromisoformat(event["time"]).timestamp() for event in finished.events()}


def measure(options: Options) -> Result:
    """Clock both ways."""
    num = (options.prompts // 10 if options.quick else options.prompts) // CONTROLS * CONTROLS
    context = multiprocessing.get_context("spawn")
    ports = context.Queue()
    server = context.Process(target=serve, args=(ports, options.delay_s), daemon=True)
    server.start()
    port = ports.get()
    with tempfile.TemporaryDirectory() as folder:
        policy, path = Path(folder, "policy.yaml"), Path(folder, "run")
        policy.write_text(POLICY)
        lines = "".join(f"what is number {number}?\n" for number in range(num // CONTROLS))
        Path(folder, "prompts.csv").write_text(f"prompt\n{lines}")
        asking = ScanAsking(concurrency=AT_ONCE)
        config = ScanConfig(policy=str(policy), model=f"openai:http://127.0.0.1:{port}/v1#m", chat=asking)
        plan = ScanPlan.of(config)
        wordings = wordings_of(plan.policy)
        chats = [
            chat_of(plan.policy, plan.policy.prompts[item.prompt], wordings[item.attack], 0) for item in plan.items.values()
        ]
        bodies = [
            {"model": "m", "messages": [vars(message) for message in chat], "temperature": 0.0, "max_tokens": 60}
            for chat in chats
        ]
        before, began = time.process_time(), time.perf_counter()
        theirs = bare(port, bodies)
        reference_s, reference_cpu_s = time.perf_counter() - began, time.process_time() - before
        before, started = time.process_time(), time.time()
        SCAN.run(config, path, Silent())
        ended, cpu_s = time.time(), time.process_time() - before
        finished = RunFolder.load(path)
        events = times_of(finished)
        rows = list(finished.rows())
        ours_s = events["scanned"] - events[WORK]
        (path / "summary.json").unlink()
        max((path / "rows").glob("*.parquet")).unlink()
        answers = path / "answers" / "answers.jsonl"
        answers.write_bytes(b"".join(answers.read_bytes().splitlines(keepends=True)[:-1]))
        resumed = time.time()
        SCAN.run(config, path, Silent())
        again = times_of(RunFolder.load(path))
        identical = theirs == [reply_to(chat[-1].content) for chat in chats] and all(
            row["reply"] == reply_to(row["asked"]) for row in rows
        )
    server.kill()
    ideal_s = num * options.delay_s / AT_ONCE
    return Result(
        ratio=reference_cpu_s / cpu_s,
        identical=identical and len(rows) == num,
        figures={
            "questions": num,
            "ideal_s": ideal_s,
            "ours_s": ours_s,
            "reference_s": reference_s,
            "ours_share": ours_s / ideal_s - 1 if ideal_s else None,
            "reference_share": reference_s / ideal_s - 1 if ideal_s else None,
            "ours_cpu_s": cpu_s,
            "reference_cpu_s": reference_cpu_s,
            "start_s": events[WORK] - started,
            "end_s": ended - events["scanned"],
            "resume_s": again[WORK] - resumed,
            "most_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        },
    )


if __name__ == "__main__":
    run("scan", Options, measure)
