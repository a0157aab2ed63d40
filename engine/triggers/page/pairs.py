"""Trigger searches for people to read: pairs of input and target, and what it took to find them.

Inputs and targets are hostile text: it is made visible before it is shown, and the page escapes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from parley.engine.core.page.content import Item
from parley.engine.core.page.figure import Figure, told_apart
from parley.engine.core.page.markup import fill, line
from parley.engine.core.stats.answers import is_no_reply
from parley.engine.core.stats.rows import Row
from parley.engine.core.stats.statistics import Points
from parley.engine.core.stats.tables import figure
from parley.engine.triggers.metrics.hits import HIT_RATE, T_OUT, hits_by_restarts, is_hit, kinds, loss_by_sweep
from parley.engine.triggers.page.sections import ShownSearch
from parley.envs.core.visible import visible

NUM_SHOWN = 200
"""Targets of a search that the viewer holds."""
_MAX_SERIES = 8
_SUCCESS = {None: (), True: ("success",), False: ("no success",)}
"""Tags by whether the reply to what was typed is a success."""


@dataclass(frozen=True)
class Hit:
    """A type of hit that a pair is; `wanted` is the one that was searched for."""

    name: str
    wanted: bool


@dataclass(frozen=True)
class Pair:
    """An input and the sentence that it was found for; numbers as text, in nats.

    Of a chat model the request, what it answered, and whether that is a success; empty, and None, of others.
    """

    prompt: str
    trigger: str
    target: str
    reply: str
    reasoning: str
    success: bool | None
    hits: tuple[Hit, ...]
    loss: str
    least: str
    mean: str
    input: str


def ranked(search: ShownSearch) -> list[Row]:
    """Its finished targets: hits as wanted first, then by loss, then by key."""
    return sorted(search.done, key=lambda row: (not is_hit(row, search.hit), row["loss"], str(row["item_key"])))


def note_of(search: ShownSearch) -> str:
    """What the numbers of its pairs are measured against, and how many pairs are not shown."""
    limits = ", ".join(f"{name} = {value:.3f}".replace("-", "\N{MINUS SIGN}") for name, value in search.thresholds.items())
    usual = f"; a usual word has {limits} nats" if limits else ""
    hidden = len(search.done) - NUM_SHOWN
    more = f" {hidden:,} further targets are in the run's rows." if hidden > 0 else ""
    return f"{search.name}: {search.hit} hits are wanted{usual}.{more}"


def search_items(search: ShownSearch) -> list[Item]:
    """The pairs of a search that the viewer holds, the best first.

    Args:
        search: with at least one finished target.
    """
    return [_item(search, row) for row in ranked(search)[:NUM_SHOWN]]


def _item(search: ShownSearch, row: Row) -> Item:
    pair = read_pair(row, search.hit)
    hits = [hit.name for hit in pair.hits]
    return Item(
        kind="trigger",
        key=visible(str(row["item_key"])),
        group=search.name,
        summary=line(
            '{} <q class="adversary">{}</q> \N{RIGHTWARDS ARROW} <q class="target">{}</q> {}',
            pair.prompt,
            pair.trigger,
            # Of a model that says what it is asked for nobody knows a reply, but the target itself.
            pair.target if pair.success is None else pair.reply,
            ", ".join(hits) or "no hit",
        ),
        tags=("as wanted" if any(hit.wanted for hit in pair.hits) else "missed", *hits, *_SUCCESS[pair.success]),
        values={"loss": row["loss"], "mean log probability": float(np.mean(row["word_log_probability"]))},
        body=fill("triggers/page/pair.html", pair=pair),
    )


def search_figures(sections: Sequence[ShownSearch]) -> list[Figure]:
    """The curves of all searches of a page: loss by sweep, hits by restarts, hits by candidates."""
    searched = [section for section in sections if section.done]
    names = told_apart([section.name for section in searched])
    losses = {name: loss_by_sweep(section.done) for name, section in zip(names, searched, strict=True)}
    if len(searched) == 1:
        (one,) = searched
        found = [kind for kind in kinds(one.done) if kind == one.hit or any(is_hit(row, kind) for row in one.done)]
        hits = {kind: hits_by_restarts(one.done, kind) for kind in found}
    else:
        hits = {
            f"{name}: {section.hit}": hits_by_restarts(section.done, section.hit)
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


def read_pair(row: Row, wanted: str) -> Pair:
    """A finished target, ready to be shown; `wanted` is the type of hit that was searched for."""
    words = row["word_log_probability"]
    return Pair(
        prompt=visible(row.get("prompt") or ""),
        trigger=_trigger(row),
        target=visible(str(row["target"])),
        reply=f"(no reply: {row['kind']})" if is_no_reply(row) else visible(row.get("reply") or ""),
        reasoning=visible(row.get("reasoning") or ""),
        success=row.get("verified"),
        hits=tuple(Hit(str(found["type"]), found["type"] == wanted) for found in row["hits"] if found["hit"]),
        loss=figure(row["loss"]),
        least=figure(min(words)),
        mean=figure(float(np.mean(words))),
        input=figure(row["input_log_probability"]),
    )


def _trigger(row: Row) -> str:
    return "(a continuous input)" if row["trigger"] is None else visible(str(row["trigger"]))


def _by_candidates(sections: Sequence[ShownSearch]) -> dict[str, Points]:
    """Hit rates by number of candidates, of searches that differ in nothing else."""
    groups: dict[str, list[ShownSearch]] = {}
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
    from parley.engine.core.page import plots

    drawn = {name: points for name, points in series.items() if len(points) > 1}
    kept = dict(list(drawn.items())[:_MAX_SERIES])
    left_out = f"; {len(drawn) - len(kept)} further ones are not drawn" if len(drawn) > len(kept) else ""
    caption = f"{what}; bands are 95 % intervals{left_out}"
    return Figure(title, caption, Markup(plots.budget_svg(title, x_label, kept, y_label)))


def word_figures(search: ShownSearch) -> list[Figure]:
    """The words of the best pair, and of the one that is nearest to being a hit and is none (figure 5)."""
    from parley.engine.triggers.page import plots

    rows = ranked(search)
    missed = [row for row in rows if not is_hit(row, search.hit)]
    chosen: dict[str, Row] = {"Best": rows[0]}
    if is_hit(rows[0], search.hit) and missed:
        chosen["Nearest miss"] = missed[0]
    figures = []
    for name, row in chosen.items():
        words = [visible(str(word)) for word in row["target_words"]]
        title = f"{name}: log probability of each word"
        dashed = "; dashed: a usual word" if T_OUT in search.thresholds else ""
        caption = f"{search.name}, after the trigger: {_trigger(row)}{dashed}"
        drawing = plots.words_svg(f"{search.name}, {title}", words, row["word_log_probability"], search.thresholds.get(T_OUT))
        figures.append(Figure(title, caption, Markup(drawing)))
    return figures
