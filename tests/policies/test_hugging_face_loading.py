"""Hugging Face models as they are loaded: precision, devices, and what is refused."""

from __future__ import annotations

import builtins
from importlib.util import find_spec
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.scorers.causal import packed as reader
from parley.engine.triggers.scorers.causal.packed import CausalReader
from parley.engine.triggers.scorers.causal.scorer import CausalScorer, is_causal
from parley.engine.triggers.scorers.scorer import PlainScorer
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.policies.chat.settings import Precision, WeightSettings
from parley.policies.hugging_face.models import load_hugging_face
from parley.policies.hugging_face.tokens import longest_input, num_positions
from parley.policies.hugging_face.victims import HuggingFaceCausal, HuggingFaceVictim
from tests.policies.small_hugging_face import (
    LENGTH,
    MODELS,
    drawn,
    every_model,
    gpt2,
    t5,
    transformers,
)


@every_model
def test_a_saved_model_is_loaded_as_it_was(name: str, tmp_path: Path) -> None:
    victim = MODELS[name]()
    victim.model.save_pretrained(tmp_path)
    victim.tokenizer.save_pretrained(tmp_path)
    again = load_hugging_face(tmp_path, LENGTH)
    assert type(again) is type(victim)
    assert torch.equal(again.searchable_V, victim.searchable_V)
    words_BN, replies_BT = drawn(victim, 1), victim.target("you are")[None]
    theirs = victim.reply_logits(victim.embedding_VE[words_BN], replies_BT)
    torch.testing.assert_close(again.reply_logits(again.embedding_VE[words_BN], replies_BT), theirs)
    if name != "gpt2":
        with pytest.raises(ConfigError, match="only a causal model takes a template"):
            load_hugging_face(tmp_path, LENGTH, template="{}")


@every_model
@pytest.mark.usefixtures("own_cache")
def test_a_model_is_read_in_float32_whatever_its_file_is_in_or_as_it_is_asked_for(name: str, tmp_path: Path) -> None:
    victim = MODELS[name]()
    words_BN, replies_BT = drawn(victim, 3), victim.target("you are a fool")[None].expand(3, -1)
    victim.model.to(torch.bfloat16).save_pretrained(tmp_path)
    victim.tokenizer.save_pretrained(tmp_path)
    found = {}
    precisions: dict[Precision, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16, "auto": torch.bfloat16}
    for dtype, wanted in {**precisions, "": torch.float32}.items():
        settings = {"weights": WeightSettings(dtype=dtype)} if dtype else {}
        read = load_hugging_face(tmp_path, LENGTH, **settings)
        assert {read.embedding_VE.dtype, *(weight.dtype for weight in read.model.parameters())} == {wanted}, dtype
        found[dtype] = read.reply_logits(read.embedding_VE[words_BN], replies_BT)
    assert torch.equal(found["float32"], found[""])
    assert torch.equal(found["bfloat16"], found["auto"])
    assert 0 < float((found["bfloat16"].float() - found["float32"]).abs().max()) < 0.2


@pytest.mark.usefixtures("own_cache")
def test_weights_in_float16_and_in_several_files_are_those_of_one(tmp_path: Path) -> None:
    victim = gpt2()
    victim.model.to(torch.float16).save_pretrained(tmp_path, max_shard_size="2KB")
    victim.tokenizer.save_pretrained(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    read = load_hugging_face(tmp_path, LENGTH, weights=WeightSettings(dtype="float32"))
    for name, weight in victim.model.state_dict().items():
        torch.testing.assert_close(read.model.state_dict()[name], weight.float(), rtol=0, atol=0)
    next(iter(sorted(tmp_path.glob("*.safetensors")))).unlink()
    with pytest.raises(CheckpointError):
        load_hugging_face(tmp_path, LENGTH)


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({"max_seq_len": 10**18}, inf),
        ({"max_seq_len": 64, "max_position_embeddings": 10**9}, 64),
        ({"max_position_embeddings": 0}, inf),
        ({"get_text_config": lambda: SimpleNamespace(max_position_embeddings=77), "max_position_embeddings": 4096}, 77),
        ({"max_position_embeddings": 64, "rope_parameters": {"rope_type": "linear", "factor": 4.0}}, 64),
        (
            {
                "max_position_embeddings": 64,
                "rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 16},
            },
            16,
        ),
        (
            {
                "max_position_embeddings": 64,
                "rope_parameters": {"full_attention": {"rope_type": "longrope", "original_max_position_embeddings": 16}},
            },
            16,
        ),
    ],
)
def test_the_limit_is_that_of_the_language_part_and_an_absurd_one_is_none(settings: dict[str, Any], limit: float) -> None:
    model = SimpleNamespace(named_modules=list, config=SimpleNamespace(**settings))
    assert num_positions(model) == limit
    assert longest_input(SimpleNamespace(model_max_length=10**30), model) == limit


