"""A file of llama.cpp of a few thousand weights, written by the package gguf."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.policies.byte_pairs import CHAT, END_ID, MARKS, byte_tokenizer

WIDTH, HEADS, INNER, POSITIONS = 16, 2, 32, 128


def write_gguf(path: Path, seed: int = 0, positions: int = POSITIONS, *, quantized: Any = None, pre: str = "") -> None:
    """Write a Llama of one layer with drawn weights, and the tokenizer of `byte_pairs`.

    Args:
        path: of the file.
        seed: of the weights.
        positions: that it has.
        quantized: type in which a matrix is stored; as it is when None.
        pre: pre-tokenizer that the file names; none when empty.
    """
    import gguf

    tokenizer = byte_tokenizer()
    inner = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    words = [word for word, _ in sorted(inner["vocab"].items(), key=lambda entry: entry[1])]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(positions)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(words))
    writer.add_tokenizer_model("gpt2")
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(words)
    kinds = gguf.TokenType
    writer.add_token_types([kinds.CONTROL if word in MARKS else kinds.NORMAL for word in words])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in inner["merges"]])
    writer.add_eos_token_id(END_ID)
    writer.add_bos_token_id(END_ID)
    writer.add_chat_template(CHAT)
    shapes = {"token_embd": (len(words), WIDTH), "output": (len(words), WIDTH), "output_norm": (WIDTH,)}
    shapes |= {f"blk.0.attn_{part}": (WIDTH, WIDTH) for part in ("q", "k", "v", "output")}
    shapes |= {"blk.0.attn_norm": (WIDTH,), "blk.0.ffn_norm": (WIDTH,), "blk.0.ffn_down": (WIDTH, INNER)}
    shapes |= {f"blk.0.ffn_{part}": (INNER, WIDTH) for part in ("gate", "up")}
    draws = np.random.default_rng(seed)
    for name, shape in shapes.items():
        numbers = draws.normal(0, 0.5, size=shape).astype(np.float32)
        if quantized is None or name != "blk.0.ffn_down":
            writer.add_tensor(f"{name}.weight", numbers)
            continue
        elements, size = gguf.GGML_QUANT_SIZES[quantized]
        try:
            packed = gguf.quants.quantize(numbers, quantized)
        except (NotImplementedError, gguf.QuantError):
            packed = np.zeros((shape[0], -(-shape[1] // elements) * size), dtype=np.uint8)
        writer.add_tensor(f"{name}.weight", packed, raw_dtype=quantized)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
