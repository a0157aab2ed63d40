"""Adapters of peft: merged only where the model says the same, read as folders, and never applied without a word."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from parley.engine.core.verbs.checkpoints import weights_digests
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.policies.chat import predictor
from parley.policies.chat.adapters import AdaptedChatModel, shared_base
from parley.policies.chat.local import LocalChatModel, load_local
from parley.policies.chat.model import ChatDecoding, Message
from parley.policies.chat.predictor import adapted, merged
from parley.policies.chat.settings import DEFAULT, ChatModelSettings, ChatSeat, LoraSettings
from parley.policies.hugging_face import gguf as adapter_folders
from parley.policies.hugging_face.models import read_model, write_adapter
from parley.policies.ranking.rankers import is_chat_ranker
from tests.policies.chat.architectures import drawn_model

peft = pytest.importorskip("peft", reason="the extra lora is not installed")
CHAT = (Message("user", "hello there"),)
PROBE = torch.tensor([[5, 60, 7, 80, 9, 100, 11]])


def noisy(model: Any, seed: int = 0) -> Any:
    """Draw an adapter's weights, which begin at nothing."""
    torch.manual_seed(seed)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


@torch.inference_mode()
def logits_of(model: Any) -> torch.Tensor:
    logits: torch.Tensor = model.eval()(PROBE).logits
    return logits


def saved_base(folder: Path, *, tied: bool = False) -> Path:
    model, tokenizer = drawn_model("llama")
    model.config.tie_word_embeddings = tied
    model.tie_weights()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def saved_adapter(folder: Path, base: Path, modules: tuple[str, ...] = ("q_proj", "v_proj")) -> torch.Tensor:
    """Save an adapter of a base; return the logits of both together."""
    _, model = read_model(base)
    config = peft.LoraConfig(r=2, target_modules=list(modules), task_type="CAUSAL_LM")
    together = noisy(peft.get_peft_model(model, config))
    together.save_pretrained(folder)
    return logits_of(together)


@pytest.mark.parametrize("modules", ["embed_tokens", "lm_head", "embed_tokens,lm_head", "q_proj,lm_head"])
def test_adapters_on_tied_embeddings_are_refused(modules: str, tmp_path: Path) -> None:
    _, model = read_model(saved_base(tmp_path, tied=True))
    assert model.lm_head.weight is model.model.embed_tokens.weight
    with pytest.raises(ConfigError, match=r"tied embeddings cannot be added(.|\n)*lora\.modules"):
        adapted(model, LoraSettings(rank=2, modules=modules), 0)


