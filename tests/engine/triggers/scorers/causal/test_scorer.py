"""The scorer of causal models gives the plain one's answers, and reads less."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from parley.engine.triggers.catalogue import searches
from parley.engine.triggers.methods.goal import Goal
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.scorers.causal import swaps as swap_lists
from parley.engine.triggers.scorers.causal.packed import CausalReader, TextBlock, one_below_the_other, read_blocks
from parley.engine.triggers.scorers.causal.scorer import CausalScorer, is_causal
from parley.engine.triggers.scorers.causal.swaps import cheapest_groups, reads_packed
from parley.engine.triggers.scorers.scorer import BestInput, PlainScorer, Scorer, Swaps
from parley.engine.triggers.searches.attack import TriggerSearch
from parley.engine.triggers.searches.batch import Outcome, tasks_of
from tests.engine.triggers.made_up import WORD_METHODS, TinyInputModel, never, searched

transformers = pytest.importorskip("transformers", reason="the extra hugging-face is not installed")

NUM_WORDS, LENGTH, WIDTH = 24, 5, 16
SIZES: dict[str, Any] = {
    "vocab_size": NUM_WORDS, "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 24, "max_position_embeddings": 64,
}  # fmt: skip
BEFORE, AFTER = [3, 1, 4, 1, 5, 9], [2, 6]


def gpt2() -> Any:
    config = transformers.GPT2Config(vocab_size=NUM_WORDS, n_positions=64, n_embd=WIDTH, n_layer=2, n_head=2)
    return transformers.GPT2LMHeadModel(config)


def llama() -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))


def qwen() -> Any:
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**SIZES, tie_word_embeddings=True))


def mistral(window: int | None) -> Any:
    return transformers.MistralForCausalLM(transformers.MistralConfig(**SIZES, sliding_window=window))


MODELS: dict[str, Callable[[], Any]] = {"gpt2": gpt2, "llama": llama, "qwen": qwen}
every_model = pytest.mark.parametrize("name", MODELS)


class MadeUpVictim:
    """A causal model with tokens around the searched words, in one slot or two."""

    def __init__(
        self, model: Any, before: list[int] = BEFORE, between: list[int] | None = None, after: list[int] = AFTER
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0, 0.4, generator=generator)
        self.model = model.eval().requires_grad_(False)
        self.embedding_VE = model.get_input_embeddings()(torch.arange(NUM_WORDS))
        self.searchable_V = torch.arange(NUM_WORDS) >= 3
        self.input_length, between = LENGTH, between or []
        self.ids = [*before, 0, 0, *between, *[0] * (LENGTH - 2), *after]
        first, second = len(before), len(before) + 2 + len(between)
        self.places = [first, first + 1, *range(second, second + LENGTH - 2)]

    def prompt(self, target_T: Tensor) -> tuple[list[int], list[int]]:
        return self.ids, self.places

    def reply_logits(self, embedded_BNE: Tensor, replies_BT: Tensor) -> Tensor:
        places, unfilled = self.places[: embedded_BNE.shape[1]], self.places[embedded_BNE.shape[1] :]
        ids = torch.tensor([word for place, word in enumerate(self.ids) if place not in unfilled])
        read_BLE = self.embedding_VE[torch.cat([ids.expand(len(replies_BT), -1), replies_BT[:, :-1]], 1)]
        read_BLE = read_BLE.index_copy(1, torch.tensor(places), embedded_BNE)
        logits_BTV: Tensor = self.model(inputs_embeds=read_BLE, use_cache=False).logits[:, -replies_BT.shape[1] :]
        return logits_BTV

    def next_logits(self, words_Bt: Tensor) -> Tensor:
        num = words_Bt.shape[1]
        ids_BS = torch.tensor(self.ids[: self.places[num]], dtype=torch.int64).repeat(len(words_Bt), 1)
        if not ids_BS.shape[1]:
            return torch.zeros(len(words_Bt), NUM_WORDS)
        ids_BS[:, self.places[:num]] = words_Bt
        logits_BV: Tensor = self.model(input_ids=ids_BS, use_cache=False).logits[:, -1]
        return logits_BV


class Both(CausalScorer):
    """Asks the plain scorer too, and holds its answers against its own."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.plain = PlainScorer(*arguments)
        self.asked = 0

    def measure(self, targets: Any, words_BN: Tensor) -> list[BestInput]:
        ours, theirs = super().measure(targets, words_BN), self.plain.measure(targets, words_BN)
        for own, other in zip(ours, theirs, strict=True):
            assert own.loss == pytest.approx(other.loss, abs=1e-4)
            assert own.reading.likeliest == other.reading.likeliest
            torch.testing.assert_close(own.cache.gradient_NE, other.cache.gradient_NE, rtol=1e-3, atol=1e-4)
        return ours

    def best_swap(self, incumbents: Any, swaps: Swaps, beat_B: Tensor) -> tuple[Tensor, Tensor]:
        found = super().best_swap(incumbents, swaps, beat_B)
        wanted = self.plain.best_swap(incumbents, swaps, beat_B)
        assert found[0].tolist() == wanted[0].tolist()
        torch.testing.assert_close(found[1], wanted[1], rtol=0, atol=1e-4)
        self.asked += 1
        return found

    def losses(self, targets: Any, words_RN: Tensor) -> Tensor:
        found = super().losses(targets, words_RN)
        torch.testing.assert_close(found, self.plain.losses(targets, words_RN), rtol=0, atol=1e-4)
        self.asked += 1
        return found

    def next_logits(self, target: Tensor, words_Bt: Tensor) -> Tensor:
        found = super().next_logits(target, words_Bt)
        torch.testing.assert_close(found, self.plain.next_logits(target, words_Bt), rtol=1e-3, atol=1e-4)
        return found


