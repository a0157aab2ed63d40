"""Scripted bargainers of Deal or No Deal, their dialogue acts, and the embedded corpora that scripted agents generate.

A bargainer opens, counters, concedes, insists, accepts or walks away, and chooses what was agreed. It is a pure function of its
view: before each move it replays the dialogue from its words, so it can continue any dialogue with any partner, even one that
talks nonsense. Its aim falls from an opening to a reserve over its turns (time-dependent concession: Faratin, Sierra, Jennings
1998), and further each time the other side insists. This weakness is intended: a model fitted on these dialogues learns it, and
an adversary can learn to exploit it. `listening.py` parses words, `wording.py` finds words.

Embedded corpora have the line format of the published Deal-or-No-Deal files and make every verb work offline on a new machine.
Dialogue i depends only on the seed and i, so a larger corpus begins with the smaller one. `envs/negotiation/corpora` reads
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from parley.envs.core.config import check
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.play import Utterances
from parley.envs.core.registry import nearest
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.negotiation.dealornodeal_rules import (
    MAX_SELECTIONS,
    NUM_ITEMS,
    TOTAL_VALUE,
    Triple,
    picks_table,
    selection_index,
    selection_table,
)
from parley.envs.negotiation.domain import DISAGREE, SELECTION_ID, SPECIALS, GameActs, Scenario, Vocabulary
from parley.envs.negotiation.game import Agent, NegotiationGame, SideView, play
from parley.envs.negotiation.scripted.listening import Meaning, understand
from parley.envs.negotiation.scripted.wording import Act, Move, Phrasebook, bargainer_vocabulary

LOWEST_AIM = 1.0
"""Fewest points that a bargainer ever accepts."""


@dataclass(frozen=True, kw_only=True)
class Style:
    """Parameters of a bargainer."""

    greed: float = 0.4
    """Its aim: it opens at 6 + 4 greed points and comes down to 10 greed; 0..1."""
    patience: int = 5
    """Own turns after which it walks away from an offer below its reserve; at least 1."""
    chattiness: float = 0.5
    """Amount of words beyond the necessary; 0..1."""
    yielding: float = 0.8
    """Points that it gives up each time the other side insists; at least 0."""
    slip: float = 0.0
    """Probability of a wrong choice by one item; 0..1, doubled if the deal was vague."""

    def __post_init__(self) -> None:
        check(self, "greed", 0 <= self.greed <= 1, "0 to 1")
        check(self, "patience", self.patience >= 1, "at least 1")
        check(self, "chattiness", 0 <= self.chattiness <= 1, "0 to 1")
        check(self, "yielding", self.yielding >= 0, "at least 0")
        check(self, "slip", 0 <= self.slip <= 1, "0 to 1")

    def aim(self, num_turns: int, pressure: int) -> float:
        """Return the least points that it accepts now.

        Args:
            num_turns: own turns so far.
            pressure: number of times the other side has insisted.
        """
        opening, reserve = 6 + 4 * self.greed, TOTAL_VALUE * self.greed
        elapsed = min(1.0, num_turns / self.patience)
        return max(LOWEST_AIM, opening - (opening - reserve) * elapsed - self.yielding * pressure)


STYLES = {
    "scripted": Style(greed=0.4, patience=5, chattiness=0.5, yielding=0.8),
    "scripted-tough": Style(greed=0.62, patience=6, chattiness=0.25, yielding=0.4),
}
"""The named styles: a fair bargainer and a tough one."""


@dataclass
class Talks:
    """The state of a dialogue for one side; shares are that side's own items.

    Args:
        counts: number of each item in the scenario.
    """

    counts: Triple
    table: Triple | None = None
    """The latest proposal, unless it was turned down."""
    table_is_mine: bool = False
    table_is_vague: bool = False
    agreed: Triple | None = None
    is_news: bool = False
    """Whether the last utterance made the deal."""
    i_parted: bool = False
    they_parted: bool = False
    """Whether the other side has ever walked away."""
    i_ended: bool = False
    num_turns: int = 0
    """Own utterances so far."""
    my_last: Triple | None = None
    """My latest proposal."""
    their_last: Triple | None = None
    pressure: int = 0
    """Number of times the other side has insisted: firm words, a repeated demand, a threat to leave."""
    wanted: list[float] = field(default_factory=lambda: [0.0] * NUM_ITEMS)
    """For each item, the fraction that the other side asked for, summed over its proposals."""
    num_theirs: int = 0
    """The other side's proposals so far."""
    spurned: set[int] = field(default_factory=set)
    """Items that the other side called useless to itself."""

    def hear(self, mine: bool, meaning: Meaning) -> None:
        """Update the state with one utterance."""
        share = meaning.share(self.counts)
        if share is not None and not mine:
            share = (self.counts[0] - share[0], self.counts[1] - share[1], self.counts[2] - share[2])
        self.is_news = False
        others_table = self.table is not None and self.table_is_mine != mine
        if others_table and self.agreed is None and (share == self.table if share is not None else meaning.accepts):
            self.agreed, self.is_news = self.table, True
        elif share is not None and share != self.agreed:
            self.table, self.table_is_mine, self.table_is_vague = share, mine, meaning.vague
            self.agreed = None
        elif share is None and (meaning.parts or (meaning.refuses and (others_table or self.agreed is not None))):
            self.table = self.agreed = None
        if mine:
            self.num_turns += 1
            self.i_parted |= meaning.parts
            self.my_last = share if share is not None else self.my_last
        else:
            self._learn(meaning, share)

    def _learn(self, meaning: Meaning, share: Triple | None) -> None:
        """Update the other side's wishes and firmness from its words."""
        self.they_parted |= meaning.parts
        self.spurned.update(item for item in range(NUM_ITEMS) if meaning.spurned[item])
        repeated = share is not None and self.their_last is not None and all(map(int.__le__, share, self.their_last))
        if meaning.parts or (share is not None and (meaning.firm or repeated)):
            self.pressure += 1
        if share is not None:
            self.their_last = share
            self.num_theirs += 1
            for item, (count, number) in enumerate(zip(self.counts, share, strict=True)):
                self.wanted[item] += (count - number) / count

    def their_weights(self) -> np.ndarray:
        """Return an estimate of the worth of one piece of each item to the other side (3,), up to a factor."""
        weights = [
            0.0 if item in self.spurned else (0.4 + self.wanted[item] / max(self.num_theirs, 1)) / self.counts[item]
            for item in range(NUM_ITEMS)
        ]
        return np.array(weights)


