"""Dialogues between two agents that are there as objects: what a notebook calls. `match.py` is the same for named agents."""

from __future__ import annotations

from typing import Any

from parley.engine.negotiation.verbs.match import MatchConfig, dialogue_seed
from parley.engine.negotiation.verbs.rows import dialogue_row
from parley.engine.negotiation.verbs.scenario_sampling import match_scenarios
from parley.envs.negotiation.agents import as_agent
from parley.envs.negotiation.game import NegotiationGame, Rules, play
from parley.envs.negotiation.vocabulary import Vocabulary


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
