"""Editing a reply until a ranker puts it where it is wanted, a word at a time: the rules of `parley/ResponseRanking-v1`.

Many examples are played side by side, so that their drafts share the ranker's batches; an environment is the case of one. The
ranker and the words that may enter come from the caller. Shapes: P places, W proposals for each, A = P W + 1 actions.

What an attack on a ranker wants: a wrong reply among the best, or the right one not among them.

What `parley/ResponseRanking-v1` is played with where nothing is handed in: a ranker, words that may enter, what is seen.

They need no tagger and no model, and are there to try the environment out; `engine/ranking/attacks/editing.py` has those of
attacks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, Protocol

import numpy as np

from parley.envs.core.config import Configuration, NumItems
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup, Context

GoalKind = Literal["promote", "demote"]
Target = Literal["best", "random"]
TOLERANCE = 1e-5
"""Scores that differ by less than this share of a group's largest are equal: a network's rounding in a batch does as much."""


@dataclass(frozen=True)
class RankGoal:
    """Where the edited reply shall stand.

    Args:
        kind: promote a wrong reply to the top, or demote the right one below it.
        rank: how many places are the top.
        target: of several replies that may be edited the one that scores best, or one at random.
    """

    kind: GoalKind = "promote"
    rank: int = 1
    target: Target = "best"

    def __str__(self) -> str:
        where = "rank 1" if self.rank == 1 else f"ranks 1 to {self.rank}"
        whose = {"promote": "a wrong reply to", "demote": "the right reply below"}[self.kind]
        return f"{self.kind} {whose} {where}, the {'best-scored' if self.target == 'best' else 'drawn'} one"

    def choose(self, group: CandidateGroup, scores: np.ndarray, rng: np.random.Generator) -> int | None:
        """Which candidate is edited; None where no attackable one is of the goal's kind.

        Args:
            group: with its labels.
            scores: of the candidates as they are (C,), `comparable` as all below.
            rng: what draws, if one is drawn.
        """
        wanted = self.kind == "demote"
        places = [i for i, label in enumerate(group.labels) if label is wanted and group.attackable[i]]
        if not places:
            return None
        return places[int(rng.integers(len(places)))] if self.target == "random" else max(places, key=lambda i: scores[i])

    def bar(self, group: CandidateGroup, scores: np.ndarray, place: int) -> float | None:
        """Return the score that the edited reply has to pass; None where the top has room for all others.

        Others are all candidates to one that is promoted, wrong ones to one that is demoted: a ranker does not err where
        another right reply is first.

        Args:
            group: with its labels.
            scores: of the candidates as they are (C,).
            place: of the edited one.
        """
        counts = np.array([self.kind == "promote" or not label for label in group.labels])
        counts[place] = False
        others = np.sort(scores[counts])[::-1]
        return float(others[self.rank - 1]) if self.rank <= len(others) else None

    def margin(self, score: float, bar: float) -> float:
        """How far a score is on the wanted side of the bar; success is above the tolerance, so that a tie is none."""
        return score - bar if self.kind == "promote" else bar - score


def tolerance(scores: np.ndarray) -> float:
    """Return the difference up to which scores of a group are equal."""
    return TOLERANCE * float(np.abs(scores).max())


Scorer = Callable[[Sequence[tuple[Context, Sequence[Utterance]]]], Sequence[np.ndarray]]
"""Scores (C,) of the candidates of each context; of a `policies.ranking.ranker.Ranker` by `partial(scores_of, ranker)`."""


class Proposer(Protocol):
    """Which words may enter a reply."""

    def propose(self, group: CandidateGroup, place: int) -> Sequence[Sequence[str]]:
        """For each word of a candidate those that may stand in its place, the best first; they depend on nothing else.

        Args:
            group: context and candidates.
            place: of the candidate that is edited.
        """


@dataclass(frozen=True, kw_only=True)
class EditRules(Configuration):
    """Limits of the game."""

    edits: NumItems = 3
    """Words replaced at most."""
    num_places: NumItems = 16
    """Words of a reply that may be replaced, from its beginning."""
    num_proposals: NumItems = 8
    """Words that may stand in the place of one."""

    def cut(self, proposals: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
        """What is kept of all proposals for a reply."""
        return [tuple(words[: self.num_proposals]) for words in proposals[: self.num_places]]

    @property
    def stop(self) -> int:
        """The action that leaves the reply as it is; place p becomes its proposal w by the action p W + w."""
        return self.num_places * self.num_proposals


@dataclass
class EditedReply:
    """One example under edit.

    Args:
        group: context and candidates.
        place: of the candidate that is edited; None where there is none, or the goal is reached, or out of reach, before any
            edit.
        words: of the reply as it is now.
        proposals: for each place what may stand there.
        distance: how far the margin was from the goal before any edit, above 0: what margins are measured in.
        margin: how close the reply is to the goal; above `tolerance`: there.
        tolerance: difference up to which scores are equal.
        is_over: whether it takes no more edits.
        reason: why there was nothing to edit.
        edited: places of the words that were replaced, in their order.
        num_illegal: actions that were not allowed; each costs an edit and changes nothing.
        known: scores of drafts, by their words.
    """

    group: CandidateGroup
    place: int | None = None
    words: Utterance = ()
    proposals: Sequence[Sequence[str]] = ()
    distance: float = 1.0
    margin: float = 0.0
    tolerance: float = 0.0
    is_over: bool = True
    reason: str = ""
    edited: list[int] = field(default_factory=list)
    num_illegal: int = 0
    known: dict[Utterance, float] = field(default_factory=dict)

    @property
    def succeeded(self) -> bool:
        """Whether edits reached the goal."""
        return self.place is not None and self.margin > self.tolerance

    @property
    def progress(self) -> float:
        """How much of the way to the goal is made: 0 before any edit, 1 there, less than 0 farther off than at first."""
        return 1.0 if self.succeeded else min(1 + self.margin / self.distance, 1.0)

    @property
    def num_queries(self) -> int:
        """Distinct drafts that were scored; those before any edit are none."""
        return max(len(self.known) - 1, 0)

    @property
    def original(self) -> Utterance:
        """The reply before any edit."""
        return () if self.place is None else self.group.candidates[self.place]

    @property
    def num_steps(self) -> int:
        """Actions so far, but for one that stopped."""
        return len(self.edited) + self.num_illegal

    def mask(self, rules: EditRules) -> np.ndarray:
        """Which actions are allowed (A,) int8: words that are as they were, by words that the reply does not hold yet."""
        allowed = np.zeros(rules.stop + 1, dtype=np.int8)
        allowed[rules.stop] = 1
        for place, words in enumerate(() if self.is_over else self.proposals):
            if place not in self.edited:
                for number, word in enumerate(words):
                    if word not in self.words and replaced(self.words, place, word) not in self.group.candidates:
                        allowed[place * rules.num_proposals + number] = 1
        return allowed

    def replace(self, action: int, rules: EditRules) -> None:
        """Make an edit that is allowed, other than stopping; what it did to the margin is for others to find out."""
        place, number = divmod(action, rules.num_proposals)
        self.words = replaced(self.words, place, self.proposals[place][number])
        self.edited.append(place)


class EditGame:
    """Examples side by side.

    Args:
        groups: contexts and candidates.
        seeds: one for each, at least 0.
        scorer: asks the ranker.
        proposer: of words.
        rules: limits.
        goal: what is wanted.
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
        """Of the candidates before any edit, by example (C,)."""
        self.replies = [EditedReply(group) for group in groups]
        self._bars = [0.0] * len(groups)
        for row, seed in enumerate(seeds):
            rng = stream(seed, "attack on a ranking")
            self._begin(row, goal.choose(groups[row], self.scores[row], rng), proposer)

    def __len__(self) -> int:
        return len(self.replies)

    def _begin(self, row: int, place: int | None, proposer: Proposer) -> None:
        reply, scores = self.replies[row], self.scores[row]
        bar = None if place is None else self.goal.bar(reply.group, scores, place)
        if place is None or bar is None:
            reply.reason = "no reply that may be edited and could be where it is wanted"
            return
        self._bars[row], reply.tolerance = bar, tolerance(scores)
        reply.margin, reply.words = self.goal.margin(float(scores[place]), bar), reply.group.candidates[place]
        if reply.margin > reply.tolerance:
            reply.reason = "the goal is reached before any edit"
            return
        reply.place, reply.is_over, reply.known = place, False, {reply.words: float(scores[place])}
        reply.distance = max(-reply.margin, reply.tolerance) or 1.0
        reply.proposals = self.rules.cut(proposer.propose(reply.group, place))
        if not reply.mask(self.rules)[: self.rules.stop].any():
            reply.is_over, reply.reason = True, "no word may be replaced"

    def active(self) -> list[int]:
        """Rows of the examples that take more edits."""
        return [row for row, reply in enumerate(self.replies) if not reply.is_over]

    def act(self, rows: Sequence[int], actions: Sequence[int]) -> np.ndarray:
        """Edits examples, or stops them.

        Args:
            rows: of active examples, each once.
            actions: one for each.

        Returns:
            The reward of each (n,) float64, from -1 to 1: half of what is gained on the way to the goal, as a share of the
            whole way, and a half where it is reached. So every way there earns 1: were the last step worth 1 by itself, it
            would pay to put it off.
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
        """How close drafts come to the goal; what was not scored before is a query.

        Args:
            rows: of examples.
            drafts: of each, any number.
        """
        wanted = [
            [words for words in dict.fromkeys(of) if words not in self.replies[row].known]
            for row, of in zip(rows, drafts, strict=True)
        ]
        asked = [(self.replies[row], new) for row, new in zip(rows, wanted, strict=True) if new]
        found = self._scorer([(reply.group.context, new) for reply, new in asked]) if asked else []
        for (reply, new), scores in zip(asked, found, strict=True):
            reply.known.update(zip(new, np.asarray(scores).tolist(), strict=True))
        return [
            np.array([self.goal.margin(self.replies[row].known[words], self._bars[row]) for words in of])
            for row, of in zip(rows, drafts, strict=True)
        ]


def replaced(words: Utterance, place: int, word: str) -> Utterance:
    """Return a reply with another word at a place."""
    return (*words[:place], word, *words[place + 1 :])


_ENDINGS = ("ing", "ed", "ly", "s")
_SHORT = 3
"""Letters up to which a word says nothing by itself."""


class TermOverlap:
    """Scores a reply by the cosine of its words with the context's, each weighed by how few contexts hold it.

    Args:
        contexts: that are counted.
    """

    def __init__(self, contexts: Sequence[Context]) -> None:
        self._num = len(contexts)
        self._holding = Counter(chain.from_iterable(set(chain.from_iterable(context)) for context in contexts))

    def __call__(self, pairs: Sequence[tuple[Context, Sequence[Utterance]]]) -> list[np.ndarray]:
        """Score of the candidates of each context, from 0 to 1."""
        return [np.array([self._cosine(set(chain.from_iterable(said)), set(reply)) for reply in of]) for said, of in pairs]

    def _cosine(self, said: set[str], reply: set[str]) -> float:
        shared, *norms = (self._squares(words) for words in (said & reply, said, reply))
        return shared / math.sqrt(norms[0] * norms[1]) if shared else 0.0

    def _squares(self, words: set[str]) -> float:
        # Summed exactly, whatever the order of a set.
        return math.fsum(math.log((1 + self._num) / (1 + self._holding[word])) ** 2 for word in words)


class AlikeWords:
    """Proposes words of the context that end as the word does, those of the newest turn first: a tagger in two lines."""

    def propose(self, group: CandidateGroup, place: int) -> list[tuple[str, ...]]:
        """See `parley.envs.ranking.edit_game.Proposer`."""
        said = [word for turn in reversed(group.context) for word in turn]
        tags = {word: ending(word) for word in said}
        return [
            tuple(other for other, tag in tags.items() if tag is not None and tag == ending(word) and other != word)
            for word in group.candidates[place]
        ]


def ending(word: str) -> str | None:
    """What a word ends in, "" for nothing special; None for words that say little: short ones, numbers, marks."""
    if len(word) <= _SHORT or not word.isalpha():
        return None
    return next((end for end in _ENDINGS if word.endswith(end)), "")


class PlainSight:
    """Shows of each action: where the word stands, how often the context says the new one, the margin, the edits left."""

    size = 4

    def __call__(self, game: EditGame, rows: Sequence[int]) -> np.ndarray:
        """See `parley.envs.ranking.ranking_env.Sight`."""
        rules = game.rules
        seen = np.zeros((len(rows), rules.stop + 1, self.size), dtype=np.float32)
        for number, row in enumerate(rows):
            reply = game.replies[row]
            said = Counter(chain.from_iterable(reply.group.context))
            seen[number, :, 2:] = reply.margin / reply.distance, 1 - reply.num_steps / rules.edits
            for place, words in enumerate(reply.proposals):
                for proposal, word in enumerate(words):
                    action = place * rules.num_proposals + proposal
                    seen[number, action, :2] = place / rules.num_places, said[word] / said.total()
        return seen.clip(-1.0, 1.0)
