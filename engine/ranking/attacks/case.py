"""One example under attack: the reply that is edited, what may enter it, and which edits are allowed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from parley.engine.ranking.attacks.constraints import Constraint
from parley.engine.ranking.attacks.drafts import Draft
from parley.engine.ranking.attacks.model_access import Inside
from parley.engine.ranking.attacks.moves import EditMove
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup

if TYPE_CHECKING:
    from parley.engine.perturb.replies.language import ReplyLanguage, Tagged


@dataclass(frozen=True, eq=False)
class Case:
    """An example as methods, moves and constraints see it.

    Args:
        group: context and candidates.
        place: of the candidate that is edited.
        original: that candidate.
        context_words: distinct words of the context that say something, with their tags, those of the newest turn first.
        synonyms: of words of the original, by the word and its tag.
        language: of the words.
        moves: ways to edit.
        constraints: what every draft keeps to.
        edits: words changed at most; as many are appended by methods that append.
        seed: the example's.
        rng: draws that belong to the example.
        margin: of the original, see `RankGoal.margin`; at most the tolerance.
        tolerance: difference of margins up to which they are equal.
        inside: what white-box methods see of the ranker.
    """

    group: CandidateGroup
    place: int
    original: Draft
    context_words: tuple[Tagged, ...]
    synonyms: Mapping[Tagged, Utterance]
    language: ReplyLanguage
    moves: Sequence[EditMove]
    constraints: Sequence[Constraint]
    edits: int
    seed: int
    rng: np.random.Generator
    margin: float
    tolerance: float
    inside: Inside

    @cached_property
    def words_by_tag(self) -> dict[str, list[str]]:
        """The context's words by their tags."""
        found: dict[str, list[str]] = {}
        for word, tag in self.context_words:
            found.setdefault(tag, []).append(word)
        return found

    def proposals(self, draft: Draft, places: Iterable[int]) -> list[Draft]:
        """What one more edit of some places may make of a draft: distinct texts, all allowed.

        Args:
            draft: what is edited.
            places: of words; the number of words stands for the end.
        """
        found: dict[Utterance, Draft] = {}
        for place in places:
            for move in self.moves:
                for change in move.changes(self, draft, place):
                    after = draft.after(change)
                    found.setdefault(after.words, after)
        return self.allowed(list(found.values()))

    def allowed(self, drafts: list[Draft]) -> list[Draft]:
        """The drafts that keep to all constraints."""
        for constraint in self.constraints:
            if not drafts:
                break
            drafts = [draft for draft, allows in zip(drafts, constraint.allows(self, drafts), strict=True) if allows]
        return drafts
