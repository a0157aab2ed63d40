#!/usr/bin/env bash
# peft: an adapter that is switched off, or away from, between forward and backward gets no gradient, and nothing says so.
#
# Guess before the first run: the graph was built with adapter "policy", so `loss.backward()` fills its gradients, whichever adapter is
#   set meanwhile; with activation checkpointing it may raise, for the reading is repeated.
# Seen with peft 0.21.2, torch 2.13.0: `set_adapter("start")` or `disable_adapter_layers()` sets requires_grad=False on the weights of
#   "policy", and torch drops what arrives at a leaf that needs none: every gradient is None, without an error or a warning. Where only
#   a part of a loss was read before the switch, the step is made from the rest. With checkpointing (use_reentrant=False) the reading is
#   repeated by the adapter that is set now, and again no error says so. The block `with model.disable_adapter()` is harmless: it
#   switches back at its end.
# Why it matters: policy and reference are often two adapters of one base; who reads the reference second trains on nothing, or on
#   its guard alone, and sees a loss that looks right.
# Needs a Python (PYTHON) with torch, transformers and accelerate. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-python3}
"$python" -m pip install --quiet --no-deps --target "$folder/packages" peft==0.21.2 2> /dev/null
PYTHONPATH=$folder/packages "$python" -W error - <<'PYTHON'
import warnings
from importlib.metadata import version

warnings.simplefilter("ignore", DeprecationWarning)
warnings.simplefilter("ignore", FutureWarning)
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.utils.checkpoint import checkpoint

print("peft", version("peft"), "torch", torch.__version__)


class Net(nn.Module):
    def __init__(self, checkpointed):
        super().__init__()
        self.linear, self.checkpointed = nn.Linear(4, 3), checkpointed

    def forward(self, values):
        return checkpoint(self.linear, values, use_reentrant=False) if self.checkpointed else self.linear(values)


def trained(meanwhile, checkpointed=False):
    """The norms of the gradients of both adapters after a backward pass of what "policy" has read."""
    torch.manual_seed(0)
    config = LoraConfig(r=2, target_modules=["linear"], init_lora_weights=False)
    model = get_peft_model(Net(checkpointed), config, adapter_name="policy")
    model.add_adapter("start", config)
    model.set_adapter("policy")
    values = torch.ones(2, 4, requires_grad=checkpointed)
    loss = model(values).square().sum()
    meanwhile(model)
    loss.backward()
    norms = {}
    for adapter in ("policy", "start"):
        grads = [value.grad for name, value in model.named_parameters() if f".{adapter}." in name]
        norms[adapter] = None if all(grad is None for grad in grads) else round(sum(float(g.norm()) for g in grads if g is not None), 4)
    return norms


def away(model):
    model.set_adapter("start")


def off(model):
    model.base_model.disable_adapter_layers()


def within(model):
    with model.disable_adapter(), torch.no_grad():
        model(torch.ones(2, 4))


plain = trained(lambda model: None)
seen = {
    "nothing between": plain,
    "set_adapter": trained(away),
    "disable_adapter_layers": trained(off),
    "with disable_adapter()": trained(within),
    "set_adapter, checkpointed": trained(away, checkpointed=True),
}
for name, norms in seen.items():
    print(f"{name:28} {norms}")
assert plain["policy"] and plain["start"] is None
assert seen["set_adapter"] == {"policy": None, "start": None}
assert seen["disable_adapter_layers"] == {"policy": None, "start": None}
assert seen["with disable_adapter()"] == plain
assert seen["set_adapter, checkpointed"]["policy"] is None
PYTHON
