"""Targets with a defence around them, for the jobs that play them: how they are made, and where the filter's limit lies.

The limit is chosen on plain talk: so that a stated share of the sentences that people say in the training split is stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parley.engine.core.verbs.composite import Stage
from parley.engine.core.verbs.repeated import nth_name
from parley.engine.negotiation.attacks.settings import DefenceConfig, SearchConfig
from parley.engine.negotiation.metrics.attack_table import KNOWN, ROWS, TACTIC
from parley.engine.negotiation.verbs.agents import require_judge
from parley.engine.negotiation.verbs.negotiator import require_words
from parley.envs.core.errors import ConfigError
from parley.envs.core.play import Session
from parley.envs.negotiation.game import Agent
from parley.policies.chat.seat import ChatSeat

if TYPE_CHECKING:
    from parley.engine.negotiation.defences import PerplexityFilter
    from parley.envs.negotiation.corpora.catalogue import Split
    from parley.envs.negotiation.domain import Vocabulary

FILTER, OWN_DEMAND = "filter", "own-demand"
"""What a table puts around the target: a filter, a refusal to end."""
DEFAULT = ChatSeat()


def defences_around(names: Sequence[str], limit: FilterLimit | None) -> dict[str, DefenceConfig]:
    """The defences of a table by name, `FILTER` and `OWN_DEMAND` or those of them that are wanted.

    Args:
        names: of those.
        limit: of the filter, where that is one of them.
    """
    highest = 0.0 if limit is None else limit.max_perplexity
    known = {FILTER: DefenceConfig(max_perplexity=highest), OWN_DEMAND: DefenceConfig(own_demand=True)}
    return {name: defence for name, defence in known.items() if name in names}


def defended_stages(planned: Mapping[str, Stage], seeds: int, around: Mapping[str, DefenceConfig]) -> dict[str, Stage]:
    """The rows of a table once more, each against the defended target; searches also as they mind its filter.

    Args:
        planned: stages of the table by name, rows of an undefended target among them.
        seeds: trained adversaries.
        around: the defences by name.
    """
    found: dict[str, Stage] = {}
    for row, number in product(ROWS, range(1, seeds + 1)):
        if row == TACTIC or nth_name(row, number) not in planned:
            continue
        job, settings = planned[nth_name(row, number)]
        for name, defence in around.items():
            against = replace(settings, defence=defence)
            found[nth_name(f"{row}+{name}", number)] = (job, against)
            if defence.max_perplexity and isinstance(search := getattr(settings, "search", None), SearchConfig):
                minding = replace(search, max_perplexity=defence.max_perplexity)
                found[nth_name(f"{row}+{name}{KNOWN}", number)] = (job, replace(against, search=minding))
    return found


def perplexity_filter(
    judge: str, limit: float, vocabulary: Vocabulary, device: str = "cpu", seat: ChatSeat = DEFAULT
) -> PerplexityFilter:
    """A filter under a judge.

    Args:
        judge: a checkpoint, or a chat model that gives likelihoods.
        limit: of perplexity.
        vocabulary: of the words that a chat model judges; a checkpoint has its own.
        device: that the judge computes on.
        seat: how a chat model is loaded.

    Raises:
        ConfigError: nobody judges, or a chat model that gives no likelihoods.
        CheckpointError: there is no such model, or it is damaged.
    """
    from parley.engine.negotiation.defences import load_filter

    return load_filter(filter_judge(judge, limit), limit, vocabulary, device, seat)


def filter_judge(judge: str, limit: float) -> str:
    """The checkpoint folder of who judges in a filter, or the address of a chat model.

    Raises:
        ConfigError: nobody judges, or a chat model that gives no likelihoods.
        CheckpointError: there is no such model.
    """
    if not judge:
        what = "a limit of perplexity needs a judge, and neither side is a model"
        raise ConfigError(what, got=f"max_perplexity {limit:g}", fix="name a checkpoint, hf:FOLDER or gguf:FILE with --judge")
    return str(require_judge(judge))


def defend(target: Agent, defence: DefenceConfig, judge: str, device: str, seat: ChatSeat) -> Agent:
    """The target with its defences around it; itself where there are none.

    Raises:
        ConfigError: nobody judges where the filter needs it, or the target cannot be defended so.
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
        stopped: share of the sentences that it stops, by split of the corpus.
    """

    max_perplexity: float
    stopped: Mapping[str, float]

    def __str__(self) -> str:
        """Such as "the filter stops sentences of perplexity above 31.2: 5.0 % of the training split's, ..."."""
        shares = [f"{100 * share:.1f} % of the {split} split's" for split, share in self.stopped.items()]
        return f"the filter stops sentences of perplexity above {self.max_perplexity:g}: {', '.join(shares)}"


def chosen_limit(
    judge: str, corpus: str, data_root: Path | None, false_alarms: float, device: str = "cpu", seat: ChatSeat = DEFAULT
) -> FilterLimit:
    """The limit that stops a given share of plain talk.

    Args:
        judge: a checkpoint, or a chat model that gives likelihoods.
        corpus: whose training split is plain talk, in the judge's words.
        data_root: where corpora lie.
        false_alarms: share of its sentences that may be stopped.
        device: that the judge computes on.
        seat: how a chat model is loaded.

    Raises:
        ConfigError: the corpus has other words than the judge.
        DataError: the corpus is missing or broken.
        CheckpointError: the judge is not there, or is damaged.
    """
    from parley.envs.negotiation.corpora.catalogue import load_corpus

    spoken = load_corpus(corpus, data_root)
    ears, splits = perplexity_filter(judge, np.inf, spoken.vocabulary, device, seat), spoken.splits
    require_words(corpus, data_root, ears.vocabulary, "or leave out the defence filter")
    train = sentence_perplexities(ears, splits["train"])
    # Rounded, so that a run which is resumed on another machine finds the same one; up, for a sentence may stand there often.
    highest = float(np.quantile(train, 1 - false_alarms))
    unit = 10.0 ** (np.floor(np.log10(highest)) - 4)
    limit = float(np.format_float_positional(np.ceil(highest / unit) * unit, precision=5, fractional=False))
    found = {"training": train, "validation": sentence_perplexities(ears, splits["val"])}
    return FilterLimit(limit, {split: float((one > limit).mean()) for split, one in found.items()})


def sentence_perplexities(ears: PerplexityFilter, split: Split) -> np.ndarray:
    """Return the perplexities (s,) of the other side's sentences in the first dialogues, as the listener reads them."""
    dialogues = split.first(ears.num_plain)
    you, them = ears.vocabulary.you_id, ears.vocabulary.them_id
    tokens = np.zeros((len(dialogues), int(dialogues.lengths.max())), dtype=np.int64)
    places = []
    for row, length in enumerate(dialogues.lengths.tolist()):
        tokens[row, :length] = dialogues.tokens(row)
        marks = np.flatnonzero(np.isin(tokens[row, :length], (you, them))).tolist()
        # What is no more than a marker and an end is never stopped.
        turns = zip(marks, [*marks[1:], length], strict=True)
        places += [(row, start + 1, end) for start, end in turns if tokens[row, start] == them and end - start > 2]
    rows, starts, ends = np.array(places, dtype=np.int64).T
    return ears.perplexities(dialogues.contexts.astype(np.int64)[rows], tokens[rows], starts, ends)
