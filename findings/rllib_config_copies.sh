#!/usr/bin/env bash
# RLlib: building one algorithm copies its configuration, and all that hangs on it, many times.
#
# Guess before the first run: a configuration is copied once, when the algorithm is built, and frozen then; its model settings are
#   references.
# Seen with ray 2.60.0: `build_algo` copies the whole configuration nine times (env runner, connectors, learner and evaluation each
#   take a copy of a copy), by `copy.deepcopy`, a setting of a derived class and everything in it included. A list of 200,000 small
#   records costs two seconds of the processor in each build, where one record costs none.
# Why it matters: a derived configuration that holds data, such as scenarios or texts, makes every build slow, and campaigns build
#   dozens. Hold data in arrays, or in an object whose `__deepcopy__` returns itself.
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
cat > "$folder/copies.py" <<'PYTHON'
import time

import ray
from ray.rllib.algorithms.ppo import PPOConfig


class Counted:
    copies = 0

    def __deepcopy__(self, memo):
        Counted.copies += 1
        return self


class Config(PPOConfig):
    """A configuration with a setting of its own, as every derived algorithm has."""

    kept = None


def build(value):
    config = Config().environment("CartPole-v1").env_runners(num_env_runners=0).learners(num_learners=0)
    config.kept = value
    started = time.process_time()
    algorithm = config.build_algo()
    seconds = time.process_time() - started
    made, Counted.copies = Counted.copies, 0
    algorithm.stop()
    return made, seconds


ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
build(None)
made, _ = build(Counted())
few, many = (build([{"number": number} for number in range(size)])[1] for size in (1, 200_000))
print(f"ray {ray.__version__}: {made} copies of a setting while an algorithm is built")
print(f"seconds of the processor to build with one record in it, and with 200,000: {few:.1f}, {many:.1f}")
assert made == 9, made
assert many > 2 * few, (few, many)
PYTHON
"$python" -W ignore "$folder/copies.py" 2>"$folder/errors" || { tail -20 "$folder/errors"; exit 1; }
