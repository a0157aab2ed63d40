"""Attacked examples per second of the seven fixed rules on one core, against a loop over examples.

An example is a context with one of its candidates. The loop (plain_rules.py) takes those that a rule edits one by one. Some
groups are first attacked by both from the same draws.

    python -m benchmarks.ranking_rules [--quick] [--corpus ubuntu_dialogues] [--lexicon built-in]

    ratio        seconds of the loop over ours for an example under all seven rules, one after the other with one lexicon, as a
                 run has them: each distinct text is tagged once
    seconds      ours for all examples under all seven rules
    rules        for each alone, with a lexicon that remembers nothing yet: examples per second of ours and of the loop
    identical    the same draws gave the same words under every rule
"""

from __future__ import annotations

import gc
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from benchmarks.measure import BenchmarkOptions, Clock, Result, run
from benchmarks.perturbation import opened_lexicon
from benchmarks.plain_perturbation import Draw
from benchmarks.plain_rules import Loop, PlainRules
from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.replies.catalogue import SEVEN, build_rules
from parley.engine.perturb.replies.settings import CAREFUL, ReplySettings
from parley.engine.perturb.replies.shapes import Rule, RuleResources, Synonymous
from parley.engine.perturb.strategies.draws import uniforms
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.ranking.compiled import load_candidates
from parley.envs.ranking.groups import CandidateGroup

LEAST_S = 0.05
"""Seconds of the processor that a loop is measured for at least; clocks of some machines tick a hundred times a second."""
SHARD = 1000
"""Groups attacked at once."""
MOST_DRAWS = 4000
"""Of one group; no rule asks for more."""
SETTINGS = ReplySettings(rule="careful")
CHOICE = replace(CAREFUL, sense="first")
"""Of synonyms, as the loop chooses them."""


@dataclass(frozen=True, kw_only=True)
class RuleOptions(BenchmarkOptions):
    """Rules on replies against a loop."""

    corpus: str = "helpdesk"
    """Candidates that are attacked."""
    split: Literal["train", "val", "test"] = "test"
    """Of which split."""
    data_root: Path | None = None
    """Where corpora lie; the usual places when not given."""
    lexicon: Literal["any", "nltk", "built-in"] = "any"
    """NLTK's data where they are, the built-in lexicon elsewhere; or one of them."""
    examples: int = 20_000
    """Contexts with a candidate that are attacked by us; with --quick a fifth of them."""

    @property
    def plain_groups(self) -> int:
        """How many groups the loop attacks."""
        return 20 if self.quick else 200


def clocked_rules(names: Sequence[str], resources: RuleResources) -> list[Rule]:
    """Build rules whose synonyms are chosen as the loop chooses them."""
    return [
        Synonymous(SETTINGS, resources.language, CHOICE) if rule.name == Synonymous.name else rule
        for rule in build_rules(names, resources)
    ]


def measure(options: RuleOptions) -> Result:
    """Check and clock every rule."""
    lexicon = opened_lexicon(options.lexicon)
    split = load_candidates(options.corpus, options.data_root).splits[options.split]
    groups: list[CandidateGroup] = []
    num = 0
    for group in split:
        groups.append(group)
        num += len(group.candidates)
        if num >= (options.examples // 5 if options.quick else options.examples):
            break

    def made(*names: str) -> tuple[RuleResources, list[Rule]]:
        shared = Resources(PerturbSettings(lexicon=lexicon), data_root=options.data_root)
        resources = RuleResources(SETTINGS, shared, contexts={"training": [group.context for group in groups]})
        rules = clocked_rules(names, resources)
        for rule in rules:
            # Files are opened by the first question.
            rule.apply(groups[:1], [0])
        return resources, rules

    resources, rules = made(*SEVEN)
    plain = PlainRules.of(resources.shared.lexicon, resources.counts, nltk=lexicon == "nltk")
    few = groups[: options.plain_groups]
    different = {rule.name: _different(rule, plain, few) for rule in rules}
    together = _ours(made(*SEVEN)[1], groups) / num
    alone = {name: (_ours(made(name)[1], groups) / num, _plain(name, plain, few)) for name in SEVEN}
    return Result(
        ratio=sum(theirs for _, theirs in alone.values()) / together,
        identical=not any(different.values()),
        figures={
            "lexicon": lexicon,
            "examples": num,
            "seconds": together * num,
            "rules": {
                name: {"per_s": 1 / ours, "plain_per_s": 1 / theirs, "ratio": theirs / ours}
                for name, (ours, theirs) in alone.items()
            },
            "different": {name: differences[:3] for name, differences in different.items() if differences},
        },
    )


def _ours(rules: Sequence[Rule], groups: Sequence[CandidateGroup]) -> float:
    """Seconds of the processor for all groups under all of the rules, a shard of groups at a time."""
    clock = Clock()
    gc.collect()
    with clock.running():
        for start in range(0, len(groups), SHARD):
            shard = groups[start : start + SHARD]
            for rule in rules:
                rule.apply(shard, range(start, start + len(shard)))
    return clock.cpu_s


def _plain(name: str, plain: PlainRules, groups: Sequence[CandidateGroup]) -> float:
    """Seconds of the processor for an example, edited or not."""
    loop, clock = plain.named(name), Clock()
    loop([["an", "old", "disk"]], ["it", "works", "well"], iter([0.1] * 9).__next__)
    gc.collect()
    rounds = 0
    while clock.cpu_s < LEAST_S:
        rounds += 1
        with clock.running():
            for seed, group in enumerate(groups):
                _attacked(loop, name, group, random.Random(seed).random)
    return clock.cpu_s / (rounds * sum(len(group.candidates) for group in groups))


def _attacked(loop: Loop, name: str, group: CandidateGroup, draw: Draw) -> list[list[str]]:
    context = [list(turn) for turn in group.context]
    return [
        loop(context, list(words), draw) if label is (name != "iiw") else list(words)
        for words, label in zip(group.candidates, group.labels, strict=True)
    ]


def _different(rule: Rule, plain: PlainRules, groups: Sequence[CandidateGroup]) -> list[str]:
    """Return the groups that the loop changes otherwise, from the same draws."""
    loop, differences = plain.named(rule.name), []
    for seed, (group, ours) in enumerate(zip(groups, rule.apply(groups, range(len(groups))), strict=True)):
        draw = iter(uniforms([seed], rule.name, [MOST_DRAWS]).tolist()).__next__
        theirs = _attacked(loop, rule.name, group, draw)
        if [list(words) for words in ours.group.candidates] != theirs:
            differences.append(f"{group.key}: {ours.group.candidates} against {theirs}")
    return differences


if __name__ == "__main__":
    run("ranking_rules", RuleOptions, measure)
