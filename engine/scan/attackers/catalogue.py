"""Attackers by name, and the controls that every scan under a budget asks beside them.

A policy names an attacker as it is, or with settings of its own:

    pair
    pair[depth=5]
    tap[width=2,branching=3]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from parley.engine.scan.attackers.by_rule import FoundConversation, Once, Replayed, Reworded
from parley.engine.scan.attackers.pair import Pair
from parley.engine.scan.attacks import BLIND, CONTROLS, NONE, RANDOM_WORDS, REPEAT, SCORES_ONLY, rewordings
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from parley.engine.scan.attackers.attacker import Attacker
    from parley.engine.scan.policy import AttackSpec, Policy

attackers = Registry("attacker", "parley.attackers")
_PLACE = "parley.engine.scan.attackers"
attackers.register("pair", "streams of messages, refined by replies and scores (Chao et al. 2023)", f"{_PLACE}.pair:Pair")
attackers.register("tap", "a tree of messages, pruned by topic and score (Mehrotra et al. 2023)", f"{_PLACE}.tap:Tap")
attackers.register(
    "crescendo",
    "one conversation, step by step; refusals are withdrawn (Russinovich et al. 2024)",
    f"{_PLACE}.crescendo:Crescendo",
)
attackers.register("goat", "one conversation, with seven ways to choose from (Pavlova et al. 2024)", f"{_PLACE}.goat:Goat")
attackers.register("many-shot", "made-up dialogues before the prompt (Anil et al. 2024)", f"{_PLACE}.by_rule:ManyShot")
attackers.register(
    "best-of-n", "scrambled words, random capitals, shifted characters (Hughes et al. 2024)", f"{_PLACE}.by_rule:BestOfN"
)
attackers.register(
    "evolution", "words behind the prompt that evolve by scores (Lapid et al. 2023)", f"{_PLACE}.by_rule:EvolvedWords"
)
_NAMED = re.compile(r"([a-z-]+)(?:\[(.*)\])?")


def is_attacker(text: str) -> bool:
    """Return whether a policy's name of an attack is that of an attacker, with or without settings."""
    match = _NAMED.fullmatch(text)
    return match is not None and match[1] in attackers


def make_attacker(text: str) -> Attacker:
    """Return the attacker of a name.

    Raises:
        ConfigError: it has no such setting, or the value does not fit.
    """
    match = _NAMED.fullmatch(text)
    assert match is not None, "is_attacker has seen the name"
    attacker: Attacker = attackers.get(match[1])()
    kinds = {part.name: type(getattr(attacker, part.name)) for part in fields(attacker)}  # type: ignore[arg-type]
    changes = {}
    for pair in filter(None, (match[2] or "").split(",")):
        name, _, value = (part.strip() for part in pair.partition("="))
        try:
            changes[name] = kinds[name](value)
        except (KeyError, ValueError):
            fix = f"one of {', '.join(f'{part}={getattr(attacker, part)}' for part in kinds)}"
            raise ConfigError("an attacker has no such setting or value", where="attacks", got=text, fix=fix) from None
        if kinds[name] in (int, float) and changes[name] <= 0:
            raise ConfigError("a setting of an attacker is not above 0", where="attacks", got=text, fix=f"{name}=1")
    return replace(attacker, **changes)  # type: ignore[type-var]


def asks_under_budget(policy: Policy) -> bool:
    """Return whether each attack of a policy asks until a budget ends: one is named, or an attack that needs one."""
    kinds = ("conversations", "universal")
    return bool(policy.budget) or any(
        spec.kind in kinds or (spec.kind == "named" and is_attacker(spec.value)) for spec in policy.attacks
    )


def contestants(
    specs: Sequence[AttackSpec],
    triggers: Callable[[str], Sequence[str]],
    conversations: Callable[[str], Sequence[FoundConversation]],
    *,
    draws: bool,
) -> Mapping[str, Attacker]:
    """Return all attackers of a scan under a budget by name: the controls, then those of the policy.

    Args:
        specs: attacks of the policy; one that is no attacker asks its wordings until the budget ends.
        triggers: returns what the searches of some runs found.
        conversations: returns what the scans of some runs found.
        draws: whether answers are drawn; without draws the prompt is not repeated.

    Raises:
        ConfigError: there is no attack of a name.
    """
    replayed = {spec.name: spec for spec in specs if spec.kind in ("conversations", "universal")}
    plain = [spec for spec in specs if spec.name not in replayed and not (spec.kind == "named" and is_attacker(spec.value))]
    made: dict[str, Attacker] = {NONE: Once()}
    made |= {REPEAT: Reworded()} if draws else {}
    wordings = rewordings(plain, triggers, attackers)
    made[RANDOM_WORDS] = Reworded(wordings[RANDOM_WORDS])
    named = {spec.name: make_attacker(spec.value) for spec in specs if spec not in plain and spec.name not in replayed}
    for name, spec in replayed.items():
        if name in CONTROLS:
            raise ConfigError("an attack bears the name of a control", where="attacks", got=name, fix="give it another name:")
        named[name] = Replayed(tuple(conversations(spec.value)), spec.kind == "universal")
    if any(attacker.needs_model for attacker in named.values()):
        made |= {BLIND: Pair(sees="nothing"), SCORES_ONLY: Pair(sees="scores")}
    for spec in specs:
        made[spec.name] = named[spec.name] if spec.name in named else Reworded(wordings[spec.name])
    return made
