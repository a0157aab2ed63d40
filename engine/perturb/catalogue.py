"""The strategies by name.

Each is a function `build(settings, resources) -> Strategy` beside its strategy: `settings` are the user's, `resources` what
strategies share (`resources.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from parley.engine.perturb.resources import Resources
from parley.engine.perturb.settings import PerturbSettings
from parley.engine.perturb.strategy import Strategy
from parley.envs.core.errors import ConfigError
from parley.envs.core.own_code import made_part
from parley.envs.core.registry import Registry, nearest

strategies = Registry("perturbation strategy", "parley.strategies")
for _name, _summary, _target in (
    ("random-swap", "neighbouring words change places", "parley.engine.perturb.strategies.swap:build"),
    ("stopword-dropout", "stop words are left out", "parley.engine.perturb.strategies.stopwords:build"),
    ("data-paraphrase", "phrases by paraphrases of a table", "parley.engine.perturb.strategies.paraphrase:build"),
    (
        "generative-paraphrase",
        "utterances by paraphrases of a pointer-generator network",
        "parley.engine.perturb.strategies.generative:build",
    ),
    ("grammar-errors", "errors that learners make", "parley.engine.perturb.strategies.grammar:build"),
    ("character-noise", "letters of words slip", "parley.engine.perturb.strategies.noise:build"),
    ("misspellings", "words as people misspell them", "parley.engine.perturb.strategies.noise:build_misspellings"),
    ("add-negation", "the first verb that can be is negated", "parley.engine.perturb.strategies.negation:build"),
    ("antonym", "one word by its opposite", "parley.engine.perturb.strategies.antonym:build"),
    ("random-inputs", "every word by a random one", "parley.engine.perturb.strategies.entities:build_random"),
    (
        "random-inputs-kept-entities",
        "every word but entities by a random one",
        "parley.engine.perturb.strategies.entities:build_kept",
    ),
    ("confusing-entity", "entities by others of their category", "parley.engine.perturb.strategies.entities:build_confusing"),
):
    strategies.register(_name, _summary, _target)

PARAPHRASED = "generative-paraphrase"
"""The one that needs a network."""
SHOULD_NOT_CHANGE = ("random-swap", "stopword-dropout", "data-paraphrase", PARAPHRASED, "grammar-errors")
SHOULD_CHANGE = ("add-negation", "antonym")
ADDED = ("character-noise", "misspellings")
"""Ours, and not the paper's: named by themselves, because the groups are those of the paper's tables."""
ENTITY = ("random-inputs", "random-inputs-kept-entities", "confusing-entity")
"""For dialogues about entities of a knowledge base."""
GROUPS = {
    "all": (*SHOULD_NOT_CHANGE, *SHOULD_CHANGE),
    "should-not-change": SHOULD_NOT_CHANGE,
    "should-change": SHOULD_CHANGE,
    "entity": ENTITY,
}
"""What may be said in the place of several names."""


def names(chosen: str) -> tuple[str, ...]:
    """The strategies that a list names.

    Args:
        chosen: names and groups separated by commas.
    """
    found = (each for part in chosen.split(",") for each in GROUPS.get(part.strip(), (part.strip(),)))
    return tuple(dict.fromkeys(found))


def require_names(chosen: str, *others: str) -> None:
    """Checks that a list names strategies; whether a file of one's own holds one is found out when it is built.

    Args:
        chosen: names and groups separated by commas.
        others: further names that may stand there.

    Raises:
        ConfigError: no strategy is called so, with the nearest name.
    """
    known = (*strategies, *GROUPS, *others)
    for name in names(chosen):
        if name not in known and ".py:" not in name:
            what = f"no perturbation strategy is called {name!r}{nearest(name, known)}"
            raise ConfigError(what, fix=f"strategies: {', '.join(known)}, or path/file.py:Name")


def left_out(chosen: str, settings: PerturbSettings) -> tuple[str, ...]:
    """Strategies of a group that need what is not given; one that is named itself is an error instead, when it is built."""
    absent = PARAPHRASED in names(chosen) and PARAPHRASED not in (part.strip() for part in chosen.split(","))
    return (PARAPHRASED,) if absent and settings.paraphraser is None else ()


def build(chosen: Sequence[str], settings: PerturbSettings, resources: Resources) -> list[Strategy]:
    """The strategies of those names.

    Args:
        chosen: registered names, or `path/file.py:NAME` of a `build` function, a class that needs no arguments or a strategy.
        settings: the user's.
        resources: what strategies share.

    Raises:
        ConfigError: no such strategy, with the nearest name; or what is called so is none.
        DataError: what one of them leans on is not there.
    """
    members = ("name", "expectation", "perturb")
    return [made_part(strategies.kind, name, strategies.get(name), members, settings, resources) for name in chosen]
