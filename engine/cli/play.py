"""`parley play`: a person negotiates with an agent at the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tyro import conf

from engine.cli.flags import parse
from engine.cli.screen import watching
from engine.cli.tables import make_console, show_lines
from engine.cli.verbs import Verb
from engine.jobs.negotiation.agents import make_agent, shared_vocabulary
from engine.jobs.negotiation.match import dialogue_seed
from engine.jobs.negotiation.person import HELP, Person, StandardTerminal
from envs.core.errors import ConfigError
from envs.core.ranges import Configuration, NonNegativeFloat, NonNegativeInt
from envs.core.seeds import stream
from envs.negotiation.game import NegotiationGame, play
from envs.negotiation.render import render_dialogue
from envs.negotiation.scenario import Scenario, Triple, random_scenario

_KEY = "played"


@dataclass(frozen=True, kw_only=True)
class PlayArguments(Configuration):
    """With whom, and over what."""

    agent: Annotated[conf.Positional[str], conf.arg(metavar="AGENT")]
    """Run or checkpoint folder, registered name (parley list), or path/file.py:Name."""
    seed: NonNegativeInt = 1
    """Decides the scenario, who speaks first, and every random draw."""
    scenario: Annotated[str, conf.arg(metavar="COUNTS/YOURS/ITS", help_behavior_hint="")] = ""
    """Items and what they are worth to you and to the agent, such as 1,2,3/0,2,2/4,0,2; random when not given."""
    temperature: NonNegativeFloat = 0.5
    """Of a model's word distribution; 0 takes the likeliest word."""


def run_play(verb: Verb, arguments: Sequence[str]) -> int:
    """Plays one dialogue; returns the exit status."""
    asked = parse(PlayArguments, verb, arguments)
    scenario = read_scenario(asked.scenario) if asked.scenario else random_scenario(stream(asked.seed, "scenario", _KEY))
    with watching():
        vocabulary = shared_vocabulary({"AGENT": asked.agent})
        agent = make_agent(asked.agent, vocabulary, asked.temperature)
    terminal = StandardTerminal()
    terminal.show(f"You negotiate with {asked.agent}. Agree on who takes what, then both choose.\n\n{HELP}\n")
    game = NegotiationGame([scenario], [dialogue_seed(asked.seed, _KEY)], vocabulary)
    try:
        play(game, (Person(vocabulary, terminal), agent))
    except KeyboardInterrupt:
        terminal.show("\nyou left, there is no deal")
        return 0
    terminal.show(f"\n{render_dialogue(game, 0, perspective=0)}")
    again = ["parley", "play", asked.agent, "--seed", str(asked.seed + 1)]
    if asked.temperature != PlayArguments.temperature:
        again += ["--temperature", str(asked.temperature)]
    show_lines(make_console(), "next", [shlex.join(again)])
    return 0


def read_scenario(text: str) -> Scenario:
    """The scenario of a key such as `Scenario.key` gives: counts, then either side's values.

    Raises:
        ConfigError: it is not three times three numbers.
        ScenarioError: they break a rule of the game.
    """
    try:
        parts = [_triple(part) for part in text.split("/")]
        counts, mine, theirs = parts
    except ValueError:
        raise ConfigError(
            "a scenario is three times three numbers", where="--scenario", got=text, fix="such as 1,2,3/0,2,2/4,0,2"
        ) from None
    return Scenario(counts, (mine, theirs))


def _triple(text: str) -> Triple:
    first, second, third = (int(number) for number in text.split(","))
    return first, second, third
