"""What asking chat models took: answers, attempts, tokens, and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from parley.policies.chat.addresses import short_address
from parley.policies.chat.model import NO_REPLIES, Answer, AnswerKind
from parley.policies.chat.settings import ChatAsking

LEAST_WORDS, LEAST_REDRAWN = 8, 3
"""Words of an equal reply, and replies, from which on a server is said to ignore temperature or seed."""
MOST_LOST = 0.5
"""A run of which a larger share of a model's answers is no reply has failed."""


@dataclass
class ChatUsage:
    """Counters of one model."""

    asked: int = 0
    """Answers that the model gave."""
    known: int = 0
    """Answers that were given before, so that nothing was asked."""
    failed_attempts: int = 0
    """Attempts that came to no answer: the server was busy, failed, or cut its answer; of a run those before an answer."""
    tokens_in: int = 0
    """Tokens that the model read, as far as it says."""
    tokens_out: int = 0
    """Tokens that it wrote, as far as it says."""
    uncounted: int = 0
    """Answers of which nobody says how many tokens they took."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Answers that the model gave by their kind (`AnswerKind`)."""
    notes: Counter[str] = field(default_factory=Counter)
    """Answers by what was done differently from what was asked."""
    redrawn: int = 0
    """Replies that were drawn with another seed for a question that had one already, at a temperature of 0.5 or more; short
    ones that are equal are not counted, for chance repeats them."""
    equal_redrawn: int = 0
    """Those of them that are equal to the first."""

    def count(self, answers: Iterable[Answer]) -> None:
        """Adds answers that the model gave, and those that were known."""
        for answer in answers:
            if answer.known:
                self.known += 1
                continue
            self.asked += 1
            self.kinds[answer.kind.value] += 1
            self.notes.update(answer.notes)
            self.uncounted += answer.num_prompt_tokens is None or answer.num_tokens is None
            self.tokens_in += answer.num_prompt_tokens or 0
            self.tokens_out += answer.num_tokens or 0

    def count_redrawn(self, reply: str, first: str) -> None:
        """Count a reply that was drawn for a question beside the first reply to it."""
        equal = reply == first
        if not equal or len(reply.split()) >= LEAST_WORDS:
            self.redrawn += 1
            self.equal_redrawn += equal

    @property
    def draws_nothing(self) -> bool:
        """Whether all replies to other seeds are equal to the first, of enough to tell."""
        return LEAST_REDRAWN <= self.redrawn == self.equal_redrawn

    @property
    def no_replies(self) -> Counter[str]:
        """Answers that are no reply, by their kind."""
        return Counter({kind.value: self.kinds[kind.value] for kind in NO_REPLIES if self.kinds[kind.value]})

    def no_reply_share(self, allowed: Collection[AnswerKind] = ()) -> float:
        """The share of answers that are no reply.

        Args:
            allowed: kinds that count as replies here.
        """
        lost = self.no_replies.total() - sum(self.no_replies[kind.value] for kind in allowed)
        return lost / self.asked if self.asked else 0.0

    def as_json(self) -> dict[str, Any]:
        """The counters, and the share of answers that are no reply."""
        return {**vars(self), "kinds": dict(self.kinds), "notes": dict(self.notes), "no_reply_share": self.no_reply_share()}

    def add(self, other: ChatUsage) -> None:
        """Adds what others took."""
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def cost(self, settings: ChatAsking, address: str = "") -> float:
        """What the counted tokens cost at the prices of the settings; of a model whose weights are here nothing."""
        price_in, price_out = settings.prices_of(address)
        return (self.tokens_in * price_in + self.tokens_out * price_out) / 1000


