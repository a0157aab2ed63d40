"""The pointer-generator network of See, Liu & Manning 2017 (arXiv 1704.04368): network, training and beam search.

A bidirectional LSTM reads a sentence to states h_i; an LSTM writes another, its state s_t = (hidden, cell), input x_t:
    x_t       = W_x [E y_{t-1}; h*_{t-1}]
    e_ti      = v . tanh(W_h h_i + W_s s_t + w_c c_ti + b)                            (1), with coverage (11)
    a_t       = softmax(e_t),  h*_t = sum_i a_ti h_i                                  (2, 3)
    P_vocab   = softmax(V' (V [hidden_t; h*_t] + b) + b')                             (4)
    p_gen     = sigmoid(w [h*_t; s_t; x_t] + b)                                       (8)
    P(w)      = p_gen P_vocab(w) + (1 - p_gen) sum over the places i of w of a_ti     (9)
    c_t       = sum over t' < t of a_t'                                               (10)
    loss      = -log P(target) + coverage * sum_i min(a_ti, c_ti)                     (12, 13)
The writer starts from ReLU layers of the reader's two last states (released code). Until the last phase of training there is
no coverage, neither in the attention nor in the loss; `covers` says which phase it is.

  * # Released: embeddings start normal (deviation 1e-4), LSTMs uniform in +-0.02. Ours: as all of Parley's models
    (`Predictor.initialise`); w_c starts from zero, so that the last phase begins with the attention that there was.
  * # Paper: P(w) is formed over a batch's extended vocabulary. Ours, in training: only the target's, from which words of
    the source it is equal to; it is the same number.
  * # Released: a target that is neither known nor in its source is <unk>, and so is ours; it is never said.

Batches. Ids are those of a corpus opened with every word. The network knows the first V of them, the most frequent; the others
are `<unk>` to it, but it can point at them, because equal ids are equal words. No list of a batch's unknown words is kept: in
training it is enough to know which words of the source a target is equal to. A source is its first N - 1 words and `</s>`; a
target is `<s>`, its first T - 1 words and `</s>`.
  * # Released: a source has no end mark. Ours: `</s>`, which is copied like a word, so that a network fitted to few pairs
    learns where to stop as it learns to copy.

Training (section 5 of the paper) is `Fit` with Adagrad, and with coverage only in a short last phase: the decay epochs, from
which the kept network comes.
  * # Released: the loss of a batch is the mean over pairs of the mean over their words. Ours: `Fit`'s, in which every word
    weighs the same.

Decoding (section 5 and the released code) is beam search over words that are written or copied. Hypotheses are ranked by mean
log-probability a word; those that end are put aside until there are as many as the beam is wide. `<unk>` is never said, for an
unknown word of the sentence can be copied. Many sentences are decoded side by side, each with its own beam and bounds.
  * # Released: 35 to 100 words. Ours: bounds that follow the sentence (`BeamConfig`).
  * # Released: the search for a sentence ends as soon as the beam's number of hypotheses have ended or the length is
    reached, whichever is first. So does ours, but where none has ended the sentence has no paraphrase, because one that
    breaks off would lose content.
  * # Released: nothing but coverage keeps from repetition. Ours: a pair of neighbouring words is not said twice, nor a word
    twice in a row, unless the sentence does so, because networks fitted to few pairs repeat in spite of coverage.

Shapes: B rows or sentences, N source words, T target words, M targets, V words that the network knows, E embedding, H hidden,
A = 2H attention and reader; in decoding K hypotheses of a sentence, R = B K rows, X words of the sentences beyond V, W = V +
X, C continuations.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, EOU_ID, PAD_ID, UNK_ID, PairVocabulary
from parley.policies.core.checkpoint import ModelFormat, eager
from parley.policies.core.fitting.batches import Loss, OutputLoss, Predictor, real_positions
from parley.policies.core.fitting.loop import Fit
from parley.policies.paraphraser.settings import BeamConfig, PointerFitConfig, PointerSizes
from parley.policies.seq2seq.model import Exchanges, PairExamples
from parley.policies.seq2seq.settings import Seq2SeqSizes

if TYPE_CHECKING:
    from parley.envs.corpora.pairs.compiled import PairSplit


class RewriteExamples(PairExamples):
    """The pairs of a split.

    Args:
        split: of a corpus opened with every word.
        sizes: longest sources and targets.
    """

    def __init__(self, split: PairSplit, sizes: PointerSizes) -> None:
        super().__init__(split, Seq2SeqSizes(max_source=sizes.max_source, max_reply=sizes.max_reply), EOS_ID)


def mask_unknown(ids: Tensor, size: int) -> Tensor:
    """Return the ids as a network that knows the first `size` words reads them: the others are `<unk>`."""
    return ids.masked_fill(ids >= size, UNK_ID)


class PointerSource(NamedTuple):
    """Sentences as the writer reads them."""

    states_BNA: Tensor
    keys_BNA: Tensor
    """W_h h_i + b."""
    real_BN: Tensor
    """True at words, `</s>` included."""

    def rows(self, rows_R: Tensor) -> PointerSource:
        """Return the sentences of those rows."""
        return PointerSource(*(part[rows_R] for part in self))


class Writer(NamedTuple):
    """The state of the writer between two words."""

    hidden_BH: Tensor
    cell_BH: Tensor
    context_BA: Tensor
    """h* of the step before."""
    covered_BN: Tensor
    """Sum of the attention to each position so far."""

    def rows(self, rows_R: Tensor) -> Writer:
        """Return the writers of those rows."""
        return Writer(*(part[rows_R] for part in self))


class PointerStep(NamedTuple):
    """The writer's results at one word."""

    features_BH: Tensor
    """Inputs of `output`."""
    gate_B: Tensor
    """The logit of p_gen."""
    attention_BN: Tensor


