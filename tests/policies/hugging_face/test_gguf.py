"""Files of llama.cpp: read once, kept as a folder with the same numbers, the same tokens."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from parley.envs.core.errors import CheckpointError, StorageError
from parley.envs.corpora.arrow import CACHE_VARIABLE
from parley.policies.chat.loading import load_chat_model
from parley.policies.chat.model import ChatDecoding, Message
from parley.policies.hugging_face import gguf
from parley.policies.hugging_face.gguf import plain_folder
from parley.policies.hugging_face.models import is_encoder_decoder, read_model
from tests.policies.small_gguf import write_gguf

pytestmark = pytest.mark.skipif(find_spec("gguf") is None, reason="the extra gguf is not installed")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    write_gguf(tmp_path / "model.gguf")
    return tmp_path / "model.gguf"


def test_the_folder_holds_the_numbers_and_the_tokens_of_the_file(file: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"gguf_file": file.name, "local_files_only": True}
    wanted = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **source)
    words = AutoTokenizer.from_pretrained(file.parent, **source)
    tokenizer, model = read_model(f"gguf:{file}")
    numbers = dict(wanted.named_parameters())
    found = dict(model.named_parameters())
    assert found.keys() == numbers.keys()
    assert all(torch.equal(found[name], numbers[name]) for name in numbers)
    assert model.generation_config.eos_token_id == wanted.generation_config.eos_token_id
    for text in ("hello  there,\n", "<|begin|>ça va?", ""):
        assert tokenizer(text).input_ids == words(text).input_ids
    assert tokenizer.chat_template == words.chat_template
    assert tokenizer.get_vocab() == words.get_vocab()
    assert not is_encoder_decoder(f"gguf:{file}")


def test_a_file_is_read_once_and_again_when_it_is_another(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    inner = gguf._read
    monkeypatch.setattr(gguf, "_read", lambda *given: read.append(given) or inner(*given))  # type: ignore[func-returns-value]
    first = plain_folder(file)
    assert plain_folder(file) == first
    assert len(read) == 1
    write_gguf(file, seed=1)
    os.utime(file, ns=(1, 1))
    second = plain_folder(file)
    assert second != first
    assert len(read) == 2
    left = {path.name for path in first.parent.iterdir() if path.is_dir()}
    assert left == {first.name, second.name}, "nothing half made lies around"


def test_it_answers_as_any_chat_model(file: Path) -> None:
    asked = [(Message("user", "hello"),)]
    answers = load_chat_model(f"gguf:{file}").answer(asked, decoding=ChatDecoding(max_tokens=6))
    assert answers == load_chat_model(f"hf:{plain_folder(file)}").answer(asked, decoding=ChatDecoding(max_tokens=6))
    assert 0 < answers[0].num_tokens <= 6


def test_a_cache_without_room_is_an_error_that_says_what_to_do(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object, folder: Path) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("transformers.PreTrainedModel.save_pretrained", full)
    with pytest.raises(StorageError, match=r"No space left(.|\n)*PARLEY_CACHE"):
        plain_folder(file)
    assert not [path for path in (file.parent / "cache" / "gguf").iterdir() if path.is_dir()]


def test_a_file_that_was_cut_leaves_nothing(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:2000])
    with pytest.raises(CheckpointError, match="cut short"):
        read_model(f"gguf:{file}")
    assert not [path for path in (file.parent / "cache" / "gguf").iterdir() if path.is_dir()]


@pytest.mark.parametrize("share", [0.999, 0.9, 0.5, 0.05])
def test_a_file_that_was_cut_says_so(share: float, file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(CheckpointError, match=r"GGUF file is cut short(.|\n)*bytes(.|\n)*copy or download it again"):
        load_chat_model(f"gguf:{file}")


@pytest.mark.parametrize("name", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "MXFP4"])
def test_weights_of_a_type_are_those_of_the_library(name: str, file: Path) -> None:
    import gguf as library

    kind = library.GGMLQuantizationType[name]
    write_gguf(file, quantized=kind)
    _, model = read_model(f"gguf:{file}")
    stored = next(tensor for tensor in library.GGUFReader(file).tensors if tensor.name == "blk.0.ffn_down.weight")
    assert stored.tensor_type is kind
    numbers = torch.from_numpy(library.quants.dequantize(stored.data, kind)).float()
    torch.testing.assert_close(model.model.layers[0].mlp.down_proj.weight.detach(), numbers, rtol=1e-3, atol=1e-3)


def test_a_type_of_weights_that_cannot_be_read_is_refused_by_its_name(file: Path) -> None:
    import gguf as library

    write_gguf(file, quantized=library.GGMLQuantizationType.Q8_1)
    with pytest.raises(CheckpointError, match=r"of this type of GGUF cannot be read(.|\n)*Q8_1(.|\n)*llama\.cpp"):
        load_chat_model(f"gguf:{file}")


@pytest.mark.parametrize(("pre", "told"), [("deepseek-llm", True), ("llama-bpe", False), ("smollm", False), ("", False)])
def test_a_pre_tokenizer_that_transformers_does_not_know_is_said(
    pre: str, told: bool, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_gguf(file, pre=pre)
    read_model(f"gguf:{file}")
    assert ("does not know its pre-tokenizer" in caplog.text) == told
