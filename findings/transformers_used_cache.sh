#!/usr/bin/env bash
# transformers: a second `generate` on one cache reads the first answer and a part of the prompt again, and gives another answer.
#
# Guess before the first run: `generate` with a cache that a first `generate` has filled with its answer, and the same prompt, raises an
#   error, for no token of the prompt is left to read.
# Seen with transformers 5.23.0, torch 2.13.0: the cache holds prompt and answer, n tokens more than the prompt. The second call reads
#   the prompt without its first n tokens behind that, at the positions of the prompt, and answers this text: the number of new tokens
#   is negative, and the slice [-(-n):] takes it from the front. DynamicCache and StaticCache do so, and nothing says it. Only where
#   the answer is as long as the prompt an error is raised. Another question behind the same instructions loses as many of its first
#   tokens as the first question and answer have. With a cache cropped to the prompt, or a deep copy each time, answers are equal.
# Why it matters: prompts of agents are long and answers short, so best-of-n attacks and repeated judgements read their prompt once
#   and keep the cache. From the second draw on they ask something else, and their draws are not of one distribution.
# Needs a Python (PYTHON) for which torch 2.13.0 exists. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "torch==2.13.0" 2> /dev/null
  "$folder/venv/bin/pip" install --quiet "transformers==5.23.0" "numpy==2.4.6" 2> /dev/null
  python=$folder/venv/bin/python
fi
HF_HUB_OFFLINE=1 "$python" -W error - <<'PYTHON'
import torch
import transformers
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, StaticCache

print("transformers", transformers.__version__, "torch", torch.__version__)
torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
ends = {"eos_token_id": None, "bos_token_id": None, "pad_token_id": 0}
model = LlamaForCausalLM(LlamaConfig(**sizes, **ends, vocab_size=50, initializer_range=0.5)).eval()
read = []


def note(module, args, given):
    """Keep what the model reads: its tokens and their first position."""
    read.append((given["input_ids"][0].tolist(), int(given["position_ids"][0, 0])))


model.model.register_forward_pre_hook(note, with_kwargs=True)


def answer(prompt, cache, tokens=5):
    """What the model answers, what it reads for that, and where that begins."""
    read.clear()
    given = torch.tensor([prompt])
    written = model.generate(given, attention_mask=torch.ones_like(given), past_key_values=cache, max_new_tokens=tokens, do_sample=False)
    seen, position = read[0]
    print(f"  reads {seen} from position {position}, answers {written[0, len(prompt) :].tolist()}")
    return written[0, len(prompt) :].tolist(), seen, position


prompt = list(range(7, 19))
for cache in (DynamicCache(config=model.config), StaticCache(config=model.config, max_cache_len=64)):
    print(f"twice the same prompt, {type(cache).__name__}:")
    first, whole, _ = answer(prompt, cache)
    second, rest, position = answer(prompt, cache)
    assert whole == prompt and (rest, position) == (prompt[4:], 4), "four tokens of the answer were read"
    assert second != first, "greedy answers to one prompt"
print("cropped in between:")
cache = DynamicCache(config=model.config)
assert answer(prompt, cache)[0] == first
cache.crop(-5)  # four tokens of the answer, and the last one of the prompt, which is read again
assert answer(prompt, cache) == (first, prompt[-1:], len(prompt) - 1)
print("an answer as long as the prompt:")
cache = DynamicCache(config=model.config)
answer(prompt, cache, tokens=len(prompt) + 1)
try:
    answer(prompt, cache)
except RuntimeError as error:
    print(f"  {error}")
else:
    raise SystemExit("no error")
print("two questions behind six tokens of instructions:")
cache, other = DynamicCache(config=model.config), [*prompt[:6], *range(30, 39)]
answer([*prompt[:6], 20, 21, 22], cache)
said, rest, _ = answer(other, cache)
assert rest == other[13:], "the cache held 9 tokens and 4 of the answer"
assert said != answer(other, DynamicCache(config=model.config))[0]
print("as seen")
PYTHON
