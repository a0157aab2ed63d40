"""Env runners: how training by reinforcement scales over Ray actors that play, and that it stays the same training.

A target learns against two adversaries and an ordinary partner, with dialogues played in the training process itself, by one
runner beside it, and by two. Every dialogue is named by its number, so all three must arrive at the same weights.

"ratio" is of the dialogues a second played by two runners to those of one, on the wall; "dialogues_per_s" is of whole updates,
playing and learning, where the learner waits for the runners and they for it; "share_outside_networks" is the share of that
time in which neither speaks nor learns.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import run
from benchmarks.weights import EMBEDDED, guard_corpus, negotiator, store
from engine.jobs.negotiation.minmax import population
from engine.negotiation.opponents import Opponent, OpponentConfig, TrainingRoster
from engine.negotiation.settings import ReinforceConfig
from envs.negotiation.corpora.compiled import Corpus

SEED = 1
RUNNERS = (0, 1, 2)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Training with 0, 1 and 2 env runners."""

    checkpoint: Path | None = None
    """Checkpoint folder of all agents; one fitted on the spot when not given."""
    corpus: str = EMBEDDED
    """Corpus of the supervised guard, with the checkpoint's vocabulary."""
    data_root: Path | None = None
    """Where corpora lie; the usual places when not given."""
    quick: bool = False
    """Fewer updates: below a minute."""
    dialogues_per_update: int = 256
    """More than in a training on a laptop: two runners need something to share."""

    @property
    def updates(self) -> int:
        """Updates that are measured; one more warms up."""
        return 3 if self.quick else 12


def measure(options: Options) -> dict[str, Any]:
    """Trains with each number of runners, one after the other."""
    from engine.runtime.session import connect

    model = negotiator(options.checkpoint)
    corpus = guard_corpus(model, options.corpus, options.data_root)
    steps: dict[int, list[dict[str, Any]]] = {}
    weights: dict[int, dict[str, torch.Tensor]] = {}
    rule = replace(population().defence, dialogues_per_update=options.dialogues_per_update)
    with tempfile.TemporaryDirectory() as folder, connect(num_cpus=max(RUNNERS) + 1):
        checkpoint = Path(folder) / "checkpoint"
        store(model, checkpoint)
        for number in RUNNERS:
            steps[number], weights[number] = _train(checkpoint, rule, corpus, options, number)
    playing = {number: _rate(taken, "seconds_sampling") for number, taken in steps.items()}
    same = [weights[number][name].equal(value) for number in RUNNERS for name, value in weights[0].items()]
    return {
        "ratio": playing[2] / playing[1],
        "identical": all(same),
        "dialogues_played_per_s": list(playing.values()),
        "dialogues_per_s": [_rate(taken, "seconds") for taken in steps.values()],
        "share_outside_networks": [_outside(taken) for taken in steps.values()],
        "env_runners": list(RUNNERS),
        "updates": options.updates,
        "dialogues_per_update": options.dialogues_per_update,
        "weights": "fitted here" if options.checkpoint is None else "checkpoint",
    }


def _train(
    checkpoint: Path, rule: ReinforceConfig, corpus: Corpus, options: Options, runners: int
) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    from engine.rllib.algorithm import DialogueReinforceConfig
    from engine.rllib.state import learned_weights

    def opponent(name: str, **changes: Any) -> Opponent:
        settings: dict[str, Any] = {"reward": rule.reward, "complementary": rule.complementary, **changes}
        return Opponent(name=name, checkpoint=str(checkpoint), **settings)

    met = (
        opponent("partner", reward="points", complementary=False, ordinary=True),
        opponent("adversary-1"),
        opponent("adversary-2"),
    )
    drawing = OpponentConfig(sampling="uniform", partner_share=0.25)
    start = str(checkpoint)
    settings = DialogueReinforceConfig().dialogues(
        reinforce=rule,
        roster=TrainingRoster(role="target", learner=start, reference=start, opponents=met, drawing=drawing),
        seed=SEED,
        vocabulary=corpus.vocabulary,
        corpus=options.corpus,
        data_root=options.data_root,
    )
    settings.env_runners(num_env_runners=runners)
    algorithm = settings.build_algo()
    taken = []
    for _ in range(1 + options.updates):
        algorithm.train()
        taken.append(algorithm.last)
    weights = learned_weights(algorithm)
    algorithm.stop()
    return taken[1:], weights


def _rate(taken: list[dict[str, Any]], seconds: str) -> float:
    return sum(step["dialogues"] for step in taken) / sum(step[seconds] for step in taken)


def _outside(taken: list[dict[str, Any]]) -> float:
    inside = sum(step["seconds_networks_speaking"] + step["seconds_learning"] for step in taken)
    return 1 - inside / sum(step["seconds"] for step in taken)


if __name__ == "__main__":
    run("env_runners", Options, measure)
