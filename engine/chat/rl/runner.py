"""The env runner: it plays conversations of a learner with its opponents, many at a time, and keeps the learner's tokens.

A runner takes whole batches, so what is read side by side is the same for any number of runners, and so is every draw. Keys and
values of a conversation are kept from turn to turn (`LocalChatModel`). A dialogue follows from its number, the master seed and
the weights.

A conversation is learned from in the tokens that were drawn. Where a template writes an earlier answer in other tokens, a
new sequence begins.

Seats (`LearnedSeat`). Secret game: the reward is the game's, see `envs/secret`. Negotiation, rewards as a share of the best
deal's points: an attack is played under the rule of Cheng et al. 2019, section 3, by which the target alone chooses, and earns
a side its points less the other's; an ordinary dialogue earns the learner its own points, and its side is drawn with the
scenario. The learner chooses by scores, as in `parley selfplay`, and learns its utterances.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import Space
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn

from parley.engine.core.ray.identity import require
from parley.engine.core.rllib.reproducible import ReproducibleRunner
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.negotiation.agents import Agent
from parley.envs.negotiation.domain import Scenario
from parley.envs.negotiation.game import NegotiationGame, Rules, play
from parley.envs.secret.game import ATTACKER, DEFENDER, NAMES, SeatView, SecretGame, SecretPlayer, SecretRules, play_secret
from parley.envs.secret.players import make_secret_player
from parley.envs.secret.scenarios import random_secret
from parley.policies.chat.adapters import AdaptedChatModel, SharedBase, shared_base
from parley.policies.chat.model import SEEDS, Answer, Chat, ChatDecoding
from parley.policies.chat.negotiator import ChatNegotiator
from parley.policies.chat.newest import Note
from parley.policies.chat.secret import talk
from parley.policies.chat.settings import ChatSeat, LoraSettings

USER = ""
"""The opponent of a harmless or ordinary dialogue."""


class Dealt(NamedTuple):
    """A dialogue to be played: its number, that of its scenario, and its opponent (`USER` for none)."""

    number: int
    scenario: int
    opponent: str


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


def dialogue_row(
    reward: float, texts: Sequence[str], turns: Sequence[OwnTurn], outcomes: Mapping[str, float]
) -> dict[str, Any]:
    """Return a finished dialogue.

    Args:
        reward: of the learner.
        texts: what it said.
        turns: the same as tokens.
        outcomes: the game's figures, by the name of their mean.
    """
    return {
        "reward": reward,
        "outcomes": outcomes,
        "texts": len(texts),
        "silent": sum(not text for text in texts),
        "repeated": sum(text in texts[:number] for number, text in enumerate(texts)),
        "sequences": sequences(turns),
    }


class LearnedSeat(Protocol):
    """A seat of a game."""

    side: int

    @property
    def role(self) -> str:
        """Its name, which is that of RLlib's policy."""
        return NAMES[self.side]

    @property
    def has_users(self) -> bool:
        """True if some of its dialogues have no opponent."""
        return self.side == DEFENDER

    @property
    def partner(self) -> str:
        """The player of these dialogues; empty where the game has it."""
        return ""

    def env(self) -> Any:
        """Return the game as an RLlib environment, whose spaces the policy has."""

    def opponent(self, name: str, temperature: float, chat: ChatSeat) -> Any:
        """Return a player of the other side by its name.

        Raises:
            ConfigError: there is none.
            CheckpointError: it is damaged.
        """

    def play(
        self,
        model: RecordedChatModel,
        decoding: ChatDecoding,
        dialogues: Sequence[Dealt],
        opponents: Mapping[str, Any],
        seed: int,
    ) -> list[dict[str, Any]]:
        """Play dialogues to their end and return their rows (`dialogue_row`).

        Args:
            model: the learner's.
            decoding: of its answers.
            dialogues: whose scenarios and draws follow from their numbers.
            opponents: by name.
            seed: master seed.
        """


