"""What a server is sent: OpenAI's body of a chat completion, fitted to what the server takes.

A field or a role that a server refuses is left out from then on. What changes what an answer is drawn by stands in the notes of
the answer, so that a run says it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from parley.policies.chat.model import Chat, ChatDecoding
from parley.policies.chat.refusals import RefusalKind, RefusalReading
from parley.policies.chat.roles import FOLDED, MERGED, fold_system, merged
from parley.policies.chat.settings import LIMITS, ChatModelSettings

OWN_TEMPERATURE = "drawn at the server's own temperature"
NO_SEED = "drawn without a seed"
NO_LIMIT = "without a limit of tokens"
SHORTENED = "allowed fewer tokens than were asked for, for the messages leave no more room"
_DRAWN_BY = ("temperature", "seed")


@dataclass(frozen=True)
class RequestShape:
    """How requests to a server look.

    Args:
        limit_field: that limits the tokens of an answer; empty for none.
        left_out: fields of `temperature` and `seed` that are not sent.
        folds_system: whether the system's text stands in front of the user's.
        merges_turns: whether neighbours of one role are one message.
        extra: more fields.
        refused: fields for the limit that were refused.
    """

    limit_field: str = LIMITS[0]
    left_out: frozenset[str] = frozenset()
    folds_system: bool = False
    merges_turns: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()

    @classmethod
    def of(cls, settings: ChatModelSettings) -> RequestShape:
        """Return the shape that settings ask for."""
        document = settings.extra.document
        nulls = {name for name, value in document.items() if value is None}
        extra = {name: value for name, value in document.items() if value is not None}
        limit = "" if settings.limit_field in nulls else settings.limit_field
        return cls(limit, frozenset(nulls & set(_DRAWN_BY)), extra=extra, refused=frozenset(nulls & set(LIMITS)))

    def body(self, model: str, chat: Chat, decoding: ChatDecoding, seed: int | None) -> dict[str, Any]:
        """Return the body of a request.

        Args:
            model: as the server calls it.
            chat: that is answered.
            decoding: of the answer.
            seed: of what is drawn; None where nothing is.
        """
        messages = [{"role": message.role, "content": message.content} for message in self._fitted(chat)]
        body: dict[str, Any] = {"model": model, "messages": messages, **self.extra}
        if "temperature" not in self.left_out:
            body["temperature"] = decoding.temperature
        if self.limit_field:
            body[self.limit_field] = decoding.max_tokens
        if seed is not None and "seed" not in self.left_out:
            body["seed"] = seed % 2**63
        return body

    def notes(self, chat: Chat, seed: int | None) -> tuple[str, ...]:
        """Return what is done differently from what is asked, for a chat and a seed."""
        fitted = self._fitted(chat)
        notes = {
            OWN_TEMPERATURE: "temperature" in self.left_out,
            NO_SEED: seed is not None and "seed" in self.left_out,
            NO_LIMIT: not self.limit_field,
            FOLDED: fitted != chat and any(message.role == "system" for message in chat) and self.folds_system,
            MERGED: fitted != chat and not self.folds_system,
        }
        return tuple(note for note, holds in notes.items() if holds)

    def suited(self, reading: RefusalReading, body: Mapping[str, Any]) -> RequestShape | None:
        """Return the shape that suits a refusal of a body of this shape; None where there is none."""
        name = reading.field
        roles = [message["role"] for message in body["messages"]]
        if reading.kind is RefusalKind.SYSTEM or (reading.kind is RefusalKind.TURNS and self.merges_turns):
            return replace(self, folds_system=True, merges_turns=True) if "system" in roles else None
        if reading.kind is RefusalKind.TURNS:
            return replace(self, merges_turns=True)
        if reading.kind is not RefusalKind.FIELD or name in self.extra:
            return None
        if name in _DRAWN_BY:
            return replace(self, left_out=self.left_out | {name})
        if name in LIMITS:
            refused = self.refused | {name}
            return replace(self, refused=refused, limit_field=next((other for other in LIMITS if other not in refused), ""))
        return None

    def told(self, reading: RefusalReading) -> str:
        """Return what this shape does where another one met a refusal."""
        if reading.kind is RefusalKind.FIELD and reading.field in LIMITS and self.limit_field:
            return f"{self.limit_field} is sent instead"
        if reading.kind is RefusalKind.FIELD:
            return f"{reading.field} is left out of all requests"
        return "the system's text is sent in front of the user's" if self.folds_system else "such messages are sent as one"

    def _fitted(self, chat: Chat) -> Chat:
        if self.folds_system:
            return fold_system(chat)
        return merged(chat) if self.merges_turns else chat
