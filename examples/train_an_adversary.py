"""Trains one adversary with RLlib's own calls: a configuration, `build_algo`, `train`, and the weights of the learner.

The target is a small negotiator that is fitted first, in a minute or less; nothing here needs a cluster or data.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import ray
import torch

import parley
from parley.engine.negotiation.rl.env import ADVERSARY, TARGET
from parley.envs.negotiation.corpora.catalogue import load_corpus

torch.set_num_threads(1)
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
CORPUS = "embedded"

with tempfile.TemporaryDirectory() as folder:
    fitted = parley.run_verb("train negotiator", "demo", run=Path(folder) / "target", fit__max_epochs=1, limit=1000)
    checkpoint = str(fitted.run / "checkpoint")

    rule = parley.ReinforceConfig(reward="advantage", complementary=True, dialogues_per_update=32, learning_rate=0.02)
    opponent = parley.Opponent(name=TARGET, checkpoint=checkpoint, reward=rule.reward, complementary=rule.complementary)
    roster = parley.TrainingRoster(role="adversary", learner=checkpoint, reference=checkpoint, opponents=(opponent,))
    config = parley.DialogueReinforceConfig().dialogues(
        reinforce=rule, roster=roster, seed=1, vocabulary=load_corpus(CORPUS).vocabulary, corpus=CORPUS
    )
    algorithm = config.build_algo()
    for update in range(1, 6):
        figures = algorithm.train()["env_runners"]
        print(f"update {update}: advantage {figures['advantage']:+.2f}, agreement {figures['agreement']:.0%}")
    weights = algorithm.get_module(ADVERSARY).net.state_dict()
    print(f"the adversary has {sum(value.numel() for value in weights.values()):,} weights")
    algorithm.stop()
