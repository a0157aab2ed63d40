"""What adversarial training of a generator is asked for: its configuration and presets. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal

from parley.engine.generation.rewards import settings as settings_of_rewards
from parley.engine.generation.rewards.settings import RewardSettings
from parley.engine.generation.rl.reply_settings import ReplyLearning, Reward
from parley.envs.core.ranges import Configuration, NonNegativeFloat, NonNegativeInt, NumItems, PositiveInt, Share
from parley.policies.core.fitting.settings import FitConfig
from parley.policies.generation.discriminator.settings import (
    DiscriminatorSizes,
    discriminator_fit,
    discriminator_released,
    discriminator_small,
)
from parley.policies.seq2seq import settings
from parley.policies.seq2seq.settings import Seq2SeqSizes


@dataclass(frozen=True, kw_only=True)
class Watch(Configuration):
    """When a training has gone wrong."""

    patience: PositiveInt = 50
    """Steps of a kind in a row for which a figure has to be out of its bounds."""
    saturated: Share = 0.98
    """Accuracy of the discriminator above which it teaches nothing."""
    helpless: Share = 0.52
    """Accuracy of the discriminator below which its rewards are noise."""
    min_distinct: Share = 0.01
    """Different words of a step's replies, as a share of all their words, below which the generator has collapsed."""
    max_commonest: Share = 0.5
    """Share of a step's replies that are the commonest one, above which it has collapsed."""
    min_words: NonNegativeFloat = 1.5
    """Words of a reply in the mean, below which it has collapsed."""
    min_nats: NonNegativeFloat = 0.1
    """Nats of a word that it says (an estimate of its entropy), below which it has collapsed."""
    min_advantage: NonNegativeFloat = 1e-3
    """Size of reward less baseline in the mean, below which rewards tell the generator nothing."""
    stop: bool = False
    """Whether a training ends there, naming the last good checkpoint; otherwise that is an event of the run."""


@dataclass(frozen=True, kw_only=True)
class ReplyTrainingConfig(RewardSettings):
    """On what a generator and a discriminator learn from each other, how long, and what is trained first."""

    corpus: str = "helpdesk"
    """Registered corpus of pairs (parley data list), a source<TAB>reply file or folder, or path/file.py:NAME."""
    min_reply: PositiveInt = 5
    """Words that a recorded reply has at least (published: 5); the generator's limit is the most."""
    limit: NonNegativeInt = 0
    """Pairs of each split at most, the first ones; 0 for all."""
    check_every: PositiveInt = 50
    """Rounds between measurements on the validation split, which pick the checkpoint."""
    checked: NumItems = 500
    """Validation and test contexts that are answered in a measurement, the first ones of the split."""
    decoder: str = "greedy"
    """How they are answered."""
    discriminator_decoder: str = "beam:7"
    """How half of the replies are found that a discriminator is trained on first; the other half is sampled. Published: mmi,
    which re-ranks by --backward."""
    backward: str = ""
    """Run of train seq2seq --backward, by which mmi re-ranks; when empty and needed one is trained first."""
    keep: Literal["best", "last"] = "best"
    """Which generator is stored: the best on the validation split, the start among them, or the last."""
    save_every: PositiveInt = 10
    """Updates between saved training states."""
    address: str = ""
    """Address of a Ray cluster; a local one when empty."""
    data_root: Path | None = None
    """Where corpora lie; PARLEY_DATA or the user cache folder when not given."""
    seed: NonNegativeInt = 1
    """Master seed."""
    threads: PositiveInt = 1
    """CPU threads that this process computes with; env runners have one each, so that with more the last digits may differ."""
    learning: ReplyLearning = field(default_factory=ReplyLearning)
    """Order and amounts of steps."""
    watch: Watch = field(default_factory=Watch)
    """When a training has gone wrong."""
    vocabulary: int | None = None
    """Entries of the vocabulary of generators and language models that are trained first; the corpus' own number when not
    given."""
    sizes: Seq2SeqSizes = field(default_factory=Seq2SeqSizes)
    """Of a generator that is trained first."""
    fit: FitConfig = field(default_factory=settings.fast)
    """The recipe of that generator."""
    discriminator_sizes: DiscriminatorSizes = field(default_factory=discriminator_small)
    """Of a discriminator that is trained first."""
    discriminator_fit: FitConfig = field(default_factory=discriminator_fit)
    """The recipe of that discriminator."""

    @property
    def longest(self) -> int:
        """Words of a recorded reply at most, where the generator has these sizes."""
        return self.max_words or self.sizes.max_reply - 1


