"""The rounds of a hardening of rankers: which runs they are made of, where these lie, and what they are asked for.

Every phase and every measurement is a run of its own below the campaign's folder, resumes by itself, and is skipped once it is
finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from engine.jobs.checkpoints import require_checkpoint
from engine.jobs.composite import Stage
from engine.jobs.retrieval.attack import ATTACK_RANKING
from engine.jobs.retrieval.config import DEFAULT_CORPUS, RankingAttackConfig
from engine.jobs.retrieval.editor import TRAIN_EDITOR
from engine.jobs.retrieval.editor_config import TrainEditorConfig
from engine.jobs.retrieval.matcher import TRAIN_MATCHER
from engine.jobs.retrieval.matcher_config import TrainMatcherConfig
from engine.jobs.retrieval.pool import NOTHING
from engine.retrieval.settings import POLICY as BY_POLICY
from engine.retrieval.settings import AttackDetails
from envs.candidates.edit_game import EditRules
from envs.candidates.options import CandidateOptions
from envs.core.ranges import (
    Configuration,
    NonNegativeFloat,
    NonNegativeInt,
    NumItems,
    NumItemsOrAll,
    PositiveInt,
    PositiveShare,
)
from envs.core.seeds import derive_seed
from envs.storage.places import display_path
from policies.choosing_settings import ChoiceLearning
from policies.matching.settings import MatcherFitConfig, SmnSizes
from policies.stored import stored_kind

START, CONTROL, RESULT = "start", "control", "result"
"""The ranker before any hardening; trained as long on replies as they are; the ranker of the best round."""
SEARCH_METHOD = "greedy"
"""The search that measures."""


@dataclass(frozen=True, kw_only=True)
class HardenRankingConfig(Configuration):
    """Which ranker is hardened, how long, and how it is measured."""

    model: str = ""
    """The ranker at the start, a run or checkpoint of a matching model; when empty an SMN is trained first."""
    corpus: str = DEFAULT_CORPUS
    """Corpus of candidates or of pairs, as in evaluate ranking."""
    rounds: NumItems = 4
    """Rounds at most: the ranker learns from the policies so far, then a fresh one learns to mislead it."""
    patience: PositiveInt = 2
    """Rounds without gain after which the campaign stops."""
    least_gain: NonNegativeFloat = 0.01
    """By how much R@1 under attack, on the validation split, must rise to count as gain; a share of the contexts."""
    limit: NumItemsOrAll = 0
    """At most so many contexts of the validation and of the test split, the seed's choice, in rounds and in trainings, which
    keep their best epoch by them; 0 for all. The training split is never cut."""
    budget: PositiveInt = 100
    """Queries of the search that measures, and of a policy that does."""
    adversary_share: PositiveShare = 0.2
    """Share of the training contexts whose wrong replies policies edit while a ranker learns, drawn at random."""
    control: bool = True
    """Also train the start as long on replies as they are, and measure it as the result."""
    lexicon: Literal["", "nltk", "built-in"] = ""
    """Tags: nltk, or built-in, a small lexicon written for this project; when empty the latter for the help desk alone."""
    data_root: Path | None = None
    """Where corpora lie; PARLEY_DATA or the user cache folder when not given."""
    seed: NonNegativeInt = 1
    """Master seed."""
    threads: PositiveInt = 1
    """CPU threads that rankers and policies compute with."""
    candidates: CandidateOptions = field(default_factory=CandidateOptions)
    """How groups of candidates are made; policies learn on groups of the size of the test split's."""
    game: EditRules = field(default_factory=EditRules)
    """What edits may do."""
    learning: ChoiceLearning = field(default_factory=ChoiceLearning)
    """The learning rule of policies."""
    smn: SmnSizes = field(default_factory=SmnSizes)
    """Sizes of a ranker that is trained first."""
    fit: MatcherFitConfig = field(default_factory=MatcherFitConfig)
    """The recipe of that ranker."""
    hardening: MatcherFitConfig = field(default_factory=MatcherFitConfig)
    """The recipe of a round; all of its epochs are made."""


