"""The page's dialogues: their selection and their text, and the tactics of attackers.

Speakers, searches and attackers may write anything, so hidden characters are made visible before the page escapes the text.
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
from parley.engine.negotiation.metrics.dialogues import TACTIC_METRICS, TacticResults, tactics_table
from parley.engine.negotiation.page.populations import PLAIN, Match, domain_of_row
from parley.engine.negotiation.verbs.tactic import ATTACK_TACTIC, played_tactics
from parley.envs.core.seeds import stable_hash
from parley.envs.core.visible import visible
from parley.envs.negotiation.domain import ILLEGAL, SELECTION

_MAX_CHARACTERS = 600
"""Largest number of characters of a tactic on the page."""


@dataclass(frozen=True)
class TacticRun:
    """One run of an attack by tactics.

    Args:
        name: a short heading, empty on the run's own page.
        metrics: metrics of the run, by "ARM.METRIC".
        played: its dialogues and tactics.
        source: the run that refined its tactics against another target; empty if this run did.
    """

    name: str
    metrics: Mapping[str, Estimate]
    played: TacticResults
    source: str = ""

    def heading(self, what: str) -> str:
        """Return the title of an item of this run on the page."""
        return f"{self.name}: {what}" if self.name else what[:1].upper() + what[1:]

    @property
    def tables(self) -> list[tuple[str, EstimateTable]]:
        """The table of the attackers; none before the run is finished."""
        return [(self.heading("tactics beside their controls"), tactics_table(self.metrics))] if self.metrics else []

    @property
    def matches(self) -> list[Match]:
        """The held-out dialogues of each attacker's best tactic, and those without one, as matches."""
        matches = []
        legend: Mapping[str, Metric] = TACTIC_METRICS
        for arm in self.played.chosen:
            metrics = {name: estimate for name in legend if (estimate := self.metrics.get(f"{arm}.{name}")) is not None}
            rows = self.played.held_out(arm)
            job = PLAIN if arm == NONE else ATTACK_TACTIC.name
            if metrics or rows:
                matches.append(Match(name=self.heading(ARMS[arm]), job=job, metrics=metrics, legend=legend, rows=rows))
        return matches

    @property
    def lists(self) -> dict[str, list[tuple[str, str]]]:
        """The texts of each attacker, the chosen one first; none for a run with the tactics of another on the same page."""
        lists: dict[str, list[tuple[str, str]]] = {}
        if self.source and self.name:
            return lists
        for arm, title in ATTACKERS.items():
            best = self.played.chosen.get(arm)
            written = [tactic for tactic in self.played.written if tactic.arm == arm]
            written.sort(key=lambda tactic: (not tactic.number or tactic.number != best, tactic.round, tactic.stream))
            pairs = []
            for tactic in written:
                text = visible(tactic.text)
                printed = text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}\N{HORIZONTAL ELLIPSIS}"
                estimate = with_interval(self.played.gain(tactic.number))
                gain = f"gain {estimate}" if tactic.number else f"no tactic: {tactic.problem}"
                chosen = "chosen, " if tactic.number and tactic.number == best else ""
                pairs.append((f"{chosen}round {tactic.round}, stream {tactic.stream}: {gain}", printed or "(nothing)"))
            if pairs:
                lists[self.heading(f"tactics, {title}")] = pairs
        return lists

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
        """Return the verdict on refining, against no tactic and weaker attackers; empty for tactics of a source."""
        over = {arm: self.metrics.get(f"{REFINED}.over_{arm}", NOTHING) for arm in ARMS if arm != REFINED}
        if not over[NONE].n or self.source:
            return ""
        if not any(tactic.number for tactic in self.played.written):
            return "The attacker wrote no tactic that could be tried."
        certainty = {1: "certainly more", 0: "no certain difference", -1: "certainly less"}
        parts = [
            f"{number(POINTS, estimate.value)} points more than {what} ({certainty[certain_sign(estimate)]})"
            for arm, what in ((NONE, "no tactic"), *((arm, f"one {title}") for arm, title in _CONTROLS.items()))
            if (estimate := over[arm]).n
        ]
        who = f"{self.name[:1].upper()}{self.name[1:]}: the" if self.name else "The"
        return f"{who} tactic refined from transcripts gains {', '.join(parts)}.{caveat(over[NONE], unit='dialogues')}"


_CONTROLS = {"gains": "of an attacker that is told gains alone", "blind": "drawn blind"}


def tactic_runs(runs: Sequence[Run]) -> list[TacticRun]:
    """Return the attacks by tactics among some runs, finished or not."""
    return [
        TacticRun(run.heading if run.name else "", run.metrics, played, run.config.get("source", ""))
        for run in runs
        if run.shown and run.job == ATTACK_TACTIC.name and (played := played_tactics(run.folder)).rows
    ]


SIDES = ("adversary", "target")
BEST_AND_WORST = 20
"""Dialogues of a match in the viewer, of each kind: the adversary's best, its worst, and random others."""
_PLUGGED_IN = "transfer"


@dataclass(frozen=True)
class MarkedWords:
    """A part of an utterance.

    Args:
        text: its text; one word for a replaced part of an attack sentence.
        replaced: True if a search replaced it.
        before: the word before the replacement; empty without one, or if it is not known.
    """

    text: str
    replaced: bool = False
    before: str = ""


