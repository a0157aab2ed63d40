"""What single words of replies earn at the end of a training: the reply's own score, and that of each of its beginnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from parley.engine.generation.rewards.settings import Method, RewardSettings
from parley.envs.core.seeds import derive_seed

if TYPE_CHECKING:
    from parley.envs.corpora.pairs.compiled import PairSplit
    from parley.policies.generation.discriminator.model import Discriminator
    from parley.policies.seq2seq.model import Seq2Seq

NUM_SHOWN = 8
REWARDS_OF_WORDS = "rewards of words"
"""Kind of the event that holds them."""


def word_rewards(
    settings: RewardSettings, generator: Seq2Seq, discriminator: Discriminator, pairs: PairSplit, max_words: int, seed: int
) -> list[dict[str, Any]]:
    """Drawn replies to the first contexts of a split, with what REINFORCE and REGS say that each word earns.

    Args:
        settings: whose method, of REGS, is shown; Monte Carlo with REINFORCE.
        generator: in evaluation mode.
        discriminator: the same.
        pairs: of contexts.
        max_words: words of a reply at most.
        seed: of draws.

    Returns:
        Of each `context` and `reply`, which is words, and `rewards` by method, a number for each word.
    """
    from parley.engine.generation.rewards.replies import reply_actions
    from parley.engine.generation.rewards.rewards import rewards
    from parley.policies.generation.discriminator.batches import context_batch
    from parley.policies.seq2seq.decoding import read, sample

    shown = pairs.first(NUM_SHOWN)
    sources = [shown.utterances[source] for source in shown.pairs[:, 0].tolist()]
    seeds = [derive_seed(seed, REWARDS_OF_WORDS, row) for row in range(len(sources))]
    actions = reply_actions(sample(generator, sources, seeds), max_words)
    contexts = discriminator.read(context_batch(sources, discriminator.vocabulary, discriminator.sizes))
    regs: Method = "regs-mc" if settings.method == "reinforce" else settings.method
    methods: tuple[Method, ...] = ("reinforce", regs)
    earned: dict[str, Sequence[Sequence[float]]] = {}
    for method in methods:
        how, memory = replace(settings, method=method), read(generator, sources)
        earned[method] = rewards(how, generator, memory, discriminator, contexts, actions, seeds, max_words).tolist()
    words = generator.vocabulary
    return [
        {
            "context": " ".join(words.decode(sources[row])),
            "reply": [words.words[word] for word in actions.words_BT[row, :length].tolist()],
            "rewards": {method: [round(value, 4) for value in rows[row][:length]] for method, rows in earned.items()},
        }
        for row, length in enumerate(actions.num_actions_B.tolist())
    ]