def outcomes(scorer: Scorer, method: str, side_by_side: int = 4) -> list[Outcome]:
    settings = SearchSettings(candidates=9, max_sweeps=1, restarts=1, stop_on_hit=False, words_per_position=6, beams=2)
    targets = {"long": torch.tensor([7, 9, 5, 11, 2]), "short": torch.tensor([8, 2]), "word": torch.tensor([2])}
    bound = searches.get(method)(settings).bind(Goal(scorer, never))
    return list(searched(bound, tasks_of(targets, 1, 1), side_by_side))


# Every method with one model, every model with a method of each kind of question.
@pytest.mark.parametrize(
    ("name", "method"),
    [*(("llama", method) for method in WORD_METHODS), *itertools.product(("gpt2", "qwen"), ("gibbs-enum", "gcg", "beast"))],
)
def test_every_step_of_every_method_is_the_plain_one(name: str, method: str) -> None:
    victim, objective = MadeUpVictim(MODELS[name]()), TriggerObjective(kind="likelihood")
    both = Both(victim, objective, rows=5)
    ours, theirs = outcomes(both, method), outcomes(PlainScorer(victim, objective), method)
    assert both.asked or method in ("hotflip", "pez")
    assert [outcome.words for outcome in ours] == [outcome.words for outcome in theirs]
    assert [outcome.loss for outcome in ours] == pytest.approx([outcome.loss for outcome in theirs], abs=1e-4)


@pytest.mark.parametrize(("before", "between"), [([], []), ([3], [4, 4]), (BEFORE, [])])
def test_inputs_that_grow_are_read_as_plainly(before: list[int], between: list[int]) -> None:
    both = Both(MadeUpVictim(llama(), before, between), TriggerObjective(kind="likelihood"))
    assert all(outcome.candidates == 9 + 4 * 2 * 9 for outcome in outcomes(both, "beast"))


@pytest.mark.parametrize("kind", ["greedy", "sample"])
@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_satisfied_words_and_judged_inputs_end_candidates_as_exactly(kind: Any, weight: float) -> None:
    objective = TriggerObjective(kind=kind, t_out=-2.0, lm_weight=weight, t_in=-1.0, satisfied_weight=0.01)
    generator = torch.Generator().manual_seed(2)
    sizes = ((NUM_WORDS, 6), (6, 8), (8, 8), (8, NUM_WORDS))
    judge = TinyInputModel(*(torch.randn(size, generator=generator) for size in sizes))
    both = Both(MadeUpVictim(llama()), objective, judge)
    outcomes(both, "gibbs-enum")
    assert both.asked >= LENGTH


@pytest.mark.parametrize("around", [{"before": [], "after": []}, {"between": [4, 4, 7]}])
def test_slots_may_stand_anywhere(around: dict[str, list[int]]) -> None:
    both = Both(MadeUpVictim(gpt2(), **around), TriggerObjective(kind="likelihood"))
    for method in ("gcg", "beam"):
        outcomes(both, method)
    assert both.asked >= 2 * LENGTH


