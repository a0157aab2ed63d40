"""The discriminator of Li et al. 2017 (arXiv 1701.06547), section 3.1: did a person or a machine write this reply?

A turn and a whole reply end with `</s>`, a word like any other; the beginning of a reply does not. So a discriminator knows
whether a reply is over. Words are ids of one vocabulary, without marks around them, `<eot>` between the turns of a context.

An utterance's vector is the state of an LSTM after its last word (footnote 2 of the paper). A second LSTM reads these vectors
(hierarchical), or they are side by side (concatenated; a missing turn is zero). A softmax over two classes follows; Q+ is the
probability of the class "human". One pass gives Q+ after each word of a reply. Its values at beginnings mean something if it
was fitted to beginnings (`ReplyExamples(..., prefixes=True)`); `prefixes` in a checkpoint's provenance says whether it was.
As a `Predictor` it predicts one of two words, so the fitting loop of all models fits it.

`TrainedReplyJudge` is a trained one as the judge of `parley/Reply-v1`. Critics predict the expected reward in a context, before
a word is said there or after some (Li et al. 2017, footnote 3).
  * # Released: one linear layer on the last state of the generator's encoder, zero at first. Ours: the paper's network of its
    own, and the released one as `LinearCritic`.

Shapes: B contexts, K turns, N words of a turn or of all turns, R replies, T words of the longest reply, H hidden, D width of a
dialogue's vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from parley.envs.core.errors import CheckpointError
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.turns import EOT, Example, Turn, turn_words
from parley.envs.corpora.pairs.vocabulary import EOS_ID, PAD_ID, PairVocabulary
from parley.policies.core.checkpoint import ModelFormat
from parley.policies.core.fitting.batches import Predictor, Tensors, draw_weights
from parley.policies.core.layers import LSTM, Dropout, TokenPlaces
from parley.policies.generation.discriminator.settings import DiscriminatorSizes

Ids = Sequence[int] | np.ndarray


@dataclass(frozen=True)
class JudgedReplies:
    """A context and replies to it, labelled by whether a person wrote them.

    Args:
        source: words of the context, `<eot>` between its turns.
        replies: words of each, without `</s>`.
        human: whether a person wrote each.
        seed: draws the prefixes that stand for the replies, where these are asked for.
    """

    source: Ids
    replies: Sequence[Ids]
    human: Sequence[bool]
    seed: int


@dataclass(frozen=True)
class ContextBatch(Tensors):
    """Contexts, the newest turn last."""

    words_BKN: Tensor
    """int64, padded on the right."""
    lengths_BK: Tensor
    """Words of each turn, `</s>` counted, int64; 0 where a context has no such turn."""


@dataclass(frozen=True, kw_only=True)
class JudgedBatch(Tensors):
    """Contexts, each with some labelled replies."""

    contexts: ContextBatch
    rows_R: Tensor
    """The context of each reply, int64."""
    words_RT: Tensor
    """int64, padded on the right."""
    lengths_R: Tensor
    """Words of each reply that count, int64."""
    human_R: Tensor
    """1 where a person wrote it, else 0, int64."""

    @property
    def targets_BT(self) -> Tensor:
        """Targets to predict (R, 1)."""
        return self.human_R.unsqueeze(1)

    @property
    def real_BT(self) -> Tensor:
        """True everywhere."""
        return torch.ones_like(self.targets_BT, dtype=torch.bool)


class ReplyExamples:
    """Contexts with labelled replies, to fit a discriminator to or to measure it on.

    Args:
        items: one for each context.
        vocabulary: of the model.
        sizes: of the model.
        prefixes: whether a reply is replaced by its first t words, `</s>` counted, t uniform from 1 to its length: partial
            sequences, one of each reply (Li et al. 2017, section 3.2).
    """

    def __init__(
        self, items: Sequence[JudgedReplies], vocabulary: PairVocabulary, sizes: DiscriminatorSizes, *, prefixes: bool = False
    ) -> None:
        self._items, self._vocabulary, self._sizes, self._prefixes = items, vocabulary, sizes, prefixes
        self.num_targets = np.array([len(item.replies) for item in items], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._items)

    def batch(self, indices: np.ndarray) -> JudgedBatch:
        """Return the contexts at `indices` (B,) with all their replies, one context's after another's."""
        items = [self._items[int(index)] for index in indices]
        words_RT, lengths_R = reply_batch([reply for item in items for reply in item.replies], self._sizes)
        if self._prefixes:
            draws_R = [draw for item in items for draw in stream(item.seed, "prefix").random(len(item.replies))]
            lengths_R = (torch.tensor(draws_R, dtype=torch.float64) * lengths_R).long() + 1
        return JudgedBatch(
            contexts=context_batch([item.source for item in items], self._vocabulary, self._sizes),
            rows_R=torch.arange(len(items)).repeat_interleave(torch.from_numpy(self.num_targets[indices])),
            words_RT=words_RT,
            lengths_R=lengths_R,
            human_R=torch.tensor([int(human) for item in items for human in item.human]),
        )


def context_batch(sources: Sequence[Ids], vocabulary: PairVocabulary, sizes: DiscriminatorSizes) -> ContextBatch:
    """Return contexts as a model reads them, on the CPU.

    Args:
        sources: words of each, `<eot>` between turns.
        vocabulary: of the model; without `<eot>` every context is one turn.
        sizes: of the model.
    """
    eot, none = vocabulary.index.get(EOT, -1), torch.zeros(0, dtype=torch.int64)
    rows: list[Tensor] = []
    for source in sources:
        ids = np.asarray(source, dtype=np.int64)
        turns = [turn[turn != eot] for turn in np.split(ids, np.flatnonzero(ids == eot))][-sizes.turns :]
        rows += [none] * (sizes.turns - len(turns))
        rows += [torch.tensor([*turn[max(0, len(turn) + 1 - sizes.words) :], EOS_ID]) for turn in turns]
    words_PN = pad_sequence(rows, batch_first=True, padding_value=PAD_ID)
    lengths_P = torch.tensor([len(row) for row in rows])
    return ContextBatch(words_PN.view(len(sources), sizes.turns, -1), lengths_P.view(len(sources), -1))


def reply_batch(replies: Sequence[Ids], sizes: DiscriminatorSizes) -> tuple[Tensor, Tensor]:
    """Return whole replies as a model reads them, on the CPU.

    Args:
        replies: words of each, without `</s>`; longer ones than the model reads lose their end.
        sizes: of the model.

    Returns:
        Words (R, T) int64, `</s>` behind each reply and padding behind that, and lengths (R,) int64, `</s>` counted.
    """
    rows = [torch.tensor([*map(int, reply[: sizes.words - 1]), EOS_ID]) for reply in replies]
    return pad_sequence(rows, batch_first=True, padding_value=PAD_ID), torch.tensor([len(row) for row in rows])


class ContextMemory(NamedTuple):
    """Contexts that have been read, a row each."""

    vector_BC: Tensor
    """State of the LSTM over turns (C = H), or the turns' vectors side by side (C = K H)."""
    cell_BC: Tensor
    """Its cell; no columns where there is no such LSTM."""

    def of(self, rows_R: Tensor) -> ContextMemory:
        """Return the contexts at some rows (R,), which may repeat."""
        return ContextMemory(*(part[rows_R] for part in self))