@dataclass(frozen=True)
class RankingCampaign:
    """The stages of a campaign, and where they lie.

    Args:
        config: what is asked for.
        path: the campaign's folder.
    """

    config: HardenRankingConfig
    path: Path

    def begin(self) -> dict[str, Stage]:
        """The training of the start, where no ranker is named."""
        config = self.config
        return {} if config.model else {START: (TRAIN_MATCHER, self._trained("smn", fit=config.fit, smn=config.smn))}

    def round(self, number: int) -> dict[str, Stage]:
        """A round: the ranker, but for the start; a fresh policy; what this and the search do on the validation split."""
        config, planned = self.config, dict[str, Stage]()
        if number:
            met = ",".join(f"{BY_POLICY}{self.place(self.editor(each))}" for each in range(number))
            goes_on = self._trained(self._kind, fit=config.hardening, seed=derive_seed(config.seed, "round", number))
            planned[f"{number:02d}-ranker"] = TRAIN_MATCHER, replace(goes_on, start=self.ranker(number - 1), against=met)
        # The same seed for all rounds but the start's, which measures result and control too: it has chosen no round.
        seed = derive_seed(config.seed, "policy") if number else config.seed
        planned[self.editor(number)] = TRAIN_EDITOR, self._policy(self.ranker(number), seed)
        editors = [self.editor(each) for each in range(max(number - 1, 0), number + 1)]
        return planned | {self.attack(number): self._attack(self.ranker(number), editors, "val")}

    def last(self, best: int) -> dict[str, Stage]:
        """What start, result and control come to on the test split, the control trained as long as the result.

        Args:
            best: the round that is the result; 0 for the start, whose figures are the result's.
        """
        config = self.config
        planned = {f"{START}-attack": self._attack(self.ranker(0), [self.editor(0)], "test")}
        if best:
            planned |= self._measured(RESULT, self.ranker(best))
        if config.control:
            epochs = max(best, 1) * config.hardening.max_epochs
            longer = replace(config.hardening, max_epochs=epochs, patience=epochs)
            goes_on = self._trained(self._kind, fit=longer, seed=derive_seed(config.seed, "round", 1))
            trained = f"{CONTROL}-ranker"
            planned[trained] = TRAIN_MATCHER, replace(goes_on, start=self.ranker(0), against=NOTHING)
            planned |= self._measured(CONTROL, self.place(trained))
        return planned

    def place(self, stage: str) -> str:
        """The folder of a stage."""
        return display_path(self.path / stage)

    def ranker(self, number: int) -> str:
        """The ranker after a round."""
        return self.place(f"{number:02d}-ranker") if number else self.config.model or self.place(START)

    def editor(self, number: int) -> str:
        """The stage of the policy that learned to mislead the ranker after a round."""
        return f"{number:02d}-editor"

    def attack(self, number: int) -> str:
        """The stage that measures the ranker after a round."""
        return f"{number:02d}-attack"

    @cached_property
    def _kind(self) -> Any:
        model = self.config.model
        return stored_kind(require_checkpoint(model, "--model", "parley train matcher")) if model else "smn"

    def _measured(self, name: str, ranker: str) -> dict[str, Stage]:
        """A fresh policy on a ranker, and what it and the search do on the test split."""
        editor = f"{name}-editor"
        return {
            editor: (TRAIN_EDITOR, self._policy(ranker, self.config.seed)),
            f"{name}-attack": self._attack(ranker, [editor], "test"),
        }

    def _trained(self, kind: Any, **settings: Any) -> TrainMatcherConfig:
        names = ("corpus", "lexicon", "data_root", "seed", "threads", "candidates", "adversary_share")
        same = {name: getattr(self.config, name) for name in names}
        return TrainMatcherConfig(kind=kind, held_out=self.config.limit, **same | settings)

    def _policy(self, ranker: str, seed: int) -> TrainEditorConfig:
        names = ("corpus", "limit", "lexicon", "data_root", "threads", "game", "learning")
        groups = replace(self.config.candidates, train_size=self.config.candidates.size)
        same = {name: getattr(self.config, name) for name in names}
        return TrainEditorConfig(model=ranker, seed=seed, candidates=groups, **same)

    def _attack(self, ranker: str, editors: Sequence[str], split: Literal["val", "test"]) -> Stage:
        """The search and policies, by edits of one kind; which contexts are drawn follows from the seed, one for all."""
        names = ("corpus", "limit", "lexicon", "data_root", "seed", "candidates", "budget")
        settings = RankingAttackConfig(
            model=ranker,
            method=",".join((SEARCH_METHOD, *(f"{BY_POLICY}{self.place(each)}" for each in editors))),
            rules=NOTHING,
            split=split,
            moves="context",
            edits=self.config.game.edits,
            known_words=False,
            attack=AttackDetails(keep_tags=False),
            **{name: getattr(self.config, name) for name in names},
        )
        return ATTACK_RANKING, settings
