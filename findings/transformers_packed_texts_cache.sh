#!/usr/bin/env bash
# transformers: texts that DataCollatorWithFlattening puts side by side read each other, unless use_cache=False, which is not the default.
#
# Guess before the first run: model(**batch) of this collator gives the logits of each text alone. It returns no mask, and position_ids that
#   begin anew at each text, by which transformers 5 keeps texts apart in its attentions of torch. use_cache changes the speed alone.
# Seen with transformers 5.23.0, torch 2.13.0, a Llama and a GPT-2 with weights that are drawn, in training and eval mode, sdpa and eager: with
#   use_cache=False logits are equal to 1e-5. By default, which is use_cache=True, they are off by 5 to 8 from the second text on,
#   since boundaries are looked for only if there is no cache, and an empty one is made before that. An attention_mask of ones, which
#   tokenizers give, turns the search off, too. Nothing is said. Trainer sets use_cache to False in the model's configuration,
#   so a training by it is right (read, not run).
# Why it matters: perplexities and log probabilities of replies, and training loops of one's own, are packed for speed. Each reply is then
#   read behind those of other dialogues, and figures depend on the order of the batch. Give use_cache=False, and compare one batch with
#   its texts alone.
# Needs a Python (PYTHON) with torch and transformers. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "torch==2.13.0" 2> /dev/null
  "$folder/venv/bin/pip" install --quiet "transformers==5.23.0" 2> /dev/null
  python=$folder/venv/bin/python
fi
cd "$folder"
HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 "$python" -W ignore - 2> "$folder/errors" <<'PYTHON' || { cat "$folder/errors"; exit 1; }
import torch
import transformers
from transformers import DataCollatorWithFlattening, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

print("transformers", transformers.__version__, "torch", torch.__version__)
torch.manual_seed(0)
sizes = {"vocab_size": 40, "initializer_range": 0.3, "bos_token_id": 1, "eos_token_id": 2}
llama = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
gpt2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
MODELS = {"Llama": (LlamaForCausalLM, LlamaConfig(**sizes, **llama)), "GPT-2": (GPT2LMHeadModel, GPT2Config(**sizes, **gpt2))}
texts = [torch.randint(3, 40, (length,)).tolist() for length in (5, 9, 3)]
batch = DataCollatorWithFlattening()([{"input_ids": text} for text in texts])
assert set(batch) == {"input_ids", "labels", "position_ids"} and batch["position_ids"][0, 5] == 0
WAYS = {
    "default": {},
    "use_cache=True": {"use_cache": True},
    "use_cache=False": {"use_cache": False},
    "use_cache=False and a mask of ones": {"use_cache": False, "attention_mask": torch.ones_like(batch["input_ids"])},
}
for name, (kind, config) in MODELS.items():
    for attention in ("sdpa", "eager"):
        model = kind(config)
        model.set_attn_implementation(attention)
        for training in (True, False):
            model.train(training)
            with torch.no_grad():
                alone = torch.cat([model(torch.tensor([text])).logits[0] for text in texts])
                logits = {way: model(**{**batch, **settings}).logits[0] for way, settings in WAYS.items()}
            off = {way: float((seen - alone).abs().max()) for way, seen in logits.items()}
            first = {way: float((seen - alone)[: len(texts[0])].abs().max()) for way, seen in logits.items()}
            print(name, attention, "train" if training else "eval", {way: f"{value:.1g}" for way, value in off.items()})
            assert off["use_cache=False"] < 1e-4 and max(first.values()) < 1e-4
            assert min(value for way, value in off.items() if way != "use_cache=False") > 1
print("as seen")
PYTHON
