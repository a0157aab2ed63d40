"""Chat models and searches on every kind of memory: equal to a plain reading of the whole text."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.scorers.causal.scorer import CausalScorer, is_causal
from parley.engine.triggers.scorers.scorer import PlainScorer
from parley.envs.corpora.pairs.tokens import tokenise
from parley.policies.chat.local import LocalChatModel, load_local
from parley.policies.chat.model import Chat, ChatDecoding, Message
from parley.policies.chat.settings import DEFAULT, MAX_REPLY_TOKENS
from parley.policies.core.responder import DecoderSettings
from parley.policies.hugging_face.caches import TokenTree, continues_reading, pads_left, reads_trees
from parley.policies.hugging_face.judges import HuggingFaceInputModel, reply_nats
from parley.policies.hugging_face.responder import HuggingFaceResponder
from parley.policies.hugging_face.victims import HuggingFaceCausal
from tests.policies.chat.architectures import CONFIGS, SHARING, WITHOUT_CACHE, drawn_model
from tests.policies.small_gpt2 import greedy_replies

CHATS: list[Chat] = [
    (Message("user", "hello there"),),
    (Message("user", "tell me about the printer please"), Message("assistant", "oh well"), Message("user", "you are a fool")),
    (Message("user", "you"),),
]
REPLIES = ["Sure, here is a printer", "oh", "hello hello"]
CONTEXTS = [((("hello", "there"),),)]
every_kind = pytest.mark.parametrize("kind", CONFIGS)
pytestmark = pytest.mark.filterwarnings("ignore")


@torch.inference_mode()
def plain_logits(model: Any, ids: list[int]) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()
    return logits


def plain_greedy(model: Any, ids: list[int], ends: tuple[int, ...], num: int) -> list[int]:
    written: list[int] = []
    while len(written) < num:
        token = int(plain_logits(model, [*ids, *written])[-1].argmax())
        if token in ends:
            break
        written.append(token)
    return written


@every_kind
def test_answers_are_those_of_a_plain_reading(kind: str) -> None:
    model, tokenizer = drawn_model(kind)
    for batch_size in (1, 3):
        chat_model = LocalChatModel(kind, model, tokenizer, batch_size)
        answers = chat_model.answer(CHATS, decoding=ChatDecoding(max_tokens=5))
        for chat, answer in zip(CHATS, answers, strict=True):
            wanted = plain_greedy(model, chat_model.prompts.ids(chat), chat_model.prompts.end_ids, 5)
            reply = tokenizer.decode(wanted, skip_special_tokens=True)
            # Line ends alone are no reply, and have no text.
            assert answer.text == (reply if reply.strip() else "")
            assert answer.num_tokens == len(wanted)


@every_kind
@pytest.mark.parametrize("batch_size", [1, 3])
def test_scores_are_those_of_a_plain_reading(kind: str, batch_size: int) -> None:
    model, tokenizer = drawn_model(kind)
    chat_model = LocalChatModel(kind, model, tokenizer, batch_size)
    for chat in CHATS[:2]:
        for reply, score in zip(REPLIES, chat_model.score([chat] * 3, REPLIES), strict=True):
            before, after = chat_model.prompts.ids(chat), chat_model.prompts.reply_ids(reply)
            log_TV = plain_logits(model, [*before, *after])[len(before) - 1 : -1].log_softmax(-1)
            nats = float(log_TV.gather(1, torch.tensor(after)[:, None]).sum())
            assert score.nats == pytest.approx(nats, rel=1e-4)


@every_kind
def test_searches_and_judges_read_as_a_plain_reading_does(kind: str) -> None:
    model, tokenizer = drawn_model(kind)
    victim = HuggingFaceCausal(model, tokenizer, 4, end=False)
    target = victim.target("Sure, here")
    words_RN = victim.searchable_V.nonzero()[:12, 0].view(3, 4)
    scorer = (CausalScorer if is_causal(victim) else PlainScorer)(victim, TriggerObjective(kind="likelihood"))
    losses = scorer.losses([target] * 3, words_RN)
    read = [victim._read(words.tolist()) for words in words_RN]
    for ids, loss in zip(read, losses.tolist(), strict=True):
        log_TV = plain_logits(model, [*ids, *target.tolist()])[len(ids) - 1 : -1].log_softmax(-1)
        assert loss == pytest.approx(-float(log_TV.gather(1, target[:, None]).mean()), rel=1e-3)
    (incumbent,) = scorer.measure([target], words_RN[:1])
    assert incumbent.loss == pytest.approx(float(losses[0]), rel=1e-4)
    assert scorer.slopes([incumbent], torch.tensor([1])).isfinite().all()
    assert victim.say(read[0], 4)[0] == plain_greedy(model, read[0], victim.end_ids, 4)
    behind = victim.read_text("hello")
    assert behind is not None
    nats = reply_nats(victim, "hello", "oh well")
    reply = tokenizer("oh well", add_special_tokens=False).input_ids
    log_TV = plain_logits(model, [*behind, *reply])[len(behind) - 1 : -1].log_softmax(-1)
    assert sum(nats) == pytest.approx(-float(log_TV.gather(1, torch.tensor(reply)[:, None]).sum()), rel=1e-4)
    judge = HuggingFaceInputModel(model, tokenizer)
    assert judge.draw([5], 3, victim.searchable_V).shape == (1, 3)


@every_kind
def test_hardening_measures_the_replies_of_a_plain_reading(kind: str) -> None:
    model, tokenizer = drawn_model(kind)
    ends = LocalChatModel(kind, model, tokenizer).prompts.end_ids
    prompts = ["hello there", "you are a fool, oh well", "tell"]
    for prompt, (reply, _) in zip(prompts, greedy_replies(model, tokenizer, prompts, 4, batch_size=3), strict=True):
        wanted = plain_greedy(model, tokenizer(prompt, add_special_tokens=False).input_ids, ends, 4)
        assert reply == tokenizer.decode(wanted, skip_special_tokens=True)


@every_kind
def test_what_a_model_can_do_is_tried_and_what_it_cannot_is_said_once(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    model, _ = drawn_model(kind)
    with caplog.at_level(logging.WARNING, "parley.policies.hugging_face.caches"):
        abilities = continues_reading, pads_left, reads_trees
        found = [tuple(is_able(model) for is_able in abilities) for _ in range(2)]
    assert found[0] == found[1]
    continues, _, shares = found[0]
    assert shares == (kind in SHARING)
    if kind in WITHOUT_CACHE:
        assert not continues
    if kind in SHARING or kind in ("lfm2", "qwen3_next", "jamba"):
        assert continues
    said = [record.getMessage() for record in caplog.records if record.name.endswith(".caches")]
    assert len(said) == len(set(said)) == found[0].count(False)


@every_kind
def test_a_tree_is_read_as_its_texts_are_alone(kind: str) -> None:
    model, tokenizer = drawn_model(kind)
    if not reads_trees(model):
        return
    usual = model.config._attn_implementation
    texts = [tokenizer(text).input_ids for text in ("hello there", "hello", "you are a fool", "you are there", "hello there")]
    tree = TokenTree(texts)
    assert len(tree) == len({tuple(text[: end + 1]) for text in texts for end in range(len(text))}) < sum(map(len, texts))
    with torch.inference_mode():
        logits = tree.logits(model, [place for places in tree.places for place in places])
        last = tree.logits(model, [places[-1] for places in tree.places])
    plain = [plain_logits(model, text) for text in texts]
    torch.testing.assert_close(logits, torch.cat(plain), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(last, torch.stack([read[-1] for read in plain]), atol=1e-4, rtol=1e-4)
    assert model.config._attn_implementation == usual


@pytest.mark.parametrize("window", [3, 100])
def test_a_tree_keeps_the_window_of_attention(window: int) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = MistralConfig(**sizes, vocab_size=40, num_key_value_heads=2, head_dim=4, sliding_window=window)
    model = MistralForCausalLM(config).eval()
    texts = [[*range(20), 21, 22, 23, 24], [*range(20), 5, 6, 7, 8, 9]]
    tree = TokenTree(texts)
    with torch.inference_mode():
        logits = tree.logits(model, [place for places in tree.places for place in places])
    torch.testing.assert_close(logits, torch.cat([plain_logits(model, text) for text in texts]), atol=1e-5, rtol=1e-4)


@every_kind
def test_beams_read_as_a_plain_reading_does(kind: str) -> None:
    model, tokenizer = drawn_model(kind)
    said = HuggingFaceResponder(model, tokenizer).respond(CONTEXTS, decoder=DecoderSettings(rule="beam", beam=1))
    for context, turn in zip(CONTEXTS, said, strict=True):
        prompts = LocalChatModel(kind, model, tokenizer).prompts
        read = prompts.ids((Message("user", " ".join(context[0][0])),))
        wanted = tokenizer.decode(plain_greedy(model, read, prompts.end_ids, MAX_REPLY_TOKENS), skip_special_tokens=True)
        assert turn == (tuple(tuple(tokenise(line)) for line in wanted.splitlines() if line.strip()) or ((),))


@pytest.mark.parametrize("kind", ["lfm2", "mamba"])
def test_a_folder_of_such_a_model_answers_and_scores(kind: str, tmp_path: Path) -> None:
    model, tokenizer = drawn_model(kind)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    again = load_local(f"hf:{tmp_path}", DEFAULT)
    here = LocalChatModel(kind, model, tokenizer)
    decoding = ChatDecoding(max_tokens=4)
    assert again.answer(CHATS, decoding=decoding) == here.answer(CHATS, decoding=decoding)
    assert again.score(CHATS, REPLIES) == here.score(CHATS, REPLIES)
