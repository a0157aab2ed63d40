"""Rewards of words (REINFORCE and REGS), losses, baselines and Monte Carlo search of the generator (Li et al. 2017, section 3).

    reinforce     Q+(x, y) at every word                                        (equation 2)
    regs-mc       the mean of Q+ over N continuations of y_1..y_t               (strategy 1)
    regs-partial  Q+(x, y_1..y_t) of a discriminator fitted to beginnings       (strategy 2)
Q+ is the probability that a person wrote the reply. The last word, which is `</s>` unless the limit ended the reply, always
earns Q+(x, y).
  * # Released: the last word earns what the word before it does. Ours: the reply's own; `last_word="before"` is the released.

A reply is a sequence of actions, the words that the generator chose. `</s>` is an action like any word. A reply that reaches
the limit of words is ended by the limit: `</s>` stands behind it too, because the discriminator reads whole replies with it,
but the generator did not choose it, and it earns nothing.

Losses of the generator are policy gradients and teacher forcing (equations 2 and 3, and section 3.2), replies weighted by the
tf-idf of their words (`policies/core/response_weights.py`). A loss is a sum over words of (weight) x (nats), divided by a
constant, the mean number of words of a batch, as in supervised training. So a human reply that weighs 1 is a likelihood step.

A baseline is subtracted from rewards, so that gradients vary less (section 3.1 and footnote 3). It leaves the mean of the
gradient as it is if it does not depend on the word that it judges: b(x), the mean of earlier rewards, and the value of the
reply before the word do not.
  * # Paper: b(x, Y_t) in equation 3, where Y_t holds the word that is judged. Ours: the value of Y_{t-1}, because the paper's
    biases the gradient: a critic that learns it well takes the whole reward away. `literal` is the paper's.

Monte Carlo search values every beginning of a reply by the mean over its continuations (section 3.2, strategy 1). All
beginnings of all replies of a batch are continued at once, word by word. After d words stand side by side: the replies
themselves, the continuations that began earlier, and those that begin here. Whatever has the same words in the same context
is one node: its state in the generator and in the discriminator exists once, one product with the output layer serves all of
them, and nothing is ever read again. Continuations that end leave.

Every drawn word is decided by a number that belongs to (example, beginning, continuation, place), so that no reward depends on
the rest of the batch, nor on the process that computes it.

Shapes: B replies, T words of the longest (`</s>` counted), N continuations of a beginning, P beginnings, n nodes, L lanes:
continuations under way, c children.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from parley.engine.generation.settings import Baseline, RewardSettings
from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, PAD_ID
from parley.policies.core.decoding import Decoder, drawn
from parley.policies.core.fitting.batches import real_positions
from parley.policies.generation.discriminator.batches import ContextMemory, Discriminator, Ids, WordState
from parley.policies.seq2seq.model import Exchanges, Sentences, Seq2Seq, framed_source


class ReplyActions(NamedTuple):
    """A batch of B replies of at most T words, as `reply_actions` makes it."""

    words_BT: Tensor
    """int64, `</s>` behind each reply and padding behind that."""
    lengths_B: Tensor
    """Words of each, `</s>` counted, int64."""
    is_cut_B: Tensor
    """Whether the limit ended the reply."""

    @property
    def num_actions_B(self) -> Tensor:
        """Return the number of words that the generator chose, at least 1 (B,)."""
        return self.lengths_B - self.is_cut_B.long()

    @property
    def real_BT(self) -> Tensor:
        """True at words that the generator chose."""
        return real_positions(self.num_actions_B, self.words_BT.shape[1])

    def at_end(self, values_BT: Tensor) -> Tensor:
        """Return the values at each reply's last action (B,)."""
        return values_BT.gather(1, (self.num_actions_B - 1).unsqueeze(1)).squeeze(1)

    def to(self, device: torch.device) -> ReplyActions:
        """Move the actions to a device."""
        return ReplyActions(*(part.to(device) for part in self))


