"""Models that read pictures or sounds beside text: texts alone go through their language part, to the last digit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.scorers.causal.scorer import CausalScorer, is_causal
from parley.engine.triggers.scorers.scorer import PlainScorer
from parley.envs.core.errors import CheckpointError
from parley.policies.chat.local import load_local
from parley.policies.chat.model import ChatDecoding, Message
from parley.policies.chat.settings import ChatModelSettings
from parley.policies.hugging_face.models import load_hugging_face
from parley.policies.hugging_face.victims import HuggingFaceCausal
from parley.policies.ranking.rankers import is_chat_ranker
from tests.policies.byte_pairs import END_ID, byte_tokenizer
from tests.policies.small_hugging_face import transformers

CHATS = [(Message("user", "hello"),), (Message("user", "tell me about the printer please"),)]
TEXT = {
    "vocab_size": 320,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "bos_token_id": END_ID,
    "eos_token_id": END_ID,
    "pad_token_id": END_ID,
    "max_position_embeddings": 256,
}
PICTURE = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "image_size": 28,
    "patch_size": 14,
}
ROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}


def mistral3() -> Any:
    text = transformers.MistralConfig(**TEXT, head_dim=16)
    picture = {"model_type": "pixtral", **PICTURE}
    config = transformers.Mistral3Config(text_config=text, vision_config=picture, image_token_index=300)
    return transformers.Mistral3ForConditionalGeneration(config)


def llava() -> Any:
    picture = {"model_type": "clip_vision_model", **PICTURE}
    config = transformers.LlavaConfig(
        text_config=transformers.LlamaConfig(**TEXT), vision_config=picture, image_token_index=300
    )
    return transformers.LlavaForConditionalGeneration(config)


def qwen2_5_vl() -> Any:
    picture = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 1, "out_hidden_size": 32, "patch_size": 14}
    marks = {"image_token_id": 300, "video_token_id": 301, "vision_start_token_id": 302, "vision_end_token_id": 303}
    config = transformers.Qwen2_5_VLConfig(text_config={**TEXT, "rope_parameters": ROPE}, vision_config=picture, **marks)
    return transformers.Qwen2_5_VLForConditionalGeneration(config)


def gemma3() -> Any:
    text = transformers.Gemma3TextConfig(**TEXT, head_dim=16, sliding_window=4)
    picture = {"model_type": "siglip_vision_model", **PICTURE}
    config = transformers.Gemma3Config(text_config=text, vision_config=picture, image_token_index=300, mm_tokens_per_image=1)
    return transformers.Gemma3ForConditionalGeneration(config)


def qwen2_audio() -> Any:
    sound = {"model_type": "qwen2_audio_encoder", "d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 1}
    config = transformers.Qwen2AudioConfig(
        text_config={"model_type": "qwen2", **TEXT},
        audio_config={**sound, "encoder_ffn_dim": 16, "num_mel_bins": 8},
        audio_token_index=300,
    )
    return transformers.Qwen2AudioForConditionalGeneration(config)


@torch.inference_mode()
def plain_nats(model: Any, before: list[int], reply: list[int]) -> float:
    log_TV = model(input_ids=torch.tensor([before + reply]), use_cache=False).logits[0, len(before) - 1 : -1].log_softmax(-1)
    return float(log_TV.gather(1, torch.tensor(reply)[:, None]).sum())


@pytest.mark.parametrize("build", [mistral3, llava, qwen2_5_vl, gemma3, qwen2_audio], ids=lambda build: build.__name__)
def test_a_composite_answers_and_is_searched_by_its_language_part(build: Callable[[], Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = build().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3, generator=generator)
    model.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    chat_model = load_local(f"hf:{tmp_path}", ChatModelSettings(batch_size=2))
    assert chat_model.prompts.longest == 256, "the limit of the language part"
    probe = torch.tensor([[9, 60, 70, 80, 90, 100, 20]])
    with torch.inference_mode():
        torch.testing.assert_close(chat_model.model(input_ids=probe).logits, model(input_ids=probe).logits)
    for chat, answer in zip(CHATS, chat_model.answer(CHATS, decoding=ChatDecoding(max_tokens=4)), strict=True):
        read = chat_model.prompts.ids(chat)
        said = model.generate(torch.tensor([read]), max_new_tokens=4, do_sample=False)[0, len(read) :].tolist()
        said = said[: said.index(END_ID)] if END_ID in said else said
        reply = chat_model.tokenizer.decode(said, skip_special_tokens=True)
        # Line ends alone are no reply, and have no text.
        assert answer.text == (reply if reply.strip() else "")
    for chat, score in zip(CHATS, chat_model.score(CHATS, ["oh well", "a fool"]), strict=True):
        reply = "oh well" if chat is CHATS[0] else "a fool"
        wanted = plain_nats(model, chat_model.prompts.ids(chat), chat_model.prompts.reply_ids(reply))
        assert score.nats == pytest.approx(wanted, rel=1e-4)
    assert is_chat_ranker(f"hf:{tmp_path}"), "it ranks replies as it answers"
    victim = load_hugging_face(f"hf:{tmp_path}", 4, end=False)
    assert isinstance(victim, HuggingFaceCausal)
    target, words_RN = victim.target("Sure, here"), victim.searchable_V.nonzero()[:8, 0].view(2, 4)
    scorer = (CausalScorer if is_causal(victim) else PlainScorer)(victim, TriggerObjective(kind="likelihood"))
    for words, loss in zip(words_RN.tolist(), scorer.losses([target] * 2, words_RN).tolist(), strict=True):
        assert loss == pytest.approx(-plain_nats(model, victim._read(words), target.tolist()) / len(target), rel=1e-3)


def test_a_model_of_no_language_is_refused_by_its_kind(tmp_path: Path) -> None:
    transformers.ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=1).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"no model of language of this kind(.|\n)*model_type vit"):
        load_local(f"hf:{tmp_path}", ChatModelSettings())
