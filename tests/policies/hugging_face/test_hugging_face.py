"""Adapters of Hugging Face models: what is scored, searched among and said, on models that are made here."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from parley.engine.triggers.methods.gibbs_enum import GibbsEnum
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.scorers.scorer import PlainScorer
from parley.engine.triggers.searches.batch import Task
from parley.envs.core.errors import ConfigError, DataError
from parley.policies.hugging_face.tokens import unknown_words
from parley.policies.hugging_face.victims import HuggingFaceCausal, HuggingFaceVictim
from tests.engine.triggers.made_up import bound, searched
from tests.policies.small_hugging_face import (
    BOS_ID,
    EOS_ID,
    LENGTH,
    MODELS,
    NUM_EMBEDDINGS,
    PAD_ID,
    VOCABULARY,
    WORDS,
    bart,
    drawn,
    every_model,
    gpt2,
    t5,
    tokenizer_of,
    tokenizers,
    transformers,
)


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


def test_a_target_of_unknown_words_is_named() -> None:
    with pytest.raises(DataError, match=r"cannot say some words(.|\n)*late"):
        gpt2().target("you are late")
