#!/usr/bin/env bash
# A diverged trial survives ASHA: one whose metric is NaN is never ended, while better-than-nothing ones are ended at the first rung.
#
# Guess before the first run: ASHAScheduler ends a trial whose metric is NaN at the first rung, as the worst one, or raises; so
#   it runs no longer than any finite one that falls behind.
# Seen with ray 2.60.0: of five trials, one after the other, with constant losses 1, 2, NaN, 4, 5, max_t 16, grace period 1 and
#   reduction factor 2, the best one and the NaN one run 16 steps, all others 1. `mode="max"` likewise.
# Why it matters: of a sweep over learning rates those that diverge cost the whole budget, and most of the machine's time.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "ray[tune]==2.60.0" 2> /dev/null
cd "$folder"
RAY_AIR_NEW_OUTPUT=0 RAY_USAGE_STATS_ENABLED=0 RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=0 FOLDER="$folder" "$folder/venv/bin/python" -W ignore - <<'PYTHON'
import math
import os

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR", _temp_dir=f"{os.environ['FOLDER']}/ray")


def train(config):
    for step in range(1, 17):
        tune.report({"loss": math.nan if config["loss"] == "diverged" else config["loss"], "steps": step})


for mode, losses in (("min", [1.0, 2.0, "diverged", 4.0, 5.0]), ("max", [5.0, 4.0, "diverged", 2.0, 1.0])):
    tuner = tune.Tuner(
        train,
        param_space={"loss": tune.grid_search(losses)},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode=mode,
            scheduler=ASHAScheduler(max_t=16, grace_period=1, reduction_factor=2),
            max_concurrent_trials=1,
        ),
        run_config=tune.RunConfig(storage_path=f"{os.environ['FOLDER']}/results", name=mode, verbose=0),
    )
    steps = {result.config["loss"]: result.metrics["steps"] for result in tuner.fit()}
    print("ray", ray.__version__, f"mode {mode}, steps by loss:", steps)
    assert steps == {losses[0]: 16, "diverged": 16, **dict.fromkeys([losses[1], *losses[3:]], 1)}, steps
print("as seen")
PYTHON
