"""Hardening of Hugging Face encoders that rank: `parley train hardened-ranker`.

A bi-encoder or cross-encoder goes on from its weights (`policies/ranking/encoder_fit.py`). In each epoch one of `--against`
attacks a share of the training contexts: a strategy changes the question, or a rule the replies (`prepared.py`). The control
makes as many steps on the same contexts as they are. Both are folders that sentence-transformers and transformers read.

Before, after and control are then measured on held-out contexts by two runs in this one: `ranking` (`parley evaluate ranking`)
under the strategies and rules, and `attack` (`parley attack ranking`), a fresh search at each of them, from which nothing was
learned. For a bi-encoder `pool` is a third: all right replies of the corpus are candidates, if they are not too many.

  * Of a strategy the same questions are measured with as many random words, too: a model that is robust to anything has learned
    less about typos than one that still needs its words.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric, count
from parley.engine.core.tables.table import STAR_NOTE, Column, EstimateTable, TableRow, metric_table
from parley.engine.core.verbs.checkpoints import require_device, threads
from parley.engine.core.verbs.composite import Stage, run_stages, warnings_of_stages
from parley.engine.core.verbs.job import Job, Reporter, Result, Summary
from parley.engine.core.verbs.supervised import EPOCHS, RESUME_SAFE, STATE, SupervisedConfig, run_fit
from parley.engine.perturb.replies.catalogue import build_rules, rule_names
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.perturb.replies.shapes import Rule, RuleResources
from parley.engine.perturb.strategy import RANDOM_WORDS
from parley.engine.ranking.metrics.campaign import UnderAttack
from parley.engine.ranking.metrics.ranking import CLEAN, RankedRows, first_place, only
from parley.engine.ranking.metrics.ranks import compared
from parley.engine.ranking.metrics.searched import BASELINE
from parley.engine.ranking.verbs.attack import ATTACK_RANKING
from parley.engine.ranking.verbs.config import (
    DEFAULT_CORPUS,
    MOST_SCORES,
    Contexts,
    RankingAttackConfig,
    RankingConfig,
    lexicon_of,
    lexicon_setting,
    shared_resources,
    training_splits,
)
from parley.engine.ranking.verbs.prepared import NOTHING as NO_RULES
from parley.engine.ranking.verbs.prepared import RANKERS, evaluated_names, with_adversaries
from parley.engine.ranking.verbs.ranking import EVALUATE_RANKING
from parley.envs.core.config import NumItems, NumItemsOrAll, PositiveShare
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.core.storage.copies import CHECKPOINT, fetched_model
from parley.envs.core.storage.uris import HUGGING_FACE, display_path
from parley.envs.corpora.arrow import data_root
from parley.envs.ranking.compiled import CandidateCorpus, load_candidates
from parley.envs.ranking.groups import CandidateGroup, CandidateOptions, CandidateSplit
from parley.policies.chat.settings import LoraSettings
from parley.policies.core.responder import model_inside
from parley.policies.ranking.matching.settings import EncoderFitConfig
from parley.policies.ranking.rankers import is_chat_ranker

if TYPE_CHECKING:
    from parley.policies.ranking.encoders import BiEncoder, CrossEncoder

CONTROL, RANKING, POOL, ATTACK = "control", "ranking", "pool", "attack"
"""Folders of a run: the control, and the runs that measure."""
_FEWEST = 8
"""Training contexts at least."""
_TRAINING = {"iiw": "iiw-training"}


@dataclass(frozen=True, kw_only=True)
class TrainHardenedRankerConfig(SupervisedConfig):
    """The encoder, its pairs, the attacks that it is trained against, and how it is measured."""

    model: str = ""
    """Bi-encoder or cross-encoder to begin with: hf:FOLDER, or hf:RUN of an earlier hardening."""
    corpus: str = DEFAULT_CORPUS
    """Corpus of candidates or of pairs: a name, a file (CSV, TSV, JSON, Parquet) or folder, or path/file.py:NAME."""
    against: str = "questions,iiw"
    """Separated by commas: strategies on the question by name, such as character-noise, or questions (four of them); rules on
    replies, such as iiw, or all (seven); path/file.py:Name."""
    adversary_share: PositiveShare = 0.5
    """Share of the training contexts that one of them attacks in an epoch, drawn anew in each."""
    method: Literal["lora", "full"] = "lora"
    """Weights to train: low-rank adapters, which are added to the weights in the end (extra lora), or all weights."""
    held_out: NumItemsOrAll = 300
    """At most so many contexts of the validation split choose the epoch, and of the test split are measured; 0 for all."""
    attacked: NumItemsOrAll = 100
    """At most so many contexts of the test split are attacked by the search; 0 for all."""
    budget: NumItems = 50
    """Queries of that search at most for a context; a query is one reply scored in its context."""
    workers: int = 0
    """Ray worker actors of the runs that measure; 0 measures in this process."""
    lexicon: Literal["", "nltk", "built-in"] = ""
    """Tags and synonyms: NLTK's data, or a small lexicon written for this project; when empty the latter for the built-in
    help desk alone."""
    candidates: CandidateOptions = field(default_factory=CandidateOptions)
    """The construction of candidate groups; candidates.train_size sets the given wrong replies of a training context."""
    replies: ReplySettings = field(default_factory=ReplySettings)
    """Settings of the rules on replies."""
    lora: LoraSettings = field(default_factory=LoraSettings)
    """The adapters."""
    fit: EncoderFitConfig = field(default_factory=EncoderFitConfig)
    """The recipe."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rule_names(self.against, questions=True)

    @property
    def rule_names(self) -> tuple[str, ...]:
        """The rules and strategies one by one, as they are measured."""
        return evaluated_names(rule_names(self.against, questions=True))


