"""Configurations of evaluations of rankers and of attacks on them, with their rankers, contexts and rules.

Rankers are sent to workers as names: each worker loads the checkpoint, or the user's Python file. On a cluster both must have
the same path on every machine.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from parley.engine.core.ray.worker import IndexedItems
from parley.engine.core.verbs.checkpoints import checkpoint_folder
from parley.engine.core.verbs.job import drawn
from parley.engine.core.verbs.sharded import ShardedConfig
from parley.engine.core.verbs.supervised import require_splits
from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.replies.catalogue import build_rules, rule_names
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.perturb.replies.shapes import Rule, RuleResources
from parley.engine.perturb.strategy import RANDOM_WORDS, PerturbSettings
from parley.engine.ranking.attacks.catalogue import attack_names
from parley.engine.ranking.attacks.settings import AttackDetails, AttackSettings, GoalKind
from parley.engine.ranking.metrics.ranking import CLEAN
from parley.engine.ranking.metrics.ranks import Unranked, Untouched
from parley.engine.ranking.metrics.searched import baseline_of
from parley.envs.core.config import Configuration, NonNegativeInt, NumItems, NumItemsOrAll, shared
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.seeds import derive_seed
from parley.envs.core.storage.uris import display_path, is_uri
from parley.envs.corpora.own_files import own_file
from parley.envs.corpora.pairs.corpora import is_path, pair_corpora
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.compiled import CandidateCorpus, load_candidates
from parley.envs.ranking.groups import CandidateGroup, CandidateKind, CandidateOptions, CandidateSplit, Context
from parley.policies.chat.addresses import absolute_address, is_chat_address, short_address, weights_of
from parley.policies.chat.settings import DEFAULT, ChatAsking, ChatModelSettings
from parley.policies.core.responder import CONFIG, reading
from parley.policies.ranking.ranker import Ranker
from parley.policies.ranking.rankers import LANGUAGE_MODEL, RESPONSE_MODEL, RESPONSE_ONLY, load_ranker, rankers

if TYPE_CHECKING:
    from parley.engine.ranking.verbs.hardened import TrainHardenedRankerConfig
    from parley.engine.ranking.verbs.matcher import TrainMatcherConfig


DEFAULT_CORPUS = "helpdesk"
"""The corpus that needs no data, nor those of NLTK."""


Lexicon = Literal["nltk", "built-in"]


def lexicon_of(corpus: str, chosen: Literal["", "nltk", "built-in"]) -> Lexicon:
    """Return the chosen lexicon; by default the built-in one for the built-in help desk alone."""
    return chosen or ("built-in" if corpus == DEFAULT_CORPUS else "nltk")


@dataclass(frozen=True, kw_only=True)
class MetricSettings(Configuration):
    """The groups that count."""

    untouched: Untouched = "left-out"
    """Contexts in which a rule changes nothing are left out of its figures, or kept as attacks that failed."""
    unranked: Unranked = "left-out"
    """Contexts without a right reply or without a wrong one are left out, or score 0."""


@dataclass(frozen=True, kw_only=True)
class RankersConfig(ShardedConfig):
    """The rankers, the candidates, and the rules that change replies."""

    model: str = "tfidf,bm25"
    """Rankers separated by commas: tfidf, bm25, a run of a matching model, hf:FOLDER, gguf:FILE, openai:URL#MODEL, seq2seq:RUN,
    lm:RUN, or path/file.py:Name."""
    rules: str = "all"
    """Rules separated by commas: on replies, by name, path/file.py:Name or all (the seven of Li et al. 2019); strategies of
    parley perturb on the question, such as character-noise, or questions (four of them); or none."""
    corpus: str = DEFAULT_CORPUS
    """Corpus of candidates or of pairs: a name, a file or folder of label<TAB>turn<TAB>...<TAB>response lines, or
    path/file.py:NAME."""
    split: Literal["test", "val", "train"] = "test"
    """Split of the corpus."""
    limit: NumItemsOrAll = 0
    """At most so many contexts, the seed's choice of them; 0 for all."""
    pool: bool = False
    """Rank all right replies of the corpus in each context, as a bot does that answers from them, instead of a drawn group."""
    lexicon: Literal["", "nltk", "built-in"] = ""
    """Tags and synonyms: NLTK's data, or a small lexicon written for this project; when empty the latter for the built-in
    help desk alone."""
    candidates: CandidateOptions = field(default_factory=CandidateOptions)
    """The construction of candidate groups."""
    replies: ReplySettings = field(default_factory=ReplySettings)
    """Settings of the rules on replies."""
    chat: ChatAsking = field(default_factory=ChatAsking)
    """Loading of a chat model that ranks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.model_names:
            raise ConfigError("no ranker is named", got=repr(self.model), fix="such as --model tfidf,runs/smn")
        if self.rules != "none":
            rule_names(self.rules, questions=True)

    @property
    def model_names(self) -> tuple[str, ...]:
        """The rankers one by one, each once."""
        return listed_names(self.model)

    @property
    def rule_names(self) -> tuple[str, ...]:
        """The rules one by one, each once; none of them for "none"."""
        return () if self.rules == "none" else rule_names(self.rules, questions=True)

    @property
    def lexicon_name(self) -> Lexicon:
        """The lexicon that answers."""
        return lexicon_of(self.corpus, self.lexicon)


@dataclass(frozen=True, kw_only=True)
class RankingConfig(RankersConfig):
    """The controls, published figures and metrics of an evaluation."""

    controls: bool = True
    """Also rank with trivial controls: constant, longest, shortest, overlap, and each ranker without its context."""
    published: Literal["none", "ubuntu", "douban"] = "none"
    """Figures to show beside the measured ones: Li et al. 2019, on which of their corpora."""
    num_erased: NonNegativeInt = 100
    """Contexts whose right replies lose words one by one, to measure the words' importance (figure 2); 0 for none."""
    metrics: MetricSettings = field(default_factory=MetricSettings)
    """The contexts that count."""


