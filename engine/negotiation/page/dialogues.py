"""The page's dialogues: their choice and their print, and the tactics of attackers.

Speakers, searches and attackers may write anything, so text is made visible before the page escapes and shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from parley.engine.core.page.content import Figure, Item, Run, fill, line
from parley.engine.core.page.page import POINTS, caveat, certain_sign, number
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric, Row
from parley.engine.core.tables.table import EstimateTable, with_interval
from parley.engine.negotiation.attacks.tactics import ARMS, ATTACKERS, NONE, REFINED
from parley.engine.negotiation.metrics.attack import Attempt
from parley.engine.negotiation.metrics.dialogues import TACTIC_METRICS, TacticsPlayed, tactics_table
from parley.engine.negotiation.page.populations import PLAIN, Match, domain_of_row
from parley.engine.negotiation.verbs.tactic import ATTACK_TACTIC, played_tactics
from parley.envs.core.seeds import stable_hash
from parley.envs.core.visible import visible
from parley.envs.negotiation.domain import ILLEGAL, SELECTION

_MOST_SHOWN = 600
"""Characters of a tactic that the page shows."""


@dataclass(frozen=True)
class ShownTactics:
    """One run of an attack by tactics.

    Args:
        name: a short heading, empty on the run's own page.
        metrics: of the run, by "ARM.METRIC".
        played: its dialogues and tactics.
        source: the run that its tactics are of, where they were refined against another target; empty where here.
    """

    name: str
    metrics: Mapping[str, Estimate]
    played: TacticsPlayed
    source: str = ""

    def heading(self, what: str) -> str:
        """Return the title of an item of this run on the page."""
        return f"{self.name}: {what}" if self.name else what[:1].upper() + what[1:]

    @property
    def tables(self) -> list[tuple[str, EstimateTable]]:
        """The attackers beside each other; none before the run is finished."""
        return [(self.heading("tactics beside their controls"), tactics_table(self.metrics))] if self.metrics else []

    @property
    def matches(self) -> list[Match]:
        """The held-out dialogues of each attacker's best tactic, and those without one, as matches."""
        found = []
        legend: Mapping[str, Metric] = TACTIC_METRICS
        for arm in self.played.chosen:
            own = {name: estimate for name in legend if (estimate := self.metrics.get(f"{arm}.{name}")) is not None}
            rows = self.played.held_out(arm)
            job = PLAIN if arm == NONE else ATTACK_TACTIC.name
            if own or rows:
                found.append(Match(name=self.heading(ARMS[arm]), job=job, metrics=own, legend=legend, rows=rows))
        return found

    @property
    def lists(self) -> dict[str, list[tuple[str, str]]]:
        """Everything that attackers wrote, attacker by attacker: what was chosen first; nothing of a source beside its own."""
        found: dict[str, list[tuple[str, str]]] = {}
        if self.source and self.name:
            return found
        for arm, title in ATTACKERS.items():
            best = self.played.chosen.get(arm)
            own = [each for each in self.played.written if each.arm == arm]
            own.sort(key=lambda each: (not each.number or each.number != best, each.round, each.stream))
            pairs = []
            for each in own:
                text = visible(each.text)
                shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}\N{HORIZONTAL ELLIPSIS}"
                gain = f"gain {with_interval(self.played.gain(each.number))}" if each.number else f"no tactic: {each.problem}"
                chosen = "chosen, " if each.number and each.number == best else ""
                pairs.append((f"{chosen}round {each.round}, stream {each.stream}: {gain}", shown or "(nothing)"))
            if pairs:
                found[self.heading(f"tactics, {title}")] = pairs
        return found

    @property
    def figures(self) -> list[Figure]:
        """Return the best tactic's gain by the dialogues played to find it."""
        from parley.engine.core.page import plots

        curves = {title: points for arm, title in ATTACKERS.items() if len(points := self.played.curve(arm)) > 1}
        if not curves:
            return []
        title = self.heading("gain by dialogues with the target")
        caption = (
            "advantage of each attacker's best tactic so far in the development dialogues, which chose it, so too high; at 0 "
            "without a tactic; bands are 95 % intervals; the table has the held-out advantage of the last"
        )
        label = "development dialogues played"
        return [Figure(title, caption, Markup(plots.budget_svg(title, label, curves, "points ahead, development")))]

    @property
    def sentence(self) -> str:
        """Return the verdict on refining: beside no tactic, and beside attackers that see less; not for a source's tactics."""
        over = {arm: self.metrics.get(f"{REFINED}.over_{arm}", NOTHING) for arm in ARMS if arm != REFINED}
        if not over[NONE].n or self.source:
            return ""
        if not any(each.number for each in self.played.written):
            return "The attacker wrote no tactic that could be tried."
        told = {1: "certainly more", 0: "no certain difference", -1: "certainly less"}
        parts = [
            f"{number(POINTS, each.value)} points more than {what} ({told[certain_sign(each)]})"
            for arm, what in ((NONE, "no tactic"), *((arm, f"one {title}") for arm, title in _OTHERS.items()))
            if (each := over[arm]).n
        ]
        who = f"{self.name[:1].upper()}{self.name[1:]}: the" if self.name else "The"
        return f"{who} tactic refined from transcripts gains {', '.join(parts)}.{caveat(over[NONE], unit='dialogues')}"


