"""What is raised where a server refuses: an error for the user, or what tells the asking to change the request or to wait."""

from __future__ import annotations

from parley.envs.core.errors import ModelError, ParleyError, RefusedModelError
from parley.policies.chat.keys import KEYS, api_key, blotted, key_variables
from parley.policies.chat.model import ChatTooLongError
from parley.policies.chat.refusals import Refusal, RefusalKind, RefusalReading

_WRONG_ADDRESS = "mend the address openai:URL#MODEL: the URL ends in /v1, the model is one that the server lists"


class AgainError(Exception):
    """An attempt that may go better another time.

    Args:
        error: that is raised where no attempt is left.
        wait_s: seconds that the server asks to wait; None where it does not say.
        most_unreached: attempts at most to reach a server that has never been reached; None where somebody was there.
    """

    def __init__(self, error: ModelError, wait_s: float | None = None, *, most_unreached: int | None = None) -> None:
        self.error, self.wait_s, self.most_unreached = error, wait_s, most_unreached


class UnsuitedError(Exception):
    """A request that does not suit a server, and may be changed.

    Args:
        reading: what the server says of it.
        error: that is raised where it cannot be changed.
    """

    def __init__(self, reading: RefusalReading, error: ModelError) -> None:
        self.reading, self.error = reading, error


def error_of(refusal: Refusal, reading: RefusalReading, where: str, url: str, proxy: str) -> Exception:
    """Return what a refusal that is no answer raises.

    Args:
        refusal: of a server.
        reading: what it comes to.
        where: address of the model.
        url: of the server.
        proxy: that was asked for it; empty for none.
    """
    shown = blotted(refusal.shown)
    status = f"HTTP 200 with error {refusal.status}" if refusal.in_answer else f"HTTP {refusal.status}"
    got = f"{status}: {shown}" if shown else status
    if proxy and refusal.status in (403, 407, 502, 503, 504):
        got = f"{got}, by the proxy {proxy}"
    kind, what, fix = _told(refusal, reading, url)
    error = kind(what, where=where, got=got, fix=fix)
    if not isinstance(error, ModelError) or isinstance(error, RefusedModelError):
        return error
    if reading.kind is RefusalKind.BUSY:
        return AgainError(error, refusal.wait_s)
    changeable = (RefusalKind.FIELD, RefusalKind.SYSTEM, RefusalKind.TURNS, RefusalKind.NO_ROOM)
    return UnsuitedError(reading, error) if reading.kind in changeable else error


def _told(refusal: Refusal, reading: RefusalReading, url: str) -> tuple[type[ParleyError], str, str]:
    """Return the kind of the error, what is wrong, and how to fix it."""
    field = reading.field
    match reading.kind:
        case RefusalKind.KEY:
            taken = "takes the key for none of its own" if api_key(url) else "wants a key and there is none"
            own = key_variables(url)[-len(KEYS) - 1]
            return (
                RefusedModelError,
                f"the server {taken}",
                f"export {KEYS[0]}=..., which is never written down; {own} for it alone",
            )
        case RefusalKind.QUOTA:
            return (
                RefusedModelError,
                "nothing is left to pay the server with",
                "pay, or take another key; the same command resumes",
            )
        case RefusalKind.NO_MODEL:
            return RefusedModelError, "the server has no such address or model", _WRONG_ADDRESS
        case RefusalKind.BUSY:
            return ModelError, "the server asks for patience" if refusal.status == 429 else "the server fails", "resume later"
        case RefusalKind.TOO_LONG:
            return (
                ChatTooLongError,
                "the messages are longer than the model reads",
                "ask less, or what the server's model takes",
            )
        case RefusalKind.FIELD:
            return ModelError, f"the server takes no field {field}", f'--set chat.extra={{"{field}": null}} leaves it out'
        case RefusalKind.VALUE:
            return ModelError, f"the server takes other values of {field}", f"ask for another {field}"
        case RefusalKind.SYSTEM:
            return ModelError, "the server takes no message of the system", "ask in other roles"
        case RefusalKind.TURNS:
            return ModelError, "the server takes roles in turns alone", "ask in other roles"
        case RefusalKind.NO_ROOM:
            return ModelError, f"the server allows an answer {reading.room} tokens", "ask for shorter answers"
    if refusal.status == 403:
        # Some servers say so of a key, others of a text that their moderation stopped, which says nothing of the next one.
        fix = f"ask what the server lets through, with a key in {KEYS[0]} that may use this model"
        return ModelError, "the server refuses the question", fix
    fix = "ask less, or what the server's model takes" if refusal.status == 400 else _WRONG_ADDRESS
    return ModelError, "the server refuses the question", fix
