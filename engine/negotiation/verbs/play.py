"""`parley play`: a person negotiates with an agent at the terminal.

`play_dialogues` plays two agents that are Python objects, for notebooks; `match.py` does the same for named agents.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from tyro import conf

from parley.engine.core.cli.flags import parse
from parley.engine.core.cli.main import Verb
from parley.engine.core.cli.screen import StandardTerminal, make_console, show_lines, watching
from parley.engine.negotiation.verbs.agents import HELP, Person, make_agent, words_of
from parley.engine.negotiation.verbs.match import MatchConfig, dialogue_row, dialogue_seed, match_scenarios
from parley.envs.core.config import Configuration, NonNegativeFloat, NonNegativeInt
from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import stream
from parley.envs.negotiation.agents import as_agent
from parley.envs.negotiation.domain import DEAL_OR_NO_DEAL, Domain, Scenario, Vocabulary
from parley.envs.negotiation.game import NegotiationGame, Rules, play, render_dialogue


def play_dialogues(
    adversary: object,
    target: object,
    *,
    dialogues: int = 200,
    scenarios: str = "random",
    complementary: bool = False,
    max_turns: int = 20,
    seed: int = 1,
) -> list[dict[str, Any]]:
    """Play dialogues between two agents, as `parley selfplay` does with the same seed.

    Args:
        adversary: the agent on side 0: an agent, a class or function that makes one, or a name (`as_agent`).
        target: the agent on side 1. Each agent has its own vocabulary or, without one, that of the other.
        dialogues: their number, at least 1.
        scenarios: "random", "random:GAME", the name of a corpus, or a file of scenarios.
        complementary: the target alone chooses and the adversary gets the rest (the attacks' rule).
        max_turns: utterances after which the end of a dialogue is forced.
        seed: master seed; it and the number of a dialogue alone decide the dialogue.

    Returns:
        A row per dialogue (`match.DIALOGUES`) for `negotiation_metrics`; likelihoods are None, because there is no judge.

    Raises:
        ConfigError: a setting is out of range, or an agent has no `join`.
        DataError: the scenarios are missing or broken.
    """
    offered = (getattr(agent, "vocabulary", None) for agent in (target, adversary))
    words = next((vocabulary for vocabulary in offered if isinstance(vocabulary, Vocabulary)), None)
    agents = as_agent(adversary, words), as_agent(target, words)
    config = MatchConfig(
        adversary=agents[0].name,
        target=agents[1].name,
        dialogues=dialogues,
        scenarios=scenarios,
        max_turns=max_turns,
        seed=seed,
    )
    chosen = match_scenarios(config, agents[1].vocabulary.game)
    seeds = [dialogue_seed(seed, key) for key in chosen]
    rules = Rules(max_turns=max_turns, complementary=complementary)
    vocabularies = agents[0].vocabulary, agents[1].vocabulary
    game = play(NegotiationGame(list(chosen.values()), seeds, vocabularies, rules), agents)
    return [dialogue_row(game, row, key) for row, key in enumerate(chosen)]


_KEY = "played"


@dataclass(frozen=True, kw_only=True)
class PlayArguments(Configuration):
    """Settings of a dialogue with an agent."""

    agent: Annotated[conf.Positional[str], conf.arg(metavar="AGENT")]
    """Run or checkpoint folder, registered name (parley list), or path/file.py:Name."""
    seed: NonNegativeInt = 1
    """Decides the scenario, who speaks first, and every random draw."""
    game: Annotated[str, conf.arg(help_behavior_hint="")] = ""
    """Game to play (parley list); when not given the game of a trained agent, dealornodeal with others."""
    scenario: Annotated[str, conf.arg(metavar="COUNTS/YOURS/ITS", help_behavior_hint="")] = ""
    """Items and their values to you and to the agent, such as 1,2,3/0,2,2/4,0,2; random when not given."""
    temperature: NonNegativeFloat = 0.5
    """Of a model's word distribution; 0 takes the likeliest word."""


def run_play(verb: Verb, arguments: Sequence[str]) -> int:
    """Play one dialogue and return the exit status."""
    settings = parse(PlayArguments, verb, arguments)
    with watching():
        vocabulary = words_of([settings.agent], settings.game or DEAL_OR_NO_DEAL)
        agent = make_agent(settings.agent, vocabulary, settings.temperature)
        if settings.game not in ("", agent.vocabulary.game):
            got, fix = f"it plays {agent.vocabulary.game!r}, not {settings.game!r}", "leave --game out, or name another agent"
            raise ConfigError("the agent plays another game", where=settings.agent, got=got, fix=fix)
    drawn = vocabulary.domain.random_scenario(stream(settings.seed, "scenario", _KEY))
    scenario = read_scenario(settings.scenario, vocabulary.domain) if settings.scenario else drawn
    terminal = StandardTerminal()
    terminal.show(f"You negotiate with {settings.agent}. Agree on a deal, then both choose.\n\n{HELP}\n")
    game = NegotiationGame([scenario], [dialogue_seed(settings.seed, _KEY)], (vocabulary, agent.vocabulary))
    try:
        play(game, (Person(vocabulary, terminal), agent))
    except KeyboardInterrupt:
        terminal.show("\nyou left, there is no deal")
        return 0
    terminal.show(f"\n{render_dialogue(game, 0, perspective=0)}")
    again = ["parley", "play", settings.agent, "--seed", str(settings.seed + 1)]
    if settings.temperature != PlayArguments.temperature:
        again += ["--temperature", str(settings.temperature)]
    if settings.game:
        again += ["--game", settings.game]
    show_lines(make_console(), "next", [shlex.join(again)])
    return 0


def read_scenario(text: str, domain: Domain) -> Scenario:
    """Read a scenario from a key in the form of `Scenario.key`: counts, then each side's values.

    Raises:
        ConfigError: it is not three times a number for each item of the game.
        ScenarioError: they break a rule of the game.
    """
    num = len(domain.items)
    try:
        counts, mine, theirs = (tuple(int(number) for number in part.split(",")) for part in text.split("/"))
        if not len(counts) == len(mine) == len(theirs) == num:
            raise ValueError
    except ValueError:
        such = domain.random_scenario(stream(0, "example")).key
        what = f"a scenario of {domain.name!r} is three times {num} numbers"
        raise ConfigError(what, where="--scenario", got=text, fix=f"such as {such}") from None
    return Scenario(counts, (mine, theirs), domain.name)