@dataclass(frozen=True, kw_only=True)
class RankingAttackConfig(RankersConfig):
    """The goal of attacks on rankers, and their search."""

    goal: GoalKind = "promote"
    """Bring a wrong reply to the top, or the right one below a wrong one."""
    method: str = "greedy,beam,random"
    """Methods separated by commas: greedy, beam, random (the baseline, always included), gradient (rankers with slopes),
    gaslite (bi-encoders; random-steps and random-words stand beside it), editor:RUN (a trained editing policy), or
    path/file.py:Name."""
    moves: str = ""
    """Edits separated by commas: context, synonym, insertion, deletion, swap; by default those that suit the goal."""
    edits: NumItems = 3
    """Words changed at most: replaced, inserted or deleted, two for a swap; gaslite appends attack.gaslite.num_words."""
    budget: NumItems = 500
    """Queries at most for a context; a query is one reply scored in its context. A rule makes one."""
    known_words: bool = True
    """New words must be words of the training split."""
    attack: AttackDetails = field(default_factory=AttackDetails)
    """The attacked reply, and the constraints on its edits."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.method_names:
            self.settings(name)

    @property
    def method_names(self) -> tuple[str, ...]:
        """The distinct methods, followed by their baselines if these are not named."""
        names = [*attack_names(self.method)]
        for name in names:
            if (other := baseline_of(name)) not in names:
                names.append(other)
        return tuple(names)

    def settings(self, method: str) -> AttackSettings:
        """Return the settings of the attack by one method."""
        moves = listed_names(self.moves)
        common = {name: getattr(self, name) for name in ("goal", "edits", "budget")}
        return AttackSettings(method=method, moves=moves, **common, **shared(self.attack, AttackDetails))


@dataclass(frozen=True, kw_only=True)
class PlayRankingConfig:
    """The settings of `parley play ranking` that --config and --set reach."""

    candidates: CandidateOptions = field(default_factory=CandidateOptions)
    """The construction of candidate groups."""
    replies: ReplySettings = field(default_factory=ReplySettings)
    """Settings of the rules on replies."""
    attack: AttackDetails = field(default_factory=AttackDetails)
    """The constraints on the edits of an attack."""
    chat: ChatAsking = field(default_factory=ChatAsking)
    """Loading of a chat model that ranks."""


def listed_names(chosen: str) -> tuple[str, ...]:
    """Split names at commas and drop repeated ones."""
    return tuple(dict.fromkeys(name for part in chosen.split(",") if (name := part.strip())))


CONTROLS = ("constant", "longest", "shortest", "overlap")
"""Rankers that a real ranker must beat."""
ADVERSARIAL = "adversarial"
"""Role in the provenance of models that were trained against rules."""
CONTROL = "control"
"""Role of those that were trained as long on clean pairs."""
_PREFIXES = (RESPONSE_MODEL, LANGUAGE_MODEL)


@dataclass(frozen=True)
class RankerSpec:
    """One ranker.

    Args:
        label: its name in metrics: short, unique, without a full stop.
        name: as `load_ranker` knows it, absolute.
        is_control: True for a control, which a real ranker must beat.
        kind: of a checkpoint, such as "smn"; empty for others.
        against: rules that it was trained against.
        base: label of the ranker that this training, or its control, began with; empty if it is not in the run or unknown.
    """

    label: str
    name: str
    is_control: bool = False
    kind: str = ""
    against: tuple[str, ...] = ()
    base: str = ""


def ranker_specs(names: Sequence[str], *, controls: bool = False) -> tuple[RankerSpec, ...]:
    """Describe the named rankers, then the controls.

    Args:
        names: of rankers, each once.
        controls: whether `CONTROLS` stand beside, and each ranker without its context.
    """
    beaten = []
    if controls:
        beaten = [name for name in CONTROLS if name not in names]
        alone = [f"{RESPONSE_ONLY}{name}" for name in names if name not in CONTROLS and not name.startswith(RESPONSE_ONLY)]
        beaten += [name for name in alone if name not in names]
    labels = list(_labels([*names, *beaten]))
    # The provenance of a training holds its base as typed: a run, or the checkpoint in it.
    bases = {_checkpoint(name): label for name, label in zip(names, labels, strict=False)}
    specs = [_spec(name, label, bases) for name, label in zip(names, labels, strict=False)]
    beside = zip(labels[len(names) :], beaten, strict=True)
    return (*specs, *(RankerSpec(label, _absolute(name), is_control=True) for label, name in beside))


def _spec(name: str, label: str, bases: Mapping[Path | None, str]) -> RankerSpec:
    """Describe a ranker by its name and by the provenance of its checkpoint, if it has one."""
    folder = _checkpoint(name)
    if folder is None:
        return RankerSpec(label, _absolute(name))
    with reading(folder):
        stored = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        kind, about = str(stored["kind"]), stored["provenance"]
        role = about.get("role")
        against = tuple(map(str, about["against"])) if role == ADVERSARIAL else ()
        base = _checkpoint(str(about.get("base", ""))) if role in (ADVERSARIAL, CONTROL) else None
    return RankerSpec(label, _absolute(name), kind=kind, against=against, base="" if base is None else bases.get(base, ""))


def loaded(
    specs: Sequence[RankerSpec], contexts: Iterable[Context], chat: ChatModelSettings = DEFAULT, answers: Path | None = None
) -> dict[str, Ranker]:
    """Load rankers by their labels; a ranker without its context shares the other's model.

    Args:
        specs: of the rankers.
        contexts: of the training split, for those that are fitted.
        chat: where networks compute, and how a chat model is loaded or asked.
        answers: folder in which answers of chat models are kept; None keeps none.

    Raises:
        ConfigError: no ranker is called so, or a file of one's own makes none.
        CheckpointError: nothing is there, it is damaged, or models of its kind do not rank.
        DataError: there are no words to fit a ranker on.
    """
    from parley.policies.ranking.ranker import ResponseOnly

    load = partial(load_ranker, contexts=contexts, chat=chat, answers=answers)
    whole = {spec.name: load(spec.name) for spec in specs if not spec.name.startswith(RESPONSE_ONLY)}
    loaded_rankers: dict[str, Ranker] = {}
    for spec in specs:
        inner = spec.name.removeprefix(RESPONSE_ONLY)
        if inner not in whole:
            whole[inner] = load(inner)
        loaded_rankers[spec.label] = whole[inner] if inner == spec.name else ResponseOnly(whole[inner])
    return loaded_rankers


def models_of(config: RankersConfig) -> Mapping[str, str]:
    """Return the rankers that are files or folders, and the user's own rules, by their setting."""
    models = {f"model {name}": stored_name(name) for name in config.model_names}
    return models | {f"rule {name}": name for name in config.rule_names if ".py:" in name}


