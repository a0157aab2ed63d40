"""REINFORCE over whole dialogues: goal-based agents (Lewis et al. 2017, eq. 4) and the RL attack (Cheng et al. 2019).

One dialogue, seen from the learner's side, is one example. Its reward is the learner's points, or its points minus the
target's; its return at the learner's k-th last word is gamma^k times the reward less a running baseline; the loss is
minus the sum over its own words of return times log-probability, averaged over dialogues.

Departures:
  * # Released: one dialogue an update; the centered reward is divided by its running deviation, and each update is clipped
    to norm 1, which leaves little but its sign. Ours: many dialogues an update, and `scaling` chooses; the papers only
    subtract the mean.
  * # Released attack: reward 5 - loss of the target's choice, which pays for a win and not for its margin.
    Ours: S_adv - S_ori, as the paper states.
  * # Papers and released code: every own word earns the return, counted back from the last one. So the end of a long run of
    one word earns what all words of a plain offer earn together. Ours: words that end the same 4-gram of an utterance share one
    return, and count as one word of the discount. Without repetition both are equal.

Shapes: N dialogues, T tokens, V words, M words that the learner wrote in all of them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

REPEATED = 4
"""Length of the n-grams that count as repetition, as in the metric (seq-rep-4)."""


def discounted_returns(shares_NT: np.ndarray, rewards_N: np.ndarray, gamma: float) -> np.ndarray:
    """Return the discounted return of each learner word: gamma^k times its share of the reward, k own words before the last.

    Args:
        shares_NT: of each word in the return, from `word_shares`; 0 for the words of others.
        rewards_N: centered rewards.
        gamma: discount per own word; k is the sum of the shares behind a word.

    Returns:
        (N, T) float32.
    """
    following = shares_NT[:, ::-1].cumsum(1)[:, ::-1] - shares_NT
    return (shares_NT * gamma**following * rewards_N[:, None]).astype(np.float32)


def word_shares(own_NT: np.ndarray, tokens_NT: np.ndarray) -> np.ndarray:
    """Return the shares of words (N, T) float64: 1 by how often the utterance has the `REPEATED`-gram that ends at the word.

    Args:
        own_NT: mask of the tokens that the learner wrote; other tokens stand between two of its utterances.
        tokens_NT: the dialogues.
    """
    shares_NT = np.zeros(own_NT.shape)
    for own_T, tokens_T, shares_T in zip(own_NT.tolist(), tokens_NT.tolist(), shares_NT, strict=True):
        steps: dict[tuple[int, ...], list[int]] = {}
        gram: tuple[int, ...] = ()
        # A token of another closes the last utterance.
        for step, (is_own, token) in enumerate(zip([*own_T, False], [*tokens_T, 0], strict=True)):
            if is_own:
                gram = (*gram, token)[-REPEATED:]
                # Beginnings are shorter, and none is another's repetition.
                steps.setdefault(gram, []).append(step)
                continue
            for occurrences in steps.values():
                shares_T[occurrences] = 1 / len(occurrences)
            steps, gram = {}, ()
    return shares_NT


def policy_log_probs(logits_MV: Tensor, forbidden: list[int], temperature: float) -> Tensor:
    """Return the log-probabilities (M, V) of the speaking distribution: tempered, without forbidden words."""
    masked = (logits_MV / temperature).index_fill_(-1, torch.tensor(forbidden, device=logits_MV.device), -torch.inf)
    return masked.log_softmax(-1)


def policy_gradient_loss(log_probs_M: Tensor, returns_M: Tensor, num_dialogues: int) -> Tensor:
    """Return minus the sum over words of return times log-probability, per dialogue (Lewis et al. 2017, eq. 4).

    Args:
        log_probs_M: log-probabilities of the learner's words, dialogue after dialogue.
        returns_M: their returns, from `discounted_returns`.
        num_dialogues: number of dialogues of the words.
    """
    return -(log_probs_M * returns_M).sum() / num_dialogues


def kl_to_reference(log_probs_MV: Tensor, reference_MV: Tensor) -> Tensor:
    """Return the exact KL(learner || reference), averaged over words; both forbid the same words."""
    return _expected(log_probs_MV, log_probs_MV - reference_MV)


def entropy(log_probs_MV: Tensor) -> Tensor:
    """Return the entropy of the word distributions in nats, averaged over words."""
    return _expected(log_probs_MV, -log_probs_MV)


def _expected(log_probs_MV: Tensor, values_MV: Tensor) -> Tensor:
    """Return the mean over words of the expected value; 0 if the learner wrote no word."""
    allowed = values_MV.masked_fill(torch.isinf(log_probs_MV), 0.0)
    return (log_probs_MV.exp() * allowed).sum() / max(1, len(log_probs_MV))
