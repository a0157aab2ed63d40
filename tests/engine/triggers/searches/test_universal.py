"""One input behind many prompts: the scorer is the mean of its parts, whatever it leaves unread, and methods search by it."""

from __future__ import annotations

import pytest
import torch

from parley.engine.triggers.methods.beam import Beast
from parley.engine.triggers.methods.gcg import Gcg
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.methods.pez import Pez
from parley.engine.triggers.scorers.causal.packed import said
from parley.engine.triggers.scorers.scorer import PlainScorer, Swaps
from parley.engine.triggers.searches import batch as by_text_module
from parley.engine.triggers.searches.attack import TriggerSearch
from parley.engine.triggers.searches.batch import ByTextScorer, UniversalScorer, UniversalVictim, tasks_of
from parley.envs.core.errors import ConfigError

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")

from parley.policies.hugging_face.models import HuggingFaceByText
from parley.policies.hugging_face.tokens import InputRules
from parley.policies.hugging_face.victims import HuggingFaceCausal
from tests.policies.byte_pairs import byte_model
from tests.policies.sentence_pieces import piece_model

PROMPTS = ("tell me", "say it", "about the printer")
TARGETS = ("hello", "you", "a")
"""Of one token each: the mean over pairs is that over words."""
LIKELIHOOD = TriggerObjective(kind="likelihood")


@pytest.fixture(scope="module")
def victim() -> UniversalVictim:
    model, tokenizer = byte_model()
    template = "<|begin|>user\n{prompt} {}<|turn|>\n<|begin|>assistant\n"
    asked = HuggingFaceCausal(model, tokenizer, 4, template, prompt="", end=False, rules=InputRules(typed=True))
    return UniversalVictim([asked.behind(prompt) for prompt in PROMPTS], [asked.target(target) for target in TARGETS])


def test_the_scorer_is_the_mean_over_pairs(victim: UniversalVictim) -> None:
    ours, plain = UniversalScorer(victim, LIKELIHOOD), PlainScorer(victim, LIKELIHOOD)
    words = victim.searchable_V.nonzero()[:, 0]
    inputs_BN = words[torch.randint(len(words), (2, 4), generator=torch.Generator().manual_seed(1))]
    targets = [victim.target_ids, victim.target_ids]
    measured, expected = ours.measure(targets, inputs_BN), plain.measure(targets, inputs_BN)
    positions_B = torch.tensor([1, 3])
    assert [each.loss for each in measured] == pytest.approx([each.loss for each in expected], abs=1e-5)
    assert torch.allclose(ours.slopes(measured, positions_B), plain.slopes(expected, positions_B), atol=1e-5)
    assert torch.allclose(ours.losses(targets, inputs_BN), plain.losses(targets, inputs_BN), atol=1e-5)
    for one, other in zip(measured, expected, strict=True):
        assert one.reading.likeliest == other.reading.likeliest
        assert one.reading.word_log_probability == pytest.approx(other.reading.word_log_probability, abs=1e-4)
    generator = torch.Generator().manual_seed(2)
    # More candidates than are read to their ends first, some of them twice.
    swaps = Swaps(torch.randint(4, (2, 60), generator=generator), words[torch.randint(40, (2, 60), generator=generator)])
    for beat in (torch.inf, measured[0].loss, min(ours.losses(targets, inputs_BN).tolist()) / 4):
        beat_B = torch.full((2,), beat)
        choices_B, losses_B = ours.best_swap(measured, swaps, beat_B)
        wanted_B, least_B = plain.best_swap(expected, swaps, beat_B)
        assert torch.allclose(losses_B, least_B, atol=1e-5)
        tried = [swaps.words_BG[row, choice] for row, choice in enumerate(choices_B.tolist()) if choice >= 0]
        assert tried == [swaps.words_BG[row, choice] for row, choice in enumerate(wanted_B.tolist()) if choice >= 0]


def test_models_with_the_same_tokens_share_an_input(victim: UniversalVictim) -> None:
    model, tokenizer = byte_model(seed=5)
    model.resize_token_embeddings(len(tokenizer) + 8)
    other = HuggingFaceCausal(model, tokenizer, 4, "<|begin|>user\n{prompt} {}<|turn|>\n", prompt="", end=False)
    behind = [*victim.victims[:2], other.behind("tell me")]
    both = UniversalVictim(behind, [*victim.targets[:2], other.target("hello")])
    assert both.num_models == 2
    assert len(both.searchable_V) == len(tokenizer)
    ours, parts = UniversalScorer(both, LIKELIHOOD), [PlainScorer(part, LIKELIHOOD) for part in behind]
    words_1N = both.searchable_V.nonzero()[:4, 0][None]
    (measured,) = ours.measure([both.target_ids], words_1N)
    apart = [part.measure([target], words_1N)[0] for part, target in zip(parts, both.targets, strict=True)]
    assert measured.loss == pytest.approx(sum(each.loss for each in apart) / 3, abs=1e-5)
    at = torch.tensor([2])
    slopes = [part.slopes([each], at)[:, : len(tokenizer)] for part, each in zip(parts, apart, strict=True)]
    assert torch.allclose(ours.slopes([measured], at), torch.stack(slopes).mean(0), atol=1e-5)
    (outcome,) = TriggerSearch(both, Beast(candidates=9, beams=3, max_sweeps=1, restarts=1)).run(
        tasks_of({"all": both.target_ids}, 1, 1)
    )
    assert outcome.candidates == 9 + 3 * 27
    with pytest.raises(ConfigError, match="which models do not share"):
        TriggerSearch(both, Pez())


