"""What asking a chat model took: answers, attempts, tokens, and what they cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from policies.chat.model import Answer
from policies.chat.settings import ChatAsking


@dataclass
class ChatUsage:
    """Counters of one process."""

    asked: int = 0
    """Answers that the model gave."""
    known: int = 0
    """Answers that were given before, so that nothing was asked."""
    failed_attempts: int = 0
    """Attempts that came to no answer: the server was busy, failed, or cut its answer."""
    tokens_in: int = 0
    """Tokens that the model read, as far as it says."""
    tokens_out: int = 0
    """Tokens that it wrote, as far as it says."""
    uncounted: int = 0
    """Answers of which nobody says how many tokens they took."""

    def count(self, answers: Iterable[Answer]) -> None:
        """Adds answers that the model gave, and those that were known."""
        for answer in answers:
            if answer.known:
                self.known += 1
                continue
            self.asked += 1
            self.uncounted += answer.num_prompt_tokens is None or answer.num_tokens is None
            self.tokens_in += answer.num_prompt_tokens or 0
            self.tokens_out += answer.num_tokens or 0

    def told(self, settings: ChatAsking) -> str:
        """In a sentence, with the cost where the settings name prices."""
        tokens = f"{self.tokens_in:,} tokens read, {self.tokens_out:,} written"
        uncounted = f", tokens of {self.uncounted:,} answers unknown" if self.uncounted else ""
        cost = f", cost {self.cost(settings):,.4g}" if self.cost(settings) else ""
        return f"Chat models gave {self.asked:,} answers: {tokens}{uncounted}{cost}."

    def cost(self, settings: ChatAsking) -> float:
        """What the counted tokens cost at the prices of the settings."""
        return (self.tokens_in * settings.price_per_1k_in + self.tokens_out * settings.price_per_1k_out) / 1000
