"""The table of trigger searches in the layout of He & Glass (2018), measured beside published, as text.

Searches for words are shown as in tables 3 and 11, those for continuous inputs as in table 1. A model has up to four lines: its
hit rates in percent, their 95 % intervals, the published rates, the number of targets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from parley.engine.core.stats.statistics import NOTHING, Estimate
from parley.engine.core.stats.tables import ABSENT, FEW_MARK, TextTable, few_note, num_measured
from parley.engine.triggers.metrics.hits import HIT_RATE, PROJECTED, REFUSED, SAMPLED, VERIFIED, unread_note
from parley.engine.triggers.metrics.published import HIT_RATES, MAL, MAL_IO, NORMAL, RANDOM, RELAXED, Figures

LISTS = (NORMAL, MAL, MAL_IO, RANDOM)
"""What a model is searched for, in the order of the table."""

_NOTE_WORDS = (
    "Hit rates in percent. Pairs in braces are k = 1 and k = 2. The searches of mal and random minimise o-sample-min-k1, that "
    "of mal io io-sample-min-k1; the other types are read off the same inputs. Brackets: 95 % intervals."
)
_NOTE_RELAXED = (
    "Hit rates in percent, of continuous inputs and (projected) of the words that are nearest to them. "
    "Brackets: 95 % intervals."
)
_TYPED = {VERIFIED: "verified", SAMPLED: "drawn", REFUSED: "refused"}
"""Columns of a list whose inputs were typed, behind those of its hits."""
_NOTE_TYPED = (
    " Verified: of targets to whose typed input the likeliest reply is a success; drawn: of drawn answers. Refused: how many "
    "candidates the rules for inputs refused, such as those whose text gives other tokens."
)
_NOTE_PUBLISHED = " Published: He & Glass 2018, by {}, whose lists and models are others."


@dataclass(frozen=True)
class SearchedModel:
    """One model of the table.

    Args:
        name: what it is called.
        lists: the metrics of each search (`parley.engine.triggers.metrics.hits`) by the name of its list, those of `LISTS`.
        published: the figures beside them; None where there are none.
    """

    name: str
    lists: Mapping[str, Mapping[str, Estimate]]
    published: Figures | None = None

    def estimate(self, listed: str, kind: str) -> Estimate:
        """The hit rate of a type, or a figure of typed inputs; `NOTHING` where it was not measured."""
        return self.lists.get(listed, {}).get(kind if kind in _TYPED else f"{HIT_RATE}{kind}", NOTHING)


def search_table(models: Sequence[SearchedModel], normal: str, relaxed: str | None = None) -> TextTable:
    """The table of some models, at least one.

    Args:
        models: what was measured.
        normal: the type of hit that the normal lists were searched for.
        relaxed: what was optimised where inputs are continuous, a key of `published_he2018.RELAXED`; None for inputs of words.
    """
    columns = _columns(normal) if relaxed is None else _relaxed_columns(normal, relaxed)
    untyped = len(columns)
    columns = _with_typed(columns, models)
    note, method = (_NOTE_WORDS, "gibbs-enum") if relaxed is None else (_NOTE_RELAXED, "the same relaxation")
    rows: list[tuple[str, ...]] = []
    for model in models:
        lines = {title: show for title, show in _LINES.items() if title != _PUBLISHED or model.published is not None}
        for title, show in lines.items():
            cells = (_braced([show(model, listed, kind) for kind in kinds]) for listed, kinds in columns.values())
            rows.append((title or model.name, *cells))
        rows.append(("n", *(num_measured(model.estimate(listed, kinds[0])) for listed, kinds in columns.values())))
    published = any(model.published is not None for model in models)
    few = any(row[0] == "n" and any(cell.endswith(FEW_MARK) for cell in row) for row in rows)
    note += (len(columns) > untyped) * _NOTE_TYPED + published * _NOTE_PUBLISHED.format(method) + few * few_note("targets")
    note += unread_note(*(figures for model in models for figures in model.lists.values()))
    return TextTable(("model", *columns), tuple(rows), note)


def figures_of(corpus: str, attention: str, relaxed: str | None = None) -> Figures | None:
    """The published figures of a kind of model on a corpus; None where there are none.

    Args:
        corpus: a key of `published_he2018.HIT_RATES`, or any other name.
        attention: of the model, as `Seq2SeqSizes.attention`; "none" is the paper's last-h, nothing another kind of model.
        relaxed: as in `search_table`.
    """
    if not attention:
        return None
    if relaxed is not None:
        return RELAXED[relaxed] if corpus == "ubuntu" and attention != "none" else None
    return HIT_RATES.get(corpus, {}).get("last-h" if attention == "none" else "attention")


def _columns(normal: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """The list and the types of hit of each column, by its heading."""
    columns: dict[str, tuple[str, tuple[str, ...]]] = {
        f"normal {normal}": (NORMAL, (normal,)),
        "mal o-greedy": (MAL, ("o-greedy",)),
    }
    for listed, prefix in ((MAL, "o"), (MAL_IO, "io")):
        for statistic in ("min", "avg"):
            columns[f"mal {prefix}-sample-{statistic} {{k1, k2}}"] = (listed, _both(f"{prefix}-sample-{statistic}"))
    columns["random o-sample-min {k1, k2}"] = (RANDOM, _both("o-sample-min"))
    return columns


def _relaxed_columns(normal: str, relaxed: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """The same for continuous inputs, of which free embeddings are not projected."""
    prefixes = ("", PROJECTED) if relaxed == "one-hot" else ("",)
    wanted = {NORMAL: normal, MAL: "o-greedy", RANDOM: "o-greedy"}
    return {f"{listed} {prefix}{kind}": (listed, (prefix + kind,)) for listed, kind in wanted.items() for prefix in prefixes}


def _with_typed(
    columns: Mapping[str, tuple[str, tuple[str, ...]]], models: Sequence[SearchedModel]
) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Columns with those of typed inputs behind the last one of each list, where some model has them."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for listed in dict.fromkeys(listed for listed, _ in columns.values()):
        found |= {heading: column for heading, column in columns.items() if column[0] == listed}
        measured = [figure for figure in _TYPED if any(model.estimate(listed, figure).n for model in models)]
        found |= {f"{listed} {_TYPED[figure]}": (listed, (figure,)) for figure in measured}
    return found


def _both(kind: str) -> tuple[str, ...]:
    return tuple(f"{kind}-k{k}" for k in (1, 2))


def _percent(model: SearchedModel, listed: str, kind: str) -> str:
    value = model.estimate(listed, kind).value
    if kind == REFUSED and math.isfinite(value):
        return f"{value:,.0f}"
    return f"{100 * value:.1f}" if math.isfinite(value) else ABSENT


def _interval(model: SearchedModel, listed: str, kind: str) -> str:
    estimate = model.estimate(listed, kind)
    return f"[{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]" if math.isfinite(estimate.low) else ABSENT


def _known(model: SearchedModel, listed: str, kind: str) -> str:
    value = (model.published or {}).get(listed, {}).get(kind)
    return ABSENT if value is None else f"{value:.1f}"


_PUBLISHED = "published"
_LINES: dict[str, Callable[[SearchedModel, str, str], str]] = {"": _percent, "95 % interval": _interval, _PUBLISHED: _known}
"""What a line shows of a type of hit, by the line's title; the first bears the model's name."""


def _braced(shown: Sequence[str]) -> str:
    """The cell of a column, in braces where it has two types of hit."""
    if all(text == ABSENT for text in shown):
        return ABSENT
    return shown[0] if len(shown) == 1 else f"{{{', '.join(shown)}}}"
