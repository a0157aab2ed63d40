"""Tokenizers of folders: what tokenizer.json says counts, whatever class the folder names."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from parley.policies.hugging_face.models import read_config, read_model
from parley.policies.hugging_face.tokens import load_tokenizer
from tests.policies.byte_pairs import byte_model
from tests.policies.small_hugging_face import gpt2, tokenizers, transformers

THREE_DIGITS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""As Llama 3 parts texts; Qwen2 takes digits one by one, GPT-2 as many as there are."""
TEXTS = ["In 2024 there were 12345 of them.\n\nThey've 3,141 <e>", "12345 67890 don't won't I'll\n\n"] * 5
LOCAL = {"local_files_only": True}


def saved_as(folder: Path, tokenizer_class: str) -> Any:
    """Save a tokenizer of bytes with parts of its own below the name of a class; return what tokenizer.json reads."""
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(THREE_DIGITS), "isolated")
    plain = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([split, plain])
    inner.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<e>", "<s>"], initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator(TEXTS, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<e>", bos_token="<s>")
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    tokenizer.save_pretrained(folder)
    transformers.LlamaConfig(vocab_size=320).save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | {"tokenizer_class": tokenizer_class, "model_max_length": 77}), encoding="utf-8")
    return inner


@pytest.mark.parametrize("name", ["GPT2Tokenizer", "Qwen2Tokenizer", "CodeLlamaTokenizer"])
def test_a_class_that_replaces_the_pre_tokenizer_is_overruled_by_the_file_and_said_once(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inner = saved_as(tmp_path, name)
    with caplog.at_level(logging.WARNING, "parley.policies.hugging_face.tokens"):
        tokenizer = load_tokenizer(tmp_path, **LOCAL)
        load_tokenizer(tmp_path, **LOCAL)
    text = "In 12345 they've\n\n<e> 67890"
    assert tokenizer(text, add_special_tokens=False).input_ids == inner.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert (tokenizer.eos_token, tokenizer.bos_token, tokenizer.model_max_length) == ("<e>", "<s>", 77)
    assert tokenizer.chat_template == "{{ messages[0]['content'] }}"
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 1
    assert "otherwise than tokenizer.json says" in messages[0]
    assert name in messages[0]


def test_transformers_itself_still_reads_such_a_folder_otherwise(tmp_path: Path) -> None:
    inner = saved_as(tmp_path, "Qwen2Tokenizer")
    ids = transformers.AutoTokenizer.from_pretrained(tmp_path, **LOCAL)("12345", add_special_tokens=False).input_ids
    assert len(ids) == 5, "transformers was mended: policies/hugging_face/tokens.py may go"
    assert len(inner.encode("12345").ids) < 5


def test_a_class_that_agrees_with_the_file_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, tokenizer = byte_model()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | {"tokenizer_class": "GPT2Tokenizer"}), encoding="utf-8")
    with caplog.at_level(logging.WARNING, "parley.policies.hugging_face.tokens"):
        found = load_tokenizer(tmp_path, **LOCAL)
    assert type(found) is transformers.GPT2Tokenizer
    assert not caplog.records


def test_the_prefix_blank_of_the_configuration_stays(tmp_path: Path) -> None:
    model, tokenizer = byte_model()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}), encoding="utf-8")
    found = load_tokenizer(tmp_path, **LOCAL)
    assert found("you", add_special_tokens=False).input_ids == tokenizer(" you", add_special_tokens=False).input_ids


def test_lower_case_of_a_word_piece_configuration_stays(tmp_path: Path) -> None:
    words = {word: i for i, word in enumerate(["[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]", "hello", "Hello"])}
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    transformers.BertTokenizer(vocab=words, do_lower_case=True).save_pretrained(tmp_path)
    transformers.BertConfig(vocab_size=len(words)).save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | {"do_lower_case": False}), encoding="utf-8")
    assert load_tokenizer(tmp_path, **LOCAL)("Hello", add_special_tokens=False).input_ids == [words["Hello"]]


def test_every_loader_reads_the_file(tmp_path: Path) -> None:
    victim = gpt2()
    inner = saved_as(tmp_path, "Qwen2Tokenizer")
    victim.model.resize_token_embeddings(320)
    victim.model.save_pretrained(tmp_path)
    assert read_config(tmp_path).model_type == "gpt2"
    tokenizer, _ = read_model(tmp_path)
    assert tokenizer("12345", add_special_tokens=False).input_ids == inner.encode("12345").ids
