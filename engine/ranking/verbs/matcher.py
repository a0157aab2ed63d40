"""Training of matching models, and against attacks on them: `parley train matcher`.

Sources: Li et al. 2019, sections 4 and 5; the models are `policies/ranking/matching`. A training begins with drawn weights, or
goes on from a checkpoint (`--start`) against rules that change replies (`prepared.py`).

Choices:
  * # Paper: silent on which epoch is kept. Ours: the best by recall at 1 on the validation groups; in a training against rules
    on those and on the same groups, attacked as evaluations attack them; the search attacks them once, at the model that
    training began with. If no epoch is better, the weights that it began with stay; `fit.keep=last` keeps the last ones.
  * # Paper: silent on how long it trains against rules. Ours: all epochs of the recipe, and the control `--against none` as
    many steps on the same contexts, with replies as they are.

The module loads without torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import BEFORE
from parley.engine.core.stats.statistics import Estimate, mean_count
from parley.engine.core.verbs.checkpoints import require_checkpoint, require_device, threads
from parley.engine.core.verbs.job import Job, Reporter, Summary, command_line
from parley.engine.core.verbs.supervised import EPOCHS, RESUME_SAFE, STATE, SupervisedConfig, run_fit
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.perturb.replies.shapes import RuleResources
from parley.engine.ranking.attacks.settings import POLICY, AttackSettings
from parley.engine.ranking.metrics.ranks import ATTACKED, FIRST, MATCHING, PROMOTED, RANKS, estimates, group_metrics, units_of
from parley.engine.ranking.verbs.attack_worker import END, START, PoolSearch, composed_search, promoted, with_wrong_replies
from parley.engine.ranking.verbs.config import (
    ADVERSARIAL,
    CONTROL,
    DEFAULT_CORPUS,
    Contexts,
    RankingAttackConfig,
    RankingConfig,
    lexicon_of,
    lexicon_setting,
    listed_names,
    shared_resources,
    training_splits,
    utterances_of,
)
from parley.engine.ranking.verbs.prepared import (
    NOTHING,
    SEARCH,
    Adversaries,
    drawn_pool,
    evaluated_name,
    evaluated_names,
    is_searched,
    not_read_in,
    training_names,
    training_rules,
    unread_note,
)
from parley.envs.core.config import NumItems, NumItemsOrAll, PositiveFloat, PositiveInt, check
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.registry import nearest
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.arrow import data_root
from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary
from parley.envs.ranking.compiled import CandidateCorpus, load_candidates
from parley.envs.ranking.groups import CandidateGroup, CandidateOptions, CandidateSplit, ReplyPool
from parley.policies.core.responder import read_header
from parley.policies.ranking.matching import settings
from parley.policies.ranking.matching.settings import DamSizes, MatcherFitConfig, MatcherSizes, MrfnSizes, SmnSizes

if TYPE_CHECKING:
    from parley.engine.perturb.replies.shapes import Rule
    from parley.engine.ranking.attacks.attack import RankAttack
    from parley.policies.ranking.matching.matcher import Matcher


Kind = Literal["smn", "dam", "mrfn"]
NO_VECTORS, SKIP_GRAM = "none", "skip-gram"


@dataclass(frozen=True, kw_only=True)
class PoolSearchSettings(AttackSettings):
    """The limits and the pool of a training's attack search."""

    topic: ClassVar[str] = "pool-search"

    pool: PositiveInt = 2000
    """Training contexts that are searched when an epoch begins, drawn at random once, for some 20 a second; at most as many of
    the validation and the test split are searched too. A pool of hundreds is learned by heart."""
    budget: NumItems = 100
    """Queries at most for a context; a query is one reply scored in its context."""


