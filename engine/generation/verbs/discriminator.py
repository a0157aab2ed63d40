"""Training of discriminators against the replies of a generator: `parley train discriminator`.

Source: Li et al. 2017 (arXiv 1701.06547), section 3.3: recorded replies are positive examples; for each, the generator's reply
to the same context is a negative one, half of them found by a beam with re-ranking by mutual information, half sampled.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.verbs.checkpoints import require_checkpoint, require_word_model
from parley.engine.core.verbs.job import Reporter
from parley.engine.core.verbs.supervised import RESUME_SAFE, FitJob, Fitting, PairFitConfig, open_pairs, require_splits
from parley.engine.core.verbs.weights import weights_digests
from parley.engine.generation.metrics.training import DISCRIMINATION, accuracies, accuracy
from parley.engine.generation.verbs.negatives import Negatives
from parley.envs.core.errors import ConfigError
from parley.envs.core.ranges import PositiveInt
from parley.envs.core.seeds import derive_seed
from parley.envs.core.storage.uris import display_path, local_copy
from parley.envs.corpora.root import root_words
from parley.envs.generation.pairs import pairs_in_words
from parley.policies.core.decoders import DecoderSettings, lacks_backward, with_backward
from parley.policies.core.fitting.settings import FitConfig
from parley.policies.generation.discriminator.settings import (
    DiscriminatorSizes,
    discriminator_fit,
    discriminator_released,
    discriminator_small,
)

if TYPE_CHECKING:
    from parley.envs.corpora.pairs.compiled import PairSplit
    from parley.policies.core.fitting.evaluation import Fitness
    from parley.policies.core.fitting.fit import Fit
    from parley.policies.generation.discriminator.batches import ReplyExamples
    from parley.policies.generation.discriminator.model import Discriminator

NEGATIVES = "negatives.safetensors"
"""The file of a run that holds the generator's replies."""
MEASURED = {"validation": "val", "test": "test"}


@dataclass(frozen=True, kw_only=True)
class TrainDiscriminatorConfig(PairFitConfig):
    """Whose replies a discriminator learns to tell from people's, and how."""

    generator: str = "runs/seq2seq"
    """Run or checkpoint of the generator (parley train seq2seq); the discriminator has its words."""
    decoder: str = "beam:7"
    """How half of the generator's replies are found; the other half is sampled. Published: mmi, which needs --backward."""
    backward: str = ""
    """Run of train seq2seq --backward, by which mmi re-ranks."""
    replies: str = ""
    """Run on this machine with the same generator, decoder, seed and corpus; what it has decoded is not decoded again."""
    prefixes: bool = False
    """Learn from beginnings of replies, one random one of each (published for rewards of partial replies)."""
    min_reply: PositiveInt = 5
    """Words that a recorded reply has at least (published: 5); the generator's limit is the most."""
    sizes: DiscriminatorSizes = field(default_factory=DiscriminatorSizes)
    """The model."""
    fit: FitConfig = field(default_factory=discriminator_fit)
    """The recipe."""

    @property
    def decoding(self) -> str:
        """The decoder with the backward model that it needs.

        Raises:
            ConfigError: none is named.
        """
        if lacks_backward(self.decoder) and not self.backward:
            raise ConfigError(
                "half of these negatives are re-ranked by a backward model, and none is named",
                where="--backward",
                got=f"--decoder {self.decoder}",
                fix="--backward RUN; the command that trained the generator makes one with --backward --run RUN. Without, "
                "and so not as published: --decoder beam:7",
            )
        return with_backward(self.decoder, self.backward)


def small() -> TrainDiscriminatorConfig:
    """A model for a laptop, fitted with Adam: a quarter of the published widths, the built-in help desk."""
    return TrainDiscriminatorConfig(sizes=discriminator_small())


def li2017() -> TrainDiscriminatorConfig:
    """The published widths and negatives (name --backward), the released recipe (SGD at 0.01), on Ubuntu."""
    return TrainDiscriminatorConfig(corpus="ubuntu_irc", decoder="mmi", fit=discriminator_released())


