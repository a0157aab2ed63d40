"""The example that serves a chat model by Ray Serve: its application answers as OpenAI's protocol has it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parley.policies.chat.refusals import Refusal, RefusalKind

serve = pytest.importorskip("ray.serve", reason="the extra serve is not installed", exc_type=ImportError)

EXAMPLE = Path(__file__).parents[3] / "examples" / "serve_chat_model.py"
MODEL = """
from parley.policies.chat.model import ChatTooLongError

def reply(messages):
    if messages[-1]["content"] == "long":
        raise ChatTooLongError("the messages are longer than the model reads")
    return "you said " + messages[-1]["content"]
"""


class Request:
    """What Ray Serve hands over of a question."""

    def __init__(self, text: str = "hello", method: str = "POST", path: str = "/v1/chat/completions") -> None:
        self.text, self.method, self.url = text, method, SimpleNamespace(path=path)

    async def json(self) -> dict[str, Any]:
        if not self.text:
            raise ValueError("no JSON")
        return {"model": "served", "messages": [{"role": "user", "content": self.text}], "max_tokens": 5, "seed": 3}


def test_the_application_answers_a_question(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("serve_chat_model", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    (tmp_path / "mine.py").write_text(MODEL)
    handle = serve.run(example.app(f"{tmp_path}/mine.py:reply", 2), _local_testing_mode=True)
    said = handle.remote(Request()).result(timeout_s=60)
    assert said["choices"] == [{"message": {"role": "assistant", "content": "you said hello"}, "finish_reason": "stop"}]
    refusal = handle.remote(Request("long")).result(timeout_s=60)
    assert refusal.status_code == 400
    assert Refusal.of_response(400, refusal.body).read({}).kind is RefusalKind.TOO_LONG
    for request, status, said in (
        (Request(method="GET", path="/"), 404, "POST /v1/chat/completions"),
        (Request(path="/v1/embeddings"), 404, "nothing is served there"),
        (Request(""), 400, "the request is no chat"),
    ):
        answer = handle.remote(request).result(timeout_s=60)
        assert answer.status_code == status
        assert said in answer.body.decode()
    (listed,) = handle.remote(Request(method="GET", path="/v1/models")).result(timeout_s=60)["data"]
    assert listed["id"] == "served"