class PointerGenerator(Predictor[Exchanges]):
    """A network that paraphrases.

    Args:
        vocabulary: the words that it can write without copying.
        sizes: widths of its layers.
    """

    covers: Tensor
    """A boolean: whether attention counts what it has covered."""

    def __init__(self, vocabulary: PairVocabulary, sizes: PointerSizes) -> None:
        super().__init__()
        self.vocabulary, self.sizes = vocabulary, sizes
        embed, hidden, wide = sizes.embed, sizes.hidden, 2 * sizes.hidden
        self.embedding = nn.Embedding(len(vocabulary), embed)
        self.encoder = nn.LSTM(embed, hidden, batch_first=True, bidirectional=True)
        self.reduce_hidden, self.reduce_cell = nn.Linear(wide, hidden), nn.Linear(wide, hidden)
        self.join = nn.Linear(embed + wide, embed)
        self.decoder = nn.LSTMCell(embed, hidden)
        self.key = nn.Linear(wide, wide)
        self.query = nn.Linear(wide, wide, bias=False)
        self.coverage = nn.Linear(1, wide, bias=False)
        self.score = nn.Linear(wide, 1, bias=False)
        self.gate = nn.Linear(wide + 2 * hidden + embed, 1)
        self.mix = nn.Linear(hidden + wide, hidden)
        self.output = nn.Linear(hidden, len(vocabulary))
        self.dropout = nn.Dropout(sizes.dropout)
        self.register_buffer("covers", torch.tensor(False))

    def initialise(self, generator: torch.Generator) -> None:
        super().initialise(generator)
        nn.init.zeros_(self.coverage.weight)

    def cover(self, covers: bool) -> None:
        """Enter the last phase, or leave it."""
        self.covers.fill_(covers)

    def read(self, source_BN: Tensor, lengths_B: Tensor) -> tuple[PointerSource, Writer]:
        """Return the reading of sentences and the writer before its first word.

        Args:
            source_BN: ids of any size, padded on the right.
            lengths_B: real words of each, `</s>` included.

        Returns:
            The sentences, and the writer before its first word.
        """
        embedded = self.dropout(self.embedding(mask_unknown(source_BN, len(self.vocabulary))))
        packed = pack_padded_sequence(embedded, lengths_B.cpu(), batch_first=True, enforce_sorted=False)
        states, (hidden_2BH, cell_2BH) = self.encoder(packed)
        states_BNA, _ = pad_packed_sequence(states, batch_first=True, total_length=source_BN.shape[1])
        hidden_BH = F.relu(self.reduce_hidden(torch.cat([*hidden_2BH], dim=1)))
        cell_BH = F.relu(self.reduce_cell(torch.cat([*cell_2BH], dim=1)))
        source = PointerSource(states_BNA, self.key(states_BNA), real_positions(lengths_B, source_BN.shape[1]))
        covered_BN = torch.zeros_like(states_BNA[:, :, 0])
        return source, Writer(hidden_BH, cell_BH, torch.zeros_like(states_BNA[:, 0]), covered_BN)

    def write(self, source: PointerSource, words_B: Tensor, writer: Writer, covers: bool) -> tuple[PointerStep, Writer]:
        """Read one word of each target; `covers` is the buffer of that name, which the caller reads once."""
        return self._advance(source, self.dropout(self.embedding(mask_unknown(words_B, len(self.vocabulary)))), writer, covers)

    def _advance(self, source: PointerSource, embedded_BE: Tensor, writer: Writer, covers: bool) -> tuple[PointerStep, Writer]:
        input_BE = self.join(torch.cat([embedded_BE, writer.context_BA], dim=1))
        hidden_BH, cell_BH = self.decoder(input_BE, (writer.hidden_BH, writer.cell_BH))
        state_BA = torch.cat([hidden_BH, cell_BH], dim=1)
        mixed_BNA = source.keys_BNA + self.query(state_BA).unsqueeze(1)
        if covers:
            mixed_BNA = mixed_BNA + self.coverage(writer.covered_BN.unsqueeze(2))
        scores_BN = self.score(mixed_BNA.tanh()).squeeze(2).masked_fill(~source.real_BN, -torch.inf)
        attention_BN = scores_BN.softmax(1)
        context_BA = torch.bmm(attention_BN.unsqueeze(1), source.states_BNA).squeeze(1)
        gate_B = self.gate(torch.cat([context_BA, state_BA, input_BE], dim=1)).squeeze(1)
        features_BH = self.mix(torch.cat([hidden_BH, context_BA], dim=1))
        after = Writer(hidden_BH, cell_BH, context_BA, writer.covered_BN + attention_BN)
        return PointerStep(features_BH, gate_B, attention_BN), after

    def nll(self, batch: Exchanges) -> Tensor:
        """Return negative log-likelihoods of the targets (M,): generated, copied, or both; see `Predictor.nll`."""
        return self._losses(batch)[0]

    def loss(self, batch: Exchanges, output_loss: OutputLoss) -> Loss:
        """Return the likelihoods plus, in the last phase, coverage; `output_loss` knows no copying and is not used."""
        nll_M, coverage = self._losses(batch)
        nll = nll_M.sum()
        return Loss(nll + self.sizes.coverage * coverage, nll)

    def _losses(self, batch: Exchanges) -> tuple[Tensor, Tensor]:
        """Return negative log-likelihoods of the targets (M,), and the sum of the coverage losses."""
        covers, real_BT = bool(self.covers), batch.real_BT
        source, writer = self.read(batch.source_BN, batch.lengths_B)
        embedded_BTE = self.dropout(self.embedding(mask_unknown(batch.reply.words_in_BT, len(self.vocabulary))))
        steps, repeated = [], []
        for embedded_BE in embedded_BTE.unbind(1):
            covered_BN = writer.covered_BN
            step, writer = self._advance(source, embedded_BE, writer, covers)
            steps.append(step)
            if covers:
                repeated.append(torch.minimum(step.attention_BN, covered_BN).sum(1))
        features_MH, gate_M, attention_MN = (torch.stack(parts, dim=1)[real_BT] for parts in zip(*steps, strict=True))
        coverage = torch.stack(repeated, dim=1)[real_BT].sum() if covers else gate_M.new_zeros(())
        targets_M = batch.targets_BT[real_BT]
        equal_MN = (batch.source_BN.unsqueeze(1) == batch.targets_BT.unsqueeze(2))[real_BT]
        size = len(self.vocabulary)
        generated_M = -F.cross_entropy(self.output(self.dropout(features_MH)), mask_unknown(targets_M, size), reduction="none")
        # A word that the network cannot write is copied; if the source lacks it, it counts as <unk>.
        generated_M = generated_M.masked_fill((targets_M >= size) & equal_MN.any(1), -torch.inf)
        copied_M = (attention_MN * equal_MN).sum(1)
        tiny = torch.finfo(copied_M.dtype).tiny
        log_p_M = torch.logaddexp(F.logsigmoid(gate_M) + generated_M, F.logsigmoid(-gate_M) + copied_M.clamp_min(tiny).log())
        return -log_p_M, coverage