class WordState(NamedTuple):
    """Utterances that have been read up to some word, a row each."""

    hidden_RH: Tensor
    cell_RH: Tensor


class DialogueReader(nn.Module):
    """A network that reads contexts once, and replies in them word by word."""

    def __init__(self, num_words: int, sizes: DiscriminatorSizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_words, sizes.embed)
        self.words = LSTM(sizes.embed, sizes.hidden, batch_first=True)
        self.sentences: nn.LSTMCell | None = None
        self.width = (sizes.turns + 1) * sizes.hidden
        if sizes.kind == "hierarchical":
            self.sentences = nn.LSTMCell(sizes.hidden, sizes.hidden)
            self.width = sizes.hidden
        self.dropout = Dropout(sizes.dropout)

    def states(self, words_RT: Tensor, lengths_R: Tensor) -> tuple[TokenPlaces, Tensor]:
        """Return the positions of words without padding, and the states (N, H) after them.

        Args:
            words_RT: int64, padded on the right.
            lengths_R: words of each that count, int64.
        """
        places = TokenPlaces.of(lengths_R.cpu().numpy(), words_RT.device)
        words_N = words_RT[places.rows_N, places.steps_N]
        return places, self.words.read_packed(self.dropout(self.embedding(words_N)), places.counts)

    def read(self, contexts: ContextBatch) -> ContextMemory:
        """Return the memory of whole contexts."""
        lengths_BK = contexts.lengths_BK
        places, states_NH = self.states(contexts.words_BKN.flatten(0, 1), lengths_BK.flatten())
        there_BK1 = (lengths_BK > 0).unsqueeze(2)
        vectors_BKH = states_NH[places.last_B].view(*lengths_BK.shape, -1) * there_BK1
        if self.sentences is None:
            return ContextMemory(vectors_BKH.flatten(1), vectors_BKH.new_zeros(len(vectors_BKH), 0))
        hidden_BH = cell_BH = torch.zeros_like(vectors_BKH[:, 0])
        for vector_BH, there_B1 in zip(vectors_BKH.unbind(1), there_BK1.unbind(1), strict=True):
            # Missing turns come first, and leave the state at zero.
            hidden_BH, cell_BH = (after * there_B1 for after in self.sentences(vector_BH, (hidden_BH, cell_BH)))
        return ContextMemory(hidden_BH, cell_BH)

    def begin(self, memory: ContextMemory) -> WordState:
        """Return utterances of which no word has been read, one in each context."""
        zero_RH = memory.vector_BC.new_zeros(len(memory.vector_BC), self.words.hidden_size)
        return WordState(zero_RH, zero_RH)

    def advance(self, words_R: Tensor, state: WordState) -> WordState:
        """Return the states after one more word (R,) int64 of each utterance."""
        layer = self.words
        weights = layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0
        return WordState(*torch.lstm_cell(self.dropout(self.embedding(words_R)), tuple(state), *weights))

    def joined(self, memory: ContextMemory, hidden_RH: Tensor) -> Tensor:
        """Return vectors (R, D) of dialogues: contexts, a row for each utterance, and the utterances behind them."""
        if self.sentences is None:
            return torch.cat([memory.vector_BC, hidden_RH], dim=1)
        joined_RH: Tensor = self.sentences(hidden_RH, tuple(memory))[0]
        return joined_RH


