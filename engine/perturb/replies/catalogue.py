"""The rules by name.

Each is a function `build(resources) -> Rule` beside its rule; `resources.py` holds what they share.
"""

from __future__ import annotations

from collections.abc import Sequence

from parley.engine.perturb.replies.resources import RuleResources
from parley.engine.perturb.replies.rule import Rule
from parley.envs.core.errors import ConfigError
from parley.envs.core.own_code import made_part
from parley.envs.core.registry import Registry, nearest

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
    ("rsw", "words of right replies by synonyms", "parley.engine.perturb.replies.replacement:build"),
    ("sow", "words of right replies in a random order", "parley.engine.perturb.replies.shapes:build_sow"),
    ("rlw-half", "half of the words of right replies twice", "parley.engine.perturb.replies.shapes:build_rlw_half"),
    ("rlw-1", "one word of right replies many times", "parley.engine.perturb.replies.shapes:build_rlw_1"),
    ("rnpv", "nouns, pronouns and verbs of right replies alone", "parley.engine.perturb.replies.shapes:build_rnpv"),
    ("ngr", "a generic reply for right replies", "parley.engine.perturb.replies.stand_ins:build_ngr"),
    ("copy-1", "a turn of the context for a wrong reply", "parley.engine.perturb.replies.stand_ins:build_copy_1"),
    ("copy-2", "two turns of the context for wrong replies", "parley.engine.perturb.replies.stand_ins:build_copy_2"),
    ("copy-3", "three turns of the context for wrong replies", "parley.engine.perturb.replies.stand_ins:build_copy_3"),
    ("typos", "letters of right replies slip", "parley.engine.perturb.replies.strategies:build_typos"),
    ("negation", "right replies say no where they said yes", "parley.engine.perturb.replies.strategies:build_negation"),
):
    rules.register(_name, _summary, _target)

SEVEN = ("iiw", "rsw", "sow", "rlw-half", "rlw-1", "rnpv", "ngr")
"""Those of the paper's tables 3 and 4."""
GROUPS = {"all": SEVEN}
"""What may be said in the place of several names."""


def rule_names(chosen: str) -> tuple[str, ...]:
    """The rules that a list of names and groups names, each once.

    Args:
        chosen: separated by commas.

    Raises:
        ConfigError: none is named, or one is unknown, with the nearest name.
    """
    parts = [part.strip() for part in chosen.split(",") if part.strip()]
    found = tuple(dict.fromkeys(name for part in parts for name in GROUPS.get(part, (part,))))
    if not found:
        raise ConfigError("no reply rule is named", got=repr(chosen), fix=f"rules: {', '.join(rules)}; or all")
    for name in found:
        if name not in rules and ".py:" not in name:
            known = [*GROUPS, *rules]
            what = f"no reply rule is called {name!r}{nearest(name, known)}"
            raise ConfigError(what, fix=f"rules: {', '.join(known)}, or path/file.py:Name")
    return found


def build_rules(chosen: Sequence[str], resources: RuleResources) -> list[Rule]:
    """The rules of those names.

    Args:
        chosen: registered names, or `path/file.py:NAME` of a `build` function, a class that needs no arguments or a rule.
        resources: what rules share.

    Raises:
        ConfigError: no such rule, something else of a user's own, or one that does not suit the language.
        DataError: what one of them leans on is not there.
    """
    members = ("name", "attacks", "keeps_labels", "apply")
    return [made_part(rules.kind, name, rules.get(name), members, resources) for name in chosen]