FORMAT = ModelFormat("pointer-generator", PairVocabulary, PointerSizes, PointerGenerator)
save_pointer_generator, load_pointer_generator = FORMAT.save, FORMAT.load


class PointerFit(Fit[Exchanges]):
    """A supervised training of a pointer-generator network; the arguments are those of `Fit`."""

    model: PointerGenerator
    config: PointerFitConfig

    def _advance_stage(self) -> bool:
        before, covers = self._stage, self.model.sizes.coverage > 0
        goes_on = super()._advance_stage()
        if goes_on and self._stage == "decay" and covers:
            self.model.cover(True)
            if before == "full":
                # Coverage costs likelihood to avoid repetition: networks of the two phases do not compete.
                self.best_loss = math.inf
        return goes_on

    def new_optimiser(self, rate: float) -> torch.optim.Optimizer:
        """Return Adagrad if the recipe asks for it, else the optimiser of `Fit`."""
        if not self.config.adagrad:
            return super().new_optimiser(rate)
        start, decay = self.config.adagrad, self.config.weight_decay
        return eager(torch.optim.Adagrad)(self.model.parameters(), lr=rate, initial_accumulator_value=start, weight_decay=decay)


Words = Sequence[str]

_NEVER_SAID = (PAD_ID, BOS_ID, EOU_ID, UNK_ID)
_ROWS = 64
"""Number of sentences decoded together."""