class TrainDiscriminator(FitJob[TrainDiscriminatorConfig]):
    """`parley train discriminator`."""

    words = ("train", "discriminator")
    run_name = "discriminator"
    config = TrainDiscriminatorConfig
    presets = {"small": small, "li2017": li2017}
    resume_safe = (*RESUME_SAFE, "replies")
    legend = DISCRIMINATION

    def prepare(self, config: TrainDiscriminatorConfig, path: Path, reporter: Reporter) -> Fitting:
        from parley.policies.generation.discriminator.checkpoints import DISCRIMINATOR, PREFIXES
        from parley.policies.generation.discriminator.model import Discriminator
        from parley.policies.seq2seq.checkpoints import load_seq2seq

        if config.backward:
            require_checkpoint(config.backward, "--backward", "parley train seq2seq --backward")
        generator = load_seq2seq(require_word_model(config.generator, "--generator", "parley train seq2seq")).to(config.device)
        corpus, words, sizes = open_pairs(config, every_word=True), generator.vocabulary, generator.sizes
        asked = {name: getattr(config, name) for name in ("seed", "limit", "min_reply")}
        origin = {**weights_digests(self.models(config)), "decoder": config.decoding, **asked, "corpus": corpus.folder.name}
        others = local_copy(config.replies) / NEGATIVES if config.replies else None
        negatives = Negatives(generator, DecoderSettings.parse(config.decoding), config.seed, reporter, origin, others)
        lengths = {"min_reply": config.min_reply, "max_reply": sizes.max_reply - 1}
        pairs = pairs_in_words(corpus, words, turns=sizes.turns, **lengths)
        require_splits(corpus.name, pairs.splits)
        if pairs.note:
            reporter.say(pairs.note)
        model = Discriminator(words, config.sizes).to(config.device)
        told = _Told(config, model, pairs.splits, negatives)
        about = {"generator": config.generator, "decoder": config.decoding, PREFIXES: config.prefixes}
        what = f"{len(words):,} words, {len(pairs.splits['train']):,} training contexts"
        return Fitting(
            config=config,
            corpus=corpus,
            model=model,
            splits=told.splits,
            fit=told.fit,
            save=DISCRIMINATOR.save,
            provenance={"role": "supervised", "vocabulary": len(words), **about},
            what=f"discriminator, {config.sizes.kind}",
            words=f"{what}, negatives half by {config.decoding}, half sampled",
            measure=told.measure,
            finish=told.finish,
        )

    def next_commands(self, config: TrainDiscriminatorConfig, path: Path) -> tuple[str, ...]:
        method = "regs-partial" if config.prefixes else "regs-mc"
        words = ["parley", "minmax", "replies", "--method", method, "--start", config.generator, "--corpus", config.corpus]
        words += ["--discriminator", display_path(path), *root_words(config.data_root)]
        return (*super().next_commands(config, path), shlex.join(words))

    def models(self, config: TrainDiscriminatorConfig) -> Mapping[str, str]:
        return {"generator": config.generator, **DecoderSettings.parse(config.decoding).models}


class _Told:
    """Recorded and decoded replies of each split, and what a discriminator makes of them.

    Args:
        config: of the training.
        model: the discriminator.
        pairs: contexts and recorded replies by split.
        negatives: of the generator.
    """

    def __init__(
        self, config: TrainDiscriminatorConfig, model: Discriminator, pairs: Mapping[str, PairSplit], negatives: Negatives
    ) -> None:
        self._config, self._model, self._pairs, self._negatives = config, model, pairs, negatives
        self._kinds: dict[str, np.ndarray] = {}
        self.splits: dict[str, ReplyExamples] = {}
        """What the model is fitted to and measured on, once it is decoded."""
        self._whole: dict[str, ReplyExamples] = {}
        """The same with whole replies."""

    def fit(self, state: Path) -> Fit[Any]:
        """Decodes what is not decoded yet, and makes the fit."""
        from parley.policies.core.fitting.fit import Fit

        config, model = self._config, self._model
        for split, pairs in self._pairs.items():
            said, self._kinds[split] = self._negatives.of(split, pairs, state.with_name(NEGATIVES))
            self.splits[split] = labelled(model, pairs, said, config.seed, prefixes=config.prefixes)
            self._whole[split] = labelled(model, pairs, said, config.seed)
        return Fit(model, self.splits["train"], self.splits["val"], config.fit, config.seed, state)

    def measure(self) -> dict[str, float]:
        """After an epoch."""
        from parley.policies.generation.discriminator.judging import judge

        return {"validation_accuracy": judge(self._model, self._whole["val"]).accuracy}

    def finish(self, test: Fitness) -> dict[str, Estimate]:
        """Figures of the fitted model."""
        from parley.policies.generation.discriminator.judging import judge

        found: dict[str, Estimate] = {}
        for name, split in MEASURED.items():
            contexts = np.repeat(np.arange(len(self._whole[split])), 2)
            kinds = np.repeat(self._kinds[split], 2)
            told = judge(self._model, self._whole[split])
            found |= {f"{name}_{key}": each for key, each in accuracies(told.log_odds, told.human, contexts, kinds).items()}
            if self._config.prefixes:
                begun = judge(self._model, self.splits[split])
                found[f"{name}_accuracy_beginnings"] = accuracy(begun.log_odds, begun.human, contexts)
        return found


def labelled(
    model: Discriminator, pairs: PairSplit, negatives: Sequence[np.ndarray], seed: int, *, prefixes: bool = False
) -> ReplyExamples:
    """Contexts, each with the recorded reply and a machine's.

    Args:
        model: whose words and lengths they are read with.
        pairs: contexts and recorded replies.
        negatives: a machine's reply to each.
        seed: draws beginnings.
        prefixes: whether beginnings stand for replies.
    """
    from parley.policies.generation.discriminator.batches import JudgedReplies, ReplyExamples

    read, items = pairs.utterances, []
    for row, ((source, recorded), said) in enumerate(zip(pairs.pairs.tolist(), negatives, strict=True)):
        own = derive_seed(seed, "beginning", row)
        items.append(JudgedReplies(read[source], (read[recorded], said), (True, False), own))
    return ReplyExamples(items, model.vocabulary, model.sizes, prefixes=prefixes)


TRAIN_DISCRIMINATOR = TrainDiscriminator()
