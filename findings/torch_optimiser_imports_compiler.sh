#!/usr/bin/env bash
# torch: making an optimiser imports torch's compiler, although nothing is compiled.
#
# Guess before the first run: an optimiser that steps eagerly loads nothing of torch.compile; the compiler is imported when something
#   is compiled.
# Seen with torch 2.13.0 on a CPU: SGD([weight], lr=.1) imports torch._dynamo, and with it some 800 modules: over
#   a second and 70 MiB of each process. Its methods are marked to be left out of compiled graphs, and the mark imports the
#   compiler at the first call. A subclass whose methods are the unmarked ones (`inspect.unwrap`) takes the same steps without it.
# Why it matters: each worker that learns pays it, such as every RLlib learner or trial of a sweep, and short trainings most.
# Needs a Python (PYTHON) for which torch 2.13.0 exists. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-python3}
"$python" -m venv --system-site-packages "$folder/env"
"$folder/env/bin/python" -c 'import torch; assert torch.__version__.startswith("2.13.0")' 2> /dev/null ||
  "$folder/env/bin/python" -m pip install --quiet torch==2.13.0 numpy 2> /dev/null
cat > "$folder/step.py" <<'PYTHON'
import inspect
import resource
import sys
import time

import torch
from torch.optim import SGD

kind = SGD
if sys.argv[1] == "unmarked":
    names = ("add_param_group", "state_dict", "load_state_dict", "zero_grad")
    methods = {name: inspect.unwrap(getattr(SGD, name)) for name in names}
    kind = type("SGD", (SGD,), {**methods, "step": torch.no_grad()(inspect.unwrap(SGD.step))})
weight = torch.ones(3, requires_grad=True)
(weight * torch.arange(3)).square().sum().backward()
before, memory, started = len(sys.modules), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
optimiser = kind([weight], lr=0.1, momentum=0.9)
optimiser.step()
seconds = time.process_time() - started
memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
is_in = "torch._dynamo" in sys.modules
print(f"{sys.argv[1]}: {len(sys.modules) - before} modules more, {seconds:.2f} s, {memory:.0f} MiB; compiler imported: {is_in}")
print(weight.tolist())
assert is_in == (sys.argv[1] == "usual")
assert (len(sys.modules) - before > 200) == is_in
PYTHON
"$folder/env/bin/python" -c 'import torch; print("torch", torch.__version__)'
for kind in usual unmarked; do
  "$folder/env/bin/python" "$folder/step.py" "$kind" | tee "$folder/$kind"
done
diff <(tail -n 1 "$folder/usual") <(tail -n 1 "$folder/unmarked") && echo "equal steps"
