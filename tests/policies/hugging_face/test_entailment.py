"""Models of entailment, on one of some thousand weights that is made here; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from parley.envs.core.errors import CheckpointError
from parley.policies.hugging_face.judges import Entailment, load_entailment

transformers = pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="the extra hugging-face is not installed")

WORDS = ("<pad>", "<cls>", "<sep>", "<unk>", "it", "is", "up", "down", "now", "not")
LABELS = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")
TEXTS = ("it is up", "it is down now", "it is not", "up", "", "down down down down")


def tokenizer() -> Any:
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    marks = [("<cls>", 1), ("<sep>", 2)]
    both = "<cls> $A <sep> $B:1 <sep>:1"
    inner.post_processor = tokenizers.processors.TemplateProcessing(single="<cls> $A <sep>", pair=both, special_tokens=marks)
    names = dict(zip(("pad_token", "cls_token", "sep_token", "unk_token"), WORDS[:4], strict=True))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **names)


def classifier(labels: Sequence[str] = LABELS, positions: int = 32) -> Any:
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=positions, pad_token_id=0, id2label=dict(enumerate(labels)),
        label2id={label: i for i, label in enumerate(labels)},
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 2.0, generator=generator)
    return model


def save(folder: Path, labels: Sequence[str] = LABELS) -> Path:
    classifier(labels).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def test_a_saved_model_says_what_is_likeliest_of_each_pair(tmp_path: Path) -> None:
    pairs = [(one, other) for one in TEXTS for other in TEXTS]
    said = load_entailment(save(tmp_path), batch_size=5).follows(*zip(*pairs, strict=True))
    model, read = classifier().eval(), tokenizer()
    wanted = [int(model(**read([one], [other], return_tensors="pt")).logits[0].argmax()) == 2 for one, other in pairs]
    assert said == wanted
    assert {*wanted} == {True, False}
    assert load_entailment(tmp_path).follows([], []) == []


def test_what_is_longer_than_the_model_reads_is_cut() -> None:
    assert len(Entailment(classifier(positions=8), tokenizer()).follows(["it is up now " * 20], ["down " * 20])) == 1


def test_a_model_without_such_a_label_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no label of entailment(.|\n)*labels bad, good"):
        load_entailment(save(tmp_path, ("bad", "good")))


def test_weights_that_could_run_code_are_not_read(tmp_path: Path) -> None:
    save(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="weights are pickled"):
        load_entailment(tmp_path)
