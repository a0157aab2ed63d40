"""The env runner: it plays conversations of a learner with its opponents, many at a time, and keeps the learner's tokens.

A runner takes whole batches, so what is read side by side is the same for any number of runners, and so is every draw. Keys and
values of a conversation are kept from turn to turn (`LocalChatModel`). A dialogue follows from its number, the master seed and
the weights.

A conversation is learned from in the tokens that were drawn. Where a template writes an earlier answer in other tokens, a
new sequence begins.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn

from parley.engine.core.ray.identity import require
from parley.engine.core.rllib.reproducible import ReproducibleRunner
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.secret.game import ATTACKER, NAMES, SeatView, SecretGame, SecretPlayer, SecretRules, play_secret
from parley.envs.secret.players import make_secret_player
from parley.envs.secret.scenarios import random_secret
from parley.policies.chat.adapters import AdaptedChatModel, SharedBase, shared_base
from parley.policies.chat.model import SEEDS, ChatDecoding
from parley.policies.chat.secret import talk
from parley.policies.chat.settings import ChatSeat, LoraSettings

USER = ""
"""The opponent of a harmless dialogue."""


@dataclass(frozen=True)
class ChatLearnerSpec:
    """The player that learns.

    Args:
        base: address of its base.
        start: address of the adapter that it begins with; empty for a fresh one.
        side: its seat.
        lora: a fresh adapter.
        seat: settings of chat models, the base among them.
        rules: of the game.
        seed: master seed.
    """

    base: str
    start: str
    side: int
    lora: LoraSettings
    seat: ChatSeat
    rules: SecretRules
    seed: int

    def shared(self) -> SharedBase:
        """Return the base of this process."""
        return shared_base(self.base, self.seat)


class AdapterModule(TorchRLModule):
    """The weights of one adapter on the base of this process, which is no part of the state.

    Model config: `spec`, a `ChatLearnerSpec`.
    """

    def setup(self) -> None:
        """Add the adapter to the base."""
        spec: ChatLearnerSpec = self.model_config["spec"]
        # In a tuple, so that torch does not count the base among the weights.
        self._base = (spec.shared(),)
        self.adapter = self.base.add(spec.start, spec.lora, spec.seed)
        # A campaign builds dozens of modules on one base.
        weakref.finalize(self, self.base.remove, self.adapter)
        self.net = nn.ParameterDict({name.replace(".", "/"): value for name, value in self.base.weights(self.adapter).items()})

    @property
    def base(self) -> SharedBase:
        """The base, which other players of this process share."""
        return self._base[0]

    def _forward(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Return nothing: the learner reads its rows in pieces."""
        return {}


class OwnTurn(NamedTuple):
    """One text of the learner: the tokens that it read, and those that it wrote, the end among them."""

    read: list[int]
    written: list[int]


class RecordedChatModel(AdaptedChatModel):
    """An adapted model that keeps the tokens of its answers.

    Attributes:
        turns: of the newest call of `answer`, in the order of its chats.
    """

    def _answer(self, prompt: Any, ids: Sequence[int], end: int | None) -> Any:
        self._recorded.append(OwnTurn(prompt.ids, [*ids, *([] if end is None else [end])]))
        return super()._answer(prompt, ids, end)

    def answer(self, chats: Sequence[Any], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Any]:
        self._recorded: list[OwnTurn] = []
        answers, order = {}, []
        for index, answer in self.arriving(chats, decoding=decoding, seeds=seeds):
            answers[index] = answer
            order.append(index)
        self.turns = [turn for _, turn in sorted(zip(order, self._recorded, strict=True), key=lambda pair: pair[0])]
        return [answers[index] for index in range(len(chats))]


class LearningPlayer:
    """The learner as a player; its turns are kept by the seed of its side of a dialogue.

    Args:
        name: in errors.
        model: its model.
        decoding: of its answers.
    """

    def __init__(self, name: str, model: RecordedChatModel, decoding: ChatDecoding) -> None:
        self.name, self._model, self._decoding = name, model, decoding
        self.turns: dict[int, list[OwnTurn]] = {}

    def speak(self, views: Sequence[SeatView]) -> list[str]:
        """Return its next texts; an answer without text is a message without words."""
        seeds = [int(view.generator().integers(SEEDS)) for view in views]
        answers = self._model.answer([talk(view) for view in views], decoding=self._decoding, seeds=seeds)
        for view, turn in zip(views, self._model.turns, strict=True):
            self.turns.setdefault(view.seed, []).append(turn)
        return [answer.text for answer in answers]


