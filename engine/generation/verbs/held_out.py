"""How a generator does against judges that its training never saw: AdverSuc and machine-vs-random on a held-out split.

The judges are linear, on unigrams (Li et al. 2017, section 4), fitted on these replies alone and cross-fitted by source, so
that each pair is judged by one that has not seen its source. A reply without a word is no question to them: whoever reads its
length tells it, so that it counts as told, and so does the reply beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from parley.engine.core.stats.replies import has_word
from parley.engine.generation.metrics.adversarial import JudgedScores
from parley.engine.generation.metrics.scenarios import (
    ADVERSUC,
    RANDOM,
    JudgedScenario,
    against,
    assign_folds,
    by_source,
    random_replies,
    source_name,
)
from parley.envs.core.seeds import derive_seed
from parley.envs.corpora.pairs.compiled import PairSplit
from parley.envs.corpora.pairs.replied import RepliedPair
from parley.envs.corpora.pairs.turns import EOT
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.core.decoders import DecoderSettings

if TYPE_CHECKING:
    from parley.policies.seq2seq.model import Seq2Seq

NUM_FOLDS = 5
_JUDGE = "svm-unigram"


class HeldOut:
    """The contexts of a split, answered and judged.

    Args:
        pairs: contexts and recorded replies.
        vocabulary: of both.
        decoder: answers.
        max_words: of an answer at most, as of the recorded replies; longer ones are cut, as in training.
        seed: of draws, folds and judges; training knows none of these streams.
    """

    def __init__(
        self, pairs: PairSplit, vocabulary: PairVocabulary, decoder: DecoderSettings, max_words: int, seed: int
    ) -> None:
        self._decoder, self._max_words, self._seed, self._words = decoder, max_words, seed, vocabulary
        self._sources = [pairs.utterances[source] for source in pairs.pairs[:, 0].tolist()]
        self.recorded = [pairs.utterances[reply] for reply in pairs.pairs[:, 1].tolist()]
        """Word ids of the recorded replies."""

    def said(self, generator: Seq2Seq) -> list[list[int]]:
        """What a generator answers, word ids without `</s>`."""
        from parley.policies.seq2seq.replying import ReplyDecoder

        seeds = [derive_seed(self._seed, "held-out reply", row) for row in range(len(self._sources))]
        return [reply[: self._max_words] for reply in ReplyDecoder(generator, self._decoder)(self._sources, seeds)]

    def judged(self, said: Sequence[Sequence[int]]) -> dict[str, JudgedScores]:
        """What judges say, all folds together.

        Returns:
            `ADVERSUC`, of recorded replies, the first side, and those; `RANDOM`, of those, the first side, and recorded
            replies to other contexts.
        """
        recorded, answers = self._pairs(self.recorded), self._pairs(said)
        human = by_source(recorded, self._seed, len(said))
        machine = by_source([pair for pair in answers if has_word(pair.reply)], self._seed, len(said))
        silent = [source_name(pair) for pair in answers if not has_word(pair.reply)]
        folds = assign_folds([human], human, NUM_FOLDS, self._seed)
        others = random_replies(machine, human, folds, self._seed)
        asked = against(ADVERSUC, human, machine, folds), against(RANDOM, machine, others, folds)
        return {scenario.name: self._scores(scenario).with_told(silent) for scenario in asked}

    def _scores(self, scenario: JudgedScenario) -> JudgedScores:
        from parley.policies.generation.judges.judge import JudgeSettings, scores_by
        from parley.policies.generation.judges.makers import judge_maker

        pairs, labels = [each.pair for each in scenario.pairs], np.array([each.label for each in scenario.pairs])
        scores, make = np.zeros(len(pairs)), judge_maker(_JUDGE, JudgeSettings())
        for fold in range(NUM_FOLDS):
            own = scenario.folds == fold
            if own.all() or not own.any():
                # Nothing to learn from, and the pairs stay undecided, or nothing to judge.
                continue
            judge = make()
            seed = derive_seed(self._seed, "held-out judge", fold)
            judge.fit([pairs[row] for row in np.flatnonzero(~own)], labels[~own], seed)
            scores[own] = scores_by(judge, [pairs[row] for row in np.flatnonzero(own)])
        return JudgedScores(np.array([pair.source for pair in scenario.pairs]), labels, scores, NUM_FOLDS)

    def _pairs(self, replies: Sequence[Sequence[int] | np.ndarray]) -> list[RepliedPair]:
        found = []
        for source, reply in zip(self._sources, replies, strict=True):
            turns: list[list[str]] = [[]]
            for word in self._words.decode(source):
                if word == EOT:
                    turns.append([])
                else:
                    turns[-1].append(word)
            found.append(RepliedPair(tuple(map(tuple, turns)), tuple(self._words.decode(reply))))
        return found
