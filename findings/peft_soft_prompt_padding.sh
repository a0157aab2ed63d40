#!/usr/bin/env bash
# peft: a model with a soft prompt gives other answers in a batch that is padded at the left than to each text alone.
#
# Guess before the first run: prompt tuning, P-tuning and prefix tuning give each row of a padded batch its own result, in `generate` and
#   in a forward pass, as the model without them does: a Llama's positions are relative, and padding is masked.
# Seen with peft 0.21.2, transformers 5.23.0, a Llama with weights that are drawn: the virtual tokens are put in front of the padding, and
#   peft drops the position_ids (a UserWarning says that it does, not what follows), so the text stands further from its soft
#   prompt by the number of padding tokens. With prompt tuning and P-tuning most answers of `generate` differ from those alone, and
#   so do all logits. Prefix tuning is right in `generate`, which gives positions, and wrong in a forward pass without them.
#   Padding at the right changes nothing. The model without adapter is right in all cases.
# Why it matters: `generate` wants padding at the left. A soft prompt that was trained as an attack or a defence (with padding at the
#   right, or in a batch of one) is measured in a batch at another distance from its text, and the rate depends on the batch. Generate
#   from texts of one length.
# Needs a Python (PYTHON) with torch, transformers and accelerate. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-python3}
"$python" -m pip install --quiet --no-deps --target "$folder/packages" peft==0.21.2 2> /dev/null
HF_HUB_OFFLINE=1 PYTHONPATH=$folder/packages "$python" -W ignore - 2> "$folder/said" <<'PYTHON' || { cat "$folder/said"; exit 1; }
from importlib.metadata import version

import torch
from peft import PrefixTuningConfig, PromptEncoderConfig, PromptTuningConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

print(*(f"{name} {version(name)}" for name in ("peft", "transformers", "torch")))
TEXTS, PAD, NEW = 20, 1, 6


def build(kind):
    """A Llama of two layers, with a soft prompt of three tokens or without."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=20, max_position_embeddings=64, initializer_range=0.2, eos_token_id=2, pad_token_id=PAD, **sizes)
    model = LlamaForCausalLM(config)
    if kind is not None:
        model = get_peft_model(model, kind(task_type="CAUSAL_LM", num_virtual_tokens=3))
        for weight in model.prompt_encoder.parameters():
            torch.nn.init.normal_(weight, std=0.5)
    return model.eval()


@torch.no_grad()
def differing(kind):
    """How many of 20 short texts differ from those alone: answers and logits padded at the left, logits padded at the right."""
    model, counts = build(kind), [0, 0, 0]
    options = {"do_sample": False, "max_new_tokens": NEW, "eos_token_id": 99, "pad_token_id": PAD}
    for seed in range(TEXTS):
        torch.manual_seed(seed)
        short, long = torch.randint(3, 20, (1, 3)), torch.randint(3, 20, (1, 7))
        padding, ones = torch.full((1, 4), PAD), torch.ones_like(short)
        left, right = (torch.cat([torch.cat(parts, 1), long]) for parts in ((padding, short), (short, padding)))
        alone = model.generate(input_ids=short, attention_mask=ones, **options)[0, 3:]
        batched = model.generate(input_ids=left, attention_mask=(left != PAD).long(), **options)[0, 7:]
        own = model(input_ids=short, attention_mask=ones).logits[0, -1]
        at_left = model(input_ids=left, attention_mask=(left != PAD).long()).logits[0, -1]
        at_right = model(input_ids=right, attention_mask=(right != PAD).long()).logits[0, -7:][2]
        counts[0] += not torch.equal(alone, batched)
        counts[1] += bool((own - at_left).abs().max() > 1e-3)
        counts[2] += bool((own - at_right).abs().max() > 1e-3)
    print(f"{kind.__name__ if kind else 'no adapter':20} of {TEXTS} differ: answers {counts[0]}, logits {counts[1]}, at the right {counts[2]}")
    return counts


assert differing(None) == [0, 0, 0]
for kind in (PromptTuningConfig, PromptEncoderConfig):
    answers, logits, right = differing(kind)
    assert answers > TEXTS / 2 and logits == TEXTS and right == 0
assert differing(PrefixTuningConfig) == [0, TEXTS, 0]
print("as seen")
PYTHON
