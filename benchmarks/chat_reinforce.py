"""Conversations that a second of processor learns from: an update of `parley train chat-rl` against a plain loop.

Both learn an attacker of the secret game, an adapter on SmolLM2-135M-Instruct, from conversations with a defender on the same
base. Ours plays an update's conversations at once and learns from them through RLlib in one process. The plain loop
(`plain_chat.py`) plays a turn at a time and reads padded batches. Both read the same tokens in a step: those that ours played.

"ratio" is of whole updates: play of the plain loop is measured on fewer conversations, and counted for all. "ratio_learning" is
of the step alone. Each side makes a small step first, as a training makes hundreds.

"identical": losses are equal to 1e-4 and gradients to 1e-3 of the largest, and the plain loop plays equal texts. Ours are
compared with the plain step whose loss is formed in float64, which is not timed: in float32 its softmax over 49,152 tokens is
off by 1e-5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.chat_selfplay import most_mib
from benchmarks.measure import BenchmarkOptions, Clock, Result, run
from benchmarks.plain_chat import SEED, TwoSides, learn_padded, play_turn_by_turn, secrets, spread
from parley.engine.chat.rl.algorithm import ChatReinforceAlgorithmConfig
from parley.engine.chat.rl.learner import batch_rows
from parley.engine.chat.rl.runner import ChatLearnerSpec, SecretSeat, sequences
from parley.engine.chat.rl.settings import ChatReinforceConfig
from parley.engine.core.ray.session import connect
from parley.engine.core.verbs.supervised import built
from parley.envs.core.seeds import stream
from parley.envs.secret.game import ATTACKER, SecretRules, play_secret
from parley.policies.chat.model import ChatDecoding
from parley.policies.chat.settings import ChatSeat, LoraSettings

LOSS, GRADIENT = 1e-4, 1e-3
"""Differences of a loss, and of a gradient as a share of its largest entry."""


@dataclass(frozen=True)
class Options(BenchmarkOptions):
    """Updates of an attacker against a defender on one base."""

    base: str = ""
    """Base of both adapters, hf:FOLDER or gguf:FILE; SmolLM2-135M-Instruct when empty."""
    dialogues: int = 32
    """Conversations of an update, which ours plays at once, four of each scenario; eight in the quick form."""
    plain: int = 4
    """Conversations that the plain loop plays; one in the quick form."""
    messages: int = 6
    """Messages of each side; two in the quick form."""
    max_tokens: int = 32
    """Tokens of a text at most."""
    rows_at_once: int = 4
    """Conversations of a padded batch of the plain loop."""


def measure(options: Options) -> Result:
    """Play and learn both ways."""
    num, messages, num_plain = (8, 2, 1) if options.quick else (options.dialogues, options.messages, options.plain)
    rules, rule = SecretRules(max_messages=messages), ChatReinforceConfig(max_tokens=options.max_tokens, at_once=num)
    decoding = ChatDecoding(temperature=rule.temperature, max_tokens=rule.max_tokens)
    drawn = TwoSides.of(options.base)
    spec = ChatLearnerSpec(drawn.base.name, "", SecretSeat(ATTACKER, rules), LoraSettings(), ChatSeat(batch_size=32), SEED)
    settings = ChatReinforceAlgorithmConfig().conversations(reinforce=rule, spec=spec, opponents=["naive"])
    play, learn, plain_play, plain_learn = (Clock() for _ in range(4))
    with connect(num_cpus=1), built(settings) as algorithm:
        learner = algorithm.learner_group._learner
        module = learner.module[algorithm.role].unwrapped()
        # The learner's adapter is that of the plain loop too.
        spread(module.net, SEED)
        sides = TwoSides(module.base, [module.adapter, drawn.adapters[1]])
        play_secret(secrets(2, SecretRules(max_messages=1)), *sides.players(2, decoding))
        before = most_mib()
        rest = sides, module.adapter, rule.temperature, rule.kl_weight
        warm = [
            (stream(SEED, "warm", row).integers(1000, size=250), np.arange(250) >= 180, 1.0)
            for row in range(options.rows_at_once)
        ]
        _ours(learner, algorithm.role, warm[:2], rule)
        players, game = sides.players(num, decoding), secrets(num, rules)
        with play.running():
            play_secret(game, *players)
        advantages = stream(SEED, "advantages").choice([-1.0, 1.0], size=num)
        seeds = [game.view(row, ATTACKER).seed for row in range(num)]
        played = [
            (*sequence, float(advantage))
            for seed, advantage in zip(seeds, advantages, strict=True)
            for sequence in sequences(players[ATTACKER].turns[seed])
        ]
        with learn.running():
            loss = _ours(learner, algorithm.role, played, rule)
        over_base = most_mib() - before
        gradients = {name: value.grad.clone() for name, value in module.net.items()}
        reference = secrets(num_plain, rules)
        with plain_play.running():
            play_turn_by_turn(sides, reference, num_plain, decoding)
        learn_padded(*rest, warm, options.rows_at_once)
        with plain_learn.running():
            learn_padded(*rest, played, options.rows_at_once)
        for value in module.net.values():
            value.grad = None
        plain = learn_padded(*rest, played, 1, torch.float64)
        off = max(_difference(value.grad, gradients[name]) for name, value in module.net.items())
    drawn.remove()
    whole = play.seconds + learn.seconds
    plain_whole = plain_play.seconds / num_plain * num + plain_learn.seconds
    same = abs(loss - plain) < LOSS and off < GRADIENT and game.turns[:num_plain] == reference.turns
    return Result(
        ratio=plain_whole / whole,
        identical=same,
        figures={
            "ratio_play": plain_play.seconds / num_plain * num / play.seconds,
            "ratio_learning": plain_learn.seconds / learn.seconds,
            "loss": loss,
            "loss_reference": plain,
            "gradient_off": off,
            "conversations": num,
            "reference_played": num_plain,
            "tokens_read": int(sum(len(tokens) for tokens, _, _ in played)),
            "own_tokens": int(sum(sum(own) for _, own, _ in played)),
            "conversations_per_s": num / whole,
            "play_s": play.seconds,
            "learning_s": learn.seconds,
            "reference_learning_s": plain_learn.seconds,
            "over_base_mib": over_base,
        },
    )


def _ours(learner: Any, role: str, played: Sequence[tuple[Any, Any, float]], rule: ChatReinforceConfig) -> float:
    columns = {name: torch.from_numpy(value) for name, value in batch_rows(played, [], rule.kl_weight).items()}
    return float(learner.compute_loss_for_module(module_id=role, config=None, batch=columns, fwd_out={}))


def _difference(first: torch.Tensor, second: torch.Tensor) -> float:
    return float((first - second).abs().max() / np.maximum(float(second.abs().max()), 1e-12))


if __name__ == "__main__":
    run("chat_reinforce", Options, measure)
