"""Add Negation: an utterance says no where it said yes.

Source: Niu & Bansal 2018 (arXiv 1809.02079), section 3.1. Rule "paper" negates the verb of a main clause as people do, by the
auxiliary or modal that is there, by "do" or by "not", once at most, and leaves alone what it cannot read. Rule
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
  * # Paper: the root verb (section 3.1), the first verb (section 5). Released: the first that fits, modals never; the auxiliary
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

Rule "paper" finds where a clause takes a negation: its auxiliary, its full verb, its imperative. It uses closed lists of words
first and tags second, because taggers that were trained on newspapers read the lines of a chat poorly ("i/NNS do/VBP"). A
clause reaches from one mark or coordinator to the next. Of the possible negations, the first of a main clause is taken, else
the first of a subordinate clause, else an infinitive or a participle without a verb of its own. A clause that holds a negation
gets no second one. A question that is answered by yes or no stays ("did you install it ?"), and so does a polite request ("can
you open it ?"): with "not" both ask the same, and an answer that should change does not. A question for a thing stays too
("what is the error ?"). Where no rule is safe, there is none.

    auxiliary   it is broken           it is n't broken            why does it start    why does n't it start
    full verb   i usually need it      i usually do n't need it    it always works      it does n't always work
    imperative  please check the log   please do n't check the log
    no finite   how to fix it          how not to fix it           trying to log in     not trying to log in
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.lexicon import corrections as of
from parley.engine.perturb.lexicon.opposites import Lexicon
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
            replacement = self._negated(words[position], tag) if words[position + 1 : position + 2] != ("n't",) else None
            if replacement is not None:
                changed = words.index(words[position])
                return changed, changed + 1, replacement
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
        replacement = (_FINITE[tag], self._contracted, base)
        return replacement if self.may_enter(replacement) else None


def build(settings: PerturbSettings, resources: Resources) -> AddNegation:
    """Build the strategy from the settings."""
    return AddNegation(resources.lexicon, resources.may_enter, settings.rule)


class Negation(NamedTuple):
    """The words that replace some words of an utterance.

    Args:
        start: of the words that go.
        end: of the words that go; equal to `start` where words are only added.
        words: that replace them; "n't" as the tokeniser cuts it.
    """

    start: int
    end: int
    words: tuple[str, ...]


class Clause(NamedTuple):
    """The words of an utterance from one mark or coordinator to the next.

    Args:
        words: of the utterance.
        tags: theirs.
        start: of the clause.
        end: of the clause.
        base_of: the base form of a verb; None where it is unknown.
    """

    words: Sequence[str]
    tags: Sequence[str]
    start: int
    end: int
    base_of: Callable[[str], str | None]

    def word(self, position: int) -> str:
        """Return the word at a position; "" outside the clause."""
        return self.words[position] if self.start <= position < self.end else ""

    def tag(self, position: int) -> str:
        """Return the tag at a position; "" outside the clause."""
        return self.tags[position] if self.start <= position < self.end else ""

    def before(self, position: int) -> int:
        """Return the position before, adverbs skipped."""
        position -= 1
        while self.word(position) in of.ADVERBS:
            position -= 1
        return position

    def after(self, position: int) -> int:
        """Return the position behind, adverbs skipped."""
        position += 1
        while self.word(position) in of.ADVERBS or (self.tag(position) == "RB" and self.word(position) not in of.VERBS):
            position += 1
        return position

    def is_participle(self, position: int) -> bool:
        """Return whether "have" before this position is an auxiliary."""
        word = self.word(position)
        is_past = self.tag(position) in ("VBN", "VBD") and self.base_of(word) in of.VERBS
        return is_past or word in of.PARTICIPLES or (word.endswith("ed") and len(word) > 3)

    def is_base(self, position: int) -> bool:
        """Return whether "do" before this position is an auxiliary."""
        return self.word(position) in of.VERBS or self.tag(position) in ("VB", "VBP")


_TAG = 5
"""Words of a question like "is n't it ?", with the comma before it."""


def negated(words: Sequence[str], tags: Sequence[str], base_of: Callable[[str], str | None]) -> Negation | None:
    """Find where and how to negate an utterance.

    Args:
        words: of the utterance, lower-cased.
        tags: Penn Treebank tags (words).
        base_of: the base form of a verb; None where it is unknown.

    Returns:
        None where no rule is safe.
    """
    if [*words[-1:]] == ["?"] and [*words[-3:-2]] == ["n't"] and words[-2] in of.SUBJECTS and len(words) > _TAG:
        return None
    best, best_rank = None, 4
    is_subordinate = False
    for start, end in _clauses(words):
        if start and words[start - 1] not in of.ADDING:
            is_subordinate = False
        clause = Clause(words, tags, start, end, base_of)
        if not of.NEGATIONS.isdisjoint(words[start : _alternatives(words, end)]) or words[end - 1] == "too":
            continue
        for rank, negation in _negations(clause, is_subordinate):
            if rank < best_rank:
                best, best_rank = negation, rank
            if not best_rank:
                return best
        is_subordinate = is_subordinate or any(word in of.SUBORDINATORS for word in words[start:end])
    return best


def _clauses(words: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each clause."""
    start = 0
    for position, word in enumerate(words):
        if word in of.BREAKS:
            if start < position:
                yield start, position
            start = position + 1
    if start < len(words):
        yield start, len(words)