class LearningPlayer:
    """The learner as a player of the secret game; its turns are kept by the seed of its side of a dialogue.

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


@dataclass(frozen=True)
class SecretSeat(LearnedSeat):
    """A seat of the secret game, see `LearnedSeat`.

    Args:
        side: the seat.
        rules: of the game.
    """

    side: int
    rules: SecretRules

    def env(self) -> Any:
        from parley.engine.secret.rl import SecretMultiAgentEnv

        return SecretMultiAgentEnv({"rules": self.rules})

    def opponent(self, name: str, temperature: float, chat: ChatSeat) -> SecretPlayer:
        return make_secret_player(name, 1 - self.side, temperature, device=chat.device, seat=chat, answers=None)

    def play(
        self,
        model: RecordedChatModel,
        decoding: ChatDecoding,
        dialogues: Sequence[Dealt],
        opponents: Mapping[str, SecretPlayer],
        seed: int,
    ) -> list[dict[str, Any]]:
        learner = LearningPlayer(model.name, model, decoding)
        scenarios = [
            random_secret(stream(seed, "training scenario", dialogue.scenario), self.rules.max_messages)
            for dialogue in dialogues
        ]
        seeds = [derive_seed(seed, "training dialogue", dialogue.number) for dialogue in dialogues]
        game = SecretGame(scenarios, seeds, [dialogue.opponent != USER for dialogue in dialogues], self.rules)
        # The user asks by itself.
        others: list[SecretPlayer] = [opponents.get(dialogue.opponent, learner) for dialogue in dialogues]
        play_secret(game, *((learner, others) if self.side == ATTACKER else (others, learner)))
        return [
            dialogue_row(
                game.reward(row, self.side),
                game.turns[row][self.side :: 2],
                learner.turns.get(game.view(row, self.side).seed, []),
                {"leak": float(bool(game.spellings[row]))} if is_attack else {"usefulness": game.usefulness(row)},
            )
            for row, is_attack in enumerate(game.attacks)
        ]


class LearningNegotiator(ChatNegotiator):
    """The learner as a negotiator; its turns are kept by dialogue. An answer without text is an utterance without words."""

    def replies(self, rows: Sequence[int], chats: Sequence[Chat], seeds: Sequence[int], note: Note) -> list[Answer]:
        """Return the learner's answers; none is asked for once more, for it learns from what it says."""
        assert isinstance(self.model, RecordedChatModel)
        answers: list[Answer] = self.model.answer(chats, decoding=self.decoding, seeds=seeds)
        for row, answer, turn in zip(rows, answers, self.model.turns, strict=True):
            note(row, answer)
            self.turns.setdefault(row, []).append(turn)
        return answers

    @cached_property
    def turns(self) -> dict[int, list[OwnTurn]]:
        """Its turns by dialogue."""
        return {}


@dataclass(frozen=True)
class NegotiatorSeat(LearnedSeat):
    """A seat of a negotiation, see `LearnedSeat`: an adversary, or its target, which also plays ordinary dialogues.

    Args:
        side: the seat.
        scenarios: of its dialogues.
        partner: of ordinary dialogues.
    """

    side: int
    scenarios: Sequence[Scenario]
    partner: str = ""

    def env(self) -> Any:
        from parley.engine.negotiation.rl.env import NegotiationMultiAgentEnv

        return NegotiationMultiAgentEnv({"vocabulary": self.scenarios[0].domain.vocabulary()})

    def opponent(self, name: str, temperature: float, chat: ChatSeat) -> Agent:
        from parley.engine.negotiation.verbs.agents import make_agent

        return make_agent(name, self.scenarios[0].domain.vocabulary(), temperature, chat.device, seat=chat, answers=None)

    def play(
        self,
        model: RecordedChatModel,
        decoding: ChatDecoding,
        dialogues: Sequence[Dealt],
        opponents: Mapping[str, Agent],
        seed: int,
    ) -> list[dict[str, Any]]:
        played: dict[int, dict[str, Any]] = {}
        drawn = {dialogue.number: self._drawn(seed, dialogue) for dialogue in dialogues}
        # Dialogues with one opponent and the learner on one side are one game.
        for name, side in sorted({(dialogue.opponent, drawn[dialogue.number][1]) for dialogue in dialogues}):
            met = [one for one in dialogues if (one.opponent, drawn[one.number][1]) == (name, side)]
            for dialogue, row in zip(met, self._met(model, decoding, met, drawn, opponents[name], side, seed), strict=True):
                played[dialogue.number] = row
        return [played[dialogue.number] for dialogue in dialogues]

    def _drawn(self, seed: int, dialogue: Dealt) -> tuple[Scenario, int]:
        draws = stream(seed, "training scenario", dialogue.scenario)
        scenario, side = self.scenarios[int(draws.integers(len(self.scenarios)))], int(draws.integers(2))
        return scenario, side if dialogue.opponent == USER else self.side

    def _met(
        self,
        model: RecordedChatModel,
        decoding: ChatDecoding,
        dialogues: Sequence[Dealt],
        drawn: Mapping[int, tuple[Scenario, int]],
        opponent: Agent,
        side: int,
        seed: int,
    ) -> Iterable[dict[str, Any]]:
        """Return the rows of dialogues with one opponent, the learner on one side."""
        words = self.scenarios[0].domain.vocabulary()
        learner = LearningNegotiator(model.name, lambda: model, words, decoding.temperature, max_tokens=decoding.max_tokens)
        seeds = [derive_seed(seed, "training dialogue", dialogue.number) for dialogue in dialogues]
        agents = (learner, opponent) if side == 0 else (opponent, learner)
        scenarios = [drawn[dialogue.number][0] for dialogue in dialogues]
        rules = Rules(complementary=dialogues[0].opponent != USER)
        game = play(NegotiationGame(scenarios, seeds, (agents[0].vocabulary, agents[1].vocabulary), rules), agents)
        for row in range(len(game)):
            points, others = float(game.points[row, side]), float(game.points[row, 1 - side])
            texts = [" ".join(words) for speaker, words in game.transcript(row) if speaker == side]
            if rules.complementary:
                reward, outcomes = points - others, {"advantage": points - others if side == ATTACKER else others - points}
            else:
                reward = points
                outcomes = {"agreed": float(game.agreed[row]), "points": points, "partner_points": others}
            yield dialogue_row(reward / game.domain.best, texts, learner.turns.get(row, []), outcomes)


