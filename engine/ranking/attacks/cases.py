"""Examples under attack: drafts, moves, constraints, white-box access to a ranker, and the outcomes of attacks.

A draft is a reply under edit. A move proposes changes of one place of it; a constraint accepts or rejects the edited reply.
Constraints are checked before the ranker is queried, so a rejected draft costs no query. White-box methods also read a
ranker's gradients and vocabulary; this costs no query either. Outcomes give success against queries, and transfer.

Your own move needs a `name` and `changes`; your own constraint needs `allows`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from parley.engine.core.stats.statistics import Estimate, clustered_rate
from parley.engine.ranking.metrics.searched import QUERIES
from parley.envs.core.errors import RankerError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.edit_game import RankGoal, tolerance
from parley.envs.ranking.groups import CandidateGroup, Context
from parley.policies.ranking.ranker import Ranker, SlopedRanker, VocabularyRanker, compared_outcomes

if TYPE_CHECKING:
    from parley.engine.perturb.lexicon.tagger import NGrams
    from parley.engine.perturb.replies.language import ReplyLanguage, Tagged


class Requirement(NamedTuple):
    """The access to a ranker that a method needs beside scores; a method sets it as `needs`.

    Args:
        protocol: of rankers that give it.
        what: such as "slopes".
        fix: for users of a ranker without it.
    """

    protocol: type
    what: str
    fix: str

    def is_met(self, ranker: Ranker) -> bool:
        """Return True if a ranker gives it."""
        return isinstance(ranker, self.protocol)


SLOPES = Requirement(
    SlopedRanker,
    "slopes",
    "take methods that ask for scores alone: greedy, beam, random; or give the ranker a method slopes "
    "(policies/ranking/ranker.py)",
)
VOCABULARY = Requirement(
    VocabularyRanker,
    "words of a vocabulary",
    "name a bi-encoder as the ranker (hf:FOLDER), or take methods that ask for scores alone: greedy, beam, random",
)


class Inside:
    """White-box access to a ranker in one example; ask only for what the ranker gives (`Requirement`).

    Args:
        ranker: any.
        context: of the example.
        goal: whether higher scores are closer to it.
    """

    def __init__(self, ranker: Ranker, context: Context, goal: RankGoal) -> None:
        self._ranker, self._context, self._sign = ranker, context, goal.margin(1.0, 0.0)
        self.num_slopes = 0
        """Number of gradients so far."""

    @property
    def vocabulary(self) -> Sequence[str]:
        """Words that the ranker reads as one token each."""
        return cast(VocabularyRanker, self._ranker).vocabulary()

    def reads(self, reply: Utterance, words: Utterance) -> bool:
        """Return True if the ranker reads the reply as before and one token for each appended word."""
        return cast(VocabularyRanker, self._ranker).reads(reply, words)

    def slopes(self, reply: Utterance, words: Sequence[str]) -> np.ndarray:
        """Return the first-order gain of each word (W,) at each position of a reply (T,), as an array (T, W).

        Raises:
            RankerError: the ranker raised, or did not give one finite number for each.
        """
        self.num_slopes += 1
        try:
            slopes = np.asarray(cast(SlopedRanker, self._ranker).slopes(self._context, reply, words), dtype=np.float64)
        except Exception as error:
            what = "the ranker raised an error when it was asked for slopes"
            raise RankerError(what, where=type(self._ranker).__name__, got=f"{type(error).__name__}: {error}") from error
        if slopes.shape != (len(reply), len(words)) or not np.isfinite(slopes).all():
            raise RankerError(
                "the ranker's slopes are not one finite number for each place and word",
                where=type(self._ranker).__name__,
                got=f"shape {slopes.shape} for {len(reply)} places and {len(words)} words",
                fix="return an array (words of the reply, words to try)",
            )
        return self._sign * slopes


NEW = -1
"""The source of a word that stands for none of the original."""


class Change(NamedTuple):
    """One edit of a draft.

    Args:
        move: the name of the move that proposed it.
        start: where the words that go begin.
        end: and end.
        words: their replacement.
        tags: of these.
        sources: places in the original of the words that these are or stand for; `NEW` for inserted ones.
    """

    move: str
    start: int
    end: int
    words: Utterance
    tags: tuple[str, ...]
    sources: tuple[int, ...]

    @property
    def cost(self) -> int:
        """Number of words that it changes."""
        return max(self.end - self.start, len(self.words))


@dataclass(frozen=True)
class Draft:
    """A reply as it is edited so far. No word is edited twice, so that costs add up.

    Args:
        words: of the reply.
        tags: of its words; a word that stands for another has the tag of that.
        sources: for each word the position of its original word, `NEW` if it was inserted.
        edited: which words are not as they were, or not where they were.
        cost: words changed: replaced, inserted, deleted, two for a swap.
        num_original: words of the original.
        changes: all edits in their order, each with places in the draft that it was made on.
    """

    words: Utterance
    tags: tuple[str, ...]
    sources: tuple[int, ...]
    edited: tuple[bool, ...]
    num_original: int
    cost: int = 0
    changes: tuple[Change, ...] = ()

    @classmethod
    def of(cls, words: Utterance, tags: Sequence[str]) -> Self:
        """Make a draft of an unedited reply."""
        return cls(words, tuple(tags), tuple(range(len(words))), (False,) * len(words), len(words))

    def may_change(self, start: int, end: int) -> bool:
        """Return whether no word from start to end is edited yet."""
        return end <= len(self.words) and not any(self.edited[start:end])

    def after(self, change: Change) -> Draft:
        """Return the draft with one more edit."""
        start, end = change.start, change.end
        return Draft(
            (*self.words[:start], *change.words, *self.words[end:]),
            (*self.tags[:start], *change.tags, *self.tags[end:]),
            (*self.sources[:start], *change.sources, *self.sources[end:]),
            (*self.edited[:start], *(True for _ in change.words), *self.edited[end:]),
            self.num_original,
            self.cost + change.cost,
            (*self.changes, change),
        )

    def position_of(self, source: int) -> int | None:
        """Return the current position of a word of the original or of its replacement; None if it is gone."""
        if source in self.sources:
            return self.sources.index(source)
        return len(self.words) if source == self.num_original else None

    def without(self, position: int) -> Draft:
        """Return the draft with one word erased, to measure how much it matters."""
        return self.after(Change("erasure", position, position + 1, (), (), ()))

    def replaced(self, position: int, word: str, move: str) -> Change:
        """Return the change that replaces one word."""
        return Change(move, position, position + 1, (word,), (self.tags[position],), (self.sources[position],))


class EditMove(Protocol):
    """A way to edit a reply."""

    @property
    def name(self) -> str:
        """Such as "synonym"."""

    def changes(self, case: Case, draft: Draft, position: int) -> Iterable[Change]:
        """Return the edits at one position in a fixed order.

        Args:
            case: the example: its context words, its language.
            draft: to edit.
            position: of a word, or the number of words: behind the last one.
        """


class ContextWord:
    """A word becomes a word of the context that has its tag there (IIW of Li et al. 2019, one word at a time)."""

    name = "context"

    def changes(self, case: Case, draft: Draft, position: int) -> Iterable[Change]:
        """See `EditMove`; both words say something by themselves, and none comes that the reply has already."""
        if (
            position < len(draft.words)
            and draft.may_change(position, position + 1)
            and case.language.is_content(draft.words[position])
        ):
            for word in case.words_by_tag.get(draft.tags[position], ()):
                if word not in draft.words:
                    yield draft.replaced(position, word, self.name)


class SynonymWord:
    """A word becomes a synonym of its main sense, in its form (RSW of Li et al. 2019, one word at a time)."""

    name = "synonym"

    def changes(self, case: Case, draft: Draft, position: int) -> Iterable[Change]:
        """See `EditMove`; names and parts of commands stay."""
        if position < len(draft.words) and draft.may_change(position, position + 1):
            word, before = draft.words[position], draft.words[position - 1] if position else ""
            for other in case.synonyms.get((word, draft.tags[position]), ()):
                if case.language.fits(before, word, other):
                    yield draft.replaced(position, other, self.name)


class InsertedWord:
    """A word of the context comes in before a word, or at the end."""

    name = "insertion"

    def changes(self, case: Case, draft: Draft, position: int) -> Iterable[Change]:
        """See `EditMove`; none comes that the reply has already."""
        for word, tag in case.context_words:
            if word not in draft.words:
                yield Change(self.name, position, position, (word,), (tag,), (NEW,))


class DeletedWord:
    """A word goes, if it is not the only one."""

    name = "deletion"

    def changes(self, case: Case, draft: Draft, position: int) -> Iterable[Change]:
        """See `EditMove`."""
        if position < len(draft.words) > 1 and draft.may_change(position, position + 1):
            yield Change(self.name, position, position + 1, (), (), ())


class SwappedWords:
    """A word changes places with the next one."""

    name = "swap"

    def changes(self, case: Case, draft: Draft, position: int) -> Iterable[Change]:
        """See `EditMove`."""
        end = position + 2
        if draft.may_change(position, end) and draft.words[position] != draft.words[position + 1]:
            first, second = (part[position:end][::-1] for part in (draft.words, draft.tags))
            yield Change(self.name, position, end, first, second, draft.sources[position:end][::-1])


BY_NAME: dict[str, EditMove] = {
    move.name: move for move in (ContextWord(), SynonymWord(), InsertedWord(), DeletedWord(), SwappedWords())
}
"""The moves by their names in settings."""


Vectors = Callable[[Sequence[Utterance]], np.ndarray]
"""Vectors of texts (texts, E)."""


class Constraint(Protocol):
    """A rule that drafts must keep."""

    def allows(self, case: Case, drafts: Sequence[Draft]) -> Sequence[bool]:
        """Test whether each draft keeps to the rule.

        Args:
            case: the example; `case.original` is the reply before any edit.
            drafts: at least one.
        """


@dataclass(frozen=True)
class AtMostWords:
    """Few words are changed.

    Args:
        edits: how many at most.
    """

    edits: int

    def allows(self, case: Case, drafts: Sequence[Draft]) -> list[bool]:
        """See `Constraint`."""
        return [draft.cost <= self.edits for draft in drafts]


@dataclass(frozen=True)
class NoOtherCandidate:
    """The edited reply is neither the original nor another candidate of the group."""

    def allows(self, case: Case, drafts: Sequence[Draft]) -> list[bool]:
        """See `Constraint`."""
        return [draft.words not in case.group.candidates for draft in drafts]


@dataclass(frozen=True)
class KnownWords:
    """Words that enter are known.

    Args:
        words: such as the vocabulary of a model or a corpus.
    """

    words: Container[str] = field(repr=False)

    def allows(self, case: Case, drafts: Sequence[Draft]) -> list[bool]:
        """See `Constraint`; words that are as they were need not be known."""
        return [
            all(word in self.words for word, edited in zip(draft.words, draft.edited, strict=True) if edited)
            for draft in drafts
        ]


@dataclass(frozen=True)
class KeptTags:
    """Tagged again, every word has the tag that it had, or that the word had which it replaces."""

    language: ReplyLanguage = field(repr=False)

    def allows(self, case: Case, drafts: Sequence[Draft]) -> list[bool]:
        """See `Constraint`."""
        return self.language.are_tags([draft.words for draft in drafts], [draft.tags for draft in drafts])


@dataclass(frozen=True)
class Fluent:
    """The reply stays fluent: its perplexity is at most a multiple of the original's.

    Args:
        ngrams: the trigrams that judge; of a training split.
        ratio: the largest multiple.
    """

    ngrams: NGrams = field(repr=False)
    ratio: float

    def allows(self, case: Case, drafts: Sequence[Draft]) -> list[bool]:
        """See `Constraint`."""
        before, *after = map(np.mean, self.ngrams.log_probabilities([case.original.words, *(draft.words for draft in drafts)]))
        return [bool(np.exp(before - mean) <= self.ratio) for mean in after]


@dataclass(frozen=True)
class CloseInMeaning:
    """The reply's vector points where the original's does.

    Args:
        vectors: of texts.
        cosine: the least of the two.
    """

    vectors: Vectors = field(repr=False)
    cosine: float

    def allows(self, case: Case, drafts: Sequence[Draft]) -> list[bool]:
        """See `Constraint`; a text whose vector is zero is close to none."""
        texts_NE = np.asarray(self.vectors([case.original.words, *(draft.words for draft in drafts)]), dtype=np.float64)
        norms_N = np.linalg.norm(texts_NE, axis=1)
        products = texts_NE[1:] @ texts_NE[0]
        return [
            bool(norm > 0 and product >= self.cosine * norm * norms_N[0])
            for product, norm in zip(products, norms_N[1:], strict=True)
        ]


class MeanVectors:
    """Vectors of texts as the means of their words'.

    Args:
        vectors: of words (E,); others count as zero.
        size: E.
    """

    def __init__(self, vectors: Mapping[str, np.ndarray], size: int) -> None:
        self._vectors, self._none = vectors, np.zeros(size)

    def __call__(self, texts: Sequence[Utterance]) -> np.ndarray:
        """Return the mean word vectors of texts (texts, E)."""
        return np.stack(
            [np.mean([self._vectors.get(word, self._none) for word in text] or [self._none], axis=0) for text in texts]
        )


@dataclass(frozen=True, eq=False)
class Case:
    """An example as methods, moves and constraints see it.

    Args:
        group: context and candidates.
        index: of the candidate that is edited.
        original: that candidate.
        context_words: distinct words of the context that say something, with their tags, those of the newest turn first.
        synonyms: of words of the original, by the word and its tag.
        language: of the words.
        moves: ways to edit.
        constraints: on every draft.
        edits: words changed at most; as many are appended by methods that append.
        seed: the example's.
        rng: draws that belong to the example.
        margin: of the original, see `RankGoal.margin`; at most the tolerance.
        tolerance: difference of margins up to which they are equal.
        inside: white-box access to the ranker.
    """

    group: CandidateGroup
    index: int
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
        words: dict[str, list[str]] = {}
        for word, tag in self.context_words:
            words.setdefault(tag, []).append(word)
        return words

    def proposals(self, draft: Draft, positions: Iterable[int]) -> list[Draft]:
        """Return the drafts that one more edit at some positions makes: distinct texts, all allowed.

        Args:
            draft: to edit.
            positions: of words; the number of words stands for the end.
        """
        drafts: dict[Utterance, Draft] = {}
        for position in positions:
            for move in self.moves:
                for change in move.changes(self, draft, position):
                    after = draft.after(change)
                    drafts.setdefault(after.words, after)
        return self.allowed(list(drafts.values()))

    def allowed(self, drafts: list[Draft]) -> list[Draft]:
        """Return the drafts that keep to all constraints."""
        for constraint in self.constraints:
            if not drafts:
                break
            drafts = [draft for draft, allows in zip(drafts, constraint.allows(self, drafts), strict=True) if allows]
        return drafts


Status = Literal["success", "failure", "skipped", "error"]


class TracePoint(NamedTuple):
    """A draft that came closer to the goal than all before it.

    Args:
        queries: made until then, its own included.
        margin: how close, see `RankGoal.margin`.
        cost: words changed.
    """

    queries: int
    margin: float
    cost: int


@dataclass(frozen=True)
class AttackOutcome:
    """The result of the attack on one example.

    Args:
        key: of the group.
        status: success; failure: budget or edits ran out; skipped: nothing to attack; error: the ranker gave no scores.
        reason: why there is no success, or why none was tried.
        index: of the edited candidate; None where none was chosen.
        scores: of all candidates before any edit, as they are compared (`compared_outcomes`); empty when there are none.
        words: the edited reply, the closest to the goal that was found.
        edited: which of its words are not as they were.
        cost: words changed.
        moves: names of the edits in their order.
        score: of the edited reply, on the same scale.
        queries: made; the scores before any edit are none.
        num_scored: texts that the ranker scored, those ahead included; equal to the queries unless it is free.
        num_slopes: gradients asked for.
        num_unscored: drafts that the ranker gave no score; they are taken to be no closer to the goal than the reply as it was.
        trace: of the drafts that came closer.
    """

    key: str
    status: Status
    reason: str = ""
    index: int | None = None
    scores: tuple[float, ...] = ()
    words: Utterance = ()
    edited: tuple[bool, ...] = ()
    cost: int = 0
    moves: tuple[str, ...] = ()
    score: float | None = None
    queries: int = 0
    num_scored: int = 0
    num_slopes: int = 0
    num_unscored: int = 0
    trace: tuple[TracePoint, ...] = ()

    @property
    def was_tried(self) -> bool:
        """True if there was a reply to attack and the ranker gave scores."""
        return self.status in ("success", "failure")

    def succeeded_by(self, queries: int) -> bool:
        """Return True if it succeeded with at most so many queries; an attack ends when it succeeds."""
        return self.status == "success" and self.queries <= queries

    def ranks(self) -> tuple[float, float] | None:
        """Return the rank of the reply before and after, from 1, ties shared; None if nothing was scored."""
        if self.index is None or self.score is None:
            return None
        other_scores, near = np.delete(self.scores, self.index), tolerance(np.array(self.scores))
        before, after = (
            1 + np.count_nonzero(other_scores > score + near) + np.count_nonzero(np.abs(other_scores - score) <= near) / 2
            for score in (self.scores[self.index], self.score)
        )
        return float(before), float(after)


def success_curve(
    outcomes: Sequence[AttackOutcome], budget: int, at: Sequence[int] = QUERIES, dialogues: ArrayLike | None = None
) -> list[tuple[int, Estimate]]:
    """Return success rates against queries, with intervals; skipped and failed examples do not count.

    Args:
        outcomes: of one attack.
        budget: which it had; nothing is known of more queries than that.
        at: numbers of queries.
        dialogues: of the outcomes, in their order, as in `CandidateSplit.dialogues`; each has its own if not given.
    """
    tried = np.array([outcome.was_tried for outcome in outcomes], dtype=bool)
    clusters = None if dialogues is None else np.asarray(dialogues)[tried]
    budgets = sorted({queries for queries in at if queries <= budget} | {budget})
    successes = {queries: np.array([outcome.succeeded_by(queries) for outcome in outcomes])[tried] for queries in budgets}
    return [(queries, clustered_rate(successes[queries], clusters)) for queries in budgets]


def transferred(
    outcomes: Sequence[AttackOutcome], groups: Sequence[CandidateGroup], goal: RankGoal, ranker: Ranker
) -> list[bool | RankerError | None]:
    """Test whether edits from an attack on one ranker reach the same goal on another.

    Args:
        outcomes: of an attack.
        groups: of the outcomes, in their order.
        goal: of the attack.
        ranker: another one.

    Returns:
        Of each example whether they do, or why the ranker gave no scores; None where nothing was edited, or where the other
        ranker puts the reply where it is wanted before any edit.
    """
    results: list[bool | RankerError | None] = [None] * len(outcomes)
    rows = [row for row, outcome in enumerate(outcomes) if outcome.was_tried and outcome.cost]
    pairs = [(groups[row].context, (*groups[row].candidates, outcomes[row].words)) for row in rows]
    for row, scored in zip(rows, compared_outcomes(ranker, pairs), strict=True):
        if isinstance(scored, RankerError):
            results[row] = scored
            continue
        index, scores, edited = outcomes[row].index, scored[:-1], float(scored[-1])
        assert index is not None, "an edited reply has an index"
        bar, near = goal.bar(groups[row], scores, index), tolerance(scores)
        if bar is not None and goal.margin(float(scores[index]), bar) <= near:
            results[row] = goal.margin(edited, bar) > near
    return results