_OTHERS = {"gains": "of an attacker that is told gains alone", "blind": "drawn blind"}


def shown_tactics(runs: Sequence[Run]) -> list[ShownTactics]:
    """The attacks by tactics among some runs, finished or not."""
    return [
        ShownTactics(run.heading if run.name else "", run.metrics, played, run.config.get("source", ""))
        for run in runs
        if run.shown and run.job == ATTACK_TACTIC.name and (played := played_tactics(run.folder)).rows
    ]


SIDES = ("adversary", "target")
BEST_AND_WORST = 20
"""Dialogues of a match that the viewer holds of each kind: the adversary's best, its worst, and others drawn by chance."""
_PLUGGED_IN = "transfer"


@dataclass(frozen=True)
class Words:
    """A stretch of an utterance.

    Args:
        text: what was said; for a stretch of an attack sentence that was replaced, one word.
        replaced: whether a search put it there.
        before: the word that would have stood there; empty when nothing was replaced or it is not known.
    """

    text: str
    replaced: bool = False
    before: str = ""


@dataclass(frozen=True)
class ShownTurn:
    """One utterance.

    Args:
        side: who spoke.
        words: what was said, in stretches that a blank separates.
        ends: whether it is the `<selection>` that ended the talk, told in words.
        attempt: for an attack sentence, in a few words, which attack and how it went; empty for any other.
        instead_of: for an attack sentence that resembles it in no word, what the speaker would have said.
        defence: what a defence of the target did, in a few words.
    """

    side: str
    words: tuple[Words, ...]
    ends: bool
    attempt: str = ""
    instead_of: str = ""
    defence: str = ""


@dataclass(frozen=True)
class ItemType:
    """One item type: how many there are, its value to each side, and how many each side took (None: no allocation)."""

    name: str
    count: int
    values: tuple[int, int]
    taken: tuple[int | None, int | None]


@dataclass(frozen=True)
class Dialogue:
    """One dialogue as it is shown.

    Args:
        key: the item's key in the run.
        seed: what replays it.
        points: of the adversary and of the target.
        forced: their points under the protocol that forces the target to end; None for a dialogue without an attack.
        outcome: one clause that says how it ended.
        agreed: whether there was a deal.
        notes: short remarks, such as "Pareto optimal".
        items: the scenario and who took what.
        turns: what was said.
    """

    key: str
    seed: int
    points: tuple[int, int]
    forced: tuple[int, int] | None
    outcome: str
    agreed: bool
    notes: tuple[str, ...]
    items: tuple[ItemType, ...]
    turns: tuple[ShownTurn, ...]


