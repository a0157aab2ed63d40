"""The parser of utterances of Deal or No Deal: shares of both sides, acceptance, refusal, walking away.

It makes one left-to-right pass over the words. A pronoun or a verb of giving decides who receives the next things ("i take 2
hats", "you can have the ball", "give me the books"); a phrase after them may correct it ("the hats for you"). The pass parses
the phrases of `wording.py` exactly and ordinary wording of people approximately. It skips unknown words, so it never fails.
`bargainers.py` uses the meaning.

Meanings are relative to the speaker: `SPEAKER` says the words, `LISTENER` is the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from parley.envs.negotiation.dealornodeal_rules import ITEM_NAMES, NUM_ITEMS, Triple

SPEAKER, LISTENER = 0, 1
UNSAID, ALL = -1, 99
_REST = NUM_ITEMS


@dataclass(frozen=True)
class Meaning:
    """The meaning of one utterance.

    Args:
        claims: number of each item for the speaker; `UNSAID` if not mentioned, `ALL` for all of them.
        gifts: the same for the listener.
        rest: the side that gets all items not mentioned: `SPEAKER`, `LISTENER` or `UNSAID`.
        spurned: items that the speaker calls useless to itself.
        accepts: it accepts the proposal on the table; never together with `refuses`.
        refuses: it turns down the proposal on the table.
        parts: it walks away without a deal.
        firm: it puts pressure on the listener ("i must have", "final offer").
    """

    claims: Triple = (UNSAID, UNSAID, UNSAID)
    gifts: Triple = (UNSAID, UNSAID, UNSAID)
    rest: int = UNSAID
    spurned: tuple[bool, bool, bool] = (False, False, False)
    accepts: bool = False
    refuses: bool = False
    parts: bool = False
    firm: bool = False

    @cached_property
    def proposes(self) -> bool:
        """Whether it names items for a side."""
        return max(*self.claims, *self.gifts) > UNSAID

    def share(self, counts: Triple) -> Triple | None:
        """Return the speaker's items under this proposal, each 0..count, or None if there is no proposal.

        Items not mentioned go to the side whose items were not listed ("i take the hats" leaves the rest to the listener).
        Numbers above the count mean all of them.
        """
        if not self.proposes:
            return None
        rest = self.rest
        if rest == UNSAID:
            rest = LISTENER if max(self.claims) > UNSAID else SPEAKER
        share = []
        for count, claim, gift in zip(counts, self.claims, self.gifts, strict=True):
            if claim != UNSAID:
                share.append(min(claim, count))
            elif gift != UNSAID:
                share.append(count - min(gift, count))
            else:
                share.append(count if rest == SPEAKER else 0)
        first, second, third = share
        return first, second, third

    @cached_property
    def vague(self) -> bool:
        """Whether the listener has to guess some item."""
        return self.rest == UNSAID and any(max(pair) == UNSAID for pair in zip(self.claims, self.gifts, strict=True))


@dataclass
class _Mention:
    """One mention of things: an item (or `_REST`), a number, a receiver, and whether a "not" negates it."""

    item: int
    amount: int
    receiver: int
    negated: bool


class _Listener:
    """The state of the pass: receiver and number of the next things, and the mentions so far.

    A clause is the scope of a "not" and of a word of value; a list is the scope of a "for me" after it.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        self.mentions: list[_Mention] = []
        self.valued: set[int] = set()
        self.spurned: set[int] = set()
        self.accepts = self.refuses = self.parts = self.firm = False
        self.begin_sentence()

    def begin_sentence(self) -> None:
        self.receiver: int | None = None
        self.accepts_here = False
        self.begin_clause()
        self.end_list()

    def begin_clause(self) -> None:
        self.amount: int | None = None
        self.negated = self.valuing = self.excluding = False
        self.clause_start = len(self.mentions)

    def end_list(self) -> None:
        self.list_start = len(self.mentions)

    def hear(self, k: int) -> None:
        """Process the word at position k."""
        pair = _PAIRS.get((self.before(k), self.words[k]))
        if pair is not None:
            pair(self)
        _HANDLERS.get(self.words[k], _Listener.step_over)(self, k)

    def before(self, k: int) -> str:
        return self.words[k - 1] if k else ""

    def after(self, k: int) -> str:
        return self.words[k + 1] if k + 1 < len(self.words) else ""

    # Handlers of kinds of words; k is the position of the word.

    def step_over(self, _k: int) -> None:
        self.amount = None
        self.end_list()

    def stay_in_list(self, _k: int) -> None:
        """Do nothing, for words such as "the"."""

    def stop_sentence(self, k: int) -> None:
        self.accepts |= self.accepts_here and self.words[k] != "?"
        self.begin_sentence()

    def pause(self, _k: int) -> None:
        self.begin_clause()

    def start_clause(self, k: int) -> None:
        if self.before(k) == "everything" and self.words[k] in ("but", "except"):
            self.excluding = True
        else:
            self.begin_clause()
            self.end_list()

    def count(self, k: int) -> None:
        self.amount = _NUMBERS[self.words[k]]

    def count_all(self, k: int) -> None:
        if self.before(k) == "it" or tuple(self.words[k + 1 : k + 3]) == ("of", "it"):
            self.name_everything(ALL)
        else:
            self.amount = ALL

    def name_one(self, k: int) -> None:
        self.name(_SINGULAR[self.words[k]], 1 if self.amount is None else self.amount)

    def name_many(self, k: int) -> None:
        self.name(_PLURAL[self.words[k]], ALL if self.amount is None else self.amount)

    def name_each(self, _k: int) -> None:
        self.name_everything(1 if self.amount is None else self.amount)

    def name_rest(self, _k: int) -> None:
        self.name(_REST, ALL)

    def name_all(self, k: int) -> None:
        if self.after(k) == "else":
            self.name(_REST, ALL)
        else:
            self.name_everything(ALL)

    def turn_to_speaker(self, _k: int) -> None:
        self.negated = False
        self.turn_to(SPEAKER)

    def turn_to_listener(self, k: int) -> None:
        if self.before(k) in ("for", "to"):
            self.correct(LISTENER)
        else:
            # "i can not give you" keeps its "not"; "no you take" does not.
            self.negated &= self.before(k) in _GIVING
            self.turn_to(LISTENER)

    def turn_to_me(self, k: int) -> None:
        if self.before(k) in ("for", "to"):
            self.correct(SPEAKER)
        else:
            self.turn_to(SPEAKER)

    def give(self, _k: int) -> None:
        self.turn_to(LISTENER if self.receiver == SPEAKER else SPEAKER)

    def take(self, k: int) -> None:
        if self.receiver is None and self.before(k) not in _BEFORE_A_DROPPED_I:
            self.turn_to(LISTENER)
        else:
            self.step_over(k)

    def exchange(self, k: int) -> None:
        """Handle the "for" of "the hats for me" or of "my hats for your ball"."""
        if self.after(k) in ("me", "you", "u"):
            return
        if self.words[k] == "for" and self.receiver is not None and self.list_start < len(self.mentions):
            self.turn_to(1 - self.receiver)
        else:
            self.step_over(k)

    def possessive(self, k: int) -> None:
        self.correct(SPEAKER if self.words[k] == "mine" else LISTENER)

    def negate(self, k: int) -> None:
        self.refuses = True
        if self.words[k] == "no" and (self.after(k) in _PLURAL or self.after(k) in _SINGULAR):
            self.amount = 0
        else:
            self.negated = True

    def refuse(self, k: int) -> None:
        self.refuses = True
        self.step_over(k)

    def accept(self, k: int) -> None:
        self.agree()
        self.step_over(k)

    def press(self, k: int) -> None:
        self.insist()
        self.step_over(k)

    def value(self, _k: int) -> None:
        self.valuing = True
        self.weigh(self.mentions[self.clause_start :])
        del self.mentions[self.clause_start :]

    def disregard(self, k: int) -> None:
        if self.valuing:
            self.spurned |= self.valued
        self.step_over(k)

    # Handlers of pairs of words.

    def agree(self) -> None:
        self.accepts_here |= not self.negated

    def insist(self) -> None:
        self.firm = True

    def part(self) -> None:
        self.parts = True

    def give_up(self) -> None:
        self.parts |= not self.negated

    # Steps of the handlers.

    def turn_to(self, receiver: int) -> None:
        """Make `receiver` get the things named next."""
        self.receiver = receiver
        self.amount = None
        self.excluding = False
        self.end_list()

    def name(self, item: int, amount: int) -> None:
        self.amount = None
        mention = _Mention(item, amount, SPEAKER if self.receiver is None else self.receiver, self.negated)
        if self.excluding:
            listed = [earlier for earlier in self.mentions[self.list_start :] if earlier.item != item]
            self.mentions[self.list_start :] = listed
            mention.receiver = 1 - mention.receiver
        if self.valuing:
            self.weigh([mention])
        else:
            self.mentions.append(mention)

    def name_everything(self, amount: int) -> None:
        for item in range(NUM_ITEMS):
            self.name(item, amount)

    def weigh(self, mentions: Sequence[_Mention]) -> None:
        """Record things whose worth is discussed; this is no proposal."""
        self.valued = {mention.item for mention in mentions if mention.item != _REST}
        if self.negated:
            self.spurned |= self.valued

    def correct(self, receiver: int) -> None:
        """Give the last list to `receiver`; only its last entry if a verb had placed the others."""
        placed = SPEAKER if self.receiver is None else self.receiver
        first = self.list_start if self.receiver is None else max(self.list_start, len(self.mentions) - 1)
        if receiver != placed:
            for mention in self.mentions[first:]:
                mention.receiver = 1 - mention.receiver
        self.excluding = False
        self.end_list()

    def meaning(self) -> Meaning:
        self.accepts |= self.accepts_here
        sides = [[UNSAID] * NUM_ITEMS, [UNSAID] * NUM_ITEMS]
        rest = UNSAID
        for mention in self.mentions:
            if mention.negated:
                if mention.receiver == SPEAKER and mention.item != _REST:
                    self.spurned.add(mention.item)
            elif mention.item == _REST:
                rest = mention.receiver
            else:
                sides[mention.receiver][mention.item] = mention.amount
        proposes = max(*sides[SPEAKER], *sides[LISTENER]) > UNSAID
        return Meaning(
            claims=(sides[SPEAKER][0], sides[SPEAKER][1], sides[SPEAKER][2]),
            gifts=(sides[LISTENER][0], sides[LISTENER][1], sides[LISTENER][2]),
            rest=rest,
            spurned=(0 in self.spurned, 1 in self.spurned, 2 in self.spurned),
            accepts=self.accepts and not self.refuses,
            refuses=self.refuses,
            parts=self.parts and not proposes,
            firm=self.firm,
        )


