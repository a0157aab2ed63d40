"""What models that answer promise (`responder.Responder`)."""

from __future__ import annotations

from typing import Any

from envs.core.conformance import Kind, expect, same_alone
from envs.pairs.turns import parse_turns
from policies.responder import Responder

_CONTEXTS = [
    parse_turns(line)
    for line in (
        "hello <eot> hi , how can i help ?",
        "my screen is black <eot> did you turn it on ? <eou> is the light green ? <eot> yes , it is",
        "thanks",
    )
]


def _make(named: Any) -> Responder:
    responder: Responder = named() if callable(named) else named
    return responder


def _answers_every_context(responder: Responder) -> None:
    """Answers every context with a turn: a tuple of utterances, each a tuple of words."""
    replies = responder.respond(_CONTEXTS)
    expect(len(replies) == len(_CONTEXTS), f"{len(_CONTEXTS)} replies", len(replies))
    for reply in replies:
        whole = isinstance(reply, tuple) and all(isinstance(utterance, tuple) for utterance in reply)
        expect(whole, "a tuple of tuples of words", repr(reply))
        expect(all(isinstance(word, str) for utterance in reply for word in utterance), "words are texts", repr(reply))


def _answers_nothing_to_nothing(responder: Responder) -> None:
    """Answers no context with no reply."""
    expect(list(responder.respond([])) == [], "an empty list", repr(responder.respond([])))


def _takes_a_beam(responder: Responder) -> None:
    """Takes beam=N, the number of hypotheses that are kept."""
    replies = responder.respond(_CONTEXTS, beam=2)
    expect(len(replies) == len(_CONTEXTS), f"{len(_CONTEXTS)} replies", len(replies))


def _repeats_itself(responder: Responder) -> None:
    """Answers the same twice."""
    first, second = list(responder.respond(_CONTEXTS)), list(responder.respond(_CONTEXTS))
    expect(first == second, "the same replies twice", "others the second time")


def _is_the_same_alone(responder: Responder) -> None:
    """Answers a context the same whatever else is asked."""
    alone = [responder.respond([context])[0] for context in _CONTEXTS]
    same_alone(responder.respond(_CONTEXTS), alone, "the reply to a context")


RESPONDER = Kind(
    "responder",
    "policies.responder.Responder",
    ("respond",),
    _make,
    (_answers_every_context, _answers_nothing_to_nothing, _takes_a_beam, _repeats_itself, _is_the_same_alone),
)