class Discriminator(Predictor[JudgedBatch]):
    """The parameters of one discriminator.

    Args:
        vocabulary: the words that it knows.
        sizes: widths of its layers.
    """

    def __init__(self, vocabulary: PairVocabulary, sizes: DiscriminatorSizes) -> None:
        super().__init__()
        self.vocabulary, self.sizes = vocabulary, sizes
        self.reader = DialogueReader(len(vocabulary), sizes)
        self.output = nn.Linear(self.reader.width, 2)
        self.dropout = Dropout(sizes.dropout)

    def read(self, contexts: ContextBatch) -> ContextMemory:
        """Return the memory of contexts, which are read once for all their replies."""
        return self.reader.read(contexts)

    def begin(self, memory: ContextMemory) -> WordState:
        """Return replies without a word yet, one to each context."""
        return self.reader.begin(memory)

    def advance(self, words_R: Tensor, state: WordState) -> WordState:
        """Return the states after one more word (R,) of each reply; a whole one ends with `</s>`."""
        return self.reader.advance(words_R, state)

    def vectors(self, memory: ContextMemory, state: WordState) -> Tensor:
        """Return the inputs of the softmax (R, D); `memory` has a row for each reply."""
        return self.reader.joined(memory, state.hidden_RH)

    def human(self, memory: ContextMemory, state: WordState) -> Tensor:
        """Return log-odds (R,) that a person wrote the replies so far; `memory` has a row for each reply."""
        return self._log_odds(self.vectors(memory, state))

    def prefixes(self, memory: ContextMemory, words_RT: Tensor, lengths_R: Tensor) -> Tensor:
        """Return log-odds that a person wrote each beginning of replies, in one pass.

        Args:
            memory: of the contexts, a row for each reply.
            words_RT: int64, padded on the right.
            lengths_R: words of each reply that count, int64.

        Returns:
            (R, T): at t of the reply's first t + 1 words; 0 behind the reply.
        """
        places, states_NH = self.reader.states(words_RT, lengths_R)
        vectors_ND = self.reader.joined(memory.of(places.rows_N), states_NH)
        none_RT = vectors_ND.new_zeros(words_RT.shape)
        return none_RT.index_put((places.rows_N, places.steps_N), self._log_odds(vectors_ND))

    def reply_vectors(self, batch: JudgedBatch) -> Tensor:
        """Return the inputs of the softmax for the replies of a batch (R, D)."""
        memory = self.read(batch.contexts).of(batch.rows_R)
        places, states_NH = self.reader.states(batch.words_RT, batch.lengths_R)
        return self.reader.joined(memory, states_NH[places.last_B])

    def target_states(self, batch: JudgedBatch) -> Tensor:
        dropped_RD: Tensor = self.dropout(self.reply_vectors(batch))
        return dropped_RD

    def forward(self, batch: JudgedBatch) -> Tensor:
        """Return log-odds (R,) that a person wrote the replies."""
        return self._log_odds(self.reply_vectors(batch))

    def _log_odds(self, vectors_RD: Tensor) -> Tensor:
        machine_R, human_R = self.output(self.dropout(vectors_RD)).unbind(1)
        return human_R - machine_R


