"""What a training of a matching model is asked for: its configuration, and the presets. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from parley.engine.core.verbs.supervised import SupervisedConfig
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.ranking.attacks.settings import AttackSettings
from parley.engine.ranking.verbs.pool import is_searched, training_names
from parley.envs.core.config import check
from parley.envs.core.errors import ConfigError
from parley.envs.core.ranges import NumItems, NumItemsOrAll, PositiveInt, PositiveShare
from parley.envs.corpora.pairs.vocabulary import SPECIALS
from parley.envs.ranking.options import CandidateOptions
from parley.policies.ranking.matching import settings
from parley.policies.ranking.matching.settings import DamSizes, MatcherFitConfig, MatcherSizes, MrfnSizes, SmnSizes

Kind = Literal["smn", "dam", "mrfn"]
NO_VECTORS, SKIP_GRAM = "none", "skip-gram"


@dataclass(frozen=True, kw_only=True)
class PoolSearchSettings(AttackSettings):
    """What the attack search of a training may do, and where."""

    pool: PositiveInt = 2000
    """Training contexts that are searched when an epoch begins, drawn at random once, for some 20 a second; at most as many of
    the validation and the test split are searched too. A pool of hundreds is learned by heart."""
    budget: NumItems = 100
    """Queries at most for a context; a query is one reply scored in its context."""


@dataclass(frozen=True, kw_only=True)
class TrainMatcherConfig(SupervisedConfig):
    """Which model is fitted to which candidates, or goes on against which attacks."""

    kind: Kind = "smn"
    """The network; the section of this name holds its sizes."""
    corpus: str = ""
    """Corpus of candidates or of pairs: a name, a file or folder of label<TAB>turn<TAB>...<TAB>response lines, or
    path/file.py:NAME; when empty that of --start, else the built-in help desk."""
    vocabulary: int | None = None
    """Entries of the vocabulary, special tokens included: the most frequent words of the training split; none: every word."""
    vectors: str = NO_VECTORS
    """Word vectors to begin with: none, skip-gram (fitted to the training split alone), or a text file of vectors."""
    start: str = ""
    """Run or checkpoint of a matching model to go on from, with its words and sizes; all epochs of the recipe are made."""
    against: str = ""
    """With --start: what to train against, separated by commas: rules on replies by name, path/file.py:Name, or all;
    editor:RUN: what a trained editing policy does at the ranker that it learned to mislead; search: what the attack search
    finds at the model as it is when an epoch begins; none: the control, as long on replies as they are."""
    adversary_share: PositiveShare = 0.1
    """Share of the training contexts whose replies rules and policies change, drawn at random, of one context at least. Li et
    al. 2019 change 100,000 examples, 0.1 of Ubuntu V1's million pairs. With IIW in all of them a small model forgets replies
    as they are (docs/results/li2019.md)."""
    held_out: NumItemsOrAll = 0
    """At most so many contexts of the validation and of the test split, the seed's choice, so that attacking and measuring them
    does not take longer than the epochs; 0 for all."""
    lexicon: Literal["", "nltk", "built-in"] = ""
    """Tags and synonyms of rules: NLTK's data, or a small lexicon written for this project; when empty the latter for the
    built-in help desk alone."""
    smn: SmnSizes = field(default_factory=SmnSizes)
    """Sizes of an SMN."""
    dam: DamSizes = field(default_factory=DamSizes)
    """Sizes of a DAM."""
    mrfn: MrfnSizes = field(default_factory=MrfnSizes)
    """Sizes of an MRFN."""
    candidates: CandidateOptions = field(default_factory=CandidateOptions)
    """How groups of candidates are made."""
    replies: ReplySettings = field(default_factory=ReplySettings)
    """How rules change replies."""
    search: PoolSearchSettings = field(default_factory=PoolSearchSettings)
    """How the attack search of --against search finds wrong replies, and in how many contexts."""
    fit: MatcherFitConfig = field(default_factory=MatcherFitConfig)
    """The recipe."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "vocabulary", self.vocabulary is None or self.vocabulary > len(SPECIALS), f"above {len(SPECIALS)}, or none")
        if bool(self.start) != bool(self.against):
            given, lacking = ("--start", "--against") if self.start else ("--against", "--start")
            fix = "--start RUN --against RULE[,RULE], --against search, or --against none for the control"
            raise ConfigError(f"{given} needs {lacking}", got=self.start or self.against, fix=fix)
        if self.against:
            training_names(self.against)
        if is_searched(self.against) and self.search.goal != "promote":
            what = "what a search finds is learned as a wrong reply, so it edits wrong ones"
            raise ConfigError(what, where="search.goal", got=self.search.goal, fix="leave search.goal out, it is promote")

    @property
    def sizes(self) -> MatcherSizes:
        """Those of the network."""
        found: MatcherSizes = {"smn": self.smn, "dam": self.dam, "mrfn": self.mrfn}[self.kind]
        return found


def _small(kind: Kind) -> TrainMatcherConfig:
    return TrainMatcherConfig(
        kind=kind,
        vocabulary=10_000,
        smn=settings.smn_small(),
        dam=settings.dam_small(),
        mrfn=settings.mrfn_small(),
        fit=settings.small_fit(),
    )


def _paper(kind: Kind, fit: MatcherFitConfig) -> TrainMatcherConfig:
    return TrainMatcherConfig(kind=kind, vectors=SKIP_GRAM, fit=replace(fit, criterion="recall"))


def smn() -> TrainMatcherConfig:
    """A sequential matching network for a laptop: half the published widths, six turns of 30 words, 10,000 words."""
    return _small("smn")


def dam() -> TrainMatcherConfig:
    """A deep attention matching network for a laptop, with two blocks of attention."""
    return _small("dam")


def mrfn() -> TrainMatcherConfig:
    """A multi-representation fusion network for a laptop."""
    return _small("mrfn")


def demo() -> TrainMatcherConfig:
    """A tiny SMN for the built-in help desk, in seconds."""
    sizes = replace(settings.smn_small(), embed=32, gru=32)
    fit = replace(settings.small_fit(), batch_size=128, learning_rate=5e-3, max_epochs=2, precision="float32")
    return replace(smn(), smn=sizes, fit=fit)


def hardened() -> TrainMatcherConfig:
    """The SMN of runs/matcher further, against the seven rules of Li et al. 2019 at once."""
    return replace(smn(), start="runs/matcher", against="all")


def smn_paper() -> TrainMatcherConfig:
    """SMN at published sizes: vectors of 200 by skip-gram, ten turns of 50 words; the best epoch by validation R@1."""
    return _paper("smn", settings.smn_fit())


def dam_paper() -> TrainMatcherConfig:
    """DAM at published sizes: vectors of 200 by skip-gram, ten turns of 50 words; the best epoch by validation R@1."""
    return _paper("dam", settings.dam_fit())


def mrfn_paper() -> TrainMatcherConfig:
    """MRFN at published sizes: vectors of 200 by skip-gram, ten turns of 50 words; the best epoch by validation R@1."""
    return _paper("mrfn", settings.mrfn_fit())
