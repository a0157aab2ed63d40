"""Hardening of bots that look for friends by rounds: `parley minmax friends`.

A round trains the bot further on chats that are heard as they are, or through one of the liars so far (`meta`); then a fresh
liar against the bot as it is, which joins the liars of the next round. Rounds end when the harm of the fresh liar has stopped
falling. The bot that is harmed least by the best of all rounds' liars is the result (`checkpoint`), of those that still find
the friend without lies and do not repeat themselves.

Start and result are measured once more, by fresh liars and by the best of all known liars, in chats that chose neither it nor a
round. Two controls, the start trained as long without lies and on random ones, are measured by the same liars, and say how much
of the gain is owed to liars that learn.

The frame of a campaign is in `engine/core/verbs/campaign.py`; docs/negotiation.md lists the known liars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import EXPLOITABILITY, KnownAdversaries, Loss, Round, best_index
from parley.engine.core.stats.statistics import Estimate, clustered_rate, rate_difference
from parley.engine.core.verbs.campaign import RESULT, START, CampaignAdapter, CampaignConfig, CampaignJob, rounds_of
from parley.engine.core.verbs.checkpoints import require_checkpoint, threads
from parley.engine.core.verbs.composite import Stage
from parley.engine.core.verbs.job import Reporter, command_line
from parley.engine.mutual_friends.metrics.lying import (
    AS_CONTROL,
    BEFORE_HARDENING,
    BY_CHANCE,
    CAMPAIGN,
    ENDINGS,
    FRIENDS,
    GAIN,
    GAIN_OVER_RANDOM,
    GAINS,
    LIARS,
    ROUND_METRICS,
)
from parley.engine.mutual_friends.metrics.lying import RESULT as AFTER_HARDENING
from parley.engine.mutual_friends.verbs.agents import (
    MAKER,
    RATE,
    SCRIPTED,
    TRAIN_LIAR,
    TrainLiarConfig,
    friends_agents,
    harms_of_lies,
    liar_learning,
)
from parley.engine.mutual_friends.verbs.config import LIAR, NONE, RANDOM_LIES, MutualFriendsConfig
from parley.engine.mutual_friends.verbs.dynonet import TRAIN_DYNONET, TrainDynoNetConfig
from parley.envs.core.config import NonNegativeFloat, NonNegativeInt, NumItems, PositiveInt, check
from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import derive_seed
from parley.envs.mutual_friends.lies import LieRules
from parley.policies.chat.addresses import is_chat_address
from parley.policies.chat.model import ANSWERS_FOLDER
from parley.policies.chat.settings import ChatSeat
from parley.policies.core.settings import ChoiceLearning, FitConfig
from parley.policies.dynonet.settings import DynoNetSizes, FriendsDecoding, dynonet_demo, dynonet_fit, dynonet_small

CONTROLS = {"control": (NONE, AS_CONTROL), "random": (RANDOM_LIES, BY_CHANCE)}
"""The start trained as long against something else: what, and what its figures end with."""
_LEAST_RATE = 1e-3
MET = "met"
"""Kind of the event with the harm of a liar to a bot in every chat."""
_ROUNDS, _CHOOSING, _BEST = "liars of all rounds", "known liars", "best known liar"
"""Purposes of chats: to choose the round, to choose the best liar, to measure it."""
_RANDOM, _HONEST = "random lies", "no lies"
"""Known liars that need no training."""
Harms = Mapping[str, Sequence[float | None]]
"""The harm of each liar by chat; None where the chat was lost."""


def hardening_fit() -> FitConfig:
    """Return a recipe of two epochs at a fifth of the rate that keeps the last one."""
    return replace(dynonet_fit(), learning_rate=0.1, max_epochs=2, decay_epochs=0, keep="last")


@dataclass(frozen=True, kw_only=True)
class HardenFriendsConfig(CampaignConfig):
    """The bot to harden, the rounds, and their measurements."""

    body: str = SCRIPTED
    """The player of the liars' side: as the model, a registered name, a chat model's address, or path/file.py:Name."""
    corpus: str = ""
    """Corpus of chats to train on; that of the model when empty, else the built-in one."""
    least_gain: NonNegativeFloat = 0.005
    limit: NonNegativeInt = 0
    """Chats of each split at most that bots are trained on; 0 for all."""
    scenarios: NumItems = 300
    """Scenarios of each measurement."""
    choosing: NumItems = 100
    """Scenarios on which every known liar meets every bot, and which choose the best."""
    max_events: PositiveInt = 46
    """Utterances and selections after which a chat with a liar ends."""
    data_root: Path | None = None
    """Where corpora lie; PARLEY_DATA or the user cache folder when not given."""
    seed: NonNegativeInt = 1
    """Master seed."""
    threads: PositiveInt = 1
    """CPU threads that bots and liars compute with."""
    game: LieRules = field(default_factory=LieRules)
    """Limits and rewards of lies."""
    learning: ChoiceLearning = field(default_factory=liar_learning)
    """The learning rule of liars."""
    decoding: FriendsDecoding = field(default_factory=FriendsDecoding)
    """The decoding of bots; chat models use its temperature."""
    chat: ChatSeat = field(default_factory=ChatSeat)
    """Settings of a chat model on the liars' side."""
    sizes: DynoNetSizes = field(default_factory=DynoNetSizes)
    """Sizes of a bot that is trained first."""
    fit: FitConfig = field(default_factory=dynonet_fit)
    """The recipe of that bot."""
    hardening: FitConfig = field(default_factory=hardening_fit)
    """The recipe of a round."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.hardening, "keep", self.hardening.keep == "last", "last: a round and its controls make as many steps")


class FriendsCampaign(CampaignAdapter[HardenFriendsConfig]):
    """Bots are trained on chats with the liars so far; a fresh liar measures each."""

    def begin(self) -> dict[str, Stage]:
        config = self.config
        return {} if config.model else {START: (TRAIN_DYNONET, self._trained(sizes=config.sizes, fit=config.fit))}

    def round(self, number: int, shares: Sequence[float]) -> dict[str, Stage]:
        planned = dict[str, Stage]()
        if number:
            liars = {f"{LIAR}{self.place(self.liar(index))}": share for index, share in enumerate(shares) if share > 0}
            met, seed = ",".join((NONE, *liars)), derive_seed(self.config.seed, "round", number)
            # Chats without lies are as many as those of an average liar.
            weights = (1 / len(liars), *liars.values()) if len(set(liars.values())) > 1 else ()
            goes_on = self._trained(
                start=self.model(number - 1), against=met, weights=weights, fit=self.config.hardening, seed=seed
            )
            planned[self.trained(number)] = TRAIN_DYNONET, goes_on
        # One seed for all rounds, so that they are measured on the same scenarios, which are not those of the end.
        return planned | {self.liar(number): self._liar(self.model(number), derive_seed(self.config.seed, "liar"))}

    def measured(self, number: int) -> dict[str, Estimate]:
        metrics = RunFolder.load(self.path / self.liar(number)).metrics()
        # Liars of earlier versions lack the repetition.
        return {name: metrics[name] for name in ROUND_METRICS if name in metrics}

    def last(self, best: int) -> dict[str, Stage]:
        config = self.config
        planned = {f"{START}-liar": self._liar(self.model(0), config.seed)}
        if best:
            planned[f"{RESULT}-liar"] = self._liar(self.model(best), config.seed)
        longer = replace(config.hardening, max_epochs=max(best, 1) * config.hardening.max_epochs)
        longer = replace(longer, patience=longer.max_epochs)
        for name, (against, _) in CONTROLS.items() if config.control else ():
            seed = derive_seed(config.seed, "round", 1)
            met = against if against == NONE else f"{NONE},{against}"
            # Random lies have the rate of the first liar.
            lies = replace(config.game, rate=self._rate)
            goes_on = self._trained(start=self.model(0), against=met, fit=longer, seed=seed, lies=lies)
            planned[f"{name}-model"] = TRAIN_DYNONET, goes_on
            planned[f"{name}-liar"] = self._liar(self.place(f"{name}-model"), config.seed)
        return planned

    def payoffs(self, number: int, run: RunFolder, reporter: Reporter) -> np.ndarray:
        liars = [self.liar(index) for index in range(number)]
        harms_GTA = np.stack(
            [_by_chat(self._meet(_ROUNDS, self.model(index), liars, run, reporter)) for index in range(number)], axis=1
        )
        return harms_GTA[~np.isnan(harms_GTA).any(axis=(1, 2))]

    def choose(self, playing: Sequence[Round], last: int, loss: Loss, run: RunFolder, reporter: Reporter) -> int:
        """Return the round whose bot is harmed least by the best of all rounds' liars, the earliest of equals."""
        liars = [*(self.liar(number) for number in range(last + 1)), _RANDOM, _HONEST]
        harms = []
        for round_ in playing:
            met = self._meet(_ROUNDS, self.model(round_.number), liars, run, reporter)
            harms.append(_common(met).mean(axis=0).max())
        return playing[int(np.argmin(harms))].number

    def meet_known(self, best: int, run: RunFolder, reporter: Reporter) -> None:
        """Play every bot that is measured with all known liars, and with the best of them in other chats."""
        for model in dict.fromkeys(self._bots(best).values()):
            met = self._meet(_CHOOSING, model, self._known_liars(best), run, reporter)
            self._meet(_BEST, model, [_best(met)], run, reporter)

    def outcome(self, best: int) -> dict[str, Estimate]:
        """Measure start, controls and result, and the fall of harm scenario by scenario."""
        stages = {BEFORE_HARDENING: f"{START}-liar", AFTER_HARDENING: f"{RESULT if best else START}-liar"}
        stages |= {ending: f"{name}-liar" for name, (_, ending) in CONTROLS.items() if self.config.control}
        runs = {ending: RunFolder.load(self.path / stage) for ending, stage in stages.items()}
        metrics = {
            f"{name}{ending}": run.metrics()[name]
            for ending, run in runs.items()
            for name in ROUND_METRICS
            if name in run.metrics()
        }
        bots = self._bots(best)
        harms = {column: self._of_the_best(model, self._known_liars(best)) for column, model in bots.items()}
        metrics |= {f"{EXPLOITABILITY}{ENDINGS[column]}": _mean(harm) for column, harm in harms.items()}
        for column, gain in GAINS.items():
            if column in harms:
                metrics[gain] = rate_difference(*_common({column: harms[column], "after": harms["after"]}).T)
        return metrics

    def _bots(self, best: int) -> dict[str, str]:
        controls = {AS_CONTROL: "control", BY_CHANCE: "random"} if self.config.control else {}
        models = {BEFORE_HARDENING: self.model(0), AFTER_HARDENING: self.model(best)}
        models |= {ending: self.place(f"{name}-model") for ending, name in controls.items()}
        return {column: models[ending] for column, ending in ENDINGS.items() if ending in models}

    def _known_liars(self, best: int) -> list[str]:
        rounds = [self.liar(round_.number) for round_ in rounds_of(RunFolder.load(self.path))]
        controls = [f"{name}-liar" for name in CONTROLS] if self.config.control else []
        return [*rounds, f"{START}-liar", *([f"{RESULT}-liar"] if best else []), *controls, _RANDOM, _HONEST]

    def known(self, best: int) -> KnownAdversaries:
        bots, liars = self._bots(best), self._known_liars(best)
        met = [self._harms(_CHOOSING, model, liars) for model in bots.values()]
        learned = {liar: RunFolder.load(self.path / liar).metrics() for liar in liars if liar not in (_RANDOM, _HONEST)}
        return KnownAdversaries(
            targets=list(bots),
            adversaries=liars,
            gains_TA=[[clustered_rate(harms_G) for harms_G in _common(harms).T] for harms in met],
            best=[liars.index(_best(harms)) for harms in met],
            measured=[_mean(self._of_the_best(model, liars)) for model in bots.values()],
            learned={liar: metrics[GAIN_OVER_RANDOM] for liar, metrics in learned.items()},
            gained={liar: metrics[GAIN] for liar, metrics in learned.items()},
            words=LIARS,
        )

    def _of_the_best(self, model: str, liars: Sequence[str]) -> Sequence[float | None]:
        """Return the harm of the best known liar to a bot, in chats that did not choose the liar."""
        best = _best(self._harms(_CHOOSING, model, liars))
        return self._harms(_BEST, model, [best])[best]

    def _meet(self, what: str, model: str, liars: Sequence[str], run: RunFolder, reporter: Reporter) -> Harms:
        """Play a bot with some liars, those that it has not met, and return the harm of each by chat.

        Args:
            what: the chats are for.
            model: the bot.
            liars: as `_known_liars` names them.
            run: of the campaign, which logs the chats.
            reporter: who looks on.
        """
        met = self._harms(what, model, liars)
        left = [liar for liar in liars if liar not in met]
        if left:
            reporter.stage(f"{what} against {model}", len(left), "liars")
            _, settings = self._liar(model, self.config.seed)
            settings = replace(settings, scenarios=self.config.scenarios if what == _BEST else self.config.choosing)
            by_chance = {_RANDOM: self._rate, _HONEST: 0.0}
            names = {liar: by_chance[liar] if liar in by_chance else self.place(liar) for liar in left}
            with threads(self.config.threads):
                for num, (liar, harms) in enumerate(harms_of_lies(settings, what, names, self.path / ANSWERS_FOLDER), start=1):
                    run.event(MET, what=what, model=model, liar=liar, harms=harms)
                    reporter.advance(num)
        return self._harms(what, model, liars)

    def _harms(self, what: str, model: str, liars: Sequence[str]) -> Harms:
        """Return the harm to a bot of those of some liars that it has met, in every chat for something."""
        needs = {MET: {"what": str, "model": str, "liar": str, "harms": list}}
        events = [event for event in RunFolder.load(self.path).events(needs) if event["kind"] == MET]
        met = {event["liar"]: event["harms"] for event in events if (event["what"], event["model"]) == (what, model)}
        return {liar: met[liar] for liar in liars if liar in met}

    def store(self, best: int, folder: Path) -> None:
        from parley.policies.dynonet.model import DYNONET

        bot = require_checkpoint(self.model(best), "--model", MAKER)
        DYNONET.save(DYNONET.load(bot), folder, {**DYNONET.provenance(bot), "base": self.model(0), "round": best})

    def liar(self, number: int) -> str:
        """Name the stage of the liar that learned to mislead the bot of a round."""
        return f"{number:02d}-liar"

    @property
    def _rate(self) -> float:
        """Return the rate at which the first liar lies while it may; at least the smallest allowed rate."""
        return max(float((RunFolder.load(self.path / self.liar(0)).summary() or {})[RATE]), _LEAST_RATE)

    def _trained(self, **settings: object) -> TrainDynoNetConfig:
        names = ("corpus", "limit", "data_root", "seed", "threads", "decoding")
        return TrainDynoNetConfig(**{"selfplay": 0, **{name: getattr(self.config, name) for name in names}, **settings})

    def _liar(self, model: str, seed: int) -> Stage:
        names = ("body", "corpus", "scenarios", "max_events", "data_root", "threads", "game", "learning", "decoding", "chat")
        return TRAIN_LIAR, TrainLiarConfig(model=model, seed=seed, **{name: getattr(self.config, name) for name in names})


