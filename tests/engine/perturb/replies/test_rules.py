"""What every rule promises, on any group: only the replies that it names change, and the same seed gives the same text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.engine.core.verbs.api import check_part
from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.replies.catalogue import QUESTIONS, SEVEN, build_rules, rule_names, rules
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.perturb.replies.shapes import Attacked, RuleResources
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.core.errors import ConfigError
from parley.envs.ranking.groups import CandidateGroup
from tests.engine.perturb.replies.groups import CONTEXTS, built_in, group

LINE = "i you the old disk disks works install installed packages very slowly can n't , ? 10.04 zzyzx <url> 'm e big begins"
WORDS = LINE.split()
utterances = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


@st.composite
def groups(draw: st.DrawFn) -> CandidateGroup:
    context = draw(st.lists(utterances, min_size=1, max_size=4))
    replies = draw(st.lists(st.tuples(st.booleans(), utterances), min_size=2, max_size=5))
    fixed = draw(st.sets(st.integers(0, len(replies) - 1)))
    written = [f"{'+' * label}{words}" for label, words in replies]
    return group("|".join(context), *written, fixed=tuple(fixed))


batches = st.lists(st.tuples(groups(), st.integers(0, 2**63 - 1)), max_size=4)
ALL = [*rules]
OPTIONS = ReplySettings(
    shuffled="words",
    rounding="up",
    repeated="anywhere",
    generic="several",
)


@pytest.mark.parametrize("options", [ReplySettings(), OPTIONS], ids=["defaults", "options"])
@pytest.mark.parametrize("name", ALL)
@settings(max_examples=15)
@given(batch=batches)
def test_only_what_the_rule_names_changes(name: str, options: ReplySettings, batch: list[tuple[CandidateGroup, int]]) -> None:
    (rule,) = built_in(name, settings=options)
    before, seeds = [each for each, _ in batch], [seed for _, seed in batch]
    after = rule.apply(before, seeds)
    assert len(after) == len(before)
    for old, (new, changed) in zip(before, after, strict=True):
        assert (new.key, new.context, new.labels, new.kinds, new.attackable) == (
            old.key,
            old.context,
            old.labels,
            old.kinds,
            old.attackable,
        )
        assert len(changed) == len(new.candidates) == len(old.candidates)
        for words, others, num, label, may in zip(
            old.candidates, new.candidates, changed, old.labels, old.attackable, strict=True
        ):
            assert (words != others) == (num > 0)
            assert others or not words
            if words != others:
                assert words
                assert may
                assert label is (rule.attacks == "positives")
    assert rule.apply(before, seeds) == after
    assert [rule.apply([each], [seed])[0] for each, seed in batch] == after


@pytest.mark.parametrize("name", ALL)
def test_every_rule_changes_plain_replies(name: str) -> None:
    (rule,) = built_in(name)
    plain = group(
        "how do i start the old machine ?|which disk do you use",
        "+we buy a big house , and it begins surprisingly quickly",
        "we often buy a new house",
        "he opened two windows and she closed them",
    )
    found = rule.apply([plain] * 9, range(9))
    assert any(num for _, changed in found for num in changed)
    assert (rule.name, rule.attacks, rule.keeps_labels) == (
        name,
        "negatives" if name.startswith(("iiw", "copy")) else "positives",
        name.startswith(("iiw", "copy")) or name in ("rsw", "typos"),
    )


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "odd",
    [
        group("", "+", ""),
        group("|", "+ok", "ok", "+ok"),
        group(", . ?|the of", "+the disk works", "a new disk works"),
        group("qzx vbn|wqk", "+zzx qqk", "vvk wwz"),
        group("disk " * 3000, "+disk works", "the house burns"),
        group("|".join(["the disk is full"] * 60), "+" + "very full " * 200, "no", "full"),
        group("一 二|三", "+四 五 六", "七 , 八"),
    ],
    ids=["nothing", "one word", "no content", "unknown", "long turn", "many turns", "other script"],
)
def test_no_group_is_too_strange(name: str, odd: CandidateGroup) -> None:
    (rule,) = built_in(name)
    (found,) = rule.apply([odd], [3])
    assert [bool(num) for num in found.changed] == [a != b for a, b in zip(odd.candidates, found.group.candidates, strict=True)]


def test_no_groups_are_no_trouble() -> None:
    for rule in built_in(",".join(ALL)):
        assert rule.apply([], []) == []


def test_names_and_groups_are_separated_by_commas() -> None:
    assert rule_names("all") == SEVEN
    assert rule_names("sow, all,copy-2 ,sow") == ("sow", "iiw", "rsw", "rlw-half", "rlw-1", "rnpv", "ngr", "copy-2")
    with pytest.raises(ConfigError, match="did you mean 'rlw-half'"):
        rule_names("rlw-hlf")
    with pytest.raises(ConfigError, match="no reply rule"):
        rule_names("character-noise")
    assert rule_names("iiw,questions,random-swap", questions=True) == ("iiw", *QUESTIONS["questions"])
    with pytest.raises(ConfigError, match="no reply rule is named"):
        rule_names(" , ")


def test_a_rule_of_ones_own_is_found_by_its_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "from parley.engine.perturb.replies.shapes import Attacked\n\n\nclass Mine:\n"
        "    name, attacks, keeps_labels = 'mine', 'positives', True\n\n"
        "    def apply(self, groups, seeds):\n"
        "        return [Attacked(group, (0,) * len(group.candidates)) for group in groups]\n"
    )
    name = f"{tmp_path / 'mine.py'}:Mine"
    assert rule_names(name) == (name,)
    (rule,) = built_in(name)
    plain = group("a", "+b", "c")
    assert rule.apply([plain], [1]) == [Attacked(plain, (0, 0))]


class Careless:
    """Edits all candidates, and counts nothing."""

    name, attacks, keeps_labels = "careless", "positives", True

    def apply(self, groups: list[CandidateGroup], seeds: list[int]) -> list[Attacked]:
        return [
            Attacked(replace(each, candidates=tuple(("x", *words) for words in each.candidates)), (0,) * len(each.candidates))
            for each in groups
        ]


def test_what_a_rule_of_ones_own_breaks_is_named() -> None:
    (found,) = check_part(Careless)
    assert found.kind.protocol == "parley.engine.perturb.replies.shapes.Rule"
    broken = {promise.text: promise.failure for promise in found.promises if promise.failure}
    assert broken.keys() == {
        "Change attackable replies of the rule's label only, and count the words that change",
        "Leave empty replies empty, and return no groups for none",
        "Change at least one of two plain groups, for some seed",
    }


@pytest.mark.parametrize("name", ["typos", "negation", "random-swap"])
def test_rules_of_english_refuse_another_language(name: str) -> None:
    resources = RuleResources(ReplySettings(), Resources(PerturbSettings(lexicon="built-in")), "zh")
    with pytest.raises(ConfigError, match="English alone"):
        build_rules([name], resources)


def test_iiw_asks_for_the_contexts_that_its_settings_name() -> None:
    shared = Resources(PerturbSettings(lexicon="built-in"))
    with pytest.raises(ConfigError, match=r"replies\.fitted_on=evaluated"):
        build_rules(["iiw"], RuleResources(ReplySettings(), shared, contexts={"evaluated": CONTEXTS}))
    with pytest.raises(ConfigError, match="evaluated contexts, which are not at hand"):
        build_rules(["iiw"], RuleResources(ReplySettings(fitted_on="evaluated"), shared, contexts={"training": CONTEXTS}))
