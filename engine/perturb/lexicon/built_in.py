"""A small lexicon of everyday and help-desk English, so that demo and tests run without NLTK's data.

Written for this project; callers that open it for a user print `ANNOUNCEMENT`. Its tags come from word lists, endings and
the words around, which is enough to find the verb of a plain sentence and no match for a trained tagger.

A word may stand in several lists; then the words around it decide its tag. The file also holds the lexicons by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain

from parley.engine.perturb.lexicon.nltk_lexicon import SHORT_FORMS, NltkLexicon, expanded
from parley.engine.perturb.lexicon.opposites import OPPOSITES, Lexicon, Phrase, two_way
from parley.engine.perturb.lexicon.phrasings import phrasings, synonyms
from parley.envs.corpora.pairs.tokens import STOP_WORDS

IRREGULAR = """
be was been            become became become    begin began begun       break broke broken      bring brought brought
build built built      buy bought bought       catch caught caught     choose chose chosen     come came come
cost cost cost         cut cut cut             do did done             draw drew drawn         drink drank drunk
drive drove driven     eat ate eaten           fall fell fallen        feed fed fed            feel felt felt
find found found       fly flew flown          forget forgot forgotten get got got             give gave given
go went gone           grow grew grown         hang hung hung          have had had            hear heard heard
hide hid hidden        hold held held          hurt hurt hurt          keep kept kept          know knew known
lay laid laid          lead led led            leave left left         lend lent lent          let let let
lie lay lain           light lit lit           lose lost lost          make made made          mean meant meant
meet met met           pay paid paid           put put put             read read read          ride rode ridden
ring rang rung         rise rose risen         run ran run             say said said           see saw seen
sell sold sold         send sent sent          set set set             shake shook shaken      shut shut shut
sing sang sung         sit sat sat             sleep slept slept       speak spoke spoken      spend spent spent
stand stood stood      steal stole stolen      stick stuck stuck       swear swore sworn       sweep swept swept
swim swam swum         take took taken         teach taught taught     tear tore torn          tell told told
think thought thought  throw threw thrown      undo undid undone       understand understood understood
wake woke woken        wear wore worn          win won won             write wrote written
"""
"""Verbs: base, past, participle. Forms of "be" are listed with the words of one tag."""

REGULAR = """
accept add agree allow answer appear arrive ask attach back bark beep believe belong blink block blur boot borrow burn busy
call cancel care carry change charge check choke clean clear click close collect complain confirm connect continue cook copy
count crackle crash cross crush delete deliver detach die disable disappear disconnect disturb download drop dry dust edit
empty enable end enjoy enter erase exchange exclude expire explain extend fail fill film filter finish fix flash flicker
fold follow freeze glow grind guess handle happen hate help hope hum include increase insert install jam join joke jump kill
know label last laugh learn like link list listen live load lock log look love lower mail manage mark marry measure mend
mention mind miss mount move mute name need note notice offer open order pack park pass paste phone pick plan plant play
please plug point post pour power press print promise pull push raise rattle reach reboot receive record refuse reinstall
release remember remind remove rename renew repair repeat replace reply report reset resolve rest restart restore return
ring rub save scan scroll search seem share shop show sign smell smoke solve sound spare spell spill squeak start stay step
stop store stripe suggest suppose swap switch talk taste test thank touch trust try turn type uninstall unlock unmute unpack
unplug update upgrade upload use vanish visit wait walk want warm warn wash watch wave whistle wipe wish wonder work worry
"""
"""Verbs with endings by rule."""

DOUBLING = """
ban beg cancel chat chop clip cut drag drop fit format get grab hug jam jog let log map nod pin ping plan plug rip rub run
scan set ship shop shut sit skip slip spin spot step stop swap swim tap tip trap travel trim unplug win wrap zip
"""
"""Verbs that double their last letter before -ed and -ing."""

NOUNS = """
account adapter address admin afternoon air alarm answer antenna application attachment backup badge bag bank battery
beginner bin blocks boss bottle box bread browser bug building bulb button cable calendar call camera cap capital car card
cartridge case cat cellar certificate chair chance channel charge charger chat child chip city clock cloth code coffee
colleague colour command company computer cook copier copy corner count country course cup customer daemon dark data day
default delete desk desktop device dirt disk display distance distro dock docking document dog door download drive driver
drum dust ear email end entry error evening exchange eye face fan fault file film filter finger flag floor folder font food
fool force form frame friday friend front fuse game glow green group guest hall hand handle hard hardware harm head
headphone headset health heat help hero hole holiday home hook hour house icon idea idiot image ink inside installation
internet invoice jam job joke junk kernel key keyboard kind kitchen lab label lamp laptop letter level library licence lid
life light line link list load lock login lot luck machine mail mailbox manager mark marker master mate matter meaning
meeting memory menu message meter microphone minute mistake mode model module monday money monitor month morning mouse mug
music name network news night noise noon note number office option order others outlet oven package page pair panel paper
part partition party password patience patient paw pen percent person phone photo phrase picture piece pin place plan
planner plant plate plenty plug pocket point port position post power press prince print printer problem process program
project projector question queue radio reason receiver record refund release reply report request resolution result right
robot roof room router rule safe sale saturday scanner screen script sender sentence server service session setting shape
sheet shelf shell shop shoulder side sign signal site size snail socket software song sound source space speaker speed spot
staff stage star start state station step stick stop store stranger street string stripe stuff subject summer sun sunday
switch system tab table talk tape task teacher team terminal test text thing thought thread thursday tie time tin title
today tomorrow tone toner tool top touch towel town track train tray trouble tuesday type umbrella update upgrade use user
version video view voice volume wall warning water way web wednesday week wheel wifi window winter wire wireless wizard
woman word work workshop world year yesterday zone
"""

PLURALS = {
    "child": "children", "foot": "feet", "knife": "knives", "life": "lives", "man": "men", "mouse": "mice", "person": "people",
    "shelf": "shelves", "tooth": "teeth", "wife": "wives", "woman": "women",
}  # fmt: skip

ADJECTIVES = """
able absent active afraid alive alone angry annoying available awake away awful bad bare basic beautiful best better big
black blank blue blurred bold boring brave brief bright broken brown busy calm careful careless certain cheap clean clear
clever close closed cold common complete complex cool correct corrupt crazy crossed current cute dangerous dark dead deaf
dear deep different difficult dim dirty dry dumb dying early easy empty enough evil exact expensive external faint fair
false familiar famous fast fat fatal faulty few fine firm first flat foreign free fresh friendly front full funny general
gentle glad good grateful great green grey half happy hard harmless healthy heavy helpful hidden high hot huge human hungry
ill important impossible incorrect internal junk kind large last late lazy left light little live local lonely long loose
lost loud low lucky mad main male manual many mild missing modern more most much muted narrow nasty near neat necessary
negative new next nice noisy normal odd official offline old online only open opposite orange other own pale past perfect
plain pleasant polite poor popular positive possible present private proper proud public quick quiet rare raw ready real
recent red remote rich right rough round rude sad safe same secret secure sensible serious shallow sharp short shut shy sick
silent silly similar simple single slow small smart smooth soft solid sorry sour spare special stable strange strict strong
stuck stupid such sure sweet tall terrible thick thin third tidy tight tiny tired total true twin ugly unable unhappy
unknown unsafe unsure upset urgent used useful useless usual vague valid visible warm weak weird wet white whole wide wild
wireless wise wonderful working worse worst worth wrong yellow young
"""

ADVERBS = """
again ago ahead almost alone already also always anyway apart around away back badly barely before carefully clearly closer
completely correctly downstairs early easily else even ever everywhere exactly far fast finally first gently hardly hence
here however immediately indeed instead just late later least loudly maybe mostly much nearly never not now nowhere often
once only outside perhaps poorly probably quickly quietly quite rarely rather really recently right seldom sharply simply
slowly so somewhere soon still straight suddenly surely terribly then there together too totally twice upstairs usually very
well wrongly yet
"""

COMPARISONS = """
bad worse worst             big bigger biggest          close closer closest        early earlier earliest
easy easier easiest         far farther farthest        fast faster fastest         few fewer fewest
good better best            great greater greatest      happy happier happiest      hard harder hardest
high higher highest         large larger largest        late later latest           light lighter lightest
little less least           long longer longest         loud louder loudest         low lower lowest
many more most              near nearer nearest         new newer newest            old older oldest
quick quicker quickest      quiet quieter quietest      rich richer richest         sad sadder saddest
safe safer safest           short shorter shortest      slow slower slowest         small smaller smallest
soft softer softest         strong stronger strongest   thick thicker thickest      thin thinner thinnest
tight tighter tightest      warm warmer warmest         weak weaker weakest         young younger youngest
"""
"""Adjectives and adverbs: plain form, comparative, superlative."""

FIXED = {
    "DT": "a an the this that these those each every some any no all both either neither another half",
    "PRP": "i you he she it we they me him us them one ones myself yourself himself herself itself ourselves yourselves"
    " themselves mine yours hers ours theirs nobody nothing somebody something anybody anything everybody everything"
    " someone anyone everyone",
    "PRP$": "my your his her its our their",
    "IN": "about above across after against along among around as at because before behind below beneath beside besides"
    " between beyond by during except for from if in inside into like near of on onto outside over past per since than"
    " though through till toward towards under underneath unless until upon via while with within without although"
    " whether",
    "RP": "off out up down",
    "TO": "to",
    "MD": "can could may might must shall should will would cannot ca wo sha 'll 'd",
    "CC": "and but or nor plus",
    "WP": "who whom what whoever whatever",
    "WDT": "which",
    "WP$": "whose",
    "WRB": "when where why how whenever wherever",
    "POS": "'s",
    "UH": "yes yeah ok okay hello hi hey oh please thanks bye goodbye welcome sorry wow well thank",
    "CD": "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million dozen",
    "RB": "n't not",
    "VBP": "am are 'm 're 've",
    "VBZ": "is has does",
    "VBD": "was were did had",
    "VB": "be",
    "VBN": "been done",
    "VBG": "being",
    "NNP": "anna boris chen dora emil fatima tokyo paris ubuntu linux windows debian google",
    ".": ". ! ?",
    ",": ",",
    ":": ": ; ... -",
    "(": "( [ {",
    ")": ") ] }",
}
"""Words of one tag."""

OPPOSITE_NOUNS = """
answer question     beginner master     beginning end       black white         boss worker         bottom top
child adult         day night           entrance exit       evening morning     friend enemy        guest host
hero coward         inside outside      life death          light darkness      noise silence       noon midnight
past future         peace war           problem solution    sender receiver     success failure     summer winter
today tomorrow      truth lie           work rest           right left          input output        sale purchase
home office         start end           front back
"""
"""Pairs of nouns, in both directions; the other opposites stand in `opposites.py`."""


ANNOUNCEMENT = "words come from the small built-in lexicon; for WordNet and a trained tagger: parley data get nltk"

_VERBS = ("VB", "VBP", "VBD", "VBN", "VBG", "VBZ")
_NOUNS = ("NN", "NNS")
_SUBJECTS = frozenset({"i", "you", "we", "they", "who", "these", "those", "which"})
_HELPERS = frozenset({"do", "does", "did", "let", "please", "help", "to"})
"""Words after which a verb in its base form is still to come."""
_HAVE = frozenset({"have", "has", "had", "'ve", "having"})
_BE = frozenset({"be", "am", "is", "are", "was", "were", "been", "being", "'m", "'re", "'s", "get", "gets", "got"})
_NOUN_FOLLOWS = frozenset({"DT", "PRP$", "JJ", "JJR", "JJS", "CD", "IN", "NN", "NNP", "WP$", "POS", "VBZ", "VBD", "VBP", "VBG"})
_BEFORE_IS = frozenset({"PRP", "WP", "DT", "RB", "WRB"})
"""Tags of words after which "'s" is a verb; it marks the owner after others."""
_NUMBER = re.compile(r"\d[\d.,:]*")
_ENDINGS = (
    ("ing", "VBG"),
    ("ed", "VBN"),
    ("ly", "RB"),
    ("ness", "NN"),
    ("tion", "NN"),
    ("ment", "NN"),
    ("ous", "JJ"),
    ("ful", "JJ"),
    ("less", "JJ"),
    ("able", "JJ"),
    ("ible", "JJ"),
    ("ss", "NN"),
    ("us", "NN"),
    ("is", "NN"),
    ("s", "NNS"),
)
"""Tags of words that no list holds, by their ends; the first that fits."""
_PLAIN = {"v": "VB", "n": "NN", "a": "JJ", "r": "RB"}
_NUM_UTTERANCES = 1 << 14


class BuiltInLexicon:
    """The lexicon of the words of this file."""

    def __init__(self) -> None:
        self._tags = lru_cache(_NUM_UTTERANCES)(self._tags_of)

    def tag(self, words: Sequence[str]) -> list[str]:
        """Penn Treebank tags by lists, endings and the words around."""
        return [*self._tags(tuple(words))]

    def tag_all(self, utterances: Sequence[tuple[str, ...]]) -> list[list[str]]:
        """Return the tags of many utterances."""
        return [self.tag(words) for words in utterances]

    def are_tags(self, utterances: Sequence[tuple[str, ...]], tags: Sequence[Sequence[str]]) -> list[bool]:
        """Return whether utterances have these tags; see `Lexicon`."""
        return [self._tags(words) == tuple(expected) for words, expected in zip(utterances, tags, strict=True)]

    def antonyms(self, word: str, part_of_speech: str | None) -> tuple[str, ...]:
        """Return the listed opposites of a word's base form."""
        antonyms: dict[str, None] = {}
        for kind in _PLAIN if part_of_speech is None else (part_of_speech,):
            for base in dict.fromkeys((word, *self._bases(word, _PLAIN[kind]))):
                antonyms.update(dict.fromkeys(self._antonyms.get((base, kind), ())))
        return tuple(other for other in antonyms if other != word)

    def opposites(self, word: str, part_of_speech: str) -> tuple[str, ...]:
        """None beside the project's own, see `Lexicon`."""
        return ()

    def same_sense(self, word: str, other: str, part_of_speech: str) -> bool:
        """Return whether both words are listed as that part of speech; lists have one sense a word."""
        tag = _PLAIN[part_of_speech]
        return (word, tag) in self._forms and (other, tag) in self._forms

    def synonyms(self, word: str, part_of_speech: str, *, every_sense: bool = False, names: bool = False) -> tuple[str, ...]:
        """Return the listed synonyms, which have one sense."""
        return self._synonyms.get((word, part_of_speech), ())

    def inflect(self, word: str, tag: str) -> str | None:
        """Return the form of a listed word that has a tag; None for other words."""
        return next((self._forms[base, tag] for base in self._bases(word, tag[:2]) if (base, tag) in self._forms), None)

    @cached_property
    def stopwords(self) -> frozenset[str]:
        """Stop words."""
        return STOP_WORDS

    @cached_property
    def paraphrases(self) -> Mapping[Phrase, tuple[Phrase, ...]]:
        """Return phrases and words of equal meaning, both ways."""
        phrases = ((phrase, other) for phrase, right in phrasings(help_channel=True).items() for other in right)
        words = (((word,), (other,)) for (word, _), same in synonyms(help_channel=True).items() for other in same)
        return two_way(chain(phrases, words))

    def _tags_of(self, words: tuple[str, ...]) -> tuple[str, ...]:
        if not SHORT_FORMS.keys().isdisjoint(words):
            pieces, firsts = expanded(words)
            tags = self._tags(tuple(pieces))
            return tuple(tags[first] for first in firsts)
        return self._tags_in_order(words)

    def _tags_in_order(self, words: tuple[str, ...]) -> tuple[str, ...]:
        tags: list[str] = []
        awaits_verb = False
        for index, word in enumerate(words):
            following = words[index + 1] if index + 1 < len(words) else ""
            tag = self._tag(word, words[:index], tags, following, awaits_verb)
            if tag == "VB":
                awaits_verb = False
            if tag in ("TO", "MD") or word in _HELPERS:
                awaits_verb = True
            elif tag in (".", ":"):
                awaits_verb = False
            tags.append(tag)
        return tuple(tags)

    def _tag(self, word: str, before: Sequence[str], tags: Sequence[str], following: str, awaits_verb: bool) -> str:
        """Return the tag of a word, given the tags of the words before it."""
        if word == "'s" and tags and tags[-1] in _BEFORE_IS:
            return "VBZ"
        if word in ("do", "have") and following in _SUBJECTS:
            return "VBP"
        possible = self._possible.get(word) or _unlisted(word)
        if len(possible) == 1:
            return possible[0]
        # What an adverb or "not" stands between belongs together.
        last = next((index for index in range(len(tags) - 1, -1, -1) if tags[index] != "RB"), None)
        tag_1, word_1 = ("", "") if last is None else (tags[last], before[last])
        if tag_1 == "DT" and word_1 in _SUBJECTS and following in ("", ".", "?", "!"):
            tag_1 = "PRP"
        return next((tag for tag in _wishes(tag_1, word_1, following, awaits_verb) if tag in possible), possible[0])

    @cached_property
    def _synonyms(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        return synonyms(help_channel=True)

    @cached_property
    def _possible(self) -> dict[str, tuple[str, ...]]:
        """Words and all tags they may have; those of one tag first of all."""
        tags_of: dict[str, dict[str, None]] = {}
        for tag, text in FIXED.items():
            for word in text.split():
                tags_of.setdefault(word, {})[tag] = None
        fixed = frozenset(tags_of)
        for (_, tag), form in self._forms.items():
            if form not in fixed:
                tags_of.setdefault(form, {})[tag] = None
        for word in ("have", "do", "had"):
            tags_of[word] = dict.fromkeys(("VBD", "VBN") if word == "had" else ("VBP", "VB"))
        return {word: tuple(tags) for word, tags in tags_of.items()}

    @cached_property
    def _forms(self) -> dict[tuple[str, str], str]:
        """Forms by base and tag, the verbs last."""
        forms: dict[tuple[str, str], str] = {}
        for noun in NOUNS.split():
            forms[noun, "NN"] = noun
            forms[noun, "NNS"] = PLURALS.get(noun) or _with_s(noun)
        forms.update({(word, "JJ"): word for word in ADJECTIVES.split()})
        forms.update({(word, "RB"): word for word in ADVERBS.split()})
        for base, *graded in _in_threes(COMPARISONS):
            for kind in ("JJ", "RB"):
                if (base, kind) in forms:
                    forms.update({(base, f"{kind}R"): graded[0], (base, f"{kind}S"): graded[1]})
        doubling = frozenset(DOUBLING.split())
        regular = {base: _with_ed(base, base in doubling) for base in REGULAR.split()}
        verbs = [*_in_threes(IRREGULAR), *((base, past, past) for base, past in regular.items())]
        for base, past, participle in verbs:
            gerund, third = _with_ing(base, base in doubling), {"have": "has", "be": "is"}.get(base) or _with_s(base)
            verb_forms = (base, "are" if base == "be" else base, past, participle, gerund, third)
            forms.update({(base, tag): form for tag, form in zip(_VERBS, verb_forms, strict=True)})
        return forms

    @cached_property
    def _base_of(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Bases by form and the first two letters of its tag."""
        bases: dict[tuple[str, str], dict[str, None]] = {}
        for (base, tag), form in self._forms.items():
            bases.setdefault((form, tag[:2]), {})[base] = None
        return {key: tuple(listed) for key, listed in bases.items()}

    def _bases(self, word: str, kind: str) -> tuple[str, ...]:
        return self._base_of.get((word, kind), ())

    @cached_property
    def _antonyms(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        nouns = iter(OPPOSITE_NOUNS.split())
        pairs = [(left, right) for left, right in zip(nouns, nouns, strict=True)]
        return {**OPPOSITES, **{(a, "n"): (b,) for left, right in pairs for a, b in ((right, left), (left, right))}}


def _wishes(tag_1: str, word_1: str, following: str, awaits_verb: bool) -> Iterable[str]:
    """Tags in the order in which they suit a place, by what stands before it."""
    if tag_1 in ("TO", "MD") or word_1 == "please":
        yield "VB"
    if word_1 in _HAVE:
        yield "VBN"
    if word_1 in _BE:
        yield from ("VBG", "JJ", "VBN", "RB")
    if tag_1 in ("DT", "PRP$", "JJ", "CD", "WP$"):
        yield from ("JJ", *_NOUNS) if following.isalpha() and tag_1 != "JJ" else (*_NOUNS, "JJ")
    if awaits_verb:
        yield "VB"
    if word_1 in _SUBJECTS or tag_1 == "NNS":
        yield from ("VBP", "VBD")
    if tag_1 in ("NN", "NNP", "PRP", "WP", "WDT"):
        yield from ("VBZ", "VBD", *_NOUNS)
    if tag_1 in ("", "UH", "CC", ",", ".", ":", "RB"):
        yield "VB"
    if tag_1 in _NOUN_FOLLOWS:
        yield from _NOUNS
    yield from ("VBZ", "VBD", "RB", "JJ")


def _unlisted(word: str) -> tuple[str, ...]:
    if _NUMBER.fullmatch(word):
        return ("CD",)
    if not any(map(str.isalpha, word)):
        return (":",)
    return (next((tag for ending, tag in _ENDINGS if word.endswith(ending) and len(word) > len(ending) + 1), "NN"),)


def _in_threes(text: str) -> Iterable[tuple[str, str, str]]:
    listed = iter(text.split())
    return zip(listed, listed, listed, strict=True)


def _with_s(word: str) -> str:
    if re.search(r"(?:s|x|z|ch|sh|[^aeiou]o)$", word) and word not in ("photo", "piano"):
        return f"{word}es"
    return re.sub(r"(?<=[^aeiou])y$", "ie", word) + "s"


def _with_ed(word: str, doubles: bool) -> str:
    if word.endswith("e"):
        return f"{word}d"
    return re.sub(r"(?<=[^aeiou])y$", "i", f"{word}{word[-1]}" if doubles else word) + "ed"


def _with_ing(word: str, doubles: bool) -> str:
    if word.endswith("ie"):
        return f"{word[:-2]}ying"
    silent = word.endswith("e") and not word.endswith(("ee", "be"))
    return (f"{word}{word[-1]}" if doubles else word[:-1] if silent else word) + "ing"


def open_lexicon(name: str) -> Lexicon:
    """Open a lexicon by its name in `PerturbSettings.lexicon`.

    Raises:
        DataError: its data are not there; says how to get them.
    """
    return BuiltInLexicon() if name == "built-in" else NltkLexicon()