def in_stages(monkeypatch: pytest.MonkeyPatch, scorer: CausalScorer) -> None:
    """Lets a scorer read short replies in stages, pass by pass of its reader."""
    monkeypatch.setattr(swap_lists, "AT_ONCE", 1)
    scorer.packs = False


def test_a_candidate_that_cannot_win_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    victim = MadeUpVictim(llama())
    scorer = CausalScorer(victim, TriggerObjective(kind="likelihood"))
    words_S, target = victim.searchable_V.nonzero()[:, 0], torch.tensor([7, 9, 5, 11, 2])
    (incumbent,) = scorer.measure([target], torch.tensor([[3, 4, 5, 6, 7]]))
    in_stages(monkeypatch, scorer)
    read, call = [], scorer.reader.read

    def counted(embedded_BLE: Tensor, before: Any, keep: int) -> Any:
        read.append((*embedded_BLE.shape[:2], keep))
        return call(embedded_BLE, before, keep)

    monkeypatch.setattr(scorer.reader, "read", counted)
    swaps = Swaps(torch.full((1, len(words_S)), 3), words_S[None])
    scorer.best_swap([incumbent], swaps, torch.tensor([torch.inf]))
    everything = sum(rows * length for rows, length, _ in read)
    read.clear()
    scorer.best_swap([incumbent], swaps, torch.tensor([0.4]))
    # The changed word, one after it and the prompt's end for all but the incumbent; words of the reply for fewer and fewer.
    assert read[0] == (len(words_S) - 1, 4, 1)
    assert [rows for rows, _, _ in read] == sorted((rows for rows, _, _ in read), reverse=True)
    assert sum(rows * length for rows, length, _ in read) < 0.8 * everything


def test_logits_are_never_more_than_those_of_a_piece_of_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    victim, rows = MadeUpVictim(llama()), 4
    scorer = CausalScorer(victim, TriggerObjective(kind="likelihood"), rows=rows)
    words_S, target = victim.searchable_V.nonzero()[:, 0], torch.tensor([7, 9, 5, 11, 2])
    (incumbent,) = scorer.measure([target], torch.tensor([[3, 4, 5, 6, 7]]))
    swaps = Swaps(torch.arange(len(words_S))[None] % LENGTH, words_S[None])
    wanted = scorer.best_swap([incumbent], swaps, torch.tensor([torch.inf]))
    in_stages(monkeypatch, scorer)
    logits, call = [], scorer.reader.read

    def narrow(embedded_BLE: Tensor, before: Any, keep: int) -> Any:
        # Memory for two replies.
        if len(embedded_BLE) > 2:
            raise torch.OutOfMemoryError("no room")
        found = call(embedded_BLE, before, keep)
        logits.append(found[0].numel())
        return found

    monkeypatch.setattr(scorer.reader, "read", narrow)
    found = scorer.best_swap([incumbent], swaps, torch.tensor([torch.inf]))
    assert scorer.pieces.size == 2
    # All but a reply's first word in the last stage.
    assert max(logits) == 2 * (len(target) - 1) * NUM_WORDS
    assert found[0].tolist() == wanted[0].tolist()
    torch.testing.assert_close(found[1], wanted[1], rtol=0, atol=1e-4)


def test_candidates_listed_twice_are_read_once_and_the_first_is_named() -> None:
    victim = MadeUpVictim(gpt2())
    both = Both(victim, TriggerObjective(kind="likelihood"))
    (incumbent,) = both.measure([torch.tensor([7, 2])], torch.tensor([[3, 4, 5, 6, 7]]))
    words_G = torch.tensor([[8, 9, 9, 8, 10, 9]])
    both.best_swap([incumbent], Swaps(torch.tensor([[1, 4, 4, 1, 0, 4]]), words_G), torch.tensor([torch.inf]))


def test_what_is_found_does_not_depend_on_company() -> None:
    scorer = CausalScorer(MadeUpVictim(llama()), TriggerObjective(kind="likelihood"))
    targets = [torch.tensor([7, 9, 5, 2]), torch.tensor([8, 2])]
    incumbents = scorer.measure(targets, torch.tensor([[3, 4, 5, 6, 7], [8, 9, 10, 11, 12]]))
    swaps = Swaps(torch.arange(10).view(2, 5) % LENGTH, torch.arange(10).view(2, 5) + 4)
    together = scorer.best_swap(incumbents, swaps, torch.full((2,), torch.inf))[1]
    alone = [
        scorer.best_swap([incumbent], Swaps(swaps.positions_BG[i, None], swaps.words_BG[i, None]), torch.full((1,), torch.inf))[
            1
        ]
        for i, incumbent in enumerate(incumbents)
    ]
    assert together.tolist() == torch.cat(alone).tolist()