@pytest.mark.skipif(find_spec("accelerate") is None, reason="the extra gguf is not installed")
@pytest.mark.parametrize("name", ["t5", "gpt2"])
def test_a_model_that_a_device_map_has_spread_is_searched_where_its_embeddings_are(name: str, tmp_path: Path) -> None:
    from accelerate import cpu_offload

    victim = MODELS[name]()
    victim.model.save_pretrained(tmp_path)
    victim.tokenizer.save_pretrained(tmp_path)
    mapped = load_hugging_face(tmp_path, LENGTH, weights=WeightSettings(device_map="auto"), device="no such device")
    assert mapped.embedding_VE.device == mapped.searchable_V.device == mapped.model.get_input_embeddings().weight.device

    def measured(of: HuggingFaceVictim) -> tuple[float, torch.Tensor]:
        scorer = (CausalScorer if is_causal(of) else PlainScorer)(of, TriggerObjective(kind="likelihood"))
        (incumbent,) = scorer.measure([of.target("you are a fool")], drawn(victim, 1))
        return incumbent.loss, scorer.slopes([incumbent], torch.tensor([1]))

    whole = measured(victim)
    # Weights that are fetched when a layer is asked, as where a map leaves some of them outside of a GPU.
    cpu_offload(mapped.model, torch.device("cpu"))
    spread = type(mapped)(mapped.model, mapped.tokenizer, LENGTH)
    assert next(mapped.model.parameters()).is_meta
    torch.testing.assert_close(measured(spread), whole)


@pytest.mark.skipif(find_spec("accelerate") is None, reason="the extra gguf is not installed")
def test_layers_that_a_device_map_has_spread_keep_what_moves_their_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate.hooks import ModelHook, add_hook_to_module

    monkeypatch.setattr(reader, "is_mkl_whole", lambda: False)
    model = gpt2().model
    add_hook_to_module(model.lm_head, ModelHook())
    moves = model.lm_head.forward
    with CausalReader(model).fast_products():
        assert model.lm_head.forward is moves
    assert model.lm_head.forward is moves


@pytest.mark.parametrize("whole", [True, False])
def test_layers_multiply_by_their_own_kernels_where_these_are_fast(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "is_mkl_whole", lambda: whole)
    model = gpt2().model
    head = model.lm_head
    with CausalReader(model).fast_products():
        assert ("forward" in vars(head)) is not whole
    assert "forward" not in vars(head)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_hugging_face(tmp_path, LENGTH)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_embd": 8}')
    with pytest.raises(CheckpointError, match="no tokenizer"):
        load_hugging_face(tmp_path, LENGTH)


def test_weights_that_could_run_code_are_not_read(tmp_path: Path) -> None:
    victim = gpt2()
    victim.model.config.save_pretrained(tmp_path)
    victim.tokenizer.save_pretrained(tmp_path)
    torch.save(victim.model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="weights are pickled"):
        load_hugging_face(tmp_path, LENGTH)


def test_weights_that_are_no_numbers_are_refused() -> None:
    victim = gpt2()
    victim.model.transformer.h[0].ln_1.weight.data[0] = torch.nan
    with pytest.raises(CheckpointError, match=r"h\.0\.ln_1\.weight"):
        HuggingFaceCausal(victim.model, victim.tokenizer, LENGTH)


def test_a_tokenizer_without_an_end_is_refused(tmp_path: Path) -> None:
    victim = gpt2()
    victim.tokenizer.eos_token, victim.model.generation_config.eos_token_id = None, None
    victim.model.config.eos_token_id = None
    victim.model.save_pretrained(tmp_path)
    victim.tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=rf"ends a reply(.|\n)*where: hf:{tmp_path}"):
        load_hugging_face(f"hf:{tmp_path}", LENGTH)


def test_without_the_extra_the_command_that_installs_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "transformers":
            raise ImportError(name)
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r'editable "\.\[hugging-face\]"'):
        load_hugging_face(tmp_path, LENGTH)


def test_a_model_is_loaded_without_the_progress_bars_of_transformers_and_its_own_setting_stays(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    victim = t5()
    victim.model.save_pretrained(tmp_path)
    victim.tokenizer.save_pretrained(tmp_path)
    logging = transformers.utils.logging
    capfd.readouterr()
    transformers.T5ForConditionalGeneration.from_pretrained(tmp_path, local_files_only=True)
    assert "Loading weights" in capfd.readouterr().err, "this is what it shows by itself"
    load_hugging_face(tmp_path, LENGTH)
    assert capfd.readouterr() == ("", "")
    assert logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        load_hugging_face(tmp_path, LENGTH)
        assert not logging.is_progress_bar_enabled()
    finally:
        logging.enable_progress_bar()
