"""What evaluations and audits of perturbations are asked for: their configurations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from parley.engine.core.verbs.sharded import ShardedConfig
from parley.engine.perturb import catalogue
from parley.engine.perturb.settings import PerturbSettings
from parley.envs.core.config import check
from parley.envs.core.ranges import Configuration, NumItems, NumItemsOrAll, PositiveFloat, PositiveInt
from parley.envs.core.storage.uris import HUGGING_FACE
from parley.policies.chat.addresses import is_chat_address
from parley.policies.chat.settings import ChatReplying
from parley.policies.core.decoders import GREEDY, DecoderSettings


@dataclass(frozen=True, kw_only=True)
class ContextSettings(Configuration):
    """What counts as an example."""

    turns: PositiveInt | None = None
    """Most turns of a context; as many as the model reads when not given, 2 for a model of a user's own that does not say."""
    min_turns: int = 1
    """Least turns of a context; examples with fewer before them are left out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "min_turns", 1 <= self.min_turns <= (self.turns or self.min_turns), "at least 1, at most turns")


@dataclass(frozen=True, kw_only=True)
class EngineSettings(Configuration):
    """How the work is done."""

    batch_size: PositiveInt = 64
    """Contexts that are answered side by side."""


@dataclass(frozen=True, kw_only=True)
class PerturbedConfig(ShardedConfig):
    """Which contexts are perturbed, and how."""

    strategies: str = "all"
    """Strategies separated by commas: names, path/file.py:Name, or all, should-not-change, should-change, entity."""
    split: Literal["test", "val", "train"] = "test"
    """Split of the corpus."""
    limit: NumItemsOrAll = 0
    """At most so many examples, the seed's choice of them; 0 for all."""
    perturb: PerturbSettings = field(default_factory=PerturbSettings)
    """How contexts are perturbed."""
    contexts: ContextSettings = field(default_factory=ContextSettings)
    """What counts as an example."""
    engine: EngineSettings = field(default_factory=EngineSettings)
    """How the work is done."""

    def __post_init__(self) -> None:
        super().__post_init__()
        catalogue.require_names(self.strategies)

    @property
    def strategy_names(self) -> tuple[str, ...]:
        """The strategies one by one, those left out that `left_out` names."""
        return tuple(name for name in catalogue.names(self.strategies) if name not in self.left_out)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Strategies of a group that need what is not given; one that is named itself is an error instead."""
        return catalogue.left_out(self.strategies, self.perturb)


@dataclass(frozen=True, kw_only=True)
class RobustnessConfig(PerturbedConfig):
    """Which model is asked, and how its contexts are perturbed."""

    model: str = "runs/seq2seq"
    """Response model: a run or checkpoint (parley train seq2seq, parley train vhred), hf:FOLDER, gguf:FILE,
    openai:URL#MODEL, or path/file.py:Name."""
    trained: str = ""
    """Runs of parley train adversarial on this model, separated by commas; each meets the strategies it was trained against."""
    beside: str = ""
    """Another model of replies that answers the same contexts, such as one that reads pieces of words; words that may enter are
    those of --model."""
    corpus: str = ""
    """Corpus whose dialogues are continued; the one that the model was fitted to when empty."""
    decoder: str = GREEDY.rule
    """How replies are chosen: greedy, beam:5, sample:0.8, diverse:7,rate=0.5, mmi:backward=RUN, mmi-antilm:lm=RUN,
    blind (one reply to everybody)."""
    published: Literal["niu2018", "niu2018-rl", "none"] = "none"
    """Figures to show beside the measured ones: Niu & Bansal 2018, of their VHRED or of their reranking RL model."""
    chat: ChatReplying = field(default_factory=ChatReplying)
    """How a chat model is loaded or asked."""

    def __post_init__(self) -> None:
        super().__post_init__()
        DecoderSettings.parse(self.decoder)

    @property
    def is_ours(self) -> bool:
        """Whether the model is one that Parley trained, so that it can be trained further."""
        return ".py:" not in self.model and not is_chat_address(self.model)

    @property
    def trained_folders(self) -> tuple[str, ...]:
        """The adversarially trained models one by one."""
        return tuple(folder for part in self.trained.split(",") if (folder := part.strip()))


@dataclass(frozen=True, kw_only=True)
class AuditConfig(PerturbedConfig):
    """What strategies are audited on, and what judges their edits."""

    corpus: str = "helpdesk"
    """Corpus whose dialogues are perturbed: a name, a file of source<TAB>reply lines, or path/file.py:NAME."""
    num_lines: NumItems = 100
    """Changed lines of each strategy that are drawn for a person to label."""
    max_ratio: PositiveFloat = 2.0
    """Edits that make an utterance so many times as perplexing, or more, are counted."""
    model: str = ""
    """Run or checkpoint of a response model whose words alone may enter; every word may when empty."""
    lm: str = ""
    """Run of parley train lm, on this corpus, that judges edits; trigrams of the training split when empty."""
    entailment: str = ""
    """hf:FOLDER of a Hugging Face model that tells whether a sentence follows from another; nothing is asked when empty."""

    def __post_init__(self) -> None:
        super().__post_init__()
        named = self.entailment.startswith(HUGGING_FACE) and self.entailment != HUGGING_FACE
        check(self, "entailment", not self.entailment or named, f"{HUGGING_FACE}FOLDER, or empty")

    @property
    def entailment_folder(self) -> str:
        """The folder of the model of entailment; empty without one."""
        return self.entailment.removeprefix(HUGGING_FACE)
