"""The configuration of an evaluation of bots that look for a common friend, and the channels of strategies by name.

Strategies change utterances on their way to the listener: those of `engine/mutual_friends`, liars, and those of parley perturb.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from parley.engine.core.verbs.checkpoints import absolute_name, require_checkpoint
from parley.engine.core.verbs.sharded import ShardedConfig
from parley.engine.mutual_friends.channels import (
    CONFUSING,
    KEPT,
    RANDOM,
    STRANGE,
    UNHEARD,
    ChatKnowledge,
    ConfusedEntityChannel,
    MuteChannel,
    PerturbedChannel,
    RandomChannel,
    UnknownWordChannel,
)
from parley.engine.mutual_friends.metrics.chats import MODEL, NORMAL, ONE_SIDED, TRAINED
from parley.engine.perturb import catalogue
from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.core.config import NumItems, PositiveInt
from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.mutual_friends.compiled import FriendsCorpus
from parley.envs.mutual_friends.game import Channel, FriendsChat, FriendsGame, Remembers, passed_on
from parley.envs.mutual_friends.lies import LieRules, LyingChannel, by_chance
from parley.envs.mutual_friends.scenario import ScenarioOptions
from parley.policies.chat.addresses import is_chat_address, short_address
from parley.policies.chat.friend import ChatLies
from parley.policies.chat.seat import chat_model, require_address
from parley.policies.chat.settings import ChatSeat
from parley.policies.dynonet.settings import FriendsDecoding

ALL = (RANDOM, KEPT, CONFUSING)
"""The paper's strategies, for "all"."""
NONE = "none"
"""Chats as they were recorded, or no strategy at all."""
LIAR, RANDOM_LIES = "liar:", "random-lies"
"""Before the run of a trained liar or the address of a chat model that lies; lies by chance."""
LIARS = {
    RANDOM_LIES: "entities give way to others of the schema, and claims are made, by chance",
    f"{LIAR}RUN": "what a trained liar chooses (parley train liar)",
    f"{LIAR}ADDRESS": "what a chat model chooses",
}
"""Strategies that tell lies, beside those of parley perturb."""
LIAR_MAKER = "parley train liar"


def strategy_list(chosen: str, *more: str) -> tuple[str, ...]:
    """Return the distinct strategies of a comma-separated list.

    Args:
        chosen: names separated by commas; all stands for the paper's.
        more: further names that may be chosen.

    Raises:
        ConfigError: no strategy is called so, with the nearest name.
    """
    named = [part.strip() for part in chosen.split(",")]
    names = tuple(dict.fromkeys(name for part in named for name in (ALL if part == "all" else (part,))))
    if perturbing := ",".join(name for name in names if not name.startswith(LIAR)):
        catalogue.require_names(perturbing, RANDOM_LIES, *more)
    return names


def tells_lies(strategy: str) -> bool:
    """Return True if a strategy replaces entities by others."""
    return strategy in (CONFUSING, RANDOM_LIES) or strategy.startswith(LIAR)


def is_chat_liar(strategy: str) -> bool:
    """Return True if a strategy is a chat model that lies."""
    spec = strategy.removeprefix(LIAR)
    return spec != strategy and (is_chat_address(spec) or ".py:" in spec)


def label_of(strategy: str) -> str:
    """Return a strategy's label: the end of a liar's path, or the short address of a chat model."""
    if not strategy.startswith(LIAR):
        return strategy
    if is_chat_liar(strategy):
        spec = strategy.removeprefix(LIAR)
        return LIAR + (spec.rpartition(":")[2] if ".py:" in spec else short_address(spec))
    return LIAR + next((part for part in reversed(strategy.split("/")) if part not in ("", CHECKPOINT)), "").removeprefix(LIAR)


def liars_of(strategies: Iterable[str]) -> dict[str, str]:
    """Return the runs and addresses of the liars among some strategies, by label."""
    return {label_of(name): name.removeprefix(LIAR) for name in strategies if name.startswith(LIAR)}


def located_strategy(strategy: str) -> str:
    """Return a strategy's name that holds on other machines and in other folders.

    Raises:
        CheckpointError: a liar's run is not there.
    """
    if not strategy.startswith(LIAR):
        return strategy
    return f"{LIAR}{absolute_name(strategy.removeprefix(LIAR), 'liar:RUN', LIAR_MAKER)}"


