"""Chats made up for the tests of DynoNet: drawn scenarios, drawn words and mentions, and a tiny model."""

from __future__ import annotations

import numpy as np
import torch

from parley.envs.core.seeds import stream
from parley.envs.mutual_friends.game import ChatEvent, FriendsChat, Token
from parley.envs.mutual_friends.linker import EntityLinker
from parley.envs.mutual_friends.scenario import FriendsScenario, ScenarioOptions, random_friends
from parley.policies.dynonet.graphs import FriendsVocabulary
from parley.policies.dynonet.model import DynoNet
from parley.policies.dynonet.settings import DynoNetSizes
from tests.envs.mutual_friends.made_up import SCHEMA

WORDS = ("i", "have", "two", "friends", "from", "who", "like", "?", "no", "yes")
LINKER = EntityLinker(SCHEMA)
OPTIONS = ScenarioOptions(min_items=3, max_items=5, min_attributes=2, max_attributes=3)
VOCABULARY = FriendsVocabulary.build(SCHEMA, [WORDS[:-1]], 1)
SIZES = DynoNetSizes(embed=6, hidden=7, message=5, edge=3, max_items=5)


def tiny(sizes: DynoNetSizes = SIZES, scale: float = 3.0) -> DynoNet:
    """A model with drawn weights, larger than those that training begins with, so that all parts matter."""
    model = DynoNet(VOCABULARY, sizes)
    model.initialise(torch.Generator().manual_seed(1))
    for value in model.parameters():
        value.data *= scale
    return model.eval()


def scenario(number: int) -> FriendsScenario:
    return random_friends(SCHEMA, stream(7, "scenario", number), OPTIONS, f"s{number}")


def chat(number: int, num_events: int = 7, alternate: bool = True) -> FriendsChat:
    """Utterances with mentions of the speaker's table, some without, and selections."""
    table, draws, events = scenario(number), stream(8, "chat", number), []
    side = int(draws.integers(2))
    for _ in range(num_events):
        entities = [entity for item in table.entities[side] for entity in item]
        if draws.random() < 0.2:
            index = int(draws.integers(len(table.tables[side])))
            events.append(ChatEvent(side, selected=index, item=table.tables[side][index]))
        else:
            tokens: list[Token] = [WORDS[i] for i in draws.integers(len(WORDS), size=int(draws.integers(1, 6)))]
            for _ in range(int(draws.integers(3))):
                entity = entities[int(draws.integers(len(entities)))]
                said = LINKER.mentions(entity)[0]
                tokens.insert(int(draws.integers(len(tokens) + 1)), said)
            events.append(ChatEvent(side, tuple(tokens)))
        side = 1 - side if alternate else int(draws.integers(2))
    return FriendsChat(table, tuple(events), tuple(event.plain() for event in events), False, f"c{number}")


def chats(num: int, **how: bool) -> list[FriendsChat]:
    lengths = stream(9, "lengths").integers(2, 9, size=num)
    return [chat(number, int(length), **how) for number, length in enumerate(np.asarray(lengths))]