def _alternatives(words: Sequence[str], end: int) -> int:
    """Return the end of a clause and of the alternative behind its "or" ("send it or do n't send it")."""
    while end < len(words) and words[end] == "or":
        end = next((position for position in range(end + 1, len(words)) if words[position] in of.BREAKS), len(words))
    return end


def _negations(clause: Clause, is_subordinate: bool) -> Iterator[tuple[int, Negation]]:
    """Yield the negations of a clause, ranked: 0 main clause, 1 subordinate clause, 2 and 3 no finite verb."""
    first = clause.start
    while clause.word(first) in of.OPENINGS and first + 1 < clause.end:
        first += 1
    is_asked = clause.word(first + 1) in of.QUESTION_WORDS and clause.word(first + 2) in of.AUXILIARIES
    if is_asked and clause.tag(first)[:2] == "NN":
        # The person who is asked.
        first += 1
    asks = clause.word(first) in of.QUESTION_WORDS
    if not asks and _is_polar(clause, first):
        return
    is_fronted = has_verb = is_closed = False
    for position in range(first, clause.end):
        word = clause.word(position)
        is_closed = is_closed or word in of.CLOSED
        if _subordinates(clause, position, first):
            is_subordinate, is_fronted, has_verb = True, position == first, False
            continue
        negation = (
            _auxiliary(clause, position, first, asks)
            or _full_verb(clause, position, first)
            or _imperative(clause, position, first)
        )
        if negation is None:
            if word in of.AUXILIARIES or (word in of.CONTRACTED and clause.tag(position) != "POS"):
                has_verb = True
            continue
        back = clause.before(position)
        opens_main = is_fronted and has_verb and clause.word(back) in of.NOMINATIVE
        is_relative = clause.word(back) in of.NOMINATIVE and _heads_relative(clause, back - 1)
        rank = int((is_subordinate and not opens_main) or is_relative)
        if not (rank and is_closed):
            yield rank, negation
        has_verb = True
    if clause.word(first) in ("how", "where", "what", "when") and clause.word(first + 1) == "to":
        yield 2, Negation(first + 1, first + 1, ("not",))
    elif clause.tag(first) == "VBG" and clause.word(first) in of.GERUNDS and first + 1 < clause.end:
        yield 3, Negation(first, first, ("not",))


def _is_polar(clause: Clause, first: int) -> bool:
    """Return whether a clause without a question word asks for yes or no, with or without its mark."""
    word, following, tag = clause.word(first), clause.word(first + 1), clause.tag(first + 1)
    if clause.words[clause.end : clause.end + 1] in (["?"], ("?",)):
        return True
    if word not in of.AUXILIARIES or not following:
        return False
    if following in of.SUBJECTS or following in of.ANYBODY:
        # "Do this" and "have this" are orders.
        return not (word in ("do", "have") and following in of.DEMONSTRATIVES)
    return word == "does" or (word not in of.HAVE and word not in of.DO and tag[:2] in of.BEGIN_NOUNS)