@dataclass(frozen=True, kw_only=True)
class TrainMatcherConfig(SupervisedConfig):
    """The model, its candidates, and the attacks that it is trained against."""

    added: ClassVar[Mapping[str, Any]] = {"weights": []}

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
    weights: tuple[float, ...] = ()
    """With --against, without search: each changed context meets one of the attacks, which is drawn by these weights, in their
    order; when empty it meets them all."""
    adversary_share: PositiveFloat = 0.1
    """Adversaries of each rule, as a share of the training contexts. Up to 1 they change so many contexts, drawn at random, one
    at least; above 1 they change all, with so many draws. Li et al. 2019 change 100,000 examples, 0.1 of Ubuntu V1's
    million pairs. With IIW in all of them a small model forgets replies as they are (docs/results/li2019.md)."""
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
    """The construction of candidate groups."""
    replies: ReplySettings = field(default_factory=ReplySettings)
    """Settings of the rules on replies."""
    search: PoolSearchSettings = field(default_factory=PoolSearchSettings)
    """The attack search of --against search, and the number of its contexts."""
    fit: MatcherFitConfig = field(default_factory=MatcherFitConfig)
    """The recipe."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "vocabulary", self.vocabulary is None or self.vocabulary > len(SPECIALS), f"above {len(SPECIALS)}, or none")
        if bool(self.start) != bool(self.against):
            given, lacking = ("--start", "--against") if self.start else ("--against", "--start")
            fix = "--start RUN --against RULE[,RULE], --against search, or --against none for the control"
            raise ConfigError(f"{given} needs {lacking}", got=self.start or self.against, fix=fix)
        names, weights = training_names(self.against) if self.against else (), self.weights
        fits = not weights or (len(weights) == len(names) and min(weights) >= 0 and sum(weights) > 0)
        check(self, "weights", fits, f"a number for each of the {len(names)} of --against, none below 0, some above")
        if is_searched(self.against) and self.search.goal != "promote":
            what = "what a search finds is learned as a wrong reply, so it edits wrong ones"
            raise ConfigError(what, where="search.goal", got=self.search.goal, fix="leave search.goal out, it is promote")

    @property
    def sizes(self) -> MatcherSizes:
        """The sizes of the network."""
        sizes: MatcherSizes = {"smn": self.smn, "dam": self.dam, "mrfn": self.mrfn}[self.kind]
        return sizes


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
    """Train a sequential matching network on a laptop: half the published widths, six turns of 30 words, 10,000 words."""
    return _small("smn")


def dam() -> TrainMatcherConfig:
    """Train a deep attention matching network on a laptop, with two blocks of attention."""
    return _small("dam")


def mrfn() -> TrainMatcherConfig:
    """Train a multi-representation fusion network on a laptop."""
    return _small("mrfn")


def demo() -> TrainMatcherConfig:
    """Train a tiny SMN on the built-in help desk, in seconds."""
    sizes = replace(settings.smn_small(), embed=32, gru=32)
    fit = replace(settings.small_fit(), batch_size=128, learning_rate=5e-3, max_epochs=2, precision="float32")
    return replace(smn(), smn=sizes, fit=fit)


def hardened() -> TrainMatcherConfig:
    """Train the SMN of runs/matcher further, against the seven rules of Li et al. 2019 at once."""
    return replace(smn(), start="runs/matcher", against="all")


def smn_paper() -> TrainMatcherConfig:
    """Train an SMN at published sizes: skip-gram vectors of 200, ten turns of 50 words; best epoch by validation R@1."""
    return _paper("smn", settings.smn_fit())


def dam_paper() -> TrainMatcherConfig:
    """Train a DAM at published sizes: skip-gram vectors of 200, ten turns of 50 words; best epoch by validation R@1."""
    return _paper("dam", settings.dam_fit())


def mrfn_paper() -> TrainMatcherConfig:
    """Train an MRFN at published sizes: skip-gram vectors of 200, ten turns of 50 words; best epoch by validation R@1."""
    return _paper("mrfn", settings.mrfn_fit())


ATTACKED_SPLIT = "attacked"
"""Kind of the event with the number of contexts of a split that rules left unchanged."""
SPLITS = {"test": "test", "validation": "val"}


@dataclass(frozen=True)
class MatcherTraining:
    """The checked parts of a training.

    Args:
        config: of the training.
        model: trained in place.
        corpus: its candidates.
        corpus_name: its name, as typed.
        splits: its groups: train, val, test.
        replies: the pool of fresh wrong replies; None if the listed ones stay.
        rules: that it is trained against.
        judged: their variants for evaluation, on the held-out splits.
        attack: the search that it is trained against, at the current model; None for none.
        vectors: of a file (V, E), to begin with; None for others.
    """

    config: TrainMatcherConfig
    model: Matcher
    corpus: CandidateCorpus
    corpus_name: str
    splits: Mapping[str, CandidateSplit]
    replies: ReplyPool | None
    rules: Sequence[Rule]
    judged: Sequence[Rule]
    attack: RankAttack | None
    vectors: np.ndarray | None


class TrainMatcher(Job[TrainMatcherConfig, MatcherTraining, Summary]):
    """`parley train matcher`."""

    words = ("train", "matcher")
    run_name = "matcher"
    config = TrainMatcherConfig
    presets = {
        "smn": smn,
        "dam": dam,
        "mrfn": mrfn,
        "smn-paper": smn_paper,
        "dam-paper": dam_paper,
        "mrfn-paper": mrfn_paper,
        "demo": demo,
        "hardened": hardened,
    }
    legend = MATCHING
    files = (CHECKPOINT, SUMMARY)
    resume_safe = RESUME_SAFE
    steps = EPOCHS

    def prepare(self, config: TrainMatcherConfig, path: Path, reporter: Reporter) -> MatcherTraining:
        from parley.policies.ranking.matching.fit import build

        require_device(config.device, "--device")
        started = _started(config) if config.start else None
        name = config.corpus or (started[1] if started else DEFAULT_CORPUS)
        corpus = load_candidates(name, config.data_root, options=config.candidates)
        splits = training_splits(config, name, corpus, right=config.fit.fresh_negatives)
        replies = ReplyPool(splits["train"]) if config.fit.fresh_negatives else None
        if replies is not None:
            replies.fresh([0], config.seed)
        utterances = list(utterances_of(splits["train"]))
        model = started[0] if started else build(PairVocabulary.build(utterances, config.vocabulary), config.sizes)
        vectors = None if started else _read_vectors(config, model)
        rules, judged, attack = _against(config, name, corpus, splits["train"][0], model.to(config.device))
        return MatcherTraining(config, model, corpus, name, splits, replies, rules, judged, attack, vectors)

    def work(self, run: RunFolder, prepared: MatcherTraining, reporter: Reporter) -> Summary:
        from parley.engine.perturb.lexicon.built_in import ANNOUNCEMENT
        from parley.policies.ranking.matching.fit import MatcherFit, MatcherRanker, format_of

        config, model, train = prepared.config, prepared.model, prepared.splits["train"]
        left_out = not_read_in(prepared.splits.values(), config.candidates.turns, config.kind.upper(), MatcherRanker(model))
        if note := unread_note(left_out):
            reporter.say(note)
        if (prepared.rules or prepared.attack) and lexicon_of(prepared.corpus_name, config.lexicon) == "built-in":
            reporter.say(ANNOUNCEMENT)
        state = run.path / STATE
        with threads(config.threads):
            size = config.search.pool
            search = PoolSearch(prepared.attack, train, size, config.seed, run, reporter) if prepared.attack else None
            held: dict[str, Sequence[CandidateGroup]] = {split: list(prepared.splits[name]) for split, name in SPLITS.items()}
            if prepared.rules or search:
                held |= {f"{split}{ATTACKED}": _attacked(run, prepared, split, search, reporter) for split in SPLITS}
            before = _figures(prepared, held) if config.start else {}
            recipe = replace(config.fit, patience=config.fit.max_epochs) if config.start else config.fit
            replies, again = prepared.replies, math.ceil(config.adversary_share) - 1
            pool = drawn_pool(train, config.adversary_share - again, config.seed) if prepared.rules else frozenset()
            if prepared.rules:
                num = f"{again * len(train) + len(pool):,} adversaries of" if again else f"{len(pool):,} of"
                reporter.say(f"rules and policies change {num} {len(train):,} training contexts (--adversary-share)")
            adversaries: Callable[[Sequence[CandidateGroup]], list[CandidateGroup]] = list
            if prepared.rules:
                drawn: dict[str, Any] = {"fixed": not prepared.replies, "weights": config.weights, "again": again}
                adversaries = Adversaries(prepared.rules, config.seed, pool, **drawn)
            fit = MatcherFit(
                model,
                train,
                [*held["validation"], *held.get(f"validation{ATTACKED}", ())],
                recipe,
                config.seed,
                state,
                fresh=not config.start,
                wrong=None
                if replies is None
                else lambda groups, seed: [*map(train.utterance_of, replies.fresh(groups, seed).tolist())],
                rewrite=adversaries if search is None else lambda groups: search(adversaries(groups)),
                begin=None if search is None else search.begin,
                # A training that goes on has its vectors.
                vectors=None if config.start or state.exists() else _vectors(prepared, reporter),
            )
            run_fit(fit, run, reporter, say=str)
            after = _figures(prepared, held)
            if search is not None:
                test = prepared.splits["test"]
                before[PROMOTED], after[PROMOTED] = (promoted(test, search.in_split(test, when)) for when in (START, END))
        metrics = after | {name + BEFORE: figure for name, figure in before.items()}
        how = {"epochs": len(fit.history), "precision": fit.precision, "pool": max(len(pool), search.size if search else 0)}
        about = _provenance(prepared) | how | {name: after[f"{name}_{FIRST}"].value for name in SPLITS}
        format_of(model.sizes).save(model, run.path / CHECKPOINT, about)
        return _summary(prepared, {name: metrics[name] for name in MATCHING if name in metrics}, left_out)

    def models(self, config: TrainMatcherConfig) -> Mapping[str, str]:
        rules = training_names(config.against) if config.against else ()
        files = {f"rule {name}": name.removeprefix(POLICY) for name in rules if ".py:" in name or name.startswith(POLICY)}
        return {"start": config.start} | files

    def next_commands(self, config: TrainMatcherConfig, path: Path) -> tuple[str, ...]:
        corpus, run, stored = config.corpus or DEFAULT_CORPUS, display_path(path), path / CHECKPOINT
        if config.start and not config.corpus and stored.is_dir():
            corpus = str(read_header(stored, config.kind)["provenance"]["corpus"])
        same = ("lexicon", "candidates", "replies", "data_root")
        common: dict[str, Any] = {"corpus": corpus} | {name: getattr(config, name) for name in same}
        evaluation = RankingConfig(**common)
        ranking = partial(command_line, ("evaluate", "ranking"), {"": RankingConfig}, run=None)
        searching = partial(command_line, ("attack", "ranking"), {"": RankingAttackConfig}, run=None)
        if config.start:
            # Attacks show the effect of further training alone.
            names = [name for name in listed_names(config.against) if not name.startswith(POLICY)]
            rules = ",".join(name for name in names if name not in (SEARCH, NOTHING)) or "all"
            both = f"{config.start},{run}"
            # A model that learned "words of the context are wrong" errs on hard negatives, which share words with the context.
            hard = replace(evaluation, model=both, rules="none", candidates=replace(config.candidates, negatives="hard"))
            return (
                ranking(replace(evaluation, model=both, rules=rules)),
                searching(RankingAttackConfig(model=both, **common)),
                ranking(hard),
            )
        harden = replace(config, start=run, against="iiw")
        hardened = self.command(harden, path.with_name(f"{path.name}-iiw"))
        return ranking(replace(evaluation, model=run)), searching(RankingAttackConfig(model=run, **common)), hardened


def _started(config: TrainMatcherConfig) -> tuple[Matcher, str]:
    """Load the model of --start, and return it with the name of its corpus."""
    from parley.policies.ranking.matching.fit import format_of, load_matcher

    folder = require_checkpoint(config.start, "--start", "parley train matcher")
    model = load_matcher(folder).model
    form = format_of(model.sizes)
    if form.kind != config.kind:
        fix = f"parley train matcher {form.kind} --start {config.start} --against {config.against}"
        raise ConfigError("the recipe is for another network than --start holds", got=f"{config.kind} for {form.kind}", fix=fix)
    corpus = config.corpus or form.provenance(folder).get("corpus")
    if not isinstance(corpus, str):
        raise ConfigError("the checkpoint does not say which corpus it was fitted to", where=config.start, fix="--corpus NAME")
    return model, corpus


def _read_vectors(config: TrainMatcherConfig, model: Matcher) -> np.ndarray | None:
    """Read word vectors from a file; None if the setting names no file."""
    from parley.policies.ranking.matching.matcher import read_vectors

    if config.vectors in (NO_VECTORS, SKIP_GRAM):
        return None
    path = Path(config.vectors).expanduser()
    if not path.is_file():
        near = nearest(config.vectors, [NO_VECTORS, SKIP_GRAM])
        fix = f"{NO_VECTORS}, {SKIP_GRAM}, or a text file with a word and its numbers a line"
        raise ConfigError(f"--vectors names no file{near}", got=repr(config.vectors), fix=fix)
    read = read_vectors(path, model.vocabulary, model.sizes.embed, config.seed)
    if not read.num_found:
        fix = "name vectors of the language of the corpus"
        raise DataError("the file has a vector of none of the words of the corpus", where=path, fix=fix)
    return read.vectors_VE


def _vectors(prepared: MatcherTraining, reporter: Reporter) -> np.ndarray | None:
    """Return the word vectors of a new training; None if they are drawn."""
    from parley.policies.ranking.matching.matcher import skip_gram

    config, model = prepared.config, prepared.model
    if config.vectors != SKIP_GRAM:
        return prepared.vectors
    utterances = utterances_of(prepared.splits["train"])
    reporter.say(f"word vectors by skip-gram on {len(utterances):,} utterances of the training split")
    return skip_gram(utterances, model.vocabulary, model.sizes.embed, config.seed)


def _against(
    config: TrainMatcherConfig, name: str, corpus: CandidateCorpus, group: CandidateGroup, model: Matcher
) -> tuple[list[Rule], list[Rule], RankAttack | None]:
    """Build the rules of a training, those of its held-out splits, and its search; try each once."""
    if config.against in ("", NOTHING):
        return [], [], None
    shared = shared_resources(name, lexicon_of(name, config.lexicon), data_root(config.data_root))
    resources = RuleResources(config.replies, shared, corpus.language, {"training": Contexts(corpus.splits["train"])})
    with lexicon_setting():
        names = training_names(config.against)
        rules, judged = (training_rules(chosen, resources, group) for chosen in (names, evaluated_names(names)))
        if not is_searched(config.against):
            return rules, judged, None
        search = composed_search(model, resources.language, config.search, corpus.splits["train"], config.seed)
        return rules, judged, search


def _attacked(
    run: RunFolder, prepared: MatcherTraining, name: str, search: PoolSearch | None, reporter: Reporter
) -> list[CandidateGroup]:
    """Change the groups of a split as evaluations do, and log the contexts that rules leave unchanged."""
    split, rules = prepared.splits[SPLITS[name]], prepared.judged
    results = {} if search is None else search.in_split(split, START)
    groups = list(split) if search is None else search.drawn(split)
    adversaries = Adversaries(rules, prepared.config.seed)
    attacked = adversaries(groups)
    if rules:
        run.event(ATTACKED_SPLIT, split=name, contexts=len(groups), untouched=adversaries.untouched)
        counts = ", ".join(f"{rule} {num:,}" for rule, num in adversaries.untouched.items())
        reporter.say(f"{name} split: of {len(groups):,} contexts, rules leave as they are: {counts}")
    return with_wrong_replies(attacked, results)


def _figures(prepared: MatcherTraining, held: Mapping[str, Sequence[CandidateGroup]]) -> dict[str, Estimate]:
    """Compute the metrics of the legend for the current model."""
    from parley.policies.ranking.matching.fit import MatcherRanker, pair_losses

    metrics: dict[str, Estimate] = {}
    for split, groups in held.items():
        scores = MatcherRanker(prepared.model).score_all([(group.context, group.candidates) for group in groups])
        sizes = [len(group.candidates) for group in groups]
        labels = np.concatenate([group.labels for group in groups])
        values, keys = np.concatenate(scores), np.repeat(np.arange(len(groups)), sizes)
        name, _, attacked = split.partition("_")
        whole = prepared.splits[SPLITS[name]]
        units = {whole.key(row): unit for row, unit in enumerate(units_of(whole).tolist())}
        clusters = np.array([units[group.key] for group in groups])
        measured = estimates(group_metrics(keys, values, labels), clusters)
        wanted = RANKS if split == "test" else (FIRST,)
        suffix = f"_{attacked}" if attacked else ""
        metrics |= {f"{name}_{metric}{suffix}": measured[metric] for metric in wanted}
        if not attacked:
            metrics[f"{name}_loss"] = mean_count(pair_losses(values, labels), np.repeat(clusters, sizes))
    return metrics


def _provenance(prepared: MatcherTraining) -> dict[str, Any]:
    config = prepared.config
    against = [evaluated_name(rule) for rule in prepared.rules] + [SEARCH] * (prepared.attack is not None)
    role = "supervised" if not config.start else ADVERSARIAL if against else CONTROL
    begun = {"base": config.start, "against": against}
    return {
        "role": role,
        **(begun if config.start else {"vectors": config.vectors}),
        "corpus": prepared.corpus_name,
        "corpus_key": prepared.corpus.digest,
        "candidates": asdict(config.candidates),
        "limit": config.limit,
        "held_out": config.held_out,
        "seed": config.seed,
        "vocabulary": len(prepared.model.vocabulary),
    }


def _summary(prepared: MatcherTraining, metrics: Mapping[str, Estimate], left_out: Mapping[str, Any]) -> Summary:
    config, counted = prepared.config, prepared.model.count()
    what = f"{config.kind.upper()} on {prepared.corpus.name}"
    if config.start:
        what = f"{config.start}, trained {'on clean replies' if config.against == NOTHING else f'against {config.against}'}"
    size = f"{counted.total:,} parameters, {counted.without_words:,} without word vectors, seed {config.seed}."
    about = f"{len(prepared.splits['train']):,} training contexts, {len(prepared.model.vocabulary):,} words, {size}"
    description = f"{about} {unread_note(left_out)}".rstrip()
    return Summary(what, description, metrics, {"parameters": counted._asdict(), **left_out})


TRAIN_MATCHER = TrainMatcher()
