"""The search for adversarial sentences against one written out sentence by sentence, and what may never happen in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.engine.negotiation.attacks import replacement
from parley.engine.negotiation.attacks.replacement import ReplacementResult, preemptive, reactive
from parley.engine.negotiation.attacks.settings import SearchConfig
from parley.envs.negotiation.domain import EOS_ID, PAD_ID, SELECTION_ID, UNK_ID
from parley.policies.negotiator.speaker import NegotiatorAgent
from tests.engine.negotiation.searches import SPECIALS, TARGET, Key, Oracle, Verdict, states
from tests.policies.negotiator.made_up import VOCABULARY, WORDS, negotiator

SOMEWHERE = list(range(16))
EVERYWHERE = SearchConfig(proposals="exhaustive")
FEW_REPLIES = SearchConfig(proposals="exhaustive", replies=3, screening_replies=3, preemptive_goal=2.0)
LOSSES = [{"loss": "hinge"}, {"loss": "hinge", "kappa": 2.0}, {"loss": "released"}, {"loss": "outcome"}]
REACTIVE = [
    *({"proposals": proposals, **loss} for proposals in ("pad-scan", "exhaustive") for loss in LOSSES),
    {"constraint": "soft", "loss": "released", "proposals": "exhaustive"},
    {"constraint": "soft", "penalty": 3.0, "proposals": "pad-scan"},
    {"end_margin": 0.5},
    {"stop_at_goal": True, "goal": 1.0},
    {"allow_special": True, "proposals": "exhaustive"},
    {"max_replacements": 4},
]


def reacted(config: SearchConfig, indices: list[int] = SOMEWHERE, target: NegotiatorAgent = TARGET) -> list[ReplacementResult]:
    exchanges, sentences, generators = states(indices)
    return reactive(target, exchanges, sentences, config, generators)


def preempted(
    config: SearchConfig, indices: list[int] = SOMEWHERE, target: NegotiatorAgent = TARGET
) -> list[ReplacementResult]:
    exchanges, sentences, generators = states(indices)
    return preemptive(target, exchanges, sentences, config, generators)


@pytest.fixture
def brief_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random networks seldom end an utterance; what is written out word by word should end soon."""
    monkeypatch.setattr(replacement, "REPLY_WORDS", 4)


def oracle(index: int, config: SearchConfig, target: NegotiatorAgent = TARGET) -> Oracle:
    return Oracle(target, index, config)


def edited(sentence: list[int], position: int, word: int) -> list[int]:
    return [*sentence[:position], word, *sentence[position + 1 :]]


def by_hand(
    judge: Callable[[list[int]], Verdict], sentence: list[int], config: SearchConfig, goal: float
) -> list[tuple[int, int, Verdict]]:
    """The greedy search in plain Python: (position, word, verdict) of each step, the untouched sentence first."""
    words = [i for i in range(len(VOCABULARY)) if i != EOS_ID and (config.allow_special or i not in SPECIALS)]
    steps = [(-1, -1, judge(sentence))]
    while len(steps) <= config.max_replacements:
        last = steps[-1][2]
        if len(sentence) == 1 or (config.stop_at_goal and not last.broken and last.advantage >= goal):
            break
        positions = list(range(len(sentence) - 1))
        if config.proposals == "pad-scan":
            keys = [judge(edited(sentence, position, PAD_ID)).key for position in positions]
            positions = [keys.index(min(keys))]
        tried = [(p, w, judge(edited(sentence, p, w))) for p, w in itertools.product(positions, words)]
        best = min(tried, key=lambda step: step[2].key)
        if best[2].key >= last.key:
            break
        steps.append(best)
        sentence = edited(sentence, best[0], best[1])
    return steps


def assert_found(found: ReplacementResult, wanted: list[tuple[int, int, Verdict]], config: SearchConfig) -> None:
    assert [(step.position, step.word) for step in found.steps] == [(p, w) for p, w, _ in wanted]
    for step, (_, _, verdict) in zip(found.steps, wanted, strict=True):
        assert step.broken == verdict.broken
        assert step.loss == pytest.approx(verdict.loss, abs=1e-3)
        assert step.points == pytest.approx(verdict.points)
        assert step.advantage == pytest.approx(verdict.advantage)