@dataclass(frozen=True)
class RunUsage:
    """What the answers of a run took when they were given.

    Args:
        models: by the address of who gave them; empty for answers of which that is not known.
    """

    models: Mapping[str, ChatUsage]

    @property
    def total(self) -> ChatUsage:
        """All together."""
        found = ChatUsage()
        for usage in self.models.values():
            found.add(usage)
        return found

    def cost(self, settings: ChatAsking) -> float:
        """What the counted tokens of each model cost at its prices."""
        return sum(usage.cost(settings, address) for address, usage in self.models.items())

    def told(self, settings: ChatAsking) -> str:
        """In a sentence, with the cost where the settings name prices; and by model where there are several."""
        parts = [f"Chat models gave {_counted(self.total, self.cost(settings))}."]
        if len(self.models) > 1:
            short = {address: short_address(address) for address in self.models}
            names = short if len(set(short.values())) == len(short) else {address: address for address in short}
            each = (f"{names[where]} {_counted(usage, usage.cost(settings, where))}" for where, usage in self.models.items())
            parts.append(f"By model: {'; '.join(each)}.")
        known = {address.rpartition("#")[2] for address in self.models}
        if notes := self.total.notes:
            counts = (f"{num:,} {note}" for note, num in sorted(notes.items()))
            parts.append(f"Of these: {'; '.join(counts)}.")
        if strange := [name for name in settings.prices_by_model if name not in known]:
            parts.append(f"Prices of models that gave none: {', '.join(strange)}.")
        return " ".join(parts)

    def as_json(self, settings: ChatAsking) -> dict[str, Any]:
        """The sums with the cost, and the same of each model."""
        models = {address: {**usage.as_json(), "cost": usage.cost(settings, address)} for address, usage in self.models.items()}
        return {**self.total.as_json(), "cost": self.cost(settings), "models": models}

    def warnings(self, settings: ChatAsking) -> list[str]:
        """Return a sentence for each model of whose answers too many are no reply (`max_no_reply`), or none varies."""
        most = settings.max_no_reply
        lost = [_warning(address, usage) for address, usage in self.models.items() if usage.no_reply_share() > most]
        return lost + [
            f"all {usage.redrawn:,} replies of {short_address(address)} to other seeds are equal to the first; "
            "it may ignore temperature or seed, so that nothing varies"
            for address, usage in self.models.items()
            if usage.draws_nothing
        ]

    def failure(self, allowed: Collection[AnswerKind] = ()) -> str:
        """Return why the answers are too few replies to say anything; empty where they are not.

        Args:
            allowed: kinds that are outcomes of what is measured, such as `FILTERED` of an attack.
        """
        lost = [pair for pair in self.models.items() if pair[1].no_reply_share(allowed) > MOST_LOST]
        return " ".join(_warning(address, usage) for address, usage in lost)


def _warning(address: str, usage: ChatUsage) -> str:
    lost = usage.no_replies
    kind = AnswerKind(lost.most_common(1)[0][0])
    share = f"{lost.total():,} of {usage.asked:,} answers of {short_address(address) or 'a model'} are no reply"
    return f"{share} ({usage.no_reply_share():.0%}: {by_kind(lost)}); {kind.fix}"


def by_kind(counts: Mapping[Any, int]) -> str:
    """Return counts by kind in words, such as "3 cut in thinking, 1 filtered"."""
    return ", ".join(f"{num:,} {kind}" for kind, num in sorted(counts.items(), key=lambda pair: -pair[1]) if num)


def _counted(usage: ChatUsage, cost: float) -> str:
    tokens = f"{usage.tokens_in:,} tokens read, {usage.tokens_out:,} written"
    uncounted = f", tokens of {usage.uncounted:,} answers unknown" if usage.uncounted else ""
    failed = f", {usage.failed_attempts:,} attempts failed" if usage.failed_attempts else ""
    cut = f", {num:,} cut at the most tokens" if (num := usage.kinds[AnswerKind.CUT.value]) else ""
    lost = f", {usage.no_replies.total():,} no reply ({by_kind(usage.no_replies)})" if usage.no_replies else ""
    return f"{usage.asked:,} answers: {tokens}{uncounted}{cut}{lost}{failed}{f', cost {cost:,.4g}' if cost else ''}"
