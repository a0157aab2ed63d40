"""The words of the scripted bargainers: every phrase they know, by what it is for, and the ways to count things.

All phrases were written for Parley. `listening.understand` reads every proposal made of them back exactly, and the tests
hold the two files to that: a new phrase is one line here plus, if need be, one word there.

Slots: `{mine}` and `{yours}` are lists of things, `{kind}` is all things of one kind.
"""

from __future__ import annotations

import itertools

from parley.envs.negotiation.dealornodeal.rules import ITEM_NAMES, MAX_COUNT, NUM_ITEMS
from parley.envs.negotiation.vocabulary import SPECIALS, THEM, YOU, Vocabulary

SLOTS = ("{mine}", "{yours}", "{kind}")
PHRASES: dict[str, tuple[str, ...]] = {
    "greeting": (
        "hi",
        "hi .",
        "hi !",
        "hello",
        "hello .",
        "hey ,",
        "hi there .",
        "hello there !",
        "hi friend ,",
        "nice to meet you .",
    ),
    "small talk": (
        "how are you ?",
        "how is your day ?",
        "hope you are well .",
        "this should be quick .",
        "lovely to trade with you .",
    ),
    "claim": (
        "i would like {mine}",
        "i'd like {mine}",
        "i want {mine}",
        "i want {mine}",
        "i will take {mine}",
        "i'll take {mine}",
        "i need {mine}",
        "i get {mine}",
        "can i have {mine} ?",
        "could i get {mine} ?",
        "may i have {mine} ?",
        "can you give me {mine} ?",
        "would you let me have {mine} ?",
        "what if i take {mine} ?",
        "i am looking for {mine}",
        "i was hoping to get {mine}",
        "how about {mine} for me ?",
        "{mine}",
        "{mine}",
        "{mine} ?",
        "{mine} please",
        "{mine} for me",
        "{mine} for me ?",
        "give me {mine}",
        "give me {mine} and the rest is yours",
        "i would like {mine} and you can have the rest",
        "{mine} for me , the rest for you",
        "let me have {mine} and you get everything else",
    ),
    "gift": (
        "you can have {yours}",
        "you get {yours}",
        "you take {yours}",
        "i can give you {yours}",
        "i could let you have {yours}",
        "{yours} for you",
        "{yours} for you ?",
        "how about you take {yours} ?",
        "would you be happy with {yours} ?",
        "i will give you {yours} and i keep the rest",
        "you take {yours} and i get the rest",
        "take {yours} and leave me the rest",
        "i can offer you {yours} , the rest is mine",
        "{yours} for you and everything else for me",
    ),
    "split": (
        "i take {mine} and you get {yours}",
        "i get {mine} , you get {yours}",
        "i would like {mine} and you can have {yours}",
        "i want {mine} so you can have {yours}",
        "you can have {yours} if i get {mine}",
        "you take {yours} and i will take {mine}",
        "i'll give you {yours} for {mine}",
        "i would trade you {yours} for {mine}",
        "give me {mine} and you can have {yours}",
        "if you give me {mine} , you can have {yours}",
        "{mine} for me and {yours} for you",
        "how about {yours} for you and {mine} for me ?",
        "let us split it : i get {mine} and you get {yours}",
        "what about this : you keep {yours} , i keep {mine}",
    ),
    "demand": (
        "i really need {mine}",
        "i have to have {mine}",
        "i must have {mine}",
        "i must get {mine}",
        "i must have {mine} , you can keep the rest",
        "i need {mine} or no deal",
        "like i said , i must have {mine}",
        "i insist on {mine}",
        "i am firm on {mine}",
        "final offer : {mine} for me",
        "my final offer : i get {mine}",
        "i really need {mine} but you can have {yours}",
        "take it or leave it : {mine} for me and {yours} for you",
    ),
    "refusal": (
        "no ,",
        "no ,",
        "no .",
        "no .",
        "sorry ,",
        "sorry .",
        "no way .",
        "no way .",
        "i can not .",
        "i can not do that .",
        "that does not work for me .",
        "that is not enough .",
        "that is not fair .",
        "not good enough .",
        "too little for me .",
        "that is too low .",
        "you ask for too much , no .",
    ),
    "prize": (
        "i care most about {kind}",
        "most of my points come from {kind}",
        "i get my points from {kind}",
        "my best value is in {kind}",
    ),
    "junk": (
        "i have no use for {kind}",
        "i do not need {kind}",
        "i do not care about {kind}",
        "there is no value in {kind} for me",
    ),
    "concession": (
        "ok ,",
        "ok ,",
        "fine ,",
        "well ,",
        "alright then ,",
        "to be fair ,",
        "i can come down a bit .",
        "let us meet in the middle .",
    ),
    "filler": ("so", "well ,", "hmm ,", "ok so", "maybe", "let us see ."),
    "tail": (
        "please",
        ", does that work ?",
        ". is that ok ?",
        ". what do you think ?",
        ", is that fair ?",
        ", deal ?",
        ". thanks",
    ),
    "acceptance": (
        "deal",
        "ok deal",
        "ok",
        "okay , deal",
        "sounds good",
        "sounds good to me",
        "that works",
        "that works for me",
        "agreed",
        "yes , that is fair",
        "sure , deal",
        "you got it",
        "great , deal",
        "i accept",
        "perfect",
        "yes , i can do that",
    ),
    "confirmation": ("i get {mine} and you get {yours}", "so i take {mine}", "you can have {yours} then"),
    "surrender": (
        "fine , you win",
        "ok , have it your way",
        "alright , i can live with that",
        "fine , deal",
        "ok ok , deal",
        "well , i guess i can live with that",
    ),
    "parting": (
        "no deal",
        "no deal then",
        "sorry , no deal",
        "we can not agree , no deal",
        "i give up , no deal",
        "this goes nowhere , no deal",
        "let us call it off",
        "then i would rather walk away",
    ),
    "question": (
        "what would you like ?",
        "what do you want ?",
        "what are you looking for ?",
        "which things do you need ?",
        "can you make me an offer ?",
        "what can you offer me ?",
    ),
    "thanks": ("thanks", "thank you", "great , thanks", "nice doing business with you", "thank you , that was quick", "great"),
    "stop": (".",),
    "remainder": ("the rest", "everything else", "all the rest"),
    "everything": ("everything", "it all", "all of it"),
    "all but one kind": ("everything but {kind}", "everything except {kind}"),
    "one of each": ("one of each", "1 of each"),
    "last joint": ("and", "and", "and", "and", "and", ", and"),
    "inner joint": (",", "and"),
}
DISPENSABLE = frozenset(
    {"greeting", "small talk", "concession", "filler", "tail", "confirmation", "stop"}
    | {"remainder", "everything", "all but one kind", "one of each"}
)
"""Kinds of phrases that a bargainer does without when the vocabulary lacks their words."""

