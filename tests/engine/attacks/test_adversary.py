"""The searching adversary at the table: when it attacks, what it says then, and what it says otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from engine.attacks import adversary
from engine.attacks.adversary import Attempt, Journal, SearchAgent, SearchSession
from engine.attacks.candidates import Exchanges, Found, Step
from engine.attacks.settings import AttackKind, SearchConfig
from envs.core.seeds import derive_seed, stream
from envs.data.vocabulary import EOS_ID, PAD_ID, SELECTION, SELECTION_ID
from envs.negotiation.game import SPEAK, NegotiationGame, Rules, Utterances, play_sessions
from envs.negotiation.scenario import random_scenario
from policies.negotiator.speaker import NegotiatorAgent
from tests.engine.attacks.speakers import leaning
from tests.policies.negotiator.made_up import TINY, VOCABULARY

FIXED: tuple[AttackKind, ...] = ("reactive", "preemptive")
COMBINED: tuple[AttackKind, ...] = ("ra-pa-da", "ra-pa-ta")
RULES = Rules(max_turns=9, max_words=8, max_tokens=128, complementary=True)
SEARCH = SearchConfig(goal=2.0, preemptive_goal=2.0, replies=4, finalists=4, stop_at_goal=True)
BRIEF = SearchConfig(goal=2.0, preemptive_goal=2.0, proposals="random", candidates=4, replies=2, finalists=2)
PLUGS = tuple(np.append(VOCABULARY.encode(words.split()), EOS_ID) for words in ("no deal no deal", "hat .", "want want"))
SIZE = 24
ALWAYS, NEVER = 80.0, -80.0


def agent(seed: int, ending: float, temperature: float = 1.0, stopping: float = 1.0) -> NegotiatorAgent:
    """A random speaker that leans towards `<selection>` and `<eos>` by so many logits."""
    wishes = {EOS_ID: stopping, SELECTION_ID: ending}
    return NegotiatorAgent(leaning(VOCABULARY, TINY, seed, wishes), f"random {seed}", temperature)


SPEAKER, TARGET = agent(10, ending=1.5), agent(3, ending=1.5)


def attacker(
    kind: AttackKind,
    search: SearchConfig = SEARCH,
    turn: int = 2,
    speaker: NegotiatorAgent = SPEAKER,
    target: NegotiatorAgent = TARGET,
    transfer_turn: int = 3,
) -> SearchAgent:
    return SearchAgent(speaker, target, kind, search, turn, PLUGS if kind == "ra-pa-ta" else (), transfer_turn)


def table(rows: Sequence[int], first_speaker: int | None = None, rules: Rules = RULES) -> NegotiationGame:
    """The dialogues of those numbers; each has a scenario of its own, which no other has."""
    scenarios = [random_scenario(stream(2, row)) for row in rows]
    assert len({scenario.key for scenario in scenarios}) == len(rows)
    first = None if first_speaker is None else [first_speaker] * len(rows)
    return NegotiationGame(scenarios, [derive_seed(5, row) for row in rows], VOCABULARY, rules, first)


@dataclass(frozen=True)
class Search:
    """A search that an adversary made: its kind, the dialogue, utterances and tokens before it, and what it found."""

    kind: str
    row: int
    turn: int
    num_tokens: int
    base: list[int]
    found: Found


@dataclass(frozen=True)
class Played:
    """Attacked dialogues, over."""

    game: NegotiationGame
    journals: list[Journal]
    searches: list[Search]

    def attempts(self) -> list[tuple[int, Attempt]]:
        """Every attempt with the row of its dialogue."""
        return [(row, attempt) for row, journal in enumerate(self.journals) for attempt in journal.attempts]

    def turns(self, row: int) -> list[tuple[int, str]]:
        return [(side, " ".join(words)) for side, words in self.game.transcript(row)]

    def searched(self, row: int, turn: int) -> dict[str, Found]:
        """What was found in that dialogue at that turn, by kind."""
        return {search.kind: search.found for search in self.searches if (search.row, search.turn) == (row, turn)}


def attacked(game: NegotiationGame, attacking: SearchAgent, target: NegotiatorAgent | None = None) -> Played:
    """Plays the dialogues to their end, looking over the adversary's shoulder."""
    searches: list[Search] = []
    rows = {scenario.context(0) + scenario.context(1): row for row, scenario in enumerate(game.scenarios)}

    def watched(kind: str, search: Callable[..., list[Found]]) -> Callable[..., list[Found]]:
        def searching(
            target: NegotiatorAgent, exchanges: Exchanges, sentences: Sequence[np.ndarray], *rest: Any
        ) -> list[Found]:
            found = search(target, exchanges, sentences, *rest)
            for d, result in enumerate(found):
                row = rows[(*exchanges.contexts[0, d].tolist(), *exchanges.contexts[1, d].tolist())]
                num_tokens, base = int(exchanges.lengths[d]), sentences[d].tolist()
                assert np.array_equal(exchanges.tokens[d, :num_tokens], game.tokens[1, row, :num_tokens])
                searches.append(Search(kind, row, int(game.num_turns[row]), num_tokens, base, result))
            return found

        return searching

    session = attacking.join(game.view(0))
    with pytest.MonkeyPatch.context() as patch:
        for kind in FIXED:
            patch.setattr(adversary, kind, watched(kind, getattr(adversary, kind)))
        play_sessions(game, (session, (target or attacking.target).join(game.view(1))))
    return Played(game, session.journals, searches)


