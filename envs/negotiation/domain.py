"""What a negotiation is about: its items, its points, what may be chosen, which choices fit, and who then earns what.

The dialogue of every game is the same (`game.py`); all else is a `Domain`, the field's word for it. Both sides see K items: how
many there are of each, alike for both, and what one is worth to them. A choice hands items to both sides, and a side's points
are its items times their values. That covers goods that are divided (`dealornodeal/`) and issues of which one
option is settled for both (`interview/`).

A game of your own is an object of a class like those; a package offers it under the entry point group `parley.games`.

Shapes: n scenarios, K items, m legal selections of one, M = `max_selections`, H = `num_heads`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.core.registry import Registry

if TYPE_CHECKING:
    from parley.envs.negotiation.game import Agent
    from parley.envs.negotiation.game_acts import GameActs
    from parley.envs.negotiation.scenario import Scenario
    from parley.envs.negotiation.vocabulary import Vocabulary

Numbers = tuple[int, ...]
DISAGREE, NO_AGREEMENT, DISCONNECT = REFUSALS = ("<disagree>", "<no_agreement>", "<disconnect>")
"""The last tokens of every game. The first is a recorded outcome that nobody chooses, the others end the selections."""
DEAL_OR_NO_DEAL = "dealornodeal"

domains = Registry("game", "parley.games")
domains.register(
    DEAL_OR_NO_DEAL, "divide books, hats and balls (Lewis et al. 2017)", "parley.envs.negotiation.dealornodeal.domain:DIVISION"
)
domains.register("interview", "settle four issues of a job", "parley.envs.negotiation.interview.domain:INTERVIEW")


@cache
def domain_of(game: str) -> Domain:
    """The game of that name.

    Raises:
        ConfigError: no game is called that.
    """
    found: Domain = domains.get(game)
    return found


def domain_recorded(counts: Sequence[int], values: tuple[Sequence[int], Sequence[int]]) -> Domain:
    """The game of a scenario in the rows of a run, which do not name it: the first in whose rules its numbers are legal.

    Raises:
        ScenarioError: they are legal in none.
    """
    numbers = tuple(counts), (tuple(values[0]), tuple(values[1]))
    for domain in map(domain_of, domains):
        if len(domain.items) == len(counts) and not domain.problem(*numbers):
            return domain
    got = f"counts {counts}, values {values}"
    raise ScenarioError("a scenario of no game", got=got, fix=f"known games: {', '.join(domains)}")


@dataclass(frozen=True, eq=False)
class Selections:
    """The legal selections of one scenario in a fixed order: every deal, then no agreement, then disconnect.

    Args:
        table: tokens (m, H) int64 of each.
        own: how many of each item the chooser then holds (m, K) int64; 0 for the refusals.
        other: how many the other side holds (m, K) int64; 0 for the refusals.
        fits: which selection of the other side says the same (m,) int64; refusals fit themselves.

    Raises:
        ScenarioError: one is no array of whole numbers.
    """

    table: np.ndarray
    own: np.ndarray
    other: np.ndarray
    fits: np.ndarray

    def __post_init__(self) -> None:
        for name, part in vars(self).items():
            if not np.issubdtype(part.dtype, np.integer):
                fix = f"make {name} an array of int64"
                raise ScenarioError("what may be chosen is told in whole numbers", where=name, got=part.dtype, fix=fix)
            part.setflags(write=False)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def no_agreement(self) -> int:
        """The index of that refusal; those below it are deals."""
        return len(self) - 2


class Domain(ABC):
    """A game to negotiate in.

    Attributes:
        name: as registered.
        rule: what makes a scenario legal, for messages.
        items: names of the K items.
        tokens: what a selection is written in, `REFUSALS` last.
        num_heads: tokens H of a selection.
        largest: the largest number that a side sees in a scenario.
        best: points that the best deal for a side is worth.
        max_selections: the most legal selections M of any scenario.
        how_to_play: what is done in the game, in sentences for who can read; a language model is told it.
    """

    name: ClassVar[str]
    rule: ClassVar[str]
    items: ClassVar[tuple[str, ...]]
    tokens: ClassVar[tuple[str, ...]]
    num_heads: ClassVar[int]
    largest: ClassVar[int]
    best: ClassVar[int]
    max_selections: ClassVar[int]
    how_to_play: ClassVar[str] = (
        "You talk about a deal with a partner. After the talk each of you writes down the deal, unseen by the other. "
        "If the two do not fit together, neither of you gets a point."
    )

    @abstractmethod
    def problem(self, counts: Numbers, values: tuple[Numbers, Numbers]) -> str:
        """The rule that such a scenario breaks; empty for a legal one."""

    @abstractmethod
    def selections(self, counts: Numbers) -> Selections:
        """What may be chosen where there are so many of each item; the same object each time."""

    @abstractmethod
    def legal_selections(self, counts_nK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The legal selections of many scenarios at once.

        Returns:
            Tokens (n, M, H), in the order of `selections` and padded; which rows are legal (n, M).
        """

    @abstractmethod
    def random_scenario(self, rng: np.random.Generator) -> Scenario:
        """A legal scenario."""

    @abstractmethod
    def vocabulary(self) -> Vocabulary:
        """Every word that the scripted agents of the game can say."""

    @abstractmethod
    def scripted(self, name: str, vocabulary: Vocabulary) -> Agent:
        """A scripted agent: "scripted", which is fair-minded, or "scripted-tough".

        Raises:
            ConfigError: no scripted agent is called that.
            DataError: the vocabulary lacks words that it needs.
        """

    @abstractmethod
    def question(self, counts: Numbers) -> str:
        """What may be chosen, in a line for a person, such as "book 0..1, hat 0..2, ball 0..3"."""

    @abstractmethod
    def answer_form(self, counts: Numbers) -> str:
        """How a person writes a deal, with an example, such as "3 whole numbers, ..., such as 1 2 3"."""

    @abstractmethod
    def read_selection(self, counts: Numbers, text: str) -> int | None:
        """The deal that a person wrote, as an index into the selections; None where it is none."""

    @abstractmethod
    def describe(self, counts: Numbers, selection: int) -> str:
        """A deal in words."""

    def acts(self, vocabulary: Vocabulary) -> GameActs:
        """The dialogue acts of the game, said in a vocabulary (`acts.py`).

        Raises:
            ConfigError: the game has none.
            DataError: the vocabulary lacks words that acts are said in.
        """
        what = f"the game {self.name!r} has no dialogue acts"
        raise ConfigError(what, where=type(self).__name__, fix="play it in words or text, or give its class the method acts")

    @property
    def disagree_id(self) -> int:
        """The first of the refusals among the tokens; those below it belong to deals."""
        return len(self.tokens) - len(REFUSALS)

    def shares(self, counts_nK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What chooser and other side hold after each selection of many scenarios, (n, M, K) each; 0 past the legal ones."""
        distinct, which = np.unique(counts_nK, axis=0, return_inverse=True)
        shape = (len(distinct), self.max_selections, len(self.items))
        own, other = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        for row, counts in enumerate(distinct.tolist()):
            legal = self.selections(tuple(counts))
            own[row, : len(legal)], other[row, : len(legal)] = legal.own, legal.other
        return own[which.reshape(-1)], other[which.reshape(-1)]

    @cached_property
    def token_index(self) -> dict[str, int]:
        """Ids of the tokens."""
        return {token: i for i, token in enumerate(self.tokens)}

    def refusal_tokens(self, token: str) -> Numbers:
        """A refusal as it is recorded: its token on every head."""
        return (self.token_index[token],) * self.num_heads

    def held(self, counts: Sequence[int], tokens: Sequence[str]) -> Numbers | None:
        """How many of each item the chooser of recorded tokens holds; None for a refusal and for what is no selection."""
        legal = self.selections(tuple(counts))
        for selection in range(legal.no_agreement):
            if [self.tokens[token] for token in legal.table[selection]] == list(tokens):
                return tuple(legal.own[selection].tolist())
        return None

    def said(self, counts: Numbers, selection: int) -> str:
        """A selection in words, refusals included."""
        refusal = selection - self.selections(counts).no_agreement
        return self.describe(counts, selection) if refusal < 0 else ("no agreement", "to disconnect")[refusal]
