"""Settings of chat models: how weights are loaded, how a model is asked, and low-rank adapters.

Answers depend on none of them but by rounding, except on `extra`, `thinking` and `date`, which are part of an answer's key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, ClassVar, Literal

from parley.envs.core.config import (
    Configuration,
    JsonObject,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ShareBelowOne,
    check,
    shared,
)
from parley.policies.chat.addresses import is_local


@dataclass(frozen=True, kw_only=True)
class LoraSettings(Configuration):
    """Settings of low-rank adapters beside a model's own weights (Hu et al. 2021, arXiv 2106.09685)."""

    rank: PositiveInt = 16
    """r: columns of one matrix and rows of the other."""
    alpha: PositiveFloat = 32.0
    """Their product is added times this over the rank."""
    dropout: ShareBelowOne = 0.0
    """Share of what they read that is left out in training."""
    modules: str = "all-linear"
    """Names of the layers that get them, separated by commas; all-linear stands for every linear layer but the output."""


Precision = Literal["float32", "bfloat16", "float16", "auto"]
LIMITS = ("max_tokens", "max_completion_tokens")
"""Fields that limit the tokens of an answer: the older one, and the one of OpenAI's newer models."""
REQUEST_LIMITS = ("concurrency", "requests_per_minute", "max_requests", "max_cost", "first_timeout_s")
"""Settings of asking that change no answer, and may be changed on a resume."""
LEFT_OUT = ("temperature", "seed", *LIMITS)
"""Fields that a verb decides on; `extra` may leave them out and set none."""
NO_FIELDS = JsonObject()
FIXED = ("model", "messages", "stream", "n")
"""Fields that `extra` may not name."""


@dataclass(frozen=True, kw_only=True)
class DateSettings(Configuration):
    """The date that the chat templates of local models print."""

    date: str = ""
    """Date that chat templates print, such as 2026-11-28, for prompts that stay the same; the day the run began when empty."""

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            fits = not self.date or date.fromisoformat(self.date).isoformat() == self.date
        except ValueError:
            fits = False
        check(self, "date", fits, "a date such as 2026-11-28")


@dataclass(frozen=True, kw_only=True)
class PrecisionSettings(DateSettings):
    """The precision of local weights, beside the date of their templates."""

    dtype: Precision = "float32"
    """Precision of its weights; auto takes that of its file."""


@dataclass(frozen=True, kw_only=True)
class WeightSettings(PrecisionSettings):
    """Settings of loading local weights (hf:, gguf:), without the device."""

    device_map: str = ""
    """Spreads a model that is larger than one GPU: auto, balanced, ...; empty for one device. Needs the extra gguf."""

    @property
    def template_variables(self) -> dict[str, Any]:
        """Further variables of the chat template by name."""
        return {}