@pytest.mark.parametrize("modules", ["embed_tokens", "lm_head", "all-linear", "q_proj,down_proj"])
def test_a_merged_model_says_what_the_adapted_one_says(modules: str) -> None:
    model, _ = drawn_model("llama")
    before = logits_of(model)
    both = noisy(adapted(model, LoraSettings(rank=2, modules=modules), 0))
    wanted = logits_of(both)
    assert not torch.allclose(wanted, before, atol=1e-2)
    torch.testing.assert_close(logits_of(merged(both)), wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("case", ["one", "none", "two", "dropout", "half", "autocast", "learning base", "named"])
def test_an_adapter_in_one_pass_is_that_of_peft(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = drawn_model("llama")
    both = noisy(adapted(model, LoraSettings(rank=2, alpha=3, dropout=0.5 if case == "dropout" else 0.0), 0))
    layer = both.base_model.model.model.layers[0].mlp.up_proj
    usual = peft.tuners.lora.Linear
    assert (type(layer).__base__, type(layer).__name__) == (usual, "OnePassLinear")
    taken: list[int] = []
    in_one_pass = predictor.dense_with_adapter
    monkeypatch.setattr(predictor, "dense_with_adapter", lambda *given: taken.append(1) or in_one_pass(*given))
    given: dict[str, Any] = {}
    if case == "none":
        layer.enable_adapters(False)
    elif case == "two":
        adapted(both, LoraSettings(rank=2), 1, adapter_name="second")
        noisy(both, 1).base_model.set_adapter(["default", "second"])
    elif case == "learning base":
        layer.base_layer.weight.requires_grad_(True)
    elif case == "half":
        layer.base_layer.bfloat16()
    elif case == "named":
        given = {"adapter_names": ["default"] * 3}
    sides = []
    for forward in (layer.forward, partial(usual.forward, layer)):
        torch.manual_seed(1)
        rows = torch.randn(3, 4, layer.in_features, requires_grad=True)
        layer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=case == "autocast"):
            read = forward(rows.bfloat16() if case == "half" else rows, **given)
            with torch.no_grad():
                again = read if case == "dropout" else forward(rows.bfloat16() if case == "half" else rows, **given)
        read.float().square().sum().backward()
        sides.append([read, again, rows.grad, *(weight.grad for weight in layer.parameters() if weight.grad is not None)])
    # Both outputs, the gradient at the rows, and those of an adapter's two weights.
    assert len(sides[0]) == {"none": 3, "two": 7, "learning base": 6}.get(case, 5)
    for ours, wanted in zip(*sides, strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-5)
    assert bool(taken) == (case == "one")


def test_a_merge_that_changes_what_the_model_says_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = drawn_model("llama")
    both = noisy(adapted(model, LoraSettings(rank=2), 0))
    merge = both.merge_and_unload

    def wrong() -> Any:
        alone = merge()
        alone.model.embed_tokens.weight.data.mul_(1.1)
        return alone

    both.merge_and_unload = wrong
    with pytest.raises(CheckpointError, match=r"says something else(.|\n)*logits differ by"):
        merged(both, "hf:here")


@pytest.mark.parametrize("relative", [False, True])
def test_a_folder_of_an_adapter_is_its_base_with_it(relative: bool, tmp_path: Path) -> None:
    base, folder = saved_base(tmp_path / "base"), tmp_path / "adapter"
    wanted = saved_adapter(folder, base)
    if relative:
        path = folder / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": "../base"}))
    chat_model = load_local(f"hf:{folder}", DEFAULT)
    torch.testing.assert_close(logits_of(chat_model.model), wanted, rtol=1e-3, atol=1e-3)
    assert not any("lora" in name for name, _ in chat_model.model.named_parameters())
    tokenizer, model = read_model(f"hf:{folder}")
    torch.testing.assert_close(logits_of(model), wanted, rtol=1e-3, atol=1e-3)
    decoding, again = ChatDecoding(max_tokens=4), LocalChatModel("x", model, tokenizer)
    alone = LocalChatModel("base", *reversed(read_model(base)))
    assert chat_model.answer([CHAT], decoding=decoding) == again.answer([CHAT], decoding=decoding)
    assert chat_model.score([CHAT], ["oh well"]) != alone.score([CHAT], ["oh well"])
    assert is_chat_ranker(f"hf:{folder}")
    half = load_local(f"hf:{folder}", ChatModelSettings(dtype="bfloat16"))
    assert half.model.dtype is torch.bfloat16


def test_the_base_of_an_adapter_counts_for_what_a_run_keeps_to(tmp_path: Path) -> None:
    base, folder = saved_base(tmp_path / "base"), tmp_path / "adapter"
    saved_adapter(folder, base)
    before = weights_digests({"model": f"hf:{folder}"})
    (base / "config.json").write_text((base / "config.json").read_text() + "\n")
    assert weights_digests({"model": f"hf:{folder}"}) != before


def test_an_adapter_whose_base_is_on_a_hub_says_what_to_do(tmp_path: Path) -> None:
    base, folder = saved_base(tmp_path / "base"), tmp_path / "adapter"
    saved_adapter(folder, base)
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": "some/model"}))
    with pytest.raises(CheckpointError, match=r"base is no folder here(.|\n)*'some/model'(.|\n)*base_model_name_or_path"):
        load_local(f"hf:{folder}", DEFAULT)


def test_an_adapter_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    base, folder = saved_base(tmp_path / "base"), tmp_path / "adapter"
    saved_adapter(folder, base)
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"r": 5}))
    with pytest.raises(CheckpointError, match="does not fit its base"):
        load_local(f"hf:{folder}", DEFAULT)
    path.write_text(json.dumps(config | {"target_modules": ["q_proj", "v_proj", "up_proj"]}))
    with pytest.raises(CheckpointError, match=r"not hold all weights of its adapter(.|\n)*up_proj"):
        load_local(f"hf:{folder}", DEFAULT)
    path.write_text(json.dumps(config))
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(CheckpointError, match=r"needs an adapter_model\.safetensors(.|\n)*adapter_model\.bin"):
        load_local(f"hf:{folder}", DEFAULT)


