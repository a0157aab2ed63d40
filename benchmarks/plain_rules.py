"""Rules on candidate replies in the ordinary style: one context and reply after the other, nothing remembered.

The tagger of NLTK reads the context and the reply anew for each, WordNet and inflection are asked for each word. The rules
are those of `engine/perturb/replies` (the synonyms of a word's first sense), and draws are asked for in the same order, so
that the same draws give the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.plain_perturbation import Draw, Knowledge, PlainNltk, Words
from parley.engine.perturb.lexicon.nltk_lexicon import SELDOM
from parley.engine.perturb.lexicon.opposites import Lexicon
from parley.engine.perturb.replies.language import FUNCTION_LIKE, TermCounts
from parley.engine.perturb.strategies.commands import NAMES, in_commands
from parley.engine.perturb.strategies.texts import FlatContexts

Loop = Callable[[Sequence[Words], Words, Draw], Words]
"""A context's turns, a reply and draws: the reply as it is then."""
_SPECIAL = ["<url>", "<path>", "<unk>"]
_CLITICS = ["n't", "'s", "'m", "'d", "'re", "'ve", "'ll"]
_BASE = {"V": ("v", "VB"), "N": ("n", "NN"), "J": ("a", "JJ"), "R": ("r", "RB")}
_ALONE = {"v": ["V", "N"], "n": ["N"], "a": ["J"], "r": ["R"]}


class Synonyms(Protocol):
    """What RSW asks of English."""

    def __call__(self, word: str, part_of_speech: str) -> Sequence[str]:
        """Return the other words of a base form's first sense."""


class PlainWordNet:
    """WordNet as its manual shows it."""

    def __init__(self) -> None:
        from nltk.corpus import wordnet

        self._wordnet = wordnet
        with wordnet.open("cntlist.rev") as file:
            # `Lemma.count` looks through the file at every question.
            self._counts = {line.split()[0]: int(line.split()[2]) for line in file}

    def __call__(self, word: str, part_of_speech: str) -> Sequence[str]:
        """Return the other words of a base form's first sense, unless it is rather a name."""
        synsets = self._wordnet.synsets(word, pos=part_of_speech)
        things = [synset for synset in synsets if not synset.instance_hypernyms()]
        if part_of_speech == "n" and len(things) < len(synsets):
            lemmas = [lemma for synset in things for lemma in synset.lemmas() if lemma.name().lower() == word]
            if sum(self._counts.get(lemma.key(), 0) for lemma in lemmas) < SELDOM:
                return []
        for synset in synsets[:1]:
            if not synset.instance_hypernyms():
                return [name for name in synset.lemma_names() if name != word and name.isalpha() and name.islower()]
        return []


