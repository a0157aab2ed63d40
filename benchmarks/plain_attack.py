"""The reactive search as a researcher writes it: torch's own layers, one dialogue at a time, one candidate at a time.

Every candidate costs one full pass of the target. The state before the sentence is kept, as in the published code; the
reader goes over the new sentence, the selection network over the whole dialogue, and the legal selections are scored in a
loop. A candidate that breaks the hard constraint is decided too, because one function returns both figures; what a search
would cost that leaves such a decision out follows from the seconds of `Target.read` and `Target.decide`.

Rules, keys and the order of candidates are those of `engine/negotiation/attacks/replacement.py`, written out again; of its
options, those that the benchmark compares: pad-scan and exhaustive proposals, hinge and released loss, hard and soft
constraint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from benchmarks.plain_negotiator import PlainNegotiator
from parley.engine.negotiation.attacks.settings import SearchConfig
from parley.envs.negotiation.dealornodeal_rules import picks_table
from parley.envs.negotiation.domain import EOS_ID, PAD_ID, SELECTION_ID, UNK_ID

RESOLUTION = 1e-4
"""Losses closer than this count as equal."""


class Target(PlainNegotiator):
    """The target as the search sees it: what it would answer and choose after a sentence, its own state untouched."""

    def read(self, words: list[int]) -> None:
        """Read the sentence, then the marker of its own turn."""
        super().read(words)
        self._advance([self.model.vocabulary.you_id])

    def gap(self) -> float:
        """Return the largest logit of another allowed word, less that of `<selection>`."""
        hidden = self.model.decoder(self.state[0, 0])
        logits = torch.mv(self.model.word_embedding.weight, hidden) + self.mask
        ending = float(logits[SELECTION_ID])
        logits[SELECTION_ID] = -torch.inf
        return float(logits.max()) - ending

    def decide(self) -> list[float]:
        """Return the sum of head logits of every legal selection after `<selection>`."""
        self._advance([SELECTION_ID])
        return self.sums()

    def restore(self, num_tokens: int, num_parts: int, state: torch.Tensor) -> None:
        """Restore an earlier state."""
        del self.tokens[num_tokens:], self.states[num_parts:]
        self.state = state


@dataclass(frozen=True)
class Verdict:
    """The target's judgement of a sentence."""

    broken: bool
    """The hard constraint is."""
    loss: float
    """Of the objective; the gap where the constraint is broken."""
    advantage: int
    """Points of the adversary less the target's by the target's choice; 0 where the constraint is broken."""

    @property
    def key(self) -> tuple[bool, int, int]:
        """Return the sort key; lower is better."""
        return self.broken, round(self.loss / RESOLUTION), -self.advantage


@dataclass(frozen=True)
class Replacement:
    """A word that a search replaced for good."""

    position: int
    word: int
    verdict: Verdict


class PlainAttack:
    """Searches one sentence after another.

    Args:
        target: read and asked.
        config: the rules.
    """

    def __init__(self, target: Target, config: SearchConfig) -> None:
        self.target, self.config = target, config
        vocabulary = target.model.vocabulary
        self.num_candidates = 0
        kept_out = {EOS_ID, UNK_ID, SELECTION_ID, PAD_ID, vocabulary.you_id, vocabulary.them_id}
        self.words = [word for word in range(len(vocabulary)) if word not in kept_out]

    def begin(self, contexts: tuple[Sequence[int], Sequence[int]], tokens: list[int]) -> None:
        """Begin a dialogue from the contexts of adversary and target, and the words so far in the target's view."""
        self.target.begin(contexts[1])
        self.target._advance(tokens)
        counts = self.target.counts
        self.advantages = []
        for picks in picks_table(counts).tolist():
            deal = picks[0] >= 0
            target = sum(n * value for n, value in zip(picks, contexts[1][1::2], strict=True)) if deal else 0
            left = [count - n for count, n in zip(counts, picks, strict=True)]
            adversary = sum(n * value for n, value in zip(left, contexts[0][1::2], strict=True)) if deal else 0
            self.advantages.append(adversary - target)

    @torch.no_grad()
    def judge(self, sentence: list[int]) -> Verdict:
        """Judge a sentence by one full pass of the target."""
        self.num_candidates += 1
        target, config = self.target, self.config
        before = (len(target.tokens), len(target.states), target.state)
        target.read(sentence)
        gap = target.gap()
        scores = target.decide()
        target.restore(*before)
        if config.constraint == "hard" and gap > -config.end_margin:
            return Verdict(True, gap, 0)
        favourable = [i for i, advantage in enumerate(self.advantages) if advantage > 0]
        best = max(favourable, key=lambda i: scores[i])
        if config.loss == "released":
            loss = 5 * (max(scores) - scores[best]) - self.advantages[best]
        else:
            loss = max(max(score for i, score in enumerate(scores) if i not in favourable) - scores[best], -config.kappa)
        if config.constraint == "soft":
            loss += config.penalty * max(0.0, gap / target.temperature)
        return Verdict(False, loss, self.advantages[scores.index(max(scores))])

    def content(self, verdict: Verdict) -> bool:
        """Return True if a search replaces no further word."""
        return self.config.stop_at_goal and not verdict.broken and verdict.advantage >= self.config.goal

    def search(self, sentence: list[int], most: int) -> list[Replacement]:
        """Replace at most `most` words, one after another, while the key falls and the attack is not content."""
        sentence, verdict = list(sentence), self.judge(sentence)
        replaced: list[Replacement] = []
        while len(replaced) < most and len(sentence) > 1 and not self.content(verdict):
            positions: Iterable[int] = range(len(sentence) - 1)
            if self.config.proposals == "pad-scan":
                positions = [min(positions, key=lambda position: self._with(sentence, position, PAD_ID).key)]
            tried = [
                Replacement(position, word, self._with(sentence, position, word))
                for position in positions
                for word in self.words
            ]
            best = min(tried, key=lambda replacement: replacement.verdict.key)
            if best.verdict.key >= verdict.key:
                break
            sentence[best.position], verdict = best.word, best.verdict
            replaced.append(best)
        return replaced

    def _with(self, sentence: list[int], position: int, word: int) -> Verdict:
        return self.judge([*sentence[:position], word, *sentence[position + 1 :]])
