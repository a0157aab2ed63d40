"""What methods of attacks on rankers promise (`methods.AttackMethod`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from parley.engine.perturb.lexicon.lexicons import open_lexicon
from parley.engine.perturb.replies.language import English, ReplyLanguage
from parley.engine.ranking.attacks.attack import RankAttack
from parley.engine.ranking.attacks.methods import AttackMethod
from parley.engine.ranking.attacks.outcomes import AttackOutcome
from parley.envs.core.conformance import Kind, expect, same_alone
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup, CandidateKind, Context

_EDITS = 2
_CONTEXT: Context = (("my", "screen", "is", "black"), ("did", "you", "turn", "the", "machine", "on", "?"))
_RIGHT: Utterance = ("the", "machine", "is", "on", "but", "my", "screen", "is", "black")
_WRONG: tuple[Utterance, ...] = (
    ("you", "can", "install", "the", "package"),
    ("thanks",),
    ("a", "big", "dog", "ran", "home"),
    (),
)
_GROUPS = [
    CandidateGroup(
        f"test-{number}", _CONTEXT, (_RIGHT, words), (True, False), (CandidateKind.POSITIVE, CandidateKind.RANDOM), (True, True)
    )
    for number, words in enumerate(_WRONG)
]
_GLUED = "##s"
_VOCABULARY = (*sorted({word for turn in _CONTEXT for word in turn}), "dog", "home", _GLUED)
_SEEDS = range(len(_GROUPS))


class _Shared:
    """Scores by words that the context holds, and gives their slopes; a word is a token unless it sticks to the reply."""

    def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
        said = set().union(*context)
        return [float(sum(word in said for word in reply)) for reply in candidates]

    def slopes(self, context: Context, reply: Utterance, words: Sequence[str]) -> np.ndarray:
        here, there = ([self.score(context, [(word,)])[0] for word in of] for of in (reply, words))
        return np.subtract.outer(np.array(there), np.array(here)).T.reshape(len(reply), len(words))

    def vocabulary(self) -> Sequence[str]:
        return _VOCABULARY

    def reads(self, reply: Utterance, words: Utterance) -> bool:
        return words[0] != _GLUED


@cache
def _language() -> ReplyLanguage:
    return English(open_lexicon("built-in"))


def _make(named: Any) -> AttackMethod:
    method: AttackMethod = named() if callable(named) else named
    return method


def _run(
    method: AttackMethod, groups: Sequence[CandidateGroup], seeds: Sequence[int], budget: int = 200
) -> list[AttackOutcome]:
    return RankAttack(_Shared(), _language(), method=method, edits=_EDITS, budget=budget).run(groups, seeds)


def _ends_with_an_allowed_reply(method: AttackMethod) -> None:
    """Ends within its budget, with a reply that was edited as it is allowed to be."""
    for group, outcome in zip(_GROUPS, _run(method, _GROUPS, _SEEDS), strict=True):
        expect(outcome.was_tried, "an attack on each group", f"{outcome.status}: {outcome.reason}")
        expect(outcome.cost <= _EDITS, f"at most {_EDITS} words changed", f"{outcome.cost} in {outcome.words!r}")
        twice = outcome.cost > 0 and outcome.words in group.candidates
        expect(not twice, "a reply that is no other candidate", repr(outcome.words))


def _asks_the_same_whatever_its_budget(method: AttackMethod) -> None:
    """Asks the same with a smaller budget, as far as that reaches, and the same twice."""
    whole, again, cut = (_run(method, _GROUPS, _SEEDS, budget) for budget in (200, 200, 5))
    expect(whole == again, "the same outcome twice", "another one the second time")
    for large, small in zip(whole, cut, strict=True):
        kept = tuple(point for point in large.trace if point.queries <= 5)
        expect(small.trace == kept, "the trace of the larger budget, cut", f"{small.trace} and {large.trace}")


def _is_the_same_alone(method: AttackMethod) -> None:
    """Finds the same whatever other examples are attacked beside one."""
    alone = [_run(method, [group], [seed])[0] for group, seed in zip(_GROUPS, _SEEDS, strict=True)]
    same_alone(_run(method, _GROUPS, _SEEDS), alone, "what is found")


RANK_ATTACK = Kind(
    "method of attacks on rankers",
    "parley.engine.ranking.attacks.methods.AttackMethod",
    ("steps",),
    _make,
    (_ends_with_an_allowed_reply, _asks_the_same_whatever_its_budget, _is_the_same_alone),
)