def _by_chat(harms: Harms) -> np.ndarray:
    """Return the harms (G, A), NaN in lost chats."""
    return np.array(list(harms.values()), dtype=np.float64).T


def _common(harms: Harms) -> np.ndarray:
    """Return the harms (G, A) in the chats that no liar lost."""
    values_GA = _by_chat(harms)
    return values_GA[~np.isnan(values_GA).any(axis=1)]


def _best(harms: Harms) -> str:
    return list(harms)[best_index(_common(harms))]


def _mean(harms: Sequence[float | None]) -> Estimate:
    return clustered_rate(_common({"": harms})[:, 0])


def small() -> HardenFriendsConfig:
    """Harden a small DynoNet on the built-in chats, three rounds at most, on a laptop."""
    return HardenFriendsConfig(sizes=dynonet_small())


def demo() -> HardenFriendsConfig:
    """Harden a DynoNet of 200 built-in chats for one round, in a few minutes; its figures mean little."""
    return HardenFriendsConfig(
        rounds=1,
        limit=200,
        scenarios=60,
        choosing=30,
        max_events=24,
        sizes=dynonet_small(),
        learning=ChoiceLearning(updates=6, examples_per_update=32, learning_rate=0.05),
        fit=dynonet_demo(),
        hardening=replace(hardening_fit(), max_epochs=1),
    )


