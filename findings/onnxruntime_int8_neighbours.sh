#!/usr/bin/env bash
# onnxruntime: in a model with dynamic int8 a reply has another score beside other replies, and a loud one spoils those of its whole batch.
#
# Guess before the first run: quantize_dynamic rounds weights once and each row of activations by itself, so a row's score has a small, fixed
#   error, and does not depend on the rows beside it, as in float.
# Seen with onnxruntime 1.32.0, onnx 1.23.2, an encoder of three layers with weights that are drawn, 64 rows: float scores are equal alone and
#   side by side. In int8 they differ by up to .013, where the scores have a standard deviation of .30. A 65th row with features 30 times as
#   large moves the other 64 by up to .17, and their correlation with the float scores falls from .9998 to .96; one 100 times as large
#   moves them by up to .64, and the correlation is .74. One scale is taken for the activations of a whole batch. Issues of the project
#   say that this is meant. Nothing is said at run time.
# Why it matters: rankers and guards on CPUs are served so. Scores depend on the size and order of batches, and in a server that gathers
#   requests whoever sends an odd text decides how finely those of others are read. Score one text at a time, or measure with the
#   batches that will be served.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "onnxruntime==1.32.0" "onnx==1.23.2" "numpy==2.4.6" 2> /dev/null
  python=$folder/venv/bin/python
fi
cd "$folder"
"$python" -W ignore - 2> "$folder/errors" <<'PYTHON' || { cat "$folder/errors"; exit 1; }
from importlib.metadata import version

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

print(*(f"{name} {version(name)}" for name in ("onnxruntime", "onnx")))
ROWS, FEATURES, HIDDEN = 64, 32, 64
draws = np.random.default_rng(0)


def draw(*shape):
    return draws.normal(size=shape).astype(np.float32)


shapes = ((FEATURES, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 1))
weights = [numpy_helper.from_array(draw(*shape) / np.float32(shape[0] ** 0.5), f"w{layer}") for layer, shape in enumerate(shapes)]
nodes = [
    helper.make_node("MatMul", ["x", "w0"], ["a"]),
    helper.make_node("Relu", ["a"], ["b"]),
    helper.make_node("MatMul", ["b", "w1"], ["c"]),
    helper.make_node("Relu", ["c"], ["d"]),
    helper.make_node("MatMul", ["d", "w2"], ["y"]),
]
ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", size])] for name, size in (("x", FEATURES), ("y", 1))]
graph = helper.make_graph(nodes, "encoder", *ends, weights)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "float.onnx")
quantize_dynamic("float.onnx", "int8.onnx", weight_type=QuantType.QInt8)


def scores(model, rows):
    return model.run(None, {"x": rows})[0][:, 0]


rows, loud = draw(ROWS, FEATURES), draw(1, FEATURES)
for name in ("float", "int8"):
    model = onnxruntime.InferenceSession(f"{name}.onnx", providers=["CPUExecutionProvider"])
    alone = np.concatenate([scores(model, rows[row : row + 1]) for row in range(ROWS)])
    beside = {factor: scores(model, np.concatenate([rows, factor * loud]))[:ROWS] for factor in (30, 100)}
    batches = {"side by side": scores(model, rows), **{f"beside one {factor} times as large": values for factor, values in beside.items()}}
    truth = alone if name == "float" else truth
    print(f"{name}: standard deviation {alone.std():.3f}, correlation with float {np.corrcoef(truth, alone)[0, 1]:.4f}")
    off, fit = {}, {}
    for way, values in batches.items():
        off[way] = float(np.abs(values - alone).max())
        fit[way] = float(np.corrcoef(truth, values)[0, 1]) if values.std() > 0 else 0.0
        print(f"  {way}: off by {off[way]:.4f}, correlation with float {fit[way]:.4f}")
    if name == "float":
        assert max(off.values()) < 1e-5
    else:
        plain, louder, loudest = off.values()
        assert 0.005 < plain < 0.05 < louder < 0.3 < loudest and alone.std() < 0.35
        assert list(fit.values()) == sorted(fit.values(), reverse=True) and min(fit.values()) < 0.8
print("as seen")
PYTHON