DISCRIMINATOR = ModelFormat("discriminator", PairVocabulary, DiscriminatorSizes, Discriminator)
load_discriminator = DISCRIMINATOR.load
PREFIXES = "prefixes"
"""Key of the provenance: whether it was fitted to beginnings of replies."""


def require_prefixes(folder: Path) -> None:
    """Raise an error for a discriminator that was not fitted to beginnings of replies.

    Args:
        folder: a run or checkpoint folder.

    Raises:
        CheckpointError: it was fitted to whole replies, or is no discriminator.
    """
    if not DISCRIMINATOR.provenance(folder).get(PREFIXES):
        raise CheckpointError(
            "the discriminator was fitted to whole replies, and is asked about their beginnings",
            where=folder,
            got=f"{PREFIXES}: false in its provenance",
            fix="name one that was fitted to prefixes, or take the rewards from rollouts",
        )


class TrainedReplyJudge:
    """A judge by the probability Q+ that a person wrote a reply, as in `parley minmax replies`.

    Args:
        folder: a run or checkpoint of `parley train discriminator`.

    Raises:
        CheckpointError: it is damaged, or no discriminator.
    """

    def __init__(self, folder: str | Path) -> None:
        self.model = load_discriminator(Path(folder))
        self.vocabulary = self.model.vocabulary
        """The words that it knows; an environment that has the same loses none."""

    @torch.no_grad()
    def judge_replies(self, examples: Sequence[Example], replies: Sequence[Turn]) -> np.ndarray:
        """Return rewards, see `parley.envs.generation.game.ReplyJudge`; the recorded replies are ignored."""
        words, sizes = self.vocabulary, self.model.sizes
        memory = self.model.read(context_batch([self._source(example) for example in examples], words, sizes))
        words_RT, lengths_R = reply_batch([words.encode(turn_words(reply)) for reply in replies], sizes)
        log_odds_RT: Tensor = self.model.prefixes(memory, words_RT, lengths_R)
        human_R: np.ndarray = log_odds_RT.gather(1, (lengths_R - 1).unsqueeze(1)).squeeze(1).sigmoid().double().numpy()
        return human_R

    def _source(self, example: Example) -> np.ndarray:
        # Without the separator the model knows contexts of one turn only.
        num = self.model.sizes.turns if EOT in self.vocabulary.index else 1
        turns = [turn_words(turn) for turn in example.context[-num:]]
        return self.vocabulary.encode([word for turn in turns for word in (*turn, EOT)][:-1])


