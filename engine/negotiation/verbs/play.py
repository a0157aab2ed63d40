"""`parley play`: a person negotiates with an agent at the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tyro import conf

from parley.engine.core.cli.flags import parse
from parley.engine.core.cli.screen import watching
from parley.engine.core.cli.tables import make_console, show_lines
from parley.engine.core.cli.terminal import StandardTerminal
from parley.engine.core.cli.verbs import Verb
from parley.engine.negotiation.verbs.agents import make_agent, words_of
from parley.engine.negotiation.verbs.human_player import HELP, Person
from parley.engine.negotiation.verbs.match import dialogue_seed
from parley.envs.core.errors import ConfigError
from parley.envs.core.ranges import Configuration, NonNegativeFloat, NonNegativeInt
from parley.envs.core.seeds import stream
from parley.envs.negotiation.domain import DEAL_OR_NO_DEAL, Domain
from parley.envs.negotiation.game import NegotiationGame, play
from parley.envs.negotiation.render import render_dialogue
from parley.envs.negotiation.scenario import Scenario

_KEY = "played"


@dataclass(frozen=True, kw_only=True)
class PlayArguments(Configuration):
    """With whom, and over what."""

    agent: Annotated[conf.Positional[str], conf.arg(metavar="AGENT")]
    """Run or checkpoint folder, registered name (parley list), or path/file.py:Name."""
    seed: NonNegativeInt = 1
    """Decides the scenario, who speaks first, and every random draw."""
    game: Annotated[str, conf.arg(help_behavior_hint="")] = ""
    """What is negotiated about (parley list); when not given the game of a trained agent, dealornodeal with others."""
    scenario: Annotated[str, conf.arg(metavar="COUNTS/YOURS/ITS", help_behavior_hint="")] = ""
    """Items and what they are worth to you and to the agent, such as 1,2,3/0,2,2/4,0,2; random when not given."""
    temperature: NonNegativeFloat = 0.5
    """Of a model's word distribution; 0 takes the likeliest word."""


def run_play(verb: Verb, arguments: Sequence[str]) -> int:
    """Plays one dialogue; returns the exit status."""
    asked = parse(PlayArguments, verb, arguments)
    with watching():
        vocabulary = words_of([asked.agent], asked.game or DEAL_OR_NO_DEAL)
        agent = make_agent(asked.agent, vocabulary, asked.temperature)
        if asked.game not in ("", agent.vocabulary.game):
            got, fix = f"it plays {agent.vocabulary.game!r}, not {asked.game!r}", "leave --game out, or name another agent"
            raise ConfigError("the agent plays another game", where=asked.agent, got=got, fix=fix)
    drawn = vocabulary.domain.random_scenario(stream(asked.seed, "scenario", _KEY))
    scenario = read_scenario(asked.scenario, vocabulary.domain) if asked.scenario else drawn
    terminal = StandardTerminal()
    terminal.show(f"You negotiate with {asked.agent}. Agree on a deal, then both choose.\n\n{HELP}\n")
    game = NegotiationGame([scenario], [dialogue_seed(asked.seed, _KEY)], (vocabulary, agent.vocabulary))
    try:
        play(game, (Person(vocabulary, terminal), agent))
    except KeyboardInterrupt:
        terminal.show("\nyou left, there is no deal")
        return 0
    terminal.show(f"\n{render_dialogue(game, 0, perspective=0)}")
    again = ["parley", "play", asked.agent, "--seed", str(asked.seed + 1)]
    if asked.temperature != PlayArguments.temperature:
        again += ["--temperature", str(asked.temperature)]
    if asked.game:
        again += ["--game", asked.game]
    show_lines(make_console(), "next", [shlex.join(again)])
    return 0


def read_scenario(text: str, domain: Domain) -> Scenario:
    """The scenario of a key such as `Scenario.key` gives: counts, then either side's values.

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
