"""Data-level Paraphrase: words and phrases by paraphrases of a table.

Source: Niu & Bansal 2018 (arXiv 1809.02079), section 3.1, with the small PPDB 2.0.

Starts run from the right to the left; at each the longest phrase of the table that reaches into no replaced one is replaced
by a paraphrase drawn uniformly. Both sides of a paraphrase must be known to the model, and paraphrases hold both ways, as
released.

Departures:
  * # Paper: does not restrict PPDB. Released: only what PPDB marks as equivalent. Ours: as `rule` says; pairs without such a
    mark, the lexicon's own among them, count as equivalent.
  * # Released: later starts look at the text as it stands after replacements of other lengths, so that indices slip and a
    phrase can reach into a replaced one. Ours: phrases are those of the text as it came.
  * # Released: where a phrase is spared by the rate, shorter ones at the same start have their turn. Ours: a start is spared,
    so that the rate is the share of matching phrases that are replaced.

Not here: how files of paraphrases are read (`ppdb.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import numpy as np

from engine.perturb.draws import uniforms_at
from engine.perturb.flat import Edits, FlatContexts, running
from engine.perturb.phrases import Matches, Phrases
from engine.perturb.ppdb import Phrase, read_paraphrases
from engine.perturb.resources import Resources
from engine.perturb.settings import PerturbSettings
from engine.perturb.strategy import ByEdits, Expectation
from envs.pairs.turns import Utterance


class DataParaphrase(ByEdits):
    """Phrases of a table are replaced by their paraphrases.

    Args:
        table: phrases and their paraphrases.
        may_enter: whether a model knows all of some words.
        rate: share of matching phrases that are replaced.
    """

    name = "data-paraphrase"
    expectation = Expectation.SHOULD_NOT_CHANGE

    def __init__(
        self, table: Mapping[Phrase, tuple[Phrase, ...]], may_enter: Callable[[Sequence[str]], bool], rate: float = 1.0
    ) -> None:
        self.rate = rate
        known = {phrase: tuple(filter(may_enter, others)) for phrase, others in table.items() if may_enter(phrase)}
        table = {phrase: others for phrase, others in known.items() if others}
        self._phrases = Phrases(table)
        self._counts = np.fromiter(map(len, table.values()), dtype=np.int64, count=len(table))
        self._firsts = running(self._counts)
        self._others = list(chain.from_iterable(table.values()))

    def edits(self, flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        """What is changed, see `ByEdits`."""
        found = self._phrases.longest(flat)
        if self.rate < 1:
            found = found.where(self._drawn(flat, seeds, found, 0) < self.rate)
        found = self._apart(flat.words, found)
        shares = self._drawn(flat, seeds, found, 1)
        others = self._firsts[found.phrases] + (shares * self._counts[found.phrases]).astype(np.int64)
        return Edits(found.starts, found.ends, [self._others[i] for i in others.tolist()])

    def _drawn(self, flat: FlatContexts, seeds: Sequence[int], found: Matches, which: int) -> np.ndarray:
        """One of a start's two draws, which are named by its place, so that none depends on another start."""
        items = np.searchsorted(flat.context_edges, found.starts, side="right") - 1
        return uniforms_at(seeds, self.name, items, 2 * (found.starts - flat.context_edges[items]) + which)

    def _apart(self, words: Utterance, found: Matches) -> Matches:
        """Shorter phrases, or none, where the longest reach into what is replaced to the right of them."""
        starts, ends, phrases = found
        stays = np.ones(len(starts), dtype=bool)
        for i in np.flatnonzero(ends[:-1] > starts[1:])[::-1].tolist():
            start = starts[i]
            free = next((starts[j] for j in range(i + 1, len(starts)) if stays[j]), len(words))
            if ends[i] > free:
                shorter = self._phrases.first_of(words[start:free])
                stays[i] = shorter is not None
                if shorter is not None:
                    ends[i], phrases[i] = start + len(self._phrases.listed[shorter]), shorter
        return found.where(stays)


def build(settings: PerturbSettings, resources: Resources) -> DataParaphrase:
    """The strategy as the settings say.

    Raises:
        DataError: the file of paraphrases cannot be read, or the lexicon's pairs are not there.
    """
    if settings.paraphrases is None:
        table = resources.lexicon.paraphrases
    else:
        table = read_paraphrases(settings.paraphrases, equivalent=settings.rule == "released")
    return DataParaphrase(table, resources.may_enter, settings.paraphrase_rate)
