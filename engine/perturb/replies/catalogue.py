"""The rules on candidate replies by name, and the conformance checks of a rule.

Each is a function `build(resources) -> Rule` beside its rule; they share `RuleResources` (`shapes.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from parley.engine.perturb.catalogue import Resources, strategies
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.perturb.replies.shapes import Attacks, Rule, RuleResources, build_questions
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.core.conformance import Kind, expect, same_alone
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import Registry, made_part, nearest
from parley.envs.ranking.groups import CandidateGroup, CandidateKind

rules = Registry("reply rule", "parley.rules")
for _name, _summary, _target in (
    (
        "iiw",
        "the three weightiest words of the context replace words of wrong replies",
        "parley.engine.perturb.replies.insertion:build",
    ),
    (
        "iiw-training",
        "random words of the context, one for nine, replace words of wrong replies",
        "parley.engine.perturb.replies.insertion:build_training",
    ),
    ("rsw", "words of right replies by synonyms", "parley.engine.perturb.replies.shapes:build"),
    ("sow", "words of right replies in a random order", "parley.engine.perturb.replies.shapes:build_sow"),
    ("rlw-half", "half of the words of right replies twice", "parley.engine.perturb.replies.shapes:build_rlw_half"),
    ("rlw-1", "one word of right replies many times", "parley.engine.perturb.replies.shapes:build_rlw_1"),
    ("rnpv", "nouns, pronouns and verbs of right replies alone", "parley.engine.perturb.replies.shapes:build_rnpv"),
    ("ngr", "a generic reply for right replies", "parley.engine.perturb.replies.insertion:build_ngr"),
    ("copy-1", "a turn of the context for a wrong reply", "parley.engine.perturb.replies.insertion:build_copy_1"),
    ("copy-2", "two turns of the context for wrong replies", "parley.engine.perturb.replies.insertion:build_copy_2"),
    ("copy-3", "three turns of the context for wrong replies", "parley.engine.perturb.replies.insertion:build_copy_3"),
    ("typos", "letters of right replies slip", "parley.engine.perturb.replies.shapes:build_typos"),
    ("negation", "right replies say no where they said yes", "parley.engine.perturb.replies.shapes:build_negation"),
):
    rules.register(_name, _summary, _target)

SEVEN = ("iiw", "rsw", "sow", "rlw-half", "rlw-1", "rnpv", "ngr")
"""Those of the paper's tables 3 and 4."""
GROUPS = {"all": SEVEN}
"""Names that stand for several rules."""
QUESTIONS = {"questions": ("character-noise", "random-swap", "stopword-dropout", "data-paraphrase")}
"""The name that stands for strategies on contexts that need no further data."""


def rule_names(chosen: str, *, questions: bool = False) -> tuple[str, ...]:
    """Return the rules that a list of names and groups names, once each.

    Args:
        chosen: separated by commas.
        questions: whether strategies on contexts may be named, too.

    Raises:
        ConfigError: none is named, or one is unknown, with the nearest name.
    """
    parts = [part.strip() for part in chosen.split(",") if part.strip()]
    groups = GROUPS | QUESTIONS if questions else GROUPS
    rules_named = tuple(dict.fromkeys(name for part in parts for name in groups.get(part, (part,))))
    if not rules_named:
        raise ConfigError("no reply rule is named", got=repr(chosen), fix=f"rules: {', '.join(rules)}; or all")
    for name in rules_named:
        if name not in rules and ".py:" not in name and not (questions and name in strategies):
            allowed = [*groups, *rules, *(strategies if questions else ())]
            what = f"no reply rule is called {name!r}{nearest(name, allowed)}"
            raise ConfigError(what, fix=f"rules: {', '.join(allowed)}, or path/file.py:Name")
    return rules_named


def build_rules(chosen: Sequence[str], resources: RuleResources) -> list[Rule]:
    """Build the rules of those names; behind a strategy on contexts stands its control.

    Args:
        chosen: registered names of rules and strategies, or `path/file.py:NAME` of a `build` function, a class that needs no
            arguments or a rule.
        resources: what rules share.

    Raises:
        ConfigError: no such rule, something else of a user's own, or one that does not suit the language.
        DataError: data that a rule needs are missing.
    """
    members = ("name", "attacks", "keeps_labels", "apply")
    built: list[Rule] = []
    for name in chosen:
        if name in strategies and name not in rules:
            built += build_questions(name, resources)
        else:
            built.append(made_part(rules.kind, name, rules.get(name), members, resources))
    return built


