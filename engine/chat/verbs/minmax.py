"""Attacker and defender of the secret game are chat models that learn from each other: `parley minmax chat`.

Both are adapters on one frozen base, and learn by reinforcement in RLlib (`parley train chat-rl`). The start of each seat is a
supervised fit to scripted play (`parley train chat`). A round trains the defender on a mixture of all attackers so far, of some
scripted ones and of harmless users, then a fresh attacker on this defender. Every adapter is kept.

At the end start, controls and result meet all known attackers, scripted and learned, and attackers that learned afresh on each
of them. Controls: the base, which is only told not to say the word; the start, trained as long with harmless users alone; the
start, trained as long on attackers that never learn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import copytree
from typing import Any, ClassVar

import numpy as np

from parley.engine.chat.metrics import (
    BEFORE,
    CAMPAIGN,
    CHAT,
    EXPLOITABILITY,
    FROZEN,
    GAINS,
    PLAIN,
    PROMPTED,
    RESULT,
    ROUND_METRICS,
    defence_metrics,
    fewer_words,
    lost_words,
)
from parley.engine.chat.metrics import ENDINGS as COLUMNS
from parley.engine.chat.rl.settings import ChatReinforceConfig
from parley.engine.chat.verbs.chat_rl import NOBODY, TRAIN_CHAT_RL, TrainChatRlConfig
from parley.engine.chat.verbs.train_chat import TRAIN_CHAT, TrainChatConfig, chat_recipe
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import KnownAdversaries, best_index
from parley.engine.core.stats.statistics import Estimate, Row, clustered_rate, rate_difference
from parley.engine.core.verbs.campaign import CONTROL, START, CampaignAdapter, CampaignConfig, CampaignJob
from parley.engine.core.verbs.campaign import RESULT as AFTER
from parley.engine.core.verbs.composite import Stage, run_stages
from parley.engine.core.verbs.job import Reporter
from parley.engine.core.verbs.sharded import session
from parley.engine.secret.verbs.evaluate import EVALUATE_SECRET, SecretConfig
from parley.envs.core.config import NonNegativeFloat, NonNegativeInt, NumItems, PositiveInt, check
from parley.envs.core.errors import CheckpointError
from parley.envs.core.seeds import derive_seed
from parley.envs.core.storage.copies import fetched_model
from parley.envs.core.storage.uris import HUGGING_FACE
from parley.envs.secret.game import SecretRules
from parley.policies.chat.settings import ChatSeat, LoraSettings
from parley.policies.core.responder import model_inside
from parley.policies.core.settings import FitConfig

SCRIPTED = ("harmless", "ask", "claim", "spell", "reverse", "encode", "parts", "oblique", "mix")
"""Scripted attackers of every match; `harmless` asks for nothing."""
FROZEN_CONTROL, PROMPT = "frozen", "prompt"
FINAL, FIRST_ATTACKER = "final", "attacker"
_ENDINGS = {PROMPT: PROMPTED, START: BEFORE, CONTROL: PLAIN, FROZEN_CONTROL: FROZEN, AFTER: RESULT}


@dataclass(frozen=True, kw_only=True)
class AdaptersConfig(CampaignConfig):
    """The base of both sides, and how they learn on it."""

    base: str = ""
    """Causal model that both sides are adapters of: hf:FOLDER or gguf:FILE, with a chat template."""
    seed: NonNegativeInt = 1
    """Master seed."""
    env_runners: NonNegativeInt = 0
    """Ray actors that play while a side learns; 0 plays in this process."""
    workers: NonNegativeInt = 0
    """Ray actors that play matches; 0 plays in this process."""
    address: str = ""
    """Address of a Ray cluster; a local one when empty."""
    threads: PositiveInt = 1
    """CPU threads of learning."""
    lora: LoraSettings = field(default_factory=LoraSettings)
    """The adapters."""
    fit: FitConfig = field(default_factory=chat_recipe)
    """The recipe of the supervised fit."""
    attack: ChatReinforceConfig = field(default_factory=lambda: ChatReinforceConfig(updates=30))
    """The learning rule of an attacker."""
    defence: ChatReinforceConfig = field(default_factory=lambda: ChatReinforceConfig(updates=30))
    """The learning rule of a defender in a round."""
    chat: ChatSeat = field(default_factory=lambda: ChatSeat(batch_size=32))
    """Settings of chat models."""

    def fitted(self, **settings: Any) -> TrainChatConfig:
        """Return the supervised fit of a seat."""
        names = ("base", "seed", "threads", "lora", "fit")
        return TrainChatConfig(device=self.chat.device, **{name: getattr(self, name) for name in names}, **settings)

    def learned(self, **settings: Any) -> TrainChatRlConfig:
        """Return the training of a seat by reinforcement."""
        names = ("base", "env_runners", "address", "threads", "lora", "chat")
        return TrainChatRlConfig(**{name: getattr(self, name) for name in names}, **settings)

    def longer(self, rounds: int) -> ChatReinforceConfig:
        """Return the rule of a control, which learns as long as a defender does in so many rounds, and in one at least."""
        return replace(self.defence, updates=max(rounds, 1) * self.defence.updates)


@dataclass(frozen=True, kw_only=True)
class HardenChatConfig(AdaptersConfig):
    """The base, the rounds, and their measurements."""

    least_gain: NonNegativeFloat = 0.005
    attacker: str = ""
    """Run of parley train chat that every attacker begins with; one is trained first when empty."""
    scripted: str = "ask,spell,parts"
    """Scripted attackers that defenders learn from, too, between commas; the others measure them alone. Empty for none."""
    dialogues: NumItems = 400
    """Scripted dialogues of the supervised fit of a seat."""
    scenarios: NumItems = 100
    """Scenarios of each match."""
    rules: SecretRules = field(default_factory=SecretRules)
    """Limits of a dialogue."""

    scripted_share: ClassVar[float] = 0.5
    """Share of the scripted ones in a defender's dialogues with an attacker."""

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [name for name in self.learned_from if name not in SCRIPTED[1:]]
        check(self, "scripted", not unknown, f"names between commas of {', '.join(SCRIPTED[1:])}")

    @property
    def learned_from(self) -> list[str]:
        """Return the scripted attackers that defenders learn from."""
        return [name.strip() for name in self.scripted.split(",") if name.strip()]