def worth(share: Sequence[int], values: Sequence[int]) -> int:
    """Return the points of a share, 0..10."""
    return sum(number * value for number, value in zip(share, values, strict=True))


def plan(talks: Talks, values: Triple, aim: float, rng: np.random.Generator) -> Triple:
    """Return the share to propose: worth at least `aim`, best for the other side, and not above the last proposal."""
    shares = picks_table(talks.counts)[:-2]
    gains = shares @ np.array(values)
    enough = gains >= aim
    if talks.my_last is not None:
        no_more = enough & (gains <= worth(talks.my_last, values))
        enough = no_more if no_more.any() else enough
    appeal = (np.array(talks.counts) - shares) @ talks.their_weights() + 0.02 * gains + 0.25 * rng.random(len(gains))
    first, second, third = shares[np.where(enough, appeal, -np.inf).argmax()].tolist()
    return first, second, third


def decide(talks: Talks, values: Triple, style: Style, rng: np.random.Generator) -> Move:
    """Return the next move.

    Args:
        talks: the dialogue so far; it is this side's turn.
        values: own points for one piece of each item.
        style: how to bargain.
        rng: this move's random draws.
    """
    aim = style.aim(talks.num_turns, talks.pressure)
    prize = max(range(NUM_ITEMS), key=lambda item: talks.counts[item] * values[item])
    junk = next((item for item in range(NUM_ITEMS) if not values[item]), None)

    def move(act: Act, share: Triple | None = None) -> Move:
        return Move(act, share, prize, junk)

    if talks.agreed is not None:
        return move(Act.THANK if talks.is_news and rng.random() < 0.3 * style.chattiness else Act.END)
    offer = None if talks.table_is_mine else talks.table
    if offer is not None and worth(offer, values) >= aim:
        if not talks.i_parted and rng.random() < 0.08:
            return move(Act.END)
        calm = worth(offer, values) >= style.aim(talks.num_turns, 0)
        return move(Act.ACCEPT if calm else Act.YIELD, offer)
    if talks.i_parted or (talks.they_parted and talks.table is None and rng.random() < 0.5):
        return move(Act.END)
    if talks.num_turns >= style.patience:
        return move(Act.PART)
    if talks.num_turns == 0 and offer is None and rng.random() < 0.25 * style.chattiness:
        return move(Act.ASK)
    if offer is not None and rng.random() < 0.08:
        return move(Act.REFUSE)
    share = plan(talks, values, aim, rng)
    if share == talks.my_last:
        return move(Act.INSIST, share)
    if talks.my_last is not None and worth(share, values) < worth(talks.my_last, values):
        return move(Act.CONCEDE, share)
    return move(Act.OPEN if offer is None else Act.COUNTER, share)


