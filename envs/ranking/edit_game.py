"""The rules of `parley/ResponseRanking-v1`: edit a reply, one word per step, until a ranker gives it the wanted rank.

The goal of an attack is a wrong reply among the best, or the right one not among them (`RankGoal`). Many examples run as one
batch, so their drafts share the ranker's batches; an environment is a batch of one. The caller gives the ranker and the
proposer of words. The defaults (`TermOverlap`, `AlikeWords`, `PlainSight`) need no tagger and no model, and serve to try the
environment; `engine/ranking/attacks/editing.py` has those of attacks.

Shapes: P places, W proposals for each, A = P W + 1 actions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar, Literal, Protocol

import numpy as np

from parley.envs.core.config import Configuration, NumItems, PositiveInt
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup, Context

GoalKind = Literal["promote", "demote"]
Target = Literal["best", "random"]
TOLERANCE = 1e-5
"""Scores are equal if they differ by less than this share of a group's largest, the rounding error of batches."""


@dataclass(frozen=True)
class RankGoal(Configuration):
    """The wanted rank of the edited reply.

    Args:
        kind: promote a wrong reply to the top, or demote the right one below it.
        rank: number of ranks that count as the top.
        target: which attackable reply to edit: the one with the best score, or a random one.
    """

    kind: GoalKind = "promote"
    rank: PositiveInt = 1
    target: Target = "best"

    def __str__(self) -> str:
        where = "rank 1" if self.rank == 1 else f"ranks 1 to {self.rank}"
        whose = {"promote": "a wrong reply to", "demote": "the right reply below"}[self.kind]
        return f"{self.kind} {whose} {where}, the {'best-scored' if self.target == 'best' else 'drawn'} one"

    def choose(self, group: CandidateGroup, scores: np.ndarray, rng: np.random.Generator) -> int | None:
        """Return the index of the candidate to edit; None if no attackable one is of the goal's kind.

        Args:
            group: with its labels.
            scores: of the candidates as they are (C,), `comparable` as all below.
            rng: for a random target.
        """
        wanted = self.kind == "demote"
        indices = [i for i, label in enumerate(group.labels) if label is wanted and group.attackable[i]]
        if not indices:
            return None
        return indices[int(rng.integers(len(indices)))] if self.target == "random" else max(indices, key=lambda i: scores[i])

    def bar(self, group: CandidateGroup, scores: np.ndarray, index: int) -> float | None:
        """Return the score that the edited reply has to pass; None if the top has room for all others.

        The others are all candidates for a promoted reply, and the wrong ones for a demoted reply: another right reply in
        first place is no error of the ranker.

        Args:
            group: with its labels.
            scores: of the unedited candidates (C,).
            index: index of the edited candidate.
        """
        counts = np.array([self.kind == "promote" or not label for label in group.labels])
        counts[index] = False
        other_scores = np.sort(scores[counts])[::-1]
        return float(other_scores[self.rank - 1]) if self.rank <= len(other_scores) else None

    def margin(self, score: float, bar: float) -> float:
        """Return the distance of a score beyond the bar; above the tolerance is success, so a tie is none."""
        return score - bar if self.kind == "promote" else bar - score


def tolerance(scores: np.ndarray) -> float:
    """Return the largest difference at which scores of a group are equal."""
    return TOLERANCE * float(np.abs(scores).max())


Scorer = Callable[[Sequence[tuple[Context, Sequence[Utterance]]]], Sequence[np.ndarray]]
"""Scores (C,) of the candidates of each context; of a `policies.ranking.ranker.Ranker` by `partial(scores_of, ranker)`."""


class Proposer(Protocol):
    """Proposes words that may replace those of a reply."""

    def propose(self, group: CandidateGroup, index: int) -> Sequence[Sequence[str]]:
        """Return the possible replacements of each word of a candidate, best first; they depend only on the arguments.

        Args:
            group: context and candidates.
            index: index of the edited candidate.
        """


