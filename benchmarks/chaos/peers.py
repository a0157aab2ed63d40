"""The same kill in the middle of other tools: what each asks again, and what is lost.

A server of OpenAI's protocol on this machine answers each question in half a second and counts it. Each tool asks 60 questions,
as many at once as it does by default, is killed (`kill -9`) once 30 are answered, and goes on in the way that it documents.

    python -m benchmarks.chaos.peers --inspect VENV --garak VENV --pyrit VENV

Each VENV has that tool alone. A tool whose environment is not given is left out; what earlier calls found stays in the table.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import tyro

from benchmarks.chaos.page import write_peers

ROOT = Path(__file__).resolve().parents[2]
NUM, AFTER, DELAY_S = 60, 30, 0.5
QUESTIONS = [f"what is number {number} ?" for number in range(NUM)]

INSPECT = f"""
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

@task
def numbers():
    samples = [Sample(id=number, input=f"what is number {{number}} ?", target="you said") for number in range({NUM})]
    return Task(dataset=samples, solver=generate(), scorer=includes())
"""
INSPECT_READ = """
import sys
from inspect_ai.log import list_eval_logs, read_eval_log
best = 0
for info in list_eval_logs(sys.argv[1]):
    log = read_eval_log(info)
    best = max(best, len({sample.id for sample in log.samples or [] if not sample.error}))
print(best)
"""
PYRIT = f"""
import asyncio, json, sys
from pathlib import Path

