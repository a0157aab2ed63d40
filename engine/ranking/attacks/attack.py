"""A composed attack on a ranker, and how many examples share its batches.

    from parley.engine.ranking import AttackSettings, compose_attack

    attack = compose_attack(ranker, language, AttackSettings(goal="promote", edits=3, budget=500))
    print(attack)
    outcomes = attack.run(groups, seeds)

The ranker is a black box: a query is one context and candidate scored. The scores of a group before any edit are given, as they
stand in every table, and are no queries; what is asked twice counts once. What comes of an example depends on its group, its
seed and the composition alone, whoever shares its batches: draws are its own, and scores that differ by less than what a batch
does to a network are equal (`goals.TOLERANCE`). So an example that was interrupted is begun again, and gives the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from parley.engine.perturb.strategies.flat import FlatContexts
from parley.engine.ranking.attacks.case import Case
from parley.engine.ranking.attacks.constraints import AtMostWords, Constraint, NoOtherCandidate
from parley.engine.ranking.attacks.drafts import Draft
from parley.engine.ranking.attacks.goals import RankGoal, tolerance
from parley.engine.ranking.attacks.methods import AttackMethod, ImportanceGreedy
from parley.engine.ranking.attacks.model_access import Inside, Need
from parley.engine.ranking.attacks.moves import BY_NAME, EditMove
from parley.engine.ranking.attacks.outcomes import AttackOutcome
from parley.engine.ranking.attacks.search import CaseSearch
from parley.engine.ranking.attacks.settings import MOVES
from parley.engine.ranking.metrics.searched import REACHED_REASON
from parley.envs.core.config import check
from parley.envs.core.errors import ConfigError, RankerError
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup
from parley.policies.ranking.ranker import Ranker, UnscoredError, compared_outcomes

if TYPE_CHECKING:
    from parley.engine.perturb.replies.language import ReplyLanguage, Tagged
from parley.engine.perturb.replies.settings import CAREFUL

_REPLACEABLE = ("noun", "verb", "adjective", "adverb")
"""Classes of words that synonyms may replace; names are one of their own."""


class RankAttack:
    """A method, composed with the ranker, the goal, and what edits may do.

    Args:
        ranker: any.
        language: tags words and knows synonyms.
        goal: what is wanted.
        method: in which order edits are tried.
        moves: ways to edit; those that suit the goal when None.
        constraints: what drafts keep to, beside the number of words and that no candidate comes twice.
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
        need: Need | None = getattr(self.method, "needs", None)
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

    def run(self, groups: Sequence[CandidateGroup], seeds: Sequence[int]) -> list[AttackOutcome]:
        """Attacks a reply of each group.

        Args:
            groups: contexts and candidates.
            seeds: one for each group, at least 0.

        Returns:
            What came of each, in their order; where the ranker gives no scores, why.
        """
        waiting = iter(zip(range(len(groups)), groups, seeds, strict=True))
        found: dict[int, AttackOutcome] = {}
        active: dict[int, CaseSearch] = {}
        while len(found) < len(groups):
            new = list(islice(waiting, self.num_side_by_side - len(active)))
            for row, begun in self._begin(new) if new else ():
                if isinstance(begun, AttackOutcome):
                    found[row] = begun
                else:
                    active[row] = begun
            drafts_by_row = {row: search.wanted() for row, search in active.items() if not search.is_over}
            pairs = [(active[row].case.group.context, drafts) for row, drafts in drafts_by_row.items()]
            for row, scores in zip(drafts_by_row, compared_outcomes(self.ranker, pairs), strict=True):
                if isinstance(scores, UnscoredError) and len(drafts_by_row[row]) > 1:
                    context = active[row].case.group.context
                    apart = compared_outcomes(self.ranker, [(context, [draft]) for draft in drafts_by_row[row]])
                    active[row].tell_apart(drafts_by_row[row], apart)
                else:
                    active[row].tell(drafts_by_row[row], scores)
            for row in [row for row, search in active.items() if search.is_over]:
                found[row] = active.pop(row).outcome()
        return [found[row] for row in range(len(groups))]

    def _begin(self, new: Sequence[tuple[int, CandidateGroup, int]]) -> Iterator[tuple[int, AttackOutcome | CaseSearch]]:
        """Scores groups before any edit, and chooses what is edited."""
        replies = [words for _, group, _ in new for words in (*group.context, *group.candidates)]
        tags = dict(zip(replies, self.language.tag_all(replies), strict=True))
        scored = compared_outcomes(self.ranker, [(group.context, group.candidates) for _, group, _ in new])
        for (row, group, seed), scores in zip(new, scored, strict=True):
            if isinstance(scores, RankerError):
                yield row, AttackOutcome(group.key, "error", str(scores))
            else:
                yield row, self._chosen(group, seed, scores, tags)

    def _chosen(
        self, group: CandidateGroup, seed: int, scores: np.ndarray, tags: Mapping[Utterance, Sequence[str]]
    ) -> AttackOutcome | CaseSearch:
        rng = stream(seed, "attack on a ranking")
        place, given = self.goal.choose(group, scores, rng), tuple(scores.tolist())
        if place is None:
            return AttackOutcome(group.key, "skipped", "no attackable reply of the goal's kind", scores=given)
        bar, near, words = self.goal.bar(group, scores, place), tolerance(scores), group.candidates[place]
        if bar is None:
            return AttackOutcome(group.key, "skipped", "fewer other replies than places at the top", place, given)
        margin = self.goal.margin(given[place], bar)
        if margin > near:
            return AttackOutcome(group.key, "skipped", REACHED_REASON, place, given)
        case = Case(
            group=group,
            place=place,
            original=Draft.of(words, tags[words]),
            context_words=self._context_words(group, tags),
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
        return CaseSearch(case, self.method, self.goal, bar, given, self.budget)

    def _context_words(self, group: CandidateGroup, tags: Mapping[Utterance, Sequence[str]]) -> tuple[Tagged, ...]:
        found = [tagged for turn in reversed(group.context) for tagged in zip(turn, tags[turn], strict=True)]
        return tuple(dict.fromkeys((word, tag) for word, tag in found if self.language.is_content(word)))

    def _synonyms(self, words: Utterance, tags: Sequence[str]) -> dict[Tagged, Utterance]:
        stays = self.language.stays(FlatContexts([((words,),)]))
        asked = [
            (word, tag)
            for word, tag, stay in zip(words, tags, stays, strict=True)
            if not stay and self.language.is_content(word) and self.language.class_of(tag) in _REPLACEABLE
        ]
        return dict(zip(asked, self.language.synonyms(asked, CAREFUL), strict=True))
