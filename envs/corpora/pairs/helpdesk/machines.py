"""Phrases of the help desk: their types and slots, the talk around a problem, and problems with devices.

In a phrase, `[a|b]` is one of the alternatives and `{slot}` a word of the dialogue. A model that learns from the pairs sees one
utterance before each reply, so a phrase holds all that its reply depends on.
"""

from __future__ import annotations

from typing import NamedTuple

Phrases = tuple[str, ...]


class Branch(NamedTuple):
    """One course of the diagnosis of a problem."""

    answers: Phrases
    """The user's answers to the question."""
    fixes: Phrases
    """The agent's advice."""


class HelpdeskProblem(NamedTuple):
    """A problem of a user."""

    says: Phrases
    """The user's words for the problem."""
    asks: Phrases
    """The agent's questions."""
    branches: tuple[Branch, ...]


class Topic(NamedTuple):
    """Problems with one kind of thing."""

    things: Phrases
    """Values of the slot `thing`."""
    problems: tuple[HelpdeskProblem, ...]


class Exchange(NamedTuple):
    """An utterance of the user and the agent's reply to it."""

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


MACHINES = (
    Topic(
        ("printer", "copier", "label printer"),
        (
            HelpdeskProblem(
                (
                    "the {thing} in {place} [prints nothing|does not print].",
                    "[hello,|hi,] i cannot print on the {thing} in {place}.",
                ),
                (
                    "is the light on the {thing} green or red?",
                    "[what colour is the light|which light do you see] on the {thing}?",
                ),
                (
                    Branch(
                        ("the light on the {thing} is red.", "[it is|it looks] red, and the {thing} [beeps|hums]."),
                        (
                            "red means no paper, so fill the tray of the {thing}.",
                            "fill the paper tray, then the {thing} [goes on|starts again].",
                        ),
                    ),
                    Branch(
                        (
                            "the light is green [but|and] nothing comes out of the {thing}.",
                            "it is green, the {thing} just sits there.",
                        ),
                        (
                            "cancel every job in the queue of the {thing} and print [again|once more].",
                            "empty the queue, an old job blocks the {thing}.",
                        ),
                    ),
                ),
            ),
            HelpdeskProblem(
                ("the paper is stuck in the {thing}.", "there is a paper jam in the {thing} in {place}."),
                ("can you open the back door of the {thing}?", "do you see the paper when you open the {thing}?"),
                (
                    Branch(
                        (
                            "yes, i see a torn sheet [inside|in the {thing}].",
                            "yes, the door of the {thing} is open and a sheet hangs out.",
                        ),
                        (
                            "pull the sheet out slowly with both hands.",
                            "turn the green wheel and pull the sheet [gently|slowly].",
                        ),
                    ),
                    Branch(
                        ("no, the door of the {thing} is locked.", "no, i cannot open the {thing}."),
                        (
                            "do not force the door, i will send {name} with the key.",
                            "{name} has the key of the {thing} and will come [over|by].",
                        ),
                    ),
                ),
            ),
            HelpdeskProblem(
                ("the pages from the {thing} are [pale|grey|full of stripes].", "every page has [stripes|black spots] on it."),
                ("when was the toner of the {thing} changed?", "is the toner [old|nearly empty]?"),
                (
                    Branch(
                        ("the toner is [very old|a year old].", "it says that the toner is low."),
                        ("take a new toner from the shelf in {place}.", "change the toner, the new ones are in {place}."),
                    ),
                    Branch(
                        ("the toner is new, we changed it last week.", "no, the toner is fresh."),
                        (
                            "then clean the drum with a dry cloth.",
                            "a dirty drum makes stripes, wipe it [with a dry cloth|carefully].",
                        ),
                    ),
                ),
            ),
        ),
    ),
    Topic(
        ("screen", "monitor", "projector"),
        (
            HelpdeskProblem(
                ("my {thing} [stays|is] black.", "i see nothing on the {thing} in {place}."),
                ("is the {thing} switched on?", "does a lamp glow on the {thing}?"),
                (
                    Branch(
                        ("a small lamp glows [orange|blue].", "yes, it is on."),
                        ("then the cable between computer and {thing} is loose.", "push the video cable in until it clicks."),
                    ),
                    Branch(
                        ("no lamp glows.", "no, it seems to have no power."),
                        ("plug the {thing} into another socket.", "look for the power switch on the back of the {thing}."),
                    ),
                ),
            ),
            HelpdeskProblem(
                ("everything on my {thing} is [tiny|huge|blurred].", "the letters on the {thing} are too [small|big]."),
                ("did you change the resolution?", "has anybody played with the settings of the {thing}?"),
                (
                    Branch(
                        ("my [child|colleague] played with the settings.", "yes, i changed something."),
                        ("press reset in the menu of the {thing}.", "choose the default settings, and keep others away."),
                    ),
                    Branch(
                        ("nobody touched the settings.", "no, it came by itself."),
                        ("then the driver of the {thing} is old, i will renew it.", "i send you a new driver {day}."),
                    ),
                ),
            ),
            HelpdeskProblem(
                ("the {thing} flickers [all day|when i scroll].", "my eyes hurt, the {thing} flickers."),
                ("is there a lamp or a phone near the {thing}?", "what stands beside the {thing}?"),
                (
                    Branch(
                        ("my phone lies beside it.", "a [lamp|radio] stands beside it."),
                        ("move the [phone|lamp] away, it disturbs the {thing}.", "keep a hand of distance between them."),
                    ),
                    Branch(
                        ("nothing but a plant.", "there is only a [plant|cup] beside it."),
                        (
                            "a plant does no harm, so we exchange the {thing} {day}.",
                            "then you need another {thing}, i order one.",
                        ),
                    ),
                ),
            ),
        ),
    ),
    Topic(
        ("disk", "drive", "memory stick"),
        (
            HelpdeskProblem(
                ("my {thing} is full.", "i cannot save a file, the {thing} is full."),
                ("do you keep films or music on the {thing}?", "what is on the {thing}?"),
                (
                    Branch(
                        ("a few films [from my holiday|of my cat].", "yes, some films and songs."),
                        ("films belong at home, please move them off the {thing}.", "copy the films to your own {thing}."),
                    ),
                    Branch(
                        ("only work, i swear.", "no, only reports and tables."),
                        ("then i can give you a bigger {thing} {day}.", "you get a larger {thing}, {name} brings it {day}."),
                    ),
                ),
            ),
            HelpdeskProblem(
                ("i deleted a [file|folder] by mistake.", "my [report|table] has vanished from the {thing}."),
                ("when did you see it last?", "was it still there yesterday?"),
                (
                    Branch(
                        ("it was there yesterday.", "yes, i saw it yesterday evening."),
                        ("then last night's backup has it, i will bring it back.", "i take it from the backup of yesterday."),
                    ),
                    Branch(
                        ("i wrote it this morning.", "no, it is from this morning."),
                        ("look into the bin, there is no backup of this morning.", "open the bin and press restore."),
                    ),
                ),
            ),
            HelpdeskProblem(
                ("the {thing} makes a [clicking|grinding] noise.", "i hear a noise from the {thing}."),
                ("is the noise there all the time?", "does the noise ever stop?"),
                (
                    Branch(
                        ("the noise never stops.", "yes, all the time, it [drives me mad|is loud]."),
                        ("save your work now, the {thing} is dying.", "switch it off at once, {name} will copy the {thing}."),
                    ),
                    Branch(
                        ("the noise comes only at the start.", "no, it is quiet after a minute."),
                        ("a short noise is harmless, do not worry.", "that is only the fan, let it run."),
                    ),
                ),
            ),
        ),
    ),
    Topic(
        ("headset", "microphone", "speaker"),
        (
            HelpdeskProblem(
                ("nobody hears me in calls.", "i hear nothing with the {thing}.", "the {thing} is silent."),
                ("is the {thing} muted?", "do you see a crossed out {thing} on the screen?"),
                (
                    Branch(
                        ("yes, it is crossed out.", "it seems to be muted."),
                        (
                            "press the crossed out sign, then the {thing} is live.",
                            "unmute the {thing} with the button at its side.",
                        ),
                    ),
                    Branch(
                        ("it is not muted.", "no, the {thing} looks normal."),
                        (
                            "choose the {thing} in the sound menu of the call.",
                            "plug the {thing} into the front of the computer.",
                        ),
                    ),
                ),
            ),
            HelpdeskProblem(
                ("my {thing} [crackles|whistles].", "the sound of the {thing} is awful."),
                ("how old is the battery of the {thing}?", "did you charge the {thing}?"),
                (
                    Branch(
                        ("the battery is [weak|flat].", "no, i never charged it."),
                        ("charge it for two hours before the next call.", "a flat battery crackles, charge it over night."),
                    ),
                    Branch(
                        ("it has a cable, no battery.", "there is no battery in it."),
                        (
                            "then the plug is dirty, turn it in the hole a few times.",
                            "swap the {thing} with {name} and listen again.",
                        ),
                    ),
                ),
            ),
        ),
    ),
    Topic(
        ("laptop", "keyboard", "mouse", "docking station"),
        (
            HelpdeskProblem(
                ("where is the {thing} that i ordered?", "my new {thing} has not [arrived|come]."),
                ("when did you order the {thing}?", "do you have the order number of the {thing}?"),
                (
                    Branch(
                        ("i ordered it a month ago.", "it was last month, i think."),
                        ("a month is too long, i will call the shop {day}.", "then it is lost, i order another {thing}."),
                    ),
                    Branch(
                        ("i ordered it [yesterday|two days ago].", "it was the day before yesterday."),
                        ("be patient, a {thing} takes a week.", "the {thing} will be here {day}."),
                    ),
                    Branch(
                        ("the number is [forty two|seventeen].", "yes, the order has a number."),
                        ("your {thing} waits in {place}.", "{name} has signed for it, ask in {place}."),
                    ),
                ),
            ),
            HelpdeskProblem(
                ("the {thing} i got is [broken|the wrong one].", "you sent me the wrong {thing}."),
                ("is the {thing} still in its box?", "do you have the box?"),
                (
                    Branch(
                        ("yes, it is in the box.", "the box is [here|under my desk]."),
                        ("put the box into {place}, we collect it {day}.", "leave the box with {name}, please."),
                    ),
                    Branch(
                        ("i threw the box away.", "no, there is no box."),
                        ("without a box i need a photo of the {thing}.", "never mind, bring the {thing} to {place}."),
                    ),
                ),
            ),
            HelpdeskProblem(
                ("i need a {thing} for a guest.", "can i borrow a {thing} {day}?"),
                ("how long do you need the {thing}?", "until when is the {thing} needed?"),
                (
                    Branch(
                        ("only for one day.", "just for [an hour|the afternoon]."),
                        ("for one day you get it from {name}.", "a spare {thing} lies in {place}."),
                    ),
                    Branch(
                        ("for the whole summer.", "for [two|three] months."),
                        ("for that long your boss must sign a form.", "so long? then you should buy a {thing}."),
                    ),
                ),
            ),
        ),
    ),
)
