#!/usr/bin/env bash
# peft: adapters with rank-stabilised scaling (rsLoRA) come out of add_weighted_adapter the square root of the rank times too strong.
#
# Guess before the first run: `add_weighted_adapter(["policy"], [1.0], "copy")` changes the model as "policy" does, and weights .5 and .5
#   by "svd" or "cat" change it by the mean of two adapters: with use_rslora and use_dora as with plain LoRA.
# Seen with peft 0.21.2, torch 2.13.0: so it is with plain LoRA. With use_rslora, "copy" changes the model by sqrt(r) times as much: 4 times
#   at rank 16, and means by sqrt of the new rank. The old scaling is multiplied into the new weights with lora_alpha = r, as if the
#   new one were 1; but the new configuration inherits use_rslora, so it is r / sqrt(r). With use_dora the magnitudes of "policy" are
#   left out, and "copy" is another model. No error and no warning tells.
# Why it matters: means of adapters are how policies of several seeds or of a league are joined, and weights below 1 how one goes back
#   towards the start. Such a model is judged at a strength that nobody trained. With rsLoRA divide the weights by the root of the new rank.
# Needs a Python (PYTHON) for which torch 2.13.0 exists. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "torch==2.13.0" 2> /dev/null
  "$folder/venv/bin/pip" install --quiet "transformers==5.23.0" "accelerate==1.15.0" "numpy==2.4.6" 2> /dev/null
  python=$folder/venv/bin/python
fi
"$python" -m pip install --quiet --no-deps --target "$folder/packages" "peft==0.21.2" 2> /dev/null
PYTHONPATH=$folder/packages "$python" - <<'PYTHON'
import warnings
from importlib.metadata import version

import torch
from peft import LoraConfig, get_peft_model
from torch import nn

print("peft", version("peft"), "torch", torch.__version__)
RANK = 16


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 48)

    def forward(self, values):
        return self.linear(values)


@torch.no_grad()
def change(model, name):
    """What an adapter adds to the weights, as seen from outside, by what the model says with it and without it."""
    model.set_adapter(name)
    values = torch.eye(64)
    with_it = model(values)
    with model.disable_adapter():
        return with_it - model(values)


def compared(**settings):
    """How much of the wanted change each combination makes, and whether anything else is left over."""
    torch.manual_seed(0)
    config = LoraConfig(r=RANK, lora_alpha=32, target_modules=["linear"], **settings)
    model = get_peft_model(Net(), config, adapter_name="policy")
    model.add_adapter("other", config)
    for name, weight in model.named_parameters():
        if "lora_" in name:  # as if it had been trained
            weight.data += 0.1 * torch.randn_like(weight)
    one, other = change(model, "policy"), change(model, "other")
    model.add_weighted_adapter(["policy"], [1.0], "copy")
    model.add_weighted_adapter(["policy"], [RANK**-0.5], "less")
    for kind in ("svd", "cat"):
        rank = {"svd_rank": 2 * RANK} if kind == "svd" else {}
        model.add_weighted_adapter(["policy", "other"], [0.5, 0.5], kind, combination_type=kind, **rank)
    wanted = {"copy": one, "less": one, "svd": (one + other) / 2, "cat": (one + other) / 2}
    found = {}
    for name, want in wanted.items():
        seen = change(model, name)
        ratio = (seen * want).sum() / want.square().sum()
        found[name] = round(ratio.item(), 3), round(((seen - ratio * want).norm() / want.norm()).item(), 3)
    print(f"{settings or 'plain LoRA'}: share of the wanted change, and rest: {found}")
    return model, found


with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    _, plain = compared()
    stable, rooted = compared(use_rslora=True)
    dora, scaled = compared(use_dora=True)
print("told:", [str(warning.message) for warning in told])
assert not told
assert [plain[name] for name in ("copy", "svd", "cat")] == [(1.0, 0.0)] * 3, plain
assert rooted == {"copy": (4.0, 0.0), "less": (1.0, 0.0), "svd": (5.657, 0.0), "cat": (5.657, 0.0)}, rooted
assert stable.base_model.model.linear.scaling["copy"] == RANK**0.5 and stable.peft_config["copy"].use_rslora
assert scaled["copy"] != (1.0, 0.0), scaled
magnitudes = dora.base_model.model.linear.lora_magnitude_vector
base = dora.base_model.model.linear.base_layer.weight.norm(dim=1)
assert torch.allclose(magnitudes["copy"].weight, base) and not torch.allclose(magnitudes["policy"].weight, base)
print("as seen")
PYTHON