_CONTEXTS = 128


@dataclass(frozen=True)
class Judgements:
    """A discriminator's results on R replies, in the order of the examples.

    Args:
        log_odds: that a person wrote each (R,) float64.
        vectors: inputs of the softmax (R, D) float32.
        human: whether a person did (R,) bool.
    """

    log_odds: np.ndarray
    vectors: np.ndarray
    human: np.ndarray

    @property
    def accuracy(self) -> float:
        """Share of the replies that are classified right; even odds count half."""
        right = np.where(self.human, self.log_odds, -self.log_odds)
        return float(((right > 0) + 0.5 * (right == 0)).mean())

    @property
    def loss(self) -> float:
        """Cross-entropy of a reply in nats."""
        return float(np.logaddexp(0, np.where(self.human, -self.log_odds, self.log_odds)).mean())


@torch.no_grad()
def judge(model: Discriminator, examples: ReplyExamples) -> Judgements:
    """Return the results on all replies of some examples, without dropout."""
    was_training, device = model.training, model.output.weight.device
    model.eval()
    vectors, human = [], []
    for start in range(0, len(examples), _CONTEXTS):
        batch = examples.batch(np.arange(start, min(start + _CONTEXTS, len(examples)))).to(device)
        vectors.append(model.reply_vectors(batch))
        human.append(batch.human_R)
    model.train(was_training)
    vectors_RD = torch.cat(vectors)
    logits_R2 = model.output(vectors_RD).double()
    log_odds = (logits_R2[:, 1] - logits_R2[:, 0]).cpu().numpy()
    return Judgements(log_odds, vectors_RD.cpu().numpy(), torch.cat(human).cpu().numpy().astype(bool))


class Critic(nn.Module):
    """A critic that reads dialogues as a discriminator does, with weights of its own.

    Args:
        vocabulary: the words that it knows.
        sizes: widths of its layers.
    """

    def __init__(self, vocabulary: PairVocabulary, sizes: DiscriminatorSizes) -> None:
        super().__init__()
        self.vocabulary, self.sizes = vocabulary, sizes
        self.reader = DialogueReader(len(vocabulary), sizes)
        self.output = nn.Linear(self.reader.width, 1)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw initial weights as those of a discriminator."""
        draw_weights(self, self.output.in_features, generator)

    def prefixes(self, contexts: ContextBatch, words_BT: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the expected reward after no word of a reply, after one, and so on.

        Args:
            contexts: one for each reply.
            words_BT: int64, padded on the right.
            lengths_B: words of each reply that count, at least one, int64.

        Returns:
            (B, T + 1): at t after t words; at 0 it depends on the context alone; 0 behind the reply.
        """
        memory = self.reader.read(contexts)
        places, states_NH = self.reader.states(words_BT, lengths_B)
        rows_B = torch.arange(len(words_BT), device=words_BT.device)
        before = self._values(memory, self.reader.begin(memory).hidden_RH)
        after = self._values(memory.of(places.rows_N), states_NH)
        at = torch.cat([rows_B, places.rows_N]), torch.cat([torch.zeros_like(rows_B), places.steps_N + 1])
        return before.new_zeros(len(words_BT), words_BT.shape[1] + 1).index_put(at, torch.cat([before, after]))

    def forward(self, contexts: ContextBatch) -> Tensor:
        """Return the expected reward in contexts (B,)."""
        memory = self.reader.read(contexts)
        return self._values(memory, self.reader.begin(memory).hidden_RH)

    def _values(self, memory: ContextMemory, hidden_RH: Tensor) -> Tensor:
        values_R: Tensor = self.output(self.reader.joined(memory, hidden_RH)).squeeze(1)
        return values_R


class LinearCritic(nn.Module):
    """One layer on the last state of the generator's encoder, which gets no gradient.

    Args:
        hidden: state of the encoder.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.output = nn.Linear(hidden, 1)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, last_BH: Tensor) -> Tensor:
        """Return the expected reward in contexts (B, 1), from the encoder's last states."""
        values_B1: Tensor = self.output(last_BH.detach())
        return values_B1
