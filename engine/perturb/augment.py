"""Perturbations as a library call, for whoever wants more of a data set's sentences.

    >>> from parley.engine.perturb import perturb_text
    >>> perturb_text("I installed Ubuntu 10.04 from http://ubuntu.com, but it doesn't BOOT!", "random-swap", seed=2)
    "I installed 10.04 Ubuntu from http://ubuntu.com, it but doesn't BOOT!"

Around the words that change all stays as it is: capitals, blanks, addresses, punctuation (`rewriting.py`). `<eou>` and `<eot>`
in a text tell utterances and turns apart (`envs/corpora/pairs/turns.py`), and stay too. What becomes of a text depends on the
text and the seed alone, not on where it stands in a list; other seeds give other versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from parley.engine.perturb.catalogue import build, names
from parley.engine.perturb.resources import Resources
from parley.engine.perturb.settings import PerturbSettings
from parley.engine.perturb.strategies.draws import seeds_of
from parley.engine.perturb.strategies.flat import Edits
from parley.engine.perturb.strategies.texts import Texts
from parley.engine.perturb.strategy import ByEdits, Strategy
from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.turns import Turns

DEFAULT = PerturbSettings()


def perturb_text(text: str, strategy: str | Strategy, *, seed: int = 1, settings: PerturbSettings = DEFAULT) -> str:
    """A perturbed text; see `perturb_texts`."""
    return perturb_texts([text], strategy, seed=seed, settings=settings)[0]


def perturb_texts(
    texts: Sequence[str], strategy: str | Strategy, *, seed: int = 1, settings: PerturbSettings = DEFAULT
) -> list[str]:
    """Perturbed texts; many at once are much faster than one by one.

    Args:
        texts: as people write them; those that hold nothing to perturb come back as they are.
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
    read = Texts(texts)
    return read.rewritten(edits_of(read, built, seed))


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


def edits_of(texts: Texts, strategy: Strategy, seed: int) -> Edits:
    """What a strategy changes in texts.

    Args:
        texts: as they were read.
        strategy: what perturbs them; one that does not say what it changes is asked what comes out.
        seed: at least 0.
    """
    seeds = seeds_of(seed, texts.texts)
    if isinstance(strategy, ByEdits):
        return strategy.edits(texts.flat, seeds)
    return texts.edits_to(_perturbed(strategy, texts.flat.contexts, seeds), strategy.name)


def _perturbed(strategy: Strategy, contexts: Sequence[Turns], seeds: Sequence[int]) -> list[Turns]:
    found = strategy.perturb(contexts, seeds)
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
