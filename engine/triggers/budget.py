"""Costs of an attack on a model, and the most that it may cost: queries, tokens, seconds, money.

A search by losses, a search by replies and an attacker of a scan count the same parts. A text that a model reads with its
gradient counts as three readings: the way back takes twice the work of the way there (Kaplan et al. 2020, arXiv 2001.08361).
Seconds are those of this process's processors while a model computes there, else those of the wall: of a GPU, or of a server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import nearest
from parley.policies.chat.limits import LETTERS_A_TOKEN

if TYPE_CHECKING:
    from parley.policies.chat.model import Answer, Chat
    from parley.policies.chat.settings import ChatAsking

GRADIENT = 3
"""Readings that a gradient costs."""


@dataclass
class Spending:
    """The cost of an attack, or the most that it may cost; of a budget 0 stands for no limit.

    Args:
        queries: inputs or messages to the target.
        tokens: that the target read and wrote; estimated by letters where it does not say.
        attacker_tokens: that the attacker model read and wrote.
        seconds: of asking both, a batch shared among its requests; answers kept from an earlier session cost none.
        money: by the prices of `chat.prices`.
    """

    queries: int = 0
    tokens: int = 0
    attacker_tokens: int = 0
    seconds: float = 0.0
    money: float = 0.0

    def __str__(self) -> str:
        return ",".join(f"{part}={most}" for part in BUDGET if (most := getattr(self, part)))

    def add(self, **costs: float) -> None:
        """Add costs to parts by their names."""
        for part, cost in costs.items():
            setattr(self, part, getattr(self, part) + cost)

    def share(self, budget: Spending) -> float:
        """Return the share of a budget that is spent, of the part of which most is; 0 without a limit."""
        return max((getattr(self, part) / most for part in BUDGET if (most := getattr(budget, part))), default=0.0)

    def used_up(self, budget: Spending) -> str:
        """Return the name of a part of a budget that is used up; empty if none is."""
        return next((part for part in BUDGET if 0 < getattr(budget, part) <= getattr(self, part)), "")


BUDGET = tuple(field.name for field in fields(Spending))
"""Parts of a budget."""
COUNTED = BUDGET[:3]
"""Those that are whole numbers."""
UNBOUNDED = 1_000_000
"""Queries of a search whose budget limits other parts alone."""


def read_budget(text: str, where: str, parts: Collection[str] = BUDGET) -> Spending:
    """Return a budget from its text: a number of queries, or parts with commas between them, such as "seconds=30,tokens=20000".

    Args:
        text: the text; no limit when empty.
        where: the setting that it stands in.
        parts: the parts that may be limited there.

    Raises:
        ConfigError: it cannot be read, or another part is named.
    """
    if not isinstance(text, str):
        raise ConfigError("a budget is text", where=where, got=repr(text), fix=f'"{text}", or "seconds=30"')
    budget = Spending()
    for entry in filter(None, (f"queries={text}" if text.isdecimal() else text).replace(" ", "").split(",")):
        part, _, number = entry.partition("=")
        if part not in parts:
            what = f"this budget has no part {part!r}{nearest(part, parts)}"
            raise ConfigError(what, where=where, got=text, fix=f"parts: {', '.join(parts)}")
        try:
            most = int(number) if part in COUNTED else float(number)
        except ValueError:
            most = 0
        if not 0 < most < 1e12:
            raise ConfigError(f"{part} is no number above 0", where=where, got=text, fix=f"{part}=100")
        setattr(budget, part, most)
    return budget


def tokens_of(chat: Chat, answer: Answer) -> tuple[int, int]:
    """Return the tokens that a model read and wrote for an answer; estimated by letters where it does not say."""
    letters = sum(len(message.content) for message in chat), len(answer.text + answer.reasoning + answer.withheld)
    counts = answer.num_prompt_tokens, answer.num_tokens
    read, written = (-(-num // LETTERS_A_TOKEN) if count is None else count for num, count in zip(letters, counts, strict=True))
    return read, written


def price_of(settings: ChatAsking, model: Any, read: int, written: int) -> float:
    """Return the price of an answer by the settings; of a model behind a defence, or whose answers are kept, its own."""
    price_in, price_out = settings.prices_of(_innermost(model).name)
    return (read * price_in + written * price_out) / 1000


def clock_of(*models: Any) -> Callable[[], float]:
    """Return the clock of the work of models: seconds of this process where all weights are on CPUs here, else of the wall."""
    inner = [_innermost(model) for model in models]
    devices = [getattr(getattr(model, "model", model), "device", None) for model in inner]
    return clock_on(*(getattr(device, "type", "") for device in devices))


def clock_on(*devices: str) -> Callable[[], float]:
    """Return the clock of work on kinds of devices, as `clock_of`."""
    return time.process_time if {*devices} == {"cpu"} else time.perf_counter


def _innermost(model: Any) -> Any:
    while hasattr(model, "inner"):
        model = model.inner
    return model
