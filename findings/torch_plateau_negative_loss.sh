#!/usr/bin/env bash
# torch: ReduceLROnPlateau never lowers the learning rate while a negative loss or return stands still, or slowly gets worse.
#
# Guess before the first run: a metric that no longer improves lowers the learning rate after `patience` steps, whatever its sign.
#   `threshold` (1e-4, relative) is how much better than the best so far a value has to be.
# Seen with torch 2.13.0: a loss of 1 that stands still for 50 steps takes the rate from 1 to 1e-8. A loss of -1 leaves it at 1, and so do
#   a return of -5 under mode="max", and a loss that rises from -1 to -.9976. "Better" is loss < best * (1 - 1e-4), which is above a
#   negative best. Each step then counts as the best one, and `best` itself follows the loss upwards. With threshold_mode="abs" all
#   four are as guessed. A return of 0 has no such case: 0 is not below 0. The documentation gives the formula, and no word of signs.
# Why it matters: log likelihoods, policy losses and returns that count costs are negative. The schedule is then no schedule, and two runs
#   that differ by a constant in the reward are trained by different rates. Give threshold_mode="abs".
# Needs a Python (PYTHON) for which torch 2.13.0 exists. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "torch==2.13.0" 2> /dev/null
  python=$folder/venv/bin/python
fi
cd "$folder"
OMP_NUM_THREADS=1 "$python" -W ignore - <<'PYTHON'
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau


def rate(first, mode="min", worse=0.0, **settings):
    """The learning rate, 1 at first, after 50 steps of a metric that gets worse by so much each time, and the best one remembered."""
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = ReduceLROnPlateau(optimiser, mode=mode, patience=3, **settings)
    for step in range(50):
        schedule.step(first + step * worse * (1 if mode == "min" else -1))
    return optimiser.param_groups[0]["lr"], float(schedule.best)


print("torch", torch.__version__)
CASES = {
    "loss 1": {"first": 1.0},
    "loss 1, rising": {"first": 1.0, "worse": 5e-5},
    "loss -1": {"first": -1.0},
    "loss -1, rising": {"first": -1.0, "worse": 5e-5},
    "return 5": {"first": 5.0, "mode": "max"},
    "return -5": {"first": -5.0, "mode": "max"},
    "return -5, falling": {"first": -5.0, "mode": "max", "worse": 2e-4},
    "return 0": {"first": 0.0, "mode": "max"},
}
for name, case in CASES.items():
    relative, absolute = rate(**case), rate(**case, threshold_mode="abs")
    print(f"{name}: rate {relative[0]:.0e}, best {relative[1]:.4f}; by an absolute threshold {absolute[0]:.0e}, best {absolute[1]:.4f}")
    assert absolute[0] < 1e-7 and absolute[1] == case["first"]
    assert (relative[0] == 1.0) == ("-" in name) and (relative[0] < 1e-7) == ("-" not in name)
    assert (relative[1] != case["first"]) == ("-" in name and "worse" in case)
print("as seen")
PYTHON