def _heads_relative(clause: Clause, position: int) -> bool:
    """Return whether a relative clause without its pronoun may follow a word ("the best i can do", "all i know")."""
    is_head = clause.tag(position)[:2] == "NN" or clause.tag(position) in ("JJS", "RBS") or clause.word(position) in of.ORDINALS
    return clause.word(position) in of.RELATIVE_HEADS or (is_head and clause.tag(position - 1)[:2] in of.INNER)


def _subordinates(clause: Clause, position: int, first: int) -> bool:
    word, following = clause.word(position), clause.word(position + 1)
    if word in of.SUBORDINATORS:
        return True
    if word in of.QUESTION_WORDS:
        if position == first:
            return following in of.NOMINATIVE or following in ("it", "this", "that", "there")
        return word not in ("which", "who", "what") or position > first
    if word == "that" and position > first:
        if clause.tag(position - 1)[:2] == "NN":
            return clause.word(position - 1) not in of.OPENINGS
        return following in of.SUBJECTS or clause.tag(position + 1)[:2] in ("NN", "DT", "PR", "JJ")
    return False


def _auxiliary(clause: Clause, position: int, first: int, asks: bool) -> Negation | None:
    """Negate an auxiliary, a modal or a form of "be"."""
    word = clause.word(position)
    if word in of.CONTRACTED:
        return _contracted(clause, position)
    if word not in of.AUXILIARIES or _is_second(clause, position):
        return None
    following = clause.word(position + 1)
    if "/" in (*clause.words[max(position - 1, 0) : position], *clause.words[position + 1 : position + 2]):
        return None
    is_phrase = (word in of.DO and clause.word(position + 2) == "mean" and asks) or following == "what"
    if is_phrase or clause.word(position - 1) == "here" or following in ("up", "also"):
        return None
    back = clause.word(clause.before(position))
    if back in of.SUBJECTS and clause.word(clause.before(position) - 1) in ("here", "there") and not following:
        # "Here it is."
        return None
    is_inverted = (following in of.SUBJECTS or following in of.ANYBODY) and (
        position == first or asks or back in of.QUESTION_WORDS or (following == "i" and back not in of.SUBJECTS)
    )
    is_advice = word in ("may", "might") and "try" in clause.words[position : clause.end]
    if is_advice or (word == "may" and clause.word(position - 2) == "if"):
        return None
    if following in of.NOT_NEGATED or (asks and clause.word(first) != "why"):
        # "What is not the error" and "how do i not do it" are no questions.
        return None
    if word in of.AUXILIARIES and not is_inverted and _begins_clause(clause, position + 1):
        return None
    if word in of.HAVE or word in of.DO:
        return _have_or_do(clause, position, first, is_inverted, asks)
    if is_inverted and not asks and back not in of.QUESTION_WORDS:
        # It is answered by yes or no, as it is with "not".
        return None
    if word == "am":
        return Negation(position + 2, position + 2, ("not",)) if following == "i" else _with_not(clause, position)
    if word in of.MODALS and clause.tag(position) != "MD" and clause.tag(position + 1)[:2] != "VB":
        return None
    if word not in of.CONTRACTIONS:
        return _behind_subject(clause, position) if is_inverted else _with_not(clause, position)
    if following in of.BEFORE_NOT and not is_inverted:
        return _with_not(clause, position)
    return Negation(position, position + 1, of.CONTRACTIONS[word])


def _begins_clause(clause: Clause, position: int) -> bool:
    """Return whether a clause of its own begins here ("my guess is it 's broken"), which "not" does not negate."""
    following = clause.word(position + 1)
    is_finite = following in of.AUXILIARIES or following in of.CONTRACTED or clause.tag(position + 1) in ("VBZ", "VBD", "VBP")
    return clause.word(position) in of.SUBJECTS and is_finite


def _is_second(clause: Clause, position: int) -> bool:
    """Return whether the words before an auxiliary make it no finite verb ("to have", "can be", "do i have")."""
    back = clause.before(position)
    word = clause.word(back)
    if word in of.MODALS or word == "to" or word in ("'ll", "'d", "let", "help"):
        return True
    if word in of.SUBJECTS or word in of.ANYBODY:
        return clause.word(clause.before(back)) in of.AUXILIARIES
    return clause.word(position) in of.HAVE and word in of.DO


