"""Targets with a defence around them, for the verbs that play them, and the choice of the filter's limit.

The limit is chosen on ordinary sentences: it stops a given share of the sentences that people say in the training split.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parley.engine.negotiation.attacks.settings import DefenceConfig
from parley.engine.negotiation.verbs.agents import require_judge
from parley.envs.core.errors import ConfigError
from parley.envs.core.play import Session
from parley.envs.negotiation.game import Agent
from parley.policies.chat.settings import DEFAULT_SEAT, ChatSeat

if TYPE_CHECKING:
    from parley.engine.negotiation.defences import PerplexityFilter
    from parley.envs.negotiation.corpora.catalogue import Split
    from parley.envs.negotiation.domain import Vocabulary


def perplexity_filter(
    judge: str, limit: float, vocabulary: Vocabulary, device: str = "cpu", seat: ChatSeat = DEFAULT_SEAT
) -> PerplexityFilter:
    """Load a perplexity filter with a judge.

    Args:
        judge: a checkpoint, or a chat model that gives likelihoods.
        limit: the highest perplexity that passes.
        vocabulary: the words that a chat model judges; a checkpoint has its own.
        device: the judge's device.
        seat: how a chat model is loaded.

    Raises:
        ConfigError: there is no judge, or it is a chat model that gives no likelihoods.
        CheckpointError: there is no such model, or it is damaged.
    """
    from parley.engine.negotiation.defences import load_filter

    return load_filter(filter_judge(judge, limit), limit, vocabulary, device, seat)


def filter_judge(judge: str, limit: float) -> str:
    """Return the checkpoint folder of a filter's judge, or the address of a chat model.

    Raises:
        ConfigError: there is no judge, or it is a chat model that gives no likelihoods.
        CheckpointError: there is no such model.
    """
    if not judge:
        what = "a limit of perplexity needs a judge, and neither side is a model"
        raise ConfigError(what, got=f"max_perplexity {limit:g}", fix="name a checkpoint, hf:FOLDER or gguf:FILE with --judge")
    return str(require_judge(judge))


def defend(target: Agent, defence: DefenceConfig, judge: str, device: str, seat: ChatSeat) -> Agent:
    """Put the defences around a target; return the target itself if there are none.

    Raises:
        ConfigError: the filter lacks a judge, or the target cannot have this defence.
        CheckpointError: the judge is damaged.
    """
    if not defence.wanted:
        return target
    from parley.engine.negotiation.defences import defended

    limit = defence.max_perplexity
    return defended(target, defence, filter_judge(judge, limit) if limit else "", device, seat)


def defended_row(session: Session, row: int, defence: DefenceConfig) -> Mapping[str, Any]:
    """Return a defended target's columns for one dialogue; None for a defence that it does not have."""
    stopped, refused = session.stopped[row], session.refused[row]  # type: ignore[attr-defined]  # a DefendedSession
    return {"stopped": stopped if defence.max_perplexity else None, "refused": refused if defence.own_demand else None}


@dataclass(frozen=True)
class FilterLimit:
    """The limit of a filter.

    Args:
        max_perplexity: the limit.
        stopped: share of stopped sentences, by split of the corpus.
    """

    max_perplexity: float
    stopped: Mapping[str, float]

    def __str__(self) -> str:
        """Return the limit and the share of sentences that it stops, by split."""
        shares = [f"{100 * share:.1f} % of the {split} split's" for split, share in self.stopped.items()]
        return f"the filter stops sentences of perplexity above {self.max_perplexity:g}: {', '.join(shares)}"


def chosen_limit(
    judge: str, corpus: str, data_root: Path | None, false_alarms: float, device: str = "cpu", seat: ChatSeat = DEFAULT_SEAT
) -> FilterLimit:
    """Choose the limit that stops a given share of ordinary sentences.

    Args:
        judge: a checkpoint, or a chat model that gives likelihoods.
        corpus: a corpus in the judge's words; its training split holds the ordinary sentences.
        data_root: the folder of corpora.
        false_alarms: share of those sentences that the filter may stop.
        device: the judge's device.
        seat: how a chat model is loaded.

    Raises:
        ConfigError: the corpus has other words than the judge.
        DataError: the corpus is missing or broken.
        CheckpointError: the judge is missing or damaged.
    """
    from parley.engine.negotiation.verbs.negotiator import require_words
    from parley.envs.negotiation.corpora.catalogue import load_corpus

    spoken = load_corpus(corpus, data_root)
    fluency_filter, splits = perplexity_filter(judge, np.inf, spoken.vocabulary, device, seat), spoken.splits
    require_words(corpus, data_root, fluency_filter.vocabulary, "or leave out the defence filter")
    train = sentence_perplexities(fluency_filter, splits["train"])
    # Rounded, so that a run that resumes on another machine finds the same limit; up, because a sentence may occur often.
    highest = float(np.quantile(train, 1 - false_alarms))
    unit = 10.0 ** (np.floor(np.log10(highest)) - 4)
    limit = float(np.format_float_positional(np.ceil(highest / unit) * unit, precision=5, fractional=False))
    perplexities = {"training": train, "validation": sentence_perplexities(fluency_filter, splits["val"])}
    return FilterLimit(limit, {split: float((values > limit).mean()) for split, values in perplexities.items()})


def sentence_perplexities(fluency_filter: PerplexityFilter, split: Split) -> np.ndarray:
    """Return the perplexities (s,) of the other side's sentences in the filter's first dialogues of a split."""
    dialogues = split.first(fluency_filter.num_plain)
    you, them = fluency_filter.vocabulary.you_id, fluency_filter.vocabulary.them_id
    tokens = np.zeros((len(dialogues), int(dialogues.lengths.max())), dtype=np.int64)
    spans = []
    for row, length in enumerate(dialogues.lengths.tolist()):
        tokens[row, :length] = dialogues.tokens(row)
        marks = np.flatnonzero(np.isin(tokens[row, :length], (you, them))).tolist()
        # A turn with only a marker and an end is never stopped.
        turns = zip(marks, [*marks[1:], length], strict=True)
        spans += [(row, start + 1, end) for start, end in turns if tokens[row, start] == them and end - start > 2]
    rows, starts, ends = np.array(spans, dtype=np.int64).T
    return fluency_filter.perplexities(dialogues.contexts.astype(np.int64)[rows], tokens[rows], starts, ends)
