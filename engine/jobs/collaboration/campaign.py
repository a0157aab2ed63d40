"""The rounds of a hardening of bots against liars: which runs they are made of, what these are asked for and come to.

The training of a liar measures as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.jobs.checkpoints import require_checkpoint
from engine.jobs.collaboration.agents import MAKER, SCRIPTED
from engine.jobs.collaboration.channels import LIAR, NONE, RANDOM_LIES
from engine.jobs.collaboration.dynonet import TRAIN_DYNONET, TrainDynoNetConfig
from engine.jobs.collaboration.liar import MEASURED, RATE, TRAIN_LIAR, TrainLiarConfig, liar_learning
from engine.jobs.composite import Stage
from engine.jobs.hardening import RESULT, START, HardeningCampaign, HardeningConfig
from engine.metrics.collaboration.hardening import AS_CONTROL, BEFORE_HARDENING, BY_CHANCE, ENDINGS, GAINS, ROUND_METRICS
from engine.metrics.collaboration.hardening import RESULT as AFTER_HARDENING
from engine.metrics.collaboration.lying import HARM
from engine.metrics.statistics import Estimate, paired_difference
from engine.store.run_folder import RunFolder
from envs.core.config import check
from envs.core.ranges import NonNegativeFloat, NonNegativeInt, NumItems, PositiveInt
from envs.core.seeds import derive_seed
from envs.friends.lies import LieRules
from policies.chat.seat import ChatSeat
from policies.choosing_settings import ChoiceLearning
from policies.dynonet.settings import DynoNetSizes, FriendsDecoding, dynonet_fit
from policies.fitting.settings import FitConfig

CONTROLS = {"control": (NONE, AS_CONTROL), "random": (RANDOM_LIES, BY_CHANCE)}
"""The start trained as long against something else: what, and what its figures end with."""
_LEAST_RATE = 1e-3


def hardening_fit() -> FitConfig:
    """Two epochs at a fifth of the rate, the last one kept."""
    return replace(dynonet_fit(), learning_rate=0.1, max_epochs=2, decay_epochs=0, keep="last")


@dataclass(frozen=True, kw_only=True)
class HardenFriendsConfig(HardeningConfig):
    """Which bot is hardened, how long, and how it is measured."""

    model: str = ""
    """The bot at the start, a run or checkpoint (parley train dynonet); when empty a DynoNet is trained first."""
    body: str = SCRIPTED
    """Who plays the liars' side: as the model, a registered name, a chat model's address, or path/file.py:Name."""
    corpus: str = ""
    """Corpus of chats to train on; that of the model when empty, else the built-in one."""
    rounds: NumItems = 3
    """Rounds at most."""
    patience: PositiveInt = 2
    """Rounds without gain after which the campaign stops."""
    least_gain: NonNegativeFloat = 0.005
    """By how much the harm of a fresh liar must fall to count as gain."""
    limit: NonNegativeInt = 0
    """Chats of each split at most that bots are trained on; 0 for all."""
    scenarios: NumItems = 300
    """Scenarios of each measurement."""
    max_events: PositiveInt = 46
    """Utterances and selections after which a chat with a liar ends."""
    control: bool = True
    """Also train the start as long without lies and on random ones, and measure both as the result."""
    data_root: Path | None = None
    """Where corpora lie; PARLEY_DATA or the user cache folder when not given."""
    seed: NonNegativeInt = 1
    """Master seed."""
    threads: PositiveInt = 1
    """CPU threads that bots and liars compute with."""
    game: LieRules = field(default_factory=LieRules)
    """What lies are allowed, and what they earn."""
    learning: ChoiceLearning = field(default_factory=liar_learning)
    """The learning rule of liars."""
    decoding: FriendsDecoding = field(default_factory=FriendsDecoding)
    """How bots speak; of chat models the temperature."""
    chat: ChatSeat = field(default_factory=ChatSeat)
    """How a chat model plays the liars' side."""
    sizes: DynoNetSizes = field(default_factory=DynoNetSizes)
    """Sizes of a bot that is trained first."""
    fit: FitConfig = field(default_factory=dynonet_fit)
    """The recipe of that bot."""
    hardening: FitConfig = field(default_factory=hardening_fit)
    """The recipe of a round."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.hardening, "keep", self.hardening.keep == "last", "last: a round and its controls make as many steps")


class FriendsCampaign(HardeningCampaign[HardenFriendsConfig]):
    """Bots are trained on chats with the liars so far; a fresh liar measures each."""

    def begin(self) -> dict[str, Stage]:
        config = self.config
        return {} if config.model else {START: (TRAIN_DYNONET, self._trained(sizes=config.sizes, fit=config.fit))}

    def round(self, number: int) -> dict[str, Stage]:
        planned = dict[str, Stage]()
        if number:
            met = ",".join((NONE, *(f"{LIAR}{self.place(self.liar(each))}" for each in range(number))))
            seed = derive_seed(self.config.seed, "round", number)
            goes_on = self._trained(start=self.model(number - 1), against=met, fit=self.config.hardening, seed=seed)
            planned[self.trained(number)] = TRAIN_DYNONET, goes_on
        # One seed for all rounds, so that they are measured on the same scenarios, which are not those of the end.
        return planned | {self.liar(number): self._liar(self.model(number), derive_seed(self.config.seed, "liar"))}

    def measured(self, number: int) -> dict[str, Estimate]:
        found = RunFolder.load(self.path / self.liar(number)).metrics()
        return {name: found[name] for name in ROUND_METRICS}

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
            # Random lies are told as often while they may be, as the first liar tells its own.
            lies = replace(config.game, rate=self._rate)
            goes_on = self._trained(start=self.model(0), against=met, fit=longer, seed=seed, lies=lies)
            planned[f"{name}-model"] = TRAIN_DYNONET, goes_on
            planned[f"{name}-liar"] = self._liar(self.place(f"{name}-model"), config.seed)
        return planned

    def outcome(self, best: int) -> dict[str, Estimate]:
        """Start, controls and result, and by how much less the result is harmed, scenario by scenario."""
        stages = {BEFORE_HARDENING: f"{START}-liar", AFTER_HARDENING: f"{RESULT if best else START}-liar"}
        stages |= {ending: f"{name}-liar" for name, (_, ending) in CONTROLS.items() if self.config.control}
        runs = {ending: RunFolder.load(self.path / stage) for ending, stage in stages.items()}
        found = {f"{name}{ending}": run.metrics()[name] for ending, run in runs.items() for name in ROUND_METRICS}
        harms = {ending: _harms(run) for ending, run in runs.items()}
        before = {gain: harms[ENDINGS[told]] for told, gain in GAINS.items() if ENDINGS[told] in harms}
        return found | {gain: paired_difference(harm, harms[AFTER_HARDENING]) for gain, harm in before.items()}

    def store(self, best: int, folder: Path) -> None:
        from policies.dynonet.checkpoints import DYNONET

        bot = require_checkpoint(self.model(best), "--model", MAKER)
        DYNONET.save(DYNONET.load(bot), folder, {**DYNONET.provenance(bot), "base": self.model(0), "round": best})

    def liar(self, number: int) -> str:
        """The stage of the liar that learned to mislead the bot after a round."""
        return f"{number:02d}-liar"

    @property
    def _rate(self) -> float:
        """How often the first liar lies while it may; of one that never does the least that may be asked for."""
        return max(float((RunFolder.load(self.path / self.liar(0)).summary() or {})[RATE]), _LEAST_RATE)

    def _trained(self, **settings: object) -> TrainDynoNetConfig:
        names = ("corpus", "limit", "data_root", "seed", "threads", "decoding")
        return TrainDynoNetConfig(**{"selfplay": 0, **{name: getattr(self.config, name) for name in names}, **settings})

    def _liar(self, model: str, seed: int) -> Stage:
        names = ("body", "corpus", "scenarios", "max_events", "data_root", "threads", "game", "learning", "decoding", "chat")
        return TRAIN_LIAR, TrainLiarConfig(model=model, seed=seed, **{name: getattr(self.config, name) for name in names})


def _harms(run: RunFolder) -> list[float]:
    """The harm of each chat of a liar; one that was killed after it had measured has measured again when it went on."""
    told = [event for event in run.events({MEASURED: {HARM: list}}) if event["kind"] == MEASURED]
    return [float(harm) for harm in told[-1][HARM]]
