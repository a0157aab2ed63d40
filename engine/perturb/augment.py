"""Perturbations as a library call, for whoever wants more of a data set's sentences.

    >>> from engine.perturb import perturb_text
    >>> perturb_text("i tried to install the package again", "random-swap", seed=1)
    'i tried install to the package again'

Texts are read and written as lines (`envs/pairs/turns.py`): lower-cased words with blanks between, `<eou>` between utterances
and `<eot>` between turns. What becomes of a text depends on the text and the seed alone, not on where it stands in a list;
other seeds give other versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from engine.perturb.catalogue import build, names
from engine.perturb.resources import Resources
from engine.perturb.settings import PerturbSettings
from engine.perturb.strategy import Strategy
from envs.core.errors import ConfigError
from envs.core.seeds import derive_seed
from envs.pairs.turns import Turns, format_turns, parse_turns

DEFAULT = PerturbSettings()


def perturb_text(text: str, strategy: str | Strategy, *, seed: int = 1, settings: PerturbSettings = DEFAULT) -> str:
    """A perturbed text; see `perturb_texts`."""
    return perturb_texts([text], strategy, seed=seed, settings=settings)[0]


def perturb_texts(
    texts: Sequence[str], strategy: str | Strategy, *, seed: int = 1, settings: PerturbSettings = DEFAULT
) -> list[str]:
    """Perturbed texts; many at once are much faster than one by one.

    Args:
        texts: lines; those that hold nothing to perturb come back with their words as they were.
        strategy: a registered name, or a strategy that was built with resources of one's own (`catalogue.build`).
        seed: at least 0.
        settings: of a strategy given by name, in which every word may enter.

    Raises:
        ConfigError: no such strategy, several of them, or it needs a setting that is not given.
        DataError: what it leans on is not there.
    """
    if isinstance(strategy, str) and len(names(strategy)) > 1:
        fix = "perturb_by_strategy takes several, and returns the texts of each"
        raise ConfigError("one strategy perturbs texts", where="perturb_texts", got=strategy, fix=fix)
    built = _opened(strategy, settings) if isinstance(strategy, str) else strategy
    contexts = [parse_turns(text) for text in texts]
    return [format_turns(turns) for turns in perturb_contexts(contexts, built, seed)]


def perturb_by_strategy(
    texts: Sequence[str], strategies: str | Sequence[str | Strategy], *, seed: int = 1, settings: PerturbSettings = DEFAULT
) -> dict[str, list[str]]:
    """The texts as each of several strategies perturbs them; see `perturb_texts`.

    Args:
        texts: lines.
        strategies: names and groups separated by commas, as the command line takes them, or a list of names and strategies.
        seed: at least 0.
        settings: of strategies given by name.

    Returns:
        The perturbed texts by the name of the strategy.
    """
    chosen: Sequence[str | Strategy] = names(strategies) if isinstance(strategies, str) else strategies
    called = {each if isinstance(each, str) else each.name: each for each in chosen}
    return {name: perturb_texts(texts, each, seed=seed, settings=settings) for name, each in called.items()}


def perturb_contexts(contexts: Sequence[Turns], strategy: Strategy, seed: int) -> list[Turns]:
    """Perturbed contexts, the seed of each derived from its own words.

    Args:
        contexts: turns, oldest first.
        strategy: what perturbs them.
        seed: at least 0.
    """
    found = strategy.perturb(contexts, [derive_seed(seed, "context", format_turns(turns)) for turns in contexts])
    if len(found) != len(contexts):
        fix = "return one for each, in their order"
        raise ConfigError(
            f"{strategy.name} made {len(found)} contexts of {len(contexts)}", got=type(strategy).__name__, fix=fix
        )
    return found


@lru_cache(maxsize=32)
def _opened(name: str, settings: PerturbSettings) -> Strategy:
    (strategy,) = build([name], settings, Resources(settings))
    return strategy
