"""What `parley search` and `parley search table` are asked for: how targets are searched for, and which."""

from __future__ import annotations

from dataclasses import dataclass, field

from parley.engine.core.verbs.sharded import ShardedConfig
from parley.engine.triggers.catalogue import TEXT_METHODS, searches
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.success import SuccessSettings
from parley.envs.core.errors import ConfigError
from parley.envs.core.ranges import (
    Configuration,
    NonNegativeFloat,
    NonPositiveFloat,
    NumItemsOrAll,
    PositiveFloat,
    PositiveInt,
    Share,
)
from parley.envs.core.registry import nearest
from parley.envs.core.storage.uris import HUGGING_FACE
from parley.policies.chat.addresses import GGUF
from parley.policies.chat.settings import ChatAsking, WeightSettings
from parley.policies.hugging_face.alphabets import ANY, alphabet_pattern

NORMAL, NORMAL_SAMPLED, MAL, RANDOM = LISTS = ("normal", "normal-sampled", "mal", "random")
"""Targets that need no file."""
OWN = "own"
"""Stands for the searched model as the judge of its own inputs."""


def is_hugging_face(model: str) -> bool:
    """Whether a model is named as one of Hugging Face's library."""
    return model.startswith((HUGGING_FACE, GGUF))


def most_of(limit: int) -> str:
    """How many targets of a list are searched for, of which 0 means all."""
    return f"at most {limit:,}" if limit else "all"


def forbidden_texts(listed: str) -> tuple[str, ...]:
    """The texts of a list that stand in no input."""
    return tuple(text.strip() for text in listed.split(",") if text.strip())


def require_method(name: str) -> None:
    """Checks the name of a method of search; whether a file of one's own holds one is found out when it is loaded.

    Raises:
        ConfigError: no method is called so, with the nearest name.
    """
    if name in TEXT_METHODS:
        fix = "parley search text, or parley search methods to tell it beside others"
        raise ConfigError(f"{name} reads replies alone, which has a verb of its own", where="--method", got=name, fix=fix)
    if name not in searches and ".py:" not in name:
        what = f"no method of search is called {name!r}{nearest(name, searches)}"
        raise ConfigError(what, fix=f"methods: {', '.join(searches)}, or path/file.py:Class")


@dataclass(frozen=True, kw_only=True)
class ObjectiveSettings(Configuration):
    """What is minimised, beside what the wanted type of hit says."""

    lm_weight: PositiveFloat | None = None
    """lambda_in, the weight of the input's mean nats (lm): fluency, for any hits; when not given 1 for io hits, else none."""
    satisfied_weight: Share = 0.0
    """What is left of satisfied terms of sampled objectives: 0 in the paper, 0.01 in the released code."""
    mellowmax: NonNegativeFloat = 0.0
    """Hugging Face models: alpha of a mellowmax over a target's words in the place of their mean (nanoGCG); 0 for the mean."""
    t_out: NonPositiveFloat | None = None
    """Log probability of a usual word of a reply in nats, at most 0; the model's checkpoint says it when not given."""
    t_in: NonPositiveFloat | None = None
    """The same of an input's word; the language model's checkpoint says it when not given."""


@dataclass(frozen=True, kw_only=True)
class TriggerEngineSettings(Configuration):
    """How the work is done."""

    batch_size: PositiveInt = 16
    """Searches that a worker advances side by side, of as many targets as there are places for."""
    unknown: bool = False
    """Whether `<unk>` may stand in an input, as in the released code."""


@dataclass(frozen=True, kw_only=True)
class HuggingFaceSettings(WeightSettings):
    """How a Hugging Face model is loaded and asked."""

    length: PositiveInt = 14
    """Tokens of an input; the slots of a template share them."""
    template: str | None = None
    """user, prefix, suffix, system, a JSON file of messages, or a prompt, with {} and {prompt}; else a user's turn."""
    end: bool = True
    """Whether the model has to end its reply behind the target; false: targets are what its replies begin with."""
    target_file: str = ""
    """JSON of targets by BehaviorID, for a file of pairs without a column of targets (HarmBench)."""
    typed: bool = True
    """Refuse inputs whose text, typed into its place, gives other tokens, and count them."""
    alphabet: str = ANY
    """Tokens that stand in inputs: any, ascii, letters (A to z, blanks), lower (a to z, blanks), or a regular expression."""
    forbidden: str = ""
    """Texts that stand in no input, separated by commas."""
    start: str = ""
    """Text that every search starts from; drawn at random when empty."""

    def __post_init__(self) -> None:
        super().__post_init__()
        alphabet_pattern(self.alphabet)


@dataclass(frozen=True, kw_only=True)
class SearchingConfig(ShardedConfig):
    """How targets are searched for, whichever they are."""

    lm: str = ""
    """What judges inputs: run of parley train lm; for a Hugging Face model hf:FOLDER, or own, the (first) searched one."""
    method: str = "gibbs-enum"
    """gibbs-enum, random, hotflip, gcg, autoprompt, arca, pez, beast, beam, relaxation, or path/file.py:Class."""
    limit: NumItemsOrAll = 500
    """At most so many targets; 0 for all. Of normal and random lists the first, of others the seed's choice."""
    corpus: str = ""
    """Corpus whose test sources the normal targets answer, and whose test pairs set a Hugging Face model's thresholds."""
    search: SearchSettings = field(default_factory=SearchSettings)
    """How long a search goes on, and how much it tries."""
    objective: ObjectiveSettings = field(default_factory=ObjectiveSettings)
    """What is minimised."""
    engine: TriggerEngineSettings = field(default_factory=TriggerEngineSettings)
    """How the work is done."""
    hugging_face: HuggingFaceSettings = field(default_factory=HuggingFaceSettings)
    """How a Hugging Face model is loaded and asked; so is another one that judges inputs (lm) loaded."""
    success: SuccessSettings = field(default_factory=SuccessSettings)
    """When the reply of a Hugging Face model to what was typed is a success."""
    chat: ChatAsking = field(default_factory=ChatAsking)
    """How a chat model that judges replies is loaded or asked."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.methods:
            require_method(name)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods by name."""
        return (self.method,)


@dataclass(frozen=True, kw_only=True)
class TriggerConfig(SearchingConfig):
    """Which model is to say what."""

    model: str = "runs/seq2seq"
    """Run or checkpoint folder of the searched model (parley train seq2seq), hf:FOLDER of a Hugging Face one, or gguf:FILE."""
    targets: str = MAL
    """normal (the model's greedy replies), normal-sampled, mal, random, a file of sentences, or of pairs (CSV, JSONL)."""
    hit: str = "o-sample-min-k1"
    """Wanted hits: o-greedy, or o- or io-sample-avg or -min-kK, K = 1, 2, ...; the others are read off the same inputs."""
    strict: bool = False
    """Refuse targets that the model cannot say, for a word or their length, instead of skipping and counting them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model.strip() in (HUGGING_FACE, GGUF):
            kind = self.model.strip()
            fix = f"name a folder that save_pretrained wrote: --model {HUGGING_FACE}FOLDER, or --model {GGUF}FILE"
            raise ConfigError(f"{kind!r} names no folder", where="--model", got=self.model, fix=fix)

    @property
    def is_hugging_face(self) -> bool:
        """Whether the model is one of Hugging Face's library."""
        return is_hugging_face(self.model)

    @property
    def judge(self) -> str:
        """The model that judges inputs; empty where none does."""
        return self.model if self.lm == OWN else self.lm
