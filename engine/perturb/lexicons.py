"""The lexicons by their names."""

from __future__ import annotations

from engine.perturb.built_in import BuiltInLexicon
from engine.perturb.lexicon import Lexicon
from engine.perturb.nltk_lexicon import NltkLexicon


def open_lexicon(name: str) -> Lexicon:
    """The lexicon of a name of `PerturbSettings.lexicon`.

    Raises:
        DataError: its data are not there; says how to get them.
    """
    return BuiltInLexicon() if name == "built-in" else NltkLexicon()
