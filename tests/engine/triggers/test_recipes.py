"""AutoPrompt, ARCA, PEZ and BEAST do what their papers' algorithms say, step by step."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from parley.engine.triggers.methods.arca import Arca
from parley.engine.triggers.methods.beam import Beast
from parley.engine.triggers.methods.hotflip import AutoPrompt
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.methods.pez import Pez
from parley.engine.triggers.methods.settings import PEZ_DECAY, PEZ_RATE, SearchSettings, arca, autoprompt, beast, pez
from parley.engine.triggers.searches.attack import TriggerSearch
from parley.engine.triggers.searches.batch import Task
from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import stream
from tests.engine.triggers.made_up import LENGTH, SEARCHABLE, TARGET, bound, every_input, scorer, tiny_victim

LIKELIHOOD = TriggerObjective(kind="likelihood")
TASK = Task("first", TARGET, 0, 3)


def test_autoprompt_tries_its_list_at_one_drawn_position_and_ends_where_all_were_tried_in_vain() -> None:
    method = bound(AutoPrompt, scorer(LIKELIHOOD), SearchSettings(candidates=len(SEARCHABLE), max_sweeps=50))
    (state,) = method.start([TASK])
    positions, moved = [], 0
    while not state.finished:
        positions.append(method.position(TASK, state.visits))
        before, state.accepted = state.best.words, 0
        method.step([state])
        changed = (state.best.words != before).nonzero()[:, 0].tolist()
        assert changed in ([], positions[-1:])
        moved = len(positions) if changed else moved
    assert positions[:LENGTH] != list(range(LENGTH))
    assert state.stopped == "converged"
    assert set(positions[moved:]) == set(range(LENGTH))
    assert len(set(positions[moved:-1])) == LENGTH - 1


def test_arca_takes_the_best_of_the_words_that_averaged_slopes_point_to_even_where_it_is_worse() -> None:
    plain, num = scorer(LIKELIHOOD), 3
    method = bound(Arca, plain, SearchSettings(candidates=num, max_sweeps=5))
    (state,) = method.start([TASK])
    worse = 0
    while not state.finished:
        visit, at = state.visits, state.current
        drawn = stream(3, "arca", "first", 0, visit).integers(len(SEARCHABLE), size=num)
        place, gradient_E = visit % LENGTH, torch.zeros(plain.victim.embedding_VE.shape[1])
        for word in drawn:
            words_N = at.words.clone()
            words_N[place] = SEARCHABLE[word]
            gradient_E += plain.measure([TARGET], words_N[None])[0].cache.gradient_NE[place] / num
        ranked = sorted(SEARCHABLE, key=lambda word: float(plain.victim.embedding_VE[word] @ gradient_E))[:num]
        tried_GN = at.words.repeat(num, 1)
        tried_GN[:, place] = torch.tensor(ranked)
        loss_G = plain.losses([TARGET] * num, tried_GN)
        method.step([state])
        assert state.current.words.tolist() == tried_GN[loss_G.argmin()].tolist()
        worse += state.current.loss > at.loss
    assert worse > 0
    assert state.candidates == 2 * num * state.visits
    assert state.best.loss <= min(state.current.loss, state.loss_by_sweep[0])


def test_pez_steps_at_the_continuous_input_by_the_gradient_at_the_nearest_words() -> None:
    plain = scorer(LIKELIHOOD)
    method = bound(Pez, plain, SearchSettings(max_sweeps=10))
    (state,) = method.start([TASK])
    embedding_VE = plain.victim.embedding_VE
    soft = torch.nn.Parameter(embedding_VE[state.best.words].clone())
    adam = torch.optim.AdamW([soft], lr=PEZ_RATE, weight_decay=PEZ_DECAY)
    words_N, least, inputs = state.best.words, state.best.loss, set()
    while not state.finished:
        (here,) = plain.measure([TARGET], words_N[None])
        least = min(least, here.loss)
        assert state.best.loss == least
        soft.grad = here.cache.gradient_NE.clone()
        adam.step()
        near_NS = torch.nn.functional.cosine_similarity(soft.detach()[:, None], embedding_VE[list(SEARCHABLE)][None], dim=-1)
        words_N = torch.tensor(SEARCHABLE)[near_NS.argmax(1)]
        inputs.add(tuple(words_N.tolist()))
        method.step([state])
    assert len(inputs) > 3
    assert state.best.loss < state.loss_by_sweep[0]
    assert state.candidates == state.visits == 10 * LENGTH
    (again,) = method.restore([TASK], [json.loads(json.dumps(method.save(state)))])
    assert torch.equal(again.soft_NE, state.soft_NE), "what is kept is the same to the last bit"


def test_beast_with_room_for_all_inputs_finds_the_best_of_all() -> None:
    plain, num = scorer(LIKELIHOOD), len(SEARCHABLE)
    method = bound(Beast, plain, SearchSettings(candidates=num, beams=num**LENGTH, max_sweeps=1))
    (state,) = method.start([TASK])
    while not state.finished:
        method.step([state])
    inputs_RN = every_input()
    least = float(plain.losses([TARGET] * len(inputs_RN), inputs_RN).min())
    assert state.best.loss == pytest.approx(least, abs=1e-5)
    assert state.candidates == sum(num**grown for grown in range(1, LENGTH + 1))


def test_beast_draws_what_the_victim_says_next_and_keeps_the_best() -> None:
    plain = scorer(LIKELIHOOD)
    method = bound(Beast, plain, SearchSettings(candidates=2, beams=2, max_sweeps=1))
    drawn = dict.fromkeys(SEARCHABLE, 0)
    for restart in range(200):
        (state,) = method.start([replace(TASK, restart=restart)])
        state.beam = [[SEARCHABLE[0]]]
        method.step([state])
        assert len(state.beam) == len({words[1] for words in state.beam}) == 2
        first = plain.losses([TARGET] * 2, torch.tensor(state.beam)).tolist()
        assert first == sorted(first)
        for first_word, word in state.beam:
            assert first_word == SEARCHABLE[0]
            drawn[word] += 1
    logits_V = tiny_victim().next_logits(torch.tensor([[SEARCHABLE[0]]]))[0, list(SEARCHABLE)]
    likeliest = [SEARCHABLE[place] for place in logits_V.argsort(descending=True).tolist()]
    assert likeliest[0] == max(drawn, key=drawn.__getitem__)
    assert likeliest[-1] == min(drawn, key=drawn.__getitem__)
    again = method.restore([state.task], [method.save(state) or {}])[0]
    assert again.beam == state.beam


@pytest.mark.parametrize(
    ("budget", "tried", "whole"), [(4, 4, 1), (5, 4, 1), (13, 8, 1), (20, 14, 1), (21, 21, 1), (33, 21, 1), (42, 42, 2)]
)
def test_beast_stays_within_its_budget_and_begins_no_input_that_cannot_become_whole(
    budget: int, tried: int, whole: int
) -> None:
    plain = scorer(LIKELIHOOD)
    method = bound(Beast, plain, SearchSettings(candidates=3, beams=2, max_candidates=budget))
    (state,) = method.start([TASK])
    inputs = []
    while not state.finished:
        state.best = replace(state.best, loss=torch.inf)
        method.step([state])
        if not state.beam:
            inputs.append(state.best)
    # An input grows by 3 candidates, then three times by 2 x 3, or by fewer where the budget holds no more.
    assert (state.candidates, state.visits) == (tried, whole * LENGTH)
    assert len(inputs) == whole
    for each in inputs:
        assert each.loss == pytest.approx(float(plain.losses([TARGET], each.words[None])))


def test_beast_with_the_budget_of_a_table_returns_an_input_that_it_wrote() -> None:
    outcomes = TriggerSearch(tiny_victim(), Beast(candidates=7, beams=7, max_candidates=100), hit="o-greedy").run([TASK])
    (outcome,) = outcomes
    assert outcome.visits >= LENGTH
    assert outcome.loss < outcome.loss_by_sweep[0], "what it begins at is no input of its own"


def test_beast_refuses_a_budget_of_fewer_candidates_than_an_input_has_words() -> None:
    with pytest.raises(ConfigError, match=f"needs {LENGTH} candidates for an input of {LENGTH} words"):
        TriggerSearch(tiny_victim(), Beast(max_candidates=LENGTH - 1))


def test_beast_is_refused_where_the_victim_does_not_say_how_inputs_go_on() -> None:
    class Silent:
        embedding_VE, searchable_V, input_length = torch.eye(3), torch.ones(3, dtype=torch.bool), 2

        def reply_logits(self, embedded_BNE: torch.Tensor, replies_BT: torch.Tensor) -> torch.Tensor:
            raise AssertionError("nothing is asked")

    with pytest.raises(ConfigError, match="does not predict the next word of its inputs"):
        TriggerSearch(Silent(), Beast())


def test_sizes_are_those_of_the_released_code() -> None:
    assert AutoPrompt().candidates == autoprompt().candidates == 10
    assert Arca().candidates == arca().candidates == 32
    assert arca().max_sweeps == 50
    assert (Beast().beams, Beast().candidates) == (beast().beams, beast().candidates) == (15, 15)
    assert pez().max_sweeps * 14 == pytest.approx(3000, abs=14)
    assert (PEZ_RATE, PEZ_DECAY) == (0.1, 0.1)
