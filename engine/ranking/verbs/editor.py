"""Training of editing policies against a frozen ranker: `parley train editor` (RLlib).

The policy learns on the training split, and is measured on the test split beside itself as it began and beside random edits at
as many replacements. Edits are those of IIW (Li et al. 2019, section 3.1): words of the context replace words with their tag in
the wrong reply that the ranker likes best. The reply stays wrong, and the goal is to rank it first.

The module loads without torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Estimate, clustered_rate, count, mean_count, rate_difference
from parley.engine.core.verbs.checkpoints import require_checkpoint, threads
from parley.engine.core.verbs.job import Reporter, Summary, command_line, drawn
from parley.engine.core.verbs.sharded import session
from parley.engine.core.verbs.supervised import ChoiceJob
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.perturb.replies.shapes import RuleResources
from parley.engine.ranking.metrics.ranks import EDITING, EDITS, GAIN, QUERIES, RANDOM, SUCCESS, TRIED, UNTRAINED, units_of
from parley.engine.ranking.verbs.config import (
    DEFAULT_CORPUS,
    Contexts,
    RankingAttackConfig,
    group_seed,
    lexicon_of,
    lexicon_setting,
    shared_resources,
    stored_name,
)
from parley.engine.ranking.verbs.prepared import not_read_in, unread_note
from parley.envs.core.config import Configuration, NonNegativeInt, NumItemsOrAll, PositiveInt
from parley.envs.core.errors import DataError, RankerError
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.arrow import data_root
from parley.envs.ranking.compiled import load_candidates
from parley.envs.ranking.edit_game import EditRules
from parley.envs.ranking.groups import CandidateOptions
from parley.envs.ranking.ranking_env import ResponseRankingEnv
from parley.policies.core.settings import ChoiceLearning, ChoiceSizes

if TYPE_CHECKING:
    from parley.engine.perturb.replies.language import ReplyLanguage
    from parley.engine.ranking.attacks.cases import AttackOutcome
    from parley.envs.ranking.compiled import CandidateCorpus
    from parley.policies.ranking.editor import Editor
    from parley.policies.ranking.ranker import Ranker


@dataclass(frozen=True, kw_only=True)
class TrainEditorConfig(Configuration):
    """The ranker that an editing policy learns to mislead, and the corpus."""

    model: str = "tfidf"
    """The frozen ranker: tfidf, bm25, a run of a matching model, hf:FOLDER, seq2seq:RUN, lm:RUN, or path/file.py:Name."""
    corpus: str = DEFAULT_CORPUS
    """Corpus of candidates or of pairs, as in evaluate ranking."""
    start: str = ""
    """Run or checkpoint of an editing policy to go on from; a new one when empty."""
    limit: NumItemsOrAll = 0
    """At most so many test contexts, the seed's choice of them; 0 for all. Learning takes from the whole training split."""
    lexicon: Literal["", "nltk", "built-in"] = ""
    """Tags: NLTK's data, or a small lexicon written for this project; when empty the latter for the help desk alone."""
    data_root: Path | None = None
    """Where corpora lie; PARLEY_DATA or the user cache folder when not given."""
    seed: NonNegativeInt = 1
    """Master seed."""
    threads: PositiveInt = 1
    """CPU threads that ranker and policy compute with."""
    save_every: PositiveInt = 10
    """Updates between saved training states."""
    candidates: CandidateOptions = field(default_factory=lambda: CandidateOptions(train_size=10))
    """The construction of candidate groups."""
    game: EditRules = field(default_factory=EditRules)
    """Limits of edits."""
    editor: ChoiceSizes = field(default_factory=ChoiceSizes)
    """Widths of a new policy."""
    learning: ChoiceLearning = field(default_factory=ChoiceLearning)
    """The learning rule."""


