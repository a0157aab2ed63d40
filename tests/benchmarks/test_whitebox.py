"""The plain search finds what ours does, and the comparison of both sees where it does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.plain_attack import PlainAttack, Target
from benchmarks.whitebox import Comparison, compare, states
from parley.engine.negotiation.attacks.replacement import ExchangeBatch, ReplacementResult, ReplacementStep, reactive
from parley.engine.negotiation.attacks.settings import SearchConfig
from parley.envs.core.errors import ConfigError
from parley.envs.negotiation.domain import EOS_ID, SELECTION_ID
from parley.policies.negotiator.speaker import NegotiatorAgent
from tests.engine.negotiation import searches
from tests.policies.negotiator.made_up import VOCABULARY, WORDS, negotiator

SIZE = 12
RULES = [
    SearchConfig(),
    SearchConfig(stop_at_goal=True, goal=1.0, kappa=1.0),
    SearchConfig(proposals="exhaustive", constraint="soft", loss="released"),
]


def searched(agent: NegotiatorAgent, config: SearchConfig) -> tuple[ExchangeBatch, list[np.ndarray], list[ReplacementResult]]:
    exchanges, sentences, _ = searches.states(list(range(SIZE)))
    return exchanges, sentences, reactive(agent, exchanges, sentences, config)


def compared(agent: NegotiatorAgent, config: SearchConfig, row: int, found: ReplacementResult | None = None) -> Comparison:
    """One dialogue of ours, or what is claimed to be, beside the plain search."""
    exchanges, sentences, ours = searched(agent, config)
    plain, result = PlainAttack(Target(agent.model, agent.temperature), config), Comparison()
    compare(plain, exchanges, row, sentences[row], found or ours[row], result)
    return result


def first_replaced(agent: NegotiatorAgent, config: SearchConfig) -> tuple[int, ReplacementResult]:
    return next((row, item) for row, item in enumerate(searched(agent, config)[2]) if len(item.steps) > 1)


def with_step(found: ReplacementResult, number: int, step: ReplacementStep) -> ReplacementResult:
    return replace(found, steps=(*found.steps[:number], step, *found.steps[number + 1 :]))


@pytest.mark.parametrize("config", RULES)
def test_both_take_the_same_steps(config: SearchConfig) -> None:
    results = [compared(searches.TARGET, config, row) for row in range(SIZE)]
    assert not any(result.different or result.ties for result in results)
    assert sum(result.same for result in results) > SIZE


def test_another_word_is_seen() -> None:
    row, found = first_replaced(searches.TARGET, RULES[0])
    step = found.steps[1]
    other = next(int(word) for word in WORDS if word != step.word)
    assert compared(searches.TARGET, RULES[0], row, with_step(found, 1, replace(step, word=other))).different


def test_a_step_too_few_or_too_many_is_seen() -> None:
    row, found = first_replaced(searches.TARGET, RULES[0])
    assert compared(searches.TARGET, RULES[0], row, replace(found, steps=found.steps[:1])).different
    config = replace(RULES[0], max_replacements=1)
    assert compared(searches.TARGET, config, row, replace(found, steps=found.steps[:1])).different
    settled = next(i for i, item in enumerate(searched(searches.TARGET, RULES[0])[2]) if len(item.steps) == 1)
    steps = (*searched(searches.TARGET, RULES[0])[2][settled].steps, replace(found.steps[1], position=0))
    assert compared(searches.TARGET, RULES[0], settled, replace(found, steps=steps)).different


def test_other_queries_are_seen() -> None:
    row, found = first_replaced(searches.TARGET, RULES[0])
    assert compared(searches.TARGET, RULES[0], row, replace(found, reads=found.reads + 1)).different


def test_a_word_as_good_as_the_first_is_a_tie() -> None:
    model, config = negotiator(19), replace(RULES[0], max_replacements=1)
    twins = dict(zip(WORDS[:-1:2].tolist(), WORDS[1::2].tolist(), strict=True))
    with torch.no_grad():
        for word, twin in twins.items():
            model.word_embedding.weight[twin] = model.word_embedding.weight[word]
    agent = NegotiatorAgent(model, "with twins", 0.8)
    replaced = [(row, item) for row, item in enumerate(searched(agent, config)[2]) if len(item.steps) > 1]
    row, found, step = next((row, item, item.steps[1]) for row, item in replaced if item.steps[1].word in twins)
    result = compared(agent, config, row, with_step(found, 1, replace(step, word=twins[step.word])))
    assert (result.same, result.ties, result.different) == (0, 1, [])


def test_states_are_the_adversarys_third_utterances() -> None:
    agent = NegotiatorAgent(negotiator(1), "any", 1.0)
    exchanges, sentences = states(agent, range(60), most=60)
    assert len(exchanges) == len(sentences) > 5
    for row, sentence in enumerate(sentences):
        assert len(sentence) > 1
        assert np.flatnonzero(sentence == EOS_ID).tolist() == [len(sentence) - 1]
        said = exchanges.tokens[row, : exchanges.lengths[row]].tolist()
        assert said[0] == VOCABULARY.them_id
        assert (said.count(VOCABULARY.them_id), said.count(VOCABULARY.you_id)) == (1, 1)
        np.testing.assert_array_equal(exchanges.contexts[0, row, ::2], exchanges.contexts[1, row, ::2])


def test_of_all_states_those_with_the_shortest_sentences_are_taken() -> None:
    agent = NegotiatorAgent(negotiator(1), "any", 1.0)
    lengths = sorted(len(sentence) for sentence in states(agent, range(60), most=60)[1])
    few, sentences = states(agent, range(60), most=3)
    assert sorted(len(sentence) for sentence in sentences) == lengths[:3]
    assert len(few) == 3
    again = states(agent, range(60), most=3)[0]
    np.testing.assert_array_equal(again.tokens, few.tokens)


def test_talks_that_end_too_soon_are_an_error() -> None:
    model = negotiator(1)
    with torch.no_grad():
        model.decoder.weight.zero_()
        model.decoder.bias.fill_(1.0)
        model.word_embedding.weight.fill_(-1.0)
        model.word_embedding.weight[SELECTION_ID] = 5.0
    with pytest.raises(ConfigError, match="never lets the adversary say a second sentence"):
        states(NegotiatorAgent(model, "short", 0.5), range(4), most=4)