@dataclass(frozen=True)
class PlainRules:
    """The rules; each takes a context's turns, a reply and draws, and returns a reply.

    Args:
        knowledge: of English.
        synonyms: of words.
        stopwords: of English.
        counts: of words in contexts.
    """

    knowledge: Knowledge
    synonyms: Synonyms
    stopwords: frozenset[str]
    counts: TermCounts

    @classmethod
    def of(cls, lexicon: Lexicon, counts: TermCounts, *, nltk: bool) -> PlainRules:
        """Return the rules with NLTK, or with a lexicon of the project where NLTK's data are not."""
        if nltk:
            return cls(PlainNltk(), PlainWordNet(), lexicon.stopwords, counts)
        return cls(lexicon, lexicon.synonyms, lexicon.stopwords, counts)

    def named(self, name: str) -> Loop:
        """Return the rule of a name."""
        loop: Loop = getattr(self, name.replace("-", "_"))
        return loop

    def iiw(self, context: Sequence[Words], reply: Words, draw: Draw) -> Words:
        """Three words of the context, by weight."""
        there: list[tuple[str, list[str]]] = []
        for turn in context:
            for word, tag in zip(turn, self.knowledge.tag(turn), strict=True):
                if self._is_content(word):
                    usual_tags = [tags for other, tags in there if other == word]
                    if not usual_tags:
                        there.append((word, [tag]))
                    elif tag not in usual_tags[0]:
                        usual_tags[0].append(tag)
        there.sort(key=lambda entry: -self.counts.term[entry[0]] * self.counts.idf(entry[0]))
        tags = self.knowledge.tag(reply)
        after, taken = list(reply), 0
        for word, kinds in there:
            if word in reply or taken == 3:
                continue
            free = [
                position
                for kind in kinds
                for position in range(len(reply))
                if tags[position] == kind and after[position] == reply[position] and self._is_content(reply[position])
                if self._fits(reply, position, word)
            ]
            if free:
                after[free[0]] = word
                taken += 1
        return after

    def rsw(self, context: Sequence[Words], reply: Words, draw: Draw) -> Words:
        """Words by synonyms."""
        tags, held = self.knowledge.tag(reply), in_commands(FlatContexts([((tuple(reply),),)]))
        after = list(reply)
        for position, word in enumerate(reply):
            tag = tags[position]
            if held[position] or word in NAMES or not self._is_content(word) or not word.isalpha():
                continue
            if tag[0] not in _BASE or tag in ("NNP", "NNPS", "RP"):
                continue
            kind, base_tag = _BASE[tag[0]]
            base = self.knowledge.inflect(word, base_tag)
            if base is None or word in FUNCTION_LIKE or base in FUNCTION_LIKE:
                continue
            for other in self.synonyms(base, kind):
                form = self.knowledge.inflect(other, tag)
                if (
                    form is None
                    or form == word
                    or other in FUNCTION_LIKE
                    or self.knowledge.tag([form])[0][0] not in _ALONE[kind]
                ):
                    continue
                if self._fits(reply, position, form):
                    after[position] = form
                    break
        return after

    def sow(self, context: Sequence[Words], reply: Words, draw: Draw) -> Words:
        """Words in a random order."""
        after = [word for _, word in sorted((draw(), position) for position in range(len(reply)))]
        words = [reply[position] for position in after]
        return words if words != reply else words[1:] + words[:1]

    def rlw_half(self, context: Sequence[Words], reply: Words, draw: Draw) -> Words:
        """Half of the words once more."""
        positions = [position for position, word in enumerate(reply) if self._is_word(word)]
        drawn = sorted((draw(), position) for position in positions)
        chosen = [position for _, position in drawn[: len(positions) // 2]]
        return [word for position, word in enumerate(reply) for _ in range(1 + (position in chosen))]

    def rlw_1(self, context: Sequence[Words], reply: Words, draw: Draw) -> Words:
        """One word half the length more."""
        positions = [position for position, word in enumerate(reply) if self._is_word(word)]
        drawn = sorted((draw(), position) for position in positions)
        chosen = [position for _, position in drawn[:1]]
        return [word for position, word in enumerate(reply) for _ in range(1 + (position in chosen) * (len(positions) // 2))]

    def rnpv(self, context: Sequence[Words], reply: Words, draw: Draw) -> Words:
        """Nouns, pronouns and verbs alone."""
        kinds = ("NN", "PRP", "WP", "VB", "MD")
        tagged = zip(reply, self.knowledge.tag(reply), strict=True)
        return [word for word, tag in tagged if tag.startswith(kinds) and self._is_word(word)] or reply

    def ngr(self, context: Sequence[Words], reply: Words, draw: Draw) -> Words:
        """Return the generic reply."""
        return ["i", "am", "sorry", "can", "you", "repeat"]

    def _fits(self, reply: Words, position: int, other: str) -> bool:
        return reply[position - 1 : position] not in (["a"], ["an"]) or (reply[position][0] in "aeiou") == (other[0] in "aeiou")

    def _is_word(self, word: str) -> bool:
        return any(character.isalnum() for character in word) and word[0] not in [":", ";"]

    def _is_content(self, word: str) -> bool:
        return len(word) > 1 and self._is_word(word) and word not in [*_CLITICS, *_SPECIAL] and word not in self.stopwords
