"""In which order edits are tried.

A method is a generator: it yields drafts to ask about (`Asked`) and is sent how close each comes to the goal, higher is closer
(`RankGoal.margin`). It knows neither budgets nor batches, and is closed when the goal is reached or the budget is spent. So
what it asks first does not depend on the budget, and one trace tells the success at every smaller one.

    ImportanceGreedy   words that matter most first, each by its best edit (Jin et al. 2020, "Is BERT really robust?")
    EditBeam           all edits of the best few drafts, edit after edit
    RandomEdits        the baseline
    SlopeGreedy        what a ranker's own gradient points to (Ebrahimi et al. 2018, "HotFlip")
    FixedRule          a rule of `engine/perturb/replies`: one query

GASLITE and its controls stand in `gaslite.py`. One's own needs `steps`; one that looks into the ranker says so by `needs`
(`inside.py`), one that puts words behind the reply and edits none of its own by `appends = True`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

import numpy as np

from parley.engine.ranking.attacks.case import Case
from parley.engine.ranking.attacks.drafts import NEW, Draft
from parley.engine.ranking.attacks.goals import falling
from parley.engine.ranking.attacks.model_access import SLOPES, Need

if TYPE_CHECKING:
    from parley.engine.perturb.replies.rule import Rule
    from parley.envs.corpora.pairs.turns import Utterance

DRAWS = 16
"""Random drafts that are asked about at a time."""
PATIENCE = 10
"""Times in a row that nothing new is drawn before there is nothing left."""


class Asked(NamedTuple):
    """Drafts that a method asks about.

    Args:
        drafts: in the order in which they count as queries.
        may_succeed: whether one of them may be the attack's result; not where words are erased to see what they matter.
    """

    drafts: Sequence[Draft]
    may_succeed: bool = True


Steps = Generator[Asked, np.ndarray, None]
"""Yields drafts, is sent their margins (drafts,) float64."""


class AttackMethod(Protocol):
    """An order in which edits are tried."""

    def steps(self, case: Case) -> Steps:
        """Searches for one example; all draws come from `case.rng`."""


@dataclass(frozen=True)
class ImportanceGreedy:
    """Words in falling order of what erasing them does; each gets its best edit, if that comes closer to the goal."""

    def steps(self, case: Case) -> Steps:
        """See `AttackMethod`."""
        draft, margin = case.original, case.margin
        for source in (yield from _by_importance(case)):
            place = draft.place_of(source)
            drafts = [] if place is None else case.proposals(draft, [place])
            if drafts:
                margins = yield Asked(drafts)
                best = falling(margins, case.tolerance)[0]
                if margins[best] > margin + case.tolerance:
                    draft, margin = drafts[best], margins[best]


@dataclass(frozen=True)
class EditBeam:
    """All edits of a few drafts, of which the best few go on, closer to the goal or not.

    Args:
        beams: how many go on.
    """

    beams: int = 4

    def steps(self, case: Case) -> Steps:
        """See `AttackMethod`; edits of words that matter come first, for small budgets end within a step."""
        order = yield from _by_importance(case)
        beam = [case.original]
        while beam:
            found: dict[Utterance, Draft] = {}
            for draft in beam:
                places = [place for source in order if (place := draft.place_of(source)) is not None]
                for each in case.proposals(draft, places):
                    found.setdefault(each.words, each)
            drafts = list(found.values())
            margins = yield Asked(drafts)
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
            yield Asked(drafts)

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
        """The draft after an edit that three uniform numbers choose; None where the move finds nothing to do at the place."""
        move, place = case.moves[int(shares[0] * len(case.moves))], int(shares[1] * (len(draft.words) + 1))
        changes = list(move.changes(case, draft, place))
        return draft.after(changes[int(shares[2] * len(changes))]) if changes else None


@dataclass(frozen=True)
class SlopeGreedy:
    """One replaced word after the other: of the few that the ranker's slopes promise most, the best by its scores.

    White-box: slopes are no queries, and are counted beside them. Edits that replace no word have no slope and are left out.

    Args:
        width: replacements that are asked about before one is taken.
    """

    needs: ClassVar[Need] = SLOPES

    width: int = 8

    def steps(self, case: Case) -> Steps:
        """See `AttackMethod`."""
        draft, margin, ahead = case.original, case.margin, True
        while ahead:
            drafts = [each for each in case.proposals(draft, range(len(draft.words))) if _is_replacement(each)]
            if not drafts:
                return
            changes = [each.changes[-1] for each in drafts]
            columns = {word: column for column, word in enumerate(dict.fromkeys(change.words[0] for change in changes))}
            slopes_TW = case.inside.slopes(draft.words, list(columns))
            gains = [float(slopes_TW[change.start, columns[change.words[0]]]) for change in changes]
            chosen = [drafts[i] for i in falling(gains, 0.0)[: self.width]]
            margins = yield Asked(chosen)
            best = falling(margins, case.tolerance)[0]
            ahead = bool(margins[best] > margin + case.tolerance)
            draft, margin = chosen[best], margins[best]


@dataclass(frozen=True)
class FixedRule:
    """What a rule makes of the reply alone, whatever the ranker; moves and constraints are the rule's own.

    Args:
        rule: of replies, such as IIW.
    """

    rule: Rule

    def __repr__(self) -> str:
        return f"FixedRule({self.rule.name})"

    def steps(self, case: Case) -> Steps:
        """See `AttackMethod`; nothing is asked where the rule leaves the reply untouched."""
        alone = tuple(place == case.place for place in range(len(case.group.candidates)))
        (attacked,) = self.rule.apply([replace(case.group, attackable=alone)], [case.seed])
        words, cost = attacked.group.candidates[case.place], attacked.changed[case.place]
        if words != case.original.words:
            (tags,) = case.language.tag_all([words])
            sources = [NEW] * len(words)
            for old, new, size in SequenceMatcher(None, case.original.words, words, autojunk=False).get_matching_blocks():
                sources[new : new + size] = range(old, old + size)
            edited = tuple(source == NEW for source in sources)
            yield Asked([Draft(words, tuple(tags), tuple(sources), edited, len(case.original.words), cost)])


def _by_importance(case: Case) -> Generator[Asked, np.ndarray, list[int]]:
    """Places of the original, that of the word first whose erasure comes closest to the goal; the end is last."""
    size = len(case.original.words)
    margins = yield Asked([case.original.without(place) for place in range(size)], may_succeed=False)
    return [*falling(margins, case.tolerance), size]


def _is_replacement(draft: Draft) -> bool:
    """Whether the last edit put one word in the place of one."""
    change = draft.changes[-1]
    return change.end - change.start == len(change.words) == 1
