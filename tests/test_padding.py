"""One contract for all losses and metrics over sequences: padding is in none of them.

A case gives a sum and the number of values that it is the mean of, for some examples side by side. Beside a longer example
the sum is that of both alone, and nothing behind the end of an example changes it. `Sentences` mark their end by padding
itself, so nothing can stand behind it there.

Not of this kind, by what they are: `perplexity_reference` of negotiators, which is the released code's formula and counts its
padding; the loss of a bi-encoder, in which examples of a batch are each other's wrong replies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from parley.engine.generation.rewards.rewards import (
    RunningMean,
    action_batch,
    action_nll,
    critic_loss,
    forcing_loss,
    policy_loss,
    reply_actions,
)
from parley.engine.generation.settings import RewardSettings
from parley.engine.negotiation.attacks.reinforce import (
    discounted_returns,
    entropy,
    kl_to_reference,
    policy_gradient_loss,
)
from parley.engine.negotiation.rl.learner import NegotiatorModule
from parley.envs.corpora.pairs.vocabulary import PAD_ID, UNK_ID
from parley.policies.core.fitting.batches import OutputLoss, evaluate
from parley.policies.core.margin import RerankingObjective, Spoken
from parley.policies.core.settings import RerankingSettings
from parley.policies.dynonet.batches import SideExamples
from parley.policies.dynonet.model import by_kind
from parley.policies.generation.discriminator.batches import ReplyExamples
from parley.policies.negotiator import model as negotiators
from parley.policies.paraphraser.model import RewriteExamples
from parley.policies.seq2seq.model import PairExamples, SentenceExamples
from parley.policies.vhred.model import DialogueExamples
from tests.envs.negotiation.agents import VOCABULARY as NEGOTIATED
from tests.policies.dynonet import chats
from tests.policies.generation.discriminator import made_up as discriminators
from tests.policies.negotiator import made_up as talks
from tests.policies.paraphraser import made_up as paraphrasers
from tests.policies.ranking.matching import made_up as matchers
from tests.policies.seq2seq import made_up as pairs
from tests.policies.vhred import made_up as vhreds

SHORT, LONG = 0, 1
Sums = tuple[float, float]
Case = Callable[[Sequence[int], bool], Sums]
"""Sum and number of values of some of two examples, with garbage behind their ends or not."""
GARBLED: dict[str, Case] = {}
"""Cases whose batches hold lengths beside words."""
UNGARBLED: dict[str, Case] = {}


def _garbage(tokens_BT: Tensor, lengths_B: Tensor, size: int) -> Tensor:
    behind = torch.arange(tokens_BT.shape[1]) >= lengths_B.unsqueeze(1)
    drawn = torch.randint(size, tokens_BT.shape, generator=torch.Generator().manual_seed(1))
    return torch.where(behind, drawn, tokens_BT)


def _talks(rows: Sequence[int], garbage: bool) -> negotiators.NegotiationBatch:
    made = talks.dialogues(40)
    ends = np.argsort(made.lengths, kind="stable")[[3, -1]]
    batch = negotiators.make_batch(made, ends[list(rows)])
    return replace(batch, tokens_BT=_garbage(batch.tokens_BT, batch.lengths_B, len(NEGOTIATED))) if garbage else batch


@torch.no_grad()
def _supervised(rows: Sequence[int], garbage: bool, part: int) -> Sums:
    batch = _talks(rows, garbage)
    logits, choice = talks.negotiator()(batch.contexts_B6, batch.tokens_BT, batch.lengths_B)
    nll = negotiators.word_nll(logits, batch.tokens_BT)
    losses = negotiators.supervised_loss(choice, nll, batch.lengths_B, batch.outputs_B6, 0.5)
    weighing = negotiators.num_weighing(batch.outputs_B6, choice.shape[-1])
    count = (float(negotiators.num_words(batch.lengths_B)), float(weighing))[part]
    return float(losses[1 + part]) * count, count


GARBLED["words of negotiators"] = lambda rows, garbage: _supervised(rows, garbage, 0)
GARBLED["choices of negotiators"] = lambda rows, garbage: _supervised(rows, garbage, 1)


def _perplexity(rows: Sequence[int], garbage: bool) -> Sums:
    made = talks.dialogues(40)
    ends = np.argsort(made.lengths, kind="stable")[[3, -1]][list(rows)]
    part = talks.MadeUp(made.contexts[ends], made.outputs[ends], [made.words[end] for end in ends])
    count = float((part.lengths - 1).sum())
    return float(np.log(negotiators.evaluate(talks.negotiator(), part).perplexity)) * count, count


UNGARBLED["perplexity of negotiators"] = _perplexity


@torch.no_grad()
def _played(rows: Sequence[int], garbage: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities and those of another network (M, V), and words (M,) with their returns, of dialogues just played."""
    batch = _talks(rows, garbage)
    real_BT = torch.arange(batch.tokens_BT.shape[1]) < batch.lengths_B.unsqueeze(1)
    own_BT = real_BT & (torch.arange(batch.tokens_BT.shape[1]) % 3 > 0)
    columns = {"tokens": batch.tokens_BT, "own": own_BT, "contexts": batch.contexts_B6}
    columns["supervised"] = torch.zeros(len(rows), dtype=torch.bool)
    module = SimpleNamespace(forbidden=[PAD_ID], temperature=0.5)
    both = [NegotiatorModule.word_log_probs(module, talks.negotiator(seed), columns) for seed in (0, 1)]  # type: ignore[arg-type]
    returns = discounted_returns(own_BT.numpy(), np.array([1.0, -2.0])[list(rows)], 0.9)
    words_M = batch.tokens_BT[own_BT]
    taken_M = both[0].gather(1, words_M.unsqueeze(1)).squeeze(1)
    return torch.stack(both), taken_M, torch.from_numpy(returns)[own_BT]


