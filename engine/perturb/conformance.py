"""What perturbation strategies promise (`strategy.Strategy`)."""

from __future__ import annotations

from typing import Any

from parley.engine.perturb.resources import Resources
from parley.engine.perturb.settings import PerturbSettings
from parley.engine.perturb.strategy import Expectation, Strategy
from parley.envs.core.conformance import Kind, expect, same_alone
from parley.envs.corpora.pairs.turns import Turns, parse_turns

_CONTEXTS: list[Turns] = [
    parse_turns(line)
    for line in (
        "i tried to install the old packages twice , but it does not work <eot> what can you do ?",
        "open the file again <eou> it was closed on monday <eot> is that right ?",
        "zz9 \N{GRINNING FACE} 中文",
    )
]
_EMPTY: list[Turns] = [(((),),), (((), ()), ((),))]
_SEEDS = [3, 5, 8]


def make(named: Any) -> Strategy:
    """A strategy from a class, a function or an object; functions are called with settings and resources, classes without."""
    settings = PerturbSettings(lexicon="built-in")
    if not callable(named):
        strategy: Strategy = named
    elif isinstance(named, type):
        strategy = named()
    else:
        strategy = named(settings, Resources(settings))
    return strategy


def _says_what_it_is(strategy: Strategy) -> None:
    """Says its name, and whether a model's answer should change."""
    expect(isinstance(strategy.name, str) and bool(strategy.name), "name is a text", repr(strategy.name))
    expect(strategy.expectation in list(Expectation), "expectation is an Expectation", repr(strategy.expectation))


def _keeps_boundaries(strategy: Strategy) -> None:
    """Returns each context with as many turns of as many utterances, all tuples of words."""
    perturbed = strategy.perturb(_CONTEXTS, _SEEDS)
    expect(len(perturbed) == len(_CONTEXTS), f"{len(_CONTEXTS)} contexts", len(perturbed))
    for before, after in zip(_CONTEXTS, perturbed, strict=True):
        shapes = [[len(turn) for turn in turns] for turns in (before, after)]
        expect(shapes[0] == shapes[1], f"turns of {shapes[0]} utterances", shapes[1])
        for utterance in (utterance for turn in after for utterance in turn):
            right = isinstance(utterance, tuple) and all(isinstance(word, str) for word in utterance)
            expect(right, "an utterance is a tuple of words", repr(utterance))


def _leaves_nothing_as_nothing(strategy: Strategy) -> None:
    """Leaves empty utterances empty, and no context no context."""
    expect(strategy.perturb([], []) == [], "an empty list", strategy.perturb([], []))
    expect(strategy.perturb(_EMPTY, [1, 2]) == _EMPTY, "empty utterances", strategy.perturb(_EMPTY, [1, 2]))


def _repeats_itself(strategy: Strategy) -> None:
    """Makes the same of a context from the same seed."""
    first, second = strategy.perturb(_CONTEXTS, _SEEDS), strategy.perturb(_CONTEXTS, _SEEDS)
    expect(first == second, "the same contexts twice", "others the second time")


def _is_the_same_alone(strategy: Strategy) -> None:
    """Makes the same of a context whatever else is perturbed with it."""
    alone = [strategy.perturb([context], [seed])[0] for context, seed in zip(_CONTEXTS, _SEEDS, strict=True)]
    same_alone(strategy.perturb(_CONTEXTS, _SEEDS), alone, "a perturbed context")


def _does_something(strategy: Strategy) -> None:
    """Changes at least one of three plain contexts, for some seed."""
    changed = any(strategy.perturb(_CONTEXTS, [seed] * len(_CONTEXTS)) != _CONTEXTS for seed in range(20))
    expect(changed, "another text", "every context as it was, for twenty seeds")


STRATEGY = Kind(
    "perturbation strategy",
    "parley.engine.perturb.strategy.Strategy",
    ("perturb", "expectation"),
    make,
    (_says_what_it_is, _keeps_boundaries, _leaves_nothing_as_nothing, _repeats_itself, _is_the_same_alone, _does_something),
)
