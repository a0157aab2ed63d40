"""`parley play secret`: a person makes a defender say its word at the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from parley.engine.core.cli.flags import parse
from parley.engine.core.cli.main import Verb
from parley.engine.core.cli.screen import StandardTerminal, make_console, show_lines, watching
from parley.envs.core.config import Configuration, NonNegativeFloat, NonNegativeInt, PositiveInt
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.secret.game import ATTACKER, DEFENDER, SecretGame, SecretRules, instructions, render_secret, spoken
from parley.envs.secret.players import make_secret_player
from parley.envs.secret.scenarios import random_secret


@dataclass(frozen=True, kw_only=True)
class PlaySecretArguments(Configuration):
    """Settings of a talk with a defender."""

    defender: str = "input-filter"
    """Registered name (parley list), address of a chat model, or path/file.py:Name."""
    seed: NonNegativeInt = 1
    """Decides the scenario and every random draw."""
    max_messages: PositiveInt = 6
    """Messages that you have."""
    temperature: NonNegativeFloat = 0.0
    """Of a chat model's answers; 0 takes the likeliest."""


def run_play_secret(verb: Verb, arguments: Sequence[str]) -> int:
    """Play one dialogue and return the exit status."""
    settings = parse(PlaySecretArguments, verb, arguments)
    with watching():
        defender = make_secret_player(settings.defender, DEFENDER, settings.temperature)
    scenario = random_secret(stream(settings.seed, "scenario", "played"), settings.max_messages)
    seeds = [derive_seed(settings.seed, "secret", "played")]
    game = SecretGame([scenario], seeds, [True], SecretRules(max_messages=settings.max_messages))
    terminal = StandardTerminal()
    terminal.show(f"{instructions(game.view(0, ATTACKER))}\n\n/quit leaves.\n")
    try:
        while game.side_to_move(0) is not None:
            line = terminal.ask(f"you ({settings.max_messages - len(game.turns[0]) // 2} left): ")
            if line == "/quit":
                raise KeyboardInterrupt
            if not line.strip():
                continue
            game.say(0, line)
            game.say(0, spoken(defender, [game.view(0, DEFENDER)])[0])
            terminal.show(f"assistant: {game.turns[0][-1] or '(says nothing)'}")
    except KeyboardInterrupt:
        terminal.show("\nyou left, and the word was kept")
        return 0
    terminal.show(f"\n{render_secret(game, 0, ATTACKER).splitlines()[-1]}")
    again = f"parley play secret --defender {shlex.quote(settings.defender)} --seed {settings.seed + 1}"
    show_lines(make_console(), "next", [again])
    return 0
