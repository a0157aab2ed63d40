#!/usr/bin/env bash
# LiteLLM: its cache gives one answer for every min_p, repetition_penalty, grammar and setting of the chat template.
#
# Guess before the first run: two calls share an entry of the cache only if the server would be asked the same, as they do for temperature,
#   seed, top_p, stop and max_tokens.
# Seen with litellm 1.110.2, an OpenAI-compatible server that answers with what it was asked: with litellm.cache = Cache() and caching=True
#   a second call with another min_p, repetition_penalty, guided_regex or chat_template_kwargs gets the answer to the first one, whether
#   they are given as arguments or in extra_body, and so does another top_k in extra_body. The server is not asked, though each of these
#   was sent to it in the first call. Other values of temperature, seed, top_p, stop, max_tokens and messages ask it. With
#   litellm.enable_caching_on_provider_specific_optional_params = True each of them asks, in extra_body as well. Nothing is said.
# Why it matters: these are the settings by which vLLM, SGLang and llama.cpp are sampled and held to a grammar. A sweep over them reports
#   the first setting throughout, and an attack that works at one sampling seems to work at all. Set the flag above, or cache elsewhere.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "litellm==1.110.2" "openai==3.57.0" "orjson==3.13.0" "soundfile==0.14.0" "fastapi==0.165.0" 2> /dev/null
  python=$folder/venv/bin/python
fi
cd "$folder"
LITELLM_LOCAL_MODEL_COST_MAP=True "$python" -W ignore - <<'PYTHON'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version

import litellm
from litellm.caching.caching import Cache

ASKED = []


class Echo(BaseHTTPRequestHandler):
    def do_POST(self):
        ASKED.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        message = {"role": "assistant", "content": json.dumps(ASKED[-1], sort_keys=True)}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        body = json.dumps({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


server = HTTPServer(("127.0.0.1", 0), Echo)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/v1"


def asked_again(first, second):
    """Whether the server is asked by the second of two calls with these settings."""
    litellm.cache = Cache()
    ASKED.clear()
    answers = []
    for settings in (first, second):
        call = {"messages": [{"role": "user", "content": "hi"}], **settings}
        answer = litellm.completion(model="openai/m", api_base=url, api_key="x", caching=True, max_retries=0, **call)
        answers.append(answer.choices[0].message.content)
    sent = first.get("extra_body", first)
    assert all(ASKED[0][name] == value for name, value in sent.items()), ASKED
    assert (answers[0] != answers[1]) == (len(ASKED) == 2)
    return len(ASKED) == 2


OTHERS = {
    "top_k": (1, 50),
    "min_p": (0.0, 0.9),
    "repetition_penalty": (1.0, 1.5),
    "guided_regex": ("yes|no", "[0-9]+"),
    "chat_template_kwargs": ({"enable_thinking": True}, {"enable_thinking": False}),
}
KEYED = {
    "temperature": (0.0, 1.0),
    "seed": (1, 2),
    "top_p": (0.5, 0.9),
    "stop": (["a"], ["b"]),
    "max_tokens": (5, 9),
    "messages": ([{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}]),
}
print("litellm", version("litellm"))
for flag in (False, True):
    litellm.enable_caching_on_provider_specific_optional_params = flag
    plain = {name: asked_again(*({name: value} for value in pair)) for name, pair in {**OTHERS, **KEYED}.items()}
    extra = {name: asked_again(*({"extra_body": {name: value}} for value in pair)) for name, pair in OTHERS.items()}
    print(f"flag {flag}, asked again: {plain}, in extra_body: {extra}")
    assert all(plain[name] for name in KEYED) and all(extra[name] == flag for name in OTHERS)
    assert plain["top_k"] and all(plain[name] == flag for name in OTHERS if name != "top_k")
    assert not asked_again({"temperature": 0.0}, {"temperature": 0.0})
print("as seen")
PYTHON
