"""Serves a chat model over OpenAI's protocol, and asks it by the address that every command takes.

    python examples/serve_chat_model.py                                here and now: a model of three lines, asked and ended
    python examples/serve_chat_model.py --model gguf:FILE --replicas 2  Ray Serve, until Ctrl-C: one copy for many actors

The second way needs the extra serve: `pip install --constraint constraints.txt --editable ".[serve]"`. While it serves,
`parley reply --model openai:http://127.0.0.1:8000/v1#served` and any other command, with as many workers as you like, ask the
same replicas.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from parley.envs.core.errors import ConfigError
from parley.policies.chat.answers import OwnChatModel
from parley.policies.chat.loading import load_chat_model
from parley.policies.chat.model import ChatDecoding, ChatModel, ChatTooLongError, Message


def reply(messages: list[dict[str, str]]) -> str:
    """Reply to the last message; put your own model here."""
    return f"You said {messages[-1]['content']!r}, and that is message {len(messages)}."


def completion(model: ChatModel, request: dict[str, Any]) -> dict[str, Any]:
    """Return a chat completion of OpenAI's protocol; raise ConfigError if the model takes no such messages."""
    chat = tuple(Message(message["role"], message["content"]) for message in request["messages"])
    first_tokens = request.get("top_logprobs", 0) if request.get("logprobs") else 0
    decoding = ChatDecoding(
        temperature=request.get("temperature", 0.0), max_tokens=request.get("max_tokens", 128), first_tokens=first_tokens
    )
    (answer,) = model.answer([chat], decoding=decoding, seeds=[request.get("seed", 0)])
    message = {"role": "assistant", "content": answer.text}
    # As vLLM calls it; without it an answer that was lost to thinking would look empty.
    message |= {"reasoning_content": answer.reasoning} if answer.reasoning else {}
    choice: dict[str, Any] = {"message": message, "finish_reason": answer.finish_reason}
    if answer.first_tokens:
        likeliest = [{"token": token, "logprob": nats} for token, nats in answer.first_tokens]
        first = next((pair for pair in likeliest if answer.text.startswith(str(pair["token"]))), likeliest[0])
        choice["logprobs"] = {"content": [{**first, "top_logprobs": likeliest}]}
    return {"choices": [choice], "usage": {"prompt_tokens": answer.num_prompt_tokens, "completion_tokens": answer.num_tokens}}


def refused(error: ConfigError) -> dict[str, Any]:
    """Return the body of status 400, which tells clients not to retry."""
    code = "context_length_exceeded" if isinstance(error, ChatTooLongError) else "invalid_request_error"
    return {"error": {"message": str(error), "code": code}}


PATH = "/v1/chat/completions"
MODELS = {"object": "list", "data": [{"id": "served", "object": "model", "owned_by": "parley"}]}
"""What GET /v1/models tells."""


def not_found(method: str, path: str) -> dict[str, Any]:
    """Return the body of status 404."""
    return refused(ConfigError("nothing is served there", got=f"{method} {path}", fix=f"POST {PATH}, or GET /v1/models"))


def app(address: str, replicas: int) -> Any:
    """Return replicas of one model as an application of Ray Serve, each with a copy of its weights."""
    from ray import serve
    from starlette.responses import JSONResponse

    class Served:
        def __init__(self) -> None:
            self.model = load_chat_model(address)

        async def __call__(self, request: Any) -> Any:
            method, path = request.method, request.url.path.rstrip("/")
            if (method, path) == ("GET", "/v1/models"):
                return MODELS
            if (method, path) != ("POST", PATH):
                return JSONResponse(not_found(method, path or "/"), status_code=404)
            try:
                return await asyncio.to_thread(completion, self.model, await request.json())
            except ConfigError as error:
                return JSONResponse(refused(error), status_code=400)
            except (KeyError, TypeError, ValueError) as error:
                fix = "send JSON with messages, each with a role and a content"
                told = ConfigError("the request is no chat", got=f"{type(error).__name__}: {error}", fix=fix)
                return JSONResponse(refused(told), status_code=400)

    # A replica answers one question at a time, beside the loop in which Ray asks whether it is alive.
    return serve.deployment(num_replicas=replicas, max_ongoing_requests=1)(Served).bind()


def serve_with_ray(address: str, replicas: int, port: int) -> None:
    """Serve the replicas behind one URL, until Ctrl-C."""
    # Ray gives up a proxy that is not ready in 5 seconds, which it is not where other work has the processor.
    os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")
    try:
        import ray
        from ray import serve
    except ImportError:
        fix = 'pip install --constraint constraints.txt --editable ".[serve]"'
        raise SystemExit(f"Ray Serve is not installed\n  fix:   {fix}") from None
    # Not whatever Ray runs on this machine besides: serving would go on there after Ctrl-C.
    ray.init(os.environ.get("RAY_ADDRESS") or "local")
    serve.start(http_options={"port": port})
    serve.run(app(address, replicas), route_prefix="/")
    print(f"{address} is served as openai:http://127.0.0.1:{port}/v1#served")
    try:
        while True:
            time.sleep(1)
    except KeyboardInterrupt:
        serve.shutdown()


class Handler(BaseHTTPRequestHandler):
    """The same without Ray, for one process."""

    model = OwnChatModel("reply", reply)

    def do_POST(self) -> None:
        """Answer a request."""
        body = json.dumps(completion(self.model, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def ask(address: str) -> None:
    """Ask several questions at once, as any command does."""
    model = load_chat_model(address)
    chats = [(Message("user", f"question {number}"),) for number in range(5)]
    for answer in model.answer(chats, decoding=ChatDecoding()):
        print(answer.text)
    print(model.usage)  # type: ignore[attr-defined]  # what every model of `load_chat_model` counts


def main() -> None:
    """Read the options and serve the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="hf:FOLDER, gguf:FILE or path/file.py:Name, served by Ray Serve")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    if options.model:
        serve_with_ray(options.model, options.replicas, options.port)
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    ask(f"openai:http://127.0.0.1:{server.server_address[1]}/v1#mine")
    server.shutdown()


if __name__ == "__main__":
    main()
