"""Hardening of rankers by rounds: `parley minmax ranking`.

A round trains the ranker on the edits of the policies so far (`meta`), each against the ranker that it learned to mislead.
Then it trains a fresh editing policy against the current ranker. That policy, a greedy search and random edits measure the
ranker, with equal edits and queries. The fresh policy is an adversary of the next round. R@1 under attack counts contexts
whose right reply stays first under the search, random edits and every policy trained by then.

Rounds are measured on the validation split. They end when R@1 under attack has stopped rising there, and the ranker of the
best round is the result (`checkpoint`), of those that still rank replies as they are. Start and result are measured once more
on the test split, by the policies of all rounds and by fresh ones that chose no round. A control, the start trained as long on
unchanged replies, shows how much of the gain is due to adversaries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import KnownAdversaries
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.verbs.campaign import CONTROL, RESULT, START, CampaignAdapter, CampaignConfig, CampaignJob
from parley.engine.core.verbs.checkpoints import require_checkpoint
from parley.engine.core.verbs.composite import Stage, run_stages
from parley.engine.core.verbs.job import Reporter, command_line
from parley.engine.ranking.attacks.settings import POLICY as BY_POLICY
from parley.engine.ranking.attacks.settings import AttackDetails
from parley.engine.ranking.metrics.campaign import (
    AS_CONTROL,
    ATTACKS,
    BEFORE_HARDENING,
    CAMPAIGN,
    FIRST,
    GAIN,
    GAIN_BEYOND_CONTROL,
    HELD,
    POLICY,
    POLICY_AFTER,
    POLICY_BEFORE,
    RANKERS,
    SEARCH,
    UnderAttack,
    best_single,
)
from parley.engine.ranking.metrics.ranks import GAIN as GAIN_OVER_RANDOM
from parley.engine.ranking.metrics.ranks import SUCCESS as EDITING_SUCCESS
from parley.engine.ranking.metrics.searched import BASELINE, SUCCESS
from parley.engine.ranking.verbs.attack import ATTACK_RANKING
from parley.engine.ranking.verbs.config import DEFAULT_CORPUS, RankingAttackConfig, RankingConfig, label_of
from parley.engine.ranking.verbs.editor import TRAIN_EDITOR, TrainEditorConfig
from parley.engine.ranking.verbs.matcher import TRAIN_MATCHER, TrainMatcherConfig
from parley.engine.ranking.verbs.prepared import CUT, NOTHING, NUM_CONTEXTS, UNREAD, unread_note
from parley.envs.core.config import NonNegativeFloat, NonNegativeInt, NumItems, NumItemsOrAll, PositiveInt, PositiveShare
from parley.envs.core.seeds import derive_seed
from parley.envs.ranking.edit_game import EditRules
from parley.envs.ranking.groups import CandidateOptions
from parley.policies.core.responder import stored_kind
from parley.policies.core.settings import ChoiceLearning
from parley.policies.ranking.matching.settings import MatcherFitConfig, SmnSizes

SEARCH_METHOD = "greedy"
"""The search that measures."""
METHODS = (SEARCH_METHOD, BASELINE)
"""Attacks that need no training: the search, and random edits."""


@dataclass(frozen=True, kw_only=True)
class HardenRankingConfig(CampaignConfig):
    """The ranker to harden, the rounds, and their measurements."""

    corpus: str = DEFAULT_CORPUS
    """Corpus of candidates or of pairs, as in evaluate ranking."""
    rounds: NumItems = 4
    plain_loss: NonNegativeFloat = 0.05
    limit: NumItemsOrAll = 0
    """At most so many contexts of the validation and of the test split, the seed's choice, in rounds and in trainings, which
    keep their best epoch by them; 0 for all. The training split is never cut."""
    budget: PositiveInt = 100
    """Queries of the search that measures, and of a policy that does."""
    adversary_share: PositiveShare = 0.2
    """Share of the training contexts whose wrong replies policies edit while a ranker learns, drawn at random."""
    lexicon: Literal["", "nltk", "built-in"] = ""
    """Tags: nltk, or built-in, a small lexicon written for this project; when empty the latter for the help desk alone."""
    data_root: Path | None = None
    """Where corpora lie; PARLEY_DATA or the user cache folder when not given."""
    seed: NonNegativeInt = 1
    """Master seed."""
    threads: PositiveInt = 1
    """CPU threads that rankers and policies compute with."""
    candidates: CandidateOptions = field(default_factory=CandidateOptions)
    """The construction of candidate groups; policies learn on groups of the size of the test split's."""
    game: EditRules = field(default_factory=EditRules)
    """Limits of edits."""
    learning: ChoiceLearning = field(default_factory=ChoiceLearning)
    """The learning rule of policies."""
    smn: SmnSizes = field(default_factory=SmnSizes)
    """Sizes of a ranker that is trained first."""
    fit: MatcherFitConfig = field(default_factory=MatcherFitConfig)
    """The recipe of that ranker."""
    hardening: MatcherFitConfig = field(default_factory=MatcherFitConfig)
    """The recipe of a round; all of its epochs are made."""


