"""Data-level Paraphrase: words and phrases by paraphrases of a table.

Source: Niu & Bansal 2018 (arXiv 1809.02079), section 3.1, with the small PPDB 2.0.

Under rule "paper" a paraphrase keeps what the sentence says. Single words are replaced by synonyms in the sense, part of
speech and form that they have there (`engine/perturb/lexicon/phrasings.py`), phrases by what this project lists
(`engine/perturb/lexicon/phrasings.py`) or the user's table says; where a corpus is at hand its trigram model judges each in its
place; and at most a share of an utterance's words change, never two neighbours. Without a corpus only what says the same in any
chat is replaced. The longer lists, which were written from the words of help channels, serve the corpora of such channels
alone.

Under rule "released" starts run from the right to the left; at each the longest phrase of the table that reaches into no
replaced one is replaced by a paraphrase drawn uniformly. Both sides of a paraphrase must be known to the model, and
paraphrases hold both ways.

Departures:
  * # Paper, released: every match is replaced, whatever it means there. Ours: rule "paper" as above, because four of five
    sentences of #ubuntu then say something else or are no English, so that a model which answers otherwise is right.
  * # Paper: does not restrict PPDB. Released: only what PPDB marks as equivalent. Ours: under rule "released" as released;
    pairs without such a mark, the lexicon's own among them, count as equivalent.
  * # Released: later starts look at the text as it stands after replacements of other lengths, so that indices slip and a
    phrase can reach into a replaced one. Ours: phrases are those of the text as it came.
  * # Released: where a phrase is spared by the rate, shorter ones at the same start have their turn. Ours: a start is spared,
    so that the rate is the share of matching phrases that are replaced.

Not here: how files of paraphrases are read (`engine/perturb/lexicon/opposites.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import numpy as np

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.lexicon.opposites import Phrase, read_paraphrases
from parley.engine.perturb.lexicon.phrasings import Synonyms, fits_article, phrasings, synonyms
from parley.engine.perturb.lexicon.tagger import window
from parley.engine.perturb.strategies.draws import uniforms
from parley.engine.perturb.strategies.entities import Matches, Phrases
from parley.engine.perturb.strategies.texts import Edits, FlatContexts, running
from parley.engine.perturb.strategy import ByEdits, Expectation, PerturbSettings
from parley.envs.corpora.pairs.turns import Utterance

NAME = "data-paraphrase"


class DataParaphrase(ByEdits):
    """Words and phrases are replaced by others that say the same there.

    Args:
        synonyms: of single words.
        phrases: phrases and their paraphrases.
        resources: the lexicon, the words that may enter, and the corpus.
        settings: share of words, rate, and how much less fluent an edit may be.
    """

    name = NAME
    expectation = Expectation.SHOULD_NOT_CHANGE

    def __init__(
        self, synonyms: Synonyms, phrases: Mapping[Phrase, tuple[Phrase, ...]], resources: Resources, settings: PerturbSettings
    ) -> None:
        self._synonyms, self._resources, self._settings = synonyms, resources, settings
        entering = {phrase: tuple(filter(resources.may_enter, paraphrases)) for phrase, paraphrases in phrases.items()}
        self._phrases = Phrases([phrase for phrase, paraphrases in entering.items() if paraphrases])
        self._paraphrases = [entering[phrase] for phrase in self._phrases.listed]
        self._synonym_cache: dict[tuple[str, str], tuple[Phrase, ...]] = {}

    def edits(self, flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        starts, ends, choices = self._fluent(flat, *self._replaceable(flat))
        if not len(starts):
            return Edits.of_words(starts, ())
        spared, order, share = _drawn(flat, seeds, starts, 3)
        order[spared >= self._settings.paraphrase_rate] = np.inf
        kept = self._few(flat, starts, ends, order)
        chosen = [choices[row][int(share[row] * len(choices[row]))] for row in kept.tolist()]
        return Edits(starts[kept], ends[kept], chosen)

    def _replaceable(self, flat: FlatContexts) -> tuple[np.ndarray, np.ndarray, list[tuple[Phrase, ...]]]:
        """Find replaceable words and phrases, and their paraphrases; words inside a phrase have none of their own."""
        synonyms_of, synonyms_for = self._synonym_cache, self._synonyms.of
        tags = chain.from_iterable(self._resources.lexicon.tag_all(flat.utterances))
        keys = list(zip(flat.words, tags, strict=True))
        for key in keys:
            if key not in synonyms_of:
                synonyms_of[key] = synonyms_for(*key)
        singles = np.fromiter(map(len, map(synonyms_of.__getitem__, keys)), dtype=np.int64, count=len(keys))
        matches = self._phrases.longest(flat)
        covered = np.zeros(len(keys) + 1, dtype=np.int64)
        np.add.at(covered, matches.starts, 1)
        np.subtract.at(covered, matches.ends, 1)
        singles[np.cumsum(covered)[:-1] > 0] = 0
        words = np.flatnonzero(singles)
        starts = np.concatenate([words, matches.starts])
        ends = np.concatenate([words + 1, matches.ends])
        choices = [synonyms_of[keys[position]] for position in words.tolist()] + [
            self._paraphrases[i] for i in matches.phrases.tolist()
        ]
        by_start = np.argsort(starts, kind="stable")
        return starts[by_start], ends[by_start], [choices[i] for i in by_start.tolist()]

    def _fluent(
        self, flat: FlatContexts, starts: np.ndarray, ends: np.ndarray, choices: Sequence[tuple[Phrase, ...]]
    ) -> tuple[np.ndarray, np.ndarray, list[tuple[Phrase, ...]]]:
        """Return the paraphrases that keep articles right and, with a corpus, the text about as fluent."""
        begins = {*flat.edges.tolist()}
        rows = [
            (row, other)
            for row, (start, paraphrases) in enumerate(zip(starts.tolist(), choices, strict=True))
            for other in paraphrases
            if start in begins or fits_article(flat.words[start - 1], flat.words[start], other[0])
        ]
        language = self._resources.language
        if language is not None and rows:
            of = [row for row, _ in rows]
            around = np.searchsorted(flat.edges, starts[of], side="right")
            edges = flat.edges[around - 1].tolist(), flat.edges[around].tolist()
            sides = list(zip(starts[of].tolist(), ends[of].tolist(), *edges, strict=True))
            before = [window(flat.words, *side[:2], flat.words[side[0] : side[1]], *side[2:]) for side in sides]
            after = [window(flat.words, *side[:2], other, *side[2:]) for side, (_, other) in zip(sides, rows, strict=True)]
            ratios = language.ratios(after, before).tolist()
            rows = [row for row, ratio in zip(rows, ratios, strict=True) if ratio <= self._settings.perplexity_ratio]
        fluent: dict[int, tuple[Phrase, ...]] = {}
        for row, other in rows:
            fluent[row] = (*fluent.get(row, ()), other)
        kept = list(fluent)
        return starts[kept], ends[kept], list(fluent.values())

    def _few(self, flat: FlatContexts, starts: np.ndarray, ends: np.ndarray, order: np.ndarray) -> np.ndarray:
        """Draw the edits that happen, ascending and not adjacent, until an utterance's share of words is reached."""
        utterances = np.searchsorted(flat.edges, starts, side="right") - 1
        lengths = np.diff(flat.edges)[utterances]
        left = dict(zip(utterances.tolist(), np.maximum(1, lengths * self._settings.paraphrase_share).tolist(), strict=True))
        edges = flat.edges.tolist()
        taken: set[int] = set()
        kept = []
        for row in np.argsort(order, kind="stable")[: np.count_nonzero(np.isfinite(order))].tolist():
            utterance, start, end = int(utterances[row]), int(starts[row]), int(ends[row])
            around = range(max(start - 1, edges[utterance]), min(end + 1, edges[utterance + 1]))
            if (left[utterance] >= 1 and end - start <= left[utterance] + 1) and taken.isdisjoint(around):
                left[utterance] -= end - start
                taken.update(range(start, end))
                kept.append(row)
        return np.array(sorted(kept), dtype=np.int64)