def _labels(names: Iterable[str]) -> Iterator[str]:
    """Make distinct labels; a label that is taken gets the first free number as ending."""
    taken: set[str] = set()
    for name in names:
        label = label_of(name)
        numbered = (f"{label}-{number}" for number in count(2))
        free = next(option for option in chain([label], numbered) if option not in taken)
        taken.add(free)
        yield free


def label_of(name: str) -> str:
    """Return the label of a name, such as "smn" of "runs/smn/checkpoint"."""
    for prefix in (RESPONSE_ONLY, RESPONSE_MODEL, LANGUAGE_MODEL):
        if name.startswith(prefix):
            return f"{prefix}{label_of(name.removeprefix(prefix))}"
    if ".py:" in name:
        return name.rpartition(":")[2]
    if is_chat_address(name):
        return short_address(name)
    parts = [part for part in name.split("/") if part not in ("", "checkpoint")]
    return parts[-1].replace(".", "_") if parts else "model"


def stored_name(name: str) -> str:
    """Return the path or URI in a ranker's name, without its prefixes; empty for a server."""
    for prefix in (RESPONSE_ONLY, *_PREFIXES):
        name = name.removeprefix(prefix)
    return weights_of(name)


def _absolute(name: str) -> str:
    """Make the path in a name absolute, for workers in other folders."""
    if is_chat_address(inner := name.removeprefix(RESPONSE_ONLY)):
        return f"{name.removesuffix(inner)}{absolute_address(inner)}"
    path = stored_name(name)
    prefix = name.removesuffix(path)
    file, _, part = path.rpartition(":") if ".py:" in path else (path, "", "")
    if path in rankers or is_uri(path) or not ("/" in file or Path(file).exists()):
        return name
    whole = display_path(Path(file).expanduser().absolute())
    return f"{prefix}{whole}:{part}" if part else f"{prefix}{whole}"


