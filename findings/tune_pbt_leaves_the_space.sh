#!/usr/bin/env bash
# Ray Tune: population based training multiplies what `tune.choice` has chosen, and leaves the bounds of every search space.
#
# Guess before the first run: a value of tune.choice is changed to another one of the list, as PBT does for a plain list; a value of
#   tune.uniform(.9, 1) or tune.randint(1, 5) stays within these bounds.
# Seen with ray 2.60.0: of tune.choice([16, 32, 64]) come values such as 77 and 158, of tune.uniform(.9, 1) 1.25 and 1.5, of
#   tune.randint(1, 5) 5 and more. PBT takes each of these objects for a continuous parameter and multiplies it by 1.2 or .8, each time
#   that a trial is copied. Only a plain list [16, 32, 64] is kept, by a step to the neighbour. The documentation of
#   hyperparam_mutations says: use tune.choice, tune.uniform and so on. A resampled value (every fourth, by default) is in the space.
#   Nothing is said.
# Why it matters: a gamma of 1.25 makes returns grow without end, and a sweep of attackers reports as its best a setting that nobody
#   had allowed. Give plain lists, and cut the rest in `custom_explore_fn`.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "ray[tune]==2.60.0" 2> /dev/null
  python=$folder/venv/bin/python
fi
cd "$folder"
RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=0 RAY_AIR_NEW_OUTPUT=0 OMP_NUM_THREADS=1 FOLDER=$folder "$python" -W ignore - 2> /dev/null <<'PYTHON'
import json
import os
import random
from pathlib import Path

import ray
from ray import tune
from ray.tune.schedulers import PopulationBasedTraining

print("ray", ray.__version__)
BATCHES = [16, 32, 64]


class Trial(tune.Trainable):
    """Reports a score that differs between trials, so that the worse ones copy the better ones."""

    def setup(self, config):
        self.score = random.random()

    def reset_config(self, new_config):
        return True

    def step(self):
        return {"score": self.score, "settings": {name: self.config[name] for name in ("listed", "chosen", "gamma", "layers")}}

    def save_checkpoint(self, folder):
        Path(folder, "score.json").write_text(json.dumps(self.score))

    def load_checkpoint(self, folder):
        self.score = random.random()


def values(resample):
    """All values that the trials have had, by setting."""
    space = {"chosen": tune.choice(BATCHES), "gamma": tune.uniform(0.9, 1.0), "layers": tune.randint(1, 5)}
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=1, hyperparam_mutations={"listed": BATCHES, **space},
        resample_probability=resample, quantile_fraction=0.5,
    )  # fmt: skip
    tuner = tune.Tuner(
        Trial,
        param_space={"listed": tune.choice(BATCHES), **space},
        tune_config=tune.TuneConfig(metric="score", mode="max", num_samples=4, scheduler=scheduler, reuse_actors=True),
        run_config=tune.RunConfig(storage_path=os.environ["FOLDER"], stop={"training_iteration": 8}, verbose=0),
    )
    seen = {}
    for result in tuner.fit():
        for line in Path(result.path, "result.json").read_text(encoding="utf-8").splitlines():
            for name, value in json.loads(line)["settings"].items():
                seen.setdefault(name, set()).add(round(value, 3))
    for name, found in sorted(seen.items()):
        print(f"resampled {resample:.0%}, {name}: {sorted(found)}")
    return seen


random.seed(0)
ray.init(num_cpus=1, log_to_driver=False, include_dashboard=False)
kept = values(1.0)
assert kept["listed"] <= set(BATCHES) and kept["chosen"] <= set(BATCHES)
assert all(0.9 <= gamma <= 1 for gamma in kept["gamma"]) and kept["layers"] <= {1, 2, 3, 4}
left = values(0.0)
assert left["listed"] <= set(BATCHES)
assert left["chosen"] - set(BATCHES)
assert any(gamma < 0.9 or gamma > 1 for gamma in left["gamma"])
print("as seen")
PYTHON