def test_a_model_with_other_tokens_chooses_and_points_to_nothing(
    victim: UniversalVictim, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = piece_model()
    template = "<|begin|>user\n{prompt} {}<|turn|>\n<|begin|>assistant\n"
    other = HuggingFaceCausal(model, tokenizer, 4, template, prompt="", end=False)
    by_text = [HuggingFaceByText(other, victim.victims[0]).behind(prompt) for prompt in PROMPTS]  # type: ignore[arg-type]
    both = UniversalVictim([*victim.victims, *by_text], [*victim.targets, *(each.target("hello") for each in by_text)])
    assert both.num_models == 2
    ours, guide = UniversalScorer(both, LIKELIHOOD), UniversalScorer(victim, LIKELIHOOD)
    words = both.searchable_V.nonzero()[:, 0]
    inputs_BN = words[torch.randint(len(words), (6, 4), generator=torch.Generator().manual_seed(3))]
    wanted = []
    for words_N in inputs_BN:
        losses = [each.loss for each in guide.measure([victim.target_ids], words_N[None])[0].cache]
        for each in by_text:
            read, target_T = each.typed(words_N.tolist()), each.target("hello")
            logits_TV = model(input_ids=torch.tensor([[*read, *target_T.tolist()]])).logits[0, len(read) - 1 : -1]
            losses.append(-float(logits_TV.log_softmax(-1)[range(len(target_T)), target_T].mean()))
        wanted.append(sum(losses) / len(losses))
    targets = [both.target_ids] * len(inputs_BN)
    measured = ours.measure(targets, inputs_BN)
    assert [each.loss for each in measured] == pytest.approx(wanted, abs=1e-4)
    torch.testing.assert_close(ours.losses(targets, inputs_BN), torch.tensor(wanted), rtol=0, atol=1e-4)
    # However many are read at once: the head at the replies alone, and no more of these than is allowed.
    part, num_logits = ours.parts[-1], list[int]()
    assert isinstance(part, ByTextScorer)
    target_T, all_of_one = by_text[-1].target("hello"), part.losses([by_text[-1].target("hello")] * 6, inputs_BN)
    monkeypatch.setattr(by_text_module, "LOGITS", 2 * len(target_T) * len(tokenizer))
    monkeypatch.setattr(
        by_text_module, "said", lambda logits, target: (num_logits.append(logits.numel()), said(logits, target))[1]
    )
    torch.testing.assert_close(part.losses([target_T] * 6, inputs_BN), all_of_one, rtol=0, atol=1e-4)
    assert max(num_logits) <= 2 * len(target_T) * len(tokenizer)
    at, own = torch.tensor([2]), guide.measure([victim.target_ids], inputs_BN[:1])
    assert torch.equal(ours.slopes(measured[:1], at), guide.slopes(own, at))
    swaps = Swaps(torch.arange(40)[None] % 4, words[torch.arange(40)[None] * 3])
    tried_GN = inputs_BN[:1].repeat(40, 1)
    tried_GN[torch.arange(40), swaps.positions_BG[0]] = swaps.words_BG[0]
    choice_B, loss_B = ours.best_swap(measured[:1], swaps, torch.tensor([torch.inf]))
    loss_G = torch.tensor([each.loss for each in ours.measure([both.target_ids] * 40, tried_GN)])
    assert float(loss_G[choice_B[0]]) == pytest.approx(float(loss_G.min()), abs=1e-5)
    assert float(loss_B) == pytest.approx(float(loss_G.min()), abs=1e-4)


def test_candidates_that_cannot_win_are_not_read_behind_all_prompts(
    victim: UniversalVictim, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = UniversalScorer(victim, LIKELIHOOD)
    words = victim.searchable_V.nonzero()[:, 0]
    (incumbent,) = ours.measure([victim.target_ids], words[None, :4])
    read = []
    for part in ours.parts:
        swap_losses = part.swap_losses

        def counted(incumbent, positions, words, inner=swap_losses):  # type: ignore[no-untyped-def]  # stands for a method
            read.append(len(words))
            return inner(incumbent, positions, words)

        monkeypatch.setattr(part, "swap_losses", counted)
    swaps = Swaps(torch.arange(100)[None] % 4, words[torch.arange(100)[None]])
    ours.best_swap([incumbent], swaps, torch.tensor([incumbent.loss / 4]))
    assert read[0] == 100
    assert sum(read) < 300


def test_a_search_finds_one_input_that_every_prompt_allows(victim: UniversalVictim) -> None:
    search = TriggerSearch(victim, Gcg(candidates=32, words_per_position=64, max_sweeps=6), hit="o-greedy")
    parts = UniversalScorer(victim, LIKELIHOOD).parts
    for outcome in search.run(tasks_of({"all": victim.target_ids}, 2, seed=3)):
        assert outcome.words is not None
        assert outcome.loss < outcome.loss_by_sweep[0]
        ids_1N = torch.tensor([outcome.words])
        assert bool(victim.allows(ids_1N)[0])
        assert outcome.refused > 0
        losses = [part.losses([own], ids_1N) for part, own in zip(parts, victim.targets, strict=True)]
        assert outcome.loss <= float(torch.stack(losses).mean()) + 1e-5
