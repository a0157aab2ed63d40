"""Conversations that a second of processor plays: two adapters on one base, 32 dialogues at once, against `generate`.

Attacker and defender of the secret game are adapters on SmolLM2-135M-Instruct with drawn weights; four dialogues have one
scenario, as in a training. The reference plays one dialogue after the other (`plain_chat.py`), and fewer of them. "ratio"
compares seconds of a dialogue. "identical": its texts are equal, drawn or likeliest ones. "over_base_mib" is the memory that
play takes beyond base and adapters at most, "own_tokens" what both sides wrote, "tokens_per_s" those of ours.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass

from benchmarks.measure import BenchmarkOptions, Clock, Result, run
from benchmarks.plain_chat import TwoSides, play_turn_by_turn, secrets
from parley.envs.secret.game import SecretRules, play_secret
from parley.policies.chat.model import ChatDecoding


@dataclass(frozen=True)
class Options(BenchmarkOptions):
    """Dialogues of two chat models on one base."""

    base: str = ""
    """Base of both adapters, hf:FOLDER or gguf:FILE; SmolLM2-135M-Instruct when empty."""
    dialogues: int = 32
    """Dialogues that ours plays at once."""
    plain: int = 8
    """Dialogues that the reference plays; one in the quick form."""
    messages: int = 6
    """Messages of each side; two in the quick form."""
    max_tokens: int = 32
    """Tokens of a text at most."""
    temperature: float = 1.0
    """Of the texts; 0 takes the likeliest tokens."""


def most_mib() -> float:
    """Return the most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(options: Options) -> Result:
    """Play both ways."""
    num_plain, messages = (1, 2) if options.quick else (options.plain, options.messages)
    sides, rules = TwoSides.of(options.base), SecretRules(max_messages=messages)
    decoding = ChatDecoding(temperature=options.temperature, max_tokens=options.max_tokens)
    ours, plain = Clock(), Clock()
    # What a model is able to is tried once.
    play_secret(secrets(2, SecretRules(max_messages=1)), *sides.players(2, decoding))
    before = most_mib()
    players = sides.players(options.dialogues, decoding)
    game = secrets(options.dialogues, rules)
    with ours.running():
        play_secret(game, *players)
    over_base = most_mib() - before
    reference = secrets(num_plain, rules)
    with plain.running():
        play_turn_by_turn(sides, reference, num_plain, decoding)
    sides.remove()
    num_own = sum(len(turn.written) for player in players for turns in player.turns.values() for turn in turns)
    return Result(
        ratio=plain.seconds / num_plain / (ours.seconds / options.dialogues),
        identical=game.turns[:num_plain] == reference.turns,
        figures={
            "ours_s": ours.seconds,
            "reference_s": plain.seconds,
            "dialogues": options.dialogues,
            "reference_dialogues": num_plain,
            "texts": sum(map(len, game.turns)),
            "own_tokens": num_own,
            "tokens_per_s": num_own / ours.seconds,
            "over_base_mib": over_base,
        },
    )


if __name__ == "__main__":
    run("chat_selfplay", Options, measure)
