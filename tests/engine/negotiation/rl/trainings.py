"""Small trainings: a corpus and random negotiators on disk, and algorithms that remember what they played.

Here, because Ray's workers import classes by name.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from ray.exceptions import RayError
from torch import Tensor

from parley.engine.negotiation.attacks.opponents import Opponent, OpponentConfig, TrainingRoster
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.engine.negotiation.rl.algorithm import DialogueReinforce, DialogueReinforceConfig
from parley.engine.negotiation.rl.env import ADVERSARY, AGENTS, TARGET
from parley.engine.negotiation.rl.runner import DialogueEnvRunner
from parley.envs.negotiation.corpora.catalogue import load_corpus
from parley.envs.negotiation.domain import EOS_ID, Vocabulary
from parley.policies.core.checkpoint import Checkpoint
from parley.policies.negotiator.model import Negotiator
from parley.policies.negotiator.settings import KIND, NegotiatorSizes
from tests.envs.corpora import made_up

SEED = 5
SIZES = NegotiatorSizes(
    embed_word=16,
    embed_context=16,
    hidden_context=16,
    hidden_language=32,
    hidden_attention=8,
    hidden_selection=8,
    init_range=0.4,
)
SMALL = ReinforceConfig(
    reward="advantage",
    complementary=True,
    dialogues_per_update=12,
    learning_rate=1e-2,
    supervised_batch=4,
    max_turns=6,
    temperature=1.0,
)
GUARDED = replace(SMALL, kl_weight=0.1)
"""The same with a guard that keeps to the reference's language."""
GONE_S = 60.0
Built = Callable[[Any], Any]
"""The fixture `built`: builds the algorithm of some settings, and stops it after the test."""
CORPUS = f"{made_up.__file__}:SOURCE"
ADVERSARIES = ("first", "second", "third")
"""Checkpoints that a target learns from, the oldest first."""
PARTNER = "partner"
"""What the ordinary partner is called; it is the negotiator of the checkpoint "adversary"."""
POPULATION = OpponentConfig(sampling="prioritised", partner_share=0.25)


@dataclass(frozen=True)
class World:
    """A folder with a data root and the checkpoints of random negotiators of the same vocabulary."""

    folder: Path

    def __post_init__(self) -> None:
        made_up.write(self.folder / "data" / made_up.SOURCE.name, made_up.contents())
        for number, name in enumerate((*AGENTS, *ADVERSARIES)):
            model = Negotiator(self.vocabulary, SIZES)
            model.initialise(torch.Generator().manual_seed(number))
            self.save(model, name)

    def save(self, model: Negotiator, name: str) -> None:
        """Stores a negotiator as a checkpoint of that name."""
        Checkpoint(KIND, dict(vars(SIZES)), {}, self.vocabulary, model.state_dict()).save(self.folder / name)

    @property
    def vocabulary(self) -> Vocabulary:
        """The corpus' words."""
        return load_corpus(CORPUS, self.folder / "data").vocabulary

    def hardening(self, drawing: OpponentConfig = POPULATION, *, reference: str = TARGET) -> TrainingRoster:
        """The target against all adversaries, by the attack's rules and for its lead, and where asked in ordinary play too."""
        met = [
            Opponent(name=name, checkpoint=str(self.folder / name), reward="advantage", complementary=True)
            for name in ADVERSARIES
        ]
        if drawing.partner_share:
            folder = str(self.folder / ADVERSARY)
            met.insert(0, Opponent(name=PARTNER, checkpoint=folder, reward="points", complementary=False, ordinary=True))
        learner, compared = str(self.folder / TARGET), str(self.folder / reference)
        return TrainingRoster(role="target", learner=learner, reference=compared, opponents=tuple(met), drawing=drawing)

    def settings(
        self,
        reinforce: ReinforceConfig = SMALL,
        *,
        kind: type[DialogueReinforce] = DialogueReinforce,
        env_runners: int = 0,
        seed: int = SEED,
        learner: str | None = None,
        roster: TrainingRoster | None = None,
    ) -> DialogueReinforceConfig:
        """What an algorithm is built from: unless others are cast, "adversary", or another checkpoint, against "target"."""
        start = str(self.folder / ADVERSARY) if learner is None else learner
        met = Opponent(
            name=TARGET, checkpoint=str(self.folder / TARGET), reward=reinforce.reward, complementary=reinforce.complementary
        )
        alone = TrainingRoster(role="adversary", learner=start, reference=start, opponents=(met,))
        settings = DialogueReinforceConfig(algo_class=kind).dialogues(
            reinforce=reinforce,
            roster=roster or alone,
            seed=seed,
            vocabulary=self.vocabulary,
            corpus=CORPUS,
            data_root=self.folder / "data",
        )
        settings.env_runners(num_env_runners=env_runners)
        return settings


class Recording(DialogueReinforce):
    """Remembers the dialogues of every update and what was paid for them."""

    def setup(self, config: Any) -> None:
        super().setup(config)
        self.played: list[dict[str, Any]] = []
        self.paid: list[np.ndarray] = []

    def rewards(self, played: dict[str, Any]) -> np.ndarray:
        self.played.append(played)
        self.paid.append(super().rewards(played))
        return self.paid[-1]


class Failing(DialogueEnvRunner):
    """Says so and raises when it is to play."""

    def sample(self, **_: Any) -> dict[str, Any]:
        logging.getLogger("parley.engine.core.rllib").warning("the runner has no voice")
        # Ray brings what workers write twice a second.
        time.sleep(2)
        raise RuntimeError("no voice")


NAMES = ("books", "hats", "two")
"""What each item is called in the game of names."""


class GameOfNames(Recording):
    """Pays 1 when the learner's last word names the item that is worth most to it, the first of equals."""

    def rewards(self, played: dict[str, Any]) -> np.ndarray:
        super().rewards(played)
        vocabulary = self.config.env_config["vocabulary"]
        said = played["own"] & (played["tokens"] != EOS_ID)
        last = said.shape[1] - 1 - said[:, ::-1].argmax(1)
        words = played["tokens"][np.arange(len(last)), last]
        return (said.any(1) & (words == vocabulary.encode(NAMES)[best_items(played)])).astype(np.float64)


def best_items(played: dict[str, Any]) -> np.ndarray:
    """The item (N,) that one of is worth most to the learner, the first of equals."""
    return played["contexts"][:, 1::2].argmax(1)


def kill_learner(algorithm: DialogueReinforce) -> None:
    """Kills the learner's process, and waits until Ray knows."""
    (actor,) = algorithm.learner_group._workers
    os.kill(ray.get(actor.apply.remote(lambda _: os.getpid())), signal.SIGKILL)
    deadline = time.monotonic() + GONE_S
    while time.monotonic() < deadline:
        try:
            ray.get(actor.apply.remote(lambda _: None))
        except RayError:
            return
    raise TimeoutError("the learner is still there")


def equal_weights(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    """Whether two networks have the same weights, bit for bit."""
    assert first.keys() == second.keys()
    return all(value.equal(second[name]) for name, value in first.items())
