"""The rules of `parley/Reply-v1` and its two-sided form, judges of replies, and corpora of pairs in a model's words.

A speaker writes one complete reply to the context of an example. In the two-sided form a listener then sees the context and one
reply, the speaker's or the recorded one by the example's coin, and guesses whether a person wrote it: the Turing test on which
Li et al. 2017 (arXiv 1701.06547, section 3) train both sides. Both replies are shown in one vocabulary and cut to one length,
so neither spelling nor a cut reveals the writer. A `ReplyJudge` scores how human a reply is, the reward of `parley/Reply-v1`.

`pairs_in_words` gives the pairs on which generators and discriminators are trained.

Shapes: B examples, K turns of context, N words of a turn, T words of a reply.
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
from parley.envs.corpora.pairs.contexts import in_train, left_out, only, windows, with_replies
from parley.envs.corpora.pairs.turns import EOT, Example, Turn, turn_of, turn_words
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, PAD_ID, PairVocabulary


class ReplyJudge(Protocol):
    """A judge of replies."""

    def judge_replies(self, examples: Sequence[Example], replies: Sequence[Turn]) -> np.ndarray:
        """Return how human each reply is (B,), from 0 to 1, independent of the other replies.

        Args:
            examples: contexts, and recorded replies for comparison.
            replies: one per example, of at least one word.
        """


class RecordedOverlap:
    """The F1 of the words of a reply and of the recorded one, with repetitions.

    It needs no model and serves to try the environment: it compares with one recorded reply only.
    """

    def judge_replies(self, examples: Sequence[Example], replies: Sequence[Turn]) -> np.ndarray:
        """See `ReplyJudge`."""
        pairs = zip(examples, replies, strict=True)
        return np.array([_f1(turn_words(example.reply), turn_words(reply)) for example, reply in pairs])


def _f1(recorded: Sequence[str], reply: Sequence[str]) -> float:
    shared = (Counter(recorded) & Counter(reply)).total()
    return 2 * shared / (len(recorded) + len(reply))


class PairsInWords(NamedTuple):
    """The pairs of a corpus in a model's words.

    Args:
        splits: pairs in the order of the corpus; words unknown to the model are `<unk>`.
        note: sentences on pairs left out because train has their contexts; empty for none.
    """

    splits: dict[str, PairSplit]
    note: str


def pairs_in_words(
    corpus: PairCorpus, vocabulary: PairVocabulary, *, turns: int, min_reply: int, max_reply: int
) -> PairsInWords:
    """Return the splits of a corpus in a model's words, without validation and test pairs whose contexts are in train.

    Args:
        corpus: opened with every word.
        vocabulary: of the model; with `<eot>` if `turns` is above 1.
        turns: most turns of context, the newest; `<eot>` separates them.
        min_reply: fewest words of a reply.
        max_reply: most words of a reply.
    """
    table = vocabulary.encode(corpus.vocabulary.words).astype(np.int32)
    splits, notes = {}, []
    for name, split in corpus.splits.items():
        encoded = replace(split, utterances=Ragged(table[split.utterances.values], split.utterances.offsets))
        if turns > 1:
            encoded = windows(encoded, turns, vocabulary.index[EOT])
        seen = in_train(corpus, name, turns)
        eligible = with_replies(encoded, min_reply, max_reply)
        splits[name] = with_replies(only(encoded, ~seen), min_reply, max_reply)
        notes.append(left_out(len(eligible) - len(splits[name]), len(eligible), name))
    return PairsInWords(splits, " ".join(filter(None, notes)))


_EXAMPLES = (
    Example("a", ((("my", "printer", "is", "broken", "."),), (("which", "printer", "?"),)), (("the", "one", "upstairs", "."),)),
    Example("b", ((("hello",),),), (("hi", "there", "!"), ("what", "can", "i", "do", "?"))),
    Example("c", ((("it", "works"), ("thanks",)),), (("welcome",),)),
)
_REPLIES: tuple[Turn, ...] = ((("i", "do", "n't", "know", "."),), (("<unk>",), ("ok",)), (("welcome",),))


def _made(named: Any) -> Any:
    return named() if callable(named) else named


def _judged(judge: Any, rows: slice = slice(None)) -> list[float]:
    return [float(value) for value in np.asarray(judge.judge_replies(_EXAMPLES[rows], _REPLIES[rows]))]


def _scores_each_reply(judge: Any) -> None:
    """Score each reply from 0 to 1, with several utterances and unknown words too."""
    scores = np.asarray(judge.judge_replies(_EXAMPLES, _REPLIES))
    expect(scores.shape == (len(_REPLIES),), f"{len(_REPLIES)} numbers", f"shape {scores.shape}")
    expect(bool(((scores >= 0) & (scores <= 1)).all()), "numbers from 0 to 1", scores.tolist())


def _is_deterministic(judge: Any) -> None:
    same_alone(_judged(judge), _judged(judge), "the score of a reply")


def _is_independent(judge: Any) -> None:
    """Score a reply independently of the replies judged with it."""
    single_scores = [_judged(judge, slice(row, row + 1))[0] for row in range(len(_REPLIES))]
    close = [
        np.isclose(together, single, rtol=0, atol=1e-5) for together, single in zip(_judged(judge), single_scores, strict=True)
    ]
    expect(
        all(close), "the score of a reply does not depend on the other replies", f"{_judged(judge)} and, alone, {single_scores}"
    )


REPLY_JUDGE = Kind(
    "judge of replies",
    "parley.envs.generation.game.ReplyJudge",
    ("judge_replies",),
    _made,
    (_scores_each_reply, _is_deterministic, _is_independent),
)


MACHINE, PERSON = 0, 1
"""Guesses of a listener."""
_SILENT = (PAD_ID, BOS_ID)
"""Ids that are not words."""


@dataclass(frozen=True, kw_only=True)
class ReplyRules(Configuration):
    """Limits of `parley/Reply-v1`, in turns and words."""

    turns: PositiveInt = 2
    """Most turns of context; the last ones are shown."""
    max_context: PositiveInt = 30
    """Most words of a turn; the last ones are shown."""
    max_words: PositiveInt = 20
    """Most words of a reply; longer ones are cut."""


class ReplyGame:
    """A batch of examples.

    Args:
        examples: contexts and recorded replies (B).
        seeds: one per example, at least 0.
        vocabulary: of contexts and replies.
        rules: limits.
    """

    def __init__(
        self, examples: Sequence[Example], seeds: Sequence[int], vocabulary: PairVocabulary, rules: ReplyRules
    ) -> None:
        self.examples, self.vocabulary, self.rules = examples, vocabulary, rules
        self.context_BKN = np.full((len(examples), rules.turns, rules.max_context), PAD_ID, dtype=np.int64)
        """Turns of context, the newest last; missing turns are empty."""
        self.lengths_BK = np.zeros((len(examples), rules.turns), dtype=np.int64)
        """Number of words of each turn."""
        for row, example in enumerate(examples):
            for i, turn in enumerate(reversed(example.context[-rules.turns :]), start=1):
                words = turn_words(turn)[-rules.max_context :]
                self.context_BKN[row, -i, : len(words)] = vocabulary.encode(words)
                self.lengths_BK[row, -i] = len(words)
        self.is_recorded_B = np.array([bool(stream(seed, "shown reply").integers(2)) for seed in seeds], dtype=bool)
        """Whether the listener sees the recorded reply."""
        self.replies: list[Turn] = []
        """The speaker's replies, in words."""
        self.num_illegal_B = np.zeros(len(examples), dtype=np.int64)
        """Number of ids in each reply that are not words."""
        self.guesses_B = np.zeros(len(examples), dtype=np.int64)
        """The listener's guesses."""
        self._spoken_ids: list[np.ndarray] = []

    def say(self, words_BT: np.ndarray) -> None:
        """Add the speaker's replies.

        Args:
            words_BT: ids (B, T), up to the first `</s>` if there is one. `<pad>` and `<s>` before it are dropped and counted;
                those after the last word are padding.
        """
        assert not self.replies, "a reply is said once"
        for row, ids in enumerate(words_BT):
            ended = ids[: int(np.argmax(ids == EOS_ID))] if (ids == EOS_ID).any() else np.trim_zeros(ids, "b")
            spoken = ended[~np.isin(ended, _SILENT)][: self.rules.max_words]
            self.num_illegal_B[row] = np.isin(ended, _SILENT).sum()
            self._spoken_ids.append(spoken)
            self.replies.append(turn_of(self.vocabulary.decode(spoken)))

    def judged(self, judge: ReplyJudge) -> np.ndarray:
        """Return a judge's scores of the speaker's replies (B,) float64; a reply without a word gets 0.

        Raises:
            JudgeError: the judge does not return one number from 0 to 1 per reply.
        """
        rows = [row for row, reply in enumerate(self.replies) if any(reply)]
        scores = np.zeros(len(self.examples))
        if rows:
            judged_scores = np.asarray(
                judge.judge_replies([self.examples[row] for row in rows], [self.replies[row] for row in rows])
            )
            if judged_scores.shape != (len(rows),) or not ((judged_scores >= 0) & (judged_scores <= 1)).all():
                fix = f"a judge gives {len(rows)} replies as many numbers from 0 to 1"
                raise JudgeError("no rewards", where=type(judge).__name__, got=str(judged_scores)[:80], fix=fix)
            scores[rows] = judged_scores
        return scores

    def shown(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the replies shown to the listener, after the speaker's turn: padded ids (B, T) and lengths (B,), int64."""
        shown_BT = np.full((len(self.examples), self.rules.max_words), PAD_ID, dtype=np.int64)
        lengths_B = np.zeros(len(self.examples), dtype=np.int64)
        for row, reply_ids in enumerate(self._spoken_ids):
            ids = self.recorded(row) if self.is_recorded_B[row] else reply_ids
            shown_BT[row, : len(ids)], lengths_B[row] = ids, len(ids)
        return shown_BT, lengths_B

    def recorded(self, row: int) -> np.ndarray:
        """Return the recorded reply as it is shown: ids (length,) int64."""
        return self.vocabulary.encode(turn_words(self.examples[row].reply)[: self.rules.max_words])

    def guess(self, guesses_B: np.ndarray) -> None:
        """Record the listener's guesses on the shown replies: `MACHINE` or `PERSON`."""
        self.guesses_B = np.asarray(guesses_B, dtype=np.int64)

    def scores(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the rewards of speaker and listener (B,) float64.

        The listener earns 1 if it is right. The speaker earns 1 if its reply was shown and taken for a person's.
        """
        right = self.guesses_B == np.where(self.is_recorded_B, PERSON, MACHINE)
        return (~right & ~self.is_recorded_B).astype(np.float64), right.astype(np.float64)
