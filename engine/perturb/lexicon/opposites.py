"""The interface of a lexicon, our table of opposites, and readers of paraphrase files.

Opposites: written for this project, from the words of help channels and everyday English. An opposite holds for the sense
that the word mostly has there ("add" by "remove", not "add" by "subtract"), and not within a fixed phrase ("hard disk", "good
morning").

`engine/perturb/strategies/antonym.py` decides which word of an utterance changes. A lexicon gives tags, inflections, opposites,
stop words and paraphrases.

Files of paraphrases: PPDB 2.0 (Pavlick et al. 2015, "PPDB 2.0: Better paraphrase ranking, fine-grained entailment relations,
word embeddings, and style classification"); counter-fitting's lists of synonyms (Mrkšić et al. 2016).

A line is one of

    left-hand side ||| phrase ||| paraphrase ||| features ||| alignment ||| entailment      PPDB 2.0; 1.0 ends at the alignment
    phrase<TAB>paraphrase
    word word                                                                               counter-fitting

and every line of a file is of the same kind. Paraphrases hold both ways, as in the released code of Niu & Bansal 2018. Rules of
PPDB with gaps ("[NP,1] of [NP,2]") hold no particular words; they are left out and counted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import FileLine, broken_rule, read_lines, require_utf8
from parley.envs.corpora.pairs.tokens import tokenise


def word_set(text: str) -> frozenset[str]:
    """Return the words of a list that are separated by blanks."""
    return frozenset(text.split())


class Lexicon(Protocol):
    """Knowledge of English; every answer is a pure function of the question."""

    def tag(self, words: Sequence[str]) -> list[str]:
        """Penn Treebank tags of the words of an utterance."""

    def tag_all(self, utterances: Sequence[tuple[str, ...]]) -> list[list[str]]:
        """Return the tags of many utterances, faster than one by one; callers must not change them."""

    def are_tags(self, utterances: Sequence[tuple[str, ...]], tags: Sequence[Sequence[str]]) -> list[bool]:
        """Return whether utterances have these tags; faster than tagging them, and not remembered."""

    def antonyms(self, word: str, part_of_speech: str | None) -> tuple[str, ...]:
        """Return the opposites of a word in any of its senses, in a fixed order, without repetition.

        Args:
            word: lower case.
            part_of_speech: "v", "n", "a" or "r"; None for any.
        """

    def opposites(self, word: str, part_of_speech: str) -> tuple[str, ...]:
        """Return the opposites of a base form in its main sense, beyond this project's own (`opposites.py`).

        Args:
            word: lower case.
            part_of_speech: "v", "a" or "r".
        """

    def same_sense(self, word: str, other: str, part_of_speech: str) -> bool:
        """Return whether two words have the same main sense.

        Args:
            word: base form, lower case.
            other: likewise.
            part_of_speech: of both: "v", "n", "a" or "r".
        """

    def synonyms(self, word: str, part_of_speech: str, *, every_sense: bool = False, names: bool = False) -> tuple[str, ...]:
        """Return base forms with the meaning of a base form, single words, the most usual first.

        Args:
            word: lower case.
            part_of_speech: "v", "n", "a" or "r".
            every_sense: of all senses of the word, not of the most usual one alone.
            names: names have synonyms and are some; else neither.
        """

    def inflect(self, word: str, tag: str) -> str | None:
        """Return the form of a word's base with this tag, such as ("installed", "VB") -> "install"; None if unknown."""

    @property
    def stopwords(self) -> frozenset[str]:
        """Stop words, lower case, contractions as the project's tokeniser cuts them ("n't", "'s")."""

    @property
    def paraphrases(self) -> Mapping[tuple[str, ...], tuple[tuple[str, ...], ...]]:
        """Phrases (words) and their paraphrases, lower case."""


Phrase = tuple[str, ...]

EQUIVALENCE = "Equivalence"
_BAR = "|||"
_GAP = re.compile(r"\[[^\s\[\],]+,\d+\]")

_logger = logging.getLogger(__name__)


