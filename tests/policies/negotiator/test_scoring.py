"""The likelihood of what was said, against a plain loop over words."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from envs.negotiation.game import NOBODY, Rules
from policies.negotiator.scoring import utterance_nll
from tests.policies.negotiator.made_up import SHORT, negotiator, played

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
