"""Folders of sentence-transformers, against what version 6.2.0 computes of the same folders (torch 2.13, float32)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")

import torch
import transformers

from parley.envs.core.errors import CheckpointError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import Context
from parley.policies.ranking import sentence_modules
from parley.policies.ranking.encoders import BiEncoder, CrossEncoder, load_hugging_face_ranker, without_first_tokens
from parley.policies.ranking.rankers import load_ranker
from parley.policies.ranking.sentence_modules import PackedTransformer, StaticWords
from tests.policies.ranking.folders import (
    PAIR_TEMPLATE,
    Behind,
    bert,
    bi_encoder,
    cross_encoder,
    decoder,
    static_encoder,
    tokenizer,
    weights,
)

CONTEXT: Context = (("is", "it", "on"), ("a", "black", "screen"))
REPLIES: list[Utterance] = [("it", "is", "on"), ("not", "now"), (), ("off",)]
ACTIVATIONS = "torch.nn.modules.activation."
PROMPTS = {"query": "a ", "document": "not now "}
SWITCHES = {
    f"pooling_mode_{mode}": mode != "mean_tokens"
    for mode in ("lasttoken", "weightedmean_tokens", "mean_sqrt_len_tokens", "mean_tokens", "max_tokens", "cls_token")
}
LAYERS: Behind = (
    "WeightedLayerPooling",
    {"word_embedding_dimension": 8, "num_hidden_layers": 1, "layer_start": 0},
    {"layer_weights": torch.tensor([0.3, 1.7])},
)
LISTED = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}]


def dense(
    before: int = 8,
    behind: int = 4,
    *,
    seed: int = 1,
    activation: str = f"{ACTIVATIONS}Tanh",
    bias: bool = True,
    residual: bool = False,
    **more: Any,
) -> Behind:
    tensors = {"linear.weight": weights((behind, before), seed)}
    if bias:
        tensors["linear.bias"] = weights((behind,), seed + 50)
    if residual and before != behind:
        tensors["residual.weight"] = weights((behind, before), seed + 70)
    config = {"in_features": before, "out_features": behind, "bias": bias, "activation_function": activation, **more}
    return "Dense", {**config, "use_residual": residual}, tensors


LIBRARY: list[tuple[str, dict[str, Any], tuple[float, ...]]] = [
    (
        "mean_sqrt_len_tokens",
        {"pooling": {"pooling_mode": "mean_sqrt_len_tokens"}, "similarity_fn_name": "dot"},
        (93.76752, 84.17672, 51.97905, 72.65324),
    ),
    (
        "weightedmean",
        {"pooling": {"pooling_mode": "weightedmean"}, "similarity_fn_name": "dot"},
        (14.6675, 14.86007, 12.9098, 14.87932),
    ),
    (
        "lasttoken",
        {"pooling": {"pooling_mode": "lasttoken"}, "similarity_fn_name": "dot"},
        (15.06679, 15.7725, 13.1525, 15.76165),
    ),
    (
        "several",
        {"pooling": {"pooling_mode": ["lasttoken", "mean", "max"]}, "similarity_fn_name": "dot"},
        (46.40101, 46.43602, 39.59081, 46.32944),
    ),
    ("old_all", {"pooling": SWITCHES, "similarity_fn_name": "dot"}, (156.07161, 145.77969, 104.82063, 133.73618)),
    ("prompts", {"prompts": PROMPTS, "similarity_fn_name": "dot"}, (14.93745, 14.297, 14.11183, 14.67297)),
    (
        "noprompt_cls",
        {"prompts": PROMPTS, "similarity_fn_name": "dot", "pooling": {"pooling_mode": "cls", "include_prompt": False}},
        (12.53679, 12.01244, 12.36009, 12.46059),
    ),
    (
        "noprompt_mean",
        {"prompts": PROMPTS, "similarity_fn_name": "dot", "pooling": {"pooling_mode": "mean", "include_prompt": False}},
        (14.69745, 14.21771, 14.1947, 14.34064),
    ),
    (
        "noprompt_weightedmean",
        {"prompts": PROMPTS, "similarity_fn_name": "dot", "pooling": {"pooling_mode": "weightedmean", "include_prompt": False}},
        (14.99476, 14.51861, 14.43062, 14.56857),
    ),
    (
        "passage",
        {"prompts": {"query": "a ", "passage": "not now "}, "similarity_fn_name": "dot"},
        (14.06201, 14.11183, 12.52289, 14.06056),
    ),
    (
        "default",
        {"prompts": {"x": "a screen "}, "default_prompt_name": "x", "similarity_fn_name": "dot"},
        (14.82594, 14.88048, 12.99476, 14.83028),
    ),
    ("truncate", {"truncate_dim": 3}, (0.99999, 0.99999, 0.99964, 0.99999)),
    ("truncate_dot", {"truncate_dim": 3, "normalise": True, "similarity_fn_name": "dot"}, (0.21172, 0.21101, 0.23336, 0.21162)),
    ("dense", {"behind": [dense()], "similarity_fn_name": "dot"}, (3.19183, 3.19747, 2.68037, 3.20779)),
    (
        "dense_gelu",
        {"behind": [dense(activation=f"{ACTIVATIONS}GELU")], "similarity_fn_name": "dot"},
        (73.70905, 73.79432, 73.3272, 73.52247),
    ),
    (
        "dense_id",
        {"behind": [dense(activation="torch.nn.modules.linear.Identity", bias=False)], "normalise": True},
        (0.99663, 0.99673, 0.95343, 0.99663),
    ),
    (
        "dense_res",
        {
            "behind": [dense(residual=True), dense(4, 4, seed=9, residual=True, activation=f"{ACTIVATIONS}ReLU")],
            "similarity_fn_name": "dot",
        },
        (1264.62744, 1267.83691, 1115.39124, 1260.3313),
    ),
    (
        "dense_tokens",
        {"before": [dense(8, 8, module_input_name="token_embeddings")], "similarity_fn_name": "dot"},
        (5.91771, 5.99948, 5.07536, 5.96363),
    ),
    (
        "layernorm",
        {
            "behind": [("LayerNorm", {"dimension": 8}, {"norm.weight": weights((8,), 4), "norm.bias": weights((8,), 5)})],
            "similarity_fn_name": "dot",
        },
        (7.08277, 7.08028, 7.22437, 7.12095),
    ),
    ("layers", {"before": [LAYERS], "layers": True, "similarity_fn_name": "dot"}, (11.13745, 11.14127, 9.83861, 11.13993)),
    ("layers_off", {"before": [LAYERS], "similarity_fn_name": "dot"}, (14.82594, 14.88048, 12.99476, 14.83028)),
    (
        "dropout",
        {"behind": [("Dropout", {"dropout": 0.5}, {})], "similarity_fn_name": "dot"},
        (14.82594, 14.88048, 12.99476, 14.83028),
    ),
    (
        "normalize_tokens",
        {"before": [("Normalize", {"module_input_name": "token_embeddings"}, {})], "similarity_fn_name": "dot"},
        (0.98938, 0.99423, 0.96394, 0.99303),
    ),
]


@pytest.mark.parametrize(("settings", "figures"), [case[1:] for case in LIBRARY], ids=[case[0] for case in LIBRARY])
def test_a_folder_scores_as_the_library_does(tmp_path: Path, settings: dict[str, Any], figures: tuple[float, ...]) -> None:
    ranker = load_ranker(f"hf:{bi_encoder(tmp_path, **settings)}")
    np.testing.assert_allclose(ranker.score(CONTEXT, REPLIES), figures, rtol=1e-5, atol=1e-5)


def test_texts_that_are_neither_contexts_nor_replies_are_read_behind_the_default_prompt(tmp_path: Path) -> None:
    ranker = load_hugging_face_ranker(bi_encoder(tmp_path, prompts={"x": "a screen "}, default_prompt_name="x"))
    assert isinstance(ranker, BiEncoder)
    cosines = ranker.cosines("is it on\na black screen", ["it is on", "not now", "", "off"])
    np.testing.assert_allclose(cosines, (0.99984, 0.99435, 0.98390, 0.99813), atol=1e-5)


def test_a_table_of_word_vectors_is_a_bi_encoder(tmp_path: Path) -> None:
    plain = load_ranker(f"hf:{static_encoder(tmp_path / 'plain')}").score(CONTEXT, REPLIES)
    np.testing.assert_allclose(plain, (0.60402, -0.13180, 0.0, -0.56445), atol=1e-5)
    prompted = load_ranker(f"hf:{static_encoder(tmp_path / 'prompted', prompts=PROMPTS, similarity_fn_name='dot')}")
    np.testing.assert_allclose(prompted.score(CONTEXT, REPLIES), (0.16448, -0.15529, -0.15529, -0.63954), atol=1e-5)


def test_a_prompt_that_the_library_never_takes_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load_ranker(f"hf:{bi_encoder(tmp_path / 'a', prompts={'query': 'a ', 'document': 'not '})}")
    assert not caplog.messages
    load_ranker(f"hf:{bi_encoder(tmp_path / 'b', prompts={'query': 'a ', 'passage': 'not '})}")
    assert "no prompt stands before replies" in caplog.text
    assert "call 'passage' document" in caplog.text


def test_texts_are_lower_cased_where_the_folder_says_so(tmp_path: Path) -> None:
    cased = load_hugging_face_ranker(bi_encoder(tmp_path / "cased"))
    lower = load_hugging_face_ranker(bi_encoder(tmp_path / "lower", reads={"do_lower_case": True}))
    assert isinstance(cased, BiEncoder)
    assert isinstance(lower, BiEncoder)
    assert cased.cosines("it is on", ["It IS on"])[0] < 0.999
    assert lower.cosines("it is on", ["It IS on"])[0] == pytest.approx(1, abs=1e-12)


def test_a_long_context_keeps_its_prompt() -> None:
    ranker = BiEncoder(bert(), tokenizer(), longest=5, prompts=("a screen ", ""))
    # Two marks and two words of the prompt leave one word.
    assert ranker.score((("it", "is", "on"),), [("off",)]) == ranker.score((("not", "is", "on"),), [("off",)])
    assert ranker.score((("it", "is", "on"),), [("off",)]) != ranker.score((("it", "is", "off"),), [("off",)])
    whole = BiEncoder(bert(), tokenizer(), prompts=("a screen ", ""))
    assert ranker.score((("it", "is", "on"),), [("off",)]) == whole.score((("on",),), [("off",)])


@pytest.mark.parametrize(
    ("files", "figures"),
    [
        ({}, (0.95060, 0.95052, 0.95032, 0.94973)),
        ({"config_sentence_transformers": {"activation_fn": f"{ACTIVATIONS}Tanh"}}, (0.99461, 0.99459, 0.99455, 0.99441)),
        (
            {
                "config_sentence_transformers": {
                    "activation_fn": "torch.nn.modules.linear.Identity",
                    "model_type": "CrossEncoder",
                }
            },
            (2.95718, 2.95540, 2.95122, 2.93886),
        ),
    ],
)
def test_a_cross_encoder_has_the_activation_of_its_folder(
    tmp_path: Path, files: dict[str, Any], figures: tuple[float, ...]
) -> None:
    ranker = load_ranker(f"hf:{cross_encoder(tmp_path, **files)}")
    np.testing.assert_allclose(ranker.score(CONTEXT, REPLIES), figures, atol=1e-5)


@pytest.mark.parametrize(
    "said",
    [
        {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
        {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}},
    ],
)
def test_older_versions_name_the_activation_in_the_configuration_of_the_model(tmp_path: Path, said: dict[str, Any]) -> None:
    folder = cross_encoder(tmp_path)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, **said}), encoding="utf-8")
    figures = (2.95718, 2.95540, 2.95122, 2.93886)
    np.testing.assert_allclose(load_ranker(f"hf:{folder}").score(CONTEXT, REPLIES), figures, atol=1e-5)


def test_two_logits_are_compared_as_they_are(tmp_path: Path) -> None:
    two = load_ranker(f"hf:{cross_encoder(tmp_path / 'a', labels=2)}").score(CONTEXT, REPLIES)
    np.testing.assert_allclose(two, (4.43724, 4.43381, 4.42345, 4.37244), atol=1e-5)
    named = {"config_sentence_transformers": {"activation_fn": f"{ACTIVATIONS}Sigmoid"}}
    with pytest.raises(CheckpointError, match=r"not known here(.|\n)*2 logits behind torch\.nn\.modules\.activation\.Sigmoid"):
        load_ranker(f"hf:{cross_encoder(tmp_path / 'b', labels=2, **named)}")


def test_a_cross_encoder_reads_no_more_than_its_folder_says_and_keeps_its_prompt(tmp_path: Path) -> None:
    settings = {"prompts": {"x": "not "}, "default_prompt_name": "x"}
    folder = cross_encoder(
        tmp_path,
        config_sentence_transformers=settings,
        sentence_bert_config={"max_seq_length": 7},
        modules=LISTED,  # type: ignore[arg-type]
    )
    ranker = load_ranker(f"hf:{folder}")
    # Three marks, the prompt and the reply leave two words.
    assert ranker.score((("it", "is", "on"),), [("off",)]) == ranker.score((("a", "is", "on"),), [("off",)])
    whole = CrossEncoder(bert(1), tokenizer(), activation=torch.nn.Sigmoid())
    np.testing.assert_allclose(
        ranker.score((("it", "is", "on"),), [("off",)]), whole.score((("not", "is", "on"),), [("off",)]), rtol=1e-9
    )


def test_a_decoder_reads_pairs_in_the_template_of_its_folder(tmp_path: Path) -> None:
    ranker = load_ranker(f"hf:{decoder(tmp_path / 'flat', PAIR_TEMPLATE)}")
    np.testing.assert_allclose(ranker.score(CONTEXT, REPLIES), (0.59488, 0.71760, 0.69199, 0.74765), atol=1e-5)
    parts = PAIR_TEMPLATE.replace("message['content']", "message['content'][0]['text']")
    structured = load_ranker(f"hf:{decoder(tmp_path / 'parts', parts)}")
    np.testing.assert_array_equal(structured.score(CONTEXT, REPLIES), ranker.score(CONTEXT, REPLIES))


def test_a_decoder_whose_tokenizer_glues_pairs_together_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nothing between a context and a reply(.|\n)*chat_template\.jinja"):
        load_ranker(f"hf:{decoder(tmp_path / 'none')}")
    chat = "{% for m in messages %}{% if m['role'] == 'user' %}{{ m['content'] }}{% endif %}{% endfor %}"
    with pytest.raises(CheckpointError, match="writes no pair of query and document"):
        load_ranker(f"hf:{decoder(tmp_path / 'chat', chat)}")


def test_a_context_that_is_too_long_for_a_template_loses_its_beginning(tmp_path: Path) -> None:
    folder = decoder(tmp_path, PAIR_TEMPLATE)
    (folder / "modules.json").write_text(json.dumps(LISTED), encoding="utf-8")
    reads = {"max_seq_length": 7, "modality_config": {"text": {}, "message": {"format": "flat"}}}
    (folder / "sentence_bert_config.json").write_text(json.dumps(reads), encoding="utf-8")
    ranker = load_ranker(f"hf:{folder}")
    assert ranker.score((("it", "is", "on"),), [("off", "now")]) == ranker.score((("is", "on"),), [("off", "now")])
    assert ranker.score((("it", "is", "on"),), [("off", "now")]) != ranker.score((("is", "off"),), [("off", "now")])


def test_what_the_first_tokens_stand_for_is_cut_off() -> None:
    assert without_first_tokens(tokenizer(), "it is on now", 2) == " on now"
    assert without_first_tokens(tokenizer(), "it is", 9) == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"pooling": {"pooling_mode": "loudest"}}, r"pooling is not known here(.|\n)*loudest"),
        ({"pooling": {"pooling_mode_loudest_tokens": True}}, r"pooling is not known here(.|\n)*loudest"),
        ({"similarity_fn_name": "euclidean"}, r"not known here(.|\n)*euclidean"),
        ({"model_type": "SparseEncoder"}, r"not known here(.|\n)*SparseEncoder"),
        ({"behind": [dense(activation="my.Activation")]}, r"activation is not known here(.|\n)*my\.Activation"),
        ({"behind": [dense(activation="torch.nn.functional.relu")]}, r"activation is not known here(.|\n)*relu"),
        ({"behind": [dense(activation=f"{ACTIVATIONS}Threshold")]}, r"activation is not known here(.|\n)*Threshold"),
        ({"behind": [("Dense", {"in_features": 8, "out_features": 4}, {})]}, r"no weights as safetensors(.|\n)*2_Dense"),
        ({"behind": [("CNN", {}, {})]}, r"not known here(.|\n)*CNN"),
        ({"behind": [("Router", {}, {})]}, r"not known here(.|\n)*Router"),
        ({"behind": [("WordWeights", {}, {})]}, r"not known here(.|\n)*WordWeights"),
        ({"package": "custom_st"}, r"not known here(.|\n)*custom_st\.Transformer"),
        ({"reads": {"query_length": 32}}, r"not known here(.|\n)*query_length"),
        ({"reads": {"tokenizer_args": {"add_prefix_space": True}}}, r"not known here(.|\n)*tokenizer_args\.add_prefix_space"),
        ({"reads": {"modality_config": {"message": {}}}}, r"not known here(.|\n)*modality message"),
        ({"reads": {"transformer_task": "fill-mask"}}, r"not known here(.|\n)*task fill-mask"),
    ],
)
def test_a_folder_that_asks_for_something_else_is_refused_by_name(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    with pytest.raises(CheckpointError, match=reason):
        load_ranker(f"hf:{bi_encoder(tmp_path, **change)}")


def test_modules_with_arguments_of_their_own_and_cross_encoders_of_several_are_refused(tmp_path: Path) -> None:
    folder = bi_encoder(tmp_path / "a")
    listed = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    (folder / "modules.json").write_text(json.dumps([{**listed[0], "kwargs": ["task"]}, listed[1]]), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"not known here(.|\n)*Transformer with \['task'\]"):
        load_ranker(f"hf:{folder}")
    more = [*LISTED, {"idx": 1, "name": "1", "path": "1", "type": "sentence_transformers.base.modules.dense.Dense"}]
    with pytest.raises(CheckpointError, match=r"not known here(.|\n)*Transformer, Dense"):
        load_ranker(f"hf:{cross_encoder(tmp_path / 'b', modules=more)}")  # type: ignore[arg-type]
    folder = bi_encoder(tmp_path / "c")
    (folder / "config_sentence_transformers.json").write_text('{"model_type": "CrossEncoder"}', encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"not known here(.|\n)*CrossEncoder"):
        load_ranker(f"hf:{folder}")


def test_the_encoder_of_t5_is_read_alone(tmp_path: Path) -> None:
    from transformers import T5Config, T5EncoderModel

    folder = bi_encoder(tmp_path, similarity_fn_name="dot")
    config = T5Config(vocab_size=14, d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2, pad_token_id=0)
    model = T5EncoderModel(config).eval()
    model.save_pretrained(folder)
    with torch.no_grad():
        texts = ("is it on\na black screen", "it is on")
        first, second = (model(**tokenizer()(text, return_tensors="pt")).last_hidden_state[0].mean(0) for text in texts)
    (score,) = load_ranker(f"hf:{folder}").score(CONTEXT, REPLIES[:1])
    assert score == pytest.approx(float(first @ second), rel=1e-5)


KINDS = ("Bert", "Roberta", "XLMRoberta", "Camembert", "Electra")


def network(name: str, **settings: Any) -> Any:
    """A network of three layers and large random weights."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
    kind = name.removesuffix("ForSequenceClassification").removesuffix("Model")
    config = getattr(transformers, f"{kind}Config")(
        **{"vocab_size": 50, **sizes, "max_position_embeddings": 64, "pad_token_id": 1, "num_labels": 2, **settings}
    )
    if kind == "Electra":
        config.embedding_size = settings.get("embedding_size", 32)
    model, generator = getattr(transformers, name)(config), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5, generator=generator)
    return model.eval()


