"""A tokenizer of SentencePiece's kind: a unigram model, blanks that lead words, bytes where it knows no piece."""

from __future__ import annotations

from typing import Any

import torch

from parley.policies.hugging_face.tokens import BLANK
from tests.policies.byte_pairs import CHAT, END_ID, MARKS, TEXT, TURN_ID


def piece_tokenizer(scheme: str = "first") -> Any:
    """As Llama 2 has it.

    Args:
        scheme: "first" puts a blank before a text, "always" behind special tokens too.
    """
    import tokenizers
    import transformers

    decoders, words = tokenizers.decoders, sorted({word.strip(",").lower() for text in TEXT for word in text.split()})
    parts = ["ll", "ell", "ou", "er", "re", "th", *"abcdefghijklmnopqrstuvwxyz,.!", BLANK]
    pieces = [(mark, 0.0) for mark in (*MARKS, "<unk>")]
    pieces += [(f"{BLANK}{part}", -5.0) for part in (*words, "he", "t", "p")] + [(part, -8.0) for part in parts]
    # In a fixed order: what is trained here would differ from process to process.
    pieces += [(f"<0x{byte:02X}>", -20.0) for byte in range(256)]
    inner = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=len(MARKS), byte_fallback=True))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme=scheme)
    inner.add_special_tokens(list(MARKS))
    steps = [decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    inner.decoder = decoders.Sequence(steps)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=MARKS[END_ID], unk_token="<unk>")
    tokenizer.chat_template = CHAT
    return tokenizer


def piece_model(scheme: str = "first", seed: int = 0) -> tuple[Any, Any]:
    """A random model, and its tokenizer."""
    import transformers

    tokenizer = piece_tokenizer(scheme)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_positions=128, n_embd=16, n_layer=1, n_head=2, bos_token_id=END_ID, eos_token_id=END_ID
    )
    model = transformers.GPT2LMHeadModel(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.6, generator=generator)
        # Most likely it says words: the rest of so small a vocabulary is bytes and parts of words.
        names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        model.transformer.wte.weight[[i for i, name in enumerate(names) if name[0] != BLANK or name == BLANK]] *= 0.3
    model.generation_config.eos_token_id = [END_ID, TURN_ID]
    model.generation_config.pad_token_id = END_ID
    return model, tokenizer