def reply_actions(replies: Sequence[Ids], max_words: int) -> ReplyActions:
    """Batch the replies of a generator.

    Args:
        replies: words of each, without `</s>`.
        max_words: the limit, at least 1; a reply of so many words is one that it ended, a longer one is cut.
    """
    rows = [torch.tensor([*map(int, reply[:max_words]), EOS_ID]) for reply in replies]
    is_cut_B = torch.tensor([len(reply) >= max_words for reply in replies])
    words_BT = pad_sequence(rows, batch_first=True, padding_value=PAD_ID)
    return ReplyActions(words_BT, torch.tensor([len(row) for row in rows]), is_cut_B)


def action_batch(generator: Seq2Seq, sources: Sequence[Ids], replies: ReplyActions) -> Exchanges:
    """Return the batch from which the generator computes the log probabilities of replies.

    Args:
        generator: for its device and lengths.
        sources: words of each context, without marks around them.
        replies: to them.
    """
    device = generator.output.weight.device
    rows = [torch.tensor(framed_source(source, generator.sizes)) for source in sources]
    words_BT = replies.words_BT.masked_fill(~replies.real_BT, PAD_ID).to(device)
    return Exchanges(
        source_BN=pad_sequence(rows, batch_first=True, padding_value=PAD_ID).to(device),
        lengths_B=torch.tensor([len(row) for row in rows], device=device),
        reply=Sentences(torch.cat([torch.full_like(words_BT[:, :1], BOS_ID), words_BT], dim=1)),
    )


def action_nll(generator: Seq2Seq, batch: Exchanges) -> Tensor:
    """Return the negative log-likelihoods of the words in nats (B, T), 0 where there is none; gradients flow back."""
    nll_M, real_BT = generator.nll(batch), batch.real_BT
    return nll_M.new_zeros(real_BT.shape).masked_scatter(real_BT, nll_M)


def policy_loss(settings: RewardSettings, nll_BT: Tensor, advantages_BT: Tensor, weights_B: Tensor, num_words: float) -> Tensor:
    """Return the loss of a policy-gradient step.

    Args:
        settings: how often rewards are divided by the size of the batch.
        nll_BT: of the words that the generator chose.
        advantages_BT: rewards less baselines; no gradient flows through them.
        weights_B: of the replies, 1 on average.
        num_words: words of a batch on average.
    """
    loss = (nll_BT * advantages_BT.detach() * weights_B.unsqueeze(1)).sum() / num_words
    return loss / len(nll_BT) if settings.divide == "twice" else loss


def forcing_loss(nll_BT: Tensor, weights_B: Tensor, num_words: float) -> Tensor:
    """Return the loss of a teacher-forcing step; the arguments are those of `policy_loss`, for human replies."""
    return (nll_BT * weights_B.unsqueeze(1)).sum() / num_words


def forcing_rewards(settings: RewardSettings, scores_B: Tensor, baselines_B: Tensor) -> Tensor:
    """Return the rewards of human replies in teacher forcing (B,).

    Args:
        settings: "mle": all weigh 1; "rewarded": by the probability that a person wrote them, where it exceeds the baseline.
        scores_B: these probabilities.
        baselines_B: what the generator's replies earn in the same contexts.
    """
    assert settings.teacher_forcing != "none", "teacher forcing is off"
    if settings.teacher_forcing == "mle":
        return torch.ones_like(scores_B)
    return torch.where(scores_B > baselines_B, scores_B, 0.0)


_KEPT = 0.99
"""Share of the running mean that stays with each batch."""