def _contracted(clause: Clause, position: int) -> Negation | None:
    """Negate a verb that is the end of another word."""
    word, back, ahead = clause.word(position), clause.word(position - 1), clause.after(position)
    if clause.word(position + 1) in of.NOT_NEGATED or back == "here" or (back in of.QUESTION_WORDS and back != "who"):
        return None
    if _begins_clause(clause, position + 1):
        return None
    if word == "'s":
        if back == "let":
            return Negation(position + 1, position + 1, ("not",))
        is_owner = back in of.MAY_OWN and clause.tag(position + 1)[:2] == "NN"
        is_tagged = clause.tag(position) == "VBZ" and clause.tag(position + 1) in of.BEHIND_IS
        is_verb = (back in of.BEFORE_IS and not is_owner) or is_tagged
        return _with_not(clause, position) if is_verb and clause.word(position + 1) not in ("up", "") else None
    if word in ("'m", "'re"):
        return _with_not(clause, position) if clause.word(position + 1) else None
    if word == "'ll":
        is_verb = clause.is_base(ahead) or clause.word(ahead) in ("be", "have")
        return Negation(position, position + 1, ("wo", "n't")) if is_verb else None
    if word == "'ve":
        return Negation(position, position + 1, ("have", "n't")) if clause.is_participle(ahead) else None
    following, tag = clause.word(ahead), clause.tag(ahead)
    if following in of.BEHIND_WOULD or (tag == "VB" and following in of.VERBS):
        return Negation(position, position + 1, ("would", "n't"))
    return Negation(position, position + 1, ("had", "n't")) if tag == "VBN" and following not in of.VERBS else None


def _have_or_do(clause: Clause, position: int, first: int, is_inverted: bool, asks: bool) -> Negation | None:
    """Negate "have" and "do", as auxiliaries or as full verbs that take another "do"."""
    word, following, ahead = clause.word(position), clause.word(position + 1), clause.after(position)
    contracted = Negation(position, position + 1, (word, "n't"))
    ends_question = clause.words[-1:] == ("?",) or "?" in clause.words[clause.end : clause.end + 1]
    if is_inverted:
        if word in of.HAVE and not clause.is_participle(clause.after(position + 1)):
            return None
        if word in of.DO and not ends_question and following in ("it", "this", "that", "something", "these", "those"):
            return Negation(position, position, ("do", "n't")) if word == "do" else None
        return contracted
    has_subject = _has_subject(clause, position)
    if word in of.HAVE:
        if clause.is_participle(ahead):
            return contracted if has_subject or position == first else None
    elif word == "do" and clause.words[position + 1 : position + 2] in (["so"], ("so",)):
        return Negation(position, position, ("do", "n't")) if position == first else None
    elif clause.is_base(ahead):
        return contracted if has_subject or position == first else None
    elif position == first or asks:
        # A question about a named person or thing.
        is_auxiliary = ends_question or following in of.SUBJECTS or following in of.ANYBODY
        return contracted if is_auxiliary else Negation(position, position + 1, (of.FINITE[word], "n't", of.BASES[word]))
    elif not clause.word(ahead):
        return contracted if has_subject else None
    if not has_subject:
        is_said = position == first and word in ("have", "had") and following in of.DETERMINERS and not ends_question
        return Negation(position, position + 1, (of.FINITE[word], "n't", of.BASES[word])) if is_said else None
    return _supported(clause, position, of.FINITE[word], of.BASES[word])


def _full_verb(clause: Clause, position: int, first: int) -> Negation | None:
    """Negate a full verb by a form of "do", with its subject or, at the beginning, without."""
    word, tag = clause.word(position), clause.tag(position)
    if word in of.NO_FULL_VERBS or word in of.AUXILIARIES or not word.isalpha():
        return None
    if word in of.TAKE_CLAUSES and not clause.word(position + 1) and clause.before(position) > first:
        return None
    back = clause.before(position)
    subject = clause.word(back)
    if position == first:
        if word in of.STATES and clause.word(position + 1):
            return _of_form(clause, position, "does")
        says_past = tag in ("VBD", "VBN") and clause.word(position + 1) in of.DETERMINERS and word not in of.VERBS
        return _of_form(clause, position, "did") if says_past else None
    if not _has_subject(clause, position) or (subject, word) in of.SAYINGS:
        return None
    is_past = (tag in ("VBD", "VBN") or word.endswith("ed")) and word not in of.VERBS
    if subject in of.PLURAL:
        if is_past and tag[:2] == "VB":
            return _of_form(clause, position, "did")
        return _supported(clause, position, "do", word) if word in of.VERBS else None
    if is_past and tag[:2] == "VB" and (subject in of.SUBJECTS):
        return _of_form(clause, position, "did")
    if word.endswith("s") and (tag == "VBZ" or subject in ("it", "he", "she")):
        base = clause.base_of(word)
        return _supported(clause, position, "does", base) if base in of.VERBS else None
    return None


