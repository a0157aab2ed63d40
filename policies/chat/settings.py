"""How a model is loaded, and how a chat model is asked: what no answer depends on but by rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from envs.core.config import check, shared
from envs.core.ranges import Configuration, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from policies.chat.addresses import is_local

Precision = Literal["float32", "bfloat16", "float16", "auto"]


@dataclass(frozen=True, kw_only=True)
class WeightSettings(Configuration):
    """How weights that are here (hf:, gguf:) are loaded; which device they are on is said elsewhere."""

    dtype: Precision = "float32"
    """Precision of its weights; auto takes that of its file."""
    device_map: str = ""
    """Spreads a model that is larger than one GPU: auto, balanced, ...; empty for one device. Needs the extra gguf."""


@dataclass(frozen=True, kw_only=True)
class ChatAsking(WeightSettings):
    """How a chat model is loaded (hf:, gguf:) or asked (openai:); which device it computes on is said elsewhere."""

    batch_size: NonNegativeInt = 1
    """Chats that it reads at once. 1 gives answers that do not depend on their company to the last bit; more are padded at the
    left, and equal up to rounding. 0 takes as many as the memory holds."""
    timeout_s: PositiveFloat = 60.0
    """Seconds that a server, or a model of your own, has for one answer."""
    max_attempts: PositiveInt = 6
    """Times that a server is asked the same at most, where it is busy, fails or cuts its answer."""
    first_wait_s: NonNegativeFloat = 0.5
    """Seconds before the second attempt; twice as many before each further one, up to half of them by chance."""
    longest_wait_s: PositiveFloat = 60.0
    """Seconds before an attempt at most; a server that asks for more (Retry-After) is given up."""
    concurrency: PositiveInt = 8
    """Questions that a server is asked at the same time, by each process."""
    price_per_1k_in: NonNegativeFloat = 0.0
    """What 1,000 tokens that a server reads cost, in any currency."""
    price_per_1k_out: NonNegativeFloat = 0.0
    """What 1,000 tokens that it writes cost."""
    prices: str = ""
    """The same by model where several are served: MODEL=IN/OUT between commas, each as it stands behind # in its address."""

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            fits = all(price >= 0 for pair in self.prices_by_model.values() for price in pair)
        except ValueError:
            fits = False
        check(self, "prices", fits, "such as small=0.1/0.4,large=2/8, none below 0")

    @property
    def prices_by_model(self) -> dict[str, tuple[float, float]]:
        """What 1,000 tokens cost that each named model reads, and writes."""
        found = {}
        for part in filter(None, map(str.strip, self.prices.split(","))):
            model, mark, prices = part.rpartition("=")
            price_in, slash, price_out = prices.partition("/")
            if not (mark and slash and model.strip()):
                raise ValueError(part)
            found[model.strip()] = float(price_in), float(price_out)
        return found

    def prices_of(self, address: str) -> tuple[float, float]:
        """What 1,000 tokens cost that a model reads, and writes: nothing of weights that are here."""
        if is_local(address):
            return 0.0, 0.0
        general = self.price_per_1k_in, self.price_per_1k_out
        return self.prices_by_model.get(address.rpartition("#")[2], general)

    def on(self, device: str) -> ChatModelSettings:
        """The same with a torch device."""
        return ChatModelSettings(device=device, **shared(self, ChatAsking))


MAX_REPLY_TOKENS = 60
"""Tokens of a reply to a context at most, where no setting says it."""


@dataclass(frozen=True, kw_only=True)
class ChatReplying(ChatAsking):
    """How a chat model is loaded or asked that replies to contexts."""

    max_tokens: PositiveInt = MAX_REPLY_TOKENS
    """Tokens of a reply at most, those of its reasoning included; what is longer is cut."""


@dataclass(frozen=True, kw_only=True)
class ChatModelSettings(ChatAsking):
    """How a chat model is loaded or asked, and where it computes."""

    device: str = "cpu"
    """Torch device of a model whose weights are here."""


DEFAULT = ChatModelSettings()
