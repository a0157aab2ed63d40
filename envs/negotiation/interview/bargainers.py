"""The job interview: its issues and deals, the phrases, the scripted sides and the dialogue acts.

Two sides settle one option of each of four issues, such as 60k, 25 days, Lima, engineer. The game was written for Parley, after
multi-issue negotiations in the literature: preferences are opposed on some issues and aligned on others, so both sides can
gain. Each of the thirteen options is an item with count 1. A selection names one option of each issue, both sides hold the
chosen options, and selections fit if they are equal. It has four tokens, one per issue: `salary=40k` and so on in the order of
`OPTIONS`, then the refusals.

All phrases were written for Parley; `{deal}` is a list of options. An utterance names options, and may accept, insist or break
off. `understand` parses any text; the last option of an issue counts.

Scripted sides propose whole deals, concede, insist, accept or break off. They share the styles of the bargainers in
`envs/negotiation/scripted`, and like these are pure functions of their view: they replay a dialogue from its words, so they can
continue any dialogue with any partner. They yield to insistence on purpose: a model fitted on these dialogues learns this
weakness, and an adversary can learn to exploit it.

The dialogue acts propose one of 108 deals, accept, or break off, in the phrases of the scripted sides.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from parley.envs.core.errors import ConfigError, DataError, packaged_phrases
from parley.envs.core.play import Utterances
from parley.envs.core.registry import nearest
from parley.envs.negotiation.domain import EOS_ID, SELECTION_ID, SPECIALS, THEM, YOU, GameActs, Numbers, Selections, Vocabulary
from parley.envs.negotiation.game import SideView
from parley.envs.negotiation.scripted.bargainers import STYLES, Style

NAME = "interview"
ISSUES: dict[str, tuple[str, ...]] = {
    "salary": ("40k", "50k", "60k", "70k"),
    "holidays": ("20", "25", "30"),
    "office": ("lima", "oslo", "perth"),
    "role": ("analyst", "engineer", "manager"),
}
OPTIONS = tuple((issue, option) for issue, options in enumerate(ISSUES.values()) for option in options)
"""Issue and word of each item."""
ITEMS = tuple(f"{tuple(ISSUES)[issue]} {option}" for issue, option in OPTIONS)
OPTION_INDEX = {word: item for item, (_, word) in enumerate(OPTIONS)}
STARTS = tuple(itertools.accumulate((len(options) for options in ISSUES.values()), initial=0))
"""The items of issue i are those from `STARTS[i]` up to `STARTS[i + 1]`."""
WEIGHTS = (6, 4, 3, 2)
"""Points of the best options, by importance, in random scenarios."""
BEST = sum(WEIGHTS)


@cache
def deals() -> np.ndarray:
    """Return every deal (108, 4) int64, in the order of the selections."""
    of_issues = (range(start, stop) for start, stop in itertools.pairwise(STARTS))
    return np.array(list(itertools.product(*of_issues)), dtype=np.int64)


def describe(selection: int) -> str:
    """Return a deal in words, such as "salary 40k, holidays 20, ..."."""
    return ", ".join(ITEMS[item] for item in deals()[selection].tolist())


@cache
def selections() -> Selections:
    """Return the selections of every scenario."""
    chosen = deals()
    table = np.concatenate([chosen, np.full((2, len(ISSUES)), len(OPTIONS) + 1)])
    table[-1] += 1
    held = np.zeros((len(table), len(OPTIONS)), dtype=np.int64)
    np.put_along_axis(held[:-2], chosen, 1, axis=1)
    return Selections(table, held, held, np.arange(len(table)))


SLOT = "{deal}"
PHRASES = packaged_phrases("parley.envs.negotiation.interview", "phrases.txt")
ACCEPTING = frozenset(("deal", "agreed", "works"))
PARTING = frozenset(("no", "elsewhere"))
FIRM = frozenset(("must", "really", "insist", "stays", "leave"))
FORMS = {
    "salary": ("{}", "{}", "{} a year"),
    "holidays": ("{} days", "{} days", "{} days off"),
    "office": ("{}", "an office in {}", "the {} office"),
    "role": ("{}", "{}", "a job as {}"),
}
"""Ways to name an option of each issue."""


@dataclass(frozen=True)
class HeardOffer:
    """The meaning of an utterance.

    Args:
        named: the named item of each issue; -1 for none.
        accepts: whether it accepts.
        parts: whether it breaks off.
        firm: whether it insists.
    """

    named: Numbers
    accepts: bool
    parts: bool
    firm: bool


def understand(words: Sequence[str]) -> HeardOffer:
    """Return the meaning of an utterance's words."""
    named = [-1] * len(ISSUES)
    for word in words:
        item = OPTION_INDEX.get(word)
        if item is not None:
            named[OPTIONS[item][0]] = item
    word_set = set(words)
    parts = not word_set.isdisjoint(PARTING)
    return HeardOffer(tuple(named), not parts and not word_set.isdisjoint(ACCEPTING), parts, not word_set.isdisjoint(FIRM))


