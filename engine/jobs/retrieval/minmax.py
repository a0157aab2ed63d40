"""Hardening of rankers by rounds: `parley minmax ranking`.

A round trains an editing policy against the frozen ranker, then the ranker on what all policies so far find against the
rankers that they learned to mislead. What is left to find is measured in two ways: by a fresh policy, trained against the
ranker as it is, and by a greedy search, both with as many edits of the same kind. The fresh policy is the adversary of the next
round.

A control, the start trained as long on replies as they are, says how much of the gain is owed to adversaries. Every phase and
every measurement is a run of its own below the campaign's folder, resumes by itself, and is skipped once it is finished. The
result is the ranker of the last round: no figure of the test split chooses it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from engine.jobs.checkpoints import require_checkpoint
from engine.jobs.command import command_line
from engine.jobs.composite import Composite, Stage, run_stages
from engine.jobs.job import Reporter, Result, Steps, Summary
from engine.jobs.retrieval.asked import label_of
from engine.jobs.retrieval.attack import ATTACK_RANKING
from engine.jobs.retrieval.config import DEFAULT_CORPUS, RankingAttackConfig, RankingConfig
from engine.jobs.retrieval.editor import TRAIN_EDITOR
from engine.jobs.retrieval.editor_config import TrainEditorConfig
from engine.jobs.retrieval.matcher import TRAIN_MATCHER
from engine.jobs.retrieval.matcher_config import TrainMatcherConfig
from engine.jobs.retrieval.pool import NOTHING
from engine.jobs.scalars import Scalars
from engine.jobs.sharded import session
from engine.jobs.tables import TABLE_FILE
from engine.metrics.retrieval.campaign import (
    AS_CONTROL,
    BEFORE_HARDENING,
    CAMPAIGN,
    FIRST,
    GAIN,
    GAIN_BEYOND_CONTROL,
    HELD,
    POLICY,
    POLICY_AFTER,
    POLICY_BEFORE,
    SEARCH,
    HardenedRound,
    UnderSearch,
    outcome_table,
    rounds_table,
)
from engine.metrics.retrieval.editing import SUCCESS
from engine.metrics.retrieval.searched import SUCCESS as SEARCHED
from engine.metrics.statistics import Estimate
from engine.metrics.tables import TextTable
from engine.retrieval.settings import POLICY as BY_POLICY
from engine.retrieval.settings import AttackDetails
from engine.store.head import whole
from engine.store.layout import EVENTS, SUMMARY
from engine.store.run_folder import RunFolder
from envs.candidates.edit_game import EditRules
from envs.candidates.options import CandidateOptions
from envs.core.ranges import Configuration, NonNegativeInt, NumItems, NumItemsOrAll, PositiveInt
from envs.core.seeds import derive_seed
from envs.storage.places import display_path
from policies.editor_settings import EditorLearning
from policies.matching.settings import MatcherFitConfig, SmnSizes
from policies.stored import stored_kind

ROUND = "round"
"""Kind of the event of a round that is measured."""
START, CONTROL, RESULT = "start", "control", "result"
"""Names of stages: the ranker that is trained where none is named; the control; the attack on the result."""
SEARCH_METHOD = "greedy"
"""The search that measures."""
OUTCOME, ROUNDS = "Before and after", "Rounds"
"""Headings of the tables."""


@dataclass(frozen=True, kw_only=True)
class HardenRankingConfig(Configuration):
    """Which ranker is hardened, how long, and how it is measured."""

    model: str = ""
    """The ranker at the start, a run or checkpoint of a matching model; when empty an SMN is trained first."""
    corpus: str = DEFAULT_CORPUS
    """Corpus of candidates or of pairs, as in evaluate ranking."""
    rounds: NumItems = 2
    """Rounds: a policy, then the ranker."""
    limit: NumItemsOrAll = 0
    """At most so many test contexts in measurements, the seed's choice of them; 0 for all."""
    budget: PositiveInt = 100
    """Queries of the search that measures."""
    pool_size: PositiveInt = 1000
    """Training contexts whose wrong replies policies edit while a ranker learns, drawn at random."""
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
    learning: EditorLearning = field(default_factory=EditorLearning)
    """The learning rule of policies."""
    smn: SmnSizes = field(default_factory=SmnSizes)
    """Sizes of a ranker that is trained first."""
    fit: MatcherFitConfig = field(default_factory=MatcherFitConfig)
    """The recipe of that ranker."""
    hardening: MatcherFitConfig = field(default_factory=MatcherFitConfig)
    """The recipe of a round; all of its epochs are made."""


