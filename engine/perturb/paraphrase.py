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

import numpy as np

from engine.perturb.draws import uniforms_at
from engine.perturb.flat import FlatContexts, Span
from engine.perturb.phrases import Phrases
from engine.perturb.ppdb import Phrase, read_paraphrases
from engine.perturb.resources import Resources
from engine.perturb.settings import PerturbSettings
from engine.perturb.strategy import Expectation
from envs.pairs.turns import Turns


class DataParaphrase:
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
        self._table = {phrase: others for phrase, others in known.items() if others}
        self._phrases = Phrases(self._table)

    def perturb(self, contexts: Sequence[Turns], seeds: Sequence[int]) -> list[Turns]:
        """The perturbed contexts, see `Strategy`."""
        flat = FlatContexts(contexts)
        words = flat.words
        places, limits = self._phrases.starts(flat)
        # A start's two draws are named by its place, so that none depends on another start.
        items = np.searchsorted(flat.context_edges, places, side="right") - 1
        numbers = 2 * (places - flat.context_edges[items])
        spared = uniforms_at(seeds, self.name, items, numbers) >= self.rate
        choices = uniforms_at(seeds, self.name, items, numbers + 1)
        spans: list[Span] = []
        others: list[Phrase] = []
        free = len(words)
        from_right = (each[::-1].tolist() for each in (places, limits, spared, choices))
        for start, limit, is_spared, choice in zip(*from_right, strict=True):
            end = self._phrases.end(words, start, min(limit, free))
            if end > start and not is_spared:
                found = self._table[words[start:end]]
                spans.append((start, end))
                others.append(found[int(choice * len(found))])
                free = start
        return flat.replaced(spans[::-1], others[::-1])


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
