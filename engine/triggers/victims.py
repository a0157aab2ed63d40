"""Parley's own networks as victims of a trigger search, and the count of listed strings in their replies.

`Seq2SeqVictim` is a `TextVictim` of `engine/triggers/scorers/scorer.py`. The searched positions are all of a source but its
last, which is `<eou>` always; inputs have full length, as in He & Glass 2018, section 5.1. No special token may be put into an
input.

    B inputs, N searched positions, T words of a reply, V words, E embedding

Brute force (He & Glass 2018, appendix B) looks for the strings of these lists in the replies of a model of characters:

    norm     the words of the corpus
    rev      those words spelled backwards, if that is no word
    random   letters drawn one by one, as many as words have, if that is no word
    mal      malicious text: the prototypes of `targets.py` as one string each, and those of their words that the corpus lacks

A string is said when it is a whole reply (table 5), and contained when it is part of one (table 6).

Departures:
  * # Released: `<unk>` may be put into inputs. Ours: not by default, because it cannot be typed; `unknown=True` allows it.
  * # Paper: 500 malicious strings, unpublished; random ones repeat ("qwzqwzqwz"). Ours: as above, as far as a reply holds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from parley.engine.triggers.targets import outside, prototypes
from parley.envs.core.errors import DataError
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.turns import EOT
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, EOU_ID, SPECIALS, UNK_ID, PairVocabulary
from parley.policies.seq2seq.decoding import sample_sentences
from parley.policies.seq2seq.model import LanguageModel, Seq2Seq


class Seq2SeqVictim:
    """A sequence-to-sequence model whose source is searched.

    Args:
        model: the network; its parameters are not touched.
        lm: a language model over the same words, which judges sources: R(x) of equation 4; None without one.
        unknown: True to allow `<unk>` in an input, as in the released code.
    """

    def __init__(self, model: Seq2Seq, lm: LanguageModel | None = None, *, unknown: bool = False) -> None:
        self.model, self.lm = model.eval(), None if lm is None else lm.eval()
        self.searchable_V = searchable(model.vocabulary, unknown=unknown).to(self.embedding_VE.device)

    @property
    def embedding_VE(self) -> Tensor:
        """Return the embeddings of the words of a source."""
        return self.model.source_embedding.weight.detach()

    @property
    def longest_reply(self) -> int:
        """Return the number of words of the longest reply, its `</s>` included: decoding goes no further."""
        return self.model.sizes.max_reply

    @property
    def input_length(self) -> int:
        """Return N: the length of the source without its `<eou>`."""
        return self.model.sizes.max_source - 1

    def reply_logits(self, embedded_BNE: Tensor, replies_BT: Tensor) -> Tensor:
        """Return logits (B, T, V) of each word of the replies given those before it."""
        begin_BT = replies_BT.new_full((len(replies_BT), 1), BOS_ID)
        return self.model.decode(self.encode(embedded_BNE), None, torch.cat([begin_BT, replies_BT[:, :-1]], dim=1))

    def encode(self, embedded_BNE: Tensor) -> Tensor:
        """Return the encoder's states (B, N + 1, H), of the `<eou>` behind the inputs too."""
        end_BNE = self.embedding_VE[EOU_ID].expand(len(embedded_BNE), 1, -1)
        return self.model.encode(torch.cat([embedded_BNE, end_BNE], dim=1))

    def target(self, text: str) -> Tensor:
        """Return the word ids (T,) int64 of a reply and its `</s>`.

        Args:
            text: words between blanks, written as in the corpus.

        Raises:
            DataError: a word is not in the vocabulary.
        """
        words = text.split()
        if unknown := outside(self.model.vocabulary)(words):
            fix = "write the target with other words"
            raise DataError("the model cannot say some words of a target", where=text, got=", ".join(unknown), fix=fix)
        return torch.tensor([*self.model.vocabulary.encode(words), EOS_ID], device=self.searchable_V.device)

    def words(self, ids: Sequence[int]) -> list[str]:
        """Return the words of those ids."""
        return [self.model.vocabulary.words[i] for i in ids]

    def text(self, ids: Sequence[int]) -> str:
        """Return the words joined by blanks."""
        return " ".join(self.model.vocabulary.decode(ids))

    def likely_inputs(self, seeds: Sequence[int]) -> Tensor:
        """Return inputs (B, N) int64 of full length drawn from the language model, each from a seed."""
        assert self.lm is not None, "no model judges inputs"
        return torch.from_numpy(sample_sentences(self.lm, seeds, self.input_length)).to(self.searchable_V.device)


