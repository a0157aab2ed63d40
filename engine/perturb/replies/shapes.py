"""Right replies that lose their shape: shuffled (SOW), with words repeated (RLW), without small words (RNPV).

Source: Li et al. 2019, sections 3.3 to 3.5. The result is a wrong reply.

    SOW        words in a random order
    RLW_L/2    half as many words as the reply has are drawn; each stands once more
    RLW_1      one word is drawn; it stands half as many times more as the reply has words
    RNPV       nouns, pronouns and verbs alone stay

  * # Paper: silent on marks. Ours: SOW moves them like words, as an option they keep their places; RLW neither repeats nor
    counts them; RNPV leaves them out.
  * # Paper: silent on orders that read as before. Ours: such an order is turned by one word; a reply of equal words stays.
  * # Paper: silent on where repeats stand. Ours: behind the word, as models stutter; as an option anywhere.
  * # Paper: silent on half of an odd number. Ours: rounded down, as an option up; a reply of one word stays.
  * # Paper: silent on modals, and on replies without a noun, pronoun or verb. Ours: modals are verbs; such a reply
    stays, because an empty one would be no reply.

Rules share settings, the language, and the counts of words that IIW weighs by.

The interface of a rule. Source: Li et al. 2019, section 3. A rule edits replies of one label and leaves the rest of a group as
it is: the context, the other candidates, the labels. Its result depends only on the group and its seed.

A user's rule that returns edits inherits from `OnReplies`.

Strategies on contexts (`engine/perturb/catalogue.py`), turned on right replies.

    typos       letters slip (`engine/perturb/strategies/noise.py`); the reply stays right
    negation    the reply says no where it said yes (`engine/perturb/strategies/negation.py`); the result is a wrong reply

None of Li et al. 2019; both are of English alone.

Other strategies change the question: the turns of the context. Replies stay, so the right one stays right. Beside each stands
its control: as many random words of the training contexts in the same turns (`RandomWordsControl`).

RSW: words of the right reply by synonyms (Replace Words by Synonyms).

Source: Li et al. 2019, section 3.2: WordNet from NLTK, neither stop words nor named entities; the reply stays right.

Rule "paper" reads these words as they stand. Each word that is neither a stop word nor tagged as a name becomes a lemma of any
of its senses in WordNet, drawn uniformly, as WordNet has it. That may be nonsense ("i am gladiolus to help"), and the reply is
often right no more, though the paper says that its meaning is "invariant". Rule "careful" keeps the reply right:

  * of the word's first sense, those words for which it is the main sense too, the first of them, in the form of the word;
  * in its part of speech, and only words that the tagger, reading them alone, takes for that ("well" is no "good");
  * with a corpus, only words that occur in it a few times;
  * neither instances of WordNet nor names of programs and files are replaced, nor what belongs to a command;
  * none makes a wrong one of "a" or "an" before it.

  * # Paper: silent on how many words are replaced. Ours: all that have a synonym; as an option a share of them.
  * # Paper: silent on which of several lemmas. Ours: uniformly one of all, without the word itself and its base form.
  * # Paper: silent on compounds. Ours: single words alone enter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

import numpy as np

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.catalogue import build as build_strategies
from parley.engine.perturb.replies.language import ReplyLanguage, TermCounts, is_word
from parley.engine.perturb.replies.settings import ReplySettings, SynonymChoice
from parley.engine.perturb.strategies.draws import uniforms
from parley.engine.perturb.strategies.texts import Edits, FlatContexts, num_changed, running, spans
from parley.engine.perturb.strategy import ByEdits, Expectation, RandomWordsControl, Strategy
from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.turns import Turns, Utterance
from parley.envs.ranking.groups import CandidateGroup, Context

LanguageCode = Literal["en", "zh"]


@dataclass(frozen=True)
class RuleResources:
    """The resources that rules share.

    Args:
        settings: the user's.
        shared: lexicon, corpus and data root, as strategies have them.
        code: of the language.
        contexts: the training contexts, the evaluated ones, or both, for IIW's weights; read once.
    """

    settings: ReplySettings
    shared: Resources
    code: LanguageCode = "en"
    contexts: Mapping[Literal["training", "evaluated"], Iterable[Context]] = field(default_factory=dict)

    @cached_property
    def language(self) -> ReplyLanguage:
        """Open the language; its data are read when they are first needed.

        Raises:
            DataError: NLTK's data are not there.
        """
        if self.code == "zh":
            from parley.engine.perturb.replies.language import Chinese

            return Chinese(self.shared.data_root)
        from parley.engine.perturb.replies.language import English

        return English(self.shared.lexicon, self.shared.is_usual)

    @cached_property
    def counts(self) -> TermCounts:
        """Count the words of the contexts that the settings name.

        Raises:
            ConfigError: those contexts are not given.
        """
        which = self.settings.fitted_on
        if which not in self.contexts:
            given = next(iter(self.contexts), None)
            fix = "give RuleResources(contexts=...)" if given is None else f"--set replies.fitted_on={given}"
            raise ConfigError(
                f"IIW weighs words by the {which} contexts, which are not at hand", where="replies.fitted_on", fix=fix
            )
        return TermCounts.of(self.contexts[which])


Attacks = Literal["negatives", "positives", "context"]
"""The part of a group that a rule edits."""


class Attacked(NamedTuple):
    """A group that a rule has changed.

    Args:
        group: with the labels that it had.
        changed: words changed of each candidate; 0: unchanged.
    """

    group: CandidateGroup
    changed: tuple[int, ...]


class Rule(Protocol):
    """A fixed attack; a user's own needs these members."""

    @property
    def name(self) -> str:
        """The registered name, such as "iiw"."""

    @property
    def attacks(self) -> Attacks:
        """Return what the rule edits."""

    @property
    def keeps_labels(self) -> bool:
        """Return whether a changed reply stays right or wrong.

        If not, it is the relevant one in A_n@k, and a new wrong one in training.
        """

    def apply(self, groups: Sequence[CandidateGroup], seeds: Sequence[int]) -> list[Attacked]:
        """Return the attacked groups.

        Args:
            groups: contexts and candidates; those that are not attackable stay.
            seeds: one for each group, at least 0; equal seeds draw alike.
        """


