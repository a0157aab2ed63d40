"""What every registered strategy promises, whoever wrote it: properties over contexts of all shapes.

Strategies run with the lexicon written for this project, so that nothing needs data; one that needs a model is skipped with the
reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.engine.perturb.catalogue import (
    ADDED,
    ENTITY,
    GROUPS,
    SHOULD_CHANGE,
    SHOULD_NOT_CHANGE,
    Resources,
    build,
    names,
    require_names,
    strategies,
)
from parley.engine.perturb.strategy import Expectation, PerturbSettings, Strategy
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.corpora.pairs.turns import Turns, parse_turns
from tests.engine.perturb.fakes import WORDS

NEED_A_MODEL = {
    "generative-paraphrase": "needs a trained paraphraser; tests/engine/perturb/strategies/test_generative.py makes one"
}
NAMES = [
    pytest.param(name, marks=pytest.mark.skip(reason=NEED_A_MODEL[name])) if name in NEED_A_MODEL else name
    for name in strategies
]
SAID = """i tried to install the old packages twice , but it does n't work and the disks are full . what can i do ?
you should open the file and run it again ; it was closed on monday morning , is that right ?
do you know a good way to start the new machine with a big screen"""
KNOWN = [*WORDS, *SAID.split()]
STRANGE = ["ünïcødé", "\N{GRINNING FACE}", "中文", "zz9", "--", "a-b"]
utterances = st.one_of(
    st.sampled_from([tuple(line.split()) for line in SAID.splitlines()]),
    st.lists(st.sampled_from([*KNOWN, *STRANGE]), max_size=25).map(tuple),
)
contexts = st.lists(st.lists(utterances, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple)
seeds = st.integers(0, 2**63 - 1)
VOCABULARIES = [frozenset(KNOWN), frozenset(KNOWN[::2]), frozenset(KNOWN[1::2]), frozenset({"the", "disk", "not"})]


@pytest.fixture(scope="module")
def entities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("entities") / "entities.tsv"
    path.write_text("disk\tthing\nnew machine\tthing\nold\tkind\nbig screen\tthing\nzz9 zz9\tthing\nfull\tkind\n")
    return path


@cache
def made(name: str, entities: Path, rule: str, words: frozenset[str] | None = None, copy: int = 0) -> Strategy:
    """A strategy; another one for every copy, because some remember what they have seen."""
    chosen = PerturbSettings(rule=rule, lexicon="built-in", entities=entities)  # type: ignore[arg-type]
    (strategy,) = build([name], chosen, Resources(chosen, words, sorted(set(KNOWN))))
    return strategy


def shape(turns: Turns) -> list[int]:
    return [len(turn) for turn in turns]


@pytest.mark.parametrize("rule", ["paper", "released"])
@pytest.mark.parametrize("name", NAMES)
class TestEveryStrategy:
    @settings(max_examples=25, deadline=None)
    @given(batch=st.lists(contexts, min_size=1, max_size=3), data=st.data())
    def test_a_context_is_perturbed_alone_and_keeps_its_boundaries(
        self, name: str, rule: str, entities: Path, batch: Sequence[Turns], data: st.DataObject
    ) -> None:
        strategy = made(name, entities, rule)
        chosen = data.draw(st.lists(seeds, min_size=len(batch), max_size=len(batch)))
        after = strategy.perturb(batch, chosen)
        again = made(name, entities, rule, copy=1)
        assert after == [again.perturb([turns], [seed])[0] for turns, seed in zip(batch, chosen, strict=True)]
        assert after[::-1] == strategy.perturb(batch[::-1], chosen[::-1])
        for old, new in zip(batch, after, strict=True):
            assert shape(old) == shape(new)
            for words, others in zip((u for turn in old for u in turn), (u for turn in new for u in turn), strict=True):
                assert isinstance(others, tuple)
                assert words or not others, "an empty utterance was filled"

    @settings(max_examples=25, deadline=None)
    @given(turns=contexts, seed=seeds, words=st.sampled_from(VOCABULARIES))
    def test_only_words_that_the_model_knows_enter(
        self, name: str, rule: str, entities: Path, turns: Turns, seed: int, words: frozenset[str]
    ) -> None:
        if name in ADDED:
            pytest.skip("what nobody knows enters: slips of people are unknown words too")
        (after,) = made(name, entities, rule, words).perturb([turns], [seed])
        for old, new in zip(turns, after, strict=True):
            for before, others in zip(old, new, strict=True):
                assert set(others) <= words | set(before)

    def test_no_context_and_contexts_without_words_are_left_alone(self, name: str, rule: str, entities: Path) -> None:
        strategy = made(name, entities, rule)
        empty: list[Turns] = [(((),),), (((), ()), ((),))]
        assert strategy.perturb([], []) == []
        assert strategy.perturb(empty, [1, 2]) == empty

    def test_it_does_something_to_plain_sentences(self, name: str, rule: str, entities: Path) -> None:
        said = [parse_turns(line) for line in SAID.splitlines() * 10]
        strategy = made(name, entities, rule)
        assert strategy.perturb(said, range(len(said))) != said

    def test_it_says_what_it_is(self, name: str, rule: str, entities: Path) -> None:
        strategy = made(name, entities, rule)
        assert strategy.name == name
        changes = name in (*SHOULD_CHANGE, *ENTITY)
        assert strategy.expectation is (Expectation.SHOULD_CHANGE if changes else Expectation.SHOULD_NOT_CHANGE)


def test_every_registered_strategy_is_in_one_group_or_named_by_itself() -> None:
    grouped = [*SHOULD_NOT_CHANGE, *SHOULD_CHANGE, *ENTITY, *ADDED]
    assert sorted(grouped) == list(strategies)


def test_names_and_groups_may_be_mixed_and_count_once() -> None:
    assert names("antonym, should-change,random-swap") == ("antonym", "add-negation", "random-swap")
    assert names("all") == GROUPS["should-not-change"] + GROUPS["should-change"]


def test_a_strategy_that_does_not_exist_is_an_error(entities: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'antonym'"):
        made("antonyms", entities, "paper")


def test_a_control_replaces_as_many_words_of_each_utterance_as_its_strategy_changes() -> None:
    built_in = PerturbSettings(lexicon="built-in")
    resources = Resources(built_in, common=WORDS)
    strategy, control = build(["stopword-dropout", "stopword-dropout:random-words"], built_in, resources)
    contexts = [parse_turns(line) for line in SAID.splitlines()]
    seeds = list(range(len(contexts)))
    after, drawn = strategy.perturb(contexts, seeds), control.perturb(contexts, seeds)
    assert control.name == "stopword-dropout:random-words"
    for before, changed, replaced in zip(contexts, after, drawn, strict=True):
        for turn, of_strategy, of_control in zip(before, changed, replaced, strict=True):
            for words, fewer, others in zip(turn, of_strategy, of_control, strict=True):
                differ = [other for word, other in zip(words, others, strict=True) if word != other]
                assert len(differ) == len(words) - len(fewer)
                assert {*differ} <= {*WORDS}
    assert after != contexts
    with pytest.raises(DataError, match="no words to draw from"):
        build(["random-swap:random-words"], built_in, Resources(built_in))
    with pytest.raises(ConfigError, match=r"random-swop:random-words(.|\n)*NAME:random-words"):
        require_names("random-swop:random-words")