def searchable(vocabulary: PairVocabulary, *, unknown: bool = False) -> Tensor:
    """Return a mask of the words (V,) that an input may hold: no specials, no end of a turn, `<unk>` if allowed."""
    allowed_V = torch.arange(len(vocabulary)) >= len(SPECIALS)
    allowed_V[UNK_ID] = unknown
    if EOT in vocabulary.index:
        allowed_V[vocabulary.index[EOT]] = False
    return allowed_V


NORM, REV, RANDOM, MAL = LISTS = ("norm", "rev", "random", "mal")
NUM_STRAYS = 3
"""Replies outside the vocabulary that are kept as samples, per tally."""


@dataclass(frozen=True)
class WordLists:
    """Lists of strings to look for in replies.

    Args:
        lists: strings by the name of their list; those of "norm" are the words.
    """

    lists: Mapping[str, tuple[str, ...]]

    @cached_property
    def words(self) -> frozenset[str]:
        """Return the words."""
        return frozenset(self.lists[NORM])

    @cached_property
    def index(self) -> dict[str, list[str]]:
        """Return the names of the lists that hold each string."""
        index: dict[str, list[str]] = {}
        for name, strings in self.lists.items():
            for string in strings:
                index.setdefault(string, []).append(name)
        return index


@dataclass(frozen=True)
class Find:
    """A string of a list that a model says.

    Args:
        list: its name.
        string: the string.
        whole: True if it is a whole reply somewhere, not only a part of one.
        input: the first input with that reply.
    """

    list: str
    string: str
    whole: bool
    input: str


@dataclass(frozen=True)
class WordTally:
    """The listed strings that occur in some replies.

    Args:
        num_inputs: the replies.
        num_outside: those that are no word.
        finds: strings of the lists, each once, in the order of lists and strings.
        strays: a few inputs with replies that are no word.
    """

    num_inputs: int
    num_outside: int
    finds: tuple[Find, ...]
    strays: tuple[tuple[str, str], ...]


def word_lists(words: Iterable[str], alphabet: str, longest: int, num_random: int, seed: int) -> WordLists:
    """Return the lists of a corpus.

    Args:
        words: of the corpus, repeated or not.
        alphabet: letters of random strings.
        longest: characters that a reply can hold; longer strings are left out.
        num_random: strings of the list "random".
        seed: of those.
    """
    norm = sorted({word for word in words if len(word) <= longest})
    norm_set = frozenset(norm)
    generator = stream(seed, "random strings")
    letters, lengths = np.array(list(alphabet)), np.array([len(word) for word in norm])
    drawn = dict.fromkeys(
        "".join(generator.choice(letters, size=length)) for length in generator.choice(lengths, size=num_random).tolist()
    )
    spelled = ["".join(sentence) for sentence in prototypes()] + [word for sentence in prototypes() for word in sentence]
    return WordLists(
        {
            NORM: tuple(norm),
            REV: tuple(sorted({word[::-1] for word in norm} - norm_set)),
            RANDOM: tuple(string for string in drawn if string not in norm_set),
            MAL: tuple(string for string in dict.fromkeys(spelled) if string not in norm_set and len(string) <= longest),
        }
    )


def tally(lists: WordLists, inputs: np.ndarray, replies: np.ndarray) -> WordTally:
    """Count the listed strings in the replies.

    Args:
        lists: the strings to look for.
        inputs: strings (B,), numpy's `U`.
        replies: the reply to each, (B,).
    """
    distinct, first, counts = np.unique(replies, return_index=True, return_counts=True)
    best: dict[tuple[str, str], Find] = {}
    strays: list[tuple[str, str]] = []
    num_outside = 0
    for row in first.argsort().tolist():
        reply, source = str(distinct[row]), str(inputs[first[row]])
        if reply not in lists.words:
            num_outside += int(counts[row])
            if len(strays) < NUM_STRAYS:
                strays.append((source, reply))
        for string in {reply[i:j] for i in range(len(reply)) for j in range(i + 1, len(reply) + 1)}:
            for name in lists.index.get(string, ()):
                whole, before = string == reply, best.get((name, string))
                if before is None or (whole and not before.whole):
                    best[name, string] = Find(name, string, whole, source)
    order = {name: number for number, name in enumerate(lists.lists)}
    finds = sorted(best.values(), key=lambda find: (order[find.list], find.string))
    return WordTally(len(replies), num_outside, tuple(finds), tuple(strays))
