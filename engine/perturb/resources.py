"""What strategies share: the words that may enter, where data lies, and a lexicon that is opened when it is first asked.

Not here: what the lexicons know (`lexicon.py`, `nltk_lexicon.py`, `built_in.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from parley.engine.perturb.settings import PerturbSettings
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.contexts import said

if TYPE_CHECKING:
    from parley.engine.perturb.lexicon.lexicon import Lexicon
    from parley.engine.perturb.lexicon.ngrams import NGrams

ENOUGH = 500_000
"""Words of a corpus at least whose trigrams judge edits: those of less text find odd what they have not met."""
HELP_CHANNELS = frozenset({"ubuntu_irc", "ubuntu_dialogues", "helpdesk", "helpdesk_paraphrases"})
"""Corpora of people who ask for help with computers."""
USUAL = 3
"""How often a corpus says a word at least that is called usual."""


@dataclass(frozen=True)
class Resources:
    """What strategies share.

    Args:
        settings: the user's.
        words: words that the model knows; only these may enter a context. None lets every word enter. What is no collection
            tells of any word whether a model can spell it.
        common: words that random inputs are drawn from; most frequent first.
        data_root: where corpora lie.
        device: torch device of the paraphraser.
        corpus: whose training split says what is usual and fluent unless the settings name one; empty: none is at hand.
    """

    settings: PerturbSettings
    words: Container[str] | None = None
    common: Sequence[str] = ()
    data_root: Path | None = None
    device: str = "cpu"
    corpus: str = ""

    def may_enter(self, words: Sequence[str]) -> bool:
        """Whether a model knows all of these words."""
        return self.words is None or all(word in self.words for word in words)

    @property
    def listed(self) -> Container[str]:
        """The words that the model knows as such; none where it spells them, or no model is named."""
        return self.words if isinstance(self.words, Collection) else ()

    def is_usual(self, word: str) -> bool:
        """Whether a word may enter and the corpus says it a few times; where no corpus is at hand, the first alone."""
        return self.may_enter((word,)) and (self.language is None or self.language.counts[word] >= USUAL)

    @property
    def is_help_channel(self) -> bool:
        """Whether the corpus is one that this project's lists of such channels were written from."""
        return (self.settings.corpus or self.corpus) in HELP_CHANNELS

    @property
    def language(self) -> NGrams | None:
        """The trigrams of a corpus that is large enough to judge edits; None where none is at hand.

        Raises:
            DataError: the corpus cannot be read.
        """
        found = self.trigrams
        return found if found is not None and found.num_words >= ENOUGH else None

    @cached_property
    def trigrams(self) -> NGrams | None:
        """Those of the corpus, however small; None where none is at hand.

        Raises:
            DataError: the corpus cannot be read.
        """
        from parley.engine.perturb.lexicon.ngrams import NGrams

        corpus = self.settings.corpus or self.corpus
        if not corpus:
            return None
        return NGrams(said(load_pairs(corpus, self.data_root, every_word=True), "train"))

    @cached_property
    def lexicon(self) -> Lexicon:
        """The lexicon that the settings name.

        Raises:
            DataError: NLTK's data are not there.
        """
        from parley.engine.perturb.lexicon.lexicons import open_lexicon

        return open_lexicon(self.settings.lexicon)
