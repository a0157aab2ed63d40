#!/usr/bin/env bash
# A PPO that is restored from RLlib's checkpoint makes its first update with the first value of an entropy_coeff schedule.
#
# Guess before the first run: a checkpoint holds all that training goes on from, so schedules go on where they were, lr and
#   entropy_coeff alike.
# Seen with ray 2.60.0: entropy_coeff [[0, 0.5], [200, 0], ...] is 0 after two iterations of 200 steps; in
#   Algorithm.from_checkpoint of that moment it is 0.5 until the first update has been made, and 0 after it. The rate of the
#   optimiser is right (0.001), because it lies in the optimiser's state.
# Why: Scheduler starts at its first value and is updated after an update; nothing of it is in the checkpoint.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "torch==2.13.0"
"$folder/venv/bin/pip" install --quiet "ray[rllib]==2.60.0"
cat > "$folder/restored.py" <<'PYTHON'
import tempfile

import ray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPOConfig

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error")


def scheduled(algorithm):
    """Return entropy coefficient and rate of the next update."""
    learner = algorithm.learner_group._learner
    (schedule,) = learner.entropy_coeff_schedulers_per_module.values()
    (optimiser,) = learner._named_optimizers.values()
    return round(float(schedule.get_current_value()), 6), round(float(optimiser.param_groups[0]["lr"]), 6)


config = (
    PPOConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=0)
    .training(train_batch_size_per_learner=200, minibatch_size=100, num_epochs=1)
    .training(entropy_coeff=[[0, 0.5], [200, 0.0], [1000, 0.0]], lr=[[0, 0.1], [200, 1e-3], [1000, 1e-3]])
)
algorithm = config.build_algo()
for _ in range(2):
    algorithm.train()
before = scheduled(algorithm)
restored = Algorithm.from_checkpoint(algorithm.save_to_path(tempfile.mkdtemp()))
found = [before, scheduled(restored)]
restored.train()
found.append(scheduled(restored))
print("ray", ray.__version__)
for moment, values in zip(("before saving", "restored", "restored, one update later"), found):
    print(f"{moment}: entropy_coeff {values[0]}, lr {values[1]}")
assert found == [(0.0, 0.001), (0.5, 0.001), (0.0, 0.001)], found
print("as seen")
PYTHON
cd "$folder"
PYTHONWARNINGS=ignore RAY_TMPDIR=/tmp "$folder/venv/bin/python" restored.py 2> "$folder/errors" || { cat "$folder/errors"; exit 1; }
