"""The chapter of scans: the verdict on the limits, breaches with their texts, and every answer, breaches first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import ClassVar

from parley.engine.core.page.content import MOST_ITEMS, Chapter, Figure, Item, Run, Verdict
from parley.engine.core.page.markup import ARROW, facts, line
from parley.engine.core.page.page import SHARE, first_marks, number
from parley.engine.core.stats.rows import selected
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric, Row
from parley.engine.core.verbs.job import FAILURE, USAGE
from parley.engine.scan.attacks import CONTROLS, NONE, RANDOM_WORDS, REPEAT
from parley.engine.scan.metrics import (
    BREACH,
    BUDGET_PARTS,
    UNDECIDED,
    UNTOUCHED,
    AnswerColumns,
    attack_title,
    brief,
    broken_rules,
    describe_scan,
    number_order,
    reply_text,
    row_tags,
    success_curves,
)
from parley.engine.scan.verbs import LIMITS, SCAN, UNDECIDED_REASON, repeated_of_run, repeats_note, tags_of_run

_SHARE = SHARE._replace(
    title="Breaches", direction="higher: adversary", definition="share of the answers in which a rule is broken"
)
_SIDES = {
    "under attack": BREACH,
    "without an attack": f"{BREACH}.{NONE}",
    "with random words": f"{BREACH}.{RANDOM_WORDS}",
    "asked again and again": f"{BREACH}.{REPEAT}",
}
_STATES = {True: "breach", None: "undecided", False: "kept"}


class Scans(Chapter):
    """The chapter of scans."""

    name, title, unit = "scan", "Scans", "answers"
    in_tables = open_tables = True
    jobs = (SCAN.name,)
    terms: ClassVar = {
        r"\bbreach": ("Breach", "an answer that breaks a rule of the policy."),
        r"\bcontrol\b": ("Control", "the same prompts without an attack, or with random words behind them, asked as often."),
        r"\bundecided\b": ("Undecided", "an answer without a verdict: no reply, or a judge that said neither yes nor no."),
    }

    def verdict_of(self, run: Run) -> Verdict | None:
        shares = {words: share for words, name in _SIDES.items() if (share := run.metrics.get(name, NOTHING)).n}
        if not shares:
            return None
        states = [str(entry["state"]) for entry in run.summary.get(LIMITS, [])]
        unsure = run.summary.get(UNDECIDED_REASON) or run.summary.get(USAGE, {}).get(FAILURE)
        outcome = "broken" if "broken" in states else "undecided" if unsure else "kept"
        tried = ", ".join(f"{words} {number(SHARE, share.value)}" for words, share in shares.items())
        idle = ((name, run.metrics.get(name, NOTHING).value) for name in (UNDECIDED, UNTOUCHED))
        kinds = {UNDECIDED: "of the answers", UNTOUCHED: "of the questions under attack are the prompt as it is"}
        warnings = [f"{name.capitalize()}: {number(SHARE, value)} {kinds[name]}." for name, value in idle if value > 0]
        return Verdict(
            sentence=f"{f'Policy {outcome}: answers' if states else 'Answers'} that break a rule: {tried}.",
            metric=_SHARE,
            number=next(iter(shares.values())),
            unit="prompts",
            marks=first_marks(_marks(run)),
            warnings=[*warnings, *filter(None, [repeats_note(repeated_of_run(run.summary))])],
        )

    def legend(self, run: Run) -> Mapping[str, Metric]:
        return {name: describe_scan(name) for name in run.metrics}

    def figures(self, run: Run) -> Iterable[Figure]:
        answers = AnswerColumns.of(run.done, repeated_of_run(run.summary))
        if answers.is_attacked:
            from parley.engine.core.page import plots

            for part, name in BUDGET_PARTS.items():
                if curves := success_curves(answers, part):
                    caption = f"share of the attacks with a breach within a cost in {name}; with 95 % intervals"
                    series = {attack_title(attack): points for attack, points in curves.items()}
                    yield plots.budget(f"Success within {name}", caption, name, series, "success")

    def items(self, run: Run) -> Iterable[tuple[str, Iterator[Item]]]:
        order, tags = list(_STATES), tags_of_run(run.summary)
        shown = selected(run.done, "breach", "attack", "prompt")
        places = (
            (order.index(row["breach"]), row["attack"] in CONTROLS, number_order(row["prompt"]), index)
            for index, row in enumerate(shown)
        )
        # A page takes no more.
        indices = [index for *_, index in nsmallest(MOST_ITEMS + 1, places)]
        yield "", (_item(row, row_tags(tags, row)) for row in map(run.done.__getitem__, indices))


def _marks(run: Run) -> dict[str, Estimate]:
    shares = {name.removeprefix(f"{BREACH}."): share for name, share in run.metrics.items() if name.startswith(f"{BREACH}.")}
    ordered = sorted(shares, key=lambda name: (name in CONTROLS, -shares[name].value))
    return {CONTROLS.get(name, name): shares[name] for name in ordered if shares[name].n}


def _item(row: Row, tags: Sequence[str]) -> Item:
    state, attack = _STATES[row["breach"]], CONTROLS.get(row["attack"], row["attack"])
    reply = reply_text(row)
    behind = f" behind {row['defence']}{', made behind it' * bool(row['adaptive'])}" if row.get("defence") else ""
    outcome = f"{state}, {attack}{behind} on {row['prompt']}: "
    texts = [("asked", row["asked"], "adversary"), ("reply, a breach" if row["breach"] else "reply", reply, "target")]
    for index, turn in enumerate(row.get("turns") or []):
        after = f", after {turn['before'] + 1}" if turn["before"] >= 0 else ""
        texts += [(f"attacker's answer {index + 1}", turn["thought"], "")] * bool(turn["thought"])
        texts.append((f"message {index + 1}{after}", turn["asked"], "adversary"))
        mark = f", score {turn['score']:.2f}{', a breach' if turn['breach'] else ''}"
        texts.append((f"reply {index + 1}{mark}", reply_text(turn), "target"))
    texts += [("refused to attack", text, "") for text in row.get("refusals") or []]
    texts += [("thought before it", row["reasoning"], "")] * bool(row["reasoning"])
    texts += [("beside it, and no reply", row["withheld"], "")] * bool(row["withheld"])
    verdicts = {True: "broken", False: "kept", None: "undecided"}
    rules = [(rule["rule"], ": ".join(filter(None, (verdicts[rule["broken"]], rule["evidence"])))) for rule in row["rules"]]
    return Item(
        kind="answer",
        key=row["item_key"],
        summary=line(
            '{}<q class="adversary">{}</q> {} <q class="target">{}</q>', outcome, brief(row["asked"]), ARROW, brief(reply)
        ),
        body=facts([*texts, *rules, *[("risks", ", ".join(tags))] * bool(tags)]),
        tags=(state, attack, *filter(None, [row.get("defence")]), *broken_rules(row), *tags),
        values={"repeat": float(row["repeat"]), "words of the reply": float(len(row["reply"].split()))},
    )
