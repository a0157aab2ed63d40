"""The negotiator at the table: what it samples, what it never says, and what its dialogues may depend on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.core.play import Utterances
from parley.envs.core.seeds import derive_seed
from parley.envs.negotiation.dealornodeal import DIVISION
from parley.envs.negotiation.dealornodeal_rules import random_scenario, selection_table
from parley.envs.negotiation.domain import EOS_ID, SELECTION_ID, UNK_ID, Vocabulary
from parley.envs.negotiation.game import NOBODY, SPEAK, NegotiationGame, Rules, play
from parley.policies.negotiator.inference import Screening, Tables
from parley.policies.negotiator.model import Negotiator
from parley.policies.negotiator.speaker import (
    NegotiatorAgent,
    best_selection,
    load_agent,
    save_model,
    selection_scores,
    shortfalls,
)
from tests.policies.negotiator.made_up import SHORT, TINY, VOCABULARY, always_screened, deal, negotiator, never_screened, played

PER_DIALOGUE = ("authors", "num_tokens", "num_turns", "to_move", "forced", "selections", "num_illegal", "agreed", "points")


def pair(temperature: float = 1.0) -> tuple[NegotiatorAgent, NegotiatorAgent]:
    return NegotiatorAgent(negotiator(1), "one", temperature), NegotiatorAgent(negotiator(2), "two", temperature)


def part(game: NegotiationGame, rows: Sequence[int]) -> NegotiationGame:
    """The same dialogues, fresh, without the others."""
    return NegotiationGame([game.scenarios[i] for i in rows], [game.seeds[i] for i in rows], VOCABULARY, game.rules)


def assert_same_dialogues(game: NegotiationGame, rows: Sequence[int], other: NegotiationGame) -> None:
    assert np.array_equal(game.tokens[:, rows], other.tokens)
    for name in PER_DIALOGUE:
        assert np.array_equal(getattr(game, name)[rows], getattr(other, name)), name


def speaking_logits(model: Negotiator, game: NegotiationGame, row: int, side: int, temperature: float) -> Tensor:
    """Logits (T - 1, V) of the distribution that side speaks from, by the networks that learn."""
    tokens = torch.from_numpy(game.tokens[side, row, : game.num_tokens[row]])[None]
    context = torch.from_numpy(game.contexts[side, [row]])
    with torch.no_grad():
        logits = model(context, tokens, torch.tensor([tokens.shape[1]]))[0][0] / temperature
    logits[:, list(VOCABULARY.unspeakable_ids)] = -torch.inf
    return logits


def test_an_agent_says_who_it_is() -> None:
    assert repr(NegotiatorAgent(negotiator(), "target", temperature=0.25)) == "NegotiatorAgent('target', temperature=0.25)"


def test_dialogues_side_by_side_are_those_played_one_at_a_time() -> None:
    together = played(60)
    assert len(set(together.num_turns.tolist())) > 2, "dialogues of one length would prove little"
    for i in range(60):
        assert_same_dialogues(together, [i], play(part(together, [i]), pair()))


@settings(deadline=None, max_examples=10)
@given(st.permutations(range(12)))
def test_dialogues_do_not_depend_on_their_place(order: list[int]) -> None:
    together = played(12)
    assert_same_dialogues(together, order, play(part(together, order), pair()))


def test_a_session_that_joins_late_goes_on_as_if_it_had_been_there() -> None:
    whole = played(20)
    game = part(whole, range(20))
    sessions = [agent.join(game.view(side)) for side, agent in enumerate(pair())]
    for side in (0, 1):
        rows = game.rows_to_speak(side)
        game.say(rows, sessions[side].speak(rows))
    assert (game.phase == SPEAK).any()
    assert_same_dialogues(play(game, pair()), list(range(20)), whole)


@pytest.mark.parametrize("temperature", [0.0, 1.0, 20.0])
def test_words_that_nobody_may_say_are_never_said(temperature: float) -> None:
    game = played(150, temperature=temperature)
    said = game.tokens[0][game.authors != NOBODY]
    assert len(said) > 300
    assert not np.isin(said, VOCABULARY.unspeakable_ids).any()
    assert not game.num_illegal.any()


@pytest.mark.parametrize("draw", [0.0, 0.5, np.nextafter(1.0, 0.0)])
def test_no_draw_falls_on_a_forbidden_word_or_off_the_end(draw: float) -> None:
    game = deal(20)
    game.uniforms[:] = draw
    play(game, pair())
    assert not np.isin(game.tokens[0][game.authors != NOBODY], VOCABULARY.unspeakable_ids).any()
    assert not game.num_illegal.any()


def test_a_last_word_that_is_forbidden_is_not_said_either() -> None:
    words = VOCABULARY.words
    vocabulary = Vocabulary((*words[:4], *words[6:], "YOU:", "THEM:"))
    assert max(vocabulary.unspeakable_ids) == len(vocabulary) - 1
    model = Negotiator(vocabulary, TINY)
    model.initialise(torch.Generator().manual_seed(0))
    fresh = deal(10)
    game = NegotiationGame(fresh.scenarios, fresh.seeds, vocabulary, SHORT)
    game.uniforms[:] = np.nextafter(1.0, 0.0)
    agent = NegotiatorAgent(model.eval(), "any", 30.0)
    play(game, (agent, agent))
    assert vocabulary.index["."] in game.tokens
    assert not game.num_illegal.any()


def cut_short(game: NegotiationGame, row: int, place: int) -> bool:
    """Whether the game put this `<eos>` after the most words an utterance may have."""
    most, authors = game.rules.max_words, game.authors[row]
    return bool(game.tokens[0, row, place] == EOS_ID and place > most and (authors[place - most : place] != NOBODY).all())


def test_without_temperature_the_likeliest_word_is_said() -> None:
    game = played(40, temperature=0.0)
    models = (negotiator(1), negotiator(2))
    num_words = 0
    for i in range(40):
        for side, model in enumerate(models):
            logits = speaking_logits(model, game, i, side, 1.0)
            places = np.flatnonzero(game.authors[i] == side).tolist()
            own = np.array([place for place in places if not cut_short(game, i, place)], dtype=np.int64)
            assert logits[own - 1].argmax(1).tolist() == game.tokens[side, i, own].tolist()
            num_words += len(own)
    assert num_words > 100


def test_each_word_is_decided_by_the_draw_of_its_own_place() -> None:
    game = played(30, temperature=0.7)
    for i in range(30):
        for side, model in enumerate((negotiator(1), negotiator(2))):
            cumulative = speaking_logits(model, game, i, side, 0.7).double().softmax(1).cumsum(1)
            for place in np.flatnonzero(game.authors[i] == side).tolist():
                if not cut_short(game, i, place):
                    word, draw = int(game.tokens[side, i, place]), game.uniforms[i, place]
                    below = float(cumulative[place - 1, word - 1]) if word else 0.0
                    assert below - 1e-5 <= draw <= float(cumulative[place - 1, word]) + 1e-5


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_words_are_said_as_often_as_the_softmax_says(temperature: float) -> None:
    size = 4000
    scenario = random_scenario(np.random.default_rng(0))
    seeds = [derive_seed(0, "frequency", i) for i in range(size)]
    game = NegotiationGame([scenario] * size, seeds, VOCABULARY, SHORT, first_speakers=[0] * size)
    rows = np.arange(size)
    said = NegotiatorAgent(negotiator(1), "one", temperature).join(game.view(0)).speak(rows)
    game.say(rows, said)
    chance = speaking_logits(negotiator(1), game, 0, 0, temperature)[0].softmax(0).double().numpy()
    counts = np.bincount(said.tokens[:, 0], minlength=len(VOCABULARY))
    possible = chance > 0
    assert possible.sum() == len(VOCABULARY) - 4
    assert not counts[~possible].any()
    assert chisquare(counts[possible], size * chance[possible] / chance[possible].sum()).pvalue > 0.001


def endless(model: Negotiator) -> Negotiator:
    """The same network, which would rather go on talking: its ends are the least likely words."""
    with torch.no_grad():
        model.decoder.weight.zero_()
        model.decoder.bias.fill_(1.0)
        model.word_embedding.weight[[EOS_ID, SELECTION_ID]] = -5.0
    return model


def test_an_utterance_has_no_more_words_than_allowed() -> None:
    rules = Rules(max_turns=4, max_words=5, max_tokens=40)
    agent = NegotiatorAgent(endless(negotiator(1)), "endless", 0.5)
    game = deal(30, rules=rules)
    rows = game.rows_to_speak(0)
    said = agent.join(game.view(0)).speak(rows)
    assert said.tokens.shape == (len(rows), 5)
    assert said.lengths.tolist() == [5] * len(rows)
    assert not np.isin(said.tokens, (EOS_ID, SELECTION_ID)).any()
    play(game, (agent, agent))
    assert game.forced.all()
    assert set(game.num_turns.tolist()) == {5}


def test_a_word_without_any_chance_is_not_said_at_the_smallest_draw() -> None:
    # So sharp that the chance of an end, the first word of the vocabulary, is zero and not merely small.
    agent = NegotiatorAgent(endless(negotiator(1)), "endless", 0.01)
    game = deal(10)
    game.uniforms[:] = 0.0
    assert EOS_ID not in agent.join(game.view(0)).speak(game.rows_to_speak(0)).tokens


def test_what_is_said_ends_at_its_end() -> None:
    game = deal(50)
    rows = game.rows_to_speak(1)
    said = pair()[1].join(game.view(1)).speak(rows)
    for tokens, length in zip(said.tokens, said.lengths, strict=True):
        ends = np.flatnonzero(np.isin(tokens[:length], (EOS_ID, SELECTION_ID))).tolist()
        assert ends in ([length - 1], [] if length == SHORT.max_words else None)


def head_logits(size: int, seed: int) -> Tensor:
    return torch.randn(size, 6, 18, generator=torch.Generator().manual_seed(seed))


@settings(deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 8))
def test_the_choice_is_the_legal_selection_of_the_largest_sum(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    scenarios = [random_scenario(rng) for _ in range(size)]
    contexts = np.array([scenario.context(0) for scenario in scenarios])
    logits = head_logits(size, seed)
    # An illegal selection that outweighs every legal one must not be chosen.
    logits[:, :, 15] = 50.0
    found, scores = best_selection(logits, contexts, DIVISION), selection_scores(logits, contexts, DIVISION)
    for i, scenario in enumerate(scenarios):
        table = selection_table(scenario.counts)
        sums = [sum(float(logits[i, head, token]) for head, token in enumerate(selection)) for selection in table]
        assert 0 <= found[i] < len(table)
        assert sums[found[i]] == pytest.approx(max(sums), abs=1e-4)
        assert scores[i, : len(table)].tolist() == pytest.approx(sums, abs=1e-4)
        assert torch.isneginf(scores[i, len(table) :]).all()


@settings(deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 8))
def test_shortfalls_are_shares_of_the_distance_from_best_to_worst(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    contexts = np.array([random_scenario(rng).context(0) for _ in range(size)])
    scores = selection_scores(head_logits(size, seed), contexts, DIVISION)
    for row, found in zip(scores, shortfalls(scores), strict=True):
        legal = row > -torch.inf
        best, worst = float(row.max()), float(row[legal].min())
        shares = [(best - score) / (best - worst) for score in row[legal].tolist()]
        assert found[legal].tolist() == pytest.approx(shares, abs=1e-5)
        assert torch.isposinf(found[~legal]).all()


class ShardWriter(Tables):
    """Tables that note how many choices are made in float32."""

    num_decided = 0

    def decide(
        self,
        contexts_n6: np.ndarray,
        tokens_nT: np.ndarray,
        lengths_n: np.ndarray,
        states_MH: Tensor,
        at_nT: np.ndarray,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        self.num_decided += len(lengths_n) if dtype == torch.float32 else 0
        return super().decide(contexts_n6, tokens_nT, lengths_n, states_MH, at_nT, dtype)


def recorded(weights: float, size: int, screens: bool) -> tuple[NegotiationGame, int]:
    """Dialogues of a network with itself, its weights uniform up to that, and how many choices it made in float32."""
    sizes = replace(TINY, embed_word=32, hidden_language=32, hidden_attention=32, hidden_selection=64)
    model, generator = Negotiator(VOCABULARY, sizes), torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.data.uniform_(-weights, weights, generator=generator)
    agent = NegotiatorAgent(model.eval(), "any", 1.0)
    agent.tables = tables = ShardWriter(model)
    tables.screening = always_screened() if screens else never_screened()
    return play(deal(size), (agent, agent)), tables.num_decided


def test_choices_are_the_same_with_and_without_screening() -> None:
    (game, num_decided), (plain, num_plain) = recorded(0.2, 400, True), recorded(0.2, 400, False)
    assert_same_dialogues(game, range(400), plain)
    assert num_plain == 800
    assert 0 < num_decided < 200, "both kinds of choice must occur"


def test_a_network_that_bfloat16_moves_too_far_is_not_screened() -> None:
    (game, num_decided), (plain, _) = recorded(1.5, 200, True), recorded(1.5, 200, False)
    assert num_decided > 400, "some were decided twice"
    assert_same_dialogues(game, range(200), plain)


def test_figures_that_cannot_be_compared_are_left_to_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = Tables.decide

    def broken(self: Tables, contexts_n6: np.ndarray, *others: Any) -> Tensor:
        logits_n6K = decide(self, contexts_n6, *others)
        return logits_n6K.fill_(torch.nan) if others[-1] is torch.bfloat16 else logits_n6K

    game = played(30)
    monkeypatch.setattr(Tables, "decide", broken)
    for side, agent in enumerate(pair()):
        agent.tables.screening = always_screened()
        assert agent.join(game.view(side)).choose(np.arange(30)).tolist() == game.selections[:, side].tolist()


@pytest.mark.parametrize("screening", [always_screened, never_screened])
def test_a_session_that_joins_at_the_end_chooses_alike(screening: Callable[[], Screening]) -> None:
    game = played(40)
    for side, agent in enumerate(pair()):
        agent.tables.screening = screening()
        rows = np.random.default_rng(0).permutation(40)[:25]
        assert agent.join(game.view(side)).choose(rows).tolist() == game.selections[rows, side].tolist()


def test_sampling_tells_every_state_that_it_passed_through() -> None:
    agent, size, width = pair()[0], 30, 6
    contexts = np.array([random_scenario(np.random.default_rng(i)).context(0) for i in range(size)])
    _, gates = agent.tables.encode(contexts)
    start = torch.randn(size, TINY.hidden_language, generator=torch.Generator().manual_seed(0))
    draws = np.random.default_rng(0).random((size, width))
    trace: list[Tensor] = []
    tokens, lengths = agent.sample(start, gates, draws, trace)
    assert tokens.shape == (size, width)
    assert len(set(lengths.tolist())) > 1
    state = start
    for t in range(int(lengths.max())):
        state = agent.tables.advance(tokens[:, t], gates, state)
        torch.testing.assert_close(trace[t], state[lengths > t])
    assert len(trace) == int(lengths.max())
    for words, length in zip(tokens.tolist(), lengths.tolist(), strict=True):
        assert words[length:] == [EOS_ID] * (width - length)
    as_tensor = agent.sample(start, gates, torch.from_numpy(draws))
    assert torch.equal(as_tensor[0], tokens)


def test_both_sides_choose_by_their_own_networks_and_contexts() -> None:
    game = played(30)
    for side, model in enumerate((negotiator(1), negotiator(2))):
        for i in range(30):
            tokens = torch.from_numpy(game.tokens[side, i, : game.num_tokens[i]])[None]
            contexts = game.contexts[side, [i]]
            with torch.no_grad():
                choice = model(torch.from_numpy(contexts), tokens, torch.tensor([tokens.shape[1]]))[1]
            assert game.selections[i, side] == best_selection(choice, contexts, DIVISION)[0]


def test_another_vocabulary_is_refused_at_the_table() -> None:
    other = Vocabulary((*VOCABULARY.words, "surplus"))
    fresh = deal(1)
    game = NegotiationGame(fresh.scenarios, fresh.seeds, other)
    with pytest.raises(CheckpointError, match=r"one speaks another vocabulary(.|\n)*15 words(.|\n)*16"):
        pair()[0].join(game.view(0))


def test_a_temperature_below_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="temperature"):
        pair(-0.1)


def test_an_agent_comes_back_from_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "checkpoint"
    save_model(negotiator(1), folder, {})
    loaded = load_agent(folder)
    assert loaded.name == "run"
    assert loaded.temperature == 0.5
    assert not loaded.model.training
    agents = (load_agent(folder, "one", 1.0), NegotiatorAgent(negotiator(2), "two", 1.0))
    assert_same_dialogues(played(10), list(range(10)), play(deal(10), agents))


def test_unknown_words_are_read_and_not_said() -> None:
    game = deal(10)
    agents = pair()
    rows = game.rows_to_speak(0)
    tokens = np.full((len(rows), 2), UNK_ID)
    tokens[:, 1] = EOS_ID
    game.say(rows, Utterances(tokens, np.full(len(rows), 2)))
    play(game, agents)
    assert (game.tokens[0] == UNK_ID).sum() == len(rows)
