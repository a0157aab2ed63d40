"""The scripted player of MutualFriends, its phrases, its chats, and the built-in schema of friends.

`FriendsBot` greets, informs or asks about one or two entities, answers, and selects when it is sure. It follows the released
rule-based bot (He et al. 2017): entities and friends have weights. A mention by the partner makes friends with the entity more
likely (+1), and entities of the same friend (+2) and of the same column (+0.5) more worth mentioning; a denial does the
opposite. Own mentions are not repeated (-10). The phrases are our own; braces are slots: {n} a number, {friends} "friend" or
"friends", {clause} and {does} an entity in a clause, {x} an entity alone.

Departures:
  * # Released: "no" counts against every entity of the utterance. Ours: only against friends that have all of them, so that
    "no friends from A who like B" does not rule out those from A who like something else, and denials are certain.
  * # Released: a negative answer always repeats the entity. Ours: it may be "no" alone; the listener remembers its question.

`scripted_chats` makes chats between two such players. Chat i depends only on the schema, the seed, its rates and i. In them
players guess and slip as people do (`GUESSES`, `SLIPS`): a model fitted to faultless chats trusts all that it hears, and never
selects a friend whom no lie names. Players of a game do neither.

The schema's values were made up for the project. Many share words, as real ones do: two schools of one town, two firms of one
family. `friends_forms` are spellings that a linker has to know: parts of a name that no other value shares, plurals, and swaps
of two letters.
"""

from __future__ import annotations

import gc
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import count, islice, product
from typing import NamedTuple

from parley.envs.core.seeds import Substreams, derive_seed
from parley.envs.mutual_friends.game import Act, ChatEvent, FriendsChat, FriendsView, Token, play_friends
from parley.envs.mutual_friends.linker import NUM_SEEN_OUTSIDE, EntityLinker, Form
from parley.envs.mutual_friends.scenario import (
    Attribute,
    Draw,
    Entity,
    FriendsScenario,
    FriendsSchema,
    ScenarioOptions,
    chat_words,
    check_schema,
    entities_of,
    pick,
    random_friends,
    weighted,
)

Phrase = tuple[str, ...]


class Wordings(NamedTuple):
    """The words before entities of one category.

    Args:
        singular: for singular friend.
        plural: for several friends; as plural as in `singular`.
        nouns: words after "friend" without a verb.
    """

    singular: tuple[Phrase, ...]
    plural: tuple[Phrase, ...]
    nouns: tuple[Phrase, ...]


def _cut(*lines: str) -> tuple[Phrase, ...]:
    return tuple(tuple(line.split()) for line in lines)


GREETINGS = _cut("hi", "hello", "hey", "hiya", "hi there", "hello !", "hey , how are you ?", "good day")
INFORMS = _cut(
    "i have {n} {friends} {clause}",
    "i have {n} {friends} {clause} .",
    "i got {n} {clause}",
    "{n} {friends} {clause}",
    "{n} of my friends {does}",
    "{n} of mine {does} .",
    "there is {n} {clause} on my list",
    "my list has {n} {friends} {clause}",
)
ASKS = _cut(
    "do you have any friends {clause} ?",
    "do you have any {clause} ?",
    "any friends {clause} ?",
    "any {clause} ?",
    "anyone on your list who {does} ?",
    "do you know people {clause} ?",
    "how about {x} ?",
    "{x} ?",
)
YES = _cut(
    "yes , i have {n} {friends} {clause}",
    "yes , {n} {clause}",
    "yeah {n} of mine {does}",
    "yep , {n} {friends} {clause}",
    "sure , {n} of them {does}",
)
NO = _cut(
    "no , i have none {clause}",
    "no {friends} {clause}",
    "sorry , none {clause}",
    "nope , nobody {clause}",
    "none of mine {does}",
    "i don't have any friends {clause}",
    "zero {friends} {clause}",
)
BARE_NO = _cut("no", "nope", "none , sorry", "no , none", "not a single one , no")
NEGATIONS = frozenset({"no", "nope", "none", "nobody", "don't", "zero", "not"})
"""Words of a denial."""
QUESTION_STARTS = frozenset({"do", "does", "what", "any", "anyone"})
"""First words of a question, with or without a question mark."""

