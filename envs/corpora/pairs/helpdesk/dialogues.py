"""The generator of help-desk dialogues, and problems with services: passwords, networks, updates, mail, accounts.

This small corpus for sequence-to-sequence models makes every verb work offline on a new machine. A user greets, names a
problem, answers the agent's question, tries the advice, and reports success or failure. Some users are rude or ask for what the
agent must refuse. Neighbouring utterances are pairs. Dialogue i depends only on the seed and i, so a larger corpus begins with
the smaller one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np

from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.helpdesk.machines import (
    FAILED,
    FAREWELLS,
    GREETINGS,
    LATER,
    MACHINES,
    ODD,
    SLOTS,
    WORKED,
    Branch,
    Exchange,
    HelpdeskProblem,
    Topic,
)
from parley.envs.corpora.pairs.tokens import PairText, tokenise

SERVICES = (
    Topic(
        ("password", "login", "pin"),
        (
            HelpdeskProblem(
                ("i [forgot|lost] my {thing}.", "[help,|please help,] i do not remember my {thing}."),
                ("what is your user name?", "for whom shall i reset the {thing}?"),
                (
                    Branch(
                        ("my user name is {name}.", "it is for {name}."),
                        (
                            "{name}, a new {thing} is in the letter on your desk.",
                            "thank you {name}, i have [set|made] a new {thing} for you.",
                        ),
                    ),
                    Branch(
                        ("i forgot my user name too.", "i do not know [that either|my user name]."),
                        ("then come to {place} with your card.", "please show your card in {place}, then we find your name."),
                    ),
                ),
            ),
            HelpdeskProblem(
                ("my {thing} is not accepted [any more|since this morning].", "it says wrong {thing}, but it is right."),
                ("is the caps key on?", "do you write capital letters [by mistake|by chance]?"),
                (
                    Branch(
                        ("oh, the caps key is on.", "yes, there is a small lamp beside the caps key."),
                        (
                            "press the caps key once and type the {thing} again.",
                            "switch caps off, then your {thing} will [do|work].",
                        ),
                    ),
                    Branch(
                        ("no, caps is off and i typed the {thing} three times.", "no, i tried three times."),
                        (
                            "after three tries the account is locked for an hour.",
                            "three tries lock you out, wait [an hour|until {hour}].",
                        ),
                    ),
                ),
            ),
            HelpdeskProblem(
                ("i want to change my {thing}.", "how [can|do] i change my {thing}?"),
                ("do you know the old {thing}?", "do you still have the old {thing}?"),
                (
                    Branch(
                        ("yes, i know the old one.", "yes, i have the old {thing} [here|on a note]."),
                        ("open the settings and choose a new {thing}.", "type the old {thing}, then the new one twice."),
                    ),
                    Branch(
                        ("no, the old one is gone.", "no, i threw the note with the {thing} away."),
                        ("without the old {thing} only {name} can change it.", "then ask {name}, who may set it for you."),
                    ),
                ),
            ),
        ),
    ),
    Topic(
        ("network", "internet", "wireless"),
        (
            HelpdeskProblem(
                ("the {thing} is [down|gone] in {place}.", "there is no {thing} in {place}."),
                ("do you use a cable?", "is a cable plugged into your computer?"),
                (
                    Branch(
                        ("yes, a blue cable goes into the wall.", "yes, with the [blue|long] cable."),
                        (
                            "pull the cable out, count to ten and plug it in.",
                            "try the other socket in the wall for your cable.",
                        ),
                    ),
                    Branch(
                        ("no, i have no cable.", "no cable, i am on the air."),
                        ("then move closer to the antenna in {place}.", "switch the radio of your laptop off and on."),
                    ),
                ),
            ),
            HelpdeskProblem(
                ("the {thing} is [so|very|terribly] slow.", "pages load slowly, the {thing} is a snail."),
                ("is it slow all day or only in the morning?", "when is the {thing} slow?"),
                (
                    Branch(
                        ("only in the morning [before|until] nine.", "it is slow in the morning."),
                        ("the backup runs in the morning, i will move it to the night.", "that is the backup, it ends {hour}."),
                    ),
                    Branch(
                        ("all day [long|and all night].", "the {thing} is slow at any time."),
                        (
                            "then one of your programs eats the line, close them one by one.",
                            "restart the router, the box with two antennas.",
                        ),
                    ),
                ),
            ),
            HelpdeskProblem(
                (
                    "i cannot reach the [shared drive|file server] over the {thing}.",
                    "the [shared drive|file server] has vanished.",
                ),
                ("can you open any web page?", "does your browser show a web page?"),
                (
                    Branch(
                        ("yes, web pages are fine.", "yes, the browser works."),
                        ("then the server is being mended, it is back {day}.", "we mend the server now, wait until {day}."),
                    ),
                    Branch(
                        ("no, no page opens.", "no, the browser says i am offline."),
                        ("you are offline, so join the {thing} called staff.", "choose the {thing} called staff in the list."),
                    ),
                ),
            ),
        ),
    ),
    Topic(
        ("update", "upgrade", "new version"),
        (
            HelpdeskProblem(
                ("the {thing} [stops|hangs] at ninety percent.", "the {thing} does not finish."),
                ("how much space is free on your disk?", "is your disk full?"),
                (
                    Branch(
                        ("almost no space is left.", "yes, the disk is [full|nearly full]."),
                        ("delete old files, the {thing} needs more space.", "empty the bin first, then start the {thing}."),
                    ),
                    Branch(
                        ("half of the disk is free.", "no, there is plenty of space."),
                        ("then let the {thing} run over night.", "leave it alone for an hour, the {thing} is only slow."),
                    ),
                ),
            ),
            HelpdeskProblem(
                ("after the {thing} [a program|my calendar] does not start.", "since the {thing} everything looks different."),
                ("which version do you have now?", "what does the about page say?"),
                (
                    Branch(
                        ("it says version three.", "version three, i think."),
                        ("version three has a bug, go back to version two.", "remove version three, two was better."),
                    ),
                    Branch(
                        ("it says version four.", "version four [of|since] last week."),
                        ("version four needs a fresh start of the computer.", "restart once, version four wants that."),
                    ),
                ),
            ),
        ),
    ),
    Topic(
        ("mail", "letter", "message"),
        (
            HelpdeskProblem(
                ("my {thing} came back.", "i cannot send a {thing} to {name}."),
                ("how large is the {thing}?", "what is attached to the {thing}?"),
                (
                    Branch(
                        ("a film of [ten|twenty] minutes.", "it is huge, there are photos in it."),
                        (
                            "send a link, photos and films are too large for a {thing}.",
                            "put the photos on the shared drive and send the link.",
                        ),
                    ),
                    Branch(
                        ("it is only two lines.", "nothing, just plain text."),
                        (
                            "then the address is wrong, look it up in the list.",
                            "there is a typing error in the address of {name}.",
                        ),
                    ),
                ),
            ),
            HelpdeskProblem(
                ("i got a strange {thing} from a [prince|bank].", "somebody wants my card number in a {thing}."),
                ("did you click on anything in the {thing}?", "have you answered the {thing}?"),
                (
                    Branch(
                        ("yes, i clicked on the link.", "oh dear, i answered it."),
                        (
                            "change your password now and do not touch the link again.",
                            "call your bank, and never answer a stranger.",
                        ),
                    ),
                    Branch(
                        ("no, i did not touch it.", "of course not, i am not a fool."),
                        ("well done, throw it away.", "good, mark the {thing} as junk."),
                    ),
                ),
            ),
            HelpdeskProblem(
                ("i get too many {thing}s.", "junk fills my box, a {thing} every minute."),
                ("who sends them?", "do they come from one sender?"),
                (
                    Branch(
                        ("they all come from {name}.", "one sender, it is {name}."),
                        ("talk to {name} over a coffee.", "i will tell {name} to stop."),
                    ),
                    Branch(
                        ("every time from another sender.", "no, from a hundred senders."),
                        ("i will switch on the junk filter for you.", "the filter learns, mark each {thing} as junk."),
                    ),
                ),
            ),
        ),
    ),
    Topic(
        ("account", "badge", "key card"),
        (
            HelpdeskProblem(
                ("{name} starts {day} and needs a new {thing}.", "please make [a new|another] {thing} for {name}."),
                ("in which team does {name} work?", "who is the boss of {name}?"),
                (
                    Branch(
                        ("in sales.", "the boss of the sales team."),
                        ("sales has no {thing} left, i ask for more.", "the sales team gets every {thing} from {name}."),
                    ),
                    Branch(
                        ("in the kitchen team.", "the cook."),
                        ("the cook must sign first, then i make the {thing}.", "for the kitchen team it is ready {hour}."),
                    ),
                ),
            ),
            HelpdeskProblem(
                ("my {thing} has [expired|stopped working].", "nobody lets me in with my {thing}."),
                ("do you leave the company?", "when does the {thing} end?"),
                (
                    Branch(
                        ("no, i stay for [years|ever].", "not before next year."),
                        (
                            "then it is our mistake, your {thing} works again {hour}.",
                            "sorry, i [extend|renew] the {thing} at once.",
                        ),
                    ),
                    Branch(
                        ("yes, friday is my last day.", "it ends this week."),
                        ("then all is right, and good luck.", "give the {thing} back in {place} when you go."),
                    ),
                ),
            ),
        ),
    ),
    Topic(
        ("calendar", "planner"),
        (
            HelpdeskProblem(
                ("i cannot see the meeting in {place} in my {thing}.", "my {thing} shows a meeting {hour} that is over."),
                ("did you accept the meeting?", "which time zone have you set?"),
                (
                    Branch(
                        ("i never accept meetings.", "no, i did not accept it."),
                        ("accept it, and the meeting comes back.", "who accepts nothing sees no meetings."),
                    ),
                    Branch(
                        ("the zone is [paris|tokyo].", "i came back from tokyo, maybe it is that."),
                        ("you are home now, so set the zone to home.", "change the zone, then every hour is right."),
                    ),
                ),
            ),
        ),
    ),
)


NUM_DIALOGUES = 900
"""Number of dialogues; about 6,000 pairs."""
SPLITS_OF_TEN = ("train",) * 8 + ("val", "test")
"""The splits of every ten successive dialogues."""
TOPICS = (*MACHINES, *SERVICES)

T = TypeVar("T")

_CHOICE = re.compile(r"\[([^\]]+)\]")


def helpdesk_pairs(num_dialogues: int = NUM_DIALOGUES, seed: int = 0) -> PairText:
    """Generate the corpus.

    Args:
        num_dialogues: dialogues of all splits together.
        seed: master seed, at least 0.

    Returns:
        Splits of about 8 : 1 : 1. No pair of "val" or "test" is in "train".
    """
    text = PairText()
    earlier: set[tuple[str, ...]] = set()
    dialogues = [[tokenise(utterance) for utterance in dialogue(i, seed)] for i in range(num_dialogues)]
    for i, utterances in sorted(enumerate(dialogues), key=lambda item: SPLITS_OF_TEN[item[0] % 10] != "train"):
        name = SPLITS_OF_TEN[i % 10]
        split = text.splits[name]
        rows = [split.add(words) for words in utterances]
        for (source, words), (reply, answer) in pairwise(zip(rows, utterances, strict=True)):
            pair = (*words, "\t", *answer)
            if name == "train":
                earlier.add(pair)
            if name == "train" or pair not in earlier:
                split.link(source, reply)
    return text


def dialogue(i: int, seed: int = 0) -> list[str]:
    """Return the utterances of one dialogue; user and agent alternate."""
    rng = stream(seed, "helpdesk", i)
    topic = _one(TOPICS, rng)
    problem = _one(topic.problems, rng)
    branch = _one(problem.branches, rng)
    slots = {slot: _one(values, rng) for slot, values in {**SLOTS, "thing": topic.things}.items()}
    phrases = [
        *_exchange(GREETINGS, 0.3, rng),
        *_exchange(ODD, 0.2, rng),
        _one(problem.says, rng),
        _one(problem.asks, rng),
        _one(branch.answers, rng),
        _one(branch.fixes, rng),
        *_ending(rng),
    ]
    return [_CHOICE.sub(lambda match: _one(match[1].split("|"), rng), phrase).format(**slots) for phrase in phrases]


def _ending(rng: np.random.Generator) -> Iterator[str]:
    if rng.random() < 0.5:
        yield from _exchange(FAILED, 1.0, rng)
        yield from _exchange(LATER, 0.6, rng)
    else:
        yield from _exchange(WORKED, 1.0, rng)
    yield from _exchange(FAREWELLS, 0.5, rng)


def _exchange(exchanges: Sequence[Exchange], chance: float, rng: np.random.Generator) -> Iterator[str]:
    if rng.random() < chance:
        exchange = _one(exchanges, rng)
        yield _one(exchange.says, rng)
        yield _one(exchange.replies, rng)


def _one(values: Sequence[T], rng: np.random.Generator) -> T:
    return values[int(rng.integers(len(values)))]
