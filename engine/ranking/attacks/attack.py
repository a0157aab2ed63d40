"""Composed attacks on a ranker, their batched search, and the methods of attack, GASLITE among them.

    from parley.engine.ranking import AttackSettings, compose_attack

    attack = compose_attack(ranker, language, AttackSettings(goal="promote", edits=3, budget=500))
    print(attack)
    outcomes = attack.run(groups, seeds)

The ranker is a black box: a query is one context and candidate scored. The scores of a group before any edit come with the
group and are no queries; a repeated draft counts once. Paid, served and user-made rankers are asked for one draft of an
example at a time, so the queries are what they are asked. A ranker that is `is_free` scores `_AHEAD` drafts at once, of which
only those up to a success are queries; all are counted beside them (`AttackOutcome.num_scored`). The budget limits both.
The result of an example depends on its group, its seed and the
composition alone, not on the other examples of its batches: its draws are its own, and scores that differ by less than the
rounding error of a batch are equal (`edit_game.TOLERANCE`). So an interrupted example starts again and gives the same result.

A method is a generator: it yields batches of drafts (`DraftBatch`) and is sent their margins; a higher margin is closer to the
goal (`RankGoal.margin`). It knows neither budgets nor batches, and is closed at the goal or when the budget is spent. So
its first queries do not depend on the budget, and one trace gives the success at every smaller budget.

    ImportanceGreedy   words that matter most first, each by its best edit (Jin et al. 2020, "Is BERT really robust?"); not
                       exhaustive: it takes the first edit that helps, and never goes back
    EditBeam           all edits of the best few drafts, edit after edit
    RandomEdits        the baseline
    SlopeGreedy        words that a ranker's own gradient prefers (Ebrahimi et al. 2018, "HotFlip")
    FixedRule          a rule of `engine/perturb/replies`: one query

GASLITE and its controls follow below. Your own method needs `steps`; one that looks into the ranker says so by `needs`
(`cases.py`), one that puts words behind the reply and edits none of its own by `appends = True`.

GASLITE: words of an encoder's whole vocabulary behind a reply, found by its gradient; and its two controls.

Source: Ben-Tov & Sharif 2024, "GASLITEing the Retrieval" (arXiv 2412.20953), and the sizes of its released code.

    x <- L random words behind the reply
    repeat until the budget is spent:
        S_LV <- mean of the slopes at x and at G - 1 texts that are x with one random word at one random place
        for each of P random places of x, one after the other:
            list <- the C words of highest S at that place with which the text is still read as one token for each word
            x <- the best of x and of x with a word of the list there, by exact scores

The slopes are taken once for all places of a step; averaged, they say more about texts that are some words away. As elsewhere
they are no queries and are counted beside them, one for each of the G texts; each text of a list is a query.

    Gaslite       as above
    RandomSteps   the same steps from the best text so far, lists drawn at random: a control for the gradient
    RandomWords   L fresh random words for each query: a control for the steps from the best text

# Paper: a passage is found for many queries of users, by the mean of their vectors. Ours: for one context, which is what a
#   reply is scored in; the search ends as soon as the reply is where the goal wants it.
# Released code: L = 100, G = 50, P = 20, C = 128, some 2,500 texts a step. Ours: 10, 10, 5, 10 unless `settings.GasliteSizes`
#   says otherwise, 50 texts a step, for budgets of some hundred queries.
# Released code: x begins as text that a language model wrote. Ours: as random words, so that no second model is needed.
# Released code: half of a list is drawn from the words that follow those of highest slope. Ours: the highest alone.
# Released code: the slopes of a text have length 1 at each place before they are averaged, and places of a step come from left
#   to right. Ours: slopes as they are, in which steep texts weigh more, and places in the order in which they are drawn.
# Released code: 30 steps. Ours: until the budget is spent, or nothing new is left.
# Paper: any token may enter that survives in its text. Ours: tokens that are words by themselves (no pieces of words, no
#   special tokens), for rows, marks and other rankers know replies as words; the whole text is checked, too.
# Released code: a list loses words that do not survive. Ours: the next words take their places, within `_LOOKED` lists.

    L words appended (`Case.edits`), V words of the vocabulary
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

import numpy as np

from parley.engine.perturb.replies.settings import CAREFUL
from parley.engine.perturb.strategies.texts import FlatContexts
from parley.engine.ranking.attacks.cases import (
    BY_NAME,
    NEW,
    SLOPES,
    VOCABULARY,
    AtMostWords,
    AttackOutcome,
    Case,
    Change,
    Constraint,
    Draft,
    EditMove,
    Inside,
    NoOtherCandidate,
    Requirement,
    Status,
    TracePoint,
)
from parley.engine.ranking.attacks.settings import MOVES
from parley.engine.ranking.metrics.searched import REACHED_REASON
from parley.envs.core.config import Configuration, NumItems, check
from parley.envs.core.errors import ConfigError, RankerError
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.edit_game import RankGoal, tolerance
from parley.envs.ranking.groups import CandidateGroup
from parley.policies.ranking.ranker import Ranker, UnscoredError, compared_outcomes

if TYPE_CHECKING:
    from parley.engine.perturb.replies.language import ReplyLanguage, Tagged
    from parley.engine.perturb.replies.shapes import Rule


DRAWS = 16
"""Number of random drafts in a batch."""
PATIENCE = 10
"""Number of draws in a row without a new draft after which a method ends."""


class DraftBatch(NamedTuple):
    """A batch of drafts that a method wants scored.

    Args:
        drafts: in the order in which they count as queries.
        may_succeed: False for drafts that only measure the importance of words, which cannot be the attack's result.
    """

    drafts: Sequence[Draft]
    may_succeed: bool = True


Steps = Generator[DraftBatch, np.ndarray, None]
"""Yields drafts, is sent their margins (drafts,) float64."""


class AttackMethod(Protocol):
    """An order in which edits are tried."""

    def steps(self, case: Case) -> Steps:
        """Search for one example; take all draws from `case.rng`."""


@dataclass(frozen=True)
class ImportanceGreedy:
    """The most important words by erasure first; each gets its best edit, if that comes closer to the goal.

    It is not exhaustive: an edit that helps is kept even if another word's would reach the goal. `EditBeam` with one edit and
    a budget tries all single edits.
    """

    ended: ClassVar[str] = "no step is left; greedy does not try all edits"

    def steps(self, case: Case) -> Steps:
        """See `AttackMethod`."""
        draft, margin = case.original, case.margin
        for source in (yield from _by_importance(case)):
            position = draft.position_of(source)
            drafts = [] if position is None else case.proposals(draft, [position])
            if drafts:
                margins = yield DraftBatch(drafts)
                best = falling(margins, case.tolerance)[0]
                if margins[best] > margin + case.tolerance:
                    draft, margin = drafts[best], margins[best]


@dataclass(frozen=True)
class EditBeam(Configuration):
    """All edits of a few drafts, of which the best few go on, closer to the goal or not.

    Args:
        beams: how many go on.
    """

    beams: NumItems = 4

    def steps(self, case: Case) -> Steps:
        """See `AttackMethod`; edits of words that matter come first, for small budgets end within a step."""
        order = yield from _by_importance(case)
        beam = [case.original]
        while beam:
            drafts_by_words: dict[Utterance, Draft] = {}
            for draft in beam:
                positions = [position for source in order if (position := draft.position_of(source)) is not None]
                for edited in case.proposals(draft, positions):
                    drafts_by_words.setdefault(edited.words, edited)
            drafts = list(drafts_by_words.values())
            margins = yield DraftBatch(drafts)
            beam = [drafts[i] for i in falling(margins, case.tolerance)[: self.beams]]


@dataclass(frozen=True)
class RandomEdits:
    """Drafts of one edit or more, by moves, places and words at random; an edit that is not allowed is left out."""

    def steps(self, case: Case) -> Steps:
        """See `AttackMethod`."""
        seen, idle = {case.original.words}, 0
        while idle < PATIENCE:
            drafts = [draft for draft in self._drawn(case) if draft.words not in seen]
            seen.update(draft.words for draft in drafts)
            idle = 0 if drafts else idle + 1
            yield DraftBatch(drafts)

    def _drawn(self, case: Case) -> list[Draft]:
        """Distinct drafts, all allowed; drawn side by side, so that constraints are asked about many at once."""
        drafts = [case.original] * DRAWS
        num_edits = case.rng.integers(1, case.edits + 1, size=DRAWS).tolist()
        for number, of_lanes in enumerate(case.rng.random((case.edits, DRAWS, 3)).tolist()):
            lanes = [lane for lane in range(DRAWS) if number < num_edits[lane]]
            drawn = [(lane, self._edited(case, drafts[lane], of_lanes[lane])) for lane in lanes]
            after = {lane: draft for lane, draft in drawn if draft is not None}
            allowed = {id(draft) for draft in case.allowed(list(after.values()))}
            for lane, draft in after.items():
                drafts[lane] = draft if id(draft) in allowed else drafts[lane]
        return list({draft.words: draft for draft in drafts}.values())

    def _edited(self, case: Case, draft: Draft, shares: Sequence[float]) -> Draft | None:
        """Return the draft after a random edit; None if the move cannot edit the position."""
        move, position = case.moves[int(shares[0] * len(case.moves))], int(shares[1] * (len(draft.words) + 1))
        changes = list(move.changes(case, draft, position))
        return draft.after(changes[int(shares[2] * len(changes))]) if changes else None


@dataclass(frozen=True)
class SlopeGreedy(Configuration):
    """One replaced word after the other: of the few that the ranker's slopes promise most, the best by its scores.

    White-box: slopes are no queries, and are counted beside them. Edits that replace no word have no slope and are left out.

    Args:
        width: replacements that are scored before the best is taken.
    """

    needs: ClassVar[Requirement] = SLOPES

    width: NumItems = 8

    def steps(self, case: Case) -> Steps:
        """See `AttackMethod`."""
        draft, margin, ahead = case.original, case.margin, True
        while ahead:
            drafts = [proposal for proposal in case.proposals(draft, range(len(draft.words))) if _is_replacement(proposal)]
            if not drafts:
                return
            changes = [draft.changes[-1] for draft in drafts]
            columns = {word: column for column, word in enumerate(dict.fromkeys(change.words[0] for change in changes))}
            slopes_TW = case.inside.slopes(draft.words, list(columns))
            gains = [float(slopes_TW[change.start, columns[change.words[0]]]) for change in changes]
            chosen = [drafts[i] for i in falling(gains, 0.0)[: self.width]]
            margins = yield DraftBatch(chosen)
            best = falling(margins, case.tolerance)[0]
            ahead = bool(margins[best] > margin + case.tolerance)
            draft, margin = chosen[best], margins[best]


@dataclass(frozen=True)
class FixedRule:
    """The result of a rule on the reply alone, whatever the ranker; the rule has its own moves and constraints.

    Args:
        rule: of replies, such as IIW.
    """

    rule: Rule

    def __repr__(self) -> str:
        return f"FixedRule({self.rule.name})"

    def steps(self, case: Case) -> Steps:
        """See `AttackMethod`; nothing is asked where the rule leaves the reply untouched."""
        alone = tuple(index == case.index for index in range(len(case.group.candidates)))
        (attacked,) = self.rule.apply([replace(case.group, attackable=alone)], [case.seed])
        words, cost = attacked.group.candidates[case.index], attacked.changed[case.index]
        if words != case.original.words:
            (tags,) = case.language.tag_all([words])
            sources = [NEW] * len(words)
            for old, new, size in SequenceMatcher(None, case.original.words, words, autojunk=False).get_matching_blocks():
                sources[new : new + size] = range(old, old + size)
            edited = tuple(source == NEW for source in sources)
            yield DraftBatch([Draft(words, tuple(tags), tuple(sources), edited, len(case.original.words), cost)])


def falling(values: Sequence[float] | np.ndarray, tolerance: float) -> list[int]:
    """Return the indices of values from highest to lowest; equal neighbours keep their order."""
    order = sorted(range(len(values)), key=lambda i: -values[i])
    ordered: list[int] = []
    equal: list[int] = []
    for i in order:
        if equal and values[equal[-1]] - values[i] > tolerance:
            ordered += sorted(equal)
            equal = []
        equal.append(i)
    return ordered + sorted(equal)


def _by_importance(case: Case) -> Generator[DraftBatch, np.ndarray, list[int]]:
    """Return the positions of the original, the most important word first and the end last."""
    size = len(case.original.words)
    margins = yield DraftBatch([case.original.without(position) for position in range(size)], may_succeed=False)
    return [*falling(margins, case.tolerance), size]


def _is_replacement(draft: Draft) -> bool:
    change = draft.changes[-1]
    return change.end - change.start == len(change.words) == 1


_AHEAD = 64
"""Number of drafts that a free ranker scores at once; drafts behind a success count as no query."""


class CaseSearch:
    """A search under way.

    Args:
        case: the example.
        method: in which order edits are tried.
        goal: the wanted rank.
        bar: the score to pass.
        scores: of the candidates before any edit.
        budget: queries at most.
        ahead: drafts scored at once.
    """

    def __init__(
        self, case: Case, method: AttackMethod, goal: RankGoal, bar: float, scores: tuple[float, ...], budget: int, ahead: int
    ) -> None:
        self.case, self._goal, self._bar, self._scores, self._budget = case, goal, bar, scores, budget
        self._ahead, self.num_scored = ahead, 0
        self._best, self._margin = case.original, case.margin
        self._trace: list[TracePoint] = []
        # Scores are stored when they arrive, and count as queries when the method reads them.
        self._score_by_words = {case.original.words: scores[case.index]}
        self._counted = {case.original.words}
        self._status: Status = "failure"
        self._reason: str = getattr(method, "ended", "no edit is left to try")
        self._num_unscored = 0
        self.is_over = False
        self._steps = method.steps(case)
        self._batch, self._margins = DraftBatch(()), list[float]()
        self._proceed(None)
        self._read_on()

    def next_drafts(self) -> list[Utterance]:
        """Return the next drafts to score; at least one while the search is not over."""
        ahead = dict.fromkeys(draft.words for draft in self._batch.drafts[len(self._margins) :])
        new = [words for words in ahead if words not in self._score_by_words]
        drafts = new[: min(self._ahead, self._budget - len(self._counted) + 1)]
        self.num_scored += len(drafts)
        return drafts

    def receive(self, drafts: Sequence[Utterance], scores: np.ndarray | RankerError) -> None:
        """Continue with the scores of the drafts, or end with the reason why there are none."""
        if isinstance(scores, UnscoredError):
            self.receive_each(drafts, [scores] * len(drafts))
            return
        if isinstance(scores, RankerError):
            self._end("error", str(scores))
            return
        self._score_by_words.update(zip(drafts, scores.tolist(), strict=True))
        self._read_on()

    def receive_each(self, drafts: Sequence[Utterance], scores: Sequence[np.ndarray | RankerError]) -> None:
        """Continue with one result per draft; a draft without a score counts as no closer to the goal."""
        for words, score in zip(drafts, scores, strict=True):
            if isinstance(score, RankerError) and not isinstance(score, UnscoredError):
                self._end("error", str(score))
                return
            self._num_unscored += isinstance(score, RankerError)
            self._score_by_words[words] = self._scores[self.case.index] if isinstance(score, RankerError) else float(score[0])
        self._read_on()

    def outcome(self) -> AttackOutcome:
        """Return the result of the search."""
        case, best = self.case, self._best
        return AttackOutcome(
            key=case.group.key,
            status=self._status,
            reason=self._reason,
            index=case.index,
            scores=self._scores,
            words=best.words,
            edited=best.edited,
            cost=best.cost,
            moves=tuple(change.move for change in best.changes),
            score=self._score_by_words[best.words],
            queries=len(self._counted) - 1,
            num_scored=self.num_scored,
            num_slopes=case.inside.num_slopes,
            num_unscored=self._num_unscored,
            trace=tuple(self._trace),
        )

    def _read_on(self) -> None:
        """Read the margins of the batch one by one, as far as their scores are known."""
        while not self.is_over:
            if len(self._margins) == len(self._batch.drafts):
                self._proceed(np.array(self._margins))
                continue
            draft = self._batch.drafts[len(self._margins)]
            if draft.words not in self._counted:
                if len(self._counted) > self._budget:
                    self._end("failure", "queries ran out")
                    return
                if draft.words not in self._score_by_words:
                    return
                self._counted.add(draft.words)
            margin = self._goal.margin(self._score_by_words[draft.words], self._bar)
            self._margins.append(margin)
            if self._batch.may_succeed:
                self._note(draft, margin)

    def _proceed(self, margins: np.ndarray | None) -> None:
        """Send the method the margins of its batch, and take its next batch."""
        try:
            self._batch, self._margins = next(self._steps) if margins is None else self._steps.send(margins), []
        except StopIteration:
            self.is_over = True
        except RankerError as error:
            self._end("error", str(error))

    def _note(self, draft: Draft, margin: float) -> None:
        near = self.case.tolerance
        if margin > self._margin + near or margin > near:
            self._best, self._margin = draft, margin
            self._trace.append(TracePoint(len(self._counted) - 1, margin, draft.cost))
        if margin > near:
            self._end("success", "")

    def _end(self, status: Status, reason: str) -> None:
        self._status, self._reason, self.is_over = status, reason, True
        self._steps.close()


_LOOKED = 8
"""Number of lists of words that are searched to fill one."""


@dataclass(frozen=True)
class RandomWords:
    """As many random words of the vocabulary at the same position, drawn anew: the control of `Gaslite` and `RandomSteps`."""

    needs: ClassVar[Requirement] = VOCABULARY
    appends: ClassVar[bool] = True

    def steps(self, case: Case) -> Steps:
        """See `AttackMethod`."""
        seen, idle = set[Utterance](), 0
        while idle < PATIENCE:
            drafts = [draft for draft in _drawn(case) if draft.words not in seen]
            seen.update(draft.words for draft in drafts)
            idle = 0 if drafts else idle + 1
            yield DraftBatch(drafts)


@dataclass(frozen=True)
class RandomSteps:
    """Appended words, changed one by one for the best of some random ones: `Gaslite` without its gradient, the control.

    Args:
        num_positions: places of a step whose words may change.
        num_candidates: words that are tried at each.
    """

    needs: ClassVar[Requirement] = VOCABULARY
    appends: ClassVar[bool] = True

    num_positions: int = 5
    num_candidates: int = 10

    def steps(self, case: Case) -> Steps:
        """See `AttackMethod`; it ends before the budget where nothing new is left to ask about."""
        start = next((draft for _ in range(PATIENCE) for draft in _drawn(case)), None)
        if start is None:
            return
        (margin,) = yield DraftBatch([start])
        trigger, seen, idle = _behind(case, start), {start.words}, 0
        while idle < PATIENCE:
            gains_LV, num_seen = self.gains(case, trigger), len(seen)
            positions = case.rng.choice(len(trigger), size=min(self.num_positions, len(trigger)), replace=False)
            for position in positions.tolist():
                drafts = self._listed(case, trigger, position, gains_LV[position])
                if drafts:
                    margins = yield DraftBatch(drafts)
                    seen.update(draft.words for draft in drafts)
                    best = falling(margins, case.tolerance)[0]
                    if margins[best] > margin + case.tolerance:
                        trigger, margin = _behind(case, drafts[best]), margins[best]
            idle = 0 if len(seen) > num_seen else idle + 1

    def gains(self, case: Case, trigger: Utterance) -> np.ndarray:
        """Return the gain of each word at each position (L, V); random here."""
        return case.rng.random((len(trigger), len(case.inside.vocabulary)))

    def _listed(self, case: Case, trigger: Utterance, position: int, gains_V: np.ndarray) -> list[Draft]:
        """Return replies with one appended word replaced by the words of highest gain."""
        vocabulary = case.inside.vocabulary
        order = np.argsort(-gains_V, kind="stable")[: _LOOKED * self.num_candidates].tolist()
        texts = ((*trigger[:position], vocabulary[number], *trigger[position + 1 :]) for number in order)
        read = (words for words in texts if words != trigger and case.inside.reads(case.original.words, words))
        return case.allowed([_appended(case, words) for words in islice(read, self.num_candidates)])


@dataclass(frozen=True)
class Gaslite(RandomSteps):
    """Appended words, changed one by one for those that averaged slopes promise most.

    Args:
        num_positions: places of a step whose words may change.
        num_candidates: words that are tried at each.
        num_gradients: texts that slopes are averaged over in a step.
    """

    num_gradients: int = 10

    def gains(self, case: Case, trigger: Utterance) -> np.ndarray:
        """Return the first-order gain of each word at each position, averaged over the texts of a step (L, V)."""
        reply, vocabulary = case.original.words, case.inside.vocabulary
        total_LV = np.zeros((len(trigger), len(vocabulary)))
        for number in range(self.num_gradients):
            words = list(trigger)
            if number:
                words[int(case.rng.integers(len(words)))] = vocabulary[int(case.rng.integers(len(vocabulary)))]
            total_LV += case.inside.slopes((*reply, *words), vocabulary)[len(reply) :]
        return total_LV / self.num_gradients


def _drawn(case: Case) -> list[Draft]:
    """Return random appended drafts that the ranker reads as one token per word, all allowed."""
    vocabulary = case.inside.vocabulary
    drawn = case.rng.integers(len(vocabulary), size=(DRAWS, case.edits)).tolist()
    texts = [tuple(vocabulary[number] for number in numbers) for numbers in drawn]
    return case.allowed([_appended(case, words) for words in texts if case.inside.reads(case.original.words, words)])


def _appended(case: Case, words: Utterance) -> Draft:
    # No move edits these words, so that their tags play no part.
    end, size = len(case.original.words), len(words)
    return case.original.after(Change("appended", end, end, words, ("",) * size, (NEW,) * size))


def _behind(case: Case, draft: Draft) -> Utterance:
    return draft.words[len(case.original.words) :]


_REPLACEABLE = ("noun", "verb", "adjective", "adverb")
"""Classes of words that synonyms may replace; names are one of their own."""


class RankAttack:
    """An attack: a method composed with a ranker, a goal, moves and constraints.

    Args:
        ranker: any.
        language: tags words and knows synonyms.
        goal: the wanted rank.
        method: in which order edits are tried.
        moves: ways to edit; those that suit the goal when None.
        constraints: on drafts, beside the number of words and the ban on repeated candidates.
        edits: words changed at most; as many are appended by methods that append.
        budget: queries at most for an example.
        num_side_by_side: examples that share batches.

    Raises:
        ConfigError: a number is below 1, or the ranker does not give what the method needs.
    """

    def __init__(
        self,
        ranker: Ranker,
        language: ReplyLanguage,
        *,
        goal: RankGoal | None = None,
        method: AttackMethod | None = None,
        moves: Sequence[EditMove] | None = None,
        constraints: Sequence[Constraint] = (),
        edits: int = 3,
        budget: int = 500,
        num_side_by_side: int = 64,
    ) -> None:
        self.ranker, self.language = ranker, language
        self.goal = RankGoal() if goal is None else goal
        self.method = ImportanceGreedy() if method is None else method
        self.moves = [BY_NAME[name] for name in MOVES[self.goal.kind]] if moves is None else list(moves)
        self.constraints: list[Constraint] = [AtMostWords(edits), NoOtherCandidate(), *constraints]
        self.edits, self.budget, self.num_side_by_side = edits, budget, num_side_by_side
        for name in ("edits", "budget", "num_side_by_side"):
            check(self, name, getattr(self, name) >= 1, "at least 1")
        need: Requirement | None = getattr(self.method, "needs", None)
        if need is not None and not need.is_met(ranker):
            what = f"the ranker gives no {need.what}, which this method goes by"
            raise ConfigError(what, where=type(self.method).__name__, got=type(ranker).__name__, fix=need.fix)

    def __repr__(self) -> str:
        return "\n".join(
            [
                f"{type(self).__name__}(",
                f"  ranker: {type(self.ranker).__name__}",
                f"  goal: {self.goal}",
                f"  method: {self.method!r}",
                f"  moves: {', '.join(move.name for move in self.moves) or 'none'}",
                "  constraints:",
                *(f"    {constraint!r}" for constraint in self.constraints),
                f"  budget: {self.budget:,} queries",
                f"  language: {type(self.language).__name__}",
                f"  side by side: {self.num_side_by_side} examples",
                ")",
            ]
        )

    def run(
        self, groups: Sequence[CandidateGroup], seeds: Sequence[int], before: Sequence[np.ndarray | None] = ()
    ) -> list[AttackOutcome]:
        """Attack one reply of each group.

        Args:
            groups: contexts and candidates.
            seeds: one for each group, at least 0.
            before: scores of the groups before any edit, of an earlier attack; the ranker is asked for those that are None.

        Returns:
            The result of each group, in their order; an error result if the ranker gives no scores.
        """
        waiting = iter(zip(range(len(groups)), groups, seeds, strict=True))
        outcomes: dict[int, AttackOutcome] = {}
        active: dict[int, CaseSearch] = {}
        while len(outcomes) < len(groups):
            new = list(islice(waiting, self.num_side_by_side - len(active)))
            for row, begun in self._begin(new, before) if new else ():
                if isinstance(begun, AttackOutcome):
                    outcomes[row] = begun
                else:
                    active[row] = begun
            drafts_by_row = {row: search.next_drafts() for row, search in active.items() if not search.is_over}
            pairs = [(active[row].case.group.context, drafts) for row, drafts in drafts_by_row.items()]
            for row, scores in zip(drafts_by_row, compared_outcomes(self.ranker, pairs), strict=True):
                if isinstance(scores, UnscoredError) and len(drafts_by_row[row]) > 1:
                    context = active[row].case.group.context
                    apart = compared_outcomes(self.ranker, [(context, [draft]) for draft in drafts_by_row[row]])
                    active[row].num_scored += len(apart)
                    active[row].receive_each(drafts_by_row[row], apart)
                else:
                    active[row].receive(drafts_by_row[row], scores)
            for row in [row for row, search in active.items() if search.is_over]:
                outcomes[row] = active.pop(row).outcome()
        return [outcomes[row] for row in range(len(groups))]

    def _begin(
        self, new: Sequence[tuple[int, CandidateGroup, int]], before: Sequence[np.ndarray | None]
    ) -> Iterator[tuple[int, AttackOutcome | CaseSearch]]:
        """Score groups before any edit, and choose the reply to edit in each."""
        replies = [words for _, group, _ in new for words in (*group.context, *group.candidates)]
        tags = dict(zip(replies, self.language.tag_all(replies), strict=True))
        known = {row: before[row] for row, _, _ in new if before}
        unscored = [(group.context, group.candidates) for row, group, _ in new if known.get(row) is None]
        answers = iter(compared_outcomes(self.ranker, unscored) if unscored else ())
        for row, group, seed in new:
            given = known.get(row)
            scores = next(answers) if given is None else given
            if isinstance(scores, RankerError):
                yield row, AttackOutcome(group.key, "error", str(scores))
            else:
                yield row, self._chosen(group, seed, scores, tags)

    def _chosen(
        self, group: CandidateGroup, seed: int, scores: np.ndarray, tags: Mapping[Utterance, Sequence[str]]
    ) -> AttackOutcome | CaseSearch:
        rng = stream(seed, "attack on a ranking")
        index, given = self.goal.choose(group, scores, rng), tuple(scores.tolist())
        if index is None:
            return AttackOutcome(group.key, "skipped", "no attackable reply of the goal's kind", scores=given)
        bar, near, words = self.goal.bar(group, scores, index), tolerance(scores), group.candidates[index]
        if bar is None:
            return AttackOutcome(group.key, "skipped", "fewer other replies than places at the top", index, given)
        margin = self.goal.margin(given[index], bar)
        if margin > near:
            return AttackOutcome(group.key, "skipped", REACHED_REASON, index, given)
        # The words of the newest turn come first.
        context = [tagged for turn in reversed(group.context) for tagged in zip(turn, tags[turn], strict=True)]
        case = Case(
            group=group,
            index=index,
            original=Draft.of(words, tags[words]),
            context_words=tuple(tagged for tagged in dict.fromkeys(context) if self.language.is_content(tagged[0])),
            synonyms=self._synonyms(words, tags[words]),
            language=self.language,
            moves=self.moves,
            constraints=self.constraints,
            edits=self.edits,
            seed=seed,
            rng=rng,
            margin=margin,
            tolerance=near,
            inside=Inside(self.ranker, group.context, self.goal),
        )
        ahead = _AHEAD if getattr(self.ranker, "is_free", False) else 1
        return CaseSearch(case, self.method, self.goal, bar, given, self.budget, ahead)

    def _synonyms(self, words: Utterance, tags: Sequence[str]) -> dict[Tagged, Utterance]:
        stays = self.language.stays(FlatContexts([((words,),)]))
        replaceable = [
            (word, tag)
            for word, tag, stay in zip(words, tags, stays, strict=True)
            if not stay and self.language.is_content(word) and self.language.class_of(tag) in _REPLACEABLE
        ]
        return dict(zip(replaceable, self.language.synonyms(replaceable, CAREFUL), strict=True))