@dataclass(frozen=True, kw_only=True)
class MinMaxRepliesConfig(ReplyTrainingConfig):
    """Which generator learns from which discriminator, on what and how long."""

    start: str = ""
    """Run or checkpoint of the generator (parley train seq2seq); when empty one is trained first."""
    discriminator: str = ""
    """Run or checkpoint of the discriminator (parley train discriminator); when empty one is trained first."""
    reward: Reward = "discriminator"
    """What the generator is rewarded by. Controls: constant, 1 for every word; shuffled, the discriminator's rewards of another
    example of the step; length, words of the reply as a share of the limit."""
    env_runners: NonNegativeInt = 0
    """Processes that say replies and reward them; 0: this one does. They change nothing of what is learned."""

    @property
    def rewards(self) -> RewardSettings:
        """What words earn."""
        return RewardSettings(**{each.name: getattr(self, each.name) for each in fields(RewardSettings)})

    @property
    def steps(self) -> ReplyLearning:
        """The steps that are made: without teacher forcing where nobody is forced."""
        return replace(self.learning, teacher_steps=0) if self.teacher_forcing == "none" else self.learning


def helpdesk() -> MinMaxRepliesConfig:
    """Ten rounds on the built-in help desk, offline, with a small generator and discriminator that are trained first."""
    return MinMaxRepliesConfig(
        num_rollouts=2,
        learning=ReplyLearning(rounds=10, discriminator_steps=2, examples_per_step=32, generator_rate=1e-3),
        check_every=5,
        checked=100,
        sizes=Seq2SeqSizes(embed=64, hidden=96, turns=2, max_source=40),
        fit=replace(settings.demo(), max_epochs=10),
        discriminator_sizes=DiscriminatorSizes(embed=32, hidden=48),
        discriminator_fit=FitConfig(batch_size=64, max_epochs=2, decay_epochs=0, precision="float32"),
    )


def released() -> MinMaxRepliesConfig:
    """The authors' code, on Ubuntu: SGD, a linear critic, replies of 40 words; name --start, or one is trained first.

    Released: Monte Carlo rewards alone, their options (`engine/generation/rewards/settings.py`), the rates, widths, dropout of
    .2, 64 contexts a step, 25,000 words, 50 words of source, and that a round is five discriminator steps, a generator step and
    teacher forcing on its contexts. The generator steps at a rate of 1 in sums over words divided by the number of replies,
    its gradient's norm 5 at most; `policies/seq2seq/settings.py:li2017` says why that is 10 and .5 here.

    Not known: how many rounds they trained for and which state they kept (it goes on until it is killed), how the replies
    were decoded that the discriminator is trained on first (the paper's way here), and the corpus, of which 768 triples
    are released.

    Otherwise here: one largest norm of gradients, the generator's (released: 5 for the discriminator); a context's turns are
    utterances (released: one utterance); no dropout where the generator's own replies are scored.
    """
    authors = replace(li2017(), **vars(settings_of_rewards.released()))
    rates = ReplyLearning(optimiser="sgd", generator_rate=10.0, discriminator_rate=0.01, critic_rate=5e-4, clip=0.5)
    return replace(
        authors,
        learning=rates,
        vocabulary=25_000,
        sizes=replace(settings.released_replier(), max_reply=41),
        fit=settings.li2017(),
        discriminator_sizes=DiscriminatorSizes(),
        discriminator_fit=discriminator_released(),
    )


def li2017() -> MinMaxRepliesConfig:
    """A thousand rounds of five discriminator steps on Ubuntu, 64 examples a step; name --start and --discriminator."""
    return MinMaxRepliesConfig(
        corpus="ubuntu_irc",
        discriminator_decoder="mmi",
        sizes=settings.replier(),
        fit=settings.small_batches(),
    )