class MinMaxFriends(CampaignJob[HardenFriendsConfig]):
    """`parley minmax friends`."""

    words = ("minmax", "friends")
    run_name = "minmax-friends"
    config = HardenFriendsConfig
    presets = {"small": small, "demo": demo}
    campaign, maker = FriendsCampaign, MAKER
    measures, legend = FRIENDS, CAMPAIGN
    unhelped = "no round was harmed less than the start, which is the result"

    def prepare(self, config: HardenFriendsConfig, path: Path, reporter: Reporter) -> HardenFriendsConfig:
        if config.model in friends_agents or ".py:" in config.model or is_chat_address(config.model):
            what = "a DynoNet alone can be hardened here; chat models and other bots may play the liars' side"
            fix = f"--model RUN of {MAKER}, and --body for this one"
            raise ConfigError(what, where="--model", got=config.model, fix=fix)
        return super().prepare(config, path, reporter)

    def heading(self, config: HardenFriendsConfig) -> str:
        return f"{config.model or 'a DynoNet'} hardened against liars"

    def description(self, config: HardenFriendsConfig, best: int) -> str:
        return (
            f"The bot of round {best} is the result. At most {config.game.lies} lies a chat of {config.max_events} events, "
            f"seed {config.seed}."
        )

    def next_commands(self, config: HardenFriendsConfig, path: Path) -> tuple[str, ...]:
        start = FriendsCampaign(config, path).model(0)
        evaluation = MutualFriendsConfig(model=start, trained=self.hardened(path), controls=False, data_root=config.data_root)
        heard = command_line(("evaluate", "collaboration"), {"": MutualFriendsConfig}, evaluation, run=None)
        return (*super().next_commands(config, path), heard)


MINMAX_FRIENDS = MinMaxFriends()