@dataclass(frozen=True)
class ChatLearnerSpec:
    """The player that learns.

    Args:
        base: address of its base.
        start: address of the adapter that it begins with; empty for a fresh one.
        plays: its seat.
        lora: a fresh adapter.
        seat: settings of chat models, the base among them.
        seed: master seed.
    """

    base: str
    start: str
    plays: LearnedSeat
    lora: LoraSettings
    seat: ChatSeat
    seed: int

    def __deepcopy__(self, memo: dict[int, Any]) -> ChatLearnerSpec:
        """Return itself: RLlib copies configurations again and again, and nothing here changes."""
        return self

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


class ChatRunner(ReproducibleRunner):
    """An env runner that plays batches of dialogues."""

    def make_env(self) -> None:
        """Make the two-sided environment for its spaces; `sample` plays its game in batches."""
        self.env = self.config.spec.plays.env()

    def make_module(self) -> None:
        super().make_module()
        self._opponents: dict[str, Any] = {}

    def get_spaces(self) -> dict[str, tuple[Space[Any], Space[Any]]]:
        """Return observation and action space of the learner."""
        side = self.env.possible_agents[0]
        return {self.config.spec.plays.role: (self.env.get_observation_space(side), self.env.get_action_space(side))}

    def take(self, names: Collection[str]) -> None:
        """Do nothing: weights are changed in place, and what was read with older ones is forgotten by their version."""

    def sample(self, *, dealt: Sequence[tuple[int, Sequence[Dealt]]] = (), **_: Any) -> dict[str, Any]:
        """Play batches of dialogues to their end.

        Args:
            dealt: number of each batch, and its dialogues.

        Returns:
            `index`, numbers of the batches; `played`, the rows of their dialogues by number; the number of the
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
        plays = spec.plays
        module = self.module[plays.role]
        name = f"the {plays.role} that learns"
        model = RecordedChatModel(name, module.base, module.adapter, rule.at_once, parts_thinking=False)
        for opponent in {dialogue.opponent for dialogue in dialogues} - {*self._opponents}:
            if name := opponent or plays.partner:
                self._opponents[opponent] = plays.opponent(name, rule.temperature, spec.seat)
        decoding = ChatDecoding(temperature=rule.temperature, max_tokens=rule.max_tokens)
        rows = plays.play(model, decoding, dialogues, self._opponents, spec.seed)
        return {dialogue.number: row for dialogue, row in zip(dialogues, rows, strict=True)}