def _policy_gradient(rows: Sequence[int], garbage: bool) -> Sums:
    _, taken_M, returns_M = _played(rows, garbage)
    return float(policy_gradient_loss(taken_M, returns_M, len(rows))) * len(rows), len(rows)


def _kl(rows: Sequence[int], garbage: bool) -> Sums:
    both, taken_M, _ = _played(rows, garbage)
    return float(kl_to_reference(both[0], both[1])) * len(taken_M), len(taken_M)


def _entropy(rows: Sequence[int], garbage: bool) -> Sums:
    both, taken_M, _ = _played(rows, garbage)
    return float(entropy(both[0])) * len(taken_M), len(taken_M)


GARBLED |= {"policy gradient": _policy_gradient, "KL to the start": _kl, "entropy of words": _entropy}


def _fitted(model: Any, batch: Any) -> Sums:
    with torch.no_grad():
        nll = model.nll(batch)
        assert float(model.loss(batch, OutputLoss(model.output)).nll) == pytest.approx(float(nll.sum()), rel=1e-4)
    return float(nll.sum()), len(nll)


def _exchanges(attention: Any) -> Case:
    split = pairs.split(40)
    ends = np.argsort([len(split.utterances[source]) for source in split.pairs[:, 0]], kind="stable")[[2, -1]]
    examples = PairExamples(split, pairs.sizes())

    def sums(rows: Sequence[int], garbage: bool) -> Sums:
        batch = examples.batch(ends[list(rows)])
        if garbage:
            batch = replace(batch, source_BN=_garbage(batch.source_BN, batch.lengths_B, len(pairs.VOCABULARY)))
        return _fitted(pairs.seq2seq(attention), batch)

    return sums


GARBLED |= {f"replies of seq2seq, attention {attention}": _exchanges(attention) for attention in pairs.ATTENTIONS}


def _of_examples(model: Any, examples: Any, lengths: Any) -> Case:
    ends = np.argsort(lengths, kind="stable")[[0, -1]]
    return lambda rows, _: _fitted(model, examples.batch(ends[list(rows)]))


def _sentences() -> Case:
    split = pairs.split(20)
    examples = SentenceExamples(split.utterances, pairs.LM_SIZES)
    return _of_examples(pairs.language_model(), examples, examples.num_targets)


def _rewrites(covers: bool) -> Case:
    examples = RewriteExamples(paraphrasers.copies(20), paraphrasers.SIZES)
    model = paraphrasers.network(covers=covers)
    ends = np.argsort(examples.num_targets, kind="stable")[[0, -1]]

    def sums(rows: Sequence[int], _: bool) -> Sums:
        batch = examples.batch(ends[list(rows)])
        with torch.no_grad():
            return float(model.loss(batch, OutputLoss(model.output)).total), float(batch.real_BT.sum())

    return sums


def _dialogues(divergences: bool) -> Case:
    examples: DialogueExamples = vhreds.examples(20)
    model, ends = vhreds.vhred(), np.argsort(examples.num_targets, kind="stable")[[0, -1]]

    def sums(rows: Sequence[int], _: bool) -> Sums:
        batch = examples.batch(ends[list(rows)])
        with torch.no_grad():
            values = model.divergences(batch) if divergences else model.nll(batch)
        return float(values.sum()), len(values)

    return sums


def _sides(rows: Sequence[int], _: bool) -> Sums:
    made = sorted(chats.chats(12), key=lambda chat: len(chat.events))
    examples = SideExamples([made[0 if row == SHORT else -1] for row in rows], chats.VOCABULARY, chats.SIZES, chats.LINKER)
    whole = by_kind(chats.tiny(), examples).tokens
    return float(whole.nll_sums.sum()), float(whole.num_targets.sum())


UNGARBLED |= {
    "sentences of language models": _sentences(),
    "rewrites of paraphrasers": _rewrites(covers=False),
    "coverage of paraphrasers": _rewrites(covers=True),
    "replies of VHRED": _dialogues(divergences=False),
    "divergences of VHRED": _dialogues(divergences=True),
    "chats of DynoNet": _sides,
}


