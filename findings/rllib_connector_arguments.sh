#!/usr/bin/env bash
# RLlib: a connector whose class is derived from another connector is restored without its arguments, or not at all.
#
# Guess before the first run: a checkpoint of a connector holds the arguments that it was made with, whatever its class; only the
#   state that `get_state` leaves out is lost.
# Seen with ray 2.60.0: ConnectorV2.__init__ takes the arguments from the local variables of the frame that called it (a walk over
#   the whole stack, `inspect.stack()`). A class with a constructor of its own is restored as it was made (scale 2). One that inherits
#   this constructor keeps the two spaces alone, so it comes back with the default (scale 1), and nothing says so. One with a
#   constructor that calls its parent's keeps the parent's arguments, and its restoring raises a TypeError.
#   The walk costs with the depth of the caller: at 400 frames more than 20 times what it costs at 10.
# Why it matters: a resumed policy then reads observations that are scaled otherwise than in training. Override
#   `get_ctor_args_and_kwargs` in every derived connector.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "torch==2.13.0"
  "$folder/venv/bin/pip" install --quiet "ray[rllib]==2.60.0"
  python=$folder/venv/bin/python
fi
cat > "$folder/connectors.py" <<'PYTHON'
import sys
import time
from pathlib import Path

import ray
from ray.rllib.connectors.connector_v2 import ConnectorV2


class Scaled(ConnectorV2):
    def __init__(self, input_observation_space=None, input_action_space=None, *, scale=1):
        super().__init__(input_observation_space, input_action_space)
        self.scale = scale

    def __call__(self, *, batch, **rest):
        return batch


class Inherits(Scaled):
    """The same, with another call."""


class Calls(Scaled):
    def __init__(self, input_observation_space=None, input_action_space=None, *, octaves=0):
        super().__init__(input_observation_space, input_action_space, scale=2**octaves)


def restored(connector, path):
    connector.save_to_path(path)
    try:
        return type(connector).from_checkpoint(path).scale
    except TypeError as error:
        return f"TypeError: {error}"


def milliseconds(depth):
    if depth:
        return milliseconds(depth - 1)
    started = time.perf_counter()
    for _ in range(20):
        Scaled()
    return 50 * (time.perf_counter() - started)


if __name__ == "__main__":
    print("ray", ray.__version__)
    folder = Path(sys.argv[1])
    seen = {
        "its own constructor": restored(Scaled(scale=2), folder / "own"),
        "inherits it": restored(Inherits(scale=2), folder / "inherits"),
        "calls its parent's": restored(Calls(octaves=1), folder / "calls"),
    }
    for name, scale in seen.items():
        print(f"made with scale 2, {name:20} restored with {scale}")
    milliseconds(10)
    near, deep = milliseconds(10), milliseconds(400)
    print(f"one construction {near:.2f} ms at 10 frames, {deep:.2f} ms at 400: {deep / near:.0f} times")
    assert seen["its own constructor"] == 2
    assert seen["inherits it"] == 1
    assert "unexpected keyword argument 'scale'" in seen["calls its parent's"]
    assert deep > 5 * near
PYTHON
cd "$folder"
"$python" connectors.py "$folder" 2> "$folder/log" || { tail -20 "$folder/log"; exit 1; }
