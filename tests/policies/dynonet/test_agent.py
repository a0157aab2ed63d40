from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.plain_collaboration import PlainDynoNetAgent
from parley.envs.core.errors import DataError
from parley.envs.mutual_friends.game import ChatEvent, FriendsGame, Mention, play_friends
from parley.envs.mutual_friends.scenario import Attribute, FriendsScenario
from parley.policies.dynonet.agent import DynoNetAgent
from parley.policies.dynonet.batches import SideExamples
from parley.policies.dynonet.graphs import SELECT_ID
from parley.policies.dynonet.settings import DynoNetSizes, FriendsDecoding
from tests.policies.dynonet.chats import LINKER, SIZES, VOCABULARY, chats, scenario, tiny


@pytest.mark.parametrize("changed", [{}, {"dynamic": False}, {"rounds": 0}])
def test_play_step_by_step_is_teacher_forced_training(changed: dict[str, int]) -> None:
    sizes = DynoNetSizes(**(vars(SIZES) | changed))
    model, recorded = tiny(sizes), chats(6, alternate=False)
    agent = DynoNetAgent(model, LINKER, "tiny")
    game = FriendsGame(len(recorded))
    sessions = [agent.join(game.view(side)) for side in (0, 1)]
    game.enter(range(len(recorded)), [each.scenario for each in recorded], range(len(recorded)))
    for session in sessions:
        session.enter(list(range(len(recorded))))
    states: dict[tuple[int, int], list[tuple[torch.Tensor, torch.Tensor]]] = {}
    for number in range(max(len(each.events) for each in recorded)):
        rows = [row for row, each in enumerate(recorded) if len(each.events) > number]
        for side, session in enumerate(sessions):
            own = [recorded[row].events[number].side == side for row in rows]
            sources = [recorded[row].events if mine else recorded[row].heard for row, mine in zip(rows, own, strict=True)]
            session.hear(rows, [events[number] for events in sources])
            for row in rows:
                if recorded[row].events[number].side == side:
                    states.setdefault((row, side), []).append((session.hidden_SH[row].clone(), session.cell_SH[row].clone()))
    for (row, side), found in states.items():
        (example,) = [SideExamples([recorded[row]], VOCABULARY, sizes, LINKER)]
        sides = sorted({event.side for event in recorded[row].events})
        batch = example.batch(np.array([sides.index(side)]))
        memory = model.blank(*batch.features_RNF.shape[:2])
        for turn, (hidden, cell) in zip(batch.turns, found, strict=True):
            _, memory = model.turn(memory, batch, turn)
            torch.testing.assert_close(hidden, memory.hidden_RH[0], atol=1e-5, rtol=0)
            torch.testing.assert_close(cell, memory.cell_RH[0], atol=1e-5, rtol=0)


def test_what_is_chosen_is_remembered_as_if_it_was_read() -> None:
    heard = [ChatEvent(1, ("i", "like", *words)) for words in (("chess",), ("nib",), ("ada",), ("knitting", "?")) * 2]
    rows, kinds = list(range(8)), set()
    for temperature, more in ((0.0, 0), (0.5, 0), (0.5, 5), (2.0, 10)):
        model = tiny()
        model.output.bias.data[SELECT_ID] += more
        agent = DynoNetAgent(model, LINKER, "tiny", FriendsDecoding(temperature=temperature, max_tokens=6))
        game = FriendsGame(8)
        writer, reader = (agent.join(game.view(0)) for _ in range(2))
        game.enter(rows, [scenario(number) for number in rows], rows)
        for session in (writer, reader):
            session.enter(rows)
        for _ in range(3):
            acts = writer.act(rows)
            events = [game.event(row, 0, act) for row, act in zip(rows, acts, strict=True)]
            kinds |= {"select" if event.selected is not None else "say" for event in events}
            kinds |= {"mention" for event in events for token in event.tokens if isinstance(token, Mention)}
            for session in (writer, reader):
                session.hear(rows, events)
                session.hear(rows, heard)
            torch.testing.assert_close(writer.hidden_SH, reader.hidden_SH, atol=1e-5, rtol=0)
            torch.testing.assert_close(writer.nodes_SNC, reader.nodes_SNC, atol=1e-5, rtol=0)
    assert kinds == {"select", "say", "mention"}


def test_chats_depend_on_no_other_chat_and_break_no_rule() -> None:
    model = tiny()
    model.output.bias.data[SELECT_ID] += 4
    agents = (DynoNetAgent(model, LINKER, "a", FriendsDecoding(forms=True)), DynoNetAgent(tiny(scale=2.0), LINKER, "b"))
    wanted = [(scenario(number), 100 + number) for number in range(6)]
    together, alone = (play_friends(wanted, agents, num_rows=rows) for rows in (6, 2))
    assert together == alone
    for chat in together:
        known = [set(each) for each in chat.scenario.mentionable]
        for event, heard in zip(chat.events, chat.heard, strict=True):
            listener = known[1 - event.side]
            if event.selected is not None:
                listener |= set(chat.scenario.entities[event.side][event.selected])
                continue
            assert 1 <= len(event.tokens) <= 20
            assert {token.entity for token in event.tokens if isinstance(token, Mention)} <= known[event.side]
            listener |= {token.entity for token in LINKER.link(heard.words, listener) if isinstance(token, Mention)}


# Weights that are much larger carry a last digit on from word to word until it decides one.
@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_chats_are_those_of_one_word_at_a_time(scale: float) -> None:
    model = tiny(scale=scale)
    model.output.bias.data[SELECT_ID] += 3
    wanted, (ours, plain) = [(scenario(number), number) for number in range(10, 17)], (DynoNetAgent, PlainDynoNetAgent)
    found = play_friends(wanted, (ours(model, LINKER, "a"), ours(model, LINKER, "a")), num_rows=5)
    assert found == play_friends(wanted, (plain(model, LINKER), plain(model, LINKER)), num_rows=1)


def test_a_table_that_the_model_does_not_know_is_refused() -> None:
    table, agent = scenario(0), DynoNetAgent(tiny(), LINKER, "a")
    pets = FriendsScenario("pets", (Attribute("Pet", "pet"), *table.attributes[1:]), table.tables)
    longer = FriendsScenario("long", (Attribute("Name", "name"),), (tuple((f"{i}",) for i in range(6)), (("5",), ("a",))))
    for other, message in ((pets, "does not know the attribute 'Pet'"), (longer, "too long for the model")):
        game = FriendsGame(1)
        game.enter([0], [other], [1])
        with pytest.raises(DataError, match=message):
            agent.join(game.view(0)).enter([0])


def test_an_utterance_of_unknown_or_many_words_is_read() -> None:
    agent, game = DynoNetAgent(tiny(), LINKER, "a"), FriendsGame(2)
    session = agent.join(game.view(0))
    game.enter([0, 1], [scenario(0), scenario(1)], [1, 2])
    session.enter([0, 1])
    session.hear([0, 1], [ChatEvent(1, ("\U0001f600",) * 500), ChatEvent(1, ("rosa",) * 3)])
    assert session.hidden_SH.isfinite().all()
    assert all(isinstance(act, int) or len(act) for act in session.act([0, 1]))