@dataclass(frozen=True)
class RunningMean:
    """The mean reward of earlier batches, the latest of which weigh most.

    Args:
        total: sum of their means, weighted.
        weight: sum of the weights.
    """

    total: float = 0.0
    weight: float = 0.0

    @property
    def value(self) -> float:
        """Return the mean; 0 before the first batch."""
        return self.total / self.weight if self.weight else 0.0

    def after(self, rewards_BT: Tensor, replies: ReplyActions) -> RunningMean:
        """Return the mean with a further batch, whose own gradient must not use it."""
        mean = float(rewards_BT[replies.real_BT].double().mean())
        return RunningMean(_KEPT * self.total + (1 - _KEPT) * mean, _KEPT * self.weight + (1 - _KEPT))


def baseline_values(baseline: Baseline, replies: ReplyActions, mean: RunningMean, values_BT1: Tensor | None) -> Tensor:
    """Return the baseline that is subtracted from each word's reward.

    Args:
        baseline: which one.
        replies: whose rewards they are.
        mean: of earlier batches.
        values_BT1: what a critic expects after no word of each reply, after one, and so on; a critic of contexts alone gives
            one column. None where there is no critic.

    Returns:
        (B, T), through which gradients of a critic flow.
    """
    shape = replies.words_BT.shape
    if baseline in ("none", "mean"):
        return torch.full(shape, mean.value if baseline == "mean" else 0.0, device=replies.words_BT.device)
    assert values_BT1 is not None, "this baseline needs a critic"
    if baseline == "critic":
        return values_BT1[:, :1].expand(shape)
    return values_BT1[:, :-1] if baseline == "prefix" else values_BT1[:, 1:]


def critic_loss(settings: RewardSettings, values_BT: Tensor, rewards_BT: Tensor, replies: ReplyActions) -> Tensor:
    """Return the mean squared error between the values of a critic and the rewards of words.

    Args:
        settings: whether the critic learns rewards of words, or the reply's own.
        values_BT: as `baseline_values` gives them.
        rewards_BT: of the same words.
        replies: whose words they are.
    """
    if settings.critic_target == "final":
        rewards_BT = replies.at_end(rewards_BT).unsqueeze(1).expand_as(rewards_BT)
    return (values_BT - rewards_BT)[replies.real_BT].square().mean()


_ROWS = 256
"""Nodes that the generator reads at once; bounds the memory for logits."""
PartsT = TypeVar("PartsT", bound=tuple[Any, ...])


class _RolloutNodes(NamedTuple):
    """Different beginnings after equally many words."""

    rows_n: Tensor
    """The example of each."""
    words_n: Tensor
    """Its last word, which the generator has not read yet."""
    decoder_state: Any
    """The generator before that word."""
    reader_state: WordState
    """The discriminator after it."""


class _RolloutLanes(NamedTuple):
    """Continuations under way."""

    nodes_L: Tensor
    rows_L: Tensor
    begins_L: Tensor
    """Words of the beginning that each continues."""
    numbers_L: Tensor
    """Which of its continuations."""


def rollout_draws(seed: int, num_rollouts: int, max_words: int) -> np.ndarray:
    """Draw the numbers that decide the words of an example's continuations.

    Args:
        seed: of the example.
        num_rollouts: N.
        max_words: words of a reply at most.

    Returns:
        (N, P, P) float64 in [0, 1): of a continuation, of so many words, the word at a place; P is `max_words`.
    """
    return np.stack([stream(seed, "rollout", number).random((max_words, max_words)) for number in range(num_rollouts)])


