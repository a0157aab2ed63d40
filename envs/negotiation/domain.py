"""What a negotiation is about: its items, its points, what may be chosen, which choices fit, and who then earns what.

The dialogue of every game is the same (`game.py`); all else is a `Domain`, the field's word for it. Both sides see K items: how
many there are of each, alike for both, and what one is worth to them. A choice hands items to both sides, and a side's points
are its items times their values. That covers goods that are divided (`dealornodeal/`) and issues of which one
option is settled for both (`interview/`).

A game of your own is an object of a class like those; a package offers it under the entry point group `parley.games`.

Shapes: n scenarios, K items, m legal selections of one, M = `max_selections`, H = `num_heads`.

Vocabularies of negotiations: four special tokens in front, as in the published negotiation code.

Ids 0..3 are `<eos>`, `<unk>`, `<selection>`, `<pad>`; the words follow by falling frequency, ties by first occurrence.
Words belong to a game (`domain.py`): whoever knows a vocabulary knows what the talk is about.

The words of a game whose sides do not share one closed vocabulary: text, of which each side reads what it knows.

A word has an id of the game: those of side 0's vocabulary first, so that its ids are the game's; then those of side 1's; then
whatever else is said. Either side speaks and hears in ids of its own vocabulary, and hears `<unk>` for a word that it lacks.
A word that the speaker's own vocabulary lacks is spoken as the size of that vocabulary plus the game's id.

Shapes: any; ids are int64.

Scenarios of any game, with their points and Pareto optimality. What a game is about is its `Domain`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from parley.envs.core.errors import ConfigError, DataError, ScenarioError
from parley.envs.core.registry import Registry
from parley.envs.core.visible import well_formed
from parley.envs.corpora.lines import WordList

if TYPE_CHECKING:
    from parley.envs.negotiation.acts import GameActs
    from parley.envs.negotiation.game import Agent


Numbers = tuple[int, ...]
DISAGREE, NO_AGREEMENT, DISCONNECT = REFUSALS = ("<disagree>", "<no_agreement>", "<disconnect>")
"""The last tokens of every game. The first is a recorded outcome that nobody chooses, the others end the selections."""
DEAL_OR_NO_DEAL = "dealornodeal"

domains = Registry("game", "parley.games")
domains.register(
    DEAL_OR_NO_DEAL, "divide books, hats and balls (Lewis et al. 2017)", "parley.envs.negotiation.dealornodeal:DIVISION"
)
domains.register("interview", "settle four issues of a job", "parley.envs.negotiation.interview.domain:INTERVIEW")


@cache
def domain_of(game: str) -> Domain:
    """Return the game of that name.

    Raises:
        ConfigError: no game is called that.
    """
    found: Domain = domains.get(game)
    return found


def domain_recorded(counts: Sequence[int], values: tuple[Sequence[int], Sequence[int]]) -> Domain:
    """Return the game of a scenario in the rows of a run, which do not name it: the first in whose rules its numbers are legal.

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
        """Return the rule that such a scenario breaks; empty for a legal one."""

    @abstractmethod
    def selections(self, counts: Numbers) -> Selections:
        """What may be chosen where there are so many of each item; the same object each time."""

    @abstractmethod
    def legal_selections(self, counts_nK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the legal selections of many scenarios at once.

        Returns:
            Tokens (n, M, H), in the order of `selections` and padded; which rows are legal (n, M).
        """

    @abstractmethod
    def random_scenario(self, rng: np.random.Generator) -> Scenario:
        """Return a legal scenario."""

    @abstractmethod
    def vocabulary(self) -> Vocabulary:
        """Every word that the scripted agents of the game can say."""

    @abstractmethod
    def scripted(self, name: str, vocabulary: Vocabulary) -> Agent:
        """Return a scripted agent: "scripted", which is fair-minded, or "scripted-tough".

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
        """Return the deal that a person wrote, as an index into the selections; None where it is none."""

    @abstractmethod
    def describe(self, counts: Numbers, selection: int) -> str:
        """Return a deal in words."""

    def acts(self, vocabulary: Vocabulary) -> GameActs:
        """Return the dialogue acts of the game, said in a vocabulary (`acts.py`).

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
        """Return a refusal as it is recorded: its token on every head."""
        return (self.token_index[token],) * self.num_heads

    def held(self, counts: Sequence[int], tokens: Sequence[str]) -> Numbers | None:
        """How many of each item the chooser of recorded tokens holds; None for a refusal and for what is no selection."""
        legal = self.selections(tuple(counts))
        for selection in range(legal.no_agreement):
            if [self.tokens[token] for token in legal.table[selection]] == list(tokens):
                return tuple(legal.own[selection].tolist())
        return None

    def said(self, counts: Numbers, selection: int) -> str:
        """Return a selection in words, refusals included."""
        refusal = selection - self.selections(counts).no_agreement
        return self.describe(counts, selection) if refusal < 0 else ("no agreement", "to disconnect")[refusal]


EOS, UNK, SELECTION, PAD = "<eos>", "<unk>", "<selection>", "<pad>"
SPECIALS = (EOS, UNK, SELECTION, PAD)
EOS_ID, UNK_ID, SELECTION_ID, PAD_ID = range(4)
YOU, THEM = "YOU:", "THEM:"
_PIECES = re.compile(r"<\w+>|[\w'-]+|[^\w\s]")


@dataclass(frozen=True)
class Vocabulary(WordList):
    """The words of negotiations; `YOU:` and `THEM:` are among them.

    Args:
        game: the name of the game that is talked about.

    Raises:
        ConfigError: no game is called that.
        DataError: as a `WordList`, or a speaker marker is missing.
    """

    game: str = DEAL_OR_NO_DEAL

    SPECIALS: ClassVar[tuple[str, ...]] = SPECIALS
    UNKNOWN_ID: ClassVar[int] = UNK_ID

    def __post_init__(self) -> None:
        super().__post_init__()
        for marker in (YOU, THEM):
            if marker not in self.index:
                fix = "train on a corpus with both speakers"
                raise DataError(f"a negotiation vocabulary lacks the speaker marker {marker!r}", fix=fix)
        domain_of(self.game)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the JSON that `save` wrote."""
        stored = json.loads(path.read_text(encoding="utf-8"))
        return cls(tuple(stored["words"]), stored["game"]) if isinstance(stored, dict) else cls(tuple(stored))

    def save(self, path: Path) -> None:
        """Write the words as a JSON list, as a `WordList`; of another game than Deal or No Deal beside its name."""
        super().save(path)
        if self.game != DEAL_OR_NO_DEAL:
            path.write_text(
                json.dumps({"game": self.game, "words": self.words}, ensure_ascii=False, indent=0), encoding="utf-8"
            )

    @classmethod
    def build(cls, sentences: Iterable[Sequence[str]], threshold: int, game: str = DEAL_OR_NO_DEAL) -> Vocabulary:
        """Keep the words that occur strictly more than `threshold` times (the published rule, threshold 20)."""
        counts: Counter[str] = Counter()
        for sentence in sentences:
            counts.update(sentence)
        kept = [word for word, count in counts.most_common() if count > threshold and word not in SPECIALS]
        return cls((*SPECIALS, *kept), game)

    @property
    def domain(self) -> Domain:
        """What is talked about."""
        return domain_of(self.game)

    @cached_property
    def digest(self) -> str:
        """Twelve hex digits that two equal vocabularies of a game share."""
        if self.game == DEAL_OR_NO_DEAL:
            return super().digest
        return hashlib.blake2b("\n".join((self.game, *self.words)).encode(), digest_size=6).hexdigest()

    @cached_property
    def you_id(self) -> int:
        """Id of the marker of one's own turns."""
        return self.index[YOU]

    @cached_property
    def them_id(self) -> int:
        """Id of the marker of the partner's turns."""
        return self.index[THEM]

    @cached_property
    def unspeakable_ids(self) -> tuple[int, ...]:
        """Ids that no speaker may say: `<unk>`, `<pad>` and the two speaker markers."""
        return (UNK_ID, PAD_ID, self.you_id, self.them_id)


def split_text(text: str, vocabulary: Vocabulary) -> list[str]:
    """Return a text in words as the corpora write them: lower case, punctuation apart unless the vocabulary has it joined."""
    words: list[str] = []
    for piece in well_formed(text).lower().split():
        words += [piece] if piece in vocabulary.index else _PIECES.findall(piece)
    return [word for word in words if word != EOS]


class SpokenWords:
    """Words that grow by what is said, and how each side numbers them.

    Args:
        vocabularies: of side 0 and side 1.
    """

    def __init__(self, vocabularies: tuple[Vocabulary, Vocabulary]) -> None:
        self._vocabularies = vocabularies
        self.words = list(vocabularies[0].words)
        """Every word by the game's id."""
        self._index = dict(vocabularies[0].index)
        self._spoken = [self.ids(vocabulary.words) for vocabulary in vocabularies]
        self._heard = [np.empty(0, dtype=np.int64)] * 2

    def ids(self, words: Iterable[str]) -> np.ndarray:
        """Return the game's ids (n,) of words; those that are new join them."""
        found = []
        for word in words:
            if word not in self._index:
                self._index[word] = len(self.words)
                self.words.append(word)
            found.append(self._index[word])
        return np.array(found, dtype=np.int64)

    def spoken(self, side: int, ids: np.ndarray) -> np.ndarray:
        """Return the game's ids of what a side says in ids of its own."""
        own = self._spoken[side]
        return np.where(ids < len(own), own[np.minimum(ids, len(own) - 1)], ids - len(own))

    def heard(self, side: int, ids: np.ndarray) -> np.ndarray:
        """Return a side's own ids of what is said in the game's."""
        table = self._heard[side]
        if len(table) < len(self.words):
            new = self._vocabularies[side].encode(self.words[len(table) :])
            table = self._heard[side] = np.concatenate([table, new])
        return table[ids]


ILLEGAL = "<illegal>"
"""Stands for a selection out of range in what is written of a dialogue."""


@dataclass(frozen=True, order=True)
class Scenario:
    """One deal to be struck: how many of each item there are and what each side's items are worth.

    Args:
        counts: number of each item; of Deal or No Deal books, hats, balls, each 1..4, 5..7 in total.
        values: for side 0 and side 1, points per item; of Deal or No Deal each 0..10, and counts times values sum to 10.
        game: the name of its `Domain`.

    Raises:
        ConfigError: no game is called that.
        ScenarioError: a number is not whole, or a rule of the game is broken (message names the rule).
    """

    counts: Numbers
    values: tuple[Numbers, Numbers]
    game: str = DEAL_OR_NO_DEAL

    def __post_init__(self) -> None:
        counts, first, second = map(_whole, (self.counts, *self.values))
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "values", (first, second))
        domain, num = self.domain, len(self.domain.items)
        whole = all(len(part) == num for part in (self.counts, *self.values))
        problem = domain.problem(self.counts, self.values) if whole else f"there are {num} items"
        if problem:
            got = f"counts {self.counts}, values {self.values}"
            raise ScenarioError(f"illegal scenario: {problem}", got=got, fix=domain.rule)

    @property
    def domain(self) -> Domain:
        """What it is about."""
        return domain_of(self.game)

    @property
    def key(self) -> str:
        """A short name, equal for equal scenarios of a game: counts, then each side's values."""
        return "/".join(",".join(map(str, part)) for part in (self.counts, *self.values))

    @property
    def selections(self) -> Selections:
        """What may be chosen."""
        return self.domain.selections(self.counts)

    def context(self, side: int) -> Numbers:
        """Return the numbers that a side sees: count and own value of each item in turn."""
        return tuple(itertools.chain.from_iterable(zip(self.counts, self.values[side], strict=True)))

    def swapped(self) -> Scenario:
        """Return the same scenario with the sides exchanged."""
        return Scenario(self.counts, (self.values[1], self.values[0]), self.game)

    @classmethod
    def from_contexts(cls, first: Sequence[int], second: Sequence[int], game: str = DEAL_OR_NO_DEAL) -> Scenario:
        """Return a scenario from both sides' numbers (count and value of each item in turn).

        Raises:
            ScenarioError: the sides disagree on the counts, or a rule is broken.
        """
        width = 2 * len(domain_of(game).items)
        if len(first) != width or len(second) != width or tuple(first[::2]) != tuple(second[::2]):
            raise ScenarioError(
                "the two sides' contexts do not describe one scenario",
                got=f"{list(first)} and {list(second)}",
                fix=f"give {width} numbers a side with equal counts: c0 v0 c1 v1 and so on",
            )
        return cls(tuple(first[::2]), (tuple(first[1::2]), tuple(second[1::2])), game)


