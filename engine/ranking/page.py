"""The chapters of rankers: evaluations, attacks, and campaigns that harden rankers.

Drawings of evaluations: first places by rule, by shared words (figure 1) and by kept words (figure 2), and ranks before and
after. Drawings of attacks: success against queries, and transfer between rankers as a heat table. The viewer shows attacked
contexts: every candidate with its changed words marked, and its rank before and after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from markupsafe import Markup

from parley.engine.core.page.content import Chapter, CurveSource, Figure, Item, Run, Stages, Verdict
from parley.engine.core.page.markup import ARROW, badges, joined, line, marked, paragraphs, sides
from parley.engine.core.page.page import SHARE, certain_sign, first_marks, number
from parley.engine.core.page.trainings import Hardenings, comparison
from parley.engine.core.stats.rows import selected
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric, Row
from parley.engine.core.tables.table import figure
from parley.engine.core.verbs.campaign import CONTROL, RESULT, START
from parley.engine.perturb.replies.catalogue import rules as known_rules
from parley.engine.perturb.strategies.texts import pieces, spans_of_words
from parley.engine.perturb.strategy import RANDOM_WORDS
from parley.engine.ranking.metrics.campaign import ATTACKS, GAIN, GAIN_BEYOND_CONTROL, HELD
from parley.engine.ranking.metrics.campaign import RANKERS as HARDENED
from parley.engine.ranking.metrics.erasure import figure_1, overlap_of
from parley.engine.ranking.metrics.ranking import CHANGE, CLEAN, CONTEXT, RankedRows, describe, first_place, metric_of, only
from parley.engine.ranking.metrics.searched import (
    AHEAD,
    BASELINE,
    CONTROLS,
    MEDIAN_QUERIES,
    SUCCESS,
    TRANSFER,
    SearchedRows,
    attacks_of,
    baseline_of,
    describe_search,
    expected_ranks,
    has_transfers,
    points_in,
    points_of,
    rank_movement,
)
from parley.engine.ranking.verbs.attack import ATTACK_RANKING, BUDGET, GOAL
from parley.engine.ranking.verbs.hardened import ATTACK, POOL, RANKING, SEARCHED, TRAIN_HARDENED_RANKER, metric_name
from parley.engine.ranking.verbs.minmax import MINMAX_RANKING
from parley.engine.ranking.verbs.prepared import not_scored
from parley.engine.ranking.verbs.ranking import EVALUATE_RANKING, RANKERS, RULES, SEVERAL, SIZE
from parley.envs.core.seeds import stable_hash

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_RANKERS = 4
"""Rankers of a drawing, one for each colour."""
_LARGEST = 420.0
"""Area of a dot for all replies of a row, in square points."""
NUM_SHOWN, NUM_SEARCHED = 20, 10
"""Contexts of a rule, and of a method on a ranker, in the viewer."""
_MOST_DRAFTS = 200
"""Contexts of a rule that wait for the choice of those that are shown."""
_MOST_CANDIDATES = 12
"""Candidates of a context in the viewer, the first by their rank after the attack, beside those that were changed."""
_MOST_TICKS = 12
"""Ranks that an axis names one by one; of more it names some, and dots are drawn as a picture."""
_MOST_WORDS = 8
"""Words of a reply whose importance is shown."""
_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
"""Numbers of queries at which a curve is drawn."""
_FIRST = SHARE._replace(
    title="Right reply first", definition="share of the contexts; under a rule the reply as the rule left it"
)
_SUCCESS = SHARE._replace(title="Goal reached", definition="share of the attacked contexts")
_HELD = SHARE._replace(title="Right reply first under attack", definition="share of the contexts")


class _OfContexts(Chapter):
    """A chapter whose rows are contexts."""

    unit = "contexts"

    def notes(self, run: Run) -> Iterable[str]:
        return not_scored(run.summary) if run.done and run.metrics else ()


class Rankings(_OfContexts):
    """The chapter of evaluations of rankers."""

    name, title = "ranking", "Rankers"
    jobs = (EVALUATE_RANKING.name,)
    terms: ClassVar = {
        r"\bR\d*@\d": ("R@k", "share of the right replies at rank k or better; R10@1: first of ten candidates."),
        r"\bA\d*@\d": ("A@k", "the same for what a rule left of the right reply, which is no right one any more."),
        r"\bMAP\b|\bMRR\b|\bAAP\b|\bARR\b": (
            "MAP, MRR",
            "mean average precision; mean of 1 / rank of the first right reply. AAP and ARR: under a rule.",
        ),
        r"[Uu]ntouched": ("Untouched", "contexts in which a rule found nothing to change."),
        r"[Tt]ies": ("Ties", "candidates of one score have no order: figures are means over all of their orders."),
        r"response-only": ("response-only", "the same ranker, which is shown candidates and no context."),
        r"\balpha\b|\bbeta\b": (
            "alpha, beta",
            "how many words the right reply shares with the context; how many more or fewer a wrong one shares.",
        ),
    }

    def verdict_of(self, run: Run) -> Verdict | None:
        clean = {ranker: share for ranker in _named(run) if (share := _first_place(run, ranker, CLEAN)).n}
        if not clean:
            return None
        best = max(clean, key=lambda ranker: clean[ranker].value)
        sentence = f"{best} puts a right reply first in {number(SHARE, clean[best].value)} of the contexts"
        marks, details, warnings = {f"{best}, {CLEAN}": clean[best]}, [], list[str]()
        for keeps_labels in (True, False):
            rules = [
                rule
                for rule, keeps in run.read(RankedRows).rules.items()
                if keeps is keeps_labels and not rule.endswith(RANDOM_WORDS)
            ]
            shares = {rule: share for rule in rules if (share := _first_place(run, best, rule)).n}
            marks |= {f"{best}, {rule}": share for rule, share in shares.items()}
            if worst := _worst(run, best, shares, keeps_labels):
                text = number(SHARE, shares[worst].value)
                if keeps_labels:
                    sentence += f"; under {worst} in {text} of those that it changes"
                    if shares[worst].flagged and not clean[best].flagged:
                        warnings.append(f"Few dialogues ({shares[worst].n:,}) under {worst}.")
                else:
                    details.append(f"It still puts first in {text} what {worst} leaves of the right reply.")
                if worst in set(known_rules):
                    details.append(f"{worst}: {known_rules.summary(worst)}.")
        specs = run.summary.get(RANKERS, {}).items()
        shares = {label: _first_place(run, label, CLEAN) for label, spec in specs if spec["is_control"]}
        controls = {label: share for label, share in shares.items() if share.n}
        if controls:
            control = max(controls, key=lambda label: controls[label].value)
            marks[f"{control}, {CLEAN}"] = controls[control]
            details.append(f"The best control, {control}, is right in {number(SHARE, controls[control].value)}.")
        return Verdict(
            sentence=f"{sentence}.",
            metric=_FIRST,
            number=clean[best],
            unit="dialogues",
            marks=first_marks(marks),
            warnings=warnings,
            details=details,
        )

    def shown(self, run: Run) -> Mapping[str, Estimate]:
        return {name: run.metrics[name] for name in self.legend(run) if name in run.metrics}

    def legend(self, run: Run) -> Mapping[str, Metric]:
        first, keeps = first_place(bool(run.summary.get(SEVERAL, False))), run.summary.get(RULES, {})
        names = [f"{first}.{label}.{CLEAN}" for label in run.summary.get(RANKERS, {})]
        names += [f"{metric_of(first, keeps[rule])}.{label}.{rule}" for label in _named(run) for rule in keeps]
        return {name: describe(name, run.summary.get(SIZE)) for name in names}

    def figures(self, run: Run) -> Iterable[Figure]:
        from parley.engine.core.page import plots

        ranked = run.read(RankedRows)
        rankers = [ranker for ranker in _named(run) if ranked.has_scores(ranker, CLEAN)][:_MOST_RANKERS]
        if not rankers or not run.metrics:
            return
        situations = [CLEAN, *ranked.rules]
        series = {
            ranker: {rule: share for rule in situations if (share := _first_place(run, ranker, rule)).n} for ranker in rankers
        }
        spoiling = ", ".join(rule for rule, keeps in ranked.rules.items() if not keeps)
        caption = "contexts that the rule changed; bars are 95 % intervals"
        caption += f"; under {spoiling} what is left of the right reply" if spoiling else ""
        yield plots.dots("Right replies in the first place", caption, "% of contexts", situations, series, 100.0)
        yield from _by_overlap(run, rankers)
        points = {ranker: ranked.kept_points(ranker) for ranker in rankers}
        kept = {
            ranker: [(point.k, point.relative) for point in of_ranker]
            for ranker, of_ranker in points.items()
            if of_ranker and of_ranker[0].relative.n
        }
        if kept:
            caption = (
                "candidates as they are; right replies of which only the words stay whose erasure costs most; "
                "1 is as often first as with whole replies; with 95 % intervals"
            )
            title = "First places with a few words alone"
            yield plots.budget(title, caption, "words that stay", kept, "relative to whole replies")
        for rule in ranked.rules:
            counts = rank_movement(ranked, rankers[0], rule)
            caption = f"{rankers[0]}: {counts.sum():,} changed replies; areas are shares of a rank before"
            draw = partial(draw_movement, counts) if counts.any() else None
            yield Figure(f"Ranks before and after {rule}", caption, size=(3.6, 3.4), draw=draw)

    def items(self, run: Run) -> Iterable[tuple[str, Iterable[Item]]]:
        drafts: dict[str, list[AttackedContext]] = {rule: [] for rule in run.read(RankedRows).rules if run.metrics}
        for row in run.done if drafts else ():
            for rule in (attack["rule"] for attack in row["attacks"] if attack["changed"]):
                if (draft := drafted(run, row, rule)) is not None:
                    drafts[rule].append(draft)
                    if len(drafts[rule]) > _MOST_DRAFTS:
                        drafts[rule] = _first_shown(drafts[rule])
        for rule, of_rule in drafts.items():
            yield rule, _with_example(list(map(item_of, _first_shown(of_rule))))


def _first_shown(drafts: Sequence[AttackedContext]) -> list[AttackedContext]:
    """Return the contexts that the viewer shows: those that fooled the first ranker first, else by chance."""
    return sorted(drafts, key=lambda draft: (not draft.fooled, stable_hash("report", str(draft.row["item_key"]))))[:NUM_SHOWN]


def _named(run: Run) -> list[str]:
    return [label for label, spec in run.summary.get(RANKERS, {}).items() if not spec["is_control"]]


def _first_place(run: Run, ranker: str, rule: str, ending: str = "") -> Estimate:
    """Return how often a ranker puts a right reply first under a rule; an ending names another figure."""
    keeps_labels = rule == CLEAN or run.read(RankedRows).rules[rule]
    kind = metric_of(first_place(bool(run.summary.get(SEVERAL, False))), keeps_labels)
    return run.metrics.get(f"{kind}{ending}.{ranker}.{rule}", NOTHING)


def _worst(run: Run, ranker: str, shares: Mapping[str, Estimate], keeps_labels: bool) -> str | None:
    """Return the rule that certainly costs a ranker most, or whose spoiled replies it puts first most often."""
    if not keeps_labels:
        return max(shares, key=lambda rule: shares[rule].value, default=None)
    changes = {rule: _first_place(run, ranker, rule, CHANGE) for rule in shares}
    lowered = [rule for rule, change in changes.items() if certain_sign(change) < 0]
    return min(lowered, key=lambda rule: changes[rule].value, default=None)


def _by_overlap(run: Run, rankers: Sequence[str]) -> Iterator[Figure]:
    """Draw figure 1: first places on clean candidates by alpha, and by beta."""
    from parley.engine.core.page import plots

    ranked, first = run.read(RankedRows), first_place(bool(run.summary.get(SEVERAL, False)))
    overlaps = np.full((len(ranked.sizes), 2), np.nan)
    for index, row in enumerate(selected(run.done, "context", "candidates", "labels")):
        context, replies = ([text.split() for text in row[name]] for name in ("context", "candidates"))
        overlaps[index] = overlap_of(context, replies, row["labels"]) or (np.nan, np.nan)
    bins = {ranker: figure_1(overlaps, only(ranked.measured(ranker, CLEAN), first), ranked.clusters) for ranker in rankers}
    meanings = {
        "alpha": "words that context and right reply share, of the fewer of the two",
        "beta": "words that context and a wrong reply share, at most, by those of the right reply",
    }
    for axis, (name, meaning) in enumerate(meanings.items()):
        parts = {ranker: of_ranker[axis] for ranker, of_ranker in bins.items()}
        names = [
            f"{part.low:g} or more" if np.isinf(part.high) else f"{part.low:g} to {part.high:g}"
            for part in next(iter(parts.values()))
        ]
        series = {
            ranker: {label: part.estimate for label, part in zip(names, own, strict=True) if part.estimate.n}
            for ranker, own in parts.items()
        }
        caption = f"candidates as they are; {name}: {meaning}; bars are 95 % intervals"
        yield plots.dots(f"First places by {name}", caption, "% of contexts", names, series, 100.0)


def draw_movement(counts: np.ndarray, axes: Axes) -> None:
    """Draw the number of replies from each rank to each other as dots; replies on the line stayed.

    Args:
        counts: (n, n) by rank before and after.
        axes: to draw on.
    """
    from parley.engine.core.page.plots import MUTED, SERIES

    size = len(counts)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    before, after = np.nonzero(counts)
    axes.grid(True)
    axes.plot([1, size], [1, size], color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
    is_large = size > _MOST_TICKS
    areas = _LARGEST * shares[before, after]
    axes.scatter(after + 1, before + 1, s=areas, color=SERIES[1], linewidths=0, rasterized=is_large)
    ticks = np.linspace(1, size, 6).round().astype(int) if is_large else np.arange(1, size + 1)
    ends = (0.4, size + 0.6)
    axes.set(xlim=ends, ylim=ends[::-1], xticks=ticks, yticks=ticks, xlabel="rank after", ylabel="rank before")


class AttackedContext(NamedTuple):
    """An attacked context before it is formatted.

    Args:
        row: of the context.
        changed: texts of changed replies by index, of a changed context at `CONTEXT`.
        ranks: of all replies before and after the attack, by ranker.
        about: index of the attacked reply.
        fooled: True if a right ranking became wrong, or if the rest of a spoiled right reply is still first.
        num_changed: number of changed words.
        remarks: further notes.
    """

    row: Row
    changed: Mapping[int, str]
    ranks: Mapping[str, tuple[np.ndarray, np.ndarray]]
    about: int
    fooled: bool
    num_changed: int
    remarks: Sequence[str] = ()

    @property
    def turns(self) -> Iterator[Markup]:
        """The turns of the context, changed words marked."""
        after = self.changed.get(CONTEXT, "\n".join(self.row["context"])).split("\n")
        for turn, changed in zip(self.row["context"], after, strict=True):
            same = turn == changed
            yield (
                line("{}", turn or "(says nothing)")
                if same
                else marked(pieces(spans_of_words(turn, changed), "before", "after"))
            )


def drafted(run: Run, row: Row, rule: str) -> AttackedContext | None:
    """Return a context under one rule; None without a right reply, or without scores of a ranker.

    Args:
        run: of the evaluation.
        row: the context.
        rule: that changed it.
    """
    rankers = _named(run)
    scores = {(entry["model"], entry["rule"]): entry["scores"] for entry in row["ranked"]}
    pairs = [(scores.get((ranker, CLEAN)), scores.get((ranker, rule))) for ranker in rankers]
    if not any(row["labels"]) or any(None in pair for pair in pairs):
        return None
    ranks = [(expected_ranks(before or ()), expected_ranks(after or ())) for before, after in pairs]
    before, after = ranks[0]
    (attack,) = (attack for attack in row["attacks"] if attack["rule"] == rule)
    changed = {reply["place"]: reply["text"] for reply in attack["changed"]}
    right = [index for index, label in enumerate(row["labels"]) if label]
    keeps_labels = attack["keeps_labels"]
    # Of several right replies the one with the best rank; where labels change, the one that was changed.
    about = min([index for index in right if keeps_labels or index in changed] or right, key=lambda index: before[index])
    fooled = (before[about] == 1 and after[about] > 1) if keeps_labels else after[about] == 1
    num_changed = sum(reply["num_changed"] for reply in attack["changed"])
    return AttackedContext(row, changed, dict(zip(rankers, ranks, strict=True)), about, bool(fooled), num_changed)


def example(run: Run, number: int, rule: str) -> Item | None:
    """Return a context under one rule as an item; None if `drafted` has none."""
    draft = drafted(run, run.done[number], rule)
    return None if draft is None else item_of(draft)


def item_of(draft: AttackedContext) -> Item:
    """Return an attacked context, candidates by their rank after the attack by the first ranker."""
    row, about, num = draft.row, draft.about, draft.num_changed
    first, (before, after) = next(iter(draft.ranks.items()))
    moved = _rank_change(before[about], after[about])
    badge = [(f"rank {moved}", not draft.fooled), (f"{num} {'word' if num == 1 else 'words'} changed", None)]
    candidates = []
    by_rank = sorted(range(len(after)), key=lambda index: (after[index], index))
    # Of a whole pool the first ranks, and those that the item is about.
    kept = {*by_rank[:_MOST_CANDIDATES], about, *list(draft.changed)[:_MOST_CANDIDATES]}
    for index in filter(kept.__contains__, by_rank):
        text = row["candidates"][index]
        heading = f"{'right' if row['labels'][index] else 'wrong'}{', changed' * (index in draft.changed)}"
        words = marked(pieces(spans_of_words(text, draft.changed.get(index, text)), "before", "after"))
        candidates.append((heading, words, *(_rank_change(old[index], new[index]) for old, new in draft.ranks.values())))
    num_left = len(after) - len(candidates)
    return Item(
        kind="context",
        key=str(row["item_key"]),
        summary=line("rank {}: <q>{}</q>", moved, row["candidates"][about] or "(says nothing)"),
        body=joined(
            [
                badges([*badge, *((remark, None) for remark in draft.remarks)]),
                paragraphs(draft.turns),
                sides(["candidate", *(f"rank by {ranker}" for ranker in draft.ranks)], candidates),
                *([paragraphs([line("{} more candidates", f"{num_left:,}")])] if num_left else []),
                _importance(row, first, about),
            ]
        ),
        tags=("fooled" if draft.fooled else "not fooled",),
        values={"rank before": float(before[about]), "rank after": float(after[about]), "words changed": num},
    )


def _with_example(items: Sequence[Item]) -> list[Item]:
    return [replace(item, link="an example" * (not index)) for index, item in enumerate(items)]


def _importance(row: Row, ranker: str, index: int) -> Markup:
    """Return the words of a reply with bars of their importance to a ranker, the most important ones first."""
    for reading in row.get("readings") or ():
        if (reading["model"], reading["place"]) == (ranker, index):
            words = sorted(zip(reading["words"], reading["importance"], strict=True), key=lambda pair: -pair[1])[:_MOST_WORDS]
            most = max(words[0][1], 1e-9)
            bar = '<td><meter min="0" max="{}" value="{}">{shown}</meter></td><td>{shown}</td>'
            bars = joined(
                line(f'<tr><th scope="row" dir="auto">{{}}</th>{bar}</tr>', word, most, max(value, 0), shown=figure(value))
                for word, value in words
            )
            about = "Importance of words of the right reply to {}: what erasing one costs, as a share of the score."
            return line(f'<p class="muted">{about}</p><table class="items"><tbody>{{}}</tbody></table>', ranker, bars)
    return Markup("")


def _rank_change(before: float, after: float) -> str:
    """Return ranks before and after, such as "1 \N{RIGHTWARDS ARROW} 4"; a tie has half ranks."""
    return f"{before:g}" if before == after else f"{before:g} {ARROW} {after:g}"


class RankerAttacks(_OfContexts):
    """The chapter of attacks on rankers."""

    name, title = "ranker-attacks", "Attacks on rankers"
    jobs = (ATTACK_RANKING.name,)
    terms: ClassVar = {
        r"\bquer(y|ies)\b": ("Query", "one reply scored in its context; scores before any edit are none, nor are repeats."),
        r"\brandom\b": ("random", "the baseline: random edits at the same budget."),
        r"\bgreedy\b": ("greedy", "words by what erasing them does, each by its best edit."),
        r"\bbeam\b": ("beam", "all edits of the best few drafts, edit after edit."),
        r"\bgradient\b": ("gradient", "replacements that the ranker's own slopes point to; slopes are no queries."),
        r"\bgaslite\b": ("gaslite", "words of the encoder's vocabulary behind the reply, by slopes averaged over some texts."),
        r"\brandom-steps\b": ("random-steps", "gaslite without slopes: random words in its steps, from the best text so far."),
        r"\brandom-words\b": ("random-words", "as many random words there, all drawn anew for each query."),
        r"[Tt]ransfer": ("Transfer", "edits that were found on one ranker, shown to another one."),
    }

    def verdict_of(self, run: Run) -> Verdict | None:
        if not run.metrics:
            return None
        attacks, budget = attacks_of(run.metrics), run.summary.get(BUDGET, 1)
        model = attacks[0][0]
        methods = {method: _reached(run, of, method, budget) for of, method in attacks if of == model}
        if not methods[BASELINE].n:
            return None
        # A method that ended without scores everywhere has no figure.
        contenders = [method for method, success in methods.items() if method not in CONTROLS and success.n]
        spent = {method: run.metrics.get(f"{MEDIAN_QUERIES}.{model}.{method}", NOTHING).value for method in methods}
        best = max(contenders, key=lambda method: (methods[method].value, -spent[method]), default=BASELINE)
        sentence = f"{best} reaches the goal on {model} in {number(SHARE, methods[best].value)} of the attacked contexts"
        few, control = points_in(run.metrics)[0], baseline_of(best)
        early = f"{best} {number(SHARE, _reached(run, model, best, few).value)}"
        if best != BASELINE and control in methods:
            ahead = run.metrics.get(f"{AHEAD}{budget}.{model}.{best}", NOTHING)
            sign = {1: ", certainly fewer", 0: "", -1: ", certainly more"}[certain_sign(ahead)]
            sentence += f"; {CONTROLS[control]} in {number(SHARE, methods[control].value)}{sign}"
            early += f", {CONTROLS[control]} {number(SHARE, _reached(run, model, control, few).value)}"
        marks = {f"{of}, {method}": _reached(run, of, method, budget) for of, method in attacks}
        return Verdict(
            sentence=f"{sentence}.",
            metric=_SUCCESS,
            number=methods[best],
            unit="dialogues",
            marks=first_marks({name: mark for name, mark in marks.items() if mark.n}),
            details=[
                f"The goal: {run.summary.get(GOAL, '')}; at most {budget:,} queries. With {few:,}: {early}.",
                *(
                    f"{number(SHARE, share.value)} of its successes fool {other} too."
                    for other in dict.fromkeys(of for of, _ in attacks)
                    if (share := run.metrics.get(f"{TRANSFER}.{model}.{other}.{best}", NOTHING)).n
                ),
            ],
        )

    def shown(self, run: Run) -> Mapping[str, Estimate]:
        budget = run.summary.get(BUDGET, 1)
        return {name: share for name, share in run.metrics.items() if name.startswith(f"{SUCCESS}{budget}.")}

    def legend(self, run: Run) -> Mapping[str, Metric]:
        return {name: describe_search(name) for name in self.shown(run)}

    def figures(self, run: Run) -> Iterable[Figure]:
        from parley.engine.core.page import plots

        if not run.metrics:
            return
        searched, budget = run.read(SearchedRows), run.summary.get(BUDGET, 1)
        steps = sorted({*points_of(budget), *(step for step in _STEPS if step < budget)})
        # Methods on all rankers come first, so that a method has one colour in all drawings.
        num_rankers = Counter(method for _, method in searched.attacks)
        for model in searched.models:
            methods = sorted((method for of, method in searched.attacks if of == model), key=lambda name: -num_rankers[name])
            curves = {method: searched.curve(model, method, steps) for method in methods}
            series = {method: points for method, points in curves.items() if points[0][1].n}
            goal = run.summary.get(GOAL, "")
            caption = f"{goal}; share of the attacked contexts; with 95 % intervals; a rule makes one query"
            title = f"Success against queries, {model}"
            if series:
                yield plots.budget(title, caption, "queries at most", series, "goal reached")
            else:
                yield Figure(title, caption)
        caption = (
            "of the successes on the ranker of the line the share that reach the goal on that of the column; on the "
            "diagonal success itself; n: dialogues"
        )
        for method in dict.fromkeys(method for _, method in searched.attacks) if has_transfers(run.metrics) else ():
            cells = [[_transfer(run, method, attacked, other) for other in searched.models] for attacked in searched.models]
            labels = "shown to", "found on"
            yield plots.heat(f"Transfer of {method}", caption, searched.models, searched.models, cells, labels)

    def items(self, run: Run) -> Iterable[tuple[str, Iterable[Item]]]:
        searched = run.read(SearchedRows)
        ranks = np.fromiter((stable_hash("report", row["item_key"]) for row in selected(searched.rows, "item_key")), np.uint64)
        for attack in searched.attacks if run.metrics else ():
            tried = searched.tried(*attack)
            contexts, lost = (numbers[tried.words > 0].astype(np.int64) for numbers in (tried.contexts, 1 - tried.won))
            shown = contexts[np.lexsort((ranks[contexts], lost))][:NUM_SEARCHED].tolist()
            pairs = ((row, search) for row in map(searched.rows.__getitem__, shown) for search in row["searches"])
            items = [search_item(row, search) for row, search in pairs if (search["model"], search["method"]) == attack]
            yield f"{attack[1]} on {attack[0]}", _with_example(items)


def _reached(run: Run, model: str, method: str, queries: int) -> Estimate:
    return run.metrics.get(f"{SUCCESS}{queries}.{model}.{method}", NOTHING)


def _transfer(run: Run, method: str, attacked: str, other: str) -> tuple[float, str] | None:
    """Return a cell of the heat table: the share of successes on a ranker that reach the goal on another one."""
    success = _reached(run, other, method, run.summary.get(BUDGET, 1))
    share = success if attacked == other else run.metrics.get(f"{TRANSFER}.{attacked}.{other}.{method}", NOTHING)
    return (share.value, f"{100 * share.value:.0f} %\nn {share.n:,}") if share.n else None


def search_item(row: Row, search: Row) -> Item:
    """Return an attacked context.

    Args:
        row: of the context.
        search: the result of a method, one of its `searches`.
    """
    edited, queries = search["place"], search["queries"]
    (scores,) = (entry["scores"] for entry in row["before"] if entry["model"] == search["model"])
    after = np.where(np.arange(len(scores)) == edited, search["score"], scores).tolist()
    remarks = [f"{queries:,} {'query' if queries == 1 else 'queries'}", *[", ".join(search["moves"])] * bool(search["moves"])]
    ranks = {search["model"]: (expected_ranks(scores), expected_ranks(after))}
    fooled = search["status"] == "success"
    return item_of(AttackedContext(row, {edited: search["text"]}, ranks, edited, fooled, search["num_changed"], remarks))


class HardenedRankers(Hardenings):
    """The chapter of campaigns."""

    name, title = "hardened-rankers", "Hardened rankers"
    job, unhelped = MINMAX_RANKING, MINMAX_RANKING.unhelped
    words = ATTACKS
    curves = (
        CurveSource(
            "round",
            "what adversaries reach",
            "share of the attacked contexts",
            {
                "fresh policy": "exploitability",
                "search": "search_success",
                "last policy, before": "policy_before",
                "after": "policy_after",
            },
        ),
        CurveSource(
            "round", "right replies first", "share of the contexts", {"as they are": "clean", "under attack": "under_attack"}
        ),
    )
    stages: ClassVar = {
        MINMAX_RANKING.name: Stages(
            {
                f"{START}-attack": "attacks on the start",
                f"{RESULT}-attack": "attacks on the result",
                f"{CONTROL}-attack": "attacks on the control",
            },
            others="hidden",
        )
    }
    terms: ClassVar = {
        r"\bpolic(y|ies)\b": ("Policy", "a network that chooses which word of a reply becomes which word of the context."),
        r"\bcontrol\b": ("Control", "the same ranker, trained as long on replies as they are."),
    }

    def outcome(self, run: Run) -> Verdict:
        """Answer with the right replies that stay first under attack: result, start and control."""
        metrics = run.metrics
        names = {column: f"{HELD}{ending}" for column, ending in HARDENED.endings.items()}
        held = {column: metrics[name] for column, name in names.items() if name in metrics}
        gains = {"before the hardening": GAIN, "in the control, trained as long on replies as they are": GAIN_BEYOND_CONTROL}
        control = f", in the control {number(SHARE, held['control'].value)}" if "control" in held else ""
        return Verdict(
            sentence=f"Under attack the right reply stays first in {number(SHARE, held['after'].value)} of the contexts, "
            f"before the hardening in {number(SHARE, held['before'].value)}{control}.",
            metric=_HELD,
            number=held["after"],
            unit="dialogues",
            marks=held,
            details=[comparison(metrics[gain], other) for other, gain in gains.items() if gain in metrics],
        )


class HardenedEncoders(Chapter):
    """The chapter of hardened encoders of Hugging Face."""

    name, title, unit = "hardened-encoders", "Hardened encoders", "contexts"
    jobs = (TRAIN_HARDENED_RANKER.name,)
    in_tables, open_tables = True, True
    curves = tuple(
        CurveSource(kind, what, "nats", {"training": "train_loss", "validation": "validation_loss"})
        for kind, what in (("epoch", "loss"), (f"{CONTROL} epoch", "loss of the control"))
    )
    stages: ClassVar = {
        TRAIN_HARDENED_RANKER.name: Stages(
            {RANKING: "groups of candidates", POOL: "all right replies", ATTACK: "a fresh search"}, others="hidden"
        )
    }
    terms: ClassVar = {
        r"\bcontrol\b": ("Control", "the same encoder, trained as long on contexts as they are."),
        r"\brandom words\b": ("Random words", "as many words of the same questions replaced at random."),
    }

    def shows(self, run: Run) -> bool:
        """Return True for a finished run, whose figures are those of its stages put side by side."""
        return bool(run.metrics)

    def verdict_of(self, run: Run) -> Verdict | None:
        if not run.metrics:
            return None
        names = ("", "before", "control")
        searched, clean = ({name: run.metrics[metric_name(of, name)] for name in names} for of in (SEARCHED, CLEAN))
        held, whole = ({name: number(SHARE, share.value) for name, share in shares.items()} for shares in (searched, clean))
        gains = {"before the hardening": "gain", "in the control, trained as long on contexts as they are": "beyond"}
        return Verdict(
            sentence=f"Under a fresh search the right reply stays first in {held['']} of the contexts, "
            f"before {held['before']}, control {held['control']}.",
            metric=_HELD,
            number=searched[""],
            unit="dialogues",
            marks={name or "after": share for name, share in searched.items()},
            details=[
                *(comparison(run.metrics[metric_name(SEARCHED, ending)], other) for other, ending in gains.items()),
                f"Without an attack: {whole['']}, before {whole['before']}, control {whole['control']}.",
            ],
        )