def settle(talks: Talks, values: Triple, style: Style, rng: np.random.Generator) -> Triple | None:
    """Return the own items to choose after the dialogue, or None for no agreement.

    A proposal that the other side answered with `<selection>` counts as accepted, unless that side had walked away. A proposal
    of the other side that is still on the table counts if it is good enough.
    """
    share = talks.agreed
    if share is None and talks.table is not None:
        if talks.table_is_mine:
            share = None if talks.i_ended or talks.they_parted else talks.table
        elif worth(talks.table, values) >= style.aim(talks.num_turns, talks.pressure):
            share = talks.table
    if share is not None and rng.random() < style.slip * (1 + talks.table_is_vague):
        item = int(rng.integers(NUM_ITEMS))
        wrong = list(share)
        wrong[item] += 1 if share[item] < talks.counts[item] else -1
        share = (wrong[0], wrong[1], wrong[2])
    return share


@dataclass(frozen=True)
class Demand:
    """A side's demand.

    Args:
        share: its items.
        turn: index of the utterance in which it last made the demand or accepted it, from 0.
    """

    share: Triple
    turn: int


def last_demand(turns: Sequence[tuple[bool, str]], counts: Triple) -> Demand | None:
    """Return a side's last proposal, or the partner's proposal that it has accepted since.

    Args:
        turns: the dialogue so far: True for a turn of this side, and its words.
        counts: number of each item in the scenario.

    Returns:
        The demand; None if the side has neither proposed nor accepted anything.
    """
    talks, demand = Talks(counts), None
    for turn, (mine, text) in enumerate(turns):
        meaning = understand([word for word in text.split() if word not in SPECIALS])
        talks.hear(mine, meaning)
        if not mine:
            continue
        if talks.is_news and talks.agreed is not None:
            demand = Demand(talks.agreed, turn)
        elif meaning.share(counts) is not None and talks.my_last is not None:
            demand = Demand(talks.my_last, turn)
    return demand


class Bargainer:
    """A scripted agent.

    Args:
        vocabulary: the words it may use.
        style: how it bargains.
        name: what results call it.

    Raises:
        DataError: the vocabulary lacks words of a necessary phrase.
    """

    def __init__(self, vocabulary: Vocabulary, style: Style, name: str = "bargainer") -> None:
        self.name, self.vocabulary, self.style = name, vocabulary, style
        self.phrasebook = Phrasebook(vocabulary)

    @classmethod
    def named(cls, name: str, vocabulary: Vocabulary) -> Bargainer:
        """Return the bargainer of that name.

        Raises:
            ConfigError: an unknown style (with the nearest name).
        """
        if name not in STYLES:
            raise ConfigError(
                f"no scripted bargainer is called {name!r}{nearest(name, STYLES)}", got=name, fix=f"known: {', '.join(STYLES)}"
            )
        return cls(vocabulary, STYLES[name], name)

    def join(self, view: SideView) -> BargainerSession:
        """Join one side of a batch of dialogues.

        Raises:
            ConfigError: the dialogues are held in another vocabulary.
        """
        if view.vocabulary != self.vocabulary:
            raise ConfigError(
                "a scripted bargainer was seated in dialogues of another vocabulary",
                got=f"{len(view.vocabulary)} words, the bargainer knows {len(self.vocabulary)}",
                fix="make the bargainer with the vocabulary of the game",
            )
        return BargainerSession(view, self.phrasebook, [self.style] * len(view))