class RankingCampaign(CampaignAdapter[HardenRankingConfig]):
    """A campaign: rankers learn from policies against earlier rankers; a fresh policy and a search measure each ranker."""

    what = "ranker"

    def begin(self) -> dict[str, Stage]:
        config = self.config
        return {} if config.model else {START: (TRAIN_MATCHER, self._trained("smn", fit=config.fit, smn=config.smn))}

    def round(self, number: int, shares: Sequence[float]) -> dict[str, Stage]:
        config, planned = self.config, dict[str, Stage]()
        if number:
            met = {f"{BY_POLICY}{self.place(self.editor(index))}": share for index, share in enumerate(shares) if share > 0}
            weights = tuple(met.values()) if len(set(met.values())) > 1 else ()
            goes_on = self._trained(self._kind, fit=config.hardening, seed=derive_seed(config.seed, "round", number))
            planned[self.trained(number)] = (
                TRAIN_MATCHER,
                replace(goes_on, start=self.model(number - 1), against=",".join(met), weights=weights),
            )
        # The same seed for all rounds but the start's, which measures result and control too: it has chosen no round.
        seed = derive_seed(config.seed, "policy") if number else config.seed
        planned[self.editor(number)] = TRAIN_EDITOR, self._policy(self.model(number), seed)
        # A ranker is only as robust as the best of all policies that are known finds it.
        editors = [self.editor(index) for index in range(number + 1)]
        return planned | {self.attack(number): self._attack(self.model(number), editors, "val")}

    def payoffs(self, number: int, run: RunFolder, reporter: Reporter) -> np.ndarray:
        """Return where the policy of each round leads, in the contexts of the validation split that count for all pairs."""
        # The attack of a round has its ranker meet the policies until then.
        later = {
            f"{newer:02d}-meets-{older:02d}": self._attack(self.model(older), [self.editor(newer)], "val")
            for newer in range(1, number)
            for older in range(newer)
        }
        run_stages(later, self.path, reporter)
        pairs = [
            [self.attack(older) if newer <= older else f"{newer:02d}-meets-{older:02d}" for newer in range(number)]
            for older in range(number)
        ]
        met = [
            [_under_attack(self.path / attack, [self.editor(newer)]) for newer, attack in enumerate(attacks)]
            for attacks in pairs
        ]
        keys = sorted(set.intersection(*(set(pair.keys) for pairs_of in met for pair in pairs_of)))
        return np.array([[[pair.is_lost(key) for pair in pairs_of] for pairs_of in met] for key in keys])

    def last(self, best: int) -> dict[str, Stage]:
        config, planned = self.config, dict[str, Stage]()
        rankers = {START: self.model(0)}
        if best:
            rankers[RESULT] = self.model(best)
            planned[f"{RESULT}-editor"] = TRAIN_EDITOR, self._policy(self.model(best), config.seed)
        if config.control:
            epochs = max(best, 1) * config.hardening.max_epochs
            longer = replace(config.hardening, max_epochs=epochs, patience=epochs)
            goes_on = self._trained(self._kind, fit=longer, seed=derive_seed(config.seed, "round", 1))
            trained = f"{CONTROL}-ranker"
            rankers[CONTROL] = self.place(trained)
            planned[trained] = TRAIN_MATCHER, replace(goes_on, start=self.model(0), against=NOTHING)
            planned[f"{CONTROL}-editor"] = TRAIN_EDITOR, self._policy(rankers[CONTROL], config.seed)
        # All of them meet all policies: one that learned against another ranker may be the best.
        policies = self._policy_stages(best)
        return planned | {f"{name}-attack": self._attack(ranker, policies, "test") for name, ranker in rankers.items()}

    def _policy_stages(self, best: int) -> list[str]:
        """Return the stages of all policies: of the rounds that were made, of result and control."""
        rounds = range(max(self.config.rounds, best) + 1)
        made = [self.editor(index) for index in rounds if index <= best or (self.path / self.editor(index)).is_dir()]
        return [*made, *([f"{RESULT}-editor"] if best else []), *([f"{CONTROL}-editor"] if self.config.control else [])]

    def measured(self, number: int) -> dict[str, Estimate]:
        policies = [self.editor(index) for index in range(number + 1)]
        metrics = self._figures(self.path / self.attack(number), self.editor(number), policies)
        if number:
            last, before, now = self.editor(number - 1), self.attack(number - 1), self.attack(number)
            of_last = {
                POLICY_BEFORE: self._success(self.path / before, last),
                POLICY_AFTER: self._success(self.path / now, last),
            }
            metrics = of_last | metrics
        return metrics

    def outcome(self, best: int) -> dict[str, Estimate]:
        editors = {START: self.editor(0), RESULT: f"{RESULT}-editor", CONTROL: f"{CONTROL}-editor"}
        attacks = {name: self.path / f"{name}-attack" for name in editors}
        if not best:
            attacks[RESULT], editors[RESULT] = attacks[START], editors[START]
        endings = {START: BEFORE_HARDENING, RESULT: ""} | ({CONTROL: AS_CONTROL} if self.config.control else {})
        policies = self._policy_stages(best)
        measured = {name: self._figures(attacks[name], editors[name], policies) for name in endings}
        metrics = {f"{metric}{endings[name]}": estimate for name, of in measured.items() for metric, estimate in of.items()}
        methods = [*METHODS, *policies]
        result = _under_attack(attacks[RESULT], methods)
        metrics[GAIN] = result.more_than(_under_attack(attacks[START], methods))
        if self.config.control:
            metrics[GAIN_BEYOND_CONTROL] = result.more_than(_under_attack(attacks[CONTROL], methods))
        return metrics

    def known(self, best: int) -> KnownAdversaries:
        attacks = {"before": START, "control": CONTROL, "after": RESULT if best else START}
        if not self.config.control:
            del attacks["control"]
        editors = self._policy_stages(best)
        names = [*METHODS, *editors]
        met = [[_under_attack(self.path / f"{name}-attack", [method]) for method in names] for name in attacks.values()]
        lost_TA = [[of_method.lost() for of_method in of_ranker] for of_ranker in met]
        learned = {editor: RunFolder.load(self.path / editor).metrics() for editor in editors}
        return KnownAdversaries(
            targets=list(attacks),
            adversaries=names,
            gains_TA=lost_TA,
            best=[int(np.argmax([lost.value for lost in lost_A])) for lost_A in lost_TA],
            measured=[_under_attack(self.path / f"{name}-attack", names).lost() for name in attacks.values()],
            learned={editor: metrics[GAIN_OVER_RANDOM] for editor, metrics in learned.items()},
            gained={editor: metrics[EDITING_SUCCESS] for editor, metrics in learned.items()},
            words=ATTACKS,
            single=[best_single(of_ranker) for of_ranker in met],
        )

    def extra(self, best: int) -> Mapping[str, Any]:
        trained = RunFolder.load(self.path / self.trained(1)).summary() or {}
        return {name: trained[name] for name in (NUM_CONTEXTS, CUT, UNREAD) if name in trained}

    def store(self, best: int, folder: Path) -> None:
        from parley.policies.ranking.matching.fit import format_of, load_matcher

        ranker = require_checkpoint(self.model(best), "--model", "parley train matcher")
        model = load_matcher(ranker).model
        form = format_of(model.sizes)
        origin = {"base": self.model(0), "round": best} if best else {"round": 0}
        form.save(model, folder, {**form.provenance(ranker), **origin})

    def editor(self, number: int) -> str:
        """Name the stage of the policy that learned to mislead the ranker of a round."""
        return f"{number:02d}-editor"

    def attack(self, number: int) -> str:
        """Name the stage that measures the ranker of a round."""
        return f"{number:02d}-attack"

    @cached_property
    def _kind(self) -> Any:
        model = self.config.model
        return stored_kind(require_checkpoint(model, "--model", "parley train matcher")) if model else "smn"

    def _figures(self, attack: Path, editor: str, policies: Sequence[str]) -> dict[str, Estimate]:
        """Compute the metrics of a ranker from the attack by the search, its fresh policy and the given policies."""
        under = _under_attack(attack, [*METHODS, *policies])
        policy, search = self._success(attack, editor), self._success(attack, SEARCH_METHOD)
        return {POLICY: policy, SEARCH: search, HELD: under.held(), FIRST: under.first()}

    def _success(self, attack: Path, method: str) -> Estimate:
        begins, ends = f"{SUCCESS}{self.config.budget}.", f".{label_of(method)}"
        metrics = RunFolder.load(attack).metrics()
        (estimate,) = [value for name, value in metrics.items() if name.startswith(begins) and name.endswith(ends)]
        return estimate

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
        """Plan an attack by the search and policies, with edits of one kind, on the contexts of the seed."""
        names = ("corpus", "limit", "lexicon", "data_root", "seed", "candidates", "budget")
        settings = RankingAttackConfig(
            model=ranker,
            method=",".join((*METHODS, *(f"{BY_POLICY}{self.place(editor)}" for editor in editors))),
            rules=NOTHING,
            split=split,
            moves="context",
            edits=self.config.game.edits,
            known_words=False,
            attack=AttackDetails(keep_tags=False),
            **{name: getattr(self.config, name) for name in names},
        )
        return ATTACK_RANKING, settings


