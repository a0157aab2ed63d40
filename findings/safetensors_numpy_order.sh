#!/usr/bin/env bash
# safetensors: a numpy array that is a transposed one is saved with its numbers in another order, without a word.
#
# Guess before the first run: safetensors.numpy.save_file saves the array that it is given, or raises an error for one that is not
#   contiguous, as safetensors.torch does.
# Seen with safetensors 0.8.0, numpy 2.4.6: of a (2, 3) array's transpose, and of an array in Fortran's order, the shape is right and the
#   numbers stand in the order of the memory: [[0, 3], [1, 4], [2, 5]] is read back as [[0, 1], [2, 3], [4, 5]]. save() and save_file()
#   do so, for float32, float16 and int64. With numpy.ascontiguousarray all are right. safetensors.torch raises a ValueError for the same tensor
#   without it. The docstring says that tensors "need to be contiguous and dense"; nothing checks it.
# Why it matters: weights that were fitted elsewhere are often a transpose: `weight.T` for a layer that multiplies from the other side,
#   coef_ of a regression, components of a decomposition, columns of a data frame. The shape is kept, so the policy loads, and
#   plays worse. Save numpy.ascontiguousarray(x), and compare what is read with what was written.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "torch==2.13.0" 2> /dev/null
  "$folder/venv/bin/pip" install --quiet "safetensors==0.8.0" "numpy==2.4.6" "pandas==3.1.1" 2> /dev/null
  python=$folder/venv/bin/python
fi
cd "$folder"
"$python" -W error - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import pandas as pd
import safetensors.numpy
import safetensors.torch
import torch

print("safetensors", version("safetensors"), "numpy", np.__version__)
plain = np.arange(6, dtype=np.float32).reshape(2, 3)
ARRAYS = {
    "plain": plain,
    "transposed": plain.T,
    "Fortran's order": np.asfortranarray(plain),
    "transposed float16": plain.T.astype(np.float16),
    "transposed int64": plain.astype(np.int64).T,
    "data frame": pd.DataFrame({"a": [0.0, 1.0], "b": [2.0, 3.0]}).to_numpy(),
}
for name, array in ARRAYS.items():
    safetensors.numpy.save_file({"x": array}, "x.safetensors")
    read = safetensors.numpy.load_file("x.safetensors")["x"]
    again = safetensors.numpy.load(safetensors.numpy.save({"x": array}))["x"]
    whole = safetensors.numpy.load(safetensors.numpy.save({"x": np.ascontiguousarray(array)}))["x"]
    print(f"{name}: written {array.tolist()}, read {read.tolist()}")
    assert read.shape == array.shape and np.array_equal(read, again) and np.array_equal(whole, array)
    assert np.array_equal(read, array) == array.flags.c_contiguous
    assert np.array_equal(read.ravel(), array.ravel("K"))
    try:
        safetensors.torch.save({"x": torch.from_numpy(array.copy("K"))})
        raised = False
    except ValueError:
        raised = True
    assert raised == (not array.flags.c_contiguous)
assert sum(not array.flags.c_contiguous for array in ARRAYS.values()) >= 4
print("as seen")
PYTHON
