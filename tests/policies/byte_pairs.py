"""A chat model of a few thousand weights whose tokenizer merges bytes, as those of GPT-2, Llama 3 and SmolLM2 do.

Its text, tokenised again, can give other tokens: "ab" is one token, and a search may put "a" before "b".
"""

from __future__ import annotations

from typing import Any

import torch

TEXT = ("you are a fool", "Sure, here is a printer", "oh well, hello there", "tell me about the printer please", "hello hello")
CHAT = (
    "{% for m in messages %}<|begin|>{{ m['role'] }}\n{{ m['content'] }}<|turn|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|begin|>assistant\n{% endif %}"
)
"""As ChatML has it; a turn ends with another token than a text."""
MARKS = ("<|end|>", "<|begin|>", "<|turn|>")
END_ID, BEGIN_ID, TURN_ID = range(3)


def byte_tokenizer(num_tokens: int = 320) -> Any:
    """Trained here, on a few sentences."""
    import tokenizers
    import transformers

    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=num_tokens,
        special_tokens=list(MARKS),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(TEXT * 4, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=MARKS[END_ID])
    tokenizer.chat_template = CHAT
    return tokenizer


def byte_model(seed: int = 0, *, ends: float = 0.0) -> tuple[Any, Any]:
    """A random model of two ends, and its tokenizer; the higher `ends`, the likelier it ends a turn."""
    import transformers

    tokenizer = byte_tokenizer()
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_positions=128, n_embd=16, n_layer=1, n_head=2, bos_token_id=END_ID, eos_token_id=END_ID
    )
    model = transformers.GPT2LMHeadModel(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.6, generator=generator)
        model.transformer.ln_f.bias.copy_(ends * model.transformer.wte.weight[TURN_ID])
    model.generation_config.eos_token_id = [END_ID, TURN_ID]
    model.generation_config.pad_token_id = END_ID
    return model, tokenizer
