"""A draft model leaves few candidates to the full model, which alone decides and tells losses."""

from __future__ import annotations

import pytest
import torch

from parley.engine.triggers.methods.gcg import Gcg
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.scorers.causal.probes import agreement, drafting
from parley.engine.triggers.scorers.causal.scorer import CausalScorer
from parley.engine.triggers.scorers.scorer import PlainScorer, Swaps
from parley.engine.triggers.searches.attack import TriggerSearch
from parley.envs.core.errors import ConfigError
from tests.engine.triggers.scorers.causal.test_scorer import LENGTH, MadeUpVictim, gpt2, llama, outcomes

LIKELIHOOD = TriggerObjective(kind="likelihood")
TARGET, INPUT = torch.tensor([7, 9, 5, 11, 2]), torch.tensor([[3, 4, 5, 6, 7]])


def everywhere(victim: MadeUpVictim) -> Swaps:
    """Every word at every position."""
    words_S = victim.searchable_V.nonzero()[:, 0]
    return Swaps(torch.arange(LENGTH).repeat_interleave(len(words_S))[None], words_S.repeat(LENGTH)[None])


def test_agreement_is_spearmans_correlation_from_0_to_1() -> None:
    losses = torch.tensor([0.3, 0.1, 0.7, 0.5])
    assert agreement(losses, 2 * losses) == 1
    assert agreement(losses, -losses) == pytest.approx(0)
    assert agreement(losses, torch.tensor([0.3, 0.1, 0.5, 0.7])) == pytest.approx(0.9)


def test_a_draft_that_agrees_leaves_one_candidate_beside_the_probes() -> None:
    victim = MadeUpVictim(llama())
    scorer = CausalScorer(victim, LIKELIHOOD, draft=CausalScorer(victim, LIKELIHOOD))
    (incumbent,) = scorer.measure([TARGET], INPUT)
    choice, loss = scorer.best_swap([incumbent], everywhere(victim), torch.tensor([torch.inf]))
    swaps = everywhere(victim)
    wanted = PlainScorer(victim, LIKELIHOOD).swap_losses(incumbent, swaps.positions_BG[0], swaps.words_BG[0])
    assert int(choice) == int(wanted.argmin())
    assert float(loss) == pytest.approx(float(wanted.min()), abs=1e-4)
    num_probes = scorer.num_listed // 16
    assert scorer.num_read == num_probes + 1


@pytest.mark.parametrize("model", [llama, gpt2])
def test_losses_are_the_full_models_whatever_the_draft(model: type) -> None:
    victim = MadeUpVictim(model())
    scorer = CausalScorer(victim, LIKELIHOOD, draft=CausalScorer(drafting(victim, "1"), LIKELIHOOD))
    (incumbent,), swaps = scorer.measure([TARGET], INPUT), everywhere(victim)
    choice, loss = scorer.best_swap([incumbent], swaps, torch.tensor([torch.inf]))
    wanted = PlainScorer(victim, LIKELIHOOD).swap_losses(incumbent, swaps.positions_BG[0], swaps.words_BG[0])
    assert float(loss) == pytest.approx(float(wanted[int(choice)]), abs=1e-4)
    assert scorer.num_read < scorer.num_listed / 4
    assert int(scorer.best_swap([incumbent], swaps, torch.tensor([0.0]))[0]) == -1


def test_the_first_layers_are_a_model_of_their_own_and_the_whole_one_stays() -> None:
    victim = MadeUpVictim(llama())
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    before = victim.model(ids).logits
    draft = drafting(victim, "1").model
    shorter = llama()
    shorter.model.layers = shorter.model.layers[:1]
    shorter.load_state_dict(victim.model.state_dict(), strict=False)
    torch.testing.assert_close(draft(ids, use_cache=False).logits, shorter.eval()(ids, use_cache=False).logits)
    assert torch.equal(victim.model(ids).logits, before)
    assert CausalScorer(drafting(victim, "1"), LIKELIHOOD).packs, "a shortened model reads packed texts as the whole one does"


def test_a_search_does_not_depend_on_those_beside_it() -> None:
    victim = MadeUpVictim(llama())
    both = [
        outcomes(CausalScorer(victim, LIKELIHOOD, draft=CausalScorer(drafting(victim, "1"), LIKELIHOOD)), "gcg", number)
        for number in (3, 1)
    ]
    together, alone = ({(run.task.key, run.words, run.loss) for run in runs} for runs in both)
    assert together == alone


def test_drafts_that_cannot_be_are_refused() -> None:
    victim = MadeUpVictim(llama())
    with pytest.raises(ConfigError, match="so many layers"):
        TriggerSearch(victim, Gcg(draft="2"))
    with pytest.raises(ConfigError, match="draft"):
        Gcg(draft="1", num_replaced=2)
    with pytest.raises(ConfigError, match="one causal"):
        TriggerSearch(_NoTokens(victim), Gcg(draft="1"))


class _NoTokens:
    """A victim without a causal model to read in parts."""

    def __init__(self, victim: MadeUpVictim) -> None:
        self.embedding_VE, self.searchable_V, self.input_length = victim.embedding_VE, victim.searchable_V, LENGTH
        self.reply_logits = victim.reply_logits
