"""Paraphrases of everyday written English, words that no table may change, and synonyms by sense, tag and form.

`left > right | right`: the left side may be said as any of the right ones, not the other way round; `left = right`: both ways.
Sides stand as the tokeniser cuts words. A side holds as many words as make it safe by itself: "try again" may become "try once
more", but "again" alone not, because of "once again".

Source of the synonyms: Niu & Bansal 2018, section 3.1, name the small PPDB 2.0 and say that the validity of a paraphrase
depends on its context.

A table knows pairs of words in any sense. Of those, a word's synonyms in a sentence are the ones

- whose sense in use is the word's: the first sense of both in WordNet, for the word's part of speech there, where it is also
  the sense in most of the texts that WordNet's makers counted (`Lexicon.same_sense`);
- in the form that the word has there ("bought" by "purchased", never "purchase"), which is not a form of the same base;
- that keep "a" and "an" before them right;
- that are usual: both words occur in the corpus a few times where one is at hand;
- of which neither is a name of a command or a word that grammar hangs on (`UNTOUCHED`).

Pairs that this project lists by part of speech (`phrasings.synonyms`) are of one sense; of them the first and the last is not
asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from parley.engine.perturb.lexicon.opposites import Lexicon, Phrase
from parley.engine.perturb.strategies.commands import NAMES
from parley.envs.corpora.pairs.tokens import tokenise

_EVERYWHERE = """
i 'm > i am
you 're > you are
we 're > we are
they 're > they are
i 've > i have
you 've > you have
we 've > we have
they 've > they have
i 'll > i will
you 'll > you will
we 'll > we will
they 'll > they will
it 'll > it will
it 's a > it is a
it 's an > it is an
it 's the > it is the
it 's not > it is not | it is n't
that 's a > that is a
that 's the > that is the
that 's what > that is what
that 's not > that is not | that is n't
what 's the > what is the
there 's a > there is a
there 's no > there is no
i would like > i 'd like
i ca n't > i can not
you ca n't > you can not
it ca n't > it can not
i do n't > i do not
you do n't > you do not
we do n't > we do not
they do n't > they do not
i did n't > i did not
it did n't > it did not
it does n't > it does not
that does n't > that does not
this does n't > this does not
it is n't > it is not
this is n't > this is not
that is n't > that is not
it wo n't > it will not
that wo n't > that will not
i have n't > i have not
you should n't > you should not
do not > do n't
does not > does n't
did not > did n't
can not > ca n't
will not > wo n't
could not > could n't
would not > would n't
should not > should n't
is not > is n't
are not > are n't
was not > was n't
were not > were n't
have not > have n't
has not > has n't
i am not > i 'm not
it is not > it 's not | it is n't
maybe = perhaps
thanks for = thank you for
thanks a lot > many thanks | thank you very much
thx > thanks
thank you very much > thanks a lot
pls > please
plz > please
u > you
ppl > people
cuz > because
coz > because
gonna > going to
wanna > want to
i dunno > i do n't know
idk > i do n't know
yeah = yes
yep > yes
yup > yes
ok = okay
hi = hello
hey > hi
btw > by the way
afaik > as far as i know
imo > in my opinion
imho > in my opinion
iirc > if i remember correctly
asap > as soon as possible
info = information
a lot of = lots of
in order to > to
for example = for instance
you 'll have to = you 'll need to
you will have to = you will need to
i want to > i would like to
trying to > attempting to
tried to > attempted to
is there a way to > is it possible to
is there any way to > is it possible to
is it possible to > is there a way to
how do i = how can i
anyone = anybody
someone = somebody
everyone = everybody
no one = nobody
can anyone help = could anyone help
can someone help = could someone help
can you help = could you help
can you please = could you please
look at the > take a look at the
have a look at = take a look at
take a look = have a look
make sure you = be sure you
i think > i believe
i believe > i think
i guess = i suppose
seems to > appears to
appears to > seems to
seem to = appear to
seemed to = appeared to
a bit more = a little more
a bit too = a little too
pretty sure > fairly sure
pretty good > fairly good
quite sure > fairly sure
what about = how about
every time = each time
everytime > every time
any idea > any clue
any ideas > any suggestions
no idea > no clue
as far as i know > to my knowledge
i 'm not sure > i 'm unsure
i am not sure > i am unsure
even though > although
until = till
sometimes > at times
let me know > tell me
works fine > works well
work fine > work well
working fine > working well
does n't work > does not work
do n't work > do not work
did n't work > did not work
is n't working > is not working
see if > see whether
check if > check whether
wondering if > wondering whether
sure if > sure whether
right away > immediately
a few times = several times
a few minutes = several minutes
a few hours = several hours
a few days = several days
a few weeks = several weeks
a couple of > a few
a while ago > some time ago
at first > initially
all the time > constantly
would you like > do you want
you could try > you might try
you can try > you could try
you may want to > you might want to
you might want to > you may want to
you should be able to > you ought to be able to
should be able to > ought to be able to
i was wondering > i wondered
i am wondering > i wonder
i 'm wondering > i wonder
i ca n't find > i can not find | i am unable to find
unable to > not able to
not able to > unable to
come back > return
came back > returned
take a while > take some time
takes a while > takes some time
never mind = nevermind
"""
"""Phrases that say the same in any chat."""
_IN_HELP_CHANNELS = """
right now = at the moment
i 'd like > i would like
cannot > ca n't
thanks , > thank you ,
sort of = kind of
such as > like
you have to = you need to
i have to = i need to
we have to = we need to
you must > you have to
i must > i have to
i wanted to > i wished to
look at this > take a look at this
for some reason > for whatever reason
i assume > i suppose
seems like = looks like
instead of > rather than
all of the > all the
figure out = work out
figured out = worked out
get rid of > remove
getting rid of > removing
got rid of > removed
turn off = switch off
turn on = switch on
turned off = switched off
turned on = switched on
go back to > return to
going back to > returning to
a bit of > a little
pretty much > more or less
no worries > no problem
try again > try once more
try it . > give it a try .
try that . > give that a try .
try this . > give this a try .
works great > works very well
know if > know whether
the whole > the entire
in the end > eventually
at the end of the day > in the end
these days > nowadays
the other day > recently
a long time > a long while
a good idea > a wise idea
as well as > along with
more than > over
less than > under
at least once > once or more
need to know > have to know
have to do > need to do
i ca n't get > i can not get | i am unable to get
i can not get > i am unable to get
i keep getting > i always get
i got it > i have it
got it working > made it work
find out > discover
found out > discovered
be careful > take care
good morning > morning
see you later > see you
hold on > wait
hang on > wait
"""
"""Those that say the same where people ask for help with computers, and now and then something else elsewhere."""

_SYNONYMS_EVERYWHERE = {
    "v": "improve enhance, permit allow, reply respond, purchase buy, vanish disappear, annoy irritate, solve resolve",
    "n": """
    film movie, kid child, television tv, phone telephone, colleague coworker, advice guidance, beginner newcomer
    """,
    "a": """
    awful terrible horrible, clever smart, crazy insane, dangerous risky, funny amusing, huge enormous, helpful useful,
    strange weird, silly foolish, stupid dumb, superb excellent, suitable appropriate, impolite rude, rare uncommon, tiny small
    """,
    "r": """
    almost nearly, completely entirely totally, certainly definitely, immediately instantly, frequently often,
    approximately roughly, rarely seldom, suddenly abruptly, unfortunately sadly, lately recently, exactly precisely,
    quickly rapidly, basically essentially, apparently seemingly, mainly mostly, maybe perhaps possibly
    """,
}
"""Words of one part of speech, base forms, that mean the same in any chat."""
_SYNONYMS_IN_HELP_CHANNELS = {
    "v": """
    alter change modify, appear seem, ask inquire, assist help, attempt try, begin start, build construct, buy purchase,
    choose pick select, complain grumble, confirm verify, copy duplicate, delay postpone, describe explain,
    display show, discover find, download fetch, employ use utilize, enable activate, ensure guarantee,
    fail malfunction, fix repair solve, forget overlook, freeze hang, get obtain receive, happen occur, hope wish,
    improve enhance, inform notify, keep retain, learn study, locate find, mention state, need require,
    notice observe, permit allow, prefer favor, quit leave, recommend suggest advise, recover restore,
    remember recall, reply respond answer, resolve solve fix, restart reboot, say state, send transmit,
    suppose assume guess, talk speak chat, understand comprehend, vanish disappear, want wish, annoy irritate
    """,
    "n": """
    advice guidance, answer reply response, application program, assistance help, beginner newcomer, browser navigator,
    bug defect, chance opportunity, colleague coworker, computer machine pc, difficulty trouble, directory folder,
    documentation docs, error mistake, fault mistake, film movie, guide tutorial, guideline instruction, idea suggestion,
    image picture, issue problem, kid child, laptop notebook, letter message, manner way, method approach, monitor screen,
    part portion, person individual, phone telephone, photo picture, reason cause, result outcome,
    setting preference, site website, song track, speed velocity, task job, television tv,
    trouble problem, webpage page
    """,
    "a": """
    awesome amazing great, awful terrible horrible, bad poor, big large, broken damaged, certain sure, clever smart,
    common usual, complete entire whole, complicated complex, correct right, crazy insane, dangerous risky,
    different distinct, difficult hard, easy simple, fast quick, funny amusing, glad happy, helpful useful, huge enormous,
    important essential, incorrect wrong, likely probable, main primary, necessary needed, normal usual, odd strange weird,
    older earlier, possible feasible, quiet silent, rare uncommon, rude impolite, several various, silly foolish,
    slow sluggish, small little tiny, specific particular, stupid dumb, superb excellent, suitable appropriate, tiny small,
    unusual uncommon
    """,
    "r": """
    actually really, almost nearly, anyway anyhow, apparently seemingly, approximately roughly,
    basically essentially, carefully cautiously, certainly definitely surely, completely entirely totally, correctly properly,
    currently presently, directly straight, easily readily, exactly precisely, extremely highly,
    fairly reasonably, frequently often, generally usually, hence therefore thus, immediately instantly,
    lately recently, mainly mostly, maybe perhaps possibly, merely simply, normally typically usually, obviously clearly,
    previously earlier, probably likely, rapidly quickly, rarely seldom, sadly unfortunately, slightly somewhat,
    slowly gradually, suddenly abruptly, truly really, afterwards later
    """,
}
"""Words of one part of speech, base forms, that mean the same in talk about everyday things and computers."""


_GRAMMAR = """
no not n't nor never none neither have has had having be am is are was were been being do does did doing done can could
may might must shall should will would ought need dare use used like well just so as too very much many most more less
least few get gets got getting gotten go goes going went gone make makes made making take takes took taken taking put
puts putting let lets set sets setting come comes coming came give gives gave given giving keep keeps kept keeping say
says said saying tell tells told telling think thinks thought thinking know knows knew known knowing want wants wanted
wanting look looks looked looking see sees saw seen seeing mean means meant try tries tried trying work works worked
working run runs ran running call calls called calling name names named way ways thing things kind sort case cases point
right left good bad fine great hard free single one ones first second last next only other same such own even still now
then here there back up down on off out in over away please thanks hello hi hey sorry yes yeah yep ok okay sure cool
damn guy guys man dude pal buddy effect effects enough plenty unplug unplugged disconnect disconnected result results
leave leaves left leaving change changes changed changing
"""
UNTOUCHED = NAMES | frozenset(_GRAMMAR.split())
"""Words that tables of single words neither replace nor bring in: those that grammar hangs on or that mean too much, names."""


def phrasings(*, help_channel: bool = False) -> Mapping[Phrase, tuple[Phrase, ...]]:
    """Return phrases and their paraphrases, in the order of the list.

    Args:
        help_channel: whether people ask for help with computers; else only what says the same in any chat.
    """
    paraphrases: dict[Phrase, dict[Phrase, None]] = {}
    for left, right in _sides(_EVERYWHERE + _IN_HELP_CHANNELS if help_channel else _EVERYWHERE):
        paraphrases.setdefault(left, {})[right] = None
    return {phrase: tuple(right_sides) for phrase, right_sides in paraphrases.items()}


def synonyms(*, help_channel: bool = False) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Return base forms and their synonyms, by word and part of speech ("v", "n", "a", "r").

    Args:
        help_channel: see `phrasings`.
    """
    synonyms_of: dict[tuple[str, str], dict[str, None]] = {}
    for kind, text in (_SYNONYMS_IN_HELP_CHANNELS if help_channel else _SYNONYMS_EVERYWHERE).items():
        for group in text.split(","):
            words = group.split()
            for word in words:
                synonyms_of.setdefault((word, kind), {}).update(dict.fromkeys(other for other in words if other != word))
    return {key: tuple(words_of_sense) for key, words_of_sense in synonyms_of.items()}