def read_paraphrases(path: Path, *, equivalent: bool = False) -> dict[Phrase, tuple[Phrase, ...]]:
    """Read a file of paraphrases.

    Args:
        path: a file of lines as above; empty lines are passed over.
        equivalent: of PPDB, take only what its entailment calls equivalent.

    Returns:
        Phrases and their paraphrases, both ways, in the order of the file.

    Raises:
        DataError: the file cannot be read or has broken lines (the first of them, and their number), or nothing is left of it.
    """
    pairs: list[tuple[Phrase, Phrase]] = []
    broken: list[tuple[int, DataError]] = []
    num_gaps = 0
    lines = read_lines(path)
    first = next((line for line in lines if line.strip()), "")
    parse = _PARSERS[_BAR if _BAR in first else "\t" if "\t" in first else " "]
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            require_utf8(line)
            left, right, entailment = parse(line)
            if _GAP.search(left) or _GAP.search(right):
                num_gaps += 1
            elif not equivalent or entailment in (None, EQUIVALENCE):
                pairs.append((_words(left, line), _words(right, line)))
        except DataError as error:
            broken.append((number, error))
    if broken:
        number, example = broken[0]
        raise DataError(
            f"a broken line: {example.what} ({len(broken)} broken in all)",
            where=FileLine(str(path), number),
            got=example.got,
            fix="mend the line or take it out",
        )
    if num_gaps:
        _logger.warning("%s: left out %d rules with gaps", path, num_gaps)
    table = two_way(pairs)
    if not table:
        what = f"no paraphrase is marked {EQUIVALENCE}" if equivalent and lines else "no paraphrase stands in the file"
        raise DataError(what, where=path, fix="name another file, or --set perturb.rule=paper")
    return table


def two_way(pairs: Iterable[tuple[Phrase, Phrase]]) -> dict[Phrase, tuple[Phrase, ...]]:
    """Phrases and all their paraphrases, none twice; a phrase is none of itself."""
    paraphrases_of: dict[Phrase, list[Phrase]] = {}
    for left, right in pairs:
        if left != right:
            paraphrases_of.setdefault(left, []).append(right)
            paraphrases_of.setdefault(right, []).append(left)
    return {phrase: tuple(dict.fromkeys(paraphrases)) for phrase, paraphrases in paraphrases_of.items()}


def _ppdb(line: str) -> tuple[str, str, str | None]:
    fields = [field.strip() for field in line.split(_BAR)]
    if len(fields) not in (5, 6):
        raise broken_rule("a line of PPDB has five or six fields between |||", line)
    # The features of PPDB 1.0 say nothing of entailment, so all its pairs are alike.
    return fields[1], fields[2], fields[5] if len(fields) == 6 else None


def _tabbed(line: str) -> tuple[str, str, None]:
    sides = line.split("\t")
    if len(sides) != 2:
        raise broken_rule("a line is a phrase, one tab and a paraphrase", line)
    return sides[0], sides[1], None


def _spaced(line: str) -> tuple[str, str, None]:
    words = line.split()
    if len(words) != 2:
        raise broken_rule("a line is two words; phrases of several are told apart by a tab", line)
    return words[0], words[1], None


_PARSERS = {_BAR: _ppdb, "\t": _tabbed, " ": _spaced}


def _words(text: str, line: str) -> Phrase:
    words = tuple(tokenise(text))
    if not words:
        raise broken_rule("both sides hold a word", line)
    return words