def helpdesk() -> HardenRankingConfig:
    """A tiny SMN on the built-in help desk, one round, offline, in a few minutes."""
    fit = MatcherFitConfig(batch_size=64, max_epochs=4, patience=4, learning_rate=2e-3, fresh_negatives=True)
    return HardenRankingConfig(
        rounds=1,
        limit=150,
        pool_size=500,
        game=EditRules(edits=2),
        learning=EditorLearning(updates=30),
        smn=SmnSizes(embed=48, turns=3, words=16, gru=32),
        fit=fit,
        hardening=replace(fit, max_epochs=2, learning_rate=1e-3),
    )


def li2019() -> HardenRankingConfig:
    """A small SMN on the dialogues of #ubuntu (corpus of Li et al. 2019), three rounds."""
    from policies.matching.settings import small_fit, smn_small

    fit = small_fit()
    hardening = replace(fit, max_epochs=2)
    return HardenRankingConfig(
        corpus="ubuntu_dialogues", rounds=3, limit=300, pool_size=5000, smn=smn_small(), fit=fit, hardening=hardening
    )


class MinMaxRanking(Composite[HardenRankingConfig, HardenRankingConfig, Summary]):
    """`parley minmax ranking`."""

    words = ("minmax", "ranking")
    run_name = "minmax-ranking"
    config = HardenRankingConfig
    presets = {"helpdesk": helpdesk, "li2019": li2019}
    legend = CAMPAIGN
    files = (TABLE_FILE, SUMMARY)
    resume_safe = ("data_root",)
    steps = Steps(ROUND, "rounds", lambda config: config["rounds"] if isinstance(config.get("rounds"), int) else None)

    def prepare(self, config: HardenRankingConfig, path: Path, reporter: Reporter) -> HardenRankingConfig:
        """Finds out whether the start is there and its first stage can be done."""
        if config.model:
            require_checkpoint(config.model, "--model", "parley train matcher")
        job, settings = next(iter(self.stages(config, path).values()))
        job.prepare(settings, path, reporter)
        return config

    def stages(self, config: HardenRankingConfig, path: Path) -> dict[str, Stage]:
        """The start where it is trained; of each round ranker, policy and search; the control."""
        planned: dict[str, Stage] = {}
        start = config.model or display_path(path / START)
        if not config.model:
            planned[START] = TRAIN_MATCHER, self._trained(config, "smn", fit=config.fit, smn=config.smn)
        kind = stored_kind(require_checkpoint(config.model, "--model", "parley train matcher")) if config.model else "smn"
        for number in range(config.rounds + 1):
            ranker = _ranker(config, path, number)
            if number:
                policies = ",".join(f"{BY_POLICY}{display_path(path / _named(each, 'editor'))}" for each in range(number))
                goes_on = self._trained(config, kind, fit=config.hardening, seed=derive_seed(config.seed, ROUND, number))
                before = _ranker(config, path, number - 1)
                planned[_named(number, "ranker")] = TRAIN_MATCHER, replace(goes_on, start=before, against=policies)
            planned[_named(number, "editor")] = TRAIN_EDITOR, self._policy(config, ranker)
            met = f"{BY_POLICY}{display_path(path / _named(number - 1, 'editor'))}" if number else ""
            planned[_attack(config, number)] = ATTACK_RANKING, self._search(config, ranker, met)
        if config.control:
            ranker, fit = display_path(path / f"{CONTROL}-ranker"), config.hardening
            longer = replace(fit, max_epochs=config.rounds * fit.max_epochs, patience=config.rounds * fit.max_epochs)
            goes_on = self._trained(config, kind, fit=longer, seed=derive_seed(config.seed, ROUND, 1))
            planned[f"{CONTROL}-ranker"] = TRAIN_MATCHER, replace(goes_on, start=start, against=NOTHING)
            planned[f"{CONTROL}-editor"] = TRAIN_EDITOR, self._policy(config, ranker)
            planned[f"{CONTROL}-attack"] = ATTACK_RANKING, self._search(config, ranker, "")
        return planned

    def work(self, run: RunFolder, prepared: HardenRankingConfig, reporter: Reporter) -> Summary:
        """Does what is left of the stages, notes the rounds, and compares start, result and control."""
        config, path = prepared, run.path
        with session(1, ""):
            run_stages(self.stages(config, path), path, reporter)
        under = [_under_search(path / _attack(config, number)) for number in range(config.rounds + 1)]
        rounds = [HardenedRound(number, _figures(config, path, number, under[number])) for number in range(config.rounds + 1)]
        _note(run, rounds)
        measured = {BEFORE_HARDENING: rounds[0].metrics, "": rounds[-1].metrics}
        gains = {GAIN: under[-1].more_than(under[0])}
        if config.control:
            alone = _under_search(path / f"{CONTROL}-attack")
            policy = RunFolder.load(path / f"{CONTROL}-editor").metrics()[SUCCESS]
            measured[AS_CONTROL] = {POLICY: policy, **_by_search(config, path / f"{CONTROL}-attack", alone)}
            gains[GAIN_BEYOND_CONTROL] = under[-1].more_than(alone)
        metrics = {f"{name}{ending}": each for ending, of in measured.items() for name, each in of.items()} | gains
        words = f"{config.game.edits} word{'s' * (config.game.edits > 1)}"
        return Summary(
            f"{config.model or 'an SMN'} on {config.corpus} hardened",
            f"{config.rounds} round{'s' * (config.rounds > 1)}, at most {words} replaced, search by {config.budget:,} queries, "
            f"seed {config.seed}.",
            {name: metrics[name] for name in CAMPAIGN if name in metrics},
        )

    def models(self, config: HardenRankingConfig) -> Mapping[str, str]:
        return {"model": config.model}

    def tables(self, run: RunFolder) -> dict[str, TextTable]:
        """Start, result and control side by side, and the rounds."""
        metrics, rounds = run.metrics(), rounds_of(run)
        return {OUTCOME: outcome_table(metrics), ROUNDS: rounds_table(rounds)} if metrics else {}

    def present(self, result: Result, run: RunFolder) -> Result:
        """With the tables in the place of the metrics."""
        return replace(result, tables=tuple(self.tables(run).values()))

    def next_commands(self, config: HardenRankingConfig, path: Path) -> tuple[str, ...]:
        """The page, and the ranker before and after under all rules."""
        names = f"{_ranker(config, path, 0)},{_ranker(config, path, config.rounds)}"
        asked = RankingConfig(model=names, corpus=config.corpus, candidates=config.candidates, data_root=config.data_root)
        evaluated = command_line(("evaluate", "ranking"), {"": RankingConfig}, asked, run=None)
        return (*super().next_commands(config, path), evaluated)

    def _trained(self, config: HardenRankingConfig, kind: Any, **settings: Any) -> TrainMatcherConfig:
        names = ("corpus", "lexicon", "data_root", "seed", "threads", "candidates", "pool_size")
        return TrainMatcherConfig(kind=kind, **{name: getattr(config, name) for name in names} | settings)

    def _policy(self, config: HardenRankingConfig, ranker: str) -> TrainEditorConfig:
        names = ("corpus", "limit", "lexicon", "data_root", "threads", "game", "learning")
        groups = replace(config.candidates, train_size=config.candidates.size)
        # Which test contexts are drawn follows from the seed, so that all phases share one.
        same = {name: getattr(config, name) for name in (*names, "seed")}
        return TrainEditorConfig(model=ranker, candidates=groups, **same)

    def _search(self, config: HardenRankingConfig, ranker: str, policy: str) -> RankingAttackConfig:
        """The attack that measures: the search, and the policy that the ranker has just learned from, by edits of one kind."""
        names = ("corpus", "limit", "lexicon", "data_root", "seed", "candidates", "budget")
        return RankingAttackConfig(
            model=ranker,
            method=",".join(name for name in (SEARCH_METHOD, policy) if name),
            rules=NOTHING,
            moves="context",
            edits=config.game.edits,
            known_words=False,
            attack=AttackDetails(keep_tags=False),
            **{name: getattr(config, name) for name in names},
        )


