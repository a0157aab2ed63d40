"""How a draft may be edited. A move proposes changes of one place; what is allowed of them, constraints say.

A move of your own needs a `name` and `changes`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from parley.engine.ranking.attacks.drafts import NEW, Change, Draft

if TYPE_CHECKING:
    from parley.engine.ranking.attacks.case import Case


class EditMove(Protocol):
    """A way to edit a reply."""

    @property
    def name(self) -> str:
        """Such as "synonym"."""

    def changes(self, case: Case, draft: Draft, place: int) -> Iterable[Change]:
        """Edits of one place in a fixed order.

        Args:
            case: the example: its context words, its language.
            draft: what is edited.
            place: of a word, or the number of words: behind the last one.
        """


class ContextWord:
    """A word becomes a word of the context that has its tag there (IIW of Li et al. 2019, one word at a time)."""

    name = "context"

    def changes(self, case: Case, draft: Draft, place: int) -> Iterable[Change]:
        """See `EditMove`; both words say something by themselves, and none comes that the reply has already."""
        if place < len(draft.words) and draft.may_change(place, place + 1) and case.language.is_content(draft.words[place]):
            for word in case.words_by_tag.get(draft.tags[place], ()):
                if word not in draft.words:
                    yield draft.replaced(place, word, self.name)


class SynonymWord:
    """A word becomes a synonym of its main sense, in its form (RSW of Li et al. 2019, one word at a time)."""

    name = "synonym"

    def changes(self, case: Case, draft: Draft, place: int) -> Iterable[Change]:
        """See `EditMove`; names stay, and what belongs to a command."""
        if place < len(draft.words) and draft.may_change(place, place + 1):
            word, before = draft.words[place], draft.words[place - 1] if place else ""
            for other in case.synonyms.get((word, draft.tags[place]), ()):
                if case.language.fits(before, word, other):
                    yield draft.replaced(place, other, self.name)


class InsertedWord:
    """A word of the context comes in before a word, or at the end."""

    name = "insertion"

    def changes(self, case: Case, draft: Draft, place: int) -> Iterable[Change]:
        """See `EditMove`; none comes that the reply has already."""
        for word, tag in case.context_words:
            if word not in draft.words:
                yield Change(self.name, place, place, (word,), (tag,), (NEW,))


class DeletedWord:
    """A word goes, if it is not the only one."""

    name = "deletion"

    def changes(self, case: Case, draft: Draft, place: int) -> Iterable[Change]:
        """See `EditMove`."""
        if place < len(draft.words) > 1 and draft.may_change(place, place + 1):
            yield Change(self.name, place, place + 1, (), (), ())


class SwappedWords:
    """A word changes places with the next one."""

    name = "swap"

    def changes(self, case: Case, draft: Draft, place: int) -> Iterable[Change]:
        """See `EditMove`."""
        end = place + 2
        if draft.may_change(place, end) and draft.words[place] != draft.words[place + 1]:
            first, second = (part[place:end][::-1] for part in (draft.words, draft.tags))
            yield Change(self.name, place, end, first, second, draft.sources[place:end][::-1])


BY_NAME: dict[str, EditMove] = {
    move.name: move for move in (ContextWord(), SynonymWord(), InsertedWord(), DeletedWord(), SwappedWords())
}
"""Those that settings name."""