def lora() -> TrainHardenedRankerConfig:
    """Train low-rank adapters, two epochs."""
    return TrainHardenedRankerConfig()


def full() -> TrainHardenedRankerConfig:
    """Train all weights, two epochs at a smaller rate."""
    return TrainHardenedRankerConfig(method="full", fit=EncoderFitConfig(learning_rate=2e-5))


@dataclass(frozen=True)
class EncoderTraining:
    """The checked parts of a training.

    Args:
        config: of the training, its data root found.
        source: folder of the model that it begins with.
        corpus: its candidates.
        splits: its groups: train, val, test.
        rules: rules and strategies in their variants for training.
        is_bi: whether the model is a bi-encoder.
    """

    config: TrainHardenedRankerConfig
    source: Path
    corpus: CandidateCorpus
    splits: Mapping[str, CandidateSplit]
    rules: Sequence[Rule]
    is_bi: bool


class AttackedGroups:
    """The attacked groups of a training: a share of each epoch, each by one rule or strategy.

    Args:
        rules: to draw from.
        share: of the groups.
        seed: master seed.
    """

    def __init__(self, rules: Sequence[Rule], share: float, seed: int) -> None:
        self._rules, self._share, self._seed = rules, share, seed

    def of_epoch(self, number: int) -> Callable[[Sequence[CandidateGroup]], list[CandidateGroup]]:
        """Return the function that attacks groups in an epoch; a result depends on group and epoch alone."""
        return partial(self._attacked, number)

    def _attacked(self, number: int, groups: Sequence[CandidateGroup]) -> list[CandidateGroup]:
        result, met = list(groups), dict[int, list[int]]()
        for index, group in enumerate(groups):
            draws = stream(self._seed, "attacked", number, group.key)
            if draws.random() < self._share:
                met.setdefault(int(draws.integers(len(self._rules))), []).append(index)
        for chosen, indices in met.items():
            rule, some = self._rules[chosen], [groups[index] for index in indices]
            seeds = [derive_seed(self._seed, "attack", number, rule.name, group.key) for group in some]
            for index, group, attacked in zip(indices, some, rule.apply(some, seeds), strict=True):
                result[index] = with_adversaries(group, [(rule, attacked)])
        return result


SEARCHED = "fresh search"
"""The measure of a search at each ranker itself."""
_LESS = {"gain": "before", "beyond": "control"}
"""Differences of the result by their endings, and the ranker that is taken off."""
_TITLES = {
    "before": ", before",
    "": "",
    "control": ", control",
    "gain": ", after less before",
    "beyond": ", after less control",
}


def metric_name(measure: str, ending: str) -> str:
    """Return the name of a figure: of the result, or with an ending of `_TITLES`."""
    return f"{measure}.{ending}" if ending else measure


