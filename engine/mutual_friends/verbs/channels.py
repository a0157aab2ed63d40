"""What becomes of utterances on their way, by name: strategies of `engine/mutual_friends`, liars, those of parley perturb."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from parley.engine.core.verbs.checkpoints import absolute_name, require_checkpoint
from parley.engine.mutual_friends.channels.strategies import (
    CONFUSING,
    KEPT,
    RANDOM,
    STRANGE,
    UNHEARD,
    ChatKnowledge,
    ConfusedHearing,
    PerturbedHearing,
    RandomHearing,
    StrangeHearing,
    Unheard,
)
from parley.engine.mutual_friends.metrics.chats import NORMAL
from parley.engine.perturb import catalogue
from parley.engine.perturb.resources import Resources
from parley.engine.perturb.settings import PerturbSettings
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.mutual_friends.compiled import FriendsCorpus
from parley.envs.mutual_friends.events import FriendsChat
from parley.envs.mutual_friends.game import FriendsGame
from parley.envs.mutual_friends.lies import LieRules, LyingHearing, by_chance
from parley.envs.mutual_friends.play import Channel, passed_on
from parley.policies.chat.addresses import is_chat_address, short_address
from parley.policies.chat.liar import ChatLies
from parley.policies.chat.seat import ChatSeat, chat_model, require_address
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
"""What tells lies, beside the strategies of parley perturb."""
LIAR_MAKER = "parley train liar"


def strategy_list(chosen: str, *others: str) -> tuple[str, ...]:
    """The strategies that a list names, each once.

    Args:
        chosen: names separated by commas; all stands for the paper's.
        others: further names that may stand there.

    Raises:
        ConfigError: no strategy is called so, with the nearest name.
    """
    named = [part.strip() for part in chosen.split(",")]
    found = tuple(dict.fromkeys(name for part in named for name in (ALL if part == "all" else (part,))))
    if asked := ",".join(name for name in found if not name.startswith(LIAR)):
        catalogue.require_names(asked, RANDOM_LIES, *others)
    return found


def tells_lies(strategy: str) -> bool:
    """Whether a strategy puts entities in the place of others."""
    return strategy in (CONFUSING, RANDOM_LIES) or strategy.startswith(LIAR)


def is_chat_liar(strategy: str) -> bool:
    """Whether a strategy is a chat model that lies."""
    spec = strategy.removeprefix(LIAR)
    return spec != strategy and (is_chat_address(spec) or ".py:" in spec)


def label_of(strategy: str) -> str:
    """What rows and tables call a strategy: of a liar's run the end of its path, of a chat model that of its address."""
    if not strategy.startswith(LIAR):
        return strategy
    if is_chat_liar(strategy):
        spec = strategy.removeprefix(LIAR)
        return LIAR + (spec.rpartition(":")[2] if ".py:" in spec else short_address(spec))
    return LIAR + next((part for part in reversed(strategy.split("/")) if part not in ("", CHECKPOINT)), "").removeprefix(LIAR)


def liars_of(strategies: Iterable[str]) -> dict[str, str]:
    """The runs, and the addresses of chat models, of the liars among some strategies, by what these are called."""
    return {label_of(name): name.removeprefix(LIAR) for name in strategies if name.startswith(LIAR)}


def located_strategy(strategy: str) -> str:
    """A strategy by a name that holds on other machines and in other folders.

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
        lies: what lies by chance and of chat models are allowed.
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
            RANDOM: RandomHearing(self.knowledge),
            KEPT: RandomHearing(self.knowledge, keeps=True),
            CONFUSING: ConfusedHearing(self.knowledge),
            STRANGE: StrangeHearing(self.knowledge),
            UNHEARD: Unheard(),
            RANDOM_LIES: LyingHearing(RANDOM_LIES, corpus.linker, lies, by_chance(lies.rate)),
        }

    def named(self, name: str) -> Channel | None:
        """The channel of a strategy; None where nothing is changed.

        Raises:
            ConfigError: nothing is called so.
            CheckpointError: a liar's checkpoint, or a chat model, is not there, damaged or of another kind.
        """
        if name in self._ours:
            return self._ours[name]
        if is_chat_liar(name):
            return self._chat_liar(name)
        if name.startswith(LIAR):
            from parley.policies.dynonet.liar import liar_choice, load_liar

            liar, rules = load_liar(require_checkpoint(name.removeprefix(LIAR), "liar:RUN", LIAR_MAKER))
            return LyingHearing(name, self._corpus.linker, rules, liar_choice(liar))
        resources = Resources(self._perturb, data_root=self._data_root, device=self._device)
        (strategy,) = catalogue.build([name], self._perturb, resources)
        return PerturbedHearing(strategy)

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
    """Recorded chats as listeners would hear them through a channel; what both sides say and select stays.

    Args:
        chats: whole.
        channel: what becomes of utterances.
        seeds: of each chat.
    """
    game = FriendsGame(len(chats))
    game.enter(range(len(chats)), [chat.scenario for chat in chats], seeds)
    for place in range(max((len(chat.events) for chat in chats), default=0)):
        rows = [row for row, chat in enumerate(chats) if len(chat.events) > place]
        said = [chats[row].events[place] for row in rows]
        for row, event, heard in zip(rows, said, passed_on(game, rows, said, channel), strict=True):
            # Recorded chats may be longer than a game is, and go on after an agreement.
            game.events[row].append(event)
            game.heard[row].append(heard)
    return [replace(chat, heard=tuple(heard)) for chat, heard in zip(chats, game.heard, strict=True)]
