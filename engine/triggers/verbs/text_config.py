"""What a search by replies alone is asked for (`text_search.py`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from parley.engine.core.verbs.sharded import ShardedConfig
from parley.engine.triggers.fitness import FitnessSettings
from parley.engine.triggers.methods.evolution import EvolutionSettings, Words
from parley.engine.triggers.methods.writing import WritingSettings
from parley.engine.triggers.success import SuccessSettings
from parley.engine.triggers.targets import TargetList
from parley.engine.triggers.verbs.config import MAL, forbidden_texts
from parley.envs.core.errors import ConfigError
from parley.envs.core.ranges import NumItemsOrAll
from parley.policies.chat.settings import ChatAsking
from parley.policies.hugging_face.alphabets import ANY, alphabet_pattern


@dataclass(frozen=True, kw_only=True)
class TextSearchConfig(ShardedConfig):
    """Which model is to say what, and how inputs evolve."""

    model: str = ""
    """A chat model by its address: openai:URL#MODEL, hf:FOLDER, gguf:FILE, path/file.py:Name, or a run of a response model."""
    targets: str = MAL
    """A file of (prompt, target) pairs (CSV, JSONL), a file of sentences, or mal."""
    limit: NumItemsOrAll = 20
    """At most so many targets, the seed's choice; 0 for all."""
    target_file: str = ""
    """JSON of targets by BehaviorID, for a file of pairs without a column of targets (HarmBench)."""
    template: str = ""
    """user, prefix, suffix, system, or a JSON file of messages, with {} and {prompt}; suffix or user when empty."""
    words: str = ""
    """A file of words that inputs are made of; those of the targets, their prompts and the list mal when empty."""
    end: bool = False
    """Whether the model has to end its reply behind the target; else targets are what its replies begin with."""
    forbidden: str = ""
    """Texts that stand in no input, whatever their case, separated by commas."""
    alphabet: str = ANY
    """What each word of an input is made of: any, ascii, letters (A to z), lower (a to z), or a regular expression."""
    start: str = ""
    """Words that evolution starts from, as many as search.num_words; drawn at random when empty."""
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

    def __post_init__(self) -> None:
        super().__post_init__()
        alphabet_pattern(self.alphabet)
        num = len(self.start.split())
        if self.start and (self.attacker or num != self.search.num_words):
            what, got = f"evolution starts from {self.search.num_words} words", f"{num} words, --attacker {self.attacker!r}"
            fix = f"as many words as inputs have (num_words={num}), and no attacker, which writes its own first inputs"
            raise ConfigError(what, where="--start", got=got, fix=fix)
        if self.start and not self.allows(tuple(self.start.split())):
            raise ConfigError(
                "the text to start from is forbidden", where="--start", got=self.start, fix="start from other words"
            )

    def allows(self, words: Words) -> bool:
        """Whether an input holds no forbidden text, and no word of other characters than the alphabet's."""
        text, pattern = " ".join(words).lower(), alphabet_pattern(self.alphabet)
        is_clean = not any(each.lower() in text for each in forbidden_texts(self.forbidden))
        return is_clean and all(pattern.fullmatch(word) for word in words)


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
