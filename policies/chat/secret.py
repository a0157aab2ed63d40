"""A chat model as a player of the secret game, on either side.

The system message holds what the side is told (`envs/secret/game.py`), messages of the other side are those of the user. An
answer without text, or one that moderation stops, is a message without words: a defender that says nothing is useless, and not
lost. Any other answer that is no reply loses the dialogue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from parley.envs.secret.game import DEFENDER, SeatView, instructions
from parley.policies.chat.addresses import short_address
from parley.policies.chat.model import MODERATED, SEEDS, AnswerKind, Chat, ChatModel, Message, NoReplyError
from parley.policies.chat.negotiator import SILENCE
from parley.policies.chat.newest import SeatedChatModel
from parley.policies.chat.seat import chat_model, require_address
from parley.policies.chat.settings import DEFAULT_SEAT, ChatSeat

BEGINNING = "You speak first."
WORDLESS = (AnswerKind.EMPTY, *MODERATED)
"""Kinds of answers that are a message without words."""


class ChatSecretPlayer(SeatedChatModel):
    """A chat model as a `SecretPlayer`.

    Args: as of `SeatedChatModel`.
    """

    def __init__(self, address: str, load: Callable[[], ChatModel], temperature: float, max_tokens: int) -> None:
        super().__init__(address, load, temperature, max_tokens)
        self.name = short_address(address)

    def speak(self, views: Sequence[SeatView]) -> list[str]:
        """Return the model's next message in each dialogue, asked in one call.

        Raises:
            NoReplyError: the model gave no reply in some dialogues.
            AgentError: it failed.
        """
        seeds = [int(view.generator().integers(SEEDS)) for view in views]
        answers = self.answers(range(len(views)), [talk(view) for view in views], seeds, lambda row, answer: None)
        lost = [(row, answer.kind) for row, answer in enumerate(answers) if not answer.is_reply and answer.kind not in WORDLESS]
        if lost:
            raise NoReplyError.of(self.address, lost[0][1], [row for row, kind in lost if kind is lost[0][1]])
        return [answer.text for answer in answers]


def talk(view: SeatView) -> Chat:
    """Return the messages that a model answers with its side's next message."""
    messages = [] if view.side == DEFENDER else [Message("user", BEGINNING)]
    for turn, text in enumerate(view.turns):
        messages.append(Message("assistant" if turn % 2 == view.side else "user", text or SILENCE))
    return Message("system", instructions(view)), *messages


def secret_moves(view: SeatView, turns: Sequence[str]) -> list[tuple[Chat, str]]:
    """Return what a seat reads before each of its texts in a dialogue, and the text.

    Args:
        view: of the seat, before the dialogue.
        turns: of the whole dialogue.
    """
    return [(talk(replace(view, turns=tuple(turns[:number]))), turns[number]) for number in range(view.side, len(turns), 2)]


def load_secret_player(
    name: str, temperature: float = 0.0, device: str = "cpu", seat: ChatSeat = DEFAULT_SEAT, answers: Path | None = None
) -> ChatSecretPlayer:
    """Return a chat model as a player; it is loaded when it first speaks.

    Args:
        name: its address.
        temperature: of its answers.
        device: that a model computes on whose weights are here.
        seat: settings of loading or asking it.
        answers: folder of a run in which answers are kept; None keeps none.

    Raises:
        CheckpointError: no such folder or file is there.
        ConfigError: the address is malformed.
    """
    require_address(name)
    settings = seat.on(device)
    return ChatSecretPlayer(name, lambda: chat_model(name, settings, answers=answers), temperature, seat.max_tokens)
