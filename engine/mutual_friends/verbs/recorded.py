"""Recorded chats as DynoNets read them: how likely a fitted model finds what people said and selected.

Chats that a model plays show what it does with its own words; those of people show whether it would have said what they do. A
model reads a chat as in training: it hears the one side and foretells what the other says and selects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from parley.engine.core.stats.statistics import Estimate, clustered_rate, ratio_of_sums
from parley.engine.core.verbs.device import threads
from parley.engine.mutual_friends.metrics.chats import (
    ENTITY_PERPLEXITY,
    ITEM_PERPLEXITY,
    KNOWN_PERPLEXITY,
    LINKED,
    MODEL,
    RECORDED_PERPLEXITY,
    TRAINED,
    UNKNOWN,
    of,
)
from parley.engine.mutual_friends.verbs.agents import MAKER, friends_agents
from parley.engine.mutual_friends.verbs.config import CollaborationConfig
from parley.envs.core.errors import ConfigError
from parley.envs.mutual_friends.compiled import FriendsCorpus, load_friends
from parley.policies.chat.addresses import is_chat_address

if TYPE_CHECKING:
    from parley.envs.mutual_friends.events import FriendsChat
    from parley.policies.dynonet.batches import SideExamples
    from parley.policies.dynonet.model import DynoNet


class RecordedReading(NamedTuple):
    """A model and the recorded chats that it reads."""

    pair: str
    model: DynoNet
    chats: list[FriendsChat]
    sides: SideExamples
    corpus: FriendsCorpus


def recorded_models(config: CollaborationConfig) -> Mapping[str, str]:
    """The models that read recorded chats, by the pair that each plays in.

    Raises:
        ConfigError: recorded chats are asked for, and the bot is no model that foretells them.
    """
    if not config.recorded:
        return {}
    if config.model in friends_agents or is_chat_address(config.model) or ".py:" in config.model:
        fix = f"name a run of {MAKER} as --model, or leave --recorded out"
        raise ConfigError("--recorded needs a model that says how likely words are", got=config.model, fix=fix)
    return {MODEL: config.model} | {f"{TRAINED}{i}": run for i, run in enumerate(config.trained_runs, 1)}


def readings(config: CollaborationConfig) -> Iterator[RecordedReading]:
    """Models with what each reads, one after the other.

    Raises:
        ConfigError: as `recorded_models`, or no such corpus.
        CheckpointError: a model is damaged.
        DataError: the corpus cannot be read, or has attributes or tables that a model does not know.
    """
    from parley.policies.dynonet import checkpoints
    from parley.policies.dynonet.batches import SideExamples

    models = recorded_models(config)
    corpus = load_friends(config.recorded, config.data_root) if models else None
    for pair, name in models.items():
        assert corpus is not None
        model, fitted_to = checkpoints.load_dynonet(Path(name)), checkpoints.corpus_of(Path(name))
        splits = ("test",) if fitted_to == config.recorded else tuple(corpus.splits)
        chats = [chat for split in splits for chat in corpus.splits[split]]
        yield RecordedReading(pair, model, chats, SideExamples(chats, model.vocabulary, model.sizes, corpus.linker), corpus)


def recorded_metrics(config: CollaborationConfig) -> dict[str, Estimate]:
    """What is measured on recorded chats (`RECORDED`), by pair; errors as those of `readings`."""
    from parley.policies.dynonet.measuring import by_kind, linked, whose

    found: dict[str, Estimate] = {}
    with threads(1):
        for pair, model, chats, sides, corpus in readings(config):
            told, of_chats = by_kind(model, sides), whose(sides)
            kinds = {
                RECORDED_PERPLEXITY: told.tokens,
                KNOWN_PERPLEXITY: told.known,
                ENTITY_PERPLEXITY: told.entities,
                ITEM_PERPLEXITY: told.items,
            }
            own = {name: ratio_of_sums(each.nll_sums, each.num_targets, of_chats, np.exp) for name, each in kinds.items()}
            num_unknown = told.tokens.num_targets - told.known.num_targets
            own[UNKNOWN] = clustered_rate(num_unknown, of_chats, told.tokens.num_targets)
            num_linked, num_meant = linked(chats, corpus.linker)
            own[LINKED] = clustered_rate(num_linked, trials=num_meant)
            found |= {of(name, pair, config.recorded): each for name, each in own.items()}
    return found
