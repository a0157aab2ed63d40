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

from engine.perturb.draws import uniforms
from engine.perturb.flat import FlatContexts
from engine.perturb.ppdb import Phrase, read_paraphrases
from engine.perturb.resources import Resources
from engine.perturb.settings import PerturbSettings
from engine.perturb.strategy import Expectation
from envs.pairs.turns import Turns, Utterance


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
        lengths: dict[str, set[int]] = {}
        for phrase in self._table:
            lengths.setdefault(phrase[0], set()).add(len(phrase))
        self._lengths = {word: sorted(each, reverse=True) for word, each in lengths.items()}

    def perturb(self, contexts: Sequence[Turns], seeds: Sequence[int]) -> list[Turns]:
        """The perturbed contexts, see `Strategy`."""
        flat = FlatContexts(contexts)
        # Two draws a word, whatever is done with them, so that one start's never depend on another's.
        draws = uniforms(seeds, self.name, 2 * flat.num_words).tolist()
        starts = [0, *flat.ends]
        return flat.shaped(
            self._utterance(words, draws[2 * start : 2 * (start + len(words))])
            for words, start in zip(flat.utterances, starts, strict=False)
        )

    def _utterance(self, words: Utterance, draws: Sequence[float]) -> Utterance:
        written = words
        free = len(words)
        for start in range(len(words) - 1, -1, -1):
            for length in self._lengths.get(words[start], ()):
                end = start + length
                if end > free or words[start:end] not in self._table:
                    continue
                spare, choice = draws[2 * start : 2 * start + 2]
                if spare < self.rate:
                    others = self._table[words[start:end]]
                    # What lies right of a replaced phrase is written already, what lies left of it stands as it came.
                    written = written[:start] + others[int(choice * len(others))] + written[end:]
                    free = start
                break
        return written


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