def _checkpoint(name: str) -> Path | None:
    if not name or name in rankers or ".py:" in name or is_chat_address(name) or name.startswith((RESPONSE_ONLY, *_PREFIXES)):
        return None
    folder = checkpoint_folder(name)
    return None if folder is None else folder.absolute()


logger = logging.getLogger(__name__)
MOST_SCORES = 5_000_000
"""Replies that are scored behind unchanged questions, with the whole pool of a corpus, at most."""
_FEW_CONTEXTS = 50
"""A split of a user's file with fewer contexts than this is reported with its share of the file."""
_RECENT_TURNS = 4096
FEW = 64
"""Contexts that are enough to try whether a ranker can be fitted, and a rule built."""


class RankedGroup(NamedTuple):
    """One item.

    Args:
        group: context and candidates.
        dialogue: that the context is of, in its split.
        is_read: whether words of its right replies are erased one by one.
        is_cut: whether the context has lost its oldest turns (`candidates.turns`).
    """

    group: CandidateGroup
    dialogue: int
    is_read: bool = False
    is_cut: bool = False


class Contexts(Iterable[Context]):
    """The contexts of a split, read each time they are gone through.

    Args:
        split: of a corpus.
        limit: how many at most; 0 for all.
    """

    def __init__(self, split: CandidateSplit, limit: int = 0) -> None:
        self._split = split.first(limit)

    def __iter__(self) -> Iterator[Context]:
        # Contexts of a dialogue, which stand together, share turns.
        utterance, split = lru_cache(_RECENT_TURNS)(self._split.utterance_of), self._split
        return (tuple(map(utterance, split.contexts[row].tolist())) for row in range(len(split)))