@dataclass(frozen=True)
class MarkedTurn:
    """One utterance.

    Args:
        side: the speaker.
        words: the utterance, in parts that a blank separates.
        ends: True for the `<selection>` that ended the talk, given in words.
        attempt: the attack and its result in a few words; empty for other utterances.
        instead_of: the speaker's own sentence, for an attack sentence of another length.
        defence: the act of a defence of the target, in a few words.
    """

    side: str
    words: tuple[MarkedWords, ...]
    ends: bool
    attempt: str = ""
    instead_of: str = ""
    defence: str = ""


@dataclass(frozen=True)
class ItemType:
    """One item type: its count, its value to each side, and the number that each side took (None: no allocation)."""

    name: str
    count: int
    values: tuple[int, int]
    taken: tuple[int | None, int | None]


@dataclass(frozen=True)
class Dialogue:
    """One dialogue of the viewer.

    Args:
        key: the item's key in the run.
        seed: the seed that replays it.
        points: points of the adversary and of the target.
        forced: their points under the protocol that forces the target to end; None for a dialogue without an attack.
        outcome: a clause on its end.
        agreed: True if there was a deal.
        notes: short remarks, such as "Pareto optimal".
        items: the scenario and the allocation.
        turns: the utterances.
    """

    key: str
    seed: int
    points: tuple[int, int]
    forced: tuple[int, int] | None
    outcome: str
    agreed: bool
    notes: tuple[str, ...]
    items: tuple[ItemType, ...]
    turns: tuple[MarkedTurn, ...]


def extremes(rows: Sequence[Row], limit: int = BEST_AND_WORST) -> tuple[list[Row], list[Row]]:
    """Return the best and the worst dialogues for the adversary.

    They are ordered by the adversary's lead, then by its points, by attack sentences and by key, so that a run always shows
    the same dialogues.

    Args:
        rows: finished dialogues.
        limit: largest number of each kind; no dialogue is in both.

    Returns:
        The best, best first, and the worst, worst first.
    """
    order = sorted(rows, key=lambda row: (_lead(row), -int(row["points_adversary"]), *_rank(row)))
    best = order[: min(limit, (len(order) + 1) // 2)]
    left = order[len(best) :]
    worst = sorted(left, key=lambda row: (-_lead(row), int(row["points_adversary"]), *_rank(row)))
    return best, worst[: min(limit, len(order) // 2)]


def dialogue_items(match: Match) -> list[Item]:
    """Return the dialogues of the viewer: the best first, the worst second, then the others of `BEST_AND_WORST`.

    Args:
        match: a match with at least one finished dialogue.
    """
    best, worst = extremes(match.done)
    taken = {str(row["item_key"]) for row in (*best, *worst)}
    left = [row for row in match.done if str(row["item_key"]) not in taken]
    left.sort(key=lambda row: stable_hash("report", str(row["item_key"])))
    chosen = [*best[:1], *worst[:1], *best[1:], *worst[1:], *left[:BEST_AND_WORST]]
    return [_item(match.name, row) for row in chosen]


def _item(group: str, row: Row) -> Item:
    dialogue = read_dialogue(row)
    turn = next((turn for turn in dialogue.turns if turn.attempt), dialogue.turns[0] if dialogue.turns else None)
    words = " ".join(part.text for part in turn.words) if turn else ""
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
    """Return a finished dialogue of a run for the viewer."""
    attempts = {attempt["turn"]: attempt for attempt in row.get("attempts", ())}
    defence = {
        **dict.fromkeys(row.get("stopped") or (), "not heard: the filter stopped it"),
        **dict.fromkeys(row.get("refused") or (), "refused to end below this demand"),
    }
    turns = tuple(
        replace(
            _turn(SIDES[turn["side"]], str(turn["words"]), bool(row["forced"]), attempts.get(index)),
            defence=defence.get(index, ""),
        )
        for index, turn in enumerate(row["turns"])
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


def _turn(side: str, words: str, forced: bool, attempt: Attempt | None) -> MarkedTurn:
    if words.strip() == SELECTION:
        return MarkedTurn(side, (MarkedWords("a limit ends the talk" if forced else f"the {side} ends the talk"),), ends=True)
    if attempt is None:
        return MarkedTurn(side, (MarkedWords(visible(words) or "(says nothing)"),), ends=False)
    spoken, base = (words or "(says nothing)").split(" "), str(attempt["base"]).split(" ")
    # Only in a sentence of equal length does each word replace one word.
    aligned = len(spoken) == len(base)
    marked = set(attempt["replaced"]) if aligned else set()
    return MarkedTurn(
        side,
        tuple(
            MarkedWords(visible(word), index in marked, visible(base[index]) if index in marked else "")
            for index, word in enumerate(spoken)
        ),
        ends=False,
        attempt=_story(attempt),
        instead_of="" if aligned else visible(str(attempt["base"])),
    )


def _story(attempt: Attempt) -> str:
    """Return the attack and its result, such as "reactive, 2 words replaced, target ends with 63 %: it did"."""
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
