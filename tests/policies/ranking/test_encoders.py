"""Hugging Face folders as rankers, against what transformers computes of one pair at a time; nothing is downloaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerFast

from parley.engine.ranking.verbs.worker import _scores
from parley.envs.core.errors import CheckpointError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup, CandidateKind, Context
from parley.policies.generation.judges.judge import JudgeSettings
from parley.policies.generation.judges.prompted import judge_maker
from parley.policies.hugging_face.tokens import longest_input
from parley.policies.ranking.encoders import BiEncoder, CrossEncoder, load_hugging_face_ranker
from parley.policies.ranking.ranker import ResponseOnly, Unread
from parley.policies.ranking.rankers import load_ranker
from tests.policies.ranking.folders import WORDS, bert, bi_encoder, cross_encoder, tokenizer
from tests.real_models import minilm

CONTEXT: Context = (("is", "it", "on"), ("a", "black", "screen"))
REPLIES: list[Utterance] = [("it", "is", "on"), ("not", "now"), (), ("off",)]
LINES = "is it on\na black screen"
MODELS = "sentence_transformers.models"


def said(reply: Utterance) -> str:
    return " ".join(reply)


@torch.no_grad()
def logits(labels: int, first: str, second: str) -> np.ndarray:
    # As a batch of one: alone, an empty second text is taken for none.
    found: np.ndarray = bert(labels)(**tokenizer()([(first, second)], return_tensors="pt")).logits[0].numpy()
    return found


@torch.no_grad()
def states(text: str) -> np.ndarray:
    found: np.ndarray = bert()(**tokenizer()(text, return_tensors="pt")).last_hidden_state[0].numpy()
    return found


def test_a_cross_encoder_scores_by_its_logit_behind_the_activation_or_the_difference_of_two(tmp_path: Path) -> None:
    one = load_ranker(f"hf:{cross_encoder(tmp_path / 'one')}").score(CONTEXT, REPLIES)
    two = load_ranker(f"hf:{cross_encoder(tmp_path / 'two', labels=2)}").score(CONTEXT, REPLIES)
    for reply, single, difference in zip(REPLIES, one, two, strict=True):
        np.testing.assert_allclose(single, 1 / (1 + np.exp(-logits(1, LINES, said(reply))[0])), rtol=1e-5)
        wrong, right = logits(2, LINES, said(reply))
        np.testing.assert_allclose(difference, right - wrong, rtol=1e-4)


def test_more_logits_and_no_head_at_all_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"one logit, or two(.|\n)*3 logits"):
        load_ranker(f"hf:{cross_encoder(tmp_path / 'three', labels=3)}")
    bert().save_pretrained(tmp_path / "base")
    tokenizer().save_pretrained(tmp_path / "base")
    with pytest.raises(CheckpointError, match=r"no ranker(.|\n)*architecture BertModel"):
        load_ranker(f"hf:{tmp_path / 'base'}")


@pytest.mark.parametrize("load", [load_ranker, partial(judge_maker, settings=JudgeSettings())])
def test_a_folder_that_is_none_is_told_as_anywhere_else(tmp_path: Path, load: Callable[[str], Any]) -> None:
    with pytest.raises(CheckpointError, match=r"needs a config\.json(.|\n)*no such folder"):
        load(f"hf:{tmp_path / 'nowhere'}")
    with pytest.raises(CheckpointError, match=r"needs a config\.json and there is none"):
        load(f"hf:{tmp_path}")
    more = {"auto_map": {"AutoConfig": "evil.Config", "AutoModelForSequenceClassification": "evil.Model"}}
    for kind in ("BertForSequenceClassification", "NobodysModel"):
        folder = cross_encoder(tmp_path / kind)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **more, "model_type": "nobodys", "architectures": [kind]}))
        (folder / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
        with pytest.raises(CheckpointError, match="code of its own"):
            load(f"hf:{folder}")
        assert not (folder / "ran").exists()


def test_weights_that_are_missing_or_could_run_code_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = cross_encoder(tmp_path)
    weights = load_file(folder / "model.safetensors")
    save_file({name: value for name, value in weights.items() if "classifier" not in name}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"not hold all weights(.|\n)*no classifier\.bias, classifier\.weight"):
        load_ranker(f"hf:{folder}")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="weights are pickled"):
        load_ranker(f"hf:{folder}")


def read_by(ranker: CrossEncoder, context: Context, reply: Utterance) -> str:
    """What the model is given for a pair, as its tokenizer spells it."""
    given = texts_read(ranker.model)
    ranker.score(context, [reply])
    return str(ranker._tokenizer.decode(given[0]))


def texts_read(model: Any) -> list[list[int]]:
    """The tokens of each text that the model reads from now on."""
    given: list[list[int]] = []
    layer = model.get_input_embeddings()
    layer.register_forward_pre_hook(lambda _, inputs: given.extend(inputs[0].tolist()))
    return given


@pytest.mark.parametrize(
    ("words", "reply", "read"),
    [
        (("a", "is", "it", "on", "now"), ("off",), "<cls> is it on now <sep> off <sep>"),
        (("a", "is", "it"), ("not", "on", "off", "now", "a"), "<cls> a is it <sep> not on <sep>"),
        (("a",), ("not", "on", "off", "now", "a"), "<cls> a <sep> not on off now <sep>"),
        ((), ("not", "on", "off", "now", "screen", "a"), "<cls> <sep> not on off now screen <sep>"),
    ],
)
def test_the_oldest_words_of_a_long_context_and_the_end_of_a_long_reply_are_cut(
    words: Utterance, reply: Utterance, read: str
) -> None:
    ranker = CrossEncoder(bert(1), tokenizer(longest=8))
    assert read_by(ranker, (words,), reply) == read


def test_whole_turns_are_left_out_and_the_same_ones_for_all_candidates_of_usual_length() -> None:
    # 16 tokens less 3 marks; 4 of them are kept for a reply.
    ranker = CrossEncoder(bert(1), tokenizer(longest=16))
    context: Context = (("a",), ("is",) * 4, ("on",) * 4)
    for reply in (("off",), ("not",) * 4):
        assert read_by(ranker, context, reply) == f"<cls> a is is is is on on on on <sep> {said(reply)} <sep>"
    context = (("black", "screen"), *context[1:])
    for reply in (("off",), ("not",) * 4):
        assert read_by(ranker, context, reply) == f"<cls> is is is is on on on on <sep> {said(reply)} <sep>"
    assert read_by(ranker, context, ("not",) * 6) == f"<cls> on on on on <sep> {said(('not',) * 6)} <sep>"
    assert ranker.unread(context, [("off",), ("not",) * 4]) == Unread(turns=1)
    assert ranker.unread(context, [("off",), ("not",) * 6]) == Unread(turns=2)
    assert ranker.unread(context[1:], [("off",)]) == Unread()
    # What is too long alone loses its beginning, or its end.
    assert ranker.unread((("a",), ("on",) * 20), [("off",), ("not",) * 20]) == Unread(turns=2, replies=1)
    assert ranker.unread((("on",) * 9,), [("off",)]) == Unread()
    assert ResponseOnly(ranker).unread(context, [("not",) * 20]) == Unread(replies=1)


def test_a_bi_encoder_leaves_out_whole_turns() -> None:
    ranker = BiEncoder(bert(), tokenizer(), longest=8, prompts=("a ", ""))
    context: Context = (("black", "screen"), ("is", "it"), ("on", "now", "?"))
    assert ranker.score(context, REPLIES) == pytest.approx(ranker.score(context[1:], REPLIES))
    assert ranker.unread(context, [*REPLIES, ("off",) * 7]) == Unread(turns=1, replies=1)
    assert ranker.unread(context[1:], REPLIES) == Unread()
    assert ranker.unread((("on",) * 9,), REPLIES) == Unread(turns=1)


def test_a_reply_of_thousands_of_words_is_read() -> None:
    for ranker in (CrossEncoder(bert(1), tokenizer()), BiEncoder(bert(), tokenizer())):
        scores = ranker.score((("it",) * 3000, ("is",) * 3000), [("on",) * 3000, ("off",)])
        assert np.isfinite(scores).all()
        assert scores[0] != scores[1]


@pytest.mark.parametrize("mode", ["mean", "max", "cls"])
@pytest.mark.parametrize("comparison", ["cosine", "dot"])
def test_a_bi_encoder_pools_and_compares_as_its_folder_says(tmp_path: Path, mode: str, comparison: str) -> None:
    pool = {"mean": lambda states: states.mean(0), "max": lambda states: states.max(0), "cls": lambda states: states[0]}[mode]
    vectors = [pool(states(text)) for text in (LINES, *map(said, REPLIES))]
    if comparison == "cosine":
        vectors = [vector / np.linalg.norm(vector) for vector in vectors]
    ranker = load_ranker(f"hf:{bi_encoder(tmp_path, (mode,), similarity_fn_name=comparison)}")
    np.testing.assert_allclose(ranker.score(CONTEXT, REPLIES), [vectors[0] @ vector for vector in vectors[1:]], rtol=1e-4)


def test_layouts_of_other_versions_are_the_same_model(tmp_path: Path) -> None:
    first = load_ranker(f"hf:{bi_encoder(tmp_path / 'a', similarity_fn_name='cosine')}").score(CONTEXT, REPLIES)
    newer = "sentence_transformers.sentence_transformer.modules"
    folders = [
        bi_encoder(tmp_path / "b", {"pooling_mode": "mean"}, package=newer),
        bi_encoder(tmp_path / "c", normalise=True, inside="0_Transformer", similarity_fn_name="dot"),
        bi_encoder(tmp_path / "d", {}),
    ]
    for folder in folders:
        assert load_ranker(f"hf:{folder}").score(CONTEXT, REPLIES).tolist() == np.asarray(first).tolist()
    listed = [{"idx": 0, "name": "0", "path": "", "type": f"{newer}.Transformer"}]
    (cross_encoder(tmp_path / "e") / "modules.json").write_text(json.dumps(listed))
    assert isinstance(load_hugging_face_ranker(tmp_path / "e"), CrossEncoder)


def test_several_poolings_stand_behind_one_another(tmp_path: Path) -> None:
    ranker = load_ranker(f"hf:{bi_encoder(tmp_path, ('mean', 'cls'), similarity_fn_name='dot')}")
    vectors = [np.concatenate([state[0], state.mean(0)]) for state in map(states, (LINES, *map(said, REPLIES)))]
    np.testing.assert_allclose(ranker.score(CONTEXT, REPLIES), [vectors[0] @ vector for vector in vectors[1:]], rtol=1e-4)


def test_prompts_of_a_folder_stand_before_texts(tmp_path: Path) -> None:
    prompts = {"query": "a ", "document": "not "}
    ranker = load_ranker(f"hf:{bi_encoder(tmp_path, similarity_fn_name='dot', prompts=prompts)}")
    wanted = states(f"a {LINES}").mean(0) @ states("not it is on").mean(0)
    np.testing.assert_allclose(ranker.score(CONTEXT, [("it", "is", "on")]), [wanted], rtol=1e-4)


def test_a_long_context_loses_its_beginning_and_a_long_reply_its_end(tmp_path: Path) -> None:
    ranker = load_ranker(f"hf:{bi_encoder(tmp_path, longest=4)}")
    whole, cut = ranker.score(CONTEXT, [("it", "is", "on")]), ranker.score((("black", "screen"),), [("it", "is")])
    assert whole == cut
    assert ranker.score(CONTEXT, [("is", "on")]) != cut


@pytest.mark.parametrize(
    ("listed", "reason"),
    [
        ([{"path": "", "type": f"{MODELS}.Transformer"}, {"path": "2", "type": "x.Pooling"}], "not known here(.|\n)*x.Pooling"),
        ([{"path": "..", "type": f"{MODELS}.Transformer"}], "a path out of the folder"),
        ([{"path": ""}], "damaged"),
        ("what", "damaged"),
    ],
)
def test_modules_that_are_not_known_are_named(tmp_path: Path, listed: Any, reason: str) -> None:
    folder = bi_encoder(tmp_path / "model")
    (folder / "modules.json").write_text(json.dumps(listed))
    with pytest.raises(CheckpointError, match=reason):
        load_ranker(f"hf:{folder}")


def test_positions_that_begin_behind_the_padding_are_not_counted() -> None:
    from transformers import RobertaConfig, RobertaForSequenceClassification

    config = RobertaConfig(
        vocab_size=14, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=10, pad_token_id=1, num_labels=1, type_vocab_size=2,
    )  # fmt: skip
    model = RobertaForSequenceClassification(config)
    assert longest_input(tokenizer(), model) == 8
    assert np.isfinite(CrossEncoder(model, tokenizer()).score((("it",) * 30,), [("is",) * 30])).all()


def test_contexts_that_are_asked_about_again_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.policies.ranking.encoders._NUM_KEPT", 2)
    model = bert()
    calls, ranker = texts_read(model), BiEncoder(model, tokenizer())
    contexts: list[Context] = [(("it",) * size,) for size in (5, 6, 7)]
    first = [ranker.score(context, [("on",)]).tolist() for context in (contexts[0], contexts[0], contexts[1])]
    assert sizes(calls) == [5, 1, 6]
    together = ranker.score_all([(context, [("on",)]) for context in contexts])
    assert [scores.tolist() for scores in together[:2]] == first[1:]
    assert sizes(calls[3:]) == [7]
    assert len(ranker._kept) == 3
    ranker.forget()
    assert ranker.score(contexts[0], [("on",)]).tolist() == first[0]
    assert sizes(calls[4:]) == [5, 1]


def sizes(texts: list[list[int]]) -> list[int]:
    return [len(ids) - 2 for ids in texts]


def groups_of(*contexts: Context) -> list[CandidateGroup]:
    labels, kinds = (True, False, False, False), (CandidateKind.POSITIVE, *[CandidateKind.RANDOM] * 3)
    return [
        CandidateGroup(str(number), context, tuple(REPLIES), labels, kinds, (True,) * 4)
        for number, context in enumerate(contexts)
    ]


@pytest.mark.parametrize("kind", ["bi-encoder", "cross-encoder"])
def test_each_text_of_a_shard_is_read_once_by_whatever_rules(kind: str) -> None:
    plain = groups_of(CONTEXT, (("off",),), CONTEXT)
    # A rule that rewrites one reply of each group, alike, and one that rewrites contexts.
    rewritten = [replace(group, candidates=(("now", "not"), *group.candidates[1:])) for group in plain]
    other = [replace(group, context=(("black",),)) for group in plain]
    views = [{"": a, "replies": b, "contexts": c} for a, b, c in zip(plain, rewritten, other, strict=True)]
    ranker: Any = BiEncoder(bert(), tokenizer()) if kind == "bi-encoder" else CrossEncoder(bert(1), tokenizer())
    given = texts_read(ranker.model)
    scores = _scores(ranker, views)
    contexts = {group.context for view in views for group in view.values()}
    replies = {words for view in views for group in view.values() for words in group.candidates}
    pairs = {(group.context, words) for view in views for group in view.values() for words in group.candidates}
    assert len(contexts) < 9
    assert len(pairs) < 36
    assert len(given) == (len(contexts) + len(replies) if kind == "bi-encoder" else len(pairs))
    for view, of_view in zip(views, scores, strict=True):
        for rule, group in view.items():
            np.testing.assert_array_equal(of_view[rule], ranker.score(group.context, group.candidates))


@pytest.mark.parametrize("prompt", ["", "not now "])
def test_slopes_of_a_bi_encoder_are_what_moving_an_embedding_does(prompt: str) -> None:
    model = bert().double()
    ranker = BiEncoder(model, tokenizer(), prompts=("", prompt))
    reply, words, step = ("it", "is", "screen"), ("off", "on"), 1e-5
    found = ranker.slopes(CONTEXT, reply, words)
    before = len(tokenizer()(prompt)["input_ids"]) - 1
    layer = model.get_input_embeddings()
    for place, (column, word) in [(place, each) for place in range(3) for each in enumerate(words)]:
        (entering,) = tokenizer()(word, add_special_tokens=False)["input_ids"]

        def moved(_: object, given: tuple[torch.Tensor], out: torch.Tensor, scale: float, to: int = entering, at: int = place):  # type: ignore[no-untyped-def]
            if given[0].shape[1] != 2 + before - 1 + len(reply):
                return out
            out = out.clone()
            out[:, before + at] += scale * (layer.weight[to] - out[:, before + at])
            return out

        scores = []
        for scale in (step, -step):
            ranker.forget()
            with layer.register_forward_hook(partial(moved, scale=scale)):
                scores.append(float(ranker.score(CONTEXT, [reply])[0]))
        assert found[place, column] == pytest.approx((scores[0] - scores[1]) / (2 * step), rel=1e-3, abs=1e-8)
    assert np.abs(found).min() > 1e-6


def test_words_of_a_reply_that_is_cut_have_no_slope() -> None:
    found = BiEncoder(bert(), tokenizer(), longest=4).slopes(CONTEXT, ("it", "is", "on"), ("off",))
    assert (found[:2] != 0).all()
    assert found[2:].tolist() == [[0.0]]


def test_words_of_a_vocabulary_are_one_token_each_where_they_stand() -> None:
    ranker = BiEncoder(bert(), tokenizer(), prompts=("", "not "))
    assert ranker.vocabulary() == WORDS[4:], "special tokens are none"
    assert ranker.vocabulary() is ranker.vocabulary()
    assert ranker.reads(("it", "is"), ("off", "now"))
    assert not ranker.reads(("it", "is"), ("now", "?")), "the mark sticks to the word"
    assert not ranker.reads(("it", "is"), ("?", "now"))
    # A prompt of one token, four words and two special tokens.
    assert BiEncoder(bert(), tokenizer(), longest=7, prompts=("", "not ")).reads(("it", "is"), ("off", "now"))
    assert not BiEncoder(bert(), tokenizer(), longest=6, prompts=("", "not ")).reads(("it", "is"), ("off", "now"))
    reply = ("it", "is", "off")
    kept, plain = (ranker.slopes(CONTEXT, reply, each) for each in (ranker.vocabulary(), list(ranker.vocabulary())))
    np.testing.assert_allclose(kept, plain)


def test_pieces_of_words_are_no_words_of_a_vocabulary() -> None:
    pieces = {"[UNK]": 0, "run": 1, "##s": 2, "runs": 3, "walk": 4, "##ing": 5}
    inner = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.Whitespace(), decoders.WordPiece()
    ranker = BiEncoder(bert(), PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]"))
    assert ranker.vocabulary() == ("run", "runs", "walk")


@pytest.mark.slow
def test_a_real_bi_encoder_ranks_as_the_plain_recipe_does() -> None:
    folder = minilm()
    read, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    texts = ["my screen stays black\nis the cable in ?", "yes, the cable is in", "i had pasta for lunch", "try another screen"]
    with torch.no_grad():
        batch = read(texts, padding=True, return_tensors="pt")
        mask_BT1 = batch["attention_mask"].unsqueeze(2)
        vectors_BE = (model(**batch).last_hidden_state * mask_BT1).sum(1) / mask_BT1.sum(1)
        wanted = torch.nn.functional.cosine_similarity(vectors_BE[:1], vectors_BE[1:]).numpy()
    context: Context = (("my", "screen", "stays", "black"), ("is", "the", "cable", "in", "?"))
    replies: list[Utterance] = [tuple(text.replace(",", " ,").split()) for text in texts[1:]]
    scores = load_ranker(f"hf:{folder}").score(context, replies)
    np.testing.assert_allclose(scores, wanted, atol=1e-5)
    assert np.argmin(scores) == 1