def sequences(turns: Sequence[OwnTurn]) -> list[tuple[list[int], list[bool]]]:
    """Return the tokens of a dialogue that are read at once, and which of them are the learner's own."""
    whole: list[tuple[list[int], list[bool]]] = []
    for turn in turns:
        tokens, own = whole[-1] if whole else ([], [])
        if not tokens or turn.read[: len(tokens)] != tokens:
            tokens, own = [], []
            whole.append((tokens, own))
        new = turn.read[len(tokens) :]
        tokens += [*new, *turn.written]
        own += [*[False] * len(new), *[True] * len(turn.written)]
    return whole


class Dealt(NamedTuple):
    """A dialogue to be played: its number, that of its scenario, and its opponent (`USER` for none)."""

    number: int
    scenario: int
    opponent: str


class ChatRunner(ReproducibleRunner):
    """An env runner that plays batches of dialogues of the secret game."""

    def make_env(self) -> None:
        """Make the two-sided environment for its spaces; `sample` plays its game in batches."""
        from parley.engine.secret.rl import SecretMultiAgentEnv

        self.env = SecretMultiAgentEnv({"rules": self.config.spec.rules})

    def make_module(self) -> None:
        """Make the learner's module."""
        super().make_module()
        self._opponents: dict[str, SecretPlayer] = {}

    def get_spaces(self) -> dict[str, tuple[Space[Any], Space[Any]]]:
        """Return observation and action space of the learner."""
        role = NAMES[self.config.spec.side]
        return {role: (self.env.get_observation_space(role), self.env.get_action_space(role))}

    def take(self, names: Collection[str]) -> None:
        """Do nothing: weights are changed in place, and what was read with older ones is forgotten by their version."""

    def sample(self, *, dealt: Sequence[tuple[int, Sequence[Dealt]]] = (), **_: Any) -> dict[str, Any]:
        """Play batches of dialogues to their end.

        Args:
            dealt: number of each batch, and its dialogues.

        Returns:
            `index`, numbers of the batches; `played`, the rows of their dialogues by number (`_row`); the number of the
            weights, and the seconds.
        """
        require(self.config.driver)
        started = time.monotonic()
        played: dict[int, dict[str, Any]] = {}
        for batch in dealt:
            played |= self._played(batch[1])
        index = np.array([batch[0] for batch in dealt], dtype=np.int64)
        seconds = time.monotonic() - started
        return {"index": index, "played": played, "weights": self._weights_seq_no, "seconds": seconds}

    def _played(self, dialogues: Sequence[Dealt]) -> dict[int, dict[str, Any]]:
        spec, rule = self.config.spec, self.config.reinforce
        role = NAMES[spec.side]
        module = self.module[role]
        model = RecordedChatModel(f"the {role} that learns", module.base, module.adapter, rule.at_once, parts_thinking=False)
        learner = LearningPlayer(model.name, model, ChatDecoding(temperature=rule.temperature, max_tokens=rule.max_tokens))
        scenarios = [
            random_secret(stream(spec.seed, "training scenario", dialogue.scenario), spec.rules.max_messages)
            for dialogue in dialogues
        ]
        seeds = [derive_seed(spec.seed, "training dialogue", dialogue.number) for dialogue in dialogues]
        game = SecretGame(scenarios, seeds, [dialogue.opponent != USER for dialogue in dialogues], spec.rules)
        for name in {dialogue.opponent for dialogue in dialogues} - {USER, *self._opponents}:
            seat = {"device": spec.seat.device, "seat": spec.seat, "answers": None}
            self._opponents[name] = make_secret_player(name, 1 - spec.side, rule.temperature, **seat)
        # The user asks by itself.
        others: list[SecretPlayer] = [self._opponents.get(dialogue.opponent, learner) for dialogue in dialogues]
        play_secret(game, *((learner, others) if spec.side == ATTACKER else (others, learner)))
        return {
            dialogue.number: _row(game, row, spec.side, learner.turns.get(game.view(row, spec.side).seed, []))
            for row, dialogue in enumerate(dialogues)
        }


def _row(game: SecretGame, row: int, side: int, turns: Sequence[OwnTurn]) -> dict[str, Any]:
    """Return a finished dialogue: reward, outcome, language, and sequences of tokens."""
    own = game.turns[row][side::2]
    return {
        "reward": game.reward(row, side),
        "leaked": bool(game.spellings[row]),
        "usefulness": None if game.attacks[row] else game.usefulness(row),
        "texts": len(own),
        "silent": sum(not text for text in own),
        "repeated": sum(text in own[:number] for number, text in enumerate(own)),
        "sequences": sequences(turns),
    }