def _words(text: str) -> list[str]:
    return text.split()


_NUMBERS = {str(n): n for n in range(10)} | {"a": 1, "an": 1, "one": 1, "two": 2, "both": 2, "three": 3, "four": 4, "zero": 0}
_SINGULAR = {name: item for item, name in enumerate(ITEM_NAMES)} | {"basketball": ITEM_NAMES.index("ball")}
_PLURAL = {f"{name}s": item for name, item in _SINGULAR.items()}
_GIVING = ("give", "offer", "leave", "trade", "swap", "let", "giving", "offering")
_BEFORE_A_DROPPED_I = ("will", "would", "could", "can", "to", "might", "id", "ill")
_KINDS_OF_WORDS: tuple[tuple[Iterable[str], Callable[[_Listener, int], None]], ...] = (
    (_words(". ! ? : ;"), _Listener.stop_sentence),
    ((",",), _Listener.pause),
    (_words("but except if so because since then or unless"), _Listener.start_clause),
    (_words("the of it else and just only other more those these is are be"), _Listener.stay_in_list),
    (_NUMBERS, _Listener.count),
    (("all",), _Listener.count_all),
    (_SINGULAR, _Listener.name_one),
    (_PLURAL, _Listener.name_many),
    (("each",), _Listener.name_each),
    (("rest",), _Listener.name_rest),
    (("everything",), _Listener.name_all),
    (_words("i i'll ill i'd id i'm im i've ive we"), _Listener.turn_to_speaker),
    (_words("you u you'll youll you'd ya"), _Listener.turn_to_listener),
    (("me",), _Listener.turn_to_me),
    (_GIVING, _Listener.give),
    (("take", "keep"), _Listener.take),
    (("for", "to"), _Listener.exchange),
    (("mine", "yours"), _Listener.possessive),
    (_words("no not nope never cannot can't cant don't dont won't wont doesn't doesnt isn't isnt"), _Listener.negate),
    (("sorry", "little", "low", "unfair"), _Listener.refuse),
    (_words("deal ok okay k agreed agree accept yes yeah yep sure fine great"), _Listener.accept),
    (_words("perfect good works fair alright cool"), _Listener.accept),
    (("must", "insist", "final", "firm"), _Listener.press),
    (_words("worth points value care use matter matters prefer"), _Listener.value),
    (("nothing",), _Listener.disregard),
)
_HANDLERS = {word: handler for words, handler in _KINDS_OF_WORDS for word in words}
_PAIRS: dict[tuple[str, str], Callable[[_Listener], None]] = {
    ("live", "with"): _Listener.agree,
    ("do", "that"): _Listener.agree,
    ("your", "way"): _Listener.agree,
    ("got", "it"): _Listener.agree,
    ("really", "need"): _Listener.insist,
    ("have", "to"): _Listener.insist,
    ("has", "to"): _Listener.insist,
    ("last", "offer"): _Listener.insist,
    ("or", "no"): _Listener.insist,
    ("or", "leave"): _Listener.insist,
    ("no", "deal"): _Listener.part,
    ("no", "agreement"): _Listener.part,
    ("it", "off"): _Listener.part,
    ("walk", "away"): _Listener.part,
    ("give", "up"): _Listener.give_up,
}


def understand(words: Sequence[str]) -> Meaning:
    """Return the meaning of one utterance.

    Args:
        words: lower-cased, tokenised, without speaker marker, `<eos>` and `<selection>`; unknown words are allowed.
    """
    listener = _Listener(words)
    for k in range(len(words)):
        listener.hear(k)
    return listener.meaning()
