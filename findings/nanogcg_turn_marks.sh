#!/usr/bin/env bash
# nanoGCG: where a turn begins with the tokenizer's bos token, all marks of turns are taken out of the prompt.
#
# Guess before the first run: nanoGCG leaves out the bos token in front of the chat template's text, because the tokenizer adds one, and
#   `best_loss` is the loss of the target behind the templated prompt with `best_string` in it.
# Seen with nanogcg 0.3.0 (transformers 4.47.1): if the template's text begins with the bos token, every occurrence of it is removed. In
#   templates of the form `<|im_start|>ROLE` whose tokenizer has <|im_start|> as its bos (the SmolLM2 family), no turn has a beginning
#   any more; the ends stay. `best_loss` is that of this other prompt, to 1e-5, and not of the prompt that a chat model is asked with.
#   With another bos token the same search has the loss of the whole prompt. On SmolLM2-135M-Instruct six searches of 12 steps claimed
#   between .23 below and .01 above the loss of what is typed.
# Why it matters: strings are optimised for a prompt that nobody sends, and losses of nanoGCG and of other tools are no figures of one
#   quantity. Take the bos token out of the tokenizer before the search, and read best_string again in the real prompt.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "torch==2.13.0"
  "$folder/venv/bin/pip" install --quiet "nanogcg==0.3.0" "transformers==4.47.1" "numpy<2.3"
  python=$folder/venv/bin/python
fi
cat > "$folder/marks.py" <<'PYTHON'
import importlib.metadata
import sys

import nanogcg
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

START, END, OTHER = "<|im_start|>", "<|im_end|>", "<|text|>"
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
PROMPT, TARGET = "name a fruit ", "a lamp"


def tokenizer_with(bos):
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_alone = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_alone.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytes_alone, bos_token=bos, eos_token=END)
    tokenizer.add_special_tokens({"additional_special_tokens": [START, OTHER]})
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def loss_of(model, tokenizer, text):
    ids, target = (tokenizer(part, add_special_tokens=False, return_tensors="pt").input_ids for part in (text, TARGET))
    with torch.no_grad():
        logits = model(torch.cat([ids, target], 1)).logits[0, -target.shape[1] - 1 : -1]
    return float(torch.nn.functional.cross_entropy(logits, target[0]))


def searched(bos):
    torch.manual_seed(0)
    tokenizer = tokenizer_with(bos)
    sizes = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=256)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes)).eval()
    # A model whose weights say something, so that prompts differ.
    for weight in model.parameters():
        weight.data.mul_(4)
    config = nanogcg.GCGConfig(num_steps=5, search_width=16, topk=16, seed=1, optim_str_init="x x x x", verbosity="ERROR")
    result = nanogcg.run(model, tokenizer, PROMPT + "{optim_str}", TARGET, config)
    messages = [{"role": "user", "content": PROMPT + result.best_string}]
    asked = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return result.best_loss, loss_of(model, tokenizer, asked), loss_of(model, tokenizer, asked.replace(START, ""))


torch.set_num_threads(1)
print("nanogcg", importlib.metadata.version("nanogcg"))
claimed, real, unmarked = searched(START)
print(f"bos begins each turn: best_loss {claimed:.4f}, in the prompt {real:.4f}, in the prompt without beginnings of turns {unmarked:.4f}")
as_unmarked, differs = abs(claimed - unmarked) < 1e-5, abs(claimed - real) > 1e-3
claimed, real, unmarked = searched(OTHER)
print(f"another bos:          best_loss {claimed:.4f}, in the prompt {real:.4f}, in the prompt without beginnings of turns {unmarked:.4f}")
sys.exit(not (as_unmarked and differs and abs(claimed - real) < 1e-5))
PYTHON
"$python" "$folder/marks.py"
