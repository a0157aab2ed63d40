"""Trigger searches for people to read: pairs of input and target, and what it took to find them.

Inputs and targets are hostile text: it is made visible before it is shown, and the page escapes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from engine.metrics.statistics import Points, Row
from engine.metrics.triggers.hits import HIT_RATE, T_OUT, hits_by_restarts, is_hit, kinds, loss_by_sweep
from engine.report.content import SearchSection
from engine.report.figure import Figure, told_apart
from envs.core.visible import visible

NUM_SHOWN, NUM_FOLDED = 15, 185
_MAX_SERIES = 8
_ABSENT = "\N{EN DASH}"


@dataclass(frozen=True)
class Hit:
    """A type of hit that a pair is; `wanted` is the one that was searched for."""

    name: str
    wanted: bool


@dataclass(frozen=True)
class Pair:
    """An input and the sentence that it was found for; numbers as text, in nats."""

    trigger: str
    target: str
    hits: tuple[Hit, ...]
    loss: str
    least: str
    mean: str
    input: str


@dataclass(frozen=True)
class Search:
    """One search as the page shows it.

    Args:
        name: its heading.
        description: one sentence.
        reading: what the columns are measured against.
        shown: the pairs that stand open.
        more: those that are folded away.
        num_hidden: how many there are beyond.
        figures: words of the nearest pairs.
        skipped: sentences of the list, each with its unknown words.
    """

    name: str
    description: str
    reading: str
    shown: list[Pair]
    more: list[Pair]
    num_hidden: int
    figures: list[Figure]
    skipped: list[tuple[str, str]]


def read_search(section: SearchSection) -> Search:
    """One search of a run, ready to be shown: hits first, then by loss, then by key.

    Args:
        section: with at least one finished target.
    """
    rows = sorted(section.targets, key=lambda row: (not is_hit(row, section.hit), row["loss"], str(row["item_key"])))
    pairs = [_pair(row, section.hit) for row in rows[: NUM_SHOWN + NUM_FOLDED]]
    limits = ", ".join(f"{name} = {value:.3f}".replace("-", "\N{MINUS SIGN}") for name, value in section.thresholds.items())
    return Search(
        name=section.name,
        description=section.description,
        reading=f"Wanted: {section.hit} hits. A usual word has {limits} nats. Least and mean: log probability of the target's "
        "words, its end counted; trigger's: of the input's words under the language model.",
        shown=pairs[:NUM_SHOWN],
        more=pairs[NUM_SHOWN:],
        num_hidden=len(rows) - len(pairs),
        figures=_word_figures(section, rows),
        skipped=[(visible(sentence), visible(unknown)) for sentence, unknown in section.skipped],
    )


def search_figures(sections: Sequence[SearchSection]) -> list[Figure]:
    """The curves of all searches of a page: loss by sweep, hits by restarts, hits by candidates."""
    searched = [section for section in sections if section.targets]
    names = told_apart([section.name for section in searched])
    losses = {name: loss_by_sweep(section.targets) for name, section in zip(names, searched, strict=True)}
    if len(searched) == 1:
        (one,) = searched
        found = [kind for kind in kinds(one.targets) if kind == one.hit or any(is_hit(row, kind) for row in one.targets)]
        hits = {kind: hits_by_restarts(one.targets, kind) for kind in found}
    else:
        hits = {
            f"{name}: {section.hit}": hits_by_restarts(section.targets, section.hit)
            for name, section in zip(names, searched, strict=True)
        }
    curves = (
        ("Loss by sweep", "sweeps", "mean loss", losses, "mean over restarts, those that have ended at their last loss"),
        ("Hits by restarts", "restarts", "share of targets", hits, "what the same searches reach with fewer restarts"),
        (
            "Hits by candidates",
            "candidates at each visit",
            "share of targets",
            _by_candidates(searched),
            "searches that differ in nothing else",
        ),
    )
    return [_curve(*curve) for curve in curves if any(len(points) > 1 for points in curve[3].values())]


def _pair(row: Row, wanted: str) -> Pair:
    words = row["word_log_probability"]
    return Pair(
        trigger=_trigger(row),
        target=visible(str(row["target"])),
        hits=tuple(Hit(str(found["type"]), found["type"] == wanted) for found in row["hits"] if found["hit"]),
        loss=_nats(row["loss"]),
        least=_nats(min(words)),
        mean=_nats(float(np.mean(words))),
        input=_nats(row["input_log_probability"]),
    )


def _trigger(row: Row) -> str:
    return "(a continuous input)" if row["trigger"] is None else visible(str(row["trigger"]))


def _nats(value: float | None) -> str:
    return _ABSENT if value is None else f"{value:.2f}".replace("-", "\N{MINUS SIGN}")


def _by_candidates(sections: Sequence[SearchSection]) -> dict[str, Points]:
    """Hit rates by number of candidates, of searches that differ in nothing else."""
    groups: dict[str, list[SearchSection]] = {}
    for section in sections:
        if f"{HIT_RATE}{section.hit}" in section.metrics:
            groups.setdefault(section.alike, []).append(section)
    return {
        members[0].hit if len(groups) == 1 else members[0].name: sorted(
            (section.candidates, section.metrics[f"{HIT_RATE}{section.hit}"]) for section in members
        )
        for members in groups.values()
        if len({section.candidates for section in members}) == len(members) > 1
    }


def _curve(title: str, x_label: str, y_label: str, series: Mapping[str, Points], what: str) -> Figure:
    # matplotlib costs a second, which readers of pairs need not pay.
    from engine.report import plots

    drawn = {name: points for name, points in series.items() if len(points) > 1}
    kept = dict(list(drawn.items())[:_MAX_SERIES])
    left_out = f"; {len(drawn) - len(kept)} further ones are not drawn" if len(drawn) > len(kept) else ""
    caption = f"{what}; bands are 95 % intervals{left_out}"
    return Figure(title, caption, Markup(plots.budget_svg(title, x_label, kept, y_label)))


def _word_figures(section: SearchSection, rows: Sequence[Row]) -> list[Figure]:
    """The words of the best pair, and of the one that is nearest to being a hit and is none (figure 5)."""
    from engine.report import plots

    missed = [row for row in rows if not is_hit(row, section.hit)]
    chosen: dict[str, Row] = {"Best": rows[0]}
    if is_hit(rows[0], section.hit) and missed:
        chosen["Nearest miss"] = missed[0]
    figures = []
    for name, row in chosen.items():
        words = [visible(str(word)) for word in row["target_words"]]
        title = f"{name}: log probability of each word"
        caption = f"after the trigger: {_trigger(row)}; dashed: a usual word"
        drawing = plots.words_svg(f"{section.name}, {title}", words, row["word_log_probability"], section.thresholds.get(T_OUT))
        figures.append(Figure(title, caption, Markup(drawing)))
    return figures