def key_of(found: ReplacementResult, number: int) -> Key:
    step = found.steps[number]
    return step.broken, round(step.loss / 1e-4), -step.advantage


@pytest.mark.parametrize("options", REACTIVE, ids=lambda options: " ".join(map(str, options.values())))
def test_a_reactive_search_takes_the_steps_of_one_written_out(options: dict[str, object]) -> None:
    config = replace(SearchConfig(), **options)
    lengths = []
    for index, found in enumerate(reacted(config)):
        told = oracle(index, config)
        wanted = by_hand(told.judge, told.sentence, config, config.goal)
        assert_found(found, wanted, config)
        lengths.append(len(wanted))
    assert len(set(lengths)) > 1, "searches of one length would prove little"


@pytest.mark.parametrize("seed", [1, 6, 20, 25])
def test_so_does_a_search_against_another_target(seed: int) -> None:
    target = NegotiatorAgent(negotiator(seed), "another", temperature=1.0)
    config = SearchConfig(goal=3.0, stop_at_goal=True)
    for index, found in enumerate(reacted(config, target=target)):
        told = oracle(index, config, target)
        assert_found(found, by_hand(told.judge, told.sentence, config, config.goal), config)


def test_the_second_word_is_the_best_beside_the_first_of_all_pairs() -> None:
    """Every pair of replacements, enumerated; the search is greedy, so it may miss the best pair but never beat it."""
    seen = 0
    for index, found in enumerate(reacted(EVERYWHERE)):
        told = oracle(index, EVERYWHERE)
        places = range(len(told.sentence) - 1)
        if len(found.steps) < 3 or len(places) > 3:
            continue
        seen += 1
        first = found.steps[1]
        keys = {
            (p, v, q, w): told.judge(edited(edited(told.sentence, p, v), q, w)).key
            for p, v, q, w in itertools.product(places, WORDS.tolist(), places, WORDS.tolist())
        }
        beside = {pair[2:]: key for pair, key in keys.items() if pair[:2] == (first.position, first.word)}
        assert beside[found.steps[2].position, found.steps[2].word] == min(beside.values())
        assert min(keys.values()) <= key_of(found, 2)
    assert seen >= 3


def test_a_reactive_search_says_how_the_target_would_answer() -> None:
    ends = []
    for index, found in enumerate(reacted(SearchConfig())):
        told, sentence = oracle(index, SearchConfig()), found.sentence.tolist()
        assert found.end_probability == pytest.approx(told.end_probability(sentence), abs=1e-4)
        assert found.ends == (told.gap(sentence) <= 0)
        ends.append(found.ends)
    assert set(ends) == {True, False}


@pytest.mark.parametrize("options", REACTIVE[::3], ids=lambda options: " ".join(map(str, options.values())))
def test_what_reached_its_goal_keeps_the_constraint_and_pays(options: dict[str, object]) -> None:
    config, num_reached = replace(SearchConfig(goal=2.0), **options), 0
    for index, found in enumerate(reacted(config)):
        told, sentence = oracle(index, config), found.sentence.tolist()
        _, earned = told.chosen([*told.said(sentence), SELECTION_ID])
        verdict = told.judge(sentence)
        pays = verdict.loss <= -config.goal if config.loss == "released" else earned[0] - earned[1] >= config.goal
        reached = not verdict.broken and pays
        assert found.reached == reached
        if config.constraint == "hard":
            assert found.ends >= reached
        num_reached += reached
    assert num_reached > 0


@pytest.mark.parametrize("search", [reacted, preempted])
def test_what_is_found_can_be_written_down(search: Callable[[SearchConfig], list[ReplacementResult]]) -> None:
    """Plain Python values, which every format of a row takes."""
    for found in search(SearchConfig(goal=1.0, preemptive_goal=1.0, replies=3)):
        assert {type(found.reached), type(found.ends)} == {bool}
        assert {type(found.end_probability)} == {float}
        assert {type(found.reads), type(found.decisions)} == {int}
        for step in found.steps:
            assert [type(value) for value in vars(step).values()] == [int, int, bool, float, tuple, int, int]