class BargainerSession:
    """Bargainers on one side of a batch of dialogues.

    Args:
        view: the side's view.
        phrasebook: the wording, in the vocabulary of the view.
        styles: one style per dialogue.
    """

    def __init__(self, view: SideView, phrasebook: Phrasebook, styles: Sequence[Style]) -> None:
        self._view, self._phrasebook, self._styles = view, phrasebook, styles
        # A cache of the state of each dialogue; dialogues only grow.
        self._read: dict[int, tuple[Talks, int]] = {}

    def speak(self, rows: np.ndarray) -> Utterances:
        """Return the next utterance in each of the dialogues `rows` (n,)."""
        return Utterances.of([self._say(row) for row in rows.tolist()])

    def choose(self, rows: np.ndarray) -> np.ndarray:
        """Return the selection in each of the dialogues `rows`: index (n,) into the legal selections."""
        selections = []
        for row in rows.tolist():
            talks, values = self._talks(row), self._values(row)
            share = settle(talks, values, self._styles[row], self._view.generator(row))
            no_agreement = len(self._view.selections(row)) - 2
            selections.append(no_agreement if share is None else selection_index(talks.counts, share))
        return np.array(selections, dtype=np.int64)

    def _say(self, row: int) -> list[int]:
        talks, style, rng = self._talks(row), self._styles[row], self._view.generator(row)
        return self._phrasebook.say(decide(talks, self._values(row), style, rng), talks.counts, style.chattiness, rng)

    def _values(self, row: int) -> Triple:
        first, second, third = self._view.contexts[row, 1::2].tolist()
        return first, second, third

    def _talks(self, row: int) -> Talks:
        """Return the state of a dialogue, replayed from its words."""
        if row in self._read:
            talks, num_read = self._read[row]
        else:
            first, second, third = self._view.contexts[row, ::2].tolist()
            talks, num_read = Talks((first, second, third)), 0
        num_tokens = int(self._view.num_tokens[row])
        ids = tuple(self._view.tokens[row, num_read:num_tokens].tolist())
        you, them = self._view.vocabulary.you_id, self._view.vocabulary.them_id
        starts = [k for k, token in enumerate(ids) if token in (you, them)]
        for start, end in zip(starts, [*starts, len(ids)][1:], strict=True):
            mine, utterance = ids[start] == you, ids[start + 1 : end]
            if utterance == (SELECTION_ID,):
                talks.i_ended = mine
            else:
                talks.hear(mine, self._phrasebook.hear(utterance))
        self._read[row] = talks, num_tokens
        return talks


def scripted(vocabulary: Vocabulary) -> Agent:
    """Return the fair scripted agent of a vocabulary's game, in these words if they suffice, else in its own."""
    return _able("scripted", vocabulary)


def scripted_tough(vocabulary: Vocabulary) -> Agent:
    """Return the tough scripted agent; words as of `scripted`."""
    return _able("scripted-tough", vocabulary)


def _able(name: str, vocabulary: Vocabulary) -> Agent:
    domain = vocabulary.domain
    try:
        return domain.scripted(name, vocabulary)
    except DataError:
        return domain.scripted(name, domain.vocabulary())


__all__ = [
    "STYLES",
    "Bargainer",
    "BargainerSession",
    "Demand",
    "Style",
    "Talks",
    "bargainer_vocabulary",
    "decide",
    "last_demand",
    "plan",
    "scripted",
    "scripted_tough",
    "settle",
    "worth",
]


NUM_ALLOCATIONS = MAX_SELECTIONS - 2
OTHER_ACTS = (Act.ACCEPT, Act.ASK, Act.PART, Act.END)
"""The acts after those that propose an allocation."""


