"""A lexicon of a few words, so that strategies are tested without any data, and contexts to perturb."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from parley.engine.perturb.catalogue import ENOUGH
from parley.engine.perturb.lexicon.tagger import NGrams

_TAGS = {
    "tried": "VBD",
    "runs": "VBZ",
    "closes": "VBZ",
    "is": "VBZ",
    "installing": "VBG",
    "packages": "NNS",
    "disks": "NNS",
    "old": "JJ",
}
_FORMS = {
    ("tried", "VB"): "try",
    ("runs", "VB"): "run",
    ("installing", "VB"): "install",
    ("packages", "NN"): "package",
    ("disks", "NN"): "disk",
    ("is", "VB"): "be",
    ("disk", "NN"): "disk",
    ("drive", "NN"): "drive",
    ("drive", "NNS"): "drives",
    ("closes", "VB"): "close",
    ("shut", "VBZ"): "shuts",
    ("record", "NNS"): "records",
    ("diskette", "NN"): "diskette",
    ("close", "NN"): "close",
    ("shut", "NN"): "shut",
}


SAME_SENSE = {("disk", "drive", "n"), ("close", "shut", "v")}
"""Words of one sense, in the order in which they are asked for."""


class FakeLexicon:
    """Knows a handful of words."""

    stopwords = frozenset({"i", "you", "the", "a", "is", "on", "of", "do", "n't", "not", "so", "at", "'re"})
    paraphrases: Mapping[tuple[str, ...], tuple[tuple[str, ...], ...]] = {}

    def tag(self, words: Sequence[str]) -> list[str]:
        return [_TAGS.get(word, "NN") for word in words]

    def tag_all(self, utterances: Sequence[tuple[str, ...]]) -> list[list[str]]:
        return [self.tag(words) for words in utterances]

    def are_tags(self, utterances: Sequence[tuple[str, ...]], tags: Sequence[Sequence[str]]) -> list[bool]:
        return [self.tag(words) == list(own) for words, own in zip(utterances, tags, strict=True)]

    def antonyms(self, word: str, part_of_speech: str | None) -> tuple[str, ...]:
        return {"old": ("new", "young")}.get(word, ())

    def opposites(self, word: str, part_of_speech: str) -> tuple[str, ...]:
        return ()

    def same_sense(self, word: str, other: str, part_of_speech: str) -> bool:
        return (word, other, part_of_speech) in SAME_SENSE

    def inflect(self, word: str, tag: str) -> str | None:
        return _FORMS.get((word, tag))


def large(said: Sequence[tuple[str, ...]]) -> NGrams:
    """The trigrams of a few utterances, as if they were those of a large corpus."""
    found = NGrams(said)
    found.num_words = ENOUGH
    return found


WORDS = [
    *_TAGS,
    *FakeLexicon.stopwords,
    "disk",
    "new",
    "we",
    "try",
    "reboot",
    "machine",
    "10.04",
    ",",
    ".",
    "...",
    "<unk>",
    "<url>",
    "é",
]
utterances = st.lists(st.sampled_from(WORDS), max_size=30).map(tuple)
contexts = st.lists(st.lists(utterances, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple)
batches = st.lists(contexts, min_size=1, max_size=4)
seeds = st.integers(0, 2**63 - 1)