OF_TYPE = {
    "name": Wordings(_cut("is named", "is called"), _cut("are named", "are called"), _cut("named", "called")),
    "school": Wordings(_cut("went to", "was a student at"), _cut("went to", "were students at"), _cut("from", "at")),
    "major": Wordings(_cut("studied", "majored in", "did"), _cut("studied", "majored in", "did"), _cut("in", "majoring in")),
    "company": Wordings(_cut("works at", "works for"), _cut("work at", "work for"), _cut("working at", "from", "at")),
    "hobby": Wordings(_cut("likes", "is into", "enjoys"), _cut("like", "are into", "enjoy"), _cut("into", "fond of")),
    "time_pref": Wordings(_cut("prefers the", "likes the"), _cut("prefer the", "like the"), _cut("free in the", "for the")),
    "loc_pref": Wordings(_cut("prefers", "likes being"), _cut("prefer", "like being"), _cut("for")),
}
ANY_TYPE = Wordings(_cut("has", "is for"), _cut("have", "are for"), _cut("with"))
"""For categories of a user's own schema."""
WHO = ("who", "that")
_NUMBERS = {number: _cut(f"{number}", word) for number, word in enumerate(("one", "two", "three", "four", "five", "six"), 1)}
"""Small numbers, in digits and in words."""
_ALL, _MANY, _SOME = _cut("all", "all"), _cut("many", "most"), _cut("some", "a few")


def all_words() -> frozenset[str]:
    """Return all words of scripted players, without entities."""
    acts = (*GREETINGS, *INFORMS, *ASKS, *YES, *NO, *BARE_NO)
    numbers = (number for forms in (*_NUMBERS.values(), _ALL, _MANY, _SOME) for number in forms)
    other_phrases = (*numbers, WHO, ("friend", "friends", "and"))
    clauses = (clause for wordings in (*OF_TYPE.values(), ANY_TYPE) for clauses in wordings for clause in clauses)
    words = {word for phrase in (*acts, *other_phrases, *clauses) for word in phrase}
    return frozenset(word for word in words if not word.startswith("{"))


@cache
def clauses(kind: str, is_one: bool, has_verb: bool) -> list[tuple[Phrase, bool]]:
    """Return the clauses that may stand before an entity, and whether one of `WHO` precedes each.

    Args:
        kind: the entity's category.
        is_one: whether the clause is about one friend.
        has_verb: whether the clause needs a verb, after its subject.
    """
    wordings = OF_TYPE.get(kind, ANY_TYPE)
    spoken = wordings.singular if is_one else wordings.plural
    return (
        [(clause, False) for clause in spoken]
        if has_verb
        else [(clause, clause not in wordings.nouns) for clause in (*spoken, *wordings.nouns)]
    )


def is_question(words: Sequence[str]) -> bool:
    """Return whether an utterance is a question."""
    return bool(words) and (words[-1] == "?" or words[0] in QUESTION_STARTS)


def number_words(count: int, total: int, spelt: int) -> Phrase:
    """Return a count of friends in words: "all", a small number, "many" beyond two thirds, else "some".

    Args:
        count: at least 1.
        total: friends of the table.
        spelt: 0 for digits, 1 for words.
    """
    if count == total and total > 1:
        chosen = _ALL
    elif count > 2 / 3 * total and count > 2:
        chosen = _MANY
    else:
        chosen = _NUMBERS.get(count, _SOME)
    return chosen[spelt]


SPELT_OTHERWISE = 0.3
"""Probability that an entity is not called by its name."""


