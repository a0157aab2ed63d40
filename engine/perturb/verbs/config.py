"""Configurations, rows and reply measures of evaluations and audits of perturbations.

A row is an example with the contexts that strategies made of it. The measures of a reply are in
`engine/perturb/metrics/activity.py`; here they are opened, and cached for replies that occur often.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from parley.engine.core.runs.parts import ANSWERED, row_schema
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.verbs.export import FlatRows, Line, Row
from parley.engine.core.verbs.sharded import ShardedConfig
from parley.engine.perturb import catalogue
from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.metrics.activity import (
    ActivityExtractor,
    average_similarity,
    f1,
    read_activity_tables,
    reference_metrics,
    sentence_bleu,
)
from parley.engine.perturb.strategies.stopwords import SIGNALS
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.core.config import Configuration, NumItems, NumItemsOrAll, PositiveFloat, PositiveInt, check
from parley.envs.core.storage.uris import HUGGING_FACE
from parley.envs.corpora.arrow import data_root
from parley.envs.corpora.pairs.turns import Example, Turn, Turns
from parley.policies.chat.addresses import is_chat_address
from parley.policies.chat.settings import ChatReplying
from parley.policies.core.responder import GREEDY, DecoderSettings, Responder

_REMEMBERED = 1 << 16


class Activities:
    """F1 of activities and entities.

    Args:
        extractor: reads them off replies.
    """

    def __init__(self, extractor: ActivityExtractor) -> None:
        self.extract = lru_cache(_REMEMBERED)(extractor.extract)

    @classmethod
    def open(cls, resources: Resources) -> Activities:
        """Open the tables of the data root, and the tagger of the lexicon.

        Raises:
            DataError: the tables or the tagger are not there; says how to get them.
        """
        return cls(ActivityExtractor(read_activity_tables(data_root(resources.data_root)), resources.lexicon.tag))

    def f1(self, reply: Turn, truth: Turn) -> tuple[float | None, float | None]:
        """Return the F1 of activities and of entities, 0 to 1; None where the truth does not count."""
        return f1(self.extract(reply), self.extract(truth))

    def references(self, examples: Sequence[Example]) -> dict[str, Estimate]:
        """Return the scores of constant replies and of the true replies themselves."""
        truths = [self.extract(example.reply) for example in examples]
        return reference_metrics(truths, [example.context for example in examples])


def likeness(responder: Responder, before: Sequence[Turns], after: Sequence[Turns]) -> list[float | None]:
    """Return the cosines of the mean embeddings of texts, in the model's own embeddings.

    Args:
        responder: the model.
        before: contexts, or replies as contexts of one turn.
        after: as many, to be compared with them.

    Returns:
        -1 to 1; None where the model knows no word of the text before, or shows no embeddings.
    """
    if not hasattr(responder, "vectors"):
        return [None] * len(before)
    return average_similarity([_words(turns) for turns in before], [_words(turns) for turns in after], responder.vectors)


@lru_cache(_REMEMBERED)
def bleu(before: Turn, after: Turn) -> float:
    """Return the BLEU of a reply against the reply before, over the words of all utterances, 0 to 1."""
    return sentence_bleu(_words((after,)), _words((before,)))


def _words(turns: Turns) -> list[str]:
    return [word for turn in turns for utterance in turn for word in utterance]


# The context that a strategy made (a line as `parley.envs.corpora.pairs.turns.format_turns` writes it), whether that is another
# one, and how many words were changed.
_MADE = {"text": str, "changed": bool, "num_changed": int}
_REPLY = {
    # The model's label ("base", or what it was trained against), and the strategy of the context, "" for the clean one.
    "model strategy reply": str,
    **ANSWERED,
    # F1 (0 to 1) against the truth; null where the truth does not count, or there are no tables of activities.
    "activity_f1 entity_f1": float,
    # Against the clean context and the same model's reply to it, null for that reply itself: cosines of the model's mean
    # embeddings, BLEU of the reply, whether it is the same, word by word; null where either answer is no reply.
    "context_similarity reply_similarity bleu": float,
    "same": bool,
}
# The context and the recorded reply, lines as `parley.envs.corpora.pairs.turns.format_turns` writes them.
ROBUSTNESS = row_schema({"context truth": str, "perturbations": [{"strategy": str, **_MADE}], "replies": [_REPLY]})
"""One example of a dialogue corpus per row: its context perturbed, and what models reply to it before and after."""


def _replied_lines(row: Row) -> Iterator[Line]:
    clean = {"text": row["context"], "changed": False, "num_changed": 0}
    made = {perturbation["strategy"]: perturbation for perturbation in row["perturbations"]}
    about = {name: row[name] for name in ("context", "truth")}
    yield from (about | made.get(reply["strategy"], clean) | reply for reply in row["replies"])


REPLIES = FlatRows(
    # As in `ROBUSTNESS`: the clean context and what followed it; what was replied to "text" under "strategy".
    row_schema({"context truth": str, **_REPLY, **_MADE}),
    _replied_lines,
)
"""Of `ROBUSTNESS` one reply of one model per line."""

_SIGNALS = dict.fromkeys(SIGNALS, int)
_TOUCHED = {
    # A strategy and an utterance that it changed: which of the context's, from 0, its words before and after, how many of
    # them changed.
    "strategy": str,
    "place": int,
    "before after": str,
    "num_changed": int,
    # Negative log-likelihood in nats of the words and their end, under the language model.
    "nats_before nats_after": float,
    # Words that were replaced one by one, and how many of those have another part of speech now.
    "num_replaced num_retagged": int,
    # How often each sign of broken English stands in it.
    "signals_before signals_after": _SIGNALS,
    # Whether each utterance follows from the other one; null without a model of entailment.
    "kept": bool,
}
# A line as `parley.envs.corpora.pairs.turns.format_turns` writes it, its utterances that hold a word, and their words.
AUDIT = row_schema({"context": str, "num_utterances num_words": int, "touched": [_TOUCHED]})
"""One context of a dialogue corpus per row, with every utterance that a strategy changed."""


@dataclass(frozen=True, kw_only=True)
class ContextSettings(Configuration):
    """Limits on the contexts of examples."""

    turns: PositiveInt | None = None
    """Most turns of a context; as many as the model reads when not given, 2 for a model of a user's own that does not say."""
    min_turns: int = 1
    """Least turns of a context; examples with fewer before them are left out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "min_turns", 1 <= self.min_turns <= (self.turns or self.min_turns), "at least 1, at most turns")


@dataclass(frozen=True, kw_only=True)
class EngineSettings(Configuration):
    """The size of batches."""

    batch_size: PositiveInt = 64
    """Contexts that are answered in a batch."""


@dataclass(frozen=True, kw_only=True)
class PerturbedConfig(ShardedConfig):
    """Contexts and their perturbations."""

    strategies: str = "all"
    """Strategies separated by commas: names, path/file.py:Name, or all, should-not-change, should-change, entity."""
    split: Literal["test", "val", "train"] = "test"
    """Split of the corpus."""
    limit: NumItemsOrAll = 0
    """At most so many examples, the seed's choice of them; 0 for all."""
    perturb: PerturbSettings = field(default_factory=PerturbSettings)
    """How contexts are perturbed."""
    contexts: ContextSettings = field(default_factory=ContextSettings)
    """Limits on the contexts of examples."""
    engine: EngineSettings = field(default_factory=EngineSettings)
    """How the work is done."""

    def __post_init__(self) -> None:
        super().__post_init__()
        catalogue.require_names(self.strategies)

    @property
    def strategy_names(self) -> tuple[str, ...]:
        """Return the names of the strategies, without those of `left_out`."""
        return tuple(name for name in catalogue.names(self.strategies) if name not in self.left_out)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Return the strategies of a group that lack a setting; one that is named itself raises instead."""
        return catalogue.left_out(self.strategies, self.perturb)


@dataclass(frozen=True, kw_only=True)
class RobustnessConfig(PerturbedConfig):
    """The evaluated model, and the perturbations of its contexts."""

    model: str = "runs/seq2seq"
    """Response model: a run or checkpoint (parley train seq2seq, parley train vhred), hf:FOLDER (a chat model; a
    bi-encoder, which answers from all replies of the corpus; a classifier), gguf:FILE, openai:URL#MODEL, path/file.py:Name."""
    trained: str = ""
    """Runs of parley train adversarial on this model, separated by commas; of a local chat model hf:RUN of train hardened. Each
    meets the strategies it was trained against."""
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
        """Return whether the model is one that Parley trained, so that it can be trained further."""
        return ".py:" not in self.model and not is_chat_address(self.model)

    @property
    def trained_folders(self) -> tuple[str, ...]:
        """Return the folders of the adversarially trained models."""
        return tuple(folder for part in self.trained.split(",") if (folder := part.strip()))


@dataclass(frozen=True, kw_only=True)
class AuditConfig(PerturbedConfig):
    """The corpus of an audit, and the judges of edits."""

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
    """hf:FOLDER of a Hugging Face model that judges whether a sentence follows from another; none when empty."""

    def __post_init__(self) -> None:
        super().__post_init__()
        named = self.entailment.startswith(HUGGING_FACE) and self.entailment != HUGGING_FACE
        check(self, "entailment", not self.entailment or named, f"{HUGGING_FACE}FOLDER, or empty")

    @property
    def entailment_folder(self) -> str:
        """Return the folder of the entailment model; empty without one."""
        return self.entailment.removeprefix(HUGGING_FACE)
