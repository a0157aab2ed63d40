"""Conformance tests of negotiation agents and corpora (`game.Agent`, `corpora.catalogue.CorpusSource`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from parley.envs.core.conformance import Kind, expect, same_alone
from parley.envs.core.registry import takes_messages
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.corpora.arrow import data_root
from parley.envs.corpora.lines import keeps_its_fingerprint
from parley.envs.negotiation.agents import OwnAgent, as_agent
from parley.envs.negotiation.domain import Vocabulary
from parley.envs.negotiation.game import Agent, NegotiationGame, Rules, play

_DIALOGUES = 12
_RULES = Rules(max_turns=8)


def make_agent(named: Any) -> Agent:
    """Make an agent from a class, a function or an object."""
    if takes_messages(named):
        raise TypeError("a function of messages is a chat model")
    return as_agent(named)


def _game(agent: Agent, numbers: range = range(_DIALOGUES)) -> NegotiationGame:
    scenarios = [agent.vocabulary.domain.random_scenario(stream(1, "conformance", number)) for number in numbers]
    return NegotiationGame(scenarios, [derive_seed(1, "conformance", n) for n in numbers], agent.vocabulary, _RULES)


def _has_a_name_and_a_vocabulary(agent: Agent) -> None:
    """Says its name and its vocabulary."""
    expect(isinstance(agent.name, str) and bool(agent.name), "name is a text", repr(agent.name))
    words = isinstance(agent.vocabulary, Vocabulary)
    expect(words, "vocabulary is a parley.envs.negotiation.domain.Vocabulary", repr(agent.vocabulary))


def _plays_both_sides(agent: Agent) -> None:
    """Plays dialogues to their end on both sides."""
    game = play(_game(agent), (agent, agent))
    expect(not game.rows_to_speak(0).size and not game.rows_to_speak(1).size, "every dialogue ends", "open dialogues")


def _says_legal_words(agent: Agent) -> None:
    """Says words of its vocabulary, each utterance with its end, and no speaker marks."""
    game = _game(agent)
    sessions = [agent.join(game.view(side)) for side in (0, 1)]
    for _ in range(_RULES.max_turns):
        for side, session in enumerate(sessions):
            rows = game.rows_to_speak(side)
            if not rows.size:
                continue
            utterances = session.speak(rows)
            shapes = (len(utterances.tokens), len(utterances.lengths))
            expect(shapes == (len(rows),) * 2, f"{len(rows)} utterances and lengths, one for each row", shapes)
            expect(
                bool((utterances.lengths >= 1).all()),
                "each utterance has a word, or its end",
                f"lengths {utterances.lengths.tolist()}",
            )
            spoken = utterances.tokens[np.arange(utterances.tokens.shape[1]) < utterances.lengths[:, None]]
            # Ids of a user's agent are checked as it speaks; larger ids are words of its texts.
            are_ids = (spoken >= 0) & ((spoken < len(agent.vocabulary)) | isinstance(agent, OwnAgent))
            expect(bool(are_ids.all()), f"ids of 0 to {len(agent.vocabulary) - 1}", f"id {spoken[~are_ids][:1].tolist()}")
            game.say(rows, utterances)
    expect(not game.num_illegal.any(), "no <pad>, YOU: or THEM: in an utterance", f"{int(game.num_illegal.sum())} of them")


def _chooses_legally(agent: Agent) -> None:
    """Chooses one of the legal selections of each dialogue."""
    game = _game(agent)
    sessions = [agent.join(game.view(side)) for side in (0, 1)]
    while any(game.rows_to_speak(side).size for side in (0, 1)):
        for side, session in enumerate(sessions):
            if (rows := game.rows_to_speak(side)).size:
                game.say(rows, session.speak(rows))
    for side, session in enumerate(sessions):
        rows = game.rows_to_choose(side)
        chosen = np.asarray(session.choose(rows))
        expect(chosen.shape == rows.shape, "a selection for each row", f"{chosen.shape} for {len(rows)} rows")
        for row, selection in zip(rows.tolist(), chosen.tolist(), strict=True):
            legal = len(game.scenarios[row].selections)
            counted = f"{selection}, which the game counts as no agreement"
            expect(0 <= selection < legal, f"an index of 0 to {legal - 1}", counted)
        game.choose(side, rows, chosen)


def _repeats_itself(agent: Agent) -> None:
    """Repeats a dialogue from the same seed (all draws come from the view)."""
    first, second = (_transcripts(play(_game(agent), (agent, agent))) for _ in range(2))
    expect(first == second, "the same words and choices twice", "others the second time")


def _is_the_same_alone(agent: Agent) -> None:
    """Says the same in a dialogue whether others are played beside it or not."""
    side_by_side = _transcripts(play(_game(agent), (agent, agent)))
    alone = [_transcripts(play(_game(agent, range(n, n + 1)), (agent, agent)))[0] for n in range(_DIALOGUES)]
    same_alone(side_by_side, alone, "what is said in a dialogue")


def _transcripts(game: NegotiationGame) -> list[tuple[Any, list[int]]]:
    return [(game.transcript(row), game.selections[row].tolist()) for row in range(len(game))]


AGENT = Kind(
    "agent",
    "parley.envs.negotiation.game.Agent",
    ("join",),
    make_agent,
    (_has_a_name_and_a_vocabulary, _plays_both_sides, _says_legal_words, _chooses_legally, _repeats_itself, _is_the_same_alone),
)


def _has_dialogues_to_learn_from(source: Any) -> None:
    """Has files without a broken line, with dialogues to train on and to validate on."""
    splits = {split: len(records) for split, records in source.read(data_root()).require_whole().splits.items()}
    expect(bool(splits.get("train") and splits.get("val")), "dialogues in train and val", splits)


CORPUS = Kind(
    "corpus of negotiations",
    "parley.envs.negotiation.corpora.catalogue.CorpusSource",
    ("read", "fingerprint", "threshold", "files"),
    lambda named: named,
    (_has_dialogues_to_learn_from, keeps_its_fingerprint),
)
