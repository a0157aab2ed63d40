#!/usr/bin/env bash
# transformers: min_length, encoder_repetition_penalty and no_repeat_ngram_size count padding as text, so a batch changes answers.
#
# Guess before the first run: in a batch that is padded at the left each row's greedy answer is the one to its prompt alone, under any
#   processor of logits, because padding is masked. min_length counts prompt and answer, as documented, and a prompt is its tokens.
# Seen with transformers 5.23.0, torch 2.13.0, a Llama with weights that are drawn, eight prompts of 2 to 12 tokens, pad = end: without
#   processors, with repetition_penalty and with no_repeat_ngram_size=2 all answers are equal. With min_length=15 a prompt of two tokens
#   gets 13 and more new ones alone, and may end after 3 in the batch, as ten tokens of padding count. encoder_repetition_penalty makes
#   the tokens of the prompt likelier, and the end is one of them where there is padding, so answers end earlier. no_repeat_ngram_size=1
#   forbids the end to all rows but the longest, which then run to the limit. Nothing is said.
# Why it matters: lengths of replies, and all that depends on them, change with the batch. An evaluation of one model with another batch
#   size gives other figures. Use min_new_tokens, and a padding token that is not the end.
# Needs a Python (PYTHON) with torch and transformers. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "torch==2.13.0" "transformers==5.23.0" "tokenizers==0.23.3" 2> /dev/null
  python=$folder/venv/bin/python
fi
cd "$folder"
HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 "$python" -W ignore - 2> "$folder/errors" <<'PYTHON' || { cat "$folder/errors"; exit 1; }
from importlib.metadata import version

import torch
from transformers import LlamaConfig, LlamaForCausalLM

print(*(f"{name} {version(name)}" for name in ("transformers", "torch")))
torch.manual_seed(0)
END, NEW = 2, 30
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.3}
model = LlamaForCausalLM(LlamaConfig(vocab_size=40, max_position_embeddings=256, eos_token_id=END, pad_token_id=END, **sizes)).eval()
with torch.no_grad():
    model.lm_head.weight[END] *= 1.5
draws = torch.Generator().manual_seed(1)
prompts = [torch.randint(3, 40, (length,), generator=draws) for length in (3, 12, 5, 9, 2, 7, 4, 6)]


def answers(texts, **options):
    """The new tokens of each text, to its end."""
    width = max(map(len, texts))
    ids = torch.stack([torch.cat([torch.full((width - len(text),), END), text]) for text in texts])
    mask = torch.stack([torch.arange(width) >= width - len(text) for text in texts]).long()
    out = model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=NEW, **options)[:, width:].tolist()
    return [row[: row.index(END) + 1] if END in row else row for row in out]


def lengths(**options):
    together, alone = answers(prompts, **options), [answers([prompt], **options)[0] for prompt in prompts]
    differ = sum(one != other for one, other in zip(together, alone, strict=True))
    print(f"{options}: {differ} of {len(prompts)} answers differ; lengths together {list(map(len, together))}, alone {list(map(len, alone))}")
    return differ, list(map(len, together)), list(map(len, alone))


for options in ({}, {"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 2}, {"min_new_tokens": 10}):
    assert lengths(**options)[0] == 0
differ, together, alone = lengths(min_length=15)
needed = [15 - len(prompt) for prompt in prompts]
assert differ >= 3 and all(length >= need for length, need in zip(alone, needed, strict=True)) and together[4] < needed[4]
differ, together, alone = lengths(encoder_repetition_penalty=1.3)
assert differ >= 3 and sum(together) < sum(alone)
differ, together, alone = lengths(no_repeat_ngram_size=1)
assert all(length == NEW for length, prompt in zip(together, prompts, strict=True) if len(prompt) < 12) and sum(alone) < 100
print("as seen")
PYTHON
