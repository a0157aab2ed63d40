"""Domains (games) of negotiations, their scenarios and points, and the vocabularies of negotiations.

The dialogue of every game is the same (`game.py`); a `Domain` defines the rest. Both sides see K items: the same counts, and
their own points for one of each. A selection gives items to both sides, and a side's points are its items times their values.
This covers items to divide (`dealornodeal.py`) and issues with one option for both sides (`interview/`).

A game of your own is an object of such a class; a package offers it under the entry point group `parley.games`.

A vocabulary belongs to a game. Ids 0..3 are `<eos>`, `<unk>`, `<selection>`, `<pad>`, as in the published negotiation code; the
words follow by falling frequency, ties by first occurrence.

`SpokenWords` numbers the words of a game whose sides have different vocabularies: first the words of side 0, then those of
side 1, then any other word that is said. Each side speaks and hears ids of its own vocabulary, and hears `<unk>` for a word
that it lacks. To say a word that its own vocabulary lacks, a side uses the size of that vocabulary plus the game's id.

Shapes: n scenarios, K items, m legal selections of one, M = `max_selections`, H = `num_heads`. Ids are int64.
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
    from parley.envs.negotiation.game import Agent


Numbers = tuple[int, ...]
DISAGREE, NO_AGREEMENT, DISCONNECT = REFUSALS = ("<disagree>", "<no_agreement>", "<disconnect>")
"""The last tokens of every game. The first is only a recorded outcome; the others are the last two selections."""
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
    domain: Domain = domains.get(game)
    return domain


def domain_recorded(counts: Sequence[int], values: tuple[Sequence[int], Sequence[int]]) -> Domain:
    """Return the first game in which a scenario of a run's rows is legal; rows do not name their game.

    Raises:
        ScenarioError: the scenario is legal in no game.
    """
    numbers = tuple(counts), (tuple(values[0]), tuple(values[1]))
    for domain in map(domain_of, domains):
        if len(domain.items) == len(counts) and not domain.problem(*numbers):
            return domain
    got = f"counts {counts}, values {values}"
    raise ScenarioError("a scenario of no game", got=got, fix=f"known games: {', '.join(domains)}")


@dataclass(frozen=True, eq=False)
class Selections:
    """The legal selections of one scenario in a fixed order: all deals, no agreement, disconnect.

    Args:
        table: tokens (m, H) int64 of each selection.
        chooser_items: the chooser's number of each item (m, K) int64; 0 for the refusals.
        other_items: the other side's number of each item (m, K) int64; 0 for the refusals.
        fits: the matching selection of the other side (m,) int64; refusals match themselves.

    Raises:
        ScenarioError: an array is not of whole numbers.
    """

    table: np.ndarray
    chooser_items: np.ndarray
    other_items: np.ndarray
    fits: np.ndarray

    def __post_init__(self) -> None:
        for name, part in vars(self).items():
            if not np.issubdtype(part.dtype, np.integer):
                fix = f"make {name} an array of int64"
                raise ScenarioError("selections are given in whole numbers", where=name, got=part.dtype, fix=fix)
            part.setflags(write=False)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def no_agreement(self) -> int:
        """The index of the refusal "no agreement"; lower indices are deals."""
        return len(self) - 2


class GameActs(ABC):
    """Acts of one side in one dialogue at a time: proposals by their worth to that side, then all others.

    Attributes:
        num_proposals: the most deals that may be proposed in any scenario.
        other_acts: the acts after the proposals in words; the last one ends the talk.
        num_features: length of the features.
    """

    num_proposals: ClassVar[int]
    other_acts: ClassVar[tuple[str, ...]]
    num_features: ClassVar[int]

    @abstractmethod
    def begin(self, context: np.ndarray) -> None:
        """Begin a dialogue, given this side's context (2K,): count and own points of each item."""

    @abstractmethod
    def hear(self, mine: bool, ids: Sequence[int]) -> None:
        """Process an utterance, given as token ids without the speaker marker."""

    @abstractmethod
    def mask(self) -> np.ndarray:
        """Return the mask of legal acts (num_proposals + len(other_acts),) bool."""

    @abstractmethod
    def say(self, action: int, chattiness: float, rng: np.random.Generator) -> list[int]:
        """Return an act in words: token ids that end with `<eos>`, or `<selection>` alone."""

    @abstractmethod
    def selection(self) -> int:
        """Return the selection after the talk: the agreed deal, the one on the table, or no agreement."""

    @abstractmethod
    def features(self) -> list[float]:
        """Return the features for a learner (num_features,), each about 0..1."""

    @abstractmethod
    def name(self, action: int) -> str:
        """Return the action in words."""


