"""Chapters of bots that look for their common friend: evaluations, and campaigns that harden bots against liars.

The viewer shows chats: both tables, and every utterance as said beside the utterance as heard, changed words marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import ClassVar

from markupsafe import Markup

from parley.engine.core.page.content import Chapter, CurveSource, Figure, Item, Run, Stages, Verdict
from parley.engine.core.page.markup import badges, joined, line, marked, sides
from parley.engine.core.page.page import SHARE, certain_sign, number
from parley.engine.core.page.trainings import Hardenings, certainly
from parley.engine.core.stats.known import EXPLOITABILITY
from parley.engine.core.stats.rows import selected
from parley.engine.core.stats.statistics import NOTHING, Row
from parley.engine.core.tables.table import EstimateTable
from parley.engine.mutual_friends.metrics.chats import BELIEVED, CHANGE, MODEL, NORMAL, by_condition, completed_by, of
from parley.engine.mutual_friends.metrics.chats import COMPLETION as CHAT_COMPLETION
from parley.engine.mutual_friends.metrics.lying import (
    COMPLETION,
    ENDINGS,
    GAINS,
    HARM,
    HONEST,
    LIARS,
    LYING,
    ON_RANDOM_LIES,
    RANDOM,
    WITHOUT_LIES,
)
from parley.engine.mutual_friends.metrics.table import overview
from parley.engine.mutual_friends.verbs.config import BLIND, SELECTORS, Condition, tells_lies
from parley.engine.mutual_friends.verbs.evaluate import ATTRIBUTES, CONDITIONS, EVALUATE_MUTUAL_FRIENDS, PAIRS
from parley.engine.mutual_friends.verbs.minmax import MINMAX_FRIENDS
from parley.engine.perturb.strategies.texts import pieces, spans_of_words
from parley.envs.core.seeds import stable_hash

OVERVIEW = "At a glance"
"""Heading of the table of the strategies' effects."""
NUM_SHOWN, _FEW_SHOWN = 12, 3
"""Chats of a condition in the viewer, and of a control."""
_MOST_POINTS = 24
_STYLES = ("adversary", "target")
"""Colours of side 0 and of side 1."""
_COMMON_FRIEND = SHARE._replace(title="Common friend found", definition="share of chats in which both sides select it")


