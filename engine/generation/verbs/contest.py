"""Who learns from whom on which pairs: what an adversarial training of a generator is made of, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from parley.engine.core.verbs.checkpoints import located, require_checkpoint
from parley.engine.core.verbs.supervised import require_splits
from parley.engine.generation.verbs.minmax_config import MinMaxRepliesConfig, ReplyTrainingConfig
from parley.envs.core.storage.copies import fetched_model
from parley.envs.corpora.pairs.compiled import PairSplit, load_pairs
from parley.envs.corpora.pairs.stop_words import is_content
from parley.envs.generation.pairs import PairsInWords, pairs_in_words
from parley.policies.core.decoders import MAKERS, DecoderSettings, lacks_backward, with_backward

if TYPE_CHECKING:
    from parley.engine.generation.rl.reply_world import ReplyWorld
    from parley.policies.seq2seq.model import Seq2Seq

BACKWARD = "backward"
"""Folder of the backward model that is trained first where none is named."""


def require_decoders(config: ReplyTrainingConfig) -> None:
    """Makes sure, before anything is trained, that both decoders are known and that the models which they name fit.

    Args:
        config: its sizes are those of the generator.

    Raises:
        ConfigError: no decoder is called so, or a backward model predicts contexts of other turns than the generator reads.
        CheckpointError: a model is not there; a backward model predicts replies.
    """
    from parley.policies.seq2seq.backward import load_backward
    from parley.policies.seq2seq.replying import require_turns

    if config.backward:
        require_checkpoint(config.backward, "--backward", MAKERS[BACKWARD])
    decoders = [located(DecoderSettings.parse(config.decoder))]
    told = DecoderSettings.parse(with_backward(config.discriminator_decoder, config.backward or BACKWARD))
    if config.backward or not lacks_backward(config.discriminator_decoder):
        decoders.append(located(told))
    for name in dict.fromkeys(filter(None, (config.backward, *(decoder.backward for decoder in decoders)))):
        require_turns(config.sizes.turns, load_backward(fetched_model(name)), name)


def recorded_pairs(config: MinMaxRepliesConfig, generator: Seq2Seq) -> PairsInWords:
    """The splits of the corpus in the words of a generator, and what is left out of them."""
    corpus = load_pairs(config.corpus, config.data_root, every_word=True).first(config.limit)
    sizes = generator.sizes
    lengths = {"min_reply": config.min_reply, "max_reply": config.max_words or sizes.max_reply - 1}
    pairs = pairs_in_words(corpus, generator.vocabulary, turns=sizes.turns, **lengths)
    require_splits(corpus.name, pairs.splits)
    return pairs


def training_world(config: MinMaxRepliesConfig, generator: str) -> ReplyWorld:
    """What a training learns on; runners make it by themselves."""
    from parley.engine.generation.rewards.weights import ResponseWeights
    from parley.engine.generation.rl.reply_world import ReplyWorld
    from parley.policies.seq2seq.checkpoints import load_seq2seq

    model = load_seq2seq(Path(generator))
    pairs, words = recorded_pairs(config, model).splits["train"], model.vocabulary
    replies = (pairs.utterances[reply] for reply in pairs.pairs[:, 1].tolist())
    stops = [place for place, word in enumerate(words.words) if not is_content(word)]
    weights = ResponseWeights.of(replies, len(words), stops)
    return ReplyWorld(pairs, words, config.max_words or model.sizes.max_reply - 1, weights)


@dataclass(frozen=True)
class Contest:
    """Who learns from whom.

    Args:
        config: what was asked for.
        generator: folder of its checkpoint.
        discriminator: folder of its checkpoint.
        model: the generator as it begins.
        pairs: by split, in its words.
        note: what is left out of them, in sentences.
    """

    config: MinMaxRepliesConfig
    generator: str
    discriminator: str
    model: Seq2Seq
    pairs: Mapping[str, PairSplit]
    note: str


def contest_of(config: MinMaxRepliesConfig, generator: str, discriminator: str) -> Contest:
    """Reads who learns from whom.

    Args:
        config: what is asked for.
        generator: folder of a checkpoint.
        discriminator: folder of a checkpoint; empty for one that is yet to be trained.

    Raises:
        CheckpointError: one is damaged, of another kind, or does not know beginnings, which the method asks it about.
        ConfigError: their words or lengths do not fit.
        DataError: the corpus cannot be read, or a split is empty.
    """
    from parley.engine.generation.rewards.rewards import limit
    from parley.policies.generation.discriminator.checkpoints import load_discriminator, require_prefixes
    from parley.policies.seq2seq.checkpoints import load_seq2seq

    model = load_seq2seq(Path(generator))
    if discriminator:
        if config.method == "regs-partial":
            require_prefixes(Path(discriminator))
        limit(config.rewards, model, load_discriminator(Path(discriminator)))
    return Contest(config, generator, discriminator, model, *recorded_pairs(config, model))
