"""Causal models of some thousand drawn weights, one of each kind of memory that transformers knows; built here."""

from __future__ import annotations

from typing import Any

import torch

from tests.policies.byte_pairs import CHAT, END_ID, TURN_ID, byte_tokenizer

_BASE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
_MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 8, "mamba_d_conv": 4, "mamba_expand": 2}
_DELTA = {
    "head_dim": 16,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
_STATES = {"hidden_size": 32, "state_size": 8, "num_hidden_layers": 2}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": _BASE,
    "gemma3_text": {
        **_BASE,
        "head_dim": 16,
        "sliding_window": 4,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "gemma2": {**_BASE, "head_dim": 16, "sliding_window": 4, "attn_logit_softcapping": 0.01},
    "gpt_oss": {**_BASE, "head_dim": 16, "sliding_window": 4, "num_local_experts": 2, "num_experts_per_tok": 1},
    "lfm2": {**_BASE, "layer_types": ["conv", "full_attention"], "conv_L_cache": 3},
    "qwen3_next": {
        **_BASE,
        **_DELTA,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
    },
    "qwen3_5_text": {**_BASE, **_DELTA},
    "jamba": {
        **_BASE,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "mamba_d_state": 8,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_dt_rank": 4,
        "use_mamba_kernels": False,
    },
    "falcon_h1": {
        **_BASE,
        "head_dim": 16,
        "mamba_d_ssm": 32,
        **_MAMBA,
        "mamba_d_head": 8,
        "mamba_expand": 1,
        "mamba_chunk_size": 8,
    },
    "bamba": {**_BASE, "attn_layer_indices": [1], **_MAMBA, "mamba_chunk_size": 8},
    "granitemoehybrid": {
        **_BASE,
        "layer_types": ["mamba", "attention"],
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "shared_intermediate_size": 32,
        **_MAMBA,
        "mamba_chunk_size": 8,
    },
    "nemotron_h": {
        **_BASE,
        "hybrid_override_pattern": "M*",
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "ssm_state_size": 8,
        "n_groups": 1,
        "chunk_size": 8,
        "head_dim": 16,
    },
    "minimax": {
        **_BASE,
        "head_dim": 16,
        "layer_types": ["linear_attention", "full_attention"],
        "block_size": 8,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
    },
    "mamba": _STATES,
    "mamba2": {**_STATES, "num_heads": 4, "head_dim": 16, "expand": 2, "n_groups": 1, "chunk_size": 8},
    "falcon_mamba": _STATES,
    "rwkv": {
        "hidden_size": 32,
        "attention_hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "context_length": 256,
    },
    "recurrent_gemma": {
        **_BASE,
        "num_hidden_layers": 3,
        "head_dim": 16,
        "lru_width": 32,
        "attention_window_size": 16,
        "conv1d_width": 4,
        "block_types": ["recurrent", "recurrent", "attention"],
    },
}
"""Configurations by model type: attention, sliding windows, hybrids of attention and a running state, running states alone."""
WITHOUT_CACHE = ("mamba", "mamba2", "falcon_mamba", "rwkv", "recurrent_gemma")
"""Those that give no `past_key_values`."""
SHARING = ("llama", "gemma3_text", "gemma2", "gpt_oss")
"""Those that read as a tree what several texts begin with."""


def drawn_model(kind: str, seed: int = 0) -> tuple[Any, Any]:
    """Return a model of a kind with drawn weights, and a tokenizer of bytes."""
    import transformers

    tokenizer = byte_tokenizer()
    tokenizer.chat_template = CHAT
    marks = {"vocab_size": len(tokenizer), "bos_token_id": END_ID, "eos_token_id": END_ID, "pad_token_id": END_ID}
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(kind, **CONFIGS[kind], **marks)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3, generator=generator)
    model.generation_config.eos_token_id = [END_ID, TURN_ID]
    return model, tokenizer
