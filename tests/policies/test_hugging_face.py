"""Adapters of Hugging Face models, on models of some thousand weights that are made here; nothing is downloaded."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.triggers.batch import Task
from engine.triggers.causal.reader import CausalReader
from engine.triggers.causal.scorer import CausalScorer, is_causal
from engine.triggers.gibbs_enum import GibbsEnum
from engine.triggers.objective import TriggerObjective
from engine.triggers.scorer import PlainScorer
from engine.triggers.settings import SearchSettings
from envs.core.errors import CheckpointError, ConfigError, DataError
from policies.chat.settings import Precision, WeightSettings
from policies.hugging_face import load_hugging_face
from policies.hugging_face_seq2seq import HuggingFaceSeq2Seq
from policies.hugging_face_tokens import unknown_words
from policies.hugging_face_victims import HuggingFaceCausal, HuggingFaceVictim
from tests.engine.triggers.made_up import bound, searched

transformers = pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="the extra hugging-face is not installed")

SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
PAD_ID, BOS_ID, EOS_ID = range(3)
BYTE, NEWLINE = "<0x41>", "\n"
WORDS = ("you", "are", "a", "fool", "well", "oh", "hello", "there", "how", "what", ".", "?")
VOCABULARY = (*SPECIALS, BYTE, NEWLINE, *WORDS)
NUM_EMBEDDINGS = len(VOCABULARY) + 2
"""More than the tokenizer has tokens, as models round up."""
LENGTH = 3


def tokenizer_of(template: str | None) -> Any:
    """Words between blanks; around a text it puts what the template says."""
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(VOCABULARY)}, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    if template:
        marks = [("<s>", BOS_ID), ("</s>", EOS_ID)]
        inner.post_processor = tokenizers.processors.TemplateProcessing(single=template, special_tokens=marks)
    names = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), SPECIALS, strict=True))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **names)


def scaled(model: Any) -> Any:
    """Larger weights, so that what is read makes a difference to what is said."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.5, generator=generator)
    return model


def t5() -> HuggingFaceSeq2Seq:
    config = transformers.T5Config(
        vocab_size=NUM_EMBEDDINGS, d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2, dropout_rate=0.1,
        pad_token_id=PAD_ID, eos_token_id=EOS_ID, decoder_start_token_id=PAD_ID,
    )  # fmt: skip
    return HuggingFaceSeq2Seq(scaled(transformers.T5ForConditionalGeneration(config)), tokenizer_of("$A </s>"), LENGTH)


def bart() -> HuggingFaceSeq2Seq:
    config = transformers.BartConfig(
        vocab_size=NUM_EMBEDDINGS, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=32, scale_embedding=True,
        pad_token_id=PAD_ID, bos_token_id=BOS_ID, eos_token_id=EOS_ID, decoder_start_token_id=EOS_ID,
        forced_eos_token_id=None,
    )  # fmt: skip
    return HuggingFaceSeq2Seq(scaled(transformers.BartForConditionalGeneration(config)), tokenizer_of("<s> $A </s>"), LENGTH)


def gpt2(template: str | None = None, chat: str | None = None) -> HuggingFaceCausal:
    config = transformers.GPT2Config(
        vocab_size=NUM_EMBEDDINGS, n_positions=32, n_embd=8, n_layer=1, n_head=2, bos_token_id=EOS_ID, eos_token_id=EOS_ID
    )
    tokenizer = tokenizer_of(None)
    tokenizer.chat_template = chat
    return HuggingFaceCausal(scaled(transformers.GPT2LMHeadModel(config)), tokenizer, LENGTH, template)


MODELS = {"t5": t5, "bart": bart, "gpt2": gpt2}
every_model = pytest.mark.parametrize("name", MODELS)


def drawn(victim: HuggingFaceVictim, num: int) -> torch.Tensor:
    words = victim.searchable_V.nonzero()[:, 0]
    return words[torch.randint(len(words), (num, LENGTH), generator=torch.Generator().manual_seed(1))]


def own_logits(name: str, victim: HuggingFaceVictim, words_N: list[int], reply_T: list[int]) -> torch.Tensor:
    """Logits (T, V) as the model gives them for token ids, teacher-forced, by its own conventions written out."""
    if name == "gpt2":
        read = [*words_N, EOS_ID, *reply_T]
        return victim.model(input_ids=torch.tensor([read])).logits[0, len(words_N) : -1]
    if name == "t5":
        source, labels = [*words_N, EOS_ID], reply_T
    else:
        source, labels = [BOS_ID, *words_N, EOS_ID], [BOS_ID, *reply_T]
    logits = victim.model(input_ids=torch.tensor([source]), labels=torch.tensor([labels])).logits[0]
    return logits[-len(reply_T) :]


