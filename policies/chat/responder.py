"""Chat models as response models: a context is a conversation in which the user has spoken last.

Turns alternate between the user and the model, and a template wants a user's turn first: with an even number of turns the
oldest two are one. Texts are written as people write them (`envs/corpora/pairs/written.py`), and what the model answers is read
as its lines, each cut into words.
"""

from __future__ import annotations

from collections.abc import Sequence

from parley.envs.corpora.pairs.tokens import tokenise
from parley.envs.corpora.pairs.turns import Turn, Turns
from parley.envs.corpora.pairs.written import detokenise
from parley.policies.chat.model import Chat, ChatDecoding, ChatModel, Message
from parley.policies.chat.newest import answer_newest
from parley.policies.chat.settings import MAX_REPLY_TOKENS
from parley.policies.core.decoders import GREEDY, DecoderSettings
from parley.policies.core.responder import ModelReply, require_known

_ROLES = ("user", "assistant")


class ChatResponder:
    """A chat model that answers contexts.

    Args:
        chat_model: who answers.
        max_tokens: of a reply at most.
    """

    turns = 2
    """Turns of context that are read, as the paper's models do; more on request."""
    decoders: tuple[str, ...] = ("greedy", "sample")
    """Rules that it knows."""

    def __init__(self, chat_model: ChatModel, max_tokens: int = MAX_REPLY_TOKENS) -> None:
        self.chat_model, self._max_tokens = chat_model, max_tokens

    def respond(self, contexts: Sequence[Turns], *, decoder: DecoderSettings = GREEDY, seeds: Sequence[int] = ()) -> list[Turn]:
        """Return replies, see `parley.policies.core.responder.Responder`; a turn without a word where there is none."""
        return [reply.turn for reply in self.replies_with_answers(contexts, decoder=decoder, seeds=seeds)]

    def replies_with_answers(
        self, contexts: Sequence[Turns], *, decoder: DecoderSettings = GREEDY, seeds: Sequence[int] = ()
    ) -> list[ModelReply]:
        """Return replies with the model's answers; the arguments are those of `respond`.

        A context that is longer than the model reads is answered without its oldest turns.

        Raises:
            ModelError: the model does not answer.
        """
        require_known(self, decoder, self.chat_model.name)
        decoding = ChatDecoding(temperature=decoder.temperature if decoder.draws else 0.0, max_tokens=self._max_tokens)
        own = seeds if decoder.draws else ()
        answers = answer_newest(self.chat_model, [_forms(turns) for turns in contexts], decoding=decoding, seeds=own)
        return [ModelReply(turn_of_text(answer.text), answer) for _, answer in answers]


def _forms(turns: Turns) -> list[Chat]:
    """Return the messages of a context, and the same without its oldest turns."""
    said = [" ".join(map(detokenise, turn)) for turn in turns]
    return [chat_of_turns(said[start:]) for start in range(len(said))]


def chat_of_turns(said: Sequence[str]) -> Chat:
    """The messages of a conversation.

    Args:
        said: texts, oldest first; at least one, of which the last is the user's.
    """
    merged = list(said) if len(said) % 2 else ["\n".join(said[:2]), *said[2:]]
    return tuple(Message(_ROLES[number % 2], text) for number, text in enumerate(merged))


def turn_of_text(text: str) -> Turn:
    """The utterances of an answer, one a line; one without a word where there is none."""
    return tuple(tuple(tokenise(line)) for line in text.splitlines() if line.strip()) or ((),)
