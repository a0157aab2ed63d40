"""Insert Important Words (IIW), generic replies (NGR) and turns of the context as replies (COPY_k).

IIW replaces words of a wrong reply by words of the context. Source: Li et al. 2019, section 3.1, equations (4) and (5);
section 4 for training.

    weight(w) = TF(w) log(M / DF(w))

TF counts a word in all contexts, DF the contexts that hold it, M all contexts. The three words of the context with the
highest weights replace three words of the same part of speech in each wrong reply, which stays wrong. In training, words of
the context are drawn at random, one for nine words of the context.

  * # Paper: silent on the contexts that are counted. Ours: those of the training split; as an option the evaluated ones.
  * # Paper: TF "in all contexts". Ours: the same.
  * # Paper: silent on stop words and marks; its example inserts "browser", "use" and "stupid". Ours: only words that are
    neither enter and leave.
  * # Paper: "the same part of speech". Ours: the same tag, so that number and tense stay.
    A word of the context may have several tags there; any of them counts.
  * # Paper: silent on words that find no place, and on replies with fewer than three. Ours: the next word by weight takes the
    place, as many as there are.
  * # Paper: silent on which word leaves. Ours: the first of its tag behind which no "a" or "an" is wrong then.
  * # Paper: silent on words that the reply has already, and on one word at two places. Ours: neither, for both bring nothing.
  * # Paper: silent on rounding in training. Ours: down, and one at least.

NGR and COPY_k replace whole replies of a group. Sources: Li et al. 2019, section 3.6; Yuan et al. 2019, "Multi-hop Selector
Network for Multi-turn Response Selection in Retrieval-based Chatbots", section 5, whose released test sets plant one, two or
three turns of the context as candidates.

NGR replaces every right reply by a wrong one. COPY_k replaces k wrong replies, which stay wrong.

  * # Paper: one reply for all contexts, "I am sorry can you repeat". Ours: the same; A_n@k then measures that one string, so
    as an option the reply of each context is drawn from several.
  * # Yuan et al.: silent on which turns. Ours: random ones without repetition. A turn that reads like a candidate is none,
    for it would be a right reply or be there already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import NamedTuple

import numpy as np

from parley.engine.perturb.replies.language import ReplyLanguage, TermCounts
from parley.engine.perturb.replies.shapes import OnReplies, RuleResources
from parley.engine.perturb.strategies.draws import uniforms
from parley.engine.perturb.strategies.texts import Edits, FlatContexts
from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.tokens import tokenise
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup, Context

SEVERAL = "several"
"""Stands for the replies of the language."""


class Generic(OnReplies):
    """NGR.

    Args:
        replies: that are drawn from, at least one; none without a word.
    """

    name = "ngr"
    attacks = "positives"
    keeps_labels = False

    def __init__(self, replies: Sequence[Utterance]) -> None:
        assert all(replies), "a reply has words"
        self._replies = tuple(replies)

    def edits(self, groups: Sequence[CandidateGroup], flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        drawn = uniforms(seeds, self.name, np.diff(flat.shape_edges)) * len(self._replies)
        replacements = [self._replies[number] for number in drawn.astype(np.int64).tolist()]
        return _instead(flat, np.arange(len(replacements)), replacements)


class Copied(OnReplies):
    """COPY_k.

    Args:
        num: how many replies become turns, k.
    """

    attacks = "negatives"
    keeps_labels = True

    def __init__(self, num: int) -> None:
        self.name, self._num = f"copy-{num}", num

    def edits(self, groups: Sequence[CandidateGroup], flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        rows = np.arange(len(flat.utterances))
        counts = np.diff(flat.shape_edges)
        group_of = np.repeat(np.arange(len(counts)), counts)
        order = np.lexsort((uniforms(seeds, f"{self.name} replies", counts), group_of))
        turns = [self._turns(group) for group in groups]
        shares = np.split(uniforms(seeds, f"{self.name} turns", list(map(len, turns))), np.cumsum(list(map(len, turns)))[:-1])
        chosen: list[int] = []
        replacements: list[Utterance] = []
        for start, count, of_group, share in zip(flat.shape_edges.tolist(), counts.tolist(), turns, shares, strict=False):
            wanted = [of_group[index] for index in np.argsort(share, kind="stable").tolist()]
            num = min(self._num, count, len(wanted))
            pairs = sorted(zip(rows[order[start : start + num]].tolist(), wanted[:num], strict=True))
            chosen += [row for row, _ in pairs]
            replacements += [turn for _, turn in pairs]
        return _instead(flat, np.array(chosen, dtype=np.int64), replacements)

    @staticmethod
    def _turns(group: CandidateGroup) -> list[Utterance]:
        """Return the turns of a context that are no candidates, each once, in order."""
        return [turn for turn in dict.fromkeys(group.context) if turn and turn not in group.candidates]


def _instead(flat: FlatContexts, rows: np.ndarray, replacements: Sequence[Utterance]) -> Edits:
    differs = [flat.utterances[row] != reply for row, reply in zip(rows.tolist(), replacements, strict=True)]
    rows = rows[np.array(differs, dtype=bool)]
    return Edits(flat.edges[rows], flat.edges[rows + 1], list(compress(replacements, differs)))


def build_ngr(resources: RuleResources) -> Generic:
    """Build NGR from the settings.

    Raises:
        ConfigError: one of the replies has no word.
    """
    named = resources.settings.generic
    if not named:
        return Generic(resources.language.generic[:1])
    if named == SEVERAL:
        return Generic(resources.language.generic)
    replies = [tuple(tokenise(text)) for text in named.split("|")]
    if not all(replies):
        raise ConfigError("a generic reply has no word", where="replies.generic", got=repr(named), fix="REPLY|REPLY")
    return Generic(replies)


def build_copy_1(resources: RuleResources) -> Copied:
    """Build COPY_1 from the settings."""
    return Copied(1)


def build_copy_2(resources: RuleResources) -> Copied:
    """Build COPY_2 from the settings."""
    return Copied(2)


def build_copy_3(resources: RuleResources) -> Copied:
    """Build COPY_3 from the settings."""
    return Copied(3)


Word = tuple[str, tuple[str, ...]]
"""A word of a context, and the tags that it has there."""
_ROUNDING = 1e-9


class _Slots(NamedTuple):
    """The places of a reply where words may be replaced.

    Args:
        words: of the reply.
        present: the same, as a set.
        places: by tag, in the order in which they are taken.
    """

    words: Utterance
    present: frozenset[str]
    positions: Mapping[str, Sequence[int]]


class ImportantWords(OnReplies):
    """IIW.

    Args:
        most: words that enter a reply, but in training.
        language: tags words.
        counts: of the contexts that weights come from; None in training, where words are drawn.
        context_share: words that enter in training, as a share of the context's.
    """

    attacks = "negatives"
    keeps_labels = True

    def __init__(self, most: int, language: ReplyLanguage, counts: TermCounts | None, context_share: float = 1 / 9) -> None:
        self.name = "iiw-training" if counts is None else "iiw"
        self._most, self._language, self._counts, self._share = most, language, counts, context_share
        self._weights: dict[str, float] = {}

    def edits(self, groups: Sequence[CandidateGroup], flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        tags = self._language.tag_all(flat.utterances)
        slots_of: dict[Utterance, _Slots] = {}
        positions: list[int] = []
        replacements: list[Utterance] = []
        edges, ends = flat.edges.tolist(), flat.shape_edges.tolist()
        for start, end, (most, ranked) in zip(ends, ends[1:], self._ranked(groups, seeds), strict=False):
            for row in range(start, end):
                words, edge = flat.utterances[row], edges[row]
                if words not in slots_of:
                    slots_of[words] = self._slots(words, tags[row])
                entering = self._placed(ranked, slots_of[words], most)
                positions += [edge + position for position, _ in entering]
                replacements += [(word,) for _, word in entering]
        return Edits.of_words(np.array(positions, dtype=np.int64), replacements)

    def _placed(self, ranked: Sequence[Word], slots: _Slots, most: int) -> list[tuple[int, str]]:
        """Return the words that enter a reply, with their positions."""
        placed: dict[int, str] = {}
        of_reply, present = slots.positions.keys(), slots.present
        for word, kinds in ranked:
            if word in present or of_reply.isdisjoint(kinds):
                continue
            free = [position for kind in kinds for position in slots.positions.get(kind, ()) if position not in placed]
            for position in free:
                before = slots.words[position - 1] if position else ""
                if self._language.fits(before, slots.words[position], word):
                    placed[position] = word
                    break
            if len(placed) == most:
                break
        return sorted(placed.items())

    def _slots(self, words: Utterance, tags: Sequence[str]) -> _Slots:
        positions: dict[str, list[int]] = {}
        for position, word in enumerate(words):
            if self._language.is_content(word):
                positions.setdefault(tags[position], []).append(position)
        return _Slots(words, frozenset(words), positions)

    def _ranked(self, groups: Sequence[CandidateGroup], seeds: Sequence[int]) -> Iterator[tuple[int, list[Word]]]:
        """Yield for each context how many words may enter, and the words, the first to enter first."""
        tags = iter(self._language.tag_all([turn for group in groups for turn in group.context]))
        contexts = [self._words(group.context, tags) for group in groups]
        if self._counts is None:
            drawn = uniforms(seeds, self.name, [len(words) for words in contexts])
            start = 0
            for group, words in zip(groups, contexts, strict=True):
                order = np.argsort(drawn[start : start + len(words)], kind="stable").tolist()
                start += len(words)
                length = sum(map(len, group.context))
                yield max(1, int(length * self._share + _ROUNDING)), [words[position] for position in order]
            return
        weights = partial(self._weight, self._counts)
        for words in contexts:
            yield self._most, sorted(words, key=lambda word: -weights(word[0]))

    def _words(self, context: Context, tags: Iterator[Sequence[str]]) -> list[Word]:
        """Return the words of a context that may enter, in the order of first occurrence, with their tags."""
        kinds_of: dict[str, dict[str, None]] = {}
        for turn in context:
            for word, tag in zip(turn, next(tags), strict=True):
                if self._language.is_content(word):
                    kinds_of.setdefault(word, {})[tag] = None
        return [(word, tuple(kinds)) for word, kinds in kinds_of.items()]

    def _weight(self, counts: TermCounts, word: str) -> float:
        """Return the weight of a word, equation (5)."""
        if word not in self._weights:
            self._weights[word] = counts.term[word] * counts.idf(word)
        return self._weights[word]


def build(resources: RuleResources) -> ImportantWords:
    """Build IIW from the settings.

    Raises:
        ConfigError: the contexts of the weights are not given.
    """
    return ImportantWords(resources.settings.num_important, resources.language, resources.counts)


def build_training(resources: RuleResources) -> ImportantWords:
    """Build IIW for training, with drawn words."""
    settings = resources.settings
    return ImportantWords(settings.num_important, resources.language, None, settings.context_share)