def ways_to_name(item: int) -> tuple[str, ...]:
    """Return the ways to name an option."""
    issue, word = OPTIONS[item]
    return tuple(form.format(word) for form in FORMS[tuple(ISSUES)[issue]])


def interview_vocabulary() -> Vocabulary:
    """Return all words of the phrases, sorted after the specials and speaker markers."""
    named = itertools.chain.from_iterable(ways_to_name(item) for item in range(len(OPTIONS)))
    phrases = itertools.chain(named, *PHRASES.values(), (", and",))
    words = {word for phrase in phrases for word in phrase.split() if word != SLOT}
    return Vocabulary((*SPECIALS, YOU, THEM, *sorted(words)), NAME)


SCALE = BEST / 10
"""Points of this game per point of Deal or No Deal, the unit of styles."""


@dataclass
class InterviewStanding:
    """The state of an interview for one side."""

    table: Numbers | None = None
    """The latest complete deal, unless it was turned down."""
    table_is_mine: bool = False
    agreed: Numbers | None = None
    my_last: Numbers | None = None
    their_last: Numbers | None = None
    their_wishes: list[int] = field(default_factory=lambda: [0] * len(OPTIONS))
    """Number of times the other side has named each option."""
    num_turns: int = 0
    pressure: int = 0
    """Number of times the other side has insisted."""
    parted: bool = False
    i_ended: bool = False

    def hear(self, mine: bool, offer: HeardOffer) -> None:
        """Update the state with one utterance; issues that it does not name stay as on the table."""
        before = self.table or (-1,) * len(ISSUES)
        proposed = tuple(old if new < 0 else new for old, new in zip(before, offer.named, strict=True))
        names = any(item >= 0 for item in offer.named)
        self.num_turns += mine
        self.parted |= offer.parts
        if not mine:
            for item in offer.named:
                if item >= 0:
                    self.their_wishes[item] += 1
            self.pressure += offer.firm or (names and proposed == self.their_last)
        theirs = self.table is not None and self.table_is_mine != mine
        if theirs and not offer.parts and (proposed == self.table if names else offer.accepts):
            self.agreed = self.table
        elif offer.parts:
            self.table = self.agreed = None
        elif names and min(proposed) >= 0:
            self.table, self.table_is_mine, self.agreed = proposed, mine, None
            if mine:
                self.my_last = proposed
            else:
                self.their_last = proposed