class MutualFriendsChapter(Chapter):
    """The chapter of evaluations."""

    name, title, unit = "collaboration", "Looking for the common friend", "chats"
    in_tables = True
    jobs = (EVALUATE_MUTUAL_FRIENDS.name,)
    terms: ClassVar = {
        r"\bcompletion\b": ("Completion", "both sides have selected the friend that stands in both tables."),
        r"\bturns\b": ("Turns", "events of a chat: utterances and selections."),
        r"random-inputs": ("random-inputs", "every word of the partner is heard as a random one."),
        r"kept-entities": ("kept-entities", "the same, but names of friends, schools and the like are heard as they are."),
        r"confusing-entity": (
            "confusing-entity",
            "names are heard as others of their category that the listener has, but not the common friend.",
        ),
        r"one-sided": ("one-sided", "the words of side 0 alone are changed."),
        r"strange-entities": ("strange-entities", "random words, and names that stand in neither table."),
        r"unheard": ("unheard", "of the partner nothing is noticed but its selections."),
        r"selectors": ("Selectors", "bots that never speak and select at random; blind ones do not look at the other's."),
    }

    def verdict_of(self, run: Run) -> Verdict | None:
        conditions, pairs = _conditions(run), run.summary.get(PAIRS, {})
        if (MODEL, NORMAL) not in conditions:
            return None
        completion = {condition: run.metrics[of(CHAT_COMPLETION, *condition)] for condition in conditions}
        normal = completion[Condition(MODEL, NORMAL)]
        sentence = f"{pairs[MODEL]} finds the common friend in {number(SHARE, normal.value)} of the chats"
        changes = {
            condition: run.metrics[of(CHANGE, *condition)]
            for condition in conditions
            if condition.at_a_glance and condition.strategy != NORMAL
        }
        lowered = [condition for condition, change in changes.items() if certain_sign(change) < 0]
        warnings = []
        if lowered:
            worst = min(lowered, key=lambda condition: changes[condition].value)
            sentence += f"; under {_title(run, worst)} in {number(SHARE, completion[worst].value)}"
            if completion[worst].flagged and not normal.flagged:
                warnings.append(f"Few chats ({completion[worst].n:,}) under {_title(run, worst)}.")
        elif changes:
            sentence += "; no strategy lowers that for certain"
        marked_ones = [condition for condition in conditions if condition.pair == MODEL or condition.strategy == NORMAL]
        return Verdict(
            sentence=f"{sentence}.",
            metric=_COMMON_FRIEND,
            number=normal,
            unit="chats",
            marks={_title(run, condition): completion[condition] for condition in marked_ones},
            warnings=warnings,
            details=[
                f"{pairs[condition.pair]}, who never speak, find it in {number(SHARE, completion[condition].value)}."
                for condition in conditions
                if condition.pair in (SELECTORS, BLIND)
            ],
        )

    def tables(self, run: Run) -> Mapping[str, EstimateTable]:
        glance = [condition for condition in _conditions(run) if condition.at_a_glance]
        return {OVERVIEW: overview(run.metrics, glance), **run.tables} if run.metrics else {}

    def figures(self, run: Run) -> Iterable[Figure]:
        """Draw completion over the events of a chat, by strategy and by pair, and the lies believed by attribute."""
        from parley.engine.core.page import plots

        chats, pairs = _chats(run), run.summary.get(PAIRS, {})
        if not chats or not run.metrics:
            return
        drawn = {
            "Completion by strategy": {at.strategy: at for at in chats if at.pair == MODEL and not at.one_sided},
            "Completion by who plays": {pairs[at.pair]: at for at in chats if at.strategy == NORMAL},
        }
        most = max(len(row["events"]) for rows in chats.values() for row in selected(rows, "events"))
        budgets = range(0, most + 1, -(-most // _MOST_POINTS))
        for title, chosen in drawn.items():
            if len(chosen) > 1:
                series = {name: completed_by(chats[condition], budgets) for name, condition in chosen.items()}
                caption = "share of chats in agreement within so many events; with 95 % intervals"
                yield plots.budget(title, caption, "events so far", series, "share of chats in agreement")
        believed = {
            condition.strategy: {
                name: share
                for kind, name in run.summary.get(ATTRIBUTES, {}).items()
                if (share := run.metrics.get(of(BELIEVED, *condition, kind), NOTHING)).n
            }
            for condition in chats
            if condition.pair == MODEL and tells_lies(condition.hearing)
        }
        if names := sorted({name for by_name in believed.values() for name in by_name}):
            title, unit = "Lies believed by attribute", "% of replaced entities"
            caption = "the listener next names the new entity or selects an item that has it; 95 % intervals"
            yield plots.dots(title, caption, unit, names, {name: shares for name, shares in believed.items() if shares}, 100.0)

    def items(self, run: Run) -> Iterable[tuple[str, Iterator[Item]]]:
        """Return chats by condition, those without agreement first, then in a fixed shuffle."""
        for condition, rows in _chats(run).items() if run.metrics else ():
            num = NUM_SHOWN if condition.pair == MODEL else _FEW_SHOWN
            shown = nsmallest(num, rows, lambda row: (bool(row["agreed"]), stable_hash("report", row["scenario"])))
            link = "an example" * condition.at_a_glance
            yield _title(run, condition), (_item(row, link * (not i)) for i, row in enumerate(shown))


def _conditions(run: Run) -> list[Condition]:
    return [Condition(*names) for names in run.summary.get(CONDITIONS, [])]


def _chats(run: Run) -> dict[Condition, Sequence[Row]]:
    return {Condition(*names): rows for names, rows in by_condition(run.rows).items() if rows}


def _title(run: Run, condition: Condition) -> str:
    named = [] if condition.pair == MODEL else [run.summary[PAIRS][condition.pair]]
    return ", ".join([*named, condition.strategy])


def _item(row: Row, link: str = "") -> Item:
    num = len(row["events"])
    outcome = f"agreed after {num} events" if row["agreed"] else f"no agreement in {num} events"
    mentions = (mention for event in row["events"] for mention in event["mentions"])
    lies = [mention for mention in mentions if mention["heard"] not in (None, mention["said"])]
    believed = sum(bool(lie["believed"]) for lie in lies)
    remarks = [f"selections: {sum(row['num_selections'])}"]
    remarks += [f"entities replaced: {len(lies)}, believed: {believed}"] if lies else []
    speakers = [
        line('<span class="{}">side {}, {}</span>', style, side, name)
        for side, (style, name) in enumerate(zip(_STYLES, row["agents"], strict=True))
    ]
    return Item(
        kind="chat",
        key=str(row["item_key"]),
        summary=line("{}: <q>{}</q>", outcome, next((event["said"] for event in row["events"] if event["said"]), "")),
        body=joined(
            [
                badges([(outcome, bool(row["agreed"])), *((remark, None) for remark in remarks)]),
                line('<div class="figures">{}</div>', joined(map(_friends, (row, row), (0, 1), speakers))),
                sides(("as said", "as heard"), (_event(row, event, speakers) for event in row["events"])),
                line("<footer>seed <code>{}</code></footer>", row["seed"]),
            ]
        ),
        tags=["agreed" if row["agreed"] else "no agreement", *["a lie is believed"] * bool(believed)],
        values={"events": num, "selections": sum(row["num_selections"]), "entities replaced": len(lies)},
        link=link,
    )


def _friends(row: Row, side: int, speaker: Markup) -> Markup:
    """Return the friends of a side as a table, the common one marked."""
    heads = joined(line('<th scope="col">{}</th>', name) for name in row["attributes"])
    lines = []
    for index, friend in enumerate(row["tables"][side]):
        common = index == row["shared"][side]
        note = Markup(' <span class="note good">common</span>') if common else ""
        *cells, last = [line('<td{} dir="auto">{}', Markup(' class="took"') if common else "", value) for value in friend]
        lines.append(line("<tr>{}</tr>", joined(line("{}</td>", cell) for cell in (*cells, line("{}{}", last, note)))))
    caption = line("<caption>friends of {}</caption>", speaker)
    return line('<table class="items">{}<thead><tr>{}</tr></thead><tbody>{}</tbody></table>', caption, heads, joined(lines))


def _event(row: Row, event: Row, speakers: Sequence[Markup]) -> tuple[Markup, ...]:
    """Return a selection, or an utterance as said and as heard."""
    side = int(event["side"])
    if (place := event["selected"]) is not None:
        is_common = place == row["shared"][side]
        note = line('<span class="note {}">{}</span>', *(("good", "the common friend") if is_common else ("bad", "another")))
        return speakers[side], line("selects {} {}", ", ".join(row["tables"][side][place]), note)
    spans = spans_of_words(str(event["said"]), str(event["heard"]))
    heard = marked(pieces(spans, "after"))
    if event["said"] == event["heard"]:
        heard = Markup('<span class="muted">the same</span>')
    return speakers[side], marked(pieces(spans, "before")), heard


class HardenedFriends(Hardenings):
    """The chapter of campaigns."""

    name, title = "hardened-friends", "Hardened against liars"
    job, unhelped = MINMAX_FRIENDS, MINMAX_FRIENDS.unhelped
    words = LIARS
    curves = (
        CurveSource(
            "round",
            "harm",
            "mean over chats",
            {"fresh liar": HARM, "random lies": f"{HARM}{RANDOM}", "no lies": f"{HARM}{HONEST}"},
        ),
        CurveSource(
            "round", "common friend found", "share of chats", {"fresh liar": COMPLETION, "no lies": f"{COMPLETION}{HONEST}"}
        ),
    )
    stages: ClassVar = {MINMAX_FRIENDS.name: Stages({}, others="hidden")}
    terms: ClassVar = {
        r"\bliars?\b": ("Liar", "a network that chooses when a side claims a friend that nobody of its table is, and which."),
        r"\bharm\b": ("Harm", "1 for a chat without agreement, else less, the sooner it agrees."),
    }

    def outcome(self, run: Run) -> Verdict:
        """Return the harm of the best known liar to result and start; random lies are a detail."""
        metrics = run.metrics
        # A campaign of an older version was measured by fresh liars alone.
        figure, liar = (EXPLOITABILITY, "best known") if EXPLOITABILITY in metrics else (HARM, "fresh")
        marks = {column: metrics[name] for column, ending in ENDINGS.items() if (name := f"{figure}{ending}") in metrics}
        names = {"before": "before it", WITHOUT_LIES: "after as much training without lies", ON_RANDOM_LIES: "on random lies"}
        harms = {
            column: f"{number(LYING[HARM], marks[column].value)} {names[column]}{certainly(metrics[gain], 'more', 'less')}"
            for column, gain in GAINS.items()
            if gain in metrics
        }
        others = "".join(f", {harms.pop(column)}" for column in ("before", WITHOUT_LIES) if column in harms)
        return Verdict(
            sentence=f"The {liar} liar's harm is {number(LYING[HARM], marks['after'].value)} after the hardening{others}.",
            metric=LYING[HARM]._replace(title=f"Harm of the {liar} liar"),
            number=marks["after"],
            unit="chats",
            marks=marks,
            details=[f"It is {harm}." for harm in harms.values()],
        )