def _under_attack(attack: Path, methods: Sequence[str]) -> UnderAttack:
    return UnderAttack(RunFolder.load(attack).rows(), [label_of(method) for method in methods])


def helpdesk() -> HardenRankingConfig:
    """Harden a tiny SMN on the built-in help desk, one round, offline, in a few minutes."""
    fit = MatcherFitConfig(batch_size=64, max_epochs=4, patience=4, learning_rate=2e-3, fresh_negatives=True)
    return HardenRankingConfig(
        rounds=1,
        limit=150,
        adversary_share=0.1,
        game=EditRules(edits=2),
        learning=ChoiceLearning(updates=30),
        smn=SmnSizes(embed=48, turns=3, words=16, gru=32),
        fit=fit,
        hardening=replace(fit, max_epochs=2, learning_rate=1e-3),
    )


def li2019() -> HardenRankingConfig:
    """Harden a small SMN on the dialogues of #ubuntu (corpus of Li et al. 2019), four rounds at most."""
    from parley.policies.ranking.matching.settings import small_fit, smn_small

    fit = small_fit()
    hardening = replace(fit, max_epochs=2)
    return HardenRankingConfig(
        corpus="ubuntu_dialogues", limit=300, adversary_share=0.15, smn=smn_small(), fit=fit, hardening=hardening
    )