def _named(number: int, stage: str) -> str:
    return f"{number:02d}-{stage}"


def _attack(config: HardenRankingConfig, number: int) -> str:
    """The stage that attacks the ranker of a round."""
    return f"{RESULT}-attack" if number == config.rounds else _named(number, "attack")


def _ranker(config: HardenRankingConfig, path: Path, number: int) -> str:
    """The ranker after a round."""
    return display_path(path / _named(number, "ranker")) if number else config.model or display_path(path / START)


def _figures(config: HardenRankingConfig, path: Path, number: int, under: UnderSearch) -> dict[str, Estimate]:
    """What a ranker is measured by after a round."""
    found = {POLICY: RunFolder.load(path / _named(number, "editor")).metrics()[SUCCESS]}
    if number:
        attacked = RunFolder.load(path / _attack(config, number)).metrics()
        found[POLICY_BEFORE] = RunFolder.load(path / _named(number - 1, "editor")).metrics()[SUCCESS]
        found[POLICY_AFTER] = _success(attacked, config.budget, label_of(_named(number - 1, "editor")))
    return found | _by_search(config, path / _attack(config, number), under)


def _by_search(config: HardenRankingConfig, attack: Path, under: UnderSearch) -> dict[str, Estimate]:
    searched = _success(RunFolder.load(attack).metrics(), config.budget, SEARCH_METHOD)
    return {SEARCH: searched, HELD: under.held(), FIRST: under.first()}