def _imperative(clause: Clause, position: int, first: int) -> Negation | None:
    """Negate an imperative at the beginning of a clause by "do n't"."""
    word, following = clause.word(position), clause.word(position + 1)
    if position != first or word not in of.IMPERATIVES or not following:
        return None
    if clause.start > 1 and clause.words[clause.start - 1] not in of.BEFORE_IMPERATIVES:
        return None
    if word == "let":
        if following == "me" and clause.is_base(position + 2) and clause.word(position + 2) != "know":
            return Negation(position + 2, position + 2, ("not",))
        return None if following == "'s" else Negation(position, position, ("do", "n't"))
    if (word, following) in of.SAYINGS or following in of.AUXILIARIES or following in of.CONTRACTED:
        return None
    if word in of.NOUNS and following not in of.BEHIND_IMPERATIVES and clause.tag(position + 1) != "VBG":
        return None
    is_object = following[0].isalpha() or following in ("<url>", "<path>")
    return (
        Negation(position, position, ("do", "n't"))
        if is_object and clause.tag(position + 1) not in ("VBZ", "MD", "VBD")
        else None
    )


def _has_subject(clause: Clause, position: int) -> bool:
    """Return whether the subject of a finite verb stands before it, and belongs to no other verb."""
    back = clause.before(position)
    subject, earlier = clause.word(back), clause.word(clause.before(back))
    if subject in of.SUBJECTS:
        if earlier in of.AUXILIARIES or earlier in of.CONTRACTED:
            return False
        if subject in of.NOMINATIVE:
            return earlier not in ("there", "here")
        tag = clause.tag(back - 1)
        is_object = tag[:2] in ("VB", "IN", "TO") and earlier not in of.TAKE_CLAUSES and earlier not in of.SUBORDINATORS
        return not is_object or earlier == ""
    if clause.tag(position) != "VBZ" and clause.word(position) not in ("has", "does"):
        return False
    return clause.tag(back) in ("NN", "NNP") and subject.isalnum() and subject not in of.OPENINGS


def _of_form(clause: Clause, position: int, helper: str) -> Negation | None:
    word = clause.word(position)
    base = clause.base_of(word)
    if base is None or (base == word and word not in of.UNCHANGING) or (base not in of.VERBS and not word.endswith("ed")):
        return None
    return _supported(clause, position, helper, base)


def _supported(clause: Clause, position: int, helper: str, base: str) -> Negation | None:
    """Put a full verb, and the adverbs negated with it, behind a negated form of "do"."""
    adverb = clause.word(position - 1)
    if adverb in ("already", "once"):
        return None
    if adverb in of.NEGATED_ADVERBS:
        return Negation(position - 1, position + 1, (helper, "n't", adverb, base))
    return Negation(position, position + 1, (helper, "n't", base))


def _with_not(clause: Clause, position: int) -> Negation | None:
    """Put "not" behind a verb and behind adverbs outside the negation ("is probably not")."""
    position += 1
    if clause.word(position) == "already":
        return None
    while clause.word(position) in of.BEFORE_NOT:
        position += 1
    return Negation(position, position, ("not",))


def _behind_subject(clause: Clause, position: int) -> Negation | None:
    """Put "not" behind the subject of a question, before its verb."""
    ahead = clause.after(position + 1)
    is_question = clause.word(position + 1) in of.SUBJECTS and (
        clause.tag(ahead)[:2] == "VB" or clause.word(ahead) in of.VERBS or clause.word(ahead) in ("be", "have", "do", "get")
    )
    return Negation(position + 2, position + 2, ("not",)) if is_question else None