def _judged(kind: str, prefixes: bool) -> Case:
    items = sorted(discriminators.judged(20), key=lambda item: sum(map(len, item.replies)))
    model = discriminators.network(kind)

    def sums(rows: Sequence[int], _: bool) -> Sums:
        chosen = [items[0 if row == SHORT else -1] for row in rows]
        examples = ReplyExamples(chosen, discriminators.VOCABULARY, model.sizes, prefixes=prefixes)
        figures = evaluate(model, examples)
        return float(figures.nll_sums.sum()), float(figures.num_targets.sum())

    return sums


UNGARBLED |= {
    f"{kind} discriminators, {'beginnings' if prefixes else 'whole replies'}": _judged(kind, prefixes)
    for kind in discriminators.KINDS
    for prefixes in (False, True)
}


def _matched(kind: str) -> Case:
    short, long = ((("w1",),), [("w2",)]), ((("w3", "w4", "w5") * 3, ("w6",), ("w7", "w8")), [("w9", "w10", "w11") * 3])
    model = matchers.matcher(kind)

    def sums(rows: Sequence[int], _: bool) -> Sums:
        block = model.reader.read([(short, long)[row] for row in rows], torch.device("cpu"))
        with torch.no_grad():
            loss = model.loss(model(block), torch.ones(len(rows)))
        return float(loss.sum()), len(rows)

    return sums


UNGARBLED |= {f"pairs of {kind}": _matched(kind) for kind in matchers.KINDS}

SOURCES, REPLIES = ([5, 6], [20, 21, 22]), ([7, 9], [12, 8, 9, 10, 11])


def _rewarded(rows: Sequence[int], garbage: bool, value: Callable[..., Sums]) -> Sums:
    replies = reply_actions([REPLIES[row] for row in rows], 6)
    if garbage:
        replies = replies._replace(words_BT=_garbage(replies.words_BT, replies.lengths_B, len(pairs.VOCABULARY)))
    with torch.no_grad():
        nll_BT = action_nll(pairs.seq2seq(), action_batch(pairs.seq2seq(), [SOURCES[row] for row in rows], replies))
    # Rewards behind the end are garbage, too.
    rewards_BT = torch.where(replies.real_BT, replies.words_BT / 10, 99.0 if garbage else 0.0)
    return value(replies, nll_BT, rewards_BT)


def _policy(replies: Any, nll_BT: Tensor, rewards_BT: Tensor) -> Sums:
    return float(policy_loss(RewardSettings(), nll_BT, rewards_BT, torch.ones(len(nll_BT)), 1.0)), float(replies.real_BT.sum())


def _forcing(replies: Any, nll_BT: Tensor, rewards_BT: Tensor) -> Sums:
    return float(forcing_loss(nll_BT, torch.ones(len(nll_BT)), 1.0)), float(replies.real_BT.sum())


def _critic(replies: Any, nll_BT: Tensor, rewards_BT: Tensor) -> Sums:
    count = float(replies.real_BT.sum())
    return float(critic_loss(RewardSettings(), torch.zeros_like(rewards_BT), rewards_BT, replies)) * count, count


def _running(replies: Any, nll_BT: Tensor, rewards_BT: Tensor) -> Sums:
    count = float(replies.real_BT.sum())
    return RunningMean().after(rewards_BT, replies).value * count, count


def _of_rewards(value: Callable[..., Sums]) -> Case:
    return lambda rows, garbage: _rewarded(rows, garbage, value)


GARBLED |= {
    "rewarded words of generators": _of_rewards(_policy),
    "forced words of generators": _of_rewards(_forcing),
    "errors of critics": _of_rewards(_critic),
    "running mean of rewards": _of_rewards(_running),
}


def _reranked(rows: Sequence[int], garbage: bool) -> Sums:
    lengths_C = torch.tensor([2, 4])[list(rows)]
    words_CT = torch.tensor([[7, 8, PAD_ID, PAD_ID], [9, 10, 11, 12]])[list(rows)]
    if garbage:
        words_CT = torch.where(words_CT == PAD_ID, UNK_ID, words_CT)
    objective = SimpleNamespace(settings=RerankingSettings(unknown=False, per="word"))
    spoken = Spoken(words_CT, lengths_C, torch.tensor([[1.0, 2.0], [3.0, 5.0]], dtype=torch.float64)[:, list(rows)])
    return float(RerankingObjective.rewards(objective, spoken).sum()), len(rows)  # type: ignore[arg-type]


GARBLED["rewards of reranking"] = _reranked


@pytest.mark.parametrize("name", [*GARBLED, *UNGARBLED])
def test_a_longer_neighbour_changes_no_value(name: str) -> None:
    case = (GARBLED | UNGARBLED)[name]
    alone = np.array([case([row], False) for row in (SHORT, LONG)])
    assert alone[SHORT].tolist() != alone[LONG].tolist(), "the examples differ"
    together = np.array(case([SHORT, LONG], False))
    np.testing.assert_allclose(together, alone.sum(0), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", list(GARBLED))
def test_nothing_behind_the_end_changes_a_value(name: str) -> None:
    plain, garbled = (GARBLED[name]([SHORT, LONG], garbage) for garbage in (False, True))
    np.testing.assert_allclose(garbled, plain, rtol=1e-6)