def _group(key: str, context: str, *replies: str, fixed: int | None = None) -> CandidateGroup:
    """Make a group of strings: words between blanks, turns between bars, right replies behind a plus."""
    labels = tuple(reply.startswith("+") for reply in replies)
    return CandidateGroup(
        key,
        tuple(tuple(turn.split()) for turn in context.split("|")),
        tuple(tuple(reply.removeprefix("+").split()) for reply in replies),
        labels,
        tuple(CandidateKind.POSITIVE if label else CandidateKind.RANDOM for label in labels),
        tuple(index != fixed for index in range(len(replies))),
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
    """Make a rule of a class without arguments, a function of resources, or an object."""
    if not callable(named):
        rule: Rule = named
    elif isinstance(named, type):
        rule = named()
    else:
        shared = Resources(PerturbSettings(lexicon="built-in"))
        rule = named(RuleResources(ReplySettings(), shared, contexts={"training": [group.context for group in _GROUPS]}))
    return rule


def _has_name_and_label(rule: Rule) -> None:
    """State a name, the attacked label, and whether labels hold."""
    expect(isinstance(rule.name, str) and bool(rule.name), "name is a text", repr(rule.name))
    expect(rule.attacks in get_args(Attacks), f"attacks is one of {', '.join(get_args(Attacks))}", repr(rule.attacks))
    expect(isinstance(rule.keeps_labels, bool), "keeps_labels is a bool", repr(rule.keeps_labels))


def _changes_its_label_only(rule: Rule) -> None:
    """Change attackable replies of the rule's label only, and count the words that change."""
    for seed in range(5):
        for before, (after, changed) in zip(_GROUPS, rule.apply(_GROUPS, [seed] * len(_GROUPS)), strict=True):
            kept = (before.key, before.labels, before.kinds, before.attackable)
            expect((after.key, after.labels, after.kinds, after.attackable) == kept, "labels and marks as they were", after)
            if rule.attacks != "context":
                expect(after.context == before.context, "the context as it was", after.context)
            expect(len(after.candidates) == len(changed) == len(before.candidates), "as many candidates and counts", changed)
            candidates = zip(before.candidates, after.candidates, before.labels, before.attackable, changed, strict=True)
            for words, new_words, label, may, num in candidates:
                wanted = may and rule.attacks == ("positives" if label else "negatives")
                expect(words == new_words or wanted, f"{words} to stay", new_words)
                expect(
                    (words != new_words) == (num > 0), "a count above 0 where words changed, else 0", (words, new_words, num)
                )


def _keeps_empty_replies(rule: Rule) -> None:
    """Leave empty replies empty, and return no groups for none."""
    expect(rule.apply([], []) == [], "an empty list", rule.apply([], []))
    attacked = rule.apply(_EMPTY, [1, 2])
    expect([after.candidates[0] for after, _ in attacked] == [(), ()], "empty replies", attacked)


def _is_deterministic(rule: Rule) -> None:
    """Change a group alike for equal seeds."""
    expect(
        rule.apply(_GROUPS, _SEEDS) == rule.apply(_GROUPS, _SEEDS), "the same groups twice", "different groups the second time"
    )


def _is_independent(rule: Rule) -> None:
    """Change a group independently of the groups beside it."""
    alone = [rule.apply([group], [seed])[0] for group, seed in zip(_GROUPS, _SEEDS, strict=True)]
    same_alone(rule.apply(_GROUPS, _SEEDS), alone, "an attacked group")


def _does_something(rule: Rule) -> None:
    """Change at least one of two plain groups, for some seed."""
    changed = any(any(num) for seed in range(20) for _, num in rule.apply(_GROUPS, [seed] * len(_GROUPS)))
    expect(changed, "another text", "every group as it was, for twenty seeds")


REPLY_RULE = Kind(
    "rule on candidate replies",
    "parley.engine.perturb.replies.shapes.Rule",
    ("apply", "attacks", "keeps_labels"),
    make,
    (_has_name_and_label, _changes_its_label_only, _keeps_empty_replies, _is_deterministic, _is_independent, _does_something),
)
