"""Who says how perplexing what bots hear is: a chat model that gives likelihoods, as the judge of a negotiation (`selfplay`).

It judges every utterance as it is heard, as an answer in the seat of who is taken to have said it: it is told the rules, that
side's table, and what both sides have heard and seen so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

from parley.envs.core.errors import ConfigError
from parley.envs.core.play import agent_errors
from parley.envs.mutual_friends.events import FriendsChat
from parley.envs.mutual_friends.game import FriendsGame, FriendsView
from parley.policies.chat.addresses import is_chat_address
from parley.policies.chat.fluency import PlacedUtterance, nats_of, require_chat_judge
from parley.policies.chat.friend import message_of, talk
from parley.policies.chat.model import Chat, ScoringChatModel
from parley.policies.chat.seat import ChatSeat, chat_model


class HeardJudge:
    """A chat model that judges what is heard.

    Args:
        model: that gives likelihoods.
    """

    def __init__(self, model: ScoringChatModel) -> None:
        self._model = model

    def nats(self, chats: Sequence[FriendsChat]) -> list[list[float]]:
        """How unlikely all that was heard of each side is, in nats, by chat and side.

        Raises:
            AgentError: the model failed, or messages do not fit.
        """
        game = FriendsGame(len(chats))
        game.enter(range(len(chats)), [chat.scenario for chat in chats], [0] * len(chats))
        found = [[0.0, 0.0] for _ in chats]
        for side in (0, 1):
            said = [
                PlacedUtterance(row, turn, " ".join(event.words))
                for row, chat in enumerate(chats)
                for turn, event in enumerate(chat.heard)
                if event.side == side and event.selected is None
            ]
            with agent_errors():
                nats = nats_of(self._model, partial(_before, game.view(side), chats), said)
            for one, each in zip(said, nats.tolist(), strict=True):
                found[one.row][side] += each
        return found


def load_heard_judge(spec: str, device: str, seat: ChatSeat) -> HeardJudge:
    """The judge of a name.

    Raises:
        CheckpointError: no such model is there, or it is damaged.
        ConfigError: it is no chat model, or one that gives no likelihoods.
    """
    require_heard_judge(spec)
    return HeardJudge(cast("ScoringChatModel", chat_model(spec, seat.on(device), answers=None)))


def require_heard_judge(spec: str) -> None:
    """Makes sure that a name stands for a chat model that gives likelihoods; raises as `load_heard_judge` does."""
    if not (is_chat_address(spec) or ".py:" in spec):
        fix = "hf:FOLDER, gguf:FILE, or path/file.py:Name of a model with score"
        raise ConfigError("a chat model judges what is heard", where="--judge", got=spec, fix=fix)
    require_chat_judge(spec)


def _before(view: FriendsView, chats: Sequence[FriendsChat], row: int, turn: int) -> Chat:
    heard = chats[row].heard[:turn]
    return talk(view, row, [message_of(event, event.side == view.side) for event in heard])
