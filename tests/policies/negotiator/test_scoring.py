"""The likelihood of what was said, against a plain loop over words."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from parley.envs.negotiation.domain import EOS_ID, UNK_ID
from parley.envs.negotiation.game import NOBODY, NegotiationGame, Rules
from parley.policies.negotiator.model import ROWS_PER_PASS, Negotiator, sentence_nll, token_nll, utterance_nll
from tests.policies.negotiator.made_up import SHORT, WORDS, negotiator, played

FORCED = Rules(max_turns=2, max_words=8, max_tokens=64)


@pytest.mark.parametrize("rules", [SHORT, FORCED], ids=["six turns", "two turns"])
def test_it_is_the_sum_over_a_sides_own_words(rules: Rules) -> None:
    game, judge = played(25, rules=rules), negotiator(5)
    assert game.forced.any(), "a forced end belongs to nobody"
    for side in (0, 1):
        nats, words = utterance_nll(judge, game, side)
        assert nats.shape == words.shape == (25,)
        for i in range(25):
            tokens = torch.from_numpy(game.tokens[side, i, : game.num_tokens[i]])[None]
            context = torch.from_numpy(game.contexts[side, [i]])
            with torch.no_grad():
                log_probs = judge(context, tokens, torch.tensor([tokens.shape[1]]))[0][0].log_softmax(1).tolist()
            own = [place for place in range(tokens.shape[1]) if game.authors[i, place] == side]
            wanted = -sum(log_probs[place - 1][int(tokens[0, place])] for place in own)
            assert words[i] == len(own)
            assert nats[i] == pytest.approx(wanted, rel=1e-4, abs=1e-5)
    markers = (game.tokens[0] == game.vocabulary.you_id) | (game.tokens[0] == game.vocabulary.them_id)
    assert (game.authors[markers] == NOBODY).all()


def test_one_dialogue_scores_alike_in_any_company() -> None:
    game, judge = played(150), negotiator(5)
    nats, _ = utterance_nll(judge, game, 0)
    alone, _ = utterance_nll(judge, played(3), 0)
    np.testing.assert_allclose(nats[:3], alone, rtol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_it_leaves_the_judge_as_it_was_and_drops_nothing(training: bool) -> None:
    judge, game = negotiator(5).train(training), played(5)
    first, second = (utterance_nll(judge, game, 0)[0] for _ in range(2))
    assert first.tolist() == second.tolist()
    assert judge.training == training


def plainly(judge: Negotiator, context: np.ndarray, tokens: np.ndarray) -> list[float]:
    """Nats of every token of one dialogue but the first, read by itself."""
    whole = torch.from_numpy(tokens)[None]
    with torch.no_grad():
        logits = judge(torch.from_numpy(context)[None], whole, torch.tensor([len(tokens)]))[0][0]
    return [-float(row.log_softmax(0)[token]) for row, token in zip(logits, tokens[1:].tolist(), strict=True)]


def test_every_token_has_its_likelihood_and_what_is_no_token_none() -> None:
    game, judge = played(ROWS_PER_PASS + 30), negotiator(5)
    lengths = game.num_tokens
    assert len(set(lengths.tolist())) > 5
    for side in (0, 1):
        nats = token_nll(judge, game.contexts[side], game.tokens[side], lengths)
        assert nats.dtype == np.float64
        assert nats.shape == game.tokens[side].shape
        for row in range(0, len(game), 9):
            wanted = plainly(judge, game.contexts[side, row], game.tokens[side, row, : lengths[row]])
            assert nats[row, 1 : lengths[row]] == pytest.approx(wanted, rel=1e-4, abs=1e-5)
        unscored = np.arange(nats.shape[1]) >= lengths[:, None]
        unscored[:, 0] = True
        assert not nats[unscored].any()
        assert (nats[~unscored] > 0).all()


def test_what_stands_after_the_end_is_not_scored() -> None:
    game, judge = played(10), negotiator(5)
    scrawled = np.where(np.arange(game.tokens.shape[2]) < game.num_tokens[:, None], game.tokens[0], WORDS[0])
    first, second = (token_nll(judge, game.contexts[0], tokens, game.num_tokens) for tokens in (game.tokens[0], scrawled))
    assert not np.array_equal(game.tokens[0], scrawled)
    assert np.array_equal(first, second)


def sentences_of(game: NegotiationGame) -> list[tuple[int, int, np.ndarray]]:
    """Side 0's utterances: dialogue, tokens before the first word, words."""
    found = []
    for row in range(len(game)):
        said = game.tokens[0, row, : game.num_tokens[row]]
        markers = np.isin(said, (game.vocabulary.you_id, game.vocabulary.them_id))
        starts = [*np.flatnonzero(markers).tolist(), len(said)]
        for marker, end in itertools.pairwise(starts):
            if said[marker] == game.vocabulary.you_id:
                found.append((row, marker + 1, said[marker + 1 : end]))
    return found


def test_sentences_that_were_said_add_up_to_the_utterances() -> None:
    game, judge = played(25), negotiator(5)
    assert game.forced.any(), "what nobody said is no sentence of theirs"
    said = sentences_of(game)
    rows, starts = np.array([row for row, _, _ in said]), np.array([start for _, start, _ in said])
    nats = sentence_nll(judge, game, rows, starts, [words for _, _, words in said])
    totals = np.zeros(25)
    for (row, start, words), found in zip(said, nats, strict=True):
        assert found.shape == words.shape
        own = game.authors[row, start : start + len(words)] == 0
        totals[row] += found[own].sum()
    np.testing.assert_allclose(totals, utterance_nll(judge, game, 0)[0], rtol=1e-4)


def test_another_sentence_is_read_in_the_place_of_the_one_that_was_said() -> None:
    """Shorter or longer, and whatever was said afterwards."""
    game, judge, rng = played(12), negotiator(5), np.random.default_rng(0)
    said = sentences_of(game)
    others = [np.append(rng.choice(WORDS, size=int(rng.integers(12))), EOS_ID) for _ in said]
    rows, starts = np.array([row for row, _, _ in said]), np.array([start for _, start, _ in said])
    nats = sentence_nll(judge, game, rows, starts, others)
    for (row, start, _), other, found in zip(said, others, nats, strict=True):
        whole = np.concatenate([game.tokens[0, row, :start], other])
        assert found == pytest.approx(plainly(judge, game.contexts[0, row], whole)[start - 1 :], rel=1e-4, abs=1e-5)


def test_words_that_the_judge_does_not_know_are_read_as_unknown() -> None:
    game, judge = played(12), negotiator(5)
    row, start, words = sentences_of(game)[0]
    known = game.view(0).encode("zyzzyva")
    assert max(known) >= len(game.vocabulary), "another word of the game"
    (found,) = sentence_nll(judge, game, np.array([row]), np.array([start]), [np.array([*words[:-1], *known])])
    whole = np.concatenate([game.tokens[0, row, :start], words[:-1], [UNK_ID, EOS_ID]])
    assert found == pytest.approx(plainly(judge, game.contexts[0, row], whole)[start - 1 :], rel=1e-4, abs=1e-5)