class DivisionActs(GameActs):
    """Acts that propose allocations; of those worth the same, the one that leaves more pieces comes first.

    Args:
        vocabulary: of both sides.

    Raises:
        DataError: the vocabulary lacks words of the acts.
    """

    num_proposals = NUM_ALLOCATIONS
    other_acts = tuple(act.value for act in OTHER_ACTS)
    num_features = 6 * NUM_ITEMS + 10 + 2 * NUM_ALLOCATIONS

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.phrasebook = Phrasebook(vocabulary)

    def begin(self, context: np.ndarray) -> None:
        first, second, third = context[::2].tolist()
        mine = context[1::2].tolist()
        self.counts, self.values = (first, second, third), (mine[0], mine[1], mine[2])
        shares = [(int(a), int(b), int(c)) for a, b, c in picks_table(self.counts)[:-2]]
        self.shares = sorted(shares, key=lambda share: (-worth(share, self.values), sum(share), share))
        self.talks = Talks(self.counts)

    def hear(self, mine: bool, ids: Sequence[int]) -> None:
        if tuple(ids) == (SELECTION_ID,):
            self.talks.i_ended = mine
        else:
            self.talks.hear(mine, self.phrasebook.hear(tuple(ids)))

    def mask(self) -> np.ndarray:
        talks = self.talks
        mask = np.zeros(NUM_ALLOCATIONS + len(OTHER_ACTS), dtype=bool)
        mask[: len(self.shares)] = True
        offered = talks.table is not None and not talks.table_is_mine and talks.agreed is None
        mask[NUM_ALLOCATIONS:] = [offered, talks.num_turns == 0, not talks.i_parted, True]
        return mask

    def say(self, action: int, chattiness: float, rng: np.random.Generator) -> list[int]:
        return self.phrasebook.say(self._move(action), self.counts, chattiness, rng)

    def selection(self) -> int:
        share = self.talks.agreed or self.talks.table
        no_agreement = len(selection_table(self.counts)) - 2
        return no_agreement if share is None else selection_index(self.counts, share)

    def features(self) -> list[float]:
        talks, most = self.talks, np.array(self.counts, dtype=np.float32)

        def part(share: Triple | None) -> list[float]:
            return [0.0] * NUM_ITEMS if share is None else (np.array(share) / most).tolist()

        weights = talks.their_weights()
        shares = np.array(self.shares)
        gains, theirs = np.zeros((2, NUM_ALLOCATIONS))
        gains[: len(shares)] = shares @ np.array(self.values) / TOTAL_VALUE
        theirs[: len(shares)] = (most - shares) @ weights / max(float(most @ weights), 1e-6)
        offer = None if talks.table_is_mine else talks.table
        return [
            *(most / max(1.0, most.max())).tolist(),
            *(np.array(self.values) / TOTAL_VALUE).tolist(),
            *(value for share in (talks.my_last, talks.their_last, talks.table, talks.agreed) for value in part(share)),
            *(float(flag) for flag in (offer is not None, talks.agreed is not None, talks.i_parted, talks.they_parted)),
            *(float(flag) for flag in (talks.my_last is not None, talks.their_last is not None)),
            min(1.0, talks.num_turns / 10),
            min(1.0, talks.pressure / 5),
            0.0 if offer is None else worth(offer, self.values) / TOTAL_VALUE,
            0.0 if talks.agreed is None else worth(talks.agreed, self.values) / TOTAL_VALUE,
            *gains.tolist(),
            *theirs.tolist(),
        ]

    def name(self, action: int) -> str:
        if action >= NUM_ALLOCATIONS:
            return self.other_acts[action - NUM_ALLOCATIONS]
        if action >= len(self.shares):
            return f"proposes allocation {action} of {len(self.shares)}"
        share = self.shares[action]
        return f"proposes {share} of {self.counts} for itself, worth {worth(share, self.values)}"

    def _move(self, action: int) -> Move:
        prize = max(range(NUM_ITEMS), key=lambda item: self.counts[item] * self.values[item])
        junk = next((item for item in range(NUM_ITEMS) if not self.values[item]), None)
        talks = self.talks
        if action >= NUM_ALLOCATIONS:
            act = OTHER_ACTS[action - NUM_ALLOCATIONS]
            return Move(act, talks.table if act is Act.ACCEPT else None, prize, junk)
        share = self.shares[action]
        if share == talks.my_last:
            return Move(Act.INSIST, share, prize, junk)
        if talks.my_last is not None and worth(share, self.values) < worth(talks.my_last, self.values):
            return Move(Act.CONCEDE, share, prize, junk)
        return Move(Act.OPEN if talks.table is None else Act.COUNTER, share, prize, junk)


NUM_SELFPLAY = 500
"""Number of scenarios in the "selfplay" split."""
SPLITS_OF_TEN = ("train",) * 8 + ("val", "test")
"""The splits of every ten successive dialogues."""
_BATCH = 500


def embedded_corpus(num_dialogues: int, seed: int) -> dict[str, list[str]]:
    """Generate the corpus of Deal or No Deal; arguments and errors as of `corpus_lines`."""
    phrasebook = Phrasebook(bargainer_vocabulary())
    return corpus_lines(num_dialogues, seed, "embedded", phrasebook.vocabulary, lambda styles: _Crowd(phrasebook, styles))


