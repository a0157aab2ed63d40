"""Hugging Face folders of some thousand weights, as `save_pretrained` and sentence-transformers lay them out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = ("<pad>", "<cls>", "<sep>", "<unk>", "it", "is", "on", "off", "now", "not", "?", "a", "screen", "black")
MARKS = dict(zip(("pad_token", "cls_token", "sep_token", "unk_token"), WORDS[:4], strict=True))


def tokenizer(longest: int | None = None) -> Any:
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    both = "<cls> $A <sep> $B:1 <sep>:1"
    inner.post_processor = processors.TemplateProcessing(
        single="<cls> $A <sep>", pair=both, special_tokens=[("<cls>", 1), ("<sep>", 2)]
    )
    limit = {} if longest is None else {"model_max_length": longest}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **MARKS, **limit)


def bert(labels: int | None = None, positions: int = 64, seed: int = 7) -> Any:
    """A network of large random weights; with a head for so many labels, or without one."""
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=positions, pad_token_id=0, num_labels=labels or 2,
    )  # fmt: skip
    model = transformers.BertModel(config) if labels is None else transformers.BertForSequenceClassification(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 1.0, generator=generator)
    return model.eval()


def weights(shape: Sequence[int], seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def cross_encoder(folder: Path, labels: int = 1, positions: int = 64, **files: dict[str, Any]) -> Path:
    """With further files of JSON by their names, `_` for `.`."""
    bert(labels, positions).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


Behind = tuple[str, dict[str, Any], dict[str, torch.Tensor]]
"""A module of sentence-transformers behind the pooling: its class, settings and weights."""


def bi_encoder(
    folder: Path,
    pooling: Sequence[str] | dict[str, Any] = ("mean",),
    *,
    normalise: bool = False,
    longest: int | None = None,
    inside: str = "",
    package: str = "sentence_transformers.models",
    before: Sequence[Behind] = (),
    behind: Sequence[Behind] = (),
    reads: dict[str, Any] | None = None,
    layers: bool = False,
    **settings: Any,
) -> Path:
    """Of old names of pooling modes, or with a pooling configuration as it is.

    Args:
        before: modules between the transformer and the pooling.
        behind: modules behind the pooling.
        reads: the settings of the transformer.
        layers: whether the transformer gives the states of all layers.
    """
    from safetensors.torch import save_file

    model = bert()
    model.config.output_hidden_states = layers
    model.save_pretrained(folder / inside)
    tokenizer().save_pretrained(folder / inside)
    old = {"mean": "mean_tokens", "max": "max_tokens", "cls": "cls_token"}
    if not isinstance(pooling, dict):
        pooling = {f"pooling_mode_{name}": kind in pooling for kind, name in old.items()}
    last: list[Behind] = [("Normalize", {}, {})] if normalise else []
    modules = [*before, ("Pooling", {"word_embedding_dimension": 8, **pooling}, {}), *behind, *last]
    listed = [{"idx": 0, "name": "0", "path": inside, "type": f"{package}.Transformer"}]
    for number, (kind, config, tensors) in enumerate(modules, 1):
        path = f"{number}_{kind}"
        (folder / path).mkdir(parents=True)
        (folder / path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        if tensors:
            save_file(tensors, folder / path / "model.safetensors")
        listed.append({"idx": number, "name": str(number), "path": path, "type": f"{package}.{kind}"})
    (folder / "modules.json").write_text(json.dumps(listed), encoding="utf-8")
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings), encoding="utf-8")
    reads = {**(reads or {}), **({} if longest is None else {"max_seq_length": longest})}
    if reads:
        (folder / inside / "sentence_bert_config.json").write_text(json.dumps(reads), encoding="utf-8")
    return folder


def static_encoder(folder: Path, **settings: Any) -> Path:
    """Of word vectors, as StaticEmbedding saves them."""
    from safetensors.torch import save_file

    (folder / "0_StaticEmbedding").mkdir(parents=True)
    tokenizer().backend_tokenizer.save(str(folder / "0_StaticEmbedding" / "tokenizer.json"))
    save_file({"embedding.weight": weights((len(WORDS), 8), 3)}, folder / "0_StaticEmbedding" / "model.safetensors")
    kind = "sentence_transformers.models.StaticEmbedding"
    listed = [{"idx": 0, "name": "0", "path": "0_StaticEmbedding", "type": kind}]
    (folder / "modules.json").write_text(json.dumps(listed), encoding="utf-8")
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def decoder(folder: Path, template: str | None = None, labels: int = 1) -> Path:
    """A decoder that classifies, whose tokenizer puts nothing between two texts."""
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, num_labels=labels,
    )  # fmt: skip
    model = transformers.LlamaForSequenceClassification(config)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 1.0, generator=generator)
    model.save_pretrained(folder)
    plain = tokenizer()
    plain.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B:1")
    plain.model_input_names = ["input_ids", "attention_mask"]
    plain.chat_template = template
    plain.save_pretrained(folder)
    return folder


PAIR_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ message['content'] }} {% endif %}"
    "{% if message['role'] == 'query' %}<cls> {{ message['content'] }} {% endif %}"
    "{% if message['role'] == 'document' %}<sep> {{ message['content'] }} <sep>{% endif %}"
    "{% endfor %}"
)
