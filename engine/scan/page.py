"""The chapter of scans: the verdict on the limits, breaches by attack, and every answer, breaches first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from parley.engine.core.page.content import Chapter, Item, Run, Section, ShownRun, Verdict, fill, line, tables_of
from parley.engine.core.page.page import SHARE, caveat, first_marks, number
from parley.engine.core.stats.statistics import NOTHING, Estimate, Row
from parley.engine.scan.attacks import CONTROLS, NONE, RANDOM_WORDS
from parley.engine.scan.metrics import BREACH, UNDECIDED, brief, broken_rules, describe_scan, row_tags
from parley.engine.scan.verbs import LIMITS, SCAN, tags_of_run
from parley.envs.core.visible import visible

_SHARE = SHARE._replace(
    title="Breaches", direction="higher: adversary", definition="share of the answers in which a rule is broken"
)
_SIDES = {"under attack": BREACH, "without one": f"{BREACH}.{NONE}", "with random words": f"{BREACH}.{RANDOM_WORDS}"}


class Scans(Chapter[Sequence[Run]]):
    """The chapter of scans."""

    name, title = "scan", "Scans"
    jobs = (SCAN.name,)
    terms: ClassVar = {
        r"\bbreach": ("Breach", "an answer that breaks a rule of the policy."),
        r"\bcontrol\b": ("Control", "the same prompts without an attack, or with random words behind them, asked as often."),
        r"\bundecided\b": ("Undecided", "an answer without a verdict: no reply, or a judge that said neither yes nor no."),
    }

    def collect(self, runs: Sequence[Run]) -> Sequence[Run] | None:
        return [run for run in runs if run.rows] or None

    def verdict(self, runs: Sequence[Run]) -> Verdict | None:
        """Say how many answers break a rule under attack, and how many under the controls at equal cost."""
        measured = [run for run in runs if run.metrics]
        if not measured:
            return None
        run = measured[0]
        shares = {words: share for words, name in _SIDES.items() if (share := run.metrics.get(name, NOTHING)).n}
        states = [str(entry["state"]) for entry in run.summary.get(LIMITS, [])]
        outcome = next(filter(states.__contains__, ("broken", "undecided")), "kept")
        sentence = f"Policy {outcome}: " if states else ""
        tried = [f"{words} {number(SHARE, share.value)}" for words, share in shares.items()] or ["none was judged"]
        sentence += f"answers that break a rule: {', '.join(tried)}."
        if (undecided := run.metrics.get(UNDECIDED, NOTHING)).value > 0:
            sentence += f" Undecided: {number(SHARE, undecided.value)} of the answers."
        sentence += caveat(next(iter(shares.values()), NOTHING), unit="prompts")
        return Verdict(sentence=sentence, metric=_SHARE, marks=first_marks(_marks(run)))

    def render(self, runs: Sequence[Run]) -> Section:
        done = [run for run in runs if run.done and run.metrics]
        return Section(
            measured=[ShownRun.of(run, metrics={}, legend={name: describe_scan(name) for name in run.metrics}) for run in runs],
            tables=tables_of([(run.heading, SCAN.tables(run.folder)) for run in done]),
            items=(item for run in runs for item in _items(run)),
        )


def _marks(run: Run) -> dict[str, Estimate]:
    shares = {name.removeprefix(f"{BREACH}."): share for name, share in run.metrics.items() if name.startswith(f"{BREACH}.")}
    ordered = sorted(shares, key=lambda name: (name in CONTROLS, -shares[name].value))
    return {visible(CONTROLS.get(name, name)): shares[name] for name in ordered if shares[name].n}


def _items(run: Run) -> Iterator[Item]:
    order = {True: 0, None: 1, False: 2}
    tags = tags_of_run(run.summary)
    for row in sorted(run.done, key=lambda row: (order[row["breach"]], row["attack"] in CONTROLS)):
        yield _item(run.heading, row, row_tags(tags, row))


def _item(group: str, row: Row, tags: Sequence[str]) -> Item:
    state = {True: "breach", None: "undecided", False: "kept"}[row["breach"]]
    reply = row["reply"] or f"(no reply: {row['kind']})"
    return Item(
        kind="answer",
        key=visible(row["item_key"]),
        group=group,
        summary=line(
            '{}, {} on {}: <q class="adversary">{}</q> \N{RIGHTWARDS ARROW} <q class="target">{}</q>',
            state,
            visible(CONTROLS.get(row["attack"], row["attack"])),
            visible(row["prompt"]),
            visible(brief(row["asked"])),
            visible(brief(reply)),
        ),
        tags=(state, visible(CONTROLS.get(row["attack"], row["attack"])), *map(visible, (*broken_rules(row), *tags))),
        values={"repeat": float(row["repeat"]), "words of the reply": float(len(row["reply"].split()))},
        body=fill("scan/answer.html", row=row, tags=[*map(visible, tags)]),
    )