@every_model
def test_replies_are_scored_as_the_model_itself_scores_them(name: str) -> None:
    victim = MODELS[name]()
    words_BN = drawn(victim, 4)
    replies_BT = torch.stack([victim.target("you are a fool"), victim.target("oh what a ?")[:5]] * 2)
    logits_BTV = victim.reply_logits(victim.embedding_VE[words_BN], replies_BT)
    assert logits_BTV.shape == (4, 5, NUM_EMBEDDINGS)
    for logits_TV, words_N, reply_T in zip(logits_BTV, words_BN.tolist(), replies_BT.tolist(), strict=True):
        torch.testing.assert_close(logits_TV, own_logits(name, victim, words_N, reply_T), rtol=1e-4, atol=1e-5)


@every_model
def test_what_is_likeliest_at_every_word_is_what_the_model_generates(name: str) -> None:
    victim = MODELS[name]()
    (words_N,) = drawn(victim, 1).tolist()
    reply: list[int] = []
    for _ in range(5):
        padded = torch.tensor([[*reply, PAD_ID]])
        logits_1TV = victim.reply_logits(victim.embedding_VE[torch.tensor([words_N])], padded)
        reply.append(int(logits_1TV[0, -1].argmax()))
    if name == "gpt2":
        read, begin = [*words_N, EOS_ID], {}
    else:
        read = [*words_N, EOS_ID] if name == "t5" else [BOS_ID, *words_N, EOS_ID]
        begin = {"decoder_input_ids": torch.tensor([[PAD_ID] if name == "t5" else [EOS_ID, BOS_ID]])}
    said = victim.model.generate(
        torch.tensor([read]), max_new_tokens=5, do_sample=False, num_beams=1, eos_token_id=None, **begin
    )
    assert said[0, -5:].tolist() == reply


@every_model
def test_gradients_reach_the_embeddings_and_no_parameter(name: str) -> None:
    victim = MODELS[name]()
    embedded_BNE = victim.embedding_VE[drawn(victim, 2)].requires_grad_()
    victim.reply_logits(embedded_BNE, victim.target("you are").expand(2, -1))[..., 0].sum().backward()
    assert embedded_BNE.grad is not None
    assert (embedded_BNE.grad.abs().sum(-1) > 0).all(), "every position makes a difference"
    assert all(parameter.grad is None for parameter in victim.model.parameters())


@every_model
def test_a_search_lowers_the_loss_to_what_the_model_says_of_the_words_found(name: str) -> None:
    victim = MODELS[name]()
    scorer = PlainScorer(victim, TriggerObjective(kind="likelihood"))
    settings = SearchSettings(candidates=4, max_sweeps=2, restarts=1, stop_on_hit=False)
    target_T = victim.target("you are a fool")
    (found,) = searched(bound(GibbsEnum, scorer, settings), [Task("fool", target_T, 0, 1)], 1)
    assert found.loss < found.loss_by_sweep[0] - 0.01
    log_TV = own_logits(name, victim, list(found.words), target_T.tolist()).log_softmax(-1)
    assert found.loss == pytest.approx(-float(log_TV.gather(1, target_T[:, None]).mean()), rel=1e-4)


@every_model
def test_an_input_holds_text_and_nothing_else(name: str) -> None:
    victim = MODELS[name]()
    assert victim.searchable_V.shape == (NUM_EMBEDDINGS,)
    allowed = victim.searchable_V.nonzero()[:, 0].tolist()
    assert [VOCABULARY[i] for i in allowed] == list(WORDS)


