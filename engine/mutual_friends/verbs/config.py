"""What an evaluation of collaborating bots is asked for: who plays with whom, and what becomes of what they say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from parley.engine.core.verbs.sharded import ShardedConfig
from parley.engine.mutual_friends.channels.strategies import STRANGE, UNHEARD
from parley.engine.mutual_friends.metrics.chats import MODEL, NORMAL, ONE_SIDED, TRAINED
from parley.engine.mutual_friends.verbs.channels import NONE, RANDOM_LIES, is_chat_liar, label_of, strategy_list
from parley.engine.perturb.settings import PerturbSettings
from parley.envs.core.errors import ConfigError
from parley.envs.core.ranges import NumItems, PositiveInt
from parley.envs.mutual_friends.lies import LieRules
from parley.envs.mutual_friends.play import Remembers
from parley.envs.mutual_friends.scenario import ScenarioOptions
from parley.policies.chat.addresses import is_chat_address
from parley.policies.chat.seat import ChatSeat
from parley.policies.dynonet.settings import FriendsDecoding

CONTROLS = (UNHEARD, STRANGE)
"""Ours, which say what those come to."""
SCRIPTED, MIXED, SELECTORS, BLIND = "scripted", "mixed", "selectors", "blind"
"""Pairs beside the one that was asked for: two scripted bots, one of each, and two that only select."""


class Condition(NamedTuple):
    """Who plays, and what becomes of what they say."""

    pair: str
    strategy: str

    @property
    def one_sided(self) -> bool:
        """Whether the utterances of side 0 alone are changed."""
        return self.strategy.startswith(ONE_SIDED)

    @property
    def at_a_glance(self) -> bool:
        """Whether the paper has it, or it was asked for."""
        return self.pair == MODEL and not self.one_sided and self.strategy not in CONTROLS

    @property
    def hearing(self) -> str:
        """The strategy, whichever sides it is for."""
        return self.strategy.removeprefix(ONE_SIDED)


@dataclass(frozen=True, kw_only=True)
class CollaborationConfig(ShardedConfig):
    """Which bots look for the friend they share, and what they hear of each other."""

    model: str = SCRIPTED
    """Bot on both sides: a run or checkpoint (parley train dynonet), a registered name (parley list), a chat model (hf:FOLDER,
    gguf:FILE, openai:URL#MODEL), or path/file.py:Name."""
    partner: str = ""
    """Bot on side 1 where it is another one."""
    strategies: str = "all"
    """Strategies separated by commas: all (random-inputs, random-inputs-kept-entities, confusing-entity), none, any of parley
    perturb, path/file.py:Name, liar:RUN (parley train liar), liar:ADDRESS of a chat model that lies, or random-lies; normal
    inputs are there in any case."""
    trained: str = ""
    """Runs of parley train dynonet --start (the model) --against, separated by commas: each plays beside it, with itself or
    with the partner."""
    judge: str = ""
    """A chat model that gives likelihoods (hf:FOLDER, gguf:FILE, path/file.py:Name) says how perplexing what is heard is."""
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
    """Whether a bot remembers its own words as it said them or as its partner heard them."""
    max_events: PositiveInt = 46
    """Utterances and selections after which a chat ends."""
    side_by_side: PositiveInt = 128
    """Chats that a worker plays in lock-step."""
    published: Literal["none", "niu2018"] = "niu2018"
    """Figures to show beside the measured ones."""
    tables: ScenarioOptions = field(default_factory=ScenarioOptions)
    """How scenarios are drawn."""
    decoding: FriendsDecoding = field(default_factory=FriendsDecoding)
    """How models choose words; of chat models the temperature."""
    chat: ChatSeat = field(default_factory=ChatSeat)
    """How chat models take part."""
    lies: LieRules = field(default_factory=LieRules)
    """What random-lies and chat models that lie may do; a trained liar keeps to the rules of its training."""
    perturb: PerturbSettings = field(default_factory=PerturbSettings)
    """How the strategies of parley perturb change utterances."""

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
        """Who is on side 0 and side 1, by pair."""
        other = self.partner if self.partner != self.model else ""
        asked = {MODEL: (self.model, other or self.model)}
        asked |= {f"{TRAINED}{i}": (run, other or run) for i, run in enumerate(self.trained_runs, 1)}
        if not self.controls:
            return asked
        beside = {SCRIPTED: (SCRIPTED, SCRIPTED), MIXED: (self.model, SCRIPTED)}
        selecting = {SELECTORS: ("selector", "selector"), BLIND: ("blind-selector", "blind-selector")}
        known = {pair: who for pair, who in beside.items() if who not in (asked[MODEL], asked[MODEL][::-1])}
        return asked | known | selecting

    @property
    def chats(self) -> bool:
        """Whether a chat model takes part that is known by its address, or lies, or judges."""
        return bool(any(map(is_chat_address, (self.model, self.partner))) or self.chat_liars or self.judge)

    @property
    def chat_liars(self) -> tuple[str, ...]:
        """The strategies by which a chat model lies, by the names that rows call them."""
        return tuple(label for label, name in self.channel_names.items() if is_chat_liar(name))

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """All of them, in the order of the table."""
        found = []
        for pair in self.pairs:
            names = [NORMAL, *(self.strategy_names if pair not in (SELECTORS, BLIND) else ())]
            if self.controls and pair == MODEL:
                beside = [RANDOM_LIES] if self.chat_liars and RANDOM_LIES not in names else []
                names += [*beside, *CONTROLS, *(f"{ONE_SIDED}{name}" for name in self.strategy_names)]
            found += [Condition(pair, name) for name in names]
        return tuple(found)
