"""What evaluations of rankers and attacks on them are asked for: their configurations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from parley.engine.core.verbs.sharded import ShardedConfig
from parley.engine.perturb.replies.catalogue import rule_names
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.ranking.attacks.catalogue import attack_names
from parley.engine.ranking.attacks.settings import AttackDetails, AttackSettings, GoalKind
from parley.engine.ranking.metrics.attacked import Untouched
from parley.engine.ranking.metrics.ranks import Unranked
from parley.engine.ranking.metrics.searched import baseline_of
from parley.envs.core.config import shared
from parley.envs.core.errors import ConfigError
from parley.envs.core.ranges import Configuration, NonNegativeInt, NumItems, NumItemsOrAll
from parley.envs.ranking.options import CandidateOptions
from parley.policies.chat.settings import ChatAsking

DEFAULT_CORPUS = "helpdesk"
"""The corpus that needs no data, nor those of NLTK."""


Lexicon = Literal["nltk", "built-in"]


def lexicon_of(corpus: str, asked: Literal["", "nltk", "built-in"]) -> Lexicon:
    """The lexicon that answers: the one that is asked for, else the built-in one for the built-in help desk alone."""
    return asked or ("built-in" if corpus == DEFAULT_CORPUS else "nltk")


@dataclass(frozen=True, kw_only=True)
class MetricSettings(Configuration):
    """What counts."""

    untouched: Untouched = "left-out"
    """Contexts in which a rule changes nothing are left out of its figures, or kept as attacks that failed."""
    unranked: Unranked = "left-out"
    """Contexts without a right reply or without a wrong one are left out, or score 0."""


@dataclass(frozen=True, kw_only=True)
class RankersConfig(ShardedConfig):
    """Which rankers choose among which candidates, and which rules change replies."""

    model: str = "tfidf,bm25"
    """Rankers separated by commas: tfidf, bm25, a run of a matching model, hf:FOLDER, gguf:FILE, openai:URL#MODEL, seq2seq:RUN,
    lm:RUN, or path/file.py:Name."""
    rules: str = "all"
    """Rules on replies separated by commas: names, path/file.py:Name, all (the seven of Li et al. 2019), or none."""
    corpus: str = DEFAULT_CORPUS
    """Corpus of candidates or of pairs: a name, a file or folder of label<TAB>turn<TAB>...<TAB>response lines, or
    path/file.py:NAME."""
    split: Literal["test", "val", "train"] = "test"
    """Split of the corpus."""
    limit: NumItemsOrAll = 0
    """At most so many contexts, the seed's choice of them; 0 for all."""
    lexicon: Literal["", "nltk", "built-in"] = ""
    """Tags and synonyms: NLTK's data, or a small lexicon written for this project; when empty the latter for the built-in
    help desk alone."""
    candidates: CandidateOptions = field(default_factory=CandidateOptions)
    """How groups of candidates are made."""
    replies: ReplySettings = field(default_factory=ReplySettings)
    """How the rules attack replies."""
    chat: ChatAsking = field(default_factory=ChatAsking)
    """How a chat model that ranks is loaded."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.model_names:
            raise ConfigError("no ranker is named", got=repr(self.model), fix="such as --model tfidf,runs/smn")
        if self.rules != "none":
            rule_names(self.rules)

    @property
    def model_names(self) -> tuple[str, ...]:
        """The rankers one by one, each once."""
        return listed_names(self.model)

    @property
    def rule_names(self) -> tuple[str, ...]:
        """The rules one by one, each once; none of them for "none"."""
        return () if self.rules == "none" else rule_names(self.rules)

    @property
    def lexicon_name(self) -> Lexicon:
        """The lexicon that answers."""
        return lexicon_of(self.corpus, self.lexicon)


@dataclass(frozen=True, kw_only=True)
class RankingConfig(RankersConfig):
    """What an evaluation shows beside the rankers that are named, and what counts."""

    controls: bool = True
    """Beside the rankers those that know nothing: constant, longest, shortest, overlap, and each ranker without its context."""
    published: Literal["none", "ubuntu", "douban"] = "none"
    """Figures to show beside the measured ones: Li et al. 2019, on which of their corpora."""
    num_erased: NonNegativeInt = 100
    """Contexts whose right replies lose words one by one, to see which matter (figure 2); 0 for none."""
    metrics: MetricSettings = field(default_factory=MetricSettings)
    """What counts."""


@dataclass(frozen=True, kw_only=True)
class RankingAttackConfig(RankersConfig):
    """What attacks on rankers want, and how they search."""

    goal: GoalKind = "promote"
    """Bring a wrong reply to the top, or the right one below a wrong one."""
    method: str = "greedy,beam,random"
    """Methods separated by commas: greedy, beam, random (the baseline, there in any case), gradient (rankers with slopes),
    gaslite (bi-encoders; random-steps and random-words stand beside it), editor:RUN (a trained editing policy), or
    path/file.py:Name."""
    moves: str = ""
    """Edits separated by commas: context, synonym, insertion, deletion, swap; when empty those that suit the goal."""
    edits: NumItems = 3
    """Words changed at most: replaced, inserted or deleted, two for a swap; gaslite appends attack.gaslite.num_words."""
    budget: NumItems = 500
    """Queries at most for a context; a query is one reply scored in its context. A rule makes one."""
    known_words: bool = True
    """Words that enter stand in the training split."""
    attack: AttackDetails = field(default_factory=AttackDetails)
    """Which reply is attacked, and what its edits keep to."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.method_names:
            self.settings(name)

    @property
    def method_names(self) -> tuple[str, ...]:
        """The methods one by one, each once; behind them what they are compared with, where it is not named."""
        names = [*attack_names(self.method)]
        for name in names:
            if (other := baseline_of(name)) not in names:
                names.append(other)
        return tuple(names)

    def settings(self, method: str) -> AttackSettings:
        """What an attack by a method wants and may do."""
        moves = listed_names(self.moves)
        known = {name: getattr(self, name) for name in ("goal", "edits", "budget")}
        return AttackSettings(method=method, moves=moves, **known, **shared(self.attack, AttackDetails))


@dataclass(frozen=True, kw_only=True)
class PlayRankingConfig:
    """What --config and --set reach of `parley play ranking`."""

    candidates: CandidateOptions = field(default_factory=CandidateOptions)
    """How groups of candidates are made."""
    replies: ReplySettings = field(default_factory=ReplySettings)
    """How rules attack replies."""
    attack: AttackDetails = field(default_factory=AttackDetails)
    """What the edits of an attack keep to."""
    chat: ChatAsking = field(default_factory=ChatAsking)
    """How a chat model that ranks is loaded."""


def listed_names(chosen: str) -> tuple[str, ...]:
    """Names between commas, each once."""
    return tuple(dict.fromkeys(name for part in chosen.split(",") if (name := part.strip())))
