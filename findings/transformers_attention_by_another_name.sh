#!/usr/bin/env bash
# transformers: the same attention function, registered by another name, reads padding as text.
#
# Guess before the first run: AttentionInterface.register("mine", sdpa_attention_forward) and set_attn_implementation("mine") change
#   nothing, because the same function gets the same arguments; at most an error says that something is missing.
# Seen with transformers 5.23.0: the function gets attention_mask=None, without a word, because masks are made by a second registry
#   (AttentionMaskInterface), in which "mine" has no entry. Texts without padding have the same logits, so a first test passes; a row
#   of a padded batch reads the padding. Once the mask of "sdpa" is registered by that name too, logits are equal again.
# Why it matters: an attention of one's own that is tried on single texts is wrong in batches: in `generate`, scoring and training.
# Needs a Python (PYTHON) for which torch 2.13.0 exists. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-python3}
"$python" -m venv --system-site-packages "$folder/env"
"$folder/env/bin/python" -c 'import torch, transformers; assert (torch.__version__[:6], transformers.__version__) == ("2.13.0", "5.23.0")' \
  2> /dev/null || "$folder/env/bin/python" -m pip install --quiet torch==2.13.0 transformers==5.23.0 numpy 2> /dev/null
HF_HUB_OFFLINE=1 "$folder/env/bin/python" - <<'PYTHON'
import torch
import transformers
from transformers import AttentionInterface, AttentionMaskInterface, LlamaConfig, LlamaForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

print("transformers", transformers.__version__, "torch", torch.__version__)
torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
model = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=50)).eval()
alone = torch.tensor([[7, 8, 9, 10]])
padded = torch.tensor([[0, 0, 7, 8, 9, 10], [1, 2, 3, 4, 5, 6]])
mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])


@torch.inference_mode()
def last_logits(name):
    model.set_attn_implementation(name)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    read = model(input_ids=padded, attention_mask=mask, position_ids=positions, use_cache=False).logits
    return model(input_ids=alone, use_cache=False).logits[0, -1], read[0, -1]


usual_alone, usual_padded = last_logits("sdpa")
AttentionInterface.register("mine", sdpa_attention_forward)
mine_alone, mine_padded = last_logits("mine")
AttentionMaskInterface.register("mine", sdpa_mask)
_, whole_padded = last_logits("mine")
spread = float(usual_padded.std())
off = {
    "sdpa, padded row against the text alone": float((usual_padded - usual_alone).abs().max()),
    "mine, text alone": float((mine_alone - usual_alone).abs().max()),
    "mine, padded row": float((mine_padded - usual_padded).abs().max()),
    "mine with sdpa's mask, padded row": float((whole_padded - usual_padded).abs().max()),
}
for what, value in off.items():
    print(f"{what}: off by {value:.1e} (spread of logits {spread:.1e})")
first, second, third, fourth = off.values()
assert max(first, second, fourth) < 1e-5
assert third > 0.05 * spread
PYTHON
