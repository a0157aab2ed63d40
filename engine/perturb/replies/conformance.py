"""What rules on candidate replies promise (`rule.Rule`)."""

from __future__ import annotations

from typing import Any, get_args

from parley.engine.perturb.replies.resources import RuleResources
from parley.engine.perturb.replies.rule import Attacks, Rule
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.perturb.resources import Resources
from parley.engine.perturb.settings import PerturbSettings
from parley.envs.core.conformance import Kind, expect, same_alone
from parley.envs.ranking.groups import CandidateGroup, CandidateKind


def _group(key: str, context: str, *replies: str, fixed: int | None = None) -> CandidateGroup:
    """Words between blanks; turns between bars; right replies begin with a plus."""
    labels = tuple(reply.startswith("+") for reply in replies)
    return CandidateGroup(
        key,
        tuple(tuple(turn.split()) for turn in context.split("|")),
        tuple(tuple(reply.removeprefix("+").split()) for reply in replies),
        labels,
        tuple(CandidateKind.POSITIVE if label else CandidateKind.RANDOM for label in labels),
        tuple(place != fixed for place in range(len(replies))),
    )


_GROUPS = [
    _group(
        "a",
        "how do i start the old machine ?|which disk do you use",
        "+we buy a big house , and it begins surprisingly quickly",
        "you can open the new file",
        "he opened two windows",
    ),
    _group(
        "b",
        "the disk is full|i have installed all packages twice",
        "he wants a small picture",
        "+a big problem starts with the first package",
        "+that works",
        fixed=2,
    ),
]
_EMPTY = [_group("c", "", "+", ""), _group("d", "|", "+", "zz9")]
_SEEDS = [3, 5]


def make(named: Any) -> Rule:
    """A rule from a class, a function or an object; functions are called with resources, classes without."""
    if not callable(named):
        rule: Rule = named
    elif isinstance(named, type):
        rule = named()
    else:
        shared = Resources(PerturbSettings(lexicon="built-in"))
        rule = named(RuleResources(ReplySettings(), shared, contexts={"training": [group.context for group in _GROUPS]}))
    return rule


def _says_what_it_is(rule: Rule) -> None:
    """Says its name, what it attacks, and whether labels hold."""
    expect(isinstance(rule.name, str) and bool(rule.name), "name is a text", repr(rule.name))
    expect(rule.attacks in get_args(Attacks), f"attacks is one of {', '.join(get_args(Attacks))}", repr(rule.attacks))
    expect(isinstance(rule.keeps_labels, bool), "keeps_labels is a bool", repr(rule.keeps_labels))


def _changes_what_it_says(rule: Rule) -> None:
    """Changes attackable replies of its label alone, and counts the words that it changes."""
    for seed in range(5):
        for before, (after, changed) in zip(_GROUPS, rule.apply(_GROUPS, [seed] * len(_GROUPS)), strict=True):
            kept = (before.key, before.labels, before.kinds, before.attackable)
            expect((after.key, after.labels, after.kinds, after.attackable) == kept, "labels and marks as they were", after)
            if rule.attacks != "context":
                expect(after.context == before.context, "the context as it was", after.context)
            expect(len(after.candidates) == len(changed) == len(before.candidates), "as many candidates and counts", changed)
            candidates = zip(before.candidates, after.candidates, before.labels, before.attackable, changed, strict=True)
            for words, others, label, may, num in candidates:
                wanted = may and rule.attacks == ("positives" if label else "negatives")
                expect(words == others or wanted, f"{words} to stay", others)
                expect((words != others) == (num > 0), "a count above 0 where words changed, else 0", (words, others, num))


def _leaves_nothing_as_nothing(rule: Rule) -> None:
    """Leaves empty replies empty, and no groups no groups."""
    expect(rule.apply([], []) == [], "an empty list", rule.apply([], []))
    found = rule.apply(_EMPTY, [1, 2])
    expect([after.candidates[0] for after, _ in found] == [(), ()], "empty replies", found)


def _repeats_itself(rule: Rule) -> None:
    """Makes the same of a group from the same seed."""
    expect(rule.apply(_GROUPS, _SEEDS) == rule.apply(_GROUPS, _SEEDS), "the same groups twice", "others the second time")


def _is_the_same_alone(rule: Rule) -> None:
    """Makes the same of a group whatever else is attacked with it."""
    alone = [rule.apply([group], [seed])[0] for group, seed in zip(_GROUPS, _SEEDS, strict=True)]
    same_alone(rule.apply(_GROUPS, _SEEDS), alone, "an attacked group")


def _does_something(rule: Rule) -> None:
    """Changes at least one of two plain groups, for some seed."""
    changed = any(any(num) for seed in range(20) for _, num in rule.apply(_GROUPS, [seed] * len(_GROUPS)))
    expect(changed, "another text", "every group as it was, for twenty seeds")


REPLY_RULE = Kind(
    "rule on candidate replies",
    "parley.engine.perturb.replies.rule.Rule",
    ("apply", "attacks", "keeps_labels"),
    make,
    (_says_what_it_is, _changes_what_it_says, _leaves_nothing_as_nothing, _repeats_itself, _is_the_same_alone, _does_something),
)
