"""Query-based search in a proxy model's order.

Sources: QCG (Hayase et al. 2024, arXiv 2402.12329) and PAL (Sitawarin et al. 2024, arXiv 2402.09674).

    buffer <- the best inputs so far
    until a reply is a success, or `max_queries` replies were asked for:
        candidates <- the best input with one word drawn anew, `candidates` of them
        asked      <- the `queries` candidates under which a proxy, whose weights are here, finds the target likeliest
        buffer     <- the best by the log probability of the target's first token of the model that is asked

The model that is asked shows log probabilities of first tokens alone (`Access.FIRST_TOKENS`), the proxy those of whole targets
(`Access.SCORES`).

# Papers: candidates are drawn from the words to which the proxy's gradient points. Ours: from the whole list of words, for
# inputs are words that are typed, whatever the proxy's tokens; its loss orders them, as there.
# Papers: the loss of the whole target, read token by token. Ours: of its first token, which every reply shows at no more cost.
# PAL: the proxy may learn from the replies. Ours: it stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from parley.engine.triggers.methods.evolution import NO_FITNESS, Proposals, Words
from parley.envs.core.config import Configuration, PositiveInt
from parley.envs.core.seeds import stream

Likelihoods = Callable[[Sequence[Words]], Sequence[float]]
"""Return how likely the proxy finds the target after each input; the higher the better."""


@dataclass(frozen=True, kw_only=True)
class QcgSettings(Configuration):
    """Settings of a search in a proxy's order."""

    topic: ClassVar[str] = "search text"

    candidates: PositiveInt = 128
    """Inputs that the proxy reads at each step."""
    queries: PositiveInt = 16
    """Those of them whose replies are asked for."""


class Qcg(Proposals):
    """A search that asks for the replies to what a proxy finds best.

    Args:
        settings: of the steps.
        words: the words that inputs are made of.
        seed: of all draws.
        num_words: words of an input.
        max_queries: most replies.
        likelihoods: the proxy.
        start: the first input; drawn when empty.
        allows: returns True for an allowed input.
    """

    def __init__(
        self,
        settings: QcgSettings,
        words: Sequence[str],
        seed: int,
        *,
        num_words: int,
        max_queries: int,
        likelihoods: Likelihoods,
        start: Words = (),
        allows: Callable[[Words], bool] = lambda words: True,
    ) -> None:
        super().__init__(max_queries, settings.queries)
        self.settings, self._list, self._seed, self._num_words = settings, tuple(dict.fromkeys(words)), seed, num_words
        self._likelihoods, self._start, self._allows = likelihoods, start, allows

    def ask(self) -> list[Words]:
        assert not self._waiting, "replies to the last inputs come first"
        rng = stream(self._seed, "qcg", self.generations + 1)
        parent = self.best.words if self.members and self.best.fitness > NO_FITNESS else self._start
        candidates: dict[Words, None] = dict.fromkeys([self._start] if self._start and not self.members else [])
        for _ in range(4 * self.settings.candidates):
            if len(candidates) == self.settings.candidates:
                break
            drawn = tuple(self._list[index] for index in rng.integers(len(self._list), size=self._num_words))
            position = int(rng.integers(self._num_words))
            words = (*parent[:position], drawn[position], *parent[position + 1 :]) if parent else drawn
            if words not in self._known and self._allows(words):
                candidates[words] = None
        likelihoods = dict(zip(candidates, self._likelihoods(list(candidates)), strict=True)) if candidates else {}
        num = min(self.settings.queries, self.max_queries - self.num_asked)
        self._waiting = sorted(candidates, key=lambda words: -likelihoods[words])[:num]
        self._known.update(self._waiting)
        self._stopped = not self._waiting
        return list(self._waiting)
