"""What an attacked dialogue comes to: the same in any company, and what a forced end would pay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parley.engine.negotiation.attacks.adversary import AttackLog, Attempt
from parley.engine.negotiation.attacks.candidates import ReplacementResult, ReplacementStep
from parley.engine.negotiation.attacks.settings import AttackKind
from parley.envs.core.play import Utterances
from parley.envs.negotiation.domain import EOS_ID, SELECTION_ID
from tests.engine.negotiation.adversaries import (
    BRIEF,
    COMBINED,
    FIXED,
    SIZE,
    TARGET,
    Played,
    agent,
    attacked,
    attacker,
    table,
    usual,
)
from tests.policies.negotiator.made_up import VOCABULARY


def same(ours: Attempt, theirs: Attempt) -> bool:
    """Equal but for rounding in losses and probabilities."""

    def path(attempt: Attempt) -> list[tuple[Any, ...]]:
        steps = attempt.result.steps if attempt.result else ()
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
    mine, their = ours.logs[row], theirs.logs[other]
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
        mine, their = again.logs[row], usual(kind).logs[row]
        assert [a.result and a.result.steps for a in mine.attempts] == [a.result and a.result.steps for a in their.attempts]


def test_another_target_than_the_one_at_the_table_may_be_read() -> None:
    """The search asks its own target; who really sits there speaks and chooses by itself."""
    other = agent(7, ending=0.0)
    played = attacked(table(range(12), 0), attacker("reactive"), other)
    before = usual("reactive")
    both = [row for row in range(12) if played.turns(row)[:2] == before.turns(row)[:2]]
    for row in both:
        ours, theirs = played.logs[row].attempts, before.logs[row].attempts
        assert len(ours) == len(theirs)
        assert all(same(a, b) for a, b in zip(ours, theirs, strict=True))
    assert played.game.selections.tolist() != before.game.selections[:12].tolist()


def step(points: tuple[float, float], broken: bool = False) -> ReplacementStep:
    return ReplacementStep(position=0, word=6, broken=broken, loss=0.0, points=points, reads=1, decisions=1)


def attempt(kind: str, *steps: ReplacementStep, reached: bool = True) -> Attempt:
    sentence = np.array([6, EOS_ID])
    found = ReplacementResult(sentence, steps, reached, reached, 0.5, 1, 1) if steps else None
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
    found = AttackLog(attempts).forced_points
    assert found == wanted
    assert found is None or {type(part) for part in found} == {int}


def test_a_forced_end_pays_what_the_target_would_choose_there() -> None:
    """Played out: the same dialogue up to the sentence, then `<selection>` from the target, then its choice."""
    played, num_seen = usual("reactive"), 0
    for row, attempt in played.attempts():
        assert attempt.result
        forced = played.logs[row].forced_points
        assert (forced is None) == attempt.result.steps[-1].broken
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