class TrainHardenedRanker(Job[TrainHardenedRankerConfig, EncoderTraining, Summary]):
    """`parley train hardened-ranker`."""

    words = ("train", "hardened-ranker")
    run_name = "hardened-ranker"
    config = TrainHardenedRankerConfig
    presets = {"lora": lora, "full": full}
    files = (CHECKPOINT, SUMMARY)
    resume_safe = (*RESUME_SAFE, "workers")
    steps = EPOCHS

    def prepare(self, config: TrainHardenedRankerConfig, path: Path, reporter: Reporter) -> EncoderTraining:
        from parley.policies.ranking.encoders import BiEncoder

        require_device(config.device, "--device")
        source = _source(config.model)
        if config.method == "lora":
            from parley.policies.chat.predictor import require_peft

            require_peft()
        config = replace(config, data_root=data_root(config.data_root))
        corpus = load_candidates(config.corpus, config.data_root, options=config.candidates)
        splits = training_splits(config, config.corpus, corpus, right=True)
        splits["train"] = _with_both(splits["train"])
        if len(splits["train"]) < _FEWEST:
            what = f"{_FEWEST} training contexts or more with right and wrong replies are needed"
            fix = "give more pairs, or a larger share to train (FILE#shares=80:10:10)"
            raise DataError(what, where=config.corpus, got=f"{len(splits['train'])}", fix=fix)
        ranker = _load(config, source)
        is_bi = isinstance(ranker, BiEncoder)
        if is_bi and config.fit.loss == "cross-entropy":
            what = "a bi-encoder has no log-odds of a pair, which cross-entropy needs"
            raise ConfigError(what, where="fit.loss", got=config.fit.loss, fix="leave fit.loss out, it is contrastive")
        shared = shared_resources(config.corpus, lexicon_of(config.corpus, config.lexicon), config.data_root)
        resources = RuleResources(config.replies, shared, corpus.language, {"training": Contexts(corpus.splits["train"])})
        names = [_TRAINING.get(name, name) for name in config.rule_names]
        with lexicon_setting():
            # A strategy's control measures, it teaches nothing.
            rules = [rule for rule in build_rules(names, resources) if not rule.name.endswith(RANDOM_WORDS)]
            for rule in rules:
                rule.apply([splits["train"][0]], [0])
        return EncoderTraining(config, source, corpus, splits, rules, is_bi)

    def work(self, run: RunFolder, prepared: EncoderTraining, reporter: Reporter) -> Summary:
        config = prepared.config
        attacked = AttackedGroups(prepared.rules, config.adversary_share, config.seed)
        with threads(config.threads):
            _train(run, prepared, attacked.of_epoch, CHECKPOINT, STATE, "epoch", reporter)
            _train(run, prepared, lambda epoch: list, CONTROL, f"{CONTROL}-{STATE}", f"{CONTROL} epoch", reporter)
        run_stages(_stages(prepared, run.path), run.path, reporter)
        return Summary(
            f"{config.model} on {config.corpus}, hardened against {config.against}",
            f"{config.method}, {len(prepared.splits['train']):,} training contexts, {config.adversary_share:.0%} attacked in "
            f"each epoch ({config.fit.max_epochs} at most), seed {config.seed}; the control as long on contexts as they are.",
            dict(_measured(prepared, run.path)),
        )

    def models(self, config: TrainHardenedRankerConfig) -> Mapping[str, str]:
        files = {f"rule {name}": name for name in config.rule_names if ".py:" in name}
        return {"model": config.model.removeprefix(HUGGING_FACE)} | files

    def metrics_of(self, config: TrainHardenedRankerConfig) -> None:
        """Return None, because only a run can tell which rules suit."""

    def result(self, config: TrainHardenedRankerConfig, path: Path) -> Result:
        result = super().result(config, path)
        return replace(result, warnings=[*result.warnings, *warnings_of_stages(path, result.chat_usage)])

    def next_commands(self, config: TrainHardenedRankerConfig, path: Path) -> tuple[str, ...]:
        stages = [name for name in (RANKING, POOL, ATTACK) if (path / name).is_dir()]
        pages = [shlex.join(["parley", "report", display_path(path / name)]) for name in stages]
        return (*super().next_commands(config, path), *pages)

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        metrics = run.metrics()
        return {"": hardening_table(metrics)} if metrics else {}

    def present(self, result: Result, run: RunFolder) -> Result:
        return replace(result, legend={name: describe_hardening(name) for name in result.metrics}, tables=self.tables(run))


