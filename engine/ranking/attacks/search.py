"""One example's search: counts what its method asks, ends it in time, and remembers what came closest to the goal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parley.engine.ranking.attacks.case import Case
from parley.engine.ranking.attacks.drafts import Draft
from parley.engine.ranking.attacks.goals import RankGoal
from parley.engine.ranking.attacks.methods import Asked, AttackMethod
from parley.engine.ranking.attacks.outcomes import AttackOutcome, Status, TracePoint
from parley.envs.core.errors import RankerError
from parley.envs.corpora.pairs.turns import Utterance
from parley.policies.ranking.ranker import UnscoredError

_AHEAD = 64
"""Drafts that are scored at once; of those behind a success none counts as a query."""


class CaseSearch:
    """A search under way.

    Args:
        case: the example.
        method: in which order edits are tried.
        goal: what is wanted.
        bar: the score to pass.
        scores: of the candidates before any edit.
        budget: queries at most.
    """

    def __init__(
        self, case: Case, method: AttackMethod, goal: RankGoal, bar: float, scores: tuple[float, ...], budget: int
    ) -> None:
        self.case, self._goal, self._bar, self._scores, self._budget = case, goal, bar, scores, budget
        self._best, self._margin = case.original, case.margin
        self._trace: list[TracePoint] = []
        # Scores are known as soon as they come in, and count when the method gets to them.
        self._known = {case.original.words: scores[case.place]}
        self._counted = {case.original.words}
        self._status: Status = "failure"
        self._reason = "no edit is left to try"
        self._num_unscored = 0
        self.is_over = False
        self._steps = method.steps(case)
        self._asked, self._margins = Asked(()), list[float]()
        self._proceed(None)
        self._read_on()

    def wanted(self) -> list[Utterance]:
        """Drafts to score next; at least one while the search is not over."""
        ahead = dict.fromkeys(draft.words for draft in self._asked.drafts[len(self._margins) :])
        new = [words for words in ahead if words not in self._known]
        return new[: min(_AHEAD, self._budget - len(self._counted) + 1)]

    def tell(self, drafts: Sequence[Utterance], scores: np.ndarray | RankerError) -> None:
        """Goes on with the scores of what was wanted, or ends with why there are none."""
        if isinstance(scores, UnscoredError):
            self.tell_apart(drafts, [scores] * len(drafts))
            return
        if isinstance(scores, RankerError):
            self._end("error", str(scores))
            return
        self._known.update(zip(drafts, scores.tolist(), strict=True))
        self._read_on()

    def tell_apart(self, drafts: Sequence[Utterance], scores: Sequence[np.ndarray | RankerError]) -> None:
        """Goes on with what each draft came to; one that has no score is no closer to the goal than the reply as it was."""
        for words, score in zip(drafts, scores, strict=True):
            if isinstance(score, RankerError) and not isinstance(score, UnscoredError):
                self._end("error", str(score))
                return
            self._num_unscored += isinstance(score, RankerError)
            self._known[words] = self._scores[self.case.place] if isinstance(score, RankerError) else float(score[0])
        self._read_on()

    def outcome(self) -> AttackOutcome:
        """What came of it."""
        case, best = self.case, self._best
        return AttackOutcome(
            key=case.group.key,
            status=self._status,
            reason=self._reason,
            place=case.place,
            scores=self._scores,
            words=best.words,
            edited=best.edited,
            cost=best.cost,
            moves=tuple(change.move for change in best.changes),
            score=self._known[best.words],
            queries=len(self._counted) - 1,
            num_slopes=case.inside.num_slopes,
            num_unscored=self._num_unscored,
            trace=tuple(self._trace),
        )

    def _read_on(self) -> None:
        """Takes the drafts that are asked about one by one, as far as their scores are known."""
        while not self.is_over:
            if len(self._margins) == len(self._asked.drafts):
                self._proceed(np.array(self._margins))
                continue
            draft = self._asked.drafts[len(self._margins)]
            if draft.words not in self._counted:
                if len(self._counted) > self._budget:
                    self._end("failure", "queries ran out")
                    return
                if draft.words not in self._known:
                    return
                self._counted.add(draft.words)
            margin = self._goal.margin(self._known[draft.words], self._bar)
            self._margins.append(margin)
            if self._asked.may_succeed:
                self._see(draft, margin)

    def _proceed(self, margins: np.ndarray | None) -> None:
        """Hands the method what it asked for, and takes what it asks next."""
        try:
            self._asked, self._margins = next(self._steps) if margins is None else self._steps.send(margins), []
        except StopIteration:
            self.is_over = True
        except RankerError as error:
            self._end("error", str(error))

    def _see(self, draft: Draft, margin: float) -> None:
        near = self.case.tolerance
        if margin > self._margin + near or margin > near:
            self._best, self._margin = draft, margin
            self._trace.append(TracePoint(len(self._counted) - 1, margin, draft.cost))
        if margin > near:
            self._end("success", "")

    def _end(self, status: Status, reason: str) -> None:
        self._status, self._reason, self.is_over = status, reason, True
        self._steps.close()