class Applicant:
    """A scripted agent.

    Args:
        vocabulary: the words it may use.
        style: how it bargains.
        name: the name in results.

    Raises:
        DataError: the vocabulary lacks necessary words.
    """

    def __init__(self, vocabulary: Vocabulary, style: Style | Sequence[Style], name: str = "applicant") -> None:
        self.name, self.vocabulary, self._style = name, vocabulary, style
        phrases_by_kind = {kind: [p.split() for p in phrases if _has_words(p, vocabulary)] for kind, phrases in PHRASES.items()}
        self.phrases = phrases_by_kind
        self.options = [[p.split() for p in ways_to_name(item) if _has_words(p, vocabulary)] for item in range(len(OPTIONS))]
        lacking = [kind for kind, phrases in phrases_by_kind.items() if not phrases]
        lacking += [OPTIONS[item][1] for item, ways in enumerate(self.options) if not ways]
        if lacking:
            raise DataError(
                "the vocabulary lacks words that a scripted side of an interview cannot do without",
                where=f"a vocabulary of {len(vocabulary)} words",
                got=f"no way left to say: {', '.join(lacking[:8])}",
                fix="take the vocabulary of a corpus of interviews",
            )

    @classmethod
    def named(cls, name: str, vocabulary: Vocabulary) -> Applicant:
        """Return the scripted agent of that name; raise `ConfigError` if there is none."""
        if name not in STYLES:
            what = f"no scripted side of an interview is called {name!r}{nearest(name, STYLES)}"
            raise ConfigError(what, got=name, fix=f"known: {', '.join(STYLES)}")
        return cls(vocabulary, STYLES[name], name)

    def join(self, view: SideView) -> ApplicantSession:
        """Join one side of a batch of dialogues.

        Raises:
            ConfigError: the dialogues are held in another vocabulary.
        """
        if view.vocabulary.digest != self.vocabulary.digest:
            raise ConfigError(
                "a scripted side of an interview was seated in dialogues of another vocabulary",
                got=f"{len(view.vocabulary)} words of {view.vocabulary.game!r}, it knows {len(self.vocabulary)}",
                fix="make it with the vocabulary of the game",
            )
        styles = [self._style] * len(view) if isinstance(self._style, Style) else self._style
        return ApplicantSession(view, self, styles)

    def say(self, kind: str, deal: Numbers, chattiness: float, rng: np.random.Generator) -> list[int]:
        """Return a move in words.

        Args:
            kind: kind of phrase, a key of `PHRASES`.
            deal: the proposed or accepted item of each issue.
            chattiness: 0..1, sets the probability of a greeting before a proposal.
            rng: draws the wording.

        Returns:
            Token ids that end with `<eos>`.
        """
        words: list[str] = []
        if chattiness and kind in ("open", "counter") and rng.random() < 0.8 * chattiness:
            words += _pick(self.phrases["greeting"], rng)
        for word in _pick(self.phrases[kind], rng):
            words += self._named(deal, rng) if word == SLOT else [word]
        return [*self.vocabulary.encode(words).tolist(), EOS_ID]

    def _named(self, deal: Numbers, rng: np.random.Generator) -> list[str]:
        """Return a list such as "60k , 25 days off , the lima office and a job as engineer"."""
        words: list[str] = []
        for i, item in enumerate(deal):
            if i:
                words.append("and" if i == len(deal) - 1 else ",")
            words += _pick(self.options[item], rng)
        return words


