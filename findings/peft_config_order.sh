#!/usr/bin/env bash
# peft: an adapter that is saved twice has two different files, because target_modules stands in the order of Python's hashes.
#
# Guess before the first run: save_pretrained of one adapter with one seed writes the same bytes in any process, as it does for a
#   whole model; a digest of the folder then names the adapter.
# Seen with peft 0.21.2: LoraConfig turns target_modules into a set, and the file lists it in the set's order, which changes with
#   PYTHONHASHSEED, so from process to process. The weights are equal bit for bit, and adapter_config.json is not.
# Why it matters: caches, locks and registries that know a model by the digest of its folder take a training that was resumed, or
#   made again, for another model. A sorted list, written back, mends it: peft reads it as a set.
# Needs a Python (PYTHON) for which torch 2.13.0 exists. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-python3}
"$python" -m venv --system-site-packages "$folder/env"
"$folder/env/bin/python" -c 'import peft, torch, transformers; assert (peft.__version__, transformers.__version__) == ("0.21.2", "5.23.0")' \
  2> /dev/null || "$folder/env/bin/python" -m pip install --quiet torch==2.13.0 transformers==5.23.0 peft==0.21.2 numpy 2> /dev/null
cat > "$folder/save.py" <<'PYTHON'
import sys

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
model = get_peft_model(LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=20)), LoraConfig(r=2, target_modules=names))
model.save_pretrained(sys.argv[1])
PYTHON
for seed in 1 2 3; do
  HF_HUB_OFFLINE=1 PYTHONHASHSEED=$seed "$folder/env/bin/python" "$folder/save.py" "$folder/$seed" 2> /dev/null
done
"$folder/env/bin/python" - "$folder" <<'PYTHON'
import hashlib
import json
import sys
from pathlib import Path

import peft

print("peft", peft.__version__)
folders = [Path(sys.argv[1], seed) for seed in "123"]
digests = {
    name: {hashlib.sha256((folder / name).read_bytes()).hexdigest()[:12] for folder in folders}
    for name in ("adapter_model.safetensors", "adapter_config.json")
}
settings = [json.loads((folder / "adapter_config.json").read_text()) for folder in folders]
for name, values in digests.items():
    print(f"{name}: {len(values)} different files of three")
for setting in settings:
    print(setting["target_modules"])
assert len(digests["adapter_model.safetensors"]) == 1
assert len(digests["adapter_config.json"]) > 1
alike = [{key: sorted(value) if isinstance(value, list) else value for key, value in setting.items()} for setting in settings]
assert alike[0] == alike[1] == alike[2]
PYTHON
