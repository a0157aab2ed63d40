#!/usr/bin/env bash
# peft: two OFT adapters merged are another model than the same two active together: the order turns round.
#
# Guess before the first run: `merge_adapter()` and `merge_and_unload(adapter_names=["a", "b"])` give the model that a and b are when both
#   are active, for any kind of adapter that can be merged.
# Seen with peft 0.21.2, torch 2.13.0, a Llama with weights that are drawn: for LoRA, DoRA, LoHa, LoKr, IA3, HRA and VeRA the logits are equal
#   to 1e-4. For OFT they are off by 2, where one adapter alone is exact: merged ["a", "b"] is what ["b", "a"] is unmerged, and rotations
#   of one layer do not commute. Nothing is said.
# Why it matters: a policy on top of a persona, or a defence on top of a task, is often a second adapter. It is trained and tested unmerged,
#   and served merged. Give the names to merge in the other order, and compare the logits.
# Needs a Python (PYTHON) with torch, transformers and accelerate. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-python3}
"$python" -m pip install --quiet --no-deps --target "$folder/packages" "peft==0.21.2" 2> /dev/null
cd "$folder"
HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 PYTHONPATH=$folder/packages "$python" -W ignore - 2> "$folder/errors" <<'PYTHON' || { cat "$folder/errors"; exit 1; }
from importlib.metadata import version

import torch
from peft import HRAConfig, IA3Config, LoHaConfig, LoKrConfig, LoraConfig, OFTConfig, VeraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

print(*(f"{name} {version(name)}" for name in ("peft", "transformers", "torch")))
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.2}
config = LlamaConfig(vocab_size=40, max_position_embeddings=64, **sizes)
text = torch.randint(0, 40, (2, 9), generator=torch.Generator().manual_seed(0))
NAMES = ["q_proj", "v_proj", "down_proj"]
KINDS = {
    "LoRA": lambda: LoraConfig(r=4, target_modules=NAMES),
    "DoRA": lambda: LoraConfig(r=4, use_dora=True, target_modules=NAMES),
    "LoHa": lambda: LoHaConfig(r=4, target_modules=NAMES),
    "LoKr": lambda: LoKrConfig(r=4, target_modules=NAMES),
    "IA3": lambda: IA3Config(target_modules=NAMES, feedforward_modules=["down_proj"]),
    "HRA": lambda: HRAConfig(r=4, target_modules=NAMES),
    "VeRA": lambda: VeraConfig(r=4, target_modules=NAMES),
    "OFT": lambda: OFTConfig(oft_block_size=8, target_modules=NAMES),
}


def made(kind):
    """A model with two adapters "a" and "b" whose weights are drawn."""
    torch.manual_seed(0)
    base = LlamaForCausalLM(config).eval()
    own = set(base.state_dict())
    model = get_peft_model(base, KINDS[kind](), adapter_name="a")
    model.add_adapter("b", KINDS[kind]())
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "base_layer" not in name and name.removeprefix("base_model.model.") not in own:
                weight.add_(torch.randn_like(weight) * 0.1)
    return model.eval()


def logits(kind, active, merge=None):
    model = made(kind)
    model.base_model.set_adapter(active)
    if merge == "merged":
        model.merge_adapter()
    elif merge == "unloaded":
        model = model.merge_and_unload(adapter_names=active)
    with torch.no_grad():
        return model(text).logits


def distance(one, other):
    return float((one - other).abs().max())


for kind in KINDS:
    alone, both, turned = (logits(kind, active) for active in (["a"], ["a", "b"], ["b", "a"]))
    merged, unloaded, single = logits(kind, ["a", "b"], "merged"), logits(kind, ["a", "b"], "unloaded"), logits(kind, ["a"], "merged")
    off = {"merged": distance(both, merged), "unloaded": distance(both, unloaded), "a alone": distance(alone, single)}
    print(f"{kind}: b changes the logits by {distance(alone, both):.2g}, merging by", {name: f"{value:.1g}" for name, value in off.items()})
    assert distance(alone, both) > 0.1 and off["a alone"] < 1e-4
    if kind == "OFT":
        print(f"  merged [a, b] and unmerged [b, a] differ by {distance(turned, merged):.1g}")
        assert off["merged"] > 1 and off["unloaded"] > 1 and distance(turned, merged) < 1e-4 and distance(turned, unloaded) < 1e-4
    else:
        assert max(off.values()) < 1e-4
print("as seen")
PYTHON
