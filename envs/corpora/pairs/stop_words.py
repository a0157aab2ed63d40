"""English words that say little by themselves, and which words are content."""

from __future__ import annotations

_STOP_WORDS = """
i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it its
itself they them their theirs themselves what which who whom this that these those am is are was were be been being have has
had having do does did doing a an the and but if or because as until while of at by for with about against between into
through during before after above below to from up down in out on off over under again further then once here there when
where why how all any both each few more most other some such no nor not only own same so than too very can will just should
now n't 's 'm 're 've 'll 'd ca wo sha
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Function words of English, contractions cut as our tokeniser cuts them."""


def is_content(word: str) -> bool:
    """Whether a word is neither a stop word, nor a mark such as `<unk>`, nor punctuation."""
    return word not in STOP_WORDS and not word.startswith("<") and any(letter.isalnum() for letter in word)
