"""A small game of replies: pairs, a generator and a discriminator with drawn weights on disk.

Here, because Ray's workers import functions by name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from parley.engine.generation.rl.replies import ReplyMinMaxConfig
from parley.engine.generation.rl.reply_modules import ReplyWorld
from parley.engine.generation.settings import ReplyLearning, RewardSettings
from parley.envs.corpora.pairs.compiled import PairSplit, Ragged
from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary
from parley.policies.core.response_weights import ResponseWeights
from parley.policies.generation.discriminator.batches import DISCRIMINATOR, Discriminator
from parley.policies.generation.discriminator.settings import DiscriminatorSizes
from parley.policies.seq2seq.model import Seq2Seq
from parley.policies.seq2seq.scoring import save_model
from parley.policies.seq2seq.settings import Seq2SeqSizes

WORDS = PairVocabulary((*SPECIALS, *"abcdefgh"))
SIZES = Seq2SeqSizes(embed=6, hidden=8, max_source=8, max_reply=6)
LEARNING = ReplyLearning(rounds=3, discriminator_steps=2, examples_per_step=20, generator_rate=0.01, discriminator_rate=0.01)
SEED = 7


def pairs() -> PairSplit:
    """Sources of three words, answered by their first word and the next letters."""
    sources = [[5 + i % 8, 5 + i * 3 % 8, 5 + i * 5 % 8] for i in range(37)]
    rows = [*sources, *([first, 5 + (first - 4) % 8, 5 + (first - 3) % 8] for first, *_ in sources)]
    split = Ragged(np.concatenate(rows).astype(np.int32), np.arange(0, 3 * len(rows) + 1, 3))
    return PairSplit(split, np.arange(len(rows)).reshape(2, -1).T)


def make_world() -> ReplyWorld:
    """The pairs as an algorithm takes them."""
    found = pairs()
    replies = [found.utterances[reply] for reply in found.pairs[:, 1].tolist()]
    weights = ResponseWeights.of(replies, len(WORDS), range(len(SPECIALS)))
    return ReplyWorld(found, WORDS, SIZES.max_reply - 1, weights)


def save_models(folder: Path) -> tuple[Path, Path]:
    """Generator and discriminator."""
    generator = Seq2Seq(WORDS, SIZES)
    generator.initialise(torch.Generator().manual_seed(1))
    save_model(generator, folder / "generator", {})
    discriminator = Discriminator(WORDS, DiscriminatorSizes(embed=6, hidden=8, turns=1, words=10, dropout=0.1))
    discriminator.initialise(torch.Generator().manual_seed(2))
    DISCRIMINATOR.save(discriminator, folder / "discriminator", {})
    return folder / "generator", folder / "discriminator"


def settings(folder: Path, learning: ReplyLearning = LEARNING, env_runners: int = 0, **rewards: Any) -> ReplyMinMaxConfig:
    """What an algorithm is built from; settings of rewards by name, and `reward`."""
    generator, discriminator = folder / "generator", folder / "discriminator"
    reward = rewards.pop("reward", "discriminator")
    config = ReplyMinMaxConfig().replies(
        learning=learning,
        rewards=RewardSettings(**{"num_rollouts": 2, **rewards}),
        reward=reward,
        make_world=make_world,
        generator=str(generator),
        discriminator=str(discriminator),
        seed=SEED,
    )
    config.env_runners(num_env_runners=env_runners)
    return config