class ReleasedParaphrase(ByEdits):
    """Every phrase of a table is replaced by one of its paraphrases.

    Args:
        table: phrases and their paraphrases.
        may_enter: whether a model knows all of some words.
        rate: share of matching phrases that are replaced.
    """

    name = NAME
    expectation = Expectation.SHOULD_NOT_CHANGE

    def __init__(
        self, table: Mapping[Phrase, tuple[Phrase, ...]], may_enter: Callable[[Sequence[str]], bool], rate: float = 1.0
    ) -> None:
        self.rate = rate
        entering = {phrase: tuple(filter(may_enter, paraphrases)) for phrase, paraphrases in table.items() if may_enter(phrase)}
        table = {phrase: paraphrases for phrase, paraphrases in entering.items() if paraphrases}
        self._phrases = Phrases(table)
        self._counts = np.fromiter(map(len, table.values()), dtype=np.int64, count=len(table))
        self._firsts = running(self._counts)
        self._paraphrases = list(chain.from_iterable(table.values()))

    def edits(self, flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        matches = self._phrases.longest(flat)
        if self.rate < 1:
            matches = matches.where(_drawn(flat, seeds, matches.starts, 2)[0] < self.rate)
        matches = self._apart(flat.words, matches)
        shares = _drawn(flat, seeds, matches.starts, 2)[1]
        chosen = self._firsts[matches.phrases] + (shares * self._counts[matches.phrases]).astype(np.int64)
        return Edits(matches.starts, matches.ends, [self._paraphrases[i] for i in chosen.tolist()])

    def _apart(self, words: Utterance, matches: Matches) -> Matches:
        """Shorten or drop the matches that reach into a match on their right."""
        starts, ends, phrases = matches
        stays = np.ones(len(starts), dtype=bool)
        for i in np.flatnonzero(ends[:-1] > starts[1:])[::-1].tolist():
            start = starts[i]
            free = next((starts[j] for j in range(i + 1, len(starts)) if stays[j]), len(words))
            if ends[i] > free:
                shorter = self._phrases.first_of(words[start:free])
                stays[i] = shorter is not None
                if shorter is not None:
                    ends[i], phrases[i] = start + len(self._phrases.listed[shorter]), shorter
        return matches.where(stays)


def _drawn(flat: FlatContexts, seeds: Sequence[int], starts: np.ndarray, num: int) -> np.ndarray:
    """Draw `num` numbers of each start (num, M); the position names them, so that no start affects another."""
    draws = flat.num_in_contexts(starts) > 0
    rows = np.flatnonzero(np.repeat(draws, flat.num_words))
    drawn = uniforms(seeds, NAME, num * flat.num_words * draws).reshape(-1, num)
    return drawn[np.searchsorted(rows, starts)].T


def build(settings: PerturbSettings, resources: Resources) -> DataParaphrase | ReleasedParaphrase:
    """Build the strategy from the settings.

    Raises:
        DataError: the file of paraphrases cannot be read, or the lexicon's pairs are not there.
    """
    released = settings.rule == "released"
    is_own_table = settings.paraphrases is None
    if settings.paraphrases is None:
        table = resources.lexicon.paraphrases
    else:
        table = read_paraphrases(settings.paraphrases, equivalent=released)
    if released:
        return ReleasedParaphrase(table, resources.may_enter, settings.paraphrase_rate)
    help_channel = resources.is_help_channel
    several = {phrase: paraphrases for phrase, paraphrases in table.items() if len(phrase) > 1}
    phrases = phrasings(help_channel=help_channel) if is_own_table else several
    judged = resources.language is not None
    # NLTK's pairs hold words of newspapers too: only a corpus tells which of them people say. The pairs of the built-in lexicon
    # are of help channels.
    lists_serve = judged and (help_channel or settings.lexicon == "nltk")
    pairs, listed = (
        table if lists_serve or not is_own_table else {},
        synonyms(help_channel=help_channel) if is_own_table else {},
    )
    words = Synonyms(pairs, resources.lexicon, resources.is_usual, listed, is_judged=judged)
    return DataParaphrase(words, phrases, resources, settings)