@torch.no_grad()
def rollout_rewards(
    generator: Decoder[Any, Any],
    memory: tuple[Any, ...],
    discriminator: Discriminator,
    contexts: ContextMemory,
    replies: ReplyActions,
    seeds: Sequence[int],
    num_rollouts: int,
    max_words: int,
) -> Tensor:
    """Return the reward of each word of the replies.

    Args:
        generator: in evaluation mode, of the discriminator's vocabulary.
        memory: its contexts, a row for each reply.
        discriminator: in evaluation mode.
        contexts: the same contexts as it reads them.
        replies: what the generator said.
        seeds: one for each example.
        num_rollouts: continuations of each beginning, N.
        max_words: words of a reply at most, `</s>` not counted.

    Returns:
        (B, T) float32 in [0, 1]: the mean probability that a person wrote a continuation of the reply up to the word; at its
        last word that of the reply itself; 0 where there is no action.
    """
    words_BT, lengths_B, ends_B = replies.words_BT, replies.lengths_B, replies.num_actions_B
    device, last = words_BT.device, words_BT.shape[1] - 1
    rows_B = torch.arange(len(words_BT), device=device)
    draws = torch.from_numpy(np.stack([rollout_draws(seed, num_rollouts, max_words) for seed in seeds])).to(device)
    scores_BTN = contexts.vector_BC.new_zeros(*words_BT.shape, num_rollouts)
    own_B = rows_B
    nodes = _RolloutNodes(rows_B, torch.full_like(rows_B, BOS_ID), generator.begin(memory), discriminator.begin(contexts))
    lanes = _RolloutLanes(*[rows_B[:0]] * 4)
    for position in range(max_words + 1):
        begun_b = rows_B[(ends_B > position) & (position > 0)].repeat_interleave(num_rollouts)
        numbers_b = torch.arange(len(begun_b), device=device) % num_rollouts
        begun = _RolloutLanes(own_B[begun_b], begun_b, torch.full_like(begun_b, position), numbers_b)
        lanes = _RolloutLanes(*(torch.cat(parts) for parts in zip(lanes, begun, strict=True)))
        if position < max_words:
            draws_L = draws[lanes.rows_L, lanes.numbers_L, lanes.begins_L, position]
            words_L, decoder_state = _say(generator, memory, nodes, lanes.nodes_L, draws_L)
        else:
            words_L, decoder_state = torch.full_like(lanes.rows_L, EOS_ID), nodes.decoder_state
        alive_b = rows_B[lengths_B > position]
        all_nodes = torch.cat([own_B[alive_b], lanes.nodes_L])
        all_words = torch.cat([words_BT[alive_b, min(position, last)], words_L])
        nodes, which, is_over_c, scores_c = _grown(discriminator, contexts, nodes, decoder_state, all_nodes, all_words)
        own_b, of_lanes = which[: len(alive_b)], which[len(alive_b) :]
        done, ended_rows = is_over_c[own_b], alive_b[is_over_c[own_b]]
        scores_BTN[ended_rows, ends_B[ended_rows] - 1] = scores_c[own_b[done]].unsqueeze(1)
        done = is_over_c[of_lanes]
        scores_BTN[lanes.rows_L[done], lanes.begins_L[done] - 1, lanes.numbers_L[done]] = scores_c[of_lanes[done]]
        if bool(is_over_c.all()):
            break
        numbers_c = (~is_over_c).cumsum(0) - 1
        own_B = torch.zeros_like(rows_B).index_put((alive_b,), numbers_c[own_b])
        lanes = _take(lanes, ~done)._replace(nodes_L=numbers_c[of_lanes[~done]])
    return scores_BTN.mean(2)


def _say(
    generator: Decoder[Any, Any], memory: tuple[Any, ...], nodes: _RolloutNodes, nodes_L: Tensor, draws_L: Tensor
) -> tuple[Tensor, Any]:
    """Draw the next words of lanes (L,), and return the generator's states after the nodes' words."""
    words_L, states = torch.empty_like(nodes_L), []
    for start in range(0, len(nodes.rows_n), _ROWS):
        some = slice(start, start + _ROWS)
        logits_nV, after = generator.step(
            _take(memory, nodes.rows_n[some]), nodes.words_n[some], _take(nodes.decoder_state, some)
        )
        logits_nV[:, PAD_ID] = -torch.inf
        states.append(after)
        here_L = (nodes_L >= start) & (nodes_L < start + _ROWS)
        words_L[here_L] = drawn(logits_nV, draws_L[here_L], nodes_L[here_L] - start)
    return words_L, type(states[0])(*(torch.cat(parts) for parts in zip(*states, strict=True)))