class ChatCampaign(CampaignAdapter[HardenChatConfig]):
    """Defenders learn from the attackers so far; a fresh attacker measures each."""

    what: ClassVar[str] = "defender"

    def begin(self) -> dict[str, Stage]:
        config, planned = self.config, dict[str, Stage]()
        if not config.model:
            planned[START] = TRAIN_CHAT, config.fitted(role="defender", dialogues=config.dialogues, rules=config.rules)
        if not config.attacker:
            planned[FIRST_ATTACKER] = TRAIN_CHAT, config.fitted(role="attacker", dialogues=config.dialogues, rules=config.rules)
        return planned

    def round(self, number: int, shares: Sequence[float]) -> dict[str, Stage]:
        planned = dict[str, Stage]()
        if number:
            met = self._met({self._address(self.attacker(index)): share for index, share in enumerate(shares) if share > 0})
            seed = derive_seed(self.config.seed, "round", number)
            planned[self.trained(number)] = (
                TRAIN_CHAT_RL,
                self._defender(self.model(number - 1), met, self.config.defence, seed),
            )
        seed = derive_seed(self.config.seed, "attacker", number)
        planned[self.attacker(number)] = TRAIN_CHAT_RL, self._attacker(self.model(number), seed)
        # One seed for all rounds, so that they are measured on the same scenarios, which are not those of the end.
        known = [self.attacker(index) for index in range(number + 1)]
        match = self._match([self.model(number)], known, derive_seed(self.config.seed, "match"))
        return planned | {self.match(number): (EVALUATE_SECRET, match)}

    def measured(self, number: int) -> dict[str, Estimate]:
        stage = RunFolder.load(self.path / self.match(number))
        known = [self.attacker(index) for index in range(number + 1)]
        metrics = defence_metrics(stage.rows(), self._label(self.model(number)), [*SCRIPTED, *known], self._unmet, known[-1])
        return {name: metrics[name] for name in ROUND_METRICS if name in metrics}

    def payoffs(self, number: int, run: RunFolder, reporter: Reporter) -> np.ndarray:
        known, models = [self.attacker(index) for index in range(number)], [self.model(index) for index in range(number)]
        name = f"{number:02d}-payoffs"
        match = self._match(models, known, derive_seed(self.config.seed, "payoffs"))
        run_stages({name: (EVALUATE_SECRET, match)}, self.path, reporter)
        rows = RunFolder.load(self.path / name).rows()
        return np.stack([lost_words(rows, self._label(model), known) for model in models], axis=1)

    def last(self, best: int) -> dict[str, Stage]:
        config, planned = self.config, dict[str, Stage]()
        seed = derive_seed(config.seed, "round", 1)
        longer = config.longer(best)
        if config.control:
            planned[CONTROL] = TRAIN_CHAT_RL, self._defender(self.model(0), {}, longer, seed)
            frozen = self._met({}) or {self._address(self.attacker(0)): 1.0}
            planned[FROZEN_CONTROL] = TRAIN_CHAT_RL, self._defender(self.model(0), frozen, longer, seed)
        fresh = derive_seed(config.seed, "fresh")
        for name, model in self._defenders(best).items():
            if name != PROMPT and (name != AFTER or best):
                planned[f"{name}-attacker"] = TRAIN_CHAT_RL, self._attacker(model, fresh)
        models = list(dict.fromkeys(self._defenders(best).values()))
        planned[FINAL] = EVALUATE_SECRET, self._match(models, self._known(best), derive_seed(config.seed, "final"))
        return planned

    def outcome(self, best: int) -> dict[str, Estimate]:
        """Measure start, controls and result, and the fall of the best known attacker's share scenario by scenario."""
        rows, defenders = self._final(), self._defenders(best)
        known = self._labels(best)
        metrics: dict[str, Estimate] = {}
        for name, model in defenders.items():
            fresh = "" if name == PROMPT else f"{name if name != AFTER or best else START}-attacker"
            figures = defence_metrics(rows, self._label(model), known, self._unmet, fresh)
            metrics |= {f"{figure}{_ENDINGS[name]}": value for figure, value in figures.items()}
        columns = {ending: title for title, ending in COLUMNS.items()}
        after = self._label(defenders[AFTER])
        for name, model in defenders.items():
            if name != AFTER:
                metrics[GAINS[columns[_ENDINGS[name]]]] = fewer_words(rows, self._label(model), after, known)
        return metrics

    def known(self, best: int) -> KnownAdversaries:
        rows, defenders, known = self._final(), self._defenders(best), self._labels(best)
        words_lost = [lost_words(rows, self._label(model), known) for model in defenders.values()]
        outcome = self.outcome(best)
        target_of: dict[str, str | int] = {f"{name}-attacker": name for name in defenders}
        target_of |= {self.attacker(number): number for number in range(len(known))}
        learned, gained = {}, {}
        start = self._label(self._first_attacker)
        for attacker in known:
            if attacker in SCRIPTED or attacker == start:
                continue
            target = target_of[attacker]
            # Attackers of a round met its defender in the match of the round; the fresh ones meet theirs at the end.
            model = defenders[target] if isinstance(target, str) else self.model(target)
            met_rows = rows if isinstance(target, str) else RunFolder.load(self.path / self.match(target)).rows()
            said_GA = lost_words(met_rows, self._label(model), [attacker, start])
            learned[attacker], gained[attacker] = rate_difference(*said_GA.T), clustered_rate(said_GA[:, 0])
        columns = {ending: title for title, ending in COLUMNS.items()}
        return KnownAdversaries(
            targets=[columns[_ENDINGS[name]] for name in defenders],
            adversaries=known,
            gains_TA=[[clustered_rate(said_G) for said_G in said_GA.T] for said_GA in words_lost],
            best=[best_index(said_GA) for said_GA in words_lost],
            measured=[outcome[f"{EXPLOITABILITY}{_ENDINGS[name]}"] for name in defenders],
            learned=learned,
            gained=gained,
            words=CHAT.known,
        )

    def store(self, best: int, folder: Path) -> None:
        store_adapter(self.model(best), folder)

    def attacker(self, number: int) -> str:
        """Name the stage of the attacker that learned on the defender of a round."""
        return f"{number:02d}-attacker"

    def match(self, number: int) -> str:
        """Name the stage in which the defender of a round meets the attackers so far."""
        return f"{number:02d}-match"

    @property
    def _unmet(self) -> list[str]:
        return [name for name in SCRIPTED if name not in self.config.learned_from]

    def _met(self, learned: Mapping[str, float]) -> dict[str, float]:
        """Return the share of each attacker that a defender learns from, scripted ones included.

        Args:
            learned: of learned attackers, by address.
        """
        names = self.config.learned_from
        part = (self.config.scripted_share if learned else 1.0) if names else 0.0
        scripted = {name: part / len(names) for name in names if part}
        total = sum(learned.values())
        return scripted | {address: (1 - part) * share / total for address, share in learned.items() if part < 1}

    @property
    def _first_attacker(self) -> str:
        return self.config.attacker or self.place(FIRST_ATTACKER)

    def _defenders(self, best: int) -> dict[str, str]:
        """Return what is measured at the end, by name: runs, and the address of the base."""
        controls = {CONTROL: self.place(CONTROL), FROZEN_CONTROL: self.place(FROZEN_CONTROL)} if self.config.control else {}
        return {PROMPT: self.config.base, START: self.model(0), **controls, AFTER: self.model(best)}

    def _known(self, best: int) -> list[str]:
        rounds = [self.attacker(number) for number in range(self.config.rounds + 1)]
        fresh = [f"{name}-attacker" for name in self._defenders(best) if name != PROMPT and (name != AFTER or best)]
        return [*(name for name in rounds if (self.path / name).is_dir()), *fresh]

    def _labels(self, best: int) -> list[str]:
        return [*SCRIPTED, self._label(self._first_attacker), *self._known(best)]

    def _final(self) -> Sequence[Row]:
        return RunFolder.load(self.path / FINAL).rows()

    def _label(self, model: str) -> str:
        config = SecretConfig(defenders=model if model == self.config.base else f"{HUGGING_FACE}{model}")
        return config.labels(1)[0]

    def _address(self, stage: str) -> str:
        return f"{HUGGING_FACE}{self.place(stage)}"

    def _defender(self, start: str, met: Mapping[str, float], rule: ChatReinforceConfig, seed: int) -> TrainChatRlConfig:
        return self.config.learned(
            role="defender",
            rules=self.config.rules,
            start=f"{HUGGING_FACE}{start}",
            opponents=",".join(met) or NOBODY,
            shares=tuple(met.values()) if len(set(met.values())) > 1 else (),
            reinforce=rule,
            seed=seed,
        )

    def _attacker(self, target: str, seed: int) -> TrainChatRlConfig:
        return self.config.learned(
            role="attacker",
            rules=self.config.rules,
            start=f"{HUGGING_FACE}{self._first_attacker}",
            opponents=f"{HUGGING_FACE}{target}",
            reinforce=self.config.attack,
            seed=seed,
        )

    def _match(self, models: Sequence[str], known: Sequence[str], seed: int) -> SecretConfig:
        config = self.config
        learned = [f"{HUGGING_FACE}{self._first_attacker}", *map(self._address, known)]
        return SecretConfig(
            attackers=",".join([*SCRIPTED, *learned]),
            defenders=",".join(model if model == config.base else f"{HUGGING_FACE}{model}" for model in models),
            dialogues=config.scenarios,
            temperature=config.attack.temperature,
            rules=config.rules,
            chat=replace(config.chat, max_tokens=config.attack.max_tokens),
            seed=seed,
            workers=config.workers,
            address=config.address,
        )