@dataclass(frozen=True, kw_only=True)
class ChatAsking(WeightSettings):
    """Settings of loading (hf:, gguf:) or asking (openai:) a chat model, without the device."""

    batch_size: NonNegativeInt = 1
    """Chats that it reads at once. 1 gives answers that do not depend on their company to the last bit; more are padded at the
    left, and equal up to rounding. 0 takes as many as the memory holds."""
    timeout_s: PositiveFloat = 60.0
    """Seconds that a server, or a model of your own, has for one answer."""
    max_attempts: PositiveInt = 6
    """Times that a server is asked the same at most, where it is busy, fails or cuts its answer."""
    extra: JsonObject = NO_FIELDS
    """JSON that is merged into each request to a server, such as {"top_p": 0.9, "reasoning_effort": "low"} or
    {"chat_template_kwargs": {"enable_thinking": false}}; null leaves a field out: {"temperature": null, "seed": null}. Of
    weights that are here chat_template_kwargs alone counts."""
    logprobs: Literal["no", "first", "reply"] = "no"
    """Log probabilities that an openai: server shows: no, first (of the first tokens of its answers), or reply (of given
    replies, too: prompt_logprobs of vLLM, or echo behind an address that ends in /completions)."""
    tokenizer: str = ""
    """Model whose chat template writes prompts for an address that ends in /completions, hf:FOLDER or gguf:FILE; without one
    the texts of a chat are its lines."""
    thinking: Literal["part", "keep"] = "part"
    """Treatment of reasoning between marks such as <think> in a text: parted from the reply, or kept in it."""
    concurrency: PositiveInt = 8
    """Questions that a server is asked at the same time at most, by each process; fewer while it is busy."""
    requests_per_minute: NonNegativeFloat = 0.0
    """Requests a minute at most, evenly spread; 0 for no limit. This and the next two hold for all processes of a run."""
    max_requests: NonNegativeInt = 0
    """Requests of a run at most, also as --max-requests; 0 for no limit. The run then stops, and a resume may raise it."""
    max_cost: NonNegativeFloat = 0.0
    """Cost of a run at most by the prices below, also as --max-cost; 0 for none. Unknown tokens are estimated by letters."""
    judge_tokens: PositiveInt = 16
    """Most tokens of a verdict, or of a rating. A model that is cut in thinking is asked once more, with 64 times as many."""
    prices: str = ""
    """Price of 1,000 tokens that a server reads and writes, in any currency: IN/OUT. Where several models are served
    MODEL=IN/OUT between commas, each as it stands behind # in its address; IN/OUT alone is for the others."""

    first_wait_s: ClassVar[float] = 0.5
    """Seconds before the second attempt; twice as many before each further one, up to half of them by chance. Servers say in
    Retry-After what they need, so that nobody has tuned it."""
    longest_wait_s: ClassVar[float] = 60.0
    """Seconds before an attempt at most; a server that asks for more is given up. A run resumes, so it need not wait longer."""
    limit_field: ClassVar[str] = LIMITS[0]
    """Field that limits the tokens of a server's answer; a server that refuses it gets the other one without being told."""
    max_no_reply: ClassVar[float] = 0.05
    """Share of a model's answers that may be no reply before the run warns of it. It changes no figure."""
    price_per_1k_in: ClassVar[float] = 0.0
    price_per_1k_out: ClassVar[float] = 0.0
    """Settings of earlier versions, which `prices` took over."""
    topic: ClassVar[str] = "chat"
    constants: ClassVar[Mapping[str, Any]] = {"first_timeout_s": 9.0}
    instead: ClassVar[Mapping[str, str]] = dict.fromkeys(("price_per_1k_in", "price_per_1k_out"), "set chat.prices=IN/OUT")

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            fits = all(price >= 0 for pair in self.prices_by_model.values() for price in pair)
        except ValueError:
            fits = False
        check(self, "prices", fits, "such as 0.1/0.4 or small=0.1/0.4,large=2/8, none below 0")
        try:
            # Frozen, and hashable: a mapping of Python becomes its text.
            object.__setattr__(self, "extra", JsonObject.of(self.extra))
        except (TypeError, ValueError, RecursionError):
            check(self, "extra", False, 'a JSON object such as {"top_p": 0.9}')
        check(self, "max_cost", not self.max_cost or bool(self.prices), "0 without a price; prices=IN/OUT sets it")
        fields = self.extra.document
        fits = not set(fields) & set(FIXED) and all(fields[name] is None for name in set(fields) & set(LEFT_OUT))
        check(
            self, "extra", fits, f"any field but {', '.join(FIXED)}; {', '.join(LEFT_OUT)} as null alone, which leaves them out"
        )

    @property
    def template_variables(self) -> dict[str, Any]:
        variables = self.extra.document.get("chat_template_kwargs")
        return dict(variables) if isinstance(variables, dict) else {}

    @property
    def answers_depend_on(self) -> str:
        """The changed settings that answers depend on, as JSON; empty if all have their defaults."""
        changed = {name: getattr(self, name) for name in ("extra", "thinking") if getattr(self, name) != getattr(DEFAULT, name)}
        return json.dumps(changed, sort_keys=True) if changed else ""

    @property
    def prices_by_model(self) -> dict[str, tuple[float, float]]:
        """Prices of 1,000 tokens read and written, by model; the name is empty for all others."""
        prices_of_models = {}
        for part in filter(None, map(str.strip, self.prices.split(","))):
            model, mark, prices = part.rpartition("=")
            price_in, slash, price_out = prices.partition("/")
            if not slash or bool(mark) != bool(model.strip()):
                raise ValueError(part)
            prices_of_models[model.strip()] = float(price_in), float(price_out)
        return prices_of_models

    def prices_of(self, address: str) -> tuple[float, float]:
        """Return the prices of 1,000 tokens read and written by a model; 0 for local weights."""
        if is_local(address):
            return 0.0, 0.0
        prices = self.prices_by_model
        return prices.get(address.rpartition("#")[2], prices.get("", (0.0, 0.0)))

    def on(self, device: str) -> ChatModelSettings:
        """Return the same settings with a torch device."""
        return ChatModelSettings(device=device, **shared(self, ChatAsking))


MAX_REPLY_TOKENS = 60
"""Default limit of tokens of a reply to a context."""


@dataclass(frozen=True, kw_only=True)
class ChatReplying(ChatAsking):
    """Settings of a chat model that replies to contexts."""

    max_tokens: PositiveInt = MAX_REPLY_TOKENS
    """Tokens of a reply at most, those of its reasoning included; what is longer is cut."""


@dataclass(frozen=True, kw_only=True)
class ChatModelSettings(ChatAsking):
    """Settings of loading or asking a chat model, with the device."""

    device: str = "cpu"
    """Torch device of a model whose weights are here."""


DEFAULT = ChatModelSettings()


MAX_SEAT_TOKENS = 64
"""Default limit of tokens of an answer in a game."""


@dataclass(frozen=True, kw_only=True)
class ChatSeat(ChatModelSettings):
    """Settings of chat models in a game."""

    max_tokens: PositiveInt = MAX_SEAT_TOKENS
    """Tokens of an answer at most; what is longer is cut, and counted."""

    def on(self, device: str) -> ChatSeat:
        return self if device == "cpu" else replace(self, device=device)


DEFAULT_SEAT = ChatSeat()