@dataclass(frozen=True, eq=False)
class _BeamSearch:
    """The beam search of one sentence."""

    ids: tuple[int, ...]
    """Its words."""
    unknown: tuple[str, ...]
    """Words of the sentence that the network does not know; number j has the id V + j."""
    shortest: int
    longest: int
    pairs: Counter[tuple[int, int]]
    """Counts of each pair of neighbouring words in the sentence."""
    ended: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)
    """Mean log-probability a word, `</s>` counted, and the ids without it."""


@torch.no_grad()
def paraphrases(model: PointerGenerator, sentences: Sequence[Words], config: BeamConfig) -> list[list[tuple[str, ...]]]:
    """Return paraphrases of sentences; those of one do not depend on the others.

    Args:
        model: in evaluation mode.
        sentences: words of each, at least one; one that is longer than the network reads is not paraphrased.
        config: the beam.

    Returns:
        For each sentence its paraphrases that ended, the likeliest a word first, at most `width` of them; the sentence itself
        may be among them.
    """
    results: list[list[tuple[str, ...]]] = [[] for _ in sentences]
    # Sentences of like length end together.
    short = (index for index, words in enumerate(sentences) if 0 < len(words) < model.sizes.max_source)
    order = sorted(short, key=lambda index: len(sentences[index]))
    for start in range(0, len(order), _ROWS):
        rows = order[start : start + _ROWS]
        for index, rewrites in zip(rows, _decode(model, [sentences[index] for index in rows], config), strict=True):
            results[index] = rewrites
    return results


def _decode(model: PointerGenerator, sentences: Sequence[Words], config: BeamConfig) -> list[list[tuple[str, ...]]]:
    searches = [_begin(model, words, config) for words in sentences]
    size, width, device = len(model.vocabulary), config.width, model.output.weight.device
    num_words = size + max(len(search.unknown) for search in searches)
    source_BN, lengths_B = _padded(searches)
    source_BN, covers = source_BN.to(device), bool(model.covers)
    source, writer = model.read(source_BN, lengths_B.to(device))
    rows_R = torch.arange(len(searches), device=device).repeat_interleave(width)
    source, writer, source_RN = source.rows(rows_R), writer.rows(rows_R), source_BN[rows_R]
    score_BK = torch.full((len(searches), width), -torch.inf, dtype=torch.float64, device=device)
    # Before the first word a sentence has one hypothesis.
    score_BK[:, 0] = 0.0
    words_R = torch.full((len(searches) * width,), BOS_ID, dtype=torch.int64, device=device)
    hypotheses: list[list[tuple[int, ...]]] = [[()] * width for _ in searches]
    alive = list(range(len(searches)))
    for num_said in range(max(search.longest for search in searches) + 1):
        step, writer = model.write(source, words_R, writer, covers)
        p_RW = _probabilities(model, step, source_RN, num_words)
        p_RW[:, _NEVER_SAID] = 0.0
        early = torch.tensor([num_said < searches[row].shortest for row in alive], device=device)
        p_RW[early.repeat_interleave(width), EOS_ID] = 0.0
        # One continuation of each hypothesis may be its end, so twice the beam is enough to fill it.
        p_RC, word_RC = p_RW.topk(min(2 * width, num_words), dim=1)
        ranked_BC = (score_BK.view(-1, 1) + p_RC.double().log()).view(len(alive), -1)
        best_BC, place_BC = ranked_BC.topk(2 * width, dim=1)
        hypothesis_BC = place_BC.div(p_RC.shape[1], rounding_mode="floor")
        word_BC = word_RC.view(len(alive), -1).gather(1, place_BC)
        next_rows: list[int] = []
        next_words: list[int] = []
        next_scores: list[list[float]] = []
        still: list[int] = []
        for at, (row, *choices) in enumerate(zip(alive, *map(Tensor.tolist, (best_BC, hypothesis_BC, word_BC)), strict=True)):
            kept = _continue(searches[row], hypotheses[row], zip(*choices, strict=True), num_said, width)
            if not kept:
                continue
            still.append(row)
            hypotheses[row] = [(*hypotheses[row][hypothesis], word) for _, hypothesis, word in kept]
            next_rows += [at * width + hypothesis for _, hypothesis, _ in kept]
            next_words += [word for *_, word in kept]
            next_scores.append([score for score, *_ in kept])
        if not still:
            break
        rows_R = torch.tensor(next_rows, device=device)
        source, writer, source_RN = source.rows(rows_R), writer.rows(rows_R), source_RN[rows_R]
        words_R = torch.tensor(next_words, device=device)
        score_BK = torch.tensor(next_scores, dtype=torch.float64, device=device)
        alive = still
    return [_spelled(model, search) for search in searches]