@dataclass(frozen=True)
class EditWorld:
    """The checked parts of a training of an editing policy.

    Args:
        config: of the training.
        corpus: contexts and candidates.
        ranker: frozen.
        language: tags their words.
        editor: the policy as it begins.
    """

    config: TrainEditorConfig
    corpus: CandidateCorpus
    ranker: Ranker
    language: ReplyLanguage
    editor: Editor

    def env(self) -> ResponseRankingEnv:
        """Make the environment of the training split."""
        from parley.engine.ranking.attacks.editing import ContextProposer
        from parley.policies.ranking.ranker import compared_scores

        return ResponseRankingEnv(
            list(self.corpus.splits["train"]),
            partial(compared_scores, self.ranker),
            ContextProposer(self.language),
            self.editor.sight(),
            rules=self.config.game,
        )

    @property
    def units(self) -> dict[str, int]:
        """The units of the test contexts, by key."""
        split = self.corpus.splits["test"]
        return {split.key(row): unit for row, unit in enumerate(units_of(split).tolist())}

    def attack(self, editor: Editor | None) -> list[AttackOutcome]:
        """Attack the test contexts with a policy, or with random edits if it is None.

        Raises:
            RankerError: the ranker gave no scores.
        """
        from parley.engine.ranking.attacks.attack import RankAttack
        from parley.engine.ranking.attacks.catalogue import UNLIMITED
        from parley.engine.ranking.attacks.editing import EditorSteps

        config = self.config
        split = self.corpus.splits["test"]
        groups = [split[row] for row in drawn(range(len(split)), config.limit, config.seed, self.corpus.name)]
        method = EditorSteps(editor, config.game)
        attack = RankAttack(self.ranker, self.language, method=method, edits=config.game.edits, budget=UNLIMITED)
        outcomes = attack.run(groups, [group_seed(config.seed, group.key) for group in groups])
        if failed := [outcome for outcome in outcomes if outcome.status == "error"]:
            raise RankerError("the ranker gave no scores", where=failed[0].key, got=failed[0].reason)
        return outcomes


def opened_world(config: TrainEditorConfig) -> EditWorld:
    """Load the corpus, ranker, language and policy of a training.

    Raises:
        ConfigError: no ranker or corpus is called so.
        CheckpointError: a checkpoint is not there, or damaged.
        DataError: a corpus or lexicon cannot be read, or a split has no group.
    """
    from parley.policies.ranking.editor import load_editor, new_editor
    from parley.policies.ranking.rankers import load_ranker

    corpus = load_candidates(config.corpus, config.data_root, options=config.candidates)
    for name in ("train", "test"):
        if not len(corpus.splits[name]):
            raise DataError(f"the {name} split has no context", where=config.corpus, fix="name another --corpus")
    contexts = Contexts(corpus.splits["train"])
    ranker = load_ranker(config.model, contexts)
    shared = shared_resources(config.corpus, lexicon_of(config.corpus, config.lexicon), data_root(config.data_root))
    with lexicon_setting():
        language = RuleResources(ReplySettings(), shared, corpus.language).language
        language.tag_all([corpus.splits["train"][0].context[0]])
    if config.start:
        editor = load_editor(require_checkpoint(config.start, "--start", "parley train editor"))
    else:
        editor = new_editor(contexts, config.editor, config.seed)
    return EditWorld(config, corpus, ranker, language, editor)


def training_env(config: TrainEditorConfig) -> ResponseRankingEnv:
    """Make the environment of a configuration; each runner makes its own, because rankers are not sent."""
    return opened_world(config).env()


def helpdesk() -> TrainEditorConfig:
    """Train to replace one word, against TF-IDF on the built-in help desk, offline, in under a minute."""
    return TrainEditorConfig(game=EditRules(edits=1), learning=ChoiceLearning(updates=60))


def li2019() -> TrainEditorConfig:
    """Train to replace three words, against TF-IDF on the dialogues of #ubuntu (corpus of Li et al. 2019)."""
    return TrainEditorConfig(corpus="ubuntu_dialogues")