def _whole(numbers: Iterable[Any]) -> Numbers:
    """Return numbers as Python's whole ones, whoever made them.

    Raises:
        ScenarioError: one is not whole.
    """
    given = tuple(numbers)
    if not all(isinstance(number, int | float | np.integer | np.floating) and number % 1 == 0 for number in given):
        fix = "scale the values up until all are whole: halves by 2"
        raise ScenarioError("a scenario has whole numbers", got=f"({', '.join(map(str, given))})", fix=fix)
    return tuple(map(int, given))


def points(scenario: Scenario, selections: tuple[int, int]) -> tuple[bool, tuple[int, int]]:
    """Return whether the sides' selections fit together, and what each side earns (0, 0 if they do not).

    Refusals and anything that does not add up to the counts are no agreement, as in the published scoring.
    """
    legal, (first, second) = scenario.selections, selections
    if first >= legal.no_agreement or int(legal.fits[first]) != second:
        return False, (0, 0)
    return True, (int(legal.own[first] @ scenario.values[0]), int(legal.other[first] @ scenario.values[1]))


def is_pareto_optimal(scenario: Scenario, earned: tuple[int, int]) -> bool:
    """Return whether no legal deal is at least as good for both sides and better for one."""
    first, second = scenario.selections.own @ scenario.values[0], scenario.selections.other @ scenario.values[1]
    # Refusals earn nothing, so that they are better than no deal.
    better = (first >= earned[0]) & (second >= earned[1]) & ((first > earned[0]) | (second > earned[1]))
    return not better.any()
