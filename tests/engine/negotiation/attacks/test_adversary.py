"""The searching adversary at the table: when it attacks, what it says then, and what it says otherwise."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from parley.engine.negotiation.attacks.adversary import SearchSession
from parley.engine.negotiation.attacks.settings import AttackKind, SearchConfig
from parley.envs.core.play import Utterances, play_sessions
from parley.envs.negotiation.domain import EOS_ID, PAD_ID, SELECTION, SELECTION_ID
from parley.envs.negotiation.game import SPEAK, Rules
from parley.policies.negotiator.speaker import NegotiatorAgent
from tests.engine.negotiation.adversaries import (
    ALWAYS,
    BRIEF,
    COMBINED,
    FIXED,
    NEVER,
    PLUGS,
    RULES,
    SIZE,
    SPEAKER,
    TARGET,
    agent,
    attacked,
    attacker,
    table,
    usual,
)
from tests.policies.negotiator.made_up import VOCABULARY


def test_every_way_an_attack_can_go_is_seen() -> None:
    """What the tests below rely on: searches that reach their goal and that do not, of both kinds."""
    for kind in FIXED:
        reached = [attempt.result.reached for _, attempt in usual(kind).attempts() if attempt.result]
        assert {True, False} == set(reached)
    for kind in COMBINED:
        searches = usual(kind).searches
        assert {(search.kind, search.result.reached) for search in searches} == {
            (which, reached) for which in FIXED for reached in (True, False)
        }
    kinds = [attempt.kind for _, attempt in usual("ra-pa-ta").attempts()]
    assert min(kinds.count(kind) for kind in ("reactive", "preemptive", "transfer")) >= 3


@pytest.mark.parametrize("turn", range(5))
@pytest.mark.parametrize("kind", FIXED)
def test_a_fixed_attack_is_made_once_behind_n_utterances(kind: AttackKind, turn: int) -> None:
    for first_speaker in (0, 1):
        played = attacked(table(range(12), first_speaker), attacker(kind, BRIEF, turn, target=agent(3, ending=-1.0)))
        due = turn if turn % 2 == first_speaker else turn + 1
        attempts = played.attempts()
        assert [attempt.turn for _, attempt in attempts] == [due] * len(attempts)
        assert {attempt.kind for _, attempt in attempts} <= {kind}
        assert [row for row, _ in attempts] == [row for row in range(12) if played.game.num_turns[row] > due]
        assert [(search.row, search.turn) for search in played.searches] == [(row, due) for row, _ in attempts]
        assert len(attempts) > 3


@pytest.mark.parametrize("kind", [*FIXED, *COMBINED])
def test_until_it_has_attacked_it_never_ends_the_talk(kind: AttackKind) -> None:
    eager, patient = agent(10, ending=ALWAYS), agent(3, ending=NEVER)
    hopeless = SearchConfig(goal=11.0, preemptive_goal=11.0, proposals="random", candidates=2, replies=1, screening_replies=1)
    played = attacked(table(range(8), 0), attacker(kind, hopeless, 4, eager, patient, transfer_turn=6))
    for row, log in enumerate(played.logs):
        own = [(place, words) for place, (side, words) in enumerate(played.turns(row)) if side == 0]
        ends = [place for place, words in own if words == SELECTION]
        if kind in FIXED:
            assert [attempt.turn for attempt in log.attempts] == [4]
            assert ends == [6], "its speaker would have ended every utterance before"
        else:
            assert [attempt.turn for attempt in log.attempts] == ([6, 8] if kind == "ra-pa-ta" else [])
            assert ends == []
            assert played.game.forced[row]


@pytest.mark.parametrize("kind", ["preemptive", *COMBINED])
def test_a_preemptive_sentence_is_followed_by_the_end(kind: AttackKind) -> None:
    played = usual(kind)
    followed = 0
    for row, attempt in played.attempts():
        if attempt.kind == "preemptive":
            (side, reply), *rest = played.turns(row)[attempt.turn + 1 :]
            assert side == 1
            assert rest == ([] if reply == SELECTION else [(0, SELECTION)])
            followed += bool(rest)
    assert followed >= 3


@pytest.mark.parametrize("kind", ["reactive", *COMBINED])
def test_a_reactive_sentence_leaves_the_end_to_the_target(kind: AttackKind) -> None:
    answers = {True: 0, False: 0}
    played = usual(kind)
    for row, attempt in played.attempts():
        if attempt.kind == "reactive":
            side, reply = played.turns(row)[attempt.turn + 1]
            assert side == 1
            answers[reply == SELECTION] += 1
    assert min(answers.values()) >= 1, "some go on talking, by their own sampling"


def test_after_its_attack_a_fixed_adversary_is_its_speaker_and_no_longer_searches() -> None:
    played = usual("reactive")
    longest = max(range(SIZE), key=lambda row: played.game.num_turns[row])
    assert played.game.num_turns[longest] > 5
    assert len(played.logs[longest].attempts) == 1
    assert [search.turn for search in played.searches if search.row == longest] == [2]


@pytest.mark.parametrize("kind", COMBINED)
def test_at_every_own_turn_a_reactive_search_and_a_preemptive_one_if_that_fails(kind: AttackKind) -> None:
    played = usual(kind)
    for row in range(SIZE):
        attempts = {attempt.turn: attempt for attempt in played.logs[row].attempts}
        searched = {search.turn for search in played.searches if search.row == row}
        for turn, (side, words) in enumerate(played.turns(row)):
            if side == 1 or words == SELECTION:
                assert turn not in searched
                assert turn not in attempts
                continue
            found = played.searched(row, turn)
            assert ("preemptive" in found) == (not found["reactive"].reached)
            winner = next((which for which in FIXED if which in found and found[which].reached), None)
            plugged = winner is None and kind == "ra-pa-ta" and turn >= 3
            said = "transfer" if plugged else winner
            assert said == (attempts[turn].kind if turn in attempts else None)
            if winner:
                assert attempts[turn].result == found[winner]


@pytest.mark.parametrize("transfer_turn", [0, 1, 4])
def test_a_sentence_is_plugged_in_from_its_turn_on_and_only_where_both_searches_failed(transfer_turn: int) -> None:
    played = attacked(table(range(12)), attacker("ra-pa-ta", BRIEF, transfer_turn=transfer_turn))
    turns = []
    for row, attempt in played.attempts():
        assert (attempt.kind == "transfer") == (attempt.result is None)
        if attempt.kind == "transfer":
            assert not any(found.reached for found in played.searched(row, attempt.turn).values())
            assert any(np.array_equal(attempt.sentence, plug) for plug in PLUGS)
            assert attempt.replaced == []
            turns.append(attempt.turn)
    assert min(turns) in (transfer_turn, transfer_turn + 1)


def test_plugged_sentences_are_drawn() -> None:
    played = attacked(table(range(SIZE)), attacker("ra-pa-ta", BRIEF, transfer_turn=0))
    said = [tuple(attempt.sentence.tolist()) for _, attempt in played.attempts() if attempt.kind == "transfer"]
    assert len(set(said)) == len(PLUGS)


def test_combined_attacks_say_what_reached_its_goal_and_fixed_ones_what_was_found() -> None:
    for kind in COMBINED:
        assert all(attempt.result.reached for _, attempt in usual(kind).attempts() if attempt.result)
        assert sum(not search.result.reached for search in usual(kind).searches) > 5
    for kind in FIXED:
        played = usual(kind)
        assert len(played.attempts()) == len(played.searches)
        assert not all(attempt.result.reached for _, attempt in played.attempts() if attempt.result)


@pytest.mark.parametrize("kind", [*FIXED, *COMBINED])
def test_what_the_journal_holds_was_said(kind: AttackKind) -> None:
    played = usual(kind)
    game = played.game
    for row, attempt in played.attempts():
        span = slice(attempt.start, attempt.start + len(attempt.sentence))
        assert game.tokens[0, row, attempt.start - 1] == VOCABULARY.you_id
        assert game.tokens[0, row, span].tolist() == attempt.sentence.tolist()
        assert set(game.authors[row, span][:-1].tolist()) <= {0}
        words = " ".join(VOCABULARY.decode(attempt.sentence[:-1]))
        assert played.turns(row)[attempt.turn] == (0, words)
        differing = [i for i, (a, b) in enumerate(zip(attempt.base, attempt.sentence, strict=False)) if a != b]
        assert attempt.replaced == (differing if attempt.result else [])
        if attempt.result:
            assert attempt.sentence.tolist() == attempt.result.sentence.tolist()


@pytest.mark.parametrize("kind", COMBINED)
def test_queries_of_failed_searches_count_too(kind: AttackKind) -> None:
    played, num_failed = usual(kind), 0
    for row, log in enumerate(played.logs):
        own = [search.result for search in played.searches if search.row == row]
        assert log.reads == sum(found.reads for found in own)
        assert log.decisions == sum(found.decisions for found in own)
        num_failed += sum(not found.reached for found in own)
    assert num_failed > 5


def words_of(said: Utterances, row: int) -> list[int]:
    return said.tokens[row, : said.lengths[row]].tolist()


@pytest.mark.parametrize("kind", [*FIXED, *COMBINED])
def test_it_has_read_the_dialogue_as_it_was_and_otherwise_speaks_as_its_speaker(kind: AttackKind) -> None:
    """Utterance by utterance against agents that join then and read the whole transcript; long ones are cut off."""
    speaker, search = agent(10, ending=1.0, stopping=-1.0), replace(BRIEF, goal=4.0, preemptive_goal=4.0)
    talker = NegotiatorAgent(speaker.model, "never ends the talk", 1.0, forbidden=(SELECTION_ID,))
    game = table(range(SIZE), 0)
    session, other = attacker(kind, search, speaker=speaker).join(game.view(0)), TARGET.join(game.view(1))
    seen: Counter[str] = Counter()
    while (game.phase == SPEAK).any():
        rows = game.rows_to_speak(0)
        if rows.size:
            talked, spoken = talker.join(game.view(0)).speak(rows), speaker.join(game.view(0)).speak(rows)
            before = [list(session.logs[row].attempts) for row in rows.tolist()]
            said = session.speak(rows)
            for i, row in enumerate(rows.tolist()):
                base = words_of(talked, i)
                if base[-1] != EOS_ID:
                    base.append(EOS_ID)
                    seen["cut off"] += 1
                new = session.logs[row].attempts[len(before[i]) :]
                if before[i] and before[i][-1].kind == "preemptive":
                    assert words_of(said, i) == [SELECTION_ID]
                elif before[i] and kind in FIXED:
                    assert words_of(said, i)[: RULES.max_words] == words_of(spoken, i)
                    seen["speaker"] += 1
                elif not new:
                    assert words_of(said, i) == base
                    seen["talker"] += 1
                elif new[0].kind != "transfer":
                    assert new[0].base.tolist() == base
                    seen["base"] += 1
            game.say(rows, said)
        rows = game.rows_to_speak(1)
        if rows.size:
            game.say(rows, other.speak(rows))
    assert min(seen["cut off"], seen["talker"], seen["base"]) > 3
    assert (seen["speaker"] > 3) == (kind == "reactive")


def test_what_it_would_choose_is_its_speakers_choice() -> None:
    game = table(range(8), rules=Rules(max_turns=3, max_words=8, max_tokens=128))
    session: SearchSession = attacker("reactive", BRIEF).join(game.view(0))
    other, partner = SPEAKER.join(game.view(0)), TARGET.join(game.view(1))
    play_sessions(game, (session, partner))
    rows = np.arange(8)
    assert session.choose(rows).tolist() == other.choose(rows).tolist() == game.selections[:, 0].tolist()


def test_it_goes_by_its_attack_and_speaker() -> None:
    attacking = attacker("ra-pa-da")
    assert attacking.name == "ra-pa-da through random 10"
    assert attacking.vocabulary.digest == VOCABULARY.digest


def test_special_tokens_that_are_offered_are_told_as_said_though_the_game_drops_them() -> None:
    """The game lets nobody forge a transcript; the log holds the sentence as the search judged it."""
    search = SearchConfig(allow_special=True, constraint="soft", loss="released", proposals="exhaustive")
    played = attacked(table(range(SIZE), 0), attacker("reactive", search))
    dropped = [
        (row, attempt)
        for row, attempt in played.attempts()
        if np.isin(attempt.sentence, (PAD_ID, VOCABULARY.you_id, VOCABULARY.them_id)).any()
    ]
    assert dropped
    for row, _ in dropped:
        assert played.game.num_illegal[row, 0] > 0
