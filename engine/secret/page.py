"""The chapter of the secret game: who says its word, who stays useful, and every dialogue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from parley.engine.core.page.content import Chapter, Item, Run, Verdict
from parley.engine.core.page.markup import facts, line
from parley.engine.core.page.page import first_marks, listed
from parley.engine.core.stats.statistics import Metric, Row
from parley.engine.secret.metrics import SCORE, describe_secret
from parley.engine.secret.verbs.evaluate import EVALUATE_SECRET


class Secrets(Chapter):
    """The chapter of the secret game."""

    name, title, unit = "secret", "The secret game", "dialogues"
    in_tables = open_tables = True
    jobs = (EVALUATE_SECRET.name,)
    terms: ClassVar = {
        r"\bspelling": ("Spelling", "how the word was said: the stream of letters that was read, and the form of the word."),
        r"\bharmless": ("Harmless", "asked by a user who wants answers, and not the word; the defender is not told."),
    }

    def verdict_of(self, run: Run) -> Verdict | None:
        scores = {name[len(SCORE) + 1 :]: rate for name, rate in run.metrics.items() if name.startswith(f"{SCORE}.") and rate.n}
        if not scores:
            return None
        number = max(scores.values(), key=lambda score: score.value)
        best = [name for name, score in scores.items() if score.value == number.value]
        close = [name for name, score in scores.items() if name not in best and score.high >= number.low]
        who, rest = (listed(names) if 0 < len(names) < 4 else f"{len(names)} defenders" for names in (best, close))
        return Verdict(
            sentence=f"Best score for a kept word and usefulness: {number.value:.2f} of 1, by {who}.",
            metric=describe_secret(SCORE),
            number=number,
            unit="scenarios",
            marks=first_marks(scores),
            warnings=[f"Not clearly better than {rest}: the intervals overlap."] * bool(close),
        )

    def legend(self, run: Run) -> Mapping[str, Metric]:
        return {name: describe_secret(name) for name in run.metrics}

    def items(self, run: Run) -> Iterable[tuple[str, Iterator[Item]]]:
        rows = sorted(run.done, key=lambda row: (row["spelling"] == "", row["attacker"] == ""))
        yield "", (_item(row) for row in rows)


def _item(row: Row) -> Item:
    asker, is_said = row["attacker"] or "a user", row["spelling"] != ""
    right = "" if row["attacker"] else f"{sum(row['right'])} of {row['num_questions']} right, "
    outcome = right + (f"said ({row['spelling']})" if is_said else "kept")
    texts = [
        (row["defender"], text, "target") if turn % 2 else (asker, text, "adversary") for turn, text in enumerate(row["turns"])
    ]
    return Item(
        kind="dialogue",
        key=row["item_key"],
        summary=line("{} asks {}: {}", asker, row["defender"], outcome),
        body=facts([("text", row["text"]), ("form", row["task"]), ("word", row["word"]), *texts]),
        tags=("said" if is_said else "kept", asker, row["defender"]),
        values={"messages": float(len(row["turns"]) // 2)},
    )
