"""What Hugging Face models say of a corpus' test pairs: thresholds of usual words, and the list of normal targets.

A source is typed where the searched words stand. Its tokens are not limited to the length of inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from parley.engine.triggers.verbs.config import TriggerConfig
from parley.envs.core.errors import DataError
from parley.envs.core.seeds import derive_seed
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.written import detokenise

if TYPE_CHECKING:
    from parley.engine.triggers.hits import Thresholds
    from parley.policies.hugging_face.judges import HuggingFaceInputModel
    from parley.policies.hugging_face.victims import HuggingFaceVictim

NUM_PAIRS = 100
"""Test pairs that thresholds are measured on."""
LONGEST_NORMAL = 32
"""Tokens of the longest normal target."""
_DIGITS = 4


def test_texts(config: TriggerConfig) -> Iterator[tuple[str, str]]:
    """Source and reply of each test pair, as people write them.

    Raises:
        DataError: the corpus is missing or broken.
    """
    corpus = load_pairs(config.corpus, config.data_root, every_word=True)
    test = corpus.splits["test"]
    for pair in test.pairs:
        source, reply = (detokenise(corpus.vocabulary.decode(test.utterances[int(place)])) for place in pair)
        if source and reply:
            yield source, reply


def measured_thresholds(victim: HuggingFaceVictim, judge: HuggingFaceInputModel | None, config: TriggerConfig) -> Thresholds:
    """T_out and T_in where settings do not say them: mean log probabilities of a token of the corpus' test replies and sources.

    They are rounded, so that a search that goes on elsewhere has the same.

    Raises:
        DataError: the corpus has no test pair that the model can read.
    """
    from parley.engine.triggers.hits import Thresholds
    from parley.policies.hugging_face.judges import reply_nats

    t_out, t_in = config.objective.t_out, config.objective.t_in
    if not config.corpus or not (t_out is None or (judge is not None and t_in is None)):
        return Thresholds(t_out=t_out, t_in=t_in if judge else None)
    replies: list[float] = []
    sources: list[float] = []
    for number, (source, reply) in enumerate(test_texts(config)):
        if number == NUM_PAIRS:
            break
        replies += reply_nats(victim, source, reply)
        if judge is not None:
            sources += judge.nats(source)
    if not replies or (judge is not None and not sources):
        fix = "name another corpus, or --set objective.t_out=NATS"
        raise DataError("the model can read no test pair of the corpus", where=config.corpus, fix=fix)
    t_out = -_mean(replies) if t_out is None else t_out
    if judge is not None and t_in is None:
        t_in = -_mean(sources)
    return Thresholds(t_out=t_out, t_in=t_in if judge else None)


def own_replies(victim: HuggingFaceVictim, config: TriggerConfig, t_out: float | None = None) -> Iterator[str]:
    """What a model says by itself to test sources; replies that are longer than targets may be are left out.

    # Parley's own networks draw any token where none is above T_out. Ours here: such a reply is left out, too.

    Args:
        victim: the model.
        config: names the corpus, and has the seed.
        t_out: draw replies, of tokens with a log probability above this, instead of taking the likeliest tokens.
    """
    for number, (source, _) in enumerate(test_texts(config)):
        if (read := victim.read_text(source)) is None:
            continue
        drawn = {} if t_out is None else {"temperature": 1.0, "min_log_probability": t_out}
        ids, ended = victim.say(read, LONGEST_NORMAL, seed=derive_seed(config.seed, "normal target", number), **drawn)
        text = victim.reply_text(ids).strip()
        # What is written as other tokens is not what the model said.
        if ended and text and victim.tokenizer(text, add_special_tokens=False).input_ids == ids:
            yield text


def _mean(nats: Sequence[float]) -> float:
    return round(float(np.mean(nats)), _DIGITS)
