"""What a pointer-generator network says in the place of a sentence: beam search over words that it writes or copies.

Source: See et al. 2017, section 5, and the released code: hypotheses are ranked by their mean log-probability a word; those
that end are put aside until there are as many as the beam is wide. `<unk>` is never said, for a word of the sentence that the
network does not know can be copied.

Many sentences are decoded side by side, each with its own beam and its own bounds of length.

Departures:
  * # Released: 35 to 100 words. Ours: bounds that follow the sentence (`BeamConfig`).
  * # Released: the search for a sentence ends as soon as the beam's number of hypotheses have ended or the length is
    reached, whichever is first. So does ours, but where none has ended the sentence has no paraphrase, because one that
    breaks off would lose content.
  * # Released: nothing but coverage keeps from repetition. Ours: a pair of neighbouring words is not said twice, nor a word
    twice in a row, unless the sentence does so, because networks fitted to few pairs repeat in spite of coverage.

Shapes: B sentences, K hypotheses of each, R = B K rows, N source words, V words that the network knows, X words of the
sentences beyond them, W = V + X, C continuations.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, EOU_ID, PAD_ID, UNK_ID
from parley.policies.paraphraser.model import PointerGenerator, PointerStep
from parley.policies.paraphraser.settings import BeamConfig

Words = Sequence[str]

_NEVER_SAID = (PAD_ID, BOS_ID, EOU_ID, UNK_ID)
_ROWS = 64
"""Sentences decoded together."""


@dataclass(frozen=True, eq=False)
class _BeamSearch:
    """One sentence at work."""

    ids: tuple[int, ...]
    """Its words."""
    unknown: tuple[str, ...]
    """Those of its words that the network does not know; number j has the id V + j."""
    shortest: int
    longest: int
    pairs: Counter[tuple[int, int]]
    """How often it has each pair of neighbouring words."""
    ended: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)
    """Mean log-probability a word, `</s>` counted, and the ids without it."""


@torch.no_grad()
def paraphrases(model: PointerGenerator, sentences: Sequence[Words], config: BeamConfig) -> list[list[tuple[str, ...]]]:
    """What the network says in the place of sentences; what it says for one does not depend on the others.

    Args:
        model: in evaluation mode.
        sentences: words of each, at least one; one that is longer than the network reads is not paraphrased.
        config: the beam.

    Returns:
        For each sentence its paraphrases that ended, the likeliest a word first, at most `width` of them; the sentence itself
        may be among them.
    """
    found: list[list[tuple[str, ...]]] = [[] for _ in sentences]
    # Sentences of like length end together.
    short = (index for index, words in enumerate(sentences) if 0 < len(words) < model.sizes.max_source)
    order = sorted(short, key=lambda index: len(sentences[index]))
    for start in range(0, len(order), _ROWS):
        rows = order[start : start + _ROWS]
        for index, said in zip(rows, _decode(model, [sentences[index] for index in rows], config), strict=True):
            found[index] = said
    return found


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
    # Before the first word all hypotheses of a sentence are one.
    score_BK[:, 0] = 0.0
    words_R = torch.full((len(searches) * width,), BOS_ID, dtype=torch.int64, device=device)
    said: list[list[tuple[int, ...]]] = [[()] * width for _ in searches]
    alive = list(range(len(searches)))
    for place in range(max(search.longest for search in searches) + 1):
        step, writer = model.write(source, words_R, writer, covers)
        p_RW = _probabilities(model, step, source_RN, num_words)
        p_RW[:, _NEVER_SAID] = 0.0
        early = torch.tensor([place < searches[row].shortest for row in alive], device=device)
        p_RW[early.repeat_interleave(width), EOS_ID] = 0.0
        # One continuation of each hypothesis may be its end, so twice the beam is enough to fill it, and to choose from.
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
            kept = _continue(searches[row], said[row], zip(*choices, strict=True), place, width)
            if not kept:
                continue
            still.append(row)
            said[row] = [(*said[row][hypothesis], word) for _, hypothesis, word in kept]
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
    search: _BeamSearch, said: Sequence[tuple[int, ...]], choices: Iterable[tuple[float, int, int]], place: int, width: int
) -> list[tuple[float, int, int]]:
    """What follows from the likeliest continuations of a sentence's hypotheses; those that end are put aside.

    Args:
        search: of the sentence.
        said: ids of each hypothesis so far.
        choices: log-probability, hypothesis and word, the likeliest first.
        place: words said so far.
        width: of the beam.

    Returns:
        The `width` choices that go on, or none when the search is over.
    """
    kept: list[tuple[float, int, int]] = []
    for score, hypothesis, word in choices:
        if score == -math.inf or len(kept) == width or len(search.ended) == width:
            break
        if word == EOS_ID:
            search.ended.append((score / (place + 1), said[hypothesis]))
        elif not _repeats(search, said[hypothesis], word):
            kept.append((score, hypothesis, word))
    if not kept or len(search.ended) == width or place == search.longest:
        return []
    # Where fewer go on than the beam holds, one of them is repeated without a chance.
    return kept + [(-math.inf, *kept[0][1:])] * (width - len(kept))


def _repeats(search: _BeamSearch, said: tuple[int, ...], word: int) -> bool:
    """Whether a word would say itself, or a pair of neighbours, more often in a row than the sentence and once do."""
    if not said:
        return False
    pair = said[-1], word
    most = search.pairs[pair] if said[-1] == word else max(1, search.pairs[pair])
    return sum(each == pair for each in pairwise(said)) >= most


def _begin(model: PointerGenerator, words: Words, config: BeamConfig) -> _BeamSearch:
    index = model.vocabulary.index
    unknown = tuple(dict.fromkeys(word for word in words if word not in index))
    beyond = {word: len(index) + number for number, word in enumerate(unknown)}
    ids = tuple(index[word] if word in index else beyond[word] for word in words)
    shortest = max(1, math.ceil(config.min_share * len(words)))
    longest = math.floor(config.max_share * len(words)) + config.max_extra
    return _BeamSearch(ids, unknown, shortest, longest, Counter(pairwise(ids)))


def _padded(searches: Sequence[_BeamSearch]) -> tuple[Tensor, Tensor]:
    """Ids (B, N) of the sentences with `</s>`, and lengths (B,)."""
    rows = [torch.tensor([*search.ids, EOS_ID]) for search in searches]
    return pad_sequence(rows, batch_first=True, padding_value=PAD_ID), torch.tensor([len(row) for row in rows])


def _probabilities(model: PointerGenerator, step: PointerStep, source_RN: Tensor, num_words: int) -> Tensor:
    """P(w) of every word (R, W): equation 9."""
    p_gen_R1 = step.gate_B.sigmoid().unsqueeze(1)
    p_RW = F.pad(p_gen_R1 * model.output(step.features_BH).softmax(1), (0, num_words - len(model.vocabulary)))
    return p_RW.scatter_add_(1, source_RN, (-step.gate_B).sigmoid().unsqueeze(1) * step.attention_BN)


def _spelled(model: PointerGenerator, search: _BeamSearch) -> list[tuple[str, ...]]:
    size = len(model.vocabulary)
    ranked = sorted(search.ended, key=lambda hypothesis: -hypothesis[0])
    return [tuple(model.vocabulary.words[i] if i < size else search.unknown[i - size] for i in ids) for _, ids in ranked]