def test_an_adapter_on_tied_embeddings_is_refused_where_merging_changes_the_model(tmp_path: Path) -> None:
    base, folder = saved_base(tmp_path / "base", tied=True), tmp_path / "adapter"
    saved_adapter(folder, base, ("lm_head",))
    with pytest.raises(CheckpointError, match="says something else than the adapted one"):
        load_local(f"hf:{folder}", DEFAULT)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "auto"])
@pytest.mark.usefixtures("own_cache")
def test_an_adapter_beside_full_weights_is_said_and_not_applied(
    dtype: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(adapter_folders, "_warned", set())
    base = saved_base(tmp_path / "base")
    wanted = logits_of(load_local(f"hf:{base}", ChatModelSettings(dtype=dtype)).model)
    saved_adapter(base, base)
    assert (base / "adapter_config.json").is_file()
    with caplog.at_level(logging.WARNING, "parley.policies.hugging_face.gguf"):
        found = [logits_of(load_local(f"hf:{base}", ChatModelSettings(dtype=dtype)).model) for _ in range(2)]
    assert torch.equal(found[0], wanted)
    assert torch.equal(found[1], wanted)
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == [
        "the adapter beside the full weights is not applied"
    ]


class Backwards(set[str]):
    """A set in the order of another process, whose hashes are others."""

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(super().__iter__(), reverse=True))


def test_an_adapter_that_is_made_again_has_the_same_digest(tmp_path: Path) -> None:
    base = saved_base(tmp_path / "base")
    # One place comes before the base's, one after it.
    for place, kind in (("a", set), ("c", Backwards)):
        tokenizer, model = read_model(base)
        model = adapted(model, LoraSettings(rank=2), 1)
        config = model.peft_config["default"]
        config.target_modules = kind(config.target_modules)
        assert len(config.target_modules) > 1
        write_adapter(model, tokenizer, f"hf:{base}", tmp_path / place)
    digests = weights_digests({place: f"hf:{tmp_path / place}" for place in "ac"})
    assert len(set(digests.values())) == 1
    assert len(digests) == 2


def test_an_adapter_scores_by_itself_whichever_was_used_last(tmp_path: Path) -> None:
    shared = shared_base(f"hf:{saved_base(tmp_path / 'base')}", ChatSeat(batch_size=4))
    names = [shared.add("", LoraSettings(rank=2), seed) for seed in (1, 2)]
    for name in names:
        for weight in shared.weights(name).values():
            torch.nn.init.normal_(weight, std=0.3)
    beginning = Message("user", "what several chats begin with is read once for all of them")
    chats = [(beginning, Message("assistant", "oh"), Message("user", last)) for last in ("well", "you are")]
    replies = ["a fool", "oh well"]
    wanted = [AdaptedChatModel(name, shared, name).score(chats, replies) for name in names]
    assert wanted[0] != wanted[1]
    first, second = (AdaptedChatModel(name, shared, name, 4) for name in names)
    for model, scores, other in ((first, wanted[0], second), (second, wanted[1], first)):
        other.answer([CHAT], decoding=ChatDecoding(max_tokens=1))
        assert [score.nats for score in model.score(chats, replies)] == pytest.approx(
            [score.nats for score in scores], rel=1e-4
        )
        # No reading that is kept holds on to how it was computed.
        assert not any(side.requires_grad for text in model._readings._kept.values() for sides in text.layers for side in sides)
