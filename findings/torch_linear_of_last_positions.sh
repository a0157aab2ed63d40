#!/usr/bin/env bash
# torch: a linear layer on the last positions of a batch, h[:, -1:], copies its weight once for each row.
#
# Guess before the first run: F.linear flattens whatever it is given to two dimensions, so a view of (16, 1, 576) costs what the same
#   values cost as one block; at most a copy of 16 x 576 numbers lies between.
# Seen with torch 2.13.0 on a CPU: for a view with gaps it multiplies row by row (bmm) with the weight expanded to each row. In float32
#   that takes 4 to 7 times as long; in bfloat16 the expanded weight is written out, 16 x 576 x 49,152 numbers, and it takes
#   100 to 160 times as long. `.contiguous()` in between, or a two-dimensional view h[:, -1], costs what it should, with equal results.
# Why it matters: `logits_to_keep=1` of transformers gives the head exactly this view, in `generate` too. On SmolLM2-135M, 16 rows of 22
#   new tokens took 2.2 s in bfloat16 on one core, 1.2 s of them in this copy; bfloat16 looked no faster than float32.
# Needs a Python (PYTHON) for which torch 2.13.0 exists. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-python3}
"$python" -m venv --system-site-packages "$folder/env"
"$folder/env/bin/python" -c 'import torch; assert torch.__version__.startswith("2.13.0")' 2> /dev/null ||
  "$folder/env/bin/python" -m pip install --quiet torch==2.13.0 numpy 2> /dev/null
"$folder/env/bin/python" - <<'PYTHON'
import time

import torch
from torch.profiler import ProfilerActivity, profile

torch.set_num_threads(1)
print("torch", torch.__version__)
ROWS, POSITIONS, WIDTH, WORDS = 16, 22, 576, 24_576


def seconds(call):
    call()
    took = []
    for _ in range(3):
        started = time.process_time()
        call()
        took.append(time.process_time() - started)
    return min(took)


ratios, kernels = {}, {}
with torch.inference_mode():
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        head = torch.nn.Linear(WIDTH, WORDS, bias=False, dtype=dtype)
        hidden = torch.randn(ROWS, POSITIONS, WIDTH, dtype=dtype)
        view, block, flat = hidden[:, -1:], hidden[:, -1:].contiguous(), hidden[:, -1]
        assert torch.allclose(head(view).float(), head(block).float(), rtol=2e-2, atol=2e-2)
        took = {name: seconds(lambda values=values: head(values)) for name, values in (("view", view), ("block", block), ("flat", flat))}
        ratios[dtype] = took["view"] / took["block"]
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            head(view)
        kernels[dtype] = {event.key for event in profiled.key_averages()}
        shown = ", ".join(f"{name} {value * 1e3:.1f} ms" for name, value in took.items())
        print(f"{dtype}: {shown}; view / block {ratios[dtype]:.0f} x; row by row: {'aten::bmm' in kernels[dtype]}")
assert all("aten::bmm" in names for names in kernels.values())
assert ratios[torch.float32] > 2
assert ratios[torch.bfloat16] > 10
PYTHON