class MinMaxRanking(CampaignJob[HardenRankingConfig]):
    """`parley minmax ranking`."""

    words = ("minmax", "ranking")
    run_name = "minmax-ranking"
    config = HardenRankingConfig
    presets = {"helpdesk": helpdesk, "li2019": li2019}
    campaign, maker = RankingCampaign, "parley train matcher"
    measures, legend = RANKERS, CAMPAIGN
    measured_on = "validation split"
    unhelped = "no round held more under attack than the start, which is the result"

    def heading(self, config: HardenRankingConfig) -> str:
        return f"{config.model or 'an SMN'} on {config.corpus} hardened"

    def description(self, config: HardenRankingConfig, best: int) -> str:
        words = f"{config.game.edits} word{'s' * (config.game.edits > 1)}"
        return (
            f"The ranker of round {best} is the result, by the validation split; figures are of the test split. At most "
            f"{words} replaced, {config.budget:,} queries, seed {config.seed}."
        )

    def note(self, run: RunFolder) -> str:
        return unread_note(run.summary() or {})

    def next_commands(self, config: HardenRankingConfig, path: Path) -> tuple[str, ...]:
        names = ",".join(filter(None, (RankingCampaign(config, path).model(0), self.hardened(path))))
        same = {name: getattr(config, name) for name in ("corpus", "lexicon", "candidates", "data_root")}
        evaluation = RankingConfig(model=names, **same)
        evaluated = command_line(("evaluate", "ranking"), {"": RankingConfig}, evaluation, run=None)
        return (*super().next_commands(config, path), evaluated)


MINMAX_RANKING = MinMaxRanking()
