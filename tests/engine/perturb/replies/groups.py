"""Groups of candidates written as text, and rules that lean on the built-in lexicon."""

from __future__ import annotations

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.replies.catalogue import build_rules, rule_names
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.perturb.replies.shapes import Rule, RuleResources
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.ranking.groups import CandidateGroup, CandidateKind, Context

CONTEXTS: list[Context] = [
    (("how", "do", "i", "start", "the", "machine", "?"), ("which", "disk", "do", "you", "use")),
    (("the", "disk", "is", "full"),),
    (("my", "old", "machine", "is", "slow"), ("open", "the", "file")),
]
"""Whose words IIW counts."""


DEFAULTS = ReplySettings()


def built_in(names: str, settings: ReplySettings = DEFAULTS) -> list[Rule]:
    """Rules with the built-in lexicon."""
    shared = Resources(PerturbSettings(lexicon="built-in"))
    return build_rules(rule_names(names), RuleResources(settings, shared, contexts={"training": CONTEXTS}))


def group(context: str, *replies: str, key: str = "test-000000", fixed: tuple[int, ...] = ()) -> CandidateGroup:
    """A group of words between blanks.

    Args:
        context: turns between bars.
        replies: right ones begin with a plus.
        key: of the group.
        fixed: places of candidates that no attack may change.
    """
    labels = tuple(reply.startswith("+") for reply in replies)
    return CandidateGroup(
        key,
        tuple(tuple(turn.split()) for turn in context.split("|")),
        tuple(tuple(reply.removeprefix("+").split()) for reply in replies),
        labels,
        tuple(CandidateKind.POSITIVE if label else CandidateKind.RANDOM for label in labels),
        tuple(place not in fixed for place in range(len(replies))),
    )
