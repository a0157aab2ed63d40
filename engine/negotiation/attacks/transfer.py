"""The transfer attack of Cheng et al. 2019: a sentence that worked elsewhere, plugged in at turn n + 1.

The attacker negotiates through an ordinary speaker; at its first own turn with at least n utterances behind it, it says
one sentence from a list instead, drawn per dialogue, and then speaks ordinarily again. The list is the adversary's last
sentences in its best dialogues (paper, section 4.2); a list of one is the paper's fixed sentence (section 7.2).

# Paper: n = 3, and the sentence is the fourth utterance. Ours: the first own turn from then on, because who starts is
# drawn, so that the fourth utterance is the attacker's in half of the dialogues only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from parley.envs.core.errors import ConfigError
from parley.envs.core.play import Session, Utterances
from parley.envs.negotiation.game import Agent, SideView
from parley.envs.negotiation.vocabulary import EOS_ID, SELECTION, SELECTION_ID, Vocabulary

PAPER_TURN = 3
PAPER_SENTENCE = "take book you get rest"


def last_sentences(rows: Iterable[Mapping[str, Any]], min_advantage: int, limit: int) -> list[str]:
    """The adversary's last sentences in its best dialogues.

    Args:
        rows: dialogue rows of a match, such as an RL adversary's against its target.
        min_advantage: points by which the adversary must have won.
        limit: keep at most this many different sentences, the most frequent ones.

    Returns:
        Different sentences without `<selection>`, most frequent first, ties in order of the text.
    """
    counts: Counter[str] = Counter()
    for row in rows:
        if row["status"] == "ok" and row["points_adversary"] - row["points_target"] >= min_advantage:
            # Behind other words <selection> ends an utterance; nobody may plug it in.
            said = [turn["words"].removesuffix(SELECTION).strip() for turn in row["turns"] if turn["side"] == 0]
            if said := list(filter(None, said)):
                counts[said[-1]] += 1
    return [sentence for sentence, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:limit]]


def encode_sentence(sentence: str, vocabulary: Vocabulary) -> np.ndarray:
    """A sentence as word ids with `<eos>` last.

    Raises:
        ConfigError: it has a word that the vocabulary lacks or nobody may say.
    """
    if wrong := unspeakable_words(sentence, vocabulary):
        raise ConfigError(
            "a sentence has words that the speaker does not know or may not say",
            where=sentence,
            got=" ".join(wrong),
            fix="use words of its corpus",
        )
    return np.append(vocabulary.encode(sentence.split()), EOS_ID)


def unspeakable_words(sentence: str, vocabulary: Vocabulary) -> list[str]:
    """The words of a sentence that a vocabulary lacks or nobody may say."""
    words = sentence.split()
    reserved = {EOS_ID, SELECTION_ID, *vocabulary.unspeakable_ids}
    return [word for word, i in zip(words, vocabulary.encode(words).tolist(), strict=True) if i in reserved]


class TransferAgent:
    """A speaker that says a learned sentence once.

    Args:
        speaker: who speaks at all other turns, and chooses.
        sentences: what may be plugged in, words separated by blanks.
        turn: utterances that must be behind it, n in the paper.

    Raises:
        ConfigError: the list is empty, or a sentence has a word that the speaker does not know or nobody may say.
    """

    def __init__(self, speaker: Agent, sentences: Sequence[str], turn: int = PAPER_TURN) -> None:
        if not sentences:
            raise ConfigError(
                "the transfer attack has no sentence to plug in",
                fix="name a stronger attack in transfer.source, lower transfer.min_advantage, or give transfer.sentence",
            )
        self.name = f"transfer through {speaker.name}"
        self.vocabulary: Vocabulary = speaker.vocabulary
        self.speaker, self.turn = speaker, turn
        self.tokens = [encode_sentence(sentence, self.vocabulary) for sentence in sentences]

    def join(self, view: SideView) -> Session:
        """Takes a seat beside its speaker's."""
        return _TransferSession(self, view, self.speaker.join(view))


class _TransferSession:
    def __init__(self, agent: TransferAgent, view: SideView, inner: Session) -> None:
        self._agent, self._view, self.inner = agent, view, inner
        self._said = np.zeros(len(view), dtype=bool)

    def speak(self, rows: np.ndarray) -> Utterances:
        plugged = rows[~self._said[rows] & (self._view.num_turns[rows] >= self._agent.turn)]
        ordinary = np.setdiff1d(rows, plugged)
        parts: dict[int, np.ndarray] = {}
        if ordinary.size:
            spoken = self.inner.speak(ordinary)
            parts = {row: spoken.tokens[i, : spoken.lengths[i]] for i, row in enumerate(ordinary.tolist())}
        for row in plugged.tolist():
            choices = self._agent.tokens
            parts[row] = choices[self._view.generator(row).integers(len(choices))]
        self._said[plugged] = True
        return Utterances.of([parts[row] for row in rows.tolist()])

    def choose(self, rows: np.ndarray) -> np.ndarray:
        return self.inner.choose(rows)
