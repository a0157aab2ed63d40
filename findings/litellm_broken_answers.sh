#!/usr/bin/env bash
# LiteLLM says "stop" of an answer that its provider says broke in the middle.
#
# Guess before the first run: a choice with finish_reason "error" (OpenRouter, Mistral) and an `error` beside half a text is
#   raised as an APIError, or handed on as finish_reason "error", as the openai client does.
# Seen with litellm 1.110.2: finish_reason is "stop" and nothing is raised; also for "network_error" (z.ai) and
#   "insufficient_system_resource" (DeepSeek). What was said is left in the choice's provider_specific_fields, as `error` and
#   `native_finish_reason`, where OpenAI's protocol has nothing. openai 3.57.0 hands "error" on.
# Why it matters: behind such a gateway half an answer is scored as a whole one, unless these two fields are read.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "litellm==1.110.2" "openai==3.57.0" 2> /dev/null
LITELLM_LOCAL_MODEL_COST_MAP=True "$folder/venv/bin/python" - <<'PYTHON'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version

import litellm
import openai


class Broken(BaseHTTPRequestHandler):
    def do_POST(self):
        model = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["model"]
        choice = {"index": 0, "finish_reason": model, "message": {"role": "assistant", "content": "half an"}}
        choice |= {"error": {"code": 502, "message": "upstream broke"}} if model == "error" else {}
        body = json.dumps({"id": "x", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


server = HTTPServer(("127.0.0.1", 0), Broken)
threading.Thread(target=server.serve_forever, daemon=True).start()
url, messages = f"http://127.0.0.1:{server.server_port}/v1", [{"role": "user", "content": "hi"}]
print("litellm", version("litellm"), "openai", version("openai"))
for reason in ("error", "network_error", "insufficient_system_resource"):
    answer = litellm.completion(model=f"openai/{reason}", api_base=url, api_key="x", messages=messages, max_retries=0)
    choice = answer.model_dump()["choices"][0]
    print(reason, "->", choice["finish_reason"], repr(choice["message"]["content"]), choice["provider_specific_fields"])
    assert (choice["finish_reason"], choice["message"]["content"]) == ("stop", "half an"), choice
    assert choice["provider_specific_fields"]["native_finish_reason"] == reason, choice
client = openai.OpenAI(base_url=url, api_key="x", max_retries=0)
(choice,) = client.chat.completions.create(model="error", messages=messages).choices
print("openai:", choice.finish_reason, choice.error)
assert choice.finish_reason == "error", choice
print("as seen")
PYTHON
