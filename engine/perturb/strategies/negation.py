"""Add Negation: an utterance says no where it said yes.

Source: Niu & Bansal 2018 (arXiv 1809.02079), section 3.2. Rule "paper" negates the verb of a main clause as people do, by the
auxiliary or modal that is there, by "do" or by "not" (`clauses.py`), once at most, and leaves alone what it cannot read. Rule
"released" is that of the released code, word by word: the first verb that one of these fits.

    VB, VBG, VBN    know            not know
    VBD             was, were       was n't, were n't
                    installed       did n't install           if that changes the word
    VBP             am              am not
                    are             are n't
                    know            do n't know
    VBZ             is              is n't
                    knows           does n't know             if that changes the word

Departures:
  * # Paper: the root verb (section 3.2), the first verb (section 5). Released: the first that fits, modals never; the auxiliary
    "do" is a full verb, a second negation is added to a first one, imperatives become "not open it". Ours: a main clause's
    finite verb; "can" becomes "ca n't", "open it" "do n't open it".
  * # Paper, released: questions are negated like statements. Ours: one that is answered by yes or no stays under rule "paper",
    because "did n't you install it ?" has the answer of "did you install it ?", and a good model does not change its own.
  * # Released: changes the first occurrence of the verb's word, even where that is no verb. Ours: the verb itself.
  * # Released: contractions are one token ("don't"). Ours: two ("do n't"), as the tokeniser cuts them. Under rule "released" a
    verb with "n't" behind it is passed over, because it is the token "don't" there, to which no rule applies; one that is a
    contraction itself ("'m", "'re", "'s", "'ve", "'d") gets "not" behind it.
  * # Released: only the base form must be in the vocabulary. Ours: every word that enters must; where "n't" is not, "not"
    stands for it ("do not know").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.lexicon.opposites import Lexicon
from parley.engine.perturb.strategies.clauses import negated
from parley.engine.perturb.strategies.texts import Edits, FlatContexts
from parley.engine.perturb.strategy import ByEdits, Expectation, PerturbSettings, Rule
from parley.envs.corpora.pairs.turns import Utterance

_NOT_BEFORE = frozenset({"VB", "VBG", "VBN"})
_FINITE = {"VBD": "did", "VBP": "do", "VBZ": "does"}
_TAKE_NT = {"VBD": ("was", "were"), "VBP": ("are",), "VBZ": ("is",)}
_CONTRACTIONS = frozenset({"'m", "'re", "'s", "'ve", "'d"})
_WHOLE = {"ca": "can", "wo": "will"}
"""Forms before "not", by the form before "n't"."""


class AddNegation(ByEdits):
    """A main clause's verb is negated, or the first verb that can be.

    Args:
        lexicon: tags words and inflects verbs.
        may_enter: whether a model knows all of some words.
        rule: the paper's or the released one.
    """

    name = "add-negation"
    expectation = Expectation.SHOULD_CHANGE

    def __init__(self, lexicon: Lexicon, may_enter: Callable[[Sequence[str]], bool], rule: Rule = "paper") -> None:
        self.lexicon, self.may_enter, self.rule = lexicon, may_enter, rule
        self._contracted = "n't" if may_enter(("n't",)) else "not"

    def edits(self, flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        """Return the edits; nothing is drawn."""
        edit = self._by_release if self.rule == "released" else self._by_paper
        return flat.edits_of(map(edit, flat.utterances, self.lexicon.tag_all(flat.utterances)))

    def _by_paper(self, words: Utterance, tags: Sequence[str]) -> tuple[int, int, Utterance] | None:
        negation = negated(words, tags, self._base)
        if negation is None:
            return None
        start, end, replacement = negation
        if self._contracted == "not":
            replacement = tuple("not" if word == "n't" else _WHOLE.get(word, word) for word in replacement)
        enters = [word for word in replacement if word not in words[start:end]]
        return (start, end, replacement) if self.may_enter(enters) else None

    def _base(self, word: str) -> str | None:
        return self.lexicon.inflect(word, "VB")

    def _by_release(self, words: Utterance, tags: Sequence[str]) -> tuple[int, int, Utterance] | None:
        for position, tag in enumerate(tags):
            negated = self._negated(words[position], tag) if words[position + 1 : position + 2] != ("n't",) else None
            if negated is not None:
                changed = words.index(words[position])
                return changed, changed + 1, negated
        return None

    def _negated(self, word: str, tag: str) -> tuple[str, ...] | None:
        """Return the negated words; None where no rule fits, or one of the words may not enter."""
        if tag in _NOT_BEFORE:
            return ("not", word) if self.may_enter(("not",)) else None
        if tag not in _FINITE:
            return None
        if word == "am" or word in _CONTRACTIONS:
            return (word, "not") if self.may_enter(("not",)) else None
        if word in _TAKE_NT[tag]:
            return (word, self._contracted) if self.may_enter((self._contracted,)) else None
        base = word if tag == "VBP" else self.lexicon.inflect(word, "VB")
        if base is None or (base == word and tag != "VBP"):
            return None
        negated = (_FINITE[tag], self._contracted, base)
        return negated if self.may_enter(negated) else None


def build(settings: PerturbSettings, resources: Resources) -> AddNegation:
    """Build the strategy from the settings."""
    return AddNegation(resources.lexicon, resources.may_enter, settings.rule)