def extremes(rows: Sequence[Row], limit: int = BEST_AND_WORST) -> tuple[list[Row], list[Row]]:
    """The best and the worst dialogues for the adversary.

    Ordered by the adversary's lead, then by its points; of equal ones those with an attack sentence come first, then it goes
    by key, so that the same run shows the same dialogues.

    Args:
        rows: finished dialogues.
        limit: how many to show of each kind at most; no dialogue is shown twice.

    Returns:
        The best, best first, and the worst, worst first.
    """
    order = sorted(rows, key=lambda row: (_lead(row), -int(row["points_adversary"]), *_rank(row)))
    best = order[: min(limit, (len(order) + 1) // 2)]
    left = order[len(best) :]
    worst = sorted(left, key=lambda row: (-_lead(row), int(row["points_adversary"]), *_rank(row)))
    return best, worst[: min(limit, len(order) // 2)]


def dialogue_items(match: Match) -> list[Item]:
    """The dialogues of a match that the viewer holds: the best first, the worst second, then the others of `BEST_AND_WORST`.

    Args:
        match: with at least one finished dialogue.
    """
    best, worst = extremes(match.done)
    taken = {str(row["item_key"]) for row in (*best, *worst)}
    others = [row for row in match.done if str(row["item_key"]) not in taken]
    others.sort(key=lambda row: stable_hash("report", str(row["item_key"])))
    chosen = [*best[:1], *worst[:1], *best[1:], *worst[1:], *others[:BEST_AND_WORST]]
    return [_item(match.name, row) for row in chosen]


def _item(group: str, row: Row) -> Item:
    dialogue = read_dialogue(row)
    said = next((turn for turn in dialogue.turns if turn.attempt), dialogue.turns[0] if dialogue.turns else None)
    words = " ".join(part.text for part in said.words) if said else ""
    adversary, target = dialogue.points
    return Item(
        kind="dialogue",
        key=dialogue.key,
        group=group,
        summary=line(
            '<b class="adversary">{}</b> : <b class="target">{}</b> {} <q>{}</q>', adversary, target, dialogue.outcome, words
        ),
        tags=("deal" if dialogue.agreed else "no deal", *dialogue.notes[:-1], *_tags(row)),
        values={"points ahead": adversary - target, "turns": int(row["num_turns"])},
        body=fill("negotiation/page/dialogue.html", item=dialogue),
    )


def read_dialogue(row: Row) -> Dialogue:
    """One finished dialogue of a run, ready to be shown."""
    attempts = {attempt["turn"]: attempt for attempt in row.get("attempts", ())}
    defence = {
        **dict.fromkeys(row.get("stopped") or (), "not heard: the filter stopped it"),
        **dict.fromkeys(row.get("refused") or (), "refused to end below this demand"),
    }
    turns = tuple(
        replace(
            _turn(SIDES[turn["side"]], str(turn["words"]), bool(row["forced"]), attempts.get(place)),
            defence=defence.get(place, ""),
        )
        for place, turn in enumerate(row["turns"])
    )
    notes = []
    if row["agreed"]:
        notes.append("Pareto optimal" if row["pareto"] else "not Pareto optimal")
    if row["forced"]:
        notes.append("ended by a limit")
    elif row["ended_by"] in (0, 1):
        notes.append(f"ended by the {SIDES[row['ended_by']]}")
    return Dialogue(
        key=visible(str(row["item_key"])),
        seed=int(row["seed"]),
        points=(int(row["points_adversary"]), int(row["points_target"])),
        forced=(row["forced_points_adversary"], row["forced_points_target"]) if "attempts" in row else None,
        outcome=_outcome(row),
        agreed=bool(row["agreed"]),
        notes=(*notes, f"{row['num_turns']} turns"),
        items=_items(row),
        turns=turns,
    )


def _tags(row: Row) -> list[str]:
    tags = {"attempts": "attacked", "stopped": "sentence stopped", "refused": "end refused"}
    return [tag for column, tag in tags.items() if row.get(column)]


def _lead(row: Row) -> int:
    return int(row["points_target"]) - int(row["points_adversary"])


def _rank(row: Row) -> tuple[bool, str]:
    return not row.get("attempts"), str(row["item_key"])


def _turn(side: str, words: str, forced: bool, attempt: Attempt | None) -> ShownTurn:
    if words.strip() == SELECTION:
        return ShownTurn(side, (Words("a limit ends the talk" if forced else f"the {side} ends the talk"),), ends=True)
    if attempt is None:
        return ShownTurn(side, (Words(visible(words) or "(says nothing)"),), ends=False)
    said, base = (words or "(says nothing)").split(" "), str(attempt["base"]).split(" ")
    # Only a sentence of the same length holds each word in the place of another one.
    aligned = len(said) == len(base)
    marked = set(attempt["replaced"]) if aligned else set()
    return ShownTurn(
        side,
        tuple(
            Words(visible(word), place in marked, visible(base[place]) if place in marked else "")
            for place, word in enumerate(said)
        ),
        ends=False,
        attempt=_story(attempt),
        instead_of="" if aligned else visible(str(attempt["base"])),
    )


def _story(attempt: Attempt) -> str:
    """Such as "reactive, 2 words replaced, target ends with 63 %: it did"."""
    num = len(attempt["replaced"])
    parts = [visible(str(attempt["kind"]))]
    if attempt["kind"] != _PLUGGED_IN:
        parts.append(f"{num} word{'' if num == 1 else 's'} replaced")
        parts += [] if attempt["accepted"] else ["goal not reached"]
    if attempt["end_probability"] is not None:
        parts.append(
            f"target ends with {100 * attempt['end_probability']:.0f} %: it {'did' if attempt['ended'] else 'did not'}"
        )
    return ", ".join(parts)


def _taken(row: Row, side: str) -> tuple[int, ...] | None:
    return domain_of_row(row).held(row["counts"], row[f"selection_{side}"])


def _items(row: Row) -> tuple[ItemType, ...]:
    taken = [_taken(row, side) for side in SIDES]
    return tuple(
        ItemType(
            name=name,
            count=int(row["counts"][i]),
            values=(int(row["values_adversary"][i]), int(row["values_target"][i])),
            taken=(taken[0][i] if taken[0] else None, taken[1][i] if taken[1] else None),
        )
        for i, name in enumerate(domain_of_row(row).items)
    )


def _outcome(row: Row) -> str:
    if row["agreed"]:
        return "deal"
    if illegal := [side for side in SIDES if row[f"selection_{side}"] == [ILLEGAL]]:
        return f"no deal: the {illegal[0]} chose out of range"
    refusals = [side for side in SIDES if _taken(row, side) is None]
    if len(refusals) == len(SIDES):
        return "no deal: both refused"
    if refusals:
        return f"no deal: the {refusals[0]} refused"
    return "no deal: the choices do not fit together"
