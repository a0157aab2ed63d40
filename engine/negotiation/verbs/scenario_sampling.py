"""What is dealt to negotiators: the scenarios of a match, by its settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import stream
from parley.envs.corpora.lines import read_lines
from parley.envs.negotiation.corpora.catalogue import corpora, find_negotiations
from parley.envs.negotiation.corpora.compiled import load_corpus
from parley.envs.negotiation.corpora.dealornodeal import parse_scenarios
from parley.envs.negotiation.domain import DEAL_OR_NO_DEAL, domain_of
from parley.envs.negotiation.scenario import Scenario

if TYPE_CHECKING:
    from parley.engine.negotiation.verbs.match import MatchConfig

RANDOM = "random"
RANDOM_OF = "random:"
"""Before the name of a game."""


def game_of(scenarios: str) -> str:
    """The game that a setting of scenarios names, as "random:interview" or a corpus; Deal or No Deal where it names none."""
    if scenarios.startswith(RANDOM_OF):
        return scenarios.removeprefix(RANDOM_OF)
    return find_negotiations(scenarios).game if scenarios in corpora or ".py:" in scenarios else DEAL_OR_NO_DEAL


def num_distinct(scenarios: Mapping[str, Scenario]) -> str:
    """How many different scenarios there are, in words; intervals take dialogues as independent, those on the same one, too."""
    return f"{len(set(scenarios.values())):,} different"


def match_scenarios(config: MatchConfig, game: str) -> dict[str, Scenario]:
    """The scenario of each dialogue by its key, "000000" onwards, or from the first that is wanted.

    Args:
        config: which ones.
        game: of random ones and of those in a file, which name none.

    Raises:
        ConfigError: `scenarios` names neither a game, nor a corpus, nor a file.
        DataError: the file or corpus is missing or broken.
    """
    numbers = range(config.first, config.first + config.dialogues)
    keys = [f"{number:06d}" for number in numbers]
    if config.scenarios == RANDOM or config.scenarios.startswith(RANDOM_OF):
        domain = domain_of(game if config.scenarios == RANDOM else game_of(config.scenarios))
        return {key: domain.random_scenario(stream(config.seed, "scenario", key)) for key in keys}
    path = Path(config.scenarios)
    if path.is_file():
        scenarios, errors = parse_scenarios(read_lines(path), str(path), game)
        if errors:
            raise errors[0]
    else:
        scenarios = load_corpus(config.scenarios, config.data_root).selfplay
    if not scenarios:
        fix = "name a file of context lines, two a scenario"
        raise ConfigError("there are no scenarios to play", where=config.scenarios, fix=fix)
    return {key: scenarios[number % len(scenarios)] for number, key in zip(numbers, keys, strict=True)}