_PAIRS = {
    "v": """
accept reject        activate deactivate  add remove           agree disagree       allow forbid         answer ask
appear disappear     arrive leave         attach detach        believe doubt        borrow lend          break fix
buy sell             compress decompress  connect disconnect   create delete        decode encode
decrease increase    decrypt encrypt      disable enable       dislike like         download upload      downgrade upgrade
empty fill           exclude include      expand shrink        export import        fall rise
finish start         forget remember      hate love            hide show            import export
install uninstall    install remove       join leave           laugh cry            load unload
lock unlock          lose keep            lower raise          maximize minimize    mount unmount
mute unmute          obey disobey         open close           pack unpack          pull push            start stop
trust distrust                  unlock lock          zip unzip
lengthen shorten     unblock block        deny grant           repair break
""",
    "a": """
able unable          absent present       active inactive      advanced basic       alive dead           angry calm
asleep awake         automatic manual     available unavailable                     bad good             beautiful ugly
best worst           better worse         big small            bigger smaller       biggest smallest     boring interesting
bright dim           broken working       cheap expensive      clean dirty          clear unclear
closed open          cold hot             compatible incompatible
complex simple
correct incorrect    dark light           deep shallow         difficult easy       disabled enabled
dry wet              dumb smart           dynamic static       early late           easier harder        easiest hardest
empty full           external internal    false true           familiar unfamiliar  fast slow            faster slower
fastest slowest      few many             first last           happy sad            harmful harmless
heavy light          helpful unhelpful    hidden visible       high low             higher lower
highest lowest       important unimportant                     impossible possible  installed uninstalled
invalid valid        invisible visible    large small          larger smaller       largest smallest     latest oldest
legal illegal        likely unlikely      local remote         long short           longest shortest     loose tight
loud quiet           lucky unlucky        major minor          mandatory optional   maximum minimum
narrow wide          nasty nice           necessary unnecessary                     negative positive    new old
newer older          newest oldest        noisy silent         normal strange       official unofficial
offline online       patient impatient    permanent temporary  physical virtual     plain fancy          polite rude
poor rich            popular unpopular    primary secondary    private public       quick slow           quicker slower
reliable unreliable  relevant irrelevant  responsive unresponsive                   right wrong          rough smooth
secure insecure      sharp blunt          sour sweet           stable unstable      strong weak          stupid smart
supported unsupported                     sure unsure          thick thin           top bottom           unhappy happy
unknown known        upper lower          useful useless       usual unusual        weird normal
wired wireless       great terrible       awful wonderful      hard easy            odd normal
perfect imperfect    friendly unfriendly  stronger weaker      cheaper pricier      crowded empty        faulty working
""",
    "r": """
always never         badly well           better worse         carefully carelessly
correctly incorrectly                     directly indirectly  downstairs upstairs  early late           everywhere nowhere
externally internally                     faster slower        fortunately unfortunately                 gently roughly
inside outside       locally remotely     loudly quietly       luckily unfortunately                     often rarely
permanently temporarily                   privately publicly   properly improperly  quickly slowly       seldom often
successfully unsuccessfully               usually rarely       harder easier        most least
""",
}
_ONE_WAY = {
    "v": """
begin stop           block allow          continue stop        end begin            hope fear            succeed fail
kill start           launch close         quit start           think doubt          work fail
""",
    "a": """
complicated simple   completed unfinished dangerous safe       safe unsafe          hard easy
horrible great       idle busy
similar different    different same       strange normal       tiny huge            huge tiny            most few
same different       young old
""",
    "r": """
completely partly    constantly rarely    entirely partly      frequently rarely    fully partly
generally rarely     sadly fortunately    totally partly       twice once           fast slowly
""",
}
"""Where the second word mostly means something else."""
_NOT_BACK = {
    "v": "start eject leave ask cry keep grant throw rise show repair break",
    "a": "light working present minor",
    "r": "well most least inside outside",
}
_LEFT_ALONE = {
    "v": """
understand fail follow
catch ill complicate freeze worry be do have get know let come go live leave make give take see say tell find look need try
run put want turn set please win sound correct function interest cover cool back act claim box free sit stand stay stick
miss manage bore fire hire right wrong complete enter exit show clean slow sleep wake play read write save hold pass ask use
match respect dry delay close spread gather walk ride shout attack defend tie tense heat waste conserve deny admit avoid
confront end begin like dress
""",
    "a": """
complete previous next
ill afraid main cool other more less much little live fresh least whole own current specific general individual enough such
free sorry welcome ready busy multiple single separate due past present future left odd even like black white red green
actual potential real proper net fat fair deep sudden front back side running standing lost found used limited concerned
involved tough early middle pro anti go nuclear conventional vertical horizontal individual regular soft wild former latter
foreign native national international domestic personal mental physical
""",
    "r": """
ill well here there now then up down on off in out back again so just only still too even really very more less much little
most least ever never-mind far near first last once already yet together apart ahead away close right left straight
hopefully properly improperly correctly specifically incredibly exactly late later earlier literally officially accidentally
probably
""",
}
"""Words that WordNet's opposites do not suit in a chat."""
_FIXED = """
active: | directory
advanced: more most | packaging
agree: | to on
allow allows allowed: | for
connected: | through with
join: | #
downgrade upgrade: | to
always: as |
appear appears appeared: | to that as in like
ask asks asked asking: | for about if how what why to you around ubuntu
awful: | lot
bad: too not my | ass
basic: | auth commands
begin begins began: | with to
believe: | so in it me not , . ?
add adds added: might may could | that
best: my all at try | practice to of bet regards for , .
better: 'd you had i we even much | yet off to if be not
big: how no | brother deal time thanks endian
broken: have has had 've so | pipe
cheap: | and
clear: | screen text that to
close: | to enough
closed: | to source as by
cold: | boot
common: how in most | sense with
complete: until till after |  with
continue continues continued continuing: | to with on
correct: | me . , ! ?
dark: | side
dead: | end line man
deep: | freeze
different: no any two some three many several completely totally from very slightly something are somewhat little bit
    of | enough from than to between . one
download: | link page
early: as too how | on
easily: more as most very so quite pretty not n't |
easy: take how as | way as going
empty: | line lines
enabled disabled: | by
external: | hard
fail fails failed failing: | to
fast: how as | as forward
few: a the |
fill fills: | in out
first: at my | time off of place hand , . and thing try boot
forget: i | about that it
forgot: | about
full: in | screen name path time stop of fledged hd
good: as for very pretty no any so | morning night evening afternoon luck day bye god to lord thing grief as enough
    for stuff job work one look , . ! ?
great: a | , . ! thanks job
happy: | to
hard: how too | drive drives disk disks disc copy links link coded reset code time reboot way hd hdd core
heavy: | duty
hidden: | file files from
high: how | school time level end resolution res quality
hope: | so not to for , you
important: most more |
install installs installing: a the my your fresh clean new windows ubuntu linux this an debian during after default
    minimal full base | disk cd cds dvd process script media option options image instructions guide usb - log disc
known: well also | to as issue bug for issues
large: how | part
last: at my your | night week time year month one few thing of i
latest: at | and
likely: is most more very 's less |
load loads: | average
local: | time host
long: how as so too for before very | as story ago term way time run enough live
lost: get got getting |
love: would 'd | to you it
hate hates: would 'd | to
low: how | level end resolution res
main: | menu reason thing problem repo repos repository one
many: how | thanks
fall falls: | for under in into asleep ill sick behind apart
like: would 'd |
sell sells sold: | well
minor: | version
most: the at | of recent probably important common popular current stable likely definitely
mount mounts: to could | point points
necessary: if |
never: | mind the been heard ever
new: very anything what | to here at in line user users with year york . , one ?
next: | to time week month year day
nice: very be how | one to , . ! day and
normal: | user users
odd: | . ,
often: how more as |
old: good year years month months day days weeks how | school days fashioned . ,
able: to |
open: | source office ssh gl bsd suse box
physical: | volume access
plain: | text english old
poor: | man
positive: am 'm are 're | that
possible: if as when where | ,
previous: | ones
private: | key message msg
public: | key domain
quick: | question search look fix google and
quickly: as to |
remember: | to
remote: | desktop host
rich: | text
safe: | mode
same: | as with for . thing things ;
send: | me you us him to
short: in to | of term cut answer
similar: | to
smart: | enough health status data test tests attributes
start starts started starting: get getting gets got | with from to menu again point button
static: | library
stop stops stopped: | by
strange: how very so | . , ...
sure: make makes making made for be not n't how pretty quite so to | thing enough , . ! ? why how what if whether
    where which
think thinks thought: n't not | if so of about not i ? . , to
top: | of
true: not | that . , !
understand: n't not |
unknown: | error command device
usual: as than | suspects
virtual: | box memory host hosts posts
manual: | page pages for
visible: in |
weird: | . ,
well: as | , .
wide: | screen
work works worked working: im iam 'm 're i you we they he she people who get got getting hard sound | on around with
    for in as at fine properly well great perfectly ok good correctly flawlessly together right better too either just
    through that now fully here again okay from there without like any to directory order copy dir style
wrong: | . ,
"""
PREDICATIVE = word_set(
    """
    sure wrong right correct able unable available possible impossible likely unlikely dead alive happy unhappy sad
    broken full empty fine hard hidden visible installed uninstalled down up clear closed open busy idle asleep awake
    familiar unfamiliar aware early late safe active inactive disabled enabled warm cool fast quick unknown known true
    """
)
"""Words that change only behind a form of "be" ("it is full", not "the full path")."""
ATTRIBUTIVE = word_set(
    """
    manual new good latest last first next previous top bottom main most great primary other normal long short
    """
)
"""Words that change only before a noun."""
OF_PERSONS = word_set(
    """
    think thinks thinking thought like believe hope love hate
    """
)
"""Verbs that change only behind a person."""
OF_OBJECTS = word_set(
    """
    lost follow follows following followed ask asked asking asks kill break broke breaks breaking answer
    """
)
"""Verbs that change only before a pronoun or an article."""