class Channels:
    """The channels of a process, made as they are asked for.

    Args:
        corpus: whose names friends have, and whose words are said.
        perturb: how the strategies of parley perturb change utterances.
        data_root: where their lexicons lie.
        lies: limits of random lies and of chat models.
        device: that networks of strategies compute on.
        seat: how chat models that lie are loaded or asked; as by default when not given.
        temperature: of theirs.
        answers: folder in which their answers are kept; None keeps none.

    Raises:
        ConfigError: the corpus says too few words to draw from.
    """

    def __init__(
        self,
        corpus: FriendsCorpus,
        perturb: PerturbSettings,
        data_root: Path | None,
        lies: LieRules,
        device: str = "cpu",
        seat: ChatSeat | None = None,
        temperature: float = FriendsDecoding().temperature,
        answers: Path | None = None,
    ) -> None:
        self.knowledge = ChatKnowledge(corpus.schema, corpus.linker, corpus.words)
        self._corpus, self._perturb, self._lies = corpus, perturb, lies
        self._data_root, self._device = data_root, device
        self._seat, self._temperature, self._answers = seat or ChatSeat(), temperature, answers
        self._ours: dict[str, Channel | None] = {
            NORMAL: None,
            NONE: None,
            RANDOM: RandomChannel(self.knowledge),
            KEPT: RandomChannel(self.knowledge, keeps=True),
            CONFUSING: ConfusedEntityChannel(self.knowledge),
            STRANGE: UnknownWordChannel(self.knowledge),
            UNHEARD: MuteChannel(),
            RANDOM_LIES: LyingChannel(RANDOM_LIES, corpus.linker, lies, by_chance(lies.rate)),
        }

    def named(self, name: str) -> Channel | None:
        """Return the channel of a strategy; None for normal inputs.

        Raises:
            ConfigError: nothing is called so.
            CheckpointError: a liar's checkpoint, or a chat model, is not there, damaged or of another kind.
        """
        if name in self._ours:
            return self._ours[name]
        if is_chat_liar(name):
            return self._chat_liar(name)
        if name.startswith(LIAR):
            from parley.policies.dynonet.agent import liar_choice, load_liar

            liar, rules = load_liar(require_checkpoint(name.removeprefix(LIAR), "liar:RUN", LIAR_MAKER))
            return LyingChannel(name, self._corpus.linker, rules, liar_choice(liar))
        resources = Resources(self._perturb, data_root=self._data_root, device=self._device)
        (strategy,) = catalogue.build([name], self._perturb, resources)
        return PerturbedChannel(strategy)

    def _chat_liar(self, name: str) -> Channel:
        address, seat = name.removeprefix(LIAR), self._seat
        require_address(address)
        return ChatLies(
            name,
            self._corpus.linker,
            self._lies,
            address=address,
            load=partial(chat_model, address, seat.on(self._device), answers=self._answers),
            temperature=self._temperature,
            max_tokens=seat.max_tokens,
        )


def misheard(chats: Sequence[FriendsChat], channel: Channel | None, seeds: Sequence[int]) -> list[FriendsChat]:
    """Pass recorded chats through a channel; what both sides say and select stays.

    Args:
        chats: whole.
        channel: changes utterances.
        seeds: of each chat.
    """
    game = FriendsGame(len(chats))
    game.enter(range(len(chats)), [chat.scenario for chat in chats], seeds)
    for turn in range(max((len(chat.events) for chat in chats), default=0)):
        rows = [row for row, chat in enumerate(chats) if len(chat.events) > turn]
        events = [chats[row].events[turn] for row in rows]
        for row, event, heard in zip(rows, events, passed_on(game, rows, events, channel), strict=True):
            # Recorded chats may be longer than a game is, and go on after an agreement.
            game.events[row].append(event)
            game.heard[row].append(heard)
    return [replace(chat, heard=tuple(heard)) for chat, heard in zip(chats, game.heard, strict=True)]


CONTROLS = (UNHEARD, STRANGE)
"""Control strategies, which put the others into proportion."""
SCRIPTED, MIXED, SELECTORS, BLIND = "scripted", "mixed", "selectors", "blind"
"""Control pairs: two scripted bots, the bot with a scripted one, and two kinds of bots that only select."""


class Condition(NamedTuple):
    """A pair of players, and the strategy that changes their utterances."""

    pair: str
    strategy: str

    @property
    def one_sided(self) -> bool:
        """Return True if the utterances of side 0 alone are changed."""
        return self.strategy.startswith(ONE_SIDED)

    @property
    def at_a_glance(self) -> bool:
        """True for the paper's conditions, and for the chosen ones."""
        return self.pair == MODEL and not self.one_sided and self.strategy not in CONTROLS

    @property
    def hearing(self) -> str:
        """The strategy, whichever sides it is for."""
        return self.strategy.removeprefix(ONE_SIDED)


