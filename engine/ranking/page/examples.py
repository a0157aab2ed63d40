"""Attacked contexts for people to read: every candidate with its changed words marked, and its rank before and after.

Contexts and replies are hostile text: they are made visible before they are shown, and the page escapes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parley.engine.core.page.content import Item, Piece
from parley.engine.core.page.markup import fill, line
from parley.engine.core.stats.rows import Row
from parley.engine.core.stats.tables import figure
from parley.engine.perturb.strategies.changes import ChangeKind, spans
from parley.engine.ranking.metrics.movement import expected_ranks
from parley.engine.ranking.metrics.ranking import CLEAN
from parley.engine.ranking.page.sections import ShownRanking
from parley.envs.core.seeds import stable_hash
from parley.envs.core.visible import visible

NUM_SHOWN = 20
"""Contexts of a rule that the viewer holds."""
_MOST_WORDS = 8
"""Words of a reply whose importance is shown."""
_NOTHING_SAID = "(says nothing)"


@dataclass(frozen=True)
class ShownCandidate:
    """A reply as a rule left it, with its ranks by every named ranker: such as "1" or "1 to 4"."""

    pieces: list[Piece]
    is_right: bool
    is_changed: bool
    ranks: list[str]


@dataclass(frozen=True)
class AttackedContext:
    """A context under one rule, candidates by their rank under it.

    Args:
        key: of the context.
        context: its turns.
        rankers: those whose ranks are shown.
        candidates: by the first ranker's rank after the attack.
        before: rank by the first ranker of the reply that the attack is about: the right one, or what is left of it.
        after: under the rule.
        num_changed: words in all.
        reply: the reply that it is about, as it was.
        fooled: whether that went wrong which was right, or what is left of the right reply is still first.
        remarks: what else is told.
        importance: of words of that reply to the first ranker, the most important ones first, each with its figure as text;
            empty where nobody asked.
    """

    key: str
    context: list[str]
    rankers: list[str]
    candidates: list[ShownCandidate]
    before: float
    after: float
    num_changed: int
    reply: str
    fooled: bool
    remarks: Sequence[str] = ()
    importance: Sequence[tuple[str, float, str]] = ()


def example_items(evaluation: ShownRanking, rule: str) -> list[Item]:
    """Contexts that a rule changed, of those that every named ranker scored: first where the first one was fooled."""
    found = [
        example
        for number in range(len(evaluation.ranked.rows))
        if evaluation.ranked.changed[number, rule] and (example := read_example(evaluation, number, rule)) is not None
    ]
    found.sort(key=lambda each: (not each.fooled, stable_hash("report", each.key)))
    return [context_item(f"{evaluation.name}, {visible(rule)}", each) for each in found[:NUM_SHOWN]]


def read_example(evaluation: ShownRanking, number: int, rule: str) -> AttackedContext | None:
    """A context under one rule, ready to be shown; None where it has no right reply, or a ranker gave no scores.

    Args:
        evaluation: the run.
        number: place of the context in its rows.
        rule: that changed it.
    """
    row = evaluation.ranked.rows[number]
    told = [(_scores(row, ranker, CLEAN), _scores(row, ranker, rule)) for ranker in evaluation.rankers]
    if not any(row["labels"]) or any(None in each for each in told):
        return None
    ranks = [(expected_ranks(before or ()), expected_ranks(after or ())) for before, after in told]
    (before, after), changed = ranks[0], _changed(row, rule)
    right = [place for place, label in enumerate(row["labels"]) if label]
    keeps_labels = evaluation.ranked.rules[rule]
    # Of several right replies the one that stands first; where labels change, the one that was changed.
    relevant = [place for place in right if keeps_labels or place in changed] or right
    about = min(relevant, key=lambda place: before[place])
    order = sorted(range(len(after)), key=lambda place: (after[place], place))
    return AttackedContext(
        key=visible(str(row["item_key"])),
        context=[said_by(turn) for turn in row["context"]],
        rankers=[visible(ranker) for ranker in evaluation.rankers],
        candidates=[
            ShownCandidate(
                marked(row["candidates"][place], changed.get(place, row["candidates"][place])),
                place in right,
                place in changed,
                [moved(early[place], late[place]) for early, late in ranks],
            )
            for place in order
        ],
        before=float(before[about]),
        after=float(after[about]),
        num_changed=sum(evaluation.ranked.changed[number, rule].values()),
        reply=said_by(row["candidates"][about]),
        fooled=bool(before[about] == 1 and after[about] > 1) if keeps_labels else bool(after[about] == 1),
        importance=_importance(row, evaluation.rankers[0], about),
    )


def context_item(group: str, example: AttackedContext) -> Item:
    """An attacked context as the viewer has it."""
    ranks = moved(example.before, example.after)
    return Item(
        kind="context",
        key=example.key,
        group=group,
        summary=line("rank {}: <q>{}</q>", ranks, example.reply),
        tags=("fooled" if example.fooled else "not fooled",),
        values={"rank before": example.before, "rank after": example.after, "words changed": example.num_changed},
        body=fill("ranking/page/example.html", item=example, moved=ranks),
    )


def _scores(row: Row, ranker: str, rule: str) -> Sequence[float] | None:
    return next((entry["scores"] for entry in row["ranked"] if (entry["model"], entry["rule"]) == (ranker, rule)), None)


def _importance(row: Row, ranker: str, place: int) -> list[tuple[str, float, str]]:
    """Words of a reply by their importance to a ranker."""
    for each in row.get("readings") or ():
        if (each["model"], each["place"]) == (ranker, place):
            found = sorted(zip(each["words"], each["importance"], strict=True), key=lambda pair: -pair[1])
            return [(visible(word), value, figure(value)) for word, value in found[:_MOST_WORDS]]
    return []


def _changed(row: Row, rule: str) -> dict[int, str]:
    """What a rule left of the replies that it changed, by their places."""
    (attack,) = (attack for attack in row["attacks"] if attack["rule"] == rule)
    return {each["place"]: each["text"] for each in attack["changed"]}


def moved(before: float, after: float) -> str:
    """Ranks before and after, such as "1 \N{RIGHTWARDS ARROW} 4"; a tie has half ranks."""
    return f"{before:g}" if before == after else f"{before:g} \N{RIGHTWARDS ARROW} {after:g}"


def said_by(text: str) -> str:
    """A turn or a reply as it is shown."""
    return visible(text) or _NOTHING_SAID


def marked(before: str, after: str) -> list[Piece]:
    """A reply with the words that left and those that came."""
    pieces = []
    for span in spans(((tuple(before.split()),),), ((tuple(after.split()),),)):
        if span.kind is ChangeKind.SAME:
            pieces.append(Piece(visible(" ".join(span.before))))
        else:
            sides = (("before", span.before), ("after", span.after))
            pieces += [Piece(visible(" ".join(words)), side) for side, words in sides if words]
    return pieces
