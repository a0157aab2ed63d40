"""Real servers with SmolLM2-135M: `parley scan` works on each, and the first question says which log probabilities it shows."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.engine.core.cli.conftest import Parley, _own_folder, _small_machine, parley
from tests.real_models import smollm2

__all__ = ["_own_folder", "_small_machine", "parley"]
EXAMPLE = Path(__file__).parents[3] / "examples" / "serve_chat_model.py"
POLICY = """
name: one word
rules: [{name: no code, must_not: {contains: SAVE50}}]
limits: {breach.none: 0.99}
max_tokens: 8
prompts: ['What is the capital of France?', Name a colour.]
"""
LATE = "log probabilities of 20 first tokens, but the server shows no log probabilities of a given reply"
NONE = "the server shows no log probabilities"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "packages", "shows"),
    [
        ("transformers", "fastapi uvicorn", NONE),
        ("llama_cpp", "llama_cpp sse_starlette", LATE),
        ("ray", "fastapi aiohttp", LATE),
    ],
)
def test_a_real_server_is_scanned(server: str, packages: str, shows: str, parley: Parley) -> None:
    if missing := [package for package in packages.split() if find_spec(package) is None]:
        pytest.skip(f"{', '.join(missing)} not installed, which {server} serves with")
    from parley.policies.hugging_face.models import folder_of

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    file = smollm2()
    model = str(folder_of(file)) if server == "transformers" else "served"
    arguments = {
        "transformers": ["-m", "transformers.cli.transformers", "serve", model, "--device", "cpu"],
        "llama_cpp": [
            "-m",
            "llama_cpp.server",
            "--model",
            file.removeprefix("gguf:"),
            "--n_ctx",
            "512",
            "--logits_all",
            "true",
        ],
        "ray": [str(EXAMPLE), "--model", file],
    }[server]
    # transformers serve lists no models, status 500, where there is no cache of downloads.
    offline = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(Path.cwd())}
    process = subprocess.Popen([sys.executable, *arguments, "--port", port], env={**os.environ, **offline})
    try:
        _wait(f"http://127.0.0.1:{port}/v1/models", process)
        Path("policy.yaml").write_text(POLICY)
        address = f"openai:http://127.0.0.1:{port}/v1#{model}"
        slowly = "--set chat.concurrency=1 --set chat.logprobs=reply --set chat.first_timeout_s=60"
        outcome = parley(f"scan policy.yaml --model {address} {slowly} --run run")
        screen = " ".join(f"{outcome.out} {outcome.err}".split())
        assert outcome.status == 0, screen
        assert "Paris" in screen
        assert shows in screen
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until a server lists its models; Ray's answers that there are none while a replica loads."""
    for _ in range(240):
        assert process.poll() is None, "the server has ended"
        try:
            urlopen(url, timeout=2).close()
            return
        except OSError:
            time.sleep(0.5)
    raise AssertionError("the server does not answer")