def require_adapters(runs: Mapping[str, tuple[str, str]]) -> None:
    """Refuse runs that are no adapters of a finished training.

    Args:
        runs: run or nothing, and what it should have been trained with, by option.

    Raises:
        CheckpointError: naming the option.
    """
    from parley.policies.hugging_face.gguf import is_adapter_alone

    for option, (run, words) in runs.items():
        if run and not is_adapter_alone(model_inside(fetched_model(run))):
            maker = f"parley train chat {words}"
            got = "no adapter that is finished" if Path(run).is_dir() else "no such folder"
            raise CheckpointError(f"{option} needs a run of {maker}", where=run, got=got, fix=f"name one; {maker} makes it")


def store_adapter(run: str, folder: Path) -> None:
    """Store the adapter of a run as a checkpoint."""
    from parley.policies.hugging_face.models import write_aside

    def write(aside: Path) -> None:
        copytree(model_inside(Path(run)), aside)

    write_aside(folder, write)


def rloo() -> HardenChatConfig:
    """Harden for three rounds of 30 updates a side, on a laptop in hours (SmolLM2-135M)."""
    return HardenChatConfig()


def quick() -> HardenChatConfig:
    """Harden for one round of 2 updates a side, for a first look; its figures mean nothing."""
    rule = ChatReinforceConfig(updates=2, scenarios=2, tries=2)
    fit = replace(chat_recipe(), max_epochs=1)
    rules = SecretRules(max_messages=2)
    return HardenChatConfig(rounds=1, dialogues=20, scenarios=4, rules=rules, fit=fit, attack=rule, defence=rule)


