"""Attacked dialogues to look at: small agents, dialogues that can be told apart, and every search that an adversary made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from parley.engine.negotiation.attacks import adversary
from parley.engine.negotiation.attacks.adversary import AttackLog, Attempt, SearchAgent
from parley.engine.negotiation.attacks.candidates import ExchangeBatch, ReplacementResult
from parley.engine.negotiation.attacks.settings import AttackKind, SearchConfig
from parley.envs.core.play import play_sessions
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.negotiation.dealornodeal_rules import random_scenario
from parley.envs.negotiation.domain import EOS_ID, SELECTION_ID
from parley.envs.negotiation.game import NegotiationGame, Rules
from parley.policies.negotiator.speaker import NegotiatorAgent
from tests.engine.negotiation.speakers import leaning
from tests.policies.negotiator.made_up import TINY, VOCABULARY

FIXED: tuple[AttackKind, ...] = ("reactive", "preemptive")
COMBINED: tuple[AttackKind, ...] = ("ra-pa-da", "ra-pa-ta")
RULES = Rules(max_turns=9, max_words=8, max_tokens=128, complementary=True)
SEARCH = SearchConfig(goal=2.0, preemptive_goal=2.0, replies=4, finalists=4, stop_at_goal=True)
"""Thorough enough that some searches of either kind reach their goal and some do not."""
BRIEF = SearchConfig(goal=2.0, preemptive_goal=2.0, proposals="random", candidates=4, replies=2, finalists=2)
"""For tests of what goes on around the search."""
PLUGS = tuple(np.append(VOCABULARY.encode(words.split()), EOS_ID) for words in ("no deal no deal", "hat .", "want want"))
SIZE = 24
ALWAYS, NEVER = 80.0, -80.0
"""Logits of `<selection>` that leave no doubt."""


def agent(seed: int, ending: float, stopping: float = 1.0) -> NegotiatorAgent:
    """A random speaker that leans towards `<selection>` and `<eos>` by so many logits."""
    wishes = {EOS_ID: stopping, SELECTION_ID: ending}
    return NegotiatorAgent(leaning(VOCABULARY, TINY, seed, wishes), f"random {seed}", temperature=1.0)


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
    result: ReplacementResult


@dataclass(frozen=True)
class Played:
    """Attacked dialogues, over."""

    game: NegotiationGame
    logs: list[AttackLog]
    searches: list[Search]

    def attempts(self) -> list[tuple[int, Attempt]]:
        """Every attempt with the row of its dialogue."""
        return [(row, attempt) for row, log in enumerate(self.logs) for attempt in log.attempts]

    def turns(self, row: int) -> list[tuple[int, str]]:
        return [(side, " ".join(words)) for side, words in self.game.transcript(row)]

    def searched(self, row: int, turn: int) -> dict[str, ReplacementResult]:
        """What was found in that dialogue at that turn, by kind."""
        return {search.kind: search.result for search in self.searches if (search.row, search.turn) == (row, turn)}


def attacked(game: NegotiationGame, attacking: SearchAgent, target: NegotiatorAgent | None = None) -> Played:
    """Plays the dialogues to their end, looking over the adversary's shoulder."""
    searches: list[Search] = []
    rows = {scenario.context(0) + scenario.context(1): row for row, scenario in enumerate(game.scenarios)}

    def watched(kind: str, search: Callable[..., list[ReplacementResult]]) -> Callable[..., list[ReplacementResult]]:
        def searching(
            target: NegotiatorAgent, exchanges: ExchangeBatch, sentences: Sequence[np.ndarray], *rest: Any
        ) -> list[ReplacementResult]:
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
    return Played(game, session.logs, searches)


@cache
def usual(kind: AttackKind) -> Played:
    """The attack at turn 2, or at any turn, with the usual agents."""
    return attacked(table(range(SIZE), 0 if kind in FIXED else None), attacker(kind))
