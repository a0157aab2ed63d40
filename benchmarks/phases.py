"""What a phase costs: a training whose algorithm is built anew K times, against one algorithm that goes on.

Adversarial training alternates two learners. One RLlib algorithm could hold both and change which one learns; Parley builds an
algorithm for each phase. Here one learner makes U updates in one algorithm, then in K algorithms that each go on from the
weights of the one before, with Adam and the baseline fresh, as they are in a campaign's phases.

"ratio" is seconds of the one / seconds of the K, at most about 1; "build_s", "stop_s" and "update_s" are means, builds without
the first one of the process ("first_build_s"), which imports. "reward" and "reward_in_phases" are means over the last quarter
of the updates, by seed. "identical" says that the first phase is the beginning of the one training, bit for bit.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.measure import Clock, Result, run
from benchmarks.rllib import RULE, Training, build
from benchmarks.weights import guard_corpus, negotiator, store
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.envs.negotiation.corpora.catalogue import Corpus
from parley.policies.negotiator.speaker import load_model


@dataclass(frozen=True, kw_only=True)
class PhaseOptions(Training):
    """An adversary trained in one phase, and in several."""

    phases: int = 4
    """Algorithms that the updates are made in, one after the other."""
    seeds: int = 3
    """Trainings of each kind."""
    dialogues_per_update: int = 32
    """Of one update."""

    @property
    def updates(self) -> int:
        """Of a training."""
        return self.phases * (2 if self.quick else 10)


@dataclass(frozen=True)
class PhasedTraining:
    """One training.

    Args:
        rewards: mean reward of each update.
        building, updating, stopping: what they took.
    """

    rewards: list[float]
    building: Clock
    updating: Clock
    stopping: Clock


def measure(options: PhaseOptions) -> Result:
    """Trains both ways from every seed."""
    from parley.engine.core.ray.session import connect

    model = negotiator(options.checkpoint)
    rule = replace(RULE, dialogues_per_update=options.dialogues_per_update)
    corpus = guard_corpus(model, options.corpus, options.data_root)
    first, seeds = Clock(), range(1, 2 if options.quick else options.seeds + 1)
    with tempfile.TemporaryDirectory() as folder, connect(num_cpus=1):
        start = Path(folder) / "checkpoint"
        store(model, start)
        with first.running():
            build(start, rule, corpus, options).stop()
        single = [_train(start, rule, corpus, options, 1, seed) for seed in seeds]
        several = [_train(start, rule, corpus, options, options.phases, seed) for seed in seeds]
    part = len(single[0].rewards) // options.phases
    recent = [[float(np.mean(training.rewards[-part:])) for training in trainings] for trainings in (single, several)]
    difference = np.array(recent[1]) - np.array(recent[0])
    builds, updates = options.phases * len(seeds), options.updates * len(seeds)
    cost = [
        sum(training.building.cpu_s + training.updating.cpu_s + training.stopping.cpu_s for training in trainings)
        for trainings in (single, several)
    ]
    return Result(
        ratio=cost[0] / cost[1],
        identical=all(a.rewards[:part] == b.rewards[:part] for a, b in zip(single, several, strict=True)),
        figures={
            "first_build_s": first.cpu_s,
            "build_s": sum(training.building.cpu_s for training in several) / builds,
            "stop_s": sum(training.stopping.cpu_s for training in several) / builds,
            "update_s": sum(training.updating.cpu_s for training in several) / updates,
            "reward": recent[0],
            "reward_in_phases": recent[1],
            "difference": float(difference.mean()),
            "difference_standard_error": float(difference.std(ddof=1) / len(seeds) ** 0.5) if len(seeds) > 1 else None,
            "updates": options.updates,
            "phases": options.phases,
            "dialogues_per_update": options.dialogues_per_update,
        },
    )


def _train(start: Path, rule: ReinforceConfig, corpus: Corpus, options: PhaseOptions, phases: int, seed: int) -> PhasedTraining:
    """Make the updates in so many algorithms."""
    from parley.engine.core.rllib.reproducible import learned_weights

    training = PhasedTraining([], Clock(), Clock(), Clock())
    learner = start
    for phase in range(phases):
        with training.building.running():
            algorithm = build(start, rule, corpus, options, learner=learner, seed=seed + 1000 * phase)
        with training.updating.running():
            for _ in range(options.updates // phases):
                algorithm.train()
                training.rewards.append(float(algorithm.last["reward"]))
        model = load_model(start)
        model.load_state_dict(learned_weights(algorithm))
        learner = start.with_name(f"learned-{phase}")
        store(model, learner)
        with training.stopping.running():
            algorithm.stop()
    return training


if __name__ == "__main__":
    run("phases", PhaseOptions, measure)