def _source(model: str) -> Path:
    """Return the folder of the model."""
    if not model.startswith(HUGGING_FACE) or model == HUGGING_FACE:
        fix = f"--model {HUGGING_FACE}FOLDER; parley train matcher --start RUN hardens Parley's own models"
        raise ConfigError("what is hardened is a Hugging Face encoder", where="--model", got=repr(model), fix=fix)
    if is_chat_ranker(model):
        fix = "parley train hardened hardens causal models; name a bi-encoder or a cross-encoder"
        raise ConfigError("a causal model is no encoder", where="--model", got=model, fix=fix)
    return model_inside(fetched_model(model.removeprefix(HUGGING_FACE)))


def _load(config: TrainHardenedRankerConfig, source: Path) -> BiEncoder | CrossEncoder:
    from parley.policies.ranking.encoders import load_hugging_face_ranker

    return load_hugging_face_ranker(source, config.device)


def _with_both(split: CandidateSplit) -> CandidateSplit:
    group = np.repeat(np.arange(len(split)), split.candidates.lengths)
    has_wrong = np.bincount(group[~split.labels], minlength=len(split)) > 0
    return split if has_wrong.all() else split.chosen(np.flatnonzero(has_wrong))


def _train(
    run: RunFolder,
    prepared: EncoderTraining,
    attacked: Callable[[int], Callable[[Sequence[CandidateGroup]], list[CandidateGroup]]],
    folder: str,
    state: str,
    kind: str,
    reporter: Reporter,
) -> None:
    """Train the model, or its control, and store it, unless it is stored already.

    Args:
        run: the run.
        prepared: its parts.
        attacked: changes groups in an epoch, by its number.
        folder: of the stored model in the run.
        state: file of the training in the run.
        kind: of the events.
        reporter: shows progress.
    """
    from parley.policies.ranking.encoder_fit import EncoderFit, EncoderLearner

    config = prepared.config
    if (run.path / folder).is_dir():
        return
    learner = EncoderLearner(
        _load(config, prepared.source), config.lora if config.method == "lora" else None, derive_seed(config.seed, "adapters")
    )
    validation = list(_with_both(prepared.splits["val"]))
    # The epoch is chosen on contexts as they are, and as attacks that training does not see leave them.
    if folder != CONTROL:
        validation += AttackedGroups(prepared.rules, 1.0, derive_seed(config.seed, "validation")).of_epoch(0)(validation)
    reporter.say(f"{'control' if folder == CONTROL else 'hardened'}: {len(prepared.splits['train']):,} training contexts")
    fit = EncoderFit(learner, prepared.splits["train"], validation, config.fit, config.seed, run.path / state, attacked)
    run_fit(fit, run, reporter, say=str, kind=kind)
    learner.merge()
    from parley.policies.hugging_face.models import write_aside

    write_aside(run.path / folder, partial(learner.save, prepared.source))
    # The state is several times as large as the model.
    (run.path / state).unlink()


def _stages(prepared: EncoderTraining, path: Path) -> dict[str, Stage]:
    """Return the runs that measure: groups, the pool of a bi-encoder, and a search."""
    config = prepared.config
    names = [config.model, *(f"{HUGGING_FACE}{display_path(path / folder)}" for folder in (CHECKPOINT, CONTROL))]
    same = {
        name: getattr(config, name) for name in ("corpus", "lexicon", "data_root", "seed", "candidates", "replies", "workers")
    }
    gpus = 0.0 if config.device == "cpu" else 1 / max(config.workers, 1)
    common: dict[str, Any] = {"model": ",".join(names), "gpus_per_worker": gpus, **same}
    questions = ",".join(rule.name for rule in prepared.rules if rule.attacks == "context") or NO_RULES
    measured: dict[str, Any] = {"limit": config.held_out, "controls": False, "num_erased": 0}
    stages: dict[str, Stage] = {
        RANKING: (EVALUATE_RANKING, RankingConfig(rules=",".join(config.rule_names), **measured, **common))
    }
    num_replies = sum(len(split.positives()) for split in prepared.corpus.splits.values())
    num_contexts = min(config.held_out or math.inf, len(prepared.splits["test"]))
    if prepared.is_bi and num_replies * num_contexts <= MOST_SCORES:
        stages[POOL] = (EVALUATE_RANKING, RankingConfig(rules=questions, pool=True, **measured, **common))
    attack = RankingAttackConfig(method="greedy", rules=NO_RULES, limit=config.attacked, budget=config.budget, **common)
    return stages | {ATTACK: (ATTACK_RANKING, attack)}


