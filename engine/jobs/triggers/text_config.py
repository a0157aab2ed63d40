"""What a search by replies alone is asked for (`text_search.py`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.jobs.sharded import ShardedConfig
from engine.jobs.triggers.config import MAL
from engine.triggers.evolution import EvolutionSettings
from engine.triggers.fitness import FitnessSettings
from engine.triggers.success import SuccessSettings
from engine.triggers.targets import TargetList
from engine.triggers.writing import WritingSettings
from envs.core.ranges import NumItemsOrAll
from policies.chat.settings import ChatAsking


@dataclass(frozen=True, kw_only=True)
class TextSearchConfig(ShardedConfig):
    """Which model is to say what, and how inputs evolve."""

    model: str = ""
    """A chat model by its address: openai:URL#MODEL, hf:FOLDER, gguf:FILE, path/file.py:Name, or a run of a response model."""
    targets: str = MAL
    """A file of (prompt, target) pairs (CSV, JSONL), a file of sentences, or mal."""
    limit: NumItemsOrAll = 20
    """At most so many targets, the seed's choice; 0 for all."""
    template: str = ""
    """user, prefix, suffix, system, or a JSON file of messages, with {} and {prompt}; suffix or user when empty."""
    words: str = ""
    """A file of words that inputs are made of; those of the targets, their prompts and the list mal when empty."""
    end: bool = False
    """Whether the model has to end its reply behind the target; else targets are what its replies begin with."""
    attacker: str = ""
    """A chat model that writes the inputs and reads their replies, by its address; when empty words evolve."""
    search: EvolutionSettings = field(default_factory=EvolutionSettings)
    """How inputs evolve, and how many replies are asked for in any case."""
    writing: WritingSettings = field(default_factory=WritingSettings)
    """How an attacker writes."""
    fitness: FitnessSettings = field(default_factory=FitnessSettings)
    """What makes an input fit."""
    success: SuccessSettings = field(default_factory=SuccessSettings)
    """When a reply is a success, which ends the search for its target."""
    chat: ChatAsking = field(default_factory=ChatAsking)
    """How the model, and one that judges, are loaded or asked."""


@dataclass(frozen=True)
class WantedTexts:
    """What is searched for, found and checked.

    Args:
        config: what was asked for.
        targets: what the model is to say.
        words: that inputs are made of.
    """

    config: TextSearchConfig
    targets: TargetList
    words: tuple[str, ...]