def corpus_lines(
    num_dialogues: int, seed: int, name: str, vocabulary: Vocabulary, crowd: Callable[[Sequence[Style]], Agent]
) -> dict[str, list[str]]:
    """Generate a corpus of a vocabulary's game.

    Args:
        num_dialogues: dialogues of all splits together, at least 0; each gives two successive lines, one per side.
        seed: master seed, at least 0.
        name: of the random streams of scenarios, styles and dialogues.
        vocabulary: of the game.
        crowd: makes an agent with one style per dialogue.

    Returns:
        Lines without line ends under "train", "val" and "test", about 8 : 1 : 1, and under "selfplay": 500 fresh random
        scenarios, two lines "c0 v0 c1 v1 ..." each.

    Raises:
        ConfigError: a negative number.
    """
    if num_dialogues < 0 or seed < 0:
        got = f"{num_dialogues} dialogues, seed {seed}"
        raise ConfigError("the embedded corpus takes no negative numbers", got=got, fix="give numbers of at least 0")
    lines: dict[str, list[str]] = {"train": [], "val": [], "test": [], "selfplay": []}
    for start in range(0, num_dialogues, _BATCH):
        indices = range(start, min(start + _BATCH, num_dialogues))
        game = _play(indices, seed, name, vocabulary, crowd)
        for row, i in enumerate(indices):
            lines[SPLITS_OF_TEN[i % len(SPLITS_OF_TEN)]] += [dialogue_line(game, row, side) for side in (0, 1)]
    for i in range(NUM_SELFPLAY):
        scenario = vocabulary.domain.random_scenario(stream(seed, f"{name}-selfplay", i))
        lines["selfplay"] += [_numbers(scenario, side) for side in (0, 1)]
    return lines


def random_style(rng: np.random.Generator) -> Style:
    """Return a random style: from soft and brief to hard and talkative."""
    greed, chattiness, yielding = rng.random(3).tolist()
    return Style(
        greed=0.25 + 0.42 * greed, patience=int(rng.integers(2, 6)), chattiness=chattiness, yielding=1.2 * yielding, slip=0.015
    )


def dialogue_line(game: NegotiationGame, row: int, side: int) -> str:
    """Return one side's view of a finished dialogue as a line of the published format."""
    scenario, words, domain = game.scenarios[row], game.vocabulary.words, game.domain
    chosen_index, partner_index = (int(game.selections[row, who]) for who in (side, 1 - side))
    fits = scenario.selections.fits[partner_index] == chosen_index
    output = scenario.selections.table[chosen_index].tolist() if fits else domain.refusal_tokens(DISAGREE)
    words_text = " ".join(words[token] for token in game.tokens[side, row, : game.num_tokens[row]].tolist())
    chosen = " ".join(domain.tokens[token] for token in output)
    return (
        f"<input> {_numbers(scenario, side)} </input> <dialogue> {words_text} </dialogue> <output> {chosen} </output> "
        f"<partner_input> {_numbers(scenario, 1 - side)} </partner_input>"
    )


class _Crowd:
    """A different bargainer in every dialogue.

    Args:
        phrasebook: their wording.
        styles: one style per dialogue.
    """

    name = "crowd"

    def __init__(self, phrasebook: Phrasebook, styles: Sequence[Style]) -> None:
        self._phrasebook, self._styles = phrasebook, styles
        self.vocabulary: Vocabulary = phrasebook.vocabulary

    def join(self, view: SideView) -> BargainerSession:
        return BargainerSession(view, self._phrasebook, self._styles)


def _play(
    indices: range, seed: int, name: str, vocabulary: Vocabulary, crowd: Callable[[Sequence[Style]], Agent]
) -> NegotiationGame:
    scenarios: list[Scenario] = []
    styles: tuple[list[Style], list[Style]] = ([], [])
    for i in indices:
        rng = stream(seed, name, i)
        scenarios.append(vocabulary.domain.random_scenario(rng))
        for side in (0, 1):
            styles[side].append(random_style(rng))
    seeds = [derive_seed(seed, name, i) for i in indices]
    return play(NegotiationGame(scenarios, seeds, vocabulary), (crowd(styles[0]), crowd(styles[1])))


def _numbers(scenario: Scenario, side: int) -> str:
    return " ".join(map(str, scenario.context(side)))
