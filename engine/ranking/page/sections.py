"""What the chapters of rankers and of attacks on them share: runs with tables of their own, and how a section shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from parley.engine.core.page.content import Figure, Item, Section, ShownRun, tables_of
from parley.engine.core.stats.statistics import NOTHING, Estimate
from parley.engine.core.tables.table import EstimateTable
from parley.engine.ranking.metrics.ranking import RankedRows
from parley.engine.ranking.metrics.ranks import recall_at
from parley.engine.ranking.metrics.searched import SUCCESS, SearchedRows
from parley.envs.core.visible import visible


@dataclass(frozen=True, kw_only=True)
class ShownRankers(ShownRun):
    """One run that asks rankers; its items are contexts.

    Args:
        tables: what was measured, by heading.
        not_scored: what rankers gave no scores of, in sentences.
    """

    unit = "contexts"
    tables: Mapping[str, EstimateTable] = field(default_factory=dict)
    not_scored: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class ShownRanking(ShownRankers):
    """One evaluation of rankers, its tables in the layout of the paper.

    Args:
        first: the metric that says how often a right reply is first.
        changes: by ranker and rule how far that is from the same contexts as they are.
        rankers: labels of those that were named.
        controls: labels of those that are there to be beaten.
    """

    first: str = recall_at(1)
    changes: Mapping[tuple[str, str], Estimate] = field(default_factory=dict)
    rankers: Sequence[str] = ()
    controls: Sequence[str] = ()

    @cached_property
    def ranked(self) -> RankedRows:
        """The rows by ranker and rule."""
        return RankedRows(self.rows)


@dataclass(frozen=True, kw_only=True)
class ShownSearches(ShownRankers):
    """One run of attacks on rankers.

    Args:
        known: every estimate by name; those of success with all queries are the run's metrics too.
        goal: of the attacks, in words.
        budget: queries at most.
    """

    known: Mapping[str, Estimate] = field(default_factory=dict)
    goal: str = ""
    budget: int = 1

    @cached_property
    def searched(self) -> SearchedRows:
        """The rows by ranker and method."""
        return SearchedRows(self.rows)

    def reached(self, model: str, method: str, queries: int) -> Estimate:
        """Success of a method on a ranker with so many queries."""
        return self.known.get(f"{SUCCESS}{queries}.{model}.{method}", NOTHING)


RankersT = TypeVar("RankersT", bound=ShownRankers)


def measured_section(
    found: Sequence[RankersT],
    figures_of: Callable[[RankersT], Sequence[Figure]],
    items_of: Callable[[RankersT], Mapping[str, Sequence[Item]]],
) -> Section:
    """All runs, and of those that are done the reasons of rankers without scores, tables, drawings and items.

    Args:
        found: the runs.
        figures_of: drawings of one.
        items_of: contexts of one by heading, the first of each an example.
    """
    done = [each for each in found if each.done and each.metrics]
    items = {name: shown for each in done for name, shown in items_of(each).items()}
    return Section(
        notes=[f"{each.name}: {visible(told)}" for each in done for told in each.not_scored],
        measured=found,
        tables=tables_of([(each.name, each.tables) for each in done]),
        figures=[figure for each in done for figure in figures_of(each)],
        items=[item for shown in items.values() for item in shown],
        chosen={f"{name}: an example": shown[0] for name, shown in items.items() if shown},
    )