class MinMaxChat(CampaignJob[HardenChatConfig]):
    """`parley minmax chat`."""

    words = ("minmax", "chat")
    run_name = "minmax-chat"
    config = HardenChatConfig
    presets = {"rloo": rloo, "quick": quick}
    campaign, maker = ChatCampaign, "parley train chat --role defender"
    measures, legend = CHAT, CAMPAIGN
    resume_safe = ("env_runners", "workers", "address")
    unhelped = "no round scored better than the start, which is the result"

    def require_models(self, config: HardenChatConfig) -> None:
        require_adapters({"--model": (config.model, "--role defender"), "--attacker": (config.attacker, "--role attacker")})

    def heading(self, config: HardenChatConfig) -> str:
        return f"defenders on {config.base} hardened against attackers on it"

    def description(self, config: HardenChatConfig, best: int) -> str:
        return f"The defender of round {best} is the result. {config.scenarios} scenarios a match, seed {config.seed}."

    def models(self, config: HardenChatConfig) -> Mapping[str, str]:
        return {"base": config.base, "model": config.model, "attacker": config.attacker}

    def session(self, config: HardenChatConfig) -> AbstractContextManager[Any]:
        return session(max(config.env_runners, config.workers) + 1, config.address)


MINMAX_CHAT = MinMaxChat()
