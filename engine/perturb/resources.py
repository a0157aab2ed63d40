"""What strategies share: the words that may enter, where data lies, and a lexicon that is opened when it is first asked.

Not here: what the lexicons know (`lexicon.py`, `nltk_lexicon.py`, `built_in.py`).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from engine.perturb.settings import PerturbSettings

if TYPE_CHECKING:
    from engine.perturb.lexicon import Lexicon


@dataclass(frozen=True)
class Resources:
    """What strategies share.

    Args:
        settings: the user's.
        words: words that the model knows; only these may enter a context. None lets every word enter.
        common: words that random inputs are drawn from; most frequent first.
        data_root: where corpora lie.
        device: torch device of the paraphraser.
    """

    settings: PerturbSettings
    words: Container[str] | None = None
    common: Sequence[str] = ()
    data_root: Path | None = None
    device: str = "cpu"

    def may_enter(self, words: Sequence[str]) -> bool:
        """Whether a model knows all of these words."""
        return self.words is None or all(word in self.words for word in words)

    @cached_property
    def lexicon(self) -> Lexicon:
        """The lexicon that the settings name.

        Raises:
            DataError: NLTK's data are not there.
        """
        from engine.perturb.lexicon import open_lexicon

        return open_lexicon(self.settings.lexicon)