def _measured(prepared: EncoderTraining, path: Path) -> Iterator[tuple[str, Estimate]]:
    """Yield the figures of before, after and control, and their differences in the same contexts."""
    for stage, begins in ((RANKING, ""), (POOL, f"{POOL}, ")):
        if not (path / stage).is_dir():
            continue
        run = RunFolder.load(path / stage)
        labels = dict(zip(("before", "", "control"), (run.summary() or {})[RANKERS], strict=True))
        ranked = RankedRows(run.rows())
        at_first = first_place(ranked.several)
        for rule in (CLEAN, *(rule for rule, keeps in ranked.rules.items() if keeps)):
            of = {name: only(ranked.measured(label, rule), at_first) for name, label in labels.items()}
            for name, label in labels.items():
                yield metric_name(f"{begins}{rule}", name), run.metrics()[f"{at_first}.{label}.{rule}"]
            for ending, other in _LESS.items():
                test = compared(of[""], of[other], ranked.clusters)[at_first]
                yield metric_name(f"{begins}{rule}", ending), test.difference
                yield metric_name(f"{begins}{rule}", f"{ending}_p"), count(test.p_value, test.difference.n)
    run = RunFolder.load(path / ATTACK)
    rows, rankers = run.rows(), list((run.summary() or {})[RANKERS])
    under = {
        name: UnderAttack(
            [row | {"searches": [search for search in row["searches"] if search["model"] == label]} for row in rows],
            ["greedy", BASELINE],
        )
        for name, label in zip(("before", "", "control"), rankers, strict=True)
    }
    for name, of_ranker in under.items():
        yield metric_name(SEARCHED, name), of_ranker.held()
    for ending, other in _LESS.items():
        yield metric_name(SEARCHED, ending), under[""].more_than(under[other])


def describe_hardening(name: str) -> Metric:
    """Return the title and the definition of a metric."""
    measure, _, ending = name.partition(".")
    what = "contexts whose right reply is first"
    if ending.endswith("_p"):
        return Metric(f"{measure}{_TITLES[ending.removesuffix('_p')]}, p", "", "paired bootstrap over dialogues, two-sided")
    if measure == SEARCHED:
        what += " under the greedy search and random edits, at the model itself"
    elif measure.removeprefix(f"{POOL}, ") != CLEAN:
        what += f" of those that {measure.removeprefix(f'{POOL}, ')} changed"
    what += ", among all right replies of the corpus" if measure.startswith(POOL) else ""
    title = f"{measure}{_TITLES[ending]}"
    return Metric(title, "higher: better", what, "number" if ending in _LESS else "rate", main=not ending)


def hardening_table(metrics: Mapping[str, Estimate]) -> EstimateTable:
    """Return before, after and control, a row for each measure."""
    measures = [name for name in metrics if "." not in name]
    columns = [
        Column("before", "{measure}.before"),
        Column("after", "{measure}"),
        Column("control", "{measure}.control"),
        Column("after less before", "{measure}.gain", p_value="{measure}.gain_p"),
        Column("after less control", "{measure}.beyond", p_value="{measure}.beyond_p"),
    ]
    size = max((metrics[name].n for name in measures), default=NOTHING.n)
    note = (
        "Share of held-out contexts whose right reply is first: as they are, of those that a strategy or rule changed, and "
        "under a fresh search at each ranker itself. Random words: as many as the strategy changed. Pool: among all right "
        "replies of the corpus. Control: as many steps on contexts as they are. Differences are of the same contexts. "
        "Brackets: 95 % intervals, "
        f"contexts of a dialogue drawn together; n: dialogues, {size:,} at most.{STAR_NOTE}"
    )
    rows = [TableRow(name.replace(RANDOM_WORDS, ", random words"), {"measure": name}) for name in measures]
    return metric_table(metrics, "measured", rows, columns, note, n="{measure}")


TRAIN_HARDENED_RANKER = TrainHardenedRanker()
