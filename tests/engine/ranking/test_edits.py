"""What moves propose, what constraints allow, and which attacks settings stand for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.lexicon.tagger import NGrams
from parley.engine.perturb.replies.catalogue import build_rules
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.perturb.replies.shapes import RuleResources
from parley.engine.perturb.strategy import PerturbSettings
from parley.engine.ranking.attacks.attack import DraftBatch, FixedRule, RankAttack, Steps
from parley.engine.ranking.attacks.cases import (
    BY_NAME,
    NEW,
    Case,
    CloseInMeaning,
    Constraint,
    Draft,
    Fluent,
    KeptTags,
    KnownWords,
    MeanVectors,
)
from parley.engine.ranking.attacks.catalogue import compose_attack, rank_attacks
from parley.engine.ranking.attacks.settings import AttackSettings
from parley.envs.core.errors import ConfigError, OutOfRangeError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.edit_game import RankGoal
from tests.engine.ranking.fakes import Sum, Toy, attack, group


class Listens:
    """A method that keeps the example and asks about nothing."""

    def __init__(self) -> None:
        self.cases: list[Case] = []

    def steps(self, case: Case) -> Steps:
        self.cases.append(case)
        yield DraftBatch(())


def case(
    reply: str, context: Sequence[str] = ("n1 n2 v1", "the n3 a1"), constraints: Sequence[Constraint] = (), edits: int = 3
) -> Case:
    method = Listens()
    names = ("context", "synonym", "insertion", "deletion", "swap")
    made = attack(Sum({"top": 9.0}), constraints, method=method, moves=[BY_NAME[name] for name in names], edits=edits)
    made.run([group(["top", reply, "other n1"], context)], [0])
    return method.cases[0]


def proposed(of: Case, move: str, draft: Draft | None = None) -> list[str]:
    draft = draft or of.original
    places = range(len(draft.words) + 1)
    return [" ".join(draft.after(each).words) for place in places for each in BY_NAME[move].changes(of, draft, place)]


def test_context_words_of_the_same_tag_enter_those_of_the_newest_turn_first() -> None:
    assert proposed(case("the n7 is v1"), "context") == ["the n3 is v1", "the n1 is v1", "the n2 is v1"]
    assert proposed(case("n3 v7"), "context") == ["n1 v7", "n2 v7", "n3 v1"]


def test_synonyms_enter_but_not_for_names_and_commands_nor_behind_a_wrong_article() -> None:
    assert proposed(case("the big n7"), "synonym") == ["the large n7"]
    assert proposed(case("big cat quick run"), "synonym") == ["large cat quick run", "huge cat quick run", "big cat quick go"]


def test_words_come_in_go_and_change_places() -> None:
    of = case("n7 is", context=("n1 v1",))
    assert proposed(of, "insertion") == ["n1 n7 is", "v1 n7 is", "n7 n1 is", "n7 v1 is", "n7 is n1", "n7 is v1"]
    assert proposed(of, "deletion") == ["is", "n7"]
    assert proposed(of, "swap") == ["is n7"]
    single = case("n7", context=("n1",))
    assert (proposed(single, "deletion"), proposed(single, "swap")) == ([], [])
    assert proposed(case("n7 n7 v7"), "swap") == ["n7 v7 n7"]


def test_a_word_is_edited_once_and_costs_add_up() -> None:
    of = case("n7 v7 a7")
    swapped = of.original.after(next(iter(BY_NAME["swap"].changes(of, of.original, 0))))
    assert (swapped.words, swapped.tags, swapped.sources) == (("v7", "n7", "a7"), ("v", "n", "a"), (1, 0, 2))
    assert (swapped.edited, swapped.cost) == ((True, True, False), 2)
    assert [swapped.position_of(source) for source in range(4)] == [1, 0, 2, 3]
    assert proposed(of, "context", swapped) == ["v7 n7 a1"]
    assert proposed(of, "deletion", swapped) == ["v7 n7"]
    assert proposed(of, "swap", swapped) == []
    longer = swapped.after(next(iter(BY_NAME["insertion"].changes(of, swapped, 3))))
    assert (longer.sources, longer.cost, longer.position_of(3)) == ((1, 0, 2, NEW), 3, 4)
    erased = of.original.without(1)
    assert (erased.words, erased.position_of(1), erased.position_of(2)) == (("n7", "a7"), None, 1)


@given(st.lists(st.sampled_from(("n7", "v7", "a7", "the", "big")), max_size=5), st.integers(1, 4), st.data())
@settings(max_examples=60)
def test_every_proposal_keeps_to_what_is_asked(reply: list[str], edits: int, data: st.DataObject) -> None:
    of = case(" ".join(reply), constraints=[KeptTags(Toy())], edits=edits)
    draft = of.original
    while proposals := of.proposals(draft, range(len(draft.words) + 1)):
        assert len({each.words for each in proposals}) == len(proposals)
        for each in proposals:
            assert draft.cost < each.cost <= edits
            assert each.words not in of.group.candidates
            assert [word[0] for word in each.words] == list(each.tags)
            unedited = [word for word, edited in zip(each.words, each.edited, strict=True) if not edited]
            sources = [source for source, edited in zip(each.sources, each.edited, strict=True) if not edited]
            assert unedited == [of.original.words[source] for source in sources]
        draft = data.draw(st.sampled_from(proposals))


def allowed(of: Case, constraint: Constraint, texts: Sequence[str]) -> list[bool]:
    """Of texts as long as the reply, each word that differs edited."""
    drafts = []
    for text in texts:
        draft = of.original
        for place, word in enumerate(text.split()):
            if word != draft.words[place]:
                draft = draft.after(draft.replaced(place, word, "made up"))
        drafts.append(draft)
    return list(constraint.allows(of, drafts))


def test_words_that_enter_are_known_and_tags_stay() -> None:
    of = case("n7 z7")
    assert allowed(of, KnownWords({"n7", "n8"}), ["n8 z7", "n9 z7", "n7 n8"]) == [True, False, True]
    assert allowed(of, KeptTags(Toy()), ["n8 z7", "v8 z7"]) == [True, False]


def test_what_reads_worse_than_the_limit_is_not_allowed() -> None:
    said: list[Utterance] = [("it", "is", "on"), ("it", "is", "off"), ("is", "it", "on")] * 5
    ngrams, of = NGrams(said), case("it is on")
    before, same, worse = (
        float(np.exp(-nats.mean()))
        for nats in ngrams.log_probabilities([("it", "is", "on"), ("it", "is", "off"), ("on", "is", "off")])
    )
    assert before == pytest.approx(same, rel=0.5)
    between = (same / before + worse / before) / 2
    assert allowed(of, Fluent(ngrams, between), ["it is off", "on is off"]) == [True, False]
    assert allowed(of, Fluent(ngrams, worse / before * 1.001), ["on is off"]) == [True]


def test_what_means_something_else_is_not_allowed() -> None:
    table = {
        "warm": np.array([1.0, 0.1]),
        "hot": np.array([1.0, 0.2]),
        "cold": np.array([-1.0, 0.1]),
        "it": np.array([0.0, 0.1]),
    }
    of, constraint = case("it warm"), CloseInMeaning(MeanVectors(table, 2), 0.9)
    assert allowed(of, constraint, ["it hot", "it cold", "it unknown", "what unknown"]) == [True, False, False, False]
    assert MeanVectors(table, 2)([(), ("it", "warm")]).tolist() == [[0.0, 0.0], [0.5, 0.1]]


class Rule:
    """Writes a word at the end of wrong replies, and keeps one of them as it is."""

    name, attacks, keeps_labels = "toy-rule", "negatives", True

    def apply(self, groups: Sequence[Any], seeds: Sequence[int]) -> list[Any]:
        from collections import namedtuple
        from dataclasses import replace

        made = namedtuple("made", "group changed")
        found = []
        for of in groups:
            changed = tuple(int(not label and words != ("n9",)) for words, label in zip(of.candidates, of.labels, strict=True))
            replies = tuple(
                (*words, f"n{3 + seeds[0]}") if change else words for words, change in zip(of.candidates, changed, strict=True)
            )
            found.append(made(replace(of, candidates=replies), changed))
        return found


def test_a_fixed_rule_is_an_attack_of_one_query() -> None:
    rule: Any = Rule()
    made = attack(Sum({"top": 1.0, "n3": 2.0}), method=FixedRule(rule))
    assert "method: FixedRule(toy-rule)" in repr(made)
    (hit,), (miss,), (kept,) = (
        made.run([group(["top", reply])], [seed]) for reply, seed in (("n7 v7", 0), ("n7", 1), ("n9", 0))
    )
    assert (hit.status, hit.words, hit.edited, hit.cost) == ("success", ("n7", "v7", "n3"), (False, False, True), 1)
    assert (hit.queries, miss.queries, kept.queries) == (1, 1, 0)
    assert (miss.status, kept.status) == ("failure", "failure")


def test_a_fixed_rule_changes_the_attacked_reply_whatever_others_there_are() -> None:
    (rule,) = build_rules(["copy-1"], RuleResources(ReplySettings(), Resources(PerturbSettings(lexicon="built-in"))))
    of = group(["top", *(f"n{number} v7" for number in range(1, 9))], context=["n1 n2 n3"])
    ranker = Sum({"top": 9.0, "n5": 1.0})
    (outcome,) = attack(ranker, method=FixedRule(rule)).run([of], [0])
    assert (outcome.index, outcome.queries, ranker.asked[-1]) == (5, 1, ("n1", "n2", "n3")), "one of eight is copied to"


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("iiw", "promote", "thanks for the printer"),
        ("ngr", "demote", "i am sorry can you repeat"),
        ("rnpv", "demote", "i restarted printer it works"),
        ("copy-1", "promote", "my printer is broken"),
    ],
)
def test_rules_of_the_paper_are_attacks_of_one_query(name: str, kind: Any, words: str) -> None:
    said = (("my", "printer", "is", "broken"),)
    resources = RuleResources(
        ReplySettings(), Resources(PerturbSettings(lexicon="built-in")), contexts={"training": [said], "evaluated": [said]}
    )
    (rule,) = build_rules([name], resources)
    of = group(["i restarted the printer , and now it works", "thanks for the message"], context=["my printer is broken"])
    made = RankAttack(Sum({}), resources.language, goal=RankGoal(kind), method=FixedRule(rule))
    (outcome,) = made.run([of], [3])
    asked = made.ranker.asked[2:]  # type: ignore[attr-defined]
    assert [" ".join(text) for text in asked] == [words]
    assert (outcome.status, outcome.queries) == ("failure", 1)


def test_settings_stand_for_an_attack() -> None:
    ngrams, ranker = NGrams([("n1", "n7")]), Sum({})
    made = compose_attack(
        ranker,
        Toy(),
        AttackSettings(
            method="beam", beams=7, edits=2, budget=50, max_perplexity_ratio=2.0, min_cosine=0.5, moves=("swap", "context")
        ),
        vocabulary={"n1"},
        ngrams=ngrams,
        vectors=MeanVectors({}, 3),
    )
    lines = repr(made).splitlines()
    assert lines[3:10] == [
        "  method: EditBeam(beams=7)",
        "  moves: swap, context",
        "  constraints:",
        "    AtMostWords(edits=2)",
        "    NoOtherCandidate()",
        "    KnownWords()",
        "    Fluent(ratio=2.0)",
    ]
    assert lines[10:12] == ["    CloseInMeaning(cosine=0.5)", "    KeptTags()"]
    assert [move.name for move in compose_attack(ranker, Toy(), AttackSettings(goal="demote")).moves] == ["synonym"]


@pytest.mark.parametrize("name", list(rank_attacks))
def test_every_registered_method_runs(name: str) -> None:
    made = compose_attack(Sum({"top": 2.0, "n1": 1.5, "n2": 1.0}), Toy(), AttackSettings(method=name))
    (outcome,) = made.run([group(["top", "n7 n8 v7"])], [0])
    assert (outcome.status, outcome.ranks()) == ("success", (2.0, 1.0))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"max_perplexity_ratio": 2.0}, r"nothing to judge max_perplexity_ratio(.|\n)*ngrams"),
        ({"min_cosine": 0.8}, r"nothing to judge min_cosine(.|\n)*vectors"),
        ({"method": "gready"}, "did you mean 'greedy'"),
    ],
)
def test_what_cannot_be_composed_is_named(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        compose_attack(Sum({}), Toy(), AttackSettings(**settings))


@pytest.mark.parametrize(
    "settings",
    [{"moves": ("rewrite",)}, {"goal": "win"}, {"target": "worst"}, {"edits": 0}, {"budget": 0}, {"min_cosine": 1.2}],
)
def test_settings_out_of_range_are_named(settings: dict[str, Any]) -> None:
    with pytest.raises(OutOfRangeError, match=next(iter(settings))):
        AttackSettings(**settings)


OWN = """
from parley.engine.ranking.attacks.attack import DraftBatch

class First:
    def steps(self, case):
        yield DraftBatch(case.proposals(case.original, range(len(case.original.words)))[:1])

class Nothing:
    pass
"""


def test_a_method_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    made: RankAttack = compose_attack(Sum({"top": 9.0}), Toy(), AttackSettings(method=f"{tmp_path}/mine.py:First"))
    assert made.run([group(["top", "n7 n8"])], [0])[0].queries == 1
    with pytest.raises(ConfigError, match="no method of attacks"):
        compose_attack(Sum({}), Toy(), AttackSettings(method=f"{tmp_path}/mine.py:Nothing"))
