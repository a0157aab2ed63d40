"""Replies to contexts and who wrote them, many examples side by side: the rules of `parley/Reply-v1` and its two-sided form.

A speaker says one whole reply to the context of an example. In the two-sided form a listener is then shown the context and one
reply, the speaker's or the recorded one as the example's coin falls, and says whether a person wrote it: the Turing test on
which Li et al. 2017 (arXiv 1701.06547, section 3) train both sides. Both replies are shown in words of one vocabulary and cut
to one length, so that neither spelling nor a cut gives away who wrote it.

Shapes: B examples, K turns of context, N words of a turn, T words of a reply.

Who says how human a reply is: what `parley/Reply-v1` rewards, and a stand-in where nobody is handed in.

The pairs of a corpus in the words of a model: what generators are trained further on, and discriminators beside them.

What judges of replies promise (`judge.ReplyJudge`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from parley.envs.core.config import Configuration, PositiveInt
from parley.envs.core.conformance import Kind, expect, same_alone
from parley.envs.core.errors import JudgeError
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.compiled import PairCorpus, PairSplit, Ragged
from parley.envs.corpora.pairs.contexts import in_train, left_out, windows, with_replies
from parley.envs.corpora.pairs.turns import EOT, Example, Turn, turn_of, turn_words
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, PAD_ID, PairVocabulary


class ReplyJudge(Protocol):
    """Judges replies."""

    def judge_replies(self, examples: Sequence[Example], replies: Sequence[Turn]) -> np.ndarray:
        """How human each reply is (B,), from 0 to 1; what is said of one does not depend on the others.

        Args:
            examples: contexts, and the replies that were recorded, with which a judge may compare.
            replies: one for each, of at least one word.
        """


class RecordedOverlap:
    """The F1 of a reply's words and those of the recorded one, counted as often as they stand.

    A stand-in that needs no model, so that the environment can be tried out: it knows one right answer and nothing of people.
    """

    def judge_replies(self, examples: Sequence[Example], replies: Sequence[Turn]) -> np.ndarray:
        """See `ReplyJudge`."""
        pairs = zip(examples, replies, strict=True)
        return np.array([_f1(turn_words(example.reply), turn_words(said)) for example, said in pairs])


def _f1(recorded: Sequence[str], said: Sequence[str]) -> float:
    shared = (Counter(recorded) & Counter(said)).total()
    return 2 * shared / (len(recorded) + len(said))


class PairsInWords(NamedTuple):
    """What a model reads of a corpus.

    Args:
        splits: pairs in the order of the corpus; words that the model does not know are `<unk>`.
        note: how many pairs are left out because train has their contexts, in sentences; empty where there are none.
    """

    splits: dict[str, PairSplit]
    note: str


def pairs_in_words(
    corpus: PairCorpus, vocabulary: PairVocabulary, *, turns: int, min_reply: int, max_reply: int
) -> PairsInWords:
    """Return the splits of a corpus as a model reads them; validation and test pairs whose contexts stand in train are left out.

    Args:
        corpus: opened with every word.
        vocabulary: of the model; with more than one turn `<eot>` is one of its words.
        turns: of context, the newest; `<eot>` stands between them.
        min_reply: words that a reply has at least.
        max_reply: words that a reply has at most.
    """
    table = vocabulary.encode(corpus.vocabulary.words).astype(np.int32)
    found, notes = {}, []
    for name, split in corpus.splits.items():
        known = replace(split, utterances=Ragged(table[split.utterances.values], split.utterances.offsets))
        if turns > 1:
            known = windows(known, turns, vocabulary.index[EOT])
        seen = in_train(corpus, name, turns)
        asked = with_replies(known, min_reply, max_reply)
        found[name] = with_replies(replace(known, pairs=known.pairs[~seen]), min_reply, max_reply)
        notes.append(left_out(len(asked) - len(found[name]), len(asked), name))
    return PairsInWords(found, " ".join(filter(None, notes)))


_EXAMPLES = (
    Example("a", ((("my", "printer", "is", "broken", "."),), (("which", "printer", "?"),)), (("the", "one", "upstairs", "."),)),
    Example("b", ((("hello",),),), (("hi", "there", "!"), ("what", "can", "i", "do", "?"))),
    Example("c", ((("it", "works"), ("thanks",)),), (("welcome",),)),
)
_SAID: tuple[Turn, ...] = ((("i", "do", "n't", "know", "."),), (("<unk>",), ("ok",)), (("welcome",),))


def _made(named: Any) -> Any:
    return named() if callable(named) else named


def _judged(judge: Any, rows: slice = slice(None)) -> list[float]:
    return [float(value) for value in np.asarray(judge.judge_replies(_EXAMPLES[rows], _SAID[rows]))]


def _says_a_number_of_each(judge: Any) -> None:
    """Says a number from 0 to 1 of each reply, with several utterances and unknown words too."""
    found = np.asarray(judge.judge_replies(_EXAMPLES, _SAID))
    expect(found.shape == (len(_SAID),), f"{len(_SAID)} numbers", f"shape {found.shape}")
    expect(bool(((found >= 0) & (found <= 1)).all()), "numbers from 0 to 1", found.tolist())


def _says_the_same_again(judge: Any) -> None:
    """Says the same when it is asked again."""
    same_alone(_judged(judge), _judged(judge), "what is said of a reply")


def _is_the_same_alone(judge: Any) -> None:
    """Says the same of a reply whether others are judged beside it or not."""
    alone = [_judged(judge, slice(row, row + 1))[0] for row in range(len(_SAID))]
    close = [np.isclose(together, single, rtol=0, atol=1e-5) for together, single in zip(_judged(judge), alone, strict=True)]
    expect(all(close), "what is said of a reply does not depend on what else is asked", f"{_judged(judge)} and, alone, {alone}")


REPLY_JUDGE = Kind(
    "judge of replies",
    "parley.envs.generation.game.ReplyJudge",
    ("judge_replies",),
    _made,
    (_says_a_number_of_each, _says_the_same_again, _is_the_same_alone),
)


MACHINE, PERSON = 0, 1
"""What a listener says of a reply."""
_SILENT = (PAD_ID, BOS_ID)
"""Ids that are no words."""


@dataclass(frozen=True, kw_only=True)
class ReplyRules(Configuration):
    """Limits of the game."""

    turns: PositiveInt = 2
    """Turns of context that are seen; of longer ones the newest."""
    max_context: PositiveInt = 30
    """Words of each that are seen; of longer ones the last."""
    max_words: PositiveInt = 20
    """Words of a reply; longer ones are cut."""


class ReplyGame:
    """Examples side by side.

    Args:
        examples: contexts and recorded replies (B).
        seeds: one for each, at least 0.
        vocabulary: of contexts and replies.
        rules: limits.
    """

    def __init__(
        self, examples: Sequence[Example], seeds: Sequence[int], vocabulary: PairVocabulary, rules: ReplyRules
    ) -> None:
        self.examples, self.vocabulary, self.rules = examples, vocabulary, rules
        self.context_BKN = np.full((len(examples), rules.turns, rules.max_context), PAD_ID, dtype=np.int64)
        """Turns that are seen, the newest last; one that is not there is empty."""
        self.lengths_BK = np.zeros((len(examples), rules.turns), dtype=np.int64)
        """Words of each."""
        for row, example in enumerate(examples):
            for place, turn in enumerate(reversed(example.context[-rules.turns :]), start=1):
                words = turn_words(turn)[-rules.max_context :]
                self.context_BKN[row, -place, : len(words)] = vocabulary.encode(words)
                self.lengths_BK[row, -place] = len(words)
        self.is_recorded_B = np.array([bool(stream(seed, "shown reply").integers(2)) for seed in seeds], dtype=bool)
        """Whether a listener is shown the recorded reply."""
        self.replies: list[Turn] = []
        """What the speaker has said to each, in words."""
        self.num_illegal_B = np.zeros(len(examples), dtype=np.int64)
        """Ids of what was said that are no words."""
        self.guesses_B = np.zeros(len(examples), dtype=np.int64)
        """What the listener has said of each."""
        self._said: list[np.ndarray] = []

    def say(self, words_BT: np.ndarray) -> None:
        """Take the speaker's replies.

        Args:
            words_BT: ids (B, T), up to the first `</s>` where there is one. `<pad>` and `<s>` before it are dropped and
                counted; those behind the last word are padding.
        """
        assert not self.replies, "a reply is said once"
        for row, ids in enumerate(words_BT):
            ended = ids[: int(np.argmax(ids == EOS_ID))] if (ids == EOS_ID).any() else np.trim_zeros(ids, "b")
            spoken = ended[~np.isin(ended, _SILENT)][: self.rules.max_words]
            self.num_illegal_B[row] = np.isin(ended, _SILENT).sum()
            self._said.append(spoken)
            self.replies.append(turn_of(self.vocabulary.decode(spoken)))

    def judged(self, judge: ReplyJudge) -> np.ndarray:
        """What a judge finds of the speaker's replies (B,) float64; a reply without a word is not shown to it and gets 0.

        Raises:
            JudgeError: it does not answer with a number from 0 to 1 for each.
        """
        rows = [row for row, reply in enumerate(self.replies) if any(reply)]
        found = np.zeros(len(self.examples))
        if rows:
            told = np.asarray(judge.judge_replies([self.examples[row] for row in rows], [self.replies[row] for row in rows]))
            if told.shape != (len(rows),) or not ((told >= 0) & (told <= 1)).all():
                fix = f"a judge gives {len(rows)} replies as many numbers from 0 to 1"
                raise JudgeError("no rewards", where=type(judge).__name__, got=str(told)[:80], fix=fix)
            found[rows] = told
        return found

    def shown(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the replies that a listener is shown, once the speaker has replied: ids (B, T), padded, and lengths (B,), int64."""
        shown_BT = np.full((len(self.examples), self.rules.max_words), PAD_ID, dtype=np.int64)
        lengths_B = np.zeros(len(self.examples), dtype=np.int64)
        for row, said in enumerate(self._said):
            ids = self.recorded(row) if self.is_recorded_B[row] else said
            shown_BT[row, : len(ids)], lengths_B[row] = ids, len(ids)
        return shown_BT, lengths_B

    def recorded(self, row: int) -> np.ndarray:
        """Return the recorded reply as it is shown: ids (length,) int64."""
        return self.vocabulary.encode(turn_words(self.examples[row].reply)[: self.rules.max_words])

    def guess(self, guesses_B: np.ndarray) -> None:
        """Take what the listener says of the replies that it is shown: `MACHINE` or `PERSON`."""
        self.guesses_B = np.asarray(guesses_B, dtype=np.int64)

    def scores(self) -> tuple[np.ndarray, np.ndarray]:
        """What speaker and listener earn (B,) float64.

        The listener earns 1 where it is right. The speaker earns 1 where its reply was shown and taken for a person's.
        """
        right = self.guesses_B == np.where(self.is_recorded_B, PERSON, MACHINE)
        return (~right & ~self.is_recorded_B).astype(np.float64), right.astype(np.float64)