class ApplicantSession:
    """Scripted sides of a batch of interviews.

    Args:
        view: the side's view.
        agent: the agent with the wording.
        styles: one per dialogue.
    """

    def __init__(self, view: SideView, agent: Applicant, styles: Sequence[Style]) -> None:
        self._view, self._agent, self._styles = view, agent, styles
        self._read: dict[int, tuple[InterviewStanding, int]] = {}

    def speak(self, rows: np.ndarray) -> Utterances:
        """Return the next utterance in each of the dialogues `rows` (n,)."""
        return Utterances.of([self._say(row) for row in rows.tolist()])

    def choose(self, rows: np.ndarray) -> np.ndarray:
        """Return the selection (n,) in each of the dialogues `rows`."""
        return np.array([self._settle(row) for row in rows.tolist()], dtype=np.int64)

    def _say(self, row: int) -> list[int]:
        standing, rng = self._standing(row), self._view.generator(row)
        kind, deal = self._decide(row, standing, rng)
        if kind == "end":
            return [SELECTION_ID]
        return self._agent.say(kind, deal, self._styles[row].chattiness if standing.num_turns == 0 else 0.0, rng)

    def _decide(self, row: int, standing: InterviewStanding, rng: np.random.Generator) -> tuple[str, Numbers]:
        """Return the kind of phrase to say, and the deal that it names."""
        style, deal = self._styles[row], standing.table or ()
        if standing.agreed is not None or standing.parted:
            return "end", deal
        aim = SCALE * style.aim(standing.num_turns, standing.pressure)
        offered = standing.table is not None and not standing.table_is_mine
        if offered and self._worth(row, deal) >= aim:
            return "accept", deal
        if standing.num_turns >= style.patience + 1:
            return "part", deal
        planned = self._plan(row, standing, aim, rng)
        if planned == standing.my_last:
            return "insist", planned
        if standing.my_last is not None and self._worth(row, planned) < self._worth(row, standing.my_last):
            return "concede", planned
        return "counter" if offered else "open", planned

    def _plan(self, row: int, standing: InterviewStanding, aim: float, rng: np.random.Generator) -> Numbers:
        """Return the deal to propose: worth the aim, and the best for the other side by its words."""
        gains = self._values(row)[deals()].sum(1)
        enough = gains >= min(aim, BEST)
        if standing.my_last is not None:
            no_more = enough & (gains <= self._worth(row, standing.my_last))
            enough = no_more if no_more.any() else enough
        wishes = np.array(standing.their_wishes)
        if standing.their_last is not None:
            wishes[list(standing.their_last)] += 1
        appeal = np.minimum(wishes, 3)[deals()].sum(1) + 0.1 * gains + 0.5 * rng.random(len(gains))
        return tuple(deals()[np.where(enough, appeal, -np.inf).argmax()].tolist())

    def _settle(self, row: int) -> int:
        """Return the selection: the agreed deal, or one that the other side ended on; rarely with a slip."""
        standing, style, rng = self._standing(row), self._styles[row], self._view.generator(row)
        deal = standing.agreed
        if deal is None and standing.table is not None:
            mine_stands = standing.table_is_mine and not standing.i_ended
            aim = SCALE * style.aim(standing.num_turns, standing.pressure)
            good = not standing.table_is_mine and self._worth(row, standing.table) >= aim
            deal = standing.table if mine_stands or good else None
        if deal is None:
            return len(self._view.selections(row)) - 2
        chosen = list(deal)
        if rng.random() < style.slip:
            issue = int(rng.integers(len(ISSUES)))
            chosen[issue] = int(rng.integers(STARTS[issue], STARTS[issue + 1]))
        return int(np.flatnonzero((deals() == chosen).all(axis=1))[0])

    def _values(self, row: int) -> np.ndarray:
        return np.asarray(self._view.contexts[row, 1::2])

    def _worth(self, row: int, deal: Numbers) -> int:
        return int(self._values(row)[list(deal)].sum())

    def _standing(self, row: int) -> InterviewStanding:
        """Return the state of a dialogue, replayed from its words."""
        standing, num_read = self._read.get(row) or (InterviewStanding(), 0)
        num_tokens, vocabulary = int(self._view.num_tokens[row]), self._view.vocabulary
        ids = self._view.tokens[row, num_read:num_tokens].tolist()
        starts = [k for k, token in enumerate(ids) if token in (vocabulary.you_id, vocabulary.them_id)]
        for start, end in zip(starts, [*starts, len(ids)][1:], strict=True):
            mine, utterance = ids[start] == vocabulary.you_id, ids[start + 1 : end]
            if utterance == [SELECTION_ID]:
                standing.i_ended = mine
            else:
                standing.hear(mine, understand(vocabulary.decode(utterance)))
        self._read[row] = standing, num_tokens
        return standing


def _pick(ways: Sequence[list[str]], rng: np.random.Generator) -> list[str]:
    return ways[int(rng.random() * len(ways))]


def _has_words(phrase: str, vocabulary: Vocabulary) -> bool:
    return all(word in vocabulary.index for word in phrase.split() if word != SLOT)


NUM_DEALS = len(deals())
INTERVIEW_ACTS = ("takes the proposal on the table", "breaks off without a deal", "says <selection>")
"""The acts after those that propose a deal."""
ACCEPTS, BREAKS_OFF, ENDS = range(NUM_DEALS, NUM_DEALS + len(INTERVIEW_ACTS))
_WISHES = 3
"""Number of mentions of an option above which more make no difference."""


