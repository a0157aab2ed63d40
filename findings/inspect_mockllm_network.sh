#!/usr/bin/env bash
# The mock model of inspect_ai loads a tokenizer from the network to count the tokens of answers that it only makes up.
#
# Guess before the first run: an evaluation of one sample with mockllm/model and an answer of our own runs without a network,
#   as the model is there for tests; the number of tokens is missing, or is counted by a rule of thumb.
# Seen with inspect_ai 0.3.285, tiktoken 0.14.0, and no way to the network: the sample ends in a ConnectionError, and the log has
#   the status "error". With a `usage` in the answer nothing is loaded, and the log has the status "success".
# Why it matters: a test of a task that passed on a desk fails in a container without network, at the model that needs none.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "inspect_ai==0.3.285" "tiktoken==0.14.0" 2> /dev/null
cat > "$folder/look.py" <<'PYTHON'
import sys
from importlib.metadata import version

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model

print("inspect_ai", version("inspect_ai"), "tiktoken", version("tiktoken"))
seen = []
for usage in (None, ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)):
    answer = ModelOutput.from_content("mockllm/model", "yes")
    answer.usage = usage
    model = get_model("mockllm/model", custom_outputs=[answer], memoize=False)
    (log,) = eval(Task(dataset=[Sample(input="is it?")]), model=model, log_dir=sys.argv[1], display="none")
    error = log.samples[0].error if log.samples else None
    seen.append((log.status, "ConnectionError" in error.message or "ProxyError" in error.message if error else None))
    print("with usage" if usage else "without usage", seen[-1])
assert seen == [("error", True), ("success", None)], seen
print("as seen")
PYTHON
# No way to the network, and nothing loaded before.
HOME="$folder" TIKTOKEN_CACHE_DIR="$folder/none" DATA_GYM_CACHE_DIR="$folder/none" https_proxy=http://127.0.0.1:9 \
  HTTPS_PROXY=http://127.0.0.1:9 "$folder/venv/bin/python" "$folder/look.py" "$folder/logs" 2> /dev/null
