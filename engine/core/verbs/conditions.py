"""Conditions on metrics: `--fail-if "r@1.tfidf.clean.low < 0.3"`, for gates of continuous integration.

A condition compares parts of metrics with numbers, and joins comparisons by `and`, `or` and `not`. A part is METRIC.value,
METRIC.low, METRIC.high or METRIC.n; of two compared runs also METRIC.difference.value, .low, .high and .p. A metric whose name
holds blanks or brackets stands in quotation marks: `'my metric'.value < 3`.

Python's `ast` parses the text and a whitelist admits its nodes; nothing is evaluated as code. A condition with a missing metric
or a figure that is not a number is undecided, unless its other parts decide it: `false and unknown` is false (Kleene's logic).
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from parley.engine.core.stats.statistics import Estimate
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import nearest

PARTS = ("value", "low", "high", "n")
DIFFERENCE = "difference"
DIFFERENCE_PARTS = ("value", "low", "high", "p")
_FLAG = "--fail-if"
_WORDS = ("and", "or", "not")
_TOKEN = re.compile(
    r"""(?P<number>(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>(?:'[^']*'|"[^"]*"|[^\W\d])[^\s<>=!(),'"]*)"""
)
_OPERATORS: Mapping[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_EXAMPLE = f'{_FLAG} "METRIC.low < 0.3"; comparisons with < <= > >= == != are joined by and, or, not'


@dataclass(frozen=True)
class MetricPart:
    """A part of a metric in a condition.

    Args:
        text: the part as typed.
        metric: name of the metric.
        part: one of `PARTS`; of a difference one of `DIFFERENCE_PARTS`.
        of_difference: whether it is a part of the difference between two runs.
    """

    text: str
    metric: str
    part: str
    of_difference: bool


@dataclass(frozen=True)
class ConditionOutcome:
    """The outcome of a condition.

    Args:
        text: the condition as typed.
        holds: True, False, or None if it is undecided.
        figures: the values of its parts by their text; NaN if there is none.
        missing: the reasons why it is undecided; empty if it is decided.
    """

    text: str
    holds: bool | None
    figures: Mapping[str, float]
    missing: Sequence[str] = ()

    def __str__(self) -> str:
        if self.holds is None:
            return f"cannot be decided: {self.text}; {'; '.join(self.missing)}"
        values = ", ".join(f"{text} = {value:.4g}" for text, value in self.figures.items())
        return f"{'true' if self.holds else 'false'}: {self.text}; {values}"


@dataclass(frozen=True)
class FailCondition:
    """A parsed condition.

    Args:
        text: the condition as typed.
        tree: its syntax, with the names of `figures` in the place of parts.
        figures: the parts of metrics by the name in the tree.
    """

    text: str
    tree: ast.expr
    figures: Mapping[str, MetricPart]

    def decide(self, value_of: Callable[[MetricPart], float | str]) -> ConditionOutcome:
        """Decide the condition.

        Args:
            value_of: returns the value of a part; a text gives the reason why there is none, and a fix.
        """
        results = {name: value_of(figure) for name, figure in self.figures.items()}
        values = {name: math.nan if isinstance(value, str) else value for name, value in results.items()}
        holds = _decide(self.tree, values)
        reasons = {
            f"{self.figures[name].text}: {value if isinstance(value, str) else 'not a number'}"
            for name, value in results.items()
            if math.isnan(values[name])
        }
        shown = {figure.text: values[name] for name, figure in self.figures.items()}
        return ConditionOutcome(self.text, holds, shown, sorted(reasons) if holds is None else ())


def parse_conditions(
    texts: Sequence[str], *, compares: bool = False, known: Collection[str] | None = None
) -> tuple[FailCondition, ...]:
    """Return parsed conditions.

    Args:
        texts: the conditions as typed.
        compares: whether there are two runs, so that differences have figures.
        known: names of all metrics that there can be; None if only the run can tell.

    Raises:
        ConfigError: a text is no condition, or names a metric that cannot be there.
    """
    conditions = tuple(_parse(text, compares) for text in texts)
    for condition in conditions:
        for figure in condition.figures.values():
            if known and figure.metric not in known:
                hint = nearest(figure.metric, known)
                fix = "name one of the metrics that --json prints"
                raise ConfigError(f"there is no metric {figure.metric!r}{hint}", where=_FLAG, got=condition.text, fix=fix)
    return conditions


def decide_all(conditions: Sequence[FailCondition], metrics: Mapping[str, Estimate]) -> list[ConditionOutcome]:
    """Return the verdicts of conditions on the metrics of one run."""

    def value_of(figure: MetricPart) -> float | str:
        return part_of(metrics.get(figure.metric), figure, metrics)

    return [condition.decide(value_of) for condition in conditions]


def part_of(estimate: Estimate | None, figure: MetricPart, known: Collection[str]) -> float | str:
    """Return a part of an estimate, or the reason why there is none.

    Args:
        estimate: the estimate; None if the metric is missing.
        figure: the part.
        known: names of the metrics that are there.
    """
    if estimate is None:
        return f"there is no such metric{nearest(figure.metric, known)}; --json prints the names of all"
    value = float(getattr(estimate, figure.part))
    if not math.isnan(value):
        return value
    if math.isnan(estimate.value):
        return f"nothing was measured (n={estimate.n}); run more items, or see why with parley status RUN"
    return f"the figure has no interval (n={estimate.n}); compare .value, or run more items"


def exit_status(verdicts: Sequence[ConditionOutcome]) -> int:
    """Return 1 if a condition is true, 2 if none is true and one is undecided, else 0."""
    outcomes = [verdict.holds for verdict in verdicts]
    return 1 if True in outcomes else 2 if None in outcomes else 0


def _parse(text: str, compares: bool) -> FailCondition:
    figures: dict[str, MetricPart] = {}

    def put(match: re.Match[str]) -> str:
        if match["number"] or match[0] in _WORDS:
            return match[0]
        name = f"figure_{len(figures)}"
        figures[name] = _figure(match[0], text, compares)
        return name

    expression = _TOKEN.sub(put, text).strip()
    try:
        tree = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ConfigError("this is no condition", where=_FLAG, got=text, fix=_EXAMPLE) from None
    if not _is_condition(tree):
        what = "a condition compares parts of metrics with numbers"
        raise ConfigError(what, where=_FLAG, got=text, fix=_EXAMPLE)
    if not figures:
        raise ConfigError("the condition names no metric", where=_FLAG, got=text, fix=_EXAMPLE)
    return FailCondition(text, tree, figures)


def _figure(name: str, text: str, compares: bool) -> MetricPart:
    metric, _, part = name.rpartition(".")
    of_difference = metric.endswith(f".{DIFFERENCE}")
    if of_difference:
        metric = metric.removesuffix(f".{DIFFERENCE}")
    metric = metric.strip("'\"")
    allowed = DIFFERENCE_PARTS if of_difference else PARTS
    if not metric or part not in allowed:
        ends = ", ".join(f".{DIFFERENCE}.{end}" if of_difference else f".{end}" for end in allowed)
        raise ConfigError(f"{name} names no part of a metric", where=_FLAG, got=text, fix=f"end it in one of {ends}")
    if of_difference and not compares:
        fix = f'parley compare RUN RUN {_FLAG} "{text}"'
        raise ConfigError("one run has no difference", where=_FLAG, got=text, fix=fix)
    return MetricPart(name, metric, part, of_difference)


def _is_condition(node: ast.expr) -> bool:
    match node:
        case ast.BoolOp(values=values):
            return all(map(_is_condition, values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _is_condition(operand)
        case ast.Compare(left=left, ops=ops, comparators=others):
            return all(type(op) in _OPERATORS for op in ops) and all(map(_is_number, (left, *others)))
    return False


def _is_number(node: ast.expr) -> bool:
    match node:
        case ast.Name():
            return True
        case ast.Constant(value=value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=ast.Constant() as operand):
            return _is_number(operand)
    return False


def _decide(node: ast.expr, values: Mapping[str, float]) -> bool | None:
    """Return whether an admitted syntax tree holds; None if it is undecided."""
    match node:
        case ast.BoolOp(op=op, values=parts):
            outcomes = [_decide(part, values) for part in parts]
            decisive = isinstance(op, ast.Or)
            return decisive if decisive in outcomes else None if None in outcomes else not decisive
        case ast.UnaryOp(operand=operand):
            outcome = _decide(operand, values)
            return None if outcome is None else not outcome
        case ast.Compare(left=left, ops=ops, comparators=others):
            numbers = [values[end.id] if isinstance(end, ast.Name) else float(ast.literal_eval(end)) for end in (left, *others)]
            steps = [
                None if math.isnan(one) or math.isnan(other) else _OPERATORS[type(op)](one, other)
                for one, op, other in zip(numbers[:-1], ops, numbers[1:], strict=True)
            ]
            return False if False in steps else None if None in steps else True
    raise AssertionError("only admitted nodes are decided")
