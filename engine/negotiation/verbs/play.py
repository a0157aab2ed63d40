"""`parley play`: a person negotiates with an agent at the terminal.

Dialogues between two agents that are there as objects: what a notebook calls. `match.py` is the same for named agents.
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
    """Lets two agents negotiate, as `parley selfplay` does with the same seed.

    Args:
        adversary: on side 0: an agent, a class or function that makes one, or a name (`as_agent`).
        target: on side 1; of what it says, and hears, each knows the words of its own vocabulary, or of the other's.
        dialogues: how many, at least 1.
        scenarios: "random", "random:GAME", the name of a corpus, or a file of scenarios.
        complementary: the target alone chooses and the adversary gets the rest (the attacks' rule).
        max_turns: utterances after which the end of a dialogue is forced.
        seed: master seed; a dialogue depends on it and on its number alone.

    Returns:
        A row per dialogue (`rows.DIALOGUES`) for `negotiation_metrics`; likelihoods are None, for nobody judges.

    Raises:
        ConfigError: a setting is out of range, or an agent has no `join`.
        DataError: the scenarios are missing or broken.
    """
    known = (getattr(each, "vocabulary", None) for each in (target, adversary))
    words = next((each for each in known if isinstance(each, Vocabulary)), None)
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
