"""Hugging Face models of some thousand weights that are made here; nothing is downloaded."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from parley.policies.hugging_face.models import HuggingFaceSeq2Seq
from parley.policies.hugging_face.victims import HuggingFaceCausal, HuggingFaceVictim

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


def gpt2(template: str | None = None, chat: str | None = None, positions: int = 32) -> HuggingFaceCausal:
    config = transformers.GPT2Config(
        vocab_size=NUM_EMBEDDINGS, n_positions=positions, n_embd=8, n_layer=1, n_head=2, bos_token_id=EOS_ID,
        eos_token_id=EOS_ID,
    )  # fmt: skip
    tokenizer = tokenizer_of(None)
    tokenizer.chat_template = chat
    return HuggingFaceCausal(scaled(transformers.GPT2LMHeadModel(config)), tokenizer, LENGTH, template)


MODELS = {"t5": t5, "bart": bart, "gpt2": gpt2}
every_model = pytest.mark.parametrize("name", MODELS)


def drawn(victim: HuggingFaceVictim, num: int) -> torch.Tensor:
    words = victim.searchable_V.nonzero()[:, 0]
    return words[torch.randint(len(words), (num, LENGTH), generator=torch.Generator().manual_seed(1))]