def _continue(
    search: _BeamSearch,
    hypotheses: Sequence[tuple[int, ...]],
    choices: Iterable[tuple[float, int, int]],
    num_said: int,
    width: int,
) -> list[tuple[float, int, int]]:
    """Return the continuations of a sentence's hypotheses that go on; those that end are put aside.

    Args:
        search: of the sentence.
        hypotheses: ids of each hypothesis so far.
        choices: log-probability, hypothesis and word, the likeliest first.
        num_said: words said so far.
        width: of the beam.

    Returns:
        The `width` choices that go on, or none when the search is over.
    """
    kept: list[tuple[float, int, int]] = []
    for score, hypothesis, word in choices:
        if score == -math.inf or len(kept) == width or len(search.ended) == width:
            break
        if word == EOS_ID:
            search.ended.append((score / (num_said + 1), hypotheses[hypothesis]))
        elif not _repeats(search, hypotheses[hypothesis], word):
            kept.append((score, hypothesis, word))
    if not kept or len(search.ended) == width or num_said == search.longest:
        return []
    # If fewer continue than the beam holds, one is repeated at minus infinity.
    return kept + [(-math.inf, *kept[0][1:])] * (width - len(kept))


def _repeats(search: _BeamSearch, hypothesis: tuple[int, ...], word: int) -> bool:
    """Return whether a word or a pair of words would repeat itself more often than in the sentence."""
    if not hypothesis:
        return False
    pair = hypothesis[-1], word
    most = search.pairs[pair] if hypothesis[-1] == word else max(1, search.pairs[pair])
    return sum(neighbours == pair for neighbours in pairwise(hypothesis)) >= most


def _begin(model: PointerGenerator, words: Words, config: BeamConfig) -> _BeamSearch:
    index = model.vocabulary.index
    unknown = tuple(dict.fromkeys(word for word in words if word not in index))
    beyond = {word: len(index) + number for number, word in enumerate(unknown)}
    ids = tuple(index[word] if word in index else beyond[word] for word in words)
    shortest = max(1, math.ceil(config.min_share * len(words)))
    longest = math.floor(config.max_share * len(words)) + config.max_extra
    return _BeamSearch(ids, unknown, shortest, longest, Counter(pairwise(ids)))


def _padded(searches: Sequence[_BeamSearch]) -> tuple[Tensor, Tensor]:
    rows = [torch.tensor([*search.ids, EOS_ID]) for search in searches]
    return pad_sequence(rows, batch_first=True, padding_value=PAD_ID), torch.tensor([len(row) for row in rows])


def _probabilities(model: PointerGenerator, step: PointerStep, source_RN: Tensor, num_words: int) -> Tensor:
    """Return P(w) of every word (R, W): equation 9."""
    p_gen_R1 = step.gate_B.sigmoid().unsqueeze(1)
    p_RW = F.pad(p_gen_R1 * model.output(step.features_BH).softmax(1), (0, num_words - len(model.vocabulary)))
    return p_RW.scatter_add_(1, source_RN, (-step.gate_B).sigmoid().unsqueeze(1) * step.attention_BN)


def _spelled(model: PointerGenerator, search: _BeamSearch) -> list[tuple[str, ...]]:
    size = len(model.vocabulary)
    ranked = sorted(search.ended, key=lambda hypothesis: -hypothesis[0])
    return [tuple(model.vocabulary.words[i] if i < size else search.unknown[i - size] for i in ids) for _, ids in ranked]