def _sides(text: str) -> Iterator[tuple[Phrase, Phrase]]:
    for line in filter(None, text.splitlines()):
        both = " = " in line
        left, _, alternatives = line.partition(" = " if both else " > ")
        for right in alternatives.split("|"):
            yield _words(left), _words(right)
            if both:
                yield _words(right), _words(left)


def _words(text: str) -> Phrase:
    return tuple(tokenise(text))


BASE_TAGS = {"V": "VB", "N": "NN", "J": "JJ", "R": "RB"}
"""The tag of a word's base form, by the first letter of its own."""
PARTS_OF_SPEECH = {"V": "v", "N": "n", "J": "a", "R": "r"}
_SAME_STEM = 4
"""Words that share so many first letters are taken for forms of one ("reply", "replying")."""


class Synonyms:
    """The synonyms of words.

    Args:
        table: phrases and their paraphrases; of one word each they count here.
        lexicon: inflects words and knows their senses.
        usual: whether a word may be replaced, and may enter.
        listed: synonyms of one sense by base form and part of speech.
        is_judged: whether a corpus judges edits in their place; else words that mean too much alone ("get", "way") stay.
    """

    def __init__(
        self,
        table: Mapping[Phrase, tuple[Phrase, ...]],
        lexicon: Lexicon,
        usual: Callable[[str], bool],
        listed: Mapping[tuple[str, str], tuple[str, ...]],
        *,
        is_judged: bool = False,
    ) -> None:
        self._lexicon, self._usual, self._listed = lexicon, usual, listed
        self._barred = frozenset[str]() if is_judged else UNTOUCHED
        self._table = {
            phrase[0]: [other[0] for other in paraphrases if len(other) == 1]
            for phrase, paraphrases in table.items()
            if len(phrase) == 1
        }

    def of(self, word: str, tag: str) -> tuple[Phrase, ...]:
        """Return the synonyms of a word in its form, one word each, in the order of the table.

        Args:
            word: lower case.
            tag: its Penn Treebank tag in the sentence.
        """
        kind = PARTS_OF_SPEECH.get(tag[:1])
        if kind is None or tag in ("RP", "NNP", "NNPS") or not word.isalpha() or not self._usual(word):
            return ()
        base = self._lexicon.inflect(word, BASE_TAGS[tag[0]])
        if base is None:
            return ()
        listed = () if base in self._barred else self._listed.get((base, kind), ())
        bases = (*(other for other in listed if other not in self._barred), *self._of_one_sense(word, base, kind))
        forms = (self._lexicon.inflect(other, tag) for other in bases)
        fitting = (form for form in forms if form is not None and form != word and self._usual(form))
        return tuple((form,) for form in dict.fromkeys(fitting))

    def _of_one_sense(self, word: str, base: str, kind: str) -> Iterator[str]:
        if _is_plain(word) and _is_plain(base):
            for other in self._table.get(base, ()):
                if _is_plain(other) and not _share_stem(base, other) and self._lexicon.same_sense(base, other, kind):
                    yield other


def fits_article(before: str, word: str, other: str) -> bool:
    """Return whether an article before a word is as right before another.

    Args:
        before: the word before both.
        word: what stood there.
        other: what shall.
    """
    return before not in ("a", "an") or (word[0] in "aeiou") == (other[0] in "aeiou")


def _is_plain(word: str) -> bool:
    return len(word) > 1 and word.isalpha() and word not in UNTOUCHED


def _share_stem(word: str, other: str) -> bool:
    shorter = min(len(word), len(other), _SAME_STEM)
    return word[:shorter] == other[:shorter]