def worded(
    template: Phrase, entities: Sequence[Entity], count: int, total: int, spelt: int, linker: EntityLinker, draw: Draw
) -> tuple[Token, ...]:
    """Return a template with its slots filled in.

    Args:
        template: words and slots.
        entities: the entities to name.
        count: number of friends with the entities, at least 1.
        total: friends of the table.
        spelt: 0 for numbers in digits, 1 for words.
        linker: gives the spellings of entities.
        draw: random numbers of the act.
    """
    before, slot, after = _counted(template, count, total, spelt)
    tokens: list[Token] = [*before]
    for i, entity in enumerate(entities):
        if i:
            tokens.append("and")
        if slot != "{x}":
            clause, is_relative = pick(clauses(entity.type, count == 1, slot == "{does}"), draw)
            if is_relative:
                tokens.append(pick(WHO, draw))
            tokens += clause
        spellings = linker.mentions(entity)
        is_name = len(spellings) == 1 or draw() >= SPELT_OTHERWISE
        tokens.append(spellings[0] if is_name else spellings[1 + int(draw() * (len(spellings) - 1))])
    return (*tokens, *after)


@cache
def _counted(template: Phrase, count: int, total: int, spelt: int) -> tuple[Phrase, str, Phrase]:
    filling = {"{n}": number_words(count, total, spelt), "{friends}": ("friend" if count == 1 else "friends",)}
    words = [text for word in template for text in filling.get(word, (word,))]
    (at,) = (i for i, word in enumerate(words) if word.startswith("{"))
    return tuple(words[:at]), words[at], tuple(words[at + 1 :])


NUM_DRAWS = 20
"""Number of random numbers per act."""
NUM_ACTS = 12
"""Number of acts whose random numbers are drawn at once; most chats have fewer."""
GUESSES, SLIPS = 0.29, 0.04
"""Rates of scripted chats. Of the values of a selected friend 43 % had been named before in the 15 chats by people that are to
be had, and 73 % without guesses. Two of some 45 statements of theirs are false."""
TALKATIVE = 0.3
"""Probability that a bot that is sure talks instead of selecting (released: 0.7)."""
SURE = 2.0
"""A friend may be selected above this weight (released: 1, reached by one mention of a value)."""
BARE = 0.3
"""Probability that a negative answer names no entity."""
_HEARD, _DENIED = 1.0, -10.0
_FACTORS = math.exp(_HEARD), math.exp(2.0), math.exp(0.5)
"""Factors of a mention for the shares of the entity, entities of the same friends, and of the same column."""
_FACTORS_DENIED = math.exp(_DENIED), math.exp(-1.0), math.exp(1.0)
"""The same factors for a denial."""
_LESS = _FACTORS_DENIED[0]
"""The first factor, also for own mentions."""


@cache
def _first_shares(total: int) -> list[float]:
    return [math.exp(count / total) for count in range(total + 1)]