def _success(metrics: Mapping[str, Estimate], budget: int, method: str) -> Estimate:
    """The success of a method with all of its queries, in an attack on one ranker."""
    begins, ends = f"{SEARCHED}{budget}.", f".{method}"
    (found,) = [each for name, each in metrics.items() if name.startswith(begins) and name.endswith(ends)]
    return found


def _under_search(attack: Path) -> UnderSearch:
    return UnderSearch(RunFolder.load(attack).read_rows().to_pylist(), SEARCH_METHOD)


def _note(run: RunFolder, rounds: Sequence[HardenedRound]) -> None:
    """Writes down the rounds that are not yet."""
    noted = {one.number for one in rounds_of(run)}
    with Scalars(run.path, max(noted, default=-1)) as scalars:
        for one in rounds:
            figures = {name: estimate.value for name, estimate in one.metrics.items()}
            if one.number not in noted:
                scalars.add(one.number, figures)
                estimates = {name: estimate.to_json() for name, estimate in one.metrics.items()}
                run.event(ROUND, number=one.number, estimates=estimates, **figures)


def rounds_of(run: RunFolder) -> list[HardenedRound]:
    """The rounds of a campaign that have been measured."""
    needs = {ROUND: {"number": int, "estimates": dict}}
    found = {event["number"]: event["estimates"] for event in run.events(needs) if event["kind"] == ROUND}
    with whole(run.path / EVENTS):
        return [
            HardenedRound(number, {name: Estimate.from_json(parts) for name, parts in estimates.items()})
            for number, estimates in sorted(found.items())
        ]


MINMAX_RANKING = MinMaxRanking()
