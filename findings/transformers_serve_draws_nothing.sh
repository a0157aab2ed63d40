#!/usr/bin/env bash
# `transformers serve` ignores logprobs, and a temperature above 0 unless the model's generation_config draws by itself.
#
# Guess before the first run: a request with temperature 1.5 is drawn, equal seeds give equal answers and other seeds others; a
#   field of OpenAI's protocol that the server lacks, such as logprobs, is refused as prompt_logprobs is (422).
# Seen with transformers 5.23.0: all answers at temperature 1.5 are the greedy one, for do_sample stays false, while a temperature
#   of 0 sets it to false. logprobs and top_logprobs are taken, and left out of the answer; the server's own log says so.
# Why it matters: repeats "at temperature 1" measure one answer many times, and a client sees nothing of it.
# Needs a Python (PYTHON) with transformers and torch; the packages that serve are installed into a folder.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
server=
trap 'kill $server 2> /dev/null || true; rm -rf "$folder"' EXIT
python=${PYTHON:-python3}
"$python" -m pip install --quiet --target "$folder/serving" fastapi uvicorn openai 2> /dev/null
cat > "$folder/save.py" <<'PYTHON'
import sys

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, set_seed

set_seed(1)
words = {word: number for number, word in enumerate(["<e>", "<u>", *(f"w{number}" for number in range(30))])}
inner = Tokenizer(models.WordLevel(words, unk_token="<u>"))
inner.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<e>", pad_token="<e>", unk_token="<u>")
tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
tokenizer.save_pretrained(sys.argv[1])
config = GPT2Config(vocab_size=len(words), n_positions=64, n_embd=16, n_layer=1, n_head=2, eos_token_id=0, bos_token_id=0)
GPT2LMHeadModel(config).save_pretrained(sys.argv[1])
PYTHON
"$python" "$folder/save.py" "$folder/model" > /dev/null 2>&1
port=$("$python" -c "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); print(s.getsockname()[1])")
HF_HUB_OFFLINE=1 PYTHONPATH=$folder/serving "$python" -m transformers.cli.transformers serve "$folder/model" --device cpu --port "$port" \
  > "$folder/log" 2>&1 &
server=$!
"$python" - "$port" "$folder/model" <<'PYTHON'
import json
import sys
import time
from importlib.metadata import version
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen


def ask(**more):
    body = {"model": sys.argv[2], "messages": [{"role": "user", "content": "w1 w2"}], "max_tokens": 12, **more}
    request = Request(f"http://127.0.0.1:{sys.argv[1]}/v1/chat/completions", json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    return json.load(urlopen(request, timeout=120))["choices"][0]


for _ in range(240):
    try:
        urlopen(f"http://127.0.0.1:{sys.argv[1]}/health", timeout=2)
        break
    except (URLError, OSError):
        time.sleep(0.5)
print("transformers", version("transformers"))
greedy = ask(temperature=0)["message"]["content"]
drawn = [ask(temperature=1.5, seed=seed)["message"]["content"] for seed in (1, 2, 3)]
print("greedy:", greedy, "drawn:", drawn)
assert set(drawn) == {greedy}, drawn
choice = ask(temperature=0, logprobs=True, top_logprobs=3)
print("logprobs:", choice.get("logprobs"))
assert choice.get("logprobs") is None, choice
try:
    ask(prompt_logprobs=1)
    raise AssertionError("prompt_logprobs are taken")
except HTTPError as error:
    print("prompt_logprobs:", error.code, error.read().decode()[:80])
    assert error.code == 422, error.code
print("as seen")
PYTHON
