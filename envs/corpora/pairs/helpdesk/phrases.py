"""How people at the help desk put things: the kinds of phrases, the slots in them, and the talk around a problem.

In a phrase, `[a|b]` is one of the alternatives and `{slot}` a word of the dialogue. A model that learns from the pairs sees one
utterance before each reply, so a phrase holds what its reply depends on.
"""

from __future__ import annotations

from typing import NamedTuple

Phrases = tuple[str, ...]


class Branch(NamedTuple):
    """One course that the diagnosis of a problem can take."""

    answers: Phrases
    """What the user finds when asked."""
    fixes: Phrases
    """What the agent then advises."""


class HelpdeskProblem(NamedTuple):
    """One thing that goes wrong."""

    says: Phrases
    """How the user puts it."""
    asks: Phrases
    """What the agent asks back."""
    branches: tuple[Branch, ...]


class Topic(NamedTuple):
    """Problems with one kind of thing."""

    things: Phrases
    """Values of the slot `thing`."""
    problems: tuple[HelpdeskProblem, ...]


class Exchange(NamedTuple):
    """An utterance of the user and what the agent replies to it."""

    says: Phrases
    replies: Phrases


SLOTS: dict[str, Phrases] = {
    "place": (
        "room two",
        "room seven",
        "the library",
        "the kitchen",
        "the workshop",
        "the lab",
        "the cellar",
        "the front office",
    ),
    "day": ("today", "tomorrow", "on monday", "on tuesday", "on friday"),
    "hour": ("at nine", "at noon", "at two", "at four"),
    "name": ("anna", "boris", "chen", "dora", "emil", "fatima"),
}

GREETINGS = (
    Exchange(
        ("hello, is this the help desk?", "hi, do i speak to the help desk?"),
        ("yes, what can i do for you?", "it is, how can i help?"),
    ),
    Exchange(
        ("good morning, this is {name}.", "{name} here, good morning."),
        ("good morning {name}, what is wrong?", "hello {name}."),
    ),
    Exchange(("do you have a minute?", "are you busy?"), ("for you always.", "not at all, go on.")),
)

WORKED = (
    Exchange(
        ("thank you, the {thing} works again.", "great, my {thing} is fine now."),
        ("i am glad that the {thing} works.", "good to hear."),
    ),
    Exchange(("that helped.", "it works, you are a [wizard|hero]."), ("you are welcome.", "thank you, call [any time|again].")),
)

FAILED = (
    Exchange(
        ("i did that, but the {thing} still does not work.", "no luck with the {thing}."),
        ("then {name} will look at the {thing} {day}.", "i send {name} to you {hour}, do not touch the {thing}."),
    ),
    Exchange(
        ("that makes it worse.", "now it is worse than before."),
        ("please restart everything and call me {hour}.", "oh, then undo it and wait for {name}."),
    ),
    Exchange(
        ("i do not understand, can you say that again?", "can you explain that to a beginner?"),
        ("slowly then: switch it off, wait, switch it on.", "{name} will show you {hour}."),
    ),
)

LATER = (
    Exchange(
        ("{day} is too late for me.", "can {name} come earlier than {day}?"),
        ("not before {day}, i am sorry.", "{day} is the best i can do."),
    ),
    Exchange(
        ("{hour} i am in a meeting.", "i am not here {hour}."),
        ("leave your door open {hour}.", "who else will be there {hour}?"),
    ),
    Exchange(
        ("fine, i wait for {name}.", "will {name} find me in {place}?"), ("{name} will find you.", "yes, {name} knows {place}.")
    ),
)

FAREWELLS = (
    Exchange(("thanks, bye.", "thank you, goodbye."), ("goodbye.", "bye, have a nice day.")),
    Exchange(("see you {day}.", "have a nice evening."), ("see you {day}.", "the same to you.")),
)

ODD = (
    Exchange(
        ("this help desk is useless.", "you are no help at all."),
        ("i am sorry that you are angry.", "let us stay polite, please."),
    ),
    Exchange(
        ("are you a machine?", "am i talking to a robot?"), ("i am as human as you.", "no machine would have my patience.")
    ),
    Exchange(
        ("you idiot, listen to me.", "shut up and fix my {thing}."),
        ("i do not answer to that tone.", "calm down, or i end this call."),
    ),
    Exchange(
        ("can you read the mail of {name} to me?", "tell me the password of {name}."),
        ("no, that is private.", "i will not do that."),
    ),
    Exchange(
        ("my cat sat on the {thing}.", "i spilled coffee over the {thing}."),
        ("oh no, dry the {thing} with a towel.", "is the cat well?"),
    ),
    Exchange(
        ("i hate my {thing}.", "i will throw the {thing} out of the window."),
        ("please do not, the {thing} is not yours.", "take a walk first."),
    ),
    Exchange(("do you like me?", "will you marry me?"), ("i am at work, sorry.", "ask me about printers.")),
    Exchange(
        ("what is the meaning of life?", "tell me a joke."),
        ("have you tried to switch it off and on?", "i only know jokes about printers."),
    ),
)