def test_a_search_by_gradient_leaves_the_target_as_it_was() -> None:
    before = {name: value.clone() for name, value in TARGET.model.state_dict().items()}
    reacted(SearchConfig(proposals="gradient"))
    assert not TARGET.model.training
    for name, parameter in TARGET.model.named_parameters():
        assert parameter.grad is None
        assert parameter.equal(before[name])


@pytest.mark.parametrize("search", [reacted, preempted])
@pytest.mark.parametrize("proposals", ["pad-scan", "exhaustive", "gradient", "random"])
def test_sentences_keep_to_the_rules(
    search: Callable[[SearchConfig, list[int]], list[ReplacementResult]], proposals: str
) -> None:
    config = SearchConfig(proposals=proposals, max_replacements=3, replies=3)
    num_replaced = []
    for index, found in enumerate(search(config, list(range(24)))):
        before = np.array(oracle(index, config).sentence)
        assert found.sentence.shape == before.shape
        assert found.sentence[-1] == EOS_ID
        assert not SPECIALS & set(found.sentence.tolist())
        assert EOS_ID not in found.sentence[:-1]
        assert len(found.steps) - 1 <= config.max_replacements
        assert (found.sentence != before).sum() <= len(found.steps) - 1
        for step in found.steps[1:]:
            before[step.position] = step.word
        assert found.sentence.tolist() == before.tolist()
        keys = [key_of(found, number) for number in range(len(found.steps))]
        assert all(late < early for early, late in itertools.pairwise(keys))
        queries = [(step.reads, step.decisions) for step in found.steps]
        assert all(late[0] > early[0] and late[1] >= early[1] for early, late in itertools.pairwise(queries))
        assert (found.reads, found.decisions) >= queries[-1]
        num_replaced.append(len(found.steps) - 1)
    assert max(num_replaced) >= 2


def test_special_tokens_enter_when_they_are_offered() -> None:
    config = replace(EVERYWHERE, allow_special=True, constraint="soft")
    said = set(np.concatenate([found.sentence[:-1] for found in reacted(config)]).tolist())
    assert said & SPECIALS
    assert EOS_ID not in said


def test_a_token_that_is_no_word_may_stand_in_the_sentence_to_begin_from() -> None:
    exchanges, sentences, _ = states([0, 1])
    sentences[0][0] = UNK_ID
    found = reactive(TARGET, exchanges, sentences, replace(EVERYWHERE, max_replacements=1))
    told = oracle(0, EVERYWHERE)
    wanted = by_hand(told.judge, sentences[0].tolist(), replace(EVERYWHERE, max_replacements=1), 11.0)
    assert_found(found[0], wanted, EVERYWHERE)


@pytest.mark.parametrize("proposals", ["pad-scan", "exhaustive"])
def test_queries_are_counted(proposals: str) -> None:
    """The reader is asked about every candidate, the choice of those alone that keep the constraint."""
    config, num_kept = SearchConfig(proposals=proposals, max_replacements=1), []
    for index, found in enumerate(reacted(config)):
        told = oracle(index, config)
        tried = [told.sentence]
        places = list(range(len(told.sentence) - 1))
        if proposals == "pad-scan":
            padded = [edited(told.sentence, place, PAD_ID) for place in places]
            tried += padded
            keys = [told.judge(sentence).key for sentence in padded]
            places = [keys.index(min(keys))]
        tried += [edited(told.sentence, place, word) for place in places for word in WORDS.tolist()]
        assert found.reads == len(tried)
        assert found.decisions == sum(not told.judge(sentence).broken for sentence in tried)
        num_kept.append(found.decisions - found.reads)
    assert min(num_kept) < 0
    soft = reacted(replace(config, constraint="soft"))
    assert all(found.decisions == found.reads for found in soft)