def _table(texts: Mapping[str, str], back: bool) -> dict[tuple[str, str], tuple[str, ...]]:
    opposites_of: dict[tuple[str, str], dict[str, None]] = {}
    for kind, text in texts.items():
        listed = iter(text.split())
        for left, right in zip(listed, listed, strict=True):
            opposites_of.setdefault((left, kind), {})[right] = None
            if back and right not in _NOT_BACK[kind].split():
                opposites_of.setdefault((right, kind), {})[left] = None
    return {key: tuple(opposites) for key, opposites in opposites_of.items()}


def _fixed(text: str) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    before: dict[str, frozenset[str]] = {}
    behind: dict[str, frozenset[str]] = {}
    for line in text.replace("\n    ", " ").strip().split("\n"):
        listed, _, rest = line.partition(":")
        left, _, right = rest.partition("|")
        for word in listed.split():
            before[word], behind[word] = frozenset(left.split()), frozenset(right.split())
    return before, behind


OPPOSITES = {
    **{(word, kind): () for kind, text in _LEFT_ALONE.items() for word in text.split()},
    **_table(_ONE_WAY, back=False),
    **_table(_PAIRS, back=True),
}
"""Opposites by base form and part of speech; none for words that are left alone."""
NOT_BEHIND, NOT_BEFORE = _fixed(_FIXED)
"""Words that a word does not change behind, and before."""