_NUMBER_WORDS = ("zero", "one", "two", "three", "four")


def _whole(item: int, count: int) -> str:
    return f"the {ITEM_NAMES[item]}{'s' * (count > 1)}"


def _amounts(item: int, number: int, count: int) -> tuple[str, ...]:
    """The ways to say `number` of the `count` things of one kind; a frequent way stands twice."""
    one, many, word = ITEM_NAMES[item], f"{ITEM_NAMES[item]}s", _NUMBER_WORDS[number]
    noun = one if number == 1 else many
    forms = (f"{number} {noun}", f"{word} {noun}")
    if number == count == 1:
        return (*forms, f"the {one}", f"the {one}", one)
    if number == count:
        every = ("both",) if count == 2 else (f"all {number}",)
        return (*forms, many, many, *(f"{each} {many}" for each in (*every, "the", "the", "the", "all", f"the {number}")))
    single = (f"a {one}", f"just 1 {one}") if number == 1 else ()
    return (*forms, *forms, *forms, f"{word} of the {many}", *single)


KINDS = [(item, count) for item in range(NUM_ITEMS) for count in range(1, MAX_COUNT + 1)]
WHOLES = {(item, count): _whole(item, count) for item, count in KINDS}
AMOUNTS = {(item, n, count): _amounts(item, n, count) for item, count in KINDS for n in range(1, count + 1)}


def bargainer_vocabulary() -> Vocabulary:
    """Every word that a scripted bargainer can say, in alphabetical order behind the specials and speaker markers."""
    phrases = itertools.chain(WHOLES.values(), *PHRASES.values(), *AMOUNTS.values())
    words = {word for phrase in phrases for word in phrase.split() if word not in SLOTS}
    return Vocabulary((*SPECIALS, YOU, THEM, *sorted(words)))