class Domain(ABC):
    """A game of negotiation.

    Attributes:
        name: the registered name.
        rule: the conditions of a legal scenario, for messages.
        items: names of the K items.
        tokens: the tokens of selections, `REFUSALS` last.
        num_heads: number of tokens H of a selection.
        largest: the largest number in a side's context.
        best: points of the best deal for a side.
        max_selections: the most legal selections M of any scenario.
        how_to_play: the rules in sentences, for people and language models.
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
        """Return the rule that a scenario breaks; empty for a legal one."""

    @abstractmethod
    def selections(self, counts: Numbers) -> Selections:
        """Return the selections for these counts; the same object each time."""

    @abstractmethod
    def legal_selections(self, counts_nK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the legal selections of many scenarios at once.

        Returns:
            Tokens (n, M, H), in the order of `selections`, padded; the mask of legal rows (n, M).
        """

    @abstractmethod
    def random_scenario(self, rng: np.random.Generator) -> Scenario:
        """Return a legal scenario."""

    @abstractmethod
    def vocabulary(self) -> Vocabulary:
        """Return all words that the scripted agents of the game can say."""

    @abstractmethod
    def scripted(self, name: str, vocabulary: Vocabulary) -> Agent:
        """Return a scripted agent: "scripted", which is fair, or "scripted-tough".

        Raises:
            ConfigError: the name is unknown.
            DataError: the vocabulary lacks words that the agent needs.
        """

    @abstractmethod
    def question(self, counts: Numbers) -> str:
        """Return the possible choices in one line for a person, such as "book 0..1, hat 0..2, ball 0..3"."""

    @abstractmethod
    def answer_form(self, counts: Numbers) -> str:
        """Return the form of a deal for a person, such as "3 whole numbers, ..., such as 1 2 3"."""

    @abstractmethod
    def read_selection(self, counts: Numbers, text: str) -> int | None:
        """Return the index of the deal that a person wrote; None if the text is no deal."""

    @abstractmethod
    def describe(self, counts: Numbers, selection: int) -> str:
        """Return a deal in words."""

    def acts(self, vocabulary: Vocabulary) -> GameActs:
        """Return the dialogue acts of the game in a vocabulary (`acts.py`).

        Raises:
            ConfigError: the game has none.
            DataError: the vocabulary lacks words of the acts.
        """
        what = f"the game {self.name!r} has no dialogue acts"
        raise ConfigError(what, where=type(self).__name__, fix="play it in words or text, or give its class the method acts")

    @property
    def disagree_id(self) -> int:
        """The id of the first refusal; lower ids belong to deals."""
        return len(self.tokens) - len(REFUSALS)

    def shares(self, counts_nK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the items of chooser and other side after each selection, (n, M, K) each; 0 past the legal ones."""
        distinct, which = np.unique(counts_nK, axis=0, return_inverse=True)
        shape = (len(distinct), self.max_selections, len(self.items))
        chooser_items, other_items = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        for row, counts in enumerate(distinct.tolist()):
            legal = self.selections(tuple(counts))
            chooser_items[row, : len(legal)], other_items[row, : len(legal)] = legal.chooser_items, legal.other_items
        return chooser_items[which.reshape(-1)], other_items[which.reshape(-1)]

    @cached_property
    def token_index(self) -> dict[str, int]:
        """The id of each token."""
        return {token: i for i, token in enumerate(self.tokens)}

    def refusal_tokens(self, token: str) -> Numbers:
        """Return a refusal as recorded: its token on every head."""
        return (self.token_index[token],) * self.num_heads

    def held(self, counts: Sequence[int], tokens: Sequence[str]) -> Numbers | None:
        """Return the chooser's number of each item for recorded tokens; None for refusals and other tokens."""
        legal = self.selections(tuple(counts))
        for selection in range(legal.no_agreement):
            if [self.tokens[token] for token in legal.table[selection]] == list(tokens):
                return tuple(legal.chooser_items[selection].tolist())
        return None

    def selection_text(self, counts: Numbers, selection: int) -> str:
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
    """The words of negotiations, with `YOU:` and `THEM:`.

    Args:
        game: the name of the game.

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
        stored = json.loads(path.read_text(encoding="utf-8"))
        return cls(tuple(stored["words"]), stored["game"]) if isinstance(stored, dict) else cls(tuple(stored))

    def save(self, path: Path) -> None:
        """Write the words as a JSON list; for other games than Deal or No Deal, with the game's name."""
        super().save(path)
        if self.game != DEAL_OR_NO_DEAL:
            path.write_text(
                json.dumps({"game": self.game, "words": self.words}, ensure_ascii=False, indent=0), encoding="utf-8"
            )

    @classmethod
    def build(cls, sentences: Iterable[Sequence[str]], threshold: int, game: str = DEAL_OR_NO_DEAL) -> Vocabulary:
        """Build a vocabulary of the words that occur more than `threshold` times (published rule: 20)."""
        counts: Counter[str] = Counter()
        for sentence in sentences:
            counts.update(sentence)
        frequent = [word for word, count in counts.most_common() if count > threshold and word not in SPECIALS]
        return cls((*SPECIALS, *frequent), game)

    @property
    def domain(self) -> Domain:
        """The game of the words."""
        return domain_of(self.game)

    @cached_property
    def digest(self) -> str:
        if self.game == DEAL_OR_NO_DEAL:
            return super().digest
        return hashlib.blake2b("\n".join((self.game, *self.words)).encode(), digest_size=6).hexdigest()

    @cached_property
    def you_id(self) -> int:
        """Id of the marker of own turns."""
        return self.index[YOU]

    @cached_property
    def them_id(self) -> int:
        """Id of the marker of the partner's turns."""
        return self.index[THEM]

    @cached_property
    def unspeakable_ids(self) -> tuple[int, ...]:
        """Ids that no speaker may use: `<unk>`, `<pad>` and the two speaker markers."""
        return (UNK_ID, PAD_ID, self.you_id, self.them_id)


def split_text(text: str, vocabulary: Vocabulary) -> list[str]:
    """Return the words of a text: lower case, punctuation separate unless the vocabulary has it joined."""
    words: list[str] = []
    for piece in well_formed(text).lower().split():
        words += [piece] if piece in vocabulary.index else _PIECES.findall(piece)
    return [word for word in words if word != EOS]


class SpokenWords:
    """The words of a game, which grow as new ones are said, and their ids for each side.

    Args:
        vocabularies: the vocabularies of side 0 and side 1.
    """

    def __init__(self, vocabularies: tuple[Vocabulary, Vocabulary]) -> None:
        self._vocabularies = vocabularies
        self.words = list(vocabularies[0].words)
        """Every word by the game's id."""
        self._index = dict(vocabularies[0].index)
        self._spoken = [self.ids(vocabulary.words) for vocabulary in vocabularies]
        self._side_ids = [np.empty(0, dtype=np.int64)] * 2

    def ids(self, words: Iterable[str]) -> np.ndarray:
        """Return the game's ids (n,) of words, and add new words."""
        ids = []
        for word in words:
            if word not in self._index:
                self._index[word] = len(self.words)
                self.words.append(word)
            ids.append(self._index[word])
        return np.array(ids, dtype=np.int64)

    def to_game_ids(self, side: int, ids: np.ndarray) -> np.ndarray:
        """Return the game's ids for a side's own ids."""
        table = self._spoken[side]
        return np.where(ids < len(table), table[np.minimum(ids, len(table) - 1)], ids - len(table))

    def to_side_ids(self, side: int, ids: np.ndarray) -> np.ndarray:
        """Return a side's own ids for the game's ids."""
        table = self._side_ids[side]
        if len(table) < len(self.words):
            new = self._vocabularies[side].encode(self.words[len(table) :])
            table = self._side_ids[side] = np.concatenate([table, new])
        return table[ids]


ILLEGAL = "<illegal>"
"""The text of a selection out of range in records of a dialogue."""


@dataclass(frozen=True, order=True)
class Scenario:
    """The counts of the items, and each side's points for one of each.

    Args:
        counts: number of each item; in Deal or No Deal books, hats, balls, each 1..4, 5..7 in total.
        values: points per item for side 0 and side 1; in Deal or No Deal each 0..10, and counts times values sum to 10.
        game: the name of its `Domain`.

    Raises:
        ConfigError: the game is unknown.
        ScenarioError: a number is not whole, or a rule of the game is broken (message names the rule).
    """

    counts: Numbers
    values: tuple[Numbers, Numbers]
    game: str = DEAL_OR_NO_DEAL

    def __post_init__(self) -> None:
        counts, first, second = map(_integers, (self.counts, *self.values))
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "values", (first, second))
        domain, num = self.domain, len(self.domain.items)
        is_complete = all(len(part) == num for part in (self.counts, *self.values))
        problem = domain.problem(self.counts, self.values) if is_complete else f"there are {num} items"
        if problem:
            got = f"counts {self.counts}, values {self.values}"
            raise ScenarioError(f"illegal scenario: {problem}", got=got, fix=domain.rule)

    @property
    def domain(self) -> Domain:
        """The game of the scenario."""
        return domain_of(self.game)

    @property
    def key(self) -> str:
        """A short name, equal for equal scenarios of a game: the counts, then each side's values."""
        return "/".join(",".join(map(str, part)) for part in (self.counts, *self.values))

    @property
    def selections(self) -> Selections:
        """The legal selections."""
        return self.domain.selections(self.counts)

    def context(self, side: int) -> Numbers:
        """Return the numbers that a side sees: count and own value of each item, interleaved."""
        return tuple(itertools.chain.from_iterable(zip(self.counts, self.values[side], strict=True)))

    def swapped(self) -> Scenario:
        """Return the same scenario with the sides exchanged."""
        return Scenario(self.counts, (self.values[1], self.values[0]), self.game)

    @classmethod
    def from_contexts(cls, first: Sequence[int], second: Sequence[int], game: str = DEAL_OR_NO_DEAL) -> Scenario:
        """Build a scenario from both sides' contexts (count and value of each item, interleaved).

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


def _integers(numbers: Iterable[Any]) -> Numbers:
    """Return numbers as Python integers."""
    values = tuple(numbers)
    if not all(isinstance(number, int | float | np.integer | np.floating) and number % 1 == 0 for number in values):
        fix = "scale the values up until all are whole: halves by 2"
        raise ScenarioError("a scenario has whole numbers", got=f"({', '.join(map(str, values))})", fix=fix)
    return tuple(map(int, values))


def points(scenario: Scenario, selections: tuple[int, int]) -> tuple[bool, tuple[int, int]]:
    """Return True if the sides' selections fit together, and each side's points (0, 0 if they do not).

    Refusals and selections that do not sum to the counts are no agreement, as in the published scoring.
    """
    legal, (first, second) = scenario.selections, selections
    if first >= legal.no_agreement or int(legal.fits[first]) != second:
        return False, (0, 0)
    return True, (int(legal.chooser_items[first] @ scenario.values[0]), int(legal.other_items[first] @ scenario.values[1]))


def is_pareto_optimal(scenario: Scenario, earned: tuple[int, int]) -> bool:
    """Return True if no legal deal is at least as good for both sides and better for one."""
    first, second = scenario.selections.chooser_items @ scenario.values[0], scenario.selections.other_items @ scenario.values[1]
    # Refusals earn nothing, so they are never better than a deal.
    better = (first >= earned[0]) & (second >= earned[1]) & ((first > earned[0]) | (second > earned[1]))
    return not better.any()