def test_a_search_that_is_content_at_once_asks_once() -> None:
    for found in reacted(SearchConfig(constraint="soft", goal=-10.0, stop_at_goal=True)):
        assert (len(found.steps), found.reads, found.decisions) == (1, 1, 1)
    for found in preempted(replace(FEW_REPLIES, preemptive_goal=-10.0, stop_at_goal=True)):
        assert len(found.steps) == 1
        assert found.reached


def test_a_sentence_without_words_stays_as_it_is() -> None:
    exchanges, sentences, generators = states([0, 1, 2])
    sentences[1] = np.array([EOS_ID])
    for proposals in ("pad-scan", "exhaustive", "gradient", "random"):
        config = replace(FEW_REPLIES, proposals=proposals)
        for found in (
            reactive(TARGET, exchanges, sentences, config, generators),
            preemptive(TARGET, exchanges, sentences, config, generators),
        ):
            assert found[1].sentence.tolist() == [EOS_ID]
            assert len(found[1].steps) == 1
            assert len(found[0].sentence) == len(sentences[0])


def test_a_gradient_that_proposes_every_word_finds_what_trying_all_does() -> None:
    proposed = reacted(SearchConfig(proposals="gradient", candidates=10_000))
    for theirs, ours in zip(reacted(EVERYWHERE), proposed, strict=True):
        assert [key_of(ours, i) for i in range(len(ours.steps))] == [key_of(theirs, i) for i in range(len(theirs.steps))]
        assert ours.reads == theirs.reads


def test_a_gradient_promises_more_than_chance() -> None:
    """The best of a few likely replacements beats the best of as many drawn ones in most dialogues."""
    config = SearchConfig(constraint="soft", candidates=4, max_replacements=1)
    likely = reacted(replace(config, proposals="gradient"), list(range(60)))
    drawn = reacted(replace(config, proposals="random"), list(range(60)))
    better = [key_of(a, -1) < key_of(b, -1) for a, b in zip(likely, drawn, strict=True)]
    worse = [key_of(a, -1) > key_of(b, -1) for a, b in zip(likely, drawn, strict=True)]
    assert sum(better) > 1.5 * sum(worse)


def same(ours: ReplacementResult, theirs: ReplacementResult) -> bool:
    """Equal but for rounding in the losses and probabilities."""
    return (
        ours.sentence.tolist() == theirs.sentence.tolist()
        and [(s.position, s.word, s.broken, s.points, s.reads, s.decisions) for s in ours.steps]
        == [(s.position, s.word, s.broken, s.points, s.reads, s.decisions) for s in theirs.steps]
        and [s.loss for s in ours.steps] == pytest.approx([s.loss for s in theirs.steps], abs=1e-3)
        and ours.end_probability == pytest.approx(theirs.end_probability, abs=1e-4)
        and (ours.reached, ours.ends, ours.reads, ours.decisions)
        == (theirs.reached, theirs.ends, theirs.reads, theirs.decisions)
    )


@pytest.mark.parametrize("search", [reacted, preempted])
@pytest.mark.parametrize("proposals", ["pad-scan", "exhaustive", "gradient", "random"])
def test_dialogues_searched_together_are_those_searched_alone(
    search: Callable[[SearchConfig, list[int]], list[ReplacementResult]], proposals: str
) -> None:
    config = SearchConfig(proposals=proposals, candidates=20, replies=4, stop_at_goal=True)
    together = search(config, list(range(10)))
    for index in range(10):
        assert same(together[index], search(config, [index])[0])


@cache
def in_order() -> list[list[ReplacementResult]]:
    """What the next test compares with; the same for all of its examples."""
    return [search(config, list(range(10))) for search, config in BOTH]


BOTH = ((reacted, SearchConfig()), (preempted, FEW_REPLIES))


@settings(deadline=None, max_examples=8)
@given(st.permutations(range(10)))
def test_dialogues_do_not_depend_on_their_place(order: list[int]) -> None:
    for (search, config), together in zip(BOTH, in_order(), strict=True):
        assert all(same(found, together[i]) for found, i in zip(search(config, order), order, strict=True))


