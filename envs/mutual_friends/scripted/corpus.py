"""Corpora of chats between two scripted players. Chat i depends on the schema, the seed and i alone."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice

from parley.envs.core.seeds import Substreams, derive_seed
from parley.envs.mutual_friends.events import FriendsChat
from parley.envs.mutual_friends.linker import EntityLinker
from parley.envs.mutual_friends.play import play_friends
from parley.envs.mutual_friends.scenario import FriendsScenario, ScenarioOptions, check_schema, random_friends
from parley.envs.mutual_friends.schema import FriendsSchema
from parley.envs.mutual_friends.scripted.bots import FriendsBot

_ROWS = 256
"""Chats that are drawn and played at once."""


def draw_scenarios(
    schema: FriendsSchema, numbers: Iterable[int], seed: int = 0, options: ScenarioOptions | None = None
) -> list[tuple[FriendsScenario, int]]:
    """Scenarios and chat seeds of those numbers, as `play_friends` takes them.

    Args:
        schema: what tables are drawn from.
        numbers: which; the same number gives the same scenario.
        seed: master seed, at least 0.
        options: bounds of scenarios.

    Raises:
        ConfigError: the schema has too few attributes or values; says which.
    """
    options = options or ScenarioOptions()
    check_schema(schema, options)
    drawn = Substreams(seed, "friends")
    return [(random_friends(schema, drawn.at(i), options, f"S_{seed}_{i}"), derive_seed(seed, "friends", i)) for i in numbers]


def scripted_chats(schema: FriendsSchema, linker: EntityLinker, numbers: Iterable[int], seed: int = 0) -> list[FriendsChat]:
    """Chats of those numbers between two scripted players.

    Raises:
        ConfigError: as `draw_scenarios`.
    """
    chosen, bot = iter(numbers), FriendsBot(linker)
    found: list[FriendsChat] = []
    with _uncollected():
        while few := list(islice(chosen, _ROWS)):
            played = play_friends(draw_scenarios(schema, few, seed), (bot, bot), num_rows=_ROWS)
            found += [
                FriendsChat(each.scenario, each.events, each.heard, each.agreed, f"C_{seed}_{i}")
                for i, each in zip(few, played, strict=True)
            ]
    return found


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keeps the garbage collector from looking through all chats again and again; nothing here refers to itself."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():
            # What is young counts as old from here, without a look through it.
            gc.freeze()
            gc.unfreeze()
        if was_enabled:
            gc.enable()