def test_half_characters_are_no_text() -> None:
    """A byte-level vocabulary has bytes of which characters are made; of single ones only ASCII can be read."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(tokenizers.models.BPE({symbol: i for i, symbol in enumerate([*alphabet, "<end>"])}, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>")
    config = transformers.GPT2Config(vocab_size=257, n_positions=16, n_embd=4, n_layer=1, n_head=1)
    victim = HuggingFaceCausal(transformers.GPT2LMHeadModel(config), tokenizer, LENGTH)
    allowed = [victim.text([int(i)]) for i in victim.searchable_V.nonzero()[:, 0]]
    assert sorted(allowed) == [chr(code) for code in range(32, 127)]
    assert victim.target("ab").tolist()[-1] == victim.end_id == 256


@every_model
def test_a_target_ends_with_the_models_end(name: str) -> None:
    victim = MODELS[name]()
    assert victim.target("you are").tolist() == [VOCABULARY.index("you"), VOCABULARY.index("are"), EOS_ID]
    assert victim.text(victim.target("you are")[:-1].tolist()) == "you are"


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("you are a fool .", ()),
        ("you are late , late", ("late", ",")),
        ("oh </s> well <unk>", ("</s>", "<unk>")),
        ("You are", ("You",)),
    ],
)
def test_words_that_no_tokens_stand_for_are_named(text: str, unknown: tuple[str, ...]) -> None:
    assert unknown_words(tokenizer_of(None), text) == unknown


def test_words_that_are_known_alone_and_not_together_are_named_as_they_stand() -> None:
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0, "so": 1, "be": 2, "it": 3}, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Split("so be", "isolated")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>")
    assert unknown_words(tokenizer, "so be") == ("so be",)


def test_bytes_leave_no_word_unknown() -> None:
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(tokenizers.models.BPE({symbol: i for i, symbol in enumerate([*alphabet, "<end>"])}, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    # As GPT-2 does, which has no unknown token of its own.
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>", unk_token="<end>")
    assert unknown_words(tokenizer, "caf\u00e9 \U0001f600") == ()


def test_a_template_stands_around_the_input() -> None:
    victim = gpt2(template="hello {} well")
    words_N, reply_T = drawn(victim, 1)[0].tolist(), victim.target("oh").tolist()
    read = [VOCABULARY.index("hello"), *words_N, VOCABULARY.index("well"), *reply_T]
    wanted_TV = victim.model(input_ids=torch.tensor([read])).logits[0, LENGTH + 1 : -1]
    found_1TV = victim.reply_logits(victim.embedding_VE[torch.tensor([words_N])], torch.tensor([reply_T]))
    torch.testing.assert_close(found_1TV[0], wanted_TV)


def test_a_tokenizer_that_marks_every_text_marks_a_prompt_once() -> None:
    """Those of Llama put a beginning before every text; a chat template writes it itself."""
    victim = HuggingFaceCausal(gpt2().model, tokenizer_of("<s> $A </s>"), LENGTH, "<s> hello {} well")
    embedded = victim.embedding_VE[torch.tensor([[7, 8, 9]])]
    read = []
    victim.model.register_forward_pre_hook(lambda *call: read.append(call[2]["inputs_embeds"]), with_kwargs=True)
    victim.reply_logits(embedded, torch.tensor([[10, EOS_ID]]))
    hello, well = (VOCABULARY.index(word) for word in ("hello", "well"))
    assert torch.equal(read[0][0], victim.embedding_VE[[BOS_ID, hello, 7, 8, 9, well, 10]])


@pytest.mark.parametrize(("make", "taken"), [(gpt2, LENGTH + 1), (bart, 2), (t5, None)], ids=["gpt2", "bart", "t5"])
def test_a_reply_is_as_long_as_there_are_positions(make: Callable[[], HuggingFaceVictim], taken: int | None) -> None:
    victim = make()
    if taken is None:
        assert victim.longest_reply is None
        return
    assert victim.longest_reply == 32 - taken + 1
    embedded = victim.embedding_VE[torch.tensor([[7, 8, 9]])]
    longest = torch.full((1, victim.longest_reply), 10)
    assert victim.reply_logits(embedded, longest).shape[1] == victim.longest_reply  # type: ignore[attr-defined]
    with pytest.raises(IndexError):
        victim.reply_logits(embedded, torch.cat([longest, longest[:, :1]], dim=1))  # type: ignore[attr-defined]


def test_the_tokenizers_chat_template_is_the_default() -> None:
    chat = "{% for m in messages %}<s> {{ m['content'] }} </s> {% endfor %}{% if add_generation_prompt %}well{% endif %}"
    assert gpt2(chat=chat).template == "<s> {} </s> well"
    assert gpt2().template == "{}</s>"


def test_a_template_without_a_slot_is_refused() -> None:
    with pytest.raises(ConfigError, match="a place for the input"):
        gpt2(template="hello")


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
def test_layers_that_a_device_map_has_spread_keep_what_moves_their_inputs() -> None:
    from accelerate.hooks import ModelHook, add_hook_to_module

    model = gpt2().model
    add_hook_to_module(model.lm_head, ModelHook())
    moves = model.lm_head.forward
    with CausalReader(model).fast_products():
        assert model.lm_head.forward is moves
    assert model.lm_head.forward is moves


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_hugging_face(tmp_path, LENGTH)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_embd": 8}')
    with pytest.raises(CheckpointError, match="can be read"):
        load_hugging_face(tmp_path, LENGTH)


def test_weights_that_could_run_code_are_not_read(tmp_path: Path) -> None:
    victim = gpt2()
    victim.model.config.save_pretrained(tmp_path)
    victim.tokenizer.save_pretrained(tmp_path)
    torch.save(victim.model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="can be read"):
        load_hugging_face(tmp_path, LENGTH)


def test_weights_that_are_no_numbers_are_refused() -> None:
    victim = gpt2()
    victim.model.transformer.h[0].ln_1.weight.data[0] = torch.nan
    with pytest.raises(CheckpointError, match=r"h\.0\.ln_1\.weight"):
        HuggingFaceCausal(victim.model, victim.tokenizer, LENGTH)


def test_a_tokenizer_without_an_end_is_refused() -> None:
    victim = gpt2()
    victim.tokenizer.eos_token, victim.model.generation_config.eos_token_id = None, None
    with pytest.raises(ConfigError, match="ends a reply"):
        HuggingFaceCausal(victim.model, victim.tokenizer, LENGTH)


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


def test_a_target_of_unknown_words_is_named() -> None:
    with pytest.raises(DataError, match=r"cannot say some words(.|\n)*late"):
        gpt2().target("you are late")
