"""What a matching model is trained against: the pool of training contexts whose replies rules change, and what becomes of them.

Source: Li et al. 2019, section 4. A rule that keeps labels (IIW, RSW) replaces replies of the pool, with the labels that they
had. Any other rule adds what it makes of right replies as new wrong ones, beside the right ones. IIW takes random words of the
context, one for nine.

  * # Paper: a pool of 100,000 examples, silent on what one is. Ours: a share of the contexts, each with its replies.
  * # Paper: one rule a training. Ours: several too, at once. A right reply that one rule replaces then stays if another one
    makes a wrong reply of it, as the paper keeps it beside those.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Sized
from typing import NamedTuple, Protocol

import numpy as np

from parley.engine.perturb.replies.catalogue import build_rules, rule_names
from parley.engine.perturb.replies.resources import RuleResources
from parley.engine.perturb.replies.rule import Attacked, Rule
from parley.engine.ranking.attacks.catalogue import policy_rule
from parley.engine.ranking.attacks.settings import POLICY
from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup, CandidateKind

NOTHING = "none"
"""Asks for the control: as many epochs on replies as they are."""
SEARCH = "search"
"""Asks for what the attack search finds (`search.py`); no rule."""
_IN_TRAINING = {"iiw": "iiw-training"}
_CHUNK = 512


class _Reply(NamedTuple):
    words: Utterance
    label: bool
    kind: CandidateKind
    attackable: bool


class Keyed(Protocol):
    """What has keys by row, such as a split."""

    def __len__(self) -> int: ...

    def key(self, row: int) -> str:
        """The key of a row."""


def training_names(against: str) -> tuple[str, ...]:
    """The rules of a training, each by its variant for training where it has one, then policies; none for "none" and "search".

    Raises:
        ConfigError: none is named, or one is unknown, with the nearest name.
    """
    named = ",".join(part for part in against.split(",") if part.strip() != SEARCH)
    if against == NOTHING or (is_searched(against) and not named):
        return ()
    parts = [part.strip() for part in named.split(",")]
    policies = [part for part in parts if part.startswith(POLICY)]
    fixed = rule_names(",".join(part for part in parts if part not in policies)) if len(policies) < len(parts) else ()
    return tuple(dict.fromkeys([*(_IN_TRAINING.get(name, name) for name in fixed), *policies]))


def evaluated_names(names: Sequence[str]) -> tuple[str, ...]:
    """The rules that evaluations attack by where a training has these, some of which are variants for training."""
    own = {variant: name for name, variant in _IN_TRAINING.items()}
    return tuple(own.get(name, name) for name in names)


def is_searched(against: str) -> bool:
    """Whether the attack search is part of a training."""
    return SEARCH in map(str.strip, against.split(","))


def asked_name(rule: Rule) -> str:
    """What evaluations call a rule of a training."""
    return evaluated_names([rule.name])[0]


def training_rules(names: Sequence[str], resources: RuleResources, group: CandidateGroup) -> list[Rule]:
    """The rules of a training, each tried once, because lexicons open when they are first asked.

    Args:
        names: as `training_names` gives them.
        resources: what rules share.
        group: that they are tried on.

    Raises:
        ConfigError: there is none of a name, two bear the same, one edits contexts or does not suit the language.
        DataError: what one of them leans on is not there.
    """
    fixed = build_rules([name for name in names if not name.startswith(POLICY)], resources)
    rules = [*fixed, *(policy_rule(name, resources) for name in names if name.startswith(POLICY))]
    own = [rule.name for rule in rules]
    if len(set(own)) < len(own):
        raise ConfigError("two rules bear the same name", where="--against", got=", ".join(own), fix="rename yours")
    for rule in rules:
        if rule.attacks == "context":
            raise ConfigError("a rule edits contexts, and a matching model is trained on changed replies", where=rule.name)
        rule.apply([group], [0])
    return rules


def drawn_rows(split: Sized, size: int, seed: int) -> np.ndarray:
    """So many contexts of a split (n,), ascending, all where there are fewer; fewer are some of more."""
    return np.sort(stream(seed, "pool").permutation(len(split))[:size])


def drawn_pool(split: Keyed, share: float, seed: int) -> frozenset[str]:
    """The keys of a share of a split's contexts, of one at least; a smaller share is part of a larger one."""
    size = max(1, round(share * len(split)))
    return frozenset(split.key(row) for row in drawn_rows(split, size, seed).tolist())


class Adversaries:
    """Changes the groups of a pool, and leaves others as they are; what becomes of one depends on that group and the seed.

    Args:
        rules: all of which meet each group.
        seed: master seed.
        pool: keys of those groups; all groups when not given.
        fixed: whether a group has the same replies whenever it comes, so that it is changed once.
    """

    def __init__(self, rules: Sequence[Rule], seed: int, pool: Collection[str] | None = None, *, fixed: bool = False) -> None:
        self._rules, self._seed, self._pool = rules, seed, pool
        self._made: dict[str, CandidateGroup] | None = {} if fixed else None
        self.untouched = dict.fromkeys(map(asked_name, rules), 0)
        """Groups so far in which a rule changed nothing."""

    def __call__(self, groups: Sequence[CandidateGroup]) -> list[CandidateGroup]:
        """The groups to learn from, in their order."""
        made = {} if self._made is None else self._made
        found = [made.get(group.key, group) for group in groups]
        met = [
            place
            for place, group in enumerate(groups)
            if group.key not in made and (self._pool is None or group.key in self._pool)
        ]
        for start in range(0, len(met), _CHUNK):
            places = met[start : start + _CHUNK]
            some = [groups[place] for place in places]
            attacked = [rule.apply(some, [self._seed_of(rule, group) for group in some]) for rule in self._rules]
            for rule, attacks in zip(self._rules, attacked, strict=True):
                self.untouched[asked_name(rule)] += sum(not any(each.changed) for each in attacks)
            for place, group, *attacks in zip(places, some, *attacked, strict=True):
                found[place] = with_adversaries(group, list(zip(self._rules, attacks, strict=True)))
                if self._made is not None:
                    made[group.key] = found[place]
        return found

    def _seed_of(self, rule: Rule, group: CandidateGroup) -> int:
        return derive_seed(self._seed, "adversaries", rule.name, group.key)


def with_adversaries(group: CandidateGroup, attacks: Sequence[tuple[Rule, Attacked]]) -> CandidateGroup:
    """A group with what rules made of its replies, the replies themselves first.

    A reply with the words of a right one is never added as a wrong one.
    """
    whole = list(map(_Reply, group.candidates, group.labels, group.kinds, group.attackable))
    rights = {reply.words for reply in whole if reply.label}
    replaced: set[int] = set()
    sources: set[int] = set()
    others: list[_Reply] = []
    for rule, attacked in attacks:
        for place, words in enumerate(attacked.group.candidates):
            label = whole[place].label and rule.keeps_labels
            if not attacked.changed[place] or (not label and words in rights):
                continue
            (replaced if rule.keeps_labels else sources).add(place)
            others.append(_Reply(words, label, whole[place].kind if rule.keeps_labels else CandidateKind.HARD, True))
    found = [reply for place, reply in enumerate(whole) if place not in replaced or place in sources] + others
    return CandidateGroup(
        group.key,
        group.context,
        tuple(reply.words for reply in found),
        tuple(reply.label for reply in found),
        tuple(reply.kind for reply in found),
        tuple(reply.attackable for reply in found),
    )
