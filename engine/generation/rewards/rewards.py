"""What each word of a reply earns: REINFORCE, and reward for every generation step (REGS); Li et al. 2017, section 3.

    reinforce     Q+(x, y) at every word                                        (equation 2)
    regs-mc       the mean of Q+ over N continuations of y_1..y_t               (strategy 1)
    regs-partial  Q+(x, y_1..y_t) of a discriminator fitted to beginnings       (strategy 2)
Q+ is the probability that a person wrote the reply. The last word, which is `</s>` unless the limit ended the reply, always
earns Q+(x, y).

Departures:
  * # Released: the last word earns what the word before it does. Ours: the reply's own score; `last_word="before"` is the
    released.

Shapes: B replies, T words of the longest, `</s>` counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from parley.engine.generation.rewards.replies import ReplyActions
from parley.engine.generation.rewards.rollouts import rollout_rewards
from parley.engine.generation.rewards.settings import RewardSettings
from parley.envs.core.errors import ConfigError
from parley.policies.core.decoding import Decoder
from parley.policies.generation.discriminator.model import Discriminator
from parley.policies.generation.discriminator.reader import ContextMemory
from parley.policies.seq2seq.model import Seq2Seq


def rewards(
    settings: RewardSettings,
    generator: Decoder[Any, Any],
    memory: tuple[Any, ...],
    discriminator: Discriminator,
    contexts: ContextMemory,
    replies: ReplyActions,
    seeds: Sequence[int],
    max_words: int,
) -> Tensor:
    """Rewards by the method that is set.

    Args:
        settings: method, continuations, and what the last word earns.
        generator: in evaluation mode.
        memory: its contexts, a row for each reply.
        discriminator: in evaluation mode.
        contexts: the same contexts as it reads them.
        replies: what the generator said.
        seeds: one for each example; regs-mc alone draws.
        max_words: words of a reply at most, as `limit` says.

    Returns:
        (B, T) float32 in [0, 1], 0 where there is no action.
    """
    if settings.method == "regs-mc":
        num_rollouts = settings.num_rollouts
        found_BT = rollout_rewards(generator, memory, discriminator, contexts, replies, seeds, num_rollouts, max_words)
    else:
        of_method = reply_rewards if settings.method == "reinforce" else prefix_rewards
        found_BT = of_method(discriminator, contexts, replies)
    if settings.last_word == "before":
        ends_B = replies.num_actions_B - 1
        rows_B = torch.arange(len(ends_B), device=ends_B.device)
        found_BT[rows_B, ends_B] = found_BT[rows_B, (ends_B - 1).clamp(min=0)]
    return found_BT


@torch.no_grad()
def prefix_rewards(discriminator: Discriminator, contexts: ContextMemory, replies: ReplyActions) -> Tensor:
    """What a discriminator says of every beginning, in one pass; arguments and result as those of `rewards`."""
    scores_BT = discriminator.prefixes(contexts, replies.words_BT, replies.lengths_B).sigmoid()
    whole_B1 = scores_BT.gather(1, (replies.lengths_B - 1).unsqueeze(1))
    scores_BT.scatter_(1, (replies.num_actions_B - 1).unsqueeze(1), whole_B1)
    return scores_BT * replies.real_BT


def reply_rewards(discriminator: Discriminator, contexts: ContextMemory, replies: ReplyActions) -> Tensor:
    """What it says of whole replies, at every word; arguments and result as those of `rewards`."""
    whole_B = replies.at_end(prefix_rewards(discriminator, contexts, replies))
    return whole_B.unsqueeze(1) * replies.real_BT


def limit(settings: RewardSettings, generator: Seq2Seq, discriminator: Discriminator) -> int:
    """Words of a reply at most, `</s>` not counted, for two models that can work together.

    Raises:
        ConfigError: their vocabularies differ, or one of them reads or says fewer words than a reply may have.
    """
    if generator.vocabulary.words != discriminator.vocabulary.words:
        got = f"{len(generator.vocabulary)} and {len(discriminator.vocabulary)} words"
        fix = "train the discriminator on replies of this generator"
        raise ConfigError("generator and discriminator have different vocabularies", where="vocabulary", got=got, fix=fix)
    said, read = generator.sizes.max_reply - 1, discriminator.sizes.words - 1
    most = settings.max_words or said
    # Were recorded replies longer than any that is said, their length would tell them.
    ends = (
        (said, "generator says", "a generator with sizes.max_reply"),
        (read, "discriminator reads", "a discriminator with words"),
    )
    for end, who, other in ends:
        if most > end:
            fix = f"set max_words to {end} or less, or train {other}={most + 1}"
            raise ConfigError(f"replies may be longer than what the {who}", where="max_words", got=f"{most} words", fix=fix)
    return most
