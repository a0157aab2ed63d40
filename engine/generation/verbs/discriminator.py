"""Training of discriminators against the replies of a generator: `parley train discriminator`.

Source: Li et al. 2017 (arXiv 1701.06547), section 3.3: recorded replies are positive examples; for each, the generator's reply
to the same context is a negative one, half of them found by a beam with re-ranking by mutual information, half sampled.

The file also decodes these replies, for discriminators and judges. The decoder of a context, and every draw, follows from the
seed and the position in the corpus, so that a killed run goes on exactly, and a run with the same generator and settings may
copy the decoded replies of another.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.verbs.checkpoints import require_checkpoint, require_word_model, weights_digests
from parley.engine.core.verbs.job import Reporter
from parley.engine.core.verbs.supervised import RESUME_SAFE, FitJob, Fitting, PairFitConfig, open_pairs, require_splits
from parley.engine.generation.metrics.tables import DECODED, DISCRIMINATION, SAMPLED, accuracies, accuracy
from parley.envs.core.config import PositiveInt
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.core.storage.uris import display_path, local_copy
from parley.envs.corpora.arrow import root_words
from parley.envs.generation.game import pairs_in_words
from parley.policies.core.responder import DecoderSettings, lacks_backward, with_backward
from parley.policies.core.settings import FitConfig
from parley.policies.generation.discriminator.settings import (
    DiscriminatorSizes,
    discriminator_fit,
    discriminator_released,
    discriminator_small,
)

if TYPE_CHECKING:
    from parley.envs.corpora.pairs.compiled import PairSplit
    from parley.policies.core.fitting.batches import Fitness
    from parley.policies.core.fitting.loop import Fit
    from parley.policies.generation.discriminator.batches import Discriminator, ReplyExamples
    from parley.policies.seq2seq.model import Seq2Seq


_PART = 1_000
"""Contexts that are decoded between two savings."""


class Negatives:
    """Decodes by parts, and keeps what is decoded in a file.

    Args:
        generator: in evaluation mode.
        decoder: of the replies that are not sampled.
        seed: of the run.
        reporter: of the progress.
        origin: everything that decides the replies: weights, decoder, seed, contexts; stored in the file.
        copied_from: the file of another run with the same origin; it need not exist.

    Raises:
        CheckpointError: a model that the decoder names is not there, or damaged.
    """

    def __init__(
        self,
        generator: Seq2Seq,
        decoder: DecoderSettings,
        seed: int,
        reporter: Reporter,
        origin: Mapping[str, str | int],
        copied_from: Path | None = None,
    ) -> None:
        from parley.policies.seq2seq.decoding import ReplyDecoder

        ways = {DECODED: decoder, SAMPLED: DecoderSettings(rule="sample")}
        self._ways = {name: ReplyDecoder(generator, settings) for name, settings in ways.items()}
        self._seed, self._reporter = seed, reporter
        self._origin, self._copied_from = dict(origin), copied_from

    def of(self, name: str, pairs: PairSplit, path: Path) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the generator's replies to the contexts of a split; decode what is missing.

        Args:
            name: of the split.
            path: the file that they are kept in.
            pairs: contexts and recorded replies.

        Returns:
            Word ids without `</s>`, and how each came about, `DECODED` or `SAMPLED` (P,).

        Raises:
            CheckpointError: a file is damaged, or holds replies of another origin.
        """
        coins = stream(self._seed, "how the generator replies", name).integers(2, size=len(pairs))
        ways = np.array([DECODED, SAMPLED])[coins]
        stored = self._read(path)
        decoded = stored.get(name, [])
        if len(decoded) < len(pairs) and self._copied_from is not None:
            theirs = self._read(self._copied_from).get(name, [])
            if len(theirs) > len(decoded):
                decoded = theirs
                self._write(path, {**stored, name: decoded})
        if len(decoded) < len(pairs):
            self._reporter.stage(f"the generator's replies, {name}", len(pairs), "contexts")
        while len(decoded) < len(pairs):
            rows = range(len(decoded), min(len(decoded) + _PART, len(pairs)))
            decoded = decoded + self._decoded(name, pairs, rows, ways)
            self._write(path, {**stored, name: decoded})
            self._reporter.advance(len(decoded))
        return decoded, ways

    def _decoded(self, name: str, pairs: PairSplit, rows: range, ways: np.ndarray) -> list[np.ndarray]:
        replies_of: dict[int, np.ndarray] = {}
        for way, decode in self._ways.items():
            chosen = [row for row in rows if ways[row] == way]
            seeds = [derive_seed(self._seed, "reply of the generator", name, row) for row in chosen]
            outputs = decode([pairs.utterances[int(pairs.pairs[row, 0])] for row in chosen], seeds) if chosen else []
            replies_of |= {row: np.array(words, dtype=np.int64) for row, words in zip(chosen, outputs, strict=True)}
        return [replies_of[row] for row in rows]

    def _read(self, path: Path) -> dict[str, list[np.ndarray]]:
        from parley.policies.core.checkpoint import load_state

        if not path.exists():
            return {}
        tensors, counters = load_state(path)
        if "origin" not in counters:
            # An older version wrote it, without the origin.
            return {}
        if (origin := counters["origin"]) != self._origin:
            fix = "name a run with the same generator, decoder, seed and corpus"
            raise CheckpointError("these are replies of another origin", where=path, got=f"{origin}", fix=fix)
        return {
            name: np.split(tensors[f"{name}.words"].numpy(), np.cumsum(tensors[f"{name}.lengths"].numpy())[:-1])
            for name in counters["splits"]
        }

    def _write(self, path: Path, replies_of: dict[str, list[np.ndarray]]) -> None:
        import torch

        from parley.policies.core.checkpoint import save_state

        tensors = {}
        for name, replies in replies_of.items():
            tensors[f"{name}.words"] = torch.from_numpy(np.concatenate(replies))
            tensors[f"{name}.lengths"] = torch.tensor([len(reply) for reply in replies])
        save_state(path, tensors, {"splits": list(replies_of), "origin": self._origin})


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
        """Return the decoder with the backward model that it needs.

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
    """Train a model for a laptop with Adam: a quarter of the released widths, the built-in help desk."""
    return TrainDiscriminatorConfig(sizes=discriminator_small())


def li2017() -> TrainDiscriminatorConfig:
    """Train with the published negatives (name --backward), and the released widths and recipe (SGD at 0.01), on Ubuntu."""
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
        from parley.policies.generation.discriminator.batches import DISCRIMINATOR, PREFIXES, Discriminator
        from parley.policies.seq2seq.scoring import load_seq2seq

        if config.backward:
            require_checkpoint(config.backward, "--backward", "parley train seq2seq --backward")
        generator = load_seq2seq(require_word_model(config.generator, "--generator", "parley train seq2seq")).to(config.device)
        corpus, words, sizes = open_pairs(config, every_word=True), generator.vocabulary, generator.sizes
        settings = {name: getattr(config, name) for name in ("seed", "limit", "min_reply")}
        origin = {**weights_digests(self.models(config)), "decoder": config.decoding, **settings, "corpus": corpus.folder.name}
        copied_from = local_copy(config.replies) / NEGATIVES if config.replies else None
        negatives = Negatives(generator, DecoderSettings.parse(config.decoding), config.seed, reporter, origin, copied_from)
        lengths = {"min_reply": config.min_reply, "max_reply": sizes.max_reply - 1}
        pairs = pairs_in_words(corpus, words, turns=sizes.turns, **lengths)
        require_splits(corpus.name, pairs.splits)
        if pairs.note:
            reporter.say(pairs.note)
        model = Discriminator(words, config.sizes).to(config.device)
        data = _LabelledData(config, model, pairs.splits, negatives)
        about = {"generator": config.generator, "decoder": config.decoding, PREFIXES: config.prefixes}
        what = f"{len(words):,} words, {len(pairs.splits['train']):,} training contexts"
        return Fitting(
            config=config,
            corpus=corpus,
            model=model,
            splits=data.splits,
            fit=data.fit,
            save=DISCRIMINATOR.save,
            provenance={"role": "supervised", "vocabulary": len(words), **about},
            what=f"discriminator, {config.sizes.kind}",
            words=f"{what}, negatives half by {config.decoding}, half sampled",
            measure=data.measure,
            finish=data.finish,
        )

    def next_commands(self, config: TrainDiscriminatorConfig, path: Path) -> tuple[str, ...]:
        method = "regs-partial" if config.prefixes else "regs-mc"
        words = ["parley", "minmax", "replies", "--method", method, "--start", config.generator, "--corpus", config.corpus]
        words += ["--discriminator", display_path(path), *root_words(config.data_root)]
        return (*super().next_commands(config, path), shlex.join(words))

    def models(self, config: TrainDiscriminatorConfig) -> Mapping[str, str]:
        return {"generator": config.generator, **DecoderSettings.parse(config.decoding).models}


class _LabelledData:
    """Recorded and decoded replies of each split, and the fit on them.

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
        """The examples of the fit and its measurements, once they are decoded."""
        self._whole: dict[str, ReplyExamples] = {}
        """The same with whole replies."""

    def fit(self, state: Path) -> Fit[Any]:
        """Decode what is missing, and make the fit."""
        from parley.policies.core.fitting.loop import Fit

        config, model = self._config, self._model
        for split, pairs in self._pairs.items():
            replies, self._kinds[split] = self._negatives.of(split, pairs, state.with_name(NEGATIVES))
            self.splits[split] = labelled(model, pairs, replies, config.seed, prefixes=config.prefixes)
            self._whole[split] = labelled(model, pairs, replies, config.seed)
        return Fit(model, self.splits["train"], self.splits["val"], config.fit, config.seed, state)

    def measure(self) -> dict[str, float]:
        from parley.policies.generation.discriminator.batches import judge

        return {"validation_accuracy": judge(self._model, self._whole["val"]).accuracy}

    def finish(self, test: Fitness) -> dict[str, Estimate]:
        """Return the figures of the fitted model."""
        from parley.policies.generation.discriminator.batches import judge

        estimates: dict[str, Estimate] = {}
        for name, split in MEASURED.items():
            contexts = np.repeat(np.arange(len(self._whole[split])), 2)
            kinds = np.repeat(self._kinds[split], 2)
            judgements = judge(self._model, self._whole[split])
            by_kind = accuracies(judgements.log_odds, judgements.human, contexts, kinds)
            estimates |= {f"{name}_{key}": estimate for key, estimate in by_kind.items()}
            if self._config.prefixes:
                begun = judge(self._model, self.splits[split])
                estimates[f"{name}_accuracy_beginnings"] = accuracy(begun.log_odds, begun.human, contexts)
        return estimates


def labelled(
    model: Discriminator, pairs: PairSplit, negatives: Sequence[np.ndarray], seed: int, *, prefixes: bool = False
) -> ReplyExamples:
    """Pair each context with the recorded reply and a machine's.

    Args:
        model: whose words and lengths they are read with.
        pairs: contexts and recorded replies.
        negatives: a machine's reply to each.
        seed: draws beginnings.
        prefixes: whether beginnings stand for replies.
    """
    from parley.policies.generation.discriminator.batches import JudgedReplies, ReplyExamples

    read, items = pairs.utterances, []
    for row, ((source, recorded), negative) in enumerate(zip(pairs.pairs.tolist(), negatives, strict=True)):
        item_seed = derive_seed(seed, "beginning", row)
        items.append(JudgedReplies(read[source], (read[recorded], negative), (True, False), item_seed))
    return ReplyExamples(items, model.vocabulary, model.sizes, prefixes=prefixes)


TRAIN_DISCRIMINATOR = TrainDiscriminator()
