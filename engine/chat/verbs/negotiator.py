"""Negotiators that are chat models harden each other: `parley minmax chat-negotiator`.

Both sides are adapters on one frozen base, and learn by reinforcement in RLlib (`parley train chat-rl --game negotiation`). The
start of both is a supervised fit to recorded dialogues (`parley train chat --game negotiation`). The game of an attack is that
of Cheng et al. 2019, section 3: the target alone chooses, and the adversary is paid its points less the target's. A round
trains the target on a mixture of all adversaries so far and on ordinary dialogues with the start, then a fresh adversary on
this target. Every adapter is kept.

At the end start, control and result meet all known adversaries: those of the rounds, those that learned afresh on each of them,
the start, and agents that learn nothing. The control is the start, trained as long in ordinary dialogues alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from parley.engine.chat.metrics import to_the_best
from parley.engine.chat.rl.settings import ChatReinforceConfig
from parley.engine.chat.verbs.chat_rl import NOBODY, TRAIN_CHAT_RL, TrainChatRlConfig
from parley.engine.chat.verbs.minmax import AdaptersConfig, require_adapters, store_adapter
from parley.engine.chat.verbs.train_chat import TRAIN_CHAT, chat_recipe
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import (
    EXPLOITABILITY,
    NEGOTIATORS,
    CampaignMetrics,
    KnownAdversaries,
    Round,
    best_index,
    gained_by_training,
)
from parley.engine.core.stats.statistics import FOR_TARGET, NOTHING, Estimate, Metric, mean, paired_difference
from parley.engine.core.verbs.campaign import CONTROL, RESULT, START, CampaignAdapter, CampaignJob
from parley.engine.core.verbs.composite import Stage, run_stages
from parley.engine.core.verbs.job import Reporter
from parley.engine.core.verbs.sharded import session
from parley.engine.negotiation.metrics.campaign import (
    PLAIN_AGREEMENT,
    PLAIN_SCORE,
    REPEATS,
    REPETITION,
    ROUND_METRICS,
    WATCH,
    PayoffGains,
)
from parley.engine.negotiation.verbs.agents import require_partner, split_names
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.engine.negotiation.verbs.population import EVALUATE_POPULATION, PopulationConfig, played_in
from parley.envs.core.config import NonNegativeFloat, NonNegativeInt, NumItems
from parley.envs.core.seeds import derive_seed
from parley.envs.core.storage.uris import HUGGING_FACE
from parley.envs.negotiation.corpora.catalogue import find_negotiations
from parley.envs.negotiation.domain import domain_of

FRESH = "fresh"
PLAYED = {
    EXPLOITABILITY: ROUND_METRICS[EXPLOITABILITY],
    FRESH: Metric("fresh adversary", "lower: target", "advantage in points of an adversary that learned on this target"),
    **{name: ROUND_METRICS[name] for name in (PLAIN_SCORE, PLAIN_AGREEMENT, REPETITION, REPEATS)},
}
"""The metrics of a target after a round, and of start, control and result at the end."""
ENDINGS = {"before": "_before", "plain play": "_plain", "after": ""}
GAINS = {"before": "gain", "plain play": "gain_over_plain"}
_WHO = {START: "before", CONTROL: "plain play", RESULT: "after"}
CAMPAIGN = {
    **{
        f"{name}{ending}": metric._replace(
            title=f"{metric.title}{f', {who}' if ending else ''}", main=name in (EXPLOITABILITY, PLAIN_SCORE)
        )
        for name, metric in PLAYED.items()
        for who, ending in ENDINGS.items()
    },
    "gain": Metric(
        "exploitability lost", FOR_TARGET, "what the best known adversary gains from the start, less from the result", main=True
    ),
    "gain_over_plain": Metric("  more than by plain play", FOR_TARGET, "from the control, less from the result", main=True),
}
"""The metrics of a campaign."""


def exploitability(measured: Round) -> float:
    """Return what the best known adversary gains, in points; hardening is to lower it."""
    return measured.metrics[EXPLOITABILITY].value


NEGOTIATING = CampaignMetrics(
    what="target",
    of_round=PLAYED,
    at_end=PLAYED,
    endings=ENDINGS,
    gains=("best known adversary: of this, less after", GAINS),
    loss=exploitability,
    watch=replace(WATCH, beyond_start=True),
    stalled="exploitability has not fallen",
    note_rounds="Round 0 is the target before any hardening. Adversaries: advantage in points, where the target alone chooses. "
    "Plain: ordinary dialogues with the start, both choose. Brackets: 95 % intervals.",
    note_outcome="Plain play: the start, trained as long in ordinary dialogues alone. All meet all known adversaries in "
    "dialogues that chose no round; scenarios may come again. Brackets: 95 % intervals, over dialogues of one training each.",
    known=NEGOTIATORS,
)


def negotiating(updates: int) -> ChatReinforceConfig:
    """Return a rule at the temperature of `parley selfplay`; at 1 a small model speaks no sense."""
    return ChatReinforceConfig(updates=updates, temperature=0.5)


@dataclass(frozen=True, kw_only=True)
class HardenNegotiatorConfig(AdaptersConfig):
    """The base, the rounds, and their measurements."""

    attack: ChatReinforceConfig = field(default_factory=lambda: negotiating(30))
    """The learning rule of an adversary."""
    defence: ChatReinforceConfig = field(default_factory=lambda: negotiating(30))
    """The learning rule of a target in a round."""
    plain_loss: NonNegativeFloat = 0.5
    """Points of plain score that the result may have lost against the start."""
    others: str = "scripted,scripted-tough"
    """Known adversaries that learn nothing, between commas, as selfplay takes them: agents, runs, chat models."""
    corpus: str = "dealornodeal"
    """Registered corpus (parley data list), or path/file.py:NAME, for the supervised fit and for scenarios."""
    scenarios: str = "dealornodeal"
    """Scenarios of matches: "random" for random legal ones, a corpus name for its self-play scenarios (three in four of Deal or
    No Deal's are of its training dialogues), or a file."""
    limit: NonNegativeInt = 0
    """Recorded dialogues of each split at most for the supervised fit; 0 for all."""
    dialogues: NumItems = 100
    """Dialogues of each pair of a match."""
    data_root: Path | None = None
    """Folder of corpora; $PARLEY_DATA, ./data or ../shared/data when not given."""


class NegotiatorCampaign(CampaignAdapter[HardenNegotiatorConfig]):
    """Targets learn from the adversaries so far; a fresh adversary measures each."""

    what: ClassVar[str] = "target"

    def begin(self) -> dict[str, Stage]:
        config = self.config
        if config.model:
            return {}
        corpus = {"corpus": config.corpus, "limit": config.limit, "data_root": config.data_root}
        return {START: (TRAIN_CHAT, config.fitted(game="negotiation", **corpus))}

    def round(self, number: int, shares: Sequence[float]) -> dict[str, Stage]:
        planned, config = dict[str, Stage](), self.config
        if number:
            met = {self._address(self.place(self.adversary(index))): share for index, share in enumerate(shares) if share > 0}
            seed = derive_seed(config.seed, "round", number)
            planned[self.trained(number)] = TRAIN_CHAT_RL, self._target(self.model(number - 1), met, config.defence, seed)
        seed = derive_seed(config.seed, "adversary", number)
        planned[self.adversary(number)] = TRAIN_CHAT_RL, self._adversary(self.model(number), seed)
        # One seed for all rounds, so that they are measured on the same scenarios, which are not those of the end.
        seed = derive_seed(config.seed, "match")
        return planned | self._met(f"{number:02d}", [self.model(number)], self._rounds(number), seed)

    def measured(self, number: int) -> dict[str, Estimate]:
        fresh = self.place(self.adversary(number))
        return self._figures(f"{number:02d}", self.model(number), fresh)

    def payoffs(self, number: int, run: RunFolder, reporter: Reporter) -> np.ndarray:
        targets = map(self._address, map(self.model, range(number)))
        known = map(self._address, self._rounds(number - 1))
        name = f"{number:02d}-payoffs"
        playing = self._playing(derive_seed(self.config.seed, "payoffs"))
        match = PopulationConfig(targets=",".join(targets), adversaries=",".join(known), **playing)
        run_stages({name: (EVALUATE_POPULATION, match)}, self.path, reporter)
        # Gains of campaigns are from 0 to 1.
        best = domain_of(find_negotiations(self.config.corpus).game).best
        return (played_in(self.path / name).gains_GTA + best) / (2 * best)

    def last(self, best: int) -> dict[str, Stage]:
        config, planned = self.config, dict[str, Stage]()
        if config.control:
            seed = derive_seed(config.seed, "round", 1)
            planned[CONTROL] = TRAIN_CHAT_RL, self._target(self.model(0), {}, config.longer(best), seed)
        seed = derive_seed(config.seed, "fresh")
        targets = self._targets(best)
        for name, model in targets.items():
            planned[f"{name}-adversary"] = TRAIN_CHAT_RL, self._adversary(model, seed)
        known, seed = [self.place(name) for name in self._learned(best)], derive_seed(config.seed, "final")
        return planned | self._met("final", list(targets.values()), known, seed)

    def outcome(self, best: int) -> dict[str, Estimate]:
        """Measure start, control and result, and the fall of the best adversary's gain dialogue by dialogue."""
        targets, gains_GTA = self._targets(best), played_in(self.path / "final-match").gains_GTA
        metrics, best_G = dict[str, Estimate](), {}
        for number, (name, model) in enumerate(targets.items()):
            figures = self._figures("final", model, self.place(f"{name}-adversary"))
            metrics |= {f"{figure}{ENDINGS[_WHO[name]]}": value for figure, value in figures.items()}
            best_G[name] = to_the_best(gains_GTA[:, number])
        after_G = best_G.get(RESULT, best_G[START])
        if not best:
            metrics |= {name: metrics[f"{name}{ENDINGS['before']}"] for name in PLAYED}
        compared = [name for name in best_G if name != RESULT]
        return metrics | {GAINS[_WHO[name]]: paired_difference(best_G[name], after_G) for name in compared}

    def known(self, best: int) -> KnownAdversaries:
        targets, played = self._targets(best), played_in(self.path / "final-match")
        outcome, titles = self.outcome(best), {self.place(name): name for name in self._learned(best)}
        titles[self.model(0)] = START
        names = [titles.get(name.removeprefix(HUGGING_FACE), name) for name in played.adversaries]
        learned, gained = {}, {}
        for name in self._learned(best):
            number = name.removesuffix("-adversary")
            # Adversaries of a round met its target in the match of the round; the fresh ones meet theirs at the end.
            met, of = (played, targets[number]) if number in targets else (self._round_match(number), self.model(int(number)))
            gains_GA = met.gains_GTA[:, list(met.targets).index(self._address(of))]
            own_G, start_G = (
                gains_GA[:, list(met.adversaries).index(self._address(adversary))]
                for adversary in (self.place(name), self.model(0))
            )
            learned[name], gained[name] = gained_by_training(own_G, start_G), mean(own_G)
        columns = [_WHO[name] for name in targets] + ([] if best else ["after"])
        numbers = [*range(len(targets)), *([] if best else [0])]
        return KnownAdversaries(
            targets=columns,
            adversaries=names,
            gains_TA=[[mean(gains_G) for gains_G in played.gains_GTA[:, number].T] for number in numbers],
            best=[best_index(played.gains_GTA[:, number]) for number in numbers],
            measured=[outcome[f"{EXPLOITABILITY}{ENDINGS[column]}"] for column in columns],
            learned=learned,
            gained=gained,
        )

    def store(self, best: int, folder: Path) -> None:
        store_adapter(self.model(best), folder)

    def adversary(self, number: int) -> str:
        """Name the stage of the adversary that learned on the target of a round."""
        return f"{number:02d}-adversary"

    def _rounds(self, last: int) -> list[str]:
        return [self.place(self.adversary(number)) for number in range(last + 1)]

    def _targets(self, best: int) -> dict[str, str]:
        control = {CONTROL: self.place(CONTROL)} if self.config.control else {}
        return {START: self.model(0), **control, **({RESULT: self.model(best)} if best else {})}

    def _learned(self, best: int) -> list[str]:
        rounds = [self.adversary(number) for number in range(self.config.rounds + 1)]
        fresh = [f"{name}-adversary" for name in self._targets(best)]
        return [*(name for name in rounds if (self.path / name).is_dir()), *fresh]

    def _round_match(self, number: str) -> PayoffGains:
        return played_in(self.path / f"{number}-match")

    def _address(self, folder: str) -> str:
        return f"{HUGGING_FACE}{folder}"

    def _training(self, **settings: Any) -> TrainChatRlConfig:
        config = self.config
        return config.learned(game="negotiation", corpus=config.corpus, data_root=config.data_root, **settings)

    def _target(self, start: str, met: Mapping[str, float], rule: ChatReinforceConfig, seed: int) -> TrainChatRlConfig:
        return self._training(
            role="defender",
            start=self._address(start),
            partner=self._address(self.model(0)),
            opponents=",".join(met) or NOBODY,
            shares=tuple(met.values()) if len(set(met.values())) > 1 else (),
            reinforce=rule,
            seed=seed,
        )

    def _adversary(self, target: str, seed: int) -> TrainChatRlConfig:
        return self._training(
            role="attacker",
            start=self._address(self.model(0)),
            opponents=self._address(target),
            reinforce=self.config.attack,
            seed=seed,
        )

    def _met(self, name: str, targets: Sequence[str], known: Sequence[str], seed: int) -> dict[str, Stage]:
        """Return the stages that measure targets: matches with all adversaries, and ordinary dialogues with the start."""
        plain = {
            self._plain(name, target): (
                SELFPLAY,
                MatchConfig(adversary=self._address(self.model(0)), target=self._address(target), **self._playing(seed)),
            )
            for target in targets
        }
        return {f"{name}-match": (EVALUATE_POPULATION, self._match(targets, known, seed)), **plain}

    def _plain(self, name: str, target: str) -> str:
        return f"{name}-plain-{Path(target).name if target != self.model(0) else START}"

    def _match(self, targets: Sequence[str], known: Sequence[str], seed: int) -> PopulationConfig:
        adversaries = [*split_names(self.config.others), *map(self._address, (self.model(0), *known))]
        return PopulationConfig(
            targets=",".join(map(self._address, targets)), adversaries=",".join(adversaries), **self._playing(seed)
        )

    def _playing(self, seed: int) -> dict[str, Any]:
        config = self.config
        return {
            "dialogues": config.dialogues,
            "scenarios": config.scenarios,
            "data_root": config.data_root,
            "temperature": config.attack.temperature,
            "chat": replace(config.chat, max_tokens=config.attack.max_tokens),
            "seed": seed,
            "workers": config.workers,
            "address": config.address,
        }

    def _figures(self, name: str, target: str, fresh: str) -> dict[str, Estimate]:
        """Return `PLAYED` of a target from its stages."""
        played = played_in(self.path / f"{name}-match")
        gains_GA = played.gains_GTA[:, list(played.targets).index(self._address(target))]
        plain = RunFolder.load(self.path / self._plain(name, target)).metrics()
        return {
            EXPLOITABILITY: mean(to_the_best(gains_GA)),
            FRESH: mean(gains_GA[:, list(played.adversaries).index(self._address(fresh))]),
            PLAIN_SCORE: plain["score_target"],
            PLAIN_AGREEMENT: plain["agreement"],
            REPETITION: plain.get("repetition_target", NOTHING),
            REPEATS: plain.get("repeats_target", NOTHING),
        }


def rloo() -> HardenNegotiatorConfig:
    """Harden for three rounds of 30 updates a side (SmolLM2-135M: a day of a core)."""
    return HardenNegotiatorConfig()


def quick() -> HardenNegotiatorConfig:
    """Harden for one round of 2 updates of 2 dialogues a side, for a first look; its figures mean nothing."""
    rule = replace(negotiating(2), scenarios=1, tries=2, max_tokens=16, supervised_batch=2)
    fit = replace(chat_recipe(), max_epochs=1)
    return HardenNegotiatorConfig(rounds=1, limit=20, dialogues=2, others="scripted", fit=fit, attack=rule, defence=rule)


class MinMaxChatNegotiator(CampaignJob[HardenNegotiatorConfig]):
    """`parley minmax chat-negotiator`."""

    words = ("minmax", "chat-negotiator")
    run_name = "minmax-chat-negotiator"
    config = HardenNegotiatorConfig
    presets = {"rloo": rloo, "quick": quick}
    campaign, maker = NegotiatorCampaign, "parley train chat --game negotiation"
    measures, legend = NEGOTIATING, CAMPAIGN
    resume_safe = ("env_runners", "workers", "address", "data_root")
    unhelped = "no round was less exploitable than the start, which is the result"

    def require_models(self, config: HardenNegotiatorConfig) -> None:
        require_adapters({"--model": (config.model, "--game negotiation")})
        for name in split_names(config.others):
            require_partner(name, "--others")

    def heading(self, config: HardenNegotiatorConfig) -> str:
        return f"negotiators on {config.base} hardened against adversaries on it"

    def description(self, config: HardenNegotiatorConfig, best: int) -> str:
        return f"The target of round {best} is the result. {config.dialogues} dialogues a pair, seed {config.seed}."

    def models(self, config: HardenNegotiatorConfig) -> Mapping[str, str]:
        return {"base": config.base, "model": config.model}

    def session(self, config: HardenNegotiatorConfig) -> AbstractContextManager[Any]:
        return session(max(config.env_runners, config.workers) + 1, config.address)


MINMAX_CHAT_NEGOTIATOR = MinMaxChatNegotiator()