class InterviewActs(GameActs):
    """Acts that propose deals; of those worth the same, in the order of the selections.

    Args:
        vocabulary: of both sides.

    Raises:
        DataError: the vocabulary lacks words of the acts.
    """

    num_proposals = NUM_DEALS
    other_acts = INTERVIEW_ACTS
    num_features = 6 * len(OPTIONS) + 9 + 2 * NUM_DEALS

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.speaker = Applicant(vocabulary, STYLES["scripted"])

    def begin(self, context: np.ndarray) -> None:
        self.values = context[1::2]
        gains = self.values[deals()].sum(1)
        self.order = np.argsort(-gains, kind="stable")
        self.gains = gains[self.order]
        self.standing = InterviewStanding()

    def hear(self, mine: bool, ids: Sequence[int]) -> None:
        if list(ids) == [SELECTION_ID]:
            self.standing.i_ended = mine
        else:
            self.standing.hear(mine, understand(self.speaker.vocabulary.decode(ids)))

    def mask(self) -> np.ndarray:
        mask = np.ones(NUM_DEALS + len(INTERVIEW_ACTS), dtype=bool)
        mask[ACCEPTS] = self._offer is not None and self.standing.agreed is None
        mask[BREAKS_OFF] = not self.standing.parted
        return mask

    def say(self, action: int, chattiness: float, rng: np.random.Generator) -> list[int]:
        if action == ENDS:
            return [SELECTION_ID]
        kind = {ACCEPTS: "accept", BREAKS_OFF: "part"}.get(action) or self._kind(action)
        deal = self.proposal(action) if action < NUM_DEALS else self.standing.table or ()
        return self.speaker.say(kind, deal, chattiness if self.standing.num_turns == 0 else 0.0, rng)

    def selection(self) -> int:
        deal = self.standing.agreed or self.standing.table
        return NUM_DEALS if deal is None else int(np.flatnonzero((deals() == deal).all(axis=1))[0])

    def features(self) -> list[float]:
        standing, offer = self.standing, self._offer
        one_hot = np.zeros((4, len(OPTIONS)))
        for row, deal in enumerate((standing.my_last, standing.their_last, standing.table, standing.agreed)):
            one_hot[row, list(deal or ())] = 1.0
        wishes = np.minimum(standing.their_wishes, _WISHES) / _WISHES
        flags = (offer, standing.agreed, standing.my_last, standing.their_last)
        return [
            *(self.values / BEST).tolist(),
            *one_hot.reshape(-1).tolist(),
            *wishes.tolist(),
            *(float(flag is not None) for flag in flags),
            float(standing.parted),
            min(1.0, standing.num_turns / 10),
            min(1.0, standing.pressure / 5),
            0.0 if offer is None else self._worth(offer) / BEST,
            0.0 if standing.agreed is None else self._worth(standing.agreed) / BEST,
            *(self.gains / BEST).tolist(),
            *(wishes[deals()].sum(1)[self.order] / len(ISSUES)).tolist(),
        ]

    def name(self, action: int) -> str:
        if action >= NUM_DEALS:
            return INTERVIEW_ACTS[action - NUM_DEALS]
        settled = describe(int(self.order[action]))
        return f"proposes {settled}, worth {self.gains[action]}"

    def proposal(self, action: int) -> Numbers:
        """Return the deal that an action proposes: one item of each issue."""
        return tuple(deals()[self.order[action]].tolist())

    @property
    def _offer(self) -> Numbers | None:
        return None if self.standing.table_is_mine else self.standing.table

    def _kind(self, action: int) -> str:
        """Return the kind of phrase for a proposal."""
        last = self.standing.my_last
        if last == self.proposal(action):
            return "insist"
        if last is not None and self.gains[action] < self._worth(last):
            return "concede"
        return "open" if self.standing.table is None else "counter"

    def _worth(self, deal: Numbers) -> int:
        return int(self.values[list(deal)].sum())