class OnReplies(ABC):
    """The base of a rule that says which words of replies it changes to what."""

    name: str
    attacks: Attacks
    keeps_labels: bool

    def apply(self, groups: Sequence[CandidateGroup], seeds: Sequence[int]) -> list[Attacked]:
        """Return the attacked groups; replies without a word stay unchanged."""
        wanted = self.attacks == "positives"
        positions = [
            [
                position
                for position, label in enumerate(group.labels)
                if label is wanted and group.attackable[position] and group.candidates[position]
            ]
            for group in groups
        ]
        flat = FlatContexts(
            [tuple((group.candidates[position],) for position in of) for group, of in zip(groups, positions, strict=True)]
        )
        if not flat.words:
            return [Attacked(group, (0,) * len(group.candidates)) for group in groups]
        edits = self.edits(groups, flat, seeds)
        counts = np.bincount(
            np.searchsorted(flat.edges, edits.starts, side="right") - 1, _sizes(flat.words, edits), len(flat.utterances)
        )
        num_changed = iter(counts.astype(np.int64).tolist())
        after = flat.replaced(edits)
        return [_attacked(group, of, turns, num_changed) for group, of, turns in zip(groups, positions, after, strict=True)]

    @abstractmethod
    def edits(self, groups: Sequence[CandidateGroup], flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        """Return the edits.

        Args:
            groups: all, in their order.
            flat: each group's replies that may be changed, a turn of one utterance each, none without a word.
            seeds: one for each group, at least 0; equal seeds draw alike.

        Returns:
            Edits that change something; none inserts behind a reply's last word.
        """


def _attacked(
    group: CandidateGroup, positions: Sequence[int], turns: Sequence[tuple[Utterance, ...]], counts: Iterator[int]
) -> Attacked:
    candidates, changed = list(group.candidates), [0] * len(group.candidates)
    for position, (words,) in zip(positions, turns, strict=True):
        candidates[position], changed[position] = words, next(counts)
    if not any(changed):
        return Attacked(group, tuple(changed))
    # Sooner than `dataclasses.replace`.
    after = CandidateGroup(group.key, group.context, tuple(candidates), group.labels, group.kinds, group.attackable)
    return Attacked(after, tuple(changed))


def _sizes(words: Sequence[str], edits: Edits) -> np.ndarray:
    """Count the words that each edit changes: its longer side, without equal words at both ends (M,)."""
    lengths = np.fromiter(map(len, edits.replacements), dtype=np.int64, count=len(edits.replacements))
    spans = edits.ends - edits.starts
    sizes = np.maximum(lengths, spans)
    for edit in np.flatnonzero((lengths > 0) & (spans > 0) & (sizes > 1)).tolist():
        before, after = words[edits.starts[edit] : edits.ends[edit]], edits.replacements[edit]
        sizes[edit] -= _shared(before, after)
    return sizes


def _shared(before: Sequence[str], after: Sequence[str]) -> int:
    shorter = min(len(before), len(after))
    first = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    rest = shorter - first
    return first + next((i for i in range(rest) if before[-1 - i] != after[-1 - i]), rest)


class PerturbedReplies(OnReplies):
    """A strategy that edits right replies.

    Args:
        name: of the rule.
        strategy: a Should-Not-Change strategy keeps labels.
    """

    attacks = "positives"

    def __init__(self, name: str, strategy: ByEdits) -> None:
        self.name = name
        self.keeps_labels = strategy.expectation is Expectation.SHOULD_NOT_CHANGE
        self._strategy = strategy

    def edits(self, groups: Sequence[CandidateGroup], flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        return self._strategy.edits(flat, seeds)


def build_typos(resources: RuleResources) -> PerturbedReplies:
    """Build the rule of typing errors."""
    return _english("typos", "character-noise", resources)


def build_negation(resources: RuleResources) -> PerturbedReplies:
    """Build the rule of added negations."""
    return _english("negation", "add-negation", resources)


def _require_english(name: str, resources: RuleResources) -> None:
    if resources.code != "en":
        raise ConfigError(f"{name} knows English alone", got=resources.code, fix="leave it out of the rules")


def _english(name: str, strategy: str, resources: RuleResources) -> PerturbedReplies:
    _require_english(name, resources)
    (built,) = build_strategies([strategy], resources.shared.settings, resources.shared)
    assert isinstance(built, ByEdits), f"{strategy} says what it changes"
    return PerturbedReplies(name, built)


_NUM_USUAL = 1000
"""Words that a control draws from, the most frequent ones."""


class ChangedQuestion:
    """A strategy on contexts as a rule: turns of the context change, replies stay.

    Args:
        strategy: one after which a good model answers as before, or its control.

    Raises:
        ConfigError: the answer should change.
    """

    attacks: Attacks = "context"
    keeps_labels = True

    def __init__(self, strategy: Strategy) -> None:
        self.name, self._strategy = strategy.name, strategy
        if strategy.expectation is not Expectation.SHOULD_NOT_CHANGE:
            fix = "parley evaluate robustness measures how often the reply changes"
            raise ConfigError(
                "the strategy changes what is asked: the right reply is no longer right", where=self.name, fix=fix
            )

    def apply(self, groups: Sequence[CandidateGroup], seeds: Sequence[int]) -> list[Attacked]:
        """Return the groups with changed contexts; no candidate counts as changed."""
        after = self._strategy.perturb([_turns(group.context) for group in groups], seeds)
        contexts = (tuple(words for (words,) in turns) for turns in after)
        pairs = zip(groups, contexts, strict=True)
        return [Attacked(replace(group, context=context), (0,) * len(group.candidates)) for group, context in pairs]


def words_changed(before: Context, after: Context) -> int:
    """Count the changed words of a context."""
    return num_changed(spans(_turns(before), _turns(after)))


def _turns(context: Context) -> Turns:
    return tuple((words,) for words in context)


def build_questions(name: str, resources: RuleResources) -> list[ChangedQuestion]:
    """Build a strategy on contexts as a rule, and its control.

    Raises:
        ConfigError: there is no such strategy, the right reply would not stay right, or the language is not English.
        DataError: data of the strategy, or words of training contexts, are missing.
    """
    _require_english(name, resources)
    (strategy,) = build_strategies([name], resources.shared.settings, resources.shared)
    words = [word for word, _ in resources.counts.term.most_common() if is_word(word)][:_NUM_USUAL]
    return [ChangedQuestion(strategy), ChangedQuestion(RandomWordsControl(strategy, words))]


_REPLACED = ("noun", "verb", "adjective", "adverb")


class Synonymous(OnReplies):
    """RSW.

    Args:
        settings: what the paper leaves open.
        language: tags words and knows synonyms.
        choice: of synonyms; that of the settings' rule when not given.
    """

    name = "rsw"
    attacks = "positives"
    keeps_labels = True

    def __init__(self, settings: ReplySettings, language: ReplyLanguage, choice: SynonymChoice | None = None) -> None:
        self._choice, self._language = choice or settings.synonym_choice, language

    def edits(self, groups: Sequence[CandidateGroup], flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        choice = self._choice
        tags = [tag for of_reply in self._language.tag_all(flat.utterances) for tag in of_reply]
        stays = self._language.stays(flat) if choice.known_names else np.zeros(len(flat.words), dtype=bool)
        begins = np.zeros(len(flat.words) + 1, dtype=bool)
        begins[flat.edges] = True
        may_go = [
            position for position in np.flatnonzero(~stays).tolist() if self._may_go(flat.words[position], tags[position])
        ]
        queries = list(dict.fromkeys((flat.words[position], tags[position]) for position in may_go))
        synonyms_of = dict(zip(queries, self._language.synonyms(queries, choice), strict=True))
        positions: list[int] = []
        choices: list[Utterance] = []
        for position in may_go:
            word, before = flat.words[position], "" if begins[position] else flat.words[position - 1]
            synonyms = synonyms_of[word, tags[position]]
            if choice.articles:
                synonyms = tuple(other for other in synonyms if self._language.fits(before, word, other))
            if synonyms:
                positions.append(position)
                choices.append(synonyms)
        where = np.array(positions, dtype=np.int64)
        counts = flat.num_in_contexts(where)
        if choice.synonym == "first":
            replacements = [synonyms[:1] for synonyms in choices]
        else:
            shares = uniforms(seeds, f"{self.name} synonyms", counts).tolist()
            replacements = [(synonyms[int(share * len(synonyms))],) for synonyms, share in zip(choices, shares, strict=True)]
        return Edits.of_words(where, replacements)

    def _may_go(self, word: str, tag: str) -> bool:
        kind = self._language.class_of(tag)
        return self._language.is_content(word) and (kind in _REPLACED if self._choice.same_class else kind != "name")


def build(resources: RuleResources) -> Synonymous:
    """Build RSW from the settings."""
    return Synonymous(resources.settings, resources.language)


_KEPT = frozenset(("noun", "name", "pronoun", "verb", "modal"))


class Shuffled(OnReplies):
    """SOW.

    Args:
        settings: what the paper leaves open.
    """

    name = "sow"
    attacks = "positives"
    keeps_labels = False

    def __init__(self, settings: ReplySettings) -> None:
        self._settings = settings

    def edits(self, groups: Sequence[CandidateGroup], flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        moves = np.ones(len(flat.words), dtype=bool) if self._settings.shuffled == "all" else _are_words(flat)
        positions = np.flatnonzero(moves)
        drawn = uniforms(seeds, self.name, flat.num_in_contexts(positions))
        reply = _reply_of(flat, positions)
        taken = positions[np.lexsort((drawn, reply))]
        differs = _differs(flat.words, positions, taken)
        edges = np.searchsorted(positions, flat.edges)
        num_different = np.diff(running(differs)[edges])
        for row in np.flatnonzero((num_different == 0) & (np.diff(edges) > 1)).tolist():
            taken[edges[row] : edges[row + 1]] = np.roll(taken[edges[row] : edges[row + 1]], -1)
        chosen = _differs(flat.words, positions, taken)
        return Edits.of_words(positions[chosen], [(flat.words[position],) for position in taken[chosen].tolist()])


class Repeated(OnReplies):
    """RLW.

    Args:
        settings: what the paper leaves open.
        single: one word many times (RLW_1), not many words once (RLW_L/2).
    """

    attacks = "positives"
    keeps_labels = False

    def __init__(self, settings: ReplySettings, *, single: bool) -> None:
        self.name = "rlw-1" if single else "rlw-half"
        self._settings, self._single = settings, single

    def edits(self, groups: Sequence[CandidateGroup], flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        positions = np.flatnonzero(_are_words(flat))
        reply = _reply_of(flat, positions)
        drawn = uniforms(seeds, self.name, flat.num_in_contexts(positions))
        num_words = np.bincount(reply, minlength=len(flat.utterances))
        half = (num_words + (self._settings.rounding == "up")) // 2
        # A word alone has nothing to be half of.
        half[num_words < 2] = 0
        order = np.lexsort((drawn, reply))
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order)) - (np.cumsum(num_words) - num_words)[reply]
        chosen = rank < (np.minimum(half, 1) if self._single else half)[reply]
        copied = np.repeat(positions[chosen], half[reply[chosen]] if self._single else 1)
        if self._settings.repeated == "behind":
            behind = copied
        else:
            # Behind any word or mark of the reply.
            shares = uniforms(seeds, f"{self.name} places", flat.num_in_contexts(copied))
            row = _reply_of(flat, copied)
            behind = flat.edges[row] + (shares * np.diff(flat.edges)[row]).astype(np.int64)
        return _inserted(flat.words, copied, behind)


class NounsPronounsVerbs(OnReplies):
    """RNPV.

    Args:
        language: tags words.
    """

    name = "rnpv"
    attacks = "positives"
    keeps_labels = False

    def __init__(self, language: ReplyLanguage) -> None:
        self._language = language

    def edits(self, groups: Sequence[CandidateGroup], flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        tags = [tag for of_reply in self._language.tag_all(flat.utterances) for tag in of_reply]
        listed = {tag for tag in dict.fromkeys(tags) if self._language.class_of(tag) in _KEPT}
        goes = ~(np.array([tag in listed for tag in tags], dtype=bool) & _are_words(flat))
        lengths = np.diff(flat.edges)
        goes &= np.repeat(np.diff(running(goes)[flat.edges]) < lengths, lengths)
        positions = np.flatnonzero(goes)
        return Edits.of_words(positions, [()] * len(positions))


def _are_words(flat: FlatContexts) -> np.ndarray:
    """Mark the tokens that are words (N,) bool."""
    return np.frombuffer(bytearray(map(is_word, flat.words)), dtype=bool)


def _reply_of(flat: FlatContexts, positions: np.ndarray) -> np.ndarray:
    """Return the index of the reply that each word stands in (M,) int64."""
    return np.searchsorted(flat.edges, positions, side="right") - 1


def _differs(words: Utterance, positions: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """Mark the edits that change a word (M,) bool."""
    differs = [words[position] != words[other] for position, other in zip(positions.tolist(), taken.tolist(), strict=True)]
    return np.array(differs, dtype=bool)


def _inserted(words: Utterance, copied: np.ndarray, behind: np.ndarray) -> Edits:
    """Return edits that put copies of words behind others."""
    copies: dict[int, list[str]] = {}
    for position, where in sorted(zip(copied.tolist(), behind.tolist(), strict=True), key=lambda pair: pair[1]):
        copies.setdefault(where, [words[where]]).append(words[position])
    starts = np.fromiter(copies, dtype=np.int64, count=len(copies))
    return Edits.of_words(starts, [tuple(words) for words in copies.values()])


def build_sow(resources: RuleResources) -> Shuffled:
    """Build SOW from the settings."""
    return Shuffled(resources.settings)


def build_rlw_half(resources: RuleResources) -> Repeated:
    """Build RLW_L/2 from the settings."""
    return Repeated(resources.settings, single=False)


def build_rlw_1(resources: RuleResources) -> Repeated:
    """Build RLW_1 from the settings."""
    return Repeated(resources.settings, single=True)


def build_rnpv(resources: RuleResources) -> NounsPronounsVerbs:
    """Build RNPV from the settings."""
    return NounsPronounsVerbs(resources.language)