class TrainEditor(ChoiceJob[TrainEditorConfig, EditWorld]):
    """`parley train editor`."""

    words = ("train", "editor")
    run_name = "editor"
    config = TrainEditorConfig
    presets = {"helpdesk": helpdesk, "li2019": li2019}
    legend = EDITING
    title, told = "learning to edit", "success {success:.0%}"

    def prepare(self, config: TrainEditorConfig, path: Path, reporter: Reporter) -> EditWorld:
        world = opened_world(config)
        env = world.env()
        env.reset(seed=config.seed)
        return world

    def work(self, run: RunFolder, prepared: EditWorld, reporter: Reporter) -> Summary:
        """Train and measure the policy, resuming exactly; store it as `checkpoint`.

        Raises:
            DivergenceError: a gradient is not finite.
            RankerError: the ranker gave no scores.
        """
        from parley.engine.perturb.lexicon.built_in import ANNOUNCEMENT
        from parley.engine.ranking.rl import EditorModule, EditorRunner
        from parley.policies.ranking.editor import FORMAT

        config, editor = prepared.config, prepared.editor
        if lexicon_of(config.corpus, config.lexicon) == "built-in":
            reporter.say(ANNOUNCEMENT)
        with threads(config.threads), session(1, ""):
            measured = {UNTRAINED: prepared.attack(editor), RANDOM: prepared.attack(None)}
            save = partial(FORMAT.save, editor, provenance={})
            self.learn(run, config, editor, save, training_env, EditorRunner, EditorModule, reporter)
            measured[SUCCESS] = prepared.attack(editor)
        # Chat models count it from the requests so far.
        splits = (prepared.corpus.splits[name] for name in ("train", "test"))
        left_out = not_read_in(splits, config.candidates.turns, config.model, prepared.ranker)
        if note := unread_note(left_out):
            reporter.say(note)
        metrics = _figures(measured, prepared.units)
        about = {"model": config.model, "corpus": config.corpus, "seed": config.seed}
        game = {"edits": config.game.edits, "num_places": config.game.num_places, "num_proposals": config.game.num_proposals}
        FORMAT.save(editor, run.path / CHECKPOINT, {**about, "game": game, SUCCESS: metrics[SUCCESS].value})
        return Summary(
            f"editing policy against {config.model} on {config.corpus}",
            f"{config.learning.updates} updates of {config.learning.examples_per_update} examples, at most "
            f"{config.game.edits} word{'s' * (config.game.edits > 1)} replaced, seed {config.seed}. {note}".rstrip(),
            metrics,
            left_out,
        )

    def models(self, config: TrainEditorConfig) -> Mapping[str, str]:
        return {"model": stored_name(config.model), "start": config.start}

    def next_commands(self, config: TrainEditorConfig, path: Path) -> tuple[str, ...]:
        run = display_path(path)
        common: dict[str, Any] = {name: getattr(config, name) for name in ("model", "corpus", "lexicon", "data_root")}
        # How many replies a training context has does not concern the attack.
        groups = replace(config.candidates, train_size=CandidateOptions().train_size)
        method = f"greedy,editor:{run}"
        attack = RankingAttackConfig(method=method, edits=config.game.edits, candidates=groups, **common)
        attacked = command_line(("attack", "ranking"), {"": RankingAttackConfig}, attack, run=None)
        further = self.command(replace(config, start=run), path.with_name(f"{path.name}-further"))
        return (*super().next_commands(config, path), attacked, further)


def _figures(measured: Mapping[str, Sequence[AttackOutcome]], units: Mapping[str, int]) -> dict[str, Estimate]:
    """Compute the metrics of the legend; contexts with something to attack are the same for all."""
    tried = {name: [outcome for outcome in outcomes if outcome.was_tried] for name, outcomes in measured.items()}
    reached = {name: np.array([outcome.status == "success" for outcome in of], dtype=float) for name, of in tried.items()}
    policy = tried[SUCCESS]
    clusters = [units[outcome.key] for outcome in policy]
    metrics = {name: clustered_rate(values, clusters) for name, values in reached.items()}
    metrics[GAIN] = rate_difference(reached[SUCCESS], reached[RANDOM], clusters)
    metrics[EDITS] = mean_count([outcome.cost for outcome in policy], clusters)
    metrics[QUERIES] = mean_count([outcome.queries for outcome in policy], clusters)
    metrics[TRIED] = count(len(policy), len(policy))
    return {name: metrics[name] for name in EDITING}


TRAIN_EDITOR = TrainEditor()