@lru_cache(1 << 13)
def _friends_in(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


@dataclass(slots=True)
class _Mind:
    """The state of a bot in one chat; the distinct entities of its table are numbered in order."""

    entities: list[Entity]
    numbers: dict[Entity, int]
    masks: list[int]
    """The friends with each entity, as a bit mask."""
    columns: list[range]
    """The entities of the first column of each entity."""
    shares: list[float]
    """The probability share of a mention of each entity: the exponential of its weight."""
    item_weights: list[float]
    """The weight of each friend as the common one."""
    spelt: int
    uniforms: memoryview[float]
    """Random numbers of several acts; an extra one of the first block decided the spelling of numbers."""
    at: int = 0
    """Start of the random numbers of the next act."""
    parts: int = 1
    """Number of blocks of random numbers drawn."""
    greeted: bool = False
    matched: int | None = None
    """The common friend, once it is known."""
    partner_question: tuple[Entity, ...] = ()
    open_question: tuple[Entity, ...] = ()
    """The entities of its own open question."""

    def having(self, entities: Iterable[Entity]) -> int:
        """Return the mask of friends with all of the entities, of which there is at least one."""
        mask = -1
        for number in map(self.numbers.get, entities):
            if number is None:
                return 0
            mask &= self.masks[number]
        return mask


class FriendsBot:
    """The scripted player of MutualFriends.

    Args:
        linker: parses words and spells entities; of the schema of the tables.
        guesses: probability that it selects the likeliest friend in an act in which it is not sure.
        slips: probability that it denies friends whom a question is about.
    """

    name = "scripted"

    def __init__(self, linker: EntityLinker, guesses: float = 0.0, slips: float = 0.0) -> None:
        self.linker, self.guesses, self.slips = linker, guesses, slips

    def join(self, view: FriendsView) -> FriendsBotSession:
        """Join a side."""
        return FriendsBotSession(view, self)


class FriendsBotSession:
    """A scripted player in the rows of a game."""

    def __init__(self, view: FriendsView, bot: FriendsBot) -> None:
        self._view, self._linker, self._bot = view, bot.linker, bot
        self._minds: dict[int, _Mind] = {}

    def enter(self, rows: list[int]) -> None:
        """Initialise the state of new chats."""
        for row in rows:
            table = self._view.entities(row)
            masks: dict[Entity, int] = {}
            columns: list[range] = []
            for column in zip(*table, strict=True):
                for i, entity in enumerate(column):
                    masks[entity] = masks.get(entity, 0) | 1 << i
                columns += [range(len(columns), len(masks))] * (len(masks) - len(columns))
            uniforms = self._view.uniforms(row, 0, NUM_DRAWS * NUM_ACTS + 1)
            first = _first_shares(len(table))
            self._minds[row] = _Mind(
                entities=list(masks),
                numbers=dict(zip(masks, count(), strict=False)),
                masks=list(masks.values()),
                columns=columns,
                shares=[first[mask.bit_count()] for mask in masks.values()],
                item_weights=[1.0] * len(table),
                spelt=int(uniforms[-1] < 0.5),
                uniforms=uniforms,
            )

    def hear(self, rows: list[int], events: list[ChatEvent]) -> None:
        """Update the weights by utterances and selections."""
        minds, side = self._minds, self._view.side
        for row, event in zip(rows, events, strict=True):
            mind = minds[row]
            if event.side == side:
                mind.at += NUM_DRAWS
                if mind.at == NUM_DRAWS * NUM_ACTS:
                    mind.uniforms, mind.at = self._view.uniforms(row, mind.parts, mind.at), 0
                    mind.parts += 1
                self._remember(mind, event)
            elif event.selected is None:
                self._understand(mind, event)
            else:
                items, columns = self._view.entities(row), self._view.attributes(row)
                wanted = tuple([entities_of(column.type)[value] for column, value in zip(columns, event.item, strict=True)])
                mind.matched = items.index(wanted) if wanted in items else mind.matched

    def act(self, rows: list[int]) -> list[Act]:
        """Return an utterance or a selection for each row."""
        minds = self._minds
        return [self._act(minds[row]) for row in rows]

    def _remember(self, mind: _Mind, event: ChatEvent) -> None:
        mind.greeted = True
        if event.selected is not None:
            mind.item_weights[event.selected] = -100.0
            return
        numbers, mentions = mind.numbers, self._mentions(mind, event)
        for entity in mentions:
            if entity in numbers:
                mind.shares[numbers[entity]] *= _LESS
        mind.open_question = mentions if is_question(event.words) else ()
        mind.partner_question = ()

    def _understand(self, mind: _Mind, event: ChatEvent) -> None:
        words = event.words
        mentions = self._mentions(mind, event)
        if is_question(words):
            mind.partner_question = mentions
        denied = not NEGATIONS.isdisjoint(words)
        if denied and not mentions:
            mentions = mind.open_question
        numbers, masks, columns, shares, weights = mind.numbers, mind.masks, mind.columns, mind.shares, mind.item_weights
        own_numbers = [numbers[entity] for entity in mentions if entity in numbers]
        if not own_numbers:
            return
        if denied:
            (of_own, of_beside, of_others), friends = _FACTORS_DENIED, mind.having(mentions)
            for i in _friends_in(friends):
                weights[i] += _DENIED
            if len(mentions) > 1:
                return
        else:
            (of_own, of_beside, of_others), friends = _FACTORS, 0
            for mask in [masks[number] for number in own_numbers]:
                friends |= mask
                for i in _friends_in(mask):
                    weights[i] += _HEARD
        after = [(number, shares[number] * of_own) for number in own_numbers]
        mind.shares = shares = [
            share * of_beside if mask & friends else share for share, mask in zip(shares, masks, strict=True)
        ]
        for column in {columns[number] for number in own_numbers} if len(own_numbers) > 1 else (columns[own_numbers[0]],):
            for number in column:
                shares[number] *= of_others
        for number, share in after:
            shares[number] = share

    def _mentions(self, mind: _Mind, event: ChatEvent) -> tuple[Entity, ...]:
        if event.mentions:
            entities = [mention.entity for mention in event.mentions]
        else:
            entities = [mention.entity for _, mention in self._linker.find(event.words, mind.numbers)]
        return tuple(dict.fromkeys(entities))

    def _act(self, mind: _Mind) -> Act:
        if mind.matched is not None:
            return mind.matched
        draw = iter(mind.uniforms[mind.at : mind.at + NUM_DRAWS]).__next__
        if not mind.greeted and not mind.partner_question:
            return pick(GREETINGS, draw)
        if mind.partner_question:
            return self._answer(mind, mind.partner_question[:2], draw)
        most = max(mind.item_weights)
        if most > SURE and draw() >= TALKATIVE:
            return mind.item_weights.index(most)
        # No number is drawn for a rate of 0, so chats without guesses and slips are as they always were.
        if self._bot.guesses and draw() < self._bot.guesses:
            return pick([i for i, weight in enumerate(mind.item_weights) if weight == most], draw)
        shares, entities = mind.shares, mind.entities
        first = weighted(shares, draw)
        chosen: tuple[Entity, ...] = (entities[first],)
        if len(shares) > 1 and draw() < 0.5:
            share, shares[first] = shares[first], 0.0
            second = weighted(shares, draw)
            shares[first] = share
            chosen = (*chosen, entities[second]) if mind.columns[first] != mind.columns[second] else chosen
        if draw() < 0.5:
            return self._phrase(ASKS, chosen, 2, mind, draw)
        mask = mind.having(chosen)
        if not mask:
            chosen, mask = chosen[:1], mind.masks[first]
        return self._phrase(INFORMS, chosen, mask.bit_count(), mind, draw)

    def _answer(self, mind: _Mind, entities: tuple[Entity, ...], draw: Draw) -> Act:
        """Answer yes with the number of friends with all entities, else no to an absent entity or to all."""
        mask = mind.having(entities)
        overlooked = bool(mask and self._bot.slips) and draw() < self._bot.slips
        if mask and not overlooked:
            return self._phrase(YES, entities, mask.bit_count(), mind, draw)
        if draw() < BARE:
            return pick(BARE_NO, draw)
        absent = [entity for entity in entities if entity not in mind.numbers]
        return self._phrase(NO, tuple(absent[:1]) or entities, 2, mind, draw)

    def _phrase(self, templates: Sequence[Phrase], entities: tuple[Entity, ...], count: int, mind: _Mind, draw: Draw) -> Act:
        return worded(pick(templates, draw), entities, count, len(mind.item_weights), mind.spelt, self._linker, draw)


_ROWS = 256
"""Number of chats that are drawn and played at once."""


def draw_scenarios(
    schema: FriendsSchema, numbers: Iterable[int], seed: int = 0, options: ScenarioOptions | None = None
) -> list[tuple[FriendsScenario, int]]:
    """Return scenarios and chat seeds of these numbers, as `play_friends` takes them.

    Args:
        schema: of the tables.
        numbers: numbers of scenarios; equal numbers give equal scenarios.
        seed: master seed, at least 0.
        options: bounds of scenarios.

    Raises:
        ConfigError: the schema has too few attributes or values, which the message names.
    """
    options = options or ScenarioOptions()
    check_schema(schema, options)
    drawn = Substreams(seed, "friends")
    return [(random_friends(schema, drawn.at(i), options, f"S_{seed}_{i}"), derive_seed(seed, "friends", i)) for i in numbers]


def scripted_chats(
    schema: FriendsSchema,
    linker: EntityLinker,
    numbers: Iterable[int],
    seed: int = 0,
    *,
    guesses: float = GUESSES,
    slips: float = SLIPS,
) -> list[FriendsChat]:
    """Return the chats of these numbers between two scripted players.

    Args:
        schema: of the tables.
        linker: of the schema.
        numbers: of the chats.
        seed: master seed, at least 0.
        guesses: as of `FriendsBot`; the default is people's.
        slips: the same.

    Raises:
        ConfigError: as `draw_scenarios`.
    """
    remaining, bot = iter(numbers), FriendsBot(linker, guesses, slips)
    chats: list[FriendsChat] = []
    with _uncollected():
        while batch := list(islice(remaining, _ROWS)):
            played = play_friends(draw_scenarios(schema, batch, seed), (bot, bot), num_rows=_ROWS)
            chats += [
                FriendsChat(chat.scenario, chat.events, chat.heard, chat.agreed, f"C_{seed}_{i}")
                for i, chat in zip(batch, played, strict=True)
            ]
    return chats


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disable the garbage collector in a block, because the chats have no reference cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():
            # Young objects become old here without a collection.
            gc.freeze()
            gc.unfreeze()
        if was_enabled:
            gc.enable()


_TOWNS = (
    *("Ashmere", "Brackwater", "Coldharbour", "Dunwold", "Eastmarch", "Fallowfen", "Greyhithe", "Harrowgate"),
    *("Ivelstone", "Juniper Vale", "Kelderby", "Larkspur Bay", "Mossford", "Netherby", "Oxmoor", "Pellworth"),
    *("Quillhaven", "Ravensholm"),
)
_SCHOOLS = ("{} College", "University of {}", "{} Institute of Technology")
_FAMILIES = (
    *("Abelard", "Bluefinch", "Cindertop", "Dovetail", "Emberline", "Foxglove", "Gullwing", "Hollowell", "Ironquay"),
    *("Jackdaw", "Kestrel Hill", "Lanternby", "Merrow", "Nightjar", "Orchard Lane", "Pinecrest", "Quayside", "Redstart"),
)
_FIRMS = ("{} Foods", "{} Systems", "{} & Sons")
_NAMES = (
    *("Alma", "Anselm", "Bettina", "Bram", "Corin", "Dagny", "Delia", "Edgar", "Elspeth", "Fenna", "Florian", "Greta"),
    *("Gideon", "Hanno", "Helga", "Imke", "Ivo", "Jarla", "Joost", "Katla", "Kester", "Linnea", "Lorcan", "Maeve"),
    *("Magnus", "Nilda", "Nestor", "Odile", "Osric", "Petra", "Piers", "Quentin", "Ragna", "Rufus", "Saskia", "Silas"),
    *("Tamsin", "Tobias", "Ulla", "Urban", "Verena", "Viggo", "Wanda", "Wendel", "Xanthe", "Ysolde", "Yorick", "Zelda"),
)
_MAJORS = (
    *("Harbour Engineering", "Bridge Engineering", "Mining Engineering", "Railway Engineering", "Applied Optics"),
    *("Marine Botany", "Plant Botany", "Tidal Physics", "Plasma Physics", "Medieval Law", "Maritime Law", "Folk Music"),
    *("Early Music", "Textile Design", "Garden Design", "Stage Design", "Rural Economics", "Labour Economics"),
    *("Ancient Scripts", "Map Making", "Glaciology", "Volcanology", "Numismatics", "Phonetics", "Rhetoric", "Horology"),
    *("Viticulture", "Forestry Science"),
)
_HOBBIES = (
    *("Kite building", "Kite racing", "Lake swimming", "Cave diving", "Cave mapping", "Bread baking", "Cheese making"),
    *("Beekeeping", "Bell ringing", "Basket weaving", "Rug weaving", "Stone skipping", "Stargazing", "Bird ringing"),
    *("Marbles", "Dominoes", "Backgammon", "Fencing", "Archery", "Curling", "Juggling", "Puppetry", "Calligraphy"),
    *("Model ships", "Model railways", "Ice skating", "Tree climbing", "Rope climbing", "Mushroom hunting"),
    *("Fossil hunting", "Postcards", "Crosswords"),
)
FRIENDS_SCHEMA = FriendsSchema(
    (
        Attribute("Name", "name"),
        Attribute("School", "school"),
        Attribute("Major", "major"),
        Attribute("Company", "company"),
        Attribute("Hobby", "hobby"),
        Attribute("Time Preference", "time_pref"),
        Attribute("Location Preference", "loc_pref"),
    ),
    {
        "name": _NAMES,
        "school": tuple(kind.format(town) for town, kind in product(_TOWNS, _SCHOOLS)),
        "major": _MAJORS,
        "company": tuple(kind.format(family) for family, kind in product(_FAMILIES, _FIRMS)),
        "hobby": _HOBBIES,
        "time_pref": ("Morning", "Afternoon", "Evening"),
        "loc_pref": ("Indoor", "Outdoor"),
    },
)
_PLURALS = ("time_pref", "loc_pref")
_LEAST_LETTERS = 6
_JOINTS = {"&", "and", "of"}
"""Words that only join others."""


def friends_forms(schema: FriendsSchema = FRIENDS_SCHEMA) -> list[Form]:
    """Return spellings of a schema's values, each repeated so that it counts outside of its context."""
    entities = {entity: chat_words(entity.value) for entity in schema.entities()}
    shared = Counter(part for words in entities.values() for part in _parts(words))
    parts = [(entity, part) for entity, words in entities.items() for part in sorted(_parts(words) - {words})]
    forms = [(entity, part) for entity, part in parts if shared[part] == 1]
    forms += [(entity, (f"{words[0]}s",)) for entity, words in entities.items() if entity.type in _PLURALS]
    forms += [(entity, slip) for entity, words in entities.items() if (slip := _slip(entity, words))]
    return [form for form in forms for _ in range(NUM_SEEN_OUTSIDE)]


def _parts(words: tuple[str, ...]) -> set[tuple[str, ...]]:
    """Return all beginnings and ends of several words, except parts that begin or end with a joint."""
    parts = {part for length in range(1, len(words) + 1) for part in (words[:length], words[-length:])}
    return {part for part in parts if not {part[0], part[-1]} & _JOINTS}


def _slip(entity: Entity, words: tuple[str, ...]) -> tuple[str, ...]:
    """Swap two middle letters of the longest word; empty if it is short or nothing changes."""
    longest = max(words, key=len)
    middle = len(longest) // 2
    slipped = longest[: middle - 1] + longest[middle] + longest[middle - 1] + longest[middle + 1 :]
    if entity.type in _PLURALS or len(longest) < _LEAST_LETTERS or slipped == longest:
        return ()
    return tuple(slipped if word == longest else word for word in words)