def opened(config: RankersConfig) -> CandidateCorpus:
    """Load the corpus of an evaluation.

    Raises:
        DataError: it cannot be read.
    """
    options = config.candidates
    if config.pool:
        # The wrong replies of groups are not used.
        options = replace(options, size=2, train_size=2)
    elif config.split == "train":
        # Groups that are ranked have the same size in every split.
        options = replace(options, train_size=options.size)
    return load_candidates(config.corpus, config.data_root, options=options)


def ranked_split(config: RankersConfig, corpus: CandidateCorpus) -> CandidateSplit:
    """Return the split whose replies are ranked.

    Raises:
        DataError: it has no context.
    """
    split = corpus.splits[config.split]
    if not len(split):
        held = ", ".join(name for name, groups in corpus.splits.items() if len(groups))
        what = f"the {config.split} split has no context to rank replies to"
        raise DataError(what, where=config.corpus, got=f"contexts in: {held}", fix="name another --split or --corpus")
    return split


def chosen_groups(config: RankersConfig, corpus: CandidateCorpus) -> IndexedItems[RankedGroup]:
    """Draw the contexts to rank, by their keys.

    Raises:
        DataError: there is none.
    """
    split = ranked_split(config, corpus)
    if len(split) < _FEW_CONTEXTS and is_path(config.corpus) and (shares := own_file(config.corpus).told_shares):
        num = sum(map(len, corpus.splits.values()))
        logger.warning("%d of %d contexts are of the %s split: %s", len(split), num, config.split, shares)
    rows = np.array(drawn(range(len(split)), config.limit, config.seed, corpus.name), dtype=np.int64)
    whole = _with_pool([split[row] for row in rows], config, corpus) if config.pool else None

    def group(index: int) -> RankedGroup:
        row = int(rows[index])
        candidates = split[row] if whole is None else whole[index]
        return RankedGroup(candidates, int(split.dialogues[row]), is_cut=bool(split.is_cut[row]))

    return IndexedItems(map(split.key, rows), group)


def _with_pool(groups: Sequence[CandidateGroup], config: RankersConfig, corpus: CandidateCorpus) -> list[CandidateGroup]:
    """Return groups whose candidates are all right replies of the corpus; right are those of any group of the same context."""
    pool: dict[Utterance, None] = {}
    rights: dict[Context, set[Utterance]] = {group.context: set() for group in groups}
    for split in corpus.splits.values():
        utterance = cache(split.utterance_of)
        for row, reply in split.positives().tolist():
            words = utterance(reply)
            pool[words] = None
            if (context := tuple(map(utterance, split.contexts[row].tolist()))) in rights:
                rights[context].add(words)
    candidates, num = tuple(pool), len(groups) * len(pool)
    if num > MOST_SCORES:
        fix = f"--limit {MOST_SCORES // len(pool)} contexts or fewer, or --no-pool with candidates.size"
        raise DataError(f"more than {MOST_SCORES:,} replies would be scored", where=config.corpus, got=f"{num:,}", fix=fix)
    return [
        CandidateGroup(
            group.key,
            group.context,
            candidates,
            labels := tuple(words in rights[group.context] for words in candidates),
            tuple(CandidateKind.POSITIVE if label else CandidateKind.RANDOM for label in labels),
            (True,) * len(candidates),
        )
        for group in groups
    ]