@dataclass(frozen=True, kw_only=True)
class EditRules(Configuration):
    """Limits of `parley/ResponseRanking-v1`."""

    topic: ClassVar[str] = "train editor"

    edits: NumItems = 3
    """Most words to replace."""
    num_places: NumItems = 16
    """Only so many first words of a reply may be replaced."""
    num_proposals: NumItems = 8
    """Most proposals for each word."""

    def cut(self, proposals: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
        """Return the proposals for a reply within the limits."""
        return [tuple(words[: self.num_proposals]) for words in proposals[: self.num_places]]

    @property
    def stop(self) -> int:
        """The action that stops; action p W + w puts proposal w at place p."""
        return self.num_places * self.num_proposals


@dataclass
class EditedReply:
    """One example under edit.

    Args:
        group: context and candidates.
        index: index of the edited candidate; None if there is none, or the goal is reached or out of reach before any edit.
        words: of the current reply.
        proposals: the possible words of each place.
        distance: distance of the margin from the goal before any edit, above 0; the unit of margins.
        margin: signed distance to the goal; above `tolerance` the goal is reached.
        tolerance: largest difference at which scores are equal.
        is_over: whether it takes no more edits.
        reason: the reason if there was nothing to edit.
        edited: places of the replaced words, in order of the edits.
        num_illegal: number of forbidden actions; each costs an edit and changes nothing.
        scores_by_words: scores of drafts by their words.
    """

    group: CandidateGroup
    index: int | None = None
    words: Utterance = ()
    proposals: Sequence[Sequence[str]] = ()
    distance: float = 1.0
    margin: float = 0.0
    tolerance: float = 0.0
    is_over: bool = True
    reason: str = ""
    edited: list[int] = field(default_factory=list)
    num_illegal: int = 0
    scores_by_words: dict[Utterance, float] = field(default_factory=dict)

    @property
    def succeeded(self) -> bool:
        """True if edits reached the goal."""
        return self.index is not None and self.margin > self.tolerance

    @property
    def progress(self) -> float:
        """Progress to the goal: 0 before any edit, 1 at the goal, negative farther away."""
        return 1.0 if self.succeeded else min(1 + self.margin / self.distance, 1.0)

    @property
    def num_queries(self) -> int:
        """Number of distinct scored drafts, without the unedited reply."""
        return max(len(self.scores_by_words) - 1, 0)

    @property
    def original(self) -> Utterance:
        """The reply before any edit."""
        return () if self.index is None else self.group.candidates[self.index]

    @property
    def num_steps(self) -> int:
        """Number of actions so far, without stopping."""
        return len(self.edited) + self.num_illegal

    def mask(self, rules: EditRules) -> np.ndarray:
        """Return which actions are allowed (A,) int8: unedited places, and words that the reply lacks."""
        allowed = np.zeros(rules.stop + 1, dtype=np.int8)
        allowed[rules.stop] = 1
        for position, words in enumerate(() if self.is_over else self.proposals):
            if position not in self.edited:
                for number, word in enumerate(words):
                    if word not in self.words and replaced(self.words, position, word) not in self.group.candidates:
                        allowed[position * rules.num_proposals + number] = 1
        return allowed

    def replace(self, action: int, rules: EditRules) -> None:
        """Make an allowed edit, without an update of the margin."""
        position, number = divmod(action, rules.num_proposals)
        self.words = replaced(self.words, position, self.proposals[position][number])
        self.edited.append(position)


class EditGame:
    """A batch of examples.

    Args:
        groups: contexts and candidates.
        seeds: one per group, at least 0.
        scorer: calls the ranker.
        proposer: of words.
        rules: limits.
        goal: the wanted rank.
    """

    def __init__(
        self,
        groups: Sequence[CandidateGroup],
        seeds: Sequence[int],
        scorer: Scorer,
        proposer: Proposer,
        rules: EditRules,
        goal: RankGoal,
    ) -> None:
        self._scorer, self.rules, self.goal = scorer, rules, goal
        scored = scorer([(group.context, group.candidates) for group in groups]) if groups else []
        self.scores = [np.asarray(scores, dtype=np.float64) for scores in scored]
        """Scores of the unedited candidates (C,) of each example."""
        self.replies = [EditedReply(group) for group in groups]
        self._bars = [0.0] * len(groups)
        for row, seed in enumerate(seeds):
            rng = stream(seed, "attack on a ranking")
            self._begin(row, goal.choose(groups[row], self.scores[row], rng), proposer)

    def __len__(self) -> int:
        return len(self.replies)

    def _begin(self, row: int, index: int | None, proposer: Proposer) -> None:
        reply, scores = self.replies[row], self.scores[row]
        bar = None if index is None else self.goal.bar(reply.group, scores, index)
        if index is None or bar is None:
            reply.reason = "no reply that may be edited and could be where it is wanted"
            return
        self._bars[row], reply.tolerance = bar, tolerance(scores)
        reply.margin, reply.words = self.goal.margin(float(scores[index]), bar), reply.group.candidates[index]
        if reply.margin > reply.tolerance:
            reply.reason = "the goal is reached before any edit"
            return
        reply.index, reply.is_over, reply.scores_by_words = index, False, {reply.words: float(scores[index])}
        reply.distance = max(-reply.margin, reply.tolerance) or 1.0
        reply.proposals = self.rules.cut(proposer.propose(reply.group, index))
        if not reply.mask(self.rules)[: self.rules.stop].any():
            reply.is_over, reply.reason = True, "no word may be replaced"

    def active(self) -> list[int]:
        """Return the rows of the examples that take more edits."""
        return [row for row, reply in enumerate(self.replies) if not reply.is_over]

    def act(self, rows: Sequence[int], actions: Sequence[int]) -> np.ndarray:
        """Edit examples, or stop them.

        Args:
            rows: distinct rows of active examples.
            actions: one per row.

        Returns:
            The reward of each (n,) float64, from -1 to 1: half of the gain in progress, and a half at the goal. So every path
            to the goal earns 1 in all; a reward of 1 for the last step alone would reward delay.
        """
        before = [self.replies[row].progress for row in rows]
        changed: list[int] = []
        for row, action in zip(rows, actions, strict=True):
            reply = self.replies[row]
            assert not reply.is_over, "a reply that is over takes no action"
            if action == self.rules.stop:
                reply.is_over = True
            elif not reply.mask(self.rules)[action]:
                reply.num_illegal += 1
            else:
                reply.replace(int(action), self.rules)
                changed.append(row)
        margins = self.margins(changed, [[self.replies[row].words] for row in changed])
        for row, (margin,) in zip(changed, margins, strict=True):
            self.replies[row].margin = float(margin)
        rewards = np.zeros(len(rows))
        for number, row in enumerate(rows):
            reply = self.replies[row]
            reply.is_over = reply.is_over or reply.succeeded or reply.num_steps >= self.rules.edits
            rewards[number] = np.clip((reply.progress - before[number] + reply.succeeded) / 2, -1.0, 1.0)
        return rewards

    def margins(self, rows: Sequence[int], drafts: Sequence[Sequence[Utterance]]) -> list[np.ndarray]:
        """Return the margins of drafts; each draft without a known score is a query.

        Args:
            rows: of examples.
            drafts: any number per row.
        """
        unscored = [
            [words for words in dict.fromkeys(of) if words not in self.replies[row].scores_by_words]
            for row, of in zip(rows, drafts, strict=True)
        ]
        requests = [(self.replies[row], new) for row, new in zip(rows, unscored, strict=True) if new]
        scores_by_request = self._scorer([(reply.group.context, new) for reply, new in requests]) if requests else []
        for (reply, new), scores in zip(requests, scores_by_request, strict=True):
            reply.scores_by_words.update(zip(new, np.asarray(scores).tolist(), strict=True))
        return [
            np.array([self.goal.margin(self.replies[row].scores_by_words[words], self._bars[row]) for words in of])
            for row, of in zip(rows, drafts, strict=True)
        ]


def replaced(words: Utterance, position: int, word: str) -> Utterance:
    """Return a reply with another word at one position."""
    return (*words[:position], word, *words[position + 1 :])


_ENDINGS = ("ing", "ed", "ly", "s")
_SHORT = 3
"""Words of up to so many letters have no ending."""


class TermOverlap:
    """A scorer by the cosine of a reply's words and the context's, weighted by inverse context frequency.

    Args:
        contexts: for the frequencies.
    """

    def __init__(self, contexts: Sequence[Context]) -> None:
        self._num = len(contexts)
        self._holding = Counter(chain.from_iterable(set(chain.from_iterable(context)) for context in contexts))

    def __call__(self, pairs: Sequence[tuple[Context, Sequence[Utterance]]]) -> list[np.ndarray]:
        """Return the scores of the candidates of each context, from 0 to 1."""
        return [
            np.array([self._cosine(set(chain.from_iterable(context)), set(reply)) for reply in candidates])
            for context, candidates in pairs
        ]

    def _cosine(self, context: set[str], reply: set[str]) -> float:
        shared, *norms = (self._squares(words) for words in (context & reply, context, reply))
        return shared / math.sqrt(norms[0] * norms[1]) if shared else 0.0

    def _squares(self, words: set[str]) -> float:
        # fsum is exact, so the order of the set does not matter.
        return math.fsum(math.log((1 + self._num) / (1 + self._holding[word])) ** 2 for word in words)


class AlikeWords:
    """Proposes words of the context with the same ending, newest turn first; a minimal tagger."""

    def propose(self, group: CandidateGroup, index: int) -> list[tuple[str, ...]]:
        """See `parley.envs.ranking.edit_game.Proposer`."""
        context_words = [word for turn in reversed(group.context) for word in turn]
        tags = {word: ending(word) for word in context_words}
        return [
            tuple(candidate for candidate, tag in tags.items() if tag is not None and tag == ending(word) and candidate != word)
            for word in group.candidates[index]
        ]


def ending(word: str) -> str | None:
    """Return the ending of a word, "" for none; None for short words, numbers and marks."""
    if len(word) <= _SHORT or not word.isalpha():
        return None
    return next((end for end in _ENDINGS if word.endswith(end)), "")


class PlainSight:
    """Features of each action: position, frequency of the new word in the context, margin, edits left."""

    size = 4

    def __call__(self, game: EditGame, rows: Sequence[int]) -> np.ndarray:
        """See `parley.envs.ranking.ranking_env.Sight`."""
        rules = game.rules
        seen = np.zeros((len(rows), rules.stop + 1, self.size), dtype=np.float32)
        for number, row in enumerate(rows):
            reply = game.replies[row]
            counts = Counter(chain.from_iterable(reply.group.context))
            seen[number, :, 2:] = reply.margin / reply.distance, 1 - reply.num_steps / rules.edits
            for position, words in enumerate(reply.proposals):
                for proposal, word in enumerate(words):
                    action = position * rules.num_proposals + proposal
                    seen[number, action, :2] = position / rules.num_places, counts[word] / counts.total()
        return seen.clip(-1.0, 1.0)
