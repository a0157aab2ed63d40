"""What becomes of training contexts: replies that are replaced, wrong ones that are added, the pool, and mistakes."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.perturb.replies.shapes import Attacked, RuleResources
from parley.engine.perturb.strategy import PerturbSettings
from parley.engine.ranking.attacks.cases import AttackOutcome
from parley.engine.ranking.verbs.attack_worker import PoolSearch
from parley.engine.ranking.verbs.prepared import (
    Adversaries,
    drawn_pool,
    evaluated_name,
    training_names,
    training_rules,
    with_adversaries,
)
from parley.envs.core.errors import ConfigError, RunError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup, CandidateKind

GROUP = CandidateGroup(
    "train-0000001",
    (("red", "fish"), ("blue", "fish")),
    (("one",), ("two",), ("three",)),
    (True, False, False),
    (CandidateKind.POSITIVE, CandidateKind.RANDOM, CandidateKind.RANDOM),
    (True, True, True),
)
RESOURCES = RuleResources(ReplySettings(), Resources(PerturbSettings(lexicon="built-in")))


@dataclass(frozen=True)
class Marked:
    """Puts a mark behind replies of one label."""

    name: str
    attacks: Literal["negatives", "positives", "context"]
    keeps_labels: bool
    mark: Utterance = ("!",)

    def apply(self, groups: Sequence[CandidateGroup], seeds: Sequence[int]) -> list[Attacked]:
        return [self._attacked(group) for group in groups]

    def _attacked(self, group: CandidateGroup) -> Attacked:
        hit = [label is (self.attacks == "positives") for label in group.labels]
        candidates = tuple((*each, *self.mark) if own else each for each, own in zip(group.candidates, hit, strict=True))
        return Attacked(replace(group, candidates=candidates), tuple(map(int, hit)))


IIW, RSW, SOW = Marked("a", "negatives", True), Marked("b", "positives", True), Marked("c", "positives", False, ("?",))


def taught(*rules: Marked) -> list[tuple[str, bool]]:
    found = with_adversaries(GROUP, [(rule, rule.apply([GROUP], [0])[0]) for rule in rules])
    assert (found.key, found.context) == (GROUP.key, GROUP.context)
    assert len(found.kinds) == len(found.attackable) == len(found.candidates)
    return [(" ".join(words), label) for words, label in zip(found.candidates, found.labels, strict=True)]


def test_rules_that_keep_labels_replace_and_others_add_wrong_replies() -> None:
    assert taught(IIW) == [("one", True), ("two !", False), ("three !", False)]
    assert taught(RSW) == [("two", False), ("three", False), ("one !", True)]
    assert taught(SOW) == [("one", True), ("two", False), ("three", False), ("one ?", False)]
    assert taught(IIW, RSW) == [("two !", False), ("three !", False), ("one !", True)]
    # The right reply of which a rule makes a wrong one is kept.
    assert taught(RSW, SOW) == [("one", True), ("two", False), ("three", False), ("one !", True), ("one ?", False)]
    assert taught() == [("one", True), ("two", False), ("three", False)]


def test_a_wrong_reply_never_has_the_words_of_a_right_one() -> None:
    two = replace(GROUP, labels=(True, True, False), candidates=(("one",), ("one", "?"), ("three",)))
    found = with_adversaries(two, [(SOW, SOW.apply([two], [0])[0])])
    assert list(zip(found.candidates, found.labels, strict=True))[3:] == [(("one", "?", "?"), False)]
    same = replace(GROUP, candidates=(("two", "!"), ("two",), ("three",)))
    found = with_adversaries(same, [(IIW, IIW.apply([same], [0])[0])])
    assert found.candidates == (("two", "!"), ("two",), ("three", "!")), "the wrong reply itself stays"


def test_groups_outside_of_the_pool_stay_and_untouched_ones_are_counted() -> None:
    groups = [replace(GROUP, key=f"train-{number}") for number in range(1200)]
    adversaries = Adversaries([SOW], 1, {"train-3", "train-1100"})
    found = adversaries(groups)
    assert [place for place, group in enumerate(found) if group != groups[place]] == [3, 1100]
    assert adversaries.untouched == {"c": 0}
    ngr = training_rules(("ngr",), RESOURCES, GROUP)
    counted = Adversaries(ngr, 1)
    apology = replace(GROUP, candidates=(("i", "am", "sorry", "can", "you", "repeat"), ("two",), ("three",)))
    assert counted([apology, GROUP])[0] == apology
    assert counted.untouched == {"ngr": 1}


def test_groups_whose_replies_stay_are_changed_once() -> None:
    class Counted(Marked):
        num = 0

        def apply(self, groups: Sequence[CandidateGroup], seeds: Sequence[int]) -> list[Attacked]:
            Counted.num += len(groups)
            return super().apply(groups, seeds)

    other = replace(GROUP, key="train-0000002")
    fixed, anew = (Adversaries([Counted("a", "negatives", True)], 1, {GROUP.key}, fixed=fixed) for fixed in (True, False))
    first = fixed([GROUP, other])
    assert first == fixed([GROUP, other]) == anew([GROUP, other])
    assert first[0] != GROUP
    assert first[1] == other
    assert Counted.num == 2, "once by each"


def test_what_a_search_found_is_added_and_an_epoch_goes_on_with_what_it_began_with(tmp_path: Path) -> None:
    class Attack:
        num = 0

        def run(self, groups: Sequence[CandidateGroup], seeds: Sequence[int]) -> list[AttackOutcome]:
            self.num += 1
            words = (("zwei", "ß"), ("drei",))[self.num % 2]
            return [AttackOutcome(group.key, "success", words=words, cost=int(group.key[-1]), queries=4) for group in groups]

    class Split(list):
        name = "train"

        def chosen(self, rows: np.ndarray) -> list[CandidateGroup]:
            return [self[row] for row in rows.tolist()]

    untouched, third = replace(GROUP, key="train-0"), replace(GROUP, key="train-9")
    run = RunFolder.open(tmp_path / "run", PerturbSettings(), job="train matcher")
    attack, train = Attack(), Split([untouched, GROUP])
    search = PoolSearch(attack, train, 5, 1, run, Silent())
    search.begin(1, 0)
    first, second, other = search([untouched, GROUP, third])
    assert (first, other) == (untouched, third), "no edit came closer, or nobody searched"
    assert (second.candidates[-1], second.labels[-1]) == (("drei",), False)
    assert (second.candidates[:-1], second.labels[:-1]) == (GROUP.candidates, GROUP.labels)
    search.begin(2, 0)
    assert search([GROUP])[0].candidates[-1] == ("zwei", "ß")
    again = PoolSearch(attack, train, 5, 1, run, Silent())
    again.begin(2, 7)
    assert again([GROUP]) == search([GROUP])
    assert attack.num == 2, "it is read"
    with pytest.raises(RunError, match=r"are gone(.|\n)*found-epoch-3"):
        again.begin(3, 7)
    shutil.rmtree(run.path)
    with pytest.raises(RunError, match=r"found replies cannot be written(.|\n)*parley resume"):
        again.begin(4, 0)


def test_what_becomes_of_a_group_depends_on_it_and_the_seed_alone() -> None:
    said = ("please", "open", "the", "settings", "of", "your", "printer")
    groups = [
        replace(GROUP, key=f"train-{number}", context=(said,), candidates=(said[number:], said[:4], said[2:]))
        for number in range(4)
    ]
    rules = training_rules(training_names("all"), RESOURCES, GROUP)
    whole = Adversaries(rules, 1)(groups)
    assert [Adversaries(rules, 1)([group])[0] for group in reversed(groups)] == whole[::-1]
    assert Adversaries(rules, 2)(groups) != whole


def test_a_pool_is_drawn_by_the_seed_and_holds_all_where_there_are_fewer() -> None:
    class Split:
        def __len__(self) -> int:
            return 50

        def key(self, row: int) -> str:
            return str(row)

    assert drawn_pool(Split(), 1.0, 1) == set(map(str, range(50)))
    assert len(drawn_pool(Split(), 0.001, 1)) == 1
    pool = drawn_pool(Split(), 0.2, 1)
    assert len(pool) == 10
    assert pool == drawn_pool(Split(), 0.2, 1) != drawn_pool(Split(), 0.2, 2)


def test_insertion_is_trained_by_its_own_variant_and_told_by_the_name_that_was_asked_for() -> None:
    assert training_names("none") == training_names("search") == ()
    assert training_names("sow, search") == ("sow",)
    assert training_names("all") == ("iiw-training", "rsw", "sow", "rlw-half", "rlw-1", "rnpv", "ngr")
    rules = training_rules(training_names("iiw,sow,iiw-training"), RESOURCES, GROUP)
    assert [rule.name for rule in rules] == ["iiw-training", "sow"]
    assert list(map(evaluated_name, rules)) == ["iiw", "sow"]


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'iiw'"):
        training_names("iww")
    file = tmp_path / "own.py"
    file.write_text(
        "class Mine:\n    name, attacks, keeps_labels = 'mine', 'context', True\n"
        "    def apply(self, groups, seeds):\n        raise AssertionError\n"
    )
    with pytest.raises(ConfigError, match="edits contexts"):
        training_rules((f"{file}:Mine",), RESOURCES, GROUP)
    with pytest.raises(ConfigError, match="same name"):
        training_rules(("sow", "sow"), RESOURCES, GROUP)


def test_by_weights_a_context_meets_one_of_the_rules() -> None:
    rules = [Marked("rare", "negatives", False, ("rare",)), Marked("often", "negatives", False, ("often",))]
    groups = [replace(GROUP, key=f"train-{number}") for number in range(200)]
    met = Counter(
        {reply[-1] for reply in changed.candidates[len(GROUP.candidates) :]}.pop()
        for changed in Adversaries(rules, 1, weights=(1.0, 3.0))(groups)
    )
    assert met.total() == 200
    assert 30 <= met["rare"] <= 70
    both = Adversaries(rules, 1)(groups[:1])[0]
    assert {reply[-1] for reply in both.candidates[len(GROUP.candidates) :]} == {"rare", "often"}, "all of them without weights"


def test_several_draws_make_several_adversaries_of_a_context_and_none_twice() -> None:
    class Drawn(Marked):
        def apply(self, groups: Sequence[CandidateGroup], seeds: Sequence[int]) -> list[Attacked]:
            marks = [Marked("drawn", "negatives", True, (f"mark{seed % 2}",)) for seed in seeds]
            return [mark.apply([group], [seed])[0] for mark, group, seed in zip(marks, groups, seeds, strict=True)]

    rule = Drawn("drawn", "negatives", True)
    once, often = (Adversaries([rule], 1, again=again)([GROUP])[0] for again in (0, 11))
    marked = {words for words in often.candidates if words[-1].startswith("mark")}
    assert {words[-1] for words in marked} == {"mark0", "mark1"}
    assert len(often.candidates) == len(set(often.candidates)), "a reply is made once"
    assert set(once.candidates) <= set(often.candidates)
    assert often.labels.count(True) == GROUP.labels.count(True)
    both = Adversaries([rule], 1, again=1, weights=(1.0,))([GROUP])[0]
    assert set(both.candidates) <= set(often.candidates)
    other = replace(GROUP, key="train-0000002")
    more, fewer = Adversaries([rule], 1, {GROUP.key}, again=1)([GROUP, other])
    assert more == Adversaries([rule], 1, again=1)([GROUP])[0]
    assert fewer == Adversaries([rule], 1)([other])[0]