async def main():
    from pyrit.memory import CentralMemory
    from pyrit.models import SeedPrompt
    from pyrit.prompt_target import OpenAIChatTarget
    from pyrit.scenario.scenarios.garak.encoding import Encoding, EncodingDatasetConfiguration, EncodingTechnique
    from pyrit.setup import IN_MEMORY, SQLITE, initialize_pyrit_async
    await initialize_pyrit_async(memory_db_type=SQLITE, db_path=sys.argv[2])
    told = Path(sys.argv[3])
    scenario = Encoding(encoding_templates=[], scenario_result_id=told.read_text() if told.exists() else None)
    seeds = [SeedPrompt(value=f"what is number {{number}} ?", data_type="text") for number in range({NUM // 2})]
    scenario.set_params_from_args(args={{
        "objective_target": OpenAIChatTarget(endpoint=sys.argv[1], api_key="none", model_name="m"),
        "scenario_techniques": [EncodingTechnique.ROT13, EncodingTechnique.Atbash],
        "dataset_config": EncodingDatasetConfiguration(seeds=seeds),
        "include_baseline": False,
    }})
    await scenario.initialize_async()
    told.write_text(str(scenario._scenario_result_id))
    result = await scenario.run_async()
    print("results", sum(len(each) for each in result.attack_results.values()))

asyncio.run(main())
"""


@dataclass
class Peer:
    """What came of a kill.

    Args:
        tool: name and version.
        way: how it goes on.
        before: questions asked before the kill, 30 of them answered.
        kept: answers in its files after the kill.
        again: questions beyond those of a run that nothing disturbs.
        requests: questions that reached the server, of both calls.
        results: results at the end.
        seconds: from the second start to its first question.
    """

    tool: str
    way: str
    before: int
    kept: int
    again: int
    requests: int
    results: int
    seconds: float


class Server:
    """Answers and counts questions; kills a process once some are answered."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, str]] = []
        self.answered = 0
        self.victim: int | None = None
        self.lock = threading.Lock()
        outer = self

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._send({"object": "list", "data": [{"id": "m", "object": "model"}]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                content = body["messages"][-1]["content"]
                text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
                with outer.lock:
                    outer.asked.append((time.monotonic(), text))
                time.sleep(DELAY_S)
                message = {"role": "assistant", "content": f"you said {text}"}
                usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                answer = {
                    "id": "a",
                    "object": "chat.completion",
                    "created": 1,
                    "model": "m",
                    "choices": [choice],
                    "usage": usage,
                }
                self._send(answer)
                with outer.lock:
                    outer.answered += 1
                    if outer.victim is not None and outer.answered == AFTER:
                        os.killpg(outer.victim, signal.SIGKILL)

            def _send(self, document: dict[str, Any]) -> None:
                content = json.dumps(document).encode()
                try:
                    self.send_response(200)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:
                    self.close_connection = True

            def log_message(self, *rest: Any) -> None:
                """Say nothing."""

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *rest: Any) -> None:
                """Say nothing of a connection that was cut."""

        self.server = Quiet(("127.0.0.1", 0), Answering)
        self.uri = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def call(command: list[str], folder: Path, server: Server, kill: bool, **variables: str) -> tuple[int, str]:
    """Run a command, and kill it with all its processes once the server has answered enough; its status and its words."""
    said = folder / "said.txt"
    with said.open("w") as stream:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
            start_new_session=True,
        )  # fmt: skip
        server.victim = process.pid if kill else None
        status = process.wait(300)
    server.victim = None
    time.sleep(0.5)
    return status, said.read_text()


def measured(
    tool: str, way: str, first: Callable[[Server], None], again: Callable[[Server], None], kept: Callable[[], int],
    results: Callable[[], int],
) -> Peer:  # fmt: skip
    """Kill a tool, let it go on, and count."""
    server = Server()
    first(server)
    num_before, num_kept = len(server.asked), kept()
    moment = time.monotonic()
    again(server)
    later = [when - moment for when, _ in server.asked if when > moment]
    server.server.shutdown()
    return Peer(tool, way, num_before, num_kept, len(server.asked) - NUM, len(server.asked), results(), min(later, default=0.0))


def inspect(venv: Path, folder: Path, *, recover: bool) -> Peer:
    """Kill inspect_ai."""
    (folder / "task.py").write_text(INSPECT)
    logs = folder / "logs"
    name = str(venv / "bin" / "inspect")
    own = {"OPENAI_API_KEY": "none", "HOME": str(folder), "XDG_DATA_HOME": str(folder / "data")}
    flags = ["--display", "none", "--log-dir", str(logs)]

    def first(server: Server) -> None:
        status, text = call(
            [name, "eval", "task.py", "--model", "openai/m", "-M", "responses_api=false", *flags],
            folder,
            server,
            True,
            OPENAI_BASE_URL=server.uri,
            **own,
        )
        assert status == -signal.SIGKILL, text

    def again(server: Server) -> None:
        (log,) = sorted(logs.glob("*.eval"))
        if recover:
            status, text = call([name, "log", "recover", str(log), "--overwrite"], folder, server, False, **own)
            assert status == 0, text
        status, text = call([name, "eval-retry", str(log), *flags], folder, server, False, OPENAI_BASE_URL=server.uri, **own)
        assert status == 0, text

    def kept() -> int:
        done = subprocess.run(
            [name, "log", "recover", "--list"], cwd=folder, capture_output=True, text=True, env={**os.environ, **own}
        )
        return sum(int(number) for number in re.findall(r"(\d+) (?:flushed|completed)", done.stdout))

    def read() -> int:
        done = subprocess.run(
            [str(venv / "bin" / "python"), "-c", INSPECT_READ, str(logs)],
            capture_output=True,
            text=True,
            env={**os.environ, **own},
        )
        return int(done.stdout.split()[-1]) if done.returncode == 0 else 0

    way = "`inspect log recover LOG --overwrite`, `inspect eval-retry LOG`" if recover else "`inspect eval-retry LOG`"
    return measured("inspect_ai 0.3.285", way, first, again, kept, read)


def garak(venv: Path, folder: Path) -> Peer:
    """Kill garak, which documents no way to go on: the same command again."""
    own = {name: str(folder / name) for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")} | {"HOME": str(folder)}
    own |= {"OPENAICOMPATIBLE_API_KEY": "none"}
    (folder / "c.yaml").write_text(f"run:\n  soft_probe_prompt_cap: {NUM}\n  generations: 1\n")

    def command(server: Server, prefix: str) -> list[str]:
        options = json.dumps({"openai": {"OpenAICompatible": {"uri": f"{server.uri}/"}}})
        return [
            str(venv / "bin" / "python"), "-m", "garak", "--config", "c.yaml", "--target_type", "openai.OpenAICompatible",
            "--target_name", "m", "--generator_options", options, "--spec", "probes.phrasing.PastTense", "-g", "1",
            "--report_prefix", str(folder / prefix),
        ]  # fmt: skip

    def first(server: Server) -> None:
        status, text = call(command(server, "first"), folder, server, True, **own)
        assert status == -signal.SIGKILL, text

    def again(server: Server) -> None:
        status, text = call(command(server, "second"), folder, server, False, **own)
        assert status == 0, text

    def attempts(prefix: str) -> int:
        (path,) = folder.rglob(f"{prefix}.report.jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
        return len({line["uuid"] for line in lines if line["entry_type"] == "attempt" and line["outputs"]})

    way = "none is documented: the same command again, from the beginning"
    return measured("garak 0.17.1", way, first, again, lambda: attempts("first"), lambda: attempts("second"))


def pyrit(venv: Path, folder: Path) -> Peer:
    """Kill PyRIT within a scenario, which goes on by its id."""
    (folder / "scenario.py").write_text(PYRIT)
    own = {"HOME": str(folder), "XDG_DATA_HOME": str(folder / "data")}
    told: list[str] = []

    def command(server: Server) -> list[str]:
        return [str(venv / "bin" / "python"), "scenario.py", server.uri, str(folder / "memory.db"), str(folder / "id.txt")]

    def first(server: Server) -> None:
        status, text = call(command(server), folder, server, True, **own)
        assert status == -signal.SIGKILL, text

    def again(server: Server) -> None:
        status, text = call(command(server), folder, server, False, **own)
        assert status == 0, text
        told.append(text)

    def kept() -> int:
        import sqlite3

        with sqlite3.connect(folder / "memory.db") as memory:
            return int(
                memory.execute("SELECT COUNT(*) FROM AttackResultEntries WHERE outcome != 'undetermined' OR 1").fetchone()[0]
            )

    way = "a scenario with `scenario_result_id=ID`"
    return measured("PyRIT 1.1.0", way, first, again, kept, lambda: int(told[-1].split("results")[-1].split()[0]))


def parley(folder: Path) -> Peer:
    """Kill a scan."""
    (folder / "policy.yaml").write_text(
        "name: numbers\nrules: [{name: no code, must_not: {contains: SAVE50}}]\nlimits: {breach.none: 0.5}\n"
        "prompts: [{file: prompts.csv, column: prompt}]\n"
    )
    (folder / "prompts.csv").write_text("prompt\n" + "".join(f"{question}\n" for question in QUESTIONS[: NUM // 2]))
    run = folder / "run"

    def command(server: Server) -> list[str]:
        return [sys.executable, "-m", "parley", "scan", "policy.yaml", "--model", f"openai:{server.uri}#m", "--run", str(run)]

    def first(server: Server) -> None:
        status, text = call(command(server), folder, server, True, PYTHONPATH=str(ROOT))
        assert status == -signal.SIGKILL, text

    def again(server: Server) -> None:
        status, text = call(command(server), folder, server, False, PYTHONPATH=str(ROOT))
        assert status == 0, text

    def kept() -> int:
        answers = run / "answers" / "answers.jsonl"
        return len(answers.read_text().splitlines()) if answers.exists() else 0

    def results() -> int:
        import pyarrow.parquet as pq

        return sum(pq.ParquetFile(path).metadata.num_rows for path in (run / "rows").glob("*.parquet"))

    return measured("Parley", "the same command again", first, again, kept, results)


@dataclass
class Options:
    """Kill other tools in the middle, and count what they ask again."""

    inspect: Path | None = None
    """Virtual environment with inspect_ai 0.3.285 and openai 3.4.0."""
    garak: Path | None = None
    """Virtual environment with garak 0.17.1."""
    pyrit: Path | None = None
    """Virtual environment with pyrit 1.1.0."""
    folder: Path = ROOT / "runs" / "chaos"
    """Where results are kept."""


def main(options: Options) -> None:
    """Kill each tool whose environment is given, and Parley."""
    kills: list[Callable[[Path], Peer]] = [parley]
    if options.inspect is not None:
        kills += [partial(inspect, options.inspect, recover=recover) for recover in (False, True)]
    if options.garak is not None:
        kills.append(partial(garak, options.garak))
    if options.pyrit is not None:
        kills.append(partial(pyrit, options.pyrit))
    options.folder.mkdir(parents=True, exist_ok=True)
    stored = options.folder / "peers.json"
    peers = {(peer["tool"], peer["way"]): peer for peer in json.loads(stored.read_text())} if stored.exists() else {}
    for kill in kills:
        with tempfile.TemporaryDirectory(prefix="peer-") as folder:
            peer = kill(Path(folder))
        print(peer, flush=True)
        peers[peer.tool, peer.way] = asdict(peer)
        stored.write_text(json.dumps([*peers.values()], indent=1))
    write_peers([*peers.values()])


if __name__ == "__main__":
    main(tyro.cli(Options, prog="python -m benchmarks.chaos.peers", description=Options.__doc__))