@dataclass(frozen=True, kw_only=True)
class MutualFriendsConfig(ShardedConfig):
    """The bots that look for their common friend, and the strategies on their utterances."""

    model: str = SCRIPTED
    """Bot on both sides: a run or checkpoint (parley train dynonet), a registered name (parley list), a chat model (hf:FOLDER,
    gguf:FILE, openai:URL#MODEL), or path/file.py:Name."""
    partner: str = ""
    """Bot on side 1, if it is another one."""
    strategies: str = "all"
    """Strategies separated by commas: all (random-inputs, random-inputs-kept-entities, confusing-entity), none, any of parley
    perturb, path/file.py:Name, liar:RUN (parley train liar), liar:ADDRESS of a chat model that lies, or random-lies; normal
    inputs are there in any case."""
    trained: str = ""
    """Runs of parley train dynonet --start (the model) --against, separated by commas: each plays beside it, with itself or
    with the partner."""
    judge: str = ""
    """A chat model with likelihoods (hf:FOLDER, gguf:FILE, path/file.py:Name) that measures the perplexity of heard words."""
    controls: bool = True
    """Beside the bot: scripted bots, bots that only select, one that hears no words, strategies on one side alone; beside chat
    models that lie, random lies."""
    scenarios: NumItems = 1000
    """Number of scenarios; each is played under every condition."""
    corpus: str = ""
    """Corpus whose names friends have; that of the model when empty, and the built-in one of scripted bots."""
    recorded: str = ""
    """Corpus of recorded chats (parley data list) that models of parley train dynonet read, too: how likely they find what is
    said there. Of the corpus that a model was fitted to its test split, of another one all chats."""
    remembers: Remembers = "said"
    """A bot remembers its own words as said, or as its partner heard them."""
    max_events: PositiveInt = 46
    """Utterances and selections after which a chat ends."""
    side_by_side: PositiveInt = 128
    """Chats that a worker plays in lock-step."""
    published: Literal["none", "niu2018"] = "niu2018"
    """Figures to show beside the measured ones."""
    tables: ScenarioOptions = field(default_factory=ScenarioOptions)
    """The draws of scenarios."""
    decoding: FriendsDecoding = field(default_factory=FriendsDecoding)
    """The decoding of models; chat models use its temperature."""
    chat: ChatSeat = field(default_factory=ChatSeat)
    """Settings of chat models that take part."""
    lies: LieRules = field(default_factory=LieRules)
    """Limits of random-lies and of chat models that lie; a trained liar keeps the limits of its training."""
    perturb: PerturbSettings = field(default_factory=PerturbSettings)
    """Settings of the strategies of parley perturb."""

    def __post_init__(self) -> None:
        super().__post_init__()
        named = strategy_list(self.strategies, NORMAL, NONE, *CONTROLS)
        if any(name in (NORMAL, *CONTROLS) for name in named) or (NONE in named and self.strategies != NONE):
            fix = "leave it out: it is there in any case, or with --controls"
            raise ConfigError("this is no strategy to choose", where="--strategies", got=self.strategies, fix=fix)
        if len({label_of(name) for name in named}) < len(named):
            fix = "give their folders different names"
            raise ConfigError("two liars have the same name", where="--strategies", got=self.strategies, fix=fix)

    @property
    def strategy_names(self) -> tuple[str, ...]:
        """The strategies one by one, each once, by the names that rows call them."""
        return tuple(self.channel_names)

    @property
    def channel_names(self) -> Mapping[str, str]:
        """The names of their channels by those of the strategies."""
        return {label_of(name): name for name in strategy_list(self.strategies)} if self.strategies != NONE else {}

    @property
    def trained_runs(self) -> tuple[str, ...]:
        """The runs of trained models one by one."""
        return tuple(dict.fromkeys(part.strip() for part in self.trained.split(",") if part.strip()))

    @property
    def pairs(self) -> Mapping[str, tuple[str, str]]:
        """Return the bots on side 0 and side 1, by pair."""
        other = self.partner if self.partner != self.model else ""
        pairs = {MODEL: (self.model, other or self.model)}
        pairs |= {f"{TRAINED}{i}": (run, other or run) for i, run in enumerate(self.trained_runs, 1)}
        if not self.controls:
            return pairs
        beside = {SCRIPTED: (SCRIPTED, SCRIPTED), MIXED: (self.model, SCRIPTED)}
        selecting = {SELECTORS: ("selector", "selector"), BLIND: ("blind-selector", "blind-selector")}
        distinct = {pair: who for pair, who in beside.items() if who not in (pairs[MODEL], pairs[MODEL][::-1])}
        return pairs | distinct | selecting

    @property
    def chats(self) -> bool:
        """Return True if a chat model takes part by its address, lies, or judges."""
        return bool(any(map(is_chat_address, (self.model, self.partner))) or self.chat_liars or self.judge)

    @property
    def chat_liars(self) -> tuple[str, ...]:
        """The strategies by which a chat model lies, by the names that rows call them."""
        return tuple(label for label, name in self.channel_names.items() if is_chat_liar(name))

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """All of them, in the order of the table."""
        conditions = []
        for pair in self.pairs:
            names = [NORMAL, *(self.strategy_names if pair not in (SELECTORS, BLIND) else ())]
            if self.controls and pair == MODEL:
                beside = [RANDOM_LIES] if self.chat_liars and RANDOM_LIES not in names else []
                names += [*beside, *CONTROLS, *(f"{ONE_SIDED}{name}" for name in self.strategy_names)]
            conditions += [Condition(pair, name) for name in names]
        return tuple(conditions)