@cache
def usual(kind: AttackKind) -> Played:
    """The attack at turn 2, or at any turn, with the usual agents."""
    return attacked(table(range(SIZE), 0 if kind in FIXED else None), attacker(kind))


def test_every_way_an_attack_can_go_is_seen() -> None:
    """What the tests below rely on: searches that reach their goal and that do not, of both kinds."""
    for kind in FIXED:
        reached = [attempt.found.reached for _, attempt in usual(kind).attempts() if attempt.found]
        assert {True, False} == set(reached)
    for kind in COMBINED:
        searches = usual(kind).searches
        assert {(search.kind, search.found.reached) for search in searches} == {
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
    for row, journal in enumerate(played.journals):
        own = [(place, words) for place, (side, words) in enumerate(played.turns(row)) if side == 0]
        ends = [place for place, words in own if words == SELECTION]
        if kind in FIXED:
            assert [attempt.turn for attempt in journal.attempts] == [4]
            assert ends == [6], "its speaker would have ended every utterance before"
        else:
            assert [attempt.turn for attempt in journal.attempts] == ([6, 8] if kind == "ra-pa-ta" else [])
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
    assert len(played.journals[longest].attempts) == 1
    assert [search.turn for search in played.searches if search.row == longest] == [2]


@pytest.mark.parametrize("kind", COMBINED)
def test_at_every_own_turn_a_reactive_search_and_a_preemptive_one_if_that_fails(kind: AttackKind) -> None:
    played = usual(kind)
    for row in range(SIZE):
        attempts = {attempt.turn: attempt for attempt in played.journals[row].attempts}
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
                assert attempts[turn].found == found[winner]


@pytest.mark.parametrize("transfer_turn", [0, 1, 4])
def test_a_sentence_is_plugged_in_from_its_turn_on_and_only_where_both_searches_failed(transfer_turn: int) -> None:
    played = attacked(table(range(12)), attacker("ra-pa-ta", BRIEF, transfer_turn=transfer_turn))
    turns = []
    for row, attempt in played.attempts():
        assert (attempt.kind == "transfer") == (attempt.found is None)
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
        assert all(attempt.found.reached for _, attempt in usual(kind).attempts() if attempt.found)
        assert sum(not search.found.reached for search in usual(kind).searches) > 5
    for kind in FIXED:
        played = usual(kind)
        assert len(played.attempts()) == len(played.searches)
        assert not all(attempt.found.reached for _, attempt in played.attempts() if attempt.found)


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
        assert attempt.replaced == (differing if attempt.found else [])
        if attempt.found:
            assert attempt.sentence.tolist() == attempt.found.sentence.tolist()


@pytest.mark.parametrize("kind", COMBINED)
def test_queries_of_failed_searches_count_too(kind: AttackKind) -> None:
    played, num_failed = usual(kind), 0
    for row, journal in enumerate(played.journals):
        own = [search.found for search in played.searches if search.row == row]
        assert journal.reads == sum(found.reads for found in own)
        assert journal.decisions == sum(found.decisions for found in own)
        num_failed += sum(not found.reached for found in own)
    assert num_failed > 5


def words_of(said: Utterances, row: int) -> list[int]:
    return said.tokens[row, : said.lengths[row]].tolist()


@pytest.mark.parametrize("kind", [*FIXED, *COMBINED])
def test_it_has_read_the_dialogue_as_it_was_and_otherwise_speaks_as_its_speaker(kind: AttackKind) -> None:
    """Utterance by utterance against agents that join then and read the whole transcript; long ones are cut off."""
    speaker, search = agent(10, ending=1.0, stopping=-1.0), replace(BRIEF, goal=4.0, preemptive_goal=4.0)
    talker = NegotiatorAgent(speaker.model, "never ends the talk", 1.0, unsaid=(SELECTION_ID,))
    game = table(range(SIZE), 0)
    session, other = attacker(kind, search, speaker=speaker).join(game.view(0)), TARGET.join(game.view(1))
    seen: Counter[str] = Counter()
    while (game.phase == SPEAK).any():
        rows = game.rows_to_speak(0)
        if rows.size:
            talked, spoken = talker.join(game.view(0)).speak(rows), speaker.join(game.view(0)).speak(rows)
            before = [list(session.journals[row].attempts) for row in rows.tolist()]
            said = session.speak(rows)
            for i, row in enumerate(rows.tolist()):
                base = words_of(talked, i)
                if base[-1] != EOS_ID:
                    base.append(EOS_ID)
                    seen["cut off"] += 1
                new = session.journals[row].attempts[len(before[i]) :]
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


def same(ours: Attempt, theirs: Attempt) -> bool:
    """Equal but for rounding in losses and probabilities."""

    def path(attempt: Attempt) -> list[tuple[Any, ...]]:
        steps = attempt.found.steps if attempt.found else ()
        return [(step.position, step.word, step.broken, step.points, step.reads, step.decisions) for step in steps]

    return (
        (ours.turn, ours.kind, ours.start, ours.replaced) == (theirs.turn, theirs.kind, theirs.start, theirs.replaced)
        and ours.base.tolist() == theirs.base.tolist()
        and ours.sentence.tolist() == theirs.sentence.tolist()
        and path(ours) == path(theirs)
    )


def assert_same_dialogue(ours: Played, row: int, theirs: Played, other: int) -> None:
    for name in ("num_tokens", "selections", "points", "agreed", "forced", "to_move"):
        assert np.array_equal(getattr(ours.game, name)[row], getattr(theirs.game, name)[other]), name
    assert np.array_equal(ours.game.tokens[:, row], theirs.game.tokens[:, other])
    mine, their = ours.journals[row], theirs.journals[other]
    assert (mine.reads, mine.decisions) == (their.reads, their.decisions)
    assert len(mine.attempts) == len(their.attempts)
    assert all(same(a, b) for a, b in zip(mine.attempts, their.attempts, strict=True))


@pytest.mark.parametrize("kind", [*FIXED, *COMBINED])
def test_a_dialogue_goes_the_same_way_in_any_company(kind: AttackKind) -> None:
    together, first = usual(kind), 0 if kind in FIXED else None
    for row in range(8):
        assert_same_dialogue(attacked(table([row], first), attacker(kind)), 0, together, row)
    backwards = attacked(table(range(SIZE - 1, -1, -1), first), attacker(kind))
    for row in range(SIZE):
        assert_same_dialogue(backwards, SIZE - 1 - row, together, row)


def test_random_proposals_are_the_dialogues_own() -> None:
    together = attacked(table(range(6)), attacker("ra-pa-ta", BRIEF))
    for row in range(6):
        assert_same_dialogue(attacked(table([row]), attacker("ra-pa-ta", BRIEF)), 0, together, row)


@pytest.mark.parametrize("kind", ["preemptive", "ra-pa-ta"])
def test_the_same_attack_goes_the_same_way_again(kind: AttackKind) -> None:
    again = attacked(table(range(SIZE), 0 if kind in FIXED else None), attacker(kind))
    for row in range(SIZE):
        assert_same_dialogue(again, row, usual(kind), row)
        mine, their = again.journals[row], usual(kind).journals[row]
        assert [a.found and a.found.steps for a in mine.attempts] == [a.found and a.found.steps for a in their.attempts]


def test_another_target_than_the_one_at_the_table_may_be_read() -> None:
    """The search asks its own target; who really sits there speaks and chooses by itself."""
    other = agent(7, ending=0.0)
    played = attacked(table(range(12), 0), attacker("reactive"), other)
    before = usual("reactive")
    both = [row for row in range(12) if played.turns(row)[:2] == before.turns(row)[:2]]
    for row in both:
        ours, theirs = played.journals[row].attempts, before.journals[row].attempts
        assert len(ours) == len(theirs)
        assert all(same(a, b) for a, b in zip(ours, theirs, strict=True))
    assert played.game.selections.tolist() != before.game.selections[:12].tolist()


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


def step(points: tuple[float, float], broken: bool = False) -> Step:
    return Step(position=0, word=6, broken=broken, loss=0.0, points=points, reads=1, decisions=1)


def attempt(kind: str, *steps: Step, reached: bool = True) -> Attempt:
    sentence = np.array([6, EOS_ID])
    found = Found(sentence, steps, reached, reached, 0.5, 1, 1) if steps else None
    return Attempt(2, kind, sentence, sentence, 4, found)


FORCED: dict[str, tuple[list[Attempt], tuple[int, int] | None]] = {
    "nothing": ([], None),
    "no reactive one": ([attempt("preemptive", step((9, 1))), attempt("transfer")], None),
    "the constraint is broken": ([attempt("reactive", step((0, 0), broken=True), reached=False)], None),
    "the constraint is kept at last": ([attempt("reactive", step((0, 0), broken=True), step((7, 2)))], (7, 2)),
    "the goal is missed": ([attempt("reactive", step((3, 4)), reached=False)], (3, 4)),
    "the first one that keeps it": (
        [
            attempt("preemptive", step((10, 0))),
            attempt("reactive", step((0, 0), broken=True), reached=False),
            attempt("reactive", step((1, 9)), step((6, 2))),
            attempt("reactive", step((10, 0))),
        ],
        (6, 2),
    ),
}


@pytest.mark.parametrize("case", FORCED)
def test_a_forced_end_pays_what_the_first_reactive_sentence_that_keeps_the_constraint_promised(case: str) -> None:
    attempts, wanted = FORCED[case]
    found = Journal(attempts).forced_points
    assert found == wanted
    assert found is None or {type(part) for part in found} == {int}


def test_a_forced_end_pays_what_the_target_would_choose_there() -> None:
    """Played out: the same dialogue up to the sentence, then `<selection>` from the target, then its choice."""
    played, num_seen = usual("reactive"), 0
    for row, attempt in played.attempts():
        assert attempt.found
        forced = played.journals[row].forced_points
        assert (forced is None) == attempt.found.steps[-1].broken
        if forced is None:
            continue
        game = table([row], 0)
        views = (TARGET.join(game.view(0)), TARGET.join(game.view(1)))
        said = played.game.tokens[0, row]
        markers = np.flatnonzero(np.isin(said, (VOCABULARY.you_id, VOCABULARY.them_id)))[: attempt.turn + 2]
        for start, end in zip(markers[:-1] + 1, markers[1:], strict=True):
            game.say(np.array([0]), Utterances(said[None, start:end], np.array([end - start])))
        game.say(np.array([0]), Utterances(np.array([[SELECTION_ID]]), np.array([1])))
        game.choose(1, np.array([0]), views[1].choose(np.array([0])))
        assert tuple(game.points[0].tolist()) == forced
        num_seen += 1
    assert num_seen > 5


def test_special_tokens_that_are_offered_are_told_as_said_though_the_game_drops_them() -> None:
    """The game lets nobody forge a transcript; the journal holds the sentence as the search judged it."""
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