def training_splits(
    config: TrainMatcherConfig | TrainHardenedRankerConfig, name: str, corpus: CandidateCorpus, *, right: bool
) -> dict[str, CandidateSplit]:
    """Return the splits for training, epoch choice and test.

    Args:
        config: of the training.
        name: of the corpus, as typed.
        corpus: its candidates.
        right: whether training contexts without a right reply are left out.

    Raises:
        DataError: a split is empty, or has no right reply or no wrong one.
    """
    splits = {split: groups.first(config.limit) for split, groups in corpus.splits.items()}
    require_splits(corpus.name, splits)
    with_right = np.unique(splits["train"].positives()[:, 0])
    if right and len(with_right) < len(splits["train"]):
        splits["train"] = splits["train"].chosen(with_right)
    for split, groups in splits.items():
        if split != "train" and 0 < config.held_out < len(groups):
            rows = drawn(range(len(groups)), config.held_out, config.seed, corpus.name)
            splits[split] = groups = groups.chosen(np.array(rows))
        if not groups.labels.any() or groups.labels.all():
            got = f"{len(groups.labels):,} replies, all {'right' if groups.labels.any() else 'wrong'}"
            what = f"the {split} split needs right and wrong replies"
            raise DataError(what, where=name, got=got, fix="list replies of both labels, or name another --corpus")
    return splits


def shared_resources(corpus: str, lexicon: Lexicon, root: Path | None) -> Resources:
    """Return the lexicon of rules, and the corpus that counts usual words.

    Args:
        corpus: whose replies are changed, by the name that it was asked for by; one of candidates says nothing of words.
        lexicon: that answers.
        root: the data root.
    """
    return Resources(PerturbSettings(lexicon=lexicon), data_root=root, corpus=corpus if corpus in pair_corpora else "")


@contextmanager
def lexicon_setting() -> Iterator[None]:
    """Name the `--lexicon` setting in the error of a missing lexicon."""
    try:
        yield
    except DataError as error:
        fix = (error.fix or "").replace(", or name others with --set perturb.corrections=PATH", "")
        fix = fix.replace("--set perturb.lexicon=", "--lexicon ")
        raise DataError(error.what, where=error.where, got=error.got, fix=fix) from None


def rule_resources(config: RankersConfig, corpus: CandidateCorpus, limit: int = 0) -> RuleResources:
    """Return the resources of rules and attacks: the language, and contexts to count words in.

    Args:
        config: of the evaluation.
        corpus: whose replies are changed.
        limit: how many contexts are counted at most, to try a rule; 0 for all.
    """
    contexts: dict[Literal["training", "evaluated"], Contexts] = {
        "training": Contexts(corpus.splits["train"], limit),
        "evaluated": Contexts(corpus.splits[config.split], limit),
    }
    shared = shared_resources(config.corpus, config.lexicon_name, config.data_root)
    return RuleResources(config.replies, shared, corpus.language, contexts)


def built_rules(config: RankersConfig, resources: RuleResources) -> list[Rule]:
    """Build the rules of a configuration.

    Raises:
        ConfigError: two of them bear one name, there is none of a name, or one does not suit the language.
        DataError: a resource of a rule is missing.
    """
    rules = build_rules(config.rule_names, resources)
    names = [CLEAN, *(rule.name for rule in rules)]
    if len(set(names)) < len(names):
        what = f"two rules bear one name, or one is called {CLEAN!r}"
        raise ConfigError(what, got=", ".join(names[1:]), fix="rename yours, or name one of them")
    return rules


def utterances_of(split: CandidateSplit) -> list[Utterance]:
    """Return the distinct turns and replies of a split."""
    used = np.unique(np.concatenate([split.contexts.values, split.candidates.values]))
    return [split.utterance_of(row) for row in used.tolist()]


def group_seed(seed: int, key: str) -> int:
    """Derive the seed of a context from the master seed and its key."""
    return derive_seed(seed, "ranking", key)


def rule_seed(seed: int, rule: str, key: str) -> int:
    """Derive the seed of a rule on a group from the master seed, the rule's name and the group's key.

    The control of a strategy has the seed of the strategy, so that it changes as many words.
    """
    return derive_seed(seed, "reply rule", rule.removesuffix(RANDOM_WORDS), key)