@pytest.mark.parametrize("search", [reacted, preempted])
@pytest.mark.parametrize("proposals", ["pad-scan", "gradient", "random"])
def test_the_same_search_finds_the_same(search: Callable[[SearchConfig], list[ReplacementResult]], proposals: str) -> None:
    config = SearchConfig(proposals=proposals, candidates=20, replies=4)
    for ours, theirs in zip(search(config), search(config), strict=True):
        assert ours.steps == theirs.steps
        assert (ours.reached, ours.end_probability) == (theirs.reached, theirs.end_probability)


@pytest.mark.parametrize("loss", ["hinge", "released", "outcome"])
@pytest.mark.parametrize("proposals", ["pad-scan", "exhaustive"])
@pytest.mark.usefixtures("brief_replies")
def test_a_preemptive_search_takes_the_steps_of_one_written_out(proposals: str, loss: str) -> None:
    """All candidates meet the same draws, so that the means of one written out are those of the search."""
    config = replace(FEW_REPLIES, proposals=proposals, loss=loss)
    lengths = []
    for index, found in enumerate(preempted(config, list(range(5)))):
        told = oracle(index, config)

        def judge(sentence: list[int], told: Oracle = told) -> Verdict:
            return told.judge_replies(sentence, config.replies)

        wanted = by_hand(judge, told.sentence, config, config.preemptive_goal)
        assert_found(found, wanted, config)
        lengths.append(len(wanted))
    assert max(lengths) > 1


@pytest.mark.usefixtures("brief_replies")
def test_a_screened_candidate_wins_by_its_mean_over_all_replies() -> None:
    """Candidates are screened by a mean over few replies; the finalists' best mean over all of them is taken."""
    config = SearchConfig(proposals="exhaustive", max_replacements=1, replies=4, screening_replies=2, finalists=3)
    lengths = []
    for index, found in enumerate(preempted(config, list(range(6)))):
        told = oracle(index, config)
        before = told.judge_replies(told.sentence, 4)
        assert found.steps[0].loss == pytest.approx(before.loss, abs=1e-3)
        tried = [edited(told.sentence, p, w) for p in range(len(told.sentence) - 1) for w in WORDS.tolist()]
        finalists = sorted(tried, key=lambda sentence: told.judge_replies(sentence, 2).key)[:3]
        best = min((told.judge_replies(sentence, 4) for sentence in finalists), key=lambda verdict: verdict.key)
        assert (len(found.steps) > 1) == (best.key < before.key)
        if len(found.steps) > 1:
            assert found.steps[1].loss == pytest.approx(best.loss, abs=1e-3)
        lengths.append(len(found.steps))
    assert set(lengths) == {1, 2}


def test_a_preemptive_sentence_is_accepted_by_replies_that_the_search_has_not_met() -> None:
    """What the search is content with was chosen for its draws; on others, some of it is not good enough."""
    config = SearchConfig(replies=2, screening_replies=2, preemptive_goal=4.0, proposals="exhaustive")
    found = preempted(config, list(range(60)))
    content = [item.steps[-1].advantage >= config.preemptive_goal for item in found]
    accepted = [item.reached for item in found]
    assert 0 < sum(accepted) < sum(content)
    assert not any(late and not early for early, late in zip(content, accepted, strict=True))


@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_temperature_of_the_target(temperature: float) -> None:
    """The penalty of the released code counts logits over the temperature; a target without one says its likeliest word."""
    target = NegotiatorAgent(negotiator(19), "target", temperature)
    config = SearchConfig(constraint="soft", proposals="exhaustive", loss="released", max_replacements=1)
    for index, found in enumerate(reacted(config, target=target)):
        told = oracle(index, config, NegotiatorAgent(negotiator(19), "target", temperature or 1.0))
        assert_found(found, by_hand(told.judge, told.sentence, config, config.goal), config)
        if not temperature:
            assert found.end_probability == float(found.ends)
    replies = replace(FEW_REPLIES, replies=2, screening_replies=2)
    losses = [item.steps[0].loss for item in preempted(replies, target=target)]
    assert np.isfinite(losses).all()