def drawn_rows(lengths: Sequence[int]) -> list[dict[str, list[int]]]:
    draws = np.random.default_rng(5)
    # Some texts hold the token that others are padded with, which moves positions of RoBERTa's kin.
    return [{"input_ids": draws.integers(0, 50, size=length).tolist(), "attention_mask": [1] * length} for length in lengths]


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_texts_in_blocks_have_the_states_and_logits_that_each_has_alone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentence_modules, "_BLOCK_TOKENS", 70)
    rows = drawn_rows([2, 40, 9, 9, 23, 40, 9, 60, 2, 31])
    base, classifier = network(f"{kind}Model"), network(f"{kind}ForSequenceClassification")
    assert PackedTransformer.fits(base)
    assert PackedTransformer.fits(classifier)
    states = {i: of for block, of_block in PackedTransformer(base).states(rows) for i, of in zip(block, of_block, strict=True)}
    logits_NK = PackedTransformer(classifier).logits(rows)
    assert len(states) == len(logits_NK) == len(rows)
    for index, row in enumerate(rows):
        alone = {name: torch.tensor([ids]) for name, ids in row.items()}
        torch.testing.assert_close(states[index], base(**alone).last_hidden_state[0], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(logits_NK[index], classifier(**alone).logits[0], rtol=1e-5, atol=1e-5)
        assert PackedTransformer(classifier).logits([row])[0].equal(logits_NK[index]), "a block changes no digit"


def test_models_that_learn_or_differ_are_read_by_transformers() -> None:
    model = network("BertModel")
    assert not PackedTransformer.fits(model), "gradients are wanted"
    with torch.no_grad():
        assert PackedTransformer.fits(model)
        assert not PackedTransformer.fits(network("BertModel").train())
        assert not PackedTransformer.fits(network("BertModel", output_hidden_states=True))
        assert not PackedTransformer.fits(network("BertModel", hidden_act="relu"))
        assert not PackedTransformer.fits(network("BertModel", is_decoder=True))
        assert not PackedTransformer.fits(network("ElectraModel", embedding_size=16))
        assert not PackedTransformer.fits(network("DistilBertModel", dim=32, n_heads=4, n_layers=1, hidden_dim=48))
        assert not PackedTransformer.fits(StaticWords({"embedding.weight": torch.ones(3, 4)}))
