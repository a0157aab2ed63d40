"""The trigger search in a chat model is measured on a GPU as on a CPU."""

from __future__ import annotations

import pytest
import torch

from benchmarks import chat_triggers, measure
from benchmarks.chat_triggers import Chat, Options, compare
from tests.imitated_devices import imitated_devices

transformers = pytest.importorskip("transformers", reason="the extra hugging-face is not installed")

NUM_WORDS = 320
SIZES = {
    "vocab_size": NUM_WORDS, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip


def tiny(device: str) -> Chat:
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).eval().requires_grad_(False).to(device)
    target_T = torch.tensor([7, 9, 5, 11, 2], device=device)
    return Chat("tiny", model, [3, 4, 5], [6, 7], target_T, torch.ones(NUM_WORDS, dtype=torch.bool, device=device))


def test_a_gpu_finds_what_a_cpu_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Options, "candidates", 24)
    monkeypatch.setattr(Options, "steps", 2)
    monkeypatch.setattr(measure, "PEAK_WIDTH", {"cpu": 64, "cuda": 64})
    monkeypatch.setattr(chat_triggers, "multiplies_bfloat16", lambda device: device.type == "cuda")
    monkeypatch.setattr("parley.engine.triggers.scorers.causal.swaps.require_bfloat16", lambda device, width: None)
    waited = list[torch.device]()
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    cpu = compare(tiny("cpu"), Options(quick=True))
    assert not waited
    with imitated_devices():
        gpu = compare(tiny("cuda:0"), Options(device="cuda", quick=True))
    assert set(waited) == {torch.device("cuda:0")}
    assert cpu.identical
    assert gpu.identical
    assert {"ratio_screened", "ratio_double", "ratio_four", "ratio_whole"} <= set(gpu.figures) - set(cpu.figures)
    assert gpu.share_of_floor is not None
    assert gpu.share_of_floor > 0
    for name in ("flop_per_candidate", "ratio_together"):
        assert gpu.figures[name] > 0


def test_operations_are_those_of_the_products() -> None:
    found = tiny("cpu")
    # Queries and output, keys and values, and the three products behind attention.
    layer = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64
    attention = 4 * 32 * sum(range(1, 31))
    assert found.flop(range(30), 5) == 2 * (2 * layer * 30 + 5 * 32 * NUM_WORDS) + 2 * attention
    assert found.tokens(0) == range(3, 30)
