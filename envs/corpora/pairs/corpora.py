"""The registered corpora of pairs, their conformance tests, and the two corpora of paraphrases.

Each corpus has a licence, its files and a reader. Corpora of paraphrases hold each pair in both directions:

    msr_paraphrases        the Microsoft Research Paraphrase Corpus (Dolan & Brockett 2005): news sentences that people judged
                           to mean the same (quality 1); other pairs are left out
    helpdesk_paraphrases   generated: two phrases of the help desk with the same meaning and the same slots

Quotation marks of the news are removed: a network fitted to them adds quotes to every paraphrase. A user's own paraphrases are
a `source<TAB>paraphrase` file or folder like any other pairs (`turns.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from parley.envs.core.conformance import Kind, expect
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.registry import Registry
from parley.envs.core.seeds import stream
from parley.envs.corpora.arrow import data_root
from parley.envs.corpora.lines import (
    SPLITS,
    broken_rule,
    has_its_files,
    keeps_its_fingerprint,
    located,
    named_source,
    read_lines,
    require_utf8,
)
from parley.envs.corpora.own_files import KINDS, own_file
from parley.envs.corpora.pairs import helpdesk, tokens
from parley.envs.corpora.pairs.helpdesk.dialogues import SLOTS, SPLITS_OF_TEN, TOPICS, Phrases, Topic, helpdesk_pairs
from parley.envs.corpora.pairs.recorded import (
    DICTIONARY,
    FILES,
    FOLDERS,
    LINKS,
    LOG,
    REPLIES,
    SAMPLES,
    SOURCES,
    SUFFIXES,
    read_cornell,
    read_dailydialog_pairs,
    read_opus,
    read_sample,
    read_switchboard,
    read_ubuntu,
)
from parley.envs.corpora.pairs.tokens import FilePairs, GeneratedPairs, PairSource, PairText, SplitText, tokenise
from parley.envs.corpora.pairs.turns import read_conversations, tabbed_pairs


def _has_pairs_to_learn_from(source: Any) -> None:
    """Read its files without a broken line, and find pairs to train on and to validate on."""
    splits = {split: text.num_pairs for split, text in source.read(data_root()).require_whole().splits.items()}
    expect(bool(splits.get("train") and splits.get("val")), "pairs in train and val", splits)
    expect(source.vocabulary > 0, "a size of the vocabulary above 0", source.vocabulary)


PAIR_CORPUS = Kind(
    "corpus of pairs",
    "parley.envs.corpora.pairs.tokens.PairSource",
    ("read", "fingerprint", "require_files", "vocabulary"),
    lambda named: named,
    (has_its_files, _has_pairs_to_learn_from, keeps_its_fingerprint),
)


NUM_PAIRS = 2_000
"""Number of generated pairs, before the second direction."""

_FOLDER = "paraphrase"
_FILES = {split: f"msrp-{split}.tsv" for split in SPLITS}
_COLUMNS = 5
_SAME, _OTHER = "1", "0"
_QUOTES = frozenset('"\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}')
_CHOICE = re.compile(r"\[([^\]]+)\]")
_SLOT = re.compile(r"\{\w+\}")


def read_msr(folder: Path) -> PairText:
    """Read the three files; add a pair of quality 1 in both directions."""
    text = PairText()
    for split, name in _FILES.items():
        for number, line in enumerate(read_lines(folder / name)[1:], 2):
            try:
                pair = parse_msr(line)
            except DataError as error:
                text.broken.append(located(error, str(folder / name), number))
                continue
            if pair is not None:
                _link(text.splits[split], *pair)
    return text


def parse_msr(line: str) -> tuple[list[str], list[str]] | None:
    """Parse one line: quality, two sentence numbers, two sentences, separated by tabs.

    Returns:
        The words of both sentences, without quotation marks; None if people judged that they differ in meaning.

    Raises:
        DataError: the line has another form.
    """
    require_utf8(line)
    columns = line.split("\t")
    if len(columns) != _COLUMNS or columns[0] not in (_SAME, _OTHER):
        raise broken_rule("a line is a quality (0 or 1), two numbers and two sentences, with tabs between them", line)
    first, second = ([word for word in tokenise(sentence) if word not in _QUOTES] for sentence in columns[-2:])
    if not first or not second:
        raise broken_rule("both sentences have words", line)
    return (first, second) if columns[0] == _SAME else None


def helpdesk_paraphrases(num_pairs: int = NUM_PAIRS, seed: int = 0) -> PairText:
    """Generate pairs of phrases with the same meaning.

    Args:
        num_pairs: of all splits together, before pairs of "val" and "test" that are in "train" are left out.
        seed: master seed, at least 0.

    Returns:
        Splits of about 8 : 1 : 1, each pair in both directions. Pair i depends on the seed and i alone.
    """
    text = PairText()
    choices = [(topic, pair) for topic in TOPICS for pair in _ways(topic)]
    pairs = [_filled(choices, i, seed) for i in range(num_pairs)]
    train_pairs = {frozenset(pair) for i, pair in enumerate(pairs) if SPLITS_OF_TEN[i % 10] == "train"}
    for i, pair in enumerate(pairs):
        split = SPLITS_OF_TEN[i % 10]
        if split == "train" or frozenset(pair) not in train_pairs:
            _link(text.splits[split], *(tokenise(sentence) for sentence in pair))
    return text


def _ways(topic: Topic) -> Iterator[tuple[str, str]]:
    """Yield pairs of different phrases of a topic with the same meaning and the same slots."""
    for problem in topic.problems:
        # Two answers of a branch give one diagnosis but differ in meaning, so each is its own group.
        single_phrases = [(phrase,) for branch in problem.branches for phrase in (*branch.answers, *branch.fixes)]
        for phrases in (problem.says, problem.asks, *single_phrases):
            forms = [form for phrase in phrases for form in _forms(phrase)]
            yield from (
                (first, second)
                for number, first in enumerate(forms)
                for second in forms[:number]
                if sorted(_SLOT.findall(first)) == sorted(_SLOT.findall(second))
            )


def _forms(phrase: str) -> Phrases:
    pieces = _CHOICE.split(phrase)
    # Every second piece stood between brackets.
    ways = product(*(piece.split("|") if number % 2 else (piece,) for number, piece in enumerate(pieces)))
    return tuple("".join(way) for way in ways)


def _filled(choices: list[tuple[Topic, tuple[str, str]]], i: int, seed: int) -> tuple[str, str]:
    rng = stream(seed, "helpdesk-paraphrases", i)
    topic, (first, second) = choices[int(rng.integers(len(choices)))]
    slots = {slot: values[int(rng.integers(len(values)))] for slot, values in {**SLOTS, "thing": topic.things}.items()}
    return first.format(**slots), second.format(**slots)


def _link(split: SplitText, first: list[str], second: list[str]) -> None:
    first_row, second_row = split.add(first), split.add(second)
    split.link(first_row, second_row)
    split.link(second_row, first_row)


MSR_PARAPHRASES = FilePairs(
    name="msr_paraphrases",
    summary="sentences of news that mean the same (Microsoft Research Paraphrase Corpus, Dolan & Brockett 2005)",
    licence="Microsoft Research shared source, for non-commercial use",
    obtain="Microsoft Research, or github.com/brmson/dataset-sts, folder data/para/msr",
    vocabulary=30_000,
    wanted=tuple((name,) for name in _FILES.values()),
    reader=read_msr,
    shares=_FOLDER,
)

HELPDESK_PARAPHRASES = GeneratedPairs(
    name="helpdesk_paraphrases",
    summary="two ways of putting one thing at the help desk, generated on this machine",
    licence="Apache-2.0, as Parley itself",
    vocabulary=1_000,
    generator=helpdesk_paraphrases,
    sources=(Path(__file__), Path(tokens.__file__), *sorted(Path(helpdesk.__path__[0]).glob("*.py"))),
)


pair_corpora = Registry("pair corpus", "parley.pairs")


def find_pairs(name: str) -> PairSource:
    """Return the corpus of that name.

    Args:
        name: a registered name, `path/file.py:NAME`, or a path in the sense of `is_path`, with columns.

    Raises:
        ConfigError: an unknown corpus (with the nearest name).
        DataError: the file cannot be read, or its columns are unknown.
    """
    source: PairSource
    if is_path(name):
        return tabbed_pairs(own_file(name))
    try:
        source = named_source(pair_corpora, name, "read", "fingerprint", "vocabulary")
    except ConfigError as error:
        if ".py:" in name:
            raise
        raise ConfigError(error.what, fix=f"{error.fix}; {of_your_own(name)}") from None
    return source


def of_your_own(name: str) -> str:
    """Return the fix for an unknown corpus: the local folder of that name, or any file or folder."""
    if Path(name).is_dir():
        return f"or ./{name} for the folder that lies here"
    return "or a file of lines source<TAB>reply, a table with columns (FILE.csv#context=COLUMN,reply=COLUMN), or ./FOLDER"


def is_path(name: str) -> bool:
    """Return whether a name is a file of pairs, or has a `/` as a folder needs (`./mine` for a local one)."""
    if ".py:" in name or name.endswith(".py"):
        return False
    path = own_file(name).path
    return "/" in name or path.suffix.lower() in KINDS or ("." in name and path.is_file())


for _about, _corpus in {
    "scripted help-desk dialogues, generated": GeneratedPairs(
        name="helpdesk",
        summary="dialogues of users and agents of a help desk, generated on this machine",
        licence="Apache-2.0, as Parley itself",
        vocabulary=1_000,
        generator=helpdesk_pairs,
        sources=(Path(tokens.__file__), *sorted(Path(helpdesk.__path__[0]).glob("*.py"))),
    ),
    "replies in #ubuntu, Kummerfeld et al. 2019": FilePairs(
        name="ubuntu_irc",
        summary="173 logs of #ubuntu with annotated reply links (Kummerfeld et al. 2019), and replies to a named nick",
        licence="CC BY 4.0",
        obtain="github.com/jkkummerfeld/irc-disentanglement, folder data",
        vocabulary=30_000,
        wanted=tuple((f"{folder}/*{suffix}",) for folder in FOLDERS.values() for suffix in (LOG, LINKS)),
        reader=read_ubuntu,
    ),
    "conversations in #ubuntu, Kummerfeld et al. 2019": FilePairs(
        name="ubuntu_dialogues",
        summary="conversations of the logs of ubuntu_irc, turn by turn (Kummerfeld et al. 2019)",
        licence="CC BY 4.0",
        obtain="github.com/jkkummerfeld/irc-disentanglement, folder data",
        vocabulary=20_000,
        wanted=tuple((f"{folder}/*{suffix}",) for folder in FOLDERS.values() for suffix in (LOG, LINKS)),
        reader=read_conversations,
        shares="ubuntu_irc",
    ),
    "turns of telephone calls, Jurafsky et al. 1997": FilePairs(
        name="switchboard",
        summary="1,155 telephone calls, turn by turn (Switchboard with dialogue acts, Jurafsky et al. 1997)",
        licence="not stated for the text; the underlying calls are LDC97S62",
        obtain="github.com/NathanDuran/Switchboard-Corpus, folder swda_data",
        vocabulary=10_000,
        wanted=(("train/*.txt",), ("val/*.txt",), ("test/*.txt",)),
        reader=read_switchboard,
    ),
    "neighbouring lines of films, Lison & Tiedemann 2016": FilePairs(
        name="opensubtitles",
        summary="neighbouring lines of films, one file a film or all in one (OpenSubtitles in OPUS, Lison & Tiedemann 2016)",
        licence="as OPUS states for the release you take",
        obtain="OPUS, corpus OpenSubtitles, monolingual or Moses files",
        vocabulary=30_000,
        wanted=(tuple(f"**/*{suffix}" for suffix in SUFFIXES),),
        reader=read_opus,
    ),
    "256 pairs of film lines a split, Li et al. 2017": FilePairs(
        name="opensubtitles_sample",
        summary="256 pairs of film lines a split, coded in word numbers (Li et al. 2017)",
        licence="MIT (the repository's)",
        obtain="github.com/jiweil/Neural-Dialogue-Generation, folder data",
        vocabulary=25_000,
        wanted=((DICTIONARY,), *((name,) for name in SAMPLES.values())),
        reader=read_sample,
    ),
    "lines of films and replies, Danescu-Niculescu-Mizil & Lee 2011": FilePairs(
        name="cornell",
        summary="30,000 pairs of film lines in two parallel files (Cornell, Danescu-Niculescu-Mizil & Lee 2011)",
        licence="none stated; the corpus is given for research",
        obtain="github.com/kswapd/tensorflow_chatbot, folder data",
        vocabulary=10_000,
        wanted=((SOURCES,), (REPLIES,)),
        reader=read_cornell,
        shares="cornell_test",
    ),
    "contexts with five replies each, Sai et al. 2020": FilePairs(
        name="dailydialog",
        summary="everyday dialogues with five replies that people wrote to each context (DailyDialog++, Sai et al. 2020)",
        licence="none stated",
        obtain="github.com/iitmnlp/DailyDialog-plusplus, folder dataset",
        vocabulary=10_000,
        wanted=tuple((name,) for name in FILES.values()),
        reader=read_dailydialog_pairs,
        shares="dailydialog_pp",
    ),
}.items():
    pair_corpora.register(_corpus.name, _about)(_corpus)
pair_corpora.register("kdconv", "Chinese conversations, Zhou et al. 2020", "parley.envs.corpora.pairs.recorded:KDCONV")
pair_corpora.register(
    "ptb_characters", "words spelled out, He & Glass 2018", "parley.envs.corpora.pairs.vocabulary:PTB_CHARACTERS"
)
pair_corpora.register(
    "msr_paraphrases",
    "news sentences that mean the same, Dolan & Brockett 2005",
    "parley.envs.corpora.pairs.corpora:MSR_PARAPHRASES",
)
pair_corpora.register(
    "helpdesk_paraphrases",
    "help-desk phrases put in two ways, generated",
    "parley.envs.corpora.pairs.corpora:HELPDESK_PARAPHRASES",
)
