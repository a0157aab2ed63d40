"""What is ranked: the contexts of a corpus that are chosen, rules that are ready, and the training contexts both lean on."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from parley.engine.core.verbs.sample import drawn
from parley.engine.core.verbs.supervised import require_splits
from parley.engine.perturb.replies.catalogue import build_rules
from parley.engine.perturb.replies.resources import RuleResources
from parley.engine.perturb.replies.rule import Rule
from parley.engine.perturb.resources import Resources
from parley.engine.perturb.settings import PerturbSettings
from parley.engine.ranking.metrics.ranking import CLEAN
from parley.engine.ranking.verbs.config import Lexicon, RankersConfig
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.seeds import derive_seed
from parley.envs.corpora.own_files import own_file
from parley.envs.corpora.pairs.corpora import is_path, pair_corpora
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.compiled import CandidateCorpus, load_candidates
from parley.envs.ranking.groups import CandidateGroup, Context
from parley.envs.ranking.split import CandidateSplit

if TYPE_CHECKING:
    from parley.engine.ranking.verbs.matcher_config import TrainMatcherConfig

logger = logging.getLogger(__name__)
_FEW_CONTEXTS = 50
"""Contexts of a file that is shared out below which the shares are said."""
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
    """The contexts of a split, read when they are first asked for.

    Args:
        split: of a corpus.
        limit: how many at most; 0 for all.
    """

    def __init__(self, split: CandidateSplit, limit: int = 0) -> None:
        self._split = split.first(limit)

    def __iter__(self) -> Iterator[Context]:
        return iter(self._found)

    @cached_property
    def _found(self) -> list[Context]:
        said, split = cache(self._split.said), self._split
        return [tuple(map(said, split.contexts[row].tolist())) for row in range(len(split))]


def opened(config: RankersConfig) -> CandidateCorpus:
    """The corpus of an evaluation, its data root found.

    Raises:
        DataError: it cannot be read.
    """
    options = config.candidates
    if config.split == "train":
        # Groups that are ranked have the same size in every split.
        options = replace(options, train_size=options.size)
    return load_candidates(config.corpus, config.data_root, options=options)


def ranked_split(config: RankersConfig, corpus: CandidateCorpus) -> CandidateSplit:
    """The split whose replies are ranked.

    Raises:
        DataError: it has no context.
    """
    split = corpus.splits[config.split]
    if not len(split):
        held = ", ".join(name for name, each in corpus.splits.items() if len(each))
        what = f"the {config.split} split has no context to rank replies to"
        raise DataError(what, where=config.corpus, got=f"contexts in: {held}", fix="name another --split or --corpus")
    return split


def chosen_groups(config: RankersConfig, corpus: CandidateCorpus) -> Mapping[str, RankedGroup]:
    """The contexts that are ranked, by their keys.

    Raises:
        DataError: there is none.
    """
    split = ranked_split(config, corpus)
    if len(split) < _FEW_CONTEXTS and is_path(config.corpus) and (shares := own_file(config.corpus).told_shares):
        whole = sum(map(len, corpus.splits.values()))
        logger.warning("%d of %d contexts are of the %s split: %s", len(split), whole, config.split, shares)
    rows = drawn(range(len(split)), config.limit, config.seed, corpus.name)
    cut = split.is_cut.tolist()
    return {split.key(row): RankedGroup(split[row], int(split.dialogues[row]), is_cut=cut[row]) for row in rows}


def training_splits(config: TrainMatcherConfig, name: str, corpus: CandidateCorpus) -> dict[str, CandidateSplit]:
    """The groups that a training learns from, chooses its epoch by and is measured on.

    Args:
        config: of the training.
        name: what the corpus was asked for by.
        corpus: its candidates.

    Raises:
        DataError: a split is empty, or has no right reply or no wrong one.
    """
    splits = {split: groups.first(config.limit) for split, groups in corpus.splits.items()}
    require_splits(corpus.name, splits)
    with_right = np.unique(splits["train"].positives()[:, 0])
    if config.fit.fresh_negatives and len(with_right) < len(splits["train"]):
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
    """The lexicon of rules, and the corpus that says which words are usual.

    Args:
        corpus: whose replies are changed, by the name that it was asked for by; one of candidates says nothing of words.
        lexicon: that answers.
        root: the data root.
    """
    return Resources(PerturbSettings(lexicon=lexicon), data_root=root, corpus=corpus if corpus in pair_corpora else "")


@contextmanager
def lexicon_setting() -> Iterator[None]:
    """Where rules are tried: the error of a lexicon that is not there names the setting of these jobs."""
    try:
        yield
    except DataError as error:
        fix = (error.fix or "").replace("--set perturb.lexicon=", "--lexicon ")
        raise DataError(error.what, where=error.where, got=error.got, fix=fix) from None


def rule_resources(config: RankersConfig, corpus: CandidateCorpus, limit: int = 0) -> RuleResources:
    """What rules lean on, and attacks: the language, and contexts whose words are counted when they are first asked for.

    Args:
        config: what was asked for.
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
    """The rules that are asked for.

    Raises:
        ConfigError: two of them bear one name, there is none of a name, one does not suit the language or edits contexts.
        DataError: what one of them leans on is not there.
    """
    rules = build_rules(config.rule_names, resources)
    names = [CLEAN, *(rule.name for rule in rules)]
    if len(set(names)) < len(names):
        what = f"two rules bear one name, or one is called {CLEAN!r}"
        raise ConfigError(what, got=", ".join(names[1:]), fix="rename yours, or name one of them")
    for rule in rules:
        if rule.attacks == "context":
            fix = "parley evaluate robustness asks models about changed contexts"
            raise ConfigError("a rule edits contexts, and here candidates alone are changed", where=rule.name, fix=fix)
    return rules


def utterances_of(split: CandidateSplit) -> list[Utterance]:
    """The distinct turns and replies of a split, each once."""
    used = np.unique(np.concatenate([split.contexts.values, split.candidates.values]))
    return [split.said(row) for row in used.tolist()]


def group_seed(seed: int, key: str) -> int:
    """The seed of a context, by the master seed and its key."""
    return derive_seed(seed, "ranking", key)


def rule_seed(seed: int, rule: str, key: str) -> int:
    """The seed of what a rule does to a group, by the master seed, the rule's name and the group's key."""
    return derive_seed(seed, "reply rule", rule, key)
