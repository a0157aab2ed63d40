"""One input of models on several devices, each on one of its own or spread by a map: they find what one device finds."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch

from parley.engine.triggers.catalogue import make_method, searches
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.scorers.causal.scorer import is_causal
from parley.engine.triggers.searches.attack import TriggerSearch
from parley.engine.triggers.searches.batch import Outcome, UniversalVictim, tasks_of
from tests.imitated_devices import device_of, imitated_devices

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")

import transformers

from parley.policies.hugging_face.judges import HuggingFaceInputModel
from parley.policies.hugging_face.victims import HuggingFaceCausal
from tests.policies.byte_pairs import byte_model, byte_tokenizer

TEMPLATE = "<|begin|>user\n{prompt} {}<|turn|>\n<|begin|>assistant\n"
TARGET = "hello hello there printer"
"""Longer than what is read at once, so that candidates are read in stages."""
EFFORT = SearchSettings(
    candidates=12, beams=3, restarts=1, max_sweeps=1, words_per_position=16, stop_on_hit=False, max_candidates=30
)
UNIVERSAL = tuple(name for name in searches if name not in ("pez", "relaxation"))


def asked(seed: int) -> HuggingFaceCausal:
    return HuggingFaceCausal(*byte_model(seed), 4, TEMPLATE, prompt="", end=False)


def found(method: str, devices: tuple[str, str], judge: str, objective: TriggerObjective) -> Outcome:
    """What a search finds on two models, each on a device, and a judge on another."""
    one, other = asked(0).to(devices[0]), asked(5).to(devices[1])
    reader = asked(7).to(judge)
    pairs = [one.behind("tell me"), one.behind("say it"), other.behind("tell me"), other.behind("about")]
    victim = UniversalVictim(pairs, [pair.target(TARGET) for pair in pairs])
    judges = HuggingFaceInputModel(reader.model, reader.tokenizer)
    search = TriggerSearch(victim, make_method(method, EFFORT), objective=objective, input_model=judges)
    (outcome,) = search.run(tasks_of({"all": victim.target_ids}, 1, 3))
    return outcome


@pytest.mark.parametrize(("method", "lm_weight"), [("gcg", 0.0), *((method, 0.5) for method in UNIVERSAL)])
def test_models_on_devices_of_their_own_are_searched_as_on_one(method: str, lm_weight: float) -> None:
    objective = TriggerObjective(kind="likelihood", lm_weight=lm_weight)
    wanted = found(method, ("cpu", "cpu"), "cpu", objective)
    with imitated_devices():
        outcome = found(method, ("cuda:0", "cuda:1"), "cuda:2", objective)
    assert outcome.words == wanted.words
    assert outcome.loss == pytest.approx(wanted.loss, rel=1e-4)
    assert outcome.candidates == wanted.candidates


def llama(seed: int) -> Any:
    """Two layers, larger weights than such a model begins with."""
    config = transformers.LlamaConfig(
        vocab_size=len(byte_tokenizer()), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=128, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model, generator = transformers.LlamaForCausalLM(config), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.6, generator=generator)
    return model


def spread(model: Any, first: str, last: str) -> Any:
    """The model with its first layer on one device and its last on another, as a device map puts them."""
    from accelerate import dispatch_model

    begin, end = ("embed_tokens", "rotary_emb", "layers.0"), ("layers.1", "norm")
    places = {f"model.{name}": first for name in begin} | {f"model.{name}": last for name in end} | {"lm_head": last}
    return dispatch_model(model, places, main_device=first, force_hooks=True)


@pytest.mark.skipif(find_spec("accelerate") is None, reason="the extra gguf is not installed")
@pytest.mark.parametrize("method", ["gcg", "gibbs-enum", "beast"])
def test_models_that_maps_have_spread_are_searched_as_on_one(method: str) -> None:
    def outcome(models: list[Any]) -> Outcome:
        both = [HuggingFaceCausal(model, byte_tokenizer(), 4, TEMPLATE, prompt="", end=False) for model in models]
        pairs = [each.behind(prompt) for each in both for prompt in ("tell me", "say it")]
        victim = UniversalVictim(pairs, [pair.target(TARGET) for pair in pairs])
        assert all(map(is_causal, pairs)), "read the fast way wherever the layers are"
        search = TriggerSearch(victim, make_method(method, EFFORT), objective=TriggerObjective(kind="likelihood"))
        (each,) = search.run(tasks_of({"all": victim.target_ids}, 1, 3))
        return each

    wanted = outcome([llama(0), llama(5)])
    with imitated_devices():
        models = [spread(llama(0), "cuda:0", "cuda:1"), spread(llama(5), "cuda:1", "cuda:2")]
        assert len({device_of(each) for model in models for each in model.parameters()}) == 3
        got = outcome(models)
    assert (got.words, got.candidates) == (wanted.words, wanted.candidates)
    assert got.loss == pytest.approx(wanted.loss, rel=1e-4)