@every_model
def test_texts_of_different_lengths_share_a_pass_and_are_read_as_alone(name: str) -> None:
    model = MadeUpVictim(MODELS[name]()).model
    reader, embed = CausalReader(model), model.get_input_embeddings()
    known = reader.read(embed(torch.tensor([[3, 4, 5, 6]])), (), 1)[1]
    texts = [torch.tensor([[7, 8, 9], [9, 8, 7]]), torch.tensor([[5, 6, 7, 8, 9, 10, 11]])]
    # The first is behind a beginning of its own for each text.
    beginnings = one_below_the_other([known, reader.read(embed(torch.tensor([[9, 8, 7, 6]])), (), 1)[1]]), known.cut(0, 1)
    blocks = [TextBlock(embed(ids), [before], 3) for ids, before in zip(texts, beginnings, strict=True)]
    attention = model.config._attn_implementation
    with torch.no_grad():
        together, alone = read_blocks(reader, blocks), [reader.read(*block) for block in blocks]
    for (logits, kept), (wanted, expected) in zip(together, alone, strict=True):
        torch.testing.assert_close(logits, wanted, rtol=1e-4, atol=1e-5)
        for found, wanted in zip((*kept.keys, *kept.values), (*expected.keys, *expected.values), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert model.config._attn_implementation == attention
    assert reads_packed(reader, embed(torch.arange(3, 10)))


def test_models_that_do_more_in_their_attention_are_read_group_by_group() -> None:
    config = transformers.Gemma2Config(**SIZES, head_dim=4, attn_logit_softcapping=50.0, layer_types=["full_attention"] * 2)
    victim = MadeUpVictim(transformers.Gemma2ForCausalLM(config))
    scorer = Both(victim, TriggerObjective(kind="likelihood"))
    assert not scorer.packs
    outcomes(scorer, "gcg")
    assert scorer.asked


@pytest.mark.parametrize("at_once", [1, 8])
@pytest.mark.parametrize("packs", [False, True])
def test_stages_and_passes_change_no_choice(monkeypatch: pytest.MonkeyPatch, at_once: int, packs: bool) -> None:
    monkeypatch.setattr(swap_lists, "AT_ONCE", at_once)
    both = Both(MadeUpVictim(llama()), TriggerObjective(kind="likelihood"))
    assert both.packs
    both.packs = packs
    outcomes(both, "gcg")
    assert both.asked >= LENGTH


def test_models_whose_memory_cannot_be_cut_are_asked_the_plain_way() -> None:
    assert is_causal(MadeUpVictim(mistral(None)))
    assert not is_causal(MadeUpVictim(mistral(4)))
    mamba = transformers.MambaForCausalLM(
        transformers.MambaConfig(vocab_size=NUM_WORDS, hidden_size=WIDTH, num_hidden_layers=1, state_size=4)
    )
    assert not is_causal(MadeUpVictim(mamba))
    assert type(TriggerSearch(MadeUpVictim(mistral(4))).method.scorer) is PlainScorer
    assert type(TriggerSearch(MadeUpVictim(gpt2())).method.scorer) is CausalScorer


def test_the_model_stays_as_it_was() -> None:
    model = llama()
    scorer = CausalScorer(MadeUpVictim(model), TriggerObjective(kind="likelihood"))
    scorer.losses([torch.tensor([2])], torch.tensor([[3, 4, 5, 6, 7]]))
    assert not any("forward" in vars(module) for module in model.modules())


def test_neighbours_are_read_together_where_a_pass_costs_more_than_their_tokens() -> None:
    parts = [(3, 10), (2, 9), (50, 4), (50, 3)]
    assert cheapest_groups(parts, 0) == [range(1), range(1, 2), range(2, 3), range(3, 4)]
    assert cheapest_groups(parts, 20) == [range(2), range(2, 3), range(3, 4)]
    assert cheapest_groups(parts, 1000) == [range(4)]
