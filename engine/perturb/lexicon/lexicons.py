"""The lexicons by their names."""

from __future__ import annotations

from parley.engine.perturb.lexicon.built_in import BuiltInLexicon
from parley.engine.perturb.lexicon.lexicon import Lexicon
from parley.engine.perturb.lexicon.nltk_lexicon import NltkLexicon


def open_lexicon(name: str) -> Lexicon:
    """The lexicon of a name of `PerturbSettings.lexicon`.

    Raises:
        DataError: its data are not there; says how to get them.
    """
    return BuiltInLexicon() if name == "built-in" else NltkLexicon()
