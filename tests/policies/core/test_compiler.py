"""torch's compiler, which takes a second to import, is left out where nothing is compiled; optimisers step as before."""

from __future__ import annotations

import subprocess
import sys

STEPS = """
import sys, torch
from torch.optim import SGD, Adagrad, Adam, AdamW
from parley.policies.core.checkpoint import eager
for kind in (Adam, AdamW, Adagrad, SGD):
    kind = eager(kind) if {skips} else kind
    weight = torch.ones(3, requires_grad=True)
    optimiser = kind([weight], lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        (weight * torch.arange(3)).square().sum().backward()
        optimiser.step()
    optimiser.load_state_dict(optimiser.state_dict())
    print(kind.__name__, weight.tolist())
print("torch._dynamo" in sys.modules)
"""


def test_optimisers_step_the_same_without_it() -> None:
    with_it, without = (
        subprocess.run([sys.executable, "-c", STEPS.format(skips=skips)], capture_output=True, text=True, check=True).stdout
        for skips in (False, True)
    )
    assert with_it.splitlines()[-1] == "True"
    assert without.splitlines() == [*with_it.splitlines()[:-1], "False"]
