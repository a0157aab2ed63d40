"""Words spelt in pieces per second on one core, against the plain merge loop, and how long learning the pieces takes.

Text is made up: words of a few thousand syllables, drawn by Zipf's law as words of a language are, so that no data are needed.

    python -m benchmarks.subwords [--quick] [--merges 5000]

    ratio         seconds a word of the merge loop (plain_subwords.py) over ours, which spells each different word once
    per_s, plain_per_s    words a second of both; of ours, nothing is remembered before the text begins
    identical     both made the same pieces of the same words, and those spell the words
    learn_s, spell_s      seconds of the processor to learn the merges on the text, and to spell all of it
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from benchmarks.measure import BenchmarkOptions, Clock, Result, run
from benchmarks.plain_subwords import merged
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.compiled import learn_pieces
from parley.envs.corpora.pairs.vocabulary import PairVocabulary

TYPES, SYLLABLES = 50_000, 2000
EXPONENT = 1.05
"""Of Zipf's law."""


@dataclass(frozen=True, kw_only=True)
class Options(BenchmarkOptions):
    """Byte pair encoding against the plain merge loop."""

    merges: int = 5000
    """Pairs of pieces that are put together."""

    @property
    def words(self) -> int:
        """Return the number of words of the text."""
        return 1_000_000

    @property
    def plain_words(self) -> int:
        """Return the number of first words that the loop spells."""
        return 20_000 if self.quick else 200_000


def text(num_words: int) -> list[str]:
    """Make words up."""
    draws = stream(0, "benchmark", "subwords")
    letters = "abcdefghijklmnopqrstuvwxyz"
    made = ["".join(letters[i] for i in draws.integers(26, size=draws.integers(1, 4))) for _ in range(SYLLABLES)]
    kinds = ["".join(made[i] for i in draws.integers(SYLLABLES, size=draws.integers(1, 5))) for _ in range(TYPES)]
    shares = np.arange(1, TYPES + 1) ** -EXPONENT
    drawn = draws.choice(TYPES, size=num_words, p=shares / shares.sum())
    return [kinds[i] for i in drawn.tolist()]


def measure(options: Options) -> Result:
    """Learn, spell and compare."""
    words = text(options.words)
    learning, spelling, plain = Clock(), Clock(), Clock()
    with learning.running():
        learnt = learn_pieces(Counter(words), options.merges)
    assert learnt.merges is not None, "pieces have merges"
    fresh = PairVocabulary(learnt.words, learnt.merges)
    with spelling.running():
        ids = fresh.encode(words)
    ranks = {pair: rank for rank, pair in enumerate(learnt.merges)}
    compared = words[: options.plain_words]
    with plain.running():
        pieces = [piece for word in compared for piece in merged(word, ranks)]
    ours = [fresh.words[unit] for unit in ids[: len(pieces)].tolist()]
    seconds, plain_seconds = spelling.cpu_s / len(words), plain.cpu_s / len(compared)
    return Result(
        ratio=plain_seconds / seconds,
        identical=ours == pieces and fresh.decode(ids) == words,
        figures={
            "words": len(words),
            "types": len(set(words)),
            "merges": len(learnt.merges),
            "per_s": 1 / seconds,
            "plain_per_s": 1 / plain_seconds,
            "learn_s": learning.cpu_s,
            "spell_s": spelling.cpu_s,
        },
    )


if __name__ == "__main__":
    run("subwords", Options, measure)