def _grown(
    discriminator: Discriminator,
    contexts: ContextMemory,
    nodes: _RolloutNodes,
    decoder_state: Any,
    parents: Tensor,
    words: Tensor,
) -> tuple[_RolloutNodes, Tensor, Tensor, Tensor]:
    """Return the nodes that follow from nodes and their next words, each different pair once.

    Returns:
        The nodes of the next place, which are the pairs that are not over; the pair of each given one; of the pairs (c,)
        whether they are over, and if so the probability that a person wrote them.
    """
    most = int(words.max()) + 1
    codes_c, which = torch.unique(parents * most + words, return_inverse=True)
    parents_c, words_c = codes_c // most, codes_c % most
    rows_c, reader_state = (nodes.rows_n[parents_c], discriminator.advance(words_c, _take(nodes.reader_state, parents_c)))
    is_over_c = words_c == EOS_ID
    odds = discriminator.human(_take(contexts, rows_c[is_over_c]), _take(reader_state, is_over_c))
    scores_c = odds.new_zeros(len(words_c)).masked_scatter(is_over_c, odds.sigmoid())
    on_c = ~is_over_c
    grown = _RolloutNodes(rows_c[on_c], words_c[on_c], _take(decoder_state, parents_c[on_c]), _take(reader_state, on_c))
    return grown, which, is_over_c, scores_c


def _take(parts: PartsT, rows: Tensor | slice) -> PartsT:
    kind: Any = type(parts)
    rows_taken: PartsT = kind(*(None if part is None else part[rows] for part in parts))
    return rows_taken


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
    """Return rewards by the method of the settings.

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
    """Reward each word by the discriminator's score of the reply up to it, in one pass; (B, T) as `rollout_rewards`."""
    scores_BT = discriminator.prefixes(contexts, replies.words_BT, replies.lengths_B).sigmoid()
    whole_B1 = scores_BT.gather(1, (replies.lengths_B - 1).unsqueeze(1))
    scores_BT.scatter_(1, (replies.num_actions_B - 1).unsqueeze(1), whole_B1)
    return scores_BT * replies.real_BT


def reply_rewards(discriminator: Discriminator, contexts: ContextMemory, replies: ReplyActions) -> Tensor:
    """Reward every word by the discriminator's score of its whole reply; (B, T) as `rollout_rewards`."""
    whole_B = replies.at_end(prefix_rewards(discriminator, contexts, replies))
    return whole_B.unsqueeze(1) * replies.real_BT


def limit(settings: RewardSettings, generator: Seq2Seq, discriminator: Discriminator) -> int:
    """Return the most words of a reply, `</s>` not counted, for two models that fit together.

    Raises:
        ConfigError: their vocabularies differ, or one of them reads or says fewer words than a reply may have.
    """
    if generator.vocabulary.words != discriminator.vocabulary.words:
        got = f"{len(generator.vocabulary)} and {len(discriminator.vocabulary)} words"
        fix = "train the discriminator on replies of this generator"
        raise ConfigError("generator and discriminator have different vocabularies", where="vocabulary", got=got, fix=fix)
    longest_reply, longest_read = generator.sizes.max_reply - 1, discriminator.sizes.words - 1
    most = settings.max_words or longest_reply
    # Were recorded replies longer than any that is said, their length would tell them.
    ends = (
        (longest_reply, "generator says", "a generator with sizes.max_reply"),
        (longest_read, "discriminator reads", "a discriminator with words"),
    )
    for end, who, other in ends:
        if most > end:
            fix = f"set max_words to {end} or less, or train {other}={most + 1}"
            raise ConfigError(f"replies may be longer than what the {who}", where="max_words", got=f"{most} words", fix=fix)
    return most
